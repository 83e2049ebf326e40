//! Options of an embedded hub: its data directory and settings.

use std::path::PathBuf;

use crate::config::Config;

/// How [`Hub::open`](super::Hub::open) opens a hub.
///
/// Nothing is read from files or the environment unless you load the settings yourself
/// and pass them to [`from_config`](Self::from_config).
#[derive(Clone, Debug)]
pub struct HubOptions {
    pub(super) config: Config,
    pub(super) in_temporary_dir: bool,
}

impl HubOptions {
    /// Returns options for a hub without persistence: its servers are lost when it
    /// closes.
    pub fn in_memory() -> Self {
        let mut config = embedded_config();
        config.store_url = Some("memory".to_owned().into());
        Self {
            config,
            in_temporary_dir: true,
        }
    }

    /// Returns options for a hub that stores its servers in `data_dir`, which is created
    /// if it is missing. Only one hub at a time can use a directory.
    pub fn in_directory(data_dir: impl Into<PathBuf>) -> Self {
        let mut config = embedded_config();
        config.data_dir = data_dir.into();
        Self::from_config(config)
    }

    /// Returns options with all the settings of the binary, for example those that
    /// [`config::load`](crate::config::load) reads from `maru.yaml` and the environment.
    /// Settings of HTTP endpoints have no effect: an embedded hub does not listen.
    pub fn from_config(config: Config) -> Self {
        Self {
            config,
            in_temporary_dir: false,
        }
    }

    /// Runs stdio servers under the program `maru` at this path, which limits their
    /// resources and stops them even if your program is killed. Without it, they are
    /// started directly.
    #[must_use]
    pub fn with_warden(mut self, maru: impl Into<PathBuf>) -> Self {
        self.config.warden = Some(maru.into());
        self
    }
}

/// The defaults of the binary, without sample data and its tools.
fn embedded_config() -> Config {
    Config {
        sample_data: false,
        ..Config::default()
    }
}
