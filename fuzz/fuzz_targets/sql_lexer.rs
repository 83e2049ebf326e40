//! Coverage-guided fuzzing of `maru_fuzz::sql_lexer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| maru_fuzz::sql_lexer(input));
