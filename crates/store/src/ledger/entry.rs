//! An entry of the feed, as it is stored: what it is, and a row with the time it ended, or the end of a turn.
//!
//! A row is packed: nothing in it is named, and what follows from the rest (its id from its attempt's, costs by class from
//! counts and prices, most often its session's root) is left out. As JSON, as it was once, it took three times the bytes and
//! several times the work. Rows of both forms are read, and stand beside each other.

use playhouse_protocol::json::read_row;
use playhouse_protocol::ledger::{CostByClass, FeedItem, LedgerClosed, Purpose, RowId, Tier, TurnEnd};
use playhouse_protocol::usage::{Cost, Prices, Quality, Tokens};
use playhouse_protocol::{KeyRef, Labels, LedgerRow, Timestamp};
use serde::{Deserialize, Serialize};

use super::packed::{self, Packer, Unpacker};
use super::{VERSION, damaged, newer};
use crate::{StoreError, value};

/// What an entry begins with. 0 was the key of a row elsewhere, see `migrate`.
const TURN_END: u8 = 1;
/// A row as JSON: nothing writes it any more.
const ROW_AS_JSON: u8 = 2;
const ROW: u8 = 3;
/// The ledger was closed up to a time: that, and a checksum. An older engine takes it for an entry that it cannot read, and
/// passes over it.
const CLOSED: u8 = 4;

const TIME_AT: usize = 1;
const ROW_AT: usize = TIME_AT + size_of::<u64>();
/// Where a packed row begins, behind its checksum.
const PACKED_AT: usize = ROW_AT + size_of::<u32>();

/// What stands behind the checksum: the form of what follows.
const FORM: u8 = 1;
/// The form of rows that have an [`ATTRIBUTION`] or are [`LATE`]. An engine that knows the first form only takes none of them.
const FORM_ATTRIBUTED: u8 = 2;
/// The form of rows that have [`CALLS`], and may have what those of the other forms have.
const FORM_CALLS: u8 = 3;

/// The newest form of a row that this engine reads.
pub(super) const NEWEST_FORM: u64 = FORM_CALLS as u64;

/// More than most rows take.
const USUAL: usize = 512;

/// Bits of the first number of a packed row: what is in it that most rows have not, or may not have.
const ID: u64 = 1;
const COSTS: u64 = 1 << 1;
const ROOT: u64 = 1 << 2;
const PARENT_STEP: u64 = 1 << 3;
const ANSWERED_BY: u64 = 1 << 4;
const RAW: u64 = 1 << 5;
const CATALOGUE: u64 = 1 << 6;
const COST: u64 = 1 << 7;
const CORRECTS: u64 = 1 << 8;
/// Counts or prices of writes to the caches of 30 minutes and twelve hours.
const LONG_WRITES: u64 = 1 << 9;
/// What few rows have, see [`Rare`]. An older engine takes such a row for one that it cannot read.
const RARE: u64 = 1 << 10;
/// Labels and a key.
const ATTRIBUTION: u64 = 1 << 11;
/// The row is late.
const LATE: u64 = 1 << 12;
/// Counts of each call of the model.
const CALLS: u64 = 1 << 13;
const ALL_BITS: u64 = (1 << 14) - 1;
/// Those that rows of [`FORM_ATTRIBUTED`] and later forms only may have.
const ATTRIBUTED_BITS: u64 = ATTRIBUTION | LATE;

/// The part of a row that is packed as JSON.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rare {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    served: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_cost: Option<Cost>,
}

impl Rare {
    /// That of a row, if it has any.
    fn of(row: &LedgerRow) -> Option<Self> {
        let is_there = !row.assumed.is_empty() || !row.served.is_empty() || row.provider_cost.is_some();
        is_there.then(|| Self {
            assumed: row.assumed.clone(),
            served: row.served.clone(),
            provider_cost: row.provider_cost,
        })
    }
}

/// What stands in rows as a number: more may only be added at the end.
const PURPOSES: [Purpose; 5] =
    [Purpose::Turn, Purpose::Title, Purpose::Summary, Purpose::Compaction, Purpose::Subagent];
const QUALITIES: [Quality; 3] = [Quality::Reported, Quality::Estimated, Quality::Unreconciled];
const TIERS: [Tier; 2] = [Tier::Light, Tier::Pro];

/// The entry of a row that is to stand at `key`.
pub(super) fn of_row(key: &[u8], row: &LedgerRow) -> Result<Vec<u8>, StoreError> {
    let mut entry = Vec::with_capacity(USUAL);
    entry.push(ROW);
    entry.extend_from_slice(&row.ended.as_millis().to_be_bytes());
    entry.extend_from_slice(&[0; PACKED_AT - ROW_AT]);
    if !pack(&mut entry, row) {
        let text = format!("{}: the usage of an attempt is nested too deep", key.escape_ascii());
        return Err(StoreError::Backend(text));
    }
    let sum = checksum(key, &entry);
    if let Some(place) = entry.get_mut(ROW_AT..PACKED_AT) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
    Ok(entry)
}

pub(super) fn of_turn_end(end: &TurnEnd) -> Result<Vec<u8>, StoreError> {
    let text = serde_json::to_vec(end).map_err(|error| StoreError::Backend(error.to_string()))?;
    Ok([&[TURN_END][..], &text].concat())
}

pub(super) fn is_row(entry: &[u8]) -> bool {
    matches!(entry.first(), Some(&(ROW | ROW_AS_JSON)))
}

/// Whether it is a row that corrects another.
pub(super) fn is_correction(entry: &[u8]) -> bool {
    if entry.first() != Some(&ROW) {
        return false;
    }
    let bits = entry.get(PACKED_AT + 1..).and_then(|packed| Unpacker::new(packed).number());
    bits.is_some_and(|bits| bits & CORRECTS != 0)
}

/// The entry that is to stand at `key` when the ledger is closed.
pub(super) fn of_closed(key: &[u8], closed: LedgerClosed) -> Vec<u8> {
    let mut entry = vec![CLOSED];
    entry.extend_from_slice(&closed.until.as_millis().to_be_bytes());
    let sum = packed::checksum(&[key, &entry]);
    entry.extend_from_slice(&sum.to_be_bytes());
    entry
}

/// Whether it says that the ledger was closed, readable or not.
pub(super) fn is_closed(entry: &[u8]) -> bool {
    entry.first() == Some(&CLOSED)
}

/// What an entry says that [`is_closed`].
pub(super) fn closed(key: &[u8], entry: &[u8]) -> Result<LedgerClosed, StoreError> {
    let read = || {
        let (content, sum) = entry.split_at_checked(ROW_AT)?;
        let is_whole = packed::checksum(&[key, content]).to_be_bytes() == *sum;
        Some(LedgerClosed { until: time(entry)? }).filter(|_| is_whole)
    };
    read().ok_or_else(|| damaged("closing", key))
}

fn turn_end(entry: &[u8]) -> Option<TurnEnd> {
    let (_, content) = entry.split_first().filter(|(tag, _)| **tag == TURN_END)?;
    serde_json::from_slice(content).ok()
}

/// The time that it is of.
pub(super) fn time(entry: &[u8]) -> Option<Timestamp> {
    if !is_row(entry) && !is_closed(entry) {
        return turn_end(entry).map(|end| end.at);
    }
    let number = entry.get(TIME_AT..)?.first_chunk()?;
    Some(Timestamp::from_millis(u64::from_be_bytes(*number)))
}

/// The row that the entry at `key` holds.
pub(super) fn row(key: &[u8], entry: &[u8]) -> Result<LedgerRow, StoreError> {
    let found = match entry.first() {
        Some(&ROW) => unpack(key, entry),
        Some(&ROW_AS_JSON) => {
            entry.get(ROW_AT..).and_then(|stored| value::read(VERSION, key, stored, read_row))
        }
        _ => None,
    };
    found.ok_or_else(|| if is_newer(key, entry) { newer(key) } else { damaged("row", key) })
}

/// Whether it is a row as it was written, in a form or with parts that this engine does not know.
fn is_newer(key: &[u8], entry: &[u8]) -> bool {
    let sum = entry.get(ROW_AT..PACKED_AT);
    if entry.first() != Some(&ROW) || sum != Some(&checksum(key, entry).to_be_bytes()) {
        return false;
    }
    let mut unpacker = Unpacker::new(entry.get(PACKED_AT..).unwrap_or_default());
    let (form, bits) = (unpacker.byte(), unpacker.number());
    form.is_some_and(|form| u64::from(form) > NEWEST_FORM) || bits.is_some_and(|bits| bits & !ALL_BITS != 0)
}

/// What the entry at `key` holds.
pub(super) fn item(key: &[u8], entry: &[u8]) -> Result<FeedItem, StoreError> {
    if is_closed(entry) {
        return closed(key, entry).map(FeedItem::Closed);
    }
    match turn_end(entry) {
        Some(end) => Ok(FeedItem::TurnEnded(end)),
        None => row(key, entry).map(|row| FeedItem::Row(Box::new(row))),
    }
}

/// Over all but itself, and the key: a row in another's place is not taken for it.
fn checksum(key: &[u8], entry: &[u8]) -> u32 {
    let part = |range| entry.get(range).unwrap_or_default();
    packed::checksum(&[key, part(0..ROW_AT), part(PACKED_AT..entry.len())])
}

fn bit(bit: u64, is_set: bool) -> u64 {
    if is_set { bit } else { 0 }
}

/// Where a value stands among all that there are.
fn place<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|other| other == value).map_or(u8::MAX, |place| place as u8)
}

/// Whether a row has more than [`LONG_WRITES`] leaves out.
fn has_long_writes(row: &LedgerRow, costs: Option<&CostByClass>) -> bool {
    let (tokens, prices) = (&row.tokens, &row.prices);
    let is_charged = |costs: &CostByClass| {
        [costs.cache_write_30m, costs.cache_write_12h].iter().any(|cost| *cost != Some(Cost::ZERO))
    };
    tokens.cache_write_30m > 0
        || tokens.cache_write_12h > 0
        || costs.is_some_and(is_charged)
        || prices.cache_write_30m.is_some()
        || prices.cache_write_12h.is_some()
}

/// Whether both have the same amounts with the same number of digits. `==` alone does not tell `1` from `1.0`.
fn reads_as(one: &CostByClass, other: &CostByClass) -> bool {
    let scales = |costs: &CostByClass| {
        let CostByClass {
            input,
            cache_read,
            cache_write_5m,
            cache_write_30m,
            cache_write_1h,
            cache_write_12h,
            output,
            reasoning,
        } = *costs;
        let writes = [cache_write_5m, cache_write_30m, cache_write_1h, cache_write_12h];
        [input, cache_read, output, reasoning].into_iter().chain(writes).map(|cost| Some(cost?.0.scale()))
    };
    one == other && scales(one).eq(scales(other))
}

/// Writes a row; whether it can be read.
fn pack(entry: &mut Vec<u8>, row: &LedgerRow) -> bool {
    let rare = Rare::of(row);
    // What follows from the rest is left out.
    let id = (row.id != RowId::of(row.attempt)).then_some(&row.id);
    let computed = CostByClass::new(&row.prices, &row.tokens);
    let costs = (!reads_as(&row.costs, &computed)).then_some(&row.costs);
    let mut packer = Packer::new(entry);
    let is_attributed = !row.labels.is_empty() || row.key.is_some();
    packer.byte(match (row.calls.is_empty(), is_attributed || row.late) {
        (false, _) => FORM_CALLS,
        (true, true) => FORM_ATTRIBUTED,
        (true, false) => FORM,
    });
    packer.number(
        bit(ID, id.is_some())
            | bit(COSTS, costs.is_some())
            | bit(ROOT, row.root != row.session)
            | bit(PARENT_STEP, row.parent_step.is_some())
            | bit(ANSWERED_BY, row.answered_by.is_some())
            | bit(RAW, row.raw.is_some())
            | bit(CATALOGUE, row.catalogue.is_some())
            | bit(COST, row.cost.is_some())
            | bit(CORRECTS, row.corrects.is_some())
            | bit(LONG_WRITES, has_long_writes(row, costs))
            | bit(RARE, rare.is_some())
            | bit(ATTRIBUTION, is_attributed)
            | bit(LATE, row.late)
            | bit(CALLS, !row.calls.is_empty()),
    );
    packer.byte(place(&PURPOSES, &row.purpose));
    packer.byte(place(&QUALITIES, &row.quality));
    packer.byte(place(&TIERS, &row.tier));
    packer.near(row.started.as_millis(), row.ended.as_millis());
    packer.number(row.step_number.into());
    packer.number(row.attempt_number.into());
    for id in [row.session.as_str(), row.turn.as_str(), row.step.as_str(), row.attempt.as_str()] {
        packer.id(id);
    }
    for text in [&row.tenant, &row.workspace, &row.agent, &row.provider, &row.model] {
        packer.text(text);
    }
    let tokens = &row.tokens;
    for count in [
        tokens.input,
        tokens.cache_read,
        tokens.cache_write_5m,
        tokens.cache_write_1h,
        tokens.output,
        tokens.reasoning,
    ] {
        packer.number(count);
    }
    let Prices { input, output, cache_read, cache_write, cache_write_1h, reasoning, .. } = row.prices;
    packer.decimals([input, output, cache_read, cache_write, cache_write_1h, reasoning]);
    if row.root != row.session {
        packer.id(row.root.as_str());
    }
    if let Some(step) = &row.parent_step {
        packer.id(step.as_str());
    }
    let ids = [id, row.corrects.as_ref()].map(|id| id.map(|id| &id.0));
    for text in [ids[0], ids[1], row.answered_by.as_ref(), row.catalogue.as_ref()].into_iter().flatten() {
        packer.text(text);
    }
    if let Some(Cost(cost)) = row.cost {
        packer.decimal(cost);
    }
    if let Some(costs) = costs {
        let CostByClass { input, cache_read, cache_write_5m, cache_write_1h, output, reasoning, .. } = *costs;
        let costs = [input, cache_read, cache_write_5m, cache_write_1h, output, reasoning];
        packer.decimals(costs.map(|cost| cost.map(|Cost(cost)| cost)));
    }
    if has_long_writes(row, costs) {
        packer.number(tokens.cache_write_30m);
        packer.number(tokens.cache_write_12h);
        let costs = costs.map_or([None; 2], |costs| [costs.cache_write_30m, costs.cache_write_12h]);
        let [short, long] = costs.map(|cost| cost.map(|Cost(cost)| cost));
        packer.decimals([row.prices.cache_write_30m, row.prices.cache_write_12h, short, long, None, None]);
    }
    if is_attributed {
        attribute(&mut packer, row);
    }
    if !row.calls.is_empty() {
        packer.number(row.calls.len() as u64);
        row.calls.iter().flat_map(counts).for_each(|count| packer.number(count));
    }
    let rare = rare.map(serde_json::to_value);
    let is_written = rare.is_none_or(|rare| rare.is_ok_and(|rare| packer.json(&rare)));
    is_written && row.raw.as_ref().is_none_or(|raw| packer.json(raw))
}

/// The counts of a call, in the order in which they are packed.
fn counts(tokens: &Tokens) -> [u64; 8] {
    [
        tokens.input,
        tokens.cache_read,
        tokens.cache_write_5m,
        tokens.cache_write_30m,
        tokens.cache_write_1h,
        tokens.cache_write_12h,
        tokens.output,
        tokens.reasoning,
    ]
}

/// The counts of each call.
fn calls(unpacker: &mut Unpacker<'_>) -> Option<Vec<Tokens>> {
    let count = unpacker.number()?;
    let call = |_| {
        Some(Tokens {
            input: unpacker.number()?,
            cache_read: unpacker.number()?,
            cache_write_5m: unpacker.number()?,
            cache_write_30m: unpacker.number()?,
            cache_write_1h: unpacker.number()?,
            cache_write_12h: unpacker.number()?,
            output: unpacker.number()?,
            reasoning: unpacker.number()?,
        })
    };
    (0..count).map(call).collect()
}

fn unpack(key: &[u8], entry: &[u8]) -> Option<LedgerRow> {
    let sum = entry.get(ROW_AT..PACKED_AT)?;
    if checksum(key, entry).to_be_bytes() != sum {
        return None;
    }
    let ended = time(entry)?;
    let mut unpacker = Unpacker::new(entry.get(PACKED_AT..)?);
    let bits_of_form = match unpacker.byte()? {
        FORM => ALL_BITS & !ATTRIBUTED_BITS & !CALLS,
        FORM_ATTRIBUTED => ALL_BITS & !CALLS,
        FORM_CALLS => ALL_BITS,
        _ => return None,
    };
    let bits = unpacker.number().filter(|bits| bits & !bits_of_form == 0)?;
    let has = |bit: u64| bits & bit != 0;
    let purpose = *PURPOSES.get(usize::from(unpacker.byte()?))?;
    let quality = *QUALITIES.get(usize::from(unpacker.byte()?))?;
    let tier = *TIERS.get(usize::from(unpacker.byte()?))?;
    let started = Timestamp::from_millis(unpacker.near(ended.as_millis())?);
    let (step_number, attempt_number) = (unpacker.small()?, unpacker.small()?);
    let session = unpacker.id()?;
    let (turn, step, attempt) = (unpacker.id()?, unpacker.id()?, unpacker.id()?);
    let [tenant, workspace, agent, provider, model] = texts(&mut unpacker)?;
    let mut tokens = Tokens {
        input: unpacker.number()?,
        cache_read: unpacker.number()?,
        cache_write_5m: unpacker.number()?,
        cache_write_1h: unpacker.number()?,
        output: unpacker.number()?,
        reasoning: unpacker.number()?,
        ..Tokens::default()
    };
    let [input, output, cache_read, cache_write, cache_write_1h, reasoning] = unpacker.decimals()?;
    let mut prices =
        Prices { input, output, cache_read, cache_write, cache_write_1h, reasoning, ..Prices::default() };
    let root = if has(ROOT) { unpacker.id()? } else { session };
    let parent_step = if has(PARENT_STEP) { Some(unpacker.id()?) } else { None };
    let mut text = |bit: u64| -> Option<Option<String>> {
        Some(if has(bit) { Some(unpacker.text()?.to_owned()) } else { None })
    };
    let (id, corrects, answered_by, catalogue) =
        (text(ID)?.map(RowId), text(CORRECTS)?.map(RowId), text(ANSWERED_BY)?, text(CATALOGUE)?);
    let cost = if has(COST) { Some(Cost(unpacker.decimal()?)) } else { None };
    let costs = if has(COSTS) { Some(unpacker.decimals()?.map(|cost| cost.map(Cost))) } else { None };
    let mut long_writes = [Some(Cost::ZERO); 2];
    if has(LONG_WRITES) {
        tokens.cache_write_30m = unpacker.number()?;
        tokens.cache_write_12h = unpacker.number()?;
        let [short, long, short_cost, long_cost, _, _] = unpacker.decimals()?;
        (prices.cache_write_30m, prices.cache_write_12h) = (short, long);
        long_writes = [short_cost, long_cost].map(|cost| cost.map(Cost));
    }
    let costs = match costs {
        Some([input, cache_read, cache_write_5m, cache_write_1h, output, reasoning]) => {
            let [cache_write_30m, cache_write_12h] = long_writes;
            CostByClass {
                input,
                cache_read,
                cache_write_5m,
                cache_write_30m,
                cache_write_1h,
                cache_write_12h,
                output,
                reasoning,
            }
        }
        None => CostByClass::new(&prices, &tokens),
    };
    let (labels, key) = if has(ATTRIBUTION) { attribution(&mut unpacker)? } else { (Labels::new(), None) };
    let calls = if has(CALLS) { calls(&mut unpacker)? } else { Vec::new() };
    let rare =
        if has(RARE) { serde_json::from_value::<Rare>(unpacker.json()?).ok()? } else { Rare::default() };
    let raw = if has(RAW) { Some(unpacker.json()?) } else { None };
    unpacker.is_empty().then(|| LedgerRow {
        id: id.unwrap_or_else(|| RowId::of(attempt)),
        tenant,
        workspace,
        session,
        root,
        parent_step,
        turn,
        step,
        step_number,
        attempt,
        attempt_number,
        agent,
        purpose,
        provider,
        model,
        answered_by,
        tokens,
        calls,
        quality,
        raw,
        catalogue,
        prices,
        costs,
        cost,
        assumed: rare.assumed,
        served: rare.served,
        provider_cost: rare.provider_cost,
        tier,
        labels,
        key,
        started,
        ended,
        corrects,
        late: has(LATE),
    })
}

/// Writes whom the usage of a row is attributed to.
fn attribute(packer: &mut Packer<'_>, row: &LedgerRow) {
    packer.number(row.labels.len() as u64);
    for (name, label) in &row.labels {
        packer.text(name);
        packer.text(label);
    }
    packer.byte(row.key.is_some().into());
    if let Some(KeyRef { id, name }) = &row.key {
        packer.text(id);
        packer.text(name);
    }
}

fn attribution(unpacker: &mut Unpacker<'_>) -> Option<(Labels, Option<KeyRef>)> {
    let mut labels = Labels::new();
    for _ in 0..unpacker.number()? {
        let [name, label] = texts(unpacker)?;
        labels.insert(name, label);
    }
    let key = match unpacker.byte()? {
        0 => None,
        1 => {
            let [id, name] = texts(unpacker)?;
            Some(KeyRef { id, name })
        }
        _ => return None,
    };
    Some((labels, key))
}

fn texts<const COUNT: usize>(unpacker: &mut Unpacker<'_>) -> Option<[String; COUNT]> {
    let mut texts = [const { String::new() }; COUNT];
    for text in &mut texts {
        *text = unpacker.text()?.to_owned();
    }
    Some(texts)
}

#[cfg(test)]
mod tests;
