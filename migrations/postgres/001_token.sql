-- Who may do what. Only the SHA-256 of a token is kept.
CREATE TABLE token (
    name       TEXT PRIMARY KEY,
    role       TEXT NOT NULL CHECK (role IN ('reader', 'agent', 'admin')),
    hash       BYTEA NOT NULL UNIQUE,
    created_at TIMESTAMP NOT NULL
);
