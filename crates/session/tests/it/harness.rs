//! Drives a machine, keeps its log, and writes effects as short lines.

use std::collections::HashMap;

use playhouse_policy::{Risk, Verdict, Want};
use playhouse_protocol::Delegation;
use playhouse_protocol::consent::ConsentAnswer;
use playhouse_protocol::id::{AttemptId, ConsentId, IdGenerator, MessageId, PartId, QuestionId};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{CallInput, CallOutcome, FinishReason, Part, PromptKind};
use playhouse_protocol::question::{Question, QuestionAnswer, QuestionOption};
use playhouse_protocol::record::{
    AttemptEnded, Effect as CallEffect, Entry, PromptAdmitted, Record, Recovery, SessionCreated, StepPart,
};
use playhouse_protocol::summary::UNTITLED;
use playhouse_protocol::tool::ToolOrigin;
use playhouse_protocol::usage::{LongContext, PriceList, Prices, Tokens, Usage};
use playhouse_protocol::{ErrorCode, ErrorInfo, ModelRef, Seq, Timestamp, WhenBusy};
use playhouse_session::{
    AttemptReport, CallReport, Deadline, Effect, Facts, FailedAttempt, ForkOrder, ForkPoint, Input, Machine,
    ModelDirectory, NewPrompt, PreparedCall, ProposedCall, RetryPolicy, Session, Stamp, StepAnswer, Ticket,
};

/// The model of all prompts.
pub(crate) fn model() -> ModelRef {
    ModelRef::new("mock", "m")
}

/// What the machine is told of models.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TestFacts {
    /// Tokens that a request may have.
    pub(crate) room: Option<u64>,
    /// Whether models are asked for titles and summaries.
    pub(crate) asides: bool,
    /// Whether a new catalogue with twice the prices is in force.
    pub(crate) dearer: bool,
}

impl ModelDirectory for TestFacts {
    fn prices(&self, _: &ModelRef) -> PriceList {
        let (input, output) = if self.dearer { (2, 4) } else { (1, 2) };
        let usual = Prices { input: Some(input.into()), output: Some(output.into()), ..Prices::default() };
        let double = Prices { input: Some(2.into()), output: Some(4.into()), ..Prices::default() };
        let long = vec![LongContext { above: 200_000, prices: double }];
        PriceList { usual, long, ..PriceList::default() }
    }

    fn catalogue(&self, _: &ModelRef) -> Option<String> {
        Some(if self.dearer { "new" } else { "old" }.to_owned())
    }

    fn room(&self, _: &ModelRef) -> Option<u64> {
        self.room
    }
}

impl Facts for TestFacts {
    fn models(&self) -> &dyn ModelDirectory {
        self
    }

    fn overhead_tokens(&self, _: &str, _: &ModelRef) -> u64 {
        100
    }

    fn origin(&self, tool: &str, _: &CallInput) -> Option<ToolOrigin> {
        (tool == "weather").then_some(ToolOrigin::Host)
    }

    fn aside(&self, purpose: Purpose, model: &ModelRef) -> Option<(String, ModelRef)> {
        self.asides.then(|| (purpose.name().to_owned(), model.clone()))
    }
}

/// The prompt with one change.
pub(crate) fn changed(mut new: NewPrompt, change: impl FnOnce(&mut PromptAdmitted)) -> NewPrompt {
    change(&mut new.prompt);
    new
}

pub(crate) fn counting_ids(mut state: u64) -> IdGenerator {
    IdGenerator::new(move |bytes| {
        for byte in bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    })
}

/// A machine with its log, its clock and its ids.
pub(crate) struct Harness {
    pub(crate) machine: Machine,
    pub(crate) log: Vec<Entry>,
    pub(crate) ids: IdGenerator,
    pub(crate) clock: u64,
    pub(crate) facts: TestFacts,
    /// Whether answers come without usage.
    pub(crate) silent: bool,
    /// Attempts, consents and requests with questions in the order in which they came up.
    pub(crate) attempts: Vec<AttemptId>,
    /// Attempts for titles and summaries.
    pub(crate) asides: Vec<AttemptId>,
    pub(crate) consents: Vec<ConsentId>,
    pub(crate) questions: Vec<QuestionId>,
    /// Deadlines for what was cancelled.
    pub(crate) graces: Vec<Deadline>,
    tickets: u64,
    names: HashMap<String, String>,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with("a title", TestFacts::default())
    }

    /// One without a title whose model has little room, and that asks for titles and summaries.
    pub(crate) fn cramped() -> Self {
        Self::with(UNTITLED, TestFacts { room: Some(1_200), asides: true, ..TestFacts::default() })
    }

    /// One that asks for summaries, and whose model has room enough.
    pub(crate) fn roomy() -> Self {
        Self::with("a title", TestFacts { asides: true, ..TestFacts::default() })
    }

    fn with(title: &str, facts: TestFacts) -> Self {
        let mut ids = counting_ids(1);
        let now = Timestamp::from_millis(1_000);
        let created = SessionCreated {
            title: title.into(),
            ..SessionCreated::new(ids.next(now), "local", "/repo", "sisyphus", model())
        };
        let first = Entry { seq: Seq(1), at: now, record: Record::SessionCreated(created) };
        let log = vec![first];
        Self {
            machine: Machine::new(Session::replay(&log).unwrap(), retry()).asking_wait_ms(60_000),
            log,
            ids,
            clock: 1_000,
            facts,
            silent: false,
            attempts: Vec::new(),
            asides: Vec::new(),
            consents: Vec::new(),
            questions: Vec::new(),
            graces: Vec::new(),
            tickets: 0,
            names: HashMap::new(),
        }
    }

    /// The process ends and comes back with what is in the log.
    pub(crate) fn crash(&mut self) -> Vec<String> {
        self.machine = Machine::new(Session::replay(&self.log).unwrap(), retry()).asking_wait_ms(60_000);
        self.on(Input::Resume)
    }

    /// With the time, the ids and the facts of now.
    pub(crate) fn stamped<T>(&mut self, work: impl FnOnce(&mut Stamp<'_>) -> T) -> T {
        let now = Timestamp::from_millis(self.clock);
        work(&mut Stamp { now, ids: &mut self.ids, facts: &self.facts, jitter: 1.0 })
    }

    /// Goes on as a fork of the session at this message; how many records the two share.
    pub(crate) fn fork(&mut self, before: Option<MessageId>) -> usize {
        self.clock += 10;
        let now = Timestamp::from_millis(self.clock);
        let mut point = ForkPoint::new(before);
        let mut session = Session::begin(&self.log[0]).unwrap();
        point.look(&self.log[0], &session);
        for entry in &self.log[1..] {
            session.apply(entry).unwrap();
            point.look(entry, &session);
        }
        let place = point.place(&session).expect("the message is there").0 as usize;
        let order = ForkOrder::new(self.ids.next(now), session.summary.id, &session);
        self.log.truncate(place);
        let prefix = Session::replay(&self.log).unwrap();
        let own = self.stamped(|stamp| playhouse_session::fork(prefix, order, stamp));
        self.log.extend(own.unwrap());
        self.machine = Machine::new(Session::replay(&self.log).unwrap(), retry()).asking_wait_ms(60_000);
        place
    }

    pub(crate) fn raw(&mut self, input: Input) -> Vec<Effect> {
        self.clock += 10;
        let mut stamp = Stamp {
            now: Timestamp::from_millis(self.clock),
            ids: &mut self.ids,
            facts: &self.facts,
            jitter: 1.0,
        };
        let effects = self.machine.on(input, &mut stamp).expect("the machine's own records fit");
        for effect in &effects {
            if let (Effect::StartAttempt(order), Some(room)) = (effect, self.facts.room) {
                assert!(order.estimated_input <= room, "a request fits: {order:?}");
            }
            if let Effect::Arm(grace @ Deadline::AbortGrace { .. }, _) = effect {
                self.graces.push(*grace);
            }
            if let Effect::Append(entries) = effect {
                for entry in entries {
                    match &entry.record {
                        Record::AttemptStarted(started) if started.purpose.is_aside() => {
                            self.asides.push(started.attempt);
                        }
                        Record::AttemptStarted(started) => self.attempts.push(started.attempt),
                        Record::ConsentAsked(asked) => self.consents.push(asked.consent),
                        Record::QuestionAsked(asked) => self.questions.push(asked.question),
                        // That of a command which a person runs is the machine's own.
                        Record::CallProposed(proposed) => {
                            let name = || proposed.tool.clone();
                            self.names.entry(proposed.call.to_string()).or_insert_with(name);
                        }
                        _ => {}
                    }
                }
                self.log.extend(entries.iter().cloned());
            }
        }
        effects
    }

    pub(crate) fn on(&mut self, input: Input) -> Vec<String> {
        let effects = self.raw(input);
        effects.iter().map(|effect| self.line(effect)).collect()
    }

    /// What was cancelled last has not ended in time.
    pub(crate) fn grace_is_over(&mut self) -> Vec<String> {
        let last = *self.graces.last().expect("something was cancelled");
        self.on(Input::Deadline(last))
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(crate) fn new_prompt(
        &mut self,
        text: &str,
        when_busy: WhenBusy,
        step_limit: Option<u32>,
    ) -> NewPrompt {
        let now = Timestamp::from_millis(self.clock);
        let message: MessageId = self.ids.next(now);
        self.names.insert(message.to_string(), text.to_owned());
        let parts = vec![Part::text(self.ids.next(now), text)];
        let prompt = PromptAdmitted::new(message, parts, "sisyphus", model(), PromptKind::Turn);
        NewPrompt { prompt: PromptAdmitted { step_limit, ..prompt }, when_busy }
    }

    pub(crate) fn prompt(&mut self, text: &str) -> Vec<String> {
        self.prompt_with(text, WhenBusy::Queue, None)
    }

    pub(crate) fn prompt_with(&mut self, text: &str, when_busy: WhenBusy, limit: Option<u32>) -> Vec<String> {
        let prompt = self.new_prompt(text, when_busy, limit);
        let ticket = self.ticket();
        self.on(Input::Prompt(ticket, prompt))
    }

    /// A prompt whose turn nobody watches.
    pub(crate) fn prompt_unattended(&mut self, text: &str) -> Vec<String> {
        let prompt = self.new_prompt(text, WhenBusy::Queue, None);
        let prompt = changed(prompt, |prompt| prompt.unattended = true);
        let ticket = self.ticket();
        self.on(Input::Prompt(ticket, prompt))
    }

    /// Something that is only kept.
    pub(crate) fn note(&mut self, text: &str, when_busy: WhenBusy) -> Vec<String> {
        let prompt = changed(self.new_prompt(text, when_busy, None), |prompt| prompt.kind = PromptKind::Note);
        let ticket = self.ticket();
        self.on(Input::Prompt(ticket, prompt))
    }

    /// A command that a person runs by hand.
    pub(crate) fn new_command(&mut self, command: &str) -> NewPrompt {
        let kind = PromptKind::Shell { command: command.to_owned(), timeout: None };
        changed(self.new_prompt(command, WhenBusy::Reject, None), |prompt| prompt.kind = kind)
    }

    pub(crate) fn command(&mut self, command: &str) -> Vec<String> {
        let (prompt, ticket) = (self.new_command(command), self.ticket());
        self.on(Input::Prompt(ticket, prompt))
    }

    pub(crate) fn abort(&mut self) -> Vec<String> {
        let ticket = self.ticket();
        self.on(Input::Abort(ticket))
    }

    pub(crate) fn abort_turn(&mut self, turn: MessageId) -> Vec<String> {
        let ticket = self.ticket();
        self.on(Input::AbortTurn(ticket, turn))
    }

    /// The newest attempt answers with text, and calls of the tools with these names.
    pub(crate) fn answer(&mut self, text: &str, tools: &[&str]) -> Vec<String> {
        let finish = if tools.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        let report = self.finished(text, tools, finish);
        let attempt = *self.attempts.last().unwrap();
        self.on(Input::Attempt(attempt, report))
    }

    pub(crate) fn finished(&mut self, text: &str, tools: &[&str], finish: FinishReason) -> AttemptReport {
        let now = Timestamp::from_millis(self.clock);
        let mut parts = vec![StepPart::Text { id: self.ids.next(now), text: text.into(), opaque: None }];
        let mut calls = Vec::new();
        for (index, tool) in tools.iter().enumerate() {
            let id: PartId = self.ids.next(now);
            self.names.insert(id.to_string(), (*tool).to_owned());
            parts.push(StepPart::Call { id, opaque: None });
            calls.push(ProposedCall {
                id,
                call_id: format!("call_{index}"),
                tool: (*tool).to_owned(),
                input: CallInput::from_model("{}"),
            });
        }
        let tokens = Tokens { input: 10, output: 5, ..Tokens::default() };
        AttemptReport::Finished(StepAnswer {
            parts,
            calls,
            finish,
            usage: (!self.silent).then(|| Usage { tokens, ..Usage::default() }),
            answered_by: None,
        })
    }

    pub(crate) fn fail(&mut self, code: ErrorCode, text: &str) -> Vec<String> {
        let report = self.failed(code, text);
        let attempt = *self.attempts.last().unwrap();
        self.on(Input::Attempt(attempt, report))
    }

    /// The last attempt beside the turns fails: it is made once more when its time has come, and no third time.
    pub(crate) fn fails_once_more(&mut self, purpose: &str) {
        let fails = |h: &mut Self| {
            let (attempt, report) = (*h.asides.last().unwrap(), h.failed(ErrorCode::StreamCut, ""));
            let effects = h.raw(Input::Attempt(attempt, report));
            effects.into_iter().find_map(|effect| match effect {
                Effect::Arm(deadline, 1..) => Some(deadline),
                _ => None,
            })
        };
        let due = fails(self).expect("it is made again later");
        let again = [format!("append attempt.started({purpose})"), format!("ask for {purpose}")];
        assert_eq!(self.on(Input::Deadline(due)), again);
        assert!(fails(self).is_none() && self.on(Input::Deadline(due)).is_empty());
    }

    pub(crate) fn failed(&mut self, code: ErrorCode, text: &str) -> AttemptReport {
        let id = self.ids.next(Timestamp::from_millis(self.clock));
        AttemptReport::Failed(FailedAttempt {
            error: ErrorInfo::new(code, "it broke"),
            parts: vec![StepPart::Text { id, text: text.into(), opaque: None }],
            usage: None,
            streamed_bytes: text.len() as u64,
            may_have_used: true,
            adjusted: false,
        })
    }

    /// How the last attempt that ended did so.
    pub(crate) fn last_ended(&self) -> &AttemptEnded {
        let ended = self.log.iter().rev().find_map(|entry| match &entry.record {
            Record::AttemptEnded(ended) => Some(ended),
            _ => None,
        });
        ended.expect("an attempt ended")
    }

    /// The newest unsettled call of this tool.
    pub(crate) fn call(&self, tool: &str) -> PartId {
        let found = self.names.iter().filter(|(_, name)| *name == tool);
        let ids = found.filter_map(|(id, _)| PartId::parse(id).ok());
        ids.max().expect("the tool was called")
    }

    pub(crate) fn prepared(&mut self, tool: &str, effect: CallEffect) -> Vec<String> {
        self.judged(tool, effect, Verdict::Allow)
    }

    pub(crate) fn judged(&mut self, tool: &str, effect: CallEffect, verdict: Verdict) -> Vec<String> {
        let call = self.call(tool);
        self.on(Input::Prepared(call, Ok(prepared(effect, verdict))))
    }

    pub(crate) fn done(&mut self, tool: &str) -> Vec<String> {
        let call = self.call(tool);
        self.on(Input::Call(call, CallReport::text(CallOutcome::Done, format!("{tool} did it"))))
    }

    /// The tool of this name asks one question, as it runs.
    pub(crate) fn ask(&mut self, tool: &str) -> Vec<String> {
        let call = self.call(tool);
        self.on(Input::Ask(call, vec![question()]))
    }

    /// Somebody answers the newest request for consent.
    pub(crate) fn consent(&mut self, answer: ConsentAnswer) -> Vec<String> {
        let (ticket, consent) = (self.ticket(), *self.consents.last().expect("consent was asked for"));
        self.on(Input::Answer(ticket, consent, answer))
    }

    /// What the model reads of the newest call that has a result.
    pub(crate) fn output(&self) -> &str {
        let settled = self.log.iter().rev().find_map(|entry| match &entry.record {
            Record::CallSettled { result, .. } => Some(result.output.as_str()),
            _ => None,
        });
        settled.expect("a call has a result")
    }

    /// Somebody answers the newest request with questions.
    pub(crate) fn reply_to_question(&mut self, answers: Option<Vec<Vec<String>>>) -> Vec<String> {
        let (ticket, question) = (self.ticket(), *self.questions.last().expect("something was asked"));
        self.on(Input::AnswerQuestion(ticket, question, answers))
    }

    fn name(&self, id: &str) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| "?".into())
    }

    pub(crate) fn line(&self, effect: &Effect) -> String {
        match effect {
            Effect::Append(entries) => {
                let records: Vec<String> = entries.iter().map(|entry| self.record(&entry.record)).collect();
                format!("append {}", records.join(", "))
            }
            Effect::Reply(_, reply) => match reply {
                Ok(playhouse_protocol::Reply::Accepted(accepted)) if accepted.repeated => {
                    "reply accepted before".into()
                }
                Ok(playhouse_protocol::Reply::Accepted(_)) => "reply accepted".into(),
                Ok(playhouse_protocol::Reply::Aborted { turns }) => format!("reply aborted {turns}"),
                Ok(other) => format!("reply {other:?}").to_lowercase(),
                Err(error) => format!("refuse: {error}"),
            },
            Effect::StartAttempt(order) => {
                format!(
                    "start attempt of {} messages{}",
                    order.messages,
                    if order.last { ", last" } else { "" }
                )
            }
            Effect::StartAside(order) => format!("ask for {}", order.purpose),
            Effect::Prepare { tool, looping, .. } => {
                format!("prepare {tool}{}", if *looping { ", looping" } else { "" })
            }
            Effect::Execute { call, after_flush } => {
                let name = self.name(call.as_str());
                format!("execute {name}{}", if *after_flush { " after flush" } else { "" })
            }
            Effect::TellAnswer(call, answer) => {
                format!("tell {} {}", self.name(call.as_str()), answer_word(answer))
            }
            Effect::TellResult(call, answer) => format!("tell {} {answer}", self.name(call.as_str())),
            Effect::CancelAttempt(_) => "cancel attempt".into(),
            Effect::CancelCall(call) => format!("cancel {}", self.name(call.as_str())),
            Effect::KillAttempt(_) => "kill attempt".into(),
            Effect::KillCall(call) => format!("kill {}", self.name(call.as_str())),
            Effect::Arm(deadline, ms) => {
                let kind = format!("{deadline:?}");
                format!("arm {} in {ms} ms", kind.split(' ').next().unwrap_or_default())
            }
            Effect::RetryLater { attempt_number, wait_ms, .. } => {
                format!("attempt {attempt_number} in {wait_ms} ms")
            }
            Effect::Remove(_) => "remove".into(),
        }
    }

    fn record(&self, record: &Record) -> String {
        let detail = match record {
            Record::TurnStarted { turn } => self.name(turn.as_str()),
            Record::AttemptStarted(started) if started.purpose.is_aside() => {
                started.purpose.name().to_owned()
            }
            Record::AttemptStarted(started) if started.steered.is_empty() && started.notes.is_empty() => {
                format!("{}.{}", started.step_number, started.attempt_number)
            }
            Record::AttemptStarted(started) => {
                let steered: Vec<String> =
                    started.steered.iter().chain(&started.notes).map(|id| self.name(id.as_str())).collect();
                format!("{}.{} with {}", started.step_number, started.attempt_number, steered.join("+"))
            }
            Record::AttemptEnded(ended) => match &ended.outcome {
                playhouse_protocol::record::AttemptOutcome::Failed { .. } => "failed".into(),
                other => format!("{other:?}").to_lowercase(),
            },
            Record::StepFinished(finished) => format!("{:?}", finished.finish).to_lowercase(),
            Record::CallProposed(proposed) => proposed.tool.clone(),
            Record::CallIntended(intended) => self.name(intended.call.as_str()),
            Record::CallOffered(offered) => self.name(offered.call.as_str()),
            Record::CallAnswered { call, .. } => self.name(call.as_str()),
            Record::CallSettled { call, result } => {
                format!("{} {:?}", self.name(call.as_str()), result.outcome).to_lowercase()
            }
            Record::ConsentSettled { answer, .. } => {
                let text = format!("{answer:?}").to_lowercase();
                text.split(' ').next().unwrap_or_default().to_owned()
            }
            Record::QuestionSettled { answer, .. } => answer_word(answer),
            Record::ContextCleared(cleared) => {
                format!("{}, {} shortened", cleared.calls.len(), cleared.shortened.len())
            }
            Record::ContextCompacted(compacted) => format!("{:?}", compacted.how).to_lowercase(),
            Record::TodosChanged { todos } => todos.len().to_string(),
            Record::WorkspaceChanged(changed) => {
                format!("{} {}", self.name(changed.call.as_str()), changed.set.changes.len())
            }
            Record::ArtifactCaptured(artifact) => artifact.name.clone(),
            Record::TurnEnded(ended) => format!("{} {}", self.name(ended.turn.as_str()), ended.outcome),
            _ => return record.kind().to_owned(),
        };
        format!("{}({detail})", record.kind())
    }
}

pub(crate) fn prepared(effect: CallEffect, verdict: Verdict) -> PreparedCall {
    let recovery = if effect == CallEffect::None { Recovery::Rerun } else { Recovery::Interrupt };
    PreparedCall {
        effect,
        recovery,
        verdict,
        risk: Risk::Dangerous,
        preview: "a preview".into(),
        diff: false,
        walls: None,
        delegation: None,
        before: Vec::new(),
        tracked: false,
    }
}

/// A command that can be allowed for always.
pub(crate) fn command(text: &str) -> Want {
    Want::new("bash", text, Risk::Dangerous).always([format!("{text} *")])
}

/// People must agree to these commands.
pub(crate) fn ask(commands: &[&str]) -> Verdict {
    let wants = commands.iter().map(|text| command(text)).collect();
    Verdict::Ask { reason: "no rule allows it".into(), wants }
}

/// A call that hands work over.
pub(crate) fn prepared_task(delegation: Delegation) -> PreparedCall {
    PreparedCall {
        recovery: Recovery::Reattach,
        delegation: Some(delegation),
        ..prepared(CallEffect::Delegated, Verdict::Allow)
    }
}

/// A call that asks, and goes on waiting after a crash.
pub(crate) fn prepared_question() -> PreparedCall {
    PreparedCall { recovery: Recovery::Reattach, ..prepared(CallEffect::None, Verdict::Allow) }
}

/// One question with the options `yes` and `no`, and nothing else to say.
pub(crate) fn question() -> Question {
    let option =
        |label: &str| QuestionOption { label: label.to_owned(), description: format!("say {label}") };
    Question {
        question: "Go on?".to_owned(),
        header: "Going on".to_owned(),
        options: vec![option("yes"), option("no")],
        multiple: false,
        custom: false,
    }
}

fn answer_word(answer: &QuestionAnswer) -> String {
    match answer {
        QuestionAnswer::Answered { answers } => {
            answers.iter().map(|chosen| chosen.join("+")).collect::<Vec<_>>().join("/")
        }
        QuestionAnswer::Rejected => "rejected".to_owned(),
        QuestionAnswer::TimedOut => "timed out".to_owned(),
        QuestionAnswer::Withdrawn => "withdrawn".to_owned(),
    }
}

fn retry() -> RetryPolicy {
    RetryPolicy { attempts: 3, base_ms: 100, longest_ms: 1_000, total_ms: 10_000 }
}
