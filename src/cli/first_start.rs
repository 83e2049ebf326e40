//! What `maru` offers on a terminal when it starts for the first time.

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use maru_runtime::permissions::private_file;

use super::{connect::installed_clients, terminal};

/// The page that leads a browser to the sign-in link. The link itself is a secret and must
/// not be in the arguments of a program.
const REDIRECT_FILE: &str = "open-console.html";
const MAX_NAMED_CLIENTS: usize = 3;

/// Whether to offer something: a person sits at this terminal, and no hub ran here before.
pub(super) fn is_first_start(data_dir: &Path) -> bool {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    is_terminal && !data_dir.join("admin-token").exists()
}

/// The lines below the welcome.
pub(super) fn text(program: &str) -> String {
    let clients: Vec<_> = installed_clients();
    let connect = match clients.first() {
        None => format!("  connect a client        {program} connect --list\n"),
        Some((first, _)) => {
            let names: Vec<&str> = clients.iter().map(|(_, title)| *title).collect();
            let more = match names.len().saturating_sub(MAX_NAMED_CLIENTS) {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            let names = names[..names.len().min(MAX_NAMED_CLIENTS)].join(", ");
            format!(
                "  connect a client        {program} connect {first} --write   (found: {names}{more})\n"
            )
        }
    };
    let service = if cfg!(target_os = "linux") {
        format!("  keep the hub running    {program} service install\n")
    } else {
        String::new()
    };
    format!(
        "\nThis is the first start. Press Enter to open the console in your browser.\n\n{connect}{service}"
    )
}

/// Waits for Enter on a thread of its own, then opens the browser.
pub(super) fn open_console_on_enter(link: String, data_dir: PathBuf) {
    // It ends with the process: nothing can wake a thread that reads a terminal.
    thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        if let Err(error) = open_browser(&link, &data_dir) {
            terminal::print_note(&format!(
                "the browser could not be opened ({error}); open the link above"
            ));
        }
    });
}

fn open_browser(link: &str, data_dir: &Path) -> io::Result<()> {
    let page = std::path::absolute(data_dir.join(REDIRECT_FILE))?;
    // An old one may be readable by others.
    let _ = fs::remove_file(&page);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = private_file(&mut options).open(&page)?;
    io::Write::write_all(&mut file, redirect_page(link).as_bytes())?;
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if cfg!(windows) {
        "explorer"
    } else {
        "xdg-open"
    };
    Command::new(program)
        .arg(&page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map(drop)
}

fn redirect_page(link: &str) -> String {
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={link}\"><a href=\"{link}\">maru</a>\n"
    )
}
