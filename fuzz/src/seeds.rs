//! Inputs to start from.

/// JSON-RPC messages.
pub const JSON_RPC: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1,2.5e3,null,true,"x\u00e9\n"]},"_meta":{"progressToken":1,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"가"}}"#,
    r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"m","data":{}}}"#,
    r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"result":{}}]"#,
];

/// SQL queries, and statements that are none.
pub const SQL: &[&str] = &[
    "SELECT name, count(*) FROM employees WHERE id = :id AND name LIKE 'a%' GROUP BY 1 ORDER BY 2 LIMIT 5",
    "WITH a AS (SELECT 1 AS x) SELECT * FROM a JOIN employees e ON e.rowid = a.x -- end",
    "VALUES (1, 'it''s', x'00', 1e5, NULL), (2, \"q\", 1, 2, 3) /* c */",
    "SELECT (SELECT max(x) FROM (SELECT 1 x UNION ALL SELECT 2)) + 1; DROP TABLE employees",
    "ATTACH 'x' AS y",
    "PRAGMA writable_schema = 1",
    "SELECT load_extension('x')",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
];

/// Server-sent events.
pub const SSE: &[&str] = &[
    "event: message\nid: 1-1\ndata: {\"a\":1}\n\n",
    ": keep-alive\r\n\r\ndata: x\r\ndata: y\r\n\r\n",
    "retry: 100\nevent\ndata\n\n\u{feff}data: 가\r\r",
];

/// Answers of models with calls in several dialects.
pub const MODEL_TEXT: &[&str] = &[
    "I will look.\n<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"text\": \"가\", \"n\": 1}}\n</tool_call> done",
    "<think>maybe</think>[TOOL_CALLS][{\"name\":\"echo\",\"arguments\":{'text': True,}}]",
    "<function=echo>\n<parameter=text>\nx\n</parameter>\n</function>",
    "```json\n{\"name\": \"echo\", \"parameters\": {\"text\": \"a\\nb\", // c\n}}\n``` [echo(text=\"x\", n=2)]",
    "<|python_tag|>echo.call(text='x')<|eom_id|> Action: echo\nAction Input: {text: x",
];

/// Expressions of custom tools.
pub const EXPRESSION: &[&str] = &[
    "sum([x * 2 for x in range(n) if x % 3 == 0]) + len(text[::-1].upper())",
    "{k: (v, -v ** 2) for k, v in {'a': 1, 'b': 2.5}.items()}",
    "f\"{text!r:>10} {n:05d} {n / 7:.3e}\" + '%s %d' % (text, n)",
    "sorted([3, 1, 2], key=lambda x: -x)[0:2] or None if not (n < 5 <= 9) else {1, 2} & {2}",
    "'a,b'.split(',')[-1] * 3 in ['b'] and any(map(bool, [0, '']))",
];
