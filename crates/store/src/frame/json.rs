//! The JSON of records: read without trust.

use playhouse_protocol::Record;
use playhouse_protocol::json::{is_shallow, parse, parse_shallow};
use serde::Deserialize;

use super::FrameError;

/// The newest version that this engine reads of each kind of record.
const KINDS: [(&str, u16); 28] = [
    ("session.created", 1),
    ("session.changed", 1),
    ("session.forked", 1),
    ("prompt.admitted", 1),
    ("turn.started", 1),
    ("system.settled", 1),
    ("tools.settled", 1),
    ("attempt.started", 1),
    ("attempt.ended", 1),
    ("step.finished", 1),
    ("call.proposed", 1),
    ("consent.asked", 1),
    ("consent.settled", 1),
    ("question.asked", 1),
    ("question.settled", 1),
    ("todos.changed", 1),
    ("artifact.captured", 1),
    ("workspace.changed", 1),
    ("call.intended", 1),
    ("call.offered", 1),
    ("call.answered", 1),
    ("call.settled", 1),
    ("context.cleared", 1),
    ("context.compacted", 1),
    ("turn.ended", 1),
    ("turn.summarized", 1),
    ("session.reverted", 1),
    ("session.deleted", 1),
];

/// The record of this version that the JSON is of.
pub(super) fn read_record(version: u16, json: &str) -> Result<Record, FrameError> {
    if !is_shallow(json.as_bytes()) {
        return Err(FrameError::Depth);
    }
    // All kinds are at version 1: the kind is needed first only for another version, or when reading fails.
    let error = if version == 1 {
        match playhouse_protocol::json::read_record(json) {
            Ok(record) => return Ok(record),
            Err(error) => FrameError::Json(error.to_string()),
        }
    } else {
        FrameError::Json("it names no kind".to_owned())
    };
    let Ok(Kind { kind }) = parse_shallow::<Kind>(json) else { return Err(error) };
    Err(match KINDS.iter().find(|(known, _)| *known == kind) {
        None => FrameError::Kind { kind, version },
        Some((_, known)) if version == 0 || version > *known => {
            FrameError::RecordVersion { kind, found: version, known: *known }
        }
        Some(_) => error,
    })
}

/// The tenant that the record says with which a log begins, where this is the JSON of one.
pub(super) fn tenant_of_first(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct First {
        data: Tenant,
    }
    #[derive(Deserialize)]
    struct Tenant {
        tenant: String,
    }
    let Kind { kind } = parse(json).ok()?;
    if kind != "session.created" && kind != "session.forked" {
        return None;
    }
    Some(parse::<First>(json).ok()?.data.tenant)
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_record_has_a_version() {
        let error = parse::<Record>(r#"{"type":"?"}"#).unwrap_err().to_string();
        let (_, expected) = error.split_once("expected one of ").expect("serde lists the kinds");
        let kinds: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        assert_eq!(kinds, KINDS.map(|(kind, _)| kind));
    }
}
