//! Coverage-guided fuzzing of `maru_fuzz::repair`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| maru_fuzz::repair(input));
