//! Documents that must say what the code does.

use std::fs;

#[test]
fn config_reference_is_what_maru_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/config.md");
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == maru::config::reference_markdown(),
        "docs/config.md is out of date; run `make docs`"
    );
}
