//! `maru chat`: a conversation with the agent loop, in the terminal.

use std::{io::IsTerminal as _, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, Stdin, stdin},
    signal,
};

use super::{client::Remote, out, serve::block_on};
use crate::{config::Loaded, mcp::Event};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru chat                                   talk; Ctrl-C stops a round, Ctrl-D ends
  maru chat '연차가 며칠 남았나요? EMP001'        one question
  maru chat --model qwen3:8b --server files   with tools of one server
  maru chat --approve                         asks before a destructive call")]
pub(super) struct Options {
    /// One question; without it, a conversation
    question: Option<String>,
    /// The model [default: the one of the settings, or the first]
    #[arg(long)]
    model: Option<String>,
    /// Only tools of this server; may be given several times
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// How often the model may be asked for one question
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Ask before calls that may destroy something, instead of refusing them
    #[arg(long)]
    approve: bool,
}

pub(super) fn run(loaded: &Loaded, options: &Options) -> Result<ExitCode> {
    let hub = Remote::open(loaded)?;
    block_on(async {
        let mut chat = Chat::new(&hub, options);
        match &options.question {
            Some(question) => chat.ask(question).await?,
            None => chat.talk().await?,
        }
        Ok(ExitCode::from(u8::from(chat.failed)))
    })
}

struct Chat<'a> {
    hub: &'a Remote,
    options: &'a Options,
    messages: Vec<Value>,
    lines: Lines<BufReader<Stdin>>,
    /// Whether the last question had no answer.
    failed: bool,
}

/// What is known of a run while it goes on.
#[derive(Default)]
struct Run {
    id: String,
    /// Whether the text of this round has begun.
    speaks: bool,
    answer: Option<String>,
    error: Option<String>,
}

impl<'a> Chat<'a> {
    fn new(hub: &'a Remote, options: &'a Options) -> Self {
        Self {
            hub,
            options,
            messages: Vec::new(),
            lines: BufReader::new(stdin()).lines(),
            failed: false,
        }
    }

    async fn talk(&mut self) -> Result<()> {
        let shows = std::io::stdin().is_terminal();
        loop {
            if shows {
                out::print("> ")?;
            }
            let line = tokio::select! {
                line = self.lines.next_line() => line?,
                done = signal::ctrl_c() => return Ok(done?),
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
        if !options.servers.is_empty() {
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
        let mut run = Run::default();
        let (hub, lines) = (self.hub, &mut self.lines);
        let events = hub.events("/generate_with_mcp", &body, async |event| {
            run.show(event, hub, lines).await
        });
        let ended = tokio::select! {
            ended = events => ended?,
            _ = signal::ctrl_c() => {
                out::print("\n[stopped]\n")?;
                None
            }
        };
        if let Some(refused) = ended {
            let why = refused["error"]["message"]
                .as_str()
                .or(refused["error"].as_str());
            run.error = Some(why.unwrap_or("the hub refused").to_owned());
        }
        self.conclude(run)
    }

    /// Keeps the answer for the next question.
    fn conclude(&mut self, run: Run) -> Result<()> {
        self.failed = run.answer.is_none();
        match (run.answer, run.error) {
            (Some(answer), _) => self
                .messages
                .push(json!({"role": "assistant", "content": answer})),
            (None, Some(why)) if self.options.question.is_some() => bail!(why),
            (None, why) => {
                self.messages.pop();
                if let Some(why) = why {
                    out::complain(&why);
                }
            }
        }
        Ok(())
    }
}

impl Run {
    async fn show(
        &mut self,
        event: Event,
        hub: &Remote,
        lines: &mut Lines<BufReader<Stdin>>,
    ) -> Result<()> {
        let data: Value = serde_json::from_str(&event.data)?;
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        match event.name.as_str() {
            "run" => self.id = text("run_id"),
            "round" => self.speaks = false,
            "thought" => {
                self.speaks = true;
                out::print(&text("text"))?;
            }
            "call" => {
                let gap = if self.speaks { "\n" } else { "" };
                self.speaks = false;
                out::print(&format!(
                    "{gap}[call] {} {}\n",
                    text("name"),
                    data["arguments"]
                ))?;
            }
            "observation" => {
                let mark = if data["is_error"] == true {
                    "failed"
                } else {
                    "ok"
                };
                out::print(&format!(
                    "[{mark}, {} ms] {}\n",
                    data["ms"],
                    short(&text("result"))
                ))?;
            }
            "approval" => self.approve(&text("id"), &text("name"), hub, lines).await?,
            "answer" => {
                let cut = match data["cut"] == true {
                    true => format!("\n[cut: {}]", text("finish_reason")),
                    false => String::new(),
                };
                out::print(&format!("{cut}\n"))?;
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

    async fn approve(
        &self,
        call: &str,
        tool: &str,
        hub: &Remote,
        lines: &mut Lines<BufReader<Stdin>>,
    ) -> Result<()> {
        out::print(&format!("{tool} may destroy something. Call it? [y/N] "))?;
        let line = lines.next_line().await?.unwrap_or_default();
        let decision = match line.trim() {
            "y" | "Y" | "yes" => "approve",
            _ => "refuse",
        };
        let path = format!("/api/runs/{}/calls/{call}/{decision}", self.id);
        hub.rest("POST", &path, None).await?;
        Ok(())
    }
}

/// The beginning of a result, on one line.
fn short(text: &str) -> String {
    const SHOWN: usize = 200;
    let line = text.replace('\n', " ");
    match line.char_indices().nth(SHOWN) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}
