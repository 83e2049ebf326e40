//! The parser's part for lines: one expression, or assignments that end in
//! `result = …`.

use super::{
    ast::{AssignmentTarget, ExpressionKind, ExpressionNode, StatementNode},
    error::{Result, UnlocatedError, syntax_error},
    lexer::ExpressionTokenKind,
    parse_atom::reject_starred,
    parser::{ExpressionParser, binary_operator},
};

/// Statements of Python that are not of this language, and what to do instead.
const UNSUPPORTED_STATEMENTS: [(&str, &str); 24] = [
    (
        "import",
        "nothing can be imported; math, date, datetime and timedelta are there already",
    ),
    (
        "from",
        "nothing can be imported; math, date, datetime and timedelta are there already",
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
    ("raise", "faults come from the expression itself"),
    ("assert", "faults come from the expression itself"),
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

impl ExpressionParser<'_> {
    /// The whole source.
    pub(super) fn parse_program(&mut self) -> Result<Vec<StatementNode>> {
        let mut statements = Vec::new();
        loop {
            while self.peek().kind == ExpressionTokenKind::Newline {
                self.take_token();
            }
            if self.peek().kind == ExpressionTokenKind::End {
                break;
            }
            statements.push(self.parse_statement()?);
            if !matches!(
                self.peek().kind,
                ExpressionTokenKind::Newline | ExpressionTokenKind::End
            ) {
                return Err(self.unexpected_token_error("expected the end of the line"));
            }
        }
        validate_statements(&statements)?;
        Ok(statements)
    }

    /// `a`, `a, b`, `(a, b), *c`, as after `for` and before `=`.
    pub(super) fn parse_targets(&mut self) -> Result<AssignmentTarget> {
        let first = self.parse_target_item()?;
        if !self.is_at_operator(",") && !matches!(first.kind, ExpressionKind::Starred(_)) {
            return into_target(first);
        }
        let mut items = vec![first];
        while self.accept_operator(",") {
            if self.is_at_word("in") {
                break;
            }
            items.push(self.parse_target_item()?);
        }
        into_unpack_target(items)
    }

    fn parse_target_item(&mut self) -> Result<ExpressionNode> {
        let at = self.source_offset();
        if self.accept_operator("*") {
            let inner = self.parse_postfix()?;
            return Ok(ExpressionNode::new(
                at,
                ExpressionKind::Starred(Box::new(inner)),
            ));
        }
        self.parse_postfix()
    }

    fn parse_statement(&mut self) -> Result<StatementNode> {
        self.refuse_keyword()?;
        let at = self.source_offset();
        let left = self.parse_tuple()?;
        self.refuse_walrus()?;
        if self.accept_operator("=") {
            let value = self.parse_tuple()?;
            if self.is_at_operator("=") {
                return Err(syntax_error("assign one name at a time").at(self.source_offset()));
            }
            let target = Some(into_target(left)?);
            return Ok(StatementNode { at, target, value });
        }
        if let Some(operator) = self.augmented_operator() {
            let place = self.take_token().at;
            let value = self.parse_tuple()?;
            let target = Some(into_target(left.clone())?);
            let value = ExpressionKind::BinaryChain(Box::new(left), vec![(operator, place, value)]);
            let value = ExpressionNode::new(at, value);
            return Ok(StatementNode { at, target, value });
        }
        if self.is_at_operator(":") {
            return Err(self.unexpected_token_error("expected the end of the line"));
        }
        let target = None;
        Ok(StatementNode {
            at,
            target,
            value: reject_starred(left)?,
        })
    }

    fn refuse_keyword(&self) -> Result<()> {
        let ExpressionTokenKind::Name(word) = self.peek().kind else {
            return Ok(());
        };
        // `match` is an ordinary name, unless something else than a use follows.
        if word == "match"
            && !matches!(
                self.peek_second(),
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
                Err(syntax_error(format!("'{word}' is not offered; {hint}"))
                    .at(self.source_offset()))
            }
            None => Ok(()),
        }
    }

    /// An expression, or several with commas.
    fn parse_tuple(&mut self) -> Result<ExpressionNode> {
        let at = self.source_offset();
        let first = self.parse_starred()?;
        if !self.is_at_operator(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.accept_operator(",") {
            if matches!(
                self.peek().kind,
                ExpressionTokenKind::Newline
                    | ExpressionTokenKind::End
                    | ExpressionTokenKind::Operator("=")
            ) {
                break;
            }
            items.push(self.parse_starred()?);
        }
        Ok(ExpressionNode::new(at, ExpressionKind::Tuple(items)))
    }

    fn augmented_operator(&self) -> Option<super::ast::BinaryOperator> {
        match self.peek().kind {
            ExpressionTokenKind::Operator(it) if it != "==" => {
                binary_operator(it.strip_suffix('=')?)
            }
            _ => None,
        }
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
        let place = item.at;
        let item = match item.kind {
            ExpressionKind::Starred(_) if rest.is_some() => {
                return Err(syntax_error("multiple starred expressions in assignment").at(place));
            }
            ExpressionKind::Starred(inner) => {
                rest = Some(at);
                *inner
            }
            form => ExpressionNode::new(place, form),
        };
        targets.push(into_target(item)?);
    }
    Ok(AssignmentTarget::Unpack(targets, rest))
}

fn invalid_target_error(at: u32) -> UnlocatedError {
    syntax_error("cannot assign to an expression; assign to a name").at(at)
}
