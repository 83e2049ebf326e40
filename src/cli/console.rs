//! `maru console`: a link that signs in to the web page of the running hub.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::{client::HubClient, serve::block_on, terminal};
use crate::config::LoadedConfig;

pub(super) fn run(loaded: &LoadedConfig) -> Result<ExitCode> {
    let hub = HubClient::open(loaded)?;
    block_on(async {
        let (status, answer) = hub.send_rest("POST", "/api/session/link", None).await?;
        let Some(path) = answer["path"].as_str().filter(|_| status == 200) else {
            bail!("the hub gave no link: {}", answer["error"]);
        };
        let scheme = answer["scheme"].as_str().unwrap_or("http");
        terminal::print(&format!("{scheme}://{}{path}\n", hub.address()))?;
        Ok(ExitCode::SUCCESS)
    })
}
