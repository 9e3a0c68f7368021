//! Reading JSON of records and events: deeper than serde_json's own limit, and no deeper than a stack bears.

use serde::Deserialize;
use serde::de::Error as _;

use crate::{LedgerRow, Record, SessionSummary};

/// The deepest nesting of a record's JSON. A model may nest arguments 127 deep, and the record puts more around them;
/// the bound keeps a reader's stack safe.
pub const MAX_DEPTH: usize = 256;

/// Reads JSON that is nested at most [`MAX_DEPTH`] deep.
///
/// # Errors
/// The JSON is nested deeper, is malformed, or does not describe a `T`.
pub fn parse<T: for<'de> Deserialize<'de>>(json: &str) -> serde_json::Result<T> {
    if !is_shallow(json.as_bytes()) {
        return Err(serde_json::Error::custom(format!("more than {MAX_DEPTH} values within each other")));
    }
    parse_shallow(json)
}

/// Reads JSON without a check of its depth: the caller has called [`is_shallow`].
///
/// # Errors
/// The JSON is malformed, or does not describe a `T`.
pub fn parse_shallow<T: for<'de> Deserialize<'de>>(json: &str) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_str(json);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads a record. As with [`parse_shallow`], the caller must have called [`is_shallow`].
///
/// This function is not generic, so the code that reads records is compiled once and not in each crate that reads them.
///
/// # Errors
/// The JSON is malformed, or is of no record.
pub fn read_record(json: &str) -> serde_json::Result<Record> {
    parse_shallow(json)
}

/// Reads a session's summary as [`parse`] does, for the same reason.
///
/// # Errors
/// The JSON is nested too deep, is malformed, or is of no summary.
pub fn read_summary(json: &str) -> serde_json::Result<SessionSummary> {
    parse(json)
}

/// Reads a row of the ledger as [`parse`] does, for the same reason.
///
/// # Errors
/// The JSON is nested too deep, is malformed, or is of no row.
pub fn read_row(json: &str) -> serde_json::Result<LedgerRow> {
    parse(json)
}

/// The bit in which the two kinds of brackets differ.
const DIFFERENCE: u8 = b'[' ^ b'{';

/// Whether arrays and objects are nested at most [`MAX_DEPTH`] deep. Brackets in strings do not count.
pub fn is_shallow(json: &[u8]) -> bool {
    // Nearly all have so few brackets, strings included, that it does not matter where they stand; and counting takes far
    // less time than looking where that is, most of all in numbers as small as what is counted.
    let few = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(byte | DIFFERENCE == b'{')).sum::<u8>();
    let open = json.chunks(u8::MAX.into()).map(|bytes| usize::from(few(bytes))).sum::<usize>();
    open <= MAX_DEPTH || nests_shallow(json)
}

fn nests_shallow(json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        let text = serde_json::to_vec(&format!("\\\"{}", "[".repeat(1_000))).unwrap();
        assert!(is_shallow(&text));
    }

    #[test]
    fn what_is_nested_deeper_than_records_may_be_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse::<Value>(&nested(MAX_DEPTH)).is_ok());
        let error = parse::<Value>(&nested(MAX_DEPTH + 1)).unwrap_err().to_string();
        assert_eq!(error, "more than 256 values within each other");
    }
}
