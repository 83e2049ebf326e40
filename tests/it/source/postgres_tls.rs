//! TLS to a real PostgreSQL that takes nothing else, and why connections fail.

use std::{fs, path::Path, process::Command, time::Duration};

use maru_postgres::PostgresAddress;
use maru_runtime::tasks::Tasks;
use maru_sources::{DataSource, SourceSettings};
use maru_store::Store;

use serde_json::json;

use super::databases::{query_json, query_rows};
use crate::{
    http_client::{TestRequest, wait_for, wait_until},
    postgres_cluster::{PASSWORD, PostgresCluster},
    signals::ServeProcess,
    test_hub::{TestHub, call_message},
};

const TLS_SETTINGS: &str = "
    ssl = on
    ssl_cert_file = '../server.crt'
    ssl_key_file = '../server.key'
    ssl_ca_file = '../ca.crt'
";
/// Nothing without TLS, and one role without a password.
const TLS_ACCESS: &str = "
    hostssl all badge all cert
    hostssl all all all scram-sha-256
";

/// A server that takes TLS only, and the certificates of its tests.
async fn start_tls_cluster() -> PostgresCluster {
    let cluster = PostgresCluster::start().await;
    let place = cluster.directory.path().join("ca");
    fs::create_dir(&place).unwrap();
    for authority in ["ca", "stranger"] {
        openssl(
            &place,
            &format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {authority}.key -out {authority}.crt -subj /CN={authority} -days 30"
            ),
        );
    }
    let certificates = [
        ("server", "ca", "DNS:localhost,IP:127.0.0.1", 30),
        ("expired", "ca", "DNS:localhost,IP:127.0.0.1", -1),
        ("elsewhere", "ca", "DNS:db.example.com", 30),
        ("badge", "ca", "DNS:badge", 30),
        ("forged", "stranger", "DNS:badge", 30),
    ];
    for (name, authority, names, days) in certificates {
        fs::write(place.join("names"), format!("subjectAltName={names}\n")).unwrap();
        openssl(
            &place,
            &format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr -subj /CN={}",
                if name == "forged" { "badge" } else { name }
            ),
        );
        openssl(
            &place,
            &format!(
                "x509 -req -in {name}.csr -CA {authority}.crt -CAkey {authority}.key -CAcreateserial -out {name}.crt -days {days} -extfile names"
            ),
        );
    }
    cluster.run_sql("postgres", "CREATE ROLE badge LOGIN");
    cluster.write_private("ca.crt", &fs::read(place.join("ca.crt")).unwrap());
    install_certificate(&cluster, "server");
    cluster.reconfigure(TLS_SETTINGS, TLS_ACCESS).await;
    cluster
}

fn openssl(place: &Path, arguments: &str) {
    let done = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(place)
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "openssl {arguments}: {message}");
}

/// Gives the server a certificate; it shows it once it is reloaded.
fn install_certificate(cluster: &PostgresCluster, name: &str) {
    let place = cluster.directory.path().join("ca");
    for kind in ["crt", "key"] {
        let content = fs::read(place.join(format!("{name}.{kind}"))).unwrap();
        cluster.write_private(&format!("server.{kind}"), &content);
    }
}

async fn show_certificate(cluster: &PostgresCluster, name: &str) {
    install_certificate(cluster, name);
    let loaded_at = async || cluster.run_sql("postgres", "SELECT pg_conf_load_time()");
    let before = loaded_at().await;
    cluster.run_sql("postgres", "SELECT pg_reload_conf()");
    wait_for(loaded_at, |it| *it != before).await;
}

/// What comes of connecting: the rows, or the reason for none.
async fn try_url(url: &str) -> String {
    let tasks = Tasks::default();
    let address = match PostgresAddress::parse(url) {
        Ok(address) => address,
        Err(error) => return error.to_string(),
    };
    let source = DataSource::postgres("tls", &address, SourceSettings::default(), &tasks);
    let answer = match source {
        Ok(source) => query_rows(&source, "SELECT 1 AS n").await,
        Err(error) => Err(error),
    };
    tasks.shutdown().await;
    match answer {
        Ok(rows) => rows.json,
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn tls_verifies_what_sslmode_says_and_failures_are_told_apart() {
    let cluster = start_tls_cluster().await;
    let ca = cluster.directory.path().join("ca").display().to_string();
    let port = cluster.port;
    let login = format!("postgres://maru:{PASSWORD}@");
    let at = |host: &str, options: &str| format!("{login}{host}:{port}/postgres?{options}");
    let (ok, issuer) = (r#"[{"n":1}]"#, "no authority that is trusted");
    let trusted = format!("sslrootcert={ca}/ca.crt");
    let stranger = format!("sslrootcert={ca}/stranger.crt");
    let cases = [
        (at("127.0.0.1", ""), ok),
        (at("127.0.0.1", "sslmode=prefer"), ok),
        (
            at("127.0.0.1", "sslmode=disable"),
            "encrypted connections only",
        ),
        (at("127.0.0.1", "sslmode=require"), ok),
        (
            at("127.0.0.1", "sslmode=require&channel_binding=require"),
            ok,
        ),
        (
            at("127.0.0.1", &format!("sslmode=require&{stranger}")),
            issuer,
        ),
        (at("127.0.0.1", &format!("sslmode=verify-ca&{trusted}")), ok),
        (
            at("127.0.0.1", &format!("sslmode=verify-full&{trusted}")),
            ok,
        ),
        (
            at("localhost", &format!("sslmode=verify-full&{trusted}")),
            ok,
        ),
        (
            at("localhost", &format!("sslmode=verify-full&{stranger}")),
            issuer,
        ),
        (at("localhost", "sslmode=verify-full"), issuer),
        // The server's own certificate is trusted if it is given itself.
        (
            at(
                "localhost",
                &format!("sslmode=verify-full&sslrootcert={ca}/server.crt"),
            ),
            ok,
        ),
        (
            at("localhost", "sslmode=verify-full&sslrootcert=/nowhere.crt"),
            "cannot use sslrootcert /nowhere.crt",
        ),
        (
            at(
                "localhost",
                &format!("sslmode=verify-full&sslrootcert={ca}/server.key"),
            ),
            "no PEM certificate",
        ),
        (
            at("localhost", "sslmode=require").replace("topsecret", "wrong"),
            "the password of the role is wrong",
        ),
        (
            at("localhost", "sslmode=require").replace("/postgres?", "/missing?"),
            "the database does not exist",
        ),
        (
            format!("{login}no-such-host.invalid/m"),
            "the name of the host is not found",
        ),
        (
            format!("{login}127.0.0.1:1/m"),
            "nothing listens on the port",
        ),
    ];
    for (url, expected) in &cases {
        let answer = try_url(url).await;
        assert!(answer.contains(expected), "{url}: {answer}");
        assert!(!answer.contains(PASSWORD), "{answer}");
    }

    let badge = format!("postgres://badge@localhost:{port}/postgres?sslmode=verify-full&{trusted}");
    let with = |name: &str| format!("{badge}&sslcert={ca}/{name}.crt&sslkey={ca}/{name}.key");
    assert_eq!(try_url(&with("badge")).await, ok);
    let answer = try_url(&badge).await;
    assert!(answer.contains("asks for a client certificate"), "{answer}");
    let answer = try_url(&with("forged")).await;
    assert!(
        answer.contains("refuses the client certificate"),
        "{answer}"
    );

    show_certificate(&cluster, "expired").await;
    let answer = try_url(&at("localhost", &format!("sslmode=verify-ca&{trusted}"))).await;
    assert!(answer.contains("it has expired"), "{answer}");
    assert_eq!(try_url(&at("localhost", "sslmode=require")).await, ok);
    show_certificate(&cluster, "elsewhere").await;
    let answer = try_url(&at("localhost", &format!("sslmode=verify-full&{trusted}"))).await;
    assert!(answer.contains("not for this host name"), "{answer}");
    assert_eq!(
        try_url(&at("localhost", &format!("sslmode=verify-ca&{trusted}"))).await,
        ok
    );
    check_cancel_over_tls(&cluster, &at("localhost", "sslmode=require")).await;
}

/// A query that nobody waits for is cancelled over TLS, too: there is no other way in.
async fn check_cancel_over_tls(cluster: &PostgresCluster, url: &str) {
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(url).unwrap();
    let source = DataSource::postgres("tls", &address, SourceSettings::default(), &tasks).unwrap();
    query_json(&source, "SELECT 1 AS n").await;
    let endless =
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r";
    let left = tokio::time::timeout(Duration::from_millis(300), query_rows(&source, endless)).await;
    assert!(left.is_err());
    let running = "SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE '%RECURSIVE r(n)%' AND pid <> pg_backend_pid()";
    wait_until(async || cluster.run_sql("postgres", running) == "0").await;
    tasks.shutdown().await;
}

/// The same words in the log, the answer, `/readyz` and the list that the console shows.
#[tokio::test(flavor = "multi_thread")]
async fn each_cause_is_told_in_log_answer_readiness_and_list() {
    let cluster = start_tls_cluster().await;
    let ca = cluster.directory.path().join("ca").display().to_string();
    let at = format!("maru:{PASSWORD}@localhost:{}", cluster.port);
    let stranger = format!("verify-full&sslrootcert={ca}/stranger.crt");
    let badge = at.replace(&format!("maru:{PASSWORD}"), "badge");
    let causes = [
        (
            "wrong_password",
            at.replace(PASSWORD, "wrong"),
            "postgres",
            "require",
            "the password of the role is wrong",
        ),
        (
            "unknown_database",
            at.clone(),
            "missing",
            "require",
            "the database does not exist",
        ),
        (
            "tls_required",
            at.clone(),
            "postgres",
            "disable",
            "the server takes encrypted connections only",
        ),
        (
            "certificate_refused",
            at.clone(),
            "postgres",
            &stranger,
            "no authority that is trusted issued it",
        ),
        (
            "client_certificate_required",
            badge,
            "postgres",
            "require",
            "the server asks for a client certificate",
        ),
        (
            "name_not_found",
            "no-such-host.invalid".to_owned(),
            "m",
            "disable",
            "the name of the host is not found",
        ),
        (
            "port_closed",
            "127.0.0.1:1".to_owned(),
            "m",
            "disable",
            "nothing listens on the port",
        ),
    ];
    let mut yaml = "sample_data: false\nsources:\n".to_owned();
    for (code, at, database, sslmode, _) in &causes {
        let url = format!("postgres://{at}/{database}?sslmode={sslmode}");
        yaml.push_str(&format!("- {{name: {code}, url: '{url}'}}\n"));
    }
    let hub = ServeProcess::start(&yaml).await;
    let get = async |path: &str| {
        let reply = TestRequest::new(&hub.address, "GET", path).send().await;
        reply.json().await
    };
    for (code, .., reason) in &causes {
        let arguments = json!({"generated_sql": "SELECT 1", "source": code});
        let call = call_message(1, "query_bga_database", arguments);
        let answer = TestRequest::post(&hub.address, "/sse", &call).send().await;
        let answer = answer.text().await;
        assert!(answer.contains(reason), "{code}: {answer}");
        let ready = get("/readyz").await;
        let told = ready["unreachable_sources"][code].as_str();
        assert!(
            told.is_some_and(|it| it.contains(reason)),
            "{code}: {ready}"
        );
        let list = get("/api/sources").await;
        let listed = list
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == *code);
        let listed = listed.unwrap();
        assert_eq!(listed["faultCode"], *code);
        assert!(
            listed["fault"].as_str().unwrap().contains(reason),
            "{listed}"
        );
        let log = hub.wait_for("stderr", &format!("source {code}, ")).await;
        let line = log
            .lines()
            .find(|it| it.contains(&format!("source {code}, ")));
        assert!(
            line.is_some_and(|it| it.contains(reason)),
            "{code}: {line:?}"
        );
        assert!(!log.contains(PASSWORD));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn store_speaks_tls_and_readiness_says_why_it_cannot() {
    let cluster = start_tls_cluster().await;
    let database = cluster.create_database();
    let ca = cluster.directory.path().join("ca/ca.crt");
    let url = cluster.url(&database).replace("127.0.0.1", "localhost");
    let url = format!("{url}?sslmode=verify-full&sslrootcert={}", ca.display());
    drop(Store::connect(&url).await.unwrap());
    let stranger = ca.with_file_name("stranger.crt").display().to_string();
    let faults = [
        (
            url.replace(PASSWORD, "wrong"),
            "the password of the role is wrong",
        ),
        (
            url.replace("verify-full", "disable")
                .replace("&sslrootcert=", "&application_name="),
            "encrypted connections only",
        ),
        (
            url.replace(&ca.display().to_string(), &stranger),
            "no authority that is trusted",
        ),
        (
            url.replace(&format!("/{database}"), "/missing"),
            "the database does not exist",
        ),
        (
            url.replace("localhost", "no-such-host.invalid"),
            "the name of the host is not found",
        ),
        (
            url.replace(&format!(":{}", cluster.port), ":1"),
            "nothing listens on the port",
        ),
    ];
    for (url, expected) in faults {
        let error = anyhow::Error::from(Store::connect(&url).await.unwrap_err());
        let message = format!("{error:#}");
        assert!(message.contains(expected), "{expected}: {message}");
        assert!(!message.contains(PASSWORD), "{message}");
    }
    let wrong = cluster.url(&database).replace(PASSWORD, "wrong");
    let hub = TestHub::with_config(|config| {
        config.store_url = Some(url.into());
        config.limits.store_grace_ms = 0;
        config.sources = vec![maru::config::SourceDefinition::new("shut", wrong.into())];
    })
    .await;
    let get = async |path: &str| {
        let answer = hub
            .send_as_admin("GET", path, serde_json::Value::Null)
            .await;
        (answer.status.as_u16(), answer.json().await)
    };
    let ready = async || get("/readyz").await;
    let (status, state) = ready().await;
    assert_eq!(
        (status, &state["status"]),
        (200, &"ready".into()),
        "{state}"
    );
    let reason = async || ready().await.1["unreachable_sources"]["shut"].clone();
    wait_for(reason, |it| it == "the password of the role is wrong").await;
    let (_, sources) = get("/api/sources").await;
    assert_eq!(sources[0]["faultCode"], "wrong_password", "{sources}");
    cluster.stop();
    let (status, state) = ready().await;
    assert_eq!(status, 503, "{state}");
    let reason = state["reason"].as_str().unwrap();
    assert!(
        reason == "nothing listens on the port" || reason == "the connection was lost",
        "{state}"
    );
    hub.running.stop().await;
}
