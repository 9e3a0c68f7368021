//! Events as JSON, written quickly.
//!
//! A running model makes an event for each token. The derived form looks at every character of ids, which never need
//! escapes, and cost a seventh of what the engine does for a token. So pieces of text, which almost all events are, are
//! written here field by field; everything else takes the derived form. Both are the same bytes.

use serde_json::{Error, to_writer};

use super::{Event, EventBody, EventId, Provisional};
use crate::id::PartId;

/// About how long the JSON of a piece of text is, beside the text.
const AROUND: usize = 256;

impl EventId {
    /// Appends what [`Display`](std::fmt::Display) shows.
    pub fn write(self, out: &mut Vec<u8>) {
        number(out, self.seq.0);
        if self.provisional > 0 {
            out.push(b'.');
            number(out, self.provisional);
        }
    }
}

impl Event {
    /// Appends the event as one line of JSON, without a line break.
    ///
    /// # Errors
    /// Never for what the engine makes: it is plain data, whose keys are all strings.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        match &self.body {
            EventBody::Provisional(Provisional::PartDelta { part, offset, text }) => {
                self.write_piece(out, r#","type":"part.delta","data":{"part":""#, *part, *offset, text)
            }
            EventBody::Provisional(Provisional::CallOutput { call, offset, text }) => {
                self.write_piece(out, r#","type":"call.output","data":{"call":""#, *call, *offset, text)
            }
            _ => to_writer(out, self),
        }
    }

    fn write_piece(
        &self,
        out: &mut Vec<u8>,
        between: &str,
        of: PartId,
        offset: u64,
        text: &str,
    ) -> Result<(), Error> {
        out.reserve(AROUND + text.len());
        out.extend_from_slice(br#"{"id":""#);
        self.id.write(out);
        out.extend_from_slice(br#"","generation":"#);
        number(out, self.generation);
        out.extend_from_slice(br#","session":""#);
        out.extend_from_slice(self.session.as_bytes());
        out.extend_from_slice(br#"","at":"#);
        number(out, self.at.as_millis());
        out.extend_from_slice(between.as_bytes());
        out.extend_from_slice(of.as_bytes());
        out.extend_from_slice(br#"","offset":"#);
        number(out, offset);
        out.extend_from_slice(br#","text":"#);
        to_writer(&mut *out, text)?;
        out.extend_from_slice(b"}}");
        Ok(())
    }
}

/// Appends a number.
fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::SessionId;
    use crate::record::Seq;
    use crate::time::Timestamp;

    proptest! {
        #[test]
        fn what_is_written_quickly_is_what_serde_writes(
            text in ".*",
            numbers in proptest::array::uniform5(prop_oneof![0..200_u64, any::<u64>()]),
            is_output: bool,
        ) {
            let [seq, provisional, generation, at, offset] = numbers;
            let part = PartId::parse("prt_00000000000012345678901234").unwrap();
            let body = match is_output {
                true => Provisional::CallOutput { call: part, offset, text },
                false => Provisional::PartDelta { part, offset, text },
            };
            let event = Event {
                id: EventId { seq: Seq(seq), provisional },
                generation,
                session: SessionId::parse("ses_00000000000012345678901234").unwrap(),
                at: Timestamp::from_millis(at),
                body: EventBody::Provisional(body),
            };
            let mut written = Vec::new();
            event.id.write(&mut written);
            prop_assert_eq!(std::str::from_utf8(&written).unwrap(), event.id.to_string());
            written.clear();
            event.write_json(&mut written).unwrap();
            prop_assert_eq!(std::str::from_utf8(&written).unwrap(), serde_json::to_string(&event).unwrap());
        }
    }

    #[test]
    fn everything_else_has_the_derived_form() {
        let event = Event {
            id: EventId { seq: Seq(4), provisional: 1 },
            generation: 2,
            session: SessionId::parse("ses_00000000000012345678901234").unwrap(),
            at: Timestamp::from_millis(3),
            body: EventBody::Provisional(Provisional::Resync { after: Seq(4) }),
        };
        let mut written = Vec::new();
        event.write_json(&mut written).unwrap();
        assert_eq!(written, serde_json::to_vec(&event).unwrap());
    }
}
