//! Finds hazards in a command line: it starts a shell, runs code from an argument, loads
//! code named by a variable, or gives a container access to the host. Pure.
//!
//! Programs are recognized by name, so a copy of a shell under another name is not found.
//! This is advice for a person who registers a server and a filter for imported files,
//! not a sandbox.

use std::fmt;

use super::{
    program_tables::{
        BOOLEAN_RUN_FLAGS, CONTAINER_COMMANDS, CONTAINER_PROGRAMS, HOST_ACCESS_FLAGS, INTERPRETERS,
        Interpreter, MULTI_CALL_PROGRAMS, SHELLS, WRAPPERS, WrapperProgram, contains_word,
    },
    variables::{VariableEffect, variable_effect},
};

/// The most nested wrappers that are inspected.
const MAX_WRAPPER_DEPTH: usize = 8;
/// The most characters of an argument that a message quotes.
const MAX_SHOWN_CHARS: usize = 40;

/// One hazard that a person should know before a program is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hazard {
    /// The program is a shell.
    Shell { program: String },
    /// An argument contains code or commands.
    CodeArgument { program: String, argument: String },
    /// An environment variable decides which code is loaded.
    CodeVariable { name: String },
    /// An environment variable names a directory or settings file, which may name code.
    FolderVariable { name: String },
    /// An option gives a container access to the host.
    HostAccess { program: String, argument: String },
}

/// Returns the hazards of a command line. `target` is the file behind `command` after
/// resolving symbolic links, because a link may have a harmless name.
pub(crate) fn command_hazards(command: &str, target: Option<&str>, args: &[String]) -> Vec<Hazard> {
    let mut found = Vec::new();
    inspect_command(command, args, 0, &mut found);
    if let (true, Some(target)) = (found.is_empty(), target) {
        // A multi-call program behaves according to the name it is called by.
        if !contains_word(MULTI_CALL_PROGRAMS, &base_name(target)) {
            inspect_command(target, args, 0, &mut found);
        }
    }
    if found.is_empty() {
        found.extend(shell_behind_unknown_wrapper(command, args));
    }
    found
}

/// Finds `anything … bash -lc text`: an unknown program that is given a shell and
/// commands for it.
fn shell_behind_unknown_wrapper(command: &str, args: &[String]) -> Option<Hazard> {
    let is_shell = |it: &String| {
        program_names(it)
            .iter()
            .any(|name| contains_word(SHELLS, name))
    };
    let runs_text = |it: &String| match parse_option(it) {
        ParsedOption::Short(letters) => letters.len() <= 4 && letters.contains('c'),
        _ => false,
    };
    let mut pairs = args.windows(2);
    let pair = pairs.find(|pair| is_shell(&pair[0]) && runs_text(&pair[1]))?;
    Some(code_argument(&base_name(command), &pair[0]))
}

impl Hazard {
    /// Returns the hazard of setting this variable, if any.
    pub(crate) fn of_variable(name: &str) -> Option<Self> {
        let owned = || name.to_owned();
        match variable_effect(name) {
            VariableEffect::Code => Some(Self::CodeVariable { name: owned() }),
            VariableEffect::Folder => Some(Self::FolderVariable { name: owned() }),
            VariableEffect::None => None,
        }
    }

    /// Whether a person must accept the hazard. Directories of settings, such as
    /// `KUBECONFIG`, are set for many servers, so a warning is enough.
    pub(crate) fn needs_consent(&self) -> bool {
        !matches!(self, Self::FolderVariable { .. })
    }

    /// Returns the field of the registration that the hazard is about.
    pub(crate) fn field(&self) -> String {
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
            Self::CodeArgument { program, argument } if argument.is_empty() => {
                write!(out, "{program} runs code or other programs from its input")
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

fn inspect_command(command: &str, args: &[String], depth: usize, found: &mut Vec<Hazard>) {
    let names = program_names(command);
    let is = |all: &str| names.iter().any(|it| contains_word(all, it));
    let program = || base_name(command);
    if depth > MAX_WRAPPER_DEPTH {
        found.push(code_argument(&program(), command));
    } else if is(SHELLS) {
        found.push(Hazard::Shell { program: program() });
    } else if is(CONTAINER_PROGRAMS) {
        found.extend(container_hazard(&program(), args));
    } else {
        for interpreter in INTERPRETERS.iter().filter(|it| is(it.names)) {
            found.extend(interpreter_hazard(interpreter, &program(), args));
        }
        for wrapper in WRAPPERS.iter().filter(|it| is(it.names)) {
            inspect_wrapped(wrapper, &program(), args, depth, found);
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
        argument: argument_excerpt(argument),
    }
}

fn argument_excerpt(argument: &str) -> String {
    argument.chars().take(MAX_SHOWN_CHARS).collect()
}

fn base_name(command: &str) -> String {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

/// Returns the program's name with and without its version: `python3.12-dbg` and
/// `python`.
fn program_names(command: &str) -> Vec<String> {
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
    // The dynamic loader starts the program in its argument.
    if name.starts_with("ld-") || name.starts_with("ld.so") {
        names.push("ld.so".to_owned());
    }
    names
}

/// One argument as getopt parses it.
enum ParsedOption<'a> {
    /// `--name` or `--name=value`.
    Long {
        name: &'a str,
        has_value: bool,
    },
    /// `-abc`: a group of short options, of which one may take the rest as its value.
    Short(&'a str),
    /// `--`.
    End,
    Operand,
}

fn parse_option(argument: &str) -> ParsedOption<'_> {
    match argument.strip_prefix('-') {
        None | Some("") => ParsedOption::Operand,
        Some("-") => ParsedOption::End,
        Some(rest) => match rest.strip_prefix('-') {
            None => ParsedOption::Short(rest),
            Some(long) => match long.split_once('=') {
                Some((name, _)) => ParsedOption::Long {
                    name,
                    has_value: true,
                },
                None => ParsedOption::Long {
                    name: long,
                    has_value: false,
                },
            },
        },
    }
}

/// The meaning of a group of short options.
enum OptionGroup {
    /// One option carries code.
    Code,
    /// The last option takes the next argument as its value.
    TakesNext,
    /// All options are known and none takes the next argument.
    Complete,
    /// An unknown option may take the next argument as its value.
    Unknown,
}

fn parse_option_group(letters: &str, code: &str, with_value: &str, flags: &str) -> OptionGroup {
    let mut known = true;
    for (at, letter) in letters.char_indices() {
        if code.contains(letter) {
            return OptionGroup::Code;
        }
        if with_value.contains(letter) {
            let last = at + letter.len_utf8() == letters.len();
            return if last {
                OptionGroup::TakesNext
            } else {
                OptionGroup::Complete
            };
        }
        known &= flags.contains(letter) || letter.is_ascii_digit();
    }
    if known {
        OptionGroup::Complete
    } else {
        OptionGroup::Unknown
    }
}

/// Inspects the options before the script; those after it belong to the script.
fn interpreter_hazard(interpreter: &Interpreter, program: &str, args: &[String]) -> Option<Hazard> {
    if interpreter.always_runs_code {
        let argument = args.iter().find(|it| !it.starts_with('-'));
        let argument = argument.or(args.first()).map_or("", String::as_str);
        return Some(code_argument(program, argument));
    }
    let mut at = 0;
    let mut operands = 0;
    // Whether the previous option may take this argument as its value.
    let mut may_be_value = false;
    while let Some(argument) = args.get(at) {
        at += 1;
        let code = || Some(code_argument(program, argument));
        if is_code_argument(interpreter, argument) {
            return code();
        }
        match parse_option(argument) {
            ParsedOption::Operand if interpreter.options_anywhere => {
                operands += usize::from(!std::mem::take(&mut may_be_value));
                if interpreter.code_after.is_some_and(|it| operands > it) {
                    return code();
                }
            }
            ParsedOption::End if interpreter.options_anywhere => (),
            ParsedOption::End => return None,
            ParsedOption::Operand if std::mem::take(&mut may_be_value) => (),
            ParsedOption::Operand => return None,
            ParsedOption::Long { name, has_value } => {
                at += usize::from(!has_value && contains_word(interpreter.value_long, name));
            }
            ParsedOption::Short(letters) => {
                if let Some(module) = module_argument(interpreter, letters, args.get(at)) {
                    let known = contains_word(interpreter.code_modules, module);
                    return known.then(|| code_argument(program, module));
                }
                let group = parse_option_group(
                    letters,
                    interpreter.code_short,
                    interpreter.value_short,
                    interpreter.flags,
                );
                at += usize::from(matches!(group, OptionGroup::TakesNext));
                may_be_value = matches!(group, OptionGroup::Unknown);
            }
        }
    }
    None
}

fn is_code_argument(interpreter: &Interpreter, argument: &str) -> bool {
    let lower = argument.to_ascii_lowercase();
    let is_marked = |it: &&str| it.ends_with([':', '=']);
    let mut marks = interpreter
        .code_operands
        .split_ascii_whitespace()
        .filter(is_marked);
    if marks.any(|it| lower.contains(it)) {
        return true;
    }
    match parse_option(argument) {
        ParsedOption::End => false,
        ParsedOption::Operand => {
            contains_word(interpreter.code_operands, argument)
                || (interpreter.has_dot_commands && is_dot_command(argument))
        }
        ParsedOption::Long { name, .. } => matches_long_option(interpreter.code_long, name),
        ParsedOption::Short(letters) => {
            let word = letters.split('=').next().unwrap_or(letters);
            let group = parse_option_group(
                letters,
                interpreter.code_short,
                interpreter.value_short,
                interpreter.flags,
            );
            matches_long_option(interpreter.code_words, word) || matches!(group, OptionGroup::Code)
        }
    }
}

/// Returns the module that `-m` names, for interpreters with modules; the later arguments
/// belong to the module.
fn module_argument<'a>(
    interpreter: &Interpreter,
    letters: &'a str,
    next: Option<&'a String>,
) -> Option<&'a str> {
    let at = letters
        .find('m')
        .filter(|_| !interpreter.code_modules.is_empty())?;
    let is_flags = letters[..at]
        .chars()
        .all(|it| interpreter.flags.contains(it));
    let attached = Some(&letters[at + 1..]).filter(|it| !it.is_empty());
    attached.or(next.map(String::as_str)).filter(|_| is_flags)
}

/// Whether the argument is a command such as `.shell id`, and not a path such as
/// `./data.db`.
fn is_dot_command(argument: &str) -> bool {
    let name = argument.trim_start().strip_prefix('.');
    name.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Matches long options including abbreviations: getopt accepts `--ev` for `--eval`.
fn matches_long_option(all: &str, name: &str) -> bool {
    all.split_ascii_whitespace()
        .any(|it| it == name || (name.len() > 3 && it.starts_with(name)))
}

/// Finds and inspects the program that a wrapper starts.
fn inspect_wrapped(
    wrapper: &WrapperProgram,
    program: &str,
    args: &[String],
    depth: usize,
    found: &mut Vec<Hazard>,
) {
    let Some(args) = arguments_after_subcommand(wrapper, args) else {
        return;
    };
    let mut operands = wrapper.operands;
    // An unknown option may take the next argument as its value.
    let mut unsure = false;
    let mut passed_program = false;
    let mut at = 0;
    while let Some(argument) = args.get(at) {
        at += 1;
        match parse_option(argument) {
            ParsedOption::Operand => (),
            _ if passed_program => continue,
            ParsedOption::End => continue,
            ParsedOption::Long { name, .. } if matches_long_option(wrapper.code_long, name) => {
                return found.push(code_argument(program, argument));
            }
            ParsedOption::Long { name, has_value } => {
                if contains_word(wrapper.value_long, name) {
                    at += usize::from(!has_value);
                } else {
                    unsure |= !has_value && !contains_word(wrapper.flags_long, name);
                }
                continue;
            }
            ParsedOption::Short(letters) => {
                match parse_option_group(
                    letters,
                    wrapper.code_short,
                    wrapper.value_short,
                    wrapper.flags,
                ) {
                    OptionGroup::Code => return found.push(code_argument(program, argument)),
                    OptionGroup::TakesNext => at += 1,
                    OptionGroup::Complete => (),
                    OptionGroup::Unknown => unsure = true,
                }
                continue;
            }
        }
        if let (true, Some((name, _))) = (wrapper.assignments, argument.split_once('=')) {
            found.extend(Hazard::of_variable(name));
            continue;
        }
        if operands > 0 {
            operands -= 1;
            continue;
        }
        let before = found.len();
        inspect_command(argument, &args[at..], depth + 1, found);
        if found.len() > before || !unsure {
            return;
        }
        passed_program = true;
    }
}

/// Returns the arguments after the subcommand, such as `run` or `tool run`.
fn arguments_after_subcommand<'a>(
    wrapper: &WrapperProgram,
    args: &'a [String],
) -> Option<&'a [String]> {
    if wrapper.subcommands.is_empty() {
        return Some(args);
    }
    wrapper.subcommands.split(';').find_map(|words| {
        let words: Vec<&str> = words.split_ascii_whitespace().collect();
        let at = args.windows(words.len()).position(|it| it == words)?;
        Some(&args[at + words.len()..])
    })
}

/// Inspects the options before the image; those after it run inside the container.
fn container_hazard(program: &str, args: &[String]) -> Option<Hazard> {
    let host = |argument: &str| {
        Some(Hazard::HostAccess {
            program: program.to_owned(),
            argument: argument_excerpt(argument),
        })
    };
    let mut started = false;
    let mut exec = None;
    let mut at = 0;
    while let Some(argument) = args.get(at) {
        at += 1;
        match parse_option(argument) {
            ParsedOption::End => (),
            ParsedOption::Long { name, has_value } => {
                let value = argument.split_once('=').map(|(_, value)| value);
                let value = value.or(args.get(at).map(String::as_str));
                if grants_host_access(name, value.unwrap_or_default()) {
                    return host(argument);
                }
                at += usize::from(!has_value && !contains_word(BOOLEAN_RUN_FLAGS, name));
            }
            ParsedOption::Short(letters) => {
                // Before the subcommand, `-H` selects another daemon.
                let (code, flags) = if started { ("v", "diPqt") } else { ("H", "Dv") };
                match parse_option_group(letters, code, "aceghlmpuw", flags) {
                    OptionGroup::Code => return host(argument),
                    OptionGroup::TakesNext => at += 1,
                    OptionGroup::Complete | OptionGroup::Unknown => (),
                }
            }
            ParsedOption::Operand if started => return exec,
            ParsedOption::Operand if argument == "container" => (),
            ParsedOption::Operand if argument == "exec" => {
                started = true;
                exec = Some(code_argument(program, argument));
            }
            ParsedOption::Operand if contains_word(CONTAINER_COMMANDS, argument) => {
                started = true;
            }
            ParsedOption::Operand => return host(argument),
        }
    }
    exec
}

fn grants_host_access(name: &str, value: &str) -> bool {
    let shares = |value: &str| {
        value == "host" || value.starts_with("container:") || value.starts_with("ns:")
    };
    match name {
        "net" | "network" | "ipc" | "uts" | "userns" | "cgroupns" => shares(value),
        name => contains_word(HOST_ACCESS_FLAGS, name),
    }
}
