//! The command line.

mod audit;
mod call;
mod chat;
mod client;
mod config;
mod console;
mod hub_endpoint;
mod index;
mod logging;
mod models;
mod serve;
mod servers;
mod terminal;
mod token;
mod tools;
mod yaml;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::{
    config::{LoadOptions, LoadedConfig, load, process_environment},
    upstream::warden,
};

/// Joins every model, client and tool through the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(name = "maru", version, about, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    settings: GlobalFlags,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

/// Flags that every command knows.
#[derive(Debug, Args)]
struct GlobalFlags {
    /// Where the hub listens, or which hub `tools` and `call` ask [default: 127.0.0.1:20006]
    #[arg(long, global = true, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Where maru keeps its data [default: ~/.local/share/maru]
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Settings file [default: maru.yaml here, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Start the hub; this is what maru does without a command
    Serve,
    /// Speak MCP over stdin and stdout, for clients that start their servers
    Stdio,
    /// List the tools available
    Tools(tools::ToolsArgs),
    /// Call a tool and print its result; the exit code tells whether it succeeded
    Call(call::CallArgs),
    /// List the models that clients may ask for
    Models(models::ModelsArgs),
    /// Talk with a model that uses the hub's tools
    Chat(chat::ChatArgs),
    /// Manage the MCP servers whose tools the running hub offers
    Servers(servers::ServersArgs),
    /// Manage the tokens with which clients come in
    Token(token::TokenArgs),
    /// Show who did what
    Audit(audit::AuditArgs),
    /// Manage the documents that similarity search finds
    Index(index::IndexArgs),
    /// Start a program that ends with the hub; maru does this by itself
    #[command(hide = true)]
    Child {
        /// The hub's process id
        hub: u32,
        #[command(flatten)]
        bounds: warden::WardenArgs,
        /// The program and its arguments
        #[arg(last = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Print a link that signs in to the web console of the running hub, once
    Console,
    /// Show the settings in force and where each comes from
    Config(config::ConfigArgs),
}

const EXAMPLES: &str = "Examples:
  maru                                              start the hub on 127.0.0.1:20006
  maru tools                                        what can be called
  maru servers add files -- npx -y @modelcontextprotocol/server-filesystem /data
  maru call search_docs '{\"query\":\"연차\"}'          call a tool
  maru --listen 127.0.0.1:0 --data-dir /tmp/maru    any free port, data of its own
  maru config                                       settings and where they come from
  claude mcp add maru -- maru stdio                 offer everything to a client";

/// Nothing can be done: wrong settings, or a tool that does not exist.
const EXIT_CANNOT_RUN: u8 = 2;

/// Runs the command; the exit code is 0, 1 when a tool failed, or 2 when
/// nothing could be done.
pub fn run() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            terminal::print_error(&format!("{error:#}"));
            ExitCode::from(EXIT_CANNOT_RUN)
        }
    }
}

impl Cli {
    fn run(self) -> Result<ExitCode> {
        // Before anything else is read: it runs in the environment of a server.
        if let Some(CliCommand::Child {
            hub,
            bounds,
            command,
        }) = &self.command
        {
            return Ok(ExitCode::from(warden::run(*hub, bounds, command)?));
        }
        // What a program leaves behind by killing its warden comes to us.
        warden::adopt_orphans();
        let loaded = self.settings.load()?;
        match self.command.unwrap_or(CliCommand::Serve) {
            CliCommand::Serve => serve::serve_hub(loaded, || self.settings.load()),
            CliCommand::Stdio => serve::serve_stdio(loaded.config),
            CliCommand::Tools(options) => tools::run(loaded, &options),
            CliCommand::Call(options) => call::run(loaded, &options),
            CliCommand::Models(options) => models::run(loaded, &options),
            CliCommand::Chat(options) => chat::run(&loaded, &options),
            CliCommand::Servers(options) => servers::run(&loaded, &options),
            CliCommand::Token(options) => token::run(&loaded, &options),
            CliCommand::Audit(options) => audit::run(&loaded, &options),
            CliCommand::Index(options) => index::run(&loaded, &options),
            CliCommand::Console => console::run(&loaded),
            CliCommand::Config(options) => config::run(&loaded, &options),
            CliCommand::Child { .. } => Ok(ExitCode::from(EXIT_CANNOT_RUN)),
        }
    }
}

impl GlobalFlags {
    fn load(&self) -> Result<LoadedConfig> {
        let mut flags = Vec::new();
        if let Some(listen) = &self.listen {
            flags.push(("/listen", listen.clone()));
        }
        if let Some(directory) = &self.data_dir {
            flags.push(("/data_dir", directory.display().to_string()));
        }
        let given = LoadOptions {
            file: self.config.clone(),
            directory: PathBuf::from("."),
            environment: process_environment(),
            flags,
        };
        let mut loaded = load(&given)?;
        // Also when the file was replaced since: this very program.
        loaded.config.warden = Some(PathBuf::from("/proc/self/exe")).filter(|it| it.exists());
        Ok(loaded)
    }
}
