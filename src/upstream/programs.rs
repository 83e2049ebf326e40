//! The programs that run: what each uses and may use, and that nothing of one is
//! left when it ends.
//!
//! The hub looks at all of them, their wardens included: a program runs as the
//! same user as its warden, and can kill or stop it.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use maru_runtime::tasks::Tasks;
use rustix::process::{Pid, Signal, WaitOptions, child_subreaper, waitpid};
use tokio::{
    process::{Child, Command},
    sync::Notify,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{
    cgroup::{Cgroup, CgroupParent},
    processes::{ProcessInfo, ProcessTable, proportional_bytes, read_process, send_signal},
};
use crate::config::ProgramSettings;

/// Threads are counted where the kernel counts; so many for each process.
pub(super) const TASKS_PER_PROCESS: u64 = 8;
/// How often programs are looked at, and how often one that nears a bound is.
const MONITOR_INTERVAL: Duration = Duration::from_secs(1);
const NEAR_LIMIT_MONITOR_INTERVAL: Duration = Duration::from_millis(200);
/// How often what is left is looked for, and how soon again.
const MAX_KILL_ATTEMPTS: usize = 200;
const KILL_RETRY_DELAY: Duration = Duration::from_millis(5);

/// What one program may use, with everything that it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Processor time, in percent of one core.
    pub cpu_percent: Option<u32>,
    /// Processes.
    pub processes: Option<u32>,
}

/// What a program used when it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramUsage {
    /// Memory that is in use.
    pub memory_bytes: u64,
    /// Processor time since the look before, in percent of one core.
    pub cpu_percent: u64,
    /// Processes, without the warden.
    pub processes: usize,
}

/// A running program, as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct ProgramView {
    /// What it used lately; not known in its first second.
    pub usage: Option<ProgramUsage>,
    /// What it may use.
    pub limits: ProgramLimits,
    /// Whether the kernel holds the bounds, not the hub.
    pub in_cgroup: bool,
}

/// All programs of a hub.
#[derive(Debug)]
pub(super) struct ProgramMonitor {
    limits: ProgramLimits,
    parent_group: Option<CgroupParent>,
    running: Mutex<RunningPrograms>,
    /// A program has ended.
    changed: Notify,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct RunningPrograms {
    programs: HashMap<u32, Arc<RunningProgram>>,
    is_monitored: bool,
}

/// Where a server keeps its program while one runs.
pub(super) type ProgramSlot = Arc<Mutex<Option<Arc<RunningProgram>>>>;

/// One program that runs.
#[derive(Debug)]
pub(super) struct RunningProgram {
    /// The warden, or the program where there is none.
    root: u32,
    has_warden: bool,
    limits: ProgramLimits,
    group: Option<Cgroup>,
    last_sample: Mutex<UsageSample>,
    cause: OnceLock<String>,
    /// It has passed a bound.
    pub(super) limit_exceeded: CancellationToken,
}

#[derive(Debug)]
struct UsageSample {
    taken_at: Instant,
    cpu_ticks: u64,
    usage: Option<ProgramUsage>,
}

/// Keeps a program on the list; dropped when it has ended.
#[derive(Debug)]
pub(super) struct ProgramGuard {
    programs: Arc<ProgramMonitor>,
    slot: ProgramSlot,
    pub(super) program: Arc<RunningProgram>,
}

/// A program to start.
pub(super) struct ProgramLaunch<'a> {
    pub(super) command: &'a mut Command,
    pub(super) group: Option<Cgroup>,
    pub(super) has_warden: bool,
    pub(super) slot: ProgramSlot,
}

impl From<&ProgramSettings> for ProgramLimits {
    fn from(settings: &ProgramSettings) -> Self {
        Self {
            memory_bytes: Some(settings.memory_mb << 20).filter(|it| *it > 0),
            cpu_percent: Some(settings.cpu_percent).filter(|it| *it > 0),
            processes: Some(settings.processes).filter(|it| *it > 0),
        }
    }
}

impl ProgramMonitor {
    pub(super) fn new(settings: &ProgramSettings, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self {
            limits: settings.into(),
            parent_group: CgroupParent::find(settings.cgroup.as_deref()),
            running: Mutex::default(),
            changed: Notify::new(),
            tasks,
        })
    }

    /// The group for a program, where groups can be made.
    pub(super) fn create_cgroup(&self) -> Option<Cgroup> {
        let made = self.parent_group.as_ref()?.create(&self.limits);
        made.inspect_err(|why| tracing::warn!("no cgroup for a program: {why}"))
            .ok()
    }

    /// What a warden is told of the bounds.
    pub(super) fn warden_arguments(&self, group: Option<&Cgroup>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: OsString| arguments.extend([name.into(), value]);
        if let Some(group) = group {
            add("--cgroup", group.directory().into());
        }
        if let Some(bytes) = self.limits.memory_bytes {
            add("--memory", bytes.to_string().into());
        }
        if let Some(processes) = self.limits.processes {
            add("--processes", processes.to_string().into());
        }
        if let Some(percent) = self.limits.cpu_percent
            && !group.is_some_and(Cgroup::bounds_cpu)
        {
            add("--cpu-percent", percent.to_string().into());
        }
        arguments
    }

    /// Starts a program and looks at it from now on.
    pub(super) fn start(
        self: &Arc<Self>,
        launch: ProgramLaunch<'_>,
    ) -> io::Result<(Child, ProgramGuard)> {
        // Held meanwhile: a child that is not on the list would count as an orphan.
        let mut running = self.lock();
        let child = launch.command.spawn()?;
        let root = child.id().unwrap_or_default();
        let program = Arc::new(RunningProgram {
            root,
            has_warden: launch.has_warden,
            limits: self.limits,
            group: launch.group,
            last_sample: Mutex::new(UsageSample {
                taken_at: Instant::now(),
                cpu_ticks: 0,
                usage: None,
            }),
            cause: OnceLock::new(),
            limit_exceeded: CancellationToken::new(),
        });
        running.programs.insert(root, Arc::clone(&program));
        if !running.is_monitored {
            running.is_monitored = true;
            self.tasks.spawn(Arc::clone(self).monitor());
        }
        *lock(&launch.slot) = Some(Arc::clone(&program));
        let guard = ProgramGuard {
            programs: Arc::clone(self),
            slot: launch.slot,
            program,
        };
        Ok((child, guard))
    }

    /// Looks at the programs while there are some.
    async fn monitor(self: Arc<Self>) {
        let mut next = Instant::now() + MONITOR_INTERVAL;
        loop {
            let is_time = tokio::select! {
                () = time::sleep_until(next) => true,
                () = self.changed.notified() => false,
            };
            {
                let mut running = self.lock();
                if running.programs.is_empty() {
                    running.is_monitored = false;
                    return;
                }
            }
            if is_time {
                let programs = Arc::clone(&self);
                let work = move || programs.check_all();
                let interval = self
                    .tasks
                    .spawn_blocking(work)
                    .await
                    .unwrap_or(MONITOR_INTERVAL);
                next = Instant::now() + interval;
            }
        }
    }

    /// Looks at each program once; returns when to look again.
    fn check_all(&self) -> Duration {
        let programs: Vec<_> = self.lock().programs.values().cloned().collect();
        let table = ProcessTable::read();
        let near = programs.iter().filter(|it| it.check_usage(&table)).count();
        if near > 0 {
            NEAR_LIMIT_MONITOR_INTERVAL
        } else {
            MONITOR_INTERVAL
        }
    }

    /// Ends what is left of a program whose warden did not end it. Orphans of a
    /// warden that was killed become children of the hub.
    pub(super) async fn end_orphans(self: &Arc<Self>) {
        // Else orphans go elsewhere, and a child that we do not know may be anybody's.
        if !matches!(child_subreaper(), Ok(Some(_))) {
            return;
        }
        for _ in 0..MAX_KILL_ATTEMPTS {
            let programs = Arc::clone(self);
            let left = self
                .tasks
                .spawn_blocking(move || programs.kill_orphans())
                .await;
            if left == Some(0) {
                return;
            }
            time::sleep(KILL_RETRY_DELAY).await;
        }
    }

    fn kill_orphans(&self) -> usize {
        let running = self.lock();
        let table = ProcessTable::read();
        let children = table.child_ids(std::process::id()).iter();
        let orphans = children.filter(|it| !running.programs.contains_key(&it.id));
        let mut count = 0;
        for orphan in orphans {
            send_signal(orphan.id, Signal::KILL);
            // Its end has to be collected by somebody.
            let id = Pid::from_raw(orphan.id.cast_signed());
            let _ = waitpid(id, WaitOptions::NOHANG);
            count += 1;
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, RunningPrograms> {
        lock(&self.running)
    }
}

impl RunningProgram {
    /// Why the program was ended, if we or the kernel did it for a bound.
    pub(super) fn end_cause(&self) -> Option<String> {
        let by_kernel = || {
            let group = self.group.as_ref()?;
            let limit = self.limits.memory_bytes?;
            group.was_oom_killed().then(|| {
                format!(
                    "the program was ended: it needed more memory than the {} that mcp.programs.memory-mb allows",
                    mebibytes(limit)
                )
            })
        };
        self.cause.get().cloned().or_else(by_kernel)
    }

    /// As it is shown.
    pub(super) fn view(&self) -> ProgramView {
        ProgramView {
            usage: lock(&self.last_sample).usage,
            limits: self.limits,
            in_cgroup: self.group.as_ref().is_some_and(Cgroup::bounds_memory),
        }
    }

    /// Looks at the program, and ends it if it has passed a bound. Returns whether
    /// it is near one.
    fn check_usage(&self, table: &ProcessTable) -> bool {
        let Some(root) = read_process(self.root) else {
            return false;
        };
        let mut processes = table.descendants(self.root);
        if !self.has_warden {
            processes.push(root);
        }
        processes.retain(|it| !it.is_zombie);
        let warden_ticks = if self.has_warden { root.cpu_ticks } else { 0 };
        let usage = ProgramUsage {
            memory_bytes: self.memory_of(&processes),
            cpu_percent: self.cpu_percent(warden_ticks + ticks_of(&processes)),
            processes: processes.len(),
        };
        let is_warden_stopped = self.has_warden && root.is_stopped;
        if let Some(cause) = self.exceeded_limit(&usage, is_warden_stopped) {
            // Said before it ends, so that its end is not taken for its own doing.
            let _ = self.cause.set(cause);
            self.kill(is_warden_stopped);
            self.limit_exceeded.cancel();
        }
        lock(&self.last_sample).usage = Some(usage);
        let is_near = |used: u64, most: Option<u64>| most.is_some_and(|it| used > it / 2);
        let most_processes = self.limits.processes.map(u64::from);
        is_near(usage.memory_bytes, self.limits.memory_bytes)
            || is_near(usage.processes as u64, most_processes)
    }

    /// Why the program has to end, if it has to.
    fn exceeded_limit(&self, usage: &ProgramUsage, is_warden_stopped: bool) -> Option<String> {
        let ProgramUsage {
            memory_bytes,
            processes,
            ..
        } = *usage;
        if is_warden_stopped {
            return Some("the program was ended: its warden was stopped by a signal".to_owned());
        }
        if let Some(most) = self.limits.processes
            && processes > most as usize
        {
            return Some(format!(
                "the program was ended: it ran {processes} processes, mcp.programs.processes allows {most}"
            ));
        }
        if let Some(most) = self.limits.memory_bytes
            && memory_bytes > most
        {
            let (used, most) = (mebibytes(memory_bytes), mebibytes(most));
            return Some(format!(
                "the program was ended: it used {used} of memory, mcp.programs.memory-mb allows {most}"
            ));
        }
        None
    }

    /// Memory of all of them. What they share counts for each at first; only where
    /// that is too much it is worth the milliseconds to count it once.
    fn memory_of(&self, processes: &[ProcessInfo]) -> u64 {
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let resident = |it: &ProcessInfo| it.resident_pages * page;
        let quick = processes.iter().map(resident).sum();
        match self.limits.memory_bytes {
            Some(most) if quick > most => processes
                .iter()
                .map(|it| proportional_bytes(it.id).unwrap_or_else(|| resident(it)))
                .sum(),
            _ => quick,
        }
    }

    /// Processor time since the last look.
    fn cpu_percent(&self, ticks: u64) -> u64 {
        let mut seen = lock(&self.last_sample);
        let used = ticks.saturating_sub(seen.cpu_ticks);
        let millis = u64::try_from(seen.taken_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        (seen.taken_at, seen.cpu_ticks) = (Instant::now(), ticks);
        used * 100_000 / rustix::param::clock_ticks_per_second().max(1) / millis.max(1)
    }

    /// Kills everything below the warden, which then ends by itself; one that
    /// cannot is killed, too.
    fn kill(&self, with_warden: bool) {
        for _ in 0..MAX_KILL_ATTEMPTS {
            let left = ProcessTable::read().descendants(self.root);
            if left.iter().all(|it| it.is_zombie) {
                break;
            }
            // Stopped first: one that is killed while others run may be replaced by them.
            for told in [Signal::STOP, Signal::KILL] {
                left.iter().for_each(|it| send_signal(it.id, told));
            }
        }
        if with_warden || !self.has_warden {
            send_signal(self.root, Signal::KILL);
        }
    }
}

impl ProgramGuard {
    /// Ends what is left of the program.
    pub(super) async fn clean_up(&self) {
        if let Some(group) = &self.program.group {
            group.remove().await;
        }
        self.programs.end_orphans().await;
    }
}

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        self.programs.lock().programs.remove(&self.program.root);
        *lock(&self.slot) = None;
        self.programs.changed.notify_one();
    }
}

fn ticks_of(processes: &[ProcessInfo]) -> u64 {
    processes.iter().map(|it| it.cpu_ticks).sum()
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
