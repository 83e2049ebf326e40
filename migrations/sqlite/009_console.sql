-- Tools that a person switched off.
CREATE TABLE tool_off (
    server VARCHAR(100) NOT NULL,
    tool   VARCHAR(300) NOT NULL,
    PRIMARY KEY (server, tool)
);
-- Browsers that are signed in to the console, each for a token.
CREATE TABLE console_session (
    hash       BLOB   PRIMARY KEY,
    token_hash BLOB   NOT NULL,
    expires_at BIGINT NOT NULL
);
