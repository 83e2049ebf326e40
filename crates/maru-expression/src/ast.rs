//! The tree of an expression. The parser makes it with names in it; `resolve`
//! puts slots, functions and methods in their place.

use std::sync::Arc;

use num_bigint::BigInt;

use super::{
    builtins::{BuiltinFunction, BuiltinMethod},
    value::TextValue,
};

#[derive(Clone, Debug)]
pub(super) struct ExpressionNode {
    /// Byte offset in the source.
    pub(super) at: u32,
    pub(super) kind: ExpressionKind,
}

#[derive(Clone, Debug)]
pub(super) enum ExpressionKind {
    Constant(Constant),
    /// Gone once resolved.
    Name(String),
    Slot(usize),
    Tuple(Vec<ExpressionNode>),
    List(Vec<ExpressionNode>),
    Set(Vec<ExpressionNode>),
    /// A missing key stands for `**`.
    Dict(Vec<(Option<ExpressionNode>, ExpressionNode)>),
    Starred(Box<ExpressionNode>),
    /// Innermost last.
    Unary(Vec<UnaryOperator>, Box<ExpressionNode>),
    /// Left to right, each with the place of its operator.
    BinaryChain(
        Box<ExpressionNode>,
        Vec<(BinaryOperator, u32, ExpressionNode)>,
    ),
    Power(Box<ExpressionNode>, Box<ExpressionNode>),
    ComparisonChain(
        Box<ExpressionNode>,
        Vec<(ComparisonOperator, u32, ExpressionNode)>,
    ),
    And(Vec<ExpressionNode>),
    Or(Vec<ExpressionNode>),
    /// Condition, then, else.
    Conditional(Box<[ExpressionNode; 3]>),
    Postfix(Box<ExpressionNode>, Vec<PostfixStep>),
    Comprehension(Arc<Comprehension>),
    FString(Vec<FStringPart>),
    Call(BuiltinFunction, Box<ArgumentList>),
    /// Only where a function is asked for.
    Lambda(Arc<Lambda>),
}

#[derive(Clone, Debug)]
pub(super) enum Constant {
    None,
    Bool(bool),
    Int(i64),
    BigInt(Arc<BigInt>),
    Float(f64),
    Text(Arc<TextValue>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnaryOperator {
    Not,
    Minus,
    Plus,
    Invert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
    ShiftLeft,
    ShiftRight,
    BitAnd,
    BitOr,
    BitXor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparisonOperator {
    Equal,
    NotEqual,
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
pub(super) struct PostfixStep {
    pub(super) at: u32,
    pub(super) kind: PostfixKind,
}

#[derive(Clone, Debug)]
pub(super) enum PostfixKind {
    /// Gone once resolved, as `Call`.
    Attribute(String),
    Call(Box<ArgumentList>),
    Index(ExpressionNode),
    Slice(Box<[Option<ExpressionNode>; 3]>),
    Field(BuiltinMethod),
    Method(BuiltinMethod, Box<ArgumentList>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct ArgumentList {
    pub(super) positional: Vec<ExpressionNode>,
    /// A missing name stands for `**`.
    pub(super) named: Vec<(Option<String>, ExpressionNode)>,
    /// What `key=`, or the first argument of `map` and `filter`, names.
    pub(super) function: Option<Arc<Callable>>,
}

/// A function that another one calls. Functions are no values.
#[derive(Clone, Debug)]
pub(super) enum Callable {
    Lambda(Lambda),
    Function(BuiltinFunction),
    /// `str.lower`
    UnboundMethod(BuiltinMethod),
    /// `counts.get`
    BoundMethod(ExpressionNode, BuiltinMethod),
    /// `filter(None, …)`, `key=None`
    Identity,
}

#[derive(Clone, Debug)]
pub(super) struct Lambda {
    pub(super) names: Vec<String>,
    pub(super) slots: Vec<usize>,
    pub(super) body: ExpressionNode,
}

#[derive(Clone, Debug)]
pub(super) struct Comprehension {
    pub(super) kind: ComprehensionKind,
    /// The key of a dict.
    pub(super) key: Option<ExpressionNode>,
    pub(super) item: ExpressionNode,
    pub(super) clauses: Vec<ForClause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComprehensionKind {
    List,
    Set,
    Dict,
    Generator,
}

/// `for target in source if … if …`
#[derive(Clone, Debug)]
pub(super) struct ForClause {
    pub(super) target: AssignmentTarget,
    pub(super) source: ExpressionNode,
    pub(super) conditions: Vec<ExpressionNode>,
}

#[derive(Clone, Debug)]
pub(super) enum AssignmentTarget {
    /// Gone once resolved.
    Name(String, u32),
    Slot(usize),
    /// The targets, and which of them takes the rest.
    Unpack(Vec<Self>, Option<usize>),
}

/// A part of an f-string.
#[derive(Clone, Debug)]
pub(super) enum FStringPart {
    Text(String),
    Field(Box<ReplacementField>),
}

#[derive(Clone, Debug)]
pub(super) struct ReplacementField {
    pub(super) value: ExpressionNode,
    pub(super) conversion: Option<char>,
    pub(super) spec: Vec<FStringPart>,
}

/// `target = value`, or the last expression.
#[derive(Clone, Debug)]
pub(super) struct StatementNode {
    pub(super) at: u32,
    pub(super) target: Option<AssignmentTarget>,
    pub(super) value: ExpressionNode,
}

impl ExpressionNode {
    pub(super) fn new(at: u32, kind: ExpressionKind) -> Self {
        Self { at, kind }
    }
}
