//! Conversion of [`CellValue`] from and to PostgreSQL types.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::CellValue;

/// The PostgreSQL epoch, 2000-01-01, in milliseconds since the Unix epoch.
const POSTGRES_EPOCH_MS: i64 = 946_684_800_000;

type SqlResult<T> = Result<T, Box<dyn Error + Sync + Send>>;

impl ToSql for CellValue {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> SqlResult<IsNull> {
        match (self, kind) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Bool(value), &Type::BOOL) => value.to_sql(kind, out),
            (Self::Integer(number), &Type::INT8) => number.to_sql(kind, out),
            (Self::Integer(time), &Type::TIMESTAMP) => to_postgres_micros(*time)?.to_sql(kind, out),
            (Self::Text(text), &Type::TEXT | &Type::VARCHAR) => text.to_sql(kind, out),
            (Self::Blob(bytes), &Type::BYTEA) => bytes.to_sql(kind, out),
            _ => Err(format!("{self:?} cannot be converted to {kind}").into()),
        }
    }

    fn accepts(_kind: &Type) -> bool {
        true // `to_sql` decides, because it sees the value
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for CellValue {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> SqlResult<Self> {
        Ok(match *kind {
            Type::BOOL => Self::Bool(bool::from_sql(kind, raw)?),
            Type::INT8 => Self::Integer(i64::from_sql(kind, raw)?),
            Type::TIMESTAMP => Self::Integer(to_unix_millis(i64::from_sql(kind, raw)?)),
            Type::BYTEA => Self::from(<&[u8]>::from_sql(kind, raw)?),
            _ => Self::from(<&str>::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_kind: &Type) -> SqlResult<Self> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        is_supported_type(kind)
    }
}

/// Whether `CellValue` can be converted from and to this type.
pub(super) fn is_supported_type(kind: &Type) -> bool {
    let supported = [
        Type::BOOL,
        Type::INT8,
        Type::TIMESTAMP,
        Type::BYTEA,
        Type::TEXT,
        Type::VARCHAR,
    ];
    supported.contains(kind)
}

fn to_postgres_micros(time: i64) -> SqlResult<i64> {
    let micros = time
        .checked_sub(POSTGRES_EPOCH_MS)
        .and_then(|it| it.checked_mul(1000));
    micros.ok_or_else(|| "the time is out of range".into())
}

fn to_unix_millis(micros: i64) -> i64 {
    micros.div_euclid(1000) + POSTGRES_EPOCH_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_a_round_trip() {
        for time in [
            0,
            1,
            -1,
            POSTGRES_EPOCH_MS,
            POSTGRES_EPOCH_MS - 1,
            1_790_000_000_123,
        ] {
            assert_eq!(to_unix_millis(to_postgres_micros(time).unwrap()), time);
        }
        assert!(to_postgres_micros(i64::MIN).is_err());
        assert!(to_postgres_micros(i64::MAX).is_err());
    }
}
