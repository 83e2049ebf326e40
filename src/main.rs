//! Entry point.

use std::process::ExitCode;

/// A call allocates some eighty times; this allocator takes half the time for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    maru::cli::run()
}
