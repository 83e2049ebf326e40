//! What a connection does next. Pure: no clock, no I/O, no chance.

use std::time::Duration;

use crate::config::ReconnectionSettings;

/// How long to wait between attempts, and when to stop trying.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReconnectPolicy {
    /// Whether a lost server is tried again at all.
    pub enabled: bool,
    /// Attempts in a row before giving up.
    pub max_attempts: u32,
    /// Wait before the first.
    pub initial_delay: Duration,
    /// By how much it grows each time.
    pub multiplier: f64,
    /// Longest wait.
    pub max_delay: Duration,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
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
pub(super) enum LifecycleEvent {
    /// Someone wants it connected.
    Connect,
    Opened,
    /// The attempt failed, or the connection was lost.
    Lost,
    /// The attempt failed in a way that trying again does not mend.
    Refused,
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
    /// The status of the document.
    pub fn as_str(self) -> &'static str {
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
    pub(super) fn attempts_made(self, before: u32) -> u32 {
        match self {
            Self::Connecting { attempt } => attempt,
            Self::Waiting { attempt } => attempt.saturating_sub(1),
            Self::Failed => before,
            Self::Pending | Self::Connected | Self::Disconnected | Self::Disabled => 0,
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
            // An attempt on demand does not use up one of ours.
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
            // Late news of a connection that is no more.
            (
                _,
                LifecycleEvent::Opened
                | LifecycleEvent::Lost
                | LifecycleEvent::Refused
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
    /// Whether a call connects a server that is lost or was disconnected.
    pub(super) fn reconnects_on_demand(&self) -> bool {
        self.enabled
    }

    /// How many attempts there are.
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

    /// The wait before `attempt`, without jitter.
    fn delay(&self, attempt: u32) -> Duration {
        let power = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial_delay.as_secs_f64() * self.multiplier.powi(power);
        Duration::from_secs_f64(seconds.min(self.max_delay.as_secs_f64()))
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
