//! The command line.

mod audit;
mod call;
mod call_progress;
mod calls;
mod catalog_client;
mod chat;
mod client;
mod config;
mod connect;
mod console;
mod context;
mod doctor;
mod first_start;
mod hub_endpoint;
mod index;
mod known_names;
mod limits;
mod listen_address;
mod logging;
mod manual;
mod models;
mod reference;
mod remote_hub;
mod runs;
mod serve;
mod servers;
mod service;
mod service_manager;
#[cfg_attr(windows, path = "cli/signals_windows.rs")]
mod signals;
mod status;
mod store;
mod suggestion;
mod terminal;
mod token;
mod tools;
mod toolsets;
mod transfer;
mod usage;
mod yaml;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

pub use self::reference::reference_markdown;

use self::context::{CliContext, OutputFormat};
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
#[command(next_help_heading = "Global options")]
#[expect(
    clippy::doc_markdown,
    reason = "clap prints these comments as they are"
)]
struct GlobalFlags {
    /// Use the hub at this address, such as https://hub.example:20006 [env: MARU_HUB]
    #[arg(long, global = true, value_name = "URL")]
    hub: Option<String>,
    /// Token for the hub [env: MARU_TOKEN] [default: the admin token of the data directory, for its own hub]
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,
    /// Format of what is printed
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        hide_default_value = true
    )]
    output: OutputFormat,
    /// Same as -o json
    #[arg(long, global = true)]
    json: bool,
    /// Address that the hub listens on, or of the hub to use: ADDR:PORT, localhost:PORT or :PORT [default: 127.0.0.1:20006]
    #[arg(long, global = true, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Same as --listen 127.0.0.1:PORT
    #[arg(long, global = true, value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,
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
    Stdio(serve::StdioArgs),
    /// List the available tools
    Tools(tools::ToolsArgs),
    /// Manage named selections of tools
    Toolsets(toolsets::ToolsetsArgs),
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
    /// Show the kept calls of tools, and why they failed
    Calls(calls::CallsArgs),
    /// Manage the documents of similarity search
    Index(index::IndexArgs),
    /// Start a stdio server that ends with the hub (internal)
    #[command(hide = true)]
    Child {
        /// The hub's process id
        // Another id than that of `--hub`.
        #[arg(value_name = "HUB")]
        parent: u32,
        #[command(flatten)]
        bounds: warden::WardenArgs,
        /// The program and its arguments
        #[arg(last = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Show or write what a client needs to use this hub
    Connect(connect::ConnectArgs),
    /// Print a one-time link that signs in to the web console of the running hub
    Console,
    /// Run the hub as a service that starts by itself (systemd)
    Service(service::ServiceArgs),
    /// Show the hub, its servers, tools and models
    Status,
    /// Check hub, servers, sources, models, port, files and clock, and say what to do
    Doctor,
    /// Manage the limits of calls per day and minute
    Limits(limits::LimitsArgs),
    /// Show runs of the agent
    Runs(runs::RunsArgs),
    /// Show the current settings and where each was set
    Config(config::ConfigArgs),
    /// Write servers, custom tools, sources, limits and switches into one file
    Export(transfer::ExportArgs),
    /// Import a file of maru export or of an MCP client, or say what would change
    Import(transfer::ImportArgs),
    /// Copy everything of the store into a file, also while hubs run
    Backup(store::BackupArgs),
    /// Fill the store from a file of maru backup
    Restore(store::RestoreArgs),
    /// Move the store to PostgreSQL
    Store(store::StoreArgs),
    /// Print the version of maru, and of the running hub
    Version,
    /// Print the completion script of a shell
    #[command(after_help = "Examples:
  maru completion bash > ~/.local/share/bash-completion/completions/maru
  maru completion zsh > ~/.zfunc/_maru
  maru completion fish > ~/.config/fish/completions/maru.fish")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for every command into a directory
    #[command(after_help = "Examples:
  maru man | man -l -
  maru man --directory ~/.local/share/man/man1")]
    Man {
        /// The directory
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Print the reference of every command (docs/commands.md)
        #[arg(long, conflicts_with = "directory")]
        reference: bool,
    },
}

const EXAMPLES: &str = "Examples:
  maru                                              start the hub on 127.0.0.1:20006
  maru tools                                        list the available tools
  maru status                                       show servers, tools and models
  maru servers add files -- npx -y @modelcontextprotocol/server-filesystem /data
  maru call search_docs '{\"query\":\"연차\"}'          call a tool
  maru --listen 127.0.0.1:0 --data-dir /tmp/maru    use any free port and another data directory
  maru config                                       show settings and where they were set
  maru connect claude-code --write                  add maru to a client
  maru service install                              keep the hub running
  maru doctor                                       say what is wrong and what to do";

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
            parent,
            bounds,
            command,
        }) = &self.command
        {
            return Ok(ExitCode::from(warden::run(*parent, bounds, command)?));
        }
        // Processes of a program that killed its warden become children of the hub.
        warden::adopt_orphans();
        // These need no settings and so work with any.
        match &self.command {
            Some(CliCommand::Completion { shell }) => return manual::print_completion(*shell),
            Some(CliCommand::Man {
                reference: true, ..
            }) => {
                terminal::print(&reference_markdown())?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(CliCommand::Man { directory, .. }) => return manual::print(directory.as_deref()),
            _ => (),
        }
        let loaded = self.settings.load()?;
        let command = self.command.unwrap_or(CliCommand::Serve);
        if let CliCommand::Serve = command {
            return serve::serve_hub(loaded, || self.settings.load());
        }
        let context = self.settings.context(loaded);
        match command {
            CliCommand::Stdio(options) => serve::serve_stdio(context.loaded.config, &options),
            CliCommand::Tools(options) => tools::run(&context, &options),
            CliCommand::Toolsets(options) => toolsets::run(&context, &options),
            CliCommand::Call(options) => call::run(&context, &options),
            CliCommand::Models(options) => models::run(&context, &options),
            CliCommand::Chat(options) => chat::run(&context, &options),
            CliCommand::Servers(options) => servers::run(&context, &options),
            CliCommand::Token(options) => token::run(&context, &options),
            CliCommand::Usage(options) => usage::run(&context, &options),
            CliCommand::Audit(options) => audit::run(&context, &options),
            CliCommand::Calls(options) => calls::run(&context, &options),
            CliCommand::Index(options) => index::run(&context, &options),
            CliCommand::Connect(options) => connect::run(&context, &options),
            CliCommand::Console => console::run(&context),
            CliCommand::Service(options) => {
                service::run(&context, &options, self.settings.config.as_deref())
            }
            CliCommand::Status => status::run(&context),
            CliCommand::Doctor => doctor::run(&context),
            CliCommand::Limits(options) => limits::run(&context, &options),
            CliCommand::Runs(options) => runs::run(&context, &options),
            CliCommand::Export(options) => transfer::export(&context, &options),
            CliCommand::Import(options) => transfer::import(&context, &options),
            CliCommand::Backup(options) => store::backup(&context, &options),
            CliCommand::Restore(options) => store::restore(&context, &options),
            CliCommand::Store(options) => store::run(&context, &options),
            CliCommand::Version => manual::print_version(&context),
            CliCommand::Config(options) => config::run(&context, &options),
            // Handled above.
            CliCommand::Serve
            | CliCommand::Child { .. }
            | CliCommand::Completion { .. }
            | CliCommand::Man { .. } => Ok(ExitCode::from(EXIT_CANNOT_RUN)),
        }
    }
}

impl GlobalFlags {
    fn context(&self, loaded: LoadedConfig) -> CliContext {
        let variables = process_environment();
        let variable = |name: &str| variables.get(name).filter(|it| !it.is_empty()).cloned();
        // `maru connect --token` without a value asks for a new token.
        let token = self.token.clone().filter(|it| !it.is_empty());
        let listens = self.listen.is_some() || self.port.is_some();
        CliContext {
            loaded,
            // A flag that names a hub counts more than the environment.
            hub: self
                .hub
                .clone()
                .or_else(|| variable("MARU_HUB").filter(|_| !listens)),
            token: token.or_else(|| variable("MARU_TOKEN")),
            output: if self.json {
                OutputFormat::Json
            } else {
                self.output
            },
        }
    }

    fn load(&self) -> Result<LoadedConfig> {
        let mut flags = Vec::new();
        if let Some(listen) = &self.listen {
            flags.push(("/listen", listen_address::normalize(listen)));
        }
        if let Some(port) = self.port {
            flags.push(("/listen", format!("127.0.0.1:{port}")));
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
