//! A hub on a system without the warden's means (`prctl`, `/proc`) starts programs
//! directly: it cannot limit them, and a hub that is killed leaves them running.

use std::{ffi::OsString, io};

/// No limits are enforced here.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct WardenArgs {}

/// Does nothing: orphans go to the system's first process.
pub fn adopt_orphans() {}

/// Fails: no hub of this system starts a warden.
pub fn run(_hub: u32, _bounds: &WardenArgs, _command: &[OsString]) -> io::Result<u8> {
    Err(io::ErrorKind::Unsupported.into())
}
