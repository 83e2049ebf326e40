//! Turns `server.json` documents of a registry into entries of `mcpServers`. Pure. What a
//! registry says is shown to people, who decide; it registers nothing.

use serde_json::{Map, Value, json};

use crate::draft::normalize_name;

/// A server of a registry.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundServer {
    /// The name in the registry, such as `io.github.user/weather`.
    pub name: String,
    /// A name for it at the hub.
    pub local_name: String,
    /// The title for people.
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// Its version.
    pub version: String,
    /// The ways to run or reach it that the hub knows.
    pub installations: Vec<ServerInstallation>,
}

/// One way to run or reach a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerInstallation {
    /// The type of the package or of the transport: `npm`, `streamable-http`.
    pub kind: String,
    /// An entry of `mcpServers`. Values that people must fill in are empty.
    pub entry: Value,
}

const MAX_TEXT_CHARS: usize = 500;
const MAX_MEMBERS: usize = 50;
const MAX_INSTALLATIONS: usize = 10;

impl FoundServer {
    pub(super) fn matches(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let texts = [
            Some(&self.name),
            self.title.as_ref(),
            Some(&self.description),
        ];
        let mut texts = texts.into_iter().flatten();
        texts.any(|it| it.to_lowercase().contains(&word))
    }
}

/// The servers of an answer of the API: `{"servers": [{"server": {…}}]}`, or a list.
pub(super) fn parse_servers(document: &Value) -> impl Iterator<Item = FoundServer> {
    let servers = document["servers"].as_array().or(document.as_array());
    let servers = servers.into_iter().flatten();
    servers.filter_map(|it| {
        parse_server(if it["server"].is_object() {
            &it["server"]
        } else {
            it
        })
    })
}

fn parse_server(server: &Value) -> Option<FoundServer> {
    let name = text(&server["name"])?;
    let local = name.rsplit('/').next().unwrap_or(&name);
    let remotes = list(&server["remotes"]).filter_map(remote);
    let packages = list(&server["packages"]).filter_map(package);
    Some(FoundServer {
        local_name: normalize_name(local),
        title: text(&server["title"]),
        description: text(&server["description"]).unwrap_or_default(),
        version: text(&server["version"]).unwrap_or_default(),
        installations: remotes.chain(packages).take(MAX_INSTALLATIONS).collect(),
        name,
    })
}

fn remote(remote: &Value) -> Option<ServerInstallation> {
    let kind = text(&remote["type"])?;
    let entry_type = match kind.as_str() {
        "streamable-http" => "http",
        "sse" => "sse",
        _ => return None,
    };
    let mut entry = json!({"type": entry_type, "url": text(&remote["url"])?});
    let headers = named_values(&remote["headers"]);
    if !headers.is_empty() {
        entry["headers"] = headers.into();
    }
    Some(ServerInstallation { kind, entry })
}

fn package(package: &Value) -> Option<ServerInstallation> {
    let kind = text(&package["registryType"])?;
    let identifier = text(&package["identifier"])?;
    let version = text(&package["version"]);
    let environment = named_values(&package["environmentVariables"]);
    if text(&package["transport"]["type"]).is_some_and(|it| it != "stdio") {
        return None;
    }
    let at_version = |separator: &str| match &version {
        Some(version) => format!("{identifier}{separator}{version}"),
        None => identifier.clone(),
    };
    let options = arguments(&package["runtimeArguments"]);
    let or_else = |options: Vec<String>, usual: &[&str]| {
        if options.is_empty() {
            usual.iter().map(|it| (*it).to_owned()).collect()
        } else {
            options
        }
    };
    let (command, mut words) = match kind.as_str() {
        "npm" => {
            let mut words = or_else(options, &["-y"]);
            words.push(at_version("@"));
            ("npx", words)
        }
        "pypi" => {
            let mut words = options;
            words.push(at_version("@"));
            ("uvx", words)
        }
        "oci" => {
            let mut words = vec!["run".to_owned()];
            words.extend(or_else(options, &["-i", "--rm"]));
            for name in environment.keys() {
                words.extend(["-e".to_owned(), name.clone()]);
            }
            // The identifier usually names the version already.
            let image = identifier.rsplit('/').next().unwrap_or_default();
            words.push(if image.contains([':', '@']) {
                identifier.clone()
            } else {
                at_version(":")
            });
            ("docker", words)
        }
        _ => return None,
    };
    words.extend(arguments(&package["packageArguments"]));
    let mut entry = json!({"command": command, "args": words});
    if !environment.is_empty() {
        entry["env"] = environment.into();
    }
    Some(ServerInstallation { kind, entry })
}

/// The words of a command line; a value that people must fill in is `<name>`.
fn arguments(all: &Value) -> Vec<String> {
    let mut words = Vec::new();
    for argument in list(all) {
        let name = text(&argument["name"]);
        let hint = text(&argument["valueHint"]).or_else(|| name.clone());
        let value = text(&argument["value"]).or_else(|| text(&argument["default"]));
        let is_named = argument["type"] == "named";
        if is_named {
            words.extend(name);
        }
        match (value, hint) {
            (Some(value), _) => words.push(value),
            (None, Some(hint)) if !is_named || argument["isRequired"] == true => {
                words.push(format!("<{}>", hint.trim_start_matches('-')));
            }
            _ => (),
        }
    }
    words
}

/// Variables or headers by name; those that people must fill in are empty.
fn named_values(all: &Value) -> Map<String, Value> {
    let values = list(all).filter_map(|it| {
        let value = text(&it["value"]).or_else(|| text(&it["default"]));
        Some((text(&it["name"])?, value.unwrap_or_default().into()))
    });
    values.collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten().take(MAX_MEMBERS)
}

/// A text without control characters, shortened; `None` if it is empty.
fn text(value: &Value) -> Option<String> {
    let text = value.as_str()?.chars().filter(|it| !it.is_control());
    let text: String = text.take(MAX_TEXT_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_remotes_become_entries_to_fill_in() {
        let document = json!({"servers": [{"server": {
            "name": "io.github.user/Weather Server", "title": "Weather", "version": "1.2.0",
            "description": "Tells the\u{1b} weather",
            "remotes": [
                {"type": "streamable-http", "url": "https://w.example/mcp", "headers": [{"name": "X-Key", "isSecret": true}]},
                {"type": "carrier-pigeon", "url": "x"},
            ],
            "packages": [
                {"registryType": "npm", "identifier": "@user/weather", "version": "1.2.0", "transport": {"type": "stdio"},
                 "packageArguments": [
                    {"type": "positional", "valueHint": "city"},
                    {"type": "named", "name": "--units", "default": "metric"},
                    {"type": "named", "name": "--verbose"},
                 ],
                 "environmentVariables": [{"name": "KEY", "isRequired": true}, {"name": "LANG", "default": "en"}]},
                {"registryType": "pypi", "identifier": "weather", "version": "1.2.0", "runtimeArguments": [{"type": "named", "name": "--python", "value": "3.12"}]},
                {"registryType": "oci", "identifier": "ghcr.io/user/weather:1.2.0", "environmentVariables": [{"name": "KEY"}]},
                {"registryType": "npm", "identifier": "web", "transport": {"type": "sse", "url": "http://x"}},
                {"registryType": "nuget", "identifier": "Weather"},
            ],
        }, "_meta": {}}, {"server": {"title": "no name"}}, 5]});
        let found: Vec<FoundServer> = parse_servers(&document).collect();
        assert_eq!(found.len(), 1);
        let server = &found[0];
        assert_eq!(server.local_name, "weather-server");
        assert_eq!(server.description, "Tells the weather");
        assert!(server.matches("WEATHER") && !server.matches("stocks"));
        let entries: Vec<(&str, &Value)> = server
            .installations
            .iter()
            .map(|it| (it.kind.as_str(), &it.entry))
            .collect();
        let expected = [
            (
                "streamable-http",
                json!({"type": "http", "url": "https://w.example/mcp", "headers": {"X-Key": ""}}),
            ),
            (
                "npm",
                json!({
                    "command": "npx",
                    "args": ["-y", "@user/weather@1.2.0", "<city>", "--units", "metric", "--verbose"],
                    "env": {"KEY": "", "LANG": "en"},
                }),
            ),
            (
                "pypi",
                json!({"command": "uvx", "args": ["--python", "3.12", "weather@1.2.0"]}),
            ),
            (
                "oci",
                json!({
                    "command": "docker",
                    "args": ["run", "-i", "--rm", "-e", "KEY", "ghcr.io/user/weather:1.2.0"],
                    "env": {"KEY": ""},
                }),
            ),
        ];
        let expected: Vec<(&str, &Value)> = expected.iter().map(|(kind, it)| (*kind, it)).collect();
        assert_eq!(entries, expected);
    }
}
