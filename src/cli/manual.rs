//! `maru completion`, `maru man` and `maru version`.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use serde_json::json;

use super::{Cli, client::HubClient, context::CliContext, serve::block_on, terminal};

/// Prints the completion script of `shell`.
pub(super) fn print_completion(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "maru", &mut script);
    terminal::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual page of `maru`, or writes one per command.
pub(super) fn print(directory: Option<&Path>) -> Result<ExitCode> {
    let command = Cli::command();
    let Some(directory) = directory else {
        terminal::print(&manual_page(&command)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let mut command = command;
    command.build();
    let subcommands = command.get_subcommands().filter(|it| !it.is_hide_set());
    let pages = subcommands.map(|it| it.clone().name(format!("maru-{}", it.get_name())));
    for page in std::iter::once(Cli::command()).chain(pages) {
        let file = directory.join(format!("{}.1", page.get_name()));
        fs::write(&file, manual_page(&page)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn manual_page(command: &Command) -> Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(String::from_utf8(page)?)
}

/// Prints the version of this program, and of the hub if one runs.
pub(super) fn print_version(context: &CliContext) -> Result<ExitCode> {
    let own = env!("CARGO_PKG_VERSION");
    let hub = HubClient::find(context)?;
    let running = block_on(async {
        let Some(hub) = &hub else { return Ok(None) };
        let page = hub.request_json("GET", "/api/connect", None).await?;
        anyhow::Ok(page["version"].as_str().map(str::to_owned))
    });
    let running = running.unwrap_or_else(|error| {
        terminal::print_note(&format!("{error:#}"));
        None
    });
    let value = json!({"maru": own, "hub": running});
    context.print(&value, |_| {
        let address = hub.as_ref().map_or("", |it| it.address());
        let of_hub = running.as_ref().map_or(String::new(), |it| {
            format!("the hub at {address} is maru {it}\n")
        });
        format!("maru {own}\n{of_hub}")
    })?;
    Ok(ExitCode::SUCCESS)
}
