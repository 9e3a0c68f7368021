//! What is done beside the steps of turns: attempts for titles and summaries, and room that is made in the context.

use playhouse_protocol::Seq;
use playhouse_protocol::id::{AttemptId, MessageId};
use playhouse_protocol::ledger::Purpose;
use playhouse_protocol::message::{Message, Part, PromptKind, ToolSwitches, UserMessage};
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, ContextCleared, ContextCompacted, Entry, TurnSummarized,
};

use super::{OpenAside, Session, StepPhase};
use crate::context::Compacted;

impl Session {
    /// Whether this attempt is under way beside the steps of turns.
    pub(super) fn is_aside(&self, attempt: AttemptId) -> bool {
        self.asides.iter().any(|aside| aside.id == attempt)
    }

    pub(super) fn aside_started(&mut self, started: &AttemptStarted) -> Result<(), String> {
        if self.is_aside(started.attempt) {
            return Err(format!("attempt {} is under way", started.attempt));
        }
        self.asides.push(OpenAside {
            id: started.attempt,
            purpose: started.purpose,
            turn: started.turn,
            model: started.model.clone(),
            estimated_input: started.estimated_input,
        });
        Ok(())
    }

    pub(super) fn aside_ended(&mut self, ended: &AttemptEnded) -> Result<(), String> {
        let place = self.asides.iter().position(|aside| aside.id == ended.attempt);
        let Some(aside) = place.map(|place| self.asides.remove(place)) else {
            return Err(format!("attempt {} is not under way", ended.attempt));
        };
        let failed = matches!(ended.outcome, AttemptOutcome::Failed { .. } | AttemptOutcome::Lost);
        if aside.purpose == Purpose::Compaction && failed {
            self.context.failed_summaries += 1;
        }
        // The turn needed its summary to go on; nobody's turn needs a title.
        if aside.purpose == Purpose::Compaction
            && let Some(turn) = self.turn.as_mut().filter(|turn| turn.id == aside.turn)
        {
            ended.charges().for_each(|(usage, cost)| turn.totals.add_attempt(usage, cost));
        }
        Ok(())
    }

    /// A turn whose messages a reader of the newest ones has forgotten has no place for it.
    pub(super) fn turn_summarized(&mut self, summarized: &TurnSummarized) {
        let prompts = self.messages.iter_mut().rev().filter_map(|message| match message {
            Message::User(prompt) => Some(prompt),
            Message::Assistant(_) => None,
        });
        for prompt in prompts.filter(|prompt| prompt.id == summarized.turn).take(1) {
            prompt.summary = Some(summarized.text.clone());
        }
    }

    pub(super) fn context_cleared(&mut self, cleared: &ContextCleared, at: Seq) {
        let holds = |part: &Part| {
            let is_it = |call| part.id() == call;
            cleared.calls.iter().copied().any(is_it)
                || cleared.files.iter().copied().any(is_it)
                || cleared.shortened.iter().any(|short| is_it(short.call))
        };
        let changed = |message: &Message| match message {
            Message::Assistant(message) => message.parts.iter().any(holds),
            Message::User(message) => message.parts.iter().any(holds),
        };
        // The reasoning of the answer that made the call stands before the call's result.
        if let Some(first) = self.messages.iter().position(changed) {
            self.outdate_from(first + 1);
        }
        let model = self.turn.as_ref().map_or(&self.summary.model, |turn| &turn.model).clone();
        self.context.clear(cleared, &model, at);
        self.room_was_made();
    }

    /// What is read changed in front of the answers from this place on, but for one that is still asked for.
    fn outdate_from(&mut self, place: usize) {
        let end = self.messages.len().saturating_sub(usize::from(self.is_step_open()));
        self.context.outdate(place.min(end)..end);
    }

    fn is_step_open(&self) -> bool {
        let step = self.turn.as_ref().and_then(|turn| turn.step.as_ref());
        step.is_some_and(|step| !matches!(step.phase, StepPhase::Finished { .. }))
    }

    /// Messages that it names and that there are not are those that a reader of the newest ones has forgotten.
    pub(super) fn context_compacted(&mut self, compacted: &ContextCompacted, entry: &Entry) {
        let place = |id: Option<MessageId>| {
            id.and_then(|id| self.messages.iter().rposition(|message| message.id() == id))
        };
        let (first, prompt) = (place(compacted.first), place(compacted.prompt));
        let from = place(compacted.kept_from).unwrap_or(self.messages.len());
        let (how, text) = (compacted.how, compacted.text.clone());
        self.outdate_from(from);
        self.context.compact(Compacted { how, text, first, prompt, from }, entry.seq);
        let (agent, model) = match &self.turn {
            Some(turn) => (turn.agent.clone(), turn.model.clone()),
            None => (self.summary.agent.clone(), self.summary.model.clone()),
        };
        let tells = Message::User(UserMessage {
            id: compacted.message,
            created: entry.at,
            agent,
            model,
            parts: vec![Part::text(compacted.part, compacted.text.clone())],
            withdrawn: false,
            kind: PromptKind::Compaction { how, by_hand: compacted.by_hand, answer: compacted.answer },
            system: None,
            tools: ToolSwitches::new(),
            summary: None,
        });
        // The answer of a step that is attempted again must stay the last message.
        match self.is_step_open() {
            true => self.messages.insert(self.messages.len().saturating_sub(1), tells),
            false => self.messages.push(tells),
        }
        self.room_was_made();
    }

    fn room_was_made(&mut self) {
        self.conversation_bytes = self.count_bytes();
        if let Some(step) = self.turn.as_mut().and_then(|turn| turn.step.as_mut()) {
            step.overflowed = false;
        }
    }

    /// Bytes of what models read, counted anew.
    pub(crate) fn count_bytes(&self) -> u64 {
        let stand_in = self.context.compacted.as_ref().map_or(0, |compacted| {
            let kept = [compacted.first, compacted.prompt].into_iter().flatten();
            let kept = kept.filter_map(|place| self.messages.get(place));
            compacted.text.len() as u64 + kept.map(|message| self.context.bytes_of(message)).sum::<u64>()
        });
        let rest = self.messages.get(self.context.begins_at()..).unwrap_or_default();
        stand_in + rest.iter().map(|message| self.context.bytes_of(message)).sum::<u64>()
    }
}
