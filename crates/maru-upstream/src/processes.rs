//! Reads the processes of this machine from `/proc`.

use std::{collections::HashMap, fs};

/// The state and usage of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) id: u32,
    pub(super) parent: u32,
    /// Whether a signal or a debugger has stopped it.
    pub(super) is_stopped: bool,
    /// Whether it has exited and its parent has not waited for it.
    pub(super) is_zombie: bool,
    /// CPU time, including that of exited children.
    pub(super) cpu_ticks: u64,
    pub(super) resident_pages: u64,
}

/// A snapshot of all processes; not atomic.
#[derive(Debug)]
pub(super) struct ProcessTable(HashMap<u32, Vec<ProcessInfo>>);

impl ProcessTable {
    /// Reads `/proc`, which takes milliseconds on a machine with hundreds of processes.
    pub(super) fn read() -> Self {
        let mut by_parent: HashMap<u32, Vec<ProcessInfo>> = HashMap::new();
        let names = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
        for process in ids.filter_map(read_process) {
            by_parent.entry(process.parent).or_default().push(process);
        }
        Self(by_parent)
    }

    /// Returns the children of a process.
    pub(super) fn child_ids(&self, parent: u32) -> &[ProcessInfo] {
        self.0.get(&parent).map_or(&[], Vec::as_slice)
    }

    /// Returns all descendants of a process, without itself.
    pub(super) fn descendants(&self, root: u32) -> Vec<ProcessInfo> {
        let mut found: Vec<ProcessInfo> = self.child_ids(root).to_vec();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            let below = self.child_ids(process.id).to_vec();
            found.extend(below);
            next += 1;
        }
        found
    }
}

/// Reads one process; `None` if it is gone.
pub(super) fn read_process(id: u32) -> Option<ProcessInfo> {
    parse_stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Returns all descendants of a process from the kernel's lists of children. This is
/// cheaper than reading all of `/proc` but may miss the children of a process that exits
/// meanwhile.
#[cfg(target_os = "linux")]
pub(super) fn descendants(root: u32) -> Vec<ProcessInfo> {
    let mut found = Vec::new();
    let mut ids = children(&root.to_string());
    while let Some(id) = ids.pop() {
        ids.extend(children(&id.to_string()));
        found.extend(read_process(id));
    }
    found
}

/// Returns the ids of the children of a process, or of `self`.
#[cfg(target_os = "linux")]
pub(super) fn children(process: &str) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let all = lists.collect::<Vec<_>>().join(" ");
    let ids = all.split_ascii_whitespace();
    ids.filter_map(|it| it.parse().ok()).collect()
}

/// Returns the proportional set size of a process: shared pages are divided among their
/// users.
pub(super) fn proportional_bytes(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn parse_stat(text: &str) -> Option<ProcessInfo> {
    // A process name may contain anything, even `) R 1`.
    let (head, tail) = text.rsplit_once(')')?;
    let id = head.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let state = *fields.first()?;
    Some(ProcessInfo {
        id,
        parent: u32::try_from(number(1)?).ok()?,
        is_stopped: matches!(state, "T" | "t"),
        is_zombie: matches!(state, "Z" | "X"),
        cpu_ticks: (11..=14).filter_map(number).sum(),
        resident_pages: number(21)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_process_with_any_name_is_read() {
        let text = "42 (a ) R 1 b) T 7 42 42 0 -1 4194560 9 0 0 0 10 20 3 4 20 0 1 0 99 5000 123 18446744073709551615";
        let expected = ProcessInfo {
            id: 42,
            parent: 7,
            is_stopped: true,
            is_zombie: false,
            cpu_ticks: 37,
            resident_pages: 123,
        };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("42 (a) R 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn both_ways_find_the_same_descendants() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let me = std::process::id();
        let is_child = |it: &ProcessInfo| it.id == child.id() && it.parent == me;
        assert!(descendants(me).iter().any(is_child));
        assert!(ProcessTable::read().descendants(me).iter().any(is_child));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
