//! Data directories with many sessions: copies of a few that an engine made, each with ids of its own, put there without one.

use std::sync::mpsc::sync_channel;

use playhouse::protocol::{Entry, Record, Seq, SessionId};
use playhouse::store::{Append, Store};

use crate::Result;
use crate::place::Place;

/// Letters of ids.
const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Letters at the end of each id that tell copies apart.
const OWN: usize = 5;
/// Letters of an id behind its prefix.
const ID: usize = 26;
/// What ids begin with.
const PREFIXES: [&str; 4] = ["ses_", "msg_", "prt_", "att_"];
/// As many appends as share a flush.
const TOGETHER: usize = 1_000;

/// Puts `count` copies of a session that ended into the data directory, without its server; their ids.
pub(crate) fn copies(place: &Place, session: &str, count: usize) -> Result<Vec<String>> {
    let store = Store::open(&place.data())?;
    let session = SessionId::parse(session)?;
    let entries = store.log.read(session, Seq::START, usize::MAX)?.entries;
    let Some(Record::SessionCreated(created)) = entries.first().map(|entry| &entry.record) else {
        return Err("the session that is copied has no beginning".into());
    };
    let tenant = created.tenant.clone();
    let text = serde_json::to_string(&entries)?;
    let (done, ended) = sync_channel(TOGETHER);
    let (mut ids, mut waiting) = (Vec::with_capacity(count), 0);
    for number in 0..count {
        let entries: Vec<Entry> = serde_json::from_str(&renamed(&text, number))?;
        let id = renamed(&session.to_string(), number);
        let done = done.clone();
        let append = Append {
            session: SessionId::parse(&id)?,
            tenant: tenant.as_str().into(),
            expected: Seq::START,
            entries,
        };
        store.log.append(append, Box::new(move |end| drop(done.send(end.map(|_| ())))));
        ids.push(id);
        waiting += 1;
        if waiting == TOGETHER {
            for _ in 0..std::mem::take(&mut waiting) {
                ended.recv()??;
            }
        }
    }
    for _ in 0..waiting {
        ended.recv()??;
    }
    Ok(ids)
}

/// The text with the last letters of each id in it changed to those of this number.
fn renamed(text: &str, number: usize) -> String {
    let mut own = [0; OWN];
    let mut rest = number;
    for letter in &mut own {
        *letter = LETTERS[rest % LETTERS.len()];
        rest /= LETTERS.len();
    }
    let mut bytes = text.as_bytes().to_vec();
    for prefix in PREFIXES {
        let found: Vec<usize> = memchr::memmem::find_iter(text.as_bytes(), prefix).collect();
        for at in found {
            let end = at + prefix.len() + ID;
            let is_id =
                bytes.get(at + prefix.len()..end).is_some_and(|id| id.iter().all(u8::is_ascii_alphanumeric));
            if is_id {
                bytes[end - OWN..end].copy_from_slice(&own);
            }
        }
    }
    // Letters took the place of letters.
    String::from_utf8(bytes).unwrap_or_default()
}
