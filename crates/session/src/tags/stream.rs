//! The stream of tags that a session's events make, from any place on.
//!
//! A place is a record of the log and how much of the text of the step under way the reader has. So whoever comes back in
//! the middle of an answer is given what is missing of it, whether it streams still or is in the log by now.

use std::fmt;
use std::str::FromStr;

use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::id::PartId;
use playhouse_protocol::record::StepPart;
use playhouse_protocol::{Entry, Event, EventBody, Record, Seq};

use super::Tags;

/// A place in the stream of tags: `17` behind record 17, `17+40` behind it and 40 bytes of the answer under way then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagPlace {
    /// The last record of which everything was given.
    pub seq: Seq,
    /// Bytes of the text of the step under way that were given.
    pub text: u64,
}

impl fmt::Display for TagPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text {
            0 => write!(f, "{}", self.seq),
            text => write!(f, "{}+{text}", self.seq),
        }
    }
}

impl FromStr for TagPlace {
    type Err = String;

    fn from_str(written: &str) -> Result<Self, String> {
        let (seq, text) = written.split_once('+').unwrap_or((written, "0"));
        match (u64::from_str(seq), FromStr::from_str(text)) {
            (Ok(seq), Ok(text)) => Ok(Self { seq: Seq(seq), text }),
            _ => {
                let shown: String = written.chars().take(64).collect();
                let shown = shown.escape_debug();
                Err(format!(
                    "\"{shown}\" is no place in a stream of tags: it is a number, or two with a plus between"
                ))
            }
        }
    }
}

/// Makes the stream of a session's events.
#[derive(Debug, Default)]
pub struct TagStream {
    tags: Tags,
    seq: Seq,
    /// Text parts of the step under way, in the order in which they began, with the bytes that came of each.
    parts: Vec<(PartId, usize)>,
    /// Bytes of the step's text that the reader has from before and that did not come yet.
    known: u64,
}

impl TagStream {
    /// Begins at `place`. `before`: the log up to there; its calls have to be known for the tags of their ends.
    pub fn new(place: TagPlace, before: &[Entry]) -> Self {
        let mut stream = Self::default();
        for entry in before.iter().take_while(|entry| entry.seq <= place.seq) {
            let _ = stream.record(&entry.record);
        }
        Self { tags: stream.tags, seq: place.seq, parts: Vec::new(), known: place.text }
    }

    /// Up to where everything was given.
    pub fn place(&self) -> TagPlace {
        TagPlace { seq: self.seq, text: self.came() + self.known }
    }

    /// Bytes of the step's text that came.
    fn came(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| *bytes as u64).sum()
    }

    /// What follows in the stream with this event; mostly nothing.
    pub fn take(&mut self, event: &Event) -> String {
        match &event.body {
            EventBody::Durable(record) => {
                self.seq = self.seq.max(event.id.seq);
                self.record(record)
            }
            EventBody::Provisional(piece) => self.piece(piece).to_owned(),
        }
    }

    fn piece<'a>(&mut self, piece: &'a Provisional) -> &'a str {
        let (part, offset, text) = match piece {
            Provisional::PartStarted { part, kind: OpenPartKind::Text, .. } => (*part, 0, ""),
            Provisional::PartSnapshot { part, kind: OpenPartKind::Text, text, .. } => {
                (*part, 0, text.as_str())
            }
            Provisional::PartDelta { part, offset, text } => {
                // Others than those of text were not announced here.
                if !self.parts.iter().any(|(known, _)| known == part) {
                    return "";
                }
                (*part, usize::try_from(*offset).unwrap_or(usize::MAX), text.as_str())
            }
            _ => return "",
        };
        let index = match self.parts.iter().position(|(known, _)| *known == part) {
            Some(index) => index,
            None => {
                self.parts.push((part, 0));
                self.parts.len() - 1
            }
        };
        let came = &mut self.parts[index].1;
        // A piece that comes twice, or a snapshot of what came already.
        let rest = text.get(came.saturating_sub(offset)..).unwrap_or_default();
        *came += rest.len();
        self.unknown(rest)
    }

    /// What the reader does not have of the text that comes next.
    fn unknown<'a>(&mut self, text: &'a str) -> &'a str {
        let known = usize::try_from(self.known).unwrap_or(usize::MAX).min(text.len());
        // A place that nobody was given may lie within a character.
        let known = (known..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        self.known = self.known.saturating_sub(known as u64);
        &text[known..]
    }

    fn record(&mut self, record: &Record) -> String {
        let tag = match record {
            Record::StepFinished(finished) => {
                let texts = finished.parts.iter().filter_map(|part| match part {
                    StepPart::Text { text, .. } => Some(text.as_str()),
                    _ => None,
                });
                let text: String = texts.collect();
                let came = usize::try_from(self.came()).unwrap_or(usize::MAX);
                let mut rest = self.unknown(text.get(came..).unwrap_or_default()).to_owned();
                if !text.is_empty() && !text.ends_with('\n') {
                    rest.push('\n');
                }
                self.begin();
                return rest;
            }
            // What an attempt wrote that failed cannot be taken back. The next one begins on a line of its own.
            // A prompt that was withdrawn while it waited wrote nothing.
            Record::TurnEnded(ended) if ended.steps == 0 => None,
            // Nobody sees what one writes that is for a title or a summary.
            Record::AttemptStarted(started) if started.purpose.is_aside() => None,
            Record::AttemptStarted(_) | Record::TurnEnded(_) => {
                let wrote = self.place().text > 0;
                self.begin();
                return if wrote { "\n".to_owned() } else { String::new() };
            }
            Record::CallProposed(proposed) => {
                self.tags.proposed(proposed);
                None
            }
            Record::CallIntended(intended) => self.tags.running(intended.call),
            Record::CallSettled { call, result } => self.tags.settled(*call, result),
            _ => None,
        };
        tag.map(|tag| format!("{tag}\n")).unwrap_or_default()
    }

    /// No text of the next step came yet.
    fn begin(&mut self) {
        self.parts.clear();
        self.known = 0;
    }
}

#[cfg(test)]
mod tests;
