-- The tools that a client is limited to, as `server.tool` in JSON.
ALTER TABLE oauth_grant ADD COLUMN tools TEXT;
