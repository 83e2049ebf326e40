//! A file of a client and the members that connect it.

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::Value;

use super::{json_text, toml_text};

/// Members to set in a file of a client.
#[derive(Clone, Debug)]
pub struct ClientFile {
    /// Where the file is.
    pub paths: ClientFilePaths,
    /// The format that the client reads.
    pub format: FileFormat,
    pub(crate) members: Vec<FileMember>,
}

/// The path of a file on each system, with `~` and `%APPDATA%`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ClientFilePaths {
    /// On Linux.
    pub linux: &'static str,
    /// On macOS.
    pub macos: &'static str,
    /// On Windows.
    pub windows: &'static str,
}

/// The system that a client runs on.
#[derive(Clone, Copy, Debug)]
pub enum OperatingSystem {
    /// Linux and other systems.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

/// The format of a client's file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// JSON, possibly with comments and trailing commas, which stay.
    Jsonc,
    /// TOML, whose comments and order stay.
    Toml,
    /// A YAML file that contains nothing but the members.
    Yaml,
}

#[derive(Clone, Debug)]
pub(crate) enum FileMember {
    /// A value under a path of keys.
    Value(Vec<&'static str>, Value),
    /// An element of the list that is the whole file, found by its member `name`.
    Element(Value),
    /// The whole text of a file that belongs to maru.
    Text(String),
}

/// A client's file that cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not valid.
    #[error("it is not valid {format}: {message}")]
    Syntax {
        /// The format.
        format: &'static str,
        /// Where and why.
        message: String,
    },
    /// A member that should contain others has another type.
    #[error("{0:?} is not the kind of value that the client reads; correct it first")]
    Shape(String),
}

impl ClientFile {
    /// The members alone, as a new file would contain them.
    pub fn text(&self) -> String {
        self.merge("").unwrap_or_default()
    }

    /// `text` with the members added or replaced. Everything else stays as it is.
    pub fn merge(&self, text: &str) -> Result<String, Error> {
        let mut text = text.to_owned();
        for member in &self.members {
            text = match (self.format, member) {
                (_, FileMember::Text(own)) => own.clone(),
                (FileFormat::Toml, FileMember::Value(path, value)) => {
                    toml_text::set_member(&text, path, value)?
                }
                (_, FileMember::Value(path, value)) => json_text::set_member(&text, path, value)?,
                (_, FileMember::Element(value)) => json_text::set_element(&text, value)?,
            };
        }
        Ok(text)
    }

    /// Whether `text` has the members already.
    pub fn is_merged(&self, text: &str) -> bool {
        self.merge(text).is_ok_and(|merged| merged == text)
    }
}

impl Serialize for ClientFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("ClientFile", 3)?;
        members.serialize_field("paths", &self.paths)?;
        members.serialize_field("format", &self.format)?;
        members.serialize_field("text", &self.text())?;
        members.end()
    }
}

impl ClientFilePaths {
    /// A file in the home directory, the same on every system.
    pub(crate) const fn in_home(unix: &'static str, windows: &'static str) -> Self {
        Self {
            linux: unix,
            macos: unix,
            windows,
        }
    }

    /// The path on `system`.
    pub fn on(&self, system: OperatingSystem) -> &'static str {
        match system {
            OperatingSystem::Linux => self.linux,
            OperatingSystem::MacOs => self.macos,
            OperatingSystem::Windows => self.windows,
        }
    }
}

impl OperatingSystem {
    /// The system that this program was built for.
    pub const fn current() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}
