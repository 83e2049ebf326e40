//! `maru servers edit`: changes a registration in an editor.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{
    super::{client::HubClient, terminal},
    SERVERS_ROUTE, jsonc,
};
use crate::config::process_environment;

/// The members that can be changed.
const EDITABLE_MEMBERS: [&str; 7] = [
    "description",
    "transportType",
    "config",
    "version",
    "autoConnect",
    "trust",
    "requiredProtocolVersion",
];

/// Changes a server as `file` or an editor says; `None` if nothing was changed.
pub(super) async fn edit(
    hub: &HubClient,
    name: &str,
    file: Option<&Path>,
) -> Result<Option<Value>> {
    let path = format!("{SERVERS_ROUTE}/{name}");
    let body = match file {
        Some(file) => jsonc::read_file(file)?,
        None => {
            let server = hub.request_for_editing(&path).await?;
            let members = EDITABLE_MEMBERS.map(|it| (it.to_owned(), server[it].clone()));
            let before = json!(members.into_iter().collect::<serde_json::Map<_, _>>());
            let after = edit_value(name, &before)?;
            if after == before {
                terminal::print_note("nothing was changed");
                return Ok(None);
            }
            after
        }
    };
    hub.request_json("PUT", &path, Some(&body)).await.map(Some)
}

/// Opens an editor on `value`; secrets stay `***` unless they are replaced.
fn edit_value(name: &str, value: &Value) -> Result<Value> {
    let variables = process_environment();
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|it| variables.get(*it).filter(|it| !it.trim().is_empty()));
    let editor = editor.map_or("vi", String::as_str);
    let file = tempfile::Builder::new()
        .prefix(&format!("maru-{name}-"))
        .suffix(".json")
        .tempfile()?;
    let text = serde_json::to_string_pretty(value)?;
    let comment = format!(
        "// The server {name}. A value *** stays as it is. Close without a change to cancel.\n"
    );
    fs::write(file.path(), format!("{comment}{text}\n"))?;
    // The variable may contain arguments, such as `code --wait`.
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file.path())
        .status()
        .with_context(|| format!("cannot start the editor {editor:?}; set EDITOR"))?;
    if !status.success() {
        bail!("the editor {editor:?} failed; nothing is changed");
    }
    jsonc::parse(&fs::read(file.path())?)
        .context("the edited text is not valid; nothing is changed")
}
