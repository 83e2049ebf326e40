//! Tables of the built-in functions, methods and fields. An expression can use nothing
//! else.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use super::{
    call::BoundCallable,
    collections as c, dates as d,
    error::{Result, type_error},
    evaluator::Evaluator,
    iterables as h, math as m, scalars as f, sets as s, strings as t,
    value::Value,
};

pub(super) type BuiltinFn = fn(&mut Evaluator<'_>, BuiltinCall<'_>) -> Result<Value>;

#[derive(Clone, Copy, Debug)]
pub(super) struct BuiltinFunction {
    pub(super) name: &'static str,
    pub(super) implementation: BuiltinFn,
}

/// A method or field name with its implementation for each type.
#[derive(Clone, Debug)]
pub(super) struct BuiltinMethod {
    pub(super) name: &'static str,
    implementations: Arc<[(ReceiverType, BuiltinFn)]>,
}

/// The evaluated arguments of a call.
#[derive(Debug)]
pub(super) struct BuiltinCall<'n> {
    pub(super) name: &'static str,
    /// The value before the dot.
    pub(super) receiver: Value,
    pub(super) values: Vec<Value>,
    pub(super) named: Vec<(Cow<'n, str>, Value)>,
    pub(super) function: Option<Rc<BoundCallable>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverType {
    Int,
    Float,
    Text,
    List,
    Tuple,
    Dict,
    Set,
    Date,
    DateTime,
    TimeDelta,
}

/// Functions without a module prefix.
pub(super) const BARE_FUNCTIONS: &[(&str, BuiltinFn)] = &[
    ("abs", f::abs),
    ("all", h::all),
    ("any", h::any),
    ("ascii", f::ascii),
    ("bin", f::bin),
    ("bool", f::bool),
    ("chr", f::chr),
    ("date", d::make_date),
    ("datetime", d::make_datetime),
    ("dict", c::dict),
    ("divmod", f::divmod),
    ("enumerate", h::enumerate),
    ("filter", h::filter),
    ("float", f::float),
    ("format", f::format),
    ("hex", f::hex),
    ("int", f::int),
    ("iter", h::iter),
    ("len", c::len),
    ("list", c::list),
    ("map", h::map),
    ("max", h::max),
    ("min", h::min),
    ("next", h::next),
    ("oct", f::oct),
    ("ord", f::ord),
    ("pow", f::pow),
    ("range", c::range),
    ("repr", f::repr),
    ("reversed", h::reversed),
    ("round", f::round),
    ("set", c::set),
    ("sorted", h::sorted),
    ("str", f::str),
    ("sum", h::sum),
    ("timedelta", d::make_delta),
    ("tuple", c::tuple),
    ("zip", h::zip),
];

/// Functions with a dotted name, except those of `math`.
pub(super) const DOTTED_FUNCTIONS: &[(&str, BuiltinFn)] = &[
    ("date.today", d::today),
    ("date.fromisoformat", d::date_from_iso),
    ("date.fromordinal", d::date_from_ordinal),
    ("datetime.now", d::now),
    ("datetime.today", d::now),
    ("datetime.fromisoformat", d::datetime_from_iso),
    ("datetime.strptime", d::strptime),
    ("datetime.combine", d::combine),
    ("datetime.datetime", d::make_datetime),
    ("datetime.datetime.now", d::now),
    ("datetime.datetime.fromisoformat", d::datetime_from_iso),
    ("datetime.datetime.strptime", d::strptime),
    ("datetime.date", d::make_date),
    ("datetime.date.today", d::today),
    ("datetime.date.fromisoformat", d::date_from_iso),
    ("datetime.timedelta", d::make_delta),
    ("dict.fromkeys", c::from_keys),
];

const METHODS: &[(ReceiverType, &str, BuiltinFn)] = &[
    (ReceiverType::Int, "bit_count", f::bit_count),
    (ReceiverType::Int, "bit_length", f::bit_length),
    (ReceiverType::Float, "is_integer", f::is_integer),
    (ReceiverType::Text, "capitalize", t::capitalize),
    (ReceiverType::Text, "casefold", t::casefold),
    (ReceiverType::Text, "center", t::center),
    (ReceiverType::Text, "count", t::count),
    (ReceiverType::Text, "endswith", t::ends_with),
    (ReceiverType::Text, "expandtabs", t::expand_tabs),
    (ReceiverType::Text, "find", t::find),
    (ReceiverType::Text, "index", t::index),
    (ReceiverType::Text, "isalnum", t::is_alnum),
    (ReceiverType::Text, "isalpha", t::is_alpha),
    (ReceiverType::Text, "isascii", t::is_ascii),
    (ReceiverType::Text, "isdecimal", t::is_decimal),
    (ReceiverType::Text, "isdigit", t::is_digit),
    (ReceiverType::Text, "isidentifier", t::is_identifier),
    (ReceiverType::Text, "islower", t::is_lower),
    (ReceiverType::Text, "isnumeric", t::is_numeric),
    (ReceiverType::Text, "isprintable", t::is_printable),
    (ReceiverType::Text, "isspace", t::is_space),
    (ReceiverType::Text, "istitle", t::is_title),
    (ReceiverType::Text, "isupper", t::is_upper),
    (ReceiverType::Text, "join", t::join),
    (ReceiverType::Text, "ljust", t::ljust),
    (ReceiverType::Text, "lower", t::lower),
    (ReceiverType::Text, "lstrip", t::lstrip),
    (ReceiverType::Text, "partition", t::partition),
    (ReceiverType::Text, "removeprefix", t::remove_prefix),
    (ReceiverType::Text, "removesuffix", t::remove_suffix),
    (ReceiverType::Text, "replace", t::replace),
    (ReceiverType::Text, "rfind", t::rfind),
    (ReceiverType::Text, "rindex", t::rindex),
    (ReceiverType::Text, "rjust", t::rjust),
    (ReceiverType::Text, "rpartition", t::rpartition),
    (ReceiverType::Text, "rsplit", t::rsplit),
    (ReceiverType::Text, "rstrip", t::rstrip),
    (ReceiverType::Text, "split", t::split),
    (ReceiverType::Text, "splitlines", t::split_lines),
    (ReceiverType::Text, "startswith", t::starts_with),
    (ReceiverType::Text, "strip", t::strip),
    (ReceiverType::Text, "swapcase", t::swapcase),
    (ReceiverType::Text, "title", t::title),
    (ReceiverType::Text, "upper", t::upper),
    (ReceiverType::Text, "zfill", t::zfill),
    (ReceiverType::List, "copy", c::copy),
    (ReceiverType::List, "count", c::count),
    (ReceiverType::List, "index", c::index),
    (ReceiverType::Tuple, "count", c::count),
    (ReceiverType::Tuple, "index", c::index),
    (ReceiverType::Dict, "copy", c::copy),
    (ReceiverType::Dict, "get", c::get),
    (ReceiverType::Dict, "items", c::items),
    (ReceiverType::Dict, "keys", c::keys),
    (ReceiverType::Dict, "values", c::values),
    (ReceiverType::Set, "copy", c::copy),
    (ReceiverType::Set, "difference", s::difference),
    (ReceiverType::Set, "intersection", s::intersection),
    (ReceiverType::Set, "isdisjoint", s::is_disjoint),
    (ReceiverType::Set, "issubset", s::is_subset),
    (ReceiverType::Set, "issuperset", s::is_superset),
    (
        ReceiverType::Set,
        "symmetric_difference",
        s::symmetric_difference,
    ),
    (ReceiverType::Set, "union", s::union_of),
    (ReceiverType::Date, "isoformat", d::isoformat),
    (ReceiverType::Date, "isoweekday", d::isoweekday),
    (ReceiverType::Date, "replace", d::replace_date),
    (ReceiverType::Date, "strftime", d::strftime),
    (ReceiverType::Date, "toordinal", d::toordinal),
    (ReceiverType::Date, "weekday", d::weekday),
    (ReceiverType::DateTime, "date", d::date_of),
    (ReceiverType::DateTime, "isoformat", d::isoformat),
    (ReceiverType::DateTime, "isoweekday", d::isoweekday),
    (ReceiverType::DateTime, "replace", d::replace_datetime),
    (ReceiverType::DateTime, "strftime", d::strftime),
    (ReceiverType::DateTime, "toordinal", d::toordinal),
    (ReceiverType::DateTime, "weekday", d::weekday),
    (ReceiverType::TimeDelta, "total_seconds", d::total_seconds),
];

const FIELDS: &[(ReceiverType, &str, BuiltinFn)] = &[
    (ReceiverType::Date, "day", d::day),
    (ReceiverType::Date, "month", d::month),
    (ReceiverType::Date, "year", d::year),
    (ReceiverType::DateTime, "day", d::day),
    (ReceiverType::DateTime, "hour", d::hour),
    (ReceiverType::DateTime, "microsecond", d::microsecond),
    (ReceiverType::DateTime, "minute", d::minute),
    (ReceiverType::DateTime, "month", d::month),
    (ReceiverType::DateTime, "second", d::second),
    (ReceiverType::DateTime, "year", d::year),
    (ReceiverType::TimeDelta, "days", d::delta_days),
    (
        ReceiverType::TimeDelta,
        "microseconds",
        d::delta_microseconds,
    ),
    (ReceiverType::TimeDelta, "seconds", d::delta_seconds),
];

/// Attributes that Python has but this language does not, with a hint.
pub(super) const UNSUPPORTED_ATTRIBUTES: &[(&str, &str)] = &[
    ("format", "write an f-string: f'{x}'"),
    ("format_map", "write an f-string: f'{x}'"),
    ("encode", "there are no bytes"),
    (
        "append",
        "values do not change, make a new list: items + [x]",
    ),
    (
        "extend",
        "values do not change, make a new list: items + more",
    ),
    (
        "insert",
        "values do not change, make a new list: items[:i] + [x] + items[i:]",
    ),
    (
        "remove",
        "values do not change, write [x for x in items if …]",
    ),
    ("pop", "values do not change, use items[-1] and items[:-1]"),
    ("clear", "values do not change, write []"),
    ("sort", "values do not change, use sorted(items)"),
    ("reverse", "values do not change, use items[::-1]"),
    (
        "update",
        "values do not change, write {**record, 'key': value}",
    ),
    (
        "setdefault",
        "values do not change, write {'key': value, **record}",
    ),
    ("popitem", "values do not change"),
    ("add", "values do not change, write numbers | {x}"),
    ("discard", "values do not change, write numbers - {x}"),
];

/// Finds a function by its name, which may have dots.
pub(super) fn find_function(name: &str) -> Option<BuiltinFunction> {
    let in_math = name.strip_prefix("math.");
    let bare = BARE_FUNCTIONS
        .iter()
        .chain(DOTTED_FUNCTIONS)
        .filter(|_| in_math.is_none());
    // Without a prefix `pow` is the built-in function, not `math.pow`.
    let found = bare
        .chain(m::MATH_FUNCTIONS)
        .find(|(it, _)| *it == in_math.unwrap_or(name));
    found.map(|(name, implementation)| BuiltinFunction {
        name,
        implementation: *implementation,
    })
}

pub(super) fn find_method(name: &str) -> Option<BuiltinMethod> {
    find_in_table(METHODS, name)
}

pub(super) fn find_field(name: &str) -> Option<BuiltinMethod> {
    find_in_table(FIELDS, name)
}

/// Returns the names of all methods and fields.
pub(super) fn attribute_names() -> impl Iterator<Item = &'static str> {
    METHODS.iter().chain(FIELDS).map(|it| it.1)
}

fn find_in_table(
    table: &[(ReceiverType, &'static str, BuiltinFn)],
    name: &str,
) -> Option<BuiltinMethod> {
    let entries = table.iter().filter(|it| it.1 == name);
    let on: Arc<[_]> = entries.clone().map(|it| (it.0, it.2)).collect();
    let name = entries.clone().next()?.1;
    Some(BuiltinMethod {
        name,
        implementations: on,
    })
}

impl BuiltinMethod {
    /// Returns the implementation for the type of `receiver`.
    pub(super) fn implementation_for(&self, receiver: &Value) -> Option<BuiltinFn> {
        let owner = ReceiverType::of(receiver)?;
        let found = self.implementations.iter().find(|it| it.0 == owner);
        found.map(|it| it.1)
    }
}

impl ReceiverType {
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(_) | Value::Int(_) | Value::BigInt(_) => Self::Int,
            Value::Float(_) => Self::Float,
            Value::Text(_) => Self::Text,
            Value::List(_) => Self::List,
            Value::Tuple(_) => Self::Tuple,
            Value::Dict(_) => Self::Dict,
            Value::Set(_) => Self::Set,
            Value::Date(_) => Self::Date,
            Value::DateTime(_) => Self::DateTime,
            Value::TimeDelta(_) => Self::TimeDelta,
            Value::None | Value::Range(_) | Value::DictView(_) | Value::LazyIterator(_) => {
                return None;
            }
        })
    }
}

impl BuiltinCall<'_> {
    pub(super) fn new(name: &'static str, receiver: Value, values: Vec<Value>) -> Self {
        Self {
            name,
            receiver,
            values,
            named: Vec::new(),
            function: None,
        }
    }

    /// Returns exactly `N` positional values; fails on keyword arguments.
    pub(super) fn take_exactly<const N: usize>(self) -> Result<[Value; N]> {
        self.expect_count(N)?;
        self.values
            .try_into()
            .map_err(|_| type_error("wrong number of arguments"))
    }

    pub(super) fn expect_count(&self, count: usize) -> Result<()> {
        self.expect_no_named()?;
        let (name, found) = (self.name, self.values.len());
        if found == count {
            Ok(())
        } else {
            Err(type_error(match count {
                0 => format!("{name}() takes no arguments ({found} given)"),
                1 => format!("{name}() takes exactly one argument ({found} given)"),
                _ => format!("{name} expected {count} arguments, got {found}"),
            }))
        }
    }

    pub(super) fn expect_no_named(&self) -> Result<()> {
        match self.named.first() {
            None => Ok(()),
            Some((keyword, _)) => Err(type_error(format!(
                "{}() got an unexpected keyword argument '{keyword}'",
                self.name
            ))),
        }
    }

    /// Removes and returns the keyword argument `name`.
    pub(super) fn take_named(&mut self, name: &str) -> Option<Value> {
        let at = self.named.iter().position(|it| it.0 == name)?;
        Some(self.named.remove(at).1)
    }

    /// Binds positional and keyword arguments to `names`, at least `least` of them. An
    /// empty name is positional only.
    pub(super) fn bind<const N: usize>(
        mut self,
        least: usize,
        names: [&str; N],
    ) -> Result<[Option<Value>; N]> {
        let found = self.values.len();
        let mut positional = std::mem::take(&mut self.values).into_iter();
        let mut bound = [const { None }; N];
        for (slot, name) in bound.iter_mut().zip(names) {
            *slot = positional.next();
            if slot.is_none() && !name.is_empty() {
                *slot = self.take_named(name);
            }
        }
        self.expect_no_named()?;
        let count = bound.iter().take_while(|it| it.is_some()).count();
        let name = self.name;
        if found > N {
            let s = if N == 1 { "" } else { "s" };
            let message = format!("{name} expected at most {N} argument{s}, got {found}");
            return Err(type_error(message));
        }
        if count < least {
            let s = if least == 1 { "" } else { "s" };
            let message = format!("{name} expected at least {least} argument{s}, got {count}");
            return Err(type_error(message));
        }
        Ok(bound)
    }
}
