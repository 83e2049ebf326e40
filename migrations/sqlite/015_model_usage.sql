-- What requests to models used: one row for each day (since 1970), caller, model and
-- backend. Cost is in billionths of the currency.
CREATE TABLE model_usage (
    day              INTEGER NOT NULL,
    caller           TEXT    NOT NULL,
    model            TEXT    NOT NULL,
    backend          TEXT    NOT NULL,
    requests         INTEGER NOT NULL,
    errors           INTEGER NOT NULL,
    estimated        INTEGER NOT NULL,
    input_tokens     INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL,
    output_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    responses        INTEGER NOT NULL,
    first_token_ms   INTEGER NOT NULL,
    duration_ms      INTEGER NOT NULL,
    cost             INTEGER NOT NULL,
    PRIMARY KEY (day, caller, model, backend)
) WITHOUT ROWID;
-- The last batch of usage that each running hub has written: one that is sent again after
-- an error is not counted twice.
CREATE TABLE model_usage_batch (
    writer TEXT    NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (writer, number)
) WITHOUT ROWID;
-- Budgets that were made while the hub runs. An absent caller or model is any.
CREATE TABLE model_budget (
    name    TEXT PRIMARY KEY,
    caller  TEXT,
    model   TEXT,
    period  TEXT    NOT NULL CHECK (period IN ('day', 'month')),
    unit    TEXT    NOT NULL CHECK (unit IN ('tokens', 'money')),
    maximum INTEGER NOT NULL
) WITHOUT ROWID;
