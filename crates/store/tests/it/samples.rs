//! Records to write, and short ways to write them.

use std::sync::mpsc::sync_channel;

use playhouse_protocol::consent::{Action, PermissionRule, Risk, Want};
use playhouse_protocol::id::{AttemptId, ConsentId, PartId, QuestionId};
use playhouse_protocol::ledger::{Purpose, Tier};
use playhouse_protocol::message::{
    Attachment, BlobRef, CallInput, CallOutcome, CallResult, Changed, CompactionKind, FinishReason, Part,
    PromptKind, TextMarks, ToolSwitches,
};
use playhouse_protocol::question::{
    Question, QuestionAnswer, QuestionAsked, QuestionOption, Todo, TodoPriority, TodoStatus,
};
use playhouse_protocol::record::{
    ArtifactCaptured, AttemptEnded, AttemptOutcome, AttemptStarted, CallProposed, ConsentAnswer,
    ConsentAsked, ContextCleared, ContextCompacted, Forked, PromptAdmitted, SessionChanged, SessionCreated,
    SettledTool, ShortenedOutput, StepFinished, StepPart, SystemSettled, ToolsSettled, TurnEnded,
    TurnOutcome, TurnSummarized,
};
use playhouse_protocol::usage::{Cost, Prices, Quality, Tokens, Totals, Usage};
use playhouse_protocol::walls::{Strength, WallsAllowed, WallsInForce};
use playhouse_protocol::{
    CallAnswer, CallOffered, Entry, ErrorCode, ErrorInfo, MessageId, ModelRef, Record, Seq, SessionId,
    SessionSummary, Timestamp,
};
use playhouse_store::{Append, Backend, Store, StoreError, StoreOptions};
use serde_json::{Map, Value, json};

use crate::changes;

pub(crate) const TENANT: &str = "acme";

/// The store in a directory, which gets this backend if it is new; in memory without one.
pub(crate) fn open(data: &std::path::Path, backend: Option<Backend>) -> Store {
    match backend {
        Some(backend) => {
            Store::open_with(data, &StoreOptions { backend, ..StoreOptions::default() }).unwrap()
        }
        None => Store::memory().unwrap(),
    }
}

/// Every kind of store.
pub(crate) fn backends() -> impl proptest::strategy::Strategy<Value = Option<Backend>> {
    proptest::sample::select(vec![Some(Backend::Sled), Some(Backend::Redb), None])
}

pub(crate) fn session(number: u64) -> SessionId {
    SessionId::parse(&format!("ses_{number:012x}Sess1234567890")).unwrap()
}

pub(crate) fn message(number: u64) -> MessageId {
    MessageId::parse(&format!("msg_{number:012x}Mess1234567890")).unwrap()
}

pub(crate) fn part(number: u64) -> PartId {
    PartId::parse(&format!("prt_{number:012x}Part1234567890")).unwrap()
}

pub(crate) fn attempt(number: u64) -> AttemptId {
    AttemptId::parse(&format!("att_{number:012x}Atte1234567890")).unwrap()
}

fn consent(number: u64) -> ConsentId {
    ConsentId::parse(&format!("per_{number:012x}Cons1234567890")).unwrap()
}

fn question(number: u64) -> QuestionId {
    QuestionId::parse(&format!("que_{number:012x}Ques1234567890")).unwrap()
}

pub(crate) fn model() -> ModelRef {
    ModelRef::new("anthropic", "claude-sonnet-4-5")
}

pub(crate) fn created(session: SessionId, tenant: &str, workspace: &str) -> Record {
    Record::SessionCreated(SessionCreated {
        title: "New session".to_owned(),
        ..SessionCreated::new(session, tenant, workspace, "build", model())
    })
}

/// What a fork behind record `at` begins with.
pub(crate) fn forked(session: SessionId, from: SessionId, at: u64) -> Forked {
    Forked {
        session,
        from,
        at: Seq(at),
        tenant: TENANT.to_owned(),
        workspace: "/w".to_owned(),
        title: "New session (fork #1)".to_owned(),
        agent: "build".to_owned(),
        model: model(),
        permissions: Vec::new(),
        metadata: Map::new(),
        turn: Some(message(3)),
        changed: Changed::default(),
    }
}

pub(crate) fn titled(title: &str) -> Record {
    Record::SessionChanged(SessionChanged { title: Some(title.to_owned()), ..SessionChanged::default() })
}

pub(crate) fn admitted(turn: u64) -> Record {
    Record::PromptAdmitted(PromptAdmitted {
        message: message(turn),
        parts: vec![Part::text(part(turn), "fix the test")],
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
    })
}

pub(crate) fn started(number: u64, turn: u64) -> Record {
    Record::AttemptStarted(AttemptStarted {
        estimated_input: 1_200,
        prices: Prices { input: Some("3".parse().unwrap()), ..Prices::default() },
        ..AttemptStarted::new(attempt(number), message(turn), message(turn + 1), "build", model())
    })
}

pub(crate) fn used(number: u64, input: u64) -> Record {
    Record::AttemptEnded(AttemptEnded {
        usage: Some(Usage { tokens: Tokens { input, ..Tokens::default() }, ..Usage::default() }),
        cost: Some(Cost("0.0036".parse().unwrap())),
        ..AttemptEnded::new(attempt(number), AttemptOutcome::Finished)
    })
}

pub(crate) fn ended(turn: u64) -> Record {
    Record::TurnEnded(TurnEnded {
        changed: None,
        output: None,
        turn: message(turn),
        outcome: TurnOutcome::Completed,
        error: None,
        steps: 1,
        totals: Totals::default(),
    })
}

/// Records with the fields that version 1 was given later, which are absent where they are not used, under names of their
/// golden files.
pub(crate) fn with_later_fields() -> Vec<(&'static str, Record)> {
    let rule = |pattern: &str, action| PermissionRule {
        permission: "bash".to_owned(),
        pattern: pattern.to_owned(),
        action,
    };
    let Record::SessionCreated(created) = created(session(1), TENANT, "/home/ada/project") else {
        unreachable!("it creates a session")
    };
    let Record::PromptAdmitted(admitted) = admitted(3) else { unreachable!("it admits a prompt") };
    let Record::AttemptStarted(attempt) = started(7, 3) else { unreachable!("it starts an attempt") };
    let metadata = Map::from_iter([("ticket".to_owned(), json!({"number": 7}))]);
    let command = Want {
        doubt: Some("a variable".to_owned()),
        ..Want::new("bash", "git commit -m $X", Risk::Dangerous).always(["git commit *"])
    };
    let outside = Want { in_person: true, ..Want::new("external_directory", "/etc/motd", Risk::Dangerous) };
    let asked = ConsentAsked {
        consent: consent(12),
        call: Some(part(11)),
        tool: "bash".to_owned(),
        risk: Risk::Moderate,
        reason: "no rule allows it".to_owned(),
        preview: "--- a\n+++ b\n".to_owned(),
        diff: true,
        wants: vec![command, outside],
        walls: Some(WallsInForce {
            strength: Strength::Weaker,
            by: "landlock".to_owned(),
            detail: "the network is open".to_owned(),
            network: true,
        }),
    };
    let blob = BlobRef { hash: "0".repeat(64), size: 100_000 };
    vec![
        (
            "artifact.captured.blob",
            Record::ArtifactCaptured(ArtifactCaptured {
                call: part(11),
                name: "save_note".to_owned(),
                value: None,
                blob: Some(blob),
                hash: format!("sha256:{}", "a".repeat(64)),
            }),
        ),
        (
            "session.created.walls",
            Record::SessionCreated(SessionCreated {
                permissions: vec![rule("git status *", Action::Allow), rule("rm *", Action::Deny)],
                unattended: true,
                walls: Some(WallsAllowed {
                    read: vec!["/opt/sdk".to_owned()],
                    write: vec!["/srv/shared".to_owned()],
                    read_only: true,
                    network: true,
                }),
                ..created.clone()
            }),
        ),
        (
            "session.changed.rules",
            Record::SessionChanged(SessionChanged {
                permissions: Some(vec![rule("*", Action::Ask)]),
                ..SessionChanged::default()
            }),
        ),
        (
            "prompt.admitted.marks",
            Record::PromptAdmitted(PromptAdmitted {
                parts: vec![
                    Part::Text {
                        id: part(3),
                        text: "line 7".to_owned(),
                        marks: Some(Box::new(TextMarks {
                            synthetic: true,
                            ignored: true,
                            metadata: metadata.clone(),
                        })),
                        opaque: None,
                    },
                    Part::File {
                        id: part(4),
                        file: Attachment {
                            source: Some(Box::new(json!({"type": "file"}))),
                            ..Attachment::new(
                                "text/plain",
                                "a.txt",
                                BlobRef { hash: "0".repeat(64), size: 1 },
                            )
                        },
                    },
                ],
                ..admitted.clone()
            }),
        ),
        (
            "prompt.admitted.unattended",
            Record::PromptAdmitted(PromptAdmitted { unattended: true, ..admitted.clone() }),
        ),
        (
            "prompt.admitted.turn",
            Record::PromptAdmitted(PromptAdmitted {
                system: Some("Answer in verse.".to_owned()),
                tools: [("bash".to_owned(), false), ("read".to_owned(), true)].into(),
                ..admitted.clone()
            }),
        ),
        (
            "prompt.admitted.note",
            Record::PromptAdmitted(PromptAdmitted { kind: PromptKind::Note, ..admitted.clone() }),
        ),
        (
            "prompt.admitted.shell",
            Record::PromptAdmitted(PromptAdmitted {
                kind: PromptKind::Shell { command: "make".to_owned(), timeout: Some(600_000) },
                ..admitted.clone()
            }),
        ),
        (
            "prompt.admitted.call",
            Record::PromptAdmitted(PromptAdmitted {
                kind: PromptKind::Call { tool: "read".to_owned(), input: Map::new() },
                ..admitted
            }),
        ),
        (
            "attempt.started.notes",
            Record::AttemptStarted(AttemptStarted { notes: vec![message(9)], ..attempt.clone() }),
        ),
        (
            "attempt.started.ledger",
            Record::AttemptStarted(AttemptStarted {
                purpose: Purpose::Subagent,
                tier: Tier::Light,
                catalogue: Some("2026-11-01".to_owned()),
                ..attempt
            }),
        ),
        (
            "session.created.tree",
            Record::SessionCreated(SessionCreated {
                parent: Some(session(2)),
                root: Some(session(3)),
                parent_step: Some(message(7)),
                ..created.clone()
            }),
        ),
        (
            "session.created.metadata",
            Record::SessionCreated(SessionCreated { metadata: metadata.clone(), ..created.clone() }),
        ),
        (
            "session.created.system",
            Record::SessionCreated(SessionCreated {
                system: Some("Answer in French.\n".to_owned()),
                ..created.clone()
            }),
        ),
        (
            "session.changed.archived",
            Record::SessionChanged(SessionChanged {
                metadata: Some(metadata),
                archived: Some(Some(Timestamp::from_millis(1_795_292_879_257))),
                ..SessionChanged::default()
            }),
        ),
        (
            "session.changed.taken_back",
            Record::SessionChanged(SessionChanged { archived: Some(None), ..SessionChanged::default() }),
        ),
        ("consent.asked.wants", Record::ConsentAsked(asked.clone())),
        (
            "consent.asked.ahead",
            Record::ConsentAsked(ConsentAsked { call: None, walls: None, ..asked.clone() }),
        ),
        (
            "consent.settled.covered",
            Record::ConsentSettled {
                consent: consent(12),
                answer: ConsentAnswer::Covered { by: Some(consent(13)) },
            },
        ),
        (
            "consent.settled.always",
            Record::ConsentSettled { consent: consent(12), answer: ConsentAnswer::Always },
        ),
        (
            "consent.settled.timed_out",
            Record::ConsentSettled { consent: consent(12), answer: ConsentAnswer::TimedOut },
        ),
        (
            "turn.ended.changed",
            Record::TurnEnded(TurnEnded {
                turn: message(3),
                outcome: TurnOutcome::Completed,
                error: None,
                steps: 2,
                totals: Totals::default(),
                changed: Some(Changed { additions: 12, deletions: 3, files: 2 }),
                output: None,
            }),
        ),
        (
            "session.forked.changed",
            Record::Forked(Forked {
                turn: None,
                changed: Changed { additions: 12, deletions: 3, files: 2 },
                ..forked(session(2), session(1), 41)
            }),
        ),
        (
            "consent.settled.unattended",
            Record::ConsentSettled { consent: consent(12), answer: ConsentAnswer::Unattended },
        ),
    ]
}

/// One record of every kind, with most of its fields in use. What is here is what the golden files hold: a change of
/// these is a change of version 1, which must stay readable.
pub(crate) fn one_of_each_kind() -> Vec<Record> {
    let (status, priority) = (TodoStatus::InProgress, TodoPriority::Medium);
    let todo = Todo { content: "look at \u{1f3ad}".to_owned(), status, priority };
    let attachment =
        Attachment::new("image/png", "screen.png", BlobRef { hash: "ab".repeat(32), size: 70_000 });
    let Value::Object(input) =
        json!({"filePath": "src/\"ä\".rs", "limit": 20, "ratio": 0.123_456_789_012_345_68})
    else {
        unreachable!("an object literal")
    };
    let Value::Object(metadata) = json!({"z": 1, "a": [null, true, 1.5e300, -0.0, 18446744073709551615u64]})
    else {
        unreachable!("an object literal")
    };
    let error = ErrorInfo {
        status: Some(429),
        retry_after_ms: Some(1_500),
        ..ErrorInfo::new(ErrorCode::RateLimited, "the provider asks for less traffic")
    };
    let tokens = Tokens {
        input: 1,
        cache_read: 2,
        cache_write_5m: 3,
        cache_write_1h: 4,
        output: 5,
        reasoning: u64::MAX,
        ..Tokens::default()
    };
    vec![
        Record::SessionCreated(SessionCreated {
            title: "New session".to_owned(),
            parent: Some(session(2)),
            ..SessionCreated::new(session(1), TENANT.to_owned(), "/home/ada/project", "build", model())
        }),
        Record::SessionChanged(SessionChanged {
            title: Some("Fix the failing test".to_owned()),
            agent: Some("plan".to_owned()),
            model: Some(ModelRef::new("openrouter", "qwen/qwen3-coder")),
            permissions: None,
            ..SessionChanged::default()
        }),
        Record::Forked(Forked {
            permissions: vec![PermissionRule {
                permission: "bash".to_owned(),
                pattern: "git *".to_owned(),
                action: Action::Ask,
            }],
            metadata: Map::from_iter([("colour".to_owned(), Value::from("blue"))]),
            ..forked(session(2), session(1), 41)
        }),
        Record::PromptAdmitted(PromptAdmitted {
            message: message(3),
            parts: vec![
                Part::text(part(4), "look at this\n\u{1f3ad}"),
                Part::File { id: part(5), file: attachment.clone() },
            ],
            agent: "build".to_owned(),
            model: model(),
            step_limit: Some(50),
            steer: true,
            unattended: false,
            kind: PromptKind::Turn,
            system: None,
            tools: ToolSwitches::new(),
            output: None,
            handed: None,
            attribution: None,
        }),
        Record::TurnStarted { turn: message(3) },
        Record::AttemptStarted(AttemptStarted {
            step_number: 2,
            attempt_number: 3,
            estimated_input: 12_345,
            prices: Prices {
                input: Some("3".parse().unwrap()),
                output: Some("15".parse().unwrap()),
                cache_read: Some("0.30".parse().unwrap()),
                cache_write: Some("3.75".parse().unwrap()),
                cache_write_1h: Some("6".parse().unwrap()),
                ..Prices::default()
            },
            steered: vec![message(8)],
            last: true,
            ..AttemptStarted::new(attempt(6), message(3), message(7), "build", model())
        }),
        Record::AttemptEnded(AttemptEnded {
            usage: Some(Usage {
                tokens,
                quality: Quality::Estimated,
                raw: Some(json!({"input_tokens": 1, "output_tokens": 5})),
                ..Usage::default()
            }),
            cost: Some(Cost("0.00001230".parse().unwrap())),
            answered_by: Some("claude-sonnet-4-5-20250929".to_owned()),
            ..AttemptEnded::new(attempt(6), AttemptOutcome::Failed { error: error.clone() })
        }),
        Record::StepFinished(StepFinished {
            step: message(7),
            parts: vec![
                StepPart::Reasoning {
                    id: part(9),
                    text: "hm".to_owned(),
                    opaque: Some(json!({"signature": "c2ln"})),
                },
                StepPart::Text { id: part(10), text: "I read the file.".to_owned(), opaque: None },
                StepPart::Call { id: part(11), opaque: None },
            ],
            finish: FinishReason::ToolCalls,
            error: Some(error.clone()),
            tokens,
            cost: Some(Cost("0.5".parse().unwrap())),
        }),
        Record::SystemSettled(SystemSettled {
            agent: "build".to_owned(),
            model: model(),
            text: "You are a test.\n\n<environment>\nGit: no\n</environment>\n".to_owned(),
        }),
        Record::ToolsSettled(ToolsSettled {
            agent: "build".to_owned(),
            model: model(),
            tools: ["read", "edit"]
                .map(|name| SettledTool { name: name.to_owned(), ..SettledTool::default() })
                .into(),
            instructions: None,
        }),
        Record::CallProposed(CallProposed::new(
            part(11),
            message(7),
            "toolu_01",
            "read",
            CallInput::Object(input),
        )),
        Record::ConsentAsked(ConsentAsked {
            consent: consent(12),
            call: Some(part(11)),
            tool: String::new(),
            risk: Risk::Dangerous,
            reason: "it writes outside the workspace".to_owned(),
            preview: "rm -rf /tmp/x".to_owned(),
            diff: false,
            wants: Vec::new(),
            walls: None,
        }),
        Record::ConsentSettled {
            consent: consent(12),
            answer: ConsentAnswer::Decline { message: Some("not there".to_owned()) },
        },
        Record::QuestionAsked(QuestionAsked {
            question: question(13),
            call: part(11),
            questions: vec![Question {
                question: "Which one is \"right\"?".to_owned(),
                header: "The right one".to_owned(),
                options: vec![QuestionOption {
                    label: "Both".to_owned(),
                    description: "as they are\nnow".to_owned(),
                }],
                multiple: true,
                custom: false,
            }],
        }),
        Record::QuestionSettled {
            question: question(13),
            answer: QuestionAnswer::Answered { answers: vec![vec!["Both".to_owned()], Vec::new()] },
        },
        Record::TodosChanged { todos: vec![todo] },
        Record::ArtifactCaptured(ArtifactCaptured {
            call: part(11),
            name: "save_note".to_owned(),
            value: Some(json!({"title": "a \u{1f3ad}", "lines": [1, 2.5, null]})),
            blob: None,
            hash: format!("sha256:{}", "a".repeat(64)),
        }),
        changes::changed(part(11)),
        Record::CallIntended(changes::intended(part(11))),
        Record::CallOffered(CallOffered {
            call: part(11),
            tool: "weather_at".to_owned(),
            input: CallInput::from_model(r#"{"city": "Oslo"}"#),
            until: Timestamp::from_millis(1_795_293_479_000),
        }),
        Record::CallAnswered { call: part(11), answer: CallAnswer::Error { error: "\u{1f3ad}".to_owned() } },
        Record::CallSettled {
            call: part(11),
            result: CallResult {
                outcome: CallOutcome::Done,
                title: "src/main.rs".to_owned(),
                output: "1\tfn main() {}\n".to_owned(),
                metadata,
                attachments: vec![attachment],
                started: Timestamp::from_millis(1_795_292_879_000),
                ended: Timestamp::from_millis(1_795_292_879_257),
            },
        },
        Record::ContextCleared(ContextCleared {
            calls: vec![part(11), part(14)],
            shortened: vec![ShortenedOutput { call: part(15), bytes: 4_000 }],
            files: Vec::new(),
        }),
        Record::ContextCompacted(ContextCompacted {
            how: CompactionKind::Summary,
            message: message(16),
            answer: message(17),
            part: part(18),
            text: "<summary-of-the-conversation-so-far>\nall is done".to_owned(),
            first: None,
            prompt: Some(message(3)),
            kept_from: Some(message(7)),
            attempt: Some(attempt(19)),
            by_hand: false,
            before: 22_500,
            after: 9_000,
        }),
        Record::TurnEnded(TurnEnded {
            changed: None,
            output: None,
            turn: message(3),
            outcome: TurnOutcome::MaxSteps,
            error: Some(error),
            steps: 50,
            totals: Totals {
                tokens,
                cost: Cost("1.25".parse().unwrap()),
                attempts: 60,
                estimated: 2,
                unpriced: 1,
            },
        }),
        Record::TurnSummarized(TurnSummarized {
            turn: message(3),
            attempt: attempt(20),
            text: "I fixed the test in `src/a.rs`.".to_owned(),
        }),
        changes::reverted(message(3), part(11)),
        Record::Deleted {},
    ]
}

/// A call with arguments of any size.
pub(crate) fn proposed(call: u64, text: &str) -> Record {
    let input = Map::from_iter([("content".to_owned(), Value::String(text.to_owned()))]);
    Record::CallProposed(CallProposed::new(
        part(call),
        message(call),
        format!("call_{call}"),
        "write",
        CallInput::Object(input),
    ))
}

/// A text of this size that nothing makes smaller.
pub(crate) fn letters(size: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    });
    letters.take(size).collect()
}

/// `records` at the places after `expected`; each is made a millisecond after the one before.
pub(crate) fn entries(expected: u64, records: Vec<Record>) -> Vec<Entry> {
    let places = expected + 1..;
    places
        .zip(records)
        .map(|(seq, record)| Entry {
            seq: Seq(seq),
            at: Timestamp::from_millis(1_800_000_000_000 + seq),
            record,
        })
        .collect()
}

/// Appends and waits until it is durable.
pub(crate) fn append(
    store: &Store,
    session: SessionId,
    expected: u64,
    records: Vec<Record>,
) -> Result<Seq, StoreError> {
    append_entries(store, session, TENANT, Seq(expected), entries(expected, records))
}

/// The same with an append, and so a frame, for each record.
pub(crate) fn append_each(store: &Store, session: SessionId, expected: u64, records: Vec<Record>) {
    for (before, record) in (expected..).zip(records) {
        append(store, session, before, vec![record]).unwrap();
    }
}

pub(crate) fn append_entries(
    store: &Store,
    session: SessionId,
    tenant: &str,
    expected: Seq,
    entries: Vec<Entry>,
) -> Result<Seq, StoreError> {
    let (sender, receiver) = sync_channel(1);
    let append = Append { session, tenant: tenant.into(), expected, entries };
    store.log.append(append, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

pub(crate) fn create(store: &Store, session: SessionId) {
    assert_eq!(append(store, session, 0, vec![created(session, TENANT, "/w")]).unwrap(), Seq(1));
}

pub(crate) fn delete(store: &Store, session: SessionId) -> Result<Seq, StoreError> {
    let (sender, receiver) = sync_channel(1);
    store.log.delete(session, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

/// The whole log, which must be whole.
pub(crate) fn read_all(store: &Store, session: SessionId) -> Vec<Entry> {
    let read = store.log.read(session, Seq::START, usize::MAX).unwrap();
    assert_eq!(read.damage, None);
    read.entries
}

pub(crate) fn fold(entries: &[Entry]) -> Option<SessionSummary> {
    let (first, rest) = entries.split_first()?;
    let mut summary = SessionSummary::begin(first)?;
    rest.iter().for_each(|entry| summary.apply(entry));
    Some(summary)
}
