//! `maru runs`: the recorded runs of the agent.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    client::HubClient, context::CliContext, serve::block_on, servers::percent_encode,
    suggestion::did_you_mean, terminal,
};

#[derive(Debug, Args)]
pub(super) struct RunsArgs {
    #[command(subcommand)]
    action: Option<RunsAction>,
}

#[derive(Debug, Subcommand)]
enum RunsAction {
    /// List the runs, newest first (the default)
    List,
    /// Show the rounds, calls and the answer of a run
    Show {
        /// The id of the run
        id: String,
    },
}

const RUNS_ROUTE: &str = "/api/runs";

pub(super) fn run(context: &CliContext, options: &RunsArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        match options.action.as_ref().unwrap_or(&RunsAction::List) {
            RunsAction::List => {
                let runs = hub.request_json("GET", RUNS_ROUTE, None).await?;
                context.print(&runs, format_runs)?;
            }
            RunsAction::Show { id } => {
                let path = format!("{RUNS_ROUTE}/{}", percent_encode(id));
                let (status, run) = hub.send_rest("GET", &path, None).await?;
                match status {
                    200 => context.print(&run, format_run)?,
                    404 => {
                        let runs = hub.request_json("GET", RUNS_ROUTE, None).await?;
                        let ids = runs.as_array().into_iter().flatten();
                        let ids = ids.filter_map(|it| it["id"].as_str());
                        bail!(
                            "there is no run {id:?}{}; see maru runs",
                            did_you_mean(id, ids)
                        );
                    }
                    _ => bail!("{}", hub.refusal(status, &run)),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn format_runs(runs: &Value) -> String {
    if runs.as_array().is_some_and(Vec::is_empty) {
        return "no run is recorded; ask something with: maru chat\n".to_owned();
    }
    let header = [
        "ID", "STARTED", "STATE", "MODEL", "ROUNDS", "CALLS", "QUESTION",
    ];
    terminal::table(&header, runs, |it| {
        let names = [
            "id",
            "started_at",
            "state",
            "model",
            "rounds",
            "calls",
            "question",
        ];
        names.map(|name| terminal::text_of(it, name)).to_vec()
    })
}

fn format_run(run: &Value) -> String {
    let mut text = String::new();
    for name in ["question", "model", "state", "started_at", "ended_at"] {
        text.push_str(&format!("{name}: {}\n", terminal::text_of(run, name)));
    }
    for (index, round) in run["rounds"].as_array().into_iter().flatten().enumerate() {
        text.push_str(&format!("\nround {}\n", index + 1));
        let said = terminal::text_of(round, "text");
        if !said.is_empty() {
            text.push_str(&format!("{said}\n"));
        }
        for call in round["calls"].as_array().into_iter().flatten() {
            let outcome = if call["is_error"] == true {
                "failed"
            } else {
                "ok"
            };
            text.push_str(&format!(
                "[call] {} {}\n[{outcome}, {} ms] {}\n",
                terminal::text_of(call, "name"),
                call["arguments"],
                call["ms"],
                terminal::text_of(call, "result")
            ));
        }
    }
    for name in ["answer", "error"] {
        let value = match &run[name] {
            Value::Object(error) => error.get("message").cloned().unwrap_or_default(),
            other => other.clone(),
        };
        if let Some(value) = value.as_str() {
            text.push_str(&format!("\n{name}: {value}\n"));
        }
    }
    text
}
