//! Rows are read as they were written, by this version and by the one before, or not at all.

use playhouse_protocol::usage::Prices;
use proptest::prelude::*;
use rust_decimal::Decimal;

use super::*;
use crate::ledger::{golden_tests as golden, keys};

const KEY: u64 = 7;

fn id(prefix: &str, number: u64) -> String {
    format!("{prefix}_{number:012x}0aB45678901234")
}

/// A row with nothing in it that may be missing.
fn plain() -> LedgerRow {
    let attempt = id("att", 1).parse().unwrap();
    LedgerRow {
        id: RowId::of(attempt),
        tenant: "acme".to_owned(),
        workspace: "/home/ada/project".to_owned(),
        session: id("ses", 2).parse().unwrap(),
        root: id("ses", 2).parse().unwrap(),
        parent_step: None,
        turn: id("msg", 3).parse().unwrap(),
        step: id("msg", 4).parse().unwrap(),
        step_number: 1,
        attempt,
        attempt_number: 1,
        agent: "build".to_owned(),
        purpose: Purpose::Turn,
        provider: "mock".to_owned(),
        model: "demo".to_owned(),
        answered_by: None,
        tokens: Tokens::default(),
        calls: Vec::new(),
        quality: Quality::Reported,
        raw: None,
        catalogue: None,
        prices: Prices::default(),
        costs: CostByClass::new(&Prices::default(), &Tokens::default()),
        cost: None,
        assumed: Vec::new(),
        served: Vec::new(),
        provider_cost: None,
        tier: Tier::Pro,
        labels: playhouse_protocol::Labels::new(),
        key: None,
        started: Timestamp::from_millis(1_795_292_879_000),
        ended: Timestamp::from_millis(1_795_292_879_257),
        corrects: None,
        late: false,
    }
}

/// One with all of it.
fn full() -> LedgerRow {
    let price = |text: &str| Some(text.parse::<Decimal>().unwrap());
    let prices = Prices {
        input: price("3"),
        output: price("15.00"),
        cache_read: price("0.30"),
        cache_write: price("3.75"),
        cache_write_1h: price("6"),
        reasoning: price("0.0000000000000000000000000001"),
        ..Prices::default()
    };
    let tokens = Tokens {
        input: 1_234,
        cache_read: 20_000,
        cache_write_5m: 127,
        cache_write_1h: 128,
        output: 567,
        reasoning: u64::MAX,
        ..Tokens::default()
    };
    let raw = serde_json::json!({
        "output_tokens": 567, "input_tokens": 1_234, "below": -3, "share": 0.25, "kept": [true, false, null],
        "tier": "standard", "more": {"é": {}},
    });
    LedgerRow {
        id: RowId("row_0000000000010aB45678901234.2".to_owned()),
        root: id("ses", 9).parse().unwrap(),
        parent_step: Some(id("msg", 8).parse().unwrap()),
        step_number: 300,
        attempt_number: u32::MAX,
        purpose: Purpose::Subagent,
        answered_by: Some("demo-2026".to_owned()),
        tokens,
        quality: Quality::Unreconciled,
        raw: Some(raw),
        catalogue: Some("2026-07".to_owned()),
        prices,
        costs: CostByClass { output: None, ..CostByClass::new(&prices, &tokens) },
        cost: Some(Cost("-0.0123".parse().unwrap())),
        assumed: Vec::new(),
        served: Vec::new(),
        provider_cost: None,
        tier: Tier::Light,
        // The clock stepped back.
        started: Timestamp::from_millis(1_795_292_880_000),
        corrects: Some(RowId("row_0000000000010aB45678901234".to_owned())),
        ..plain()
    }
}

/// One with labels and a key.
fn attributed() -> LedgerRow {
    let labels = [("customer", "c-42"), ("project", "r\u{e9}d")]
        .map(|(name, label)| (name.to_owned(), label.to_owned()));
    let key = Some(KeyRef { id: "key_0aB4".to_owned(), name: "ci".to_owned() });
    LedgerRow { labels: labels.into(), key, raw: full().raw, assumed: vec!["eu".to_owned()], ..plain() }
}

/// One that came behind a closing.
fn late() -> LedgerRow {
    LedgerRow { late: true, ..plain() }
}

/// One whose answer had two calls inside.
fn with_calls() -> LedgerRow {
    let (first, second) = (
        Tokens { input: 200_000, output: 7, cache_write_30m: 1, cache_write_12h: 2, ..Tokens::default() },
        Tokens {
            input: 60,
            cache_read: 3,
            cache_write_5m: 4,
            cache_write_1h: 5,
            output: 10,
            reasoning: 6,
            ..Tokens::default()
        },
    );
    let tokens = first + second;
    let costs = CostByClass::new(&full().prices, &tokens);
    LedgerRow { tokens, calls: vec![first, second], costs, prices: full().prices, ..attributed() }
}

fn stored(row: &LedgerRow) -> Vec<u8> {
    of_row(&keys::feed(KEY), row).unwrap()
}

fn read(entry: &[u8]) -> Option<LedgerRow> {
    row(&keys::feed(KEY), entry).ok()
}

/// As text: amounts that are equal may be written in two ways, and fields in any order.
fn text(row: &LedgerRow) -> String {
    serde_json::to_string(row).unwrap()
}

#[test]
fn golden_rows_are_read_and_written_as_they_were() {
    for (name, row, written) in [
        ("row.packed.plain.bin", plain(), stored(&plain())),
        ("row.packed.full.bin", full(), stored(&full())),
        ("row.packed.attributed.bin", attributed(), stored(&attributed())),
        ("row.packed.late.bin", late(), stored(&late())),
        ("row.packed.calls.computed.bin", with_calls(), stored(&with_calls())),
    ] {
        let golden = golden::of_today(name, &written);
        assert_eq!(text(&read(&golden).unwrap()), text(&row), "{name}");
        assert!(is_row(&golden));
        assert_eq!(time(&golden), Some(row.ended));
        assert_eq!(item(&keys::feed(KEY), &golden).unwrap(), FeedItem::Row(Box::new(row)));
    }
}

#[test]
fn a_row_with_labels_or_a_key_is_of_a_form_that_older_engines_refuse() {
    let form = |row: &LedgerRow| stored(row)[PACKED_AT];
    assert_eq!((form(&plain()), form(&full()), form(&attributed())), (FORM, FORM, FORM_ATTRIBUTED));
    assert_eq!((form(&late()), form(&with_calls())), (FORM_ATTRIBUTED, FORM_CALLS));
    let calls_only = LedgerRow { labels: Labels::new(), key: None, ..with_calls() };
    assert_eq!((form(&calls_only), read(&stored(&calls_only))), (FORM_CALLS, Some(calls_only)));
    let with_key = LedgerRow { labels: Labels::new(), ..attributed() };
    assert_eq!((form(&with_key), read(&stored(&with_key))), (FORM_ATTRIBUTED, Some(with_key)));
    // What an engine of today cannot read is refused, and not taken for a row without something.
    let mut newer = stored(&attributed());
    newer[PACKED_AT] = FORM_CALLS + 1;
    let sum = checksum(&keys::feed(KEY), &newer).to_be_bytes();
    newer[ROW_AT..PACKED_AT].copy_from_slice(&sum);
    assert_eq!(read(&newer), None);
    let refused = |entry: &[u8]| row(&keys::feed(KEY), entry).unwrap_err();
    assert!(matches!(refused(&newer), StoreError::Newer { .. }), "{}", refused(&newer));
    // A part that is not known, of a form that is; and a byte that changed.
    let sealed = |mut entry: Vec<u8>| {
        let sum = checksum(&keys::feed(KEY), &entry).to_be_bytes();
        entry[ROW_AT..PACKED_AT].copy_from_slice(&sum);
        entry
    };
    let mut bits = stored(&late());
    // The next bit is in a third byte.
    bits[PACKED_AT + 2] |= 1 << 7;
    bits.insert(PACKED_AT + 3, 1);
    assert!(matches!(refused(&sealed(bits.clone())), StoreError::Newer { .. }));
    assert!(matches!(refused(&bits), StoreError::Damaged { .. }));
    newer[PACKED_AT] += 1;
    assert!(matches!(refused(&newer), StoreError::Damaged { .. }));
}

#[test]
fn a_golden_closing_is_read_and_written_as_it_was() {
    let closing = LedgerClosed { until: Timestamp::from_millis(1_795_294_800_000) };
    let golden = golden::of_today("closed.bin", &of_closed(&keys::feed(KEY), closing));
    assert_eq!(item(&keys::feed(KEY), &golden).unwrap(), FeedItem::Closed(closing));
    assert_eq!((time(&golden), is_row(&golden)), (Some(closing.until), false));
    assert!(item(&keys::feed(KEY + 1), &golden).is_err(), "in another's place");
    for length in 1..golden.len() {
        assert!(item(&keys::feed(KEY), &golden[..length]).is_err(), "cut at {length}");
    }
}

#[test]
fn golden_rows_of_before_are_read() {
    for (name, row) in [
        ("row.json.plain.bin", plain()),
        ("row.json.full.bin", full()),
        // With costs that follow from the rest.
        ("row.packed.calls.bin", with_calls()),
    ] {
        let golden = golden::of_before(name);
        assert_eq!(text(&read(&golden).unwrap()), text(&row), "{name}");
        assert!(is_row(&golden));
        assert_eq!(time(&golden), Some(row.ended));
    }
}

#[test]
fn costs_that_follow_from_the_rest_are_computed_as_they_always_were() {
    let row = full();
    let costs = CostByClass::new(&row.prices, &Tokens { reasoning: 12, ..row.tokens });
    let row = LedgerRow { tokens: Tokens { reasoning: 12, ..row.tokens }, costs, ..row };
    let golden = golden::of_today("row.packed.computed.bin", &stored(&row));
    let costs = serde_json::to_value(read(&golden).unwrap().costs).unwrap();
    // Rows never change: another way to compute costs is another form of the row.
    let expected = serde_json::json!({
        "input": "0.003702", "cache_read": "0.0060", "cache_write_5m": "0.00047625", "cache_write_1h": "0.000768",
        "output": "0.008505", "reasoning": "0",
    });
    assert_eq!(costs, expected);
}

#[test]
fn costs_are_read_as_they_were_written() {
    let row = with_calls();
    let input = |text: &str| CostByClass { input: Some(Cost(text.parse().unwrap())), ..row.costs };
    let computed = row.costs.input.unwrap().0;
    let longer = format!("{computed}0");
    for costs in [input(&longer), input("0.7"), CostByClass { output: None, ..row.costs }] {
        let other = LedgerRow { costs, ..row.clone() };
        assert_eq!(text(&read(&stored(&other)).unwrap()), text(&other));
    }
}

#[test]
fn writes_to_the_caches_of_30_minutes_and_twelve_hours_are_kept() {
    let price = |text: &str| Some(text.parse::<Decimal>().unwrap());
    let of = |tokens: Tokens, prices: Prices| {
        let row = LedgerRow { tokens, prices, costs: CostByClass::new(&prices, &tokens), ..full() };
        assert_eq!(read(&stored(&row)).unwrap(), row);
        let other = LedgerRow { costs: CostByClass { output: None, ..row.costs }, ..row.clone() };
        assert_eq!(read(&stored(&other)).unwrap(), other);
        row.costs
    };
    let prices = Prices { cache_write_30m: price("2.5"), ..full().prices };
    let tokens = Tokens { cache_write_30m: 10_000, reasoning: 1, ..full().tokens };
    assert_eq!(of(tokens, prices).cache_write_30m, Some(Cost("0.025".parse().unwrap())));
    // A count without a price: that class costs an unknown amount.
    let unpriced = of(Tokens { cache_write_12h: 7, ..tokens }, prices);
    assert_eq!((unpriced.cache_write_12h, unpriced.cache_write_5m.is_some()), (None, true));
    of(Tokens { reasoning: 1, ..full().tokens }, Prices { cache_write_12h: price("5"), ..full().prices });
}

#[test]
fn a_row_that_is_changed_cut_or_elsewhere_is_not_read() {
    let entry = stored(&full());
    assert!(read(&entry).is_some());
    assert!(row(&keys::feed(KEY + 1), &entry).is_err());
    for place in 0..entry.len() {
        let mut changed = entry.clone();
        changed[place] ^= 1;
        assert_eq!(read(&changed), None, "byte {place}");
        assert_eq!(read(&entry[..place]), None, "cut at {place}");
    }
}

#[test]
fn a_row_with_usage_that_is_nested_too_deep_is_refused() {
    let raw = (0..1_000).fold(serde_json::Value::Null, |inner, _| serde_json::Value::Array(vec![inner]));
    let row = LedgerRow { raw: Some(raw), ..plain() };
    let error = of_row(&keys::feed(KEY), &row).unwrap_err().to_string();
    assert!(error.contains("nested too deep"), "{error}");
}

#[test]
fn golden_rows_with_assumed_prices_are_read_and_written_as_they_were() {
    let row = LedgerRow {
        assumed: vec!["cache_read".to_owned(), "eu".to_owned()],
        served: vec!["eu".to_owned()],
        provider_cost: Some(Cost("0.0123".parse().unwrap())),
        ..full()
    };
    let golden = golden::of_today("row.packed.assumed.bin", &stored(&row));
    assert_eq!(text(&read(&golden).unwrap()), text(&row));
    for part in [
        LedgerRow { assumed: vec!["fast".to_owned()], ..plain() },
        LedgerRow { served: vec!["fast".to_owned()], ..plain() },
        LedgerRow { provider_cost: Some(Cost::ZERO), ..plain() },
    ] {
        assert_eq!(text(&read(&stored(&part)).unwrap()), text(&part));
    }
}

proptest! {
    #[test]
    fn any_row_is_read_as_it_was_written(
        (tenant, model, answered_by) in (".{0,30}", ".{0,300}", proptest::option::of(".{0,9}")),
        (input, output, started, ended) in any::<(u64, u64, u64, u64)>(),
        (price, scale) in (proptest::option::of(any::<u64>()), 0..=28_u32),
        (purpose, quality, tier) in (0..5_usize, 0..3_usize, 0..2_usize),
    ) {
        let price = price.map(|price| Decimal::from_i128_with_scale(price.into(), scale));
        let row = LedgerRow {
            tenant,
            model,
            answered_by,
            tokens: Tokens { input, output, ..Tokens::default() },
            prices: Prices { input: price, output: price, ..Prices::default() },
            cost: price.map(Cost),
            purpose: PURPOSES[purpose],
            quality: QUALITIES[quality],
            tier: TIERS[tier],
            started: Timestamp::from_millis(started),
            ended: Timestamp::from_millis(ended),
            ..plain()
        };
        prop_assert_eq!(text(&read(&stored(&row)).unwrap()), text(&row));
    }
}
