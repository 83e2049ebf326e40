//! `maru serve` and `maru stdio`.

use std::{
    future::Future,
    io::{IsTerminal as _, stdout},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use maru_connect::quote_word;
use tokio::{io, runtime};
use tracing::{error, info};

use super::{
    first_start,
    logging::LogFilter,
    service_manager,
    signals::{HubSignals, SignalAction},
    terminal,
    toolsets::ListingArg,
};
use crate::{
    app::{self, HubCore, RunningHub, StdioView, join_hub, running_hub},
    config::{Config, LoadedConfig, ToolListing, ValueOrigin},
    downstream::stdio::serve,
    observability::telemetry::SpanExport,
    tools::CatalogScope,
};

/// Runs the hub until SIGINT or SIGTERM; on SIGHUP it reloads the settings with `load`.
pub(super) fn serve_hub(
    loaded: LoadedConfig,
    load: impl Fn() -> Result<LoadedConfig>,
) -> Result<ExitCode> {
    let directory = loaded.config.data_dir.display().to_string();
    let program = command_for_hub(&loaded);
    let data_dir = loaded.config.data_dir.clone();
    let is_first_start = first_start::is_first_start(&data_dir);
    block_on(async {
        let export = app::start_span_export(&loaded.config)?;
        let log = LogFilter::start(&loaded.config.log, export.as_ref());
        let mut signals = HubSignals::new()?;
        let running = Box::pin(app::start_with_settings(loaded)).await?;
        terminal::print(&welcome_text(&running, &directory, &program).await?)?;
        if is_first_start {
            terminal::print(&first_start::text(&program))?;
            first_start::open_console_on_enter(console_link(&running).await?, data_dir);
        }
        service_manager::report("READY=1");
        while let SignalAction::Reload = signals.next().await {
            tokio::select! {
                () = reload(&running, &load, &log) => (),
                () = signals.wait_for_stop() => break,
            }
        }
        service_manager::report("STOPPING=1");
        running.stop().await;
        stop_span_export(export).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Reloads the settings. If they are invalid, the error is logged and nothing changes.
async fn reload(running: &RunningHub, load: &impl Fn() -> Result<LoadedConfig>, log: &LogFilter) {
    let work = async {
        let new = load()?;
        let reloaded = running.reload(&new).await?;
        log.set_level(new.config.log.level)?;
        anyhow::Ok(reloaded)
    };
    match work.await {
        Ok(reloaded) => {
            let changed = match reloaded.applied.join(", ") {
                keys if keys.is_empty() => "no setting".to_owned(),
                keys => keys,
            };
            info!("reloaded: certificates and tokens were read again; changed: {changed}");
            reloaded.log_restart_keys();
        }
        Err(error) => error!("the settings were not reloaded and stay as they are: {error:#}"),
    }
}

/// What a client of `maru stdio` sees.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  maru stdio                       all tools
  maru stdio --toolset support     the tools of a toolset
  maru stdio --tools search        find_tools and call_tool instead of all tools")]
pub(super) struct StdioArgs {
    /// Only the tools of this toolset
    #[arg(long, value_name = "NAME")]
    toolset: Option<String>,
    /// Whether the client lists or searches tools
    #[arg(long)]
    tools: Option<ListingArg>,
}

impl StdioArgs {
    fn view(&self) -> StdioView {
        StdioView {
            toolset: self.toolset.clone(),
            tools: self.tools.and_then(|it| ToolListing::parse(it.name())),
        }
    }
}

/// Serves MCP over stdin and stdout, through the running hub of the data directory or with a
/// catalog of this process.
pub(super) fn serve_stdio(config: Config, options: &StdioArgs) -> Result<ExitCode> {
    block_on(async {
        let export = app::start_span_export(&config)?;
        LogFilter::start(&config.log, export.as_ref());
        let mut signals = HubSignals::new()?;
        let view = options.view();
        if running_hub(&config.data_dir).is_some() {
            let joined = tokio::select! {
                joined = join_hub(&config.data_dir, &view) => joined,
                () = signals.wait_for_stop() => Some(Ok(())),
            };
            if let Some(done) = joined {
                done.context("the hub, stdin or stdout broke")?;
                return Ok(ExitCode::SUCCESS);
            }
        }
        let core = HubCore::open(config, None).await?;
        let caller = view.caller();
        tokio::select! {
            served = serve(&core.engine, caller, io::stdin(), io::stdout()) => served.context("stdin or stdout broke")?,
            () = signals.wait_for_stop() => (),
        }
        core.close().await;
        stop_span_export(export).await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Sends the remaining spans, after everything that creates spans has stopped.
async fn stop_span_export(export: Option<SpanExport>) {
    if let Some(export) = export {
        export.shutdown().await;
    }
}

/// Runs a future to its end, without waiting for threads that still block, such as one that
/// reads stdin.
///
/// The runtime has one thread; the hub starts more, its [`workers`](crate::workers).
pub(super) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

/// The command line that reaches this hub from another terminal, in any directory.
fn command_for_hub(loaded: &LoadedConfig) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "maru".to_owned());
    if loaded.origin_of("/data_dir") == ValueOrigin::Default {
        return program;
    }
    let directory = &loaded.config.data_dir;
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
    let directory = quote_word(&directory.display().to_string());
    format!("{program} --data-dir {directory}")
}

fn origin(running: &RunningHub) -> String {
    let scheme = if running.is_encrypted() {
        "https"
    } else {
        "http"
    };
    format!("{scheme}://{}", running.address)
}

/// A link that signs in as admin, once.
async fn console_link(running: &RunningHub) -> Result<String> {
    let code = running.console_code().await?;
    Ok(format!("{}/#code={}", origin(running), code.reveal()))
}

async fn welcome_text(running: &RunningHub, directory: &str, program: &str) -> Result<String> {
    let at = origin(running);
    let snapshot = running.catalog().snapshot();
    let tools = snapshot
        .view(&CatalogScope::All)
        .map_or(0, |view| view.tools.keys().count());
    let try_one = match tools {
        0 => String::new(),
        _ => format!("  {program} call search_docs '{{\"query\":\"연차\"}}'\n"),
    };
    // The link signs in as admin, so it must not end up in a file or a system log.
    let link = if stdout().is_terminal() {
        console_link(running).await?
    } else {
        format!("{at}/ (a link that signs in: {program} console)")
    };
    let local_admin = if running.allows_local_admin() {
        "every program on this machine, without a token (local_admin)"
    } else {
        ""
    };
    let rows = [
        ["console", &link],
        ["MCP, Streamable HTTP", &format!("{at}/mcp")],
        ["MCP, HTTP+SSE", &format!("{at}/sse")],
        ["MCP, stdio", &format!("{program} stdio")],
        ["documentation", &format!("{at}/docs")],
        ["health", &format!("{at}/healthz and {at}/readyz")],
        ["data", directory],
        ["admin token", &format!("{directory}/admin-token")],
        ["admin", local_admin],
    ];
    let servers = match running.servers().list().len() {
        0 => String::new(),
        1 => format!("1 server is being connected; see: {program} servers list\n"),
        count => format!("{count} servers are being connected; see: {program} servers list\n"),
    };
    let tools = terminal::count_of(tools, "tool is", "tools are");
    let rows = rows.into_iter().filter(|[_, value]| !value.is_empty());
    let rows: Vec<_> = rows
        .map(|[name, value]| vec![format!("  {name}"), value.to_owned()])
        .collect();
    Ok(format!(
        "maru {} is ready. 마루에 오신 것을 환영합니다.\n\n{}\n{servers}{tools} available. Next, in another terminal:\n\n  \
         {program} tools\n{try_one}\nStop with Ctrl-C.\n",
        env!("CARGO_PKG_VERSION"),
        terminal::format_table(&rows),
    ))
}
