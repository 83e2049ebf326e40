//! Laying defaults, file, environment and flags over each other.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
};

use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    Config, MASK, file, reference,
    schema::{self, schema},
    security,
};

/// Variables by name, each with where it was found.
pub(super) type EnvironmentVariables = HashMap<String, (String, ValueOrigin)>;

/// What was given from outside.
#[derive(Debug, Default)]
pub struct LoadOptions {
    /// `--config`; without it `maru.yaml` in `directory` is used if it is there.
    pub file: Option<PathBuf>,
    /// Where `maru.yaml` and `.env` are looked for.
    pub directory: PathBuf,
    /// The environment of the process.
    pub environment: HashMap<String, String>,
    /// Flags: the key they set, as a JSON pointer, and its text.
    pub flags: Vec<(&'static str, String)>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Nobody set it.
    Default,
    /// This line of the file.
    File(PathBuf, usize),
    /// This variable of the environment.
    Environment(String),
    /// This variable of the `.env` file.
    DotEnv(String),
    /// This flag.
    Flag(String),
}

/// The configuration and where each of its values comes from.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// What to run with.
    pub config: Config,
    origins: BTreeMap<String, ValueOrigin>,
    unmasked: UnmaskedValues,
}

/// What was given, with its secrets, to tell whether one of them has changed.
#[derive(Clone, Default)]
struct UnmaskedValues(Value);

impl fmt::Debug for UnmaskedValues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// The configuration cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// The file is not there or cannot be read.
    #[error("cannot read the configuration {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: String,
    },
    /// Anyone on this machine could change what maru does.
    #[error("{} can be written by every user of this machine; run: chmod o-w {}", .0.display(), .0.display())]
    WritableByOthers(PathBuf),
    /// A value is wrong.
    #[error("{place}: {why}")]
    InvalidValue {
        /// File and line, variable or flag.
        place: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

/// The environment of this process.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the environment"
)]
pub fn process_environment() -> HashMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Reads and checks everything that was given.
pub fn load(given: &LoadOptions) -> Result<LoadedConfig, Error> {
    let environment = collect_variables(given)?;
    reject_unknown_variables(&environment)?;
    let path = find_config_file(given, &environment);
    let mut layers = ConfigLayers::default();
    if let Some(path) = &path {
        layers.add_file(path, &environment)?;
    }
    for (name, pointer) in schema::LEGACY_VARIABLES {
        let given = environment.get(name).filter(|(value, _)| !value.is_empty());
        if let Some((value, origin)) = given {
            layers.set(pointer, schema::coerce_text(pointer, value), origin.clone());
        }
    }
    for variable in [schema::prefixed_variable_name, schema::variable_name] {
        for pointer in schema::leaf_pointers() {
            if let Some((value, origin)) = environment.get(&variable(&pointer)) {
                layers.set(
                    &pointer,
                    schema::coerce_text(&pointer, value),
                    origin.clone(),
                );
            }
        }
    }
    for (pointer, text) in &given.flags {
        let flag = format!("--{}", schema::dotted_key(pointer).replace('_', "-"));
        layers.set(
            pointer,
            schema::coerce_text(pointer, text),
            ValueOrigin::Flag(flag),
        );
    }
    let mut loaded = layers.build(&environment)?;
    loaded.config.config_directory = path.and_then(|it| it.parent().map(Path::to_owned));
    Ok(loaded)
}

impl From<Config> for LoadedConfig {
    /// Settings that nobody gave.
    fn from(config: Config) -> Self {
        Self {
            config,
            origins: BTreeMap::new(),
            unmasked: UnmaskedValues::default(),
        }
    }
}

impl LoadedConfig {
    /// The keys whose values differ from those of `before`.
    pub fn changed_keys(&self, before: &Self) -> Vec<String> {
        let values = |it: &Self| serde_json::to_value(&it.config).expect("settings are JSON");
        let (old, new) = (values(before), values(self));
        let differs = |pointer: &String| {
            let (old, new) = (old.pointer(pointer), new.pointer(pointer));
            // Secrets look the same in both.
            let is_secret = new.is_some_and(|it| it.to_string().contains(MASK));
            let given = |it: &Self| it.unmasked.0.pointer(pointer).cloned();
            old != new || (is_secret && given(before) != given(self))
        };
        let changed = schema::leaf_pointers().into_iter().filter(differs);
        changed.map(|it| schema::dotted_key(&it)).collect()
    }

    /// Where the value at `pointer` comes from.
    pub fn origin_of(&self, pointer: &str) -> ValueOrigin {
        let mut here = pointer;
        loop {
            match (self.origins.get(here), here.rfind('/')) {
                (Some(origin), _) => return origin.clone(),
                (None, None) => return ValueOrigin::Default,
                (None, Some(end)) => here = &here[..end],
            }
        }
    }
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File(path, line) => write!(out, "{}:{line}", path.display()),
            Self::Environment(name) => write!(out, "{name}"),
            Self::DotEnv(name) => write!(out, "{name} in .env"),
            Self::Flag(name) => out.write_str(name),
        }
    }
}

fn collect_variables(given: &LoadOptions) -> Result<EnvironmentVariables, Error> {
    let mut all = EnvironmentVariables::new();
    let path = given.directory.join(".env");
    if path.is_file() {
        let wrong = |error: dotenvy::Error| Error::InvalidValue {
            place: path.display().to_string(),
            why: format!("not a list of NAME=value lines: {error}"),
        };
        for pair in dotenvy::from_path_iter(&path).map_err(wrong)? {
            let (name, value) = pair.map_err(wrong)?;
            all.insert(name.clone(), (value, ValueOrigin::DotEnv(name)));
        }
    }
    for (name, value) in &given.environment {
        let origin = ValueOrigin::Environment(name.clone());
        all.insert(name.clone(), (value.clone(), origin));
    }
    Ok(all)
}

/// A misspelt variable would leave its setting as it is, without a word.
fn reject_unknown_variables(environment: &EnvironmentVariables) -> Result<(), Error> {
    let mut known: Vec<String> = schema::leaf_pointers()
        .iter()
        .map(|it| schema::variable_name(it))
        .collect();
    known.push("MARU_CONFIG".to_owned());
    let unknown = environment
        .iter()
        .find(|(name, _)| name.starts_with("MARU_") && !known.contains(name));
    let Some((name, (_, origin))) = unknown else {
        return Ok(());
    };
    let known: Vec<&String> = known.iter().collect();
    Err(Error::InvalidValue {
        place: origin.to_string(),
        why: unknown_key_message(name, &known).replace("unknown key", "unknown setting"),
    })
}

fn find_config_file(given: &LoadOptions, environment: &EnvironmentVariables) -> Option<PathBuf> {
    let named = environment
        .get("MARU_CONFIG")
        .map(|(path, _)| PathBuf::from(path));
    let usual = given.directory.join("maru.yaml");
    given
        .file
        .clone()
        .or(named)
        .or_else(|| usual.exists().then_some(usual))
}

#[derive(Default)]
struct ConfigLayers {
    value: Value,
    origins: BTreeMap<String, ValueOrigin>,
}

impl ConfigLayers {
    fn add_file(&mut self, path: &Path, environment: &EnvironmentVariables) -> Result<(), Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::Unreadable {
            path: path.to_owned(),
            reason: match error.kind() {
                std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
                kind => kind.to_string(),
            },
        })?;
        if file::is_world_writable(path) {
            return Err(Error::WritableByOthers(path.to_owned()));
        }
        let tree = file::parse_config(&text, environment).map_err(|wrong| Error::InvalidValue {
            place: format!("{}:{}", path.display(), wrong.line),
            why: wrong.why,
        })?;
        self.value = tree.value;
        for (pointer, line) in tree.lines {
            self.origins
                .insert(pointer, ValueOrigin::File(path.to_owned(), line));
        }
        // The root's origin would stand for every value that is not in the file.
        self.validate().inspect(|()| {
            self.origins.retain(|pointer, _| {
                schema::schema_at(pointer).is_some_and(|it| it.get("properties").is_none())
            });
        })
    }

    fn set(&mut self, pointer: &str, value: Value, origin: ValueOrigin) {
        let mut here = &mut self.value;
        for step in pointer.split('/').skip(1) {
            if !here.is_object() {
                *here = Value::Object(Map::new());
            }
            let members = here.as_object_mut().expect("made an object above");
            here = members.entry(step).or_insert(Value::Null);
        }
        *here = value;
        self.origins.insert(pointer.to_owned(), origin);
    }

    fn build(mut self, environment: &EnvironmentVariables) -> Result<LoadedConfig, Error> {
        if self.value.is_null() {
            self.value = Value::Object(Map::new());
        }
        self.validate()?;
        let mut config: Config = deserialize_config(&self.value)
            .map_err(|(pointer, why)| self.invalid_value(&pointer, why))?;
        security::check_security(&config).map_err(|(key, why)| self.invalid_value(key, why))?;
        self.check_server_names(&config)?;
        config.data_dir = expand_home(&config.data_dir, environment).ok_or_else(|| {
            let why =
                "no home directory is known: set HOME, or name a directory with --data-dir DIR";
            self.invalid_value("/data_dir", why.to_owned())
        })?;
        Ok(LoadedConfig {
            config,
            origins: self.origins,
            unmasked: UnmaskedValues(self.value),
        })
    }

    /// Which of two servers of one name was meant cannot be known.
    fn check_server_names(&self, config: &Config) -> Result<(), Error> {
        let mut seen = HashMap::new();
        for (at, server) in config.mcp.servers.iter().enumerate() {
            let name = &server.name;
            if name.trim().is_empty() {
                continue;
            }
            if let Some(first) = seen.insert(name, at) {
                let why = format!(
                    "mcp.servers.{first} and mcp.servers.{at} are both named {name:?}; rename or remove one"
                );
                return Err(self.invalid_value(&format!("/mcp/servers/{at}/name"), why));
            }
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), Error> {
        let validator = jsonschema::validator_for(schema()).expect("our schema is valid");
        let Some(error) = validator.iter_errors(&self.value).next() else {
            return Ok(());
        };
        let pointer = error.instance_path().to_string();
        let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() else {
            return Err(self.invalid_value(&pointer, describe_invalid_value(&pointer, &error)));
        };
        let unknown = unexpected.first().cloned().unwrap_or_default();
        let known: Vec<&String> = schema::schema_at(&pointer)
            .and_then(|it| it.get("properties"))
            .and_then(Value::as_object)
            .map_or(Vec::new(), |members| members.keys().collect());
        let why = unknown_key_message(&unknown, &known);
        Err(self.invalid_value(&format!("{pointer}/{unknown}"), why))
    }

    fn invalid_value(&self, pointer: &str, why: String) -> Error {
        let key = schema::dotted_key(pointer);
        // An item of a list comes from where the list does.
        let ancestors =
            std::iter::successors(Some(pointer), |it| it.rfind('/').map(|end| &it[..end]));
        let origin = ancestors
            .filter(|it| !it.is_empty() || pointer.is_empty())
            .find_map(|it| self.origins.get(it));
        let place = match origin {
            Some(ValueOrigin::File(path, line)) => format!("{}:{line}: {key}", path.display()),
            Some(origin) => origin.to_string(),
            None => key,
        };
        let place = place.trim_end_matches([':', ' ']).to_owned();
        Error::InvalidValue { place, why }
    }
}

/// What is wrong with a value, and what would be right.
fn describe_invalid_value(pointer: &str, error: &ValidationError<'_>) -> String {
    let choice = matches!(
        error.kind(),
        ValidationErrorKind::Enum { .. }
            | ValidationErrorKind::OneOfNotValid { .. }
            | ValidationErrorKind::AnyOf { .. }
            | ValidationErrorKind::Pattern { .. }
    );
    let what = if choice {
        format!("{} is not allowed", error.instance())
    } else {
        error.to_string()
    };
    match reference::expected_value(pointer) {
        Some(expected) => format!("{what}; expected {expected}"),
        None => what,
    }
}

fn unknown_key_message(unknown: &str, known: &[&String]) -> String {
    let nearest = known.iter().max_by(|a, b| {
        strsim::jaro_winkler(a, unknown).total_cmp(&strsim::jaro_winkler(b, unknown))
    });
    match nearest {
        Some(nearest) => format!("unknown key \"{unknown}\"; did you mean \"{nearest}\"?"),
        None => format!("unknown key \"{unknown}\""),
    }
}

/// Reads the checked tree; on failure says where and why.
fn deserialize_config(value: &Value) -> Result<Config, (String, String)> {
    serde_json::from_value(value.clone()).map_err(|error| {
        // What the schema does not know, single keys tell: try each alone.
        let alone = |pointer: &String| {
            let mut layers = ConfigLayers::default();
            layers.set(
                pointer,
                value.pointer(pointer)?.clone(),
                ValueOrigin::Default,
            );
            serde_json::from_value::<Config>(layers.value).err()?;
            Some(pointer.clone())
        };
        let pointer = schema::leaf_pointers()
            .iter()
            .find_map(alone)
            .unwrap_or_default();
        let advice = match pointer.as_str() {
            "/listen" => "; write ADDR:PORT, such as 127.0.0.1:20006",
            _ => "",
        };
        (pointer, format!("{error}{advice}"))
    })
}

fn expand_home(path: &Path, environment: &EnvironmentVariables) -> Option<PathBuf> {
    let Ok(inner) = path.strip_prefix("~") else {
        return Some(path.to_owned());
    };
    let variable = |name: &str| environment.get(name).map(|(value, _)| PathBuf::from(value));
    match (
        inner.strip_prefix(".local/share"),
        variable("XDG_DATA_HOME"),
    ) {
        (Ok(inner), Some(base)) if base.is_absolute() => Some(base.join(inner)),
        _ => variable("HOME").map(|home| home.join(inner)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(yaml: &str, environment: &[(&str, &str)]) -> Result<LoadedConfig, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
        let given = LoadOptions {
            directory: directory.path().to_owned(),
            environment: environment
                .iter()
                .chain(&[("HOME", "/h")])
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..LoadOptions::default()
        };
        let shown = directory.path().display().to_string() + "/";
        load(&given).map_err(|error| error.to_string().replace(&shown, ""))
    }

    fn refused(yaml: &str, expected: &str) {
        let message = with(yaml, &[]).expect_err(yaml);
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn wrong_values_are_refused_with_their_place() {
        refused(
            "listen: 127.0.0.1:1\nlisen: x\n",
            "maru.yaml:2: lisen: unknown key \"lisen\"; did you mean \"listen\"?",
        );
        refused(
            "limits:\n  max_body: 5\n",
            "maru.yaml:2: limits.max_body: unknown key \"max_body\"; did you mean \"max_body_bytes\"?",
        );
        refused(
            "limits:\n  max_body_bytes: -1\n",
            "maru.yaml:2: limits.max_body_bytes: -1 is less than the minimum of 1024",
        );
        refused(
            "limits:\n  tool_timeout_ms: 0\n",
            "maru.yaml:2: limits.tool_timeout_ms",
        );
        refused(
            "limits:\n  max_sessions: 99999999999999999999\n",
            "maru.yaml:2: limits.max_sessions",
        );
        refused(
            "http:\n  allowed_origins: ['*']\n",
            "maru.yaml:2: http.allowed_origins",
        );
        refused(
            "http:\n  allowed_hosts: ['*']\n",
            "maru.yaml:2: http.allowed_hosts",
        );
        refused(
            "listen: nowhere\n",
            "maru.yaml:1: listen: invalid socket address syntax; write ADDR:PORT",
        );
        refused(
            "mcp:\n  servers:\n    - {name: a, url: 'http://127.0.0.1:9/'}\n    - {name: a, url: 'http://127.0.0.1:9/'}\n",
            "maru.yaml:4: mcp.servers.1.name: mcp.servers.0 and mcp.servers.1 are both named",
        );
        refused(
            "mcp:\n  servers:\n    - {name: a, url: 'http://127.0.0.1:9/', protocol-version: 2025-06-99}\n",
            "expected one of 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28",
        );
        refused(
            "listen: '[::]:20006'\n",
            "maru.yaml:1: listen: :: is not a loopback address",
        );
        refused(
            "listen: 1\nlisten: 2\n",
            "maru.yaml:2: not valid YAML: duplicated key",
        );
        refused(
            "<config/>",
            "maru.yaml:1: \"<config/>\" is not of type \"object\"",
        );
        refused(
            "data_dir: ${NO_SUCH}\n",
            "maru.yaml:1: the environment variable NO_SUCH is not set",
        );
    }

    #[test]
    fn later_layers_win_and_are_named() {
        let loaded = with(
            "limits:\n  max_sessions: ${SESSIONS}\n  drain_ms: 1\nlog:\n  level: debug\n",
            &[("SESSIONS", "7"), ("MARU_LIMITS_DRAIN_MS", "5")],
        )
        .unwrap();
        assert_eq!(loaded.config.limits.max_sessions, 7);
        assert_eq!(loaded.config.limits.drain_ms, 5);
        assert_eq!(loaded.config.data_dir, Path::new("/h/.local/share/maru"));
        assert!(matches!(
            loaded.origin_of("/limits/max_sessions"),
            ValueOrigin::File(_, 2)
        ));
        assert_eq!(
            loaded.origin_of("/limits/drain_ms").to_string(),
            "MARU_LIMITS_DRAIN_MS"
        );
        assert_eq!(
            loaded.origin_of("/limits/max_body_bytes"),
            ValueOrigin::Default
        );
    }

    #[test]
    fn wrong_variable_is_named() {
        let message = with("", &[("MARU_LIMITS_DRAIN_MS", "soon")]).unwrap_err();
        assert!(
            message.starts_with("MARU_LIMITS_DRAIN_MS: \"soon\" is not of type \"integer\""),
            "{message}"
        );
    }

    #[test]
    fn misspelt_variable_is_refused_with_the_nearest() {
        let message = with("", &[("MARU_LIMITS_MAX_SESIONS", "4")]).unwrap_err();
        let expected = "MARU_LIMITS_MAX_SESIONS: unknown setting \"MARU_LIMITS_MAX_SESIONS\"; did you mean \"MARU_LIMITS_MAX_SESSIONS\"?";
        assert_eq!(message, expected);
        let list = with("", &[("MARU_HTTP_ALLOWED_HOSTS", "a.com,*")]).unwrap_err();
        assert!(
            list.starts_with("MARU_HTTP_ALLOWED_HOSTS: \"*\" is not allowed"),
            "{list}"
        );
    }

    #[test]
    fn file_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("maru.yaml");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let given = LoadOptions {
            file: Some(path),
            ..LoadOptions::default()
        };
        assert!(load(&given).unwrap_err().to_string().contains("chmod o-w"));
    }
}
