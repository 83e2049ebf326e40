//! Signals to processes, where the system has them. On Windows a program is ended by its
//! handle, and what it started stays.

#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A signal that the hub sends to a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProcessSignal {
    Stop,
    Terminate,
    Kill,
}

/// Sends a signal and ignores that the process may have exited.
#[cfg(unix)]
pub(super) fn send_signal(id: u32, signal: ProcessSignal) {
    if let Some(id) = pid(id) {
        let _ = kill_process(id, signal.number());
    }
}

/// Sends a signal to a process group and ignores that it may be gone.
#[cfg(unix)]
pub(super) fn signal_group(id: u32, signal: ProcessSignal) {
    if let Some(id) = pid(id) {
        let _ = kill_process_group(id, signal.number());
    }
}

#[cfg(unix)]
impl ProcessSignal {
    fn number(self) -> Signal {
        match self {
            Self::Stop => Signal::STOP,
            Self::Terminate => Signal::TERM,
            Self::Kill => Signal::KILL,
        }
    }
}

#[cfg(unix)]
fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

/// Windows has no signals.
#[cfg(not(unix))]
pub(super) fn send_signal(_id: u32, _signal: ProcessSignal) {}

/// Windows has no process groups.
#[cfg(not(unix))]
pub(super) fn signal_group(_id: u32, _signal: ProcessSignal) {}

/// Whether orphans of programs become children of this process.
#[cfg(target_os = "linux")]
pub(super) fn adopts_orphans() -> bool {
    matches!(rustix::process::child_subreaper(), Ok(Some(_)))
}

/// Only Linux has subreapers.
#[cfg(not(target_os = "linux"))]
pub(super) fn adopts_orphans() -> bool {
    false
}

/// Takes the exit status of a killed child, so that nothing remains of it.
#[cfg(unix)]
pub(super) fn reap(id: u32) {
    let _ = rustix::process::waitpid(pid(id), rustix::process::WaitOptions::NOHANG);
}

/// Windows keeps nothing of an exited process.
#[cfg(not(unix))]
pub(super) fn reap(_id: u32) {}

/// The bytes of a page, in which `/proc` counts memory.
#[cfg(target_os = "linux")]
pub(super) fn page_bytes() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// The ticks of a second, in which `/proc` counts CPU time.
#[cfg(target_os = "linux")]
pub(super) fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// There is no `/proc` to count in.
#[cfg(not(target_os = "linux"))]
pub(super) fn page_bytes() -> u64 {
    4096
}

/// There is no `/proc` to count in.
#[cfg(not(target_os = "linux"))]
pub(super) fn ticks_per_second() -> u64 {
    100
}
