//! The state machine of a server's connection. Pure: no clock, no I/O, no randomness.

use std::time::Duration;

use maru_config::ReconnectionSettings;

/// The delays between reconnection attempts, and their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReconnectPolicy {
    /// Whether lost servers are reconnected automatically.
    pub enabled: bool,
    /// Consecutive attempts before giving up.
    pub max_attempts: u32,
    /// The delay before the first attempt.
    pub initial_delay: Duration,
    /// The factor by which the delay grows.
    pub multiplier: f64,
    /// The longest delay.
    pub max_delay: Duration,
}

/// The state of a server's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Registered, and not connected since.
    Pending,
    /// Opening the connection.
    Connecting {
        /// The number of the automatic attempt; 0 if a caller requested it.
        attempt: u32,
    },
    /// The connection is open.
    Connected,
    /// The connection was lost; an attempt follows after a delay.
    Waiting {
        /// The number of the next attempt.
        attempt: u32,
    },
    /// Automatic attempts have ended; a call or a person may start another.
    Failed,
    /// The server wants a sign-in; a person, a call or another hub that signed in starts
    /// another attempt.
    NeedsSignIn,
    /// Closed on request.
    Disconnected,
    /// Disabled by a person.
    Disabled,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LifecycleEvent {
    /// A caller requests a connection.
    Connect,
    Opened,
    /// The attempt failed, or the connection was lost.
    Lost,
    /// The attempt failed, and a retry cannot succeed.
    Refused,
    /// The attempt or the connection needs a token that only a sign-in gets.
    SignInRequired,
    RetryDue,
    Disconnect,
    Disable,
    Enable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifecycleAction {
    Nothing,
    Open,
    Sleep(Duration),
    Close,
}

impl ServerState {
    /// Returns the status in the public API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Connecting { .. } => "CONNECTING",
            Self::Connected => "CONNECTED",
            Self::Waiting { .. } | Self::Failed => "FAILED",
            Self::NeedsSignIn => "NEEDS_SIGN_IN",
            Self::Disconnected => "DISCONNECTED",
            Self::Disabled => "DISABLED",
        }
    }

    /// Returns the automatic attempts since the connection was lost; `before` is the
    /// previous count.
    pub(super) fn attempts_made(self, before: u32) -> u32 {
        match self {
            Self::Connecting { attempt } => attempt,
            Self::Waiting { attempt } => attempt.saturating_sub(1),
            Self::Failed => before,
            Self::NeedsSignIn
            | Self::Pending
            | Self::Connected
            | Self::Disconnected
            | Self::Disabled => 0,
        }
    }

    pub(super) fn transition(
        self,
        event: LifecycleEvent,
        backoff: &ReconnectPolicy,
    ) -> (Self, LifecycleAction) {
        match (self, event) {
            (Self::Disabled, LifecycleEvent::Enable) => (Self::Pending, LifecycleAction::Nothing),
            (Self::Disabled, _) | (_, LifecycleEvent::Enable) => (self, LifecycleAction::Nothing),
            (_, LifecycleEvent::Disable) => (Self::Disabled, LifecycleAction::Close),
            (_, LifecycleEvent::Disconnect) => (Self::Disconnected, LifecycleAction::Close),
            (Self::Connecting { .. } | Self::Connected, LifecycleEvent::Connect) => {
                (self, LifecycleAction::Nothing)
            }
            // An attempt on demand does not count as an automatic one.
            (Self::Waiting { attempt }, LifecycleEvent::Connect) => {
                let attempt = attempt.saturating_sub(1);
                (Self::Connecting { attempt }, LifecycleAction::Open)
            }
            (_, LifecycleEvent::Connect) => {
                (Self::Connecting { attempt: 0 }, LifecycleAction::Open)
            }
            (Self::Waiting { attempt }, LifecycleEvent::RetryDue) => {
                (Self::Connecting { attempt }, LifecycleAction::Open)
            }
            (Self::Connecting { .. }, LifecycleEvent::Opened) => {
                (Self::Connected, LifecycleAction::Nothing)
            }
            (Self::Connecting { attempt }, LifecycleEvent::Lost) => {
                backoff.next_attempt(attempt + 1)
            }
            (Self::Connected, LifecycleEvent::Lost) => backoff.next_attempt(1),
            (Self::Connecting { .. } | Self::Connected, LifecycleEvent::Refused) => {
                (Self::Failed, LifecycleAction::Close)
            }
            (Self::Connecting { .. } | Self::Connected, LifecycleEvent::SignInRequired) => {
                (Self::NeedsSignIn, LifecycleAction::Close)
            }
            // A late event of an earlier connection.
            (
                _,
                LifecycleEvent::Opened
                | LifecycleEvent::Lost
                | LifecycleEvent::Refused
                | LifecycleEvent::SignInRequired
                | LifecycleEvent::RetryDue,
            ) => (self, LifecycleAction::Nothing),
        }
    }
}

impl From<&ReconnectionSettings> for ReconnectPolicy {
    fn from(settings: &ReconnectionSettings) -> Self {
        Self {
            enabled: settings.enabled,
            max_attempts: settings.max_attempts,
            initial_delay: Duration::from_millis(settings.initial_delay_ms),
            multiplier: settings.multiplier,
            max_delay: Duration::from_millis(settings.max_delay_ms),
        }
    }
}

impl ReconnectPolicy {
    /// Whether a call reconnects a server that is lost or disconnected.
    pub(super) fn reconnects_on_demand(&self) -> bool {
        self.enabled
    }

    /// Returns the number of automatic attempts.
    pub(super) fn max_attempts(&self) -> u32 {
        if self.enabled { self.max_attempts } else { 0 }
    }

    fn next_attempt(&self, attempt: u32) -> (ServerState, LifecycleAction) {
        if self.enabled && attempt <= self.max_attempts {
            (
                ServerState::Waiting { attempt },
                LifecycleAction::Sleep(self.delay(attempt)),
            )
        } else {
            (ServerState::Failed, LifecycleAction::Close)
        }
    }

    /// Returns the delay before `attempt`, without jitter.
    fn delay(&self, attempt: u32) -> Duration {
        let power = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial_delay.as_secs_f64() * self.multiplier.powi(power);
        Duration::from_secs_f64(seconds.min(self.max_delay.as_secs_f64()))
    }
}

/// Varies `delay` by up to a quarter in either direction; `random` is any number.
pub(super) fn jitter(delay: Duration, random: u32) -> Duration {
    let share = f64::from(random) / f64::from(u32::MAX);
    delay.mul_f64(0.75 + 0.5 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: ReconnectPolicy = ReconnectPolicy {
        enabled: true,
        max_attempts: 5,
        initial_delay: Duration::from_secs(5),
        multiplier: 2.0,
        max_delay: Duration::from_secs(60),
    };

    #[test]
    fn lost_server_is_tried_five_times_with_growing_waits() {
        let mut state = ServerState::Connected;
        let mut waits = Vec::new();
        loop {
            let (next, action) = state.transition(LifecycleEvent::Lost, &BACKOFF);
            let LifecycleAction::Sleep(wait) = action else {
                assert_eq!(
                    (next, action),
                    (ServerState::Failed, LifecycleAction::Close)
                );
                break;
            };
            waits.push(wait.as_secs());
            let (opening, action) = next.transition(LifecycleEvent::RetryDue, &BACKOFF);
            assert_eq!(action, LifecycleAction::Open);
            state = opening;
        }
        assert_eq!(waits, [5, 10, 20, 40, 60]);
    }

    #[test]
    fn nothing_connects_a_server_that_was_switched_off() {
        for event in [
            LifecycleEvent::Connect,
            LifecycleEvent::Opened,
            LifecycleEvent::Lost,
            LifecycleEvent::RetryDue,
            LifecycleEvent::Disconnect,
        ] {
            assert_eq!(
                ServerState::Disabled.transition(event, &BACKOFF),
                (ServerState::Disabled, LifecycleAction::Nothing)
            );
        }
        assert_eq!(
            ServerState::Disabled
                .transition(LifecycleEvent::Enable, &BACKOFF)
                .0,
            ServerState::Pending
        );
    }

    #[test]
    fn there_is_never_a_second_attempt_beside_the_first() {
        for state in [
            ServerState::Connecting { attempt: 2 },
            ServerState::Connected,
        ] {
            assert_eq!(
                state.transition(LifecycleEvent::Connect, &BACKOFF),
                (state, LifecycleAction::Nothing)
            );
        }
    }

    #[test]
    fn late_news_does_not_touch_what_came_after() {
        for state in [
            ServerState::Disconnected,
            ServerState::Failed,
            ServerState::Pending,
        ] {
            for event in [
                LifecycleEvent::Opened,
                LifecycleEvent::Lost,
                LifecycleEvent::RetryDue,
                LifecycleEvent::Refused,
            ] {
                assert_eq!(
                    state.transition(event, &BACKOFF),
                    (state, LifecycleAction::Nothing)
                );
            }
        }
    }

    #[test]
    fn rejected_credentials_are_not_retried() {
        let opening = ServerState::Connecting { attempt: 0 };
        assert_eq!(
            opening.transition(LifecycleEvent::Refused, &BACKOFF),
            (ServerState::Failed, LifecycleAction::Close)
        );
    }

    #[test]
    fn missing_sign_in_is_not_retried_until_somebody_asks() {
        let (state, action) =
            ServerState::Connected.transition(LifecycleEvent::SignInRequired, &BACKOFF);
        assert_eq!(
            (state, action),
            (ServerState::NeedsSignIn, LifecycleAction::Close)
        );
        let (still, action) = state.transition(LifecycleEvent::RetryDue, &BACKOFF);
        assert_eq!((still, action), (state, LifecycleAction::Nothing));
        let (connecting, _) = state.transition(LifecycleEvent::Connect, &BACKOFF);
        assert_eq!(connecting, ServerState::Connecting { attempt: 0 });
    }

    #[test]
    fn attempt_on_demand_does_not_use_up_one_of_ours() {
        let waiting = ServerState::Waiting { attempt: 3 };
        let (opening, _) = waiting.transition(LifecycleEvent::Connect, &BACKOFF);
        assert_eq!(
            opening.transition(LifecycleEvent::Lost, &BACKOFF).0,
            waiting
        );
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let wait = Duration::from_secs(4);
        assert_eq!(jitter(wait, 0), Duration::from_secs(3));
        assert_eq!(jitter(wait, u32::MAX), Duration::from_secs(5));
    }
}
