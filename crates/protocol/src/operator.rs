//! What the operator's own commands ask of an engine that another process runs, and what it answers: the second carrier of
//! what the handles do in process. It is for the operator's account only, so that it names every tenant.
//!
//! Events are not in it: they come as the streams that all clients read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::command::{Command, CommandError, NewSession, Reply};
use crate::consent::Grant;
use crate::id::{MessageId, SessionId};
use crate::message::BlobRef;
use crate::model::ModelRef;
use crate::record::Entry;
use crate::summary::SessionSummary;
use crate::time::Timestamp;
use crate::walls::Sandbox;

/// The version of what stands here. Engines and commands of different versions do not understand each other.
pub const OPERATOR_PROTOCOL: u32 = 2;

/// Whose the sessions of the operator's own commands are, and of a server without keys.
pub const LOCAL_TENANT: &str = "local";

/// Whose the sessions of calls by hand are. No key is of this tenant, as its name holds a control character: its sessions
/// are in no list, count as no usage, and are gone when the command is that makes the calls.
pub const BY_HAND_TENANT: &str = "\u{1f}by-hand";

/// What is asked of an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", content = "data", rename_all = "snake_case")]
pub enum OperatorRequest {
    /// Who are you? Answered with [`OperatorReply::Engine`].
    Hello,
    /// Answer when you end, with [`OperatorReply::Done`]: until then somebody needs you.
    Stay,
    /// End, if nobody needs you by now or within a moment. Answered with [`OperatorReply::Done`] by an engine that a command
    /// started in the background, which forgets it when it is not asked again.
    Leave,
    /// Make a session. Answered with [`OperatorReply::Created`].
    Create(NewSession),
    /// Fork a session. Answered with [`OperatorReply::Created`].
    Fork {
        /// The session.
        session: SessionId,
        /// The message before which the fork ends; absent for all that is settled by now.
        before: Option<MessageId>,
    },
    /// Ask something of a session; it is woken. Answered with [`OperatorReply::Session`].
    Command {
        /// The session.
        session: SessionId,
        /// What is asked of it.
        command: Command,
    },
    /// List sessions. Answered with [`OperatorReply::Sessions`].
    List(ListSessions),
    /// Facts and totals of a session, without waking it. Answered with [`OperatorReply::Summary`].
    Summary(SessionId),
    /// The log of a session, without waking it. Answered with [`OperatorReply::Log`].
    Read(SessionId),
    /// Remove a session. Answered with [`OperatorReply::Done`].
    Delete(SessionId),
    /// What people allowed for always: to one tenant, or to all. Answered with [`OperatorReply::Grants`].
    Grants(Option<String>),
    /// Withdraw something that was allowed for always. Answered with [`OperatorReply::Revoked`].
    Revoke {
        /// Only what this tenant allowed; absent for any.
        tenant: Option<String>,
        /// Its name.
        grant: String,
    },
    /// Keep content outside the log, for an attachment of a prompt. Answered with [`OperatorReply::Stored`].
    StoreBlob {
        /// Whose it is.
        tenant: String,
        /// The content, in base64.
        content: String,
    },
    /// Make a model that makes these calls, one a step. Answered with [`OperatorReply::Scripted`].
    Script(Vec<ScriptedCall>),
    /// Something about the keys of clients.
    Key(KeyRequest),
}

/// What is asked about the keys of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "key", content = "data", rename_all = "snake_case")]
pub enum KeyRequest {
    /// Make one. Answered with [`OperatorReply::KeyMade`].
    Create {
        /// Whose sessions it opens.
        tenant: String,
        /// What it is called in lists.
        name: String,
        /// The directories below which it works, from the root on; none for those of the server.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        roots: Vec<String>,
        /// When it is made.
        created: Timestamp,
    },
    /// All of them. Answered with [`OperatorReply::Keys`].
    List,
    /// Withdraw one, named by its id or by itself. Answered with [`OperatorReply::KeyRevoked`].
    Revoke(String),
}

/// What an engine answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", content = "data", rename_all = "snake_case")]
pub enum OperatorReply {
    /// Who it is.
    Engine(EngineFacts),
    /// The session was made.
    Created(SessionId),
    /// What the session answered.
    Session(Reply),
    /// A page of sessions.
    Sessions(SessionList),
    /// Facts and totals of a session.
    Summary(Box<SessionSummary>),
    /// The log of a session.
    Log(SessionLog),
    /// It is done.
    Done,
    /// What people allowed for always.
    Grants(Vec<Grant>),
    /// What was withdrawn of it.
    Revoked(Grant),
    /// Where the content is kept.
    Stored(BlobRef),
    /// The model that makes the calls.
    Scripted(ModelRef),
    /// The key that was made.
    KeyMade {
        /// What lists show of it.
        key: ClientKey,
        /// The key itself, for the only time.
        token: String,
    },
    /// All keys.
    Keys(Vec<ClientKey>),
    /// The key that was withdrawn.
    KeyRevoked(ClientKey),
    /// It was not done.
    Failed(CommandError),
}

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// What it speaks: see [`OPERATOR_PROTOCOL`].
    pub protocol: u32,
    /// The version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The run of the engine.
    pub generation: u64,
    /// Stands for its configuration: equal for equal ones.
    pub configuration: String,
    /// The operator's file, where there is one.
    pub file: Option<String>,
    /// Whether there must be walls around the programs of its sessions.
    pub sandbox: Sandbox,
    /// Whether these reach the network.
    pub network: bool,
    /// Whether a command started it in the background, so that it may make way for another.
    pub background: bool,
    /// Whether it is ending, so that it takes no new work.
    pub ending: bool,
}

/// Which sessions to list, newest (by creation) first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSessions {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only those of this directory.
    pub workspace: Option<String>,
    /// Where the page before ended.
    pub after: Option<ListPlace>,
    /// At most so many; 0 stands for the usual page.
    pub limit: usize,
}

/// A place in the list of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPlace {
    /// When the last session of the page was created.
    pub created: Timestamp,
    /// That session.
    pub session: SessionId,
}

/// A page of sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionList {
    /// Newest first.
    pub sessions: Vec<SessionSummary>,
    /// Where the next page begins; absent at the end.
    pub next: Option<ListPlace>,
}

/// The log of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionLog {
    /// Its records, up to the first that cannot be trusted.
    pub entries: Vec<Entry>,
    /// Which one that is and what is wrong with it, if there is one.
    pub damage: Option<String>,
}

/// A call to make by hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub input: Map<String, Value>,
}

/// A key of a client, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientKey {
    /// 12 hexadecimal digits.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// What people call it.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// The directories below which it works: absolute, links resolved. None for those of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConsentAnswer, ConsentId, Prompt};

    #[test]
    fn requests_and_replies_read_back() {
        let session = SessionId::parse("ses_00000000000012345678901234").unwrap();
        let consent = ConsentId::parse("per_00000000000012345678901234").unwrap();
        for request in [
            OperatorRequest::Hello,
            OperatorRequest::Stay,
            OperatorRequest::Command { session, command: Command::Prompt(Prompt::text("go \u{1f600}")) },
            OperatorRequest::Command {
                session,
                command: Command::Answer { consent, answer: ConsentAnswer::Decline { message: None } },
            },
            OperatorRequest::Command { session, command: Command::Abort },
            OperatorRequest::List(ListSessions { limit: 5, ..ListSessions::default() }),
            OperatorRequest::Summary(session),
            OperatorRequest::Grants(None),
            OperatorRequest::Key(KeyRequest::List),
        ] {
            let json = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<OperatorRequest>(&json).unwrap(), request, "{json}");
        }
        for reply in [
            OperatorReply::Created(session),
            OperatorReply::Session(Reply::Aborted { turns: 2 }),
            OperatorReply::Session(Reply::Done),
            OperatorReply::Log(SessionLog::default()),
            OperatorReply::Done,
            OperatorReply::Failed(CommandError::NotFound(session)),
            OperatorReply::Failed(CommandError::ConsentSettled { consent, answer: ConsentAnswer::Once }),
            OperatorReply::Failed(CommandError::Busy),
        ] {
            let json = serde_json::to_string(&reply).unwrap();
            assert_eq!(serde_json::from_str::<OperatorReply>(&json).unwrap(), reply, "{json}");
        }
    }
}
