//! Asks people about programs that sources of tools start only once somebody agreed, and tells the sources.
//!
//! - Such a request belongs to no call: the turn goes on without the tools, which appear once a person has agreed.
//! - "Always" is kept with what was allowed in the workspace; "once" holds for the session, whose log says so.

use playhouse_policy::Want;
use playhouse_protocol::consent::{ConsentAnswer, ConsentAsked};
use playhouse_protocol::{ConsentId, Entry, Record};
use playhouse_session::{ConsentAhead, Input, OpenConsent};
use playhouse_tools::{Agreed, StartRequest};
use ractor::{ActorProcessingErr, ActorRef};

use super::SessionState;
use crate::grants::{START, want_start};
use crate::mailbox::SessionMessage;

/// The program that a request is about; `None` if it is about a call.
fn subject(asked: &ConsentAsked) -> Option<&str> {
    let is_start = |want: &&Want| asked.call.is_none() && want.permission == START;
    asked.wants.iter().find(is_start).map(|want| want.subject.as_str())
}

impl SessionState {
    /// Before a prompt: tells the sources what was agreed to, and asks for what was not, once in a session. Where nobody can
    /// answer, nobody is asked.
    pub(super) async fn ask_ahead(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        attended: bool,
    ) -> Result<(), ActorProcessingErr> {
        let starts = self.shared.tools.starts(&self.scope);
        let mut gone = self.machine.session().open_consents();
        gone.retain(|asked| subject(asked).is_some_and(|of| !starts.iter().any(|start| start.subject == of)));
        for asked in gone {
            Box::pin(self.feed(myself, Input::WithdrawAhead(asked.consent))).await?;
        }
        for StartRequest { subject, name, reason, preview } in starts {
            let (agreed, asked) = self.agreed_to(&subject);
            self.shared.tools.agreed(&self.scope, &subject, agreed);
            // What a session below another needs, that one was asked for.
            if agreed == Agreed::No && !asked && attended && self.root.is_none() {
                let ahead = ConsentAhead { tool: name, reason, preview, want: want_start(&subject) };
                Box::pin(self.feed(myself, Input::AskAhead(ahead))).await?;
            }
        }
        Ok(())
    }

    /// For whom people agreed to start this, and whether this session asked.
    fn agreed_to(&self, start: &str) -> (Agreed, bool) {
        let ahead = self.machine.session().consents_ahead().iter().rev();
        // One that was withdrawn was answered by nobody.
        let is_asked = |open: &OpenConsent| {
            subject(&open.asked) == Some(start) && open.answer != Some(ConsentAnswer::Withdrawn)
        };
        let asked = ahead.clone().any(is_asked);
        if self.judge.book().grants(&want_start(start)) {
            return (Agreed::Workspace, asked);
        }
        let is_once = |open: &OpenConsent| {
            subject(&open.asked) == Some(start) && open.answer == Some(ConsentAnswer::Once)
        };
        (if ahead.clone().any(is_once) { Agreed::Session } else { Agreed::No }, asked)
    }

    /// Tells the sources of what was answered.
    pub(super) fn look_for_starts(&self, entries: &[Entry]) {
        for entry in entries {
            let Record::ConsentSettled { consent, answer } = &entry.record else { continue };
            let agreed = match answer {
                ConsentAnswer::Once => Agreed::Session,
                answer if answer.agrees() => Agreed::Workspace,
                _ => continue,
            };
            if let Some(start) = self.ahead(*consent).and_then(subject) {
                self.shared.tools.agreed(&self.scope, start, agreed);
            }
        }
    }

    fn ahead(&self, consent: ConsentId) -> Option<&ConsentAsked> {
        let ahead = self.machine.session().consents_ahead();
        ahead.iter().find(|open| open.asked.consent == consent).map(|open| &open.asked)
    }

    /// Settles the open requests of this kind that what was allowed for always covers now.
    pub(super) async fn cover_ahead(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        by: Option<ConsentId>,
    ) -> Result<(), ActorProcessingErr> {
        let mut open = self.machine.session().open_consents();
        open.retain(|asked| subject(asked).is_some_and(|start| self.judge.book().grants(&want_start(start))));
        for asked in open {
            Box::pin(self.feed(myself, Input::Cover(asked.consent, by))).await?;
        }
        Ok(())
    }
}
