//! `maru servers logs`, and the output of a program while it starts.

use std::{pin::pin, process::ExitCode, time::Duration};

use anyhow::Result;
use maru_runtime::clock;
use serde_json::Value;
use tokio::{signal, time};

use super::{
    super::{
        client::HubClient,
        context::{CliContext, OutputFormat},
        terminal::{self, ProgressLine, text_of},
    },
    SERVERS_ROUTE,
};

const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Reads a server's log and returns what is new.
struct ServerLogReader<'a> {
    hub: &'a HubClient,
    path: String,
    /// The last entry that was read.
    last: Option<Value>,
}

impl<'a> ServerLogReader<'a> {
    fn new(hub: &'a HubClient, name: &str, what: &str) -> Self {
        Self {
            hub,
            path: format!("{SERVERS_ROUTE}/{name}/{what}"),
            last: None,
        }
    }

    async fn read_new(&mut self) -> Result<Vec<Value>> {
        let entries = self.hub.request_json("GET", &self.path, None).await?;
        let mut entries = entries.as_array().cloned().unwrap_or_default();
        let seen = entries
            .iter()
            .rposition(|it| Some(it) == self.last.as_ref());
        if let Some(seen) = seen {
            entries.drain(..=seen);
        }
        if let Some(last) = entries.last() {
            self.last = Some(last.clone());
        }
        Ok(entries)
    }
}

/// Prints the log of a server.
pub(super) async fn print(
    context: &CliContext,
    hub: &HubClient,
    name: &str,
    follow: bool,
    messages: bool,
) -> Result<ExitCode> {
    let what = if messages { "messages" } else { "log" };
    let mut log = ServerLogReader::new(hub, name, what);
    let entries = log.read_new().await?;
    context.print(&entries.into(), format_entries)?;
    if follow {
        follow_entries(context, &mut log).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints new entries until Ctrl-C.
async fn follow_entries(context: &CliContext, log: &mut ServerLogReader<'_>) -> Result<()> {
    loop {
        tokio::select! {
            () = time::sleep(POLL_INTERVAL) => (),
            _ = signal::ctrl_c() => return Ok(()),
        }
        let entries = log.read_new().await?;
        if context.output == OutputFormat::Table {
            terminal::print(&format_entries(&entries.into()))?;
        } else {
            for entry in entries {
                context.print(&entry, |_| String::new())?;
            }
        }
    }
}

fn format_entries(entries: &Value) -> String {
    let entries = entries.as_array().into_iter().flatten();
    entries
        .map(|it| {
            let at = clock::format_rfc3339(it["time"].as_i64().unwrap_or(0));
            let (kind, text) = (text_of(it, "kind"), text_of(it, "text"));
            format!("{at} {kind:<8} {}\n", terminal::one_line(&text))
        })
        .collect()
}

/// Waits for `work`, which connects a server, and shows what its program writes meanwhile:
/// npx, for example, says what it downloads.
pub(super) async fn show_while<T>(
    hub: &HubClient,
    name: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut log = ServerLogReader::new(hub, name, "log");
    let mut progress = ProgressLine::new();
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = time::sleep(POLL_INTERVAL) => (),
        }
        progress.show(&format!("connecting {name}"));
        // Until it is registered, it has no log.
        let entries = log.read_new().await.unwrap_or_default();
        for entry in entries.iter().filter(|it| it["kind"] == "stderr") {
            progress.print_above(&text_of(entry, "text"));
        }
    }
}
