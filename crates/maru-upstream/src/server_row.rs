//! Converts between registered servers and rows of the store.

use maru_protocol::ProtocolVersion;
use maru_store::{ServerRow, is_sealed};

use super::{
    server::{InvalidField, RegisteredServer, ServerName, ServerOrigin, invalid_field},
    transport::Transport,
    trust::TrustPolicy,
};

/// Converts a server to a row.
pub(super) fn server_to_row(server: &RegisteredServer) -> ServerRow {
    ServerRow {
        id: server.id.clone(),
        name: server.name.to_string(),
        description: server.description.clone(),
        transport_type: server.transport.kind().to_owned(),
        config: server.transport.config_with_secrets().to_string(),
        version: server.version.clone(),
        auto_connect: server.auto_connect,
        enabled: server.enabled,
        origin: server.origin.as_str().to_owned(),
        trust: server.trust.as_str().to_owned(),
        protocol_version: server.required_version.map(|it| it.as_str().to_owned()),
        created_at: server.created_at,
        updated_at: server.updated_at,
    }
}

/// Converts a row to a server; its rules were checked at registration.
pub(super) fn server_from_row(row: ServerRow) -> Result<RegisteredServer, InvalidField> {
    if is_sealed(&row.config) {
        let reason = "is sealed with another key than that of seal_key_file";
        return Err(invalid_field("config", reason));
    }
    let config = serde_json::from_str(&row.config).unwrap_or_default();
    Ok(RegisteredServer {
        id: row.id,
        name: ServerName::parse(&row.name)?,
        description: row.description,
        transport: Transport::parse(&row.transport_type, &config, None)?,
        version: row.version,
        auto_connect: row.auto_connect,
        enabled: row.enabled,
        origin: ServerOrigin::parse(&row.origin),
        trust: TrustPolicy::parse(&row.trust).unwrap_or_default(),
        required_version: row
            .protocol_version
            .as_deref()
            .and_then(ProtocolVersion::parse),
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
