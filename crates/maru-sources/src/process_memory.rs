//! The memory of a process of this machine.

use std::{fmt::Display, fs};

/// How much memory a process has for itself, in KiB. What it shares with others, such as the
/// table cache of PostgreSQL, does not count. Only Linux shows it.
pub(super) fn private_kilobytes(process: impl Display) -> Option<u64> {
    parse_status(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn parse_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
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
}
