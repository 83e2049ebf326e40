//! The hub's catalog with one server in it.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail, ensure};
use futures_util::future::try_join_all;
use maru::{
    auth::Principal,
    config::McpSettings,
    tools::{
        Caller, Catalog, CatalogScope, EntryResponse, InputResponses, RequestContext, ResultLimits,
    },
    upstream::{
        ConnectionSettings, ManagerOptions, RegistrationRules, ServerDraft, ServerManager,
        ServerOrigin, ServerState, SignInOptions,
    },
};
use maru_http::AddressPolicy;
use maru_protocol::{ProtocolVersion, RpcError};
use maru_runtime::tasks::Tasks;
use maru_store::Store;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{answers, plan, sign_in};

const SERVER: &str = "suite";
/// How often one question may be answered by further questions.
const ROUNDS: usize = 10;
/// How often one question may lead to a sign-in.
const SIGN_INS: usize = 3;

pub(crate) struct Hub {
    catalog: Arc<Catalog>,
    caller: Caller,
    version: ProtocolVersion,
    tasks: Tasks,
    manager: Arc<ServerManager>,
    _directory: TempDir,
}

/// Something to ask of the server.
enum Ask {
    Call(String, Value),
    Get(String, Value),
    Read(String),
}

impl Hub {
    pub(crate) async fn connect(
        url: &str,
        version: ProtocolVersion,
        context: &Value,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let catalog = Arc::new(Catalog::new(
            Duration::from_secs(20),
            ResultLimits::from_max_bytes(1 << 20),
        ));
        let tasks = Tasks::default();
        let policy = AddressPolicy {
            serves_loopback_only: true,
            ..AddressPolicy::default()
        };
        let store = Store::in_memory().await?;
        let mcp = McpSettings {
            // The suite runs forty scenarios at once; a slow connection is no failure.
            connect_wait_ms: McpSettings::default().connect_timeout_ms,
            ..McpSettings::default()
        };
        let manager = ServerManager::start(ManagerOptions {
            store: store.clone(),
            rules: RegistrationRules {
                address_policy: policy,
                ..RegistrationRules::default()
            },
            settings: ConnectionSettings::new(
                &mcp,
                Arc::clone(&catalog),
                store.clone(),
                tasks.clone(),
            )
            .with_sign_in(SignInOptions {
                base_url: sign_in::BASE_URL.to_owned(),
                document_url: Some(sign_in::DOCUMENT_URL.to_owned()),
            }),
            max_servers: 1,
            seeds: Vec::new(),
            registry: &directory.path().join("mcp.json"),
            registry_record: Some(&directory.path().join("mcp-listed.json")),
        })
        .await?;
        let mut draft = ServerDraft {
            kind: "HTTP".to_owned(),
            ..ServerDraft::from_url(SERVER, url)
        };
        draft.config["auth"] = sign_in::settings(context);
        let mut view = manager.register(&draft, ServerOrigin::Api).await?;
        for _ in 0..SIGN_INS {
            if view.status.state == ServerState::NeedsSignIn {
                view = sign_in::follow_link(&manager, SERVER).await?;
            }
        }
        let cause = view.status.cause.unwrap_or_default();
        ensure!(view.status.state == ServerState::Connected, "{cause}");
        Ok(Self {
            catalog,
            caller: Caller::new(Principal::local(), CatalogScope::Server(SERVER.into())),
            version,
            tasks,
            manager,
            _directory: directory,
        })
    }

    /// Makes the calls of `context`, or asks for everything that is offered.
    /// All at once, so that what belongs to one can get lost in another.
    pub(crate) async fn try_all(&self, context: &Value) -> Result<()> {
        let asks = self.asks(context)?;
        try_join_all(asks.iter().map(|ask| self.ask(ask))).await?;
        Ok(())
    }

    /// Asks; where the server wants a sign-in for that, signs in and asks again.
    async fn ask(&self, ask: &Ask) -> Result<()> {
        for _ in 0..SIGN_INS {
            match self.ask_until_complete(ask).await {
                Err(error) if sign_in::is_wanted(&error) => {
                    sign_in::follow_link(&self.manager, SERVER).await?;
                }
                done => return done,
            }
        }
        bail!("a sign-in was wanted {SIGN_INS} times")
    }

    pub(crate) async fn close(self) {
        self.tasks.shutdown().await;
    }

    fn asks(&self, context: &Value) -> Result<Vec<Ask>> {
        if let Some(calls) = context["toolCalls"].as_array() {
            let name = |it: &Value| it["name"].as_str().unwrap_or_default().to_owned();
            let asks = calls
                .iter()
                .map(|it| Ask::Call(name(it), it["arguments"].clone()));
            return Ok(asks.collect());
        }
        let snapshot = self.catalog.snapshot();
        let view = snapshot.view(&self.caller.scope).map_err(shown)?;
        let tools: Vec<Value> = serde_json::from_str(view.tools.json())?;
        let calls = plan::calls(&tools).into_iter();
        let prompts = view.prompts.entries().iter();
        let resources = view.resources.entries().iter();
        Ok(calls
            .map(|(name, arguments)| Ask::Call(name, arguments))
            .chain(prompts.map(|it| Ask::Get(it.key().to_owned(), json!({}))))
            .chain(resources.map(|it| Ask::Read(it.key().to_owned())))
            .collect())
    }

    /// Asks until the answer is complete.
    async fn ask_until_complete(&self, ask: &Ask) -> Result<()> {
        let mut inputs = InputResponses::default();
        for _ in 0..ROUNDS {
            let result = match self.ask_once(ask, inputs).await.map_err(shown)? {
                EntryResponse::Complete(result) => result,
                EntryResponse::InputRequired(asked) => {
                    inputs = InputResponses {
                        responses: asked.requests.iter().map(answers::to).collect(),
                        state: asked.state,
                        failure: None,
                    };
                    continue;
                }
            };
            ensure!(!result.is_error(), "{}", result.as_json());
            return Ok(());
        }
        bail!("asked for input {ROUNDS} times")
    }

    async fn ask_once(&self, ask: &Ask, inputs: InputResponses) -> Result<EntryResponse, RpcError> {
        let peer = Arc::new(RequestContext {
            version: self.version,
            capabilities: Arc::new(answers::capabilities()),
            inputs,
            ..RequestContext::default()
        });
        let (catalog, caller) = (&self.catalog, &self.caller);
        let input = |arguments: &Value| Arc::new(arguments.clone().into());
        match ask {
            Ask::Call(name, arguments) => {
                catalog
                    .call_tool(caller, name, input(arguments), peer)
                    .await
            }
            Ask::Get(name, arguments) => {
                catalog
                    .get_prompt(caller, name, input(arguments), peer)
                    .await
            }
            Ask::Read(uri) => catalog.read_resource(caller, uri, peer).await,
        }
    }
}

fn shown(error: RpcError) -> anyhow::Error {
    anyhow::anyhow!("error {}: {}", error.code, error.message)
}
