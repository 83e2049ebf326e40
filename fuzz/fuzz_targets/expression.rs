//! Coverage-guided fuzzing of `maru_fuzz::expression`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| maru_fuzz::expression(input));
