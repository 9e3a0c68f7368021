//! Giving records to the store, and what follows when they are durable.
//!
//! A step whose calls have no effects makes three appends within a fraction of a millisecond: the answer, what its calls are
//! about to do, and their results with the next attempt. Only the last one is waited for. So records are gathered while more
//! follow by themselves, and written as one append: one frame, one flush, one event for subscribers to wake up for. What
//! somebody waits for is written at once, with all that was gathered before it.

use std::sync::Arc;
use std::time::Instant;

use playhouse_protocol::{Entry, Metric, Record, Seq};
use playhouse_store::{Append, StoreError};
use ractor::ActorRef;
use tokio::task::AbortHandle;

use super::SessionState;
use crate::mailbox::SessionMessage;
use crate::measure;

/// Records that are not given to the store yet.
#[derive(Default)]
pub(super) struct Gathered {
    entries: Vec<Entry>,
    /// Runs while there are any: they are written when it is over.
    timer: Option<AbortHandle>,
}

impl Gathered {
    /// All of them; the next ones wait anew.
    fn take(&mut self) -> Vec<Entry> {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        std::mem::take(&mut self.entries)
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.take();
    }
}

impl SessionState {
    /// Ends when the engine stops and no report of an attempt is to come. What is left to be written is written then.
    pub(super) fn stop_if_due(&self, myself: &ActorRef<SessionMessage>) {
        if self.stopping && !self.machine.is_attempting() {
            myself.stop(None);
        }
    }

    /// Takes records of the machine, which has them already.
    pub(super) fn append(&mut self, entries: Vec<Entry>) {
        let Some(last) = entries.last().map(|entry| entry.seq) else { return };
        if entries.iter().any(|entry| matches!(entry.record, Record::TodosChanged { .. })) {
            self.todos.set(&self.machine.session().todos);
        }
        self.note_rules(&entries);
        self.look_for_consents(&entries);
        self.note_handed(&entries);
        self.unpublished.extend(entries.iter().cloned());
        if let Some(purse) = &self.purse {
            purse.appended(&entries);
        }
        self.following.appended(last);
        if self.gathered.entries.is_empty() {
            self.gathered.entries = entries;
        } else {
            self.gathered.entries.extend(entries);
        }
    }

    /// Writes what was gathered, unless more follows soon and nobody waits for it.
    pub(super) fn write_if_due(&mut self, myself: &ActorRef<SessionMessage>) {
        if self.gathered.entries.is_empty() {
            return;
        }
        if !self.gated.is_empty() || !self.machine.more_follows() {
            self.write(myself);
        } else if self.gathered.timer.is_none() {
            let timer = myself.send_after(self.shared.limits.gathering, || SessionMessage::Write);
            self.gathered.timer = Some(timer.abort_handle());
        }
    }

    /// Writes what was gathered, as one append.
    pub(super) fn write(&mut self, myself: &ActorRef<SessionMessage>) {
        let entries = self.gathered.take();
        let Some(first) = entries.first() else { return };
        let expected = Seq(first.seq.0 - 1);
        let (session, tenant) = (self.id, Arc::clone(&self.tenant));
        let myself = myself.clone();
        let append = Append { session, tenant, expected, entries };
        let durable = Arc::clone(&self.durable);
        let (began, writing) = (Instant::now(), (self.gate.writing(), self.shared.appends.enter()));
        let done = move |result: Result<_, StoreError>| {
            let took = began.elapsed();
            // Before the answer: whoever stops this actor for it finds that all is written.
            drop(writing);
            if let Ok(seq) = &result {
                durable.reached(*seq);
            }
            // A session that is gone does not wait for it.
            drop(myself.send_message(SessionMessage::Flushed(result)));
            measure::took(Metric::LogAppend, took);
        };
        self.shared.store.log.append(append, Box::new(done));
    }

    /// Gives up what was gathered: the store takes nothing.
    pub(super) fn forget_gathered(&mut self) {
        drop(self.gathered.take());
    }

    /// Which rules files models were shown follows from results, and from what is left of them.
    fn note_rules(&self, entries: &[Entry]) {
        for entry in entries {
            match &entry.record {
                Record::CallSettled { call, result } => self.rules.settled(*call, result),
                Record::PromptAdmitted(_) if self.machine.session().context_revision() == entry.seq => {
                    self.rules.set(self.machine.session())
                }
                Record::ContextCleared(_) | Record::ContextCompacted(_) | Record::SystemSettled(_) => {
                    self.rules.set(self.machine.session())
                }
                _ => {}
            }
        }
    }
}
