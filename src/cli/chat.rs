//! `maru chat`: a conversation with the agent loop, in the terminal.

use std::{io::IsTerminal as _, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use maru_protocol::SseEvent;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, Stdin, stdin},
    signal,
};

use super::{
    client::HubClient, context::CliContext, limits::names_of, serve::block_on,
    suggestion::did_you_mean, terminal,
};
use crate::tools::OWN_SERVER_NAME;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru chat                                   talk; Ctrl-C stops a round, Ctrl-D ends
  maru chat --server maru '연차가 며칠 남았나요? EMP001'   one question
  maru chat --model qwen3:8b --server files   with tools of one server
  maru chat --approve                         asks before a destructive call")]
pub(super) struct ChatArgs {
    /// One question; without it, a conversation
    question: Option<String>,
    /// The model [default: the one of the settings, or the first]
    #[arg(long)]
    model: Option<String>,
    /// Only tools of this server; may be given several times. maru's own tools are the server maru
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// How often the model may be asked for one question
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Ask before calls that may destroy something, instead of refusing them
    #[arg(long)]
    approve: bool,
}

pub(super) fn run(context: &CliContext, options: &ChatArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        let mut chat = ChatSession::new(&hub, options);
        match &options.question {
            Some(question) => chat.ask(question).await?,
            None => chat.converse().await?,
        }
        Ok(ExitCode::from(u8::from(chat.failed)))
    })
}

struct ChatSession<'a> {
    hub: &'a HubClient,
    options: &'a ChatArgs,
    messages: Vec<Value>,
    lines: Lines<BufReader<Stdin>>,
    /// Whether the last question had no answer.
    failed: bool,
}

/// The progress of a run.
#[derive(Default)]
struct RunProgress {
    id: String,
    /// Whether the text of this round has begun.
    has_text: bool,
    /// Whether any text was printed.
    has_printed: bool,
    answer: Option<String>,
    error: Option<String>,
}

impl<'a> ChatSession<'a> {
    fn new(hub: &'a HubClient, options: &'a ChatArgs) -> Self {
        Self {
            hub,
            options,
            messages: Vec::new(),
            lines: BufReader::new(stdin()).lines(),
            failed: false,
        }
    }

    async fn converse(&mut self) -> Result<()> {
        let has_prompt = std::io::stdin().is_terminal();
        loop {
            if has_prompt {
                terminal::print("> ")?;
            }
            let line = tokio::select! {
                line = self.lines.next_line() => line?,
                pressed = signal::ctrl_c() => return Ok(pressed?),
            };
            match line {
                None => return Ok(()),
                Some(line) if line.trim().is_empty() => (),
                Some(line) => self.ask(&line).await?,
            }
        }
    }

    async fn ask(&mut self, question: &str) -> Result<()> {
        self.messages
            .push(json!({"role": "user", "content": question}));
        let mut params = json!({"messages": self.messages});
        let options = self.options;
        if let Some(model) = &options.model {
            params["model"] = model.as_str().into();
        }
        if options.servers.is_empty() {
            params["own_tools"] = true.into();
        } else {
            params["mcp_servers"] = json!(options.servers);
        }
        if let Some(rounds) = options.rounds {
            params["max_iterations"] = rounds.into();
        }
        if options.approve {
            params["approval"] = "ask".into();
        }
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params});
        let mut run = RunProgress::default();
        let (hub, lines) = (self.hub, &mut self.lines);
        let events = hub.stream_events("/generate_with_mcp", &body, async |event| {
            run.show_event(event, hub, lines).await
        });
        let ended = tokio::select! {
            ended = events => ended?,
            _ = signal::ctrl_c() => {
                terminal::print("\n[stopped]\n")?;
                None
            }
        };
        if let Some(response) = ended {
            let message = response["error"]["message"]
                .as_str()
                .or(response["error"].as_str());
            let message = message.unwrap_or("the hub refused");
            run.error = Some(format!("{message}{}", self.similar_names().await));
        }
        self.record_answer(run)
    }

    /// Suggestions for a misspelt model or server, after a refusal.
    async fn similar_names(&self) -> String {
        let models = self.options.model.iter();
        let models = models.map(|it| ("/v1/models", "id", it));
        let servers = self.options.servers.iter();
        let servers = servers.map(|it| ("/api/mcp/servers", "name", it));
        for (path, member, name) in models.chain(servers) {
            let Ok(list) = self.hub.request_json("GET", path, None).await else {
                continue;
            };
            let known = names_of(list.get("data").unwrap_or(&list), member);
            if !known.contains(name) && name != OWN_SERVER_NAME {
                return did_you_mean(name, known);
            }
        }
        String::new()
    }

    /// Keeps the answer for the next question.
    fn record_answer(&mut self, run: RunProgress) -> Result<()> {
        self.failed = run.answer.is_none();
        match (run.answer, run.error) {
            (Some(answer), _) => self
                .messages
                .push(json!({"role": "assistant", "content": answer})),
            (None, Some(message)) if self.options.question.is_some() => bail!(message),
            (None, message) => {
                self.messages.pop();
                if let Some(message) = message {
                    terminal::print_error(&message);
                }
            }
        }
        Ok(())
    }
}

impl RunProgress {
    async fn show_event(
        &mut self,
        event: SseEvent,
        hub: &HubClient,
        lines: &mut Lines<BufReader<Stdin>>,
    ) -> Result<()> {
        let data: Value = serde_json::from_str(&event.data)?;
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        match event.name.as_str() {
            "run" => {
                self.id = text("run_id");
                for server in data["unavailable_servers"].as_array().into_iter().flatten() {
                    let part = |name: &str| server[name].as_str().unwrap_or_default();
                    terminal::print_error(&format!(
                        "without the server {}, which is {}",
                        part("name"),
                        part("status")
                    ));
                }
            }
            "round" if std::mem::take(&mut self.has_text) => terminal::print("\n")?,
            "thought" => {
                self.has_text = true;
                self.has_printed = true;
                terminal::print(&text("text"))?;
            }
            "call" => {
                let gap = if self.has_text { "\n" } else { "" };
                self.has_text = false;
                terminal::print(&format!(
                    "{gap}[call] {} {}\n",
                    text("name"),
                    data["arguments"]
                ))?;
            }
            "rejected" => {
                let gap = if self.has_text { "\n" } else { "" };
                self.has_text = false;
                terminal::print(&format!("{gap}[rejected call] {}\n", text("reason")))?;
            }
            "observation" => {
                let mark = if data["is_error"] == true {
                    "failed"
                } else {
                    "ok"
                };
                terminal::print(&format!(
                    "[{mark}, {} ms] {}\n",
                    data["ms"],
                    first_line_of(&text("result"))
                ))?;
            }
            "approval" => {
                self.ask_approval(&text("id"), &text("name"), hub, lines)
                    .await?;
            }
            "answer" => {
                let cut = if data["cut"] == true {
                    format!("\n[cut: {}]", text("finish_reason"))
                } else {
                    String::new()
                };
                let words = if self.has_printed {
                    String::new()
                } else {
                    text("text")
                };
                terminal::print(&format!("{words}{cut}\n"))?;
                self.answer = Some(text("text"));
            }
            "error" => {
                self.error = Some(
                    data["error"]["message"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                );
            }
            _ => (),
        }
        Ok(())
    }

    async fn ask_approval(
        &self,
        call: &str,
        tool: &str,
        hub: &HubClient,
        lines: &mut Lines<BufReader<Stdin>>,
    ) -> Result<()> {
        terminal::print(&format!("{tool} may destroy something. Call it? [y/N] "))?;
        let line = lines.next_line().await?.unwrap_or_default();
        let decision = match line.trim() {
            "y" | "Y" | "yes" => "approve",
            _ => "refuse",
        };
        let path = format!("/api/runs/{}/calls/{call}/{decision}", self.id);
        hub.send_rest("POST", &path, None).await?;
        Ok(())
    }
}

/// The beginning of a result, on one line.
fn first_line_of(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 200;
    let line = text.replace('\n', " ");
    match line.char_indices().nth(MAX_SHOWN_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}
