//! Parses statements: one expression, or assignments that end in `result = …`.

use super::{
    ast::{AssignmentTarget, ExpressionKind, ExpressionNode, StatementNode},
    error::{Result, UnlocatedError, syntax_error},
    lexer::ExpressionTokenKind,
    parse_atom::{parse_postfix, parse_starred, refuse_walrus, reject_starred},
    parse_expression::binary_operator,
    token_cursor::TokenCursor,
};

/// Python statements that are not supported, and what to write instead.
const UNSUPPORTED_STATEMENTS: [(&str, &str); 24] = [
    (
        "import",
        "nothing can be imported; math, date, datetime and timedelta are built in",
    ),
    (
        "from",
        "nothing can be imported; math, date, datetime and timedelta are built in",
    ),
    ("for", "write a comprehension: [… for x in …]"),
    ("while", "write a comprehension: [… for x in …]"),
    ("if", "write a conditional expression: … if … else …"),
    ("def", "write the expression itself"),
    ("class", "write the expression itself"),
    ("async", "write the expression itself"),
    ("await", "write the expression itself"),
    ("return", "write `result = …`"),
    ("yield", "write a comprehension: [… for x in …]"),
    ("try", "test the value first: … if … else …"),
    ("raise", "errors come from the expression itself"),
    ("assert", "errors come from the expression itself"),
    ("with", "nothing can be opened"),
    ("del", "values do not change"),
    ("global", "there is one scope"),
    ("nonlocal", "there is one scope"),
    ("pass", "write an expression"),
    ("break", "write a comprehension: [… for x in … if …]"),
    ("continue", "write a comprehension: [… for x in … if …]"),
    ("match", "write a conditional expression: … if … else …"),
    ("except", "test the value first: … if … else …"),
    ("else", "write a conditional expression: … if … else …"),
];
const MUST_END_IN_RESULT: &str =
    "a definition of several lines assigns names and ends in `result = …`";

/// Parses the whole source.
pub(super) fn parse_program(tokens: &mut TokenCursor<'_>) -> Result<Vec<StatementNode>> {
    let mut statements = Vec::new();
    loop {
        while tokens.peek().kind == ExpressionTokenKind::Newline {
            tokens.take_token();
        }
        if tokens.peek().kind == ExpressionTokenKind::End {
            break;
        }
        statements.push(parse_statement(tokens)?);
        if !matches!(
            tokens.peek().kind,
            ExpressionTokenKind::Newline | ExpressionTokenKind::End
        ) {
            return Err(tokens.unexpected_token_error("expected the end of the line"));
        }
    }
    validate_statements(&statements)?;
    Ok(statements)
}

/// Parses targets such as `a`, `a, b` and `(a, b), *c`, as after `for` and before `=`.
pub(super) fn parse_targets(tokens: &mut TokenCursor<'_>) -> Result<AssignmentTarget> {
    let first = parse_target_item(tokens)?;
    if !tokens.is_at_operator(",") && !matches!(first.kind, ExpressionKind::Starred(_)) {
        return into_target(first);
    }
    let mut items = vec![first];
    while tokens.accept_operator(",") {
        if tokens.is_at_word("in") {
            break;
        }
        items.push(parse_target_item(tokens)?);
    }
    into_unpack_target(items)
}

fn parse_target_item(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    if tokens.accept_operator("*") {
        let inner = parse_postfix(tokens)?;
        return Ok(ExpressionNode::new(
            at,
            ExpressionKind::Starred(Box::new(inner)),
        ));
    }
    parse_postfix(tokens)
}

fn parse_statement(tokens: &mut TokenCursor<'_>) -> Result<StatementNode> {
    refuse_keyword(tokens)?;
    let at = tokens.source_offset();
    let left = parse_tuple(tokens)?;
    refuse_walrus(tokens)?;
    if tokens.accept_operator("=") {
        let value = parse_tuple(tokens)?;
        if tokens.is_at_operator("=") {
            return Err(syntax_error("assign one name at a time").at(tokens.source_offset()));
        }
        let target = Some(into_target(left)?);
        return Ok(StatementNode { at, target, value });
    }
    if let Some(operator) = augmented_operator(tokens) {
        let offset = tokens.take_token().at;
        let value = parse_tuple(tokens)?;
        let target = Some(into_target(left.clone())?);
        let value = ExpressionKind::BinaryChain(Box::new(left), vec![(operator, offset, value)]);
        let value = ExpressionNode::new(at, value);
        return Ok(StatementNode { at, target, value });
    }
    if tokens.is_at_operator(":") {
        return Err(tokens.unexpected_token_error("expected the end of the line"));
    }
    let target = None;
    Ok(StatementNode {
        at,
        target,
        value: reject_starred(left)?,
    })
}

fn refuse_keyword(tokens: &TokenCursor<'_>) -> Result<()> {
    let ExpressionTokenKind::Name(word) = tokens.peek().kind else {
        return Ok(());
    };
    // `match` is a keyword only in front of another name or a literal.
    if word == "match"
        && !matches!(
            tokens.peek_second(),
            ExpressionTokenKind::Name(_) | ExpressionTokenKind::Literal(_)
        )
    {
        return Ok(());
    }
    match UNSUPPORTED_STATEMENTS
        .iter()
        .find(|(refused, _)| *refused == word)
    {
        Some((_, hint)) => {
            Err(syntax_error(format!("'{word}' is not supported; {hint}"))
                .at(tokens.source_offset()))
        }
        None => Ok(()),
    }
}

/// Parses an expression, or several separated by commas as a tuple.
fn parse_tuple(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    let first = parse_starred(tokens)?;
    if !tokens.is_at_operator(",") {
        return Ok(first);
    }
    let mut items = vec![first];
    while tokens.accept_operator(",") {
        if matches!(
            tokens.peek().kind,
            ExpressionTokenKind::Newline
                | ExpressionTokenKind::End
                | ExpressionTokenKind::Operator("=")
        ) {
            break;
        }
        items.push(parse_starred(tokens)?);
    }
    Ok(ExpressionNode::new(at, ExpressionKind::Tuple(items)))
}

fn augmented_operator(tokens: &TokenCursor<'_>) -> Option<super::ast::BinaryOperator> {
    match tokens.peek().kind {
        ExpressionTokenKind::Operator(it) if it != "==" => binary_operator(it.strip_suffix('=')?),
        _ => None,
    }
}

fn validate_statements(statements: &[StatementNode]) -> Result<()> {
    let Some((last, before)) = statements.split_last() else {
        return Err(syntax_error("the definition is empty").at(0));
    };
    if let Some(stray) = before.iter().find(|it| it.target.is_none()) {
        return Err(syntax_error(MUST_END_IN_RESULT).at(stray.at));
    }
    let result = matches!(&last.target, Some(AssignmentTarget::Name(name, _)) if name == "result");
    if result || (before.is_empty() && last.target.is_none()) {
        Ok(())
    } else {
        Err(syntax_error(MUST_END_IN_RESULT).at(last.at))
    }
}

fn into_target(node: ExpressionNode) -> Result<AssignmentTarget> {
    match node.kind {
        ExpressionKind::Name(name) => Ok(AssignmentTarget::Name(name, node.at)),
        ExpressionKind::Tuple(items) | ExpressionKind::List(items) => into_unpack_target(items),
        ExpressionKind::Postfix(..) => Err(syntax_error(
            "values do not change; make a new one, as in {**record, 'key': value}",
        )
        .at(node.at)),
        _ => Err(invalid_target_error(node.at)),
    }
}

fn into_unpack_target(items: Vec<ExpressionNode>) -> Result<AssignmentTarget> {
    let mut rest = None;
    let mut targets = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let offset = item.at;
        let item = match item.kind {
            ExpressionKind::Starred(_) if rest.is_some() => {
                return Err(syntax_error("multiple starred expressions in assignment").at(offset));
            }
            ExpressionKind::Starred(inner) => {
                rest = Some(at);
                *inner
            }
            kind => ExpressionNode::new(offset, kind),
        };
        targets.push(into_target(item)?);
    }
    Ok(AssignmentTarget::Unpack(targets, rest))
}

fn invalid_target_error(at: u32) -> UnlocatedError {
    syntax_error("cannot assign to an expression; assign to a name").at(at)
}
