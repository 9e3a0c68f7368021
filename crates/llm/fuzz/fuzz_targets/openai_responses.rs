//! Arbitrary bytes in arbitrary splits, for the decoder of `openai-responses`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use playhouse_llm::DialectKind;
use playhouse_llm_fuzz::check;

fuzz_target!(|input: &[u8]| check(DialectKind::OpenaiResponses, input));
