//! The data directory: private to its owner, and left unchanged by an ephemeral hub.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, anyhow, bail};
use maru_runtime::permissions::{mode_of, private_directory, private_file, set_mode};
use tracing::warn;

use super::{
    HTTP_SOCKET,
    data::{INDEX_FILE, SAMPLE_FILE},
    hub_file::HUB_FILE,
    local_socket::STDIO_SOCKET,
    store_opening::STORE_FILE,
};
use crate::{auth::ADMIN_TOKEN_FILE, config::Config};

/// The name prefix of a directory that is removed when its process ends.
const SCRATCH_PREFIX: &str = "unkept-";
static NEXT_SCRATCH_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Creates or checks the data directory: whoever can enter it can use the hub, and
/// whoever can write to it controls the hub.
pub(crate) fn prepare_data_dir(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    let made = private_directory(builder.recursive(true)).create(path);
    let probe = path.join(".writable");
    made.and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe))
        .map_err(|error| {
            anyhow!(
                "cannot write to the data directory {}: {}; choose another with --data-dir DIR",
                path.display(),
                match error.kind() {
                    ErrorKind::AlreadyExists | ErrorKind::NotADirectory =>
                        "it is a file".to_owned(),
                    kind => kind.to_string(),
                }
            )
        })?;
    let mode = mode_of(&fs::metadata(path)?);
    if mode & 0o002 != 0 {
        bail!(
            "every user of this machine may write to the data directory {0}; choose another with --data-dir DIR, or run: chmod 700 {0}",
            path.display()
        );
    }
    make_private(path, "the data directory")?;
    for name in [STORE_FILE, INDEX_FILE, SAMPLE_FILE] {
        for name in [
            name.to_owned(),
            format!("{name}-wal"),
            format!("{name}-shm"),
        ] {
            make_private(&path.join(name), "the database")?;
        }
    }
    Ok(())
}

/// Removes the permissions of other users, and warns if they had any.
fn make_private(path: &Path, what: &str) -> Result<()> {
    let mode = match fs::metadata(path) {
        Ok(found) => mode_of(&found) & 0o777,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    if mode & 0o077 == 0 {
        return Ok(());
    }
    set_mode(path, mode & 0o700).with_context(|| {
        format!(
            "others may read {what} {0}, and that cannot be changed; run: chmod go-rwx {0}",
            path.display()
        )
    })?;
    warn!(
        "others could read {what} {}; now only its owner can",
        path.display()
    );
    Ok(())
}

/// Creates an empty file that only its owner may read, if it does not exist.
pub(crate) fn create_private_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    private_file(&mut options).open(path).map(drop)
}

/// The directory of data files: the data directory, or a temporary one that is removed on
/// drop if the hub is ephemeral.
#[derive(Debug)]
pub(super) struct DataFiles {
    data_dir: PathBuf,
    scratch: Option<PathBuf>,
}

impl DataFiles {
    /// Uses the data directory itself.
    pub(super) fn persistent(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            scratch: None,
        }
    }

    /// Chooses the directory according to the settings.
    pub(super) fn from_config(config: &Config) -> Result<Self> {
        let mut files = Self::persistent(&config.data_dir);
        if config.is_ephemeral() {
            remove_abandoned(&config.data_dir);
            let number = NEXT_SCRATCH_NUMBER.fetch_add(1, Relaxed);
            let name = format!("{SCRATCH_PREFIX}{}-{number}", process::id());
            let path = config.data_dir.join(name);
            private_directory(&mut fs::DirBuilder::new())
                .create(&path)
                .with_context(|| format!("cannot make {}", path.display()))?;
            files.scratch = Some(path);
        }
        Ok(files)
    }

    /// Returns the path of a file; an existing file of an earlier hub is used.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        let kept = self.data_dir.join(name);
        match &self.scratch {
            Some(scratch) if !kept.exists() => scratch.join(name),
            _ => kept,
        }
    }
}

impl Drop for DataFiles {
    fn drop(&mut self) {
        if let Some(scratch) = &self.scratch {
            // The next hub removes what cannot be removed now.
            let _ = fs::remove_dir_all(scratch);
        }
    }
}

/// Removes the temporary directories of hubs that were killed.
fn remove_abandoned(data_dir: &Path) {
    let found = fs::read_dir(data_dir).into_iter().flatten().flatten();
    for entry in found {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|it| it.strip_prefix(SCRATCH_PREFIX));
        let owner = owner.and_then(|it| it.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes what an ephemeral hub created in its data directory, and the directory itself
/// if it did not exist before.
#[derive(Debug)]
pub(super) struct DataDirCleanup {
    files: Vec<PathBuf>,
    /// Innermost first.
    directories: Vec<PathBuf>,
}

impl DataDirCleanup {
    /// Records which paths do not exist yet.
    pub(super) fn record_missing(data_dir: &Path) -> Self {
        let names = [HUB_FILE, ADMIN_TOKEN_FILE, HTTP_SOCKET, STDIO_SOCKET];
        let missing = |it: &PathBuf| !it.exists();
        let files = names.map(|it| data_dir.join(it)).into_iter();
        let directories = data_dir.ancestors().map(Path::to_owned);
        Self {
            files: files.filter(missing).collect(),
            directories: directories
                .take_while(|it| !it.as_os_str().is_empty() && missing(it))
                .collect(),
        }
    }
}

impl Drop for DataDirCleanup {
    fn drop(&mut self) {
        for file in &self.files {
            // It may not have been created.
            let _ = fs::remove_file(file);
        }
        for directory in &self.directories {
            // The directory may contain files of others.
            let _ = fs::remove_dir(directory);
        }
    }
}
