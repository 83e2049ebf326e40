//! Coverage-guided fuzzing of `maru_fuzz::sse`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| maru_fuzz::sse(input));
