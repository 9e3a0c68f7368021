//! In which order rows stand: lists of a tenant's rows and of a session's, which name them by their numbers in the feed.
//!
//! A list is written in blocks, because a key costs the table more than what stands behind it: a block holds rows of one
//! tenant within one minute, or of one session (with the tree below it) within one day. Where several blocks are of the same
//! minute or day they are read together and sorted. A row that stands in two of them is one row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use playhouse_protocol::day::DAY;
use playhouse_protocol::id::ID_LENGTH;
use playhouse_protocol::ledger::RowId;
use playhouse_protocol::{SessionId, Timestamp};

use super::packed::{Packer, Unpacker, checksum};
use super::tail::Pending;
use super::{VERSION, damaged, keys};
use crate::draft::Draft;
use crate::table::Table;
use crate::{StoreError, value};

const MINUTE: u64 = 60_000;

/// The most rows of a block.
const BLOCK: usize = 256;

/// What a block begins with; one that begins with [`VERSION`] is JSON, which nothing writes any more.
const PACKED: u8 = 2;
/// Behind that and the checksum.
const PACKED_AT: usize = 1 + size_of::<u32>();

/// What the id of a row begins with that is in a block: whether it is of the usual form.
const USUAL_ID: u8 = 0;
const OTHER_ID: u8 = 1;

/// Where a row stands in a list: when it ended, in milliseconds, and its id.
pub(super) type Place = (u64, RowId);

/// Rows of a list in order, with their numbers in the feed.
pub(super) type Places = BTreeMap<Place, u64>;

/// Whose rows a list has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Tenant(String),
    /// With the tree below it.
    Session(SessionId),
}

/// A list of rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct List {
    owner: Owner,
    /// What keys of its blocks begin with. A step of time follows, and a number.
    prefix: Vec<u8>,
    /// Such a step, in milliseconds.
    width: u64,
}

impl List {
    /// The rows of a tenant.
    pub(super) fn of_tenant(tenant: &str) -> Self {
        let prefix = keys::of_tenant(keys::LISTS, tenant);
        Self { owner: Owner::Tenant(tenant.to_owned()), prefix, width: MINUTE }
    }

    /// The rows of a session, and of the tree below it.
    pub(super) fn of_session(session: SessionId) -> Self {
        Self { owner: Owner::Session(session), prefix: keys::of_session(session), width: DAY }
    }

    /// The lists that a row stands in.
    fn of(row: &Pending) -> impl Iterator<Item = Self> {
        std::iter::once(Self::of_tenant(&row.grain.tenant)).chain(row.sessions().map(Self::of_session))
    }

    /// Whether it has this row.
    pub(super) fn has(&self, row: &Pending) -> bool {
        match &self.owner {
            Owner::Tenant(tenant) => *tenant == row.grain.tenant,
            Owner::Session(session) => *session == row.session || *session == row.root,
        }
    }

    fn step(&self, time: u64) -> u64 {
        time / self.width
    }

    /// Where the blocks of this step begin.
    fn at(&self, step: u64) -> Vec<u8> {
        keys::at(&self.prefix, step)
    }

    /// The step that the key of a block names.
    fn step_of(&self, key: &[u8]) -> Result<u64, StoreError> {
        let number = key.get(self.prefix.len()..).and_then(|rest| rest.first_chunk());
        number.map(|number| u64::from_be_bytes(*number)).ok_or_else(|| damaged("block", key))
    }
}

/// A block: a version, a checksum, and for each row how much later it ended than the one before, how much higher its number
/// is, and its id.
fn encode(key: &[u8], places: impl Iterator<Item = (u64, impl AsRef<str>, u64)>) -> Vec<u8> {
    let mut block = vec![PACKED];
    block.extend_from_slice(&[0; PACKED_AT - 1]);
    let mut packer = Packer::new(&mut block);
    let mut before = (0, 0);
    for (time, id, number) in places {
        packer.near(time, before.0);
        packer.near(number, before.1);
        match id.as_ref() {
            id if id.len() == ID_LENGTH && id.starts_with(RowId::PREFIX) => {
                packer.byte(USUAL_ID);
                packer.id(id);
            }
            id => {
                packer.byte(OTHER_ID);
                packer.text(id);
            }
        }
        before = (time, number);
    }
    let (head, content) = block.split_at_mut(PACKED_AT);
    head[1..].copy_from_slice(&checksum(&[key, content]).to_be_bytes());
    block
}

fn decode(key: &[u8], block: &[u8]) -> Result<Vec<(Place, u64)>, StoreError> {
    let places = match block.first() {
        Some(&PACKED) => unpack(key, block),
        _ => value::decode(VERSION, key, block),
    };
    places.ok_or_else(|| damaged("block", key))
}

fn unpack(key: &[u8], block: &[u8]) -> Option<Vec<(Place, u64)>> {
    let (head, content) = block.split_at_checked(PACKED_AT)?;
    if checksum(&[key, content]).to_be_bytes() != head[1..] {
        return None;
    }
    let (mut unpacker, mut places, mut before) = (Unpacker::new(content), Vec::new(), (0, 0));
    while !unpacker.is_empty() {
        before = (unpacker.near(before.0)?, unpacker.near(before.1)?);
        let id = match unpacker.byte()? {
            USUAL_ID => format!("{}{}", RowId::PREFIX, unpacker.id_text()?),
            OTHER_ID => unpacker.text()?.to_owned(),
            _ => return None,
        };
        places.push(((before.0, RowId(id)), before.1));
    }
    Some(places)
}

/// The numbers of the rows that a block names.
pub(super) fn numbers(key: &[u8], block: &[u8]) -> Result<Vec<u64>, StoreError> {
    Ok(decode(key, block)?.into_iter().map(|(_, number)| number).collect())
}

/// Whether the block at `key` names this row, looked at now.
pub(super) fn still_names(table: &dyn Table, key: &[u8], number: u64) -> Result<bool, StoreError> {
    let Some(block) = table.get(key)? else { return Ok(false) };
    Ok(numbers(key, &block)?.contains(&number))
}

/// A block of one list and one step: its key, and its rows in order, no more than are allowed.
pub(super) type Block = (Vec<u8>, Vec<Arc<Pending>>);

/// Rows as blocks of the lists that they stand in.
pub(super) fn blocks(rows: &[Arc<Pending>]) -> Vec<Block> {
    // A key costs more than what is compared here.
    let (mut tenants, mut sessions) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
    for row in rows {
        let time = row.ended.as_millis();
        tenants.entry((&row.grain.tenant[..], time / MINUTE)).or_default().push(row);
        for session in row.sessions() {
            sessions.entry((session, time / DAY)).or_default().push(row);
        }
    }
    let tenants = tenants.into_iter().map(|((tenant, step), rows)| (List::of_tenant(tenant).at(step), rows));
    let sessions =
        sessions.into_iter().map(|((session, step), rows)| (List::of_session(session).at(step), rows));
    let mut blocks = Vec::new();
    for (step, mut rows) in tenants.chain(sessions) {
        rows.sort_by(|one, other| (one.ended, &one.id).cmp(&(other.ended, &other.id)));
        for block in rows.chunks(BLOCK) {
            // Numbers are given once: no other block has the least of these.
            let least = block.iter().map(|row| row.number).min().unwrap_or_default();
            blocks.push((keys::at(&step, least), block.iter().map(|row| Arc::clone(row)).collect()));
        }
    }
    blocks
}

/// Stages a block.
pub(super) fn put(draft: &mut Draft<'_>, key: Vec<u8>, rows: &[Arc<Pending>]) {
    let block = encode(&key, rows.iter().map(|row| (row.ended.as_millis(), &row.id.0, row.number)));
    draft.put(key, block);
}

/// Stages that these rows stand in no list any more.
pub(super) fn remove(
    draft: &mut Draft<'_>,
    rows: impl IntoIterator<Item = Pending>,
) -> Result<(), StoreError> {
    let mut steps = BTreeMap::<(List, u64), BTreeSet<Place>>::new();
    for row in rows {
        for list in List::of(&row) {
            let step = list.step(row.ended.as_millis());
            steps.entry((list, step)).or_default().insert(row.place());
        }
    }
    for ((list, step), gone) in steps {
        for key in draft.keys(&list.at(step), &list.at(step.saturating_add(1)))? {
            let Some(block) = draft.get(&key)? else { continue };
            let mut places = match decode(&key, &block) {
                Ok(places) => places,
                Err(error) => {
                    tracing::error!(%error, "it stays as it is");
                    continue;
                }
            };
            let before = places.len();
            places.retain(|(place, _)| !gone.contains(place));
            match places.len() {
                0 => draft.remove(key),
                after if after < before => {
                    let places = places.iter().map(|((time, id), number)| (*time, &id.0, *number));
                    let block = encode(&key, places);
                    draft.put(key, block);
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Which rows of a list are wanted.
#[derive(Clone, Debug)]
pub(super) struct Range {
    /// The milliseconds within which they ended, without the last.
    pub(super) span: (u64, u64),
    /// The row behind which they stand.
    pub(super) after: Option<Place>,
}

impl Range {
    fn has(&self, place: &Place) -> bool {
        let (from, to) = self.span;
        place.0 >= from && place.0 < to && self.after.as_ref().is_none_or(|after| place > after)
    }
}

/// Calls `each` with the numbers of the rows of a list, in order, until it returns false. `waiting` are those of its rows
/// that may stand in no block yet.
pub(super) fn each_number(
    table: &dyn Table,
    list: &List,
    waiting: Places,
    range: &Range,
    each: &mut dyn FnMut(u64) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut waiting = waiting;
    waiting.retain(|place, _| range.has(place));
    let (mut goes_on, (from, to)) = (true, range.span);
    let from = range.after.as_ref().map_or(from, |(time, _)| from.max(*time));
    let end = list.at(to.div_ceil(list.width));
    table.visit(list.at(list.step(from)), &end, &mut |key, block| {
        // Nothing that follows stands before this.
        let begin = list.step_of(key)?.saturating_mul(list.width);
        goes_on = tell(&mut waiting, begin, each)?;
        waiting.extend(decode(key, block)?.into_iter().filter(|(place, _)| range.has(place)));
        Ok(goes_on)
    })?;
    if goes_on {
        tell(&mut waiting, u64::MAX, each)?;
    }
    Ok(())
}

/// Tells what ended before `end`, and forgets it; whether to go on.
fn tell(
    waiting: &mut Places,
    end: u64,
    each: &mut dyn FnMut(u64) -> Result<bool, StoreError>,
) -> Result<bool, StoreError> {
    while let Some(first) = waiting.first_entry().filter(|first| first.key().0 < end) {
        if !each(first.remove())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a row stands in the list of its tenant.
pub(super) fn has(table: &dyn Table, tenant: &str, ended: Timestamp, id: &RowId) -> Result<bool, StoreError> {
    let list = List::of_tenant(tenant);
    let (step, mut found) = (list.step(ended.as_millis()), false);
    table.visit(list.at(step), &list.at(step.saturating_add(1)), &mut |key, block| {
        let is_it = |((time, other), _): &(Place, u64)| *time == ended.as_millis() && other == id;
        found = match decode(key, block) {
            Ok(places) => places.iter().any(is_it),
            Err(error) => {
                // It may be one of these. Twice would be worse than in no list.
                tracing::error!(%error, "rows of the ledger are not looked for there");
                true
            }
        };
        Ok(!found)
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::golden_tests as golden;

    const KEY: &[u8] = b"i/acme\0";

    fn places() -> Vec<(Place, u64)> {
        let place = |time, id: &str, number| ((time, RowId(id.to_owned())), number);
        vec![
            place(1_795_292_879_257, "row_0000000000010aB45678901234", 9),
            place(1_795_292_879_257, "row_0000000000010aB45678901234.1", 700),
            place(1_795_292_879_200, "row_0000000000020aB45678901234", 8),
            place(1_795_292_999_000, "", u64::MAX),
        ]
    }

    #[test]
    fn golden_blocks_are_read_and_written_as_they_were() {
        let places = places();
        let written = encode(KEY, places.iter().map(|((time, id), number)| (*time, &id.0, *number)));
        let golden = golden::of_today("block.packed.bin", &written);
        assert_eq!(decode(KEY, &golden).unwrap(), places);
        assert_eq!(decode(KEY, &golden::of_before("block.json.bin")).unwrap(), places);
        assert_eq!(decode(KEY, &encode(KEY, std::iter::empty::<(u64, &str, u64)>())).unwrap(), []);
        assert!(decode(b"i/other\0", &golden).is_err());
        for place in 0..golden.len() {
            let mut changed = golden.clone();
            changed[place] ^= 1;
            assert!(decode(KEY, &changed).is_err(), "byte {place}");
            assert!(decode(KEY, &golden[..place]).is_err(), "cut at {place}");
        }
    }
}
