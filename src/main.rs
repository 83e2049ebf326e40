//! Entry point.

use std::process::ExitCode;

fn main() -> ExitCode {
    maru::cli::run()
}
