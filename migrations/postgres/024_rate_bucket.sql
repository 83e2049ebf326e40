-- What is left of the calls per minute of users and tools, for all hubs that share these
-- tables. A bucket that is lost is full again, so it is not logged.
CREATE UNLOGGED TABLE rate_bucket (
    target_type TEXT NOT NULL,
    target_id TEXT NOT NULL,
    available DOUBLE PRECISION NOT NULL,
    refilled_at BIGINT NOT NULL,
    PRIMARY KEY (target_type, target_id)
);
-- Takes up to `wanted` calls. If there is none, the result is negative: the milliseconds
-- until there is one.
CREATE FUNCTION maru_take_calls(kind TEXT, target TEXT, per_minute BIGINT, wanted BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    bucket rate_bucket%ROWTYPE;
    now_ms BIGINT;
    granted BIGINT;
BEGIN
    INSERT INTO rate_bucket VALUES
        (kind, target, per_minute, (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT)
        ON CONFLICT DO NOTHING;
    SELECT * INTO bucket FROM rate_bucket
        WHERE target_type = kind AND target_id = target FOR UPDATE;
    now_ms := (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT;
    bucket.available := least(per_minute,
        bucket.available + greatest(now_ms - bucket.refilled_at, 0) * per_minute / 60000.0);
    granted := least(wanted, floor(bucket.available)::BIGINT);
    UPDATE rate_bucket SET available = bucket.available - granted, refilled_at = now_ms
        WHERE target_type = kind AND target_id = target;
    IF granted > 0 THEN
        RETURN granted;
    END IF;
    RETURN -ceil((1 - bucket.available) * 60000.0 / per_minute)::BIGINT - 1;
END
$$;
