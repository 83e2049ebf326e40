//! `maru doctor`: checks what maru needs and says what to do.

use std::{env, fs, net::TcpListener, path::Path, process::ExitCode};

use anyhow::Result;
use maru_runtime::{clock, permissions::mode_of};
use serde_json::{Value, json};

use super::{client::HubClient, context::CliContext, serve::block_on, terminal};

/// Free disk space below which the doctor warns.
const MIN_FREE_BYTES: u64 = 256 << 20;
/// A clock that differs more makes tokens and certificates expire early or late.
const MAX_CLOCK_DIFFERENCE_S: i64 = 30;
/// Programs that most servers are started with.
const SERVER_PROGRAMS: [&str; 3] = ["npx", "uvx", "docker"];

/// One check and what it found.
struct DoctorFinding {
    check: &'static str,
    state: DoctorState,
    detail: String,
    /// What to do.
    advice: String,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum DoctorState {
    Good,
    Warning,
    Failed,
}

pub(super) fn run(context: &CliContext) -> Result<ExitCode> {
    let mut findings = check_machine(context);
    block_on(async {
        check_hub(context, &mut findings).await;
        Ok(())
    })?;
    let failed = findings.iter().any(|it| it.state == DoctorState::Failed);
    let value: Value = findings.iter().map(DoctorFinding::to_json).collect();
    context.print(&value, |_| format_findings(&findings))?;
    Ok(ExitCode::from(u8::from(failed)))
}

/// Checks that need no hub.
fn check_machine(context: &CliContext) -> Vec<DoctorFinding> {
    let directory = &context.config().data_dir;
    let mut findings = vec![check_directory(directory), check_disk(directory)];
    findings.extend(check_private_file(&directory.join("admin-token")));
    findings.extend(SERVER_PROGRAMS.map(check_program));
    findings
}

fn check_directory(directory: &Path) -> DoctorFinding {
    let shown = directory.display();
    let check = "data directory";
    match fs::metadata(directory) {
        Err(_) => DoctorFinding::good(check, format!("{shown} will be made at the first start")),
        Ok(metadata) if !metadata.is_dir() => DoctorFinding::failed(
            check,
            format!("{shown} is not a directory"),
            "choose another with --data-dir DIR",
        ),
        Ok(metadata) if belongs_to_another_user(&metadata) => DoctorFinding::failed(
            check,
            format!("{shown} belongs to another user"),
            "start maru as that user, or choose another with --data-dir DIR",
        ),
        Ok(metadata) if mode_of(&metadata) & 0o022 != 0 => DoctorFinding::warning(
            check,
            format!("other users can write to {shown}"),
            &format!("run: chmod go-w {shown}"),
        ),
        Ok(_) => DoctorFinding::good(check, shown.to_string()),
    }
}

fn check_disk(directory: &Path) -> DoctorFinding {
    let existing = directory.ancestors().find(|it| it.exists());
    let check = "disk";
    let Some(free) = existing.and_then(free_bytes) else {
        return DoctorFinding::warning(check, "free space is unknown".to_owned(), "");
    };
    let detail = format!("{} MiB free", free >> 20);
    if free < MIN_FREE_BYTES {
        DoctorFinding::warning(check, detail, "free some space, or move --data-dir")
    } else {
        DoctorFinding::good(check, detail)
    }
}

#[cfg(unix)]
fn belongs_to_another_user(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    metadata.uid() != rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn belongs_to_another_user(_metadata: &fs::Metadata) -> bool {
    false
}

#[cfg(unix)]
fn free_bytes(directory: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(directory).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_directory: &Path) -> Option<u64> {
    None
}

/// Whether other users can read a file with a secret.
fn check_private_file(file: &Path) -> Option<DoctorFinding> {
    let mode = mode_of(&fs::metadata(file).ok()?);
    let (check, shown) = ("admin token", file.display());
    Some(if mode & 0o077 == 0 {
        DoctorFinding::good(check, format!("{shown} is private"))
    } else {
        DoctorFinding::failed(
            check,
            format!("other users can read {shown}"),
            &format!("run: chmod 600 {shown}"),
        )
    })
}

fn check_program(program: &'static str) -> DoctorFinding {
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).map(|it| it.join(program));
    match found.into_iter().find(|it| it.is_file()) {
        Some(path) => DoctorFinding::good(program, path.display().to_string()),
        None => DoctorFinding::warning(
            program,
            "is not installed".to_owned(),
            match program {
                "npx" => "install Node.js for servers that are started with npx",
                "uvx" => "install uv for servers that are started with uvx",
                _ => "install Docker for servers that are started with docker",
            },
        ),
    }
}

async fn check_hub(context: &CliContext, findings: &mut Vec<DoctorFinding>) {
    let hub = match HubClient::find(context) {
        Ok(Some(hub)) => hub,
        Ok(None) => {
            findings.push(DoctorFinding::warning(
                "hub",
                "no hub runs on this data directory".to_owned(),
                "start one with: maru",
            ));
            findings.push(check_port(context));
            return;
        }
        Err(error) => {
            findings.push(DoctorFinding::failed("hub", format!("{error:#}"), ""));
            return;
        }
    };
    match hub.send_rest("GET", "/readyz", None).await {
        Err(error) => {
            findings.push(DoctorFinding::failed("hub", format!("{error:#}"), ""));
            return;
        }
        Ok((200, ready)) => {
            findings.push(DoctorFinding::good(
                "hub",
                format!(
                    "{} is {}",
                    hub.origin(),
                    terminal::text_of(&ready, "status")
                ),
            ));
        }
        Ok((status, response)) => {
            let reason = terminal::text_of(&response, "reason");
            let reason = if reason.is_empty() {
                hub.refusal(status, &response)
            } else {
                reason
            };
            findings.push(DoctorFinding::failed(
                "hub",
                format!("{} is not ready: {reason}", hub.origin()),
                "read the log of the hub",
            ));
        }
    }
    check_clock(&hub, findings).await;
    check_servers(&hub, findings).await;
    check_sources(&hub, findings).await;
    check_models(&hub, findings).await;
}

fn check_port(context: &CliContext) -> DoctorFinding {
    let address = context.config().listen;
    match TcpListener::bind(address) {
        Ok(_) => DoctorFinding::good("port", format!("{address} is free")),
        Err(error) => DoctorFinding::failed(
            "port",
            format!("{address} cannot be used: {error}"),
            "stop the program that uses it, or choose another with --port PORT",
        ),
    }
}

async fn check_clock(hub: &HubClient, findings: &mut Vec<DoctorFinding>) {
    let Ok(Some(there)) = hub.clock().await else {
        return;
    };
    let difference = (clock::now_ms() / 1000 - there).abs();
    findings.push(if difference > MAX_CLOCK_DIFFERENCE_S {
        DoctorFinding::warning(
            "clock",
            format!("differs by {difference} s from the hub's"),
            "set the time on both machines",
        )
    } else {
        DoctorFinding::good("clock", "agrees with the hub's".to_owned())
    });
}

async fn check_servers(hub: &HubClient, findings: &mut Vec<DoctorFinding>) {
    let servers = hub.request_json("GET", "/api/mcp/servers", None).await;
    let healthy = check_list(findings, "server", servers, |server| {
        let name = terminal::text_of(server, "name");
        (server["status"] == "FAILED").then(|| {
            (
                DoctorState::Failed,
                terminal::text_of(server, "cause"),
                format!("see maru servers logs {name}; then maru servers restart {name}"),
            )
        })
    });
    findings.extend(healthy.map(|count| {
        let count = terminal::count_of(count, "server", "servers");
        DoctorFinding::good("servers", format!("{count}, none failed"))
    }));
}

async fn check_sources(hub: &HubClient, findings: &mut Vec<DoctorFinding>) {
    let sources = hub.request_json("GET", "/api/sources", None).await;
    let healthy = check_list(findings, "source", sources, |source| {
        let fault = source["fault"].as_str()?;
        Some((
            DoctorState::Failed,
            fault.to_owned(),
            "start the database, or correct the settings of the source".to_owned(),
        ))
    });
    findings.extend(healthy.map(|count| {
        let count = terminal::count_of(count, "source", "sources");
        DoctorFinding::good("sources", format!("{count}, none failed"))
    }));
}

async fn check_models(hub: &HubClient, findings: &mut Vec<DoctorFinding>) {
    let models = hub.request_json("GET", "/api/models", None).await;
    check_list(findings, "model", models, |model| {
        if let Some(fault) = model["fault"].as_str() {
            let advice = "correct the model under Settings, Models in the console".to_owned();
            return Some((DoctorState::Failed, fault.to_owned(), advice));
        }
        let failures = model["consecutive_failures"].as_u64().unwrap_or(0);
        let failures = usize::try_from(failures).unwrap_or(usize::MAX);
        (failures > 0).then(|| {
            let backend = terminal::text_of(model, "backend");
            let requests = terminal::count_of(failures, "request", "requests");
            let found = format!("the last {requests} to {backend} failed");
            let advice = "check that the backend runs, and its base_url and api_key".to_owned();
            (DoctorState::Warning, found, advice)
        })
    });
    findings.push(match hub.request_json("GET", "/v1/models", None).await {
        Err(error) => DoctorFinding::failed("models", format!("{error:#}"), ""),
        Ok(models) => match models["data"].as_array().map_or(0, Vec::len) {
            0 => DoctorFinding::warning(
                "models",
                "no model is available".to_owned(),
                "start Ollama, or add models to maru.yaml (docs/models.md)",
            ),
            count => DoctorFinding::good("models", terminal::count_of(count, "model", "models")),
        },
    });
}

/// Adds what is wrong with the entries of a list of the hub; returns their number if nothing
/// is. `problem` returns the state, what was found and what to do.
fn check_list(
    findings: &mut Vec<DoctorFinding>,
    check: &'static str,
    list: Result<Value>,
    problem: impl Fn(&Value) -> Option<(DoctorState, String, String)>,
) -> Option<usize> {
    let list = match list {
        Ok(list) => list,
        Err(error) => {
            findings.push(DoctorFinding::failed(check, format!("{error:#}"), ""));
            return None;
        }
    };
    let entries = list.as_array().map_or(&[][..], Vec::as_slice);
    let before = findings.len();
    findings.extend(entries.iter().filter_map(|it| {
        let (state, found, advice) = problem(it)?;
        let found = format!("{}: {found}", terminal::text_of(it, "name"));
        Some(DoctorFinding::new(check, state, found, &advice))
    }));
    (findings.len() == before).then_some(entries.len())
}

impl DoctorFinding {
    fn new(check: &'static str, state: DoctorState, detail: String, advice: &str) -> Self {
        Self {
            check,
            state,
            detail,
            advice: advice.to_owned(),
        }
    }

    fn good(check: &'static str, detail: String) -> Self {
        Self::new(check, DoctorState::Good, detail, "")
    }

    fn warning(check: &'static str, detail: String, advice: &str) -> Self {
        Self::new(check, DoctorState::Warning, detail, advice)
    }

    fn failed(check: &'static str, detail: String, advice: &str) -> Self {
        Self::new(check, DoctorState::Failed, detail, advice)
    }

    fn to_json(&self) -> Value {
        json!({"check": self.check, "state": self.state.name(), "detail": self.detail, "advice": self.advice})
    }
}

impl DoctorState {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

fn format_findings(findings: &[DoctorFinding]) -> String {
    let header = ["CHECK", "STATE", "FOUND", "WHAT TO DO"].map(str::to_owned);
    let rows = findings.iter().map(|it| {
        vec![
            it.check.to_owned(),
            it.state.name().to_owned(),
            it.detail.clone(),
            it.advice.clone(),
        ]
    });
    terminal::format_wrapped_table(
        &std::iter::once(header.to_vec())
            .chain(rows)
            .collect::<Vec<_>>(),
    )
}
