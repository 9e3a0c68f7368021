//! Reverts of a session: begun while nothing runs, carried out beside it. What is asked of it meanwhile waits.

use std::sync::Arc;

use futures::FutureExt as _;
use playhouse_changes::Selection;
use playhouse_protocol::revert::{RevertPoint, RevertRequest, RevertTarget, TAKEN_BACK, UnrevertRequest};
use playhouse_protocol::{Command, CommandError, Reply};
use playhouse_session::{Input, Session};
use ractor::ActorRef;

use super::SessionState;
use crate::base::spawn;
use crate::mailbox::{ReplyPort, SessionMessage, ask};
use crate::revert::{Begin, Reverted, Reverter, Wanted};

/// What is taken back: the sets, and from where on messages are.
struct Range {
    wanted: Wanted,
    point: Option<RevertPoint>,
    redone: u32,
    selection: Selection,
}

impl SessionState {
    /// Whether this has to wait for a revert that is carried out.
    pub(super) fn waits_for_revert(&self, message: &SessionMessage) -> bool {
        self.reverting
            && match message {
                SessionMessage::Command(command, _) => !matches!(
                    **command,
                    Command::Snapshot | Command::Outline | Command::Messages(_) | Command::Change(_)
                ),
                SessionMessage::Attached(..) | SessionMessage::Delete(_) => true,
                _ => false,
            }
    }

    pub(super) fn revert(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        mut request: RevertRequest,
        port: ReplyPort,
    ) {
        if let Ok(place) = self.place() {
            let root = place.workspace.root().to_string_lossy();
            request.paths.iter_mut().for_each(|path| *path = as_reported(&root, path));
        }
        let range = self.nothing_runs().and_then(|()| range(self.machine.session(), &request));
        self.begin_revert(myself, range, request.dry_run, port);
    }

    pub(super) fn unrevert(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        request: UnrevertRequest,
        port: ReplyPort,
    ) {
        let range = self.nothing_runs().and_then(|()| {
            let reverts = &self.machine.session().reverts;
            let count = u32::try_from(reverts.len()).unwrap_or(u32::MAX);
            let redone = request.steps.unwrap_or(count).min(count);
            if redone == 0 {
                return Err(CommandError::Invalid(
                    "nothing is undone that could be done again: a new prompt drops what was undone".into(),
                ));
            }
            let (left, taken) = reverts.split_at(reverts.len() - redone as usize);
            let wanted = Wanted::Reverts(taken.iter().map(|revert| revert.seq).collect());
            let point = left.last().map(|revert| revert.point);
            Ok(Range { wanted, point, redone, selection: Selection::default() })
        });
        self.begin_revert(myself, range, request.dry_run, port);
    }

    /// Refuses while calls of the session may still change files, and says what to stop. Commands in the background are asked for
    /// by the [`Reverter`].
    fn nothing_runs(&self) -> Result<(), CommandError> {
        let session = self.machine.session();
        if !session.is_idle() || !self.calls.is_empty() {
            let why = "a turn of the session is running: abort it, or wait for its end, and try again";
            return Err(CommandError::StillRunning(why.into()));
        }
        if !session.background.is_empty() {
            let why = "a task of the session is running in the background: abort it, or wait for its end, and try again";
            return Err(CommandError::StillRunning(why.into()));
        }
        // What a command in the background wrote is not known yet either: that is said by its name.
        let processes = self.shared.processes.of(self.id.as_str());
        if self.writes_awaited > 0 && !processes.list().iter().any(|command| command.runs()) {
            let why =
                "what a call of the session wrote that was cut off is not known yet: try again in a moment";
            return Err(CommandError::StillRunning(why.into()));
        }
        Ok(())
    }

    fn begin_revert(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        range: Result<Range, CommandError>,
        dry_run: bool,
        port: ReplyPort,
    ) {
        let begun = range.and_then(|range| Ok((range, self.place()?.clone())));
        let (Range { wanted, point, redone, selection }, place) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                // A caller that went away needs no answer.
                drop(port.send(Err(error)));
                return;
            }
        };
        self.reverting = true;
        self.listen();
        let reverter = Reverter {
            shared: Arc::clone(&self.shared),
            tenant: Arc::clone(&self.tenant),
            session: self.id,
            workspace: Arc::clone(&place.workspace),
            judge: Arc::clone(&self.judge),
            wanted,
            point,
            redone,
            selection,
            dry_run,
        };
        let (myself, child) = (myself.clone(), self.shared.children.enter());
        let session = myself.clone();
        let begin: Begin = Box::new(move |begun| {
            async move {
                ask(&session, |port| SessionMessage::RevertBegins(Box::new(begun), port)).await?.map(drop)
            }
            .boxed()
        });
        spawn(async move {
            // If it panics, the session does not wait for it for ever.
            let reverted = match tokio::spawn(Box::pin(reverter.run(begin))).await {
                Ok(reverted) => reverted.map(Box::new),
                Err(_) => Err(CommandError::NotAccepted("the revert crashed: the log says where".into())),
            };
            // A session that is gone has written what it has: the same revert again finds it done.
            drop(myself.send_message(SessionMessage::Reverted(reverted, port)));
            drop(child);
        });
    }

    /// A revert was carried out. What waited for it comes again.
    pub(super) fn reverted(
        &mut self,
        myself: &ActorRef<SessionMessage>,
        reverted: Result<Box<Reverted>, CommandError>,
        port: ReplyPort,
    ) -> Option<Input> {
        self.reverting = false;
        for message in std::mem::take(&mut self.waits_for_revert) {
            drop(myself.send_message(message));
        }
        match reverted {
            Ok(reverted) if reverted.1.dry_run => {
                drop(port.send(Ok(Reply::Reverted(reverted.1))));
                None
            }
            Ok(reverted) => {
                let (record, report) = *reverted;
                Some(Input::Reverted(self.ticket(port), record, report))
            }
            Err(error) => {
                drop(port.send(Err(error)));
                None
            }
        }
    }
}

/// A path as reports of reverts name it, of one that a person wrote: from the workspace on.
fn as_reported(root: &str, path: &str) -> String {
    let within = path.strip_prefix(root).and_then(|path| path.strip_prefix('/'));
    let path = within.unwrap_or(path);
    path.strip_prefix("./").unwrap_or(path).to_owned()
}

/// What a request to revert takes back.
fn range(session: &Session, request: &RevertRequest) -> Result<Range, CommandError> {
    let invalid = |why: String| CommandError::Invalid(why);
    let named = match &request.to {
        Some(to) => {
            let none = || invalid(format!("there is no message and no call {to} in this session"));
            let point = RevertTarget::parse(to).and_then(|target| session.revert_point(target));
            Some(point.ok_or_else(none)?)
        }
        None => None,
    };
    // Paths that a revert left alone are named to that revert, and what it could not write is tried again.
    let last = session.reverts.last().filter(|last| named.is_none_or(|point| point == last.point));
    let again = last.and_then(|last| {
        let paths = if request.paths.is_empty() { &last.failed } else { &request.paths };
        (!paths.is_empty()).then(|| (last.point, Selection::only(paths.clone())))
    });
    let (point, selection, is_again) = match (again, named) {
        (Some((point, selection)), _) => (point, selection, true),
        (None, named) => {
            let last = || invalid("there is no prompt before this whose changes could be undone".to_owned());
            let point = named.or_else(|| session.last_prompt()).ok_or_else(last)?;
            (point, Selection { named: request.paths.clone(), only_named: false }, false)
        }
    };
    let calls = session.calls_from(point, is_again).ok_or_else(|| invalid(TAKEN_BACK.to_owned()))?;
    Ok(Range { wanted: Wanted::Calls(calls), point: Some(point), redone: 0, selection })
}
