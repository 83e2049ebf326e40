//! `maru service`: runs the hub with systemd, for this user or for the machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};

use super::{context::CliContext, terminal};
use crate::config::process_environment;

/// The unit of the packages, which is also that of `--system`.
const SYSTEM_UNIT: &str = include_str!("../../packaging/systemd/maru.service");
const SYSTEM_SETTINGS: &str = include_str!("../../packaging/maru.yaml");
const UNIT_NAME: &str = "maru.service";
const PACKAGED_PROGRAM: &str = "/usr/bin/maru";
const SYSTEM_USER: &str = "maru";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru service install                 start now and at every log-in
  maru service install --print         only print the unit
  sudo maru service install --system   a sandboxed service with a user of its own
  maru service status
  maru service uninstall               the data stays")]
pub(super) struct ServiceArgs {
    #[command(subcommand)]
    command: ServiceCommand,
}

#[derive(Debug, Subcommand)]
enum ServiceCommand {
    /// Write the unit, start the hub, and enable it
    Install {
        /// For the whole machine instead of this user; needs root
        #[arg(long)]
        system: bool,
        /// Print the unit and change nothing
        #[arg(long)]
        print: bool,
    },
    /// Stop the hub and remove the unit; the data stays
    Uninstall {
        /// The service of the whole machine
        #[arg(long)]
        system: bool,
    },
    /// Show whether the service runs
    Status {
        /// The service of the whole machine
        #[arg(long)]
        system: bool,
    },
}

pub(super) fn run(
    context: &CliContext,
    options: &ServiceArgs,
    settings: Option<&Path>,
) -> Result<ExitCode> {
    if cfg!(not(target_os = "linux")) {
        bail!(
            "maru service writes units of systemd; on this system use its own services, such as brew services"
        );
    }
    match options.command {
        ServiceCommand::Install { system, print } => {
            let service = HubService::new(system)?;
            let unit = service.unit(context, settings)?;
            if print {
                terminal::print(&unit)?;
            } else {
                service.install(&unit)?;
            }
        }
        ServiceCommand::Uninstall { system } => HubService::new(system)?.uninstall()?,
        ServiceCommand::Status { system } => return HubService::new(system)?.status(),
    }
    Ok(ExitCode::SUCCESS)
}

/// The service of the machine or of this user.
struct HubService {
    is_system: bool,
    unit_file: PathBuf,
}

impl HubService {
    fn new(is_system: bool) -> Result<Self> {
        let directory = if is_system {
            PathBuf::from("/etc/systemd/system")
        } else {
            user_config_directory()?.join("systemd/user")
        };
        Ok(Self {
            is_system,
            unit_file: directory.join(UNIT_NAME),
        })
    }

    /// The text of the unit, for the hub of this data directory and settings file.
    fn unit(&self, context: &CliContext, settings: Option<&Path>) -> Result<String> {
        let program = env::current_exe().context("the path of maru is unknown")?;
        if self.is_system {
            let is_hidden = ["/home", "/root", "/run/user", "/tmp"]
                .iter()
                .any(|it| program.starts_with(it));
            if is_hidden {
                bail!(
                    "the service cannot see {}; copy it first: install -m 755 {0} /usr/local/bin/maru, then run /usr/local/bin/maru service install --system",
                    program.display()
                );
            }
            return Ok(SYSTEM_UNIT.replace(PACKAGED_PROGRAM, &quoted(&program)));
        }
        let config = context.config();
        let mut command = vec![
            quoted(&program),
            "--data-dir".to_owned(),
            quoted(&std::path::absolute(&config.data_dir)?),
        ];
        if let Some(file) = settings {
            command.extend(["--config".to_owned(), quoted(&std::path::absolute(file)?)]);
        }
        let command = command.join(" ");
        // Programs such as npx are found where this shell finds them.
        let path = process_environment()
            .get("PATH")
            .map_or(String::new(), |it| {
                format!("Environment={}\n", quoted_text(&format!("PATH={it}")))
            });
        Ok(format!(
            "[Unit]\nDescription=maru, a hub for the Model Context Protocol\n\n\
             [Service]\nType=notify\nExecStart={command} serve\nExecReload=/bin/kill -HUP $MAINPID\n\
             {path}Restart=on-failure\nRestartSec=2\nTimeoutStopSec=30\nNoNewPrivileges=yes\n\
             LimitNOFILE=65536\nUMask=0077\nDelegate=memory pids cpu\n\n\
             [Install]\nWantedBy=default.target\n"
        ))
    }

    fn install(&self, unit: &str) -> Result<()> {
        if self.is_system {
            prepare_system()?;
        }
        let directory = self
            .unit_file
            .parent()
            .context("the unit has no directory")?;
        let shown = self.unit_file.display();
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&self.unit_file, unit))
            .with_context(|| format!("cannot write {shown}"))?;
        terminal::print_note(&format!("wrote {shown}"));
        let started = self
            .systemctl(&["daemon-reload"])
            .and_then(|()| self.systemctl(&["enable", "--now", UNIT_NAME]));
        started.with_context(|| format!("{shown} is written, but the hub is not started"))?;
        let (log, link) = if self.is_system {
            (
                "journalctl -u maru",
                "sudo maru --data-dir /var/lib/maru console",
            )
        } else {
            ("journalctl --user -u maru", "maru console")
        };
        terminal::print(&format!(
            "the hub runs, and starts again by itself\n  log       {log} -f\n  console   {link}\n"
        ))?;
        if !self.is_system {
            terminal::print_note("it stops when you log out; loginctl enable-linger keeps it");
        }
        Ok(())
    }

    fn uninstall(&self) -> Result<()> {
        let shown = self.unit_file.display();
        if !self.unit_file.exists() {
            bail!("there is no service to remove: {shown} does not exist");
        }
        self.systemctl(&["disable", "--now", UNIT_NAME])?;
        fs::remove_file(&self.unit_file).with_context(|| format!("cannot remove {shown}"))?;
        self.systemctl(&["daemon-reload"])?;
        terminal::print("the service is removed; its data stays\n")?;
        Ok(())
    }

    fn status(&self) -> Result<ExitCode> {
        if !self.unit_file.exists() {
            terminal::print("not installed; maru service install installs it\n")?;
            return Ok(ExitCode::FAILURE);
        }
        let is_active = self.systemctl(&["--no-pager", "status", UNIT_NAME]);
        Ok(ExitCode::from(u8::from(is_active.is_err())))
    }

    fn systemctl(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("systemctl");
        if !self.is_system {
            command.arg("--user");
        }
        run_command(command.args(arguments))
    }
}

/// What the package would have made: the user and the settings.
fn prepare_system() -> Result<()> {
    let settings = Path::new("/etc/maru/maru.yaml");
    if !settings.exists() {
        fs::create_dir_all("/etc/maru")
            .and_then(|()| fs::write(settings, SYSTEM_SETTINGS))
            .context("cannot write /etc/maru/maru.yaml; run this as root")?;
    }
    if run_command(Command::new("getent").args(["passwd", SYSTEM_USER])).is_err() {
        let options = ["--system", "--user-group", "--home-dir", "/var/lib/maru"];
        let shell = [
            "--no-create-home",
            "--shell",
            "/usr/sbin/nologin",
            SYSTEM_USER,
        ];
        run_command(Command::new("useradd").args(options).args(shell))?;
    }
    Ok(())
}

fn run_command(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("{name} cannot be started; is this a system with systemd?"))?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

fn user_config_directory() -> Result<PathBuf> {
    let variables = process_environment();
    let variable = |name: &str| variables.get(name).filter(|it| !it.is_empty());
    match (variable("XDG_CONFIG_HOME"), variable("HOME")) {
        (Some(directory), _) => Ok(PathBuf::from(directory)),
        (None, Some(home)) => Ok(Path::new(home).join(".config")),
        (None, None) => bail!("HOME is not set"),
    }
}

fn quoted(path: &Path) -> String {
    quoted_text(&path.display().to_string())
}

/// A word of a unit file: `%` and `$` have meanings there.
fn quoted_text(text: &str) -> String {
    let text = text.replace('%', "%%").replace('$', "$$");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:%$+@,".contains(c);
    if text.chars().all(is_plain) {
        return text;
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_unit_are_quoted() {
        for (text, expected) in [
            ("/usr/bin/maru", "/usr/bin/maru"),
            ("/home/a b/maru", "\"/home/a b/maru\""),
            ("/home/100%/$x", "/home/100%%/$$x"),
            ("a\"b\\", "\"a\\\"b\\\\\""),
        ] {
            assert_eq!(quoted_text(text), expected);
        }
    }
}
