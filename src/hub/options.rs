//! Where an embedded hub keeps its state, and which settings it has.

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
    /// A hub that keeps nothing: its servers are forgotten when it closes.
    pub fn in_memory() -> Self {
        let mut config = embedded_config();
        config.store_url = Some("memory".to_owned().into());
        Self {
            config,
            in_temporary_dir: true,
        }
    }

    /// A hub that keeps its servers in `data_dir`, which is created if it is missing.
    /// One hub at a time may use a directory.
    pub fn in_directory(data_dir: impl Into<PathBuf>) -> Self {
        let mut config = embedded_config();
        config.data_dir = data_dir.into();
        Self::from_config(config)
    }

    /// A hub with all the settings of the binary, for example those that
    /// [`config::load`](crate::config::load) reads from `maru.yaml` and the environment.
    /// Settings of the HTTP endpoints have no effect: an embedded hub does not listen.
    pub fn from_config(config: Config) -> Self {
        Self {
            config,
            in_temporary_dir: false,
        }
    }

    /// Confines stdio servers with the program `maru` at this path: it bounds what they
    /// use and ends them even when your own program is killed. Without it, they are
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
