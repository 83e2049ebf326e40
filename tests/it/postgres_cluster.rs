//! A PostgreSQL server of a test's own, gone when the test ends.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(crate) const PASSWORD: &str = "hush-hush";
const USER: &str = "maru";

pub(crate) struct PostgresCluster {
    server: Mutex<Child>,
    pub(crate) port: u16,
    pub(crate) directory: tempfile::TempDir,
    databases: AtomicUsize,
}

impl PostgresCluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let password = place.join("password");
        fs::write(&password, PASSWORD).unwrap();
        if is_root() {
            let [user, group] = ["-u", "-g"].map(|it| Some(user_id(&[it, "postgres"])));
            chown(place, user, group).unwrap();
            chown(&password, user, group).unwrap();
        }
        let mut initdb = postgres_command("initdb", place);
        initdb
            .args(["--username", USER, "--auth=scram-sha-256", "--pwfile"])
            .arg(&password)
            .args(["--encoding=UTF8", "--locale=C", "--no-sync"]);
        output(&mut initdb);
        let port = free_port();
        let cluster = Self {
            server: Mutex::new(spawn_server(place, port)),
            port,
            directory,
            databases: AtomicUsize::new(0),
        };
        cluster.wait_until_serving().await;
        cluster
    }

    async fn wait_until_serving(&self) {
        for _attempt in 0..400 {
            let asked = self.psql("postgres", "SELECT 1").status();
            if asked.unwrap().success() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(self.directory.path().join("log"));
        panic!("no server: {}", log.unwrap());
    }

    /// Ends the server and every connection to it; its data stays.
    pub(crate) fn stop(&self) {
        let mut server = self.server.lock().unwrap();
        signal(&server, "-INT");
        server.wait().unwrap();
    }

    /// Serves again, on the same data and port.
    pub(crate) async fn restart(&self) {
        *self.server.lock().unwrap() = spawn_server(self.directory.path(), self.port);
        self.wait_until_serving().await;
    }

    /// The name of a new database.
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

    /// Runs SQL beside maru; what it answers.
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
        // Unlike a kill, this also ends its children and frees what they share.
        let server = self.server.get_mut().unwrap();
        if !signal(server, "-QUIT") {
            let _ = server.kill();
        }
        let _ = server.wait();
    }
}

fn signal(server: &Child, name: &str) -> bool {
    let pid = server.id().to_string();
    let told = Command::new("kill").args([name, &pid]).status();
    told.is_ok_and(|it| it.success())
}

fn spawn_server(place: &Path, port: u16) -> Child {
    postgres_command("postgres", place)
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k"])
        .arg(place)
        .args(["-p", &port.to_string()])
        .stderr(File::create(place.join("log")).unwrap())
        .spawn()
        .unwrap()
}

/// A program that works on the cluster in `place`; it ends with the test, and
/// is not run by root, which PostgreSQL refuses.
fn postgres_command(name: &str, place: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=QUIT");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command
        .arg(postgres_program(name))
        .arg("-D")
        .arg(place.join("data"))
        .current_dir(place)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// The newest one that Debian's packages installed, or the one in the path.
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
    let done = command
        .output()
        .unwrap_or_else(|why| panic!("{command:?}: {why}; scripts/tools installs PostgreSQL"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
