//! `maru servers login`: prints the link of a sign-in and waits for its end.

use std::{
    io::{self, BufRead as _, Read as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use super::{
    super::{client::HubClient, terminal},
    CONNECTION_POLL_INTERVAL, SERVERS_ROUTE, allowed_host, format_status,
};

/// How long a sign-in may take; the hub forgets it after that.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest address that is read from stdin.
const MAX_PASTED_BYTES: u64 = 16 << 10;

#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    /// The name of the server
    pub(super) name: String,
    /// Read the address that the browser was sent to from stdin, where the browser cannot reach the hub
    #[arg(long)]
    paste: bool,
    /// Sign in with your own account, on a server where each caller has one; implies --paste
    #[arg(long)]
    own: bool,
    /// Allow this host of the authorization server that the server names; can be repeated
    #[arg(long = "allow-host", value_name = "HOST")]
    allowed_hosts: Vec<String>,
}

impl LoginArgs {
    /// Signs in.
    pub(super) async fn run(&self, hub: &HubClient) -> Result<ExitCode> {
        let before = self.show(hub).await?;
        for host in &self.allowed_hosts {
            allowed_host::allow(hub, host).await?;
        }
        let action = if self.own { "account" } else { "login" };
        let begun = hub.request_json("POST", &self.path(action), None).await;
        let begun = begun.map_err(allowed_host::name_flag_with_host)?;
        let link = begun["authorization_url"].as_str().unwrap_or_default();
        terminal::print(&format!("Open this link and sign in:\n\n  {link}\n\n"))?;
        // An own sign-in is completed by its caller, not by any browser.
        if self.paste || self.own {
            self.complete_pasted(hub).await?;
        } else {
            terminal::print("Waiting for the browser; end with Ctrl-C.\n")?;
        }
        if self.own {
            terminal::print(&format!(
                "signed in to {} with your own account\n",
                self.name
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        let server = self.wait_for_change(hub, &before["status"]).await?;
        terminal::print(&format_status(&server))?;
        Ok(ExitCode::from(u8::from(server["status"] != "CONNECTED")))
    }

    async fn wait_for_change(&self, hub: &HubClient, before: &Value) -> Result<Value> {
        let deadline = Instant::now() + SIGN_IN_TIMEOUT;
        while Instant::now() < deadline {
            let server = self.show(hub).await?;
            let status = server["status"].as_str().unwrap_or_default();
            let is_waiting = matches!(status, "NEEDS_SIGN_IN" | "CONNECTING");
            // A server that was connected before stays so.
            if !is_waiting && (self.paste || *before != server["status"]) {
                return Ok(server);
            }
            time::sleep(CONNECTION_POLL_INTERVAL).await;
        }
        let name = &self.name;
        bail!("nobody signed in within ten minutes; start again with: maru servers login {name}")
    }

    /// Hands over the address that a person pasted.
    async fn complete_pasted(&self, hub: &HubClient) -> Result<()> {
        terminal::print("Then paste the address that the browser was sent to, and press Enter:\n")?;
        let mut line = String::new();
        let mut input = io::stdin().lock().take(MAX_PASTED_BYTES);
        input
            .read_line(&mut line)
            .context("cannot read the address from stdin")?;
        let body = json!({"redirect_url": line.trim()});
        let (method, action) = if self.own {
            ("PUT", "account")
        } else {
            ("POST", "login/complete")
        };
        hub.request_json(method, &self.path(action), Some(&body))
            .await?;
        Ok(())
    }

    async fn show(&self, hub: &HubClient) -> Result<Value> {
        let path = format!("{SERVERS_ROUTE}/{}", self.name);
        hub.request_json("GET", &path, None).await
    }

    fn path(&self, action: &str) -> String {
        format!("{SERVERS_ROUTE}/{}/{action}", self.name)
    }
}
