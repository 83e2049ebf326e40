//! The parser's part for names, literals, brackets and what follows them.

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
    parser::ExpressionParser,
    value::TextValue,
};

/// Words that begin or join something else.
const KEYWORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// As many `for` as Python allows in one comprehension.
const MAX_CLAUSES: usize = 20;

impl ExpressionParser<'_> {
    /// An atom with its calls, indices and attributes.
    pub(super) fn parse_postfix(&mut self) -> Result<ExpressionNode> {
        let base = self.parse_atom()?;
        let mut steps = Vec::new();
        loop {
            let at = self.source_offset();
            let act = if self.accept_operator("(") {
                PostfixKind::Call(Box::new(self.parse_nested(Self::parse_arguments)?))
            } else if self.accept_operator("[") {
                self.parse_nested(Self::parse_index)?
            } else if self.accept_operator(".") {
                PostfixKind::Attribute(self.parse_attribute()?)
            } else {
                break;
            };
            steps.push(PostfixStep { at, kind: act });
        }
        if steps.is_empty() {
            return Ok(base);
        }
        Ok(ExpressionNode::new(
            base.at,
            ExpressionKind::Postfix(Box::new(base), steps),
        ))
    }

    /// `lambda a, b: …`
    pub(super) fn parse_lambda(&mut self) -> Result<ExpressionNode> {
        let at = self.take_token().at;
        let mut names = Vec::new();
        while !self.accept_operator(":") {
            names.push(self.parse_name()?);
            if !self.accept_operator(",") {
                self.expect_operator(":")?;
                break;
            }
        }
        let body = self.parse_expression()?;
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

    /// A name that may be bound.
    pub(super) fn parse_name(&mut self) -> Result<String> {
        let token = self.take_token();
        match token.kind {
            ExpressionTokenKind::Name(name) => check_name(name).map_err(|it| it.at(token.at)),
            ExpressionTokenKind::Operator("*" | "**") => {
                Err(syntax_error("a lambda takes plain parameters").at(token.at))
            }
            _ => Err(syntax_error("expected a name").at(token.at)),
        }
    }

    fn parse_attribute(&mut self) -> Result<String> {
        let token = self.take_token();
        match token.kind {
            ExpressionTokenKind::Name(name) if name.starts_with('_') => Err(syntax_error(format!(
                "'{name}': names that begin with an underscore are closed"
            ))
            .at(token.at)),
            ExpressionTokenKind::Name(name) => Ok(name.to_owned()),
            _ => Err(syntax_error("expected a name after '.'").at(token.at)),
        }
    }

    fn parse_atom(&mut self) -> Result<ExpressionNode> {
        let at = self.source_offset();
        let form = match self.peek().kind.clone() {
            ExpressionTokenKind::Operator("(") => {
                return self.parse_nested(Self::parse_parentheses);
            }
            ExpressionTokenKind::Operator("[") => return self.parse_nested(Self::parse_list),
            ExpressionTokenKind::Operator("{") => return self.parse_nested(Self::parse_braces),
            ExpressionTokenKind::Operator("...") => {
                return Err(syntax_error("'...' is not a value here").at(at));
            }
            ExpressionTokenKind::Literal(Literal::Text(_)) | ExpressionTokenKind::FString(_) => {
                return self.parse_texts();
            }
            ExpressionTokenKind::Literal(literal) => ExpressionKind::Constant(constant(literal)),
            ExpressionTokenKind::Name(name) => self.parse_word(name)?,
            _ => return Err(self.unexpected_token_error("expected an expression")),
        };
        self.take_token();
        Ok(ExpressionNode::new(at, form))
    }

    fn parse_word(&self, name: &str) -> Result<ExpressionKind> {
        Ok(ExpressionKind::Constant(match name {
            "True" => Constant::Bool(true),
            "False" => Constant::Bool(false),
            "None" => Constant::None,
            _ if KEYWORDS.contains(&name) => {
                return Err(self.unexpected_token_error("expected an expression"));
            }
            _ => {
                return check_name(name)
                    .map(ExpressionKind::Name)
                    .map_err(|it| it.at(self.source_offset()));
            }
        }))
    }

    /// Texts beside each other are one.
    fn parse_texts(&mut self) -> Result<ExpressionNode> {
        let at = self.source_offset();
        let mut pieces: Vec<FStringPart> = Vec::new();
        let mut templates = false;
        loop {
            match self.peek().kind.clone() {
                ExpressionTokenKind::Literal(Literal::Text(text)) => {
                    pieces.push(FStringPart::Text(text));
                }
                ExpressionTokenKind::FString(found) => {
                    templates = true;
                    pieces.extend(self.parse_fstring(found)?);
                }
                _ => break,
            }
            self.take_token();
        }
        if templates {
            return Ok(ExpressionNode::new(at, ExpressionKind::FString(pieces)));
        }
        let whole: String = pieces.into_iter().map(text_part).collect();
        let text = Constant::Text(Arc::new(TextValue::new(whole)));
        Ok(ExpressionNode::new(at, ExpressionKind::Constant(text)))
    }

    fn parse_fstring(&self, found: FStringToken<'_>) -> Result<Vec<FStringPart>> {
        fstring::parse_fstring_parts(found, self.depth() + 1)
    }

    fn parse_parentheses(&mut self) -> Result<ExpressionNode> {
        let at = self.take_token().at;
        if self.accept_operator(")") {
            return Ok(ExpressionNode::new(at, ExpressionKind::Tuple(Vec::new())));
        }
        let first = self.parse_starred()?;
        if self.is_at_word("for") {
            return self.parse_comprehension(at, ComprehensionKind::Generator, None, first);
        }
        if self.is_at_operator(",") {
            let items = self.parse_items_until(first, ")")?;
            return Ok(ExpressionNode::new(at, ExpressionKind::Tuple(items)));
        }
        self.refuse_walrus()?;
        self.expect_operator(")")?;
        let node = reject_starred(first)?;
        // So that `(a < b) < c` does not become `a < b < c`.
        if matches!(node.kind, ExpressionKind::ComparisonChain(..)) {
            return Ok(ExpressionNode::new(at, ExpressionKind::Or(vec![node])));
        }
        Ok(node)
    }

    fn parse_list(&mut self) -> Result<ExpressionNode> {
        let at = self.take_token().at;
        if self.accept_operator("]") {
            return Ok(ExpressionNode::new(at, ExpressionKind::List(Vec::new())));
        }
        let first = self.parse_starred()?;
        if self.is_at_word("for") {
            return self.parse_comprehension(at, ComprehensionKind::List, None, first);
        }
        let items = self.parse_items_until(first, "]")?;
        Ok(ExpressionNode::new(at, ExpressionKind::List(items)))
    }

    fn parse_braces(&mut self) -> Result<ExpressionNode> {
        let at = self.take_token().at;
        if self.accept_operator("}") {
            return Ok(ExpressionNode::new(at, ExpressionKind::Dict(Vec::new())));
        }
        if self.is_at_operator("**") {
            return self.parse_dict(at, Vec::new());
        }
        let first = self.parse_starred()?;
        if !self.accept_operator(":") {
            if self.is_at_word("for") {
                return self.parse_comprehension(at, ComprehensionKind::Set, None, first);
            }
            let items = self.parse_items_until(first, "}")?;
            return Ok(ExpressionNode::new(at, ExpressionKind::Set(items)));
        }
        let key = reject_starred(first)?;
        let value = self.parse_expression()?;
        if self.is_at_word("for") {
            return self.parse_comprehension(at, ComprehensionKind::Dict, Some(key), value);
        }
        if !self.accept_operator(",") {
            self.expect_operator("}")?;
            return Ok(ExpressionNode::new(
                at,
                ExpressionKind::Dict(vec![(Some(key), value)]),
            ));
        }
        self.parse_dict(at, vec![(Some(key), value)])
    }

    fn parse_dict(
        &mut self,
        at: u32,
        mut entries: Vec<(Option<ExpressionNode>, ExpressionNode)>,
    ) -> Result<ExpressionNode> {
        while !self.accept_operator("}") {
            if self.accept_operator("**") {
                entries.push((None, self.parse_bitwise()?));
            } else {
                let key = self.parse_expression()?;
                self.expect_operator(":")?;
                entries.push((Some(key), self.parse_expression()?));
            }
            if !self.accept_operator(",") {
                self.expect_operator("}")?;
                break;
            }
        }
        Ok(ExpressionNode::new(at, ExpressionKind::Dict(entries)))
    }

    /// `x` or `*x`
    pub(super) fn parse_starred(&mut self) -> Result<ExpressionNode> {
        let at = self.source_offset();
        if !self.accept_operator("*") {
            return self.parse_expression();
        }
        let inner = self.parse_bitwise()?;
        Ok(ExpressionNode::new(
            at,
            ExpressionKind::Starred(Box::new(inner)),
        ))
    }

    /// The items after `first`, up to `end`.
    fn parse_items_until(
        &mut self,
        first: ExpressionNode,
        end: &str,
    ) -> Result<Vec<ExpressionNode>> {
        let mut items = vec![first];
        while !self.accept_operator(end) {
            self.refuse_walrus()?;
            self.expect_operator(",")?;
            if self.accept_operator(end) {
                break;
            }
            items.push(self.parse_starred()?);
        }
        Ok(items)
    }

    pub(super) fn refuse_walrus(&self) -> Result<()> {
        if self.is_at_operator(":=") {
            Err(syntax_error("':=' is not offered; assign on a line before")
                .at(self.source_offset()))
        } else {
            Ok(())
        }
    }

    /// What follows the item of a comprehension, up to its closing bracket.
    fn parse_comprehension(
        &mut self,
        at: u32,
        makes: ComprehensionKind,
        key: Option<ExpressionNode>,
        item: ExpressionNode,
    ) -> Result<ExpressionNode> {
        let form = Comprehension {
            kind: makes,
            key,
            item: reject_starred(item)?,
            clauses: self.parse_for_clauses()?,
        };
        self.expect_operator(match makes {
            ComprehensionKind::List => "]",
            ComprehensionKind::Set | ComprehensionKind::Dict => "}",
            ComprehensionKind::Generator => ")",
        })?;
        Ok(ExpressionNode::new(
            at,
            ExpressionKind::Comprehension(Arc::new(form)),
        ))
    }

    fn parse_for_clauses(&mut self) -> Result<Vec<ForClause>> {
        let mut clauses = Vec::new();
        while self.accept_word("for") {
            let target = self.parse_targets()?;
            if !self.accept_word("in") {
                return Err(self.unexpected_token_error("expected 'in'"));
            }
            let source = self.parse_disjunction()?;
            let mut conditions = Vec::new();
            while self.accept_word("if") {
                conditions.push(self.parse_disjunction()?);
            }
            if clauses.len() >= MAX_CLAUSES {
                return Err(
                    syntax_error("too many statically nested blocks").at(self.source_offset())
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

    fn parse_index(&mut self) -> Result<PostfixKind> {
        let mut parts = [None, None, None];
        let mut colons = 0;
        while !self.accept_operator("]") {
            if self.accept_operator(":") && colons < 2 {
                colons += 1;
            } else if parts[colons].is_none() {
                parts[colons] = Some(self.parse_expression()?);
            } else {
                return Err(self.unexpected_token_error("expected ']'"));
            }
        }
        match (colons, parts) {
            (0, [Some(index), ..]) => Ok(PostfixKind::Index(index)),
            (0, _) => Err(syntax_error("an index is missing").at(self.source_offset())),
            (_, parts) => Ok(PostfixKind::Slice(Box::new(parts))),
        }
    }

    fn parse_arguments(&mut self) -> Result<ArgumentList> {
        let mut arguments = ArgumentList::default();
        while !self.accept_operator(")") {
            self.parse_argument(&mut arguments)?;
            self.refuse_walrus()?;
            if !self.accept_operator(",") {
                self.expect_operator(")")?;
                break;
            }
        }
        Ok(arguments)
    }

    fn parse_argument(&mut self, arguments: &mut ArgumentList) -> Result<()> {
        let at = self.source_offset();
        if self.accept_operator("**") {
            let value = self.parse_expression()?;
            arguments.named.push((None, value));
            return Ok(());
        }
        if *self.peek_second() == ExpressionTokenKind::Operator("=") {
            let name = self.parse_name()?;
            self.take_token();
            if arguments
                .named
                .iter()
                .any(|it| it.0.as_ref() == Some(&name))
            {
                return Err(syntax_error(format!("keyword argument repeated: {name}")).at(at));
            }
            let value = self.parse_expression()?;
            arguments.named.push((Some(name), value));
            return Ok(());
        }
        let value = self.parse_starred()?;
        if !arguments.named.is_empty() {
            return Err(syntax_error("positional argument follows keyword argument").at(at));
        }
        let value = if self.is_at_word("for") {
            self.parse_sole_generator(at, value)?
        } else {
            value
        };
        arguments.positional.push(value);
        Ok(())
    }

    /// `sum(x for x in xs)`: the call's brackets are the generator's.
    fn parse_sole_generator(&mut self, at: u32, item: ExpressionNode) -> Result<ExpressionNode> {
        let clauses = self.parse_for_clauses()?;
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
            "'{name}': names that begin with an underscore are closed"
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

fn text_part(piece: FStringPart) -> String {
    match piece {
        FStringPart::Text(text) => text,
        FStringPart::Field(_) => String::new(),
    }
}
