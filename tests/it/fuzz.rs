//! Random input for every parser of outside text, through the checks that cargo-fuzz runs
//! too. `FUZZ_SECONDS=120` runs each for two minutes; without it each takes a moment.

use std::{
    io::{Write as _, stdout},
    time::Duration,
};

use maru::config::process_environment;
use maru_fuzz::seeds;
use tokio::time::Instant;

/// Longer than any input may take, on a busy machine and without optimisation.
const MAX_INPUT_TIME: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(3)
} else {
    Duration::from_millis(500)
};

/// A xorshift generator: its seed is printed, so that a finding can be repeated.
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

/// Takes one of the seeds and changes it in a few places.
fn mutate_seed(seeds: &[&str], random: &mut RandomGenerator) -> Vec<u8> {
    const SPLICED_PIECES: [&str; 18] = [
        "{", "}", "[", "]", "\"", "\\", ":", ",", "\n", "\r", "\0", "\u{feff}", "\\ud800", "1e999",
        "-0", "null", "data:", "\u{202e}",
    ];
    let mut bytes = seeds[random.below(seeds.len())].as_bytes().to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = random.next().to_le_bytes()[0],
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            3 => {
                let other = seeds[random.below(seeds.len())].as_bytes();
                let from = random.below(other.len());
                bytes.splice(at..at, other[from..].iter().copied());
            }
            4 => {
                let piece = SPLICED_PIECES[random.below(SPLICED_PIECES.len())];
                let piece = piece.repeat(1 + random.below(200));
                bytes.splice(at..at, piece.bytes());
            }
            _ => {
                let piece = SPLICED_PIECES[random.below(SPLICED_PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    bytes
}

/// Runs `check` on mutated seeds until the time is over.
fn fuzz(seeds: &[&str], check: impl Fn(&[u8])) {
    let seconds = process_environment()
        .get("FUZZ_SECONDS")
        .and_then(|it| it.parse().ok());
    let limit = seconds.map_or(Duration::from_millis(300), Duration::from_secs);
    let began = Instant::now();
    let start = u64::from(std::process::id()) << 20 | 1;
    let mut random = RandomGenerator(start);
    let mut count = 0_u64;
    while began.elapsed() < limit {
        let mut input = mutate_seed(seeds, &mut random);
        if random.below(2) == 0 {
            // Some checks read the position of a cut from the first two bytes.
            input.splice(0..0, random.next().to_le_bytes()[..2].iter().copied());
        }
        // The machine may be busy elsewhere; an input that is slow is slow again.
        let is_slow = (0..3).all(|_| {
            let began = Instant::now();
            check(&input);
            began.elapsed() >= MAX_INPUT_TIME
        });
        assert!(!is_slow, "slow: {:?}", String::from_utf8_lossy(&input));
        count += 1;
    }
    let took = began.elapsed();
    // Without stdout there is nobody to tell.
    let _ = writeln!(stdout(), "{count} inputs in {took:?}, begun at {start}");
}

#[test]
fn json_rpc_takes_any_input() {
    fuzz(seeds::JSON_RPC, maru_fuzz::json_rpc);
}

#[test]
fn events_do_not_depend_on_chunks() {
    fuzz(seeds::SSE, maru_fuzz::sse);
}

#[test]
fn calls_do_not_depend_on_chunks() {
    fuzz(seeds::MODEL_TEXT, maru_fuzz::dialect);
}

#[test]
fn repaired_json_is_json() {
    fuzz(seeds::MODEL_TEXT, maru_fuzz::repair);
}

#[test]
fn expressions_end() {
    fuzz(seeds::EXPRESSION, maru_fuzz::expression);
}

#[test]
fn sql_lexer_takes_any_input() {
    fuzz(seeds::SQL, maru_fuzz::sql_lexer);
}

/// No query changes the database.
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
        ..maru_sources::QueryLimits::default()
    };
    let settings = maru_sources::SourceSettings {
        limits,
        ..maru_sources::SourceSettings::default()
    };
    let tasks = maru_runtime::tasks::Tasks::default();
    let source = maru_sources::DataSource::sqlite("sample", &path, settings, &tasks).unwrap();
    fuzz(seeds::SQL, |input| {
        let sql = String::from_utf8_lossy(input);
        let parameters = maru_sources::QueryParameters::default();
        if let Ok(rows) = runtime.block_on(source.query(&sql, &parameters, limits)) {
            assert!(serde_json::to_string(&rows.columns).is_ok());
        }
    });
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
