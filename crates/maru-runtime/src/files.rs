//! Reads files that settings name or that stand in the data directory.

use std::{fs, io, path::Path};

/// The maximum size of such a file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Checks that `path` is a regular file or a symbolic link to one. Reading a FIFO or a
/// device may never end.
pub fn check_regular_file(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "it is larger than {} MiB",
            MAX_FILE_BYTES >> 20
        )));
    }
    Ok(())
}

/// Reads a regular file, also behind a symbolic link.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    check_regular_file(path)?;
    fs::read(path)
}

/// Reads a regular file of text, also behind a symbolic link.
pub fn read_text_file(path: &Path) -> io::Result<String> {
    check_regular_file(path)?;
    fs::read_to_string(path)
}

/// Returns why a file could not be read, without the number of the system's error.
pub fn file_error_reason(error: &io::Error) -> String {
    match error.get_ref() {
        Some(reason) => reason.to_string(),
        None => error.kind().to_string(),
    }
}
