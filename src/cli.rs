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
mod usage;
mod yaml;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::{
    config::{LoadOptions, LoadedConfig, load, process_environment},
    upstream::warden,
};

/// Puts your MCP servers, databases and models behind one local address.
#[derive(Debug, Parser)]
#[command(name = "maru", version, about, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    settings: GlobalFlags,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

/// Flags of all commands.
#[derive(Debug, Args)]
struct GlobalFlags {
    /// Address that the hub listens on, or of the hub to use [default: 127.0.0.1:20006]
    #[arg(long, global = true, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Directory of maru's data [default: ~/.local/share/maru]
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Let every program on this machine act as admin without a token (loopback only)
    #[arg(long, global = true)]
    local_admin: bool,
    /// Settings file [default: maru.yaml in the current directory, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Start the hub (the default command)
    Serve,
    /// Serve MCP over stdin and stdout, for clients that start their servers
    Stdio,
    /// List the available tools
    Tools(tools::ToolsArgs),
    /// Call a tool and print its result; the exit code is 1 if the tool failed
    Call(call::CallArgs),
    /// List the available models
    Models(models::ModelsArgs),
    /// Chat with a model that uses the hub's tools
    Chat(chat::ChatArgs),
    /// Manage the MCP servers of the running hub
    Servers(servers::ServersArgs),
    /// Manage access tokens
    Token(token::TokenArgs),
    /// Show what requests to models used and cost, and set budgets
    Usage(usage::UsageArgs),
    /// Show the audit log
    Audit(audit::AuditArgs),
    /// Manage the documents of similarity search
    Index(index::IndexArgs),
    /// Start a stdio server that ends with the hub (internal)
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
    /// Print a one-time link that signs in to the web console of the running hub
    Console,
    /// Show the current settings and where each was set
    Config(config::ConfigArgs),
}

const EXAMPLES: &str = "Examples:
  maru                                              start the hub on 127.0.0.1:20006
  maru tools                                        list the available tools
  maru servers add files -- npx -y @modelcontextprotocol/server-filesystem /data
  maru call search_docs '{\"query\":\"연차\"}'          call a tool
  maru --listen 127.0.0.1:0 --data-dir /tmp/maru    use any free port and another data directory
  maru config                                       show settings and where they were set
  claude mcp add maru -- maru stdio                 add maru to a client";

/// The exit code if maru could not run the command: bad arguments or settings, no hub, an
/// unknown tool.
const EXIT_CANNOT_RUN: u8 = 2;

/// Runs the command of the process arguments. The exit code is 0 for success, 1 if a tool
/// failed, or 2 if maru could not run the command.
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
        // Handled before any settings are read, because it runs in a server's environment.
        if let Some(CliCommand::Child {
            hub,
            bounds,
            command,
        }) = &self.command
        {
            return Ok(ExitCode::from(warden::run(*hub, bounds, command)?));
        }
        // Processes of a program that killed its warden become children of the hub.
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
            CliCommand::Usage(options) => usage::run(&loaded, &options),
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
        if self.local_admin {
            flags.push(("/local_admin", "true".to_owned()));
        }
        let options = LoadOptions {
            file: self.config.clone(),
            directory: PathBuf::from("."),
            environment: process_environment(),
            flags,
        };
        let mut loaded = load(&options)?;
        // This path is the running binary, even if its file has been replaced.
        loaded.config.warden = Some(PathBuf::from("/proc/self/exe")).filter(|it| it.exists());
        Ok(loaded)
    }
}
