-- People with an account: they sign in with a passphrase, or at the company's issuer. Role
-- and lists are those of the token with this name, whose hash belongs to no token.
CREATE TABLE account (
    name                  TEXT   PRIMARY KEY,
    label                 TEXT,
    passphrase_hash       TEXT,
    invitation_hash       BYTEA  UNIQUE,
    invitation_expires_at BIGINT,
    created_at            BIGINT NOT NULL
);
-- Programs that registered themselves. The metadata is JSON.
CREATE TABLE oauth_client (
    id         TEXT   PRIMARY KEY,
    metadata   TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);
-- What people allowed programs to do. The generation is that of the refresh token that may
-- be used next; 0 is the authorization code.
CREATE TABLE oauth_grant (
    id           TEXT   PRIMARY KEY,
    account      TEXT   NOT NULL,
    account_hash BYTEA  NOT NULL,
    client_id    TEXT   NOT NULL,
    client_name  TEXT   NOT NULL,
    role         TEXT   NOT NULL,
    servers      TEXT,
    code_request TEXT   NOT NULL,
    generation   BIGINT NOT NULL,
    renewed_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    created_at   BIGINT NOT NULL
);
CREATE INDEX oauth_grant_client ON oauth_grant (client_id);
-- Renewals change only what no other hub remembers.
CREATE TRIGGER notify_change AFTER INSERT OR DELETE OR UPDATE OF role, servers ON oauth_grant
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
