//! What stops the hub on Windows: Ctrl-C, a closed console and a shutdown. Nothing reloads
//! it; restart it after a change of its settings.

use anyhow::{Context as _, Result};
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

/// The signals that the hub handles.
pub(super) struct HubSignals {
    interrupt: CtrlC,
    interrupt_break: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

/// What a signal asks for.
pub(super) enum SignalAction {
    Stop,
    #[expect(dead_code, reason = "as on systems with SIGHUP")]
    Reload,
}

impl HubSignals {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            interrupt: ctrl_c().context("cannot listen for Ctrl-C")?,
            interrupt_break: ctrl_break().context("cannot listen for Ctrl-Break")?,
            close: ctrl_close().context("cannot listen for a closed console")?,
            shutdown: ctrl_shutdown().context("cannot listen for a shutdown")?,
        })
    }

    pub(super) async fn wait_for_stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.interrupt_break.recv() => (),
            _ = self.close.recv() => (),
            _ = self.shutdown.recv() => (),
        }
    }

    pub(super) async fn next(&mut self) -> SignalAction {
        self.wait_for_stop().await;
        SignalAction::Stop
    }
}
