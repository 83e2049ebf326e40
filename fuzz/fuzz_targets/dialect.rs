//! Coverage-guided fuzzing of `maru_fuzz::dialect`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| maru_fuzz::dialect(input));
