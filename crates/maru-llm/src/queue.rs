//! The request queue of a backend: bounded concurrency, a rate limit, and a bounded number
//! of waiting requests.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{self, Instant},
};

const RATE_LIMIT_WINDOW: Duration = Duration::from_secs(60);

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    pub(super) requests_per_minute: Option<usize>,
    pub(super) max_concurrent: usize,
    pub(super) max_waiting: usize,
}

/// The queue of one entry of the settings.
#[derive(Debug)]
pub(super) struct RequestQueue {
    limits: QueueLimits,
    permits: Arc<Semaphore>,
    state: Mutex<QueueState>,
    /// Notifies waiting requests that the queue has advanced.
    advanced: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Tickets of waiting requests, in order of arrival.
    waiting_tickets: VecDeque<u64>,
    next_ticket: u64,
    /// When the last requests started or will start; as many as one minute may have.
    recent_starts: VecDeque<Instant>,
}

/// Permission to send a request; dropping it lets the next one start.
#[derive(Debug)]
pub(super) struct QueuePermit {
    _permit: OwnedSemaphorePermit,
    /// The position in the queue on arrival; 0 if the request did not wait.
    pub(super) initial_position: usize,
}

/// The queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull {
    pub(super) waiting: usize,
    pub(super) retry_after: Duration,
}

/// A position in the queue; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct QueuePosition {
    queue: Arc<RequestQueue>,
    ticket: u64,
    initial_position: usize,
}

impl RequestQueue {
    pub(super) fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            permits: Arc::new(Semaphore::new(limits.max_concurrent)),
            state: Mutex::default(),
            advanced: watch::Sender::new(()),
        })
    }

    /// Requests in progress, and requests that wait.
    pub(super) fn load(&self) -> (usize, usize) {
        let running = self.limits.max_concurrent - self.permits.available_permits();
        (running, self.lock().waiting_tickets.len())
    }

    /// A permit at once, or a position in the queue.
    pub(super) fn try_acquire(
        self: &Arc<Self>,
    ) -> Result<Result<QueuePermit, QueuePosition>, QueueFull> {
        let mut state = self.lock();
        if state.waiting_tickets.is_empty()
            && let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned()
            && state
                .try_start(self.limits.requests_per_minute, Instant::now())
                .is_ok()
        {
            return Ok(Ok(QueuePermit {
                _permit: permit,
                initial_position: 0,
            }));
        }
        let waiting = state.waiting_tickets.len();
        if waiting >= self.limits.max_waiting {
            let retry_after =
                state.delay_until_start(self.limits.requests_per_minute, Instant::now());
            return Err(QueueFull {
                waiting,
                retry_after: retry_after.max(Duration::from_secs(1)),
            });
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting_tickets.push_back(ticket);
        Ok(Err(QueuePosition {
            queue: Arc::clone(self),
            ticket,
            initial_position: waiting + 1,
        }))
    }

    /// Before a retry under the same permit: waits only for the rate limit.
    pub(super) async fn wait_for_rate_limit(&self) {
        loop {
            let now = Instant::now();
            let started = self.lock().try_start(self.limits.requests_per_minute, now);
            match started {
                Ok(()) => return,
                Err(wait) => time::sleep(wait).await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Begins a request, or says how long that has to wait.
    fn try_start(&mut self, per_minute: Option<usize>, now: Instant) -> Result<(), Duration> {
        let Some(most) = per_minute else {
            return Ok(());
        };
        let wait = self.delay_until_start(per_minute, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        if self.recent_starts.len() >= most {
            self.recent_starts.pop_front();
        }
        self.recent_starts.push_back(now);
        Ok(())
    }

    fn delay_until_start(&self, per_minute: Option<usize>, now: Instant) -> Duration {
        match (per_minute, self.recent_starts.front()) {
            (Some(most), Some(oldest)) if self.recent_starts.len() >= most => {
                (*oldest + RATE_LIMIT_WINDOW).saturating_duration_since(now)
            }
            _ => Duration::ZERO,
        }
    }
}

impl QueuePosition {
    /// How many are before us, and we.
    pub(crate) fn current(&self) -> usize {
        let state = self.queue.lock();
        let place = state
            .waiting_tickets
            .iter()
            .position(|it| *it == self.ticket);
        place.map_or(0, |it| it + 1)
    }

    /// Waits until the request may start. The first in the queue waits for a free permit,
    /// the others for the queue to advance. Every new position is sent to `positions`.
    pub(super) async fn wait_for_permit(self, positions: &watch::Sender<usize>) -> QueuePermit {
        let mut moved = self.queue.advanced.subscribe();
        loop {
            moved.mark_unchanged();
            let position = self.current();
            positions.send_replace(position);
            if position <= 1 {
                break;
            }
            // Its sender lives in the queue that we hold.
            let _ = moved.changed().await;
        }
        let permit = Arc::clone(&self.queue.permits).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        self.queue.wait_for_rate_limit().await;
        QueuePermit {
            _permit: permit,
            initial_position: self.initial_position,
        }
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        self.queue
            .lock()
            .waiting_tickets
            .retain(|it| *it != self.ticket);
        self.queue.advanced.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(per_minute: Option<usize>, at_once: usize, waiting: usize) -> Arc<RequestQueue> {
        RequestQueue::new(QueueLimits {
            requests_per_minute: per_minute,
            max_concurrent: at_once,
            max_waiting: waiting,
        })
    }

    fn place(queue: &Arc<RequestQueue>) -> QueuePosition {
        queue.try_acquire().unwrap().unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_goes_to_the_first_in_line_and_leaving_moves_the_line() {
        let queue = queue(None, 1, 3);
        let turn = queue.try_acquire().unwrap().unwrap();
        let (first, second, third) = (place(&queue), place(&queue), place(&queue));
        assert_eq!(
            (first.current(), second.current(), third.current()),
            (1, 2, 3)
        );
        let full = queue.try_acquire().unwrap_err();
        assert_eq!(full.waiting, 3);
        drop(second);
        assert_eq!(third.current(), 2);
        let told = watch::Sender::new(0);
        let waiting = third.wait_for_permit(&told);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(turn);
        // The permit belongs to the first waiter, not to another one.
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(first);
        assert_eq!(waiting.await.initial_position, 3);
        assert_eq!(*told.borrow(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_holds_more_than_allowed() {
        let queue = queue(Some(2), 8, 8);
        let begin = Instant::now();
        let _turns = [queue.try_acquire().unwrap().unwrap(), {
            time::advance(Duration::from_secs(10)).await;
            queue.try_acquire().unwrap().unwrap()
        }];
        let told = watch::Sender::new(0);
        let third = place(&queue);
        let fourth = place(&queue);
        let (third, fourth) = tokio::join!(third.wait_for_permit(&told), async {
            let turn = fourth.wait_for_permit(&told).await;
            (turn, begin.elapsed())
        });
        assert_eq!(third.initial_position, 1);
        assert!(fourth.1 >= Duration::from_secs(70), "{:?}", fourth.1);
    }

    #[tokio::test]
    async fn a_full_minute_says_when_to_come_back() {
        let queue = queue(Some(1), 8, 0);
        let _turn = queue.try_acquire().unwrap().unwrap();
        let full = queue.try_acquire().unwrap_err();
        assert!(full.retry_after > Duration::from_secs(55), "{full:?}");
    }
}
