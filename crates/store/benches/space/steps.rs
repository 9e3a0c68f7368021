//! What an engine appends for turns of one session: prompts, steps with one text and one call each, and what they used. Ids,
//! times and numbers are as different as in earnest.

use playhouse_protocol::id::{AttemptId, IdGenerator, MessageId, PartId};
use playhouse_protocol::message::{
    CallInput, CallOutcome, CallResult, FinishReason, Part, PromptKind, ToolSwitches,
};
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallIntended, CallProposed, Effect, PromptAdmitted,
    Recovery, SessionCreated, StepFinished, StepPart,
};
use playhouse_protocol::usage::{Prices, Quality, Tokens};
use playhouse_protocol::{ModelRef, Record, SessionId, Timestamp, Usage};
use serde_json::{Map, json};

use crate::samples::TENANT;

/// Random numbers that are the same each time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}

/// What texts are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The prose and the code of this repository, outputs with the numbers of their lines.
    Real,
    /// Letters by chance: nothing makes them smaller.
    Random,
}

/// Texts of one kind.
struct Texts {
    kind: Kind,
    random: Random,
    prose: &'static str,
    code: &'static str,
}

impl Texts {
    fn new(kind: Kind, seed: u64) -> Self {
        let prose = include_str!("../../../../ARCHITECTURE.md");
        let code = include_str!("../../../../actors/src/session.rs");
        Self { kind, random: Random::new(seed), prose, code }
    }

    /// So many bytes, from a place of its own.
    fn take(&mut self, text: &str, size: usize) -> String {
        if self.kind == Kind::Random {
            return (0..size).map(|_| char::from(b'a' + (self.random.next() % 26) as u8)).collect();
        }
        let start = self.random.next() as usize % text.len();
        let (before, from) = text.split_at(boundary(text, start));
        let mut taken: String = [from, before].into_iter().cycle().take(2 + size / text.len() * 2).collect();
        taken.truncate(boundary(&taken, size));
        taken
    }

    fn said(&mut self, size: usize) -> String {
        self.take(self.prose, size)
    }

    fn read(&mut self, size: usize) -> String {
        let code = self.take(self.code, size);
        if self.kind == Kind::Random {
            return code;
        }
        let first = 1 + self.random.next() % 400;
        let mut numbered: String =
            code.lines().zip(first..).map(|(line, number)| format!("{number:>6}\t{line}\n")).collect();
        numbered.truncate(boundary(&numbered, size));
        numbered
    }
}

/// The last place up to `at` at which a character begins.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// A session that goes on, step by step.
pub(crate) struct Steps {
    ids: IdGenerator,
    random: Random,
    texts: Texts,
    now: u64,
    turn: MessageId,
    step: MessageId,
    attempt: AttemptId,
    number: u32,
}

impl Steps {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let mut bytes = Random::new(seed + 1_000);
        let mut ids =
            IdGenerator::new(move |into| into.iter_mut().for_each(|byte| *byte = bytes.next() as u8));
        let now = 1_795_292_879_257;
        let at = Timestamp::from_millis(now);
        let (turn, step, attempt) = (ids.next(at), ids.next(at), ids.next(at));
        let random = Random::new(seed + 2_000);
        Self { ids, random, texts: Texts::new(kind, seed), now, turn, step, attempt, number: 0 }
    }

    /// The time, some moments after the last.
    pub(crate) fn now(&mut self) -> Timestamp {
        self.now += 1 + self.random.next() % 3_000;
        Timestamp::from_millis(self.now)
    }

    /// The beginning of the session and of its turn.
    pub(crate) fn begin(&mut self, session: SessionId) -> Vec<Record> {
        let now = self.now();
        let created = Record::SessionCreated(SessionCreated {
            title: "New session".to_owned(),
            ..SessionCreated::new(session, TENANT, "/home/ada/project", "build", model())
        });
        let prompt = Record::PromptAdmitted(PromptAdmitted {
            message: self.turn,
            parts: vec![Part::text(self.ids.next(now), "Mend what fails.")],
            agent: "build".to_owned(),
            model: model(),
            step_limit: None,
            steer: false,
            unattended: false,
            kind: PromptKind::Turn,
            system: None,
            tools: ToolSwitches::new(),
            output: None,
            handed: None,
            attribution: None,
        });
        vec![created, prompt, Record::TurnStarted { turn: self.turn }, self.started()]
    }

    /// The records of a step with a text and an output of this size, as they are appended: those with which its answer ends,
    /// and those with which its call does and the next step begins.
    pub(crate) fn step(&mut self, size: usize) -> [Vec<Record>; 2] {
        let (began, now) = (self.now(), self.now());
        let (text, call): (PartId, PartId) = (self.ids.next(now), self.ids.next(now));
        let tokens = Tokens {
            input: self.random.next() % 100,
            cache_read: 10_000 + self.random.next() % 90_000,
            cache_write_5m: self.random.next() % 3_000,
            output: size as u64 / 4 + self.random.next() % 100,
            ..Tokens::default()
        };
        let raw = json!({
            "input_tokens": tokens.input,
            "cache_creation_input_tokens": tokens.cache_write_5m,
            "cache_read_input_tokens": tokens.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": tokens.cache_write_5m, "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": tokens.output,
            "service_tier": "standard",
        });
        let cost = prices().cost(&tokens);
        let ended = Record::AttemptEnded(AttemptEnded {
            attempt: self.attempt,
            outcome: AttemptOutcome::Finished,
            usage: Some(Usage {
                tokens,
                quality: Quality::Reported,
                raw: Some(raw),
                inner: Vec::new(),
                provider_cost: None,
                served: Vec::new(),
            }),
            cost,
            answered_by: Some("claude-sonnet-4-5-20250929".to_owned()),
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        });
        let call_id: String = (0..24).map(|_| char::from(b'A' + (self.random.next() % 26) as u8)).collect();
        let file = format!("src/{}/{}.rs", FOLDERS[self.below(4)], FILES[self.below(8)]);
        let input =
            json!({"filePath": format!("/home/ada/project/{file}"), "offset": self.random.next() % 400});
        let proposed = Record::CallProposed(CallProposed::new(
            call,
            self.step,
            format!("toolu_01{call_id}"),
            "read",
            CallInput::from_model(&input.to_string()),
        ));
        let finished = Record::StepFinished(StepFinished {
            step: self.step,
            parts: vec![
                StepPart::Text { id: text, text: self.texts.said(size), opaque: None },
                StepPart::Call { id: call, opaque: None },
            ],
            finish: FinishReason::ToolCalls,
            error: None,
            tokens,
            cost,
        });
        let intended = Record::CallIntended(CallIntended {
            call,
            effect: Effect::None,
            recovery: Recovery::Rerun,
            delegate: None,
            before: Vec::new(),
            tracked: false,
        });
        let result = CallResult {
            outcome: CallOutcome::Done,
            title: file,
            output: self.texts.read(size),
            metadata: Map::from_iter([
                ("lines".to_owned(), json!(self.random.next() % 500)),
                ("truncated".to_owned(), json!(false)),
            ]),
            attachments: Vec::new(),
            started: began,
            ended: now,
        };
        let settled = Record::CallSettled { call, result };
        (self.step, self.attempt) = (self.ids.next(now), self.ids.next(now));
        [vec![ended, proposed, finished, intended], vec![settled, self.started()]]
    }

    fn started(&mut self) -> Record {
        self.number += 1;
        Record::AttemptStarted(AttemptStarted {
            step_number: self.number,
            catalogue: Some("2026-11-01".to_owned()),
            estimated_input: 10_000 + self.random.next() % 90_000,
            prices: prices(),
            ..AttemptStarted::new(self.attempt, self.turn, self.step, "build", model())
        })
    }

    fn below(&mut self, most: u64) -> usize {
        (self.random.next() % most) as usize
    }
}

const FOLDERS: [&str; 4] = ["server", "wire", "machine", "ledger"];
const FILES: [&str; 8] = ["mod", "routes", "parse", "tests", "calls", "entry", "usage", "handlers"];

fn model() -> ModelRef {
    ModelRef::new("anthropic", "claude-sonnet-4-5")
}

fn prices() -> Prices {
    let price = |text: &str| text.parse().ok();
    Prices {
        input: price("3"),
        output: price("15"),
        cache_read: price("0.3"),
        cache_write: price("3.75"),
        cache_write_1h: price("6"),
        ..Prices::default()
    }
}
