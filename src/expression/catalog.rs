//! Every function, method and field there is. What is not in these tables does
//! not exist for an expression.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use super::{
    call::Ready,
    collections as c, dates as d,
    evaluate::Run,
    fault::{Result, type_error},
    functions as f, higher as h, mathematics as m, sets as s, strings as t,
    value::Value,
};

pub(super) type Builtin = fn(&mut Run<'_>, Given<'_>) -> Result<Value>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) run: Builtin,
}

/// A method or field, of each type that has one of this name.
#[derive(Clone, Debug)]
pub(super) struct Method {
    pub(super) name: &'static str,
    on: Arc<[(Type, Builtin)]>,
}

/// What a call was given.
#[derive(Debug)]
pub(super) struct Given<'n> {
    pub(super) name: &'static str,
    /// What stands before the dot.
    pub(super) receiver: Value,
    pub(super) values: Vec<Value>,
    pub(super) named: Vec<(Cow<'n, str>, Value)>,
    pub(super) function: Option<Rc<Ready>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Int,
    Float,
    Text,
    List,
    Tuple,
    Dict,
    Set,
    Date,
    DateTime,
    Delta,
}

/// Functions by their bare name.
pub(super) const FUNCTIONS: &[(&str, Builtin)] = &[
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

/// Functions with a dotted name that are not of `math`.
pub(super) const DOTTED: &[(&str, Builtin)] = &[
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

const METHODS: &[(Type, &str, Builtin)] = &[
    (Type::Int, "bit_count", f::bit_count),
    (Type::Int, "bit_length", f::bit_length),
    (Type::Float, "is_integer", f::is_integer),
    (Type::Text, "capitalize", t::capitalize),
    (Type::Text, "casefold", t::casefold),
    (Type::Text, "center", t::center),
    (Type::Text, "count", t::count),
    (Type::Text, "endswith", t::ends_with),
    (Type::Text, "expandtabs", t::expand_tabs),
    (Type::Text, "find", t::find),
    (Type::Text, "index", t::index),
    (Type::Text, "isalnum", t::is_alnum),
    (Type::Text, "isalpha", t::is_alpha),
    (Type::Text, "isascii", t::is_ascii),
    (Type::Text, "isdecimal", t::is_decimal),
    (Type::Text, "isdigit", t::is_digit),
    (Type::Text, "isidentifier", t::is_identifier),
    (Type::Text, "islower", t::is_lower),
    (Type::Text, "isnumeric", t::is_numeric),
    (Type::Text, "isprintable", t::is_printable),
    (Type::Text, "isspace", t::is_space),
    (Type::Text, "istitle", t::is_title),
    (Type::Text, "isupper", t::is_upper),
    (Type::Text, "join", t::join),
    (Type::Text, "ljust", t::ljust),
    (Type::Text, "lower", t::lower),
    (Type::Text, "lstrip", t::lstrip),
    (Type::Text, "partition", t::partition),
    (Type::Text, "removeprefix", t::remove_prefix),
    (Type::Text, "removesuffix", t::remove_suffix),
    (Type::Text, "replace", t::replace),
    (Type::Text, "rfind", t::rfind),
    (Type::Text, "rindex", t::rindex),
    (Type::Text, "rjust", t::rjust),
    (Type::Text, "rpartition", t::rpartition),
    (Type::Text, "rsplit", t::rsplit),
    (Type::Text, "rstrip", t::rstrip),
    (Type::Text, "split", t::split),
    (Type::Text, "splitlines", t::split_lines),
    (Type::Text, "startswith", t::starts_with),
    (Type::Text, "strip", t::strip),
    (Type::Text, "swapcase", t::swapcase),
    (Type::Text, "title", t::title),
    (Type::Text, "upper", t::upper),
    (Type::Text, "zfill", t::zfill),
    (Type::List, "copy", c::copy),
    (Type::List, "count", c::count),
    (Type::List, "index", c::index),
    (Type::Tuple, "count", c::count),
    (Type::Tuple, "index", c::index),
    (Type::Dict, "copy", c::copy),
    (Type::Dict, "get", c::get),
    (Type::Dict, "items", c::items),
    (Type::Dict, "keys", c::keys),
    (Type::Dict, "values", c::values),
    (Type::Set, "copy", c::copy),
    (Type::Set, "difference", s::difference),
    (Type::Set, "intersection", s::intersection),
    (Type::Set, "isdisjoint", s::is_disjoint),
    (Type::Set, "issubset", s::is_subset),
    (Type::Set, "issuperset", s::is_superset),
    (Type::Set, "symmetric_difference", s::symmetric_difference),
    (Type::Set, "union", s::union_of),
    (Type::Date, "isoformat", d::isoformat),
    (Type::Date, "isoweekday", d::isoweekday),
    (Type::Date, "replace", d::replace_date),
    (Type::Date, "strftime", d::strftime),
    (Type::Date, "toordinal", d::toordinal),
    (Type::Date, "weekday", d::weekday),
    (Type::DateTime, "date", d::date_of),
    (Type::DateTime, "isoformat", d::isoformat),
    (Type::DateTime, "isoweekday", d::isoweekday),
    (Type::DateTime, "replace", d::replace_datetime),
    (Type::DateTime, "strftime", d::strftime),
    (Type::DateTime, "toordinal", d::toordinal),
    (Type::DateTime, "weekday", d::weekday),
    (Type::Delta, "total_seconds", d::total_seconds),
];

const FIELDS: &[(Type, &str, Builtin)] = &[
    (Type::Date, "day", d::day),
    (Type::Date, "month", d::month),
    (Type::Date, "year", d::year),
    (Type::DateTime, "day", d::day),
    (Type::DateTime, "hour", d::hour),
    (Type::DateTime, "microsecond", d::microsecond),
    (Type::DateTime, "minute", d::minute),
    (Type::DateTime, "month", d::month),
    (Type::DateTime, "second", d::second),
    (Type::DateTime, "year", d::year),
    (Type::Delta, "days", d::delta_days),
    (Type::Delta, "microseconds", d::delta_microseconds),
    (Type::Delta, "seconds", d::delta_seconds),
];

/// What tells apart an attribute that never was from one that is not offered.
pub(super) const CLOSED: &[(&str, &str)] = &[
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

/// The function called `name`, which may have dots.
pub(super) fn function(name: &str) -> Option<Function> {
    let in_math = name.strip_prefix("math.");
    let bare = FUNCTIONS.iter().chain(DOTTED).filter(|_| in_math.is_none());
    // A bare `pow` is Python's own, and not that of `math`.
    let found = bare
        .chain(m::FUNCTIONS)
        .find(|(it, _)| *it == in_math.unwrap_or(name));
    found.map(|(name, run)| Function { name, run: *run })
}

pub(super) fn method(name: &str) -> Option<Method> {
    named(METHODS, name)
}

pub(super) fn field(name: &str) -> Option<Method> {
    named(FIELDS, name)
}

/// Names of all methods and fields.
pub(super) fn attributes() -> impl Iterator<Item = &'static str> {
    METHODS.iter().chain(FIELDS).map(|it| it.1)
}

fn named(table: &[(Type, &'static str, Builtin)], name: &str) -> Option<Method> {
    let entries = table.iter().filter(|it| it.1 == name);
    let on: Arc<[_]> = entries.clone().map(|it| (it.0, it.2)).collect();
    let name = entries.clone().next()?.1;
    Some(Method { name, on })
}

impl Method {
    /// What runs it for `receiver`.
    pub(super) fn of(&self, receiver: &Value) -> Option<Builtin> {
        let owner = Type::of(receiver)?;
        let found = self.on.iter().find(|it| it.0 == owner);
        found.map(|it| it.1)
    }
}

impl Type {
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(_) | Value::Int(_) | Value::Big(_) => Self::Int,
            Value::Float(_) => Self::Float,
            Value::Text(_) => Self::Text,
            Value::List(_) => Self::List,
            Value::Tuple(_) => Self::Tuple,
            Value::Dict(_) => Self::Dict,
            Value::Set(_) => Self::Set,
            Value::Date(_) => Self::Date,
            Value::DateTime(_) => Self::DateTime,
            Value::Delta(_) => Self::Delta,
            Value::None | Value::Range(_) | Value::View(_) | Value::Lazy(_) => return None,
        })
    }
}

impl Given<'_> {
    pub(super) fn new(name: &'static str, receiver: Value, values: Vec<Value>) -> Self {
        Self {
            name,
            receiver,
            values,
            named: Vec::new(),
            function: None,
        }
    }

    /// Exactly these values, none of them by name.
    pub(super) fn take<const N: usize>(self) -> Result<[Value; N]> {
        self.exactly(N)?;
        self.values
            .try_into()
            .map_err(|_| type_error("wrong number of arguments"))
    }

    pub(super) fn exactly(&self, count: usize) -> Result<()> {
        self.none_named()?;
        let (name, found) = (self.name, self.values.len());
        match found == count {
            true => Ok(()),
            false => Err(type_error(match count {
                0 => format!("{name}() takes no arguments ({found} given)"),
                1 => format!("{name}() takes exactly one argument ({found} given)"),
                _ => format!("{name} expected {count} arguments, got {found}"),
            })),
        }
    }

    pub(super) fn none_named(&self) -> Result<()> {
        match self.named.first() {
            None => Ok(()),
            Some((given, _)) => Err(type_error(format!(
                "{}() got an unexpected keyword argument '{given}'",
                self.name
            ))),
        }
    }

    /// The value given as `name=`.
    pub(super) fn named(&mut self, name: &str) -> Option<Value> {
        let at = self.named.iter().position(|it| it.0 == name)?;
        Some(self.named.remove(at).1)
    }

    /// Values in the order of `names`, by place or by name; at least `least` of
    /// them. One without a name can be given by place only.
    pub(super) fn bind<const N: usize>(
        mut self,
        least: usize,
        names: [&str; N],
    ) -> Result<[Option<Value>; N]> {
        let found = self.values.len();
        let mut places = std::mem::take(&mut self.values).into_iter();
        let mut bound = [const { None }; N];
        for (place, name) in bound.iter_mut().zip(names) {
            *place = places.next();
            if place.is_none() && !name.is_empty() {
                *place = self.named(name);
            }
        }
        self.none_named()?;
        let given = bound.iter().take_while(|it| it.is_some()).count();
        let name = self.name;
        if found > N {
            let s = if N == 1 { "" } else { "s" };
            let message = format!("{name} expected at most {N} argument{s}, got {found}");
            return Err(type_error(message));
        }
        if given < least {
            let s = if least == 1 { "" } else { "s" };
            let message = format!("{name} expected at least {least} argument{s}, got {given}");
            return Err(type_error(message));
        }
        Ok(bound)
    }
}
