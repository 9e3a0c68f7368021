//! What is done when a request would not fit: which outputs are cleared, and what is left out.
//!
//! Everything is counted in bytes of conversation. Afterwards at most half of the room is used, so that it does not come
//! back with every step: a quarter for the messages at the end that stay, a quarter for what stands for the others.

use playhouse_protocol::MessageId;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::{CallPart, CallState, Message, Part};
use playhouse_protocol::record::{ContextCleared, ShortenedOutput};

use super::{LINE_BYTES, Shown, standing, texts};
use crate::fold::Session;

/// What the texts around a summary, a mark and the beginnings of two prompts have at most.
const MARK_BYTES: u64 = 1_200;
/// An output that has no more than this stays: clearing it frees nothing to speak of.
const SMALL_OUTPUT: u64 = LINE_BYTES + 100;
/// Messages of fewer bytes than this are not summarized by hand: what stands for them would not be shorter.
const LEAST_SUMMARIZED: u64 = 800;
/// What stands beside a summary has no more than this.
const MOST_STANDING: u64 = 6_000;
/// A beginning of a prompt that would be shorter than this is not shown.
const LEAST_EXCERPT: u64 = 200;
/// Turns at the end that stay as they are, where they fit.
const KEPT_TURNS: usize = 2;

/// The room that a request has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes of conversation, at most.
    pub(crate) most: u64,
    /// Bytes of prompts that wait and that the request will have at its end.
    pub(crate) pending: u64,
}

impl Room {
    /// How much of it is used afterwards.
    const fn goal(&self) -> u64 {
        self.most / 2
    }

    /// How much of it the messages have that stay at the end.
    fn for_tail(&self) -> u64 {
        (self.goal() / 2).saturating_sub(self.pending)
    }
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Outputs make room.
    Clear(ContextCleared),
    /// What stands before this message is left out: something shorter stands for it.
    LeaveOut {
        /// The place of the message.
        from: usize,
    },
    /// What must be in the request has so many bytes, and does not fit.
    TooLong {
        /// The bytes.
        needed: u64,
    },
}

/// What makes room in `session`. `may_clear` tells whether clearing outputs is of any use.
pub(crate) fn plan(session: &Session, room: &Room, may_clear: bool) -> Plan {
    let history = History::new(session);
    let tail = history.tail(room);
    if may_clear && let Some(cleared) = history.clear(tail, room) {
        return Plan::Clear(cleared);
    }
    let needed = if tail < history.end { history.least() } else { 0 } + room.pending + MARK_BYTES;
    if needed > room.most {
        return Plan::TooLong { needed };
    }
    Plan::LeaveOut { from: history.aligned(tail) }
}

/// From where on messages stay when somebody asks for a summary; `None` when nothing would be left out.
pub(crate) fn plan_by_hand(session: &Session, room: &Room) -> Option<usize> {
    let history = History::new(session);
    let most = (session.conversation_bytes / 4).min(room.most);
    let tail = history.aligned(history.tail(&Room { most, pending: 0 }));
    let is_begin = |place: &usize| session.messages.get(*place).is_some_and(is_turn);
    let from = Some(tail).filter(is_begin).unwrap_or(history.end);
    let left_out = session.messages.get(history.start..from).unwrap_or_default();
    let bytes = left_out.iter().map(|message| session.context.bytes_of(message)).sum::<u64>();
    (bytes >= LEAST_SUMMARIZED).then_some(from)
}

/// What stands for messages that are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Outputs at the end that are too large to stay whole.
    pub(crate) cleared: Option<ContextCleared>,
    pub(crate) text: String,
    pub(crate) first: Option<MessageId>,
    pub(crate) prompt: Option<MessageId>,
    pub(crate) kept_from: Option<MessageId>,
    /// Bytes of the conversation afterwards.
    pub(crate) bytes: u64,
}

/// Writes what stands for the messages before `from`: a summary, or without one the first prompt and a mark.
pub(crate) fn write(session: &Session, room: &Room, from: usize, summary: Option<&str>) -> Written {
    let history = History::new(session);
    let kept = session.messages.get(from..).unwrap_or_default();
    let kept_bytes = kept.iter().map(|message| session.context.bytes_of(message)).sum::<u64>();
    let (shortened, saved) = match history.last.filter(|last| *last >= from) {
        Some(last) => {
            let others = kept_bytes - session.context.bytes_of(&session.messages[last]);
            history.shorten(room.for_tail().saturating_sub(others))
        }
        None => (Vec::new(), 0),
    };
    let tail = kept_bytes - saved + room.pending;
    let space = (room.goal() / 2).min(room.most.saturating_sub(tail + MARK_BYTES));
    // The prompt of the turn under way, which is what the model works on.
    let turn = session.turn.as_ref().map(|turn| turn.id);
    let before = session.messages.get(..from).unwrap_or_default();
    let prompt = before.iter().rev().find(|message| Some(message.id()) == turn);
    let first = before.iter().find(|message| is_turn(message)).filter(|_| summary.is_none());
    let standing = standing::standing(session, before, (space / 4).min(MOST_STANDING));
    let space = space.saturating_sub(standing.as_ref().map_or(0, String::len) as u64);
    let prompt = prompt.filter(|prompt| first.is_none_or(|first| first.id() != prompt.id()));
    let share = if first.is_some() && prompt.is_some() || summary.is_some() && prompt.is_some() {
        space / 2
    } else {
        space
    };
    let first = first.map(|first| Kept::new(session, first, share));
    let prompt = prompt.map(|prompt| Kept::new(session, prompt, share));
    let of = |kept: &Option<Kept>| kept.as_ref().map_or(0, |kept| kept.bytes);
    let main = match summary {
        Some(summary) => texts::summary(texts::cut(summary.trim(), space.saturating_sub(of(&prompt)))),
        None => {
            texts::left_out(before.iter().filter(|message| session.context.bytes_of(message) > 0).count())
        }
    };
    let excerpt = |kept: &Option<Kept>| kept.as_ref().and_then(|kept| kept.excerpt.clone());
    let pieces: Vec<String> =
        [excerpt(&first), Some(main), standing, excerpt(&prompt)].into_iter().flatten().collect();
    let text = pieces.join("\n\n");
    let whole = |kept: &Option<Kept>| kept.as_ref().and_then(|kept| kept.whole);
    let whole_bytes =
        |kept: &Option<Kept>| kept.as_ref().filter(|kept| kept.whole.is_some()).map_or(0, |kept| kept.bytes);
    Written {
        cleared: (!shortened.is_empty()).then(|| ContextCleared { shortened, ..ContextCleared::default() }),
        bytes: tail - room.pending + text.len() as u64 + whole_bytes(&first) + whole_bytes(&prompt),
        first: whole(&first),
        prompt: whole(&prompt),
        kept_from: kept.first().map(Message::id),
        text,
    }
}

/// A prompt that stays: whole, or its beginning.
struct Kept {
    whole: Option<MessageId>,
    excerpt: Option<String>,
    bytes: u64,
}

impl Kept {
    fn new(session: &Session, message: &Message, most: u64) -> Self {
        let bytes = session.context.bytes_of(message);
        if bytes <= most {
            return Self { whole: Some(message.id()), excerpt: None, bytes };
        }
        let parts: &[Part] = match message {
            Message::User(message) => &message.parts,
            Message::Assistant(_) => &[],
        };
        let said = parts.iter().filter_map(Part::told).find(|text| !text.trim().is_empty());
        let text = said.map(|text| texts::cut(text.trim(), most));
        let text = text.filter(|_| most >= LEAST_EXCERPT);
        let bytes = text.map_or(0, str::len) as u64;
        Self { whole: None, excerpt: text.map(texts::excerpt), bytes }
    }
}

/// Whether a message is a prompt that began a turn.
fn is_turn(message: &Message) -> bool {
    matches!(message, Message::User(message) if message.kind.is_turn() && !message.withdrawn)
}

fn results(message: &Message) -> impl Iterator<Item = &CallPart> {
    let parts: &[Part] = match message {
        Message::Assistant(message) if message.finish.is_some() => &message.parts,
        _ => &[],
    };
    parts.iter().filter_map(|part| match part {
        Part::Call(call) => Some(call),
        _ => None,
    })
}

/// The messages of a history that models read one by one.
struct History<'a> {
    session: &'a Session,
    /// The first of them.
    start: usize,
    /// Behind the last of them.
    end: usize,
    /// The last one that adds to a request.
    last: Option<usize>,
}

impl<'a> History<'a> {
    fn new(session: &'a Session) -> Self {
        let end = session.messages.len();
        let start = session.context.begins_at().min(end);
        let adds = |place: &usize| session.context.bytes_of(&session.messages[*place]) > 0;
        Self { session, start, end, last: (start..end).rev().find(adds) }
    }

    fn bytes(&self, place: usize) -> u64 {
        self.session.context.bytes_of(&self.session.messages[place])
    }

    /// Where the messages begin that stay: those of the last two turns, as far as they fit, and the last one always, unless
    /// prompts come behind it and it has no room.
    fn tail(&self, room: &Room) -> usize {
        let Some(last) = self.last else { return self.end };
        let allowance = room.for_tail();
        if room.pending > 0 && self.least() > allowance {
            return self.end;
        }
        let (mut from, mut turns) = (last, 0);
        let mut sum = 0;
        for place in (self.start..=last).rev() {
            let bytes = self.bytes(place);
            if place != last && sum + bytes > allowance {
                break;
            }
            sum += bytes.min(allowance);
            from = place;
            turns += usize::from(is_turn(&self.session.messages[place]));
            if turns == KEPT_TURNS {
                break;
            }
        }
        from
    }

    /// The same, but from the beginning of a turn on, where one lies behind it.
    fn aligned(&self, tail: usize) -> usize {
        let prompts = (tail..self.end).find(|place| is_turn(&self.session.messages[*place]));
        prompts.unwrap_or(tail)
    }

    /// The outputs that are cleared, oldest first: all that do not stay, so that it does not come back soon. `None` when the
    /// goal is not reached by it.
    fn clear(&self, tail: usize, room: &Room) -> Option<ContextCleared> {
        let total = self.session.conversation_bytes + room.pending;
        // One that does not stay is cleared with the others.
        let stays = self.last.is_some_and(|last| last >= tail);
        let (shortened, mut saved) = if stays { self.shorten(room.for_tail()) } else { (Vec::new(), 0) };
        let needed = total.saturating_sub(room.goal());
        let mut calls = Vec::new();
        for message in self.session.messages.get(self.start..tail).unwrap_or_default() {
            for (call, bytes) in self.shown(message) {
                if bytes > SMALL_OUTPUT {
                    saved += bytes - LINE_BYTES;
                    calls.push(call);
                }
            }
        }
        let frees = saved >= needed && !(calls.is_empty() && shortened.is_empty());
        frees.then_some(ContextCleared { calls, shortened, files: Vec::new() })
    }

    /// The results of a message, and how many bytes of each are read.
    fn shown(&self, message: &'a Message) -> impl Iterator<Item = (PartId, u64)> {
        let context = &self.session.context;
        results(message).filter_map(|call| match &call.state {
            CallState::Settled(result) if context.shown(call.id) != Shown::Line => {
                Some((call.id, context.result_bytes(call.id, result)))
            }
            _ => None,
        })
    }

    /// The outputs of the last message as bytes of text.
    fn last_outputs(&self) -> Vec<(PartId, u64)> {
        let context = &self.session.context;
        let Some(message) = self.last.map(|last| &self.session.messages[last]) else { return Vec::new() };
        let outputs = results(message).filter_map(|call| match &call.state {
            CallState::Settled(result) => {
                let whole = result.output.len() as u64;
                Some((
                    call.id,
                    match context.shown(call.id) {
                        Shown::Whole => whole,
                        Shown::Beginning(bytes) => whole.min(bytes + LINE_BYTES),
                        Shown::Line => whole.min(LINE_BYTES),
                    },
                ))
            }
            _ => None,
        });
        outputs.collect()
    }

    /// Bytes of the last message when its outputs are as short as they can be.
    fn least(&self) -> u64 {
        let Some(last) = self.last else { return 0 };
        let outputs = self.last_outputs();
        let spared: u64 = outputs.iter().map(|(_, bytes)| bytes.saturating_sub(LINE_BYTES)).sum();
        self.bytes(last).saturating_sub(spared)
    }

    /// Which outputs of the last message are shortened so that it has no more than so many bytes, as far as that can be; the
    /// longest ones first. And how many bytes that saves.
    fn shorten(&self, allowance: u64) -> (Vec<ShortenedOutput>, u64) {
        let Some(last) = self.last else { return (Vec::new(), 0) };
        let bytes = self.bytes(last);
        if bytes <= allowance {
            return (Vec::new(), 0);
        }
        let outputs = self.last_outputs();
        let all: u64 = outputs.iter().map(|(_, bytes)| bytes).sum();
        let level = level(&outputs, allowance.saturating_sub(bytes.saturating_sub(all))).max(LINE_BYTES);
        let longer = outputs.iter().filter(|(_, bytes)| *bytes > level);
        let saved = longer.clone().map(|(_, bytes)| bytes - level).sum();
        let shortened = longer.map(|(call, _)| ShortenedOutput { call: *call, bytes: level - LINE_BYTES });
        (shortened.collect(), saved)
    }
}

/// The length to which outputs are shortened so that they have so many bytes in all, at most.
fn level(outputs: &[(PartId, u64)], room: u64) -> u64 {
    let mut lengths: Vec<u64> = outputs.iter().map(|(_, bytes)| *bytes).collect();
    lengths.sort_unstable();
    let mut room = room;
    for (index, length) in lengths.iter().enumerate() {
        let share = room / (lengths.len() - index) as u64;
        if *length > share {
            return share;
        }
        room -= length;
    }
    u64::MAX
}
