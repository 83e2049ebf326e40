//! Operators and conditional expressions. Recursion happens only for brackets and for
//! operators that bind tighter, and is bounded; chains of operators are loops.

use super::{
    ast::{BinaryOperator, ComparisonOperator, ExpressionKind, ExpressionNode, UnaryOperator},
    error::Result,
    lexer::ExpressionTokenKind,
    parse_atom::{parse_lambda, parse_postfix},
    token_cursor::TokenCursor,
};

/// Precedence of operators, loosest first.
const OR_PRECEDENCE: u8 = 1;
const AND_PRECEDENCE: u8 = 2;
const NOT_PRECEDENCE: u8 = 3;
const COMPARISON_PRECEDENCE: u8 = 4;

/// Parses an expression with its `if … else …`.
pub(super) fn parse_expression(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    if tokens.is_at_word("lambda") {
        return tokens.parse_nested(parse_lambda);
    }
    let value = parse_operators(tokens, OR_PRECEDENCE)?;
    if !tokens.accept_word("if") {
        return Ok(value);
    }
    let condition = parse_operators(tokens, OR_PRECEDENCE)?;
    if !tokens.accept_word("else") {
        return Err(tokens.unexpected_token_error("expected 'else'"));
    }
    let otherwise = tokens.parse_nested(parse_expression)?;
    let parts = Box::new([condition, value, otherwise]);
    Ok(ExpressionNode::new(at, ExpressionKind::Conditional(parts)))
}

/// Parses operators without `if`, as after `in`.
pub(super) fn parse_disjunction(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    parse_operators(tokens, OR_PRECEDENCE)
}

/// Parses operators that bind tighter than comparisons.
pub(super) fn parse_bitwise(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    parse_operators(tokens, COMPARISON_PRECEDENCE + 1)
}

fn parse_operators(tokens: &mut TokenCursor<'_>, min_precedence: u8) -> Result<ExpressionNode> {
    let mut left = parse_prefix(tokens, min_precedence)?;
    loop {
        let at = tokens.source_offset();
        let Some((operator, level)) = peek_infix_operator(tokens) else {
            return Ok(left);
        };
        if level < min_precedence {
            return Ok(left);
        }
        skip_operator(tokens, operator);
        let right = parse_right_operand(tokens, level)?;
        left = join_operands(left, at, operator, right);
    }
}

/// Parses the right operand of an operator of precedence `level`.
fn parse_right_operand(tokens: &mut TokenCursor<'_>, level: u8) -> Result<ExpressionNode> {
    tokens.parse_nested(|tokens| parse_operators(tokens, level + 1))
}

fn parse_prefix(tokens: &mut TokenCursor<'_>, min_precedence: u8) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    let mut nots = 0;
    while min_precedence <= NOT_PRECEDENCE && tokens.accept_word("not") {
        nots += 1;
    }
    if nots > 0 {
        let operand = parse_right_operand(tokens, NOT_PRECEDENCE)?;
        let all = vec![UnaryOperator::Not; nots];
        return Ok(ExpressionNode::new(
            at,
            ExpressionKind::Unary(all, Box::new(operand)),
        ));
    }
    parse_signed(tokens)
}

/// Parses signs and powers: `-x ** y`, `~x`.
fn parse_signed(tokens: &mut TokenCursor<'_>) -> Result<ExpressionNode> {
    let at = tokens.source_offset();
    let mut signs = Vec::new();
    while let Some(sign) = accept_sign(tokens) {
        signs.push(sign);
    }
    let mut operand = parse_postfix(tokens)?;
    let power = tokens.source_offset();
    if tokens.accept_operator("**") {
        let exponent = tokens.parse_nested(parse_signed)?;
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

fn accept_sign(tokens: &mut TokenCursor<'_>) -> Option<UnaryOperator> {
    let ExpressionTokenKind::Operator(operator) = tokens.peek().kind else {
        return None;
    };
    let sign = match operator {
        "-" => UnaryOperator::Minus,
        "+" => UnaryOperator::Plus,
        "~" => UnaryOperator::Invert,
        _ => return None,
    };
    tokens.skip_tokens(1);
    Some(sign)
}

/// Returns the next operator and its precedence.
fn peek_infix_operator(tokens: &TokenCursor<'_>) -> Option<(InfixOperator, u8)> {
    let token = &tokens.peek().kind;
    let found = match token {
        ExpressionTokenKind::Name("or") => (InfixOperator::Or, OR_PRECEDENCE),
        ExpressionTokenKind::Name("and") => (InfixOperator::And, AND_PRECEDENCE),
        ExpressionTokenKind::Name("in") => (
            InfixOperator::Compare(ComparisonOperator::In),
            COMPARISON_PRECEDENCE,
        ),
        ExpressionTokenKind::Name("is") => match tokens.peek_second() {
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
            if *tokens.peek_second() == ExpressionTokenKind::Name("in") =>
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

fn skip_operator(tokens: &mut TokenCursor<'_>, operator: InfixOperator) {
    let has_two_words = matches!(
        operator,
        InfixOperator::Compare(ComparisonOperator::NotIn | ComparisonOperator::IsNot)
    );
    tokens.skip_tokens(1 + usize::from(has_two_words));
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

/// Returns the binary operator `symbol`, except comparisons.
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

/// Joins both operands; a chain of operators grows longer, not deeper.
fn join_operands(
    left: ExpressionNode,
    at: u32,
    operator: InfixOperator,
    right: ExpressionNode,
) -> ExpressionNode {
    let start = left.at;
    let kind = match (left.kind, operator) {
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
        (kind, operator) => {
            let left = ExpressionNode::new(start, kind);
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
    ExpressionNode::new(start, kind)
}
