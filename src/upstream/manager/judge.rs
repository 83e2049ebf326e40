//! What is let through: changed tools, and programs from elsewhere.

use tracing::warn;

use super::{Handle, Manager, Unchanged, View};
use crate::upstream::{
    draft::Draft,
    server::{Invalid, Server},
    transport::Transport,
};

impl Manager {
    /// Accepts the changed definition of `tool`, or of all that wait.
    pub async fn accept(&self, name: &str, tool: Option<&str>) -> Result<View, Unchanged> {
        let entry = self.find(name)?;
        let accepted = self.settings.pins().accept(name, tool).await?;
        if accepted == 0 && tool.is_some() {
            return Err(Unchanged::NothingToAccept);
        }
        entry.handle.republish().await;
        Ok(self.view(entry))
    }

    /// Which program is started is decided on this machine, unless the settings
    /// say otherwise.
    pub(super) fn check_programs(
        &self,
        draft: &Draft,
        before: Option<&Transport>,
    ) -> Result<(), Unchanged> {
        if !self.rules.programs_refused || draft.kind != "STDIO" {
            return Ok(());
        }
        let wanted = Transport::read(&draft.kind, &draft.config, before)?;
        match before == Some(&wanted) {
            true => Ok(()),
            false => Err(Unchanged::Programs),
        }
    }

    /// A program that needs a warning is started only by someone who accepts it.
    pub(in crate::upstream) fn check_accepted(
        &self,
        draft: &Draft,
        transport: &Transport,
        before: Option<&Transport>,
    ) -> Result<(), Unchanged> {
        if draft.accept_warnings || before == Some(transport) {
            return Ok(());
        }
        match self.rules.unaccepted(transport) {
            None => Ok(()),
            Some(field) => Err(Unchanged::Warned {
                field,
                warnings: self.rules.warnings(transport),
            }),
        }
    }

    /// Says what a person should know of a program, in the hub's log and in the
    /// server's own.
    pub(in crate::upstream) fn log_warnings(&self, server: &Server, handle: &Handle) {
        for warning in self.rules.warnings(&server.transport) {
            warn!(server.name = %server.name, "server {}: {warning}", server.name);
            handle.note(&format!("warning: {warning}"));
        }
    }
}

/// Whether the settings describe the server otherwise.
pub(super) fn differs(seed: &Draft, server: &Server) -> bool {
    let transport = Transport::read(&seed.kind, &seed.config, None);
    transport.as_ref() != Ok(&server.transport)
        || seed.description != server.description
        || seed.auto_connect != server.auto_connect
        || seed.version != server.version
}

/// The text, unless it has too many characters.
pub(super) fn short(
    text: Option<&String>,
    field: &str,
    limit: usize,
) -> Result<Option<String>, Invalid> {
    match text {
        Some(text) if text.chars().count() > limit => {
            let why = format!("may have {limit} characters at most");
            Err(Invalid {
                field: field.to_owned(),
                why,
            })
        }
        text => Ok(text.cloned()),
    }
}
