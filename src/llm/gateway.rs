//! From the name of a model to its answer: entry, turn, backend, reader.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hyper::body::Bytes;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tracing::debug;

use super::{
    Answer, ChatRequest, Choice, Error, Stream, constrained, gemini,
    history::{self, Taste},
    names::Names,
    openai,
    prompt::{self, Form},
    queue::{Bounds, Queue, Turn},
    reading::Reading,
    service::{FURTHER_ATTEMPTS, Refusal, Service, backoff, may_recover},
    stream::Parts,
};
use crate::{
    config::{Backend, ClientMode, ModelDefinition, Secret, ToolMode},
    dialect::{Dialect, KNOWN, Tools, UnknownDialect},
    outbound::{Policy, Reply, Tls},
    tasks::within,
};

const OPENAI: &str = "https://api.openai.com/v1";
const GEMINI: &str = "https://generativelanguage.googleapis.com/v1beta";
/// Models that were found to take no tools and are remembered, per entry.
const REMEMBERED: usize = 1000;
/// As many as the client of one place takes.
const AT_ONCE: usize = 1024;

/// Every model that is configured. Answers come through [`Stream`]s that their
/// readers move.
#[derive(Debug)]
pub struct Gateway {
    pub(super) entries: Vec<Entry>,
    /// Nothing was configured: the address that is tried instead.
    fallback: Option<String>,
}

/// One entry of the settings.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) names: Names,
    pub(super) backend: Backend,
    pub(super) service: Service,
    base_url: String,
    queue: std::sync::Arc<Queue>,
    tool_mode: ToolMode,
    dialect: Dialect,
    client_mode: Option<ClientMode>,
    limit: Duration,
    /// Models of the backend that take no tools.
    plain: Mutex<HashSet<String>>,
}

/// How busy an entry is.
#[derive(Clone, Debug)]
pub struct ModelStatus {
    /// Its name in the settings.
    pub name: String,
    /// Requests in progress.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
}

/// How an answer is wanted.
#[derive(Debug)]
pub struct Wanted {
    /// Piece by piece, or in one.
    pub stream: bool,
    /// How long it may take; the settings may say less.
    pub limit: Duration,
    /// Hears the place in the queue while there is one.
    pub place: watch::Sender<usize>,
}

impl Wanted {
    /// Piece by piece, within `limit`.
    pub fn stream(limit: Duration) -> Self {
        Self {
            stream: true,
            limit,
            place: watch::Sender::new(0),
        }
    }

    /// In one, within `limit`.
    pub fn whole(limit: Duration) -> Self {
        Self {
            stream: false,
            ..Self::stream(limit)
        }
    }
}

/// A request in the words of a backend.
struct Prepared {
    path: String,
    body: Bytes,
    reading: Reading,
}

impl Gateway {
    /// Opens every entry; none is reached before it is asked. Without any, the
    /// Ollama at `ollama` is used.
    pub fn open(
        models: &[ModelDefinition],
        ollama: &str,
        policy: &Policy,
        tls: &Tls,
    ) -> Result<Self, Error> {
        let implied;
        let (models, fallback) = match models {
            [] => {
                implied = [ModelDefinition {
                    base_url: Some(format!("{}/v1", ollama.trim_end_matches('/'))),
                    ..ModelDefinition::default()
                }];
                (&implied[..], Some(ollama.to_owned()))
            }
            models => (models, None),
        };
        let entries = models.iter().enumerate().map(|(at, it)| {
            let name = it.name.clone();
            Entry::open(it, policy, tls).map_err(|why| Error::Setting { at, name, why })
        });
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            fallback,
        })
    }

    /// Asks for an answer, piece by piece. Resolves when it begins.
    pub async fn chat(&self, request: ChatRequest, limit: Duration) -> Result<Stream, Error> {
        self.ask(request, &Wanted::stream(limit)).await
    }

    /// Asks for an answer in one.
    pub async fn whole(&self, request: ChatRequest, limit: Duration) -> Result<Answer, Error> {
        let stream = self.ask(request, &Wanted::whole(limit)).await?;
        stream.whole().await
    }

    /// Asks for an answer as it is wanted. Resolves when it begins.
    pub async fn ask(&self, request: ChatRequest, wanted: &Wanted) -> Result<Stream, Error> {
        let asked = request.model.clone();
        let (entry, model) = self
            .find(&asked)
            .ok_or_else(|| Error::UnknownModel(asked.clone()))?;
        let limit = entry.limit.min(wanted.limit);
        let end = Instant::now() + limit;
        let work = async {
            let turn = entry.turn(&asked, wanted).await?;
            let (reply, reading) = entry.answer(request, &model, wanted.stream, end).await?;
            Ok((turn, reply, reading))
        };
        let late = || Error::Late {
            model: asked.clone(),
            limit,
        };
        let done = within(limit, Box::pin(work)).await.ok_or_else(late)?;
        let (turn, reply, reading) = done.map_err(|error| self.explain(error))?;
        Stream::new(Parts {
            reply,
            reading,
            backend: entry.backend,
            model: asked,
            end,
            limit,
            turn,
        })
    }

    /// How calls reach clients that ask for `model`, if the settings say so.
    pub fn client_mode(&self, model: &str) -> Option<ClientMode> {
        self.find(model)?.0.client_mode
    }

    /// How busy every entry is.
    pub fn status(&self) -> Vec<ModelStatus> {
        let status = |it: &Entry| {
            let (running, waiting) = it.queue.load();
            ModelStatus {
                name: it.names.shown().to_owned(),
                running,
                waiting,
            }
        };
        self.entries.iter().map(status).collect()
    }

    fn find(&self, asked: &str) -> Option<(&Entry, String)> {
        let found = |it| {
            let entry: &Entry = it;
            entry.names.resolve(asked).map(|model| (entry, model))
        };
        self.entries.iter().find_map(found)
    }

    /// Where nothing is configured, that is what is wrong.
    fn explain(&self, error: Error) -> Error {
        match (&self.fallback, error) {
            (Some(place), Error::Unreachable { .. }) => Error::NoModels(place.clone()),
            (_, error) => error,
        }
    }
}

impl Entry {
    fn open(definition: &ModelDefinition, policy: &Policy, tls: &Tls) -> Result<Self, String> {
        let backend = definition.backend;
        let (base_url, header) = match backend {
            Backend::Openai => (OPENAI, "authorization"),
            Backend::Gemini => (GEMINI, "x-goog-api-key"),
        };
        let base_url = definition.base_url.as_deref().unwrap_or(base_url);
        // Empty where a variable that may be missing has no value.
        let key = definition.api_key.as_ref();
        let key = key.filter(|it| !it.reveal().is_empty());
        let key = key.map(|key| match backend {
            Backend::Openai => Secret::from(format!("Bearer {}", key.reveal())),
            Backend::Gemini => key.clone(),
        });
        let names = Names::new(
            &definition.name,
            &definition.aliases,
            definition.model.as_deref(),
        )?;
        Ok(Self {
            names,
            backend,
            service: Service::open(
                base_url,
                &listing(policy, base_url),
                tls,
                key.map(|it| (header, it)),
            )?,
            base_url: base_url.to_owned(),
            queue: Queue::new(bounds(definition)),
            tool_mode: definition.tool_mode,
            dialect: dialect(&definition.dialect)?,
            client_mode: definition.client_mode,
            limit: Duration::from_millis(definition.timeout_ms),
            plain: Mutex::default(),
        })
    }

    async fn turn(&self, asked: &str, wanted: &Wanted) -> Result<Turn, Error> {
        let entered = self.queue.enter().map_err(|full| Error::QueueFull {
            model: asked.to_owned(),
            waiting: full.waiting,
            retry_after: full.retry_after,
        })?;
        Ok(match entered {
            Ok(turn) => turn,
            Err(place) => place.turn(&wanted.place).await,
        })
    }

    /// The beginning of an answer; models that turn out to take no tools are
    /// asked once more, with the tools in the text.
    async fn answer(
        &self,
        request: ChatRequest,
        model: &str,
        stream: bool,
        end: Instant,
    ) -> Result<(Reply, Reading), Error> {
        let asked = request.model.clone();
        let mode = self.mode(model);
        let may_change = mode == ToolMode::Native
            && self.tool_mode == ToolMode::Auto
            && !request.tools.is_empty();
        let spare = may_change.then(|| request.clone());
        let prepared = self.prepare(request, model, mode, stream);
        let failed = match self.persist(&prepared, &asked, end).await? {
            Ok(reply) => return Ok((reply, prepared.reading)),
            Err(refusal) => refusal,
        };
        let refused = |it: Refusal| Error::Status {
            model: asked.clone(),
            status: it.status,
            code: it.code,
            retry_after: it.retry_after,
        };
        let Some(request) = spare.filter(|_| failed.no_tools) else {
            return Err(refused(failed));
        };
        debug!(
            model,
            "the model takes no tools; describing them from now on"
        );
        self.remember_plain(model);
        let prepared = self.prepare(request, model, ToolMode::Prompt, stream);
        match self.persist(&prepared, &asked, end).await? {
            Ok(reply) => Ok((reply, prepared.reading)),
            Err(refusal) => Err(refused(refusal)),
        }
    }

    /// Asks until there is an answer, or asking again does not help.
    async fn persist(
        &self,
        prepared: &Prepared,
        asked: &str,
        end: Instant,
    ) -> Result<Result<Reply, Refusal>, Error> {
        let mut attempt = 0;
        loop {
            let sent = self
                .service
                .post(&prepared.path, prepared.body.clone())
                .await;
            let (failed, pause) = match sent {
                Ok(reply) if reply.status.is_success() => return Ok(Ok(reply)),
                Ok(reply) => {
                    let refusal = Refusal::read(reply).await;
                    let pause = refusal.pause(attempt).filter(|_| !refusal.no_tools);
                    (Ok(refusal), pause)
                }
                Err(error) => {
                    let pause = may_recover(&error).then(|| backoff(attempt));
                    (Err(error), pause)
                }
            };
            let pause = pause.filter(|it| attempt < FURTHER_ATTEMPTS && Instant::now() + *it < end);
            let Some(pause) = pause else {
                return failed.map(Err).map_err(|source| Error::Unreachable {
                    model: asked.to_owned(),
                    source,
                });
            };
            time::sleep(pause).await;
            self.queue.again().await;
            attempt += 1;
        }
    }

    /// How tools reach `model`.
    fn mode(&self, model: &str) -> ToolMode {
        let plain = || match self.backend {
            Backend::Gemini => gemini::is_plain(model),
            Backend::Openai => self.lock_plain().contains(model),
        };
        match self.tool_mode {
            ToolMode::Auto if plain() => ToolMode::Prompt,
            ToolMode::Auto => ToolMode::Native,
            // It would only be refused.
            ToolMode::Native if self.backend == Backend::Gemini && plain() => ToolMode::Prompt,
            mode => mode,
        }
    }

    fn prepare(
        &self,
        mut request: ChatRequest,
        model: &str,
        mode: ToolMode,
        stream: bool,
    ) -> Prepared {
        let known = request.tools.iter().chain(&request.described);
        let tools = Tools::new(known.map(|it| (it.name.as_str(), &it.parameters)));
        let callable = !request.tools.is_empty() && request.choice != Choice::None;
        let constrained = mode == ToolMode::Constrained && callable;
        let form = constrained.then(|| constrained::schema(&request.tools, &request.choice));
        match mode {
            ToolMode::Auto | ToolMode::Native => (),
            ToolMode::Prompt => prompt::fold(&mut request, &tools, Form::Framed),
            ToolMode::Constrained => prompt::fold(&mut request, &tools, Form::Constrained),
        }
        history::clean(&mut request, &tools, Taste::of(&self.base_url, model));
        let (path, body) = self.write(request, model, form, stream);
        Prepared {
            path,
            body: body.into(),
            reading: Reading::new(tools, self.dialect, constrained),
        }
    }

    fn write(
        &self,
        mut request: ChatRequest,
        model: &str,
        form: Option<Value>,
        stream: bool,
    ) -> (String, Vec<u8>) {
        match self.backend {
            Backend::Openai => {
                let body = openai::body(request, model, form, stream);
                ("/chat/completions".to_owned(), body)
            }
            Backend::Gemini => {
                if gemini::is_plain(model) {
                    prompt::fold_system(&mut request.messages);
                }
                let body = gemini::body(&request, model, form.as_ref());
                (gemini::path(model, stream), body)
            }
        }
    }

    fn remember_plain(&self, model: &str) {
        let mut plain = self.lock_plain();
        if plain.len() < REMEMBERED {
            plain.insert(model.to_owned());
        }
    }

    fn lock_plain(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.plain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who writes a host into the settings wants it to be reached.
fn listing(policy: &Policy, base_url: &str) -> Policy {
    let host = base_url.split("://").nth(1).unwrap_or_default();
    let host = host.split(['/', '?']).next().unwrap_or_default();
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|it| it.is_ascii_digit()) => host,
        _ => host,
    };
    let mut policy = policy.clone();
    policy.local = true;
    policy.allowed.push(host.to_owned());
    policy
}

fn dialect(name: &str) -> Result<Dialect, String> {
    name.parse()
        .map_err(|why: UnknownDialect| format!("{why}; known are auto, {}", KNOWN.join(", ")))
}

fn bounds(definition: &ModelDefinition) -> Bounds {
    let size = |it: u32| usize::try_from(it).unwrap_or(usize::MAX);
    Bounds {
        per_minute: definition.requests_per_minute.map(size),
        at_once: definition.max_concurrent.map_or(AT_ONCE, size).min(AT_ONCE),
        waiting: size(definition.max_waiting),
    }
}
