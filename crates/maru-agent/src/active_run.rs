//! A run that advances while it is read.

use std::{fmt, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::Instrument as _;

use super::{Agent, AgentRequest, Error, RunEvent, RunOutcome, driver};
use maru_observability::telemetry::spans;

/// A run in progress. Nothing happens unless it is read; dropping it stops the
/// model and the calls.
pub struct ActiveRun {
    run: Option<BoxFuture<'static, Result<RunOutcome, Error>>>,
    error: Option<Error>,
    events: mpsc::Receiver<RunEvent>,
    _permit: OwnedSemaphorePermit,
}

/// Events that are not read yet; the run waits for its reader when there are more.
const MAX_BUFFERED_EVENTS: usize = 64;

impl ActiveRun {
    pub(super) fn new(
        agent: Arc<Agent>,
        request: AgentRequest,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let (sender, events) = mpsc::channel(MAX_BUFFERED_EVENTS);
        Self {
            run: Some(
                driver::run(agent, request, sender)
                    .instrument(spans::agent_run())
                    .boxed(),
            ),
            error: None,
            events,
            _permit: permit,
        }
    }

    /// The next event; `None` after the last, which is [`RunEvent::Completed`]. A run
    /// that breaks off ends in an error instead.
    pub async fn next(&mut self) -> Result<Option<RunEvent>, Error> {
        if let Some(run) = &mut self.run {
            tokio::select! {
                biased;
                event = self.events.recv() => return Ok(event),
                result = run => {
                    self.run = None;
                    self.error = result.err();
                }
            }
        }
        // Events before the end come first.
        match (self.events.recv().await, self.error.take()) {
            (None, Some(error)) => Err(error),
            (event, error) => {
                self.error = error;
                Ok(event)
            }
        }
    }

    /// Runs to the end; other events are dropped.
    pub async fn into_outcome(mut self) -> Result<RunOutcome, Error> {
        loop {
            match self.next().await? {
                Some(RunEvent::Completed(outcome)) => return Ok(outcome),
                Some(_) => (),
                None => unreachable!("a run that ends without an error is answered"),
            }
        }
    }
}

impl fmt::Debug for ActiveRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ActiveRun")
    }
}
