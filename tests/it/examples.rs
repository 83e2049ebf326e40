//! The examples run, and print what they say.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::{clients::client_tools_dir, docs::matches_lines};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

fn examples_with(file: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(EXAMPLES).unwrap();
    let mut found: Vec<PathBuf> = entries
        .map(|it| it.unwrap().path())
        .filter(|it| it.join(file).exists())
        .collect();
    found.sort();
    found
}

fn command_in(directory: &Path, program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .env_clear()
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("LANG", "C.UTF-8")
        .env("PATH", format!("{}:/usr/bin:/bin", home.display()))
        .stdin(Stdio::null());
    command
}

#[test]
fn every_example_runs() {
    let home = tempfile::tempdir().unwrap();
    let maru = home.path().join("maru");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_maru"), maru).unwrap();
    let chroma = client_tools_dir().join("chroma/bin/chroma");
    std::os::unix::fs::symlink(chroma, home.path().join("chroma")).unwrap();
    let examples = examples_with("run.sh");
    assert!(examples.len() >= 15, "{examples:?}");
    // They mostly wait for the programs that they start.
    let run = &|example: &Path| command_in(example, "./run.sh", home.path()).output();
    let outputs: Vec<_> = thread::scope(|scope| {
        let runs: Vec<_> = examples
            .iter()
            .map(|it| scope.spawn(move || run(it)))
            .collect();
        runs.into_iter()
            .map(|it| it.join().unwrap().unwrap())
            .collect()
    });
    for (example, output) in examples.iter().zip(outputs) {
        let printed = String::from_utf8_lossy(&output.stdout);
        let shown = format!(
            "{}: {:?}\n{printed}{}",
            example.display(),
            output.status.code(),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{shown}");
        let expected = fs::read_to_string(example.join("expected")).unwrap();
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        let lines: Vec<&str> = printed.lines().collect();
        assert!(matches_lines(&expected, &lines), "{shown}");
    }
    // Nothing is left behind.
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn settings_of_the_examples_are_accepted() {
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("seal-key");
    fs::write(&key, "a2V5IG9mIGFuIGV4YW1wbGUsIDMyIGJ5dGVzIGxvbmc=").unwrap();
    for example in examples_with("maru.yaml") {
        let output = command_in(&example, env!("CARGO_BIN_EXE_maru"), home.path())
            .args(["config", "--data-dir"])
            .arg(home.path().join("data"))
            .env("SEAL_KEY_FILE", &key)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {shown}", example.display());
    }
}
