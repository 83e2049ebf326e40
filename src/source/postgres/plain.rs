//! Rows of common types as the server has them, made JSON here: the texts are those
//! that the server's `row_to_json` would make, for a third of its work.

mod moment;
mod number;

use std::error::Error;

use tokio_postgres::{
    Column, Row,
    types::{FromSql, Type},
};

use super::asked::{Asked, Shape, identifier};

/// How a value becomes JSON.
type Write = fn(&[u8], &mut Vec<u8>) -> Option<()>;

/// What is selected beside the columns if texts are: a row that is longer than the
/// whole answer may be fails.
const FITS: &str = "_fits";

/// How the rows of a statement are written, whose columns are all of types that are
/// known here.
#[derive(Debug)]
pub(super) struct Plain {
    /// `{"first":`, `,"second":` and so on.
    keys: Vec<Vec<u8>>,
    writers: Vec<Write>,
}

impl Plain {
    /// None if a column is of another type. Moments with a zone are known as the
    /// server shows them in UTC.
    pub(super) fn of(shape: &Shape, is_utc: bool) -> Option<Self> {
        let writers = shape.types.iter().map(|it| writer(it, is_utc));
        Some(Self {
            writers: writers.collect::<Option<_>>()?,
            keys: keys(&shape.columns)?,
        })
    }

    /// A row as a JSON object, `made` there; none if the server sent what it should not.
    pub(super) fn text<'a>(&self, row: &Row, made: &'a mut Vec<u8>) -> Option<&'a str> {
        made.clear();
        for (at, (key, write)) in self.keys.iter().zip(&self.writers).enumerate() {
            made.extend_from_slice(key);
            match row.try_get(at).ok()? {
                Some(Sent(bytes)) => write(bytes, made)?,
                None => made.extend_from_slice(b"null"),
            }
        }
        made.extend_from_slice(if self.keys.is_empty() { b"{}" } else { b"}" });
        str::from_utf8(made).ok()
    }
}

/// The query of this shape with what looks at the length of its rows.
pub(super) fn query(shape: &Shape, asked: &Asked<'_>) -> String {
    let (sql, most, bytes) = (asked.sql, asked.limits.rows + 1, asked.limits.bytes);
    let name = shape.query_name();
    let length =
        |it: String| format!("COALESCE(pg_catalog.octet_length({name}.{it}), 0)::pg_catalog.int8");
    let lengths: Vec<String> = texts(shape).map(length).collect();
    let length = lengths.join(" OPERATOR(pg_catalog.+) ");
    let fits = match lengths.is_empty() {
        true => String::new(),
        // No query of common sense fails in this way.
        false => format!(
            ", CASE WHEN {length} OPERATOR(pg_catalog.>) {bytes} THEN \
             pg_catalog.width_bucket({length}, 0, 0, 0) END AS {FITS}"
        ),
    };
    format!("SELECT {name}.*{fits} FROM (\n{sql}\n) AS {name} LIMIT {most}")
}

/// Whether a statement that was prepared from [`query`] has the columns that the query
/// had. Once it is prepared, the server sees to that.
pub(super) fn is_of(shape: &Shape, columns: &[Column]) -> bool {
    let Some((own, added)) = columns.split_at_checked(shape.columns.len()) else {
        return false;
    };
    let expected = shape.columns.iter().map(String::as_str).zip(&shape.types);
    let fits = texts(shape).next().map(|_| FITS);
    own.iter().map(|it| (it.name(), it.type_())).eq(expected)
        && added.iter().map(Column::name).eq(fits)
}

/// The columns whose values may be of any length, as something that has one.
fn texts(shape: &Shape) -> impl Iterator<Item = String> {
    let both = shape.columns.iter().zip(&shape.types);
    both.filter_map(|(name, kind)| match *kind {
        // As a text, one of fixed length would lose the spaces at its end.
        Type::TEXT | Type::VARCHAR | Type::BPCHAR => Some(identifier(name)),
        Type::JSON => Some(format!("{}::pg_catalog.text", identifier(name))),
        _ => None,
    })
}

/// A value as it was sent.
struct Sent<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Sent<'a> {
    fn from_sql(_kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_kind: &Type) -> bool {
        true // what it is, is known by its column
    }
}

fn keys(names: &[String]) -> Option<Vec<Vec<u8>>> {
    let keys = names.iter().enumerate().map(|(at, name)| {
        let mut key = vec![if at == 0 { b'{' } else { b',' }];
        text(name.as_bytes(), &mut key)?;
        key.push(b':');
        Some(key)
    });
    keys.collect()
}

fn writer(kind: &Type, is_utc: bool) -> Option<Write> {
    Some(match *kind {
        Type::BOOL => truth,
        Type::INT2 => number::int2,
        Type::INT4 => number::int4,
        Type::INT8 => number::int8,
        Type::FLOAT4 => number::float4,
        Type::FLOAT8 => number::float8,
        Type::NUMERIC => number::numeric,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => text,
        Type::JSON => json,
        Type::UUID => uuid,
        Type::DATE => moment::date,
        Type::TIME => moment::time,
        Type::TIMESTAMP => moment::timestamp,
        Type::TIMESTAMPTZ if is_utc => moment::timestamptz,
        _ => return None,
    })
}

fn truth(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let word: &[u8] = match *bytes.first()? {
        0 => b"false",
        _ => b"true",
    };
    json(word, out)
}

fn text(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let stands_as_it_is = |it: &u8| *it >= b' ' && *it != b'"' && *it != b'\\';
    if bytes.iter().all(stands_as_it_is) {
        out.push(b'"');
        out.extend_from_slice(bytes);
        out.push(b'"');
        return Some(());
    }
    serde_json::to_writer(out, str::from_utf8(bytes).ok()?).ok()
}

/// The text is JSON already.
fn json(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(bytes);
    Some(())
}

fn uuid(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let uuid = uuid::Uuid::from_slice(bytes).ok()?;
    text(uuid.hyphenated().encode_lower(&mut [0; 36]).as_bytes(), out)
}
