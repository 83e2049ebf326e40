//! Turns at a backend: so many at once, so many per minute, the rest in a
//! bounded line.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{self, Instant},
};

const MINUTE: Duration = Duration::from_secs(60);

/// What a queue allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) per_minute: Option<usize>,
    pub(super) at_once: usize,
    pub(super) waiting: usize,
}

/// The queue of one entry of the settings.
#[derive(Debug)]
pub(super) struct Queue {
    bounds: Bounds,
    room: Arc<Semaphore>,
    state: Mutex<State>,
    /// Tells those who wait that the line has moved.
    moved: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers of those who wait, first come first.
    line: VecDeque<u64>,
    next: u64,
    /// When the last requests began or will begin; as many as a minute may hold.
    starts: VecDeque<Instant>,
}

/// A turn; dropping it gives it to the next.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    /// How many were before us when we came.
    pub(super) place: usize,
}

/// There is no room in the line, or the wait would be too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) waiting: usize,
    pub(super) retry_after: Duration,
}

/// A place in the line; dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<Queue>,
    number: u64,
    first: usize,
}

impl Queue {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            room: Arc::new(Semaphore::new(bounds.at_once)),
            state: Mutex::default(),
            moved: watch::Sender::new(()),
        })
    }

    /// Requests in progress, and requests that wait.
    pub(super) fn load(&self) -> (usize, usize) {
        let running = self.bounds.at_once - self.room.available_permits();
        (running, self.lock().line.len())
    }

    /// A turn at once, or a place in the line.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Result<Turn, Place>, Full> {
        let mut state = self.lock();
        if state.line.is_empty()
            && let Ok(permit) = Arc::clone(&self.room).try_acquire_owned()
            && state.start(self.bounds.per_minute, Instant::now()).is_ok()
        {
            return Ok(Ok(Turn {
                _permit: permit,
                place: 0,
            }));
        }
        let waiting = state.line.len();
        if waiting >= self.bounds.waiting {
            let retry_after = state.wait(self.bounds.per_minute, Instant::now());
            return Err(Full {
                waiting,
                retry_after: retry_after.max(Duration::from_secs(1)),
            });
        }
        let number = state.next;
        state.next += 1;
        state.line.push_back(number);
        Ok(Err(Place {
            queue: Arc::clone(self),
            number,
            first: waiting + 1,
        }))
    }

    /// Another request of a turn that was given already: waits only for the minute.
    pub(super) async fn again(&self) {
        loop {
            let now = Instant::now();
            let started = self.lock().start(self.bounds.per_minute, now);
            match started {
                Ok(()) => return,
                Err(wait) => time::sleep(wait).await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Begins a request, or says how long that has to wait.
    fn start(&mut self, per_minute: Option<usize>, now: Instant) -> Result<(), Duration> {
        let Some(most) = per_minute else {
            return Ok(());
        };
        let wait = self.wait(per_minute, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        if self.starts.len() >= most {
            self.starts.pop_front();
        }
        self.starts.push_back(now);
        Ok(())
    }

    fn wait(&self, per_minute: Option<usize>, now: Instant) -> Duration {
        match (per_minute, self.starts.front()) {
            (Some(most), Some(oldest)) if self.starts.len() >= most => {
                (*oldest + MINUTE).saturating_duration_since(now)
            }
            _ => Duration::ZERO,
        }
    }
}

impl Place {
    /// How many are before us, and we.
    pub(crate) fn now(&self) -> usize {
        let state = self.queue.lock();
        let place = state.line.iter().position(|it| *it == self.number);
        place.map_or(0, |it| it + 1)
    }

    /// Waits for the turn. Whoever is first waits for room, the others for the
    /// line to move. `told` hears every new place.
    pub(super) async fn turn(self, told: &watch::Sender<usize>) -> Turn {
        let mut moved = self.queue.moved.subscribe();
        loop {
            moved.mark_unchanged();
            let place = self.now();
            told.send_replace(place);
            if place <= 1 {
                break;
            }
            // Its sender lives in the queue that we hold.
            let _ = moved.changed().await;
        }
        let permit = Arc::clone(&self.queue.room).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        self.queue.again().await;
        Turn {
            _permit: permit,
            place: self.first,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.lock().line.retain(|it| *it != self.number);
        self.queue.moved.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(per_minute: Option<usize>, at_once: usize, waiting: usize) -> Arc<Queue> {
        Queue::new(Bounds {
            per_minute,
            at_once,
            waiting,
        })
    }

    fn place(queue: &Arc<Queue>) -> Place {
        queue.enter().unwrap().unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_goes_to_the_first_in_line_and_leaving_moves_the_line() {
        let queue = queue(None, 1, 3);
        let turn = queue.enter().unwrap().unwrap();
        let (first, second, third) = (place(&queue), place(&queue), place(&queue));
        assert_eq!((first.now(), second.now(), third.now()), (1, 2, 3));
        let full = queue.enter().unwrap_err();
        assert_eq!(full.waiting, 3);
        drop(second);
        assert_eq!(third.now(), 2);
        let told = watch::Sender::new(0);
        let waiting = third.turn(&told);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(turn);
        // The first is not served by somebody else's wait.
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(first);
        assert_eq!(waiting.await.place, 3);
        assert_eq!(*told.borrow(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_holds_more_than_allowed() {
        let queue = queue(Some(2), 8, 8);
        let begin = Instant::now();
        let _turns = [queue.enter().unwrap().unwrap(), {
            time::advance(Duration::from_secs(10)).await;
            queue.enter().unwrap().unwrap()
        }];
        let told = watch::Sender::new(0);
        let third = place(&queue);
        let fourth = place(&queue);
        let (third, fourth) = tokio::join!(third.turn(&told), async {
            let turn = fourth.turn(&told).await;
            (turn, begin.elapsed())
        });
        assert_eq!(third.place, 1);
        assert!(fourth.1 >= Duration::from_secs(70), "{:?}", fourth.1);
    }

    #[tokio::test]
    async fn a_full_minute_says_when_to_come_back() {
        let queue = queue(Some(1), 8, 0);
        let _turn = queue.enter().unwrap().unwrap();
        let full = queue.enter().unwrap_err();
        assert!(full.retry_after > Duration::from_secs(55), "{full:?}");
    }
}
