//! maru as a library: a hub inside your own program, without HTTP endpoints.
//!
//! [`Hub`] uses the same parts as the binary: it keeps servers connected, checks and pins
//! their tools, and gives every call a deadline.
//!
//! ```no_run
//! use maru::{Hub, HubOptions, ServerRegistration};
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), maru::hub::Error> {
//! let hub = Hub::open(HubOptions::in_memory()).await?;
//! let files = ServerRegistration::stdio("files", "npx")
//!     .args(["-y", "@modelcontextprotocol/server-filesystem", "/data"]);
//! hub.register(&files).await?;
//! hub.connect("files").await?;
//! for tool in hub.tools_of("files")? {
//!     println!("{}", tool.name);
//! }
//! let output = hub
//!     .call("files__list_directory", json!({"path": "/data"}))
//!     .await?;
//! println!("{}", output.text());
//! hub.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A hub needs a tokio runtime with I/O and time enabled. `examples/embed.rs` is a
//! complete program; test with `cargo nextest run -p maru --test it library`.

mod info;
mod options;
mod registration;

use std::sync::Arc;

use serde_json::{Map, Value};
use tempfile::TempDir;
use thiserror::Error as ThisError;

pub use self::{
    info::{ServerInfo, ToolInfo, ToolOutput},
    options::HubOptions,
    registration::ServerRegistration,
};
pub use crate::upstream::{RegistrationError, ServerState};
use crate::{
    app::{DataDirLock, HubCore, prepare_data_dir},
    auth::Principal,
    config::Config,
    tools::{Caller, CatalogScope, CatalogSnapshot, EntryResponse},
    upstream::{ServerOrigin, ServerView},
};

/// Why a hub could not be opened or a request to it failed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The hub could not be opened.
    #[error("cannot open the hub")]
    Open(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server is unknown, or its registration was refused.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The server is registered but not connected.
    #[error("server {name} is not connected: {cause}")]
    NotConnected {
        /// The name of the server.
        name: String,
        /// The reason.
        cause: String,
    },
    /// The arguments of a call are not a JSON object.
    #[error("the arguments of {tool} are not a JSON object")]
    InvalidArguments {
        /// The name of the tool.
        tool: String,
    },
    /// The call was refused, for example because the tool does not exist.
    #[error("cannot call {tool}: {reason}")]
    CallRefused {
        /// The name of the tool.
        tool: String,
        /// What is wrong and how to correct it.
        reason: String,
    },
    /// The tool asks for user input, which an embedded hub cannot provide.
    #[error("{tool} asks for input, which needs an MCP client")]
    InputRequired {
        /// The name of the tool.
        tool: String,
    },
}

/// A hub inside your program: MCP servers and their tools.
///
/// Methods take `&self` and may be called from many tasks. Call [`close`](Self::close) at
/// the end: dropping a hub also tells its servers to end, but does not wait for them.
#[derive(Debug)]
pub struct Hub {
    core: HubCore,
    caller: Caller,
    _data_dir_lock: DataDirLock,
    /// Dropped last, after everything that uses it.
    _temporary_dir: Option<TempDir>,
}

impl Hub {
    /// Opens a hub and waits for the first connection attempt of every stored server with
    /// [`auto_connect`](ServerRegistration::auto_connect).
    pub async fn open(options: HubOptions) -> Result<Self, Error> {
        let HubOptions {
            mut config,
            in_temporary_dir,
        } = options;
        let temporary_dir = in_temporary_dir.then(TempDir::new).transpose();
        let temporary_dir = temporary_dir.map_err(|error| Error::Open(error.into()))?;
        if let Some(directory) = &temporary_dir {
            config.data_dir = directory.path().to_owned();
        }
        let opened = Box::pin(open_core(config)).await;
        let (core, data_dir_lock) = opened.map_err(|error| Error::Open(error.into()))?;
        Ok(Self {
            core,
            caller: Caller::new(Principal::local(), CatalogScope::All),
            _data_dir_lock: data_dir_lock,
            _temporary_dir: temporary_dir,
        })
    }

    /// Registers a server, and connects it if
    /// [`auto_connect`](ServerRegistration::auto_connect) is set. A failed connection is
    /// not an error here; see [`ServerInfo::state`].
    pub async fn register(&self, server: &ServerRegistration) -> Result<ServerInfo, Error> {
        let registered = self
            .core
            .servers
            .register(server.draft(), ServerOrigin::Api);
        Ok(registered.await?.into())
    }

    /// Disconnects a server, waits until its process has exited, and removes its
    /// registration.
    pub async fn unregister(&self, name: &str) -> Result<(), Error> {
        Ok(self.core.servers.remove(name).await?)
    }

    /// Connects a server and waits until its tools are listed. A server that is already
    /// connected stays connected. A connection that is lost later is restored according
    /// to `mcp.reconnection`.
    pub async fn connect(&self, name: &str) -> Result<ServerInfo, Error> {
        require_connected(self.core.servers.connect(name).await?)
    }

    /// Makes one attempt to connect a server that failed or was disconnected, as a call
    /// to one of its tools does, if `mcp.reconnection.enabled` is true. A server that was
    /// never connected is not connected.
    pub async fn ensure_connected(&self, name: &str) -> Result<ServerInfo, Error> {
        require_connected(self.core.servers.ensure_connected(name).await?)
    }

    /// Disconnects a server, which stays registered. Its process is stopped within
    /// seconds. A call to one of its tools connects it again.
    pub async fn disconnect(&self, name: &str) -> Result<ServerInfo, Error> {
        Ok(self.core.servers.disconnect(name).await?.into())
    }

    /// Lists the registered servers, sorted by name.
    pub fn servers(&self) -> Vec<ServerInfo> {
        let servers = self.core.servers.list();
        servers.into_iter().map(ServerInfo::from).collect()
    }

    /// Returns a registered server.
    pub fn server(&self, name: &str) -> Result<ServerInfo, Error> {
        Ok(self.core.servers.get(name)?.into())
    }

    /// Lists the tools of all servers and of the hub itself, sorted by name. Tools of a
    /// server whose connection was lost stay listed; those of a disconnected server do
    /// not.
    pub fn tools(&self) -> Vec<ToolInfo> {
        list_tools(&self.core.catalog.snapshot(), None)
    }

    /// Lists the tools of a registered server.
    pub fn tools_of(&self, server: &str) -> Result<Vec<ToolInfo>, Error> {
        self.core.servers.get(server)?;
        Ok(list_tools(&self.core.catalog.snapshot(), Some(server)))
    }

    /// Calls a tool by its [`ToolInfo::name`]. Arguments are an object; `Value::Null`
    /// means an empty one. A tool that fails or exceeds `limits.tool_timeout_ms` gives an
    /// output with [`is_error`](ToolOutput::is_error).
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<ToolOutput, Error> {
        let tool_name = || tool.to_owned();
        let arguments = match arguments {
            Value::Null => Value::Object(Map::new()),
            Value::Object(_) => arguments,
            _ => return Err(Error::InvalidArguments { tool: tool_name() }),
        };
        let arguments = Arc::new(arguments.into());
        let response = self
            .core
            .catalog
            .call_tool(&self.caller, tool, arguments, Arc::default());
        match response.await {
            Ok(EntryResponse::Complete(result)) => Ok(ToolOutput::from(&result)),
            Ok(EntryResponse::InputRequired(_)) => Err(Error::InputRequired { tool: tool_name() }),
            Err(error) => Err(Error::CallRefused {
                tool: tool_name(),
                reason: error.message.into_owned(),
            }),
        }
    }

    /// Stops every server and task, and waits at most `limits.drain_ms` plus eight
    /// seconds.
    pub async fn close(self) {
        self.core.close().await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.core.request_stop();
    }
}

async fn open_core(config: Config) -> anyhow::Result<(HubCore, DataDirLock)> {
    prepare_data_dir(&config.data_dir)?;
    let lock = DataDirLock::acquire(&config.data_dir)?;
    // Shown when another process tries to use the directory.
    let address = format!("no address (embedded in process {})", std::process::id());
    lock.write_address(&address)?;
    let core = HubCore::open(config, None).await?;
    core.servers.wait_for_first_connect().await;
    Ok((core, lock))
}

fn require_connected(view: ServerView) -> Result<ServerInfo, Error> {
    let info = ServerInfo::from(view);
    if info.is_connected() {
        return Ok(info);
    }
    let state = || format!("its state is {}", info.state.as_str());
    Err(Error::NotConnected {
        cause: info.cause.clone().unwrap_or_else(state),
        name: info.name,
    })
}

fn list_tools(snapshot: &CatalogSnapshot, server: Option<&str>) -> Vec<ToolInfo> {
    let Ok(view) = snapshot.view(&CatalogScope::All) else {
        return Vec::new();
    };
    let entries = view.tools.entries().iter();
    entries
        .filter(|it| server.is_none_or(|server| &**it.server() == server))
        .map(|it| ToolInfo::from(&**it))
        .collect()
}
