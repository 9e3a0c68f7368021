//! From the pieces of an answer to the events that subscribers get of it.
//!
//! To tell a piece costs more than to read it: a lock, an event, and for each subscriber a write to a socket, which its client
//! has to read. While few answers come, each piece is told as soon as it is there. While hundreds come, pieces that follow soon
//! after an event are held until the next piece, so that an event carries two or three of them. What begins or ends a part, and
//! the end of the answer, are told at once, with all that was held before them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use playhouse_llm::{AnswerStream, StreamEvent};
use playhouse_protocol::ErrorInfo;
use playhouse_protocol::event::OpenPartKind;
use playhouse_protocol::id::{AttemptId, MessageId, PartId};
use serde_json::Value;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::base::Ids;
use crate::events::ring::{Ring, Writer};

/// While no more answers than these come for each thread that carries them, nothing is held.
const UNHURRIED: usize = 25;
/// What each answer beyond those adds to the time from an event to the next, on one thread.
const EACH: Duration = Duration::from_micros(200);
/// The longest such time. Models say 20 to 100 tokens a second.
const LONGEST: Duration = Duration::from_millis(30);
/// What is held and followed by nothing is told after so many of these times.
const STALLED: u32 = 2;
/// What comes in pieces of so many bytes is not held: there are few of them.
const LARGE: usize = 1024;

/// Counts the answers that come just now.
#[derive(Clone, Debug)]
pub(crate) struct Pace(Arc<Answers>);

#[derive(Debug)]
struct Answers {
    coming: AtomicUsize,
    /// How many threads carry them.
    carriers: usize,
}

/// One of them, until this is dropped.
struct Coming(Pace);

impl Pace {
    /// Of answers that so many threads carry.
    pub(crate) fn new(carriers: usize) -> Self {
        Self(Arc::new(Answers { coming: AtomicUsize::new(0), carriers: carriers.max(1) }))
    }

    fn begin(&self) -> Coming {
        self.0.coming.fetch_add(1, Ordering::Relaxed);
        Coming(self.clone())
    }
}

impl Coming {
    /// How long after an event of an answer pieces of it are held.
    fn between(&self) -> Duration {
        let Answers { coming, carriers } = &*self.0.0;
        let beyond = coming.load(Ordering::Relaxed).saturating_sub(UNHURRIED * carriers);
        let beyond = u32::try_from(beyond).unwrap_or(u32::MAX);
        (EACH.saturating_mul(beyond) / u32::try_from(*carriers).unwrap_or(u32::MAX)).min(LONGEST)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.0.coming.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads an answer, and tells what it brings. What is held is told when this is dropped.
pub(crate) struct Telling<'a> {
    ring: &'a Ring,
    assembly: Assembly<'a>,
    opaque: &'a mut HashMap<PartId, Value>,
    coming: Coming,
    /// Not told yet.
    held: Vec<StreamEvent>,
    /// When pieces were told last.
    told: Option<Instant>,
    /// Rings when what is held was not followed by more. Made when it is first needed.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<'a> Telling<'a> {
    pub(crate) fn new(
        (step, attempt): (MessageId, AttemptId),
        ids: &'a Ids,
        ring: &'a Ring,
        pace: &Pace,
        opaque: &'a mut HashMap<PartId, Value>,
    ) -> Self {
        let assembly = Assembly { step, attempt, ids, current: None, calls: Vec::new() };
        Self { ring, assembly, opaque, coming: pace.begin(), held: Vec::new(), told: None, stalled: None }
    }

    /// Whether anything was told.
    pub(crate) fn has_begun(&self) -> bool {
        self.told.is_some()
    }

    /// Waits for more of the answer, and tells it or holds it. Returns whether more may come.
    ///
    /// # Errors
    /// As [`AnswerStream::next`] has them; what came before is told.
    pub(crate) async fn read(&mut self, stream: &mut AnswerStream) -> Result<bool, ErrorInfo> {
        let before = self.held.len();
        let next = stream.next(&mut self.held);
        let more = match self.stalled.as_mut().filter(|_| before > 0) {
            None => next.await,
            Some(stalled) => tokio::select! {
                biased;
                more = next => more,
                () = stalled.as_mut() => {
                    self.tell();
                    return Ok(true);
                }
            },
        };
        let is_held = matches!(more, Ok(true)) && self.may_be_held(before);
        join(&mut self.held, before);
        if !is_held {
            self.tell();
        } else if before == 0 && !self.held.is_empty() {
            self.wait_for_more();
        }
        more
    }

    /// Whether what came behind the first `before` can wait for what follows.
    fn may_be_held(&self, before: usize) -> bool {
        let Some(told) = self.told else { return false };
        let is_small = |event: &StreamEvent| match event {
            StreamEvent::Text(text) | StreamEvent::Reasoning(text) => text.len() < LARGE,
            StreamEvent::CallArguments { text, .. } => text.len() < LARGE,
            _ => false,
        };
        let between = self.coming.between();
        !between.is_zero() && self.held[before..].iter().all(is_small) && told.elapsed() < between
    }

    /// Has what is held told if nothing follows. A timer that runs is put off, which costs less than to set one.
    fn wait_for_more(&mut self) {
        let until = Instant::now() + LONGEST * STALLED;
        match &mut self.stalled {
            Some(stalled) => stalled.as_mut().reset(until),
            None => self.stalled = Some(Box::pin(sleep_until(until))),
        }
    }

    fn tell(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let Self { ring, assembly, held, opaque, .. } = self;
        ring.write(|writer| assembly.tell(held, writer, opaque));
        self.told = Some(Instant::now());
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Puts the first of what comes behind the first `before` into the last of those, where it is more of the same text.
fn join(events: &mut Vec<StreamEvent>, before: usize) {
    let (held, new) = events.split_at_mut(before);
    let is_joined = match (held.last_mut(), new.first()) {
        (Some(StreamEvent::Text(text)), Some(StreamEvent::Text(more)))
        | (Some(StreamEvent::Reasoning(text)), Some(StreamEvent::Reasoning(more))) => {
            text.push_str(more);
            true
        }
        (
            Some(StreamEvent::CallArguments { call, text }),
            Some(StreamEvent::CallArguments { call: of, text: more }),
        ) if call == of => {
            text.push_str(more);
            true
        }
        _ => false,
    };
    if is_joined {
        events.remove(before);
    }
}

/// Turns the pieces of an answer into parts.
struct Assembly<'a> {
    step: MessageId,
    attempt: AttemptId,
    ids: &'a Ids,
    /// The text or reasoning part under way.
    current: Option<(PartId, Piece)>,
    /// The calls by number.
    calls: Vec<PartId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Text,
    Reasoning,
}

impl Assembly<'_> {
    fn tell(
        &mut self,
        events: &mut Vec<StreamEvent>,
        writer: &mut Writer<'_>,
        opaque: &mut HashMap<PartId, Value>,
    ) {
        for event in events.drain(..) {
            match event {
                StreamEvent::Text(text) => {
                    let part = self.part(Piece::Text, writer);
                    writer.delta(part, text);
                }
                StreamEvent::Reasoning(text) => {
                    let part = self.part(Piece::Reasoning, writer);
                    writer.delta(part, text);
                }
                StreamEvent::ReasoningOpaque(value) => {
                    let part = self.part(Piece::Reasoning, writer);
                    opaque.insert(part, value);
                }
                StreamEvent::TextOpaque(members) => {
                    opaque.extend(self.current.map(|(part, _)| (part, members)));
                }
                StreamEvent::CallOpaque { call, members } => {
                    opaque.extend(self.calls.get(call).map(|part| (*part, members)));
                }
                StreamEvent::CallStart { id, name } => {
                    self.current = None;
                    let part = self.ids.next();
                    let kind = OpenPartKind::Call { call_id: id, tool: name };
                    writer.begin(self.step, self.attempt, part, kind);
                    self.calls.push(part);
                }
                StreamEvent::CallArguments { call, text } => {
                    if let Some(part) = self.calls.get(call) {
                        writer.delta(*part, text);
                    }
                }
                StreamEvent::PartEnd => self.current = None,
            }
        }
    }

    fn part(&mut self, piece: Piece, writer: &mut Writer<'_>) -> PartId {
        if let Some((part, current)) = self.current
            && current == piece
        {
            return part;
        }
        let part = self.ids.next();
        let kind = match piece {
            Piece::Text => OpenPartKind::Text,
            Piece::Reasoning => OpenPartKind::Reasoning,
        };
        writer.begin(self.step, self.attempt, part, kind);
        self.current = Some((part, piece));
        part
    }
}

#[cfg(test)]
mod tests;
