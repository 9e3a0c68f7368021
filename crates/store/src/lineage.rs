//! Logs that share records: the log of a fork begins with records of the log that it was forked from.
//!
//! A fork has a link: to the log that holds the last record that it shares, and the place of that. Where that log is a
//! fork's too, its link leads on. Records are never copied. A log that is deleted while forks need records of it keeps
//! those and no others, and is a rest: nobody can read or list it. Its records go with the last fork that needs them.

use playhouse_protocol::{Seq, SessionId};

use crate::draft::Draft;
use crate::index::Look;
use crate::{StoreError, frame, keys};

/// The most links from a fork to the beginning of its log.
pub(crate) const DEEPEST: usize = 1_000;

const VERSION: u8 = 1;
const HEADER: usize = 1 + size_of::<u32>();

/// Where a fork's log goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The log that holds the last shared record.
    pub(crate) log: SessionId,
    /// The place of that.
    pub(crate) at: Seq,
}

impl Link {
    /// The stored form: a version, a checksum, the log, the place.
    fn encode(self, fork: SessionId) -> Vec<u8> {
        let body = [self.log.as_str().as_bytes(), &self.at.0.to_be_bytes()].concat();
        [&[VERSION][..], &checksum(fork, &body).to_be_bytes(), &body].concat()
    }

    fn decode(fork: SessionId, value: &[u8]) -> Option<Self> {
        let (header, body) = value.split_at_checked(HEADER)?;
        let (version, sum) = header.split_at(1);
        if version != [VERSION] || checksum(fork, body).to_be_bytes() != sum {
            return None;
        }
        let (log, at) = body.split_at_checked(body.len().checked_sub(size_of::<u64>())?)?;
        let log = SessionId::parse(std::str::from_utf8(log).ok()?).ok()?;
        Some(Self { log, at: Seq(u64::from_be_bytes(at.try_into().ok()?)) })
    }
}

fn checksum(fork: SessionId, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fork.as_str().as_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Why a log cannot be followed to its beginning.
pub(crate) type Broken = String;

/// The link of a session; `None` for one that is no fork.
pub(crate) fn link(look: Look<'_>, session: SessionId) -> Result<Result<Option<Link>, Broken>, StoreError> {
    let Some(value) = look(&keys::link(session))? else { return Ok(Ok(None)) };
    Ok(match Link::decode(session, &value) {
        Some(link) => Ok(Some(link)),
        None => Err(format!("the link of {session} to the log that it was forked from is damaged")),
    })
}

/// Records of one log that belong to the log of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) log: SessionId,
    /// The first record that this log has itself.
    pub(crate) first: Seq,
    /// The last one that belongs here; `None` for all.
    pub(crate) last: Option<Seq>,
}

impl Segment {
    /// Whether the record at this place is behind those that belong here.
    pub(crate) fn is_behind(self, seq: Seq) -> bool {
        self.last.is_some_and(|last| seq > last)
    }
}

/// The logs in which the records after `after` of a session's log stand, in order.
pub(crate) fn segments(
    look: Look<'_>,
    session: SessionId,
    after: Seq,
) -> Result<Result<Vec<Segment>, Broken>, StoreError> {
    let (mut log, mut last, mut segments) = (session, None, Vec::new());
    loop {
        let link = match link(look, log)? {
            Ok(link) => link,
            Err(broken) => return Ok(Err(broken)),
        };
        let shared = link.map_or(Seq::START, |link| link.at);
        segments.push(Segment { log, first: Seq(shared.0.saturating_add(1)), last });
        let Some(link) = link.filter(|link| after < link.at) else { break };
        if segments.len() > DEEPEST {
            return Ok(Err(format!("{session} is a fork of a fork more than {DEEPEST} times over")));
        }
        (log, last) = (link.log, Some(link.at));
    }
    segments.reverse();
    Ok(Ok(segments))
}

/// Where a fork of `from` goes on from that shares the records up to `at`.
///
/// # Errors
/// The chain of forks is too long, or damaged.
pub(crate) fn link_to(look: Look<'_>, from: SessionId, at: Seq) -> Result<Link, StoreError> {
    let refuse = |reason: Broken| StoreError::Backend(format!("session {from} cannot be forked: {reason}"));
    let (mut found, mut log, mut links) = (None, from, 0);
    loop {
        let next = link(look, log)?.map_err(refuse)?;
        // A log from which no record would be shared is passed over.
        if found.is_some() || next.is_none_or(|next| next.at < at) {
            found.get_or_insert(log);
            links += 1;
        }
        if links > DEEPEST {
            return Err(refuse(format!(
                "it is a fork of a fork {DEEPEST} times over: fork one that is nearer to the first session"
            )));
        }
        let Some(next) = next else { return Ok(Link { log: found.unwrap_or(log), at }) };
        log = next.log;
    }
}

/// Whether a log was deleted and kept for its forks.
pub(crate) fn is_rest(look: Look<'_>, session: SessionId) -> Result<bool, StoreError> {
    Ok(look(&keys::rest(session))?.is_some())
}

/// Links a new fork.
pub(crate) fn add(draft: &mut Draft<'_>, fork: SessionId, link: Link) {
    draft.put(keys::link(fork), link.encode(fork));
    draft.put(keys::dependent(link.log, link.at, fork), Vec::new());
}

/// Removes the records of a log, and of those that it was the last to need records of. What forks need stays.
pub(crate) fn remove(draft: &mut Draft<'_>, session: SessionId) -> Result<(), StoreError> {
    let needed = needed(draft, session)?;
    drop_frames(draft, session, needed)?;
    if needed.is_some() {
        draft.put(keys::rest(session), Vec::new());
        return Ok(());
    }
    let mut log = session;
    // Where a link is damaged, what it led to stays.
    while let Ok(Some(link)) = link(&|key| draft.get(key), log)? {
        draft.remove(keys::link(log));
        draft.remove(keys::dependent(link.log, link.at, log));
        if !is_rest(&|key| draft.get(key), link.log)? {
            break;
        }
        let needed = self::needed(draft, link.log)?;
        drop_frames(draft, link.log, needed)?;
        if needed.is_some() {
            break;
        }
        draft.remove(keys::rest(link.log));
        log = link.log;
    }
    draft.remove(keys::link(session));
    Ok(())
}

/// The last record of a log that forks need.
fn needed(draft: &Draft<'_>, log: SessionId) -> Result<Option<Seq>, StoreError> {
    let prefix = keys::dependents(log);
    let last = draft.last_key(&prefix, &keys::end_of(&prefix))?;
    Ok(last.and_then(|key| keys::seq_of_dependent(&key)))
}

/// Removes the records after `needed`.
fn drop_frames(draft: &mut Draft<'_>, log: SessionId, needed: Option<Seq>) -> Result<(), StoreError> {
    let from = needed.map_or_else(|| keys::log(log), |needed| keys::frame(log, needed));
    let mut keys = draft.keys(&from, &keys::end_of(&keys::log(log)))?.into_iter();
    // A frame stands under its last place: the first from there on holds what is needed, and perhaps more.
    if let Some(needed) = needed
        && let Some(key) = keys.next()
        && let Some(last) = keys::seq_of_frame(&key).filter(|last| *last > needed)
        && let Some(frame) = draft.get(&key)?
        // One that is damaged stays as it is.
        && let Ok(cut) = frame::cut(log, last, &frame, needed)
    {
        draft.put(keys::frame(log, needed), cut);
        draft.remove(key);
    }
    for key in keys {
        draft.remove(key);
    }
    Ok(())
}
