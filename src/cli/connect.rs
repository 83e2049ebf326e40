//! `maru connect`: shows or writes what a client needs to use this hub.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use maru_connect::{
    ClientFile, ClientGuide, ConnectMethod, ConnectSection, HubTarget, MODEL_PLACEHOLDER,
    OperatingSystem, TOKEN_PLACEHOLDER, client_guides, client_ids,
};
use maru_runtime::clock;
use serde_json::{Value, json};

use super::{
    client::HubClient, context::CliContext, serve::block_on, suggestion::did_you_mean, terminal,
};
use crate::config::process_environment;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru connect --list                       clients on this machine
  maru connect cursor                       what to put where
  maru connect claude-desktop --write       put it there; the old file is kept beside it
  maru connect vscode --write --token       with a new token
  maru connect codex --write --models       use the hub's models, not its tools")]
pub(super) struct ConnectArgs {
    /// The client, as in `maru connect --list`
    #[arg(required_unless_present = "list")]
    client: Option<String>,
    /// List the clients, and which are installed and connected
    #[arg(long, conflicts_with_all = ["write", "models"])]
    list: bool,
    /// Add maru to the client's own file; a copy of the file is kept
    #[arg(long)]
    write: bool,
    /// Only the models of the hub, not its tools
    #[arg(long)]
    models: bool,
    /// The model that the client should use [default: the first of the hub]
    #[arg(long)]
    model: Option<String>,
    /// Send a token: a new one, or TOKEN
    // The id is that of the global option, which this one replaces here.
    #[arg(long, num_args = 0..=1, default_missing_value = "", value_name = "TOKEN")]
    token: Option<String>,
}

const TOKEN_ADVICE: &str = "this hub requires a token; add --token to make one, or --token TOKEN";
/// How many names are tried for a new token.
const MAX_TOKEN_NAMES: u32 = 50;

pub(super) fn run(context: &CliContext, options: &ConnectArgs) -> Result<ExitCode> {
    block_on(async {
        let hub = HubClient::find(context)?;
        if options.list {
            let target = hub_target(context, hub.as_ref(), options).await;
            return list_clients(context, &target);
        }
        let id = options.client.as_deref().unwrap_or_default();
        if !client_ids().any(|it| it == id) {
            bail!(
                "there is no client {id:?}{}; see maru connect --list",
                did_you_mean(id, client_ids())
            );
        }
        let mut target = hub_target(context, hub.as_ref(), options).await;
        let makes_token = options.token.as_deref() == Some("");
        if options.write {
            // Whatever stops the write is found before a token is made for it.
            let guide = guide_of(id, &target)?;
            let file = file_of(&guide, options.models)?;
            check_values(&file.text(), makes_token)?;
            merge(file)?;
        }
        if makes_token {
            target.token = Some(create_token(hub.as_ref(), id).await?);
        }
        let guide = guide_of(id, &target)?;
        if options.write {
            return write_file(context, &guide, options.models);
        }
        let shown = serde_json::to_value(&guide)?;
        context.print(&shown, |_| format_guide(&guide, options.models))?;
        if target.token.as_deref() == Some(TOKEN_PLACEHOLDER) {
            terminal::print_note(TOKEN_ADVICE);
        }
        if hub.is_none() {
            terminal::print_note("no hub runs now; these settings are for one with these settings");
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn guide_of(id: &str, target: &HubTarget) -> Result<ClientGuide> {
    let mut guides = client_guides(target).into_iter();
    guides
        .find(|it| it.id == id)
        .context("the table of clients lacks this client")
}

/// The hub that clients should use: the one that runs, or the one that these settings start.
async fn hub_target(
    context: &CliContext,
    hub: Option<&HubClient>,
    options: &ConnectArgs,
) -> HubTarget {
    let config = context.config();
    let path = "/api/connect";
    let page = match hub {
        Some(hub) => hub.send_rest("GET", path, None).await.ok(),
        None => None,
    };
    let (requires_token, known_model) = match &page {
        Some((200, page)) => (page["requiresToken"] == true, page["model"].as_str()),
        Some(_) => (true, None),
        None => (config.requires_token(), None),
    };
    let is_own = hub.is_none_or(HubClient::is_own);
    let scheme = if config.tls.certificate.is_some() {
        "https"
    } else {
        "http"
    };
    let given = options.token.clone().filter(|it| !it.is_empty());
    HubTarget {
        origin: reachable_origin(&hub.map_or_else(
            || format!("{scheme}://{}", config.listen),
            |hub| hub.origin().to_owned(),
        )),
        program: is_own.then(|| config.command_words()),
        token: given.or_else(|| requires_token.then(|| TOKEN_PLACEHOLDER.to_owned())),
        model: options
            .model
            .as_deref()
            .or(known_model)
            .unwrap_or(MODEL_PLACEHOLDER)
            .to_owned(),
    }
}

/// `origin` as a client on this machine reaches it: a hub that listens on every address is at
/// the loopback one.
fn reachable_origin(origin: &str) -> String {
    let loopback = [("://0.0.0.0:", "://127.0.0.1:"), ("://[::]:", "://[::1]:")];
    let listens_everywhere = loopback.iter().find(|(every, _)| origin.contains(every));
    match listens_everywhere {
        Some((every, own)) => origin.replacen(every, own, 1),
        None => origin.to_owned(),
    }
}

/// Creates a token of role agent that is named after the client.
async fn create_token(hub: Option<&HubClient>, client: &str) -> Result<String> {
    let hub = hub.context("a token is made by the running hub; start it with: maru")?;
    for number in 1..=MAX_TOKEN_NAMES {
        let name = if number == 1 {
            client.to_owned()
        } else {
            format!("{client}-{number}")
        };
        let body = json!({"name": name, "role": "agent"});
        let (status, made) = hub.send_rest("POST", "/api/tokens", Some(&body)).await?;
        match (status, made["token"].as_str()) {
            (201, Some(token)) => {
                terminal::print_note(&format!(
                    "made the token {name} (role agent); maru token revoke {name} ends it"
                ));
                return Ok(token.to_owned());
            }
            (409, _) => (),
            _ => bail!("the token was not made: {}", hub.refusal(status, &made)),
        }
    }
    bail!("every name for a token of {client} is taken; see maru token list")
}

fn list_clients(context: &CliContext, target: &HubTarget) -> Result<ExitCode> {
    let rows: Vec<Value> = client_guides(target)
        .iter()
        .filter(|it| !it.traces.is_empty())
        .map(|guide| {
            let path = guide.mcp.file().map(|it| expand(it.paths.on(SYSTEM)));
            json!({
                "client": guide.id,
                "name": guide.title,
                "installed": guide.traces.iter().any(|it| is_installed(it)),
                "connected": guide.mcp.file().zip(path.as_ref()).map(|(file, path)| connection(file, path)),
                "file": path.map(|it| it.display().to_string()),
            })
        })
        .collect();
    context.print(&rows.into(), |rows| {
        let header = ["CLIENT", "NAME", "INSTALLED", "CONNECTED", "FILE"];
        terminal::table(&header, rows, |it| {
            let installed = if it["installed"] == true { "yes" } else { "" };
            vec![
                terminal::text_of(it, "client"),
                terminal::text_of(it, "name"),
                installed.to_owned(),
                terminal::text_of(it, "connected"),
                terminal::text_of(it, "file"),
            ]
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The names and titles of the clients on this machine whose file maru can write.
pub(super) fn installed_clients() -> Vec<(&'static str, &'static str)> {
    let target = HubTarget {
        origin: String::new(),
        program: None,
        token: None,
        model: MODEL_PLACEHOLDER.to_owned(),
    };
    client_guides(&target)
        .into_iter()
        .filter(|guide| guide.mcp.file().is_some())
        .filter(|guide| guide.traces.iter().any(|it| is_installed(it)))
        .map(|guide| (guide.id, guide.title))
        .collect()
}

const SYSTEM: OperatingSystem = OperatingSystem::current();

/// Whether the client's file has maru: with these settings, with others, or not.
fn connection(file: &ClientFile, path: &Path) -> &'static str {
    match fs::read_to_string(path) {
        Ok(text) if file.is_merged(&text) => "yes",
        Ok(text) if text.contains("\"maru\"") || text.contains(".maru]") => "other settings",
        _ => "",
    }
}

/// Whether a program on the search path, or a path, exists.
fn is_installed(trace: &str) -> bool {
    if trace.starts_with(['~', '%']) {
        return expand(trace).exists();
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|it| it.join(trace).is_file())
}

/// Replaces the home directory and variables, and the directories that clients move by
/// variables of their own.
fn expand(path: &str) -> PathBuf {
    let variables = process_environment();
    let moved = [
        ("CODEX_HOME", "~/.codex"),
        ("CLAUDE_CONFIG_DIR", "~/.claude"),
        ("XDG_CONFIG_HOME", "~/.config"),
    ];
    for (variable, directory) in moved {
        let place = variables.get(variable).filter(|it| !it.is_empty());
        let rest = path
            .strip_prefix(directory)
            .filter(|it| it.starts_with('/'));
        if let (Some(place), Some(rest)) = (place, rest) {
            return Path::new(place).join(rest.trim_start_matches('/'));
        }
    }
    if let Some((variable, rest)) = path.strip_prefix('%').and_then(|it| it.split_once('%')) {
        let place = variables.get(variable).cloned().unwrap_or_default();
        return PathBuf::from(format!("{place}{rest}"));
    }
    match (path.strip_prefix("~/"), variables.get("HOME")) {
        (Some(rest), Some(home)) => Path::new(home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// The file that maru can write.
fn file_of(guide: &ClientGuide, models: bool) -> Result<&ClientFile> {
    let section = section_of(guide, models);
    let Some(file) = section.file() else {
        terminal::print(&format_section(section))?;
        bail!(
            "{} has no file that maru can write; do the above by hand",
            guide.title
        );
    };
    Ok(file)
}

/// Refuses settings in which a name stands for what is not known: the client would look
/// connected and be refused by the hub.
fn check_values(settings: &str, makes_token: bool) -> Result<()> {
    if !makes_token && settings.contains(TOKEN_PLACEHOLDER) {
        bail!("nothing is written: {TOKEN_ADVICE}");
    }
    if settings.contains(MODEL_PLACEHOLDER) {
        bail!("nothing is written: the hub has no model; name one with --model NAME");
    }
    Ok(())
}

/// A client's file before and after it is changed.
struct FileChange {
    path: PathBuf,
    old: Option<String>,
    merged: String,
}

/// Reads the client's file and adds maru to its text.
fn merge(file: &ClientFile) -> Result<FileChange> {
    let path = expand(file.paths.on(SYSTEM));
    let shown = path.display();
    let old = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(anyhow!(error)).with_context(|| format!("cannot read {shown}")),
    };
    let merged = file
        .merge(old.as_deref().unwrap_or_default())
        .with_context(|| format!("{shown} is not changed"))?;
    Ok(FileChange { path, old, merged })
}

fn write_file(context: &CliContext, guide: &ClientGuide, models: bool) -> Result<ExitCode> {
    let FileChange { path, old, merged } = merge(file_of(guide, models)?)?;
    let shown = path.display();
    let backup = match &old {
        Some(old) if *old == merged => None,
        Some(old) => Some(keep_copy(&path, old)?),
        None => None,
    };
    let changed = old.as_ref() != Some(&merged);
    if changed {
        replace_file(&path, &merged).with_context(|| format!("cannot write {shown}"))?;
    }
    let done = json!({
        "client": guide.id,
        "file": path,
        "changed": changed,
        "backup": backup,
    });
    context.print(&done, |_| {
        if !changed {
            return format!("{shown} has maru already; nothing is changed\n");
        }
        let kept = backup.map_or(String::new(), |it| {
            format!("the old file is {}\n", it.display())
        });
        let next = format!("start {} again to use it\n", guide.title);
        format!("maru is added to {shown}\n{kept}{next}")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn keep_copy(path: &Path, text: &str) -> Result<PathBuf> {
    let now = clock::format_rfc3339(clock::now_ms());
    let now: String = now.chars().filter(char::is_ascii_digit).take(14).collect();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".before-maru-{now}"));
    let copy = path.with_file_name(name);
    replace_file(&copy, text).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy)
}

/// Writes a file whole or not at all. It may contain a token, so a new one is private; an
/// old one keeps its permissions, and a link stays a link.
fn replace_file(path: &Path, text: &str) -> Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().context("the path has no directory")?;
    fs::create_dir_all(directory)?;
    let file = tempfile::NamedTempFile::new_in(directory)?;
    fs::write(file.path(), text)?;
    if let Ok(metadata) = fs::metadata(&path) {
        fs::set_permissions(file.path(), metadata.permissions())?;
    }
    file.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

fn section_of(guide: &ClientGuide, models: bool) -> &ConnectSection {
    if models { &guide.models } else { &guide.mcp }
}

fn format_guide(guide: &ClientGuide, models: bool) -> String {
    let tools = format!("# Tools in {}\n{}", guide.title, format_section(&guide.mcp));
    let of_models = format!(
        "# Models in {}\n{}",
        guide.title,
        format_section(&guide.models)
    );
    if models {
        of_models
    } else {
        format!("{tools}\n{of_models}")
    }
}

fn format_section(section: &ConnectSection) -> String {
    let mut text = String::new();
    for (index, method) in section.methods.iter().enumerate() {
        let or = if index > 0 { "or " } else { "" };
        let (place, body) = match method {
            ConnectMethod::File(file) => {
                let path = expand(file.paths.on(SYSTEM));
                (format!("in {}", path.display()), file.text())
            }
            ConnectMethod::Command { text } => ("run once".to_owned(), text.clone()),
            ConnectMethod::Environment { text } => ("in a terminal".to_owned(), text.clone()),
            ConnectMethod::Settings { place, text } => {
                (format!("under {}", place.en), text.clone())
            }
        };
        text.push_str(&format!("{or}{place}:\n\n{}\n\n", body.trim_end()));
    }
    if let Some(link) = &section.install_link {
        text.push_str(&format!("or open this link:\n\n{link}\n\n"));
    }
    if let Some(note) = &section.note {
        text.push_str(&format!("{}\n", note.en));
    }
    format!("{}\n", text.trim_end())
}
