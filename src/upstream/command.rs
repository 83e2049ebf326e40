//! Which programs may be started: no shell, no code on the command line, no
//! variable that loads code.

use super::server::{Invalid, Program, invalid};

const SHELLS: [&str; 14] = [
    "sh",
    "bash",
    "dash",
    "ash",
    "zsh",
    "fish",
    "ksh",
    "csh",
    "tcsh",
    "cmd",
    "cmd.exe",
    "powershell",
    "pwsh",
    "busybox",
];
/// Programs that run text from their command line, and the flags that do so.
const INTERPRETERS: [(&str, &[&str]); 9] = [
    ("python", &["-c"]),
    (
        "node",
        &[
            "-e",
            "--eval",
            "-p",
            "--print",
            "-r",
            "--require",
            "--import",
        ],
    ),
    ("npx", &["-c", "--call"]),
    ("bun", &["-e", "--eval", "-p", "--print"]),
    ("deno", &["eval"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("php", &["-r"]),
    ("env", &["-S", "--split-string"]),
];
const CONTAINERS: [&str; 3] = ["docker", "podman", "nerdctl"];
const CONTAINER_FLAGS: [&str; 9] = [
    "-v",
    "--volume",
    "--mount",
    "--privileged",
    "--device",
    "--cap-add",
    "--security-opt",
    "--pid",
    "--volumes-from",
];
/// Variables that make a program load code, or find other programs.
const LOADERS: [&str; 19] = [
    "PATH",
    "IFS",
    "ENV",
    "BASH_ENV",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "PROMPT_COMMAND",
    "GCONV_PATH",
];

/// Refuses programs that could be made to run anything.
pub(super) fn check(program: &Program, allowed: &[String]) -> Result<(), Invalid> {
    let name = program.command.rsplit('/').next().unwrap_or_default();
    if program.command.contains('/') && !program.command.starts_with('/') {
        return Err(invalid(
            "config.command",
            "must be the name of a program or an absolute path",
        ));
    }
    if !allowed.is_empty()
        && !allowed
            .iter()
            .any(|it| *it == program.command || it == name)
    {
        let why = format!("{name:?} is not in mcp.security.allowed-commands");
        return Err(invalid("config.command", why));
    }
    if SHELLS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(invalid(
            "config.command",
            "is a shell; name the program itself and give its arguments in args",
        ));
    }
    check_arguments(name, &program.args)?;
    let loads = |variable: &str| {
        LOADERS.contains(&variable) || variable.starts_with("LD_") || variable.starts_with("DYLD_")
    };
    match program
        .env
        .keys()
        .find(|it| loads(it) || it.is_empty() || it.contains('=') || it.contains('\0'))
    {
        None => Ok(()),
        Some(variable) => {
            let why = "may not be set: it would decide which code is loaded";
            Err(invalid(format!("config.env.{variable}"), why))
        }
    }
}

fn check_arguments(name: &str, args: &[String]) -> Result<(), Invalid> {
    let refuse =
        |flag: &str, why: &str| Err(invalid("config.args", format!("{flag} is refused: {why}")));
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if let Some((_, flags)) = INTERPRETERS.iter().find(|(it, _)| *it == plain) {
        // Flags behind the script are its own.
        let options = args
            .iter()
            .take_while(|it| it.starts_with('-') || *it == "eval");
        for arg in options {
            if let Some(flag) = flags.iter().find(|flag| is_flag(arg, flag)) {
                return refuse(flag, "code on the command line is not allowed");
            }
        }
    }
    if CONTAINERS.contains(&name) {
        for arg in args {
            let host = ["--net=host", "--network=host", "--ipc=host"].contains(&arg.as_str());
            if let Some(flag) = CONTAINER_FLAGS
                .iter()
                .find(|flag| host || is_flag(arg, flag))
            {
                return refuse(
                    if host { arg } else { flag },
                    "a container must stay apart from this machine",
                );
            }
        }
    }
    Ok(())
}

fn is_flag(arg: &str, flag: &str) -> bool {
    arg == flag
        || arg.strip_prefix(flag).is_some_and(|rest| {
            rest.starts_with('=') || (!flag.starts_with("--") && flag.len() == 2)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn refused(command: &str, args: &[&str], env: &[&str]) -> bool {
        let program = Program {
            command: command.to_owned(),
            args: args.iter().map(|it| (*it).to_owned()).collect(),
            env: env
                .iter()
                .map(|it| ((*it).to_owned(), Secret::from("x".to_owned())))
                .collect(),
            cwd: None,
        };
        check(&program, &[]).is_err()
    }

    #[test]
    fn usual_servers_start_and_tricks_do_not() {
        assert!(!refused(
            "npx",
            &["-y", "@modelcontextprotocol/server-filesystem", "/data"],
            &[]
        ));
        assert!(!refused("python3", &["server.py", "-c", "x"], &["API_KEY"]));
        assert!(!refused("/usr/bin/node", &["index.js", "-e"], &[]));
        assert!(!refused("docker", &["run", "-i", "--rm", "mcp/time"], &[]));
        assert!(refused("/bin/sh", &["-c", "id"], &[]));
        assert!(refused("npx", &["-c", "id"], &[]));
        assert!(refused("npx", &["--call=id"], &[]));
        assert!(refused("python3.11", &["-cimport os"], &[]));
        assert!(refused("node", &["--eval=1"], &[]));
        assert!(refused("./evil", &[], &[]));
        assert!(refused("docker", &["run", "-v", "/:/host", "x"], &[]));
        assert!(refused("docker", &["run", "--network=host", "x"], &[]));
        for variable in ["PATH", "NODE_OPTIONS", "LD_PRELOAD", "A=B"] {
            assert!(refused("fx", &[], &[variable]), "{variable}");
        }
    }
}
