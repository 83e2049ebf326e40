-- Messages between the hubs that share these tables. They live for seconds and are worth
-- nothing after a crash of the database, so they are not logged. Notes, which every hub
-- may read, have the recipient '*'.
CREATE UNLOGGED TABLE hub_envelope (
    id BIGSERIAL PRIMARY KEY,
    recipient TEXT NOT NULL,
    sender TEXT NOT NULL,
    exchange TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX hub_envelope_recipient ON hub_envelope (recipient, id);
CREATE INDEX hub_envelope_note ON hub_envelope (exchange) WHERE recipient = '*';
-- The hubs that are running.
CREATE UNLOGGED TABLE hub_member (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    seen_at BIGINT NOT NULL
);
CREATE FUNCTION maru_notify_recipient() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.recipient <> '*' THEN
        PERFORM pg_notify('maru_hub_' || NEW.recipient, 'hub_envelope');
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER notify_recipient AFTER INSERT ON hub_envelope
    FOR EACH ROW EXECUTE FUNCTION maru_notify_recipient();
