//! Decides which programs may be started, and which need a warning.
//!
//! A hub that only its own machine can reach starts what its admin registers, and warns
//! if that runs a shell or arbitrary code. A hub that others can reach starts only what
//! its settings list, including the arguments.

mod hazard;
mod program_tables;
mod variables;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use self::{
    hazard::{Hazard, command_hazards},
    variables::is_plain_value,
};
use super::{
    server::{InvalidField, invalid_field},
    transport::{ProgramRun, ProgramSpec},
};
use maru_config::{McpServerDefinition, McpSettings, mask_arguments};
use maru_runtime::permissions::mode_of;

/// The rules for programs that follow from `mcp.security.allowed-commands` and the hub's
/// address.
#[derive(Clone, Debug, Default)]
pub struct ProgramRules {
    allowed: Vec<AllowedCommand>,
    /// The complete programs of `mcp.servers`.
    configured: Vec<ProgramSpec>,
    /// Whether other machines can reach the hub.
    exposed: bool,
    /// The directories in which programs are searched, in the form of `PATH`.
    search_path: String,
}

/// One entry of `mcp.security.allowed-commands`.
#[derive(Clone, Debug)]
struct AllowedCommand {
    /// A name, which is searched in the search path, or an absolute path.
    command: String,
    /// The required arguments, if the entry lists any.
    args: Option<Vec<String>>,
}

/// How much of a program the settings determine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FixedScope {
    /// The executable only.
    Command,
    /// The executable and its arguments.
    Arguments,
    /// The whole program, with variables and directory, because `mcp.servers` lists it.
    Everything,
}

impl ProgramRules {
    /// Creates the rules of a hub. `exposed` says whether other machines can reach it.
    pub fn new(mcp: &McpSettings, exposed: bool, search_path: &str) -> Self {
        let program = |it: &McpServerDefinition| {
            Some(ProgramSpec {
                command: it.command.clone()?,
                args: it.args.clone(),
                env: it.env.clone(),
                cwd: it.cwd.clone(),
                run: it
                    .run
                    .as_deref()
                    .and_then(ProgramRun::parse)
                    .unwrap_or_default(),
            })
        };
        let allowed = mcp.security.allowed_commands.iter();
        Self {
            allowed: allowed.map(|it| AllowedCommand::parse(it)).collect(),
            configured: mcp.servers.iter().filter_map(program).collect(),
            exposed,
            search_path: search_path.to_owned(),
        }
    }

    /// Checks whether the program may be registered and started.
    pub(super) fn check(&self, program: &ProgramSpec) -> Result<(), InvalidField> {
        let is_name = |it: &&String| !it.is_empty() && !it.contains(['=', '\0']);
        if let Some(name) = program.env.keys().find(|it| !is_name(it)) {
            return Err(invalid_field(
                format!("config.env.{name}"),
                "is not a valid variable name",
            ));
        }
        if program.command.contains('/') && !program.command.starts_with('/') {
            return Err(invalid_field(
                "config.command",
                "must be the name of a program or an absolute path",
            ));
        }
        let fixed = self.check_allowed(program)?;
        if self.exposed {
            self.check_exposed(program, fixed)?;
        }
        Ok(())
    }

    /// Returns the hazards of a program.
    pub(super) fn warnings(&self, program: &ProgramSpec) -> Vec<String> {
        let hazards = self.hazards(program);
        hazards.iter().map(ToString::to_string).collect()
    }

    /// Returns the configuration field whose warning must be accepted before the program
    /// is registered.
    pub(super) fn unaccepted_field(&self, program: &ProgramSpec) -> Option<String> {
        // Whoever lists a command line in the settings has accepted its hazards.
        let fixed = self.check_allowed(program).unwrap_or(FixedScope::Command);
        let mut hazards = self.hazards(program).into_iter();
        let found = hazards.find(|it| it.needs_consent() && is_left_open(it, fixed));
        found.map(|it| it.field())
    }

    fn hazards(&self, program: &ProgramSpec) -> Vec<Hazard> {
        let target = self.find_program_path(&program.command).and_then(canonical);
        let target = target.as_deref().and_then(Path::to_str);
        let mut found = command_hazards(&program.command, target, &program.args);
        found.extend(program.env.keys().filter_map(|it| Hazard::of_variable(it)));
        found
    }

    /// Refuses a program if a part that the settings do not determine decides which code
    /// runs.
    fn check_exposed(&self, program: &ProgramSpec, fixed: FixedScope) -> Result<(), InvalidField> {
        let mut hazards = self.hazards(program).into_iter();
        if let Some(hazard) = hazards.find(|it| is_left_open(it, fixed)) {
            let reason = format!(
                "{hazard}; a hub that other machines can reach does not start it unless mcp.servers lists the whole server"
            );
            return Err(invalid_field(hazard.field(), reason));
        }
        let mut variables = program.env.keys().filter(|it| !is_plain_value(it));
        if fixed != FixedScope::Everything
            && let Some(name) = variables.next()
        {
            return Err(invalid_field(
                format!("config.env.{name}"),
                "may decide what the program runs or whom it trusts; a hub that other machines can reach takes variables other than credentials, names and locale from mcp.servers only",
            ));
        }
        // A relative path in the arguments depends on the directory.
        if program.cwd.is_some() && fixed != FixedScope::Everything {
            return Err(invalid_field(
                "config.cwd",
                "decides which files the arguments mean; a hub that other machines can reach takes it from mcp.servers only",
            ));
        }
        Ok(())
    }

    fn check_allowed(&self, program: &ProgramSpec) -> Result<FixedScope, InvalidField> {
        let is_program = |it: &ProgramSpec| {
            let run = program.run;
            ProgramSpec { run, ..it.clone() } == *program
        };
        if self.configured.iter().any(is_program) {
            return Ok(FixedScope::Everything);
        }
        if self.allowed.is_empty() && !self.exposed {
            return Ok(FixedScope::Command);
        }
        let fits = |it: &AllowedCommand| match &it.args {
            Some(args) => *args == program.args,
            // On an exposed hub the arguments must be listed in the settings.
            None => !self.exposed || program.args.is_empty(),
        };
        let mut entries = self.entries_of(&program.command).filter(|it| fits(it));
        let has_arguments = |it: &AllowedCommand| it.args.is_some();
        match entries.next() {
            Some(first) if has_arguments(first) || entries.any(has_arguments) => {
                Ok(FixedScope::Arguments)
            }
            Some(_) => Ok(FixedScope::Command),
            None => Err(invalid_field(
                "config.command",
                self.not_allowed_reason(program),
            )),
        }
    }

    /// Returns the entries of `allowed-commands` for the same program.
    fn entries_of(&self, command: &str) -> impl Iterator<Item = &AllowedCommand> {
        let entries = self.allowed.iter();
        entries.filter(move |it| self.is_same_program(&it.command, command))
    }

    fn not_allowed_reason(&self, program: &ProgramSpec) -> String {
        let command = &program.command;
        let entries = self.entries_of(command);
        let listed: Vec<String> = entries.map(AllowedCommand::display_arguments).collect();
        if !listed.is_empty() {
            format!(
                "{command:?} is listed in mcp.security.allowed-commands only with {}; list it with these arguments, too",
                listed.join(" or ")
            )
        } else if self.exposed {
            format!(
                "{command:?} with these arguments is not in mcp.security.allowed-commands; a hub that other machines can reach starts only what is listed there, arguments included"
            )
        } else {
            format!(
                "{command:?} is not in mcp.security.allowed-commands; a name there means the program of the search path, a path that file"
            )
        }
    }

    /// Whether both are the same file under the same name. The name counts, because one
    /// file can be many programs, such as `ls` and `sh` of busybox.
    fn is_same_program(&self, entry: &str, command: &str) -> bool {
        let same_name = Path::new(entry).file_name() == Path::new(command).file_name();
        if entry == command {
            return true;
        }
        let file = |it: &str| self.find_program_path(it).and_then(canonical);
        same_name && file(entry).is_some_and(|it| Some(it) == file(command))
    }

    fn find_program_path(&self, command: &str) -> Option<PathBuf> {
        find_program(command, &self.search_path)
    }
}

/// Whether the hazard is about a part that the settings do not determine.
fn is_left_open(hazard: &Hazard, fixed: FixedScope) -> bool {
    match hazard {
        Hazard::CodeVariable { .. } | Hazard::FolderVariable { .. } => {
            fixed != FixedScope::Everything
        }
        _ => fixed == FixedScope::Command,
    }
}

impl AllowedCommand {
    fn display_arguments(&self) -> String {
        match &self.args {
            None => "no arguments".to_owned(),
            Some(args) => format!("the arguments {:?}", mask_arguments(args).join(" ")),
        }
    }

    fn parse(text: &str) -> Self {
        let name_only = || Self {
            command: text.to_owned(),
            args: None,
        };
        // A text with spaces is a path if such a file exists.
        if Path::new(text).is_absolute() && Path::new(text).is_file() {
            return name_only();
        }
        let mut words = split_words(text).into_iter();
        match words.next() {
            None => name_only(),
            Some(command) => {
                let args: Vec<String> = words.collect();
                Self {
                    command,
                    args: Some(args).filter(|it| !it.is_empty()),
                }
            }
        }
    }
}

/// Splits a command line into words. Quotes and backslashes work as in a shell; nothing
/// else does.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some('"') | None, '\\') => {
                word.get_or_insert_default().extend(characters.next());
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Finds the executable for `command`: the first in `search_path`, or the absolute path
/// itself, even if that is not executable.
pub(super) fn find_program(command: &str, search_path: &str) -> Option<PathBuf> {
    let name = Path::new(command);
    if name.is_absolute() {
        return Some(name.to_owned()).filter(|it| it.exists());
    }
    let folders = env::split_paths(search_path).filter(|it| it.is_absolute());
    folders
        .flat_map(|it| EXECUTABLE_SUFFIXES.map(|suffix| it.join(format!("{command}{suffix}"))))
        .find(|it| is_executable(it))
}

/// What a program's file name ends with, beside its name.
#[cfg(windows)]
const EXECUTABLE_SUFFIXES: [&str; 4] = ["", ".exe", ".cmd", ".bat"];
#[cfg(not(windows))]
const EXECUTABLE_SUFFIXES: [&str; 1] = [""];

pub(super) fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|it| it.is_file() && (cfg!(windows) || mode_of(&it) & 0o111 != 0))
}

fn canonical(path: PathBuf) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_split_as_people_quote_them() {
        for (text, expected) in [
            ("node", vec!["node"]),
            ("npx -y  @x/y /data", vec!["npx", "-y", "@x/y", "/data"]),
            (
                "'/opt/My Tools/x' --a \"b c\"",
                vec!["/opt/My Tools/x", "--a", "b c"],
            ),
            (r#"x a\ b "q\"q" ''"#, vec!["x", "a b", "q\"q", ""]),
            ("", vec![]),
        ] {
            assert_eq!(split_words(text), expected, "{text}");
        }
    }

    #[test]
    fn program_that_is_listed_with_other_arguments_is_refused_with_those() {
        let rules = ProgramRules {
            allowed: vec![AllowedCommand::parse("python3 a.py --token abc")],
            ..ProgramRules::default()
        };
        let program = ProgramSpec {
            command: "python3".to_owned(),
            args: vec!["b.py".to_owned()],
            ..ProgramSpec::default()
        };
        let reason = rules.check(&program).unwrap_err().reason;
        assert!(
            reason.contains(r#"only with the arguments "a.py --token ***""#),
            "{reason}"
        );
    }

    #[test]
    fn server_of_the_settings_is_allowed_beside_a_list_of_commands() {
        let program = ProgramSpec {
            command: "python3".to_owned(),
            args: vec!["a.py".to_owned()],
            ..ProgramSpec::default()
        };
        let rules = ProgramRules {
            allowed: vec![AllowedCommand::parse("node")],
            configured: vec![program.clone()],
            exposed: true,
            ..ProgramRules::default()
        };
        assert!(rules.check(&program).is_ok());
        let other = ProgramSpec {
            args: vec!["b.py".to_owned()],
            ..program
        };
        assert!(rules.check(&other).is_err());
    }

    #[test]
    fn one_file_under_another_name_is_another_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::copy("/bin/true", path("multi")).unwrap();
        std::os::unix::fs::symlink(path("multi"), path("ls")).unwrap();
        std::os::unix::fs::symlink(path("multi"), path("sh")).unwrap();
        let rules = ProgramRules {
            search_path: folder.path().display().to_string(),
            ..ProgramRules::default()
        };
        assert!(rules.is_same_program("ls", &path("ls")));
        assert!(!rules.is_same_program("ls", &path("sh")));
        assert!(!rules.is_same_program("ls", "/elsewhere/ls"));
    }
}
