-- What requests to models used: one row for each day (since 1970), caller, model and
-- backend. Cost is in billionths of the currency.
CREATE TABLE model_usage (
    day              BIGINT  NOT NULL,
    caller           TEXT    NOT NULL,
    model            TEXT    NOT NULL,
    backend          TEXT    NOT NULL,
    requests         BIGINT  NOT NULL,
    errors           BIGINT  NOT NULL,
    estimated        BIGINT  NOT NULL,
    input_tokens     BIGINT  NOT NULL,
    cached_tokens    BIGINT  NOT NULL,
    output_tokens    BIGINT  NOT NULL,
    reasoning_tokens BIGINT  NOT NULL,
    responses        BIGINT  NOT NULL,
    first_token_ms   BIGINT  NOT NULL,
    duration_ms      BIGINT  NOT NULL,
    cost             BIGINT  NOT NULL,
    PRIMARY KEY (day, caller, model, backend)
);
-- The last batch of usage that each running hub has written: one that is sent again after
-- an error is not counted twice.
CREATE TABLE model_usage_batch (
    writer TEXT    NOT NULL,
    number BIGINT  NOT NULL,
    at     BIGINT  NOT NULL,
    PRIMARY KEY (writer, number)
);
-- Budgets that were made while the hub runs. An absent caller or model is any.
CREATE TABLE model_budget (
    name    TEXT PRIMARY KEY,
    caller  TEXT,
    model   TEXT,
    period  TEXT    NOT NULL CHECK (period IN ('day', 'month')),
    unit    TEXT    NOT NULL CHECK (unit IN ('tokens', 'money')),
    maximum BIGINT  NOT NULL
);
