-- What maru is signed in with at servers. The data is JSON, sealed where secrets are. A
-- hub that refreshes a token writes its lease first, so that others wait for the result.
CREATE TABLE server_credential (
    server_id  TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    data       TEXT    NOT NULL,
    version    BIGINT  NOT NULL,
    lease      TEXT    NOT NULL,
    updated_at BIGINT  NOT NULL,
    PRIMARY KEY (server_id, subject)
);
-- Sign-ins in progress, by the hash of their state.
CREATE TABLE server_sign_in (
    state_hash TEXT    PRIMARY KEY,
    data       TEXT    NOT NULL,
    expires_at BIGINT  NOT NULL
);
