//! `maru serve` and `maru stdio`.

use std::{future::Future, process::ExitCode};

use anyhow::{Context as _, Result};
use tokio::{
    io, runtime,
    signal::unix::{SignalKind, signal},
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;

use super::out;
use crate::{
    access::Principal,
    app::{self, Core, Running, join, running_hub},
    config::{Config, Loaded, Log, LogFormat, LogLevel, Origin, rows},
    downstream::stdio::serve,
    tool::{Caller, Scope},
};

pub(super) fn hub(loaded: Loaded) -> Result<ExitCode> {
    log(&loaded.config.log);
    let directory = loaded.config.data_dir.display().to_string();
    let mut program = std::env::args().next().unwrap_or_else(|| "maru".to_owned());
    if matches!(loaded.origin("/data_dir"), Origin::Flag(_)) {
        program = format!("{program} --data-dir {directory}");
    }
    block_on(async {
        let mut stop = Signals::new()?;
        let settings = rows(&loaded);
        let running = app::start_explained(loaded.config, settings).await?;
        out::print(&welcome(&running, &directory, &program))?;
        stop.wait().await;
        running.stop().await;
        Ok(ExitCode::SUCCESS)
    })
}

pub(super) fn stdio(config: Config) -> Result<ExitCode> {
    log(&config.log);
    block_on(async {
        let mut stop = Signals::new()?;
        if running_hub(&config.data_dir).is_some() {
            let joined = tokio::select! {
                joined = join(&config.data_dir) => joined,
                () = stop.wait() => Some(Ok(())),
            };
            if let Some(done) = joined {
                done.context("the hub, stdin or stdout broke")?;
                return Ok(ExitCode::SUCCESS);
            }
        }
        let core = Core::open(config, None).await?;
        let caller = Caller::new(Principal::local(), Scope::All);
        tokio::select! {
            served = serve(&core.engine, caller, io::stdin(), io::stdout()) => served.context("stdin or stdout broke")?,
            () = stop.wait() => (),
        }
        core.close().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Runs to the end and leaves threads that still block, such as one reading stdin.
///
/// One thread does what there is to wait for; the hub has more of them, its
/// [`lanes`](crate::lanes).
pub(super) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

fn welcome(running: &Running, directory: &str, program: &str) -> String {
    let scheme = if running.is_secure() { "https" } else { "http" };
    let at = format!("{scheme}://{}", running.address);
    let snapshot = running.catalog().snapshot();
    let tools = snapshot
        .view(&Scope::All)
        .map_or(0, |view| view.tools.keys().count());
    let try_one = match tools {
        0 => String::new(),
        _ => format!("  {program} call search_docs '{{\"query\":\"연차\"}}'\n"),
    };
    let link = format!("{at}/#code={}", running.console_code.reveal());
    let rows = [
        ["console", &link],
        ["MCP, Streamable HTTP", &format!("{at}/mcp")],
        ["MCP, HTTP+SSE", &format!("{at}/sse")],
        ["MCP, stdio", &format!("{program} stdio")],
        ["health", &format!("{at}/healthz and {at}/readyz")],
        ["data", directory],
        ["admin token", &format!("{directory}/admin-token")],
    ];
    let servers = match running.servers().list().len() {
        0 => String::new(),
        count => format!("{count} servers are being connected; see: {program} servers list\n"),
    };
    let rows = rows.map(|[name, value]| vec![format!("  {name}"), value.to_owned()]);
    format!(
        "maru {} is ready. 마루에 오신 것을 환영합니다.\n\n{}\n{servers}{tools} tools are on offer. Next, in another terminal:\n\n  \
         {program} tools\n{try_one}\nStop with Ctrl-C.\n",
        env!("CARGO_PKG_VERSION"),
        out::table(&rows),
    )
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }
}

fn log(log: &Log) {
    let level = match log.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log_to = fmt().with_max_level(level).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => log_to
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => log_to.json().init(),
    }
}
