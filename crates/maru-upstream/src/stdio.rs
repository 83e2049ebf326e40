//! The stdio transport: a child process that exchanges one message per line.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_protocol::{DecodedLine, LineDecoder};
use maru_runtime::{message_queue, tasks::WorkSlice, traffic_budget::TrafficBudget};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, Command},
    time,
};

use super::{
    Error,
    channel::MessageChannel,
    connect::ConnectContext,
    exit_cause::{install_hint, telling_line},
    notifications::NotificationSink,
    process_signals::{ProcessSignal, signal_group},
    program_rules::{find_program, is_executable},
    programs::{ProgramGuard, ProgramLaunch, RunningProgram},
    server::MASK,
    server_log::ServerLog,
    transport::ProgramSpec,
};
use maru_config::{SecretString, masked_argument_values};

/// How long a program gets to exit after its input is closed, and again after SIGTERM.
const TERMINATE_GRACE: Duration = Duration::from_secs(2);
/// The most bytes of stderr that are kept for the exit error.
const MAX_STDERR_TAIL_BYTES: usize = 16 << 10;
/// The most bytes of one stderr line that are logged.
const MAX_STDERR_LINE_BYTES: usize = 1024;
/// Environment variables that programs inherit; none contains a secret.
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

/// What programs need beside them to run at all.
#[cfg(windows)]
const SYSTEM_VARIABLES: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERPROFILE",
];
#[cfg(not(windows))]
const SYSTEM_VARIABLES: &[&str] = &[];

type StderrTail = Arc<Mutex<Vec<u8>>>;

/// Starts a program and returns the channel to it.
pub(super) fn open(
    program: &ProgramSpec,
    context: &ConnectContext,
    sink: Arc<NotificationSink>,
) -> Result<Arc<MessageChannel>, Error> {
    let (mut child, guard) = spawn_program(program, context)?;
    let tasks = &context.tasks;
    let (out, outgoing) = message_queue::channel();
    let channel = MessageChannel::new(out, sink, context);
    let stderr_tail = StderrTail::default();
    if let Some(stderr) = child.stderr.take() {
        let reader = StderrReader {
            tail: Arc::clone(&stderr_tail),
            log: Arc::clone(&context.log),
            budget: TrafficBudget::new(context.traffic_rate),
        };
        let (reading, closed) = (
            reader.read_to_end(stderr, Arc::clone(&channel)),
            channel.closed.clone(),
        );
        // A child of the program may keep the pipe open indefinitely.
        tasks.spawn(async move {
            closed.run_until_cancelled(reading).await;
        });
    }
    if let Some(stdout) = child.stdout.take() {
        tasks.spawn(read_messages(stdout, Arc::clone(&channel)));
    }
    if let Some(stdin) = child.stdin.take() {
        let writer = write_messages(stdin, outgoing, Arc::clone(&channel));
        tasks.spawn(writer);
    }
    let (trace, watched) = (context.cleanup.token(), Arc::clone(&channel));
    let mut secrets: Vec<SecretString> = program.env.values().cloned().collect();
    let hidden = masked_argument_values(&program.args).into_iter();
    secrets.extend(hidden.map(SecretString::from));
    tasks.spawn(async move {
        wait_for_exit(child, watched, stderr_tail, secrets, &guard.program).await;
        guard.clean_up().await;
        drop((guard, trace));
    });
    Ok(channel)
}

/// The environment variables that programs inherit.
pub(super) type InheritedEnvironment = Vec<(String, String)>;

/// Filters the environment variables that programs inherit.
pub(super) fn inherited_environment(
    all: impl IntoIterator<Item = (String, String)>,
) -> InheritedEnvironment {
    all.into_iter()
        .filter(|(name, _)| {
            let is_inherited =
                |it: &&str| *it == name || cfg!(windows) && it.eq_ignore_ascii_case(name);
            INHERITED_VARIABLES
                .iter()
                .chain(SYSTEM_VARIABLES)
                .any(is_inherited)
        })
        .collect()
}

/// Spawns the program, through the warden if there is one.
fn spawn_program(
    program: &ProgramSpec,
    context: &ConnectContext,
) -> Result<(Child, ProgramGuard), Error> {
    let found = resolve_program(program, &context.environment)?;
    let group = context
        .warden
        .as_ref()
        .and_then(|_| context.programs.create_cgroup());
    let mut command = match &context.warden {
        None => Command::new(&found),
        Some(warden) => {
            let mut command = Command::new(warden);
            let hub = std::process::id().to_string();
            #[cfg(unix)]
            command.arg0("maru");
            command.args(["child", &hub]);
            command.args(context.programs.warden_arguments(group.as_ref()));
            command.arg("--").arg(&found);
            command
        }
    };
    command
        .args(&program.args)
        .env_clear()
        .envs(
            context
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .envs(
            program
                .env
                .iter()
                .map(|(name, value)| (name, value.reveal())),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    if let Some(directory) = &program.cwd {
        command.current_dir(directory);
    }
    let launch = ProgramLaunch {
        command: &mut command,
        group,
        has_warden: context.warden.is_some(),
        slot: Arc::clone(&context.program_slot),
    };
    context.programs.start(launch).map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => not_found_reason(&program.command),
            kind => kind.to_string(),
        };
        Error::Refused(format!("cannot start {}: {reason}", program.command))
    })
}

/// Resolves the program to an absolute path, so that the file that was checked is the one
/// started.
fn resolve_program(
    program: &ProgramSpec,
    environment: &InheritedEnvironment,
) -> Result<PathBuf, Error> {
    // Windows writes it `Path`.
    let path = environment
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("PATH"));
    let found = find_program(&program.command, path.map_or("", |(_, value)| value));
    let refused =
        |reason: &str| Error::Refused(format!("cannot start {}: {reason}", program.command));
    match found {
        None => Err(refused(&not_found_reason(&program.command))),
        Some(found) if !is_executable(&found) => Err(refused("permission denied")),
        Some(found) => Ok(found),
    }
}

fn not_found_reason(program: &str) -> String {
    match install_hint(program) {
        Some(hint) => format!("not found; {hint}"),
        None => "not found".to_owned(),
    }
}

/// Reads messages until the program closes its stdout.
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
        if let Err(error) = channel.count_ignored(blank) {
            return channel.mark_lost(error);
        }
        for line in found.drain(..) {
            let (taken, bytes) = match line {
                DecodedLine::Whole(bytes) => {
                    let length = bytes.len();
                    (channel.handle_bytes(bytes).await, length)
                }
                DecodedLine::TooLong => {
                    let message = "the program wrote a line of more than 16 MiB";
                    (Err(Error::InvalidMessage(message.to_owned())), 0)
                }
            };
            if let Err(error) = taken {
                return channel.mark_lost(error);
            }
            slice.spend(bytes).await;
        }
        // Blank lines are not counted as messages, but reading them takes time.
        slice.spend(count).await;
    }
    // The exit code is more informative, and arrives shortly if the program has exited.
    if time::timeout(Duration::from_millis(500), channel.lost.cancelled())
        .await
        .is_err()
    {
        channel.mark_lost(Error::Lost("the program closed its output".to_owned()));
    }
}

/// Writes messages until the link is closed, then closes the program's stdin.
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

/// Logs a program's stderr and keeps its end for the exit error.
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
            if let Err(error) = self.budget.spend(lines, count) {
                // From here on the program blocks on its pipe until it is killed.
                return channel.mark_lost(error.into());
            }
            slice.spend(count + lines * 64).await;
        }
        log_line(&mut line, &self.log);
    }

    fn append_to_tail(&self, chunk: &[u8]) {
        let mut kept = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(chunk);
        let excess = kept.len().saturating_sub(MAX_STDERR_TAIL_BYTES);
        kept.drain(..excess);
    }
}

/// Logs the complete lines of `chunk`, keeps the rest in `line`, and returns the number
/// of lines. Only the beginning of an overlong line is kept, because a program may write
/// without line ends.
fn log_lines(chunk: &[u8], line: &mut Vec<u8>, log: &ServerLog) -> usize {
    let mut lines = 0;
    for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
        let remaining = MAX_STDERR_LINE_BYTES - line.len();
        line.extend_from_slice(&piece[..remaining.min(piece.len())]);
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

/// Waits for the program to exit, and terminates it when the link is closed or a limit
/// exceeded.
async fn wait_for_exit(
    mut child: Child,
    channel: Arc<MessageChannel>,
    stderr_tail: StderrTail,
    secrets: Vec<SecretString>,
    program: &RunningProgram,
) {
    let group = child.id();
    let ended = tokio::select! {
        status = child.wait() => status.ok(),
        () = program.limit_exceeded.cancelled() => None,
        () = channel.killed.cancelled() => {
            if let Some(group) = group {
                signal_group(group, ProcessSignal::Kill);
            }
            None
        }
        () = channel.closing.cancelled() => None,
        () = channel.lost.cancelled() => None,
    };
    match ended {
        Some(status) => {
            // The last output may still be in the pipe.
            time::sleep(Duration::from_millis(20)).await;
            channel.mark_lost(
                limit_error(program).unwrap_or_else(|| exit_error(status, &stderr_tail, &secrets)),
            );
        }
        None => {
            if let Some(error) = limit_error(program) {
                channel.mark_lost(error);
            }
            terminate(&mut child, group).await;
        }
    }
    // The program's children are killed with it.
    if let Some(group) = group {
        signal_group(group, ProcessSignal::Kill);
    }
    channel.mark_lost(Error::Lost("the program was stopped".to_owned()));
    channel.closed.cancel();
}

/// Returns the error of a program that was killed for exceeding a limit.
fn limit_error(program: &RunningProgram) -> Option<Error> {
    let how = program.end_cause()?;
    Some(Error::ProgramExited {
        how,
        code: None,
        stderr: None,
    })
}

/// Terminates the program: waits after its input was closed, then sends SIGTERM, then
/// SIGKILL.
async fn terminate(child: &mut Child, group: Option<u32>) {
    for signal in [ProcessSignal::Terminate, ProcessSignal::Kill] {
        if time::timeout(TERMINATE_GRACE, child.wait()).await.is_ok() {
            return;
        }
        if let Some(group) = group {
            signal_group(group, signal);
        }
    }
    // Where there are no signals, this ends the program; it also reaps the killed process.
    let _ = child.kill().await;
}

fn exit_error(status: ExitStatus, stderr_tail: &StderrTail, secrets: &[SecretString]) -> Error {
    let kept = stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&kept);
    let clean =
        |line: &str| -> String { line.chars().filter(|c| !c.is_control()).take(300).collect() };
    let lines: Vec<String> = text
        .lines()
        .map(clean)
        .filter(|it| !it.trim().is_empty())
        .collect();
    let how = match status.code() {
        Some(code) => format!("the program ended with exit code {code}"),
        None => format!("the program was ended by {status}"),
    };
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    Error::ProgramExited {
        how,
        code: status.code(),
        stderr: telling_line(&lines).map(|line| redact_secrets(line.trim(), secrets)),
    }
}

/// Masks the program's own secrets in the text.
fn redact_secrets(text: &str, secrets: &[SecretString]) -> String {
    let is_long_enough = |it: &&SecretString| it.reveal().len() >= 4;
    secrets
        .iter()
        .filter(is_long_enough)
        .fold(text.to_owned(), |text, it| text.replace(it.reveal(), MASK))
}
