-- What a token is good for, as JSON arrays of names: absent means everything,
-- an empty list nothing. And when it ends.
ALTER TABLE token ADD COLUMN servers TEXT;
ALTER TABLE token ADD COLUMN tools TEXT;
ALTER TABLE token ADD COLUMN expires_at TIMESTAMP;
