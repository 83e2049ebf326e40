//! Which programs a hub starts: what gets a warning, what is refused, and that
//! the lists hold for servers which are registered already.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use maru::config::{Config, McpServerDefinition};
use serde_json::{Value, json};

use crate::test_hub::TestHub;

const SERVERS_ROUTE: &str = "/api/mcp/servers";

/// A command line, a variable, and what the warning must say of it.
struct LaunchCase {
    line: &'static [&'static str],
    variable: Option<&'static str>,
    warning: &'static str,
}

const fn command_case(line: &'static [&'static str], warning: &'static str) -> LaunchCase {
    LaunchCase {
        line,
        variable: None,
        warning,
    }
}

const fn loader_variable_case(variable: &'static str) -> LaunchCase {
    LaunchCase {
        line: &["server"],
        variable: Some(variable),
        warning: "decides which code is loaded",
    }
}

const fn search_path_variable_case(variable: &'static str) -> LaunchCase {
    LaunchCase {
        line: &["server"],
        variable: Some(variable),
        warning: SEARCH_PATH_WARNING,
    }
}

const SHELL_WARNING: &str = "is a shell";
const CODE_WARNING: &str = "runs code or other programs";
const SEARCH_PATH_WARNING: &str = "decides where settings or programs are found";
const CONTAINER_WARNING: &str = "gives the container access to this machine";

/// Ways to start code that is no program of its own.
const INDIRECT_LAUNCHES: &[LaunchCase] = &[
    command_case(&["sh", "-c", "id"], SHELL_WARNING),
    command_case(&["/bin/bash", "-c", "id"], SHELL_WARNING),
    command_case(&["bash"], SHELL_WARNING),
    command_case(&["ed"], CODE_WARNING),
    command_case(&["docker", "exec", "-i", "box", "server"], CODE_WARNING),
    command_case(
        &["kubectl", "-n", "x", "exec", "pod", "--", "server"],
        CODE_WARNING,
    ),
    command_case(
        &["ssh", "-tt", "-o", "BatchMode=yes", "host", "server"],
        CODE_WARNING,
    ),
    command_case(&["sqlite3", "x.db", ".shell id"], CODE_WARNING),
    command_case(&["busybox", "sh", "-c", "id"], SHELL_WARNING),
    command_case(&["env", "bash", "-c", "id"], SHELL_WARNING),
    command_case(
        &["/usr/bin/env", "-i", "A=1", "dash", "-c", "id"],
        SHELL_WARNING,
    ),
    command_case(&["env", "-u", "HOME", "sh", "-c", "id"], SHELL_WARNING),
    command_case(&["env", "-S", "sh -c id"], CODE_WARNING),
    command_case(&["env", "-vS", "sh -c id"], CODE_WARNING),
    command_case(
        &["env", "LD_PRELOAD=/tmp/x.so", "server"],
        "decides which code",
    ),
    command_case(&["timeout", "5", "sh", "-c", "id"], SHELL_WARNING),
    command_case(
        &["some-new-wrapper", "--", "/bin/bash", "-lc", "id"],
        CODE_WARNING,
    ),
    command_case(&["sudo", "-u", "me", "sh", "-c", "id"], SHELL_WARNING),
    command_case(&["unshare", "-r", "sh"], SHELL_WARNING),
    command_case(
        &["timeout", "-k", "1", "--signal", "KILL", "5", "zsh"],
        SHELL_WARNING,
    ),
    command_case(
        &["timeout", "--new-option", "5", "6", "bash"],
        SHELL_WARNING,
    ),
    command_case(&["nice", "-n", "5", "sh"], SHELL_WARNING),
    command_case(&["setsid", "-f", "sh", "-c", "id"], SHELL_WARNING),
    command_case(&["nohup", "sh", "-c", "id"], SHELL_WARNING),
    command_case(&["stdbuf", "-oL", "sh", "-c", "id"], SHELL_WARNING),
    command_case(&["xargs", "-I", "{}", "sh", "-c", "{}"], SHELL_WARNING),
    command_case(&["sudo", "-u", "root", "sh"], SHELL_WARNING),
    command_case(&["sudo", "-s"], CODE_WARNING),
    command_case(&["su", "-c", "id"], SHELL_WARNING),
    command_case(&["script", "-c", "id", "/dev/null"], CODE_WARNING),
    command_case(
        &["nice", "timeout", "5", "env", "python3", "-c", "1"],
        CODE_WARNING,
    ),
    command_case(
        &["/lib64/ld-linux-x86-64.so.2", "/bin/sh", "-c", "id"],
        SHELL_WARNING,
    ),
    command_case(&["python3", "-c", "1"], CODE_WARNING),
    command_case(&["python3", "-Ic", "1"], CODE_WARNING),
    command_case(&["python3", "-X", "dev", "-c", "1"], CODE_WARNING),
    command_case(&["python3", "-Wignore", "-c1"], CODE_WARNING),
    command_case(&["python3.12", "-uc", "1"], CODE_WARNING),
    command_case(&["pypy3", "-c", "1"], CODE_WARNING),
    command_case(&["python3", "-m", "timeit", "1"], CODE_WARNING),
    command_case(&["python3", "-mtimeit", "1"], CODE_WARNING),
    command_case(&["node", "-e", "1"], CODE_WARNING),
    command_case(&["nodejs", "-e", "1"], CODE_WARNING),
    command_case(&["node", "-pe", "1"], CODE_WARNING),
    command_case(&["node", "--eval=1"], CODE_WARNING),
    command_case(
        &["node", "--title", "x", "--import", "data:text/javascript,1"],
        CODE_WARNING,
    ),
    command_case(&["node", "--require=/tmp/x.js", "server.js"], CODE_WARNING),
    command_case(&["node", "--inspect=0.0.0.0:1", "server.js"], CODE_WARNING),
    command_case(&["deno", "eval", "1"], CODE_WARNING),
    command_case(&["bun", "exec", "id"], CODE_WARNING),
    command_case(&["npx", "-c", "id"], CODE_WARNING),
    command_case(&["npx", "-y", "-p", "x", "--call=id"], CODE_WARNING),
    command_case(&["npm", "exec", "--", "sh", "-c", "id"], SHELL_WARNING),
    command_case(
        &["uv", "run", "--with", "x", "python", "-c", "1"],
        CODE_WARNING,
    ),
    command_case(&["uvx", "python", "-c", "1"], CODE_WARNING),
    command_case(&["perl", "-le", "print 1"], CODE_WARNING),
    command_case(&["perl", "-MPOSIX;system(1)"], CODE_WARNING),
    command_case(&["ruby", "-ne", "1"], CODE_WARNING),
    command_case(&["php8.2", "-r", "1;"], CODE_WARNING),
    command_case(&["php", "-d", "auto_prepend_file=/tmp/x"], CODE_WARNING),
    command_case(&["lua5.4", "-e", "1"], CODE_WARNING),
    command_case(&["awk", "BEGIN{system(\"id\")}"], CODE_WARNING),
    command_case(&["sed", "1e id"], CODE_WARNING),
    command_case(
        &["find", "/", "-maxdepth", "0", "-exec", "id", ";"],
        CODE_WARNING,
    ),
    command_case(&["git", "-c", "alias.x=!id", "x"], CODE_WARNING),
    command_case(&["git", "clone", "ext::sh -c id"], CODE_WARNING),
    command_case(
        &["tar", "cf", "x", "--checkpoint-action=exec=id", "y"],
        CODE_WARNING,
    ),
    command_case(&["ssh", "-o", "ProxyCommand=id", "host"], CODE_WARNING),
    command_case(&["vim", "-c", "!id"], CODE_WARNING),
    command_case(
        &["java", "-javaagent:/tmp/x.jar", "-jar", "server.jar"],
        CODE_WARNING,
    ),
    command_case(&["socat", "-", "EXEC:id"], CODE_WARNING),
    command_case(&["make", "--eval=x:;id"], CODE_WARNING),
    command_case(&["docker", "run", "-v", "/:/host", "x"], CONTAINER_WARNING),
    command_case(
        &["docker", "run", "-itv", "/:/host", "x"],
        CONTAINER_WARNING,
    ),
    command_case(
        &["docker", "run", "-i", "--network", "host", "x"],
        CONTAINER_WARNING,
    ),
    command_case(&["docker", "run", "--net=host", "x"], CONTAINER_WARNING),
    command_case(
        &["docker", "run", "--rm", "--privileged", "x"],
        CONTAINER_WARNING,
    ),
    command_case(&["docker", "run", "--pid", "host", "x"], CONTAINER_WARNING),
    command_case(
        &["podman", "run", "--mount", "type=bind,src=/,dst=/h", "x"],
        CONTAINER_WARNING,
    ),
    command_case(
        &["docker", "-H", "tcp://127.0.0.1:1", "run", "x"],
        CONTAINER_WARNING,
    ),
    command_case(
        &["docker", "container", "run", "--cap-add=ALL", "x"],
        CONTAINER_WARNING,
    ),
    command_case(
        &["docker", "exec", "-i", "--privileged", "x", "sh"],
        CONTAINER_WARNING,
    ),
    command_case(&["docker", "compose", "run", "x"], CONTAINER_WARNING),
    loader_variable_case("LD_PRELOAD"),
    loader_variable_case("PATH"),
    loader_variable_case("NODE_OPTIONS"),
    loader_variable_case("PYTHONPATH"),
    loader_variable_case("PYTHONUSERBASE"),
    loader_variable_case("PYTHONWARNINGS"),
    loader_variable_case("GIT_CONFIG_COUNT"),
    loader_variable_case("GIT_SSH_COMMAND"),
    loader_variable_case("GIT_EXTERNAL_DIFF"),
    loader_variable_case("PERL5OPT"),
    loader_variable_case("RUBYOPT"),
    loader_variable_case("BASH_ENV"),
    loader_variable_case("BASH_FUNC_ls%%"),
    loader_variable_case("ENV"),
    loader_variable_case("JAVA_TOOL_OPTIONS"),
    loader_variable_case("_JAVA_OPTIONS"),
    loader_variable_case("npm_config_script_shell"),
    loader_variable_case("DOTNET_STARTUP_HOOKS"),
    loader_variable_case("GLIBC_TUNABLES"),
    loader_variable_case("OPENSSL_CONF"),
    loader_variable_case("ERL_FLAGS"),
    loader_variable_case("ERL_AFLAGS"),
    loader_variable_case("GUILE_LOAD_PATH"),
    loader_variable_case("AWKPATH"),
    search_path_variable_case("PYENV_ROOT"),
    search_path_variable_case("VOLTA_HOME"),
    search_path_variable_case("NVM_DIR"),
    search_path_variable_case("DOCKER_HOST"),
    search_path_variable_case("HOME"),
    search_path_variable_case("KUBECONFIG"),
    search_path_variable_case("UV_INDEX_URL"),
];

/// Servers as people register them.
const USUAL_SERVERS: &[(&[&str], &[&str])] = &[
    (
        &[
            "npx",
            "-y",
            "@modelcontextprotocol/server-filesystem",
            "/data",
        ],
        &[],
    ),
    (
        &["npx", "-y", "some-server", "-c", "config.json", "bash"],
        &[],
    ),
    (
        &[
            "npx",
            "-y",
            "mcp-remote",
            "https://example.com",
            "--header",
            "A: b",
        ],
        &["NODE_ENV"],
    ),
    (
        &["uvx", "mcp-server-git", "--repository", "/src"],
        &["GIT_AUTHOR_NAME"],
    ),
    (
        &["uvx", "--from", "git+https://example.com/x", "server", "-e"],
        &[],
    ),
    (
        &["uv", "--directory", "/srv", "run", "server.py"],
        &["PYTHONUNBUFFERED"],
    ),
    (
        &["python3", "server.py", "-c", "x"],
        &["API_KEY", "PYTHONIOENCODING"],
    ),
    (&["python3", "-u", "-m", "mcp_server_time", "-c", "x"], &[]),
    (
        &["node", "index.js", "-e"],
        &["GITHUB_PERSONAL_ACCESS_TOKEN"],
    ),
    (
        &[
            "node",
            "--enable-source-maps",
            "dist/index.js",
            "-p",
            "3000",
        ],
        &[],
    ),
    (&["deno", "run", "-A", "server.ts"], &[]),
    (&["java", "-Xmx1g", "-jar", "server.jar", "-e"], &[]),
    (&["docker", "run", "-i", "--rm", "mcp/time", "-v"], &[]),
    (
        &[
            "docker",
            "run",
            "-i",
            "--rm",
            "-e",
            "A",
            "--name",
            "x",
            "--init",
            "mcp/x",
            "--privileged",
        ],
        &["A"],
    ),
    (
        &["timeout", "--foreground", "60", "node", "server.js", "bash"],
        &[],
    ),
    (&["env", "A=1", "node", "server.js", "sh"], &[]),
    (&["ssh", "-i", "/k", "-o", "BatchMode=yes", "host"], &[]),
    (&["perl", "-w", "server.pl", "-e"], &[]),
    (
        &["/opt/server/bin/mcp-server", "--eval", "-c"],
        &["DB_PATH", "AWS_PROFILE"],
    ),
];

fn registration_body(name: &str, line: &[&str], variables: &[&str]) -> Value {
    let env: Value = variables
        .iter()
        .map(|it| ((*it).to_owned(), Value::from("x")))
        .collect();
    json!({
        "name": name,
        "transportType": "STDIO",
        "config": {"command": line[0], "args": line[1..], "env": env},
        "autoConnect": false,
    })
}

fn expose_hub(config: &mut Config, allowed: &[&str]) {
    config.behind_tls_proxy = true;
    config.allow_stdio_over_http = true;
    config.mcp.security.allowed_commands = allowed.iter().map(|it| (*it).to_owned()).collect();
}

#[tokio::test(flavor = "multi_thread")]
async fn local_admin_is_warned_of_every_way_to_start_code() {
    let hub = TestHub::start().await;
    for (at, way) in INDIRECT_LAUNCHES.iter().enumerate() {
        let variables: Vec<&str> = way.variable.into_iter().collect();
        let mut body = registration_body(&format!("way{at}"), way.line, &variables);
        for route in [SERVERS_ROUTE, "/api/mcp/test"] {
            let asked = hub.send_as_admin("POST", route, body.clone()).await;
            let status = asked.status;
            let asked = asked.json().await;
            if way.warning != SEARCH_PATH_WARNING {
                assert_eq!(status, 400, "{body}");
                let warned = asked["warnings"].to_string();
                assert!(warned.contains(way.warning), "{body}: {warned}");
                let why = asked["error"].as_str().unwrap();
                assert!(why.contains("acceptWarnings"), "{body}: {why}");
            }
        }
        body["name"] = format!("meant{at}").into();
        body["acceptWarnings"] = true.into();
        let made = hub.send_as_admin("POST", SERVERS_ROUTE, body.clone()).await;
        assert_eq!(made.status, 201, "{body}");
        let made = made.json().await;
        let warned = made["warnings"].to_string();
        assert!(warned.contains(way.warning), "{body}: {warned}");
    }
    let shown = hub
        .send_as_admin("GET", &format!("{SERVERS_ROUTE}/meant0"), Value::Null)
        .await;
    assert_eq!(
        shown.json().await["warnings"][0],
        "sh is a shell: it runs any command it is given"
    );
    let log = hub
        .send_as_admin("GET", &format!("{SERVERS_ROUTE}/meant0/log"), Value::Null)
        .await;
    assert!(log.text().await.contains("warning: sh is a shell"));
}

#[tokio::test(flavor = "multi_thread")]
async fn common_server_gets_no_warning() {
    let hub = TestHub::start().await;
    for (at, (line, variables)) in USUAL_SERVERS.iter().enumerate() {
        let body = registration_body(&format!("usual{at}"), line, variables);
        let made = hub.send_as_admin("POST", SERVERS_ROUTE, body.clone()).await;
        assert_eq!(made.status, 201, "{body}");
        let made = made.json().await;
        assert_eq!(made.get("warnings"), None, "{body}: {made}");
    }
}

/// Names alone allow no arguments there, and no variable that loads code.
#[tokio::test(flavor = "multi_thread")]
async fn exposed_hub_starts_no_code_whatever_is_tried() {
    let names: Vec<&str> = INDIRECT_LAUNCHES.iter().map(|it| it.line[0]).collect();
    let hub = TestHub::with_config(|config| expose_hub(config, &names)).await;
    for way in INDIRECT_LAUNCHES {
        let variables: Vec<&str> = way.variable.into_iter().collect();
        let body = registration_body("way", way.line, &variables);
        let refused = hub.send_as_admin("POST", SERVERS_ROUTE, body.clone()).await;
        assert_eq!(refused.status, 400, "{body}");
        let tried = hub
            .send_as_admin("POST", "/api/mcp/test", body.clone())
            .await;
        assert_ne!(tried.status, 200, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exposed_hub_starts_what_its_settings_list_with_those_arguments() {
    let listed = ["npx -y '@x/server' /data", "node", "python3 -c 1"];
    let hub = TestHub::with_config(|config| {
        expose_hub(config, &listed);
        let mut named = configured_server("named", "node", &["server.js"]);
        named.cwd = Some("/srv".to_owned());
        // What stands in the settings need not stand in the list, too.
        let unlisted = configured_server("unlisted", "deno", &["server.ts"]);
        config.mcp.servers = vec![named, unlisted];
    })
    .await;
    for (line, variables, status) in [
        (
            &["npx", "-y", "@x/server", "/data"][..],
            &["API_KEY"][..],
            201,
        ),
        (&["npx", "-y", "@x/server", "/etc"], &[], 400),
        (&["npx", "-y", "@x/server", "/data"], &["NODE_OPTIONS"], 400),
        (&["npx"], &[], 400),
        (&["node"], &[], 201),
        (&["node", "server.js"], &[], 400),
        (&["node", "other.js"], &[], 400),
        (&["python3", "-c", "1"], &[], 201),
        (&["python3", "-c", "2"], &[], 400),
    ] {
        let body = registration_body("fx", line, variables);
        let answer = hub.send_as_admin("POST", SERVERS_ROUTE, body.clone()).await;
        assert_eq!(answer.status, status, "{body}");
        if status == 201 {
            assert_eq!(remove_server(&hub).await, 204);
        }
    }
    for (variable, status) in [
        ("GITHUB_TOKEN", 201),
        ("AWS_ACCESS_KEY_ID", 201),
        ("LC_ALL", 201),
        ("TZ", 201),
        ("PYTHONUNBUFFERED", 201),
        ("NODE_ENV", 201),
        ("SSL_CERT_FILE", 400),
        ("HTTPS_PROXY", 400),
        ("ALL_PROXY", 400),
        ("NODE_TLS_REJECT_UNAUTHORIZED", 400),
        ("NODE_EXTRA_CA_CERTS", 400),
        ("PLAYWRIGHT_DOWNLOAD_HOST", 400),
        ("NEVER_HEARD_OF", 400),
        ("LD_KEY", 400),
    ] {
        let body = registration_body("fx", &["node"], &[variable]);
        let answer = hub.send_as_admin("POST", SERVERS_ROUTE, body).await;
        assert_eq!(answer.status, status, "{variable}");
        if status == 201 {
            assert_eq!(remove_server(&hub).await, 204);
        }
    }
    // Where it starts decides which server.js that is.
    for (command, args, cwd, status) in [
        ("node", json!(["server.js"]), "/srv", 201),
        ("node", json!(["server.js"]), "/tmp", 400),
        ("npx", json!(["-y", "@x/server", "/data"]), "/tmp", 400),
    ] {
        let mut body = registration_body("fx", &[command], &[]);
        body["config"]["args"] = args;
        body["config"]["cwd"] = cwd.into();
        let answer = hub.send_as_admin("POST", SERVERS_ROUTE, body.clone()).await;
        assert_eq!(answer.status, status, "{body}");
        if status == 201 {
            assert_eq!(remove_server(&hub).await, 204);
        }
    }
}

async fn remove_server(hub: &TestHub) -> u16 {
    let path = format!("{SERVERS_ROUTE}/fx");
    hub.send_as_admin("DELETE", &path, Value::Null)
        .await
        .status
        .as_u16()
}

/// A file of a desktop client is not read as carefully as a command that one types.
#[tokio::test(flavor = "multi_thread")]
async fn imported_entry_with_a_warning_needs_acceptance() {
    let hub = TestHub::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("started");
    let code = format!("open({:?}, 'w')", mark.display().to_string());
    let mut file = json!({"mcpServers": {"fx": {"command": "python3", "args": ["-Ic", code]}}});
    let answer = hub
        .send_as_admin("POST", "/api/mcp/import", file.clone())
        .await;
    let entry = answer.json().await["servers"][0].clone();
    assert!(
        entry["error"].as_str().unwrap().contains(CODE_WARNING),
        "{entry}"
    );
    assert!(!mark.exists());
    file["acceptWarnings"] = true.into();
    let answer = hub.send_as_admin("POST", "/api/mcp/import", file).await;
    let entry = answer.json().await["servers"][0].clone();
    assert!(
        entry["warnings"].to_string().contains(CODE_WARNING),
        "{entry}"
    );
    assert!(mark.exists());
    // What it was told once it is not asked again, until it becomes another program.
    let path = format!("{SERVERS_ROUTE}/fx");
    let same = json!({"description": "mine", "autoConnect": false});
    assert_eq!(hub.send_as_admin("PUT", &path, same).await.status, 200);
    let mut other = json!({"config": {"command": "python3", "args": ["-Ic", "2"]}});
    assert_eq!(
        hub.send_as_admin("PUT", &path, other.clone()).await.status,
        400
    );
    other["acceptWarnings"] = true.into();
    assert_eq!(hub.send_as_admin("PUT", &path, other).await.status, 200);
}

/// Whoever writes the settings has accepted what stands there.
#[tokio::test(flavor = "multi_thread")]
async fn program_of_the_settings_is_started_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("started");
    let text = format!("touch {}", mark.display());
    let hub = TestHub::with_config(|config| {
        let mut listed = configured_server("fx", "sh", &["-c", &text]);
        listed.auto_connect = true;
        config.mcp.servers = vec![listed];
    })
    .await;
    hub.running.servers().wait_for_first_connect().await;
    assert!(mark.exists());
    let path = format!("{SERVERS_ROUTE}/fx");
    let shown = hub
        .send_as_admin("GET", &path, Value::Null)
        .await
        .json()
        .await;
    assert!(
        shown["warnings"].to_string().contains(SHELL_WARNING),
        "{shown}"
    );
}

fn configured_server(name: &str, command: &str, args: &[&str]) -> McpServerDefinition {
    let entry = json!({"name": name, "transport": "stdio", "command": command, "args": args, "auto-connect": false});
    serde_json::from_value(entry).unwrap()
}

fn write_program(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    fs::create_dir_all(folder).unwrap();
    fs::write(&path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_name_means_the_program_of_the_search_path() {
    let folder = tempfile::tempdir().unwrap();
    let evil = write_program(&folder.path().join("evil"), "python3");
    let mine = write_program(&folder.path().join("my tools"), "mine");
    let linked = folder.path().join("mine");
    std::os::unix::fs::symlink(&mine, &linked).unwrap();
    let other = folder.path().join("other");
    std::os::unix::fs::symlink(&mine, &other).unwrap();
    let hub = TestHub::with_config(|config| {
        config.mcp.security.allowed_commands = vec!["python3".to_owned(), mine.clone()];
    })
    .await;
    let found = std::process::Command::new("which").arg("python3").output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    for (command, status) in [
        ("python3", 201),
        (found.trim(), 201),
        (&evil, 400),
        (&mine, 201),
        (&linked.display().to_string(), 201),
        (&other.display().to_string(), 400),
        ("mine", 400),
        ("node", 400),
    ] {
        let answer = hub
            .send_as_admin(
                "POST",
                SERVERS_ROUTE,
                registration_body("fx", &[command, "a"], &[]),
            )
            .await;
        assert_eq!(answer.status, status, "{command}");
        if status == 201 {
            assert_eq!(remove_server(&hub).await, 204);
        }
    }
}

/// A server that was registered before its name or program left the lists.
#[tokio::test(flavor = "multi_thread")]
async fn stored_server_that_is_no_longer_allowed_is_not_started() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("started");
    let script = directory.path().join("touch.py");
    fs::write(
        &script,
        format!("open({:?}, 'w')\n", mark.display().to_string()),
    )
    .unwrap();
    let config = |names: &[&str], commands: &[&str]| {
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: directory.path().join("data"),
            ..Config::default()
        };
        let list = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        config.mcp.security.allowed_server_names = list(names);
        config.mcp.security.allowed_commands = list(commands);
        config
    };
    let hub = TestHub::with_directory(config(&[], &[])).await;
    let mut program = registration_body("fx", &["python3", script.to_str().unwrap()], &[]);
    assert_eq!(
        hub.send_as_admin("POST", SERVERS_ROUTE, program.clone())
            .await
            .status,
        201
    );
    program["autoConnect"] = true.into();
    let path = format!("{SERVERS_ROUTE}/fx");
    assert_eq!(hub.send_as_admin("PUT", &path, program).await.status, 200);
    let path = format!("{SERVERS_ROUTE}/fx/connect");
    assert_eq!(
        hub.send_as_admin("POST", &path, Value::Null).await.status,
        200
    );
    hub.running.stop().await;
    assert!(mark.exists());
    fs::remove_file(&mark).unwrap();

    let lists: [(&[&str], &[&str], &str); 2] = [
        (&["other"], &[], "allowed-server-names"),
        (&[], &["node"], "allowed-commands"),
    ];
    for (names, commands, why) in lists {
        let hub = TestHub::with_directory(config(names, commands)).await;
        hub.running.servers().wait_for_first_connect().await;
        for action in ["", "/connect"] {
            let method = if action.is_empty() { "GET" } else { "POST" };
            let path = format!("{SERVERS_ROUTE}/fx{action}");
            let shown = hub
                .send_as_admin(method, &path, Value::Null)
                .await
                .json()
                .await;
            assert_eq!(shown["status"], "FAILED", "{shown}");
            let cause = shown["cause"].as_str().unwrap();
            assert!(cause.contains("not allowed to start"), "{cause}");
            assert!(cause.contains(why), "{cause}");
        }
        let change = json!({"description": "still here"});
        let changed = hub
            .send_as_admin("PUT", &format!("{SERVERS_ROUTE}/fx"), change)
            .await;
        assert_eq!(changed.status, 400);
        let off = hub
            .send_as_admin("POST", &format!("{SERVERS_ROUTE}/fx/disable"), Value::Null)
            .await;
        assert_eq!(off.status, 200);
        let on = hub
            .send_as_admin("POST", &format!("{SERVERS_ROUTE}/fx/enable"), Value::Null)
            .await;
        assert_eq!(on.status, 400);
        hub.running.stop().await;
        assert!(!mark.exists(), "{why}");
        // Back in the list it is allowed again.
        let hub = TestHub::with_directory(config(&[], &[])).await;
        let on = hub
            .send_as_admin("POST", &format!("{SERVERS_ROUTE}/fx/enable"), Value::Null)
            .await;
        assert_eq!(on.status, 200);
        hub.running.stop().await;
        assert!(mark.exists());
        fs::remove_file(&mark).unwrap();
    }
}

/// What was registered on a hub of one machine does not start once others reach it.
#[tokio::test(flavor = "multi_thread")]
async fn stored_server_does_not_start_on_a_hub_that_became_exposed() {
    let directory = tempfile::tempdir().unwrap();
    let config = |proxied: bool| Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().join("data"),
        behind_tls_proxy: proxied,
        ..Config::default()
    };
    let hub = TestHub::with_directory(config(false)).await;
    let mut program = registration_body("fx", &["sh", "-c", "id"], &[]);
    program["acceptWarnings"] = true.into();
    assert_eq!(
        hub.send_as_admin("POST", SERVERS_ROUTE, program)
            .await
            .status,
        201
    );
    hub.running.stop().await;
    let hub = TestHub::with_directory(config(true)).await;
    let path = format!("{SERVERS_ROUTE}/fx/connect");
    let connected = hub.send_as_admin("POST", &path, Value::Null).await;
    let connected = connected.json().await;
    assert_eq!(connected["status"], "FAILED", "{connected}");
    let cause = connected["cause"].as_str().unwrap();
    assert!(cause.contains("allowed-commands"), "{cause}");
}
