//! The syntax tree. The parser creates it with names; `name_resolver` replaces them by
//! slots, functions and methods.

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
    /// Replaced by the name resolver.
    Name(String),
    Slot(usize),
    Tuple(Vec<ExpressionNode>),
    List(Vec<ExpressionNode>),
    Set(Vec<ExpressionNode>),
    /// A missing key is `**value`.
    Dict(Vec<(Option<ExpressionNode>, ExpressionNode)>),
    Starred(Box<ExpressionNode>),
    /// The innermost operator is last.
    Unary(Vec<UnaryOperator>, Box<ExpressionNode>),
    /// Operators from left to right, each with its offset in the source.
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
    /// Condition, value if true, value if false.
    Conditional(Box<[ExpressionNode; 3]>),
    Postfix(Box<ExpressionNode>, Vec<PostfixStep>),
    Comprehension(Arc<Comprehension>),
    FString(Vec<FStringPart>),
    Call(BuiltinFunction, Box<ArgumentList>),
    /// Allowed only as an argument that must be a function.
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

/// A postfix operator: `.name`, `[…]` or `(…)`.
#[derive(Clone, Debug)]
pub(super) struct PostfixStep {
    pub(super) at: u32,
    pub(super) kind: PostfixKind,
}

#[derive(Clone, Debug)]
pub(super) enum PostfixKind {
    /// Replaced by the name resolver, as is `Call`.
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
    /// A missing name is `**value`.
    pub(super) named: Vec<(Option<String>, ExpressionNode)>,
    /// The function in `key=` or in the first argument of `map` and `filter`.
    pub(super) function: Option<Arc<Callable>>,
}

/// A function that is passed to another function. Functions are not values.
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
    /// The key, in a dict comprehension.
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
    /// Replaced by the name resolver.
    Name(String, u32),
    Slot(usize),
    /// The targets, and the position of the starred one.
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

/// A line: `target = value`, or a final expression.
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
