//! The tree of an expression. The parser makes it with names in it; `resolve`
//! puts slots, functions and methods in their place.

use std::sync::Arc;

use num_bigint::BigInt;

use super::{
    catalog::{Function, Method},
    value::Text,
};

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Byte offset in the source.
    pub(super) at: u32,
    pub(super) form: Form,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    Constant(Constant),
    /// Gone once resolved.
    Name(String),
    Slot(usize),
    Tuple(Vec<Node>),
    List(Vec<Node>),
    Set(Vec<Node>),
    /// A missing key stands for `**`.
    Dict(Vec<(Option<Node>, Node)>),
    Star(Box<Node>),
    /// Innermost last.
    Unary(Vec<Unary>, Box<Node>),
    /// Left to right, each with the place of its operator.
    Chain(Box<Node>, Vec<(Binary, u32, Node)>),
    Power(Box<Node>, Box<Node>),
    Compare(Box<Node>, Vec<(Comparison, u32, Node)>),
    And(Vec<Node>),
    Or(Vec<Node>),
    /// Condition, then, else.
    If(Box<[Node; 3]>),
    Postfix(Box<Node>, Vec<Step>),
    Comprehension(Arc<Comprehension>),
    Template(Vec<Piece>),
    Call(Function, Box<Arguments>),
    /// Only where a function is asked for.
    Lambda(Arc<Lambda>),
}

#[derive(Clone, Debug)]
pub(super) enum Constant {
    None,
    Bool(bool),
    Int(i64),
    Big(Arc<BigInt>),
    Float(f64),
    Text(Arc<Text>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Minus,
    Plus,
    Invert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Floor,
    Modulo,
    Power,
    Left,
    Right,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Different,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
    Is,
    IsNot,
}

/// What follows a value: `.name`, `[…]`, `(…)`.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) at: u32,
    pub(super) act: Act,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Gone once resolved, as `Call`.
    Attribute(String),
    Call(Box<Arguments>),
    Index(Node),
    Slice(Box<[Option<Node>; 3]>),
    Field(Method),
    Method(Method, Box<Arguments>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Node>,
    /// A missing name stands for `**`.
    pub(super) named: Vec<(Option<String>, Node)>,
    /// What `key=`, or the first argument of `map` and `filter`, names.
    pub(super) function: Option<Arc<Callable>>,
}

/// A function that another one calls. Functions are no values.
#[derive(Clone, Debug)]
pub(super) enum Callable {
    Lambda(Lambda),
    Function(Function),
    /// `str.lower`
    Method(Method),
    /// `counts.get`
    Bound(Node, Method),
    /// `filter(None, …)`, `key=None`
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Lambda {
    pub(super) names: Vec<String>,
    pub(super) slots: Vec<usize>,
    pub(super) body: Node,
}

#[derive(Clone, Debug)]
pub(super) struct Comprehension {
    pub(super) makes: Makes,
    /// The key of a dict.
    pub(super) key: Option<Node>,
    pub(super) item: Node,
    pub(super) clauses: Vec<Clause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Makes {
    List,
    Set,
    Dict,
    Generator,
}

/// `for target in source if … if …`
#[derive(Clone, Debug)]
pub(super) struct Clause {
    pub(super) target: Target,
    pub(super) source: Node,
    pub(super) conditions: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Gone once resolved.
    Name(String, u32),
    Slot(usize),
    /// The targets, and which of them takes the rest.
    Several(Vec<Self>, Option<usize>),
}

/// A part of an f-string.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(String),
    Value(Box<Shown>),
}

#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) value: Node,
    pub(super) conversion: Option<char>,
    pub(super) spec: Vec<Piece>,
}

/// `target = value`, or the last expression.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) at: u32,
    pub(super) target: Option<Target>,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn new(at: u32, form: Form) -> Self {
        Self { at, form }
    }
}
