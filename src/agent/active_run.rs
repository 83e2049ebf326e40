//! A run that goes on while it is read.

use std::{fmt, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::Instrument as _;

use super::{Agent, AgentRequest, Error, RunEvent, RunOutcome, driver};
use crate::observability::telemetry::spans;

/// A run in progress. Nothing happens unless it is read; dropping it stops the
/// model and the calls.
pub struct ActiveRun {
    run: Option<BoxFuture<'static, Result<RunOutcome, Error>>>,
    error: Option<Error>,
    events: mpsc::Receiver<RunEvent>,
    _permit: OwnedSemaphorePermit,
}

/// What is not read yet; the run waits for its reader when it is full.
const MAX_BUFFERED_EVENTS: usize = 64;

impl ActiveRun {
    pub(super) fn new(
        agent: Arc<Agent>,
        question: AgentRequest,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let (tell, events) = mpsc::channel(MAX_BUFFERED_EVENTS);
        Self {
            run: Some(
                driver::run(agent, question, tell)
                    .instrument(spans::agent_run())
                    .boxed(),
            ),
            error: None,
            events,
            _permit: place,
        }
    }

    /// What happens next; `None` after the last, which is
    /// `Answered`. A run that breaks off ends in an error instead.
    pub async fn next(&mut self) -> Result<Option<RunEvent>, Error> {
        if let Some(run) = &mut self.run {
            tokio::select! {
                biased;
                happening = self.events.recv() => return Ok(happening),
                done = run => {
                    self.run = None;
                    self.error = done.err();
                }
            }
        }
        // What happened before the end is told first.
        match (self.events.recv().await, self.error.take()) {
            (None, Some(error)) => Err(error),
            (happening, error) => {
                self.error = error;
                Ok(happening)
            }
        }
    }

    /// How it ends; what happens until then is not told.
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
        out.write_str("Live")
    }
}
