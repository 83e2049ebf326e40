//! The process between the hub and a program that it starts. It gives the
//! program fewer rights than the hub has, and sees to it that nothing of the
//! program outlives either: also when the hub is killed, and also what left the
//! program's group.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getppid, getrlimit, kill_process,
    set_child_subreaper, set_parent_process_death_signal, setrlimit, wait,
};
use tokio::{
    process::{Child, Command},
    runtime,
    signal::unix::{SignalKind, signal},
    time,
};

/// Told to end, the program gets this long; the hub waits a little longer.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How often what is left is looked for, and how soon again.
const LOOKS: usize = 200;
const AGAIN: Duration = Duration::from_millis(5);
/// Open files of a program.
const FILES: u64 = 4096;
/// Exit codes as shells give them.
const NOT_STARTED: u8 = 127;
const BY_SIGNAL: u8 = 128;

/// Runs `command` for the hub with this process id, and ends with it.
pub fn run(hub: u32, command: &[OsString]) -> io::Result<u8> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(supervise(hub, command))
}

async fn supervise(hub: u32, command: &[OsString]) -> io::Result<u8> {
    // Heard before they can come.
    let mut hub_gone = signal(SignalKind::hangup())?;
    let mut told = signal(SignalKind::terminate())?;
    confine()?;
    let is_hub = |it: Pid| u32::try_from(it.as_raw_nonzero().get()) == Ok(hub);
    if !getppid().is_some_and(is_hub) {
        return Ok(NOT_STARTED);
    }
    let Some(mut child) = start(command) else {
        return Ok(NOT_STARTED);
    };
    let_go()?;
    let ended = tokio::select! {
        status = child.wait() => status.ok(),
        _ = hub_gone.recv() => None,
        _ = told.recv() => time::timeout(PATIENCE, child.wait()).await.ok().and_then(Result::ok),
    };
    sweep().await;
    Ok(ended.map_or(BY_SIGNAL + 9, code))
}

/// Takes away what a program does not need. It is inherited.
fn confine() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::HUP))?;
    // Orphans of the program become our children.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_no_new_privs(true)?;
    // Secrets are in its memory.
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, FILES)
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let lower = |it: Option<u64>| Some(it.map_or(most, |it| it.min(most)));
    let limits = Rlimit {
        current: lower(now.current),
        maximum: lower(now.maximum),
    };
    Ok(setrlimit(resource, limits)?)
}

fn start(command: &[OsString]) -> Option<Child> {
    let (program, arguments) = command.split_first()?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit())
        .spawn()
        .ok()
}

/// The pipes are the program's alone: its closing one must be seen.
fn let_go() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}

/// Kills everything that is left, until nothing is.
async fn sweep() {
    for _ in 0..LOOKS {
        let left = children();
        if left.is_empty() {
            return;
        }
        for child in left {
            // It may have ended in the meantime.
            let _ = kill_process(child, Signal::KILL);
        }
        time::sleep(AGAIN).await;
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let all = lists.collect::<Vec<_>>().join(" ");
    all.split_ascii_whitespace()
        .filter_map(|it| Pid::from_raw(it.parse().ok()?))
        .collect()
}

fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let number = status
        .code()
        .unwrap_or_else(|| i32::from(BY_SIGNAL) + status.signal().unwrap_or(0));
    u8::try_from(number).unwrap_or(u8::MAX)
}
