//! Requests for consent: answers, what is allowed for always, and who is told.

use std::sync::Arc;

use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::{CommandError, ConsentId, Entry, Record};
use playhouse_session::{Input, Ticket};
use ractor::{ActorProcessingErr, ActorRef};

use super::SessionState;
use crate::base::{now, spawn};
use crate::grants::GrantIds;
use crate::mailbox::{SessionMessage, SupervisorMessage};
use crate::measure::Count;

impl SessionState {
    /// The input that an answer is; `None` when something is to be kept before the machine may hear of it.
    pub(super) fn answer(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        ticket: Ticket,
        consent: ConsentId,
        answer: ConsentAnswer,
    ) -> Option<Input> {
        let always = match answer {
            ConsentAnswer::Always => self.open_consent(consent).filter(|asked| !asked.always().is_empty()),
            _ => None,
        };
        let Some(asked) = always else {
            // The machine refuses what cannot be.
            return Some(Input::Answer(ticket, consent, answer));
        };
        let (book, shared, myself) =
            (Arc::clone(self.judge.book()), Arc::clone(&self.shared), myself.clone());
        spawn(async move {
            let pool = shared.pool.clone();
            let granted = pool.run(move || book.add(&*shared.store.shelf, &asked, now())).await;
            // A session that is gone has told its callers that nothing was accepted.
            drop(myself.send_message(SessionMessage::Granted(ticket, consent, granted)));
        });
        None
    }

    fn open_consent(&self, consent: ConsentId) -> Option<ConsentAsked> {
        self.machine.session().open_consents().into_iter().find(|asked| asked.consent == consent)
    }

    /// What "always" means is durable, and holds: now the request may be settled by it.
    pub(super) async fn granted(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        ticket: Ticket,
        consent: ConsentId,
        granted: Result<GrantIds, CommandError>,
    ) -> Result<(), ActorProcessingErr> {
        let added = match granted {
            Ok(added) => added,
            Err(error) => {
                self.reply(ticket, Err(error));
                return Ok(());
            }
        };
        match self.open_consent(consent) {
            Some(asked) => {
                self.feed(myself, Input::Answer(ticket, consent, ConsentAnswer::Always)).await?;
                self.judge.book().tell(&asked.always(), consent);
                Ok(())
            }
            None => {
                // It was settled in the meantime, and the caller is told so: then nothing is allowed by it either.
                self.withdraw(added);
                self.feed(myself, Input::Answer(ticket, consent, ConsentAnswer::Always)).await
            }
        }
    }

    fn withdraw(&self, added: Vec<String>) {
        if added.is_empty() {
            return;
        }
        let (book, shared, session) = (Arc::clone(self.judge.book()), Arc::clone(&self.shared), self.id);
        spawn(async move {
            let pool = shared.pool.clone();
            if let Err(error) = pool.run(move || book.remove(&*shared.store.shelf, &added)).await {
                tracing::error!(%session, %error, "an \"always\" that came too late could not be taken back");
            }
        });
    }

    /// Settles the open requests that need nobody's consent any more.
    pub(super) async fn rejudge(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        by: Option<ConsentId>,
    ) -> Result<(), ActorProcessingErr> {
        self.cover_ahead(myself, by).await?;
        if self.machine.is_suspended() {
            return Ok(());
        }
        let session = self.machine.session();
        let Some(turn) = session.turn.as_ref() else { return Ok(()) };
        let mandates = turn.handed.as_ref().map_or(&[][..], |handed| &handed.mandates);
        let mut open = session.open_consents();
        // Rules are about calls.
        open.retain(|asked| asked.call.is_some() && self.judge.covers(&turn.agent, mandates, &asked.wants));
        for asked in open {
            self.feed(myself, Input::Cover(asked.consent, by)).await?;
        }
        Ok(())
    }

    /// Notes what was appended about consents and rules.
    pub(super) fn look_for_consents(&mut self, entries: &[Entry]) {
        self.look_for_starts(entries);
        for entry in entries {
            match &entry.record {
                Record::ConsentAsked(_) | Record::ConsentSettled { .. } => self.consents_changed = true,
                Record::SessionChanged(changed) => {
                    if let Some(permissions) = &changed.permissions {
                        self.judge.set_own(permissions);
                        self.consents_changed = true;
                    }
                }
                _ => {}
            }
        }
    }

    /// After an input: stands in the book of grants while requests are open, and judges them once more then, since the
    /// rules may have changed after they were judged.
    pub(super) fn note_consents(&mut self, myself: &ActorRef<SessionMessage>) {
        if !std::mem::take(&mut self.consents_changed) {
            return;
        }
        let open = self.machine.session().open_consents();
        self.shared.grants.note_ahead(self.id, &self.tenant, open.iter().any(|asked| asked.call.is_none()));
        self.waiting = None;
        if open.is_empty() {
            return;
        }
        let session = myself.clone();
        // A session that is gone waits no more.
        let rejudge =
            Arc::new(move |consent| drop(session.send_message(SessionMessage::Rejudge(Some(consent)))));
        let wants = open.into_iter().flat_map(|asked| asked.wants).collect();
        self.waiting = Some(self.judge.book().wait(self.id, rejudge, wants));
        // An actor that stops judges nothing.
        drop(myself.send_message(SessionMessage::Rejudge(None)));
    }

    /// Tells the clients of the session at the top of a request here that was asked or settled.
    pub(super) fn announce(&self, record: &Record) {
        let Some(root) = self.root else { return };
        let is_request = matches!(
            record,
            Record::ConsentAsked(_)
                | Record::ConsentSettled { .. }
                | Record::QuestionAsked(_)
                | Record::QuestionSettled { .. }
        );
        if is_request {
            let request =
                SupervisorMessage::Request { root, session: self.id, record: Box::new(record.clone()) };
            self.shared.measures.census.enter(Count::Supervisor);
            // Without a supervisor there are no clients.
            drop(self.supervisor.send_message(request));
        }
    }

    /// The same of those that are open in the log, for whoever listens since the engine started.
    pub(super) fn announce_open(&self) {
        let session = self.machine.session();
        let consents = session.open_consents().into_iter().map(Record::ConsentAsked);
        let questions = session.open_questions().into_iter().map(Record::QuestionAsked);
        consents.chain(questions).for_each(|record| self.announce(&record));
    }
}
