//! Coverage-guided fuzzing of `maru_fuzz::json_rpc`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| maru_fuzz::json_rpc(input));
