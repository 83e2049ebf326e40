//! Reading a PostgreSQL database with SQL that others wrote.
//!
//! A statement is checked by name, prepared by the server in a transaction that
//! only reads, checked again by what the server found it to mean, and run as a
//! sub-query that makes each row one JSON text. The transaction never commits.
//! When it runs again, that it locks nothing else shows that it still means the same.

mod address;
mod asked;
mod catalogue;
mod error;
mod explore;
mod functions;
mod guard;
mod plain;
mod session;
mod value;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio::time::{self, Instant};
use tokio_postgres::{NoTls, types::Type};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Error, Limits, Parameters, Rows, Settings, statement::Statement};
use crate::tasks::Tasks;
use asked::{Asked, Shape};
use catalogue::{Catalogue, Oid};
use plain::Plain;
use session::{LOCKED_AFTER, OUTLIVES, Session};

pub use address::{Address, Server};

/// Connections that are kept open.
const KEPT: usize = 5;
const MOST: usize = 20;
/// How old the picture of the catalogue may be, and how long a connection above
/// [`KEPT`] may be idle.
const FRESH: Duration = Duration::from_secs(60);

/// A pool of connections to one database.
#[derive(Clone, Debug)]
pub(super) struct Postgres(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    pool: Pool,
    settings: Settings,
    tasks: Tasks,
    catalogue: Mutex<Option<(Instant, Arc<Catalogue>)>>,
    /// Statements that ran.
    known: Mutex<HashMap<String, Arc<Known>>>,
}

/// How many statements are remembered.
const KNOWN: usize = 256;

/// A statement that ran. As long as it locks nothing else when it runs again, it
/// means what it meant, and the server need not be asked beforehand.
#[derive(Debug)]
struct Known {
    shape: Shape,
    /// How its rows become JSON here, if they can.
    plain: Option<Plain>,
    given: Vec<Type>,
    catalogue: Arc<Catalogue>,
    locked: Vec<Oid>,
}

impl Postgres {
    pub(super) fn open(
        name: &str,
        address: &Address,
        settings: Settings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            pool: pool(address, settings.limits.timeout)?,
            settings,
            tasks: tasks.clone(),
            catalogue: Mutex::default(),
            known: Mutex::default(),
        });
        tasks.spawn(keep(Arc::downgrade(&inner), tasks.stop()));
        Ok(Self(inner))
    }

    pub(super) async fn query(
        &self,
        statement: &Statement,
        parameters: &Parameters,
        limits: Limits,
    ) -> Result<Rows, Error> {
        let done = time::timeout(limits.timeout, self.run(statement, parameters, limits)).await;
        done.unwrap_or(Err(Error::TooSlow))
    }

    async fn run(
        &self,
        statement: &Statement,
        parameters: &Parameters,
        limits: Limits,
    ) -> Result<Rows, Error> {
        let bound = statement.bound();
        let values = parameters.for_names(&statement.parameters())?;
        let values = bound.slots.iter().filter_map(|it| values.get(*it).copied());
        let values: Vec<_> = values.collect();

        let client = self.client().await?;
        let catalogue = self.catalogue(&client).await?;
        guard::names(statement, &catalogue)?;
        let mut session = Session::new(client, &self.0.tasks);
        let asked = Asked {
            sql: &bound.sql,
            values: &values,
            limits,
            timeout: self.0.settings.limits.timeout,
        };
        if let Some(known) = self.0.known(&asked, &catalogue) {
            match session.read_at_once(&asked, &known).await {
                Ok(Some(rows)) => {
                    session.release();
                    return Ok(rows);
                }
                Err(Error::TooSlow) => return Err(Error::TooSlow),
                // Tables have changed since: what it means is asked again.
                Ok(None) | Err(_) => self.0.forget(asked.sql),
            }
            session.close();
            session = Session::new(self.client().await?, &self.0.tasks);
        }
        let read = self.read(&session, statement, &asked, catalogue).await;
        let rows = session.end(read);
        rows.map_err(|error| statement.place(error, &bound))
    }

    /// Runs a statement once the server has said what it means.
    async fn read(
        &self,
        session: &Session,
        statement: &Statement,
        asked: &Asked<'_>,
        mut catalogue: Arc<Catalogue>,
    ) -> Result<(Rows, bool), Error> {
        let begun = session.begin(asked).await?;
        if guard::is_outdated(&catalogue, &begun.locked) {
            catalogue = self.load(session.client()).await?;
        }
        guard::means(statement, &catalogue, &begun.locked)?;
        let read = session.read(asked, &begun.shape).await?;
        if read.1 && asked.limits.rows > 0 && !begun.shape.renamed {
            let locked = session.locked(LOCKED_AFTER).await?;
            if !locked.contains(&OUTLIVES) {
                self.0.learn(asked, begun.shape, catalogue, locked);
            }
        }
        Ok(read)
    }

    async fn client(&self) -> Result<Object, Error> {
        self.0.pool.get().await.map_err(error::pool)
    }

    /// A picture of the catalogue that is fresh enough.
    async fn catalogue(&self, client: &Object) -> Result<Arc<Catalogue>, Error> {
        match self.0.fresh() {
            Some(fresh) => Ok(fresh),
            None => self.load(client).await,
        }
    }

    async fn load(&self, client: &Object) -> Result<Arc<Catalogue>, Error> {
        let loaded = Catalogue::load(client, &self.0.settings)
            .await
            .map_err(error::own)?;
        let loaded = Arc::new(loaded);
        let mut kept = self
            .0
            .catalogue
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = Some((Instant::now(), Arc::clone(&loaded)));
        Ok(loaded)
    }
}

impl Inner {
    /// What is known of a statement that ran since the catalogue was last read.
    fn known(&self, asked: &Asked<'_>, catalogue: &Arc<Catalogue>) -> Option<Arc<Known>> {
        let known = self.statements().get(asked.sql).cloned();
        // One that is only looked at is asked about every time.
        known.filter(|it| {
            let same = Arc::ptr_eq(&it.catalogue, catalogue) && it.given == asked.given();
            same && asked.limits.rows > 0
        })
    }

    fn learn(&self, asked: &Asked<'_>, shape: Shape, catalogue: Arc<Catalogue>, locked: Vec<Oid>) {
        let known = Known {
            plain: Plain::of(&shape, catalogue.is_utc),
            shape,
            given: asked.given(),
            catalogue,
            locked,
        };
        let mut statements = self.statements();
        if statements.len() >= KNOWN {
            statements.clear();
        }
        statements.insert(asked.sql.to_owned(), Arc::new(known));
    }

    fn forget(&self, sql: &str) {
        self.statements().remove(sql);
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<String, Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> Option<Arc<Catalogue>> {
        let kept = self
            .catalogue
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fresh = kept.as_ref().filter(|(since, _)| since.elapsed() < FRESH);
        fresh.map(|(_, catalogue)| Arc::clone(catalogue))
    }

    /// Closes connections that are idle, down to those that are kept.
    fn trim(&self) {
        let mut kept = 0;
        self.pool.retain(|_, metrics| {
            kept += 1;
            kept <= KEPT || metrics.last_used() < FRESH
        });
    }
}

fn pool(address: &Address, timeout: Duration) -> Result<Pool, Error> {
    let recycling_method = RecyclingMethod::Fast;
    let manager = Manager::from_config(
        address.config(timeout)?,
        NoTls,
        ManagerConfig { recycling_method },
    );
    Pool::builder(manager)
        .max_size(MOST)
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(Duration::from_secs(5)))
        .wait_timeout(Some(Duration::from_secs(5)))
        .build()
        .map_err(|error| Error::Settings(error.to_string()))
}

/// Opens the connections that are kept, then closes those that are too many,
/// until the source is gone.
async fn keep(source: Weak<Inner>, stop: CancellationToken) {
    if let Some(inner) = source.upgrade().map(Postgres) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = warm(&inner) => (),
        }
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = time::sleep(FRESH) => (),
        }
        match source.upgrade() {
            Some(inner) => inner.trim(),
            None => return,
        }
    }
}

async fn warm(source: &Postgres) {
    let name = &source.0.name;
    let mut clients = Vec::new();
    for _ in 0..KEPT {
        match source.client().await {
            Ok(client) => clients.push(client),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                warn!(source.name = %name, ?cause, "source {name}: {error}; tried again when asked");
                return;
            }
        }
    }
    let Some(client) = clients.first() else {
        return;
    };
    let Ok(catalogue) = source.catalogue(client).await else {
        return;
    };
    if !catalogue.powers.is_empty() {
        let powers = catalogue.powers.join(", ");
        warn!(source.name = %name, powers, "the role of source {name} {powers}; give it one that may only read");
    }
}
