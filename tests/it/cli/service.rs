//! `maru service` with a stand-in for systemctl, and what a hub tells its service manager.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

/// Writes its arguments to `calls`; fails if the file `broken` exists.
const SYSTEMCTL: &str =
    "#!/bin/sh\necho \"$*\" >>\"$HOME/calls\"\n[ ! -e \"$HOME/broken\" ] || exit 1\n";

fn home_with_systemctl() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("systemctl");
    fs::write(&program, SYSTEMCTL).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    home
}

fn maru_service(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maru"))
        .arg("service")
        .args(arguments)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("PATH", format!("{}:/usr/bin:/bin", home.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

#[test]
fn service_is_installed_started_and_removed() {
    let home = home_with_systemctl();
    let unit = home.path().join(".config/systemd/user/maru.service");
    let data = home.path().join("my data");
    let data = data.to_str().unwrap();
    let shown = maru_service(home.path(), &["install", "--print", "--data-dir", data]);
    assert!(shown.status.success(), "{}", text_of(&shown));
    assert!(!unit.exists() && !home.path().join("calls").exists());

    let installed = maru_service(home.path(), &["install", "--data-dir", data]);
    assert!(installed.status.success(), "{}", text_of(&installed));
    let text = fs::read_to_string(&unit).unwrap();
    assert_eq!(text, String::from_utf8(shown.stdout).unwrap());
    assert!(
        text.contains(&format!("--data-dir \"{data}\" serve\n")),
        "{text}"
    );
    assert!(text.contains("Type=notify\n"), "{text}");
    assert!(text.contains("Environment=PATH="), "{text}");
    let calls = || fs::read_to_string(home.path().join("calls")).unwrap();
    assert_eq!(
        calls(),
        "--user daemon-reload\n--user enable --now maru.service\n"
    );
    assert!(maru_service(home.path(), &["status"]).status.success());

    let removed = maru_service(home.path(), &["uninstall"]);
    assert!(removed.status.success(), "{}", text_of(&removed));
    assert!(!unit.exists());
    assert!(calls().ends_with("--user disable --now maru.service\n--user daemon-reload\n"));
    let again = maru_service(home.path(), &["uninstall"]);
    assert_eq!(again.status.code(), Some(2), "{}", text_of(&again));
    assert_eq!(
        maru_service(home.path(), &["status"]).status.code(),
        Some(1)
    );
}

#[test]
fn service_that_does_not_start_is_an_error() {
    let home = home_with_systemctl();
    fs::write(home.path().join("broken"), "").unwrap();
    let failed = maru_service(home.path(), &["install"]);
    assert_eq!(failed.status.code(), Some(2));
    let shown = text_of(&failed);
    assert!(
        shown.contains("is written, but the hub is not started"),
        "{shown}"
    );
}

#[test]
fn hub_tells_its_service_manager_when_it_is_ready_and_when_it_stops() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut hub = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(home.path().join("data"))
        .current_dir(home.path())
        .env_clear()
        .env("NOTIFY_SOCKET", &path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let next = || {
        let mut buffer = [0; 64];
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    let id = rustix::process::Pid::from_raw(hub.id().cast_signed()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(next(), "STOPPING=1");
    assert!(hub.wait().unwrap().success());
}
