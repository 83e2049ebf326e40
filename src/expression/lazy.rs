//! Values that give their items one by one, once: generators, `map`, `zip`.

use std::{rc::Rc, sync::Arc, vec};

use super::{
    call::Ready,
    fault::Result,
    limits::Meter,
    node::Comprehension,
    value::{Shared, Value, deeper},
};

#[derive(Debug)]
pub(super) struct Lazy {
    pub(super) type_name: &'static str,
    pub(super) depth: u32,
    pub(super) state: Shared<State>,
}

#[derive(Debug)]
pub(super) enum State {
    /// Nobody took anything yet.
    Fresh(Source),
    /// What is left.
    Kept(vec::IntoIter<Value>),
    /// Somebody is taking.
    Busy,
}

#[derive(Debug)]
pub(super) enum Source {
    Generator(Value, Arc<Comprehension>),
    Map(Rc<Ready>, Vec<Value>),
    Filter(Rc<Ready>, Value),
    Zip(Vec<Value>, Strictness),
    Enumerate(Value, Value),
    Items(Vec<Value>),
}

/// What `zip` does with inputs of different lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    Shortest,
    Same,
}

impl Lazy {
    pub(super) fn value(
        meter: &mut Meter<'_>,
        type_name: &'static str,
        source: Source,
    ) -> Result<Value> {
        meter.memory(160)?;
        let depth = deeper(meter, source.depth())?;
        Ok(Value::Lazy(Rc::new(Self {
            type_name,
            depth,
            state: Shared::new(State::Fresh(source)),
        })))
    }
}

impl Source {
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
