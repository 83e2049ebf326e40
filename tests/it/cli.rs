//! The program as a person meets it: output, complaints, exit codes.

mod connect;
mod diagnosis;
mod first_start;
mod mistakes;
mod server_search;
mod service;
mod toolsets;
mod transfer;

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    openai::fake_model::{FakeModelServer, json_response, streamed_by_byte},
    test_hub::TestHub,
};

fn run_maru(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(arguments)
        .arg("--data-dir")
        .arg(directory.join("data"))
        .current_dir(directory)
        .env_remove("MARU_CONFIG")
        .output()
        .unwrap()
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit code 2 and exactly one line that says all of `expected`.
fn assert_refused(output: &Output, expected: &[&str]) {
    let complaint = utf8(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    for part in expected {
        assert!(complaint.contains(part), "{complaint} lacks {part}");
    }
}

#[test]
fn call_prints_the_result_and_exits_with_its_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let call = |arguments: &[&str]| run_maru(directory.path(), &[&["call"], arguments].concat());

    let good = call(&[
        "calculate_vacation_days",
        r#"{"employee_id":"EMP001","year":2026}"#,
    ]);
    assert!(good.status.success());
    let result: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!(result["result"]["remaining"], 11.0);
    assert!(call(&["maru.get_all_employees"]).status.success());

    let failed = call(&["get_employee_info", r#"{"employee_id":"EMP999"}"#]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(utf8(&failed.stdout).contains(r#"{"success":false,"error":"no employee EMP999"#));

    assert_refused(
        &call(&["serch_docs"]),
        &["unknown tool: serch_docs", "did you mean search_docs?"],
    );
    assert_refused(
        &call(&["search_docs", "{query}"]),
        &["invalid JSON", "example"],
    );
    assert_refused(
        &call(&["search_docs", "[]"]),
        &["not a JSON object", "example"],
    );
    assert_refused(
        &call(&["search_docs", r#"{"query":"a","query":"b"}"#]),
        &["duplicate member"],
    );
}

#[test]
fn arguments_come_in_base64_or_from_stdin() {
    let directory = tempfile::tempdir().unwrap();
    let call = |arguments: &[&str]| {
        run_maru(
            directory.path(),
            &[&["call", "search_docs"], arguments].concat(),
        )
    };
    let plain = call(&[r#"{"query":"연차"}"#]);
    assert!(plain.status.success());
    // Either alphabet, with and without padding.
    for packed in [
        "eyJxdWVyeSI6IuyXsOywqCJ9",
        "eyJxdWVyeSI6ICLsl7DssKgifQ==",
        "eyJxdWVyeSI6ICLsl7DssKgifQ",
    ] {
        assert_eq!(
            call(&["--args-b64", packed]).stdout,
            plain.stdout,
            "{packed}"
        );
    }
    assert_refused(&call(&["--args-b64", "%"]), &["not Base64"]);
    assert_refused(&call(&["--args-b64", "W10="]), &["not a JSON object"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(["call", "search_docs", "-", "--data-dir", "data"])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let given = r#"{"query":"연차"}"#.as_bytes();
    child.stdin.take().unwrap().write_all(given).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, plain.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_with_and_without_a_hub() {
    let backend = FakeModelServer::start_with_steps(json_response(
        200,
        "",
        &json!({"data": [{"id": "qwen3:8b"}]}),
    ))
    .await;
    let directory = tempfile::tempdir().unwrap();
    let url = backend.url();
    let settings = format!(
        "models:\n  - {{name: gpt-4o, model: qwen3:8b, base_url: \"{url}\"}}\n  - {{name: \"qwen*\", base_url: \"{url}\"}}\n"
    );
    fs::write(directory.path().join("maru.yaml"), settings).unwrap();
    let place = format!("127.0.0.1:{}", backend.port);
    let shown = utf8(&run_maru(directory.path(), &["models"]).stdout);
    assert_eq!(
        shown,
        format!("MODEL     BACKEND\ngpt-4o    {place}\nqwen3:8b  {place}\n")
    );
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    let asked = run_maru(
        directory.path(),
        &["models", "--json", "--listen", &hub.address],
    );
    let listed: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(listed[0]["id"], "qwen3:8b");
    let wrong = "models:\n  - {name: a, dialect: klingon}\n";
    fs::write(directory.path().join("maru.yaml"), wrong).unwrap();
    assert_refused(
        &run_maru(directory.path(), &["models"]),
        &["models.0 (a)", "klingon", "hermes"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_and_call_use_the_running_hub() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let directory = hub.directory.path().to_owned();
    let ask = move |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_maru"))
            .args(arguments)
            .arg("--data-dir")
            .arg(&directory)
            .output()
            .unwrap()
    };
    let (listed, called) = tokio::task::spawn_blocking(move || {
        (
            ask(&["tools", "--json"]),
            ask(&["call", "test_simple_text"]),
        )
    })
    .await
    .unwrap();
    // Only the running hub has the tools of the suite.
    assert!(
        utf8(&listed.stdout).contains("test_simple_text"),
        "{}",
        utf8(&listed.stderr)
    );
    assert_eq!(
        utf8(&called.stdout),
        "This is a simple text response for testing.\n"
    );
}

#[test]
fn tools_are_a_table_for_people() {
    let directory = tempfile::tempdir().unwrap();
    let shown = utf8(&run_maru(directory.path(), &["tools"]).stdout);
    let first: Vec<&str> = shown.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(first, ["NAME", "ARGUMENTS", "DESCRIPTION"]);
    assert!(shown.contains("calculate_vacation_days  employee_id, year"));
}

#[test]
fn tools_need_a_hub_only_where_the_flag_names_one() {
    let directory = tempfile::tempdir().unwrap();
    let free = format!("127.0.0.1:{}", crate::faults::free_port());
    let settings = directory.path().join("maru.yaml");
    fs::write(settings, format!("listen: {free}\n")).unwrap();
    let listed = run_maru(directory.path(), &["tools"]);
    assert!(utf8(&listed.stdout).contains("search_docs"));
    assert_refused(
        &run_maru(directory.path(), &["tools", "--listen", &free]),
        &["no hub listens on", &free, "start one with: maru"],
    );
    assert_refused(
        &run_maru(directory.path(), &["tools", "--listen", "foo"]),
        &["--listen: ", "ADDR:PORT"],
    );
}

#[test]
fn banner_prints_commands_that_reach_this_hub() {
    use std::io::{BufRead as _, BufReader};
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("my data");
    let settings = directory.path().join("maru.yaml");
    fs::write(settings, "listen: 127.0.0.1:0\ndata_dir: my data\n").unwrap();
    let mut hub = Command::new(env!("CARGO_BIN_EXE_maru"))
        .current_dir(directory.path())
        .env_remove("MARU_CONFIG")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(hub.stdout.take().unwrap()).lines();
    let lines = lines.map_while(Result::ok);
    let banner: Vec<String> = lines.take_while(|it| !it.starts_with("Stop")).collect();
    hub.kill().unwrap();
    hub.wait().unwrap();
    let flag = format!("--data-dir '{}'", data.display());
    for command in ["console", "stdio", "tools"] {
        let expected = format!("{flag} {command}");
        let found = banner.iter().any(|it| it.contains(&expected));
        assert!(found, "{expected}: {banner:?}");
    }
}

#[test]
fn config_names_the_origin_of_every_value() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("maru.yaml"),
        "limits:\n  max_sessions: 7\n",
    )
    .unwrap();
    fs::write(directory.path().join(".env"), "MARU_LOG_LEVEL=warn\n").unwrap();
    let output = run_maru(
        directory.path(),
        &["config", "--json", "--listen", "127.0.0.1:1"],
    );
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let origin = |key: &str| {
        rows.iter().find(|it| it["key"] == key).unwrap()["origin"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(origin("limits.max_sessions"), "./maru.yaml:2");
    assert_eq!(origin("log.level"), "MARU_LOG_LEVEL in .env");
    assert_eq!(origin("listen"), "--listen");
    assert_eq!(origin("sample_data"), "default");
}

#[test]
fn invalid_configuration_is_one_line_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let with = |yaml: &str| {
        fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
        run_maru(directory.path(), &["serve"])
    };
    assert_refused(
        &with("lisen: x\n"),
        &["maru.yaml:1", "lisen", "did you mean \"listen\"?"],
    );
    assert_refused(
        &with("data_dir: ${NO_SUCH}\n"),
        &["maru.yaml:1", "NO_SUCH is not set"],
    );
    assert_refused(
        &with("listen: 0.0.0.0:20006\n"),
        &["maru.yaml:1: listen", "not a loopback address"],
    );
    assert!(!directory.path().join("data").exists());
    assert_refused(
        &run_maru(directory.path(), &["serve", "--config", "none.yaml"]),
        &["none.yaml"],
    );
}

#[test]
fn damaged_data_is_refused_and_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::write(&data, "a file").unwrap();
    assert_refused(
        &run_maru(directory.path(), &["serve", "--listen", "127.0.0.1:0"]),
        &["cannot write to the data directory", "--data-dir"],
    );
    assert_eq!(fs::read_to_string(&data).unwrap(), "a file");

    fs::remove_file(&data).unwrap();
    fs::create_dir(&data).unwrap();
    let private = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    private(&data, 0o700);
    let garbage = "not a database ".repeat(100);
    fs::write(data.join("maru.db"), &garbage).unwrap();
    private(&data.join("maru.db"), 0o600);
    assert_refused(
        &run_maru(directory.path(), &["serve", "--listen", "127.0.0.1:0"]),
        &["cannot use the store", "maru.db", "nothing was changed"],
    );
    assert_eq!(fs::read_to_string(data.join("maru.db")).unwrap(), garbage);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_hub_on_the_same_data_is_refused_and_the_first_is_still_found() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let directory = hub.directory.path().to_owned();
    let run = move |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_maru"));
        command.args(arguments).arg("--data-dir").arg(&directory);
        command.output().unwrap()
    };
    let (second, listed) = tokio::task::spawn_blocking(move || {
        let second = run(&["--listen", "127.0.0.1:0"]);
        (second, run(&["tools"]))
    })
    .await
    .unwrap();
    assert_refused(
        &second,
        &["a hub at", &hub.address, "already runs", "--data-dir"],
    );
    assert!(utf8(&listed.stdout).contains("test_simple_text"));
}

#[test]
fn token_is_sent_only_to_the_users_own_hub() {
    let directory = tempfile::tempdir().unwrap();
    assert!(run_maru(directory.path(), &["tools"]).status.success());
    // What a dead hub wrote, and someone else on its port.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    fs::write(directory.path().join("data/hub"), &address).unwrap();
    fs::write(directory.path().join("data/admin-token"), "secret").unwrap();
    assert!(run_maru(directory.path(), &["tools"]).status.success());
    // Named by hand, it is asked, but shown no token.
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let mut seen = [0; 4096];
        let count = std::io::Read::read(&mut stream, &mut seen).unwrap();
        String::from_utf8_lossy(&seen[..count]).to_lowercase()
    });
    let refused = run_maru(directory.path(), &["tools", "--listen", &address]);
    assert_eq!(refused.status.code(), Some(2));
    let seen = asked.join().unwrap();
    assert!(
        seen.starts_with("post /mcp") && !seen.contains("authorization"),
        "{seen}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn port_in_use_error_names_the_port_and_the_remedy() {
    let hub = TestHub::start().await;
    let directory = tempfile::tempdir().unwrap();
    let address = hub.address.clone();
    let output = tokio::task::spawn_blocking(move || {
        run_maru(directory.path(), &["serve", "--listen", &address])
    })
    .await
    .unwrap();
    let complaint = utf8(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    let last = complaint.lines().last().unwrap();
    assert!(
        last.contains(&hub.address) && last.contains("--listen 127.0.0.1:PORT"),
        "{complaint}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_reaches_a_hub_with_tls() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("안녕하세요!", "stop")).await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.agent.model = Some("small".to_owned());
        config.tls.certificate = Some(fixtures.join("issued.pem"));
        config.tls.key = Some(fixtures.join("issued_key.pem"));
    })
    .await;
    let settings = tempfile::tempdir().unwrap();
    let own = hub.directory.path().to_owned();
    let other = settings.path().join("other");
    // Asks with settings that name this certificate.
    let run = async |certificate: &str, data: &Path, arguments: &[&str]| {
        let file = settings.path().join(format!("{certificate}.yaml"));
        let tls =
            json!({"certificate": fixtures.join(certificate), "key": fixtures.join("key.pem")});
        fs::write(&file, json!({"tls": tls}).to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_maru"));
        command
            .args(arguments)
            .arg("--config")
            .arg(file)
            .arg("--data-dir")
            .arg(data)
            .env_remove("MARU_CONFIG")
            .stdin(Stdio::null());
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    };
    let question = ["chat", "누구세요?"];
    let assert_answered = |output: &Output| {
        let complaint = utf8(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        assert_eq!(utf8(&output.stdout), "안녕하세요!\n");
    };
    assert_answered(&run("renewed.pem", &own, &question).await);
    // Without its socket it is reached where it listens, by its own certificate or
    // that of who issued it, and by no other.
    fs::remove_file(own.join("http.sock")).unwrap();
    assert_answered(&run("issued.pem", &own, &question).await);
    assert_answered(&run("ca.pem", &own, &question).await);
    let named = [&question[..], &["--listen", &hub.address]].concat();
    assert_answered(&run("issued.pem", &other, &named).await);
    let listed = run("ca.pem", &own, &["tools"]).await;
    assert!(utf8(&listed.stdout).contains("get_employee_info"));
    let refused = run("renewed.pem", &own, &question).await;
    assert_refused(&refused, &["cannot reach the hub", "certificate"]);
}

#[test]
fn admin_token_file_is_private_and_stable() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut shown = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        while !shown.contains("Stop with Ctrl-C.") {
            assert_ne!(
                std::io::BufRead::read_line(&mut out, &mut shown).unwrap(),
                0
            );
        }
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        assert!(child.wait().unwrap().success());
        assert_eq!(maru::app::running_hub(directory.path()), None);
        shown
    };
    let shown = run();
    let path = directory.path().join("admin-token");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let token = fs::read_to_string(&path).unwrap();
    assert!(!shown.contains(token.trim()));
    run();
    assert_eq!(fs::read_to_string(&path).unwrap(), token);
}
