//! Tokens → tree. Goes down only for what is in brackets or binds tighter, and
//! only so far; chains of operators, calls and indices are loops.

use super::{
    fault::{Result, Trouble, syntax},
    limits::MAX_NESTING,
    node::{Binary, Comparison, Form, Node, Unary},
    token::{Sort, Token, tokens},
};

pub(super) struct Parser<'s> {
    tokens: Vec<Token<'s>>,
    next: usize,
    depth: u32,
}

/// How tight operators bind, loosest first.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARE: u8 = 4;

impl<'s> Parser<'s> {
    /// For `source`, which begins at `base` of the whole and is `depth` deep in it.
    pub(super) fn new(source: &'s str, base: u32, depth: u32) -> Result<Self> {
        Ok(Self {
            tokens: tokens(source, base)?,
            next: 0,
            depth,
        })
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn peek(&self) -> &Token<'s> {
        // The last token is `End`, and nobody goes past it.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    pub(super) fn peek_second(&self) -> &Sort<'s> {
        &self.tokens[(self.next + 1).min(self.tokens.len() - 1)].sort
    }

    pub(super) fn at(&self) -> u32 {
        self.peek().at
    }

    pub(super) fn take(&mut self) -> Token<'s> {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    pub(super) fn sees(&self, operator: &str) -> bool {
        matches!(self.peek().sort, Sort::Operator(it) if it == operator)
    }

    pub(super) fn accept(&mut self, operator: &str) -> bool {
        let found = self.sees(operator);
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, operator: &str) -> Result<()> {
        match self.accept(operator) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("expected '{operator}'"))),
        }
    }

    pub(super) fn sees_word(&self, word: &str) -> bool {
        matches!(self.peek().sort, Sort::Name(it) if it == word)
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.sees_word(word);
        self.next += usize::from(found);
        found
    }

    /// The fault at the next token.
    pub(super) fn unexpected(&self, wanted: &str) -> Trouble {
        let found = match &self.peek().sort {
            Sort::Name(name) => format!("'{name}'"),
            Sort::Operator(operator) => format!("'{operator}'"),
            Sort::Literal(_) | Sort::Template(_) => "a literal".to_owned(),
            Sort::Newline => "the end of the line".to_owned(),
            Sort::End => "the end".to_owned(),
        };
        syntax(format!("invalid syntax: {wanted}, found {found}")).at(self.at())
    }

    /// One expression, with its `if … else …`.
    pub(super) fn expression(&mut self) -> Result<Node> {
        let at = self.at();
        if self.sees_word("lambda") {
            return self.down(Self::lambda);
        }
        let value = self.operators(OR)?;
        if !self.accept_word("if") {
            return Ok(value);
        }
        let condition = self.operators(OR)?;
        if !self.accept_word("else") {
            return Err(self.unexpected("expected 'else'"));
        }
        let otherwise = self.down(Self::expression)?;
        let parts = Box::new([condition, value, otherwise]);
        Ok(Node::new(at, Form::If(parts)))
    }

    /// Operators without `if`, as after `in`.
    pub(super) fn disjunction(&mut self) -> Result<Node> {
        self.operators(OR)
    }

    /// Operators that bind tighter than comparisons.
    pub(super) fn bitwise(&mut self) -> Result<Node> {
        self.operators(COMPARE + 1)
    }

    /// Runs `part` one level deeper.
    pub(super) fn down<T>(&mut self, part: fn(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_NESTING {
            return Err(syntax("nested too deeply").at(self.at()));
        }
        self.depth += 1;
        let found = part(self);
        self.depth -= 1;
        found
    }

    fn operators(&mut self, loosest: u8) -> Result<Node> {
        let mut left = self.prefix(loosest)?;
        loop {
            let at = self.at();
            let Some((operator, level)) = self.operator() else {
                return Ok(left);
            };
            if level < loosest {
                return Ok(left);
            }
            self.pass(operator);
            let right = self.tighter(level)?;
            left = join(left, at, operator, right);
        }
    }

    /// What stands right of an operator of `level`.
    fn tighter(&mut self, level: u8) -> Result<Node> {
        if self.depth >= MAX_NESTING {
            return Err(syntax("nested too deeply").at(self.at()));
        }
        self.depth += 1;
        let found = self.operators(level + 1);
        self.depth -= 1;
        found
    }

    fn prefix(&mut self, loosest: u8) -> Result<Node> {
        let at = self.at();
        let mut nots = 0;
        while loosest <= NOT && self.accept_word("not") {
            nots += 1;
        }
        if nots > 0 {
            let operand = self.tighter(NOT)?;
            let all = vec![Unary::Not; nots];
            return Ok(Node::new(at, Form::Unary(all, Box::new(operand))));
        }
        self.signed()
    }

    /// `-x ** y`, `~x`
    fn signed(&mut self) -> Result<Node> {
        let at = self.at();
        let mut signs = Vec::new();
        while let Some(sign) = self.sign() {
            signs.push(sign);
        }
        let mut operand = self.postfix()?;
        let power = self.at();
        if self.accept("**") {
            let exponent = self.down(Self::signed)?;
            operand = Node::new(power, Form::Power(Box::new(operand), Box::new(exponent)));
        }
        if signs.is_empty() {
            return Ok(operand);
        }
        Ok(Node::new(at, Form::Unary(signs, Box::new(operand))))
    }

    fn sign(&mut self) -> Option<Unary> {
        let Sort::Operator(operator) = self.peek().sort else {
            return None;
        };
        let sign = match operator {
            "-" => Unary::Minus,
            "+" => Unary::Plus,
            "~" => Unary::Invert,
            _ => return None,
        };
        self.next += 1;
        Some(sign)
    }

    /// The operator that comes next and how tight it binds.
    fn operator(&self) -> Option<(Operator, u8)> {
        let token = &self.peek().sort;
        let found = match token {
            Sort::Name("or") => (Operator::Or, OR),
            Sort::Name("and") => (Operator::And, AND),
            Sort::Name("in") => (Operator::Compare(Comparison::In), COMPARE),
            Sort::Name("is") => match self.peek_second() {
                Sort::Name("not") => (Operator::Compare(Comparison::IsNot), COMPARE),
                _ => (Operator::Compare(Comparison::Is), COMPARE),
            },
            Sort::Name("not") if *self.peek_second() == Sort::Name("in") => {
                (Operator::Compare(Comparison::NotIn), COMPARE)
            }
            Sort::Operator(it) => return symbol(it),
            _ => return None,
        };
        Some(found)
    }

    fn pass(&mut self, operator: Operator) {
        let two = matches!(
            operator,
            Operator::Compare(Comparison::NotIn | Comparison::IsNot)
        );
        self.next += 1 + usize::from(two);
    }
}

#[derive(Clone, Copy)]
enum Operator {
    Or,
    And,
    Compare(Comparison),
    Binary(Binary),
}

fn symbol(symbol: &str) -> Option<(Operator, u8)> {
    let compare = match symbol {
        "==" => Some(Comparison::Equal),
        "!=" => Some(Comparison::Different),
        "<" => Some(Comparison::Less),
        "<=" => Some(Comparison::LessEqual),
        ">" => Some(Comparison::Greater),
        ">=" => Some(Comparison::GreaterEqual),
        _ => None,
    };
    if let Some(compare) = compare {
        return Some((Operator::Compare(compare), COMPARE));
    }
    let level = match symbol {
        "|" => 5,
        "^" => 6,
        "&" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        _ => 10,
    };
    Some((Operator::Binary(binary(symbol)?), level))
}

/// The operator that is written `symbol`, without those that only compare.
pub(super) fn binary(symbol: &str) -> Option<Binary> {
    Some(match symbol {
        "+" => Binary::Add,
        "-" => Binary::Subtract,
        "*" => Binary::Multiply,
        "/" => Binary::Divide,
        "//" => Binary::Floor,
        "%" => Binary::Modulo,
        "**" => Binary::Power,
        "<<" => Binary::Left,
        ">>" => Binary::Right,
        "&" => Binary::And,
        "|" => Binary::Or,
        "^" => Binary::Xor,
        _ => return None,
    })
}

/// One tree of both sides; a chain grows longer, not deeper.
fn join(left: Node, at: u32, operator: Operator, right: Node) -> Node {
    let start = left.at;
    let form = match (left.form, operator) {
        (Form::Chain(first, mut rest), Operator::Binary(binary)) => {
            rest.push((binary, at, right));
            Form::Chain(first, rest)
        }
        (Form::Compare(first, mut rest), Operator::Compare(compare)) => {
            rest.push((compare, at, right));
            Form::Compare(first, rest)
        }
        (Form::Or(mut all), Operator::Or) => {
            all.push(right);
            Form::Or(all)
        }
        (Form::And(mut all), Operator::And) => {
            all.push(right);
            Form::And(all)
        }
        (form, operator) => {
            let left = Node::new(start, form);
            match operator {
                Operator::Or => Form::Or(vec![left, right]),
                Operator::And => Form::And(vec![left, right]),
                Operator::Compare(it) => Form::Compare(Box::new(left), vec![(it, at, right)]),
                Operator::Binary(it) => Form::Chain(Box::new(left), vec![(it, at, right)]),
            }
        }
    };
    Node::new(start, form)
}
