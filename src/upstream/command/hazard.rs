//! What a command line does besides starting the program it names: it starts a
//! shell, runs code that stands in an argument, loads code named by a variable,
//! or gives a container access to the host. Pure.
//!
//! Programs are told apart by name, so a copy of a shell under another name is
//! not recognised. This is advice for a person who registers a server and a
//! filter for imported files, not a sandbox.

use std::fmt;

use super::{
    tables::{
        BOOLEAN_RUN_FLAGS, CONTAINER_COMMANDS, CONTAINERS, HOST_FLAGS, INTERPRETERS, Interpreter,
        MULTI_CALL, SHELLS, WRAPPERS, Wrapper, has,
    },
    variables::{Effect, effect_of},
};

/// Programs that start each other are followed this far.
const MAX_DEPTH: usize = 8;
/// Characters of an argument that a message repeats.
const SHOWN_CHARS: usize = 40;

/// One thing that a person should know before a program is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Hazard {
    /// A shell is started.
    Shell { program: String },
    /// Code or commands stand in an argument.
    CodeArgument { program: String, argument: String },
    /// A variable decides which code is loaded.
    CodeVariable { name: String },
    /// A variable names a folder or a file of settings, where code may be named.
    FolderVariable { name: String },
    /// A container gets access to the machine.
    HostAccess { program: String, argument: String },
}

/// The hazards of a command line. `target` is the file behind `command` once
/// symbolic links are resolved, because a link may have a harmless name.
pub(in crate::upstream) fn of_command(
    command: &str,
    target: Option<&str>,
    args: &[String],
) -> Vec<Hazard> {
    let mut found = Vec::new();
    inspect(command, args, 0, &mut found);
    if let (true, Some(target)) = (found.is_empty(), target) {
        // A multi-call program is what it is called as.
        if !has(MULTI_CALL, &base_name(target)) {
            inspect(target, args, 0, &mut found);
        }
    }
    if found.is_empty() {
        found.extend(shell_behind_unknown_wrapper(command, args));
    }
    found
}

/// `anything … bash -lc text`: whatever the program is, it is given a shell and
/// commands for it.
fn shell_behind_unknown_wrapper(command: &str, args: &[String]) -> Option<Hazard> {
    let is_shell = |it: &String| names_of(it).iter().any(|name| has(SHELLS, name));
    let runs_text = |it: &String| match parse(it) {
        Parsed::Short(letters) => letters.len() <= 4 && letters.contains('c'),
        _ => false,
    };
    let mut pairs = args.windows(2);
    let pair = pairs.find(|pair| is_shell(&pair[0]) && runs_text(&pair[1]))?;
    Some(code_argument(&base_name(command), &pair[0]))
}

impl Hazard {
    /// A variable that decides which code is loaded.
    pub(in crate::upstream) fn of_variable(name: &str) -> Option<Self> {
        let owned = || name.to_owned();
        match effect_of(name) {
            Effect::Code => Some(Self::CodeVariable { name: owned() }),
            Effect::Folder => Some(Self::FolderVariable { name: owned() }),
            Effect::None => None,
        }
    }

    /// Whether it is registered only if somebody says that it is meant. Folders of
    /// settings, such as `KUBECONFIG`, are set for many servers: a warning is enough.
    pub(in crate::upstream) fn needs_consent(&self) -> bool {
        !matches!(self, Self::FolderVariable { .. })
    }

    /// The member of a registration that it is about.
    pub(in crate::upstream) fn field(&self) -> String {
        match self {
            Self::Shell { .. } => "config.command".to_owned(),
            Self::CodeArgument { .. } | Self::HostAccess { .. } => "config.args".to_owned(),
            Self::CodeVariable { name } | Self::FolderVariable { name } => {
                format!("config.env.{name}")
            }
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell { program } => {
                write!(out, "{program} is a shell: it runs any command it is given")
            }
            Self::CodeArgument { program, argument } => write!(
                out,
                "{program} runs code or other programs named by its argument {argument:?}"
            ),
            Self::CodeVariable { name } => {
                write!(out, "the variable {name} decides which code is loaded")
            }
            Self::FolderVariable { name } => write!(
                out,
                "the variable {name} decides where settings or programs are found"
            ),
            Self::HostAccess { program, argument } => write!(
                out,
                "the argument {argument:?} of {program} gives the container access to this machine"
            ),
        }
    }
}

fn inspect(command: &str, args: &[String], depth: usize, found: &mut Vec<Hazard>) {
    let names = names_of(command);
    let is = |all: &str| names.iter().any(|it| has(all, it));
    let program = || base_name(command);
    if depth > MAX_DEPTH {
        found.push(code_argument(&program(), command));
    } else if is(SHELLS) {
        found.push(Hazard::Shell { program: program() });
    } else if is(CONTAINERS) {
        found.extend(container_hazard(&program(), args));
    } else {
        for interpreter in INTERPRETERS.iter().filter(|it| is(it.names)) {
            found.extend(interpreter.hazard(&program(), args));
        }
        for wrapper in WRAPPERS.iter().filter(|it| is(it.names)) {
            wrapper.inspect(&program(), args, depth, found);
        }
        let inline = |it: &&String| {
            let text = it.to_ascii_lowercase();
            text.starts_with("data:") && text.contains("script")
        };
        found.extend(
            args.iter()
                .find(inline)
                .map(|it| code_argument(&program(), it)),
        );
    }
}

fn code_argument(program: &str, argument: &str) -> Hazard {
    Hazard::CodeArgument {
        program: program.to_owned(),
        argument: shown(argument),
    }
}

fn shown(argument: &str) -> String {
    argument.chars().take(SHOWN_CHARS).collect()
}

fn base_name(command: &str) -> String {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

/// A program's name, and the same without its version: `python3.12-dbg` → `python`.
fn names_of(command: &str) -> Vec<String> {
    let name = base_name(command);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &name[stem.len()..];
    let variants = ["", "d", "m", "u", "dm", "dbg", "cgi", "cli", "t"];
    let stem = if variants.contains(&suffix) {
        stem
    } else {
        &name
    };
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_'));
    let mut names = vec![name.clone()];
    if !stem.is_empty() && stem != name {
        names.push(stem.to_owned());
    }
    // The dynamic loader starts the program that it is given.
    if name.starts_with("ld-") || name.starts_with("ld.so") {
        names.push("ld.so".to_owned());
    }
    names
}

/// One option as getopt reads it.
enum Parsed<'a> {
    /// `--name` or `--name=value`.
    Long {
        name: &'a str,
        has_value: bool,
    },
    /// `-abc`: letters, of which one may take the rest.
    Short(&'a str),
    /// `--`.
    End,
    Operand,
}

fn parse(argument: &str) -> Parsed<'_> {
    match argument.strip_prefix('-') {
        None | Some("") => Parsed::Operand,
        Some("-") => Parsed::End,
        Some(rest) => match rest.strip_prefix('-') {
            None => Parsed::Short(rest),
            Some(long) => match long.split_once('=') {
                Some((name, _)) => Parsed::Long {
                    name,
                    has_value: true,
                },
                None => Parsed::Long {
                    name: long,
                    has_value: false,
                },
            },
        },
    }
}

/// What a group of short options means.
enum Group {
    /// One of them carries code.
    Code,
    /// The last takes the next argument.
    TakesNext,
    /// All of it is known.
    Complete,
    /// It may take the next argument.
    Unknown,
}

fn read_group(letters: &str, code: &str, with_value: &str, flags: &str) -> Group {
    let mut known = true;
    for (at, letter) in letters.char_indices() {
        if code.contains(letter) {
            return Group::Code;
        }
        if with_value.contains(letter) {
            let last = at + letter.len_utf8() == letters.len();
            return if last {
                Group::TakesNext
            } else {
                Group::Complete
            };
        }
        known &= flags.contains(letter) || letter.is_ascii_digit();
    }
    if known {
        Group::Complete
    } else {
        Group::Unknown
    }
}

impl Interpreter {
    /// Looks at the options before the script; those after it are the script's own.
    fn hazard(&self, program: &str, args: &[String]) -> Option<Hazard> {
        if self.always {
            let argument = args.iter().find(|it| !it.starts_with('-'));
            let argument = argument.or(args.first()).map_or("", String::as_str);
            return Some(code_argument(program, argument));
        }
        let mut at = 0;
        // Whether the option before may take this argument as its value.
        let mut may_be_value = false;
        while let Some(argument) = args.get(at) {
            at += 1;
            let code = || Some(code_argument(program, argument));
            if self.is_code(argument) {
                return code();
            }
            match parse(argument) {
                Parsed::End | Parsed::Operand if self.anywhere => (),
                Parsed::End => return None,
                Parsed::Operand if std::mem::take(&mut may_be_value) => (),
                Parsed::Operand => return None,
                Parsed::Long { name, has_value } => {
                    at += usize::from(!has_value && has(self.value_long, name));
                }
                Parsed::Short(letters) => {
                    if let Some(module) = self.module(letters, args.get(at)) {
                        let known = has(self.code_modules, module);
                        return known.then(|| code_argument(program, module));
                    }
                    let group = read_group(letters, self.code_short, self.value_short, self.flags);
                    at += usize::from(matches!(group, Group::TakesNext));
                    may_be_value = matches!(group, Group::Unknown);
                }
            }
        }
        None
    }

    fn is_code(&self, argument: &str) -> bool {
        let lower = argument.to_ascii_lowercase();
        let is_marked = |it: &&str| it.ends_with([':', '=']);
        let mut marks = self
            .code_operands
            .split_ascii_whitespace()
            .filter(is_marked);
        if marks.any(|it| lower.contains(it)) {
            return true;
        }
        match parse(argument) {
            Parsed::End => false,
            Parsed::Operand => has(self.code_operands, argument),
            Parsed::Long { name, .. } => matches_long(self.code_long, name),
            Parsed::Short(letters) => {
                let word = letters.split('=').next().unwrap_or(letters);
                let group = read_group(letters, self.code_short, self.value_short, self.flags);
                matches_long(self.code_words, word) || matches!(group, Group::Code)
            }
        }
    }

    /// What `-m module` names, for interpreters that know it: the rest is the module's.
    fn module<'a>(&self, letters: &'a str, next: Option<&'a String>) -> Option<&'a str> {
        let at = letters
            .find('m')
            .filter(|_| !self.code_modules.is_empty())?;
        let is_flags = letters[..at].chars().all(|it| self.flags.contains(it));
        let attached = Some(&letters[at + 1..]).filter(|it| !it.is_empty());
        attached.or(next.map(String::as_str)).filter(|_| is_flags)
    }
}

/// Abbreviations count: getopt takes `--ev` for `--eval`.
fn matches_long(all: &str, name: &str) -> bool {
    all.split_ascii_whitespace()
        .any(|it| it == name || (name.len() > 3 && it.starts_with(name)))
}

impl Wrapper {
    /// Looks through to the program that is started.
    fn inspect(&self, program: &str, args: &[String], depth: usize, found: &mut Vec<Hazard>) {
        let Some(args) = self.after_command_words(args) else {
            return;
        };
        let mut operands = self.operands;
        // An unknown option may take the next argument as its value.
        let mut unsure = false;
        let mut passed_program = false;
        let mut at = 0;
        while let Some(argument) = args.get(at) {
            at += 1;
            match parse(argument) {
                Parsed::Operand => (),
                _ if passed_program => continue,
                Parsed::End => continue,
                Parsed::Long { name, .. } if matches_long(self.code_long, name) => {
                    return found.push(code_argument(program, argument));
                }
                Parsed::Long { name, has_value } => {
                    if has(self.value_long, name) {
                        at += usize::from(!has_value);
                    } else {
                        unsure |= !has_value && !has(self.flags_long, name);
                    }
                    continue;
                }
                Parsed::Short(letters) => {
                    match read_group(letters, self.code_short, self.value_short, self.flags) {
                        Group::Code => return found.push(code_argument(program, argument)),
                        Group::TakesNext => at += 1,
                        Group::Complete => (),
                        Group::Unknown => unsure = true,
                    }
                    continue;
                }
            }
            if let (true, Some((name, _))) = (self.assignments, argument.split_once('=')) {
                found.extend(Hazard::of_variable(name));
                continue;
            }
            if operands > 0 {
                operands -= 1;
                continue;
            }
            let before = found.len();
            inspect(argument, &args[at..], depth + 1, found);
            if found.len() > before || !unsure {
                return;
            }
            passed_program = true;
        }
    }

    /// The arguments after `run`, `tool run` …
    fn after_command_words<'a>(&self, args: &'a [String]) -> Option<&'a [String]> {
        if self.words.is_empty() {
            return Some(args);
        }
        self.words.split(';').find_map(|words| {
            let words: Vec<&str> = words.split_ascii_whitespace().collect();
            let at = args.windows(words.len()).position(|it| it == words)?;
            Some(&args[at + words.len()..])
        })
    }
}

/// Looks at the options before the image; those after it stay in the container.
fn container_hazard(program: &str, args: &[String]) -> Option<Hazard> {
    let host = |argument: &str| {
        Some(Hazard::HostAccess {
            program: program.to_owned(),
            argument: shown(argument),
        })
    };
    let mut started = false;
    let mut at = 0;
    while let Some(argument) = args.get(at) {
        at += 1;
        match parse(argument) {
            Parsed::End => (),
            Parsed::Long { name, has_value } => {
                let value = argument.split_once('=').map(|(_, value)| value);
                let value = value.or(args.get(at).map(String::as_str));
                if gives_host(name, value.unwrap_or_default()) {
                    return host(argument);
                }
                at += usize::from(!has_value && !has(BOOLEAN_RUN_FLAGS, name));
            }
            Parsed::Short(letters) => {
                // Before the command, -H names another daemon.
                let (code, flags) = if started { ("v", "diPqt") } else { ("H", "Dv") };
                match read_group(letters, code, "aceghlmpuw", flags) {
                    Group::Code => return host(argument),
                    Group::TakesNext => at += 1,
                    Group::Complete | Group::Unknown => (),
                }
            }
            Parsed::Operand if started => return None,
            Parsed::Operand if argument == "container" => (),
            Parsed::Operand if has(CONTAINER_COMMANDS, argument) => {
                started = true;
            }
            Parsed::Operand => return host(argument),
        }
    }
    None
}

fn gives_host(name: &str, value: &str) -> bool {
    let shares = |value: &str| {
        value == "host" || value.starts_with("container:") || value.starts_with("ns:")
    };
    match name {
        "net" | "network" | "ipc" | "uts" | "userns" | "cgroupns" => shares(value),
        name => has(HOST_FLAGS, name),
    }
}
