//! `maru servers add`.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{
    super::{
        client::HubClient,
        context::CliContext,
        limits::names_of,
        terminal::{self, text_of},
    },
    SERVERS_ROUTE, allowed_host, server_log,
    server_text::format_status,
    wait_for_connection,
};
use crate::upstream::ServerDraft;

/// The arguments of `maru servers add`.
#[derive(Debug, Args)]
pub(super) struct AddServer {
    /// The name of the server: a-z, 0-9, - and _
    pub(super) name: String,
    /// URL of a server that is reached over HTTP
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// The transport of the URL [default: sse if the URL ends in /sse, else http]
    #[arg(long, requires = "url")]
    transport: Option<RemoteTransport>,
    /// A header for every request, such as "Authorization: Bearer TOKEN"
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "url")]
    headers: Vec<String>,
    /// An environment variable of the program
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "url")]
    env: Vec<String>,
    /// Working directory of the program
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    cwd: Option<String>,
    /// Of the hubs that share a database, one runs the program for all
    #[arg(long, conflicts_with = "url")]
    single: bool,
    /// Description for people
    #[arg(long)]
    description: Option<String>,
    /// Required protocol version, such as 2025-06-18, for a server that fails in a version that it claims to support
    #[arg(long, value_name = "VERSION")]
    protocol_version: Option<String>,
    /// What happens to a tool whose definition changes: pin withholds it until you accept it, follow keeps it available
    #[arg(long, value_name = "pin|follow")]
    trust: Option<TrustChoice>,
    /// Allow the host of the URL first, where only the list of allowed hosts is in the way
    #[arg(long, requires = "url")]
    allow_host: bool,
    /// Replace the server of this name, after a test connection
    #[arg(long)]
    replace: bool,
    /// Keep the registration even if the server does not connect
    #[arg(long)]
    keep: bool,
    /// Register only; do not connect now or at start
    #[arg(long)]
    no_connect: bool,
    /// Start the program although it is a shell, runs code from its arguments, or similar
    #[arg(long, conflicts_with = "url")]
    accept_warnings: bool,
    /// The program of a stdio server and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RemoteTransport {
    /// HTTP+SSE
    Sse,
    /// Streamable HTTP
    Http,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TrustChoice {
    /// Withhold a changed tool until it is accepted
    Pin,
    /// Keep a changed tool available
    Follow,
}

impl AddServer {
    /// Registers the server. One that does not connect is removed again, unless it is to be
    /// kept.
    pub(super) async fn run(
        &self,
        context: &CliContext,
        hub: &HubClient,
        timeout: Duration,
    ) -> Result<ExitCode> {
        let body = self.request_body()?;
        let servers = hub.request_json("GET", SERVERS_ROUTE, None).await?;
        let exists = names_of(&servers, "name").contains(&self.name);
        if exists && !self.replace {
            bail!(
                "a server named {:?} exists already; --replace replaces it, maru servers edit {} changes it",
                self.name,
                self.name
            );
        }
        let path = format!("{SERVERS_ROUTE}/{}", self.name);
        if self.allow_host {
            allowed_host::allow_host_of(hub, self.url.as_deref().unwrap_or_default()).await?;
        }
        let work = async {
            if exists {
                self.test_connection(hub, &body).await?;
                let changed = hub.request_json("PUT", &path, Some(&body)).await?;
                return wait_for_connection(hub, changed, timeout).await;
            }
            let added = hub.request_json("POST", SERVERS_ROUTE, Some(&body)).await?;
            wait_for_connection(hub, added, timeout).await
        };
        let response = Box::pin(server_log::show_while(hub, &self.name, work)).await;
        let response = response.map_err(allowed_host::name_flag)?;
        if response["status"] == "FAILED" && !self.keep && !exists {
            hub.request_json("DELETE", &path, None).await?;
            let cause = text_of(&response, "cause");
            terminal::print_error(&format!(
                "{} is not added: {cause}; --keep registers it all the same",
                self.name
            ));
            return Ok(ExitCode::FAILURE);
        }
        context.print(&response, format_status)?;
        Ok(ExitCode::from(u8::from(response["status"] == "FAILED")))
    }

    /// Refuses to replace a server by one that does not connect.
    async fn test_connection(&self, hub: &HubClient, body: &Value) -> Result<()> {
        if self.keep || self.no_connect {
            return Ok(());
        }
        let tested = hub
            .request_json("POST", "/api/mcp/test", Some(body))
            .await?;
        if tested["ok"] != true {
            bail!(
                "{} is not replaced: {}; --keep replaces it all the same",
                self.name,
                text_of(&tested, "cause")
            );
        }
        Ok(())
    }

    fn request_body(&self) -> Result<Value> {
        let pairs = |texts: &[String], separator: char| -> Result<Map<String, Value>> {
            let pair = |it: &String| {
                let (name, value) = it
                    .split_once(separator)
                    .with_context(|| format!("{it:?} has no {separator:?}"))?;
                Ok((name.trim().to_owned(), Value::from(value.trim())))
            };
            texts.iter().map(pair).collect()
        };
        let (kind, config) = match (&self.url, self.command.split_first()) {
            (Some(url), None) => {
                let guessed = ServerDraft::from_url(&self.name, url).kind;
                let kind = match self.transport {
                    Some(RemoteTransport::Sse) => "SSE".to_owned(),
                    Some(RemoteTransport::Http) => "HTTP".to_owned(),
                    None => guessed.to_uppercase(),
                };
                (
                    kind,
                    json!({"url": url, "headers": pairs(&self.headers, ':')?}),
                )
            }
            (None, Some((command, args))) => {
                self.check_separate_words(command)?;
                let mut config =
                    json!({"command": command, "args": args, "env": pairs(&self.env, '=')?});
                if let Some(cwd) = &self.cwd {
                    config["cwd"] = cwd.as_str().into();
                }
                if self.single {
                    config["run"] = "single".into();
                }
                ("STDIO".to_owned(), config)
            }
            _ => bail!("name the server's URL or program: --url URL, or -- COMMAND ARGUMENTS"),
        };
        Ok(json!({
            "name": self.name,
            "description": self.description,
            "transportType": kind,
            "config": config,
            "autoConnect": !self.no_connect,
            "acceptWarnings": self.accept_warnings,
            "requiredProtocolVersion": self.protocol_version,
            "trust": self.trust.map(|it| match it {
                TrustChoice::Pin => "pin",
                TrustChoice::Follow => "follow",
            }),
        }))
    }

    /// Refuses a whole command line in quotes as the name of a program.
    fn check_separate_words(&self, command: &str) -> Result<()> {
        let is_line = self.command.len() == 1 && command.contains(char::is_whitespace);
        if is_line && !Path::new(command).exists() {
            bail!(
                "{command:?} is one word; write the program and its arguments as separate words: maru servers add {} -- {command}",
                self.name
            );
        }
        Ok(())
    }
}
