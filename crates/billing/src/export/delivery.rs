//! The state machine of a sink: what is sent next, what follows from the answer, and what is saved.
//!
//! Inputs come one at a time, and the last effect of each answer to [`Delivery::on`] names what the next input is about: a
//! batch to be sent, entries to be read, or a wait. The effects before it (letters to be buried, a cursor to be saved) are
//! to be carried out first, in their order.
//!
//! - What a server cannot take now is sent again without end, with growing waits, or after what it asks for.
//! - A batch that it refuses is halved until the entry that it does not want is alone; that one is buried, and the rest
//!   goes on.
//! - Where it would refuse anything (a wrong key or address) nothing is buried; it is asked again slowly.

use std::collections::VecDeque;

use playhouse_protocol::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Cursor, Entry, Item, Place, Verdict};

/// The rules of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most entries of a batch; at least 1.
    pub rows: usize,
    /// The most bytes of a batch. An entry that is larger goes alone.
    pub bytes: usize,
    /// Entries go in requests of their own, and a batch is what is under way at once.
    pub each: bool,
    /// How long a batch that is not full waits for more, in milliseconds.
    pub linger_ms: u64,
    /// The first wait after a failure, in milliseconds; the next ones are twice as long each.
    pub first_wait_ms: u64,
    /// The longest of them.
    pub longest_wait_ms: u64,
    /// The wait where the key or the address is wrong, in milliseconds.
    pub slow_wait_ms: u64,
    /// The longest wait that a server may ask for, in milliseconds.
    pub longest_told_wait_ms: u64,
    /// A cursor is saved at the latest after so many batches; always when there is nothing left to send.
    pub batches_per_save: u32,
    /// When so many entries were refused with none accepted between them, the sink is taken to be misconfigured instead of
    /// burying everything.
    pub refused_in_a_row: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rows: 500,
            bytes: 1_000_000,
            each: false,
            linger_ms: 250,
            first_wait_ms: 500,
            longest_wait_ms: 60_000,
            slow_wait_ms: 60_000,
            longest_told_wait_ms: 3_600_000,
            batches_per_save: 16,
            refused_in_a_row: 1_000,
        }
    }
}

/// The moment of an input.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Wall-clock time, for what is stored.
    pub at: Timestamp,
    /// From 0 to 1: spreads waits.
    pub random: f64,
}

/// What a server answered to a batch, or to one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has it.
    Accepted,
    /// It cannot now, or there was no answer.
    Busy {
        /// Why, for people.
        reason: String,
        /// The wait that it asks for, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// It does not want it.
    Refused {
        /// The status.
        status: u16,
        /// Why, for people.
        reason: String,
    },
    /// It would refuse anything.
    Misconfigured {
        /// Why, for people.
        reason: String,
    },
}

impl Answer {
    /// The answer that a server gave with a status.
    pub fn of(verdict: Verdict, status: u16, reason: String, retry_after_ms: Option<u64>) -> Self {
        match verdict {
            Verdict::Accepted => Self::Accepted,
            Verdict::Busy => Self::Busy { reason, retry_after_ms },
            Verdict::Refused => Self::Refused { status, reason },
            Verdict::Misconfigured => Self::Misconfigured { reason },
        }
    }
}

/// What became of what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Of all of it together.
    All(Answer),
    /// Of each entry, in the order in which [`Delivery::batch`] gave them.
    Each(Vec<Answer>),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The sink begins. Once, and first.
    Started,
    /// Entries were read from the feed.
    Read {
        /// What this sink makes of them.
        items: Vec<Item>,
        /// What may be saved when these and all before them are settled.
        cursor: Cursor,
        /// Whether there may be more to read now.
        more: bool,
    },
    /// What was sent was answered.
    Answered(Answers),
    /// The wait is over, or (after [`Effect::Idle`]) there is more in the feed.
    Waited,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep this as a dead letter.
    Bury(Box<DeadLetter>),
    /// Save this.
    Save(Cursor),
    /// Read at most so many entries of the feed, and come back with [`Input::Read`].
    Read(usize),
    /// Send [`Delivery::batch`], and come back with [`Input::Answered`].
    Send,
    /// Come back with [`Input::Waited`] after so many milliseconds.
    Wait(u64),
    /// Everything is delivered: come back with [`Input::Waited`] when there is more.
    Idle,
}

/// An entry that a server does not want.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Where it comes from.
    #[serde(flatten)]
    pub place: Place,
    /// Its id, by which the receiver would know it.
    pub id: String,
    /// The status with which it was refused.
    pub status: u16,
    /// Why, in the words of the server.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// What it is.
    pub entry: Entry,
}

/// Why nothing gets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whether it is the configuration that is wrong, which only people can change.
    pub misconfigured: bool,
    /// Why, for people.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// How often it was tried.
    pub tries: u32,
    /// Whether the server asked for the wait that follows.
    pub asked: bool,
}

/// See the page of this module.
#[derive(Clone, Debug)]
pub struct Delivery {
    policy: Policy,
    /// What was read and is not settled, in the order of the feed; with those that are settled out of order.
    queue: VecDeque<Queued>,
    /// What may be saved when the queue is empty.
    read: Cursor,
    /// What may be saved now.
    done: Cursor,
    saved: Cursor,
    unsaved: u32,
    /// Sizes of the pieces of a batch that was refused, the next one last.
    pieces: Vec<usize>,
    /// Entries under way.
    sent: usize,
    /// Bytes that a server takes at once, as far as it told.
    bytes: usize,
    /// There may be more to read.
    more: bool,
    /// The batch waited for more already.
    gathered: bool,
    /// Refused one after the other.
    refused: u32,
    trouble: Option<Trouble>,
}

#[derive(Clone, Debug)]
struct Queued {
    item: Item,
    settled: bool,
}

impl Delivery {
    /// A sink that goes on after `cursor`.
    pub fn new(policy: Policy, cursor: Cursor) -> Self {
        let policy = Policy { rows: policy.rows.max(1), ..policy };
        Self {
            bytes: policy.bytes,
            policy,
            queue: VecDeque::new(),
            read: cursor,
            done: cursor,
            saved: cursor,
            unsaved: 0,
            pieces: Vec::new(),
            sent: 0,
            more: true,
            gathered: false,
            refused: 0,
            trouble: None,
        }
    }

    /// What may be taken as delivered or buried.
    pub fn done(&self) -> Cursor {
        self.done
    }

    /// The time of the first entry that waits to be delivered.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.queue.iter().find(|queued| !queued.settled).map(|queued| queued.item.entry.at())
    }

    /// Why nothing gets through, if nothing does.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// What is under way, after [`Effect::Send`].
    pub fn batch(&self) -> Vec<&Item> {
        let sent = self.queue.iter().take(self.sent);
        sent.filter(|queued| !queued.settled).map(|queued| &queued.item).collect()
    }

    /// What follows from `input`.
    pub fn on(&mut self, input: Input, stamp: Stamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        let wait = match input {
            Input::Started => None,
            Input::Read { items, cursor, more } => {
                self.queue.extend(items.into_iter().map(|item| Queued { item, settled: false }));
                self.read = cursor;
                self.more = more;
                None
            }
            Input::Waited => {
                self.more = true;
                None
            }
            Input::Answered(Answers::All(answer)) => self.answered(answer, stamp, &mut effects),
            Input::Answered(Answers::Each(answers)) => self.answered_each(answers, stamp, &mut effects),
        };
        self.sent = 0;
        if self.queue.is_empty() {
            self.done = self.read;
        }
        let next = match wait {
            Some(wait) => Effect::Wait(wait),
            None => self.next(),
        };
        // What is settled is saved before anything that may take long.
        let pauses = matches!(next, Effect::Wait(_) | Effect::Idle);
        let buries = effects.iter().any(|effect| matches!(effect, Effect::Bury(_)));
        let is_due = pauses || buries || self.unsaved >= self.policy.batches_per_save;
        if is_due && self.done != self.saved {
            self.saved = self.done;
            self.unsaved = 0;
            effects.push(Effect::Save(self.done));
        }
        effects.push(next);
        effects
    }

    fn next(&mut self) -> Effect {
        if let Some(piece) = self.pieces.last() {
            self.sent = *piece;
            return Effect::Send;
        }
        let (batch, is_full) = self.full_batch();
        if is_full || batch > 0 && !self.more && (self.gathered || self.policy.linger_ms == 0) {
            self.gathered = false;
            self.sent = batch;
            return Effect::Send;
        }
        if self.more {
            let missing = self.policy.rows.saturating_sub(self.queue.len());
            return Effect::Read(if self.policy.each { FEW_READS } else { missing.max(1) });
        }
        if batch == 0 {
            return Effect::Idle;
        }
        self.gathered = true;
        Effect::Wait(self.policy.linger_ms)
    }

    /// How many entries from the front of the queue make a batch, and whether no more fit in.
    fn full_batch(&self) -> (usize, bool) {
        let mut bytes = 0;
        for (index, queued) in self.queue.iter().enumerate() {
            bytes += queued.item.encoded.len();
            if index > 0 && bytes > self.bytes || index == self.policy.rows {
                return (index, true);
            }
        }
        let length = self.queue.len();
        (length, length >= self.policy.rows || length > 0 && bytes >= self.bytes)
    }

    fn answered(&mut self, answer: Answer, stamp: Stamp, effects: &mut Vec<Effect>) -> Option<u64> {
        let sent = self.sent;
        match answer {
            Answer::Accepted => {
                self.accepted();
                self.settle(sent);
                None
            }
            Answer::Refused { status, .. } if sent > 1 => {
                self.pieces.pop();
                self.pieces.extend([sent - sent / 2, sent / 2]);
                if status == TOO_LARGE {
                    let size: usize = self.batch().iter().map(|item| item.encoded.len()).sum();
                    self.bytes = self.bytes.min(size / 2);
                }
                None
            }
            Answer::Refused { status, reason } => {
                let buried = self.bury(0, status, &reason, stamp);
                match buried {
                    Ok(letter) => {
                        effects.push(letter);
                        self.settle(1);
                        None
                    }
                    Err(reason) => Some(self.failed(true, reason, None, stamp)),
                }
            }
            Answer::Busy { reason, retry_after_ms } => {
                Some(self.failed(false, reason, retry_after_ms, stamp))
            }
            Answer::Misconfigured { reason } => Some(self.failed(true, reason, None, stamp)),
        }
    }

    fn answered_each(
        &mut self,
        answers: Vec<Answer>,
        stamp: Stamp,
        effects: &mut Vec<Effect>,
    ) -> Option<u64> {
        let open: Vec<usize> =
            (0..self.sent.min(self.queue.len())).filter(|at| !self.queue[*at].settled).collect();
        let mut failure: Option<(bool, String, Option<u64>)> = None;
        let mut any_accepted = false;
        for (index, answer) in open.into_iter().zip(answers) {
            let failed = match answer {
                Answer::Accepted => {
                    any_accepted = true;
                    self.queue[index].settled = true;
                    self.refused = 0;
                    continue;
                }
                Answer::Refused { status, reason } => match self.bury(index, status, &reason, stamp) {
                    Ok(letter) => {
                        effects.push(letter);
                        self.queue[index].settled = true;
                        continue;
                    }
                    Err(reason) => (true, reason, None),
                },
                Answer::Busy { reason, retry_after_ms } => (false, reason, retry_after_ms),
                Answer::Misconfigured { reason } => (true, reason, None),
            };
            let told = failed.2.max(failure.as_ref().and_then(|(_, _, told)| *told));
            let misconfigured = failed.0 || failure.as_ref().is_some_and(|(is, _, _)| *is);
            failure = Some((misconfigured, failed.1, told));
        }
        if any_accepted {
            self.accepted();
        }
        let settled = self.queue.iter().take_while(|queued| queued.settled).count();
        self.settle(settled);
        let (misconfigured, reason, told) = failure?;
        Some(self.failed(misconfigured, reason, told, stamp))
    }

    /// Takes the first `count` entries, which are settled, out of the queue.
    fn settle(&mut self, count: usize) {
        self.pieces.pop();
        if let Some(last) = self.queue.drain(..count.min(self.queue.len())).next_back() {
            self.done = last.item.cursor;
            self.unsaved += 1;
        }
    }

    fn accepted(&mut self) {
        self.refused = 0;
        self.trouble = None;
    }

    /// The letter for the entry at `index`; instead of it the reason why none is buried any more.
    fn bury(&mut self, index: usize, status: u16, reason: &str, stamp: Stamp) -> Result<Effect, String> {
        if self.refused >= self.policy.refused_in_a_row {
            return Err(format!(
                "{} entries one after the other were refused, so the configuration is taken to be wrong and no more are \
                 given up; the last refusal: {reason}",
                self.refused
            ));
        }
        let Some(Queued { item, .. }) = self.queue.get(index) else {
            return Err("the answer to something that was not sent".to_owned());
        };
        self.refused += 1;
        self.trouble = None;
        Ok(Effect::Bury(Box::new(DeadLetter {
            place: item.place,
            id: item.entry.id().to_owned(),
            status,
            reason: reason.to_owned(),
            at: stamp.at,
            entry: item.entry.clone(),
        })))
    }

    /// Remembers a failure, and says how long to wait, in milliseconds.
    fn failed(&mut self, misconfigured: bool, reason: String, told: Option<u64>, stamp: Stamp) -> u64 {
        let (since, tries) = self.trouble.as_ref().map_or((stamp.at, 0), |old| (old.since, old.tries));
        let policy = &self.policy;
        let whole = if misconfigured {
            policy.slow_wait_ms
        } else {
            let doubled = policy.first_wait_ms.saturating_mul(1 << tries.min(32));
            doubled.min(policy.longest_wait_ms)
        };
        // Between a half and the whole of it, so that sinks that failed together do not come back together.
        let spread = whole / 2 + (whole.div_ceil(2) as f64 * stamp.random.clamp(0.0, 1.0)) as u64;
        let told = told.unwrap_or(0).min(policy.longest_told_wait_ms);
        let asked = told > spread;
        self.trouble = Some(Trouble { misconfigured, reason, since, tries: tries.saturating_add(1), asked });
        spread.max(told)
    }
}

/// The status of a request that is too large.
const TOO_LARGE: u16 = 413;
/// How many entries of the feed are read at once where few of them make something that is sent.
const FEW_READS: usize = 1_000;

#[cfg(test)]
mod tests;
