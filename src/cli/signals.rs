//! The signals that stop and reload the hub.

use std::io::{IsTerminal as _, stdout};

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the hub handles.
pub(super) struct HubSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    on_terminal: bool,
}

pub(super) enum SignalAction {
    Stop,
    Reload,
}

impl HubSignals {
    pub(super) fn new() -> Result<Self> {
        // By default these would end the process, which no sender intends.
        for kind in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(kind).context("cannot ignore SIGUSR1 and SIGUSR2")?);
        }
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            hangup: signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?,
            on_terminal: stdout().is_terminal(),
        })
    }

    pub(super) async fn wait_for_stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }

    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => {
                // A closing terminal sends SIGHUP too, and nobody could stop the hub with
                // Ctrl-C afterwards.
                if self.on_terminal && !stdout().is_terminal() {
                    SignalAction::Stop
                } else {
                    SignalAction::Reload
                }
            }
        }
    }
}
