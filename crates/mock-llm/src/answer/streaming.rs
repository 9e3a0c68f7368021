//! Answers that stream.

use playhouse_protocol::Tokens;

use super::{Body, Next, Say, deliver, stall};
use crate::fault::{Cut, Defect, Fault, Moment};
use crate::journal::{Outcome, Record};
use crate::pace::Pace;
use crate::plan::Plan;
use crate::tokens::Source;
use crate::wire::{About, Encode, Frame, PartKind, Wire};

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

/// An answer that streams.
pub(crate) fn streamed(wire: &dyn Wire, about: About, mut plan: Plan, record: Record) -> Body {
    let moment = plan.fault.as_ref().and_then(Fault::moment);
    let pass = match moment {
        Some(Moment::Events(events)) => Some(events),
        _ => None,
    };
    let framing = plan.framing;
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
    deliver(streaming, framing, true, record)
}

impl Say for Streaming {
    async fn next(&mut self) -> Next {
        loop {
            if self.frame.is_shut() {
                if !self.frame.is_empty() {
                    return self.send();
                }
                if self.strike().await {
                    return Next::Break;
                }
            } else if matches!(self.stage, Stage::End) {
                if !self.frame.is_empty() {
                    return self.send();
                }
                return Next::Over(if self.is_cut { Outcome::Cut } else { Outcome::Complete });
            } else if let Some(due) = self.pace.due(self.said.output + self.said.reasoning) {
                if !self.frame.is_empty() {
                    return self.send();
                }
                tokio::time::sleep_until(due).await;
            } else if self.frame.is_full() {
                return self.send();
            } else {
                self.advance();
            }
        }
    }
}

impl Streaming {
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

    /// Hands over what is ready.
    fn send(&mut self) -> Next {
        let is_last = matches!(self.stage, Stage::End) && !self.is_cut && !self.frame.is_shut();
        let (bytes, counts) = self.frame.take();
        Next::Send { bytes, counts, is_last }
    }
}
