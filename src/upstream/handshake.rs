//! Finding out what a server speaks, and agreeing on it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time;

use super::{
    Error,
    channel::UNREADABLE,
    link::{Ask, Call, Link, Received},
};
use crate::mcp::{LogLevel, RpcError, Version, code, key, notification};

/// How long a server may think about a question that older ones do not know.
const PROBE: Duration = Duration::from_secs(5);

/// What was agreed on.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) version: Version,
    /// What the server offers.
    pub(super) capabilities: Value,
    /// What it says about itself.
    pub(super) info: Value,
}

/// An answer, or the error that the server sent instead.
pub(super) type Answered = Result<Value, RpcError>;

/// Whether the server speaks 2026-07-28. Older ones answer with an error, or not
/// at all; one that is held to an older version is not asked.
pub(super) async fn probe(
    link: &Link,
    required: Option<Version>,
) -> Result<Option<Session>, Error> {
    if required.is_some_and(|it| !it.is_modern()) {
        return Ok(None);
    }
    let params = json!({"_meta": own_meta()});
    let asked = time::timeout(PROBE, discover(link, &params)).await;
    let answer = match asked {
        Err(_) | Ok(Err(Error::Status(_) | Error::Garbage(_)) | Ok(Err(_))) => return Ok(None),
        Ok(Err(why)) => return Err(why),
        Ok(Ok(Ok(answer))) => answer,
    };
    let modern = Version::V2026_07_28;
    if !has_modern(&answer["supportedVersions"]) {
        return Ok(None);
    }
    if let Link::Http(link) = link {
        link.agree(modern, None);
    }
    Ok(Some(Session {
        version: modern,
        capabilities: answer["capabilities"].clone(),
        info: answer["_meta"][key::SERVER_INFO].clone(),
    }))
}

/// Asks what the server speaks; once more if it refuses the version and names
/// it as one of its own.
async fn discover(link: &Link, params: &Value) -> Result<Answered, Error> {
    match ask(link, "server/discover", params).await? {
        Err(why) if is_taken_back(&why) => ask(link, "server/discover", params).await,
        done => Ok(done),
    }
}

fn is_taken_back(why: &RpcError) -> bool {
    let supported = why.data.as_ref().map(|it| &it["supported"]);
    why.code == code::UNSUPPORTED_VERSION && supported.is_some_and(has_modern)
}

fn has_modern(versions: &Value) -> bool {
    let mut all = versions.as_array().into_iter().flatten();
    all.any(|it| it == Version::V2026_07_28.as_str())
}

/// The handshake of the versions until 2025-11-25. A server that is held to a version
/// has to agree on that one.
pub(super) async fn initialize(link: &Link, required: Option<Version>) -> Result<Session, Error> {
    let asked = required.unwrap_or(Version::LATEST_LEGACY);
    if asked.is_modern() {
        return Err(unmet(asked, "it does not speak it"));
    }
    let params = json!({
        "protocolVersion": asked.as_str(),
        "capabilities": {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
        "clientInfo": client_info(),
    });
    let mut call = start(link, "initialize", &params).await?;
    let answer = finish(&mut call).await?.map_err(|why| {
        Error::Refused(format!(
            "the server refused the handshake with error {}",
            why.code
        ))
    })?;
    let named = answer["protocolVersion"].as_str().unwrap_or_default();
    let shown: String = named.chars().filter(|c| !c.is_control()).take(20).collect();
    if required.is_some_and(|it| it.as_str() != named) {
        return Err(unmet(asked, &format!("it answered with {shown:?}")));
    }
    let version = Version::parse(named).filter(|it| !it.is_modern());
    let version = version.ok_or_else(|| {
        Error::Refused(format!(
            "the server speaks protocol version {shown:?}, which maru does not"
        ))
    })?;
    if let Call::Http(call) = &call {
        call.link().agree(version, call.session().as_ref());
    }
    link.send(notification("notifications/initialized", &json!({})))
        .await?;
    Ok(Session {
        version,
        capabilities: answer["capabilities"].clone(),
        info: answer["serverInfo"].clone(),
    })
}

/// The server does not speak the version that it is held to.
fn unmet(required: Version, why: &str) -> Error {
    Error::Refused(format!(
        "the server is held to protocol version {required}, but {why}; change or remove its protocol-version"
    ))
}

/// Asks the server to log as much as `level`; with a handshake that is said once.
pub(super) async fn set_log_level(link: &Link, level: LogLevel) -> Result<(), Error> {
    // A server that cannot do it logs what it likes.
    ask(link, "logging/setLevel", &json!({"level": level}))
        .await
        .map(drop)
}

/// One question of our own.
pub(super) async fn ask(
    link: &Link,
    method: &'static str,
    params: &Value,
) -> Result<Answered, Error> {
    finish(&mut start(link, method, params).await?).await
}

async fn start(link: &Link, method: &'static str, params: &Value) -> Result<Call, Error> {
    let text = params.to_string();
    link.start(&Ask {
        method,
        name: None,
        mirrors: &[],
        params: &|_| text.clone(),
        client: None,
    })
    .await
}

async fn finish(call: &mut Call) -> Result<Answered, Error> {
    let unreadable = || Error::Garbage(UNREADABLE.to_owned());
    loop {
        if let Received::Answer(outcome) = call.next().await? {
            return Ok(match outcome {
                Ok(raw) => Ok(serde_json::from_str(&raw).map_err(|_| unreadable())?),
                Err(raw) => Err(read_error(&raw)),
            });
        }
    }
}

/// An error as the server sent it.
pub(super) fn read_error(raw: &str) -> RpcError {
    let mut error: Value = serde_json::from_str(raw).unwrap_or_default();
    let message = error["message"]
        .as_str()
        .unwrap_or("no reason given")
        .to_owned();
    let code = error["code"].as_i64().unwrap_or(code::INTERNAL);
    let read = RpcError::new(code, message);
    match error.get_mut("data").map(Value::take) {
        None | Some(Value::Null) => read,
        Some(data) => read.with(data),
    }
}

/// What maru says about itself.
pub(super) fn client_info() -> Value {
    json!({"name": "maru", "title": "maru 마루", "version": env!("CARGO_PKG_VERSION")})
}

/// What a request of our own says about itself since 2026-07-28.
pub(super) fn own_meta() -> Value {
    json!({
        key::VERSION: Version::V2026_07_28.as_str(),
        key::CLIENT_INFO: client_info(),
        key::CAPABILITIES: {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_version_is_asked_for_again_only_where_it_is_spoken() {
        let refused = |code, supported: &[&str]| {
            let why = RpcError::new(code, "no").with(json!({"supported": supported}));
            is_taken_back(&why)
        };
        let both = ["2025-11-25", "2026-07-28"];
        assert!(refused(code::UNSUPPORTED_VERSION, &both));
        assert!(!refused(code::UNSUPPORTED_VERSION, &["2025-11-25"]));
        assert!(!refused(code::INVALID_PARAMS, &both));
        assert!(!is_taken_back(&RpcError::new(
            code::UNSUPPORTED_VERSION,
            "no"
        )));
    }
}
