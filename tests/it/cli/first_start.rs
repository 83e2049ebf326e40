//! What a person sees who starts maru for the first time, on a pseudo-terminal of script(1).

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::http_client::{wait_for, wait_until};

/// In place of the program that opens a browser: keeps the page that it gets.
const BROWSER: &str =
    "#!/bin/sh\ncp -p \"$1\" \"$HOME/opened.part\" && mv \"$HOME/opened.part\" \"$HOME/opened\"\n";
const OFFER: &str = "This is the first start.";

/// A hub on a terminal; what the terminal shows is in the file `shown`.
struct TerminalHub {
    script: Child,
    keyboard: ChildStdin,
}

impl TerminalHub {
    async fn start(home: &Path) -> Self {
        let program = env!("CARGO_BIN_EXE_maru");
        let shown = File::create(home.join("shown")).unwrap();
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command"])
            .arg(format!("{program} --listen 127.0.0.1:0 --data-dir data"))
            .arg("/dev/null")
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .env("PATH", format!("{}:/usr/bin:/bin", home.display()))
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(shown)
            .spawn()
            .unwrap();
        let keyboard = script.stdin.take().unwrap();
        let hub = Self { script, keyboard };
        wait_for(
            async || shown_in(home),
            |it| it.contains("Stop with Ctrl-C"),
        )
        .await;
        hub
    }

    fn press(&mut self, key: &str) {
        self.keyboard.write_all(key.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    async fn press_control_c(&mut self) {
        self.press("\x03");
        wait_until(async || self.script.try_wait().unwrap().is_some()).await;
    }
}

impl Drop for TerminalHub {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn shown_in(home: &Path) -> String {
    fs::read_to_string(home.join("shown")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_start_offers_console_client_and_service_once() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let browser = home.join("xdg-open");
    fs::write(&browser, BROWSER).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(home.join(".cursor")).unwrap();

    let mut hub = TerminalHub::start(home).await;
    let shown = wait_for(
        async || shown_in(home),
        |it| it.contains("service install\r\n"),
    )
    .await;
    assert!(shown.contains(OFFER), "{shown}");
    let connect = shown
        .lines()
        .find(|it| it.contains("connect a client"))
        .unwrap();
    assert!(
        connect.contains(" --write   (found: ") && connect.contains("Cursor"),
        "{connect}"
    );
    // It is on this machine, but has no file that maru could write.
    assert!(!connect.contains("curl"), "{connect}");
    hub.press("\n");
    let page = home.join("opened");
    wait_until(async || page.exists()).await;
    let mode = fs::metadata(&page).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (start, _) = shown.split_once("/#code=").expect("the link is shown");
    let origin = &start[start.rfind("http://").unwrap()..];
    let html = fs::read_to_string(&page).unwrap();
    assert!(
        html.contains(&format!("url={origin}/#code=maru_")),
        "{html}"
    );
    hub.press_control_c().await;

    let mut again = TerminalHub::start(home).await;
    again.press_control_c().await;
    assert!(!shown_in(home).contains(OFFER), "{}", shown_in(home));
}
