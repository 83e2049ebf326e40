//! A control group (cgroup v2) for each program, where the system delegates one to maru.
//! The kernel enforces the limits and kills a whole group at once.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time;

use super::programs::{ProgramLimits, TASKS_PER_PROCESS};

/// How often removing a killed group is attempted until its processes are gone.
const MAX_REMOVE_ATTEMPTS: usize = 200;
const REMOVE_RETRY_DELAY: Duration = Duration::from_millis(5);
/// CPU weight of programs; the hub has the default of 100.
const CPU_WEIGHT: &str = "30";
const CPU_PERIOD_US: u64 = 100_000;

/// The cgroup below which the cgroups of programs are created.
#[derive(Debug)]
pub(super) struct CgroupParent {
    directory: PathBuf,
    created_count: AtomicU64,
}

/// The cgroup of one program.
#[derive(Debug)]
pub(super) struct Cgroup {
    directory: PathBuf,
}

impl CgroupParent {
    /// Returns the configured cgroup, or maru's own if it was delegated.
    pub(super) fn find(configured: Option<&Path>) -> Option<Self> {
        let directory = match configured {
            Some(directory) => directory.to_owned(),
            None => prepare_own_cgroup()?,
        };
        if !directory.join("cgroup.procs").exists() {
            return None;
        }
        // Without controllers the groups can be killed but enforce no limits.
        for controller in ["+memory", "+pids", "+cpu"] {
            let _ = write_kernel_file(&directory.join("cgroup.subtree_control"), controller);
        }
        let parent = Self {
            directory,
            created_count: AtomicU64::new(0),
        };
        parent.remove_stale_cgroups();
        Some(parent)
    }

    /// Creates a cgroup with these limits for a program.
    pub(super) fn create(&self, limits: &ProgramLimits) -> io::Result<Cgroup> {
        let number = self.created_count.fetch_add(1, Relaxed);
        let name = format!("maru-{}-{number}", std::process::id());
        let directory = self.directory.join(name);
        fs::create_dir(&directory)?;
        for (file, value) in limit_files(limits) {
            // A controller that is not delegated has no file.
            let _ = write_kernel_file(&directory.join(file), &value);
        }
        Ok(Cgroup { directory })
    }

    /// Removes cgroups left by a hub that was killed. The kernel refuses to remove one
    /// that is in use.
    fn remove_stale_cgroups(&self) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with("maru-") {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

impl Cgroup {
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the kernel limits memory.
    pub(super) fn bounds_memory(&self) -> bool {
        self.directory.join("memory.max").exists()
    }

    /// Whether the kernel limits CPU time.
    pub(super) fn bounds_cpu(&self) -> bool {
        self.directory.join("cpu.max").exists()
    }

    /// Whether the kernel killed a process of the group because it ran out of memory.
    pub(super) fn was_oom_killed(&self) -> bool {
        let text = fs::read_to_string(self.directory.join("memory.events")).unwrap_or_default();
        let count = text.lines().find_map(|it| it.strip_prefix("oom_kill "));
        count.is_some_and(|it| it.trim() != "0")
    }

    /// Kills every process in the group and removes the group.
    pub(super) async fn remove(&self) {
        let _ = write_kernel_file(&self.directory.join("cgroup.kill"), "1");
        for _ in 0..MAX_REMOVE_ATTEMPTS {
            // The kernel refuses while a process of the group is still exiting.
            match fs::remove_dir(&self.directory) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    time::sleep(REMOVE_RETRY_DELAY).await;
                }
                _ => return,
            }
        }
    }
}

/// Moves this process into a cgroup.
pub(super) fn enter(directory: &Path) -> io::Result<()> {
    write_kernel_file(&directory.join("cgroup.procs"), "0")
}

fn limit_files(limits: &ProgramLimits) -> Vec<(&'static str, String)> {
    let mut values = vec![
        ("memory.oom.group", "1".to_owned()),
        ("cpu.weight", CPU_WEIGHT.to_owned()),
    ];
    if let Some(bytes) = limits.memory_bytes {
        values.push(("memory.max", bytes.to_string()));
        values.push(("memory.swap.max", "0".to_owned()));
    }
    if let Some(processes) = limits.processes {
        let tasks = u64::from(processes) * TASKS_PER_PROCESS;
        values.push(("pids.max", tasks.to_string()));
    }
    if let Some(percent) = limits.cpu_percent {
        let quota = u64::from(percent) * CPU_PERIOD_US / 100;
        values.push(("cpu.max", format!("{quota} {CPU_PERIOD_US}")));
    }
    values
}

/// Prepares maru's own cgroup to have children: the kernel enables controllers for child
/// groups only while no process is in the parent itself.
fn prepare_own_cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own_directory(&mounts, &groups)?;
    // A service manager may have started maru in a child of the delegated group.
    for directory in [Some(own.as_path()), own.parent()].into_iter().flatten() {
        if !is_delegated(directory) || !has_controllers(directory) {
            continue;
        }
        let members = fs::read_to_string(directory.join("cgroup.procs")).ok()?;
        let members: Vec<&str> = members.split_ascii_whitespace().collect();
        if members.is_empty() {
            return Some(directory.to_owned());
        }
        if members == [std::process::id().to_string()] {
            let hub = directory.join("hub");
            let created = fs::create_dir(&hub);
            let exists = created.is_ok() || hub.is_dir();
            return (exists && enter(&hub).is_ok()).then(|| directory.to_owned());
        }
    }
    None
}

/// Returns the directory where maru's own cgroup is mounted.
fn own_directory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|it| it.strip_prefix("0::"))?;
    let mount = mounts.lines().find(|it| it.contains(" - cgroup2 "))?;
    let mut fields = mount.split(' ').skip(3);
    let (root, mounted) = (fields.next()?, fields.next()?);
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(mounted).join(below))
}

/// Whether the cgroup was delegated to maru. Write access is no evidence, since root has
/// it everywhere; a separate cgroup namespace, a group owned by our user and systemd's
/// delegation attribute are.
#[cfg(target_os = "linux")]
fn is_delegated(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // The root cgroup of the machine has no type file.
    if !directory.join("cgroup.type").exists() {
        return false;
    }
    let user = rustix::process::geteuid();
    let is_ours = fs::metadata(directory).is_ok_and(|it| it.uid() == user.as_raw());
    let mut mark = [0; 8];
    let marked = ["user.delegate", "trusted.delegate"].into_iter().any(|it| {
        rustix::fs::getxattr(directory, it, &mut mark[..]).is_ok_and(|count| mark[..count] == *b"1")
    });
    let is_namespace_root =
        fs::read_to_string("/proc/self/cgroup").is_ok_and(|it| it.lines().any(|it| it == "0::/"));
    marked || is_namespace_root || (is_ours && !user.is_root())
}

/// Only Linux has cgroups.
#[cfg(not(target_os = "linux"))]
fn is_delegated(_directory: &Path) -> bool {
    false
}

fn has_controllers(directory: &Path) -> bool {
    let text = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
    let has = |name: &str| text.split_ascii_whitespace().any(|it| it == name);
    has("memory") && has("pids")
}

/// Writes to an existing kernel file; creating one would have no effect.
fn write_kernel_file(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut file = fs::File::options().write(true).open(file)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_group_is_found_where_it_is_mounted() {
        let unified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let hybrid = "30 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let bound = "29 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for (mounts, groups, expected) in [
            (
                unified,
                "0::/system.slice/maru.service\n",
                Some("/sys/fs/cgroup/system.slice/maru.service"),
            ),
            (
                hybrid,
                "4:memory:/x\n0::/a\n",
                Some("/sys/fs/cgroup/unified/a"),
            ),
            (bound, "0::/docker/1/b\n", Some("/sys/fs/cgroup/b")),
            (bound, "0::/elsewhere\n", None),
            (unified, "4:memory:/x\n", None),
            ("", "0::/\n", None),
        ] {
            let found = own_directory(mounts, groups);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{groups}");
        }
    }

    #[test]
    fn bounds_are_written_as_the_kernel_reads_them() {
        let limits = ProgramLimits {
            memory_bytes: Some(64 << 20),
            cpu_percent: Some(150),
            processes: Some(10),
        };
        let values = limit_files(&limits);
        for expected in [
            ("memory.max", "67108864"),
            ("cpu.max", "150000 100000"),
            ("pids.max", "80"),
        ] {
            let has = |(file, value): &(&str, String)| (*file, value.as_str()) == expected;
            assert!(values.iter().any(has), "{expected:?}");
        }
    }

    #[test]
    fn directory_that_is_no_group_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        assert!(CgroupParent::find(Some(folder.path())).is_none());
    }
}
