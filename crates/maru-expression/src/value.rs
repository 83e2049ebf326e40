//! Values of the language. They are immutable, so none can contain itself; each container
//! knows its depth, so recursion over values is bounded.

use std::{
    cell::RefCell,
    hash::{Hash, Hasher},
    rc::Rc,
    sync::Arc,
};

use indexmap::{IndexMap, IndexSet};
use num_bigint::BigInt;
use num_traits::{FromPrimitive as _, ToPrimitive as _};

use super::{
    error::{Result, limit_error, type_error},
    lazy_iterator::LazyIterator,
    limits::ResourceMeter,
};

/// A day number; 0001-01-01 is 1.
pub(super) type DateOrdinal = i64;
pub(super) type DictMap = IndexMap<HashKey, Value, ahash::RandomState>;
pub(super) type KeySet = IndexSet<HashKey, ahash::RandomState>;

#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer that does not fit `Int`.
    BigInt(Arc<BigInt>),
    Float(f64),
    Text(Arc<TextValue>),
    List(Rc<SequenceValue>),
    Tuple(Rc<SequenceValue>),
    Dict(Rc<DictValue>),
    Set(Rc<SetValue>),
    Range(Rc<RangeValue>),
    DictView(Rc<DictView>),
    LazyIterator(Rc<LazyIterator>),
    Date(DateOrdinal),
    /// Microseconds from 0001-01-01 00:00.
    DateTime(i64),
    /// Microseconds.
    TimeDelta(i64),
}

#[derive(Debug)]
pub(super) struct TextValue {
    pub(super) body: Box<str>,
    pub(super) chars: usize,
}

#[derive(Debug)]
pub(super) struct SequenceValue {
    pub(super) items: Vec<Value>,
    depth: u32,
}

#[derive(Debug)]
pub(super) struct DictValue {
    pub(super) map: DictMap,
    depth: u32,
}

#[derive(Debug)]
pub(super) struct SetValue {
    pub(super) keys: KeySet,
    depth: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RangeValue {
    pub(super) start: i64,
    pub(super) stop: i64,
    pub(super) step: i64,
    pub(super) len: usize,
}

/// A dict view: `keys()`, `values()` or `items()`.
#[derive(Debug)]
pub(super) struct DictView {
    pub(super) dict: Rc<DictValue>,
    pub(super) kind: DictViewKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DictViewKind {
    Keys,
    Values,
    Items,
}

/// A hashable value; created by [`hash_key`].
#[derive(Clone, Debug)]
pub(super) struct HashKey(pub(super) Value);

impl Value {
    pub(super) fn text(body: impl Into<Box<str>>) -> Self {
        Self::Text(Arc::new(TextValue::new(body)))
    }

    pub(super) fn from_bigint(number: BigInt) -> Self {
        match number.to_i64() {
            Some(small) => Self::Int(small),
            None => Self::BigInt(Arc::new(number)),
        }
    }

    pub(super) fn list(meter: &ResourceMeter<'_>, items: Vec<Self>) -> Result<Self> {
        Ok(Self::List(Rc::new(SequenceValue::new(meter, items)?)))
    }

    pub(super) fn tuple(meter: &ResourceMeter<'_>, items: Vec<Self>) -> Result<Self> {
        Ok(Self::Tuple(Rc::new(SequenceValue::new(meter, items)?)))
    }

    pub(super) fn dict(meter: &ResourceMeter<'_>, map: DictMap) -> Result<Self> {
        let inside = map.iter().map(|(key, it)| key.0.depth().max(it.depth()));
        let depth = checked_depth(meter, inside.max())?;
        Ok(Self::Dict(Rc::new(DictValue { map, depth })))
    }

    pub(super) fn set(meter: &ResourceMeter<'_>, keys: KeySet) -> Result<Self> {
        let depth = checked_depth(meter, keys.iter().map(|key| key.0.depth()).max())?;
        Ok(Self::Set(Rc::new(SetValue { keys, depth })))
    }

    /// Returns the nesting depth of containers.
    pub(super) fn depth(&self) -> u32 {
        match self {
            Self::List(it) | Self::Tuple(it) => it.depth,
            Self::Dict(it) => it.depth,
            Self::Set(it) => it.depth,
            Self::DictView(it) => it.dict.depth,
            Self::LazyIterator(it) => it.depth,
            _ => 0,
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::BigInt(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::Set(_) => "set",
            Self::Range(_) => "range",
            Self::DictView(it) => it.kind.type_name(),
            Self::LazyIterator(it) => it.type_name,
            Self::Date(_) => "datetime.date",
            Self::DateTime(_) => "datetime.datetime",
            Self::TimeDelta(_) => "datetime.timedelta",
        }
    }

    pub(super) fn is_truthy(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(it) => *it,
            Self::Int(it) => *it != 0,
            Self::Float(it) => *it != 0.0,
            Self::Text(it) => !it.body.is_empty(),
            Self::List(it) | Self::Tuple(it) => !it.items.is_empty(),
            Self::Dict(it) => !it.map.is_empty(),
            Self::Set(it) => !it.keys.is_empty(),
            Self::Range(it) => it.len > 0,
            Self::DictView(it) => !it.dict.map.is_empty(),
            Self::TimeDelta(it) => *it != 0,
            Self::BigInt(_) | Self::LazyIterator(_) | Self::Date(_) | Self::DateTime(_) => true,
        }
    }

    /// Returns an integer or bool that fits into 64 bits.
    pub(super) fn to_i64(&self) -> Option<i64> {
        match self {
            Self::Bool(it) => Some(i64::from(*it)),
            Self::Int(it) => Some(*it),
            _ => None,
        }
    }

    /// Returns an integer or bool.
    pub(super) fn to_bigint(&self) -> Option<BigInt> {
        match self {
            Self::Bool(it) => Some(BigInt::from(u8::from(*it))),
            Self::Int(it) => Some(BigInt::from(*it)),
            Self::BigInt(it) => Some((**it).clone()),
            _ => None,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(
            self,
            Self::Bool(_) | Self::Int(_) | Self::BigInt(_) | Self::Float(_)
        )
    }

    /// Evaluates `is`: whether both are the same object, not only equal.
    pub(super) fn is_identical(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => Arc::ptr_eq(a, b),
            (Self::BigInt(a), Self::BigInt(b)) => Arc::ptr_eq(a, b),
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => Rc::ptr_eq(a, b),
            (Self::Dict(a), Self::Dict(b)) => Rc::ptr_eq(a, b),
            (Self::Set(a), Self::Set(b)) => Rc::ptr_eq(a, b),
            (Self::LazyIterator(a), Self::LazyIterator(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl TextValue {
    pub(super) fn new(body: impl Into<Box<str>>) -> Self {
        let body = body.into();
        let chars = body.chars().count();
        Self { body, chars }
    }

    pub(super) fn is_ascii(&self) -> bool {
        self.chars == self.body.len()
    }
}

impl SequenceValue {
    fn new(meter: &ResourceMeter<'_>, items: Vec<Value>) -> Result<Self> {
        let depth = checked_depth(meter, items.iter().map(Value::depth).max())?;
        Ok(Self { items, depth })
    }
}

impl RangeValue {
    /// Returns the item at `at`, which must be below `len`.
    pub(super) fn get(&self, at: usize) -> Value {
        let offset = i64::try_from(at).unwrap_or_default();
        Value::Int(self.start.wrapping_add(self.step.wrapping_mul(offset)))
    }
}

impl DictViewKind {
    fn type_name(self) -> &'static str {
        match self {
            Self::Keys => "dict_keys",
            Self::Values => "dict_values",
            Self::Items => "dict_items",
        }
    }
}

/// Makes `value` the key of a dict or set; charges the cost of hashing it.
pub(super) fn hash_key(meter: &mut ResourceMeter<'_>, value: Value) -> Result<HashKey> {
    charge_hashing(meter, &value)?;
    Ok(HashKey(value))
}

/// Returns the depth of a container around items of depth `inside`; fails if it is too
/// deep.
pub(super) fn checked_depth(meter: &ResourceMeter<'_>, inside: Option<u32>) -> Result<u32> {
    let depth = inside.unwrap_or_default() + 1;
    if depth > meter.limits.depth {
        Err(limit_error(format!(
            "values nested deeper than {}",
            depth - 1
        )))
    } else {
        Ok(depth)
    }
}

/// Interior mutability for iterators, which change when they are consumed.
pub(super) type ValueCell<T> = RefCell<T>;

fn charge_hashing(meter: &mut ResourceMeter<'_>, value: &Value) -> Result<()> {
    match value {
        Value::Text(text) => meter.charge_scan(text.body.len()),
        Value::BigInt(number) => meter.charge_steps(1 + number.bits() / 512),
        Value::Tuple(tuple) => {
            meter.charge_steps(1)?;
            tuple
                .items
                .iter()
                .try_for_each(|it| charge_hashing(meter, it))
        }
        Value::List(_) | Value::Dict(_) | Value::Set(_) | Value::DictView(_) => Err(type_error(
            format!("unhashable type: '{}'", value.type_name()),
        )),
        _ => meter.charge_steps(1),
    }
}

impl Hash for HashKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Value::None => 0.hash(state),
            Value::Bool(it) => i64::from(*it).hash(state),
            Value::Int(it) | Value::Date(it) | Value::DateTime(it) | Value::TimeDelta(it) => {
                it.hash(state);
            }
            Value::BigInt(it) => it.hash(state),
            Value::Float(it) => hash_float(*it, state),
            Value::Text(it) => it.body.hash(state),
            Value::Tuple(it) => it.items.iter().for_each(|it| Self(it.clone()).hash(state)),
            Value::Range(it) => it.len.hash(state),
            _ => 1.hash(state),
        }
    }
}

impl PartialEq for HashKey {
    fn eq(&self, other: &Self) -> bool {
        let (left, right) = (&self.0, &other.0);
        if left.is_identical(right) {
            return true;
        }
        match (left, right) {
            (Value::Text(a), Value::Text(b)) => a.body == b.body,
            (Value::Tuple(a), Value::Tuple(b)) => {
                a.items.len() == b.items.len()
                    && a.items
                        .iter()
                        .zip(&b.items)
                        .all(|(a, b)| Self(a.clone()) == Self(b.clone()))
            }
            (Value::Range(a), Value::Range(b)) => a == b,
            (Value::Date(a), Value::Date(b))
            | (Value::DateTime(a), Value::DateTime(b))
            | (Value::TimeDelta(a), Value::TimeDelta(b)) => a == b,
            _ if left.is_number() && right.is_number() => numbers_equal(left, right),
            _ => false,
        }
    }
}

impl Eq for HashKey {}

/// Hashes a float so that equal numbers of different types have equal hashes.
fn hash_float<H: Hasher>(number: f64, state: &mut H) {
    if number.fract() != 0.0 || !number.is_finite() {
        return number.to_bits().hash(state);
    }
    match number.to_i64() {
        Some(small) => small.hash(state),
        None => BigInt::from_f64(number).unwrap_or_default().hash(state),
    }
}

pub(super) fn numbers_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Float(float), other) | (other, Value::Float(float)) => {
            float.fract() == 0.0 && BigInt::from_f64(*float) == other.to_bigint()
        }
        _ => left.to_bigint() == right.to_bigint(),
    }
}
