//! Monitors running programs: enforces their limits and kills what they leave behind.
//!
//! The hub also monitors the wardens, because a program runs as the same user as its
//! warden and can kill or stop it.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use maru_runtime::tasks::Tasks;
use tokio::{
    process::{Child, Command},
    sync::Notify,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{
    cgroup::{Cgroup, CgroupParent},
    process_signals::{
        ProcessSignal, adopts_orphans, page_bytes, reap, send_signal, ticks_per_second,
    },
    processes::{ProcessInfo, ProcessTable, proportional_bytes, read_process},
};
use maru_config::ProgramSettings;

/// The kernel's `pids.max` counts threads; this many are allowed per process.
pub(super) const TASKS_PER_PROCESS: u64 = 8;
/// How often the usage of programs is measured, normally and near a limit.
const MONITOR_INTERVAL: Duration = Duration::from_secs(1);
const NEAR_LIMIT_MONITOR_INTERVAL: Duration = Duration::from_millis(200);
/// How often killing leftover processes is attempted, and the delay in between.
const MAX_KILL_ATTEMPTS: usize = 200;
const KILL_RETRY_DELAY: Duration = Duration::from_millis(5);

/// The resource limits of one program and all its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramLimits {
    /// The memory limit.
    pub memory_bytes: Option<u64>,
    /// The CPU limit in percent of one core.
    pub cpu_percent: Option<u32>,
    /// The most processes.
    pub processes: Option<u32>,
}

/// The measured usage of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramUsage {
    /// The memory in use.
    pub memory_bytes: u64,
    /// The CPU time since the previous measurement, in percent of one core.
    pub cpu_percent: u64,
    /// The number of processes, without the warden.
    pub processes: usize,
}

/// The usage and limits of a running program.
#[derive(Clone, Copy, Debug)]
pub struct ProgramView {
    /// The last measurement; `None` in the first second.
    pub usage: Option<ProgramUsage>,
    /// Its resource limits.
    pub limits: ProgramLimits,
    /// Whether the kernel enforces the limits instead of the hub.
    pub in_cgroup: bool,
}

/// Starts and monitors all programs of a hub.
#[derive(Debug)]
pub(super) struct ProgramMonitor {
    limits: ProgramLimits,
    parent_group: Option<CgroupParent>,
    running: Mutex<RunningPrograms>,
    /// Notified when a program has exited.
    changed: Notify,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct RunningPrograms {
    programs: HashMap<u32, Arc<RunningProgram>>,
    is_monitored: bool,
}

/// The place where a server keeps its running program.
pub(super) type ProgramSlot = Arc<Mutex<Option<Arc<RunningProgram>>>>;

/// One running program.
#[derive(Debug)]
pub(super) struct RunningProgram {
    /// The process id of the warden, or of the program if it has none.
    root: u32,
    has_warden: bool,
    limits: ProgramLimits,
    group: Option<Cgroup>,
    last_sample: Mutex<UsageSample>,
    cause: OnceLock<String>,
    /// Cancelled when the program exceeds a limit.
    pub(super) limit_exceeded: CancellationToken,
}

#[derive(Debug)]
struct UsageSample {
    taken_at: Instant,
    cpu_ticks: u64,
    usage: Option<ProgramUsage>,
}

/// Keeps a program registered with the monitor until it is dropped.
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

    /// Creates a cgroup for a program, if the system allows it.
    pub(super) fn create_cgroup(&self) -> Option<Cgroup> {
        let created = self.parent_group.as_ref()?.create(&self.limits);
        created
            .inspect_err(|error| tracing::warn!("no cgroup for a program: {error}"))
            .ok()
    }

    /// Returns the limits as arguments for the warden.
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

    /// Starts a program and monitors it.
    pub(super) fn start(
        self: &Arc<Self>,
        launch: ProgramLaunch<'_>,
    ) -> io::Result<(Child, ProgramGuard)> {
        // The lock is held during the start, because an unregistered child would be
        // killed as an orphan.
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

    /// Measures the programs periodically while any run.
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

    /// Measures each program once; returns the delay until the next measurement.
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

    /// Kills what is left of a program whose warden was killed; its orphans become
    /// children of the hub.
    pub(super) async fn end_orphans(self: &Arc<Self>) {
        // Without a subreaper orphans are reparented elsewhere, and an unknown child may
        // belong to anyone.
        if !adopts_orphans() {
            return;
        }
        for _ in 0..MAX_KILL_ATTEMPTS {
            let programs = Arc::clone(self);
            let remaining = self
                .tasks
                .spawn_blocking(move || programs.kill_orphans())
                .await;
            if remaining == Some(0) {
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
            send_signal(orphan.id, ProcessSignal::Kill);
            reap(orphan.id);
            count += 1;
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, RunningPrograms> {
        lock(&self.running)
    }
}

impl RunningProgram {
    /// Returns why the hub or the kernel killed the program, if it exceeded a limit.
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

    /// Returns the usage and limits of the program.
    pub(super) fn view(&self) -> ProgramView {
        ProgramView {
            usage: lock(&self.last_sample).usage,
            limits: self.limits,
            in_cgroup: self.group.as_ref().is_some_and(Cgroup::bounds_memory),
        }
    }

    /// Measures the program and kills it if it exceeds a limit. Returns whether it is
    /// near one.
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
            // Set before the kill, so that the exit is not reported as the program's own.
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

    /// Returns which limit the program exceeds, if any.
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

    /// Returns the memory of all processes. Shared pages first count for each process;
    /// only above the limit they are counted once, which takes milliseconds.
    fn memory_of(&self, processes: &[ProcessInfo]) -> u64 {
        let page = page_bytes();
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

    /// Returns the CPU usage since the last measurement.
    fn cpu_percent(&self, ticks: u64) -> u64 {
        let mut sample = lock(&self.last_sample);
        let used = ticks.saturating_sub(sample.cpu_ticks);
        let millis = u64::try_from(sample.taken_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        (sample.taken_at, sample.cpu_ticks) = (Instant::now(), ticks);
        used * 100_000 / ticks_per_second() / millis.max(1)
    }

    /// Kills everything below the warden, which then exits by itself, or is killed too if
    /// it cannot.
    fn kill(&self, with_warden: bool) {
        for _ in 0..MAX_KILL_ATTEMPTS {
            let processes = ProcessTable::read().descendants(self.root);
            if processes.iter().all(|it| it.is_zombie) {
                break;
            }
            // All are stopped first, because running processes could replace killed ones.
            for signal in [ProcessSignal::Stop, ProcessSignal::Kill] {
                processes.iter().for_each(|it| send_signal(it.id, signal));
            }
        }
        if with_warden || !self.has_warden {
            send_signal(self.root, ProcessSignal::Kill);
        }
    }
}

impl ProgramGuard {
    /// Kills what is left of the program.
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
