//! A server that is a child process: one message a line.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_protocol::{DecodedLine, LineDecoder};
use maru_runtime::{message_queue, tasks::WorkSlice};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, Command},
    time,
};

use super::{
    Error,
    channel::MessageChannel,
    connect::ConnectContext,
    notifications::NotificationSink,
    program_rules::{find_program, is_executable},
    programs::{ProgramGuard, ProgramLaunch, RunningProgram},
    server::MASK,
    server_log::ServerLog,
    traffic_budget::TrafficBudget,
    transport::ProgramSpec,
};
use crate::config::{SecretString, masked_argument_values};

/// How long a program gets to end by itself, and again after it was told to.
const TERMINATE_GRACE: Duration = Duration::from_secs(2);
/// How much of what a program complains is kept.
const MAX_STDERR_TAIL_BYTES: usize = 4096;
/// As much of a line of stderr is kept in the log.
const MAX_STDERR_LINE_BYTES: usize = 1024;
/// Variables that a program gets from us: none of them holds a secret.
const INHERITED_VARIABLES: [&str; 12] = [
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

type StderrTail = Arc<Mutex<Vec<u8>>>;

/// Starts the program.
pub(super) fn open(
    program: &ProgramSpec,
    means: &ConnectContext,
    news: Arc<NotificationSink>,
) -> Result<Arc<MessageChannel>, Error> {
    let (mut child, guard) = spawn_program(program, means)?;
    let tasks = &means.tasks;
    let (out, outgoing) = message_queue::channel();
    let channel = MessageChannel::new(out, news, means);
    let complaints = StderrTail::default();
    if let Some(stderr) = child.stderr.take() {
        let keeper = StderrReader {
            tail: Arc::clone(&complaints),
            log: Arc::clone(&means.log),
            budget: TrafficBudget::new(means.traffic_rate),
        };
        let (keeping, closed) = (
            keeper.read_to_end(stderr, Arc::clone(&channel)),
            channel.closed.clone(),
        );
        // A child of the program may hold its end of the pipe for ever.
        tasks.spawn(async move {
            closed.run_until_cancelled(keeping).await;
        });
    }
    if let Some(stdout) = child.stdout.take() {
        tasks.spawn(read_messages(stdout, Arc::clone(&channel)));
    }
    if let Some(stdin) = child.stdin.take() {
        let writer = write_messages(stdin, outgoing, Arc::clone(&channel));
        tasks.spawn(writer);
    }
    let (trace, watched) = (means.cleanup.token(), Arc::clone(&channel));
    let mut secrets: Vec<SecretString> = program.env.values().cloned().collect();
    let hidden = masked_argument_values(&program.args).into_iter();
    secrets.extend(hidden.map(SecretString::from));
    tasks.spawn(async move {
        wait_for_exit(child, watched, complaints, secrets, &guard.program).await;
        guard.clean_up().await;
        drop((guard, trace));
    });
    Ok(channel)
}

/// Our own variables that children may see.
pub(super) type InheritedEnvironment = Vec<(String, String)>;

/// The variables of `all` that are passed on.
pub(super) fn inherited_environment(
    all: impl IntoIterator<Item = (String, String)>,
) -> InheritedEnvironment {
    all.into_iter()
        .filter(|(name, _)| INHERITED_VARIABLES.contains(&name.as_str()))
        .collect()
}

/// Starts the program, by the warden if there is one.
fn spawn_program(
    program: &ProgramSpec,
    means: &ConnectContext,
) -> Result<(Child, ProgramGuard), Error> {
    let found = resolve_program(program, &means.environment)?;
    let group = means
        .warden
        .as_ref()
        .and_then(|_| means.programs.create_cgroup());
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
    let launch = ProgramLaunch {
        command: &mut command,
        group,
        has_warden: means.warden.is_some(),
        slot: Arc::clone(&means.program_slot),
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
fn resolve_program(
    program: &ProgramSpec,
    environment: &InheritedEnvironment,
) -> Result<PathBuf, Error> {
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let found = find_program(&program.command, path.map_or("", |(_, value)| value));
    let refused = |why: &str| Error::Refused(format!("cannot start {}: {why}", program.command));
    match found {
        None => Err(refused("not found")),
        Some(found) if !is_executable(&found) => Err(refused("permission denied")),
        Some(found) => Ok(found),
    }
}

/// Reads messages until the program closes its output.
async fn read_messages(mut stdout: impl AsyncRead + Unpin, channel: Arc<MessageChannel>) {
    let mut lines = LineDecoder::default();
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
        let blank = lines.feed(chunk, &mut found);
        if let Err(why) = channel.count_ignored(blank) {
            return channel.mark_lost(why);
        }
        for line in found.drain(..) {
            let (taken, bytes) = match line {
                DecodedLine::Whole(bytes) => (channel.handle_bytes(&bytes), bytes.len()),
                DecodedLine::TooLong => {
                    let why = "the program wrote a line of more than 16 MiB";
                    (Err(Error::InvalidMessage(why.to_owned())), 0)
                }
            };
            if let Err(why) = taken {
                return channel.mark_lost(why);
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
        channel.mark_lost(Error::Lost("the program closed its output".to_owned()));
    }
}

/// Writes messages until nobody needs the program; then closes its input.
async fn write_messages(
    mut stdin: ChildStdin,
    mut outgoing: message_queue::MessageReceiver,
    channel: Arc<MessageChannel>,
) {
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
struct StderrReader {
    tail: StderrTail,
    log: Arc<ServerLog>,
    budget: TrafficBudget,
}

impl StderrReader {
    async fn read_to_end(self, mut stderr: impl AsyncRead + Unpin, channel: Arc<MessageChannel>) {
        let mut buffer = [0; 4096];
        let mut line = Vec::new();
        let mut slice = WorkSlice::default();
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let chunk = &buffer[..count];
            self.append_to_tail(chunk);
            let lines = log_lines(chunk, &mut line, &self.log);
            if let Err(why) = self.budget.spend(lines, count) {
                // The program blocks on its pipe from here on, until it is ended.
                return channel.mark_lost(why);
            }
            slice.spend(count + lines * 64).await;
        }
        log_line(&mut line, &self.log);
    }

    fn append_to_tail(&self, chunk: &[u8]) {
        let mut kept = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(chunk);
        let over = kept.len().saturating_sub(MAX_STDERR_TAIL_BYTES);
        kept.drain(..over);
    }
}

/// Whole lines of `chunk` go to the log; the rest stays in `line`. Of a line that
/// does not end only the beginning is looked at: a program may write without end.
/// Tells how many lines ended.
fn log_lines(chunk: &[u8], line: &mut Vec<u8>, log: &ServerLog) -> usize {
    let mut lines = 0;
    for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
        let room = MAX_STDERR_LINE_BYTES - line.len();
        line.extend_from_slice(&piece[..room.min(piece.len())]);
        if piece.ends_with(b"\n") {
            log_line(line, log);
            lines += 1;
        }
    }
    lines
}

fn log_line(line: &mut Vec<u8>, log: &ServerLog) {
    let text = String::from_utf8_lossy(line);
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    if !clean.trim().is_empty() {
        log.record_stderr(clean.trim_end());
    }
    line.clear();
}

/// Waits for the end of the program, or brings it about.
async fn wait_for_exit(
    mut child: Child,
    channel: Arc<MessageChannel>,
    complaints: StderrTail,
    secrets: Vec<SecretString>,
    program: &RunningProgram,
) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let ended = tokio::select! {
        status = child.wait() => status.ok(),
        () = program.limit_exceeded.cancelled() => None,
        () = channel.closing.cancelled() => None,
        () = channel.lost.cancelled() => None,
    };
    match ended {
        Some(status) => {
            // What it said last may still be in the pipe.
            time::sleep(Duration::from_millis(20)).await;
            channel.mark_lost(
                limit_error(program).unwrap_or_else(|| exit_error(status, &complaints, &secrets)),
            );
        }
        None => {
            if let Some(why) = limit_error(program) {
                channel.mark_lost(why);
            }
            terminate(&mut child, group).await;
        }
    }
    // Children of the child go with it.
    signal_group(group, Signal::KILL);
    channel.mark_lost(Error::Lost("the program was stopped".to_owned()));
    channel.closed.cancel();
}

/// Why the program was ended, if it was for a bound.
fn limit_error(program: &RunningProgram) -> Option<Error> {
    let how = program.end_cause()?;
    Some(Error::ProgramExited { how, said: None })
}

/// Its input is closed; then it is told to end, and then made to.
async fn terminate(child: &mut Child, group: Option<Pid>) {
    for told in [Signal::TERM, Signal::KILL] {
        if time::timeout(TERMINATE_GRACE, child.wait()).await.is_ok() {
            return;
        }
        signal_group(group, told);
    }
    // A killed process ends; the wait only collects it.
    let _ = child.wait().await;
}

fn signal_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // It may have ended in the meantime.
        let _ = kill_process_group(group, signal);
    }
}

fn exit_error(status: ExitStatus, complaints: &StderrTail, secrets: &[SecretString]) -> Error {
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
    Error::ProgramExited {
        how,
        said: last.last().map(|line| redact_secrets(line.trim(), secrets)),
    }
}

/// The text without the secrets that the program was given.
fn redact_secrets(text: &str, secrets: &[SecretString]) -> String {
    let telling = |it: &&SecretString| it.reveal().len() >= 4;
    secrets
        .iter()
        .filter(telling)
        .fold(text.to_owned(), |text, it| text.replace(it.reveal(), MASK))
}
