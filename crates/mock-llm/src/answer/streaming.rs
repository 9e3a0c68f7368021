//! Answers that stream.

use std::io::Write;

use bytes::Bytes;
use playhouse_protocol::Tokens;
use tokio::time::Instant;

use super::{Body, Next, Said, Say, deliver, stall};
use crate::fault::{Cut, Defect, Fault, Moment};
use crate::framing::Framing;
use crate::journal::{Outcome, Record};
use crate::pace::Pace;
use crate::plan::Plan;
use crate::tokens::Source;
use crate::wire::{About, Counts, Encode, Frame, PartKind, Wire};

/// What an error event says when the script does not.
const ERROR_TEXT: &str = "the script breaks the answer off here";

/// How far an answer is.
enum Stage {
    /// Nothing was said.
    Start,
    /// Between parts.
    Between,
    /// In a part.
    Inside(Source),
    /// All is said, or the fault has struck.
    End,
}

/// A stream under way.
struct Streaming {
    encoder: Box<dyn Encode>,
    parts: std::vec::IntoIter<(PartKind, Source)>,
    /// The part under way.
    part: PartKind,
    stage: Stage,
    /// What was said, as far as it is counted by part.
    said: Tokens,
    /// Finish, usage and fault; the parts are taken out.
    plan: Plan,
    input: Tokens,
    pace: Pace,
    frame: Frame,
    /// When the fault strikes, unless that is counted in events; absent once it has.
    moment: Option<Moment>,
    defect: Option<Defect>,
    /// Events that come later than they should.
    late: Option<Frame>,
    /// Whether the part under way had an event that begins it.
    is_announced: bool,
    /// Whether the fault has ended it.
    is_cut: bool,
}

/// What comes next of a stream.
pub(crate) enum Step {
    /// What is in the frame is to be sent. `is_last` promises that nothing follows it.
    Ready { is_last: bool },
    /// Nothing before this.
    Wait(Instant),
    /// The fault strikes.
    Strike,
    /// Nothing.
    Over,
}

/// A stream at a pace, without a fault, carried as it is: whoever carries it may say when it goes on.
pub(crate) struct Paced {
    streaming: Streaming,
    record: Record,
}

impl Paced {
    /// Goes on as far as it goes now. What is ready stays so until it is taken.
    pub(crate) fn step(&mut self) -> Step {
        self.streaming.step()
    }

    /// Takes what is ready. It counts as handed over.
    pub(crate) fn take(&mut self, is_last: bool) -> Bytes {
        let (bytes, counts) = self.streaming.frame.take();
        self.count(counts, is_last);
        bytes
    }

    /// The same as a chunk of HTTP/1.1 in place of what is in `out`.
    pub(crate) fn take_chunk(&mut self, out: &mut Vec<u8>) {
        out.clear();
        let counts = self.streaming.frame.take_with(|bytes| {
            // Writing to a vector does not fail.
            let _ = write!(out, "{:X}\r\n", bytes.len());
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        });
        self.count(counts, false);
    }

    fn count(&mut self, counts: Counts, is_last: bool) {
        self.record.sent(counts);
        if is_last {
            self.record.outcome(Outcome::Complete);
        }
    }

    /// The same as a body.
    pub(crate) fn into_body(self) -> Body {
        deliver(self.streaming, Framing::default(), true, self.record)
    }
}

/// An answer that streams.
pub(crate) fn streamed(wire: &dyn Wire, about: About, mut plan: Plan, record: Record) -> Said {
    let moment = plan.fault.as_ref().and_then(Fault::moment);
    let pass = match moment {
        Some(Moment::Events(events)) => Some(events),
        _ => None,
    };
    let framing = plan.framing;
    let is_paced = plan.rate.is_some() && plan.fault.is_none() && framing.is_plain();
    let streaming = Streaming {
        input: about.input,
        encoder: wire.stream(about),
        parts: std::mem::take(&mut plan.parts).into_iter(),
        part: PartKind::Text,
        stage: Stage::Start,
        said: Tokens::default(),
        pace: Pace::new(plan.rate),
        frame: Frame::new(pass),
        moment: moment.filter(|_| pass.is_none()),
        defect: plan.fault.as_ref().and_then(Fault::defect),
        late: None,
        is_announced: false,
        plan,
        is_cut: false,
    };
    match is_paced {
        true => Said::Paced(Box::new(Paced { streaming, record })),
        false => Said::Body(deliver(streaming, framing, true, record)),
    }
}

impl Say for Streaming {
    async fn next(&mut self) -> Next {
        loop {
            match self.step() {
                Step::Ready { is_last } => {
                    let (bytes, counts) = self.frame.take();
                    return Next::Send { bytes, counts, is_last };
                }
                Step::Wait(due) => tokio::time::sleep_until(due).await,
                Step::Strike => {
                    if self.strike().await {
                        return Next::Break;
                    }
                }
                Step::Over => {
                    return Next::Over(if self.is_cut { Outcome::Cut } else { Outcome::Complete });
                }
            }
        }
    }
}

impl Streaming {
    /// Goes on as far as it goes now.
    fn step(&mut self) -> Step {
        loop {
            let is_empty = self.frame.is_empty();
            if self.frame.is_shut() {
                return if is_empty { Step::Strike } else { self.ready() };
            } else if matches!(self.stage, Stage::End) {
                return if is_empty { Step::Over } else { self.ready() };
            } else if let Some(due) = self.pace.due(self.said.output + self.said.reasoning) {
                return if is_empty { Step::Wait(due) } else { self.ready() };
            } else if self.frame.is_full() {
                return self.ready();
            }
            self.advance();
        }
    }

    fn ready(&self) -> Step {
        Step::Ready { is_last: matches!(self.stage, Stage::End) && !self.is_cut && !self.frame.is_shut() }
    }

    /// Says one thing more.
    fn advance(&mut self) {
        match &mut self.stage {
            Stage::Start => {
                self.encoder.start(&mut self.frame);
                self.stage = Stage::Between;
            }
            Stage::Between => match self.parts.next() {
                Some((kind, source)) => self.begin(kind, source),
                None if self.comes(Moment::FinalEvent) => {}
                None => self.finish(),
            },
            Stage::Inside(_) => self.token(),
            Stage::End => {}
        }
    }

    /// Whether the fault strikes at this moment; then it is met once.
    fn comes(&mut self, moment: Moment) -> bool {
        let comes = self.moment == Some(moment);
        if comes {
            self.moment = None;
            self.frame.shut();
        }
        comes
    }

    fn begin(&mut self, kind: PartKind, source: Source) {
        match self.defect {
            Some(Defect::DuplicateBlocks) => {
                let mut twice = Frame::default();
                self.encoder.begin(&kind, &mut twice);
                self.frame.append(&twice);
                self.frame.append(&twice);
            }
            Some(Defect::OutOfOrder) => {
                let mut late = Frame::default();
                self.encoder.begin(&kind, &mut late);
                self.is_announced = !late.is_empty();
                self.late = Some(late);
            }
            _ => self.encoder.begin(&kind, &mut self.frame),
        }
        self.part = kind;
        self.stage = Stage::Inside(source);
    }

    fn token(&mut self) {
        let is_first = self.said.output + self.said.reasoning == 0;
        if is_first && self.comes(Moment::FirstToken) {
            return;
        }
        let Stage::Inside(source) = &mut self.stage else { return };
        let Some(token) = source.next_token() else { return self.end() };
        if is_first && self.defect == Some(Defect::MalformedJson) {
            self.frame.mangle_next();
        }
        let before = self.frame.events();
        let kept = (self.moment == Some(Moment::InArguments)).then(|| token.to_owned());
        self.encoder.delta(token, &mut self.frame);
        let has_event = self.frame.events() > before;
        match self.part.is_reasoning() {
            true => self.said.reasoning += 1,
            false => self.said.output += 1,
        }
        if self.moment.is_some() {
            self.meet(has_event, kept.as_deref());
        }
        if has_event && let Some(late) = self.late.take() {
            self.frame.append(&late);
        }
    }

    /// After a token: whether the moment of the fault has come. `kept` is the token, if it may be in arguments.
    fn meet(&mut self, has_event: bool, kept: Option<&str>) {
        match self.part {
            PartKind::Text | PartKind::Refusal => {
                self.comes(Moment::InText);
            }
            PartKind::Call { .. } if has_event => {
                self.comes(Moment::InArguments);
            }
            // The event with the whole call is still to come.
            PartKind::Call { .. } => {
                if let Some(token) = kept {
                    self.moment = None;
                    self.frame.shut_inside_next(token);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Between;
        match self.defect {
            Some(Defect::DuplicateBlocks) => {
                let mut twice = Frame::default();
                self.encoder.end(&mut twice);
                self.frame.append(&twice);
                self.frame.append(&twice);
            }
            // Without tokens, or without an event that begins it: what ends the last part is late then.
            Some(Defect::OutOfOrder) => {
                let begin = self.late.take().filter(|late| !late.is_empty());
                let mut end = Frame::default();
                self.encoder.end(&mut end);
                let is_last = self.parts.as_slice().is_empty();
                match begin {
                    None if is_last && self.part.is_call() && !self.is_announced => self.late = Some(end),
                    begin => {
                        self.frame.append(&end);
                        begin.iter().for_each(|begin| self.frame.append(begin));
                    }
                }
            }
            _ => self.encoder.end(&mut self.frame),
        }
    }

    fn finish(&mut self) {
        let ending = self.plan.ending(self.input, self.said);
        self.encoder.finish(&ending, &mut self.frame);
        if let Some(late) = self.late.take() {
            self.frame.append(&late);
        }
        self.stage = Stage::End;
    }

    /// Lets the fault strike; true when the connection breaks.
    async fn strike(&mut self) -> bool {
        match self.plan.fault.take() {
            Some(Fault::Stall { ms, .. }) => {
                stall(ms).await;
                self.frame.open();
            }
            Some(Fault::ErrorEvent { kind, message, .. }) => {
                self.cut();
                let message = if message.is_empty() { ERROR_TEXT } else { &message };
                self.encoder.error(&kind, message, &mut self.frame);
            }
            Some(Fault::Cut { how, .. }) => {
                self.cut();
                return how == Cut::Reset;
            }
            // These have no gate, so they are never met here.
            Some(
                Fault::Status { .. } | Fault::Rejected(_) | Fault::Html(_) | Fault::Empty | Fault::Broken(_),
            )
            | None => self.frame.open(),
        }
        false
    }

    fn cut(&mut self) {
        self.frame.drop_held();
        self.stage = Stage::End;
        self.is_cut = true;
    }
}
