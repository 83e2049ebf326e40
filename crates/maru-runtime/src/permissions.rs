//! Permissions of files. On a system whose files have no mode, a file is as private as the
//! directory that it is in.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io,
    path::Path,
};

/// What [`mode_of`] says where files have no mode.
#[cfg(not(unix))]
const PRIVATE_MODE: u32 = 0o600;

/// Lets only the owner read and write a file that is created.
pub fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Lets only the owner enter a directory that is created.
pub fn private_directory(builder: &mut DirBuilder) -> &mut DirBuilder {
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(builder, 0o700);
    builder
}

/// Returns the mode of a file.
#[cfg(unix)]
pub fn mode_of(metadata: &Metadata) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions())
}

/// Returns a private mode: files have none here.
#[cfg(not(unix))]
pub fn mode_of(_metadata: &Metadata) -> u32 {
    PRIVATE_MODE
}

/// Sets the mode of a file.
#[cfg(unix)]
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Changes nothing: files have no mode here.
#[cfg(not(unix))]
pub fn set_mode(path: &Path, _mode: u32) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Makes a rename in a directory durable. Windows has no such call for directories.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(windows) {
        return Ok(());
    }
    File::open(directory)?.sync_all()
}
