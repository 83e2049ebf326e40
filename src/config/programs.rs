//! What programs that are started as servers may use.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of each program that is started as a server, together with everything
/// that it starts itself. 0 is no bound.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ProgramSettings {
    /// Memory of a program and its children in MiB; one that takes more is ended. 0 is no bound.
    #[schemars(range(max = 16_777_216))]
    pub memory_mb: u64,
    /// Processor time of a program and its children in percent of one core; one that wants more is slowed down. 0 is no bound.
    #[schemars(range(max = 102_400))]
    pub cpu_percent: u32,
    /// Processes of a program, itself included; one that starts more is ended. 0 is no bound.
    #[schemars(range(max = 100_000))]
    pub processes: u32,
    /// A cgroup v2 directory in which maru may make groups. Not set, maru uses its own group where the system has delegated it.
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
