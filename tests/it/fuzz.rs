//! Random input for every reader of outside text: no panic, no long wait, and
//! what was cut anywhere reads as what was not. `FUZZ_SECONDS=120` runs each for
//! two minutes; without it each takes a moment.

use std::{
    io::{Write as _, stdout},
    sync::Arc,
    time::Duration,
};

use maru_dialect::{DialectOptions, DialectSelection, ToolSet, repair_json};
use maru_expression::compile;
use maru_protocol::{RequestParams, RpcMessage, SseEvent, SseReader, validate_json};

use maru::config::process_environment;
use tokio::time::Instant;

/// Longer than any input may take, on a busy machine and without optimisation.
const MAX_INPUT_TIME: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(3)
} else {
    Duration::from_millis(500)
};

const REQUEST_SEEDS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":[1,2.5e3,null,true,"x\u00e9\n"]},"_meta":{"progressToken":1,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"가"}}"#,
    r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"m","data":{}}}"#,
    r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"result":{}}]"#,
];
const QUERY_SEEDS: &[&str] = &[
    "SELECT name, count(*) FROM employees WHERE id = :id AND name LIKE 'a%' GROUP BY 1 ORDER BY 2 LIMIT 5",
    "WITH a AS (SELECT 1 AS x) SELECT * FROM a JOIN employees e ON e.rowid = a.x -- end",
    "VALUES (1, 'it''s', x'00', 1e5, NULL), (2, \"q\", 1, 2, 3) /* c */",
    "SELECT (SELECT max(x) FROM (SELECT 1 x UNION ALL SELECT 2)) + 1; DROP TABLE employees",
    "ATTACH 'x' AS y",
    "PRAGMA writable_schema = 1",
    "SELECT load_extension('x')",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
];
const EVENT_SEEDS: &[&str] = &[
    "event: message\nid: 1-1\ndata: {\"a\":1}\n\n",
    ": keep-alive\r\n\r\ndata: x\r\ndata: y\r\n\r\n",
    "retry: 100\nevent\ndata\n\n\u{feff}data: 가\r\r",
];

const MODEL_TEXT_SEEDS: &[&str] = &[
    "I will look.\n<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"text\": \"가\", \"n\": 1}}\n</tool_call> done",
    "<think>maybe</think>[TOOL_CALLS][{\"name\":\"echo\",\"arguments\":{'text': True,}}]",
    "<function=echo>\n<parameter=text>\nx\n</parameter>\n</function>",
    "```json\n{\"name\": \"echo\", \"parameters\": {\"text\": \"a\\nb\", // c\n}}\n``` [echo(text=\"x\", n=2)]",
    "<|python_tag|>echo.call(text='x')<|eom_id|> Action: echo\nAction Input: {text: x",
];
const EXPRESSION_SEEDS: &[&str] = &[
    "sum([x * 2 for x in range(n) if x % 3 == 0]) + len(text[::-1].upper())",
    "{k: (v, -v ** 2) for k, v in {'a': 1, 'b': 2.5}.items()}",
    "f\"{text!r:>10} {n:05d} {n / 7:.3e}\" + '%s %d' % (text, n)",
    "sorted([3, 1, 2], key=lambda x: -x)[0:2] or None if not (n < 5 <= 9) else {1, 2} & {2}",
    "'a,b'.split(',')[-1] * 3 in ['b'] and any(map(bool, [0, '']))",
];

/// A generator that needs no more than a number, so that a finding can be repeated.
struct RandomGenerator(u64);

impl RandomGenerator {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }
}

/// One of the seeds, changed in a few places.
fn mutate_seed(seeds: &[&str], chance: &mut RandomGenerator) -> Vec<u8> {
    const SPLICED_PIECES: [&str; 18] = [
        "{", "}", "[", "]", "\"", "\\", ":", ",", "\n", "\r", "\0", "\u{feff}", "\\ud800", "1e999",
        "-0", "null", "data:", "\u{202e}",
    ];
    let mut bytes = seeds[chance.below(seeds.len())].as_bytes().to_vec();
    for _ in 0..=chance.below(8) {
        let at = chance.below(bytes.len() + 1);
        match chance.below(6) {
            0 if at < bytes.len() => bytes[at] = chance.next().to_le_bytes()[0],
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            3 => {
                let other = seeds[chance.below(seeds.len())].as_bytes();
                let from = chance.below(other.len());
                bytes.splice(at..at, other[from..].iter().copied());
            }
            4 => {
                let piece = SPLICED_PIECES[chance.below(SPLICED_PIECES.len())];
                let piece = piece.repeat(1 + chance.below(200));
                bytes.splice(at..at, piece.bytes());
            }
            _ => {
                let piece = SPLICED_PIECES[chance.below(SPLICED_PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    bytes
}

/// Runs `target` on changed seeds until the time is over.
fn fuzz_for_duration(seeds: &[&str], target: impl Fn(&[u8], &mut RandomGenerator)) {
    let seconds = process_environment()
        .get("FUZZ_SECONDS")
        .and_then(|it| it.parse().ok());
    let limit = seconds.map_or(Duration::from_millis(300), Duration::from_secs);
    let began = Instant::now();
    let start = u64::from(std::process::id()) << 20 | 1;
    let mut chance = RandomGenerator(start);
    let mut count = 0_u64;
    while began.elapsed() < limit {
        let input = mutate_seed(seeds, &mut chance);
        // The machine may be busy elsewhere; an input that is slow is slow again.
        let slow = (0..3).all(|_| {
            let asked = Instant::now();
            target(&input, &mut chance);
            asked.elapsed() >= MAX_INPUT_TIME
        });
        assert!(!slow, "slow: {:?}", String::from_utf8_lossy(&input));
        count += 1;
    }
    let took = began.elapsed();
    // Without stdout there is nobody to tell.
    let _ = writeln!(stdout(), "{count} inputs in {took:?}, begun at {start}");
}

#[test]
fn json_rpc_takes_anything() {
    fuzz_for_duration(REQUEST_SEEDS, |input, _| {
        let Ok(text) = validate_json(input) else {
            return;
        };
        // What is let through is JSON for everyone else too.
        serde_json::from_str::<&serde_json::value::RawValue>(text).unwrap();
        if let Ok(RpcMessage::Request(request)) = RpcMessage::parse(text) {
            let _ = RequestParams::parse(request.params).map(|it| it.meta().is_ok());
        }
    });
}

/// Whatever is asked, the database is as it was.
#[test]
fn queries_change_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sample.db");
    maru_sources::write_sample(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let limits = maru_sources::QueryLimits {
        rows: 10,
        max_bytes: 10_000,
        timeout: Duration::from_millis(50),
        request: None,
    };
    let settings = maru_sources::SourceSettings {
        limits,
        ..maru_sources::SourceSettings::default()
    };
    let tasks = maru_runtime::tasks::Tasks::default();
    let source = maru_sources::DataSource::sqlite("sample", &path, settings, &tasks).unwrap();
    fuzz_for_duration(QUERY_SEEDS, |input, _| {
        let sql = String::from_utf8_lossy(input);
        let none = maru_sources::QueryParameters::default();
        let asked = source.query(&sql, &none, limits);
        if let Ok(rows) = runtime.block_on(asked) {
            assert!(serde_json::to_string(&rows.columns).is_ok());
        }
    });
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// What is mended is JSON.
#[test]
fn repair_takes_anything() {
    fuzz_for_duration(MODEL_TEXT_SEEDS, |input, _| {
        if let Ok((mended, _)) = repair_json(&String::from_utf8_lossy(input)) {
            // A number may be too large for some readers and is JSON all the same.
            serde_json::from_str::<&serde_json::value::RawValue>(&mended).unwrap();
        }
    });
}

/// However a model's text is cut, it says the same.
#[test]
fn dialect_reads_the_same_however_it_is_cut() {
    let schema = serde_json::json!({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}});
    let tools = Arc::new(ToolSet::new([("echo", &schema)]));
    let read = |pieces: &[&str], cut: bool| {
        let mut reader = maru_dialect::DialectParser::new(
            Arc::clone(&tools),
            DialectSelection::Auto,
            DialectOptions::default(),
        );
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece, &mut events);
        }
        reader.finish(cut, &mut events);
        let mut said = (String::new(), String::new(), Vec::new());
        for event in events {
            match event {
                maru_dialect::DialectEvent::Text(text) => said.0 += &text,
                maru_dialect::DialectEvent::Reasoning(text) => said.1 += &text,
                maru_dialect::DialectEvent::Hallucination(_) => (),
                other => said.2.push(other),
            }
        }
        said
    };
    fuzz_for_duration(MODEL_TEXT_SEEDS, |input, chance| {
        let text = String::from_utf8_lossy(input);
        let at = text.floor_char_boundary(chance.below(text.len() + 1));
        let (one, two) = text.split_at(at);
        let cut = chance.below(2) == 0;
        assert_eq!(
            read(&[&text], cut),
            read(&[one, two], cut),
            "{one:?} | {two:?}"
        );
    });
}

/// An expression ends, with a value or a fault.
#[test]
fn expressions_end() {
    let arguments = serde_json::json!({"n": 7, "text": "가나 abc"});
    let arguments = arguments.as_object().unwrap();
    fuzz_for_duration(EXPRESSION_SEEDS, |input, _| {
        let source = String::from_utf8_lossy(input);
        if let Ok(program) = compile(&source, &["n", "text"]) {
            let _ = program.run(arguments, &maru_expression::EvaluationLimits::default());
        }
    });
}

#[test]
fn events_read_the_same_however_they_are_cut() {
    fn read_events(pieces: &[&[u8]]) -> (bool, Vec<(Option<String>, String)>) {
        let (mut reader, mut events) = (SseReader::default(), Vec::<SseEvent>::new());
        let good = pieces.iter().all(|it| reader.feed(it, &mut events).is_ok());
        let kept = events.into_iter().map(|it| (it.id, it.data));
        (good, kept.collect())
    }
    fuzz_for_duration(EVENT_SEEDS, |input, chance| {
        let (one, two) = input.split_at(chance.below(input.len() + 1));
        let (two, three) = two.split_at(chance.below(two.len() + 1));
        assert_eq!(read_events(&[input]), read_events(&[one, two, three]));
    });
}
