//! Merges defaults, file, environment and flags, and records where each value came from.

use maru_runtime::files::{file_error_reason, read_text_file};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
};

use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{
    Config, MASK, ModelDefinition, file, reference,
    schema::{self, schema},
    security,
};

/// Environment variables by name, each with its value and origin.
pub(super) type EnvironmentVariables = HashMap<String, (String, ValueOrigin)>;

/// The inputs of the configuration.
#[derive(Debug, Default)]
pub struct LoadOptions {
    /// The value of `--config`. The default is `maru.yaml` in `directory`, if it exists.
    pub file: Option<PathBuf>,
    /// The directory of `maru.yaml` and `.env`.
    pub directory: PathBuf,
    /// The environment of the process.
    pub environment: HashMap<String, String>,
    /// Flags: the JSON pointer of the key, and the text of its value.
    pub flags: Vec<(&'static str, String)>,
}

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The value is the default.
    Default,
    /// A line of the file.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(String),
    /// A variable of the `.env` file.
    DotEnv(String),
    /// A flag of the command line.
    Flag(String),
}

/// The configuration with the origin of each value.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The validated configuration.
    pub config: Config,
    origins: BTreeMap<String, ValueOrigin>,
    unmasked: UnmaskedValues,
}

/// The values with their secrets, to detect that a secret has changed.
#[derive(Clone, Default)]
struct UnmaskedValues(Value);

impl fmt::Debug for UnmaskedValues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// The configuration could not be loaded.
#[derive(Debug, Error)]
pub enum Error {
    /// The file does not exist or cannot be read.
    #[error("cannot read the configuration {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: String,
    },
    /// The file is world-writable, so every user of this machine could control maru.
    #[error("{} is writable by every user of this machine; run: chmod o-w {}", .0.display(), .0.display())]
    WritableByOthers(PathBuf),
    /// A key is unknown or its value is invalid.
    #[error("{location}: {reason}")]
    InvalidValue {
        /// File and line, variable or flag.
        location: String,
        /// What is wrong and what is expected.
        reason: String,
    },
}

/// Variables of maru that are not settings: the settings file, the hub and the token of the
/// command line, and the key that Zed sends to a provider named `maru`.
const OTHER_VARIABLES: [&str; 4] = ["MARU_CONFIG", "MARU_HUB", "MARU_TOKEN", "MARU_API_KEY"];

/// A setting that is refused although the schema allows it.
pub(super) struct InvalidSetting {
    pub(super) pointer: String,
    pub(super) reason: String,
}

/// Returns the environment variables of this process whose names and values are UTF-8.
#[expect(
    clippy::disallowed_methods,
    reason = "the only place that reads the environment"
)]
pub fn process_environment() -> HashMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Loads and validates the configuration.
pub fn load(options: &LoadOptions) -> Result<LoadedConfig, Error> {
    let environment = collect_variables(options)?;
    reject_unknown_variables(&environment)?;
    let path = find_config_file(options, &environment);
    let mut layers = ConfigLayers::default();
    if let Some(path) = &path {
        layers.add_file(path, &environment)?;
    }
    for &(name, pointer) in schema::LEGACY_VARIABLES {
        let variable = environment.get(name).filter(|(value, _)| !value.is_empty());
        if let Some((value, origin)) = variable {
            layers.set_text(pointer, value, origin.clone());
        }
    }
    for variable_name in [schema::prefixed_variable_name, schema::variable_name] {
        for pointer in schema::leaf_pointers() {
            if let Some((value, origin)) = environment.get(&variable_name(&pointer)) {
                layers.set_text(&pointer, value, origin.clone());
            }
        }
    }
    for (pointer, text) in &options.flags {
        let flag = format!("--{}", schema::dotted_key(pointer).replace('_', "-"));
        layers.set_text(pointer, text, ValueOrigin::Flag(flag));
    }
    let mut loaded = layers.build(&environment)?;
    loaded.config.config_directory = path.and_then(|it| it.parent().map(Path::to_owned));
    Ok(loaded)
}

impl From<Config> for LoadedConfig {
    /// Wraps a configuration that a program built, whose values all have the origin `Default`.
    fn from(config: Config) -> Self {
        Self {
            config,
            origins: BTreeMap::new(),
            unmasked: UnmaskedValues::default(),
        }
    }
}

impl LoadedConfig {
    /// Returns the keys whose values differ from those of `previous`.
    pub fn changed_keys(&self, previous: &Self) -> Vec<String> {
        let values = |it: &Self| serde_json::to_value(&it.config).expect("settings are JSON");
        let (old, new) = (values(previous), values(self));
        let differs = |pointer: &String| {
            let (old, new) = (old.pointer(pointer), new.pointer(pointer));
            // Masked secrets are equal even if the secrets differ.
            let is_secret = new.is_some_and(|it| it.to_string().contains(MASK));
            let unmasked = |it: &Self| it.unmasked.0.pointer(pointer).cloned();
            old != new || (is_secret && unmasked(previous) != unmasked(self))
        };
        let changed = schema::leaf_pointers().into_iter().filter(differs);
        changed.map(|it| schema::dotted_key(&it)).collect()
    }

    /// Returns the origin of the value at `pointer`, or of the object or list that holds it.
    pub fn origin_of(&self, pointer: &str) -> ValueOrigin {
        let origin = self_and_ancestors(pointer).find_map(|it| self.origins.get(it));
        origin.cloned().unwrap_or(ValueOrigin::Default)
    }
}

/// `/a/b`, `/a` and the empty pointer of the root for `/a/b`.
fn self_and_ancestors(pointer: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(pointer), |it| it.rfind('/').map(|end| &it[..end]))
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

fn collect_variables(options: &LoadOptions) -> Result<EnvironmentVariables, Error> {
    let mut variables = EnvironmentVariables::new();
    let path = options.directory.join(".env");
    if path.is_file() {
        let invalid_file = |error: dotenvy::Error| Error::InvalidValue {
            location: path.display().to_string(),
            reason: format!("not a list of NAME=value lines: {error}"),
        };
        for pair in dotenvy::from_path_iter(&path).map_err(invalid_file)? {
            let (name, value) = pair.map_err(invalid_file)?;
            variables.insert(name.clone(), (value, ValueOrigin::DotEnv(name)));
        }
    }
    for (name, value) in &options.environment {
        let origin = ValueOrigin::Environment(name.clone());
        variables.insert(name.clone(), (value.clone(), origin));
    }
    Ok(variables)
}

/// Refuses variables that start with `MARU_` but set nothing, because a misspelt one would
/// otherwise be ignored silently.
fn reject_unknown_variables(environment: &EnvironmentVariables) -> Result<(), Error> {
    let mut known: Vec<String> = schema::leaf_pointers()
        .iter()
        .map(|it| schema::variable_name(it))
        .collect();
    known.extend(OTHER_VARIABLES.map(str::to_owned));
    let unknown = environment
        .iter()
        .find(|(name, _)| name.starts_with("MARU_") && !known.contains(name));
    let Some((name, (_, origin))) = unknown else {
        return Ok(());
    };
    let known: Vec<&String> = known.iter().collect();
    Err(Error::InvalidValue {
        location: origin.to_string(),
        reason: unknown_key_message(name, &known).replace("unknown key", "unknown setting"),
    })
}

fn find_config_file(options: &LoadOptions, environment: &EnvironmentVariables) -> Option<PathBuf> {
    let from_environment = environment
        .get("MARU_CONFIG")
        .map(|(path, _)| PathBuf::from(path));
    let default_path = options.directory.join("maru.yaml");
    options
        .file
        .clone()
        .or(from_environment)
        .or_else(|| default_path.exists().then_some(default_path))
}

/// The values that were set so far, later layers over earlier ones.
#[derive(Default)]
struct ConfigLayers {
    value: Value,
    origins: BTreeMap<String, ValueOrigin>,
}

impl ConfigLayers {
    fn add_file(&mut self, path: &Path, environment: &EnvironmentVariables) -> Result<(), Error> {
        let text = read_text_file(path).map_err(|error| Error::Unreadable {
            path: path.to_owned(),
            reason: match error.kind() {
                std::io::ErrorKind::NotFound => "no such file".to_owned(),
                _ => file_error_reason(&error),
            },
        })?;
        if file::is_world_writable(path) {
            return Err(Error::WritableByOthers(path.to_owned()));
        }
        let tree = file::parse_config(&text, environment).map_err(|error| Error::InvalidValue {
            location: format!("{}:{}", path.display(), error.line),
            reason: error.reason,
        })?;
        self.value = tree.value;
        for (pointer, line) in tree.lines {
            self.origins
                .insert(pointer, ValueOrigin::File(path.to_owned(), line));
        }
        self.validate()?;
        // The origin of an object would count for its keys that are not in the file.
        self.origins.retain(|pointer, _| {
            schema::schema_at(pointer).is_some_and(|it| it.get("properties").is_none())
        });
        Ok(())
    }

    fn set_text(&mut self, pointer: &str, text: &str, origin: ValueOrigin) {
        self.set(pointer, schema::coerce_text(pointer, text), origin);
    }

    fn set(&mut self, pointer: &str, value: Value, origin: ValueOrigin) {
        let mut target = &mut self.value;
        for step in pointer.split('/').skip(1) {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let members = target.as_object_mut().expect("made an object above");
            target = members.entry(step).or_insert(Value::Null);
        }
        *target = value;
        self.origins.insert(pointer.to_owned(), origin);
    }

    fn build(mut self, environment: &EnvironmentVariables) -> Result<LoadedConfig, Error> {
        if self.value.is_null() {
            self.value = Value::Object(Map::new());
        }
        self.validate()?;
        let invalid = |it: InvalidSetting| self.invalid_value(&it.pointer, it.reason);
        let mut config: Config = deserialize_config(&self.value).map_err(invalid)?;
        security::check_security(&config).map_err(invalid)?;
        check_server_names(&config).map_err(invalid)?;
        config.data_dir = expand_home(&config.data_dir, environment).ok_or_else(|| {
            let reason =
                "the home directory is unknown; set HOME, or name a directory with --data-dir DIR";
            self.invalid_value("/data_dir", reason.to_owned())
        })?;
        Ok(LoadedConfig {
            config,
            origins: self.origins,
            unmasked: UnmaskedValues(self.value),
        })
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
        let reason = unknown_key_message(&unknown, &known);
        Err(self.invalid_value(&format!("{pointer}/{unknown}"), reason))
    }

    fn invalid_value(&self, pointer: &str, reason: String) -> Error {
        let key = schema::dotted_key(pointer);
        // A list item has the origin of its list.
        let origin = self_and_ancestors(pointer)
            .filter(|it| !it.is_empty() || pointer.is_empty())
            .find_map(|it| self.origins.get(it));
        let location = match origin {
            Some(ValueOrigin::File(path, line)) => format!("{}:{line}: {key}", path.display()),
            Some(origin) => origin.to_string(),
            None => key,
        };
        let location = location.trim_end_matches([':', ' ']).to_owned();
        Error::InvalidValue { location, reason }
    }
}

/// Refuses two servers of one name, because it is unknown which one was meant.
fn check_server_names(config: &Config) -> Result<(), InvalidSetting> {
    let mut indices = HashMap::new();
    for (index, server) in config.mcp.servers.iter().enumerate() {
        let name = &server.name;
        if name.trim().is_empty() {
            continue;
        }
        if let Some(first) = indices.insert(name, index) {
            return Err(InvalidSetting {
                pointer: format!("/mcp/servers/{index}/name"),
                reason: format!(
                    "mcp.servers.{first} and mcp.servers.{index} are both named {name:?}; rename or remove one"
                ),
            });
        }
    }
    Ok(())
}

/// Describes why a value is invalid and what is expected.
fn describe_invalid_value(pointer: &str, error: &ValidationError<'_>) -> String {
    // The schema's own message would list patterns and subschemas.
    let is_choice = matches!(
        error.kind(),
        ValidationErrorKind::Enum { .. }
            | ValidationErrorKind::OneOfNotValid { .. }
            | ValidationErrorKind::AnyOf { .. }
            | ValidationErrorKind::Pattern { .. }
    );
    let message = if is_choice {
        format!("{} is not allowed", error.instance())
    } else {
        error.to_string()
    };
    match reference::expected_value(pointer) {
        Some(expected) => format!("{message}; expected {expected}"),
        None => message,
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

/// Parses `value` as an entry of `models`, as strictly as one of the settings file; an error
/// says which key is wrong and what is expected.
pub fn parse_model_definition(value: &Value) -> Result<ModelDefinition, String> {
    let layers = ConfigLayers {
        value: json!({"models": [value]}),
        origins: BTreeMap::new(),
    };
    layers.validate().map_err(|error| {
        let message = error.to_string();
        let message = message.strip_prefix("models.0").unwrap_or(&message);
        message.trim_start_matches(['.', ':', ' ']).to_owned()
    })?;
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// Deserializes values that the schema allows.
fn deserialize_config(value: &Value) -> Result<Config, InvalidSetting> {
    serde_json::from_value(value.clone()).map_err(|error| {
        // serde does not say which key failed, so each key is tried alone.
        let fails_alone = |pointer: &String| {
            let Some(value) = value.pointer(pointer) else {
                return false;
            };
            let mut layers = ConfigLayers::default();
            layers.set(pointer, value.clone(), ValueOrigin::Default);
            serde_json::from_value::<Config>(layers.value).is_err()
        };
        let mut pointers = schema::leaf_pointers().into_iter();
        let pointer = pointers.find(fails_alone).unwrap_or_default();
        let hint = if pointer == "/listen" {
            "; write ADDR:PORT, such as 127.0.0.1:20006"
        } else {
            ""
        };
        let reason = format!("{error}{hint}");
        InvalidSetting { pointer, reason }
    })
}

fn expand_home(path: &Path, environment: &EnvironmentVariables) -> Option<PathBuf> {
    let Ok(relative) = path.strip_prefix("~") else {
        return Some(path.to_owned());
    };
    let variable = |name: &str| environment.get(name).map(|(value, _)| PathBuf::from(value));
    match (
        relative.strip_prefix(".local/share"),
        variable("XDG_DATA_HOME"),
    ) {
        (Ok(relative), Some(base)) if base.is_absolute() => Some(base.join(relative)),
        _ => variable("HOME").map(|home| home.join(relative)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_yaml(yaml: &str, environment: &[(&str, &str)]) -> Result<LoadedConfig, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
        let options = LoadOptions {
            directory: directory.path().to_owned(),
            environment: environment
                .iter()
                .chain(&[("HOME", "/h")])
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..LoadOptions::default()
        };
        let directory_text = directory.path().display().to_string() + "/";
        load(&options).map_err(|error| error.to_string().replace(&directory_text, ""))
    }

    fn refused(yaml: &str, expected: &str) {
        let message = load_yaml(yaml, &[]).expect_err(yaml);
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn invalid_values_are_refused_with_their_location() {
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
    fn later_layers_override_and_are_named() {
        let loaded = load_yaml(
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
    fn invalid_variable_is_named() {
        let message = load_yaml("", &[("MARU_LIMITS_DRAIN_MS", "soon")]).unwrap_err();
        assert!(
            message.starts_with("MARU_LIMITS_DRAIN_MS: \"soon\" is not of type \"integer\""),
            "{message}"
        );
    }

    #[test]
    fn misspelt_variable_is_refused_with_the_nearest() {
        let message = load_yaml("", &[("MARU_LIMITS_MAX_SESIONS", "4")]).unwrap_err();
        let expected = "MARU_LIMITS_MAX_SESIONS: unknown setting \"MARU_LIMITS_MAX_SESIONS\"; did you mean \"MARU_LIMITS_MAX_SESSIONS\"?";
        assert_eq!(message, expected);
        let list = load_yaml("", &[("MARU_HTTP_ALLOWED_HOSTS", "a.com,*")]).unwrap_err();
        assert!(
            list.starts_with("MARU_HTTP_ALLOWED_HOSTS: \"*\" is not allowed"),
            "{list}"
        );
    }

    #[test]
    fn world_writable_file_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("maru.yaml");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let options = LoadOptions {
            file: Some(path),
            ..LoadOptions::default()
        };
        let error = load(&options).unwrap_err().to_string();
        assert!(error.contains("chmod o-w"), "{error}");
    }
}
