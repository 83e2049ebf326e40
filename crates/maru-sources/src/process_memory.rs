//! The memory of a process of this machine.

use std::{fmt::Display, fs};

/// How much memory a process has for itself, in KiB. What it shares with others, such as the
/// table cache of PostgreSQL, does not count. Only Linux shows it.
pub(super) fn private_kilobytes(process: impl Display) -> Option<u64> {
    parse_status(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// How much memory this thread was given so far, in KiB, at most: the kernel gives a page at
/// the first use of it, and counts that for the thread. Only Linux shows it.
pub(super) fn thread_faulted_kilobytes() -> Option<u64> {
    let faults = parse_page_faults(&fs::read_to_string("/proc/thread-self/stat").ok()?)?;
    Some(faults.saturating_mul(largest_page_bytes()?) / 1024)
}

fn parse_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The page faults that needed no disk, `minflt`. The second field, a name, may have spaces.
fn parse_page_faults(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(7)?.parse().ok()
}

/// The size of a page, or of a huge one where every allocation may get those.
fn largest_page_bytes() -> Option<u64> {
    const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";
    let enabled = fs::read_to_string(format!("{HUGE_PAGES}/enabled")).unwrap_or_default();
    if enabled.contains("[always]") {
        let size = fs::read_to_string(format!("{HUGE_PAGES}/hpage_pmd_size")).ok()?;
        return size.trim().parse().ok();
    }
    parse_page_bytes(&fs::read("/proc/self/auxv").ok()?)
}

/// The size of a page in what the kernel tells a program at its start: pairs of words.
fn parse_page_bytes(auxiliary: &[u8]) -> Option<u64> {
    const PAGE_SIZE_KEY: usize = 6;
    let word = |it: &[u8]| it.try_into().map(usize::from_ne_bytes).ok();
    let mut pairs = auxiliary.chunks_exact(2 * size_of::<usize>());
    let size = pairs.find_map(|pair| {
        let (key, value) = pair.split_at(size_of::<usize>());
        (word(key) == Some(PAGE_SIZE_KEY)).then(|| word(value))?
    })?;
    u64::try_from(size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_read_from_the_status() {
        let status = "VmRSS:\t  900 kB\nRssAnon:\t     512 kB\nRssFile:\t 388 kB\n";
        assert_eq!(parse_status(status), Some(512));
        assert_eq!(parse_status("Name:\tpostgres\n"), None);
    }

    #[test]
    fn page_faults_and_the_size_of_a_page_are_read() {
        let stat = "7 (maru) (x) 1) R 1 2 3 0 -1 4194304 321 0 9 0 5 6";
        assert_eq!(parse_page_faults(stat), Some(321));
        assert_eq!(parse_page_faults("7 (maru) R"), None);
        let words = [16_usize, 6, 6, 4096, 0, 0];
        let auxiliary: Vec<u8> = words.iter().flat_map(|it| it.to_ne_bytes()).collect();
        assert_eq!(parse_page_bytes(&auxiliary), Some(4096));
        assert_eq!(parse_page_bytes(&auxiliary[..16]), None);
    }
}
