CREATE TABLE h_user (
    uid     INTEGER PRIMARY KEY,
    user_nm TEXT NOT NULL UNIQUE,
    dept    TEXT NOT NULL
);
CREATE TABLE h_mcp_tool_limit (
    id          INTEGER PRIMARY KEY,
    target_type TEXT NOT NULL CHECK (target_type IN ('USER', 'TOOL')),
    target_id   INTEGER NOT NULL,
    max_count   INTEGER NOT NULL
);

INSERT INTO h_user (uid, user_nm, dept) VALUES
    (1, 'hong', 'Engineering'), (2, 'kim', 'HR'), (3, '이영희', 'Finance');
INSERT INTO h_mcp_tool_limit (target_type, target_id, max_count) VALUES
    ('USER', 1, 50), ('USER', 2, 100), ('USER', 3, 150), ('TOOL', 1, 1000);
