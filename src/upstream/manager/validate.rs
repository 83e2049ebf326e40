//! What is let through: changed tools, and programs from elsewhere.

use tracing::warn;

use super::{RegistrationError, ServerHandle, ServerManager, ServerView};
use crate::upstream::{
    draft::ServerDraft,
    server::{InvalidField, RegisteredServer},
    transport::Transport,
};

impl ServerManager {
    /// Accepts the changed definition of `tool`, or of all that wait.
    pub async fn accept_definitions(
        &self,
        name: &str,
        tool: Option<&str>,
    ) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        let accepted = self.settings.pins().accept(name, tool).await?;
        if accepted == 0 && tool.is_some() {
            return Err(RegistrationError::NothingToAccept);
        }
        entry.handle.republish().await;
        Ok(self.view(entry))
    }

    /// Which program is started is decided on this machine, unless the settings
    /// say otherwise.
    pub(super) fn check_programs_allowed(
        &self,
        draft: &ServerDraft,
        before: Option<&Transport>,
    ) -> Result<(), RegistrationError> {
        if !self.rules.programs_refused || draft.kind != "STDIO" {
            return Ok(());
        }
        let wanted = Transport::parse(&draft.kind, &draft.config, before)?;
        if before == Some(&wanted) {
            Ok(())
        } else {
            Err(RegistrationError::ProgramsNotAllowed)
        }
    }

    /// A program that needs a warning is started only by someone who accepts it.
    pub(in crate::upstream) fn check_warnings_accepted(
        &self,
        draft: &ServerDraft,
        transport: &Transport,
        before: Option<&Transport>,
    ) -> Result<(), RegistrationError> {
        if draft.accept_warnings || before == Some(transport) {
            return Ok(());
        }
        match self.rules.unaccepted_field(transport) {
            None => Ok(()),
            Some(field) => Err(RegistrationError::WarningsNotAccepted {
                field,
                warnings: self.rules.warnings(transport),
            }),
        }
    }

    /// Says what a person should know of a program, in the hub's log and in the
    /// server's own.
    pub(in crate::upstream) fn log_warnings(
        &self,
        server: &RegisteredServer,
        handle: &ServerHandle,
    ) {
        for warning in self.rules.warnings(&server.transport) {
            warn!(server.name = %server.name, "server {}: {warning}", server.name);
            handle.log_event(&format!("warning: {warning}"));
        }
    }
}

/// Whether the settings describe the server otherwise.
pub(super) fn differs_from_seed(seed: &ServerDraft, server: &RegisteredServer) -> bool {
    let transport = Transport::parse(&seed.kind, &seed.config, None);
    transport.as_ref() != Ok(&server.transport)
        || seed.description != server.description
        || seed.auto_connect != server.auto_connect
        || seed.version != server.version
}

/// The text, unless it has too many characters.
pub(super) fn check_length(
    text: Option<&String>,
    field: &str,
    limit: usize,
) -> Result<Option<String>, InvalidField> {
    match text {
        Some(text) if text.chars().count() > limit => {
            let why = format!("may have {limit} characters at most");
            Err(InvalidField {
                field: field.to_owned(),
                why,
            })
        }
        text => Ok(text.cloned()),
    }
}
