//! Checks registrations: names, programs and addresses.

use maru_http::AddressPolicy;
use serde_json::Value;
use tracing::warn;

use super::{
    draft::ServerDraft,
    handle::ServerHandle,
    program_rules::ProgramRules,
    registration_error::RegistrationError,
    server::{InvalidField, RegisteredServer, ServerName, invalid_field},
    transport::Transport,
};

/// The rules that registrations are checked against.
#[derive(Clone, Debug, Default)]
pub struct RegistrationRules {
    /// `mcp.security.allowed-server-names`; empty allows every name.
    pub allowed_names: Vec<String>,
    /// Which programs may be started.
    pub program_rules: ProgramRules,
    /// Whether requests may not register programs.
    pub programs_refused: bool,
    /// Which addresses may be reached.
    pub address_policy: AddressPolicy,
}

impl RegistrationRules {
    /// Parses a name that may be registered here.
    pub fn parse_name(&self, text: &str) -> Result<ServerName, InvalidField> {
        let name = ServerName::parse(text)?;
        if self.allowed_names.is_empty() || self.allowed_names.iter().any(|it| it == text) {
            Ok(name)
        } else {
            let reason = format!("\"{text}\" is not in mcp.security.allowed-server-names");
            Err(invalid_field("name", reason))
        }
    }

    /// Parses and checks `config`, the part of a registration that depends on its
    /// transport. Masked secrets are taken from `before`.
    pub fn parse_transport(
        &self,
        kind: &str,
        config: &Value,
        before: Option<&Transport>,
    ) -> Result<Transport, InvalidField> {
        let transport = Transport::parse(kind, config, before)?;
        match &transport {
            Transport::Stdio(program) => self.program_rules.check(program)?,
            Transport::Sse(remote) | Transport::Http(remote) => {
                let authorized = self.address_policy.authorize(&remote.url);
                authorized.map_err(|error| invalid_field("config.url", error.to_string()))?;
            }
        }
        Ok(transport)
    }

    /// Checks a registered server before it is connected, because the settings may have
    /// changed since. Addresses are checked when they are dialled.
    pub(super) fn check_start(&self, server: &RegisteredServer) -> Result<(), InvalidField> {
        self.parse_name(server.name.as_str())?;
        match &server.transport {
            Transport::Stdio(program) => self.program_rules.check(program),
            Transport::Sse(_) | Transport::Http(_) => Ok(()),
        }
    }

    /// Refuses a new or changed program if only the settings may list programs.
    pub(super) fn check_program_change(
        &self,
        draft: &ServerDraft,
        before: Option<&Transport>,
    ) -> Result<(), RegistrationError> {
        if !self.programs_refused || draft.kind != "STDIO" {
            return Ok(());
        }
        let wanted = Transport::parse(&draft.kind, &draft.config, before)?;
        if before == Some(&wanted) {
            Ok(())
        } else {
            Err(RegistrationError::ProgramsNotAllowed)
        }
    }

    /// Refuses a program with warnings unless the draft accepts them.
    pub(super) fn check_warnings_accepted(
        &self,
        draft: &ServerDraft,
        transport: &Transport,
        before: Option<&Transport>,
    ) -> Result<(), RegistrationError> {
        let Transport::Stdio(program) = transport else {
            return Ok(());
        };
        if draft.accept_warnings || before == Some(transport) {
            return Ok(());
        }
        match self.program_rules.unaccepted_field(program) {
            None => Ok(()),
            Some(field) => Err(RegistrationError::WarningsNotAccepted {
                field,
                warnings: self.warnings(transport),
            }),
        }
    }

    /// Returns the warnings about a server's program.
    pub(super) fn warnings(&self, transport: &Transport) -> Vec<String> {
        match transport {
            Transport::Stdio(program) => self.program_rules.warnings(program),
            Transport::Sse(_) | Transport::Http(_) => Vec::new(),
        }
    }

    /// Logs the warnings about a server in the hub's log and in the server's own.
    pub(super) fn log_warnings(&self, server: &RegisteredServer, handle: &ServerHandle) {
        for warning in self.warnings(&server.transport) {
            warn!(server.name = %server.name, "server {}: {warning}", server.name);
            handle.log_event(&format!("warning: {warning}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_go_in_and_do_not_come_out_and_a_mask_keeps_them() {
        let rules = RegistrationRules {
            address_policy: AddressPolicy {
                serves_loopback_only: true,
                ..AddressPolicy::default()
            },
            ..RegistrationRules::default()
        };
        let config =
            json!({"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer s3cret"}});
        let first = rules.parse_transport("HTTP", &config, None).unwrap();
        assert!(!format!("{first:?}{}", first.masked_config()).contains("s3cret"));
        let again = rules
            .parse_transport("HTTP", &first.masked_config(), Some(&first))
            .unwrap();
        assert_eq!(again, first);
    }

    #[test]
    fn wrong_configurations_name_their_field() {
        let rules = RegistrationRules {
            address_policy: AddressPolicy {
                serves_loopback_only: true,
                ..AddressPolicy::default()
            },
            ..RegistrationRules::default()
        };
        let field = |kind: &str, config: Value| {
            rules
                .parse_transport(kind, &config, None)
                .unwrap_err()
                .field
        };
        assert_eq!(field("FTP", json!({})), "transportType");
        assert_eq!(field("SSE", json!({})), "config.url");
        assert_eq!(field("STDIO", json!({"args": []})), "config.command");
        assert_eq!(
            field("STDIO", json!({"command": "x", "args": "-c id"})),
            "config.args"
        );
        assert_eq!(
            field("STDIO", json!({"command": "x", "url": "y"})),
            "config.url"
        );
        assert_eq!(
            field("HTTP", json!({"url": "http://10.0.0.1/"})),
            "config.url"
        );
        assert_eq!(
            field(
                "HTTP",
                json!({"url": "http://127.0.0.1:9/", "headers": {"Host": "x"}})
            ),
            "config.headers.Host"
        );
    }
}
