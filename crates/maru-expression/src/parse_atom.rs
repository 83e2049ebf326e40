//! Parses names, literals, brackets and postfix operators.

use std::sync::Arc;

use super::{
    ast::{
        ArgumentList, Comprehension, ComprehensionKind, Constant, ExpressionKind, ExpressionNode,
        FStringPart, ForClause, Lambda, PostfixKind, PostfixStep,
    },
    error::{Result, syntax_error},
    fstring,
    lexer::{ExpressionTokenKind, FStringToken},
    literal::Literal,
    parse_expression::{parse_bitwise, parse_disjunction, parse_expression},
    parse_statement::parse_targets,
    token_cursor::TokenCursor,
    value::TextValue,
};

/// Keywords of Python, which cannot be names.
const KEYWORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Maximum number of `for` clauses in a comprehension, as in Python.
const MAX_CLAUSES: usize = 20;

/// Parses an atom with its calls, indices and attributes.
pub(super) fn parse_postfix(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let base = parse_atom(tokens)?;
    let mut steps = Vec::new();
    loop {
        let at = tokens.source_offset();
        let kind = if tokens.accept_operator("(") {
            PostfixKind::Call(Box::new(tokens.parse_nested(parse_arguments)?))
        } else if tokens.accept_operator("[") {
            tokens.parse_nested(parse_index)?
        } else if tokens.accept_operator(".") {
            PostfixKind::Attribute(parse_attribute(tokens)?)
        } else {
            break;
        };
        steps.push(PostfixStep { at, kind });
    }
    if steps.is_empty() {
        return Ok(base);
    }
    Ok(ExpressionNode::new(
        base.at,
        ExpressionKind::Postfix(Box::new(base), steps),
    ))
}

/// Parses `lambda a, b: …`.
pub(super) fn parse_lambda(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.take_token().at;
    let mut names = Vec::new();
    while !tokens.accept_operator(":") {
        names.push(parse_name(tokens)?);
        if !tokens.accept_operator(",") {
            tokens.expect_operator(":")?;
            break;
        }
    }
    let body = parse_expression(tokens)?;
    let lambda = Lambda {
        names,
        slots: Vec::new(),
        body,
    };
    Ok(ExpressionNode::new(
        at,
        ExpressionKind::Lambda(Arc::new(lambda)),
    ))
}

/// Parses a name that can be assigned.
pub(super) fn parse_name(tokens: &mut TokenCursor<'_>) -> Result<String> {
    let token = tokens.take_token();
    match token.kind {
        ExpressionTokenKind::Name(name) => check_name(name).map_err(|it| it.at(token.at)),
        ExpressionTokenKind::Operator("*" | "**") => {
            Err(syntax_error("a lambda takes plain parameters").at(token.at))
        }
        _ => Err(syntax_error("expected a name").at(token.at)),
    }
}

fn parse_attribute(tokens: &mut TokenCursor<'_>) -> Result<String> {
    let token = tokens.take_token();
    match token.kind {
        ExpressionTokenKind::Name(name) if name.starts_with('_') => Err(syntax_error(format!(
            "'{name}': names that start with an underscore are reserved"
        ))
        .at(token.at)),
        ExpressionTokenKind::Name(name) => Ok(name.to_owned()),
        _ => Err(syntax_error("expected a name after '.'").at(token.at)),
    }
}

fn parse_atom(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    let kind = match tokens.peek().kind.clone() {
        ExpressionTokenKind::Operator("(") => {
            return tokens.parse_nested(parse_parentheses);
        }
        ExpressionTokenKind::Operator("[") => return tokens.parse_nested(parse_list),
        ExpressionTokenKind::Operator("{") => return tokens.parse_nested(parse_braces),
        ExpressionTokenKind::Operator("...") => {
            return Err(syntax_error("'...' is not a value here").at(at));
        }
        ExpressionTokenKind::Literal(Literal::Text(_)) | ExpressionTokenKind::FString(_) => {
            return parse_texts(tokens);
        }
        ExpressionTokenKind::Literal(literal) => ExpressionKind::Constant(constant(literal)),
        ExpressionTokenKind::Name(name) => parse_word(tokens, name)?,
        _ => return Err(tokens.unexpected_token_error("expected an expression")),
    };
    tokens.take_token();
    Ok(ExpressionNode::new(at, kind))
}

fn parse_word(tokens: &TokenCursor<'_>, name: &str) -> Result<ExpressionKind> {
    Ok(ExpressionKind::Constant(match name {
        "True" => Constant::Bool(true),
        "False" => Constant::Bool(false),
        "None" => Constant::None,
        _ if KEYWORDS.contains(&name) => {
            return Err(tokens.unexpected_token_error("expected an expression"));
        }
        _ => {
            return check_name(name)
                .map(ExpressionKind::Name)
                .map_err(|it| it.at(tokens.source_offset()));
        }
    }))
}

/// Parses adjacent string literals, which form one string.
fn parse_texts(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    let mut parts: Vec<FStringPart> = Vec::new();
    let mut has_fstring = false;
    loop {
        match tokens.peek().kind.clone() {
            ExpressionTokenKind::Literal(Literal::Text(text)) => {
                parts.push(FStringPart::Text(text));
            }
            ExpressionTokenKind::FString(found) => {
                has_fstring = true;
                parts.extend(parse_fstring(tokens, found)?);
            }
            _ => break,
        }
        tokens.take_token();
    }
    if has_fstring {
        return Ok(ExpressionNode::new(at, ExpressionKind::FString(parts)));
    }
    let whole: String = parts.into_iter().map(text_part).collect();
    let text = Constant::Text(Arc::new(TextValue::new(whole)));
    Ok(ExpressionNode::new(at, ExpressionKind::Constant(text)))
}

fn parse_fstring(tokens: &TokenCursor<'_>, found: FStringToken<'_>) -> Result<Vec<FStringPart>> {
    fstring::parse_fstring_parts(found, tokens.depth() + 1)
}

fn parse_parentheses(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.take_token().at;
    if tokens.accept_operator(")") {
        return Ok(ExpressionNode::new(at, ExpressionKind::Tuple(Vec::new())));
    }
    let first = parse_starred(tokens)?;
    if tokens.is_at_word("for") {
        return parse_comprehension(tokens, at, ComprehensionKind::Generator, None, first);
    }
    if tokens.is_at_operator(",") {
        let items = parse_items_until(tokens, first, ")")?;
        return Ok(ExpressionNode::new(at, ExpressionKind::Tuple(items)));
    }
    refuse_walrus(tokens)?;
    tokens.expect_operator(")")?;
    let node = reject_starred(first)?;
    // Keeps `(a < b) < c` from becoming `a < b < c`.
    if matches!(node.kind, ExpressionKind::ComparisonChain(..)) {
        return Ok(ExpressionNode::new(at, ExpressionKind::Or(vec![node])));
    }
    Ok(node)
}

fn parse_list(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.take_token().at;
    if tokens.accept_operator("]") {
        return Ok(ExpressionNode::new(at, ExpressionKind::List(Vec::new())));
    }
    let first = parse_starred(tokens)?;
    if tokens.is_at_word("for") {
        return parse_comprehension(tokens, at, ComprehensionKind::List, None, first);
    }
    let items = parse_items_until(tokens, first, "]")?;
    Ok(ExpressionNode::new(at, ExpressionKind::List(items)))
}

fn parse_braces(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.take_token().at;
    if tokens.accept_operator("}") {
        return Ok(ExpressionNode::new(at, ExpressionKind::Dict(Vec::new())));
    }
    if tokens.is_at_operator("**") {
        return parse_dict(tokens, at, Vec::new());
    }
    let first = parse_starred(tokens)?;
    if !tokens.accept_operator(":") {
        if tokens.is_at_word("for") {
            return parse_comprehension(tokens, at, ComprehensionKind::Set, None, first);
        }
        let items = parse_items_until(tokens, first, "}")?;
        return Ok(ExpressionNode::new(at, ExpressionKind::Set(items)));
    }
    let key = reject_starred(first)?;
    let value = parse_expression(tokens)?;
    if tokens.is_at_word("for") {
        return parse_comprehension(tokens, at, ComprehensionKind::Dict, Some(key), value);
    }
    if !tokens.accept_operator(",") {
        tokens.expect_operator("}")?;
        return Ok(ExpressionNode::new(
            at,
            ExpressionKind::Dict(vec![(Some(key), value)]),
        ));
    }
    parse_dict(tokens, at, vec![(Some(key), value)])
}

fn parse_dict(
    tokens: &mut TokenCursor<'_>,
    at: u32,
    mut entries: Vec<(Option<ExpressionNode>, ExpressionNode)>,
) -> Result<ExpressionNode> {
    while !tokens.accept_operator("}") {
        if tokens.accept_operator("**") {
            entries.push((None, parse_bitwise(tokens)?));
        } else {
            let key = parse_expression(tokens)?;
            tokens.expect_operator(":")?;
            entries.push((Some(key), parse_expression(tokens)?));
        }
        if !tokens.accept_operator(",") {
            tokens.expect_operator("}")?;
            break;
        }
    }
    Ok(ExpressionNode::new(at, ExpressionKind::Dict(entries)))
}

/// Parses `x` or `*x`.
pub(super) fn parse_starred(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    if !tokens.accept_operator("*") {
        return parse_expression(tokens);
    }
    let inner = parse_bitwise(tokens)?;
    Ok(ExpressionNode::new(
        at,
        ExpressionKind::Starred(Box::new(inner)),
    ))
}

/// Parses the items after `first` up to `end`.
fn parse_items_until(
    tokens: &mut TokenCursor<'_>,
    first: ExpressionNode,
    end: &str,
) -> Result<Vec<ExpressionNode>> {
    let mut items = vec![first];
    while !tokens.accept_operator(end) {
        refuse_walrus(tokens)?;
        tokens.expect_operator(",")?;
        if tokens.accept_operator(end) {
            break;
        }
        items.push(parse_starred(tokens)?);
    }
    Ok(items)
}

pub(super) fn refuse_walrus(tokens: &TokenCursor<'_>) -> Result<()> {
    if tokens.is_at_operator(":=") {
        Err(
            syntax_error("':=' is not supported; assign on a line before")
                .at(tokens.source_offset()),
        )
    } else {
        Ok(())
    }
}

/// Parses the clauses of a comprehension up to its closing bracket.
fn parse_comprehension(
    tokens: &mut TokenCursor<'_>,
    at: u32,
    kind: ComprehensionKind,
    key: Option<ExpressionNode>,
    item: ExpressionNode,
) -> Result<ExpressionNode> {
    let comprehension = Comprehension {
        kind,
        key,
        item: reject_starred(item)?,
        clauses: parse_for_clauses(tokens)?,
    };
    tokens.expect_operator(match kind {
        ComprehensionKind::List => "]",
        ComprehensionKind::Set | ComprehensionKind::Dict => "}",
        ComprehensionKind::Generator => ")",
    })?;
    Ok(ExpressionNode::new(
        at,
        ExpressionKind::Comprehension(Arc::new(comprehension)),
    ))
}

fn parse_for_clauses(tokens: &mut TokenCursor<'_>) -> Result<Vec<ForClause>> {
    let mut clauses = Vec::new();
    while tokens.accept_word("for") {
        let target = parse_targets(tokens)?;
        if !tokens.accept_word("in") {
            return Err(tokens.unexpected_token_error("expected 'in'"));
        }
        let source = parse_disjunction(tokens)?;
        let mut conditions = Vec::new();
        while tokens.accept_word("if") {
            conditions.push(parse_disjunction(tokens)?);
        }
        if clauses.len() >= MAX_CLAUSES {
            return Err(
                syntax_error("too many statically nested blocks").at(tokens.source_offset())
            );
        }
        clauses.push(ForClause {
            target,
            source,
            conditions,
        });
    }
    Ok(clauses)
}

fn parse_index(tokens: &mut TokenCursor<'_>) -> Result<PostfixKind> {
    let mut parts = [None, None, None];
    let mut colons = 0;
    while !tokens.accept_operator("]") {
        if tokens.accept_operator(":") && colons < 2 {
            colons += 1;
        } else if parts[colons].is_none() {
            parts[colons] = Some(parse_expression(tokens)?);
        } else {
            return Err(tokens.unexpected_token_error("expected ']'"));
        }
    }
    match (colons, parts) {
        (0, [Some(index), ..]) => Ok(PostfixKind::Index(index)),
        (0, _) => Err(syntax_error("an index is missing").at(tokens.source_offset())),
        (_, parts) => Ok(PostfixKind::Slice(Box::new(parts))),
    }
}

fn parse_arguments(tokens: &mut TokenCursor<'_>) -> Result<ArgumentList> {
    let mut arguments = ArgumentList::default();
    while !tokens.accept_operator(")") {
        parse_argument(tokens, &mut arguments)?;
        refuse_walrus(tokens)?;
        if !tokens.accept_operator(",") {
            tokens.expect_operator(")")?;
            break;
        }
    }
    Ok(arguments)
}

fn parse_argument(tokens: &mut TokenCursor<'_>, arguments: &mut ArgumentList) -> Result<()> {
    let at = tokens.source_offset();
    if tokens.accept_operator("**") {
        let value = parse_expression(tokens)?;
        arguments.named.push((None, value));
        return Ok(());
    }
    if *tokens.peek_second() == ExpressionTokenKind::Operator("=") {
        let name = parse_name(tokens)?;
        tokens.take_token();
        if arguments
            .named
            .iter()
            .any(|it| it.0.as_ref() == Some(&name))
        {
            return Err(syntax_error(format!("keyword argument repeated: {name}")).at(at));
        }
        let value = parse_expression(tokens)?;
        arguments.named.push((Some(name), value));
        return Ok(());
    }
    let value = parse_starred(tokens)?;
    if !arguments.named.is_empty() {
        return Err(syntax_error("positional argument follows keyword argument").at(at));
    }
    let value = if tokens.is_at_word("for") {
        parse_sole_generator(tokens, at, value)?
    } else {
        value
    };
    arguments.positional.push(value);
    Ok(())
}

/// Parses `sum(x for x in xs)`, where the call's parentheses are the generator's.
fn parse_sole_generator(
    tokens: &mut TokenCursor<'_>,
    at: u32,
    item: ExpressionNode,
) -> Result<ExpressionNode> {
    let clauses = parse_for_clauses(tokens)?;
    Ok(ExpressionNode::new(
        at,
        ExpressionKind::Comprehension(Arc::new(Comprehension {
            kind: ComprehensionKind::Generator,
            key: None,
            item: reject_starred(item)?,
            clauses,
        })),
    ))
}

pub(super) fn reject_starred(node: ExpressionNode) -> Result<ExpressionNode> {
    match node.kind {
        ExpressionKind::Starred(_) => {
            Err(syntax_error("can't use starred expression here").at(node.at))
        }
        _ => Ok(node),
    }
}

fn check_name(name: &str) -> Result<String> {
    if name.starts_with('_') && name != "_" {
        return Err(syntax_error(format!(
            "'{name}': names that start with an underscore are reserved"
        )));
    }
    if KEYWORDS.contains(&name) || matches!(name, "True" | "False" | "None") {
        return Err(syntax_error(format!("'{name}' is not a name")));
    }
    Ok(name.to_owned())
}

fn constant(literal: Literal) -> Constant {
    match literal {
        Literal::Int(it) => Constant::Int(it),
        Literal::BigInt(it) => Constant::BigInt(Arc::new(it)),
        Literal::Float(it) => Constant::Float(it),
        Literal::Text(it) => Constant::Text(Arc::new(TextValue::new(it))),
    }
}

fn text_part(part: FStringPart) -> String {
    match part {
        FStringPart::Text(text) => text,
        FStringPart::Field(_) => String::new(),
    }
}
