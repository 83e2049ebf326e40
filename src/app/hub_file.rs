//! The file that records where the hub of a data directory listens. The hub locks it
//! while it runs, so the address of a dead hub is not used.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    path::Path,
};

use anyhow::{Result, anyhow};

pub(super) const HUB_FILE: &str = "hub";
/// The file that is locked. On Windows a locked file cannot be read, so it is another one.
const LOCK_FILE: &str = if cfg!(windows) { "hub.lock" } else { HUB_FILE };

/// Returns the address of the hub that runs on this data directory, if any.
pub fn running_hub(data_dir: &Path) -> Option<String> {
    let path = data_dir.join(HUB_FILE);
    match File::open(data_dir.join(LOCK_FILE)).ok()?.try_lock_shared() {
        Err(TryLockError::WouldBlock) => fs::read_to_string(path).ok(),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// Locks a data directory for one hub until it is dropped.
#[derive(Debug)]
pub(crate) struct DataDirLock {
    /// Holds the lock.
    _locked: File,
    address: File,
}

impl DataDirLock {
    pub(crate) fn acquire(data_dir: &Path) -> Result<Self> {
        let path = data_dir.join(HUB_FILE);
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).open(path)
        };
        let locked = open(&data_dir.join(LOCK_FILE))?;
        if locked.try_lock().is_err() {
            let address = fs::read_to_string(&path).unwrap_or_default();
            return Err(anyhow!(
                "a hub at {address} already runs on the data directory {}; stop it, or choose another with --data-dir DIR",
                data_dir.display()
            ));
        }
        let address = open(&path)?;
        address.set_len(0)?;
        Ok(Self {
            _locked: locked,
            address,
        })
    }

    /// Records the address of the hub.
    pub(crate) fn write_address(&self, address: &str) -> io::Result<()> {
        (&self.address).write_all(address.as_bytes())
    }
}
