//! What each kind of record does to a session.

use std::collections::VecDeque;

use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::id::{ConsentId, MessageId, PartId, QuestionId};
use playhouse_protocol::message::{
    AssistantMessage, CallOutcome, CallPart, CallResult, CallState, Message, Part, ToolSwitches, UserMessage,
    turns_off,
};
use playhouse_protocol::output::{OutputState, SUBMIT_OUTPUT};
use playhouse_protocol::question::{QuestionAnswer, QuestionAsked};
use playhouse_protocol::record::{
    ArtifactCaptured, AttemptEnded, AttemptOutcome, AttemptStarted, CallIntended, CallProposed, Deferral,
    Forked, PromptAdmitted, SettledTool, StepFinished, StepPart, SystemSettled, ToolsSettled,
};
use playhouse_protocol::usage::{Quality, Tokens, Totals};
use playhouse_protocol::{CallAnswer, Cost, Entry, ErrorCode, ModelRef, Record, Seq, Timestamp};

use super::size::{answer_bytes, user_bytes};
use super::{
    CallPhase, Offer, OpenAttempt, OpenCall, OpenConsent, OpenQuestion, Pricing, QueuedPrompt, REMEMBERED,
    Session, SettledRequest, ShownTools, Step, StepPhase, Turn, rules_in_prompt,
};

/// Number of requests for consent that are about no call, of which a session knows.
const MOST_AHEAD: usize = 64;

impl Session {
    pub(super) fn fold(&mut self, entry: &Entry) -> Result<(), String> {
        self.check_next(entry.seq)?;
        match &entry.record {
            Record::SessionCreated(_) => Err("the session was created before".into()),
            Record::SessionChanged(changed) => {
                if let Some(permissions) = &changed.permissions {
                    self.permissions.clone_from(permissions);
                }
                Ok(())
            }
            Record::Forked(forked) => self.forked(forked),
            Record::PromptAdmitted(prompt) => self.prompt_admitted(prompt, entry),
            Record::TurnStarted { turn } => self.turn_started(*turn),
            Record::AttemptStarted(started) if started.purpose.is_aside() => self.aside_started(started),
            Record::AttemptStarted(started) => self.attempt_started(started, entry.at),
            Record::AttemptEnded(ended) if self.is_aside(ended.attempt) => self.aside_ended(ended),
            Record::AttemptEnded(ended) => self.attempt_ended(ended),
            Record::CallProposed(proposed) => self.call_proposed(proposed.clone(), entry.at),
            Record::StepFinished(finished) => self.step_finished(finished.clone(), entry.at),
            Record::ConsentAsked(asked) => self.consent_asked(asked.clone()),
            Record::ConsentSettled { consent, answer } => self.consent_settled(*consent, answer),
            Record::QuestionAsked(asked) => self.question_asked(asked),
            Record::CallOffered(offered) => self.call_offered(offered.call, offered.until),
            Record::CallAnswered { call, answer } => self.call_answered(*call, answer),
            Record::QuestionSettled { question, answer } => self.question_settled(*question, answer),
            Record::SystemSettled(settled) => self.system_settled(settled, entry.seq),
            Record::ToolsSettled(settled) => {
                self.tools_settled(settled, entry.seq);
                Ok(())
            }
            Record::TodosChanged { todos } => {
                self.todos.clone_from(todos);
                Ok(())
            }
            Record::ArtifactCaptured(artifact) => self.artifact_captured(artifact),
            Record::WorkspaceChanged(changed) => {
                self.workspace_changed(changed);
                Ok(())
            }
            Record::CallIntended(intended) => self.call_intended(intended, entry.at),
            Record::CallSettled { call, result } => self.call_settled(*call, result.clone()),
            Record::ContextCleared(cleared) => {
                self.context_cleared(cleared, entry.seq);
                Ok(())
            }
            Record::ContextCompacted(compacted) => {
                self.context_compacted(compacted, entry);
                Ok(())
            }
            Record::TurnEnded(ended) => self.turn_ended(ended.turn),
            Record::TurnSummarized(summarized) => {
                self.turn_summarized(summarized);
                Ok(())
            }
            Record::Reverted(reverted) => self.reverted(reverted, entry.seq),
            Record::Deleted {} => match &self.turn {
                Some(turn) => Err(format!("turn {} still runs", turn.id)),
                None => Ok(()),
            },
        }
    }

    /// Adds an entry of a kind that holds much of what the session keeps. Another one is given back.
    pub(super) fn fold_large(&mut self, entry: Entry) -> Result<Option<Entry>, String> {
        let Entry { seq, at, record } = entry;
        let follows = self.check_next(seq);
        match record {
            Record::CallProposed(proposed) => follows.and_then(|()| self.call_proposed(proposed, at))?,
            Record::StepFinished(finished) => follows.and_then(|()| self.step_finished(finished, at))?,
            Record::ConsentAsked(asked) => follows.and_then(|()| self.consent_asked(asked))?,
            Record::CallSettled { call, result } => {
                follows.and_then(|()| self.call_settled(call, result))?;
            }
            record => return Ok(Some(Entry { seq, at, record })),
        }
        self.summary.advance(seq, at);
        Ok(None)
    }

    /// Whether a record with this place is the next one.
    fn check_next(&self, seq: Seq) -> Result<(), String> {
        if seq != self.summary.head.next() {
            return Err(format!("it should be record {}", self.summary.head.next()));
        }
        if self.is_deleted() {
            return Err("the session was deleted before".into());
        }
        Ok(())
    }

    /// From here on it is another session. What waited stays with the one that it came from, and so does what was used.
    fn forked(&mut self, forked: &Forked) -> Result<(), String> {
        if forked.at != self.summary.head {
            return Err(format!("it should stand behind record {}, which it names as the last", forked.at));
        }
        let (tenant, workspace) = (&self.summary.tenant, &self.summary.workspace);
        if forked.tenant != *tenant || forked.workspace != *workspace {
            return Err(format!("the session before it is one of tenant \"{tenant}\" in {workspace}"));
        }
        if !self.is_between_steps() {
            return Err("an attempt is under way".into());
        }
        if forked.turn != self.turn.as_ref().map(|turn| turn.id) {
            return Err("it names another turn than the one that runs".into());
        }
        for queued in self.withdrawn.drain(..).chain(self.queue.drain(..)) {
            self.prompts.remove(&queued.prompt.message);
        }
        if let Some(turn) = &mut self.turn {
            turn.totals = Totals::default();
            if let Some(step) = &mut turn.step {
                step.totals = Totals::default();
            }
        }
        self.permissions.clone_from(&forked.permissions);
        // Who is told how it ended is the session that began it.
        self.background.clear();
        // What people said to the one that it came from, they said to that one.
        self.ahead.clear();
        // The one that it came from waits for them, and pays.
        self.asides.clear();
        self.shares_with.push(self.summary.id);
        Ok(())
    }

    fn system_settled(&mut self, settled: &SystemSettled, seq: Seq) -> Result<(), String> {
        let SystemSettled { agent, model, .. } = settled;
        if let Some(earlier) = self.system_at(agent, model) {
            return Err(format!("the system prompt of {agent} with {model} is settled in record {earlier}"));
        }
        self.settled_rules.extend(rules_in_prompt(&settled.text).map(str::to_owned));
        self.systems.push((agent.clone(), model.clone(), seq));
        Ok(())
    }

    fn prompt_admitted(&mut self, prompt: &PromptAdmitted, entry: &Entry) -> Result<(), String> {
        self.drop_reverted(entry.seq);
        let at = entry.at;
        self.background.retain(|delegate| delegate.report != Some(prompt.message));
        if self.knows_prompt(prompt.message) {
            return Err(format!("prompt {} was admitted before", prompt.message));
        }
        self.prompts.insert(prompt.message);
        self.queue.push_back(QueuedPrompt { prompt: prompt.clone(), at });
        self.read_notes();
        Ok(())
    }

    /// Between turns, the notes that no prompt stands before become part of the conversation.
    fn read_notes(&mut self) {
        while self.turn.is_none()
            && self.queue.front().is_some_and(|queued| queued.prompt.kind.is_note())
            && let Some(note) = self.queue.pop_front()
        {
            self.push_user(&note);
        }
    }

    fn turn_started(&mut self, id: MessageId) -> Result<(), String> {
        if let Some(turn) = &self.turn {
            return Err(format!("turn {} still runs", turn.id));
        }
        let queued = self.take_queued(id)?;
        let prompt = &queued.prompt;
        if prompt.kind.is_note() {
            return Err(format!("{id} is a note, which has no turn"));
        }
        self.context.failed_summaries = 0;
        self.attributions.begin(prompt, self.summary.parent);
        self.turn = Some(Turn {
            id,
            agent: prompt.agent.clone(),
            model: prompt.model.clone(),
            step_limit: prompt.step_limit,
            unattended: prompt.unattended || self.unattended,
            kind: prompt.kind.clone(),
            tools: prompt.tools.clone(),
            output: prompt.output.clone().map(|wanted| Box::new(OutputState::new(*wanted))),
            handed: prompt.handed.clone(),
            totals: Totals::default(),
            pricing: None,
            changed: false,
            begun: Vec::new(),
            step: None,
        });
        self.push_user(&queued);
        Ok(())
    }

    fn take_queued(&mut self, id: MessageId) -> Result<QueuedPrompt, String> {
        let place = self.queue.iter().position(|queued| queued.prompt.message == id);
        let queued = place.and_then(|place| self.queue.remove(place));
        if self.queue.is_empty() {
            // Most sessions have no prompt that waits for most of their time.
            self.queue = VecDeque::new();
        }
        queued.ok_or_else(|| format!("prompt {id} does not wait"))
    }

    fn push_user(&mut self, queued: &QueuedPrompt) {
        let message = queued.message();
        self.conversation_bytes += user_bytes(&message);
        self.messages.push(Message::User(message));
    }

    fn attempt_started(&mut self, started: &AttemptStarted, at: Timestamp) -> Result<(), String> {
        for steered in started.steered.iter().chain(&started.notes) {
            let queued = self.take_queued(*steered)?;
            self.push_user(&queued);
            if let Some(turn) = &mut self.turn
                && queued.prompt.kind.is_turn()
            {
                turn.tools = both(&turn.tools, &queued.prompt.tools);
                if let Some(wanted) = queued.prompt.output.clone() {
                    turn.output = Some(Box::new(OutputState::new(*wanted)));
                }
            }
        }
        let turn = self.turn.as_mut().ok_or("no turn runs")?;
        if !turn.kind.is_turn() {
            return Err("no model is asked in the turn of a command".into());
        }
        if turn.id != started.turn {
            return Err(format!("turn {} runs", turn.id));
        }
        turn.pricing.get_or_insert_with(|| {
            Box::new(Pricing { prices: started.price_list(), catalogue: started.catalogue.clone() })
        });
        let phase = StepPhase::Attempting(OpenAttempt {
            id: started.attempt,
            estimated_input: started.estimated_input,
            conversation_bytes: self.conversation_bytes,
        });
        match &mut turn.step {
            Some(step) if step.id == started.step => {
                if matches!(step.phase, StepPhase::Finished { .. }) {
                    return Err(format!("step {} is finished", step.id));
                }
                step.attempts = started.attempt_number;
                step.phase = phase;
                // Proposals of an answer whose end never reached the log are void.
                self.step_message(started.step)?.parts.clear();
            }
            _ => {
                if let Some(Step { phase: StepPhase::Attempting(_), id, .. }) = &turn.step {
                    return Err(format!("step {id} is under way"));
                }
                turn.step = Some(Step {
                    id: started.step,
                    number: started.step_number,
                    last: started.last,
                    attempts: started.attempt_number,
                    failures: 0,
                    bad_answers: 0,
                    empty_answers: 0,
                    overflowed: false,
                    totals: Totals::default(),
                    phase,
                });
                if started.last {
                    self.context.remind(started.step);
                }
                let (agent, model) = (started.agent.clone(), started.model.clone());
                self.push_assistant(started.step, started.turn, at, agent, model);
            }
        }
        Ok(())
    }

    fn push_assistant(
        &mut self,
        step: MessageId,
        turn: MessageId,
        at: Timestamp,
        agent: String,
        model: ModelRef,
    ) {
        let unread = self.turn.as_ref().is_some_and(|running| running.id == turn && running.kind.is_block());
        self.messages.push(Message::Assistant(AssistantMessage {
            id: step,
            parent: turn,
            created: at,
            completed: None,
            agent,
            model,
            tokens: Tokens::default(),
            cost: Some(Cost::ZERO),
            finish: None,
            error: None,
            unread,
            parts: Vec::new(),
        }));
    }

    fn call_proposed(&mut self, proposed: CallProposed, at: Timestamp) -> Result<(), String> {
        if let Some(turn) = &mut self.turn
            && turn.kind.is_one_call()
            && turn.step.is_none()
        {
            turn.step = Some(Step {
                id: proposed.step,
                number: 1,
                last: false,
                attempts: 0,
                failures: 0,
                bad_answers: 0,
                empty_answers: 0,
                overflowed: false,
                totals: Totals::default(),
                phase: StepPhase::Unanswered,
            });
            let (turn, agent, model) = (turn.id, turn.agent.clone(), turn.model.clone());
            self.push_assistant(proposed.step, turn, at, agent, model);
        }
        let message = self.step_message(proposed.step)?;
        message.parts.push(Part::Call(CallPart {
            id: proposed.call,
            call_id: proposed.call_id,
            tool: proposed.tool,
            input: proposed.input,
            source: proposed.source,
            opaque: None,
            state: CallState::Pending,
            changed: None,
        }));
        Ok(())
    }

    fn tools_settled(&mut self, settled: &ToolsSettled, seq: Seq) {
        let ToolsSettled { agent, model, tools, instructions: _ } = settled;
        self.shown_tools.retain(|shown| (&shown.agent, &shown.model) != (agent, model));
        let is_outside =
            |tool: &&SettledTool| tool.spec.is_some() && tool.deferral != Some(Deferral::Fallback);
        let outside = tools.iter().filter(is_outside).map(|tool| tool.name.clone()).collect();
        self.shown_tools.push(ShownTools { agent: agent.clone(), model: model.clone(), seq, outside });
    }

    fn attempt_ended(&mut self, ended: &AttemptEnded) -> Result<(), String> {
        let turn = self.turn.as_mut().ok_or("no turn runs")?;
        let step = turn.step.as_mut().ok_or("no step is under way")?;
        let bytes = match &step.phase {
            StepPhase::Attempting(open) if open.id == ended.attempt => open.conversation_bytes,
            _ => return Err(format!("attempt {} is not under way", ended.attempt)),
        };
        step.phase = StepPhase::Unanswered;
        let failed = match &ended.outcome {
            AttemptOutcome::Failed { error } => Some(error.code),
            _ => None,
        };
        step.failures += u32::from(failed.is_some());
        step.bad_answers += u32::from(failed == Some(ErrorCode::BadAnswer));
        step.empty_answers += u32::from(failed == Some(ErrorCode::EmptyAnswer));
        step.overflowed = failed == Some(ErrorCode::ContextOverflow);
        if step.overflowed {
            self.context.refuse(&turn.model, bytes);
        }
        if ended.outcome == AttemptOutcome::Finished {
            self.context.in_a_row = 0;
            self.context.accept(&turn.model, bytes);
        }
        let Some(usage) = &ended.usage else { return Ok(()) };
        if usage.quality == Quality::Reported && usage.tokens.all_input() > 0 {
            self.context.calibrate(&turn.model, bytes, usage.tokens.all_input());
        }
        for (usage, cost) in ended.charges() {
            step.totals.add_attempt(usage, cost);
            turn.totals.add_attempt(usage, cost);
        }
        let (id, totals) = (step.id, step.totals);
        let message = self.step_message(id)?;
        message.tokens = totals.tokens;
        message.cost = totals.known_cost();
        Ok(())
    }

    fn step_finished(&mut self, finished: StepFinished, at: Timestamp) -> Result<(), String> {
        let step = self.turn.as_mut().and_then(|turn| turn.step.as_mut()).ok_or("no step is under way")?;
        if step.id != finished.step || step.phase != StepPhase::Unanswered {
            return Err(format!("step {} does not wait for it", step.id));
        }
        let message = self.step_message(finished.step)?;
        let mut proposed = std::mem::take(&mut message.parts);
        let mut calls = Vec::new();
        message.parts.reserve_exact(finished.parts.len());
        for part in finished.parts {
            message.parts.push(match part {
                StepPart::Text { id, text, opaque } => Part::Text { id, text, marks: None, opaque },
                StepPart::Reasoning { id, text, opaque } => Part::Reasoning { id, text, opaque },
                StepPart::Call { id, opaque } => {
                    let place = proposed.iter().position(|part| part.id() == id);
                    let place = place.ok_or_else(|| format!("call {id} was never proposed"))?;
                    calls.push(OpenCall {
                        id,
                        phase: CallPhase::Proposed,
                        consent: None,
                        question: None,
                        delegate: None,
                        before: Vec::new(),
                        offer: None,
                    });
                    let mut part = proposed.swap_remove(place);
                    if let Part::Call(call) = &mut part {
                        call.opaque = opaque.map(Box::new);
                    }
                    part
                }
            });
        }
        message.completed = Some(at);
        message.finish = Some(finished.finish);
        message.error.clone_from(&finished.error);
        self.conversation_bytes += answer_bytes(message);
        if let Some(turn) = &mut self.turn
            && let Some(step) = &mut turn.step
        {
            if let Some(output) = turn.output.as_mut().filter(|_| calls.is_empty()) {
                output.tries += 1;
            }
            step.phase =
                StepPhase::Finished { finish: finished.finish, error: finished.error.clone(), calls };
        }
        Ok(())
    }

    fn consent_asked(&mut self, asked: ConsentAsked) -> Result<(), String> {
        let Some(id) = asked.call else {
            if self.ahead.len() >= MOST_AHEAD {
                // Those that are answered before those that wait.
                let settled = self.ahead.iter().position(|open| open.answer.is_some());
                self.ahead.remove(settled.unwrap_or(0));
            }
            self.ahead.push(OpenConsent { asked, answer: None });
            return Ok(());
        };
        let call = self.open_call(id)?;
        match call.phase {
            CallPhase::Proposed | CallPhase::Intended { .. } => {}
            CallPhase::Asking(consent) => {
                return Err(format!("call {id} waits for consent {consent} already"));
            }
            CallPhase::Settled => return Err(format!("call {id} has its result already")),
        }
        call.phase = CallPhase::Asking(asked.consent);
        call.consent = Some(Box::new(OpenConsent { asked, answer: None }));
        self.call_part(id)?.state = CallState::Asking;
        Ok(())
    }

    fn consent_settled(&mut self, consent: ConsentId, answer: &ConsentAnswer) -> Result<(), String> {
        let mut ahead = self.ahead.iter_mut();
        if let Some(open) = ahead.find(|open| open.asked.consent == consent && open.answer.is_none()) {
            open.answer = Some(answer.clone());
            self.remember(SettledRequest::Consent(consent, answer.clone()));
            return Ok(());
        }
        let calls = self.open_calls().into_iter().flatten();
        let mut asking = calls.filter(|call| call.phase == CallPhase::Asking(consent));
        let call = asking.next().ok_or("no call waits for it")?;
        call.phase = CallPhase::Proposed;
        if let Some(open) = &mut call.consent {
            open.answer = Some(answer.clone());
        }
        let id = call.id;
        self.call_part(id)?.state = CallState::Pending;
        self.remember(SettledRequest::Consent(consent, answer.clone()));
        Ok(())
    }

    fn question_asked(&mut self, asked: &QuestionAsked) -> Result<(), String> {
        let call = self.open_call(asked.call)?;
        if !matches!(call.phase, CallPhase::Intended { .. }) {
            return Err(format!("call {} does not run", asked.call));
        }
        if let Some(OpenQuestion { id, answer: None, .. }) = &call.question {
            return Err(format!("call {} waits for request {id} already", asked.call));
        }
        let questions = asked.questions.clone();
        call.question = Some(OpenQuestion { id: asked.question, questions, answer: None });
        Ok(())
    }

    fn question_settled(&mut self, question: QuestionId, answer: &QuestionAnswer) -> Result<(), String> {
        let calls = self.open_calls().into_iter().flatten();
        let mut asking = calls.filter_map(|call| call.question.as_mut());
        let open = asking.find(|open| open.id == question && open.answer.is_none());
        open.ok_or("no call waits for it")?.answer = Some(answer.clone());
        self.remember(SettledRequest::Question(question, answer.clone()));
        Ok(())
    }

    fn call_offered(&mut self, call: PartId, until: Timestamp) -> Result<(), String> {
        let open = self.open_call(call)?;
        if !matches!(open.phase, CallPhase::Intended { .. }) || open.offer.is_some() {
            return Err(format!("call {call} does not run, or was offered before"));
        }
        open.offer = Some(Box::new(Offer { until, answer: None }));
        Ok(())
    }

    fn call_answered(&mut self, call: PartId, answer: &CallAnswer) -> Result<(), String> {
        let open = self.open_call(call)?;
        let waits = open.phase != CallPhase::Settled;
        let offer = open.offer.as_mut().filter(|offer| waits && offer.answer.is_none());
        offer.ok_or_else(|| format!("call {call} waits for no result"))?.answer = Some(answer.clone());
        Ok(())
    }

    fn remember(&mut self, settled: SettledRequest) {
        if self.settled.len() == REMEMBERED {
            self.settled.pop_front();
        }
        self.settled.push_back(settled);
    }

    fn call_settled(&mut self, call: PartId, result: CallResult) -> Result<(), String> {
        let open = self.open_call(call)?;
        match open.phase {
            CallPhase::Proposed | CallPhase::Intended { .. } => {}
            CallPhase::Asking(consent) => return Err(format!("call {call} waits for consent {consent}")),
            CallPhase::Settled => return Err(format!("call {call} has its result already")),
        }
        open.phase = CallPhase::Settled;
        let before = std::mem::take(&mut open.before);
        let begun = open.delegate.filter(|_| result.outcome == CallOutcome::Done);
        if let (Some(delegate), None) = (open.delegate, begun) {
            // Whatever came of it, nobody is told of it any more.
            self.background.retain(|other| *other != delegate);
        }
        self.conversation_bytes += self.context.result_bytes(call, &result);
        let names_none = self.names_no_change(call, &before);
        if !names_none && self.tally.add(call, &result) {
            self.turn.iter_mut().for_each(|turn| turn.changed = true);
        }
        let is_done = result.outcome == CallOutcome::Done;
        let part = self.call_part(call)?;
        part.state = CallState::Settled(result);
        if part.tool == SUBMIT_OUTPUT {
            let input = part.input.clone();
            if let Some(output) = self.turn.as_mut().and_then(|turn| turn.output.as_mut()) {
                output.submitted(&input, is_done);
            }
        }
        Ok(())
    }

    /// It is in the log, for those who ask for it: nothing of a session depends on it.
    fn artifact_captured(&mut self, artifact: &ArtifactCaptured) -> Result<(), String> {
        match self.open_call(artifact.call)?.phase {
            CallPhase::Intended { .. } => Ok(()),
            _ => Err(format!("call {} does not run", artifact.call)),
        }
    }

    fn call_intended(&mut self, intended: &CallIntended, at: Timestamp) -> Result<(), String> {
        let call = self.open_call(intended.call)?;
        match call.phase {
            CallPhase::Proposed | CallPhase::Intended { .. } => {}
            CallPhase::Asking(consent) => return Err(format!("the call waits for consent {consent}")),
            CallPhase::Settled => return Err("the call has its result already".into()),
        }
        call.phase = CallPhase::Intended { effect: intended.effect, recovery: intended.recovery };
        call.delegate = intended.delegate;
        call.before.clone_from(&intended.before);
        if let Some(delegate) = intended.delegate.filter(|delegate| delegate.report.is_some())
            && !self.background.contains(&delegate)
        {
            self.background.push(delegate);
            if let Some(turn) = &mut self.turn {
                turn.begun.push(delegate);
            }
        }
        self.call_part(intended.call)?.state =
            CallState::Running { started: at, session: intended.delegate.map(|delegate| delegate.session) };
        Ok(())
    }

    fn turn_ended(&mut self, id: MessageId) -> Result<(), String> {
        match &self.turn {
            Some(turn) if turn.id == id => {
                match turn.step.as_ref().map(|step| &step.phase) {
                    Some(StepPhase::Attempting(open)) => {
                        return Err(format!("attempt {} is under way", open.id));
                    }
                    Some(StepPhase::Finished { calls, .. }) => {
                        if let Some(call) = calls.iter().find(|call| call.phase != CallPhase::Settled) {
                            return Err(format!("call {} has no result", call.id));
                        }
                    }
                    Some(StepPhase::Unanswered) | None => {}
                }
                self.turn = None;
            }
            _ => {
                let queued = self.take_queued(id)?;
                self.withdrawn.push(queued);
            }
        }
        if self.turn.is_none() {
            // The answer of a turn that runs must stay the last message until it is over.
            for queued in std::mem::take(&mut self.withdrawn) {
                self.messages.push(Message::User(UserMessage { withdrawn: true, ..queued.message() }));
            }
            self.read_notes();
        }
        Ok(())
    }

    fn step_message(&mut self, id: MessageId) -> Result<&mut AssistantMessage, String> {
        match self.messages.last_mut() {
            Some(Message::Assistant(message)) if message.id == id => Ok(message),
            _ => Err(format!("step {id} is not the last message")),
        }
    }

    fn call_part(&mut self, id: PartId) -> Result<&mut CallPart, String> {
        let Some(Message::Assistant(message)) = self.messages.last_mut() else {
            return Err("the last message is no answer".into());
        };
        let part = message.parts.iter_mut().find_map(|part| match part {
            Part::Call(call) if call.id == id => Some(call),
            _ => None,
        });
        part.ok_or_else(|| format!("there is no call {id} in the last step"))
    }

    fn open_call(&mut self, id: PartId) -> Result<&mut OpenCall, String> {
        let calls = self.open_calls().ok_or("no step with calls is under way")?;
        calls.iter_mut().find(|call| call.id == id).ok_or_else(|| format!("there is no open call {id}"))
    }

    fn open_calls(&mut self) -> Option<&mut Vec<OpenCall>> {
        match &mut self.turn.as_mut()?.step.as_mut()?.phase {
            StepPhase::Finished { calls, .. } => Some(calls),
            StepPhase::Attempting(_) | StepPhase::Unanswered => None,
        }
    }
}

/// The switches of a turn with one more prompt: what one of its prompts turns off stays off.
fn both(one: &ToolSwitches, other: &ToolSwitches) -> ToolSwitches {
    let is_on = |name: &str| !turns_off(one, name) && !turns_off(other, name);
    one.keys().chain(other.keys()).map(|name| (name.clone(), is_on(name))).collect()
}
