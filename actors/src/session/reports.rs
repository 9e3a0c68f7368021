//! Work in the background: a sub-session tells the session above how its turn ended, and an abort of that session ends the work.

use std::time::Duration;

use playhouse_protocol::record::TurnEnded;
use playhouse_protocol::{Delegate, Entry, HandedOver, MessageId, Record, SessionId};
use playhouse_session::Session;
use ractor::ActorRef;

use super::SessionState;
use crate::api::engine::Engine;
use crate::base::spawn;
use crate::mailbox::{ReplyPort, SessionMessage};
use crate::tasks::{Told, last_text, look_after, report};

/// How long work that is aborted may take to end before the abort of the session that began it goes on.
const ABORT_WAIT: Duration = Duration::from_secs(5);

/// The prompts here of whose end another session is to be told.
pub(super) fn awaited(session: &Session) -> Vec<(MessageId, Box<HandedOver>)> {
    let queued = session.queue.iter().map(|queued| (queued.prompt.message, queued.prompt.handed.as_ref()));
    let running = session.turn.iter().map(|turn| (turn.id, turn.handed.as_ref()));
    let awaited = running.chain(queued).filter_map(|(turn, handed)| Some((turn, handed?.clone())));
    awaited.filter(|(_, handed)| handed.report.is_some()).collect()
}

impl SessionState {
    /// The engine, for what concerns other sessions.
    pub(super) fn engine(&self) -> Engine {
        Engine { shared: self.shared.clone(), supervisor: self.supervisor.clone(), ids: self.ids.clone() }
    }

    /// Notes prompts that were appended, and of whose end another session is to be told.
    pub(super) fn note_handed(&mut self, entries: &[Entry]) {
        for entry in entries {
            if let Record::PromptAdmitted(prompt) = &entry.record
                && let Some(handed) = prompt.handed.as_ref().filter(|handed| handed.report.is_some())
            {
                self.reports.push((prompt.message, handed.clone()));
            }
        }
    }

    /// A turn is over, durably: tells the session that waits to hear of it.
    pub(super) fn tell_end(&mut self, ended: &TurnEnded) {
        let Some(place) = self.reports.iter().position(|(turn, _)| *turn == ended.turn) else { return };
        let (_, handed) = self.reports.swap_remove(place);
        let Some(report_by) = handed.report else { return };
        let session = self.machine.session();
        let told = Told {
            to: handed.from,
            report: report_by,
            task: self.id,
            title: session.summary.title.clone(),
            outcome: Some(ended.outcome),
            text: report(ended, last_text(&session.messages, ended.turn)),
            handed: *handed,
        };
        let engine = self.engine();
        spawn(async move { told.tell(&engine).await });
    }

    /// Looks after work in the background that was begun before this session was woken.
    pub(super) fn look_after_background(&self) {
        let session = self.machine.session();
        for delegate in session.background.clone() {
            let (engine, to) = (self.engine(), self.id);
            let (model, agent) = (session.summary.model.clone(), session.summary.agent.clone());
            spawn(async move { look_after(&engine, to, delegate, model, agent).await });
        }
    }

    /// Ends work in the background, and then what runs here.
    pub(super) fn abort_all(&self, myself: &ActorRef<SessionMessage>, port: ReplyPort) {
        let background = self.machine.session().background.clone();
        self.abort_with(myself, background, SessionMessage::Abort(port));
    }

    /// The work in the background that this turn has begun, if it runs, and whose end was not told.
    fn background_of(&self, turn: MessageId) -> Vec<Delegate> {
        let session = self.machine.session();
        let running = session.turn.as_ref().filter(|running| running.id == turn);
        let begun = running.map_or(&[][..], |running| &running.begun);
        begun.iter().copied().filter(|delegate| session.background.contains(delegate)).collect()
    }

    /// Whether this turn runs, and has begun work in the background whose end was not told.
    pub(super) fn began_background(&self, turn: MessageId) -> bool {
        !self.background_of(turn).is_empty()
    }

    /// Ends the work in the background that this turn has begun, and then the turn.
    pub(super) fn abort_turn_and_background(
        &self,
        myself: &ActorRef<SessionMessage>,
        turn: MessageId,
        port: ReplyPort,
    ) {
        self.abort_with(myself, self.background_of(turn), SessionMessage::AbortTurn(turn, port));
    }

    fn abort_with(&self, myself: &ActorRef<SessionMessage>, background: Vec<Delegate>, then: SessionMessage) {
        let (engine, myself, to) = (self.engine(), myself.clone(), self.id);
        let summary = &self.machine.session().summary;
        let (model, agent) = (summary.model.clone(), summary.agent.clone());
        spawn(async move {
            let ended = abort_background(&engine, &background);
            if tokio::time::timeout(ABORT_WAIT, ended).await.is_err() {
                tracing::warn!(session = %to, "tasks in the background do not end");
            }
            // A session that is gone drops the port: then its caller asks once more.
            drop(myself.send_message(then));
            for delegate in background {
                // One that had ended before was not told yet, or is gone.
                look_after(&engine, to, delegate, model.clone(), agent.clone()).await;
            }
        });
    }

    /// The same for a session that is deleted: nobody waits.
    pub(super) fn abandon_background(&self) {
        let (engine, background) = (self.engine(), self.machine.session().background.clone());
        if !background.is_empty() {
            spawn(async move { abort_background(&engine, &background).await });
        }
    }
}

/// Ends work in the background.
async fn abort_background(engine: &Engine, background: &[Delegate]) {
    let abort = |delegate: &Delegate| {
        let (session, prompt): (SessionId, MessageId) = (delegate.session, delegate.prompt);
        let handle = engine.handle(session);
        async move {
            if let Err(error) = handle.abort_turn(prompt).await {
                tracing::debug!(%session, %error, "a task in the background is not aborted");
            }
        }
    };
    futures::future::join_all(background.iter().map(abort)).await;
}
