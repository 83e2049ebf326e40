//! Resource limits of stdio servers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resource limits of each stdio server together with its child processes. 0 means no
/// limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ProgramSettings {
    /// Memory of a program and its children in MiB. A program that exceeds it is ended. 0 means no limit.
    #[schemars(range(max = 16_777_216))]
    pub memory_mb: u64,
    /// CPU time of a program and its children in percent of one core. A program that exceeds it is throttled. 0 means no limit.
    #[schemars(range(max = 102_400))]
    pub cpu_percent: u32,
    /// Processes of a program, including itself. A program that exceeds it is ended. 0 means no limit.
    #[schemars(range(max = 100_000))]
    pub processes: u32,
    /// A cgroup v2 directory in which maru may create cgroups. The default is maru's own cgroup, if the system has delegated it.
    pub cgroup: Option<PathBuf>,
}

impl Default for ProgramSettings {
    fn default() -> Self {
        Self {
            memory_mb: 4096,
            cpu_percent: 0,
            processes: 512,
            cgroup: None,
        }
    }
}
