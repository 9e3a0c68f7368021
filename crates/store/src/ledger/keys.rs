//! Where the ledger stands in the table.
//!
//! Texts of any form are parts of keys: they end with a 0, and their own bytes 0 and 1 are written so that they hold none and
//! the order stays.

use playhouse_protocol::id::ID_LENGTH;
use playhouse_protocol::ledger::Grain;
use playhouse_protocol::{Day, SessionId};

pub(super) const LISTS: &[u8] = b"i/";
pub(super) const FEED: &[u8] = b"x/";
pub(super) const SUMS: &[u8] = b"a/";
pub(super) const SESSION_SUMS: &[u8] = b"b/";
pub(super) const MARK: &[u8] = b"m/ledger";
pub(super) const FEED_MARK: &[u8] = b"m/ledger/feed";
pub(super) const ARCHIVED_MARK: &[u8] = b"m/ledger/archived";
pub(super) const FORM_MARK: &[u8] = b"m/ledger/form";
pub(super) const CLOSED_MARK: &[u8] = b"m/ledger/closed";
pub(super) const SETTLED_MARK: &[u8] = b"m/ledger/settled";
pub(super) const OF_SESSION: &[u8] = b"j/";

fn push_text(key: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            0 => key.extend([1, 1]),
            1 => key.extend([1, 2]),
            other => key.push(other),
        }
    }
    key.push(0);
}

/// All keys of this kind of a tenant begin with this.
pub(super) fn of_tenant(kind: &[u8], tenant: &str) -> Vec<u8> {
    let mut key = kind.to_vec();
    push_text(&mut key, tenant);
    key
}

/// What all keys of the tenant of this key of this kind begin with.
pub(super) fn tenant_prefix<'a>(kind: &[u8], key: &'a [u8]) -> Option<&'a [u8]> {
    let end = key.get(kind.len()..)?.iter().position(|byte| *byte == 0)?;
    key.get(..=kind.len() + end)
}

/// The tenant of a key of this kind.
pub(super) fn tenant(kind: &[u8], key: &[u8]) -> Option<String> {
    let prefix = tenant_prefix(kind, key)?;
    let (mut bytes, mut tenant) = (prefix.get(kind.len()..prefix.len() - 1)?.iter(), Vec::new());
    while let Some(byte) = bytes.next() {
        tenant.push(match byte {
            1 => bytes.next()?.checked_sub(1)?,
            other => *other,
        });
    }
    String::from_utf8(tenant).ok()
}

/// The place `number` in a list whose keys begin with `list`.
pub(super) fn at(list: &[u8], number: u64) -> Vec<u8> {
    [list, &number.to_be_bytes()].concat()
}

/// The list of the rows of a session, and of the tree below it.
pub(super) fn of_session(session: SessionId) -> Vec<u8> {
    [OF_SESSION, session.as_str().as_bytes()].concat()
}

/// An entry of the feed.
pub(super) fn feed(number: u64) -> Vec<u8> {
    at(FEED, number)
}

/// The number of an entry of the feed.
pub(super) fn number_of_feed(key: &[u8]) -> Option<u64> {
    key.get(FEED.len()..)?.try_into().ok().map(u64::from_be_bytes)
}

fn grained(list: Vec<u8>, grain: &Grain) -> Vec<u8> {
    let mut key = list;
    key.extend(grain.day.to_be_bytes());
    for text in [&grain.provider, &grain.model, grain.purpose.name(), &grain.agent] {
        push_text(&mut key, text);
    }
    if let Some(attribution) = &grain.attribution {
        // No label has an empty name: what is behind the labels cannot be taken for one more.
        let labels = attribution.labels.iter().flat_map(|(name, label)| [name, label]);
        labels.for_each(|text| push_text(&mut key, text));
        push_text(&mut key, "");
        for text in attribution.key.iter().flat_map(|of| [&of.id, &of.name]) {
            push_text(&mut key, text);
        }
    }
    key
}

/// The running sum of this grain.
pub(super) fn sum(grain: &Grain) -> Vec<u8> {
    grained(of_tenant(SUMS, &grain.tenant), grain)
}

/// The same of one session.
pub(super) fn session_sum(grain: &Grain, session: SessionId) -> Vec<u8> {
    grained(session_sums(&of_tenant(SESSION_SUMS, &grain.tenant), session), grain)
}

/// All running sums of a session begin with this; `of_tenant` are those of its tenant.
pub(super) fn session_sums(of_tenant: &[u8], session: SessionId) -> Vec<u8> {
    [of_tenant, session.as_str().as_bytes()].concat()
}

/// The session that a running sum of a session is of.
pub(super) fn session_of_sum(of_tenant: &[u8], key: &[u8]) -> Option<SessionId> {
    let text = key.get(of_tenant.len()..of_tenant.len() + ID_LENGTH)?;
    SessionId::parse(std::str::from_utf8(text).ok()?).ok()
}

/// The day `day` in the list of running sums that begin with `list`.
pub(super) fn day(list: &[u8], day: Day) -> Vec<u8> {
    at(list, day.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_of_any_form_are_told_apart_and_keep_their_order() {
        let tenants = ["", "\0", "\0a", "\u{1}", "\u{1}\u{1}", "a", "a\0", "a\0b", "a\u{1}", "ab", "é"];
        let keys = tenants.map(|tenant| of_tenant(LISTS, tenant));
        assert!(keys.is_sorted(), "{keys:?}");
        for (index, key) in keys.iter().enumerate() {
            let longer = at(key, 5);
            assert_eq!(tenant_prefix(LISTS, &longer), Some(&key[..]));
            assert_eq!(tenant(LISTS, &longer).as_deref(), Some(tenants[index]));
            let others = keys.iter().enumerate().filter(|(other, _)| *other != index);
            assert!(others.map(|(_, other)| other).all(|other| !longer.starts_with(other)));
        }
    }

    #[test]
    fn keys_are_read_back() {
        assert_eq!(number_of_feed(&feed(9)), Some(9));
        for foreign in [&b""[..], b"i/", b"x/1", b"i/a\x01\0", b"b/a"] {
            assert_eq!(tenant(LISTS, foreign), None);
            assert_eq!(number_of_feed(foreign), None);
            assert_eq!(session_of_sum(b"b/a", foreign), None);
        }
    }
}
