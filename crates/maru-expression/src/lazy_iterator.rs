//! Iterators that are consumed once: generators, `map`, `filter`, `zip`.

use std::{rc::Rc, sync::Arc, vec};

use super::{
    ast::Comprehension,
    call::BoundCallable,
    error::Result,
    limits::ResourceMeter,
    value::{Value, ValueCell, checked_depth},
};

#[derive(Debug)]
pub(super) struct LazyIterator {
    pub(super) type_name: &'static str,
    pub(super) depth: u32,
    pub(super) state: ValueCell<IteratorState>,
}

#[derive(Debug)]
pub(super) enum IteratorState {
    /// No item was consumed yet.
    NotStarted(IteratorSource),
    /// The items that were not consumed yet.
    Buffered(vec::IntoIter<Value>),
    /// The iterator is being consumed.
    Executing,
}

#[derive(Debug)]
pub(super) enum IteratorSource {
    Generator(Value, Arc<Comprehension>),
    Map(Rc<BoundCallable>, Vec<Value>),
    Filter(Rc<BoundCallable>, Value),
    Zip(Vec<Value>, ZipStrictness),
    Enumerate(Value, Value),
    Items(Vec<Value>),
}

/// How `zip` handles inputs of different lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZipStrictness {
    Shortest,
    EqualLengths,
}

impl LazyIterator {
    pub(super) fn new_value(
        meter: &mut ResourceMeter<'_>,
        type_name: &'static str,
        source: IteratorSource,
    ) -> Result<Value> {
        meter.charge_memory(160)?;
        let depth = checked_depth(meter, source.depth())?;
        Ok(Value::LazyIterator(Rc::new(Self {
            type_name,
            depth,
            state: ValueCell::new(IteratorState::NotStarted(source)),
        })))
    }
}

impl IteratorSource {
    fn depth(&self) -> Option<u32> {
        match self {
            Self::Generator(it, _) | Self::Filter(_, it) | Self::Enumerate(it, _) => {
                Some(it.depth())
            }
            Self::Map(_, all) | Self::Zip(all, _) | Self::Items(all) => {
                all.iter().map(Value::depth).max()
            }
        }
    }
}
