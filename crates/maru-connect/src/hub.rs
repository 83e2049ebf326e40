//! The hub that a client should use.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// Stands for the token where none was made.
pub const TOKEN_PLACEHOLDER: &str = "YOUR_TOKEN";

/// Stands for the model where the hub has none yet.
pub const MODEL_PLACEHOLDER: &str = "MODEL_NAME";

/// Everything that a client's settings say about a hub.
#[derive(Clone, Debug)]
pub struct HubTarget {
    /// The address of the hub without a path, such as `http://127.0.0.1:20006`.
    pub origin: String,
    /// The program and its arguments before a subcommand; `None` for a hub on another machine.
    pub program: Option<Vec<String>>,
    /// The token to send; `None` if the hub needs none.
    pub token: Option<String>,
    /// The model that a client should use.
    pub model: String,
}

impl HubTarget {
    /// The endpoint of Streamable HTTP.
    pub(crate) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    /// The base URL of the OpenAI-compatible API.
    pub(crate) fn openai_url(&self) -> String {
        format!("{}/v1", self.origin)
    }

    /// The key for clients that insist on one.
    pub(crate) fn api_key(&self) -> &str {
        self.token.as_deref().unwrap_or("local")
    }

    /// What a person types into the settings of an OpenAI-compatible client.
    pub(crate) fn openai_fields(&self) -> String {
        format!(
            "Base URL  {}\nAPI key   {}\nModel     {}",
            self.openai_url(),
            self.api_key(),
            self.model
        )
    }

    pub(crate) fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }

    /// `members` with the `Authorization` header under `name`, if a token is sent.
    pub(crate) fn with_headers(&self, members: Value, name: &str) -> Value {
        let mut members = members;
        if let Some(authorization) = self.authorization() {
            members[name] = json!({"Authorization": authorization});
        }
        members
    }

    /// The program that a client starts to speak MCP over stdio: maru, or a bridge to a hub
    /// on another machine.
    pub(crate) fn stdio_server(&self) -> Value {
        let words = match &self.program {
            Some(program) => {
                let stdio = ["stdio".to_owned()];
                program.iter().cloned().chain(stdio).collect()
            }
            None => self.bridge_command(),
        };
        let mut server = Map::new();
        let mut words = words.into_iter();
        server.insert("command".to_owned(), words.next().into());
        server.insert("args".to_owned(), words.collect());
        Value::Object(server)
    }

    fn bridge_command(&self) -> Vec<String> {
        let mut words = ["npx", "-y", "mcp-remote"].map(str::to_owned).to_vec();
        words.push(self.mcp_url());
        if self.origin.starts_with("http:") {
            words.push("--allow-http".to_owned());
        }
        if let Some(authorization) = self.authorization() {
            words.extend([
                "--header".to_owned(),
                format!("Authorization: {authorization}"),
            ]);
        }
        words
    }
}

/// `words` as a line for a shell.
pub fn command_line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|it| quote_word(it)).collect();
    words.join(" ")
}

/// Quotes `word` as one word of a shell command line.
pub fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// `text` as a value in the query of a link.
pub(crate) fn encode_in_link(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
