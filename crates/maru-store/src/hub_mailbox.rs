//! Messages between the hubs that share a PostgreSQL database, and which hubs run.

use std::{sync::Arc, time::Duration};

use super::{
    CellValue, ChangeFeed, DatabaseError, ResultRow, Store, StoreBackend, postgres::PostgresBackend,
};

/// How long a hub counts as running after it was last seen.
const MEMBER_TIMEOUT_MS: i64 = 5_000;
/// How often the mailbox is read while notifications do not arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The mailbox of one hub.
#[derive(Clone, Debug)]
pub struct HubMailbox {
    backend: PostgresBackend,
    hub: Arc<str>,
}

/// A message from one hub to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubEnvelope {
    /// The id of the hub that receives it, or that sent it.
    pub hub: String,
    /// The exchange that it belongs to.
    pub exchange: String,
    /// What it is about.
    pub kind: String,
    /// Its content.
    pub body: String,
}

/// A hub that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubMemberRow {
    /// Its id, new at every start.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Adds an envelope, unless its recipient has 4,096 unread ones.
const SEND: &str = "INSERT INTO hub_envelope (recipient, sender, exchange, kind, body, expires_at)
    SELECT $1::TEXT, $2, $3, $4, $5,
        (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT + $6::BIGINT
    WHERE (SELECT count(*) FROM (
        SELECT 1 FROM hub_envelope WHERE recipient = $1::TEXT LIMIT 4096) unread) < 4096
    RETURNING id";
/// Replaces the note of this kind, or adds one, unless there are 1,024 of the exchange.
const WRITE_NOTE: &str = "WITH replaced AS (
        DELETE FROM hub_envelope
        WHERE recipient = '*' AND exchange = $2::TEXT AND kind = $3::TEXT
        RETURNING id)
    INSERT INTO hub_envelope (recipient, sender, exchange, kind, body, expires_at)
    SELECT '*', $1, $2::TEXT, $3::TEXT, $4,
        (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT + $5::BIGINT
    WHERE EXISTS (SELECT 1 FROM replaced)
        OR (SELECT count(*) FROM (SELECT 1 FROM hub_envelope
            WHERE recipient = '*' AND exchange = $2::TEXT LIMIT 1024) written) < 1024
    RETURNING id";
/// Replaces all notes of the exchange.
const WRITE_LAST_NOTE: &str = "WITH replaced AS (
        DELETE FROM hub_envelope WHERE recipient = '*' AND exchange = $2::TEXT)
    INSERT INTO hub_envelope (recipient, sender, exchange, kind, body, expires_at)
    VALUES ('*', $1, $2::TEXT, $3, $4,
        (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT + $5::BIGINT)
    RETURNING id";
const DELETE_NOTE: &str = "DELETE FROM hub_envelope
    WHERE recipient = '*' AND exchange = $1 AND kind = $2";
/// Reads somewhat more than may be written, because hubs that write at once may exceed that.
const READ_NOTES: &str = "SELECT sender, exchange, kind, body FROM hub_envelope
    WHERE recipient = '*' AND exchange = $1
        AND expires_at > (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT
    ORDER BY id LIMIT 1200";
const RECEIVE: &str = "WITH taken AS (
        DELETE FROM hub_envelope WHERE id IN (
            SELECT id FROM hub_envelope WHERE recipient = $1 ORDER BY id LIMIT 256)
        RETURNING id, sender, exchange, kind, body, expires_at)
    SELECT sender, exchange, kind, body FROM taken
    WHERE expires_at > (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT
    ORDER BY id";
const ANNOUNCE: &str = "WITH announced AS (
        INSERT INTO hub_member (id, name, version, seen_at)
        VALUES ($1, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT)
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at)
    SELECT id, name, version FROM hub_member
    WHERE id <> $1
        AND seen_at > (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - $4::BIGINT
    ORDER BY name, id";
const LEAVE: &str = "DELETE FROM hub_member WHERE id = $1";
const DELETE_EXPIRED: &str = "DELETE FROM hub_envelope
    WHERE expires_at <= (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT";
/// A bucket is full again after a minute.
const DELETE_FULL_BUCKETS: &str = "DELETE FROM rate_bucket
    WHERE refilled_at < (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - 600000";
const DELETE_GONE: &str = "DELETE FROM hub_member
    WHERE seen_at < (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - 3600000";

impl Store {
    /// The mailbox of the hub with this id, of `[a-z0-9]`; `None` if no other hub can share
    /// the store.
    pub fn hub_mailbox(&self, hub: &str) -> Option<HubMailbox> {
        match &self.backend {
            StoreBackend::Sqlite(_) => None,
            StoreBackend::Postgres(backend) => Some(HubMailbox {
                backend: backend.clone(),
                hub: hub.into(),
            }),
        }
    }
}

impl HubMailbox {
    /// Waits for messages to this hub.
    pub fn notifications(&self) -> ChangeFeed {
        let channel = format!("maru_hub_{}", self.hub);
        ChangeFeed::new(self.backend.clone(), channel, POLL_INTERVAL)
    }

    /// Sends messages in one transaction, in this order; each expires after `lifetime`.
    /// Returns those that were not stored, because their recipient has too many.
    pub async fn send(
        &self,
        envelopes: &[HubEnvelope],
        lifetime: Duration,
    ) -> Result<Vec<HubEnvelope>, DatabaseError> {
        let lifetime = milliseconds(lifetime);
        let mut work = envelopes.iter().map(|it| {
            let values = vec![
                it.hub.clone().into(),
                (*self.hub).into(),
                it.exchange.clone().into(),
                it.kind.clone().into(),
                it.body.clone().into(),
                lifetime.into(),
            ];
            (SEND, values)
        });
        let stored = if envelopes.len() == 1
            && let Some((sql, values)) = work.next()
        {
            // Without BEGIN and COMMIT it is there in half the time.
            vec![self.backend.query(sql, values).await?]
        } else {
            let work: Vec<_> = work.collect();
            let work = Box::new(work.into_iter());
            self.backend.query_in_transaction(work).await?
        };
        let refused = envelopes.iter().zip(stored);
        let refused = refused.filter(|(_, rows)| rows.is_empty());
        Ok(refused.map(|(envelope, _)| envelope.clone()).collect())
    }

    /// Takes the messages to this hub, the oldest first, at most 256.
    pub async fn receive(&self) -> Result<Vec<HubEnvelope>, DatabaseError> {
        self.query(RECEIVE, vec![(*self.hub).into()]).await
    }

    /// Writes a note that every hub may read until it expires, in place of the one of the
    /// same kind.
    pub async fn write_note(
        &self,
        envelope: HubEnvelope,
        lifetime: Duration,
    ) -> Result<(), DatabaseError> {
        let values = self.note_values(envelope, lifetime);
        self.backend.query(WRITE_NOTE, values).await.map(drop)
    }

    /// Writes a note in place of all notes of its exchange.
    pub async fn write_last_note(
        &self,
        envelope: HubEnvelope,
        lifetime: Duration,
    ) -> Result<(), DatabaseError> {
        let values = self.note_values(envelope, lifetime);
        self.backend.query(WRITE_LAST_NOTE, values).await.map(drop)
    }

    /// Deletes the note of this kind.
    pub async fn delete_note(&self, exchange: &str, kind: &str) -> Result<(), DatabaseError> {
        let values = vec![exchange.into(), kind.into()];
        self.backend.query(DELETE_NOTE, values).await.map(drop)
    }

    fn note_values(&self, envelope: HubEnvelope, lifetime: Duration) -> Vec<CellValue> {
        vec![
            (*self.hub).into(),
            envelope.exchange.into(),
            envelope.kind.into(),
            envelope.body.into(),
            milliseconds(lifetime).into(),
        ]
    }

    /// The notes of an exchange, the oldest first, at most 1,200.
    pub async fn notes(&self, exchange: &str) -> Result<Vec<HubEnvelope>, DatabaseError> {
        self.query(READ_NOTES, vec![exchange.into()]).await
    }

    /// Tells the other hubs that this one runs, and returns those that do.
    pub async fn announce(
        &self,
        name: &str,
        version: &str,
    ) -> Result<Vec<HubMemberRow>, DatabaseError> {
        let timeout = CellValue::Integer(MEMBER_TIMEOUT_MS);
        let values = vec![(*self.hub).into(), name.into(), version.into(), timeout];
        self.query(ANNOUNCE, values).await
    }

    /// Tells the other hubs that this one ends.
    pub async fn leave(&self) -> Result<(), DatabaseError> {
        let values = vec![(*self.hub).into()];
        self.backend.query(LEAVE, values).await.map(drop)
    }

    /// Deletes what expired.
    pub async fn delete_expired(&self) -> Result<(), DatabaseError> {
        let work = [DELETE_EXPIRED, DELETE_GONE, DELETE_FULL_BUCKETS];
        let work = work.into_iter().map(|sql| (sql, Vec::new()));
        self.backend.execute_in_transaction(Box::new(work)).await
    }

    async fn query<T: TryFrom<ResultRow, Error = DatabaseError>>(
        &self,
        sql: &'static str,
        values: Vec<CellValue>,
    ) -> Result<Vec<T>, DatabaseError> {
        let rows = self.backend.query(sql, values).await?;
        rows.into_iter().map(T::try_from).collect()
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

impl TryFrom<ResultRow> for HubEnvelope {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            hub: row.next_cell()?,
            exchange: row.next_cell()?,
            kind: row.next_cell()?,
            body: row.next_cell()?,
        })
    }
}

impl TryFrom<ResultRow> for HubMemberRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.next_cell()?,
            name: row.next_cell()?,
            version: row.next_cell()?,
        })
    }
}
