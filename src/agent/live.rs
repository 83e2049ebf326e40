//! A run that goes on while it is read.

use std::{fmt, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Agent, Error, Happening, Outcome, Question, driver};

/// A run in progress. Nothing happens unless it is read; dropping it stops the
/// model and the calls.
pub struct Live {
    run: Option<BoxFuture<'static, Result<Outcome, Error>>>,
    happenings: mpsc::Receiver<Happening>,
    _place: OwnedSemaphorePermit,
}

/// What is not read yet; the run waits for its reader when it is full.
const AHEAD: usize = 64;

impl Live {
    pub(super) fn new(agent: Arc<Agent>, question: Question, place: OwnedSemaphorePermit) -> Self {
        let (tell, happenings) = mpsc::channel(AHEAD);
        Self {
            run: Some(driver::run(agent, question, tell).boxed()),
            happenings,
            _place: place,
        }
    }

    /// What happens next; `None` after the last, which is
    /// [`Happening::Answered`] or [`Happening::Failed`].
    pub async fn next(&mut self) -> Result<Option<Happening>, Error> {
        let Some(run) = &mut self.run else {
            return Ok(self.happenings.recv().await);
        };
        tokio::select! {
            biased;
            happening = self.happenings.recv() => Ok(happening),
            done = run => {
                self.run = None;
                done?;
                Ok(self.happenings.recv().await)
            }
        }
    }

    /// How it ends; what happens until then is not told.
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        loop {
            match self.next().await? {
                Some(Happening::Answered(outcome)) => return Ok(outcome),
                Some(_) => (),
                None => unreachable!("a run that ends without an error is answered"),
            }
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Live")
    }
}
