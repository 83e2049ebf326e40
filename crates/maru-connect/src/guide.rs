//! What a person does to connect a client.

use serde::Serialize;
use serde_json::Value;

use super::{ClientFile, ClientFilePaths, FileFormat, file::FileMember, hub::quote_word};

/// How one client is connected.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientGuide {
    /// The name in `maru connect`.
    pub id: &'static str,
    /// The client's own name.
    pub title: &'static str,
    /// The client uses the hub's tools.
    pub mcp: ConnectSection,
    /// The client uses the hub's models.
    pub models: ConnectSection,
    /// Programs and directories that show that the client is installed.
    #[serde(skip)]
    pub traces: &'static [&'static str],
}

/// The methods for one use of the hub, the best first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectSection {
    /// Any one of them is enough.
    pub methods: Vec<ConnectMethod>,
    /// A link that adds the hub to the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_link: Option<String>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
}

/// One way to connect a client.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum ConnectMethod {
    /// Members of a file of the client.
    File(ClientFile),
    /// A command to run once.
    Command {
        /// The command line.
        text: String,
    },
    /// Environment variables of the client.
    Environment {
        /// Lines of a shell.
        text: String,
    },
    /// Fields in the client's settings.
    Settings {
        /// Where they are.
        place: Note,
        /// Names and values.
        text: String,
    },
}

/// A sentence in the languages of the console.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Note {
    /// In English.
    pub en: &'static str,
    /// In Korean.
    pub ko: &'static str,
}

impl ConnectSection {
    pub(crate) fn new(methods: impl IntoIterator<Item = ConnectMethod>) -> Self {
        Self {
            methods: methods.into_iter().collect(),
            ..Self::default()
        }
    }

    /// A use that the client does not support.
    pub(crate) fn unsupported(en: &'static str, ko: &'static str) -> Self {
        Self::default().with_note(en, ko)
    }

    pub(crate) fn with_note(self, en: &'static str, ko: &'static str) -> Self {
        Self {
            note: Some(Note { en, ko }),
            ..self
        }
    }

    pub(crate) fn with_link(self, link: String) -> Self {
        Self {
            install_link: Some(link),
            ..self
        }
    }

    /// The file that `maru connect --write` changes.
    pub fn file(&self) -> Option<&ClientFile> {
        self.methods.iter().find_map(|it| match it {
            ConnectMethod::File(file) => Some(file),
            _ => None,
        })
    }
}

pub(crate) fn file(
    paths: ClientFilePaths,
    format: FileFormat,
    members: impl IntoIterator<Item = (Vec<&'static str>, Value)>,
) -> ConnectMethod {
    let members = members.into_iter();
    ConnectMethod::File(ClientFile {
        paths,
        format,
        members: members
            .map(|(path, value)| FileMember::Value(path, value))
            .collect(),
    })
}

pub(crate) fn json_file(
    paths: ClientFilePaths,
    members: impl IntoIterator<Item = (Vec<&'static str>, Value)>,
) -> ConnectMethod {
    file(paths, FileFormat::Jsonc, members)
}

pub(crate) fn command(text: String) -> ConnectMethod {
    ConnectMethod::Command { text }
}

/// Variables in front of a program, or alone.
pub(crate) fn environment(variables: &[(&str, &str)], program: &str) -> ConnectMethod {
    let lines = variables
        .iter()
        .map(|(name, value)| format!("export {name}={}", quote_word(value)));
    let program = (!program.is_empty()).then(|| program.to_owned());
    let lines: Vec<String> = lines.chain(program).collect();
    ConnectMethod::Environment {
        text: lines.join("\n"),
    }
}

pub(crate) fn settings(en: &'static str, ko: &'static str, text: &str) -> ConnectMethod {
    ConnectMethod::Settings {
        place: Note { en, ko },
        text: text.to_owned(),
    }
}
