//! Messages that were taken back: they stay until the next prompt is admitted.

use std::collections::HashSet;

use playhouse_protocol::message::FinishReason;
use playhouse_protocol::revert::RevertTarget;
use playhouse_protocol::{Message, MessageId, Part, PartId, RevertPoint, Seq, SessionReverted};

use super::Session;

/// A revert that was not taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRevert {
    /// The place of its record.
    pub seq: Seq,
    /// From where on messages are taken back.
    pub point: RevertPoint,
    /// Paths of which the writing failed, or is not known to have ended.
    pub failed: Vec<String>,
    /// Whether it is not known how it ended.
    pub under_way: bool,
}

impl Session {
    /// From where on messages are taken back now.
    pub fn reverted_to(&self) -> Option<RevertPoint> {
        self.reverts.last().map(|revert| revert.point)
    }

    /// The messages that the next prompt drops as a whole.
    pub fn taken_back(&self) -> Vec<MessageId> {
        let Some(point) = self.reverted_to() else { return Vec::new() };
        let Some(place) = self.message_place(point.message) else { return Vec::new() };
        let place = place + usize::from(self.place_in(point) > 0);
        self.messages[place..].iter().map(Message::id).collect()
    }

    /// The prompt before which the next revert goes: the last one that is not taken back.
    pub fn last_prompt(&self) -> Option<RevertPoint> {
        let end = match self.reverted_to() {
            // A call is taken back, and its prompt not yet.
            Some(RevertPoint { message, call: Some(_) }) => self.message_place(message)?,
            Some(point) => self.message_place(point.message)?,
            None => self.messages.len(),
        };
        self.messages[..end].iter().rev().find_map(|message| match message {
            Message::User(prompt)
                if !(prompt.withdrawn || prompt.kind.is_note() || prompt.kind.is_compaction()) =>
            {
                Some(RevertPoint { message: prompt.id, call: None })
            }
            _ => None,
        })
    }

    /// The point before a message or a call; `None` where there is no such one.
    pub fn revert_point(&self, target: RevertTarget) -> Option<RevertPoint> {
        let call = match target {
            RevertTarget::Message(message) => {
                return self.message_place(message).map(|_| RevertPoint { message, call: None });
            }
            RevertTarget::Call(call) => call,
        };
        let holds = |message: &&Message| match message {
            Message::Assistant(answer) => answer.parts.iter().any(|part| is_call(part, call)),
            Message::User(_) => false,
        };
        let message = self.messages.iter().find(holds)?.id();
        Some(RevertPoint { message, call: Some(call) })
    }

    /// The calls from `point` on, as far as they are not taken back; all of them from there on with `all`. `None` where the
    /// point itself is taken back already.
    pub fn calls_from(&self, point: RevertPoint, all: bool) -> Option<HashSet<PartId>> {
        let to = (self.message_place(point.message)?, self.place_in(point));
        let end = match self.reverted_to().filter(|_| !all) {
            Some(taken) => (self.message_place(taken.message)?, self.place_in(taken)),
            None => (self.messages.len(), 0),
        };
        if to >= end {
            return None;
        }
        let mut calls = HashSet::new();
        for (place, message) in self.messages.iter().enumerate().take(end.0 + 1).skip(to.0) {
            let Message::Assistant(answer) = message else { continue };
            for (index, part) in answer.parts.iter().enumerate() {
                if let Part::Call(call) = part
                    && (to..end).contains(&(place, index))
                {
                    calls.insert(call.id);
                }
            }
        }
        Some(calls)
    }

    pub(super) fn reverted(&mut self, reverted: &SessionReverted, seq: Seq) -> Result<(), String> {
        if let Some(turn) = &self.turn {
            return Err(format!("turn {} still runs", turn.id));
        }
        let under_way = reverted.under_way;
        if reverted.redone > 0 {
            // What is done again stays undone until that has ended.
            if !under_way {
                let left = self.reverts.len().saturating_sub(reverted.redone as usize);
                self.reverts.truncate(left);
            }
        } else if let Some(message) = reverted.to {
            let point = RevertPoint { message, call: reverted.call };
            if !under_way
                && let Some(last) = self.reverts.last_mut()
                && last.under_way
                && last.point == point
            {
                if reverted.set.is_nothing() && reverted.failed.is_empty() {
                    // One that was cut off had written all: its record says what.
                    last.under_way = false;
                    last.failed.clear();
                    return Ok(());
                }
                // Its own beginning.
                self.reverts.pop();
            }
            self.reverts.push(OpenRevert { seq, point, failed: reverted.failed.clone(), under_way });
        }
        Ok(())
    }

    /// Drops the messages that are taken back.
    pub(super) fn drop_reverted(&mut self, at: Seq) {
        let Some(point) = self.reverted_to() else { return };
        self.reverts.clear();
        let Some(mut place) = self.message_place(point.message) else { return };
        let index = self.place_in(point);
        if index > 0
            && let Some(Message::Assistant(answer)) = self.messages.get_mut(place)
        {
            answer.parts.truncate(index);
            if answer.finish == Some(FinishReason::ToolCalls)
                && !answer.parts.iter().any(|part| matches!(part, Part::Call(_)))
            {
                answer.finish = Some(FinishReason::Stop);
            }
            place += 1;
        }
        let dropped = &self.messages[place..];
        let compacted = dropped.iter().any(|message| match message {
            Message::User(prompt) => prompt.kind.is_compaction(),
            Message::Assistant(_) => false,
        });
        self.messages.truncate(place);
        self.context.rewind(place, compacted, at);
        self.conversation_bytes = self.count_bytes();
    }

    fn message_place(&self, id: MessageId) -> Option<usize> {
        self.messages.iter().rposition(|message| message.id() == id)
    }

    /// The place of the first part that is taken back, within its message.
    fn place_in(&self, point: RevertPoint) -> usize {
        let (Some(call), Some(place)) = (point.call, self.message_place(point.message)) else { return 0 };
        match &self.messages[place] {
            Message::Assistant(answer) => {
                answer.parts.iter().position(|part| is_call(part, call)).unwrap_or_default()
            }
            Message::User(_) => 0,
        }
    }
}

fn is_call(part: &Part, id: PartId) -> bool {
    matches!(part, Part::Call(call) if call.id == id)
}
