//! What a session's actor is told.

use std::time::Duration;

use playhouse_protocol::id::{AttemptId, PartId};
use playhouse_protocol::question::{Question, QuestionAnswer};
use playhouse_protocol::{
    CallAnswer, ChangeSet, Command, CommandError, ConsentId, MessageId, Prompt, Reply, Seq, SessionReverted,
};
use playhouse_session::{AttemptReport, CallReport, Deadline, PreparedCall, SystemMade, Ticket};
use playhouse_store::StoreError;
use ractor::RpcReplyPort;
use tokio::sync::oneshot;

use crate::conversation::Conversation;
use crate::grants::GrantIds;
use crate::measure::Leaving;
use crate::revert::Reverted;

pub(crate) type ReplyPort = RpcReplyPort<Result<Reply, CommandError>>;

pub(crate) enum SessionMessage {
    /// From a handle.
    Command(Box<Command>, ReplyPort),
    /// From beside the session: a prompt with what is attached to it, or why it cannot be.
    Attached(Box<Result<Prompt, CommandError>>, ReplyPort),
    /// From beside the session, when its work in the background is ended: end what runs.
    Abort(ReplyPort),
    /// The work in the background that a turn had begun was ended: ends the turn.
    AbortTurn(MessageId, ReplyPort),
    /// From the engine: remove the session.
    Delete(ReplyPort),
    /// From the store: an append was flushed, up to here, or failed.
    Flushed(Result<Seq, StoreError>),
    /// From a step actor: how its attempt ended. The conversation comes back with it.
    Attempt(AttemptId, Box<AttemptReport>, Option<Box<Conversation>>),
    /// From itself: tools from outside came or went.
    ToolsChanged,
    /// From a step actor, before its request leaves: the system prompt that the request begins with.
    SystemMade(Box<SystemMade>),
    /// From a call actor: what the call would do.
    Prepared(PartId, Box<Result<PreparedCall, CallReport>>),
    /// From a running call: it asks, and waits for the answer.
    Ask(PartId, Vec<Question>, oneshot::Sender<QuestionAnswer>),
    /// From a running call: it is offered to the platform for so long, and waits for the result.
    Offer(PartId, Duration, oneshot::Sender<CallAnswer>),
    /// The result of a call that was offered, from whoever carries it out.
    Give(PartId, CallAnswer),
    /// From a call actor: how the call ended.
    Call(PartId, Box<CallReport>),
    /// From beside the session: what a call wrote that was cut off; `None` if nothing.
    Wrote(PartId, Option<Box<ChangeSet>>),
    /// From beside the session: what a revert is about to write.
    RevertBegins(Box<SessionReverted>, ReplyPort),
    /// From beside the session: what came of a revert.
    Reverted(Result<Box<Reverted>, CommandError>, ReplyPort),
    /// A time limit passed.
    Deadline(Deadline),
    /// From a timer: what was gathered has waited long enough for what follows it.
    Write,
    /// From the pool: what "always" to a request means is kept, with the names of what is new; or it is not.
    Granted(Ticket, ConsentId, Result<GrantIds, CommandError>),
    /// Rules changed, perhaps by "always" to this request: open requests may need nobody's consent any more.
    Rejudge(Option<ConsentId>),
    /// From the supervisor, once: the session is in memory.
    Awake,
    /// From the supervisor: go on with what is unfinished, if that waits for somebody to say so.
    Resume,
    /// From the engine: say why nothing can be done where it works, if so.
    Place(ReplyPort),
    /// From the pool: where it works was looked for again. It is there now, or what is missing.
    Looked(Result<(), String>),
    /// From the supervisor: it rests for longer, and so shall keep nothing that can be made again.
    Settle,
    /// From the supervisor: leave memory, if there is nothing to do.
    Leave(Leaving),
    /// From the supervisor: tenants were suspended for lack of space. If it is one of theirs, what runs stops.
    Suspend,
    /// From the supervisor: the engine stops. It ends when it is written down what its answer has used.
    Stop,
}

impl SessionMessage {
    /// Whether it may lead to records.
    pub(crate) fn appends(&self) -> bool {
        match self {
            Self::Command(command, _) => appends(command),
            Self::Attached(..) | Self::Abort(_) | Self::AbortTurn(..) | Self::Delete(_) | Self::Resume => {
                true
            }
            _ => false,
        }
    }

    /// Whether it needs the place where the session works. Where a turn waits for that place, so does what would make it go on.
    pub(crate) fn works(&self, waits: bool) -> bool {
        match self {
            Self::Command(command, _) => match **command {
                Command::Prompt(_)
                | Command::Shell(_)
                | Command::Call(_)
                | Command::Revert(_)
                | Command::Unrevert(_) => true,
                Command::Answer { .. }
                | Command::AnswerQuestion { .. }
                | Command::AnswerCall { .. }
                | Command::Compact { .. } => waits,
                _ => false,
            },
            Self::Attached(..) | Self::Place(_) => true,
            Self::AbortTurn(..) | Self::Resume => waits,
            _ => false,
        }
    }

    /// Who waits for the answer to it.
    pub(crate) fn port(self) -> Option<ReplyPort> {
        match self {
            Self::Command(_, port)
            | Self::Attached(_, port)
            | Self::Abort(port)
            | Self::AbortTurn(_, port)
            | Self::Delete(port)
            | Self::Place(port)
            | Self::RevertBegins(_, port)
            | Self::Reverted(_, port) => Some(port),
            _ => None,
        }
    }

    /// For traces.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Command(..) => "command",
            Self::Attached(..) => "attached",
            Self::Abort(_) => "abort",
            Self::AbortTurn(..) => "abort turn",
            Self::Delete(_) => "delete",
            Self::Flushed(_) => "flushed",
            Self::Attempt(..) => "attempt",
            Self::ToolsChanged => "tools-changed",
            Self::SystemMade(_) => "system-made",
            Self::Prepared(..) => "prepared",
            Self::Ask(..) => "ask",
            Self::Offer(..) => "offer",
            Self::Give(..) => "give",
            Self::Call(..) => "call",
            Self::Wrote(..) => "wrote",
            Self::RevertBegins(..) => "revert-begins",
            Self::Reverted(..) => "reverted",
            Self::Deadline(_) => "deadline",
            Self::Write => "write",
            Self::Granted(..) => "granted",
            Self::Rejudge(_) => "rejudge",
            Self::Awake => "awake",
            Self::Resume => "resume",
            Self::Place(_) => "place",
            Self::Looked(..) => "looked",
            Self::Settle => "settle",
            Self::Leave(_) => "leave",
            Self::Suspend => "suspend",
            Self::Stop => "stop",
        }
    }
}

/// Whether a command may write to the log.
pub(crate) fn appends(command: &Command) -> bool {
    !matches!(command, Command::Snapshot | Command::Outline | Command::Messages(_))
}
