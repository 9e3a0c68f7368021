//! Whatever a history holds: what is read of it fits, begins and ends as it should, and every call has its result.

use playhouse_protocol::chat::{AssistantPart, ChatMessage, UserPart};
use playhouse_protocol::id::{IdGenerator, MessageId, PartId};
use playhouse_protocol::message::{
    Attachment, BlobRef, CallInput, CallOutcome, CallResult, CompactionKind, FinishReason, Message, Part,
    PromptKind, ToolSwitches,
};
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallProposed, ContextCleared, ContextCompacted,
    PromptAdmitted, SessionCreated, StepFinished, StepPart, TurnEnded, TurnOutcome,
};
use playhouse_protocol::usage::{Tokens, Totals, Usage};
use playhouse_protocol::{Entry, ModelRef, Record, Timestamp};
use proptest::prelude::*;

use super::{Gauge, Plan, Room, digest, plan, plan_by_hand, write};
use crate::fold::{FILE_BYTES, Session};

fn model() -> ModelRef {
    ModelRef::new("mock", "m")
}

/// A step: bytes of its text, and of the outputs of its calls; whether they hold an image.
type StepSpec = (usize, Vec<usize>, bool);

/// A session that grows record by record.
struct Log {
    session: Session,
    ids: IdGenerator,
    turn: Option<MessageId>,
    steps: u32,
    /// Whether answers have reasoning.
    thinks: bool,
}

impl Log {
    fn new() -> Self {
        let mut ids = IdGenerator::new(|bytes| bytes.fill(7));
        let now = Timestamp::from_millis(1_000);
        let created = SessionCreated {
            title: "t".into(),
            ..SessionCreated::new(ids.next(now), "local", "/repo", "sisyphus", model())
        };
        let first =
            Entry { seq: playhouse_protocol::Seq(1), at: now, record: Record::SessionCreated(created) };
        Self { session: Session::begin(&first).unwrap(), ids, turn: None, steps: 0, thinks: false }
    }

    fn id<I: playhouse_protocol::id::Id>(&mut self) -> I {
        self.ids.next(Timestamp::from_millis(1_000))
    }

    fn push(&mut self, record: Record) {
        let (seq, at) = (self.session.summary.head.next(), Timestamp::from_millis(1_000));
        self.session.apply(&Entry { seq, at, record }).unwrap();
    }

    fn prompt(&mut self, bytes: usize) {
        self.end_turn();
        let message: MessageId = self.id();
        let text = format!("prompt {}", "p".repeat(bytes.max(1)));
        let parts = vec![Part::text(self.id(), text)];
        self.push(Record::PromptAdmitted(PromptAdmitted {
            message,
            parts,
            agent: "sisyphus".into(),
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
        }));
        self.push(Record::TurnStarted { turn: message });
        (self.turn, self.steps) = (Some(message), 0);
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let totals = Totals::default();
        self.push(Record::TurnEnded(TurnEnded {
            changed: None,
            output: None,
            turn,
            outcome: TurnOutcome::Completed,
            error: None,
            steps: self.steps,
            totals,
        }));
    }

    /// A step whose attempt is reported to have had so many input tokens; without tokens it failed.
    fn step(&mut self, spec: &StepSpec, tokens: Option<u64>) {
        self.step_of(spec, tokens, false);
    }

    /// The same, for one that may be the last at the step limit.
    fn step_of(&mut self, (text, outputs, image): &StepSpec, tokens: Option<u64>, last: bool) {
        let turn = self.turn.expect("a turn runs");
        self.steps += 1;
        let (attempt, step) = (self.id(), self.id());
        self.push(Record::AttemptStarted(AttemptStarted {
            step_number: self.steps,
            last,
            ..AttemptStarted::new(attempt, turn, step, "sisyphus", model())
        }));
        let tokens = tokens.map(|input| Tokens { input, ..Tokens::default() });
        let usage = tokens.map(|tokens| Usage { tokens, ..Usage::default() });
        self.push(Record::AttemptEnded(AttemptEnded {
            attempt,
            outcome: AttemptOutcome::Finished,
            usage,
            cost: None,
            answered_by: None,
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        }));
        let mut parts = Vec::new();
        if self.thinks {
            let opaque = Some(serde_json::json!({"signature": self.steps}));
            parts.push(StepPart::Reasoning { id: self.id(), text: String::new(), opaque });
        }
        parts.push(StepPart::Text { id: self.id(), text: "a".repeat(*text), opaque: None });
        let mut calls: Vec<(PartId, usize)> = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            let call = self.id();
            parts.push(StepPart::Call { id: call, opaque: None });
            calls.push((call, *output));
            self.push(Record::CallProposed(CallProposed::new(
                call,
                step,
                format!("call_{index}"),
                "read",
                CallInput::from_model(r#"{"filePath":"/repo/src/lib.rs"}"#),
            )));
        }
        let finish = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        self.push(Record::StepFinished(StepFinished {
            step,
            parts,
            finish,
            error: None,
            tokens: Tokens::default(),
            cost: None,
        }));
        for (index, (call, output)) in calls.into_iter().enumerate() {
            let blob = BlobRef { hash: "0".repeat(64), size: 9 };
            let image = image.then(|| Attachment::new("image/png", "a.png", blob)).filter(|_| index == 0);
            let result = CallResult {
                outcome: CallOutcome::Done,
                title: String::new(),
                output: "o".repeat(output),
                metadata: serde_json::Map::new(),
                attachments: image.into_iter().collect(),
                started: Timestamp::from_millis(1_000),
                ended: Timestamp::from_millis(1_000),
            };
            self.push(Record::CallSettled { call, result });
        }
    }

    /// Makes room as the machine does; false when there is none. A summary is what `summary` says, if it says something.
    fn make_room(&mut self, room: &Room, summary: Option<&str>) -> bool {
        for in_a_row in 0.. {
            if self.session.conversation_bytes + room.pending <= room.most {
                return true;
            }
            assert!(in_a_row < 3, "three times are enough");
            match plan(&self.session, room, in_a_row < 2) {
                Plan::Clear(cleared) => {
                    self.push(Record::ContextCleared(cleared));
                    let left = self.session.conversation_bytes + room.pending;
                    assert!(left <= room.most / 2, "half of the room is left: {left} of {}", room.most);
                }
                Plan::TooLong { needed } => {
                    assert!(needed > room.most);
                    return false;
                }
                Plan::LeaveOut { from } => self.leave_out(from, room, summary.filter(|_| in_a_row < 2)),
            }
            assert_eq!(self.session.conversation_bytes, self.session.count_bytes());
        }
        unreachable!("it ends")
    }

    fn leave_out(&mut self, from: usize, room: &Room, summary: Option<&str>) {
        let written = write(&self.session, room, from, summary);
        let bytes = written.bytes;
        if let Some(cleared) = written.cleared {
            self.push(Record::ContextCleared(cleared));
        }
        let compacted = ContextCompacted {
            how: if summary.is_some() { CompactionKind::Summary } else { CompactionKind::Cut },
            message: self.id(),
            answer: self.id(),
            part: self.id(),
            text: written.text,
            first: written.first,
            prompt: written.prompt,
            kept_from: written.kept_from,
            attempt: None,
            by_hand: false,
            before: 0,
            after: 0,
        };
        self.push(Record::ContextCompacted(compacted));
        assert_eq!(self.session.conversation_bytes, bytes, "what was foreseen");
    }

    fn read(&self) -> Vec<ChatMessage> {
        let mut out = Vec::new();
        self.session.read(0..self.session.messages.len(), &model(), &mut out);
        out
    }
}

/// Bytes of text of a conversation, and a little for each image.
fn bytes(conversation: &[ChatMessage]) -> u64 {
    let of = |message: &ChatMessage| match message {
        ChatMessage::User { parts } => parts
            .iter()
            .map(|part| match part {
                UserPart::Text { text } => text.len() as u64,
                UserPart::File(_) => FILE_BYTES,
            })
            .sum::<u64>(),
        ChatMessage::Assistant { parts } => parts
            .iter()
            .map(|part| match part {
                AssistantPart::Text { text, .. } | AssistantPart::Reasoning { text, .. } => text.len() as u64,
                AssistantPart::Call { name, .. } => name.len() as u64 + 20,
            })
            .sum(),
        ChatMessage::Results { results } => results
            .iter()
            .map(|result| result.output.len() as u64 + result.attachments.len() as u64 * FILE_BYTES)
            .sum(),
    };
    conversation.iter().map(of).sum()
}

/// What must be true of every conversation that is sent.
fn check(log: &Log, whole: &[ChatMessage], room: &Room) {
    let read = log.read();
    assert!(log.session.conversation_bytes + room.pending <= room.most);
    assert!(bytes(&read) <= log.session.conversation_bytes, "no more is sent than is counted");
    let Some(ChatMessage::User { parts }) = read.first() else { panic!("it begins with {:?}", read.first()) };
    let Some(UserPart::Text { text }) = parts.first() else { panic!("it begins with text") };
    let stands_in = ["<summary-of", "<part-of", "<beginning-of"].iter().any(|tag| text.starts_with(tag));
    assert!(Some(&read[0]) == whole.first() || stands_in, "it begins with {text:.50}");
    // What is last in the history is last here, shortened perhaps.
    match (read.last().unwrap(), whole.last().unwrap()) {
        (ChatMessage::Results { results: read }, ChatMessage::Results { results: whole }) => {
            for (read, whole) in read.iter().zip(whole) {
                let line = |text: &str| text.starts_with("output ") || text.contains("\noutput shortened");
                assert!(read.output == whole.output || line(&read.output), "{:.80}", read.output);
                assert_eq!((&read.id, &read.name, read.ok), (&whole.id, &whole.name, whole.ok));
            }
            assert_eq!(read.len(), whole.len());
        }
        (read, whole) => assert_eq!(read, whole),
    }
    let mut rest = read.iter().peekable();
    while let Some(message) = rest.next() {
        match message {
            ChatMessage::Assistant { parts } => {
                let calls: Vec<&String> = parts
                    .iter()
                    .filter_map(|part| match part {
                        AssistantPart::Call { id, .. } => Some(id),
                        _ => None,
                    })
                    .collect();
                let results: Vec<&String> = match rest.peek() {
                    Some(ChatMessage::Results { results }) => {
                        results.iter().map(|result| &result.id).collect()
                    }
                    _ => Vec::new(),
                };
                assert_eq!(calls, results, "every call has its result");
                if !results.is_empty() {
                    rest.next();
                }
            }
            ChatMessage::Results { .. } => panic!("results without calls"),
            ChatMessage::User { .. } => {}
        }
    }
}

fn specs() -> impl Strategy<Value = Vec<(usize, Vec<StepSpec>)>> {
    let size = || prop_oneof![4 => 0..2_000_usize, 2 => 0..20_000_usize, 1 => 20_000..80_000_usize];
    let text = prop_oneof![6 => 1..3_000_usize, 1 => 1..30_000_usize];
    let step = (text, prop::collection::vec(size(), 0..4), prop::bool::weighted(0.1));
    prop::collection::vec((size(), prop::collection::vec(step, 1..12)), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_history_fits_any_window(
        turns in specs(),
        window in 16_000..200_000_u64,
        overhead in 0..4_000_u64,
        counts in prop_oneof![Just(None), (50..300_u64).prop_map(Some)],
        pending in prop_oneof![5 => Just(0), 1 => 0..4_000_u64],
        summary in prop_oneof![Just(None), "[a-z]{1,200}".prop_map(Some), "[a-z ]{3000,9000}".prop_map(Some)],
        last_is_answer in any::<bool>(),
    ) {
        let mut log = Log::new();
        let budget = window / 10 * 7;
        for (prompt, steps) in &turns {
            log.prompt(*prompt);
            for step in steps {
                // Before each request, as the machine does.
                let gauge = log.session.context.gauge(&model(), overhead);
                let room = Room { most: gauge.bytes(budget), pending: 0 };
                let before = log.session.messages.len();
                let mut whole = Vec::new();
                let last = &log.session.messages[before - 1];
                crate::chat::translate(&log.session.messages[0], &model(), &mut whole);
                crate::chat::translate(last, &model(), &mut whole);
                if log.make_room(&room, summary.as_deref()) {
                    check(&log, &whole, &room);
                    prop_assert!(gauge.tokens(log.session.conversation_bytes) <= budget);
                }
                let plain = log.session.conversation_bytes / 4 + overhead;
                log.step(step, counts.map(|percent| plain * percent / 100));
                prop_assert_eq!(log.session.conversation_bytes, log.session.count_bytes());
            }
        }
        if !last_is_answer {
            log.prompt(10);
        }
        let gauge = log.session.context.gauge(&model(), overhead);
        let room = Room { most: gauge.bytes(budget), pending };
        let mut whole = Vec::new();
        crate::chat::translate(&log.session.messages[0], &model(), &mut whole);
        let last = log.session.messages.iter().rposition(|message| log.session.context.bytes_of(message) > 0);
        crate::chat::translate(&log.session.messages[last.unwrap()], &model(), &mut whole);
        if log.make_room(&room, summary.as_deref()) && pending == 0 {
            check(&log, &whole, &room);
        }
    }

    #[test]
    fn without_calibration_every_small_latest_message_fits(turns in specs(), window in 16_000..64_000_u64) {
        let mut log = Log::new();
        for (prompt, steps) in &turns {
            log.prompt(*prompt);
            steps.iter().for_each(|step| log.step(step, None));
        }
        log.prompt(5_000);
        let gauge = Gauge::new(2_000, None);
        let room = Room { most: gauge.bytes(window / 10 * 7), pending: 0 };
        prop_assert!(log.make_room(&room, None), "there is room for a small prompt");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn long_histories_stay_within_every_budget() {
    for (messages, window) in [(1_000, 16_000), (1_000, 200_000), (10_000, 16_000), (10_000, 128_000)] {
        let mut log = Log::new();
        let room = Room { most: Gauge::new(3_000, None).bytes(window / 10 * 7), pending: 0 };
        let mut made = 0;
        for turn in 0..messages / 20 {
            log.prompt(500);
            for step in 0..18 {
                log.step(&(300, vec![1_500 + (step * 97 + turn * 31) % 4_000], false), None);
                let before = log.session.context_revision();
                assert!(log.make_room(&room, Some("## Goal\nTo go on.")), "{messages} {window}");
                made += u32::from(before != log.session.context_revision());
            }
        }
        assert!(log.session.messages.len() >= messages / 20 * 19);
        let steps = u32::try_from(messages / 20 * 18).unwrap();
        assert!(
            made > 0 && made < steps / 5,
            "room is made rarely: {made} times in {steps} steps of {window}"
        );
        // The whole history at once, as when a session goes on with a smaller model.
        let mut whole = Log::new();
        for _ in 0..messages / 20 {
            whole.prompt(500);
            (0..18).for_each(|_| whole.step(&(300, vec![3_000], false), None));
        }
        assert!(whole.make_room(&room, None));
        assert!(whole.session.conversation_bytes <= room.most / 2 + 1_200);
    }
}

#[test]
fn outputs_go_first_oldest_first_and_the_last_two_turns_stay() {
    let mut log = Log::new();
    for _ in 0..4 {
        log.prompt(100);
        (0..3).for_each(|_| log.step(&(100, vec![4_000], false), None));
    }
    log.prompt(100);
    let room = Room { most: 60_000, pending: 0 };
    let Plan::Clear(cleared) = plan(&log.session, &room, true) else { panic!("outputs are enough") };
    assert_eq!((cleared.calls.len(), cleared.shortened.len()), (9, 0));
    let read = |log: &Log| log.read();
    let before = read(&log);
    log.push(Record::ContextCleared(cleared));
    let after = read(&log);
    let is_line = |message: &ChatMessage| matches!(message, ChatMessage::Results { results } if results[0].output.starts_with("output cleared"));
    let lines: Vec<usize> = (0..after.len()).filter(|place| is_line(&after[*place])).collect();
    assert_eq!(lines.len(), 9);
    assert_eq!(lines.first(), Some(&2));
    // The other messages are as they were, and the last turns are.
    for (place, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(before == after, !lines.contains(&place), "message {place}");
    }
}

#[test]
fn a_mark_stands_between_the_first_prompt_and_the_last_turns() {
    let mut log = Log::new();
    for _ in 0..6 {
        log.prompt(300);
        (0..3).for_each(|_| log.step(&(2_000, Vec::new(), false), None));
    }
    log.prompt(300);
    let room = Room { most: 30_000, pending: 0 };
    let Plan::LeaveOut { from } = plan(&log.session, &room, true) else { panic!("there are no outputs") };
    log.leave_out(from, &room, None);
    let read = log.read();
    let texts: Vec<String> = read
        .iter()
        .map(|message| match message {
            ChatMessage::User { parts } => match &parts[0] {
                UserPart::Text { text } => text.chars().take(40).collect(),
                UserPart::File(_) => "file".into(),
            },
            _ => "answer".into(),
        })
        .collect();
    insta::assert_debug_snapshot!(texts, @r#"
    [
        "prompt ppppppppppppppppppppppppppppppppp",
        "<part-of-the-conversation-left-out>\nThe ",
        "prompt ppppppppppppppppppppppppppppppppp",
        "answer",
        "answer",
        "answer",
        "prompt ppppppppppppppppppppppppppppppppp",
    ]
    "#);
}

#[test]
fn a_summary_is_asked_for_what_is_left_out_and_no_more() {
    let mut log = Log::new();
    log.prompt(300);
    (0..3).for_each(|_| log.step(&(100, vec![50_000], false), None));
    log.prompt(20);
    let from = plan_by_hand(&log.session, &Room { most: u64::MAX, pending: 0 }).unwrap();
    let text = digest(&log.session, from, 1_000_000);
    assert!(text.contains("# The user\n> prompt ppp"), "{text}");
    assert!(text.contains("bytes are left out here"), "{text}");
    assert!(text.len() < 10_000);
    let short = digest(&log.session, from, 1);
    assert!(short.len() < 4_500 && short.contains("prompt ppp"), "{short}");
    log.leave_out(from, &Room { most: u64::MAX, pending: 0 }, Some("all is done"));
    assert!(
        plan_by_hand(&log.session, &Room { most: u64::MAX, pending: 0 }).is_none(),
        "nothing more to say"
    );
    let Some(ChatMessage::User { parts }) = log.read().into_iter().next() else { panic!("it begins so") };
    let UserPart::Text { text } = &parts[0] else { panic!("it is text") };
    assert!(text.starts_with("<summary-of-the-conversation-so-far>") && text.contains("all is done"));
}

#[test]
fn a_large_output_that_just_came_is_shortened() {
    let mut log = Log::new();
    log.prompt(300);
    log.step(&(100, vec![50_000, 300, 40_000], false), None);
    let room = Room { most: 40_000, pending: 0 };
    let Plan::Clear(cleared) = plan(&log.session, &room, true) else { panic!("outputs are enough") };
    assert!(cleared.calls.is_empty());
    assert_eq!(cleared.shortened.len(), 2, "the small one stays");
    assert_eq!(cleared.shortened[0].bytes, cleared.shortened[1].bytes);
    log.push(Record::ContextCleared(cleared));
    assert!(log.session.conversation_bytes <= 20_000 && log.session.conversation_bytes > 8_000);
}

/// Which steps' reasoning is read, as `number` or `number stale`.
fn thoughts(log: &Log) -> Vec<String> {
    let mut all = Vec::new();
    for message in log.read() {
        let ChatMessage::Assistant { parts } = message else { continue };
        all.extend(parts.into_iter().filter_map(|part| match part {
            AssistantPart::Reasoning { opaque, stale, .. } => {
                let number = opaque.unwrap()["signature"].to_string();
                Some(if stale { format!("{number} stale") } else { number })
            }
            _ => None,
        }));
    }
    all
}

/// The call of a step, by its number from 1.
fn call_of(log: &Log, step: usize) -> PartId {
    let parts = log.session.messages.iter().flat_map(|message| match message {
        Message::Assistant(message) => &message.parts,
        Message::User(message) => &message.parts,
    });
    let mut calls = parts.filter(|part| matches!(part, Part::Call(_)));
    calls.nth(step - 1).unwrap().id()
}

#[test]
fn reasoning_behind_a_change_is_stale_and_what_comes_later_is_not() {
    let mut log = Log { thinks: true, ..Log::new() };
    let step = (10, vec![5_000], false);
    log.prompt(10);
    for _ in 0..4 {
        log.step(&step, Some(100));
    }
    assert_eq!(thoughts(&log), ["1", "2", "3", "4"]);
    let clear = |log: &mut Log, step| {
        let calls = vec![call_of(log, step)];
        log.push(Record::ContextCleared(ContextCleared { calls, ..ContextCleared::default() }));
    };
    // The reasoning of a step stands before the result of its call.
    clear(&mut log, 3);
    assert_eq!(thoughts(&log), ["1", "2", "3", "4 stale"]);
    log.step(&step, Some(100));
    log.step(&step, Some(100));
    clear(&mut log, 5);
    clear(&mut log, 1);
    log.step(&step, Some(100));
    assert_eq!(
        thoughts(&log),
        ["1", "2 stale", "3 stale", "4 stale", "5 stale", "6 stale", "7"],
        "the change that lies furthest to the front counts"
    );
    let from = log.session.messages.len() - 2;
    let room = Room { most: 1_000_000, pending: 0 };
    log.leave_out(from, &room, Some("what was done"));
    assert_eq!(thoughts(&log), ["6 stale", "7 stale"]);
    log.step(&step, Some(100));
    assert_eq!(thoughts(&log), ["6 stale", "7 stale", "8"]);
}

#[test]
fn the_text_of_the_step_limit_stays_in_the_history() {
    let mut log = Log::new();
    log.prompt(10);
    log.step(&(10, vec![20], false), Some(100));
    let before = log.session.messages.len();
    log.step_of(&(10, vec![], false), Some(100), true);
    log.end_turn();
    log.prompt(10);
    let text = |message: &ChatMessage| serde_json::to_string(message).unwrap();
    let whole = log.read();
    let at: Vec<usize> =
        (0..whole.len()).filter(|place| text(&whole[*place]).contains("step limit of this turn")).collect();
    assert_eq!(at, [2], "behind the results that the last step has read");
    // It is the same in pieces: what the last request held, and what came after it.
    let (mut pieces, end) = (Vec::new(), log.session.messages.len());
    log.session.read(0..before, &model(), &mut pieces);
    assert_eq!(pieces, whole[..3]);
    log.session.read(before..before, &model(), &mut pieces);
    log.session.read(before..end, &model(), &mut pieces);
    assert_eq!(pieces, whole);
}
