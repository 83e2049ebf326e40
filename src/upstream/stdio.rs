//! A server that is a child process: one message a line.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, Command},
    time,
};

use super::{
    Error,
    budget::TrafficBudget,
    channel::Channel,
    command::{can_run, find_program},
    log::Log,
    news::News,
    open::Means,
    programs::{Launch, ProgramGuard, RunningProgram},
    server::MASK,
    transport::Program,
};
use crate::{
    config::{Secret, hidden_of_arguments},
    mcp::{Line, Lines},
    queue,
    tasks::WorkSlice,
};

/// How long a program gets to end by itself, and again after it was told to.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much of what a program complains is kept.
const COMPLAINTS: usize = 4096;
/// As much of a line of stderr is kept in the log.
const LONGEST_LINE: usize = 1024;
/// Variables that a program gets from us: none of them holds a secret.
const PASSED_ON: [&str; 12] = [
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
];

type Complaints = Arc<Mutex<Vec<u8>>>;

/// Starts the program.
pub(super) fn open(
    program: &Program,
    means: &Means,
    news: Arc<News>,
) -> Result<Arc<Channel>, Error> {
    let (mut child, guard) = spawn(program, means)?;
    let tasks = &means.tasks;
    let (out, outgoing) = queue::channel();
    let channel = Channel::new(out, news, means);
    let complaints = Complaints::default();
    if let Some(stderr) = child.stderr.take() {
        let keeper = StderrKeeper {
            complaints: Arc::clone(&complaints),
            log: Arc::clone(&means.log),
            budget: TrafficBudget::new(means.traffic_rate),
        };
        let (keeping, closed) = (
            keeper.keep(stderr, Arc::clone(&channel)),
            channel.closed.clone(),
        );
        // A child of the program may hold its end of the pipe for ever.
        tasks.spawn(async move {
            closed.run_until_cancelled(keeping).await;
        });
    }
    if let Some(stdout) = child.stdout.take() {
        tasks.spawn(read(stdout, Arc::clone(&channel)));
    }
    if let Some(stdin) = child.stdin.take() {
        let writer = write(stdin, outgoing, Arc::clone(&channel));
        tasks.spawn(writer);
    }
    let (trace, watched) = (means.traces.leave(), Arc::clone(&channel));
    let mut secrets: Vec<Secret> = program.env.values().cloned().collect();
    let hidden = hidden_of_arguments(&program.args).into_iter();
    secrets.extend(hidden.map(Secret::from));
    tasks.spawn(async move {
        watch(child, watched, (complaints, secrets), &guard.program).await;
        guard.end_rest().await;
        drop((guard, trace));
    });
    Ok(channel)
}

/// Our own variables that children may see.
pub(super) type Environment = Vec<(String, String)>;

/// The variables of `all` that are passed on.
pub(super) fn passed_on(all: impl IntoIterator<Item = (String, String)>) -> Environment {
    all.into_iter()
        .filter(|(name, _)| PASSED_ON.contains(&name.as_str()))
        .collect()
}

/// Starts the program, by the warden if there is one.
fn spawn(program: &Program, means: &Means) -> Result<(Child, ProgramGuard), Error> {
    let found = find(program, &means.environment)?;
    let group = means.warden.as_ref().and_then(|_| means.programs.group());
    let mut command = match &means.warden {
        None => Command::new(&found),
        Some(warden) => {
            let mut command = Command::new(warden);
            let hub = std::process::id().to_string();
            command.arg0("maru").args(["child", &hub]);
            command.args(means.programs.warden_arguments(group.as_ref()));
            command.arg("--").arg(&found);
            command
        }
    };
    command
        .args(&program.args)
        .env_clear()
        .envs(means.environment.iter().map(|(name, value)| (name, value)))
        .envs(
            program
                .env
                .iter()
                .map(|(name, value)| (name, value.reveal())),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(directory) = &program.cwd {
        command.current_dir(directory);
    }
    let launch = Launch {
        command: &mut command,
        group,
        has_warden: means.warden.is_some(),
        slot: Arc::clone(&means.program),
    };
    means.programs.start(launch).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "not found".to_owned(),
            kind => kind.to_string(),
        };
        Error::Refused(format!("cannot start {}: {why}", program.command))
    })
}

/// The program's own path: what is started later is what was found now.
fn find(program: &Program, environment: &Environment) -> Result<PathBuf, Error> {
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let found = find_program(&program.command, path.map_or("", |(_, value)| value));
    let refused = |why: &str| Error::Refused(format!("cannot start {}: {why}", program.command));
    match found {
        None => Err(refused("not found")),
        Some(found) if !can_run(&found) => Err(refused("permission denied")),
        Some(found) => Ok(found),
    }
}

/// Reads messages until the program closes its output.
async fn read(mut stdout: impl AsyncRead + Unpin, channel: Arc<Channel>) {
    let mut lines = Lines::default();
    let mut found = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut first = true;
    let mut slice = WorkSlice::default();
    loop {
        let count = tokio::select! {
            count = stdout.read(&mut buffer) => count.unwrap_or(0),
            () = channel.closed.cancelled() => return,
        };
        if count == 0 || channel.lost.is_cancelled() {
            break;
        }
        let mut chunk = &buffer[..count];
        if std::mem::take(&mut first) {
            chunk = chunk.strip_prefix(b"\xef\xbb\xbf").unwrap_or(chunk);
        }
        lines.feed(chunk, &mut found);
        for line in found.drain(..) {
            let (taken, bytes) = match line {
                Line::Whole(bytes) => (channel.take(&bytes), bytes.len()),
                Line::TooLong => {
                    let why = "the program wrote a line of more than 16 MiB";
                    (Err(Error::Garbage(why.to_owned())), 0)
                }
            };
            if let Err(why) = taken {
                return channel.lose(why);
            }
            slice.spend(bytes).await;
        }
        // Blank lines are no lines, but cost reading.
        slice.spend(count).await;
    }
    // The exit code says more; it comes within a moment if the program ended.
    if time::timeout(Duration::from_millis(500), channel.lost.cancelled())
        .await
        .is_err()
    {
        channel.lose(Error::Lost("the program closed its output".to_owned()));
    }
}

/// Writes messages until nobody needs the program; then closes its input.
async fn write(mut stdin: ChildStdin, mut outgoing: queue::Receiver, channel: Arc<Channel>) {
    let work = async {
        while let Some(mut text) = outgoing.recv().await {
            text.push('\n');
            if stdin.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = work => (),
        () = channel.closing.cancelled() => (),
        () = channel.lost.cancelled() => (),
    }
}

/// Keeps what a program wrote to stderr last; it is shown when the program fails.
struct StderrKeeper {
    complaints: Complaints,
    log: Arc<Log>,
    budget: TrafficBudget,
}

impl StderrKeeper {
    async fn keep(self, mut stderr: impl AsyncRead + Unpin, channel: Arc<Channel>) {
        let mut buffer = [0; 4096];
        let mut line = Vec::new();
        let mut slice = WorkSlice::default();
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let chunk = &buffer[..count];
            self.remember(chunk);
            let lines = log_lines(chunk, &mut line, &self.log);
            if let Err(why) = self.budget.spend(lines, count) {
                // The program blocks on its pipe from here on, until it is ended.
                return channel.lose(why);
            }
            slice.spend(count + lines * 64).await;
        }
        log_line(&mut line, &self.log);
    }

    fn remember(&self, chunk: &[u8]) {
        let mut kept = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(chunk);
        let over = kept.len().saturating_sub(COMPLAINTS);
        kept.drain(..over);
    }
}

/// Whole lines of `chunk` go to the log; the rest stays in `line`. Of a line that
/// does not end only the beginning is looked at: a program may write without end.
/// Tells how many lines ended.
fn log_lines(chunk: &[u8], line: &mut Vec<u8>, log: &Log) -> usize {
    let mut lines = 0;
    for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
        let room = LONGEST_LINE - line.len();
        line.extend_from_slice(&piece[..room.min(piece.len())]);
        if piece.ends_with(b"\n") {
            log_line(line, log);
            lines += 1;
        }
    }
    lines
}

fn log_line(line: &mut Vec<u8>, log: &Log) {
    let text = String::from_utf8_lossy(line);
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    if !clean.trim().is_empty() {
        log.said(clean.trim_end());
    }
    line.clear();
}

/// Waits for the end of the program, or brings it about.
async fn watch(
    mut child: Child,
    channel: Arc<Channel>,
    (complaints, secrets): (Complaints, Vec<Secret>),
    program: &RunningProgram,
) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let ended = tokio::select! {
        status = child.wait() => status.ok(),
        () = program.ended.cancelled() => None,
        () = channel.closing.cancelled() => None,
        () = channel.lost.cancelled() => None,
    };
    match ended {
        Some(status) => {
            // What it said last may still be in the pipe.
            time::sleep(Duration::from_millis(20)).await;
            channel.lose(
                bound_passed(program).unwrap_or_else(|| cause(status, &complaints, &secrets)),
            );
        }
        None => {
            if let Some(why) = bound_passed(program) {
                channel.lose(why);
            }
            end(&mut child, group).await;
        }
    }
    // Children of the child go with it.
    signal(group, Signal::KILL);
    channel.lose(Error::Lost("the program was stopped".to_owned()));
    channel.closed.cancel();
}

/// Why the program was ended, if it was for a bound.
fn bound_passed(program: &RunningProgram) -> Option<Error> {
    let how = program.cause()?;
    Some(Error::Ended { how, said: None })
}

/// Its input is closed; then it is told to end, and then made to.
async fn end(child: &mut Child, group: Option<Pid>) {
    for told in [Signal::TERM, Signal::KILL] {
        if time::timeout(PATIENCE, child.wait()).await.is_ok() {
            return;
        }
        signal(group, told);
    }
    // A killed process ends; the wait only collects it.
    let _ = child.wait().await;
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // It may have ended in the meantime.
        let _ = kill_process_group(group, signal);
    }
}

fn cause(status: ExitStatus, complaints: &Complaints, secrets: &[Secret]) -> Error {
    let kept = complaints.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&kept);
    let clean =
        |line: &str| -> String { line.chars().filter(|c| !c.is_control()).take(300).collect() };
    let last: Vec<String> = text
        .lines()
        .map(clean)
        .filter(|it| !it.trim().is_empty())
        .collect();
    let how = match status.code() {
        Some(code) => format!("the program ended with exit code {code}"),
        None => format!("the program was ended by {status}"),
    };
    Error::Ended {
        how,
        said: last.last().map(|line| redacted(line.trim(), secrets)),
    }
}

/// The text without the secrets that the program was given.
fn redacted(text: &str, secrets: &[Secret]) -> String {
    let telling = |it: &&Secret| it.reveal().len() >= 4;
    secrets
        .iter()
        .filter(telling)
        .fold(text.to_owned(), |text, it| text.replace(it.reveal(), MASK))
}
