//! Tokens → tree. Goes down only for what is in brackets or binds tighter, and
//! only so far; chains of operators, calls and indices are loops.

use super::{
    ast::{BinaryOperator, ComparisonOperator, ExpressionKind, ExpressionNode, UnaryOperator},
    error::{Result, UnlocatedError, syntax_error},
    lexer::{ExpressionToken, ExpressionTokenKind, tokenize},
    limits::MAX_SOURCE_NESTING,
};

pub(super) struct ExpressionParser<'s> {
    tokens: Vec<ExpressionToken<'s>>,
    position: usize,
    depth: u32,
}

/// How tight operators bind, loosest first.
const OR_PRECEDENCE: u8 = 1;
const AND_PRECEDENCE: u8 = 2;
const NOT_PRECEDENCE: u8 = 3;
const COMPARISON_PRECEDENCE: u8 = 4;

impl<'s> ExpressionParser<'s> {
    /// For `source`, which begins at `base` of the whole and is `depth` deep in it.
    pub(super) fn new(source: &'s str, base: u32, depth: u32) -> Result<Self> {
        Ok(Self {
            tokens: tokenize(source, base)?,
            position: 0,
            depth,
        })
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn peek(&self) -> &ExpressionToken<'s> {
        // The last token is `End`, and nobody goes past it.
        &self.tokens[self.position.min(self.tokens.len() - 1)]
    }

    pub(super) fn peek_second(&self) -> &ExpressionTokenKind<'s> {
        &self.tokens[(self.position + 1).min(self.tokens.len() - 1)].kind
    }

    pub(super) fn source_offset(&self) -> u32 {
        self.peek().at
    }

    pub(super) fn take_token(&mut self) -> ExpressionToken<'s> {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    pub(super) fn is_at_operator(&self, operator: &str) -> bool {
        matches!(self.peek().kind, ExpressionTokenKind::Operator(it) if it == operator)
    }

    pub(super) fn accept_operator(&mut self, operator: &str) -> bool {
        let found = self.is_at_operator(operator);
        self.position += usize::from(found);
        found
    }

    pub(super) fn expect_operator(&mut self, operator: &str) -> Result<()> {
        if self.accept_operator(operator) {
            Ok(())
        } else {
            Err(self.unexpected_token_error(&format!("expected '{operator}'")))
        }
    }

    pub(super) fn is_at_word(&self, word: &str) -> bool {
        matches!(self.peek().kind, ExpressionTokenKind::Name(it) if it == word)
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_at_word(word);
        self.position += usize::from(found);
        found
    }

    /// The fault at the next token.
    pub(super) fn unexpected_token_error(&self, wanted: &str) -> UnlocatedError {
        let found = match &self.peek().kind {
            ExpressionTokenKind::Name(name) => format!("'{name}'"),
            ExpressionTokenKind::Operator(operator) => format!("'{operator}'"),
            ExpressionTokenKind::Literal(_) | ExpressionTokenKind::FString(_) => {
                "a literal".to_owned()
            }
            ExpressionTokenKind::Newline => "the end of the line".to_owned(),
            ExpressionTokenKind::End => "the end".to_owned(),
        };
        syntax_error(format!("invalid syntax: {wanted}, found {found}")).at(self.source_offset())
    }

    /// One expression, with its `if … else …`.
    pub(super) fn parse_expression(&mut self) -> Result<ExpressionNode> {
        let at = self.source_offset();
        if self.is_at_word("lambda") {
            return self.parse_nested(Self::parse_lambda);
        }
        let value = self.parse_operators(OR_PRECEDENCE)?;
        if !self.accept_word("if") {
            return Ok(value);
        }
        let condition = self.parse_operators(OR_PRECEDENCE)?;
        if !self.accept_word("else") {
            return Err(self.unexpected_token_error("expected 'else'"));
        }
        let otherwise = self.parse_nested(Self::parse_expression)?;
        let parts = Box::new([condition, value, otherwise]);
        Ok(ExpressionNode::new(at, ExpressionKind::Conditional(parts)))
    }

    /// Operators without `if`, as after `in`.
    pub(super) fn parse_disjunction(&mut self) -> Result<ExpressionNode> {
        self.parse_operators(OR_PRECEDENCE)
    }

    /// Operators that bind tighter than comparisons.
    pub(super) fn parse_bitwise(&mut self) -> Result<ExpressionNode> {
        self.parse_operators(COMPARISON_PRECEDENCE + 1)
    }

    /// Runs `part` one level deeper.
    pub(super) fn parse_nested<T>(&mut self, part: fn(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_SOURCE_NESTING {
            return Err(syntax_error("nested too deeply").at(self.source_offset()));
        }
        self.depth += 1;
        let found = part(self);
        self.depth -= 1;
        found
    }

    fn parse_operators(&mut self, loosest: u8) -> Result<ExpressionNode> {
        let mut left = self.parse_prefix(loosest)?;
        loop {
            let at = self.source_offset();
            let Some((operator, level)) = self.peek_infix_operator() else {
                return Ok(left);
            };
            if level < loosest {
                return Ok(left);
            }
            self.skip_operator(operator);
            let right = self.parse_right_operand(level)?;
            left = join_operands(left, at, operator, right);
        }
    }

    /// What stands right of an operator of `level`.
    fn parse_right_operand(&mut self, level: u8) -> Result<ExpressionNode> {
        if self.depth >= MAX_SOURCE_NESTING {
            return Err(syntax_error("nested too deeply").at(self.source_offset()));
        }
        self.depth += 1;
        let found = self.parse_operators(level + 1);
        self.depth -= 1;
        found
    }

    fn parse_prefix(&mut self, loosest: u8) -> Result<ExpressionNode> {
        let at = self.source_offset();
        let mut nots = 0;
        while loosest <= NOT_PRECEDENCE && self.accept_word("not") {
            nots += 1;
        }
        if nots > 0 {
            let operand = self.parse_right_operand(NOT_PRECEDENCE)?;
            let all = vec![UnaryOperator::Not; nots];
            return Ok(ExpressionNode::new(
                at,
                ExpressionKind::Unary(all, Box::new(operand)),
            ));
        }
        self.parse_signed()
    }

    /// `-x ** y`, `~x`
    fn parse_signed(&mut self) -> Result<ExpressionNode> {
        let at = self.source_offset();
        let mut signs = Vec::new();
        while let Some(sign) = self.accept_sign() {
            signs.push(sign);
        }
        let mut operand = self.parse_postfix()?;
        let power = self.source_offset();
        if self.accept_operator("**") {
            let exponent = self.parse_nested(Self::parse_signed)?;
            operand = ExpressionNode::new(
                power,
                ExpressionKind::Power(Box::new(operand), Box::new(exponent)),
            );
        }
        if signs.is_empty() {
            return Ok(operand);
        }
        Ok(ExpressionNode::new(
            at,
            ExpressionKind::Unary(signs, Box::new(operand)),
        ))
    }

    fn accept_sign(&mut self) -> Option<UnaryOperator> {
        let ExpressionTokenKind::Operator(operator) = self.peek().kind else {
            return None;
        };
        let sign = match operator {
            "-" => UnaryOperator::Minus,
            "+" => UnaryOperator::Plus,
            "~" => UnaryOperator::Invert,
            _ => return None,
        };
        self.position += 1;
        Some(sign)
    }

    /// The operator that comes next and how tight it binds.
    fn peek_infix_operator(&self) -> Option<(InfixOperator, u8)> {
        let token = &self.peek().kind;
        let found = match token {
            ExpressionTokenKind::Name("or") => (InfixOperator::Or, OR_PRECEDENCE),
            ExpressionTokenKind::Name("and") => (InfixOperator::And, AND_PRECEDENCE),
            ExpressionTokenKind::Name("in") => (
                InfixOperator::Compare(ComparisonOperator::In),
                COMPARISON_PRECEDENCE,
            ),
            ExpressionTokenKind::Name("is") => match self.peek_second() {
                ExpressionTokenKind::Name("not") => (
                    InfixOperator::Compare(ComparisonOperator::IsNot),
                    COMPARISON_PRECEDENCE,
                ),
                _ => (
                    InfixOperator::Compare(ComparisonOperator::Is),
                    COMPARISON_PRECEDENCE,
                ),
            },
            ExpressionTokenKind::Name("not")
                if *self.peek_second() == ExpressionTokenKind::Name("in") =>
            {
                (
                    InfixOperator::Compare(ComparisonOperator::NotIn),
                    COMPARISON_PRECEDENCE,
                )
            }
            ExpressionTokenKind::Operator(it) => return infix_operator(it),
            _ => return None,
        };
        Some(found)
    }

    fn skip_operator(&mut self, operator: InfixOperator) {
        let two = matches!(
            operator,
            InfixOperator::Compare(ComparisonOperator::NotIn | ComparisonOperator::IsNot)
        );
        self.position += 1 + usize::from(two);
    }
}

#[derive(Clone, Copy)]
enum InfixOperator {
    Or,
    And,
    Compare(ComparisonOperator),
    Binary(BinaryOperator),
}

fn infix_operator(symbol: &str) -> Option<(InfixOperator, u8)> {
    let compare = match symbol {
        "==" => Some(ComparisonOperator::Equal),
        "!=" => Some(ComparisonOperator::NotEqual),
        "<" => Some(ComparisonOperator::Less),
        "<=" => Some(ComparisonOperator::LessEqual),
        ">" => Some(ComparisonOperator::Greater),
        ">=" => Some(ComparisonOperator::GreaterEqual),
        _ => None,
    };
    if let Some(compare) = compare {
        return Some((InfixOperator::Compare(compare), COMPARISON_PRECEDENCE));
    }
    let level = match symbol {
        "|" => 5,
        "^" => 6,
        "&" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        _ => 10,
    };
    Some((InfixOperator::Binary(binary_operator(symbol)?), level))
}

/// The operator that is written `symbol`, without those that only compare.
pub(super) fn binary_operator(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "+" => BinaryOperator::Add,
        "-" => BinaryOperator::Subtract,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "//" => BinaryOperator::FloorDivide,
        "%" => BinaryOperator::Modulo,
        "**" => BinaryOperator::Power,
        "<<" => BinaryOperator::ShiftLeft,
        ">>" => BinaryOperator::ShiftRight,
        "&" => BinaryOperator::BitAnd,
        "|" => BinaryOperator::BitOr,
        "^" => BinaryOperator::BitXor,
        _ => return None,
    })
}

/// One tree of both sides; a chain grows longer, not deeper.
fn join_operands(
    left: ExpressionNode,
    at: u32,
    operator: InfixOperator,
    right: ExpressionNode,
) -> ExpressionNode {
    let start = left.at;
    let form = match (left.kind, operator) {
        (ExpressionKind::BinaryChain(first, mut rest), InfixOperator::Binary(binary)) => {
            rest.push((binary, at, right));
            ExpressionKind::BinaryChain(first, rest)
        }
        (ExpressionKind::ComparisonChain(first, mut rest), InfixOperator::Compare(compare)) => {
            rest.push((compare, at, right));
            ExpressionKind::ComparisonChain(first, rest)
        }
        (ExpressionKind::Or(mut all), InfixOperator::Or) => {
            all.push(right);
            ExpressionKind::Or(all)
        }
        (ExpressionKind::And(mut all), InfixOperator::And) => {
            all.push(right);
            ExpressionKind::And(all)
        }
        (form, operator) => {
            let left = ExpressionNode::new(start, form);
            match operator {
                InfixOperator::Or => ExpressionKind::Or(vec![left, right]),
                InfixOperator::And => ExpressionKind::And(vec![left, right]),
                InfixOperator::Compare(it) => {
                    ExpressionKind::ComparisonChain(Box::new(left), vec![(it, at, right)])
                }
                InfixOperator::Binary(it) => {
                    ExpressionKind::BinaryChain(Box::new(left), vec![(it, at, right)])
                }
            }
        }
    };
    ExpressionNode::new(start, form)
}
