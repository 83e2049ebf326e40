-- People with an account: they sign in with a passphrase, or at the company's issuer. Role
-- and lists are those of the token with this name, whose hash belongs to no token.
CREATE TABLE account (
    name                  TEXT   PRIMARY KEY,
    label                 TEXT,
    passphrase_hash       TEXT,
    invitation_hash       BLOB   UNIQUE,
    invitation_expires_at INTEGER,
    created_at            INTEGER NOT NULL
) WITHOUT ROWID;
-- Programs that registered themselves. The metadata is JSON.
CREATE TABLE oauth_client (
    id         TEXT   PRIMARY KEY,
    metadata   TEXT   NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;
-- What people allowed programs to do. The generation is that of the refresh token that may
-- be used next; 0 is the authorization code.
CREATE TABLE oauth_grant (
    id           TEXT   PRIMARY KEY,
    account      TEXT   NOT NULL,
    account_hash BLOB   NOT NULL,
    client_id    TEXT   NOT NULL,
    client_name  TEXT   NOT NULL,
    role         TEXT   NOT NULL,
    servers      TEXT,
    code_request TEXT   NOT NULL,
    generation   INTEGER NOT NULL,
    renewed_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX oauth_grant_client ON oauth_grant (client_id);
