//! How maru authenticates at a remote server: the member `auth` of its configuration.

use maru_config::SecretString;
use maru_oauth::{ScopeSet, SigningKey};
use serde_json::{Map, Value, json};

use super::server::{InvalidField, MASK, invalid_field};

/// How maru authenticates at a remote server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAuth {
    /// A person signs in (OAuth 2.1) if the server asks for that.
    SignIn(SignInSettings),
    /// maru itself is the client (`client_credentials`).
    ClientCredentials(ClientCredentials),
    /// A token that does not change.
    Bearer(SecretString),
    /// maru never signs in.
    Off,
}

/// The settings of a sign-in; the default finds out everything from the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignInSettings {
    /// Whether each caller signs in with an account of its own.
    pub per_user: bool,
    /// maru's client id at the authorization server, if it was registered there by hand.
    pub client_id: Option<String>,
    /// The secret of that client.
    pub client_secret: Option<SecretString>,
    /// The scopes to request instead of those that the server names.
    pub scopes: ScopeSet,
}

/// A client that gets tokens for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCredentials {
    /// The client id.
    pub client_id: String,
    /// The secret, unless the client has a private key.
    pub client_secret: Option<SecretString>,
    /// A private key in PKCS #8 (PEM).
    pub private_key: Option<SecretString>,
    /// The scopes to request.
    pub scopes: ScopeSet,
}

const MEMBERS: [&str; 7] = [
    "type",
    "per_user",
    "client_id",
    "client_secret",
    "private_key",
    "token",
    "scopes",
];

impl Default for RemoteAuth {
    fn default() -> Self {
        Self::SignIn(SignInSettings::default())
    }
}

impl RemoteAuth {
    /// Parses the member `auth`. Masked secrets are taken from `before`.
    pub(super) fn parse(value: &Value, before: Option<&Self>) -> Result<Self, InvalidField> {
        let members = match value {
            Value::Null => return Ok(Self::default()),
            Value::Object(members) => lower_case_names(members)?,
            _ => return Err(invalid_field("config.auth", "must be an object")),
        };
        let reader = MemberReader {
            members: &members,
            before,
        };
        let auth = match reader.text("type")?.as_deref() {
            None | Some("oauth") => Self::SignIn(SignInSettings {
                per_user: reader.flag("per_user")?,
                client_id: reader.text("client_id")?,
                client_secret: reader.secret("client_secret")?,
                scopes: reader.scopes()?,
            }),
            Some("client_credentials") => Self::ClientCredentials(reader.client_credentials()?),
            Some("bearer") => {
                let token = reader.secret("token")?;
                let token =
                    token.ok_or_else(|| invalid_field("config.auth.token", "is missing"))?;
                Self::Bearer(token)
            }
            Some("none") => Self::Off,
            Some(_) => {
                let reason = "is unknown; use oauth, client_credentials, bearer or none";
                return Err(invalid_field("config.auth.type", reason));
            }
        };
        auth.refuse_unused(&members)?;
        Ok(auth)
    }

    /// Returns the member `auth`; `None` if it says nothing.
    pub(super) fn to_json(&self, text: &impl Fn(&SecretString) -> String) -> Option<Value> {
        let mut json = json!({"type": self.kind()});
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                json[name] = value;
            }
        };
        match self {
            Self::SignIn(it) if *it == SignInSettings::default() => return None,
            Self::SignIn(it) => {
                put("per_user", it.per_user.then(|| true.into()));
                put("client_id", it.client_id.as_deref().map(Value::from));
                put(
                    "client_secret",
                    it.client_secret.as_ref().map(|it| text(it).into()),
                );
                put("scopes", scopes_json(&it.scopes));
            }
            Self::ClientCredentials(it) => {
                put("client_id", Some(it.client_id.as_str().into()));
                put(
                    "client_secret",
                    it.client_secret.as_ref().map(|it| text(it).into()),
                );
                put(
                    "private_key",
                    it.private_key.as_ref().map(|it| text(it).into()),
                );
                put("scopes", scopes_json(&it.scopes));
            }
            Self::Bearer(token) => put("token", Some(text(token).into())),
            Self::Off => (),
        }
        Some(json)
    }

    /// Whether each caller has a credential of its own.
    pub fn is_per_user(&self) -> bool {
        matches!(self, Self::SignIn(it) if it.per_user)
    }

    /// Returns the secrets in it.
    pub(super) fn secrets(&self) -> Vec<&SecretString> {
        let named = match self {
            Self::SignIn(it) => vec![&it.client_secret],
            Self::ClientCredentials(it) => vec![&it.client_secret, &it.private_key],
            Self::Bearer(token) => return vec![token],
            Self::Off => Vec::new(),
        };
        named.into_iter().flatten().collect()
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::SignIn(_) => "oauth",
            Self::ClientCredentials(_) => "client_credentials",
            Self::Bearer(_) => "bearer",
            Self::Off => "none",
        }
    }

    /// Refuses members that this kind would ignore.
    fn refuse_unused(&self, members: &Map<String, Value>) -> Result<(), InvalidField> {
        let used: &[&str] = match self {
            Self::SignIn(_) => &["type", "per_user", "client_id", "client_secret", "scopes"],
            Self::ClientCredentials(_) => &[
                "type",
                "client_id",
                "client_secret",
                "private_key",
                "scopes",
            ],
            Self::Bearer(_) => &["type", "token"],
            Self::Off => &["type"],
        };
        let unused = members.iter().find(|(name, value)| {
            !value.is_null() && **value != Value::Bool(false) && !used.contains(&name.as_str())
        });
        match unused {
            None => Ok(()),
            Some((name, _)) => {
                let reason = format!(
                    "is not used by type {}; it has {}",
                    self.kind(),
                    used.join(", ")
                );
                Err(invalid_field(format!("config.auth.{name}"), reason))
            }
        }
    }
}

/// Some clients write the names in capitals, such as `CLIENT_ID`.
fn lower_case_names(members: &Map<String, Value>) -> Result<Map<String, Value>, InvalidField> {
    let mut lower = Map::new();
    for (name, value) in members {
        let name = name.to_ascii_lowercase();
        if !MEMBERS.contains(&name.as_str()) {
            let reason = format!("is unknown; known are {}", MEMBERS.join(", "));
            return Err(invalid_field(format!("config.auth.{name}"), reason));
        }
        lower.insert(name, value.clone());
    }
    Ok(lower)
}

fn scopes_json(scopes: &ScopeSet) -> Option<Value> {
    let list: Vec<Value> = scopes.to_string().split(' ').map(Value::from).collect();
    (!scopes.is_empty()).then_some(list.into())
}

struct MemberReader<'a> {
    members: &'a Map<String, Value>,
    before: Option<&'a RemoteAuth>,
}

impl MemberReader<'_> {
    fn client_credentials(&self) -> Result<ClientCredentials, InvalidField> {
        let client_id = self.text("client_id")?;
        let (client_secret, private_key) =
            (self.secret("client_secret")?, self.secret("private_key")?);
        if client_secret.is_some() == private_key.is_some() {
            let reason = "set either client_secret or private_key";
            return Err(invalid_field("config.auth.client_secret", reason));
        }
        if let Some(key) = &private_key {
            let parsed = SigningKey::from_pem(key.reveal());
            parsed.map_err(|error| invalid_field("config.auth.private_key", error.to_string()))?;
        }
        Ok(ClientCredentials {
            client_id: client_id
                .ok_or_else(|| invalid_field("config.auth.client_id", "is missing"))?,
            client_secret,
            private_key,
            scopes: self.scopes()?,
        })
    }

    fn text(&self, name: &str) -> Result<Option<String>, InvalidField> {
        match &self.members.get(name).unwrap_or(&Value::Null) {
            Value::Null => Ok(None),
            Value::String(text) if !text.trim().is_empty() => Ok(Some(text.clone())),
            _ => Err(invalid_field(format!("config.auth.{name}"), "must be text")),
        }
    }

    fn secret(&self, name: &str) -> Result<Option<SecretString>, InvalidField> {
        let text = self.text(name)?;
        if text.as_deref() != Some(MASK) {
            return Ok(text.map(SecretString::from));
        }
        let kept = match (self.before, name) {
            (Some(RemoteAuth::SignIn(it)), "client_secret") => it.client_secret.clone(),
            (Some(RemoteAuth::ClientCredentials(it)), "client_secret") => it.client_secret.clone(),
            (Some(RemoteAuth::ClientCredentials(it)), "private_key") => it.private_key.clone(),
            (Some(RemoteAuth::Bearer(token)), "token") => Some(token.clone()),
            _ => None,
        };
        let reason = format!("holds {MASK} in place of a secret; write the secret itself");
        kept.map(Some)
            .ok_or_else(|| invalid_field(format!("config.auth.{name}"), reason))
    }

    fn flag(&self, name: &str) -> Result<bool, InvalidField> {
        match self.members.get(name).unwrap_or(&Value::Null) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Err(invalid_field(
                format!("config.auth.{name}"),
                "must be true or false",
            )),
        }
    }

    fn scopes(&self) -> Result<ScopeSet, InvalidField> {
        let invalid = || invalid_field("config.auth.scopes", "must be a list of texts");
        match self.members.get("scopes").unwrap_or(&Value::Null) {
            Value::Null => Ok(ScopeSet::default()),
            Value::String(text) => Ok(ScopeSet::parse(text)),
            Value::Array(items) => {
                let texts = items.iter().map(|it| it.as_str().ok_or_else(invalid));
                Ok(texts.collect::<Result<Vec<_>, _>>()?.into_iter().collect())
            }
            _ => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_masked_and_a_mask_keeps_the_secret() {
        for value in [
            json!({"type": "oauth", "per_user": true}),
            json!({"type": "oauth", "client_id": "a", "client_secret": "s3cret", "scopes": ["x", "y"]}),
            json!({"type": "client_credentials", "client_id": "a", "client_secret": "s3cret"}),
            json!({"type": "bearer", "token": "s3cret"}),
            json!({"type": "none"}),
        ] {
            let auth = RemoteAuth::parse(&value, None).unwrap();
            let plain = auth.to_json(&|it| it.reveal().to_owned());
            assert_eq!(plain.as_ref(), Some(&value));
            let masked = auth.to_json(&|_| MASK.to_owned()).unwrap();
            assert!(!format!("{masked}{auth:?}").contains("s3cret"));
            assert_eq!(RemoteAuth::parse(&masked, Some(&auth)), Ok(auth));
        }
        assert_eq!(RemoteAuth::default().to_json(&|_| String::new()), None);
    }

    #[test]
    fn wrong_settings_name_their_member() {
        let check = |value: Value, field: &str| {
            let error = RemoteAuth::parse(&value, None).unwrap_err();
            assert_eq!(error.field, field, "{value}");
        };
        check(json!("x"), "config.auth");
        check(json!({"type": "magic"}), "config.auth.type");
        check(json!({"typ": "oauth"}), "config.auth.typ");
        check(json!({"token": "x"}), "config.auth.token");
        check(json!({"type": "bearer"}), "config.auth.token");
        check(
            json!({"type": "bearer", "token": MASK}),
            "config.auth.token",
        );
        check(json!({"per_user": "yes"}), "config.auth.per_user");
        check(json!({"scopes": [1]}), "config.auth.scopes");
        check(
            json!({"type": "client_credentials", "client_id": "a"}),
            "config.auth.client_secret",
        );
        let bad_key = json!({"type": "client_credentials", "client_id": "a", "private_key": "x"});
        check(bad_key, "config.auth.private_key");
    }

    #[test]
    fn names_in_capitals_are_those_of_other_clients() {
        let value = json!({"CLIENT_ID": "a", "CLIENT_SECRET": "b", "scopes": ["x"]});
        let RemoteAuth::SignIn(settings) = RemoteAuth::parse(&value, None).unwrap() else {
            panic!("a sign-in");
        };
        assert_eq!(settings.client_id.as_deref(), Some("a"));
    }
}
