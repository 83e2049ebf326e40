//! What a connection does next. Pure: no clock, no I/O, no chance.

use std::time::Duration;

use crate::config::Reconnection;

/// How long to wait between attempts, and when to stop trying.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// Whether a lost server is tried again at all.
    pub enabled: bool,
    /// Attempts in a row before giving up.
    pub attempts: u32,
    /// Wait before the first.
    pub first: Duration,
    /// By how much it grows each time.
    pub multiplier: f64,
    /// Longest wait.
    pub max: Duration,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Registered, never asked to connect.
    Pending,
    /// Opening the connection.
    Connecting {
        /// Which attempt of our own this is; 0 when someone asked for it.
        attempt: u32,
    },
    /// Usable.
    Connected,
    /// Lost; tried again after a while.
    Waiting {
        /// The attempt that comes.
        attempt: u32,
    },
    /// Gave up; a call or a person may try again.
    Failed,
    /// Closed on request.
    Disconnected,
    /// Switched off by a person.
    Disabled,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Someone wants it connected.
    Connect,
    Opened,
    /// The attempt failed, or the connection was lost.
    Lost,
    /// The attempt failed in a way that trying again does not mend.
    Refused,
    Elapsed,
    Disconnect,
    Disable,
    Enable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Open,
    Sleep(Duration),
    Close,
}

impl State {
    /// The status of the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Connecting { .. } => "CONNECTING",
            Self::Connected => "CONNECTED",
            Self::Waiting { .. } | Self::Failed => "FAILED",
            Self::Disconnected => "DISCONNECTED",
            Self::Disabled => "DISABLED",
        }
    }

    /// Attempts of our own that were made since the server was lost; `before` is how
    /// many those were until now.
    pub(super) fn attempts(self, before: u32) -> u32 {
        match self {
            Self::Connecting { attempt } => attempt,
            Self::Waiting { attempt } => attempt.saturating_sub(1),
            Self::Failed => before,
            Self::Pending | Self::Connected | Self::Disconnected | Self::Disabled => 0,
        }
    }

    pub(super) fn on(self, event: Event, backoff: &Backoff) -> (Self, Action) {
        match (self, event) {
            (Self::Disabled, Event::Enable) => (Self::Pending, Action::Nothing),
            (Self::Disabled, _) | (_, Event::Enable) => (self, Action::Nothing),
            (_, Event::Disable) => (Self::Disabled, Action::Close),
            (_, Event::Disconnect) => (Self::Disconnected, Action::Close),
            (Self::Connecting { .. } | Self::Connected, Event::Connect) => (self, Action::Nothing),
            // An attempt on demand does not use up one of ours.
            (Self::Waiting { attempt }, Event::Connect) => {
                let attempt = attempt.saturating_sub(1);
                (Self::Connecting { attempt }, Action::Open)
            }
            (_, Event::Connect) => (Self::Connecting { attempt: 0 }, Action::Open),
            (Self::Waiting { attempt }, Event::Elapsed) => {
                (Self::Connecting { attempt }, Action::Open)
            }
            (Self::Connecting { .. }, Event::Opened) => (Self::Connected, Action::Nothing),
            (Self::Connecting { attempt }, Event::Lost) => backoff.next(attempt + 1),
            (Self::Connected, Event::Lost) => backoff.next(1),
            (Self::Connecting { .. } | Self::Connected, Event::Refused) => {
                (Self::Failed, Action::Close)
            }
            // Late news of a connection that is no more.
            (_, Event::Opened | Event::Lost | Event::Refused | Event::Elapsed) => {
                (self, Action::Nothing)
            }
        }
    }
}

impl From<&Reconnection> for Backoff {
    fn from(settings: &Reconnection) -> Self {
        Self {
            enabled: settings.enabled,
            attempts: settings.max_attempts,
            first: Duration::from_millis(settings.initial_delay_ms),
            multiplier: settings.multiplier,
            max: Duration::from_millis(settings.max_delay_ms),
        }
    }
}

impl Backoff {
    /// Whether a call connects a server that is lost or was disconnected.
    pub(super) fn is_on_demand(&self) -> bool {
        self.enabled
    }

    /// How many attempts there are.
    pub(super) fn attempts(&self) -> u32 {
        if self.enabled { self.attempts } else { 0 }
    }

    fn next(&self, attempt: u32) -> (State, Action) {
        match self.enabled && attempt <= self.attempts {
            true => (
                State::Waiting { attempt },
                Action::Sleep(self.delay(attempt)),
            ),
            false => (State::Failed, Action::Close),
        }
    }

    /// The wait before `attempt`, without jitter.
    fn delay(&self, attempt: u32) -> Duration {
        let power = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.multiplier.powi(power);
        Duration::from_secs_f64(seconds.min(self.max.as_secs_f64()))
    }
}

/// Spreads `delay` by a quarter either way; `chance` is any number.
pub(super) fn jitter(delay: Duration, chance: u32) -> Duration {
    let share = f64::from(chance) / f64::from(u32::MAX);
    delay.mul_f64(0.75 + 0.5 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        enabled: true,
        attempts: 5,
        first: Duration::from_secs(5),
        multiplier: 2.0,
        max: Duration::from_secs(60),
    };

    #[test]
    fn lost_server_is_tried_five_times_with_growing_waits() {
        let mut state = State::Connected;
        let mut waits = Vec::new();
        loop {
            let (next, action) = state.on(Event::Lost, &BACKOFF);
            let Action::Sleep(wait) = action else {
                assert_eq!((next, action), (State::Failed, Action::Close));
                break;
            };
            waits.push(wait.as_secs());
            let (opening, action) = next.on(Event::Elapsed, &BACKOFF);
            assert_eq!(action, Action::Open);
            state = opening;
        }
        assert_eq!(waits, [5, 10, 20, 40, 60]);
    }

    #[test]
    fn nothing_connects_a_server_that_was_switched_off() {
        for event in [
            Event::Connect,
            Event::Opened,
            Event::Lost,
            Event::Elapsed,
            Event::Disconnect,
        ] {
            assert_eq!(
                State::Disabled.on(event, &BACKOFF),
                (State::Disabled, Action::Nothing)
            );
        }
        assert_eq!(
            State::Disabled.on(Event::Enable, &BACKOFF).0,
            State::Pending
        );
    }

    #[test]
    fn there_is_never_a_second_attempt_beside_the_first() {
        for state in [State::Connecting { attempt: 2 }, State::Connected] {
            assert_eq!(state.on(Event::Connect, &BACKOFF), (state, Action::Nothing));
        }
    }

    #[test]
    fn late_news_does_not_touch_what_came_after() {
        for state in [State::Disconnected, State::Failed, State::Pending] {
            for event in [Event::Opened, Event::Lost, Event::Elapsed, Event::Refused] {
                assert_eq!(state.on(event, &BACKOFF), (state, Action::Nothing));
            }
        }
    }

    #[test]
    fn wrong_credentials_are_not_tried_again() {
        let opening = State::Connecting { attempt: 0 };
        assert_eq!(
            opening.on(Event::Refused, &BACKOFF),
            (State::Failed, Action::Close)
        );
    }

    #[test]
    fn attempt_on_demand_does_not_use_up_one_of_ours() {
        let waiting = State::Waiting { attempt: 3 };
        let (opening, _) = waiting.on(Event::Connect, &BACKOFF);
        assert_eq!(opening.on(Event::Lost, &BACKOFF).0, waiting);
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let wait = Duration::from_secs(4);
        assert_eq!(jitter(wait, 0), Duration::from_secs(3));
        assert_eq!(jitter(wait, u32::MAX), Duration::from_secs(5));
    }
}
