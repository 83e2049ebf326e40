//! A program with a hub inside: registers a stdio server and calls one of its tools.
//!
//! ```console
//! $ cargo run --example embed -- npx -y @modelcontextprotocol/server-everything
//! ```

use std::{error::Error, io::Write};

use maru::{Hub, HubOptions, ServerRegistration};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let command_line: Vec<String> = std::env::args().skip(1).collect();
    run(&command_line, &mut std::io::stdout()).await
}

/// Lists the tools of the server that `command_line` starts, calls the first one that
/// needs no arguments, and writes both to `out`.
pub(crate) async fn run(
    command_line: &[String],
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let [command, args @ ..] = command_line else {
        return Err("usage: embed COMMAND [ARGUMENT ...]".into());
    };
    let hub = Hub::open(HubOptions::in_memory()).await?;
    let outcome = list_and_call(&hub, command, args, out).await;
    // Also after an error, so that no child process is left behind.
    hub.close().await;
    outcome
}

async fn list_and_call(
    hub: &Hub,
    command: &str,
    args: &[String],
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let server = ServerRegistration::stdio("example", command).args(args);
    hub.register(&server).await?;
    let info = hub.connect("example").await?;
    writeln!(
        out,
        "{} is connected and has {} tools:",
        info.name, info.tool_count
    )?;
    let tools = hub.tools_of("example")?;
    for tool in &tools {
        writeln!(out, "  {}", tool.name)?;
    }
    let needs_nothing = |schema: &Value| {
        let required = schema["required"].as_array();
        required.is_none_or(Vec::is_empty)
    };
    if let Some(tool) = tools.iter().find(|it| needs_nothing(&it.input_schema)) {
        let output = hub.call(&tool.name, Value::Null).await?;
        writeln!(out, "{} answers: {}", tool.name, output.text())?;
    }
    Ok(())
}
