//! What the operator's own commands ask of an engine that another process runs, and what it answers: the second carrier of
//! what the handles do in process. It is for the operator's account only, so that it names every tenant.
//!
//! Events are not in it: they come as the streams that all clients read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::command::{Command, CommandError, NewSession, Reply};
use crate::consent::Grant;
use crate::id::{MessageId, SessionId};
use crate::ledger::{ArchivePage, ArchiveQuery, RowPage, RowQuery, UsagePage, UsageQuery};
use crate::message::BlobRef;
use crate::model::ModelRef;
use crate::record::Entry;
use crate::summary::SessionSummary;
use crate::time::Timestamp;
use crate::upkeep::{Reclaimed, StoreReport};
use crate::walls::Sandbox;

/// The version of what stands here. Engines and commands of different versions do not understand each other.
pub const OPERATOR_PROTOCOL: u32 = 5;

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
        /// Without a message: all that can be read is enough, where the log is damaged.
        #[serde(default)]
        readable: bool,
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
    /// Let a session go on with what is unfinished, also if it is parked; absent for all that have something unfinished. Answered
    /// with [`OperatorReply::Resumed`].
    Resume(Option<SessionId>),
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
    /// Sums of what was used. Answered with [`OperatorReply::Usage`].
    Usage(UsageQuery),
    /// Rows of the ledger. Answered with [`OperatorReply::Rows`].
    Rows(RowQuery),
    /// What of the ledger may be written away. Answered with [`OperatorReply::Archivable`].
    Archivable(ArchiveQuery),
    /// Remove what was written away. Answered with [`OperatorReply::Archived`].
    Archive {
        /// Only what ended before this time.
        before: Timestamp,
        /// The numbers of the entries.
        numbers: Vec<u64>,
    },
    /// Something about the sinks that the ledger is exported to.
    Billing(BillingRequest),
    /// Something about the upkeep of the store.
    Store(StoreRequest),
}

/// What is asked about the upkeep of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreRequest {
    /// Read everything, and say what is wrong. Answered with [`OperatorReply::Checked`].
    Check,
    /// Give back the space of what was removed. Answered with [`OperatorReply::Reclaimed`].
    Compact,
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
    /// The sessions that go on, and those that do not.
    Resumed(Resumed),
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
    /// Sums of what was used.
    Usage(UsagePage),
    /// Rows of the ledger.
    Rows(RowPage),
    /// What of the ledger may be written away.
    Archivable(ArchivePage),
    /// How many rows were removed.
    Archived(u64),
    /// The sinks.
    Sinks(Vec<SinkFacts>),
    /// A page of what sinks refused.
    Letters(LetterPage),
    /// What became of what was sent once more.
    Resent(Resent),
    /// Nothing is kept of the sink any more: how much it had refused.
    SinkForgotten(u64),
    /// What is in the store, and what is wrong with it.
    Checked(StoreReport),
    /// The space that came back.
    Reclaimed(Reclaimed),
    /// It was not done.
    Failed(CommandError),
}

/// What is asked about the sinks that the ledger is exported to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "billing", content = "data", rename_all = "snake_case")]
pub enum BillingRequest {
    /// How far they are. Answered with [`OperatorReply::Sinks`].
    Status,
    /// What they refused for good. Answered with [`OperatorReply::Letters`].
    Letters {
        /// Only this sink's.
        sink: Option<String>,
        /// Where the page before ended.
        after: Option<LetterPlace>,
        /// At most so many; 0 stands for the usual page.
        limit: usize,
    },
    /// Send some of that once more. Answered with [`OperatorReply::Resent`].
    Resend {
        /// The sink.
        sink: String,
        /// Only the one with this id.
        id: Option<String>,
        /// Where the last of those ended that were sent already.
        after: Option<LetterPlace>,
    },
    /// Remove what is kept of a sink that is not configured. Answered with [`OperatorReply::SinkForgotten`].
    Forget {
        /// The sink.
        sink: String,
        /// Even if there is something that it refused.
        letters: bool,
    },
}

/// A sink, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkFacts {
    /// Its name in the configuration.
    pub sink: String,
    /// What it is.
    pub kind: String,
    /// Whether it is configured. Of one that is not, what is kept waits for people.
    pub configured: bool,
    /// Whether this engine drives it.
    pub running: bool,
    /// The number of the last entry of the ledger's feed that it took or refused, as all before it.
    pub cursor: u64,
    /// Entries behind that: rows, and ends of turns.
    pub rows_behind: u64,
    /// How old the first of them is that waits to be delivered, in seconds; 0 where none does.
    pub seconds_behind: f64,
    /// What it refused for good, and what waits for people.
    pub dead_letters: u64,
    /// Entries that were delivered since the engine began.
    pub delivered: u64,
    /// What it never gets, because it had left the ledger when the sink began with all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<ArchivedRows>,
    /// Why nothing gets through, where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SinkError>,
}

/// Rows that were written away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedRows {
    /// How many.
    pub rows: u64,
    /// All of them ended before this time.
    pub before: Timestamp,
}

/// Why nothing gets through to a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkError {
    /// Whether address or key are wrong, so that only people can help.
    pub misconfigured: bool,
    /// Why, for people. It holds no key.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// How often it was tried.
    pub tries: u32,
    /// When it is tried again; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// Whether the server asked for that wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

/// A place in the list of what sinks refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterPlace {
    /// The sink.
    pub sink: String,
    /// The number of the entry in the ledger's feed.
    pub number: u64,
    /// Counts what came of that entry, from 0.
    pub part: u32,
}

/// Something that a sink refused for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// The sink.
    pub sink: String,
    /// The id by which the receiver would know it.
    pub id: String,
    /// The status with which it was refused.
    pub status: u16,
    /// Why, in the words of the server.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// The row, or the report of a turn.
    pub entry: Value,
}

/// A page of what sinks refused, sink by sink in the order of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LetterPage {
    /// In order.
    pub letters: Vec<Letter>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<LetterPlace>,
}

/// What became of what was sent once more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resent {
    /// What was taken. It is no dead letter any more.
    pub delivered: u64,
    /// What was refused again.
    pub refused: u64,
    /// What was not tried, because the server cannot be asked now.
    pub left: u64,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the sink waited, and what waits with it is tried at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hurried: bool,
    /// Where to go on; absent where nothing is left to be tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<LetterPlace>,
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
    /// Only those with none above them.
    #[serde(default)]
    pub roots: bool,
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
    /// Why those of them are parked that are known to be.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parked: BTreeMap<SessionId, String>,
}

/// What became of sessions that were to go on with what is unfinished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// Those that go on: they had something unfinished.
    pub sessions: Vec<SessionId>,
    /// Those that cannot go on, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub passed_over: BTreeMap<SessionId, String>,
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
    /// The same as they were given, one for each; none where no links led to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::GroupBy;
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
            OperatorRequest::Usage(UsageQuery { by: vec![GroupBy::Day], ..UsageQuery::default() }),
            OperatorRequest::Rows(RowQuery { session: Some(session), ..RowQuery::default() }),
            OperatorRequest::Archive { before: Timestamp::from_millis(5), numbers: vec![1, 2] },
            OperatorRequest::Resume(None),
            OperatorRequest::Resume(Some(session)),
            OperatorRequest::Billing(BillingRequest::Status),
            OperatorRequest::Billing(BillingRequest::Resend { sink: "a".into(), id: None, after: None }),
            OperatorRequest::Billing(BillingRequest::Forget { sink: "a".into(), letters: true }),
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
            OperatorReply::Usage(UsagePage::default()),
            OperatorReply::Archived(3),
            OperatorReply::Letters(LetterPage::default()),
            OperatorReply::Resent(Resent { left: 1, ..Resent::default() }),
            OperatorReply::SinkForgotten(2),
            OperatorReply::Resumed(Resumed {
                sessions: vec![session],
                passed_over: [(session, "it is parked".to_owned())].into(),
            }),
            OperatorReply::Failed(CommandError::NotFound(session)),
            OperatorReply::Failed(CommandError::ConsentSettled { consent, answer: ConsentAnswer::Once }),
            OperatorReply::Failed(CommandError::Busy),
        ] {
            let json = serde_json::to_string(&reply).unwrap();
            assert_eq!(serde_json::from_str::<OperatorReply>(&json).unwrap(), reply, "{json}");
        }
    }
}
