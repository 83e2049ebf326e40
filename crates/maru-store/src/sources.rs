//! Databases that were added while the hub runs, and the hub's own switches.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store, is_sealed};

/// A database that tools may read, as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// Unique name.
    pub name: String,
    /// Its settings as JSON; may hold a password.
    pub definition: String,
    /// When it was changed, in milliseconds since 1970.
    pub updated_at: i64,
}

const REPLACE_SETTING: PortableStatement = PortableStatement {
    attempted: "change a switch of the hub",
    sql: "UPDATE hub_setting SET value = $1 WHERE name = $2 AND value = $3 RETURNING name",
};
/// The setting with the key that the hubs of this store share.
const SHARED_KEY_SETTING: &str = "shared_key";
const LIST: PortableStatement = PortableStatement {
    attempted: "list the sources",
    sql: "SELECT name, definition, updated_at FROM data_source ORDER BY name",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the source",
    sql: "INSERT INTO data_source (name, definition, updated_at) VALUES ($1, $2, $3)
          ON CONFLICT (name) DO UPDATE SET definition = excluded.definition,
            updated_at = excluded.updated_at
          RETURNING name",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "delete the source",
    sql: "DELETE FROM data_source WHERE name = $1 RETURNING name",
};
const GET_SETTING: PortableStatement = PortableStatement {
    attempted: "read a switch of the hub",
    sql: "SELECT value FROM hub_setting WHERE name = $1",
};
const PUT_SETTING: PortableStatement = PortableStatement {
    attempted: "save a switch of the hub",
    sql: "INSERT INTO hub_setting (name, value) VALUES ($1, $2)
          ON CONFLICT (name) DO UPDATE SET value = excluded.value RETURNING name",
};
const KEEP_SETTING: PortableStatement = PortableStatement {
    attempted: "keep a value of the hub",
    sql: "INSERT INTO hub_setting (name, value) VALUES ($1, $2)
          ON CONFLICT (name) DO NOTHING RETURNING name",
};
/// Every statement of this file that both back ends run.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    LIST,
    PUT,
    DELETE,
    GET_SETTING,
    PUT_SETTING,
    KEEP_SETTING,
    REPLACE_SETTING,
];

/// What a sealed definition is bound to.
fn associated_data(name: &str) -> String {
    format!("data_source.definition of {name}")
}

impl Store {
    /// Every stored source, by name. A definition that cannot be opened stays sealed.
    pub async fn sources(&self) -> Result<Vec<SourceRow>, Error> {
        let mut rows: Vec<SourceRow> = self.query_as(LIST, Vec::new()).await?;
        for row in &mut rows {
            let sealer = self.sealer.as_ref();
            let opened =
                sealer.and_then(|it| it.open(&associated_data(&row.name), &row.definition));
            if let Some(definition) = opened {
                row.definition = definition;
            }
        }
        Ok(rows)
    }

    /// Adds or replaces a source.
    pub async fn put_source(&self, row: &SourceRow) -> Result<(), Error> {
        let definition = match &self.sealer {
            Some(sealer) if !is_sealed(&row.definition) => {
                sealer.seal(&associated_data(&row.name), &row.definition)
            }
            _ => row.definition.clone(),
        };
        let values = vec![
            row.name.as_str().into(),
            definition.as_str().into(),
            row.updated_at.into(),
        ];
        self.execute(PUT, values).await.map(drop)
    }

    /// Deletes a source; returns false if it does not exist.
    pub async fn delete_source(&self, name: &str) -> Result<bool, Error> {
        self.execute(DELETE, vec![name.into()]).await
    }

    /// Seals the definitions that are written plainly.
    pub(super) async fn seal_sources(&self) -> Result<(), Error> {
        let rows: Vec<SourceRow> = self.query_as(LIST, Vec::new()).await?;
        for row in rows.iter().filter(|it| !is_sealed(&it.definition)) {
            self.put_source(row).await?;
        }
        Ok(())
    }

    /// The value of a switch of the hub, if it was ever set.
    pub async fn hub_setting(&self, name: &str) -> Result<Option<String>, Error> {
        let rows: Vec<SettingRow> = self.query_as(GET_SETTING, vec![name.into()]).await?;
        Ok(rows.into_iter().next().map(|it| it.0))
    }

    /// The key with which hubs that share the store seal what they give to clients and to
    /// each other. The first hub makes it; `seal_key_file` encrypts it.
    pub async fn shared_key(&self) -> Result<[u8; 32], Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the operating system gives random bytes");
        let text = BASE64_STANDARD.encode(key);
        let text = match &self.sealer {
            Some(sealer) => sealer.seal(SHARED_KEY_SETTING, &text),
            None => text,
        };
        let values = vec![SHARED_KEY_SETTING.into(), text.into()];
        self.execute(KEEP_SETTING, values).await?;
        let kept = self.hub_setting(SHARED_KEY_SETTING).await?;
        let kept = kept.unwrap_or_default();
        let opened = match &self.sealer {
            Some(sealer) if is_sealed(&kept) => sealer.open(SHARED_KEY_SETTING, &kept),
            _ => Some(kept),
        };
        let bytes = opened.and_then(|it| BASE64_STANDARD.decode(it).ok());
        let key = bytes.and_then(|it| <[u8; 32]>::try_from(it).ok());
        key.ok_or(Error::SharedKeyUnreadable)
    }

    /// Changes a switch of the hub if it still has the value `before`; returns false if not.
    pub async fn replace_hub_setting(
        &self,
        name: &str,
        before: Option<&str>,
        value: &str,
    ) -> Result<bool, Error> {
        match before {
            Some(before) => {
                let values = vec![value.into(), name.into(), before.into()];
                self.execute(REPLACE_SETTING, values).await
            }
            None => {
                let values = vec![name.into(), value.into()];
                self.execute(KEEP_SETTING, values).await
            }
        }
    }

    /// Sets a switch of the hub.
    pub async fn put_hub_setting(&self, name: &str, value: &str) -> Result<(), Error> {
        let values = vec![name.into(), value.into()];
        self.execute(PUT_SETTING, values).await.map(drop)
    }
}

struct SettingRow(String);

impl TryFrom<ResultRow> for SettingRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self(row.next_cell()?))
    }
}

impl TryFrom<ResultRow> for SourceRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            name: row.next_cell()?,
            definition: row.next_cell()?,
            updated_at: row.next_cell()?,
        })
    }
}

/// Leaves the definition out: it may hold a password.
impl fmt::Debug for SourceRow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SourceRow")
            .field("name", &self.name)
            .field("updated_at", &self.updated_at)
            .finish_non_exhaustive()
    }
}
