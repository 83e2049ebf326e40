//! The process between the hub and a program that it starts. The warden drops rights that
//! the program does not need, and kills everything that the program started when the
//! program or the hub ends, even if the hub is killed or a process left the program's
//! group.

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::{self, File},
    future::pending,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getppid, getrlimit, kill_process, prlimit,
    set_child_subreaper, set_parent_process_death_signal, setrlimit, wait,
};
use tokio::{
    process::{Child, Command},
    runtime,
    signal::unix::{SignalKind, signal},
    time::{self, Instant},
};

use super::{
    cgroup,
    processes::{ProcessInfo, children, descendants},
    programs::TASKS_PER_PROCESS,
};

/// How long the program gets to exit after SIGTERM; the hub waits a little longer.
const TERMINATE_GRACE: Duration = Duration::from_millis(1500);
/// How often killing leftover processes is attempted, and the delay in between.
const MAX_KILL_ATTEMPTS: usize = 200;
const KILL_RETRY_DELAY: Duration = Duration::from_millis(5);
/// The most open files of a program.
const MAX_OPEN_FILES: u64 = 4096;
/// Exit codes as shells use them.
const EXIT_CODE_NOT_STARTED: u8 = 127;
const EXIT_CODE_SIGNAL_BASE: u8 = 128;

/// `RLIMIT_DATA` is this factor times the memory limit plus the slack below, because
/// programs and their threads reserve more address space than they use.
const DATA_LIMIT_FACTOR: u64 = 2;
const DATA_LIMIT_SLACK_BYTES: u64 = 512 << 20;
/// The nice value of programs, so that the hub gets the CPU first.
const NICENESS: i32 = 5;
/// How often a program with a CPU limit is measured, and how long it is paused at most.
const CPU_CHECK_INTERVAL: Duration = Duration::from_millis(100);
const MAX_CPU_PAUSE: Duration = Duration::from_secs(1);

/// The resource limits of a program and all its descendants.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WardenArgs {
    /// The cgroup to run in
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Bytes of memory
    #[arg(long)]
    memory: Option<u64>,
    /// Processes
    #[arg(long)]
    processes: Option<u32>,
    /// Percent of one core
    #[arg(long)]
    cpu_percent: Option<u32>,
}

/// Makes this process the subreaper of its descendants.
pub fn adopt_orphans() {
    // Without a subreaper, orphans are reparented to init.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Runs `command` for the hub with this process id, and exits with it.
pub fn run(hub: u32, bounds: &WardenArgs, command: &[OsString]) -> io::Result<u8> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(supervise(hub, bounds, command))
}

async fn supervise(hub: u32, bounds: &WardenArgs, command: &[OsString]) -> io::Result<u8> {
    // Registered before a signal can arrive.
    let mut hub_gone = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    confine(bounds)?;
    let is_hub = |it: Pid| u32::try_from(it.as_raw_nonzero().get()) == Ok(hub);
    if !getppid().is_some_and(is_hub) {
        return Ok(EXIT_CODE_NOT_STARTED);
    }
    let Some(mut child) = spawn_program(command) else {
        return Ok(EXIT_CODE_NOT_STARTED);
    };
    apply_process_limits(&child, bounds);
    detach_stdio()?;
    let ended = tokio::select! {
        status = child.wait() => status.ok(),
        _ = hub_gone.recv() => None,
        _ = terminate.recv() => {
            // A program that is paused for its CPU limit could not exit by itself.
            signal_all(Signal::CONT);
            time::timeout(TERMINATE_GRACE, child.wait()).await.ok().and_then(Result::ok)
        }
        never = throttle_cpu(bounds.cpu_percent) => match never {},
    };
    kill_remaining().await;
    Ok(ended.map_or(EXIT_CODE_SIGNAL_BASE + 9, exit_code))
}

/// Drops rights that a program does not need; the program inherits this.
fn confine(bounds: &WardenArgs) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::HUP))?;
    // Orphans of the program become children of the warden.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_no_new_privs(true)?;
    // The memory contains secrets.
    lower_rlimit(Resource::Core, 0)?;
    lower_rlimit(Resource::Nofile, MAX_OPEN_FILES)?;
    if let Some(group) = &bounds.cgroup {
        // Without a cgroup the hub still enforces the limits.
        let _ = cgroup::enter(group);
    }
    // A system may forbid it; the program then runs at normal priority.
    let _ = rustix::process::nice(NICENESS);
    Ok(())
}

/// Applies limits to the running program: set earlier, they would keep the allocator of
/// this process from reserving addresses.
fn apply_process_limits(program: &Child, bounds: &WardenArgs) {
    let Some(id) = program.id().and_then(|it| Pid::from_raw(it.cast_signed())) else {
        return;
    };
    let set = |resource: Resource, most: u64| {
        let most = Some(most);
        let limits = Rlimit {
            current: most,
            maximum: most,
        };
        // The program may have exited; the hub enforces the limit too.
        let _ = prlimit(Some(id), resource, limits);
    };
    if let Some(bytes) = bounds.memory {
        let most = bytes.saturating_mul(DATA_LIMIT_FACTOR);
        set(Resource::Data, most.saturating_add(DATA_LIMIT_SLACK_BYTES));
    }
    if let Some(processes) = bounds.processes {
        // The kernel counts all threads of the user; the hub counts per program.
        let most = u64::from(processes) * TASKS_PER_PROCESS;
        set(Resource::Nproc, count_user_threads() + most);
    }
}

/// Counts the threads of all processes of the current user.
fn count_user_threads() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let user = rustix::process::getuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own_processes = entries.filter(|it| it.metadata().is_ok_and(|it| it.uid() == user));
    let threads =
        own_processes.map(|it| fs::read_dir(it.path().join("task")).map_or(0, Iterator::count));
    threads.map(|it| it as u64).sum()
}

/// Pauses the program whenever it has used more than its CPU share, on systems without a
/// cgroup.
async fn throttle_cpu(percent: Option<u32>) -> Infallible {
    let Some(percent) = percent else {
        return pending().await;
    };
    let ticks_a_second = rustix::param::clock_ticks_per_second().max(1);
    let share = f64::from(percent) / 100.0;
    let seconds = |ticks: u64| Duration::from_millis(ticks * 1000 / ticks_a_second).as_secs_f64();
    let used = || -> u64 { own_descendants().iter().map(|it| it.cpu_ticks).sum() };
    let (mut before, mut looked, mut debt) = (used(), Instant::now(), 0.0_f64);
    loop {
        time::sleep(CPU_CHECK_INTERVAL).await;
        let now = used();
        debt += seconds(now.saturating_sub(before)) - share * looked.elapsed().as_secs_f64();
        debt = debt.max(0.0);
        (before, looked) = (now, Instant::now());
        if debt > 0.0 {
            signal_all(Signal::STOP);
            time::sleep(Duration::from_secs_f64(debt / share).min(MAX_CPU_PAUSE)).await;
            signal_all(Signal::CONT);
        }
    }
}

fn own_descendants() -> Vec<ProcessInfo> {
    descendants(std::process::id())
}

fn signal_all(signal: Signal) {
    own_descendants()
        .iter()
        .for_each(|it| signal_process(it.id, signal));
}

/// Sends a signal and ignores that the process may have exited.
fn signal_process(id: u32, signal: Signal) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, signal);
    }
}

fn lower_rlimit(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let lower = |it: Option<u64>| Some(it.map_or(most, |it| it.min(most)));
    let limits = Rlimit {
        current: lower(now.current),
        maximum: lower(now.maximum),
    };
    Ok(setrlimit(resource, limits)?)
}

fn spawn_program(command: &[OsString]) -> Option<Child> {
    let (program, arguments) = command.split_first()?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit())
        .spawn()
        .ok()
}

/// Closes the warden's copies of the pipes, so that the hub sees when the program closes
/// them.
fn detach_stdio() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}

/// Kills leftover processes until none remain.
async fn kill_remaining() {
    for _ in 0..MAX_KILL_ATTEMPTS {
        let remaining = children("self");
        if remaining.is_empty() {
            return;
        }
        for child in remaining {
            signal_process(child, Signal::KILL);
        }
        time::sleep(KILL_RETRY_DELAY).await;
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let number = status
        .code()
        .unwrap_or_else(|| i32::from(EXIT_CODE_SIGNAL_BASE) + status.signal().unwrap_or(0));
    u8::try_from(number).unwrap_or(u8::MAX)
}
