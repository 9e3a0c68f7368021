//! What every backend promises, run for each of them.

use std::sync::Barrier;
use std::thread;

use playhouse_protocol::{Record, Seq, SessionId, Timestamp};
use playhouse_store::{Cursor, Kin, ListQuery, Store, StoreError};

use crate::samples::*;

/// Makes a test of each function, for each backend.
macro_rules! conformance {
    ($($check:ident),* $(,)?) => {
        mod sled {
            $(#[test]
            fn $check() {
                let directory = tempfile::tempdir().unwrap();
                super::$check(&playhouse_store::Store::open(directory.path()).unwrap());
            })*
        }

        mod redb {
            $(#[test]
            fn $check() {
                let directory = tempfile::tempdir().unwrap();
                super::$check(&crate::samples::open(directory.path(), Some(playhouse_store::Backend::Redb)));
            })*
        }

        mod memory {
            $(#[test]
            fn $check() {
                super::$check(&playhouse_store::Store::memory().unwrap());
            })*
        }
    };
}

conformance!(
    what_was_appended_is_read_back,
    reads_are_cut_where_asked,
    an_append_to_another_end_is_a_conflict,
    a_malformed_append_is_refused_whole,
    the_summary_is_the_fold_of_the_log,
    many_threads_append_side_by_side,
    sessions_are_listed_newest_first_in_pages,
    the_index_of_unfinished_sessions_follows_the_turns,
    a_tenant_finds_its_few_sessions_among_those_of_others,
    the_lists_of_a_tenant_follow_what_changes,
    a_title_is_searched_as_it_is_now,
    sessions_are_counted_by_tenant,
    a_deleted_session_leaves_nothing,
    a_session_that_is_not_there_is_missing,
    large_records_come_back_whole,
    the_shelf_compares_and_sets,
    the_shelf_is_scanned_by_prefix,
    one_of_many_wins_on_the_shelf,
    blobs_are_kept_per_tenant,
);

fn what_was_appended_is_read_back(store: &Store) {
    let records: Vec<Record> =
        one_of_each_kind().into_iter().filter(|record| !matches!(record, Record::Forked(_))).collect();
    let (first, rest) = records.split_at(1);
    assert_eq!(append(store, session(1), 0, first.to_vec()).unwrap(), Seq(1));
    assert_eq!(append(store, session(1), 1, rest.to_vec()).unwrap(), Seq(records.len() as u64));
    assert_eq!(read_all(store, session(1)), entries(0, records));
}

fn reads_are_cut_where_asked(store: &Store) {
    create(store, session(1));
    let records: Vec<Record> = (0..999).map(|number| titled(&number.to_string())).collect();
    append(store, session(1), 1, records).unwrap();
    for (after, limit, expected) in [
        (0, 3, 1..4),
        (990, 100, 991..1001),
        (998, 2, 999..1001),
        (1000, 5, 0..0),
        (5000, 5, 0..0),
        (0, 0, 0..0),
    ] {
        let read = store.log.read(session(1), Seq(after), limit).unwrap();
        assert_eq!(read.damage, None, "after {after}");
        let places: Vec<u64> = read.entries.iter().map(|entry| entry.seq.0).collect();
        assert_eq!(places, expected.collect::<Vec<_>>(), "after {after}");
    }
    assert_eq!(store.log.read(session(1), Seq(u64::MAX), 5).unwrap().entries, []);
}

fn an_append_to_another_end_is_a_conflict(store: &Store) {
    create(store, session(1));
    for (expected, id) in [(0, 1), (2, 1), (1, 2)] {
        let error = append(store, session(id), expected, vec![titled("a")]).unwrap_err();
        let found = Seq(u64::from(id == 1));
        assert!(
            matches!(error, StoreError::Conflict { session: of, expected: at, found: end }
                if of == session(id) && at == Seq(expected) && end == found),
            "{error}"
        );
    }
    assert_eq!(append(store, session(1), 1, vec![titled("a")]).unwrap(), Seq(2));
    assert_eq!(read_all(store, session(1)).len(), 2);
}

fn a_malformed_append_is_refused_whole(store: &Store) {
    create(store, session(1));
    let gap = |places: [u64; 2]| {
        let mut entries = entries(1, vec![titled("a"), titled("b")]);
        entries.iter_mut().zip(places).for_each(|(entry, place)| entry.seq = Seq(place));
        entries
    };
    let new = |record: Record| entries(0, vec![record]);
    for (id, tenant, entries, expected) in [
        (1, TENANT, gap([2, 4]), "record 4 stands where record 3 should"),
        (1, TENANT, gap([1, 2]), "record 1 stands where record 2 should"),
        (1, TENANT, gap([2, 2]), "record 2 stands where record 3 should"),
        (1, TENANT, vec![], "no records"),
        (1, "other", gap([2, 3]), "belongs to \"acme\""),
        (
            1,
            TENANT,
            entries(1, vec![titled("a"), created(session(1), TENANT, "/w")]),
            "a second session.created",
        ),
        (2, TENANT, new(titled("a")), "begins with session.created, not with session.changed"),
        (2, TENANT, new(created(session(3), TENANT, "/w")), "is that of session ses_000000000003"),
        (2, TENANT, new(created(session(2), "other", "/w")), "session.created for \"other\""),
    ] {
        let end = Seq(u64::from(id == 1));
        let error = append_entries(store, session(id), tenant, end, entries).unwrap_err();
        assert!(matches!(error, StoreError::Backend(_)), "{error}");
        assert!(error.to_string().contains(expected), "expected {expected:?} in {error}");
    }
    assert_eq!(read_all(store, session(1)).len(), 1);
    assert_eq!(store.log.summary(session(2)).unwrap(), None);
}

fn the_summary_is_the_fold_of_the_log(store: &Store) {
    create(store, session(1));
    let history = vec![
        titled("Fix it"),
        admitted(1),
        started(1, 1),
        used(1, 500),
        admitted(2),
        ended(1),
        started(2, 2),
    ];
    for (place, record) in history.into_iter().enumerate() {
        append(store, session(1), 1 + place as u64, vec![record]).unwrap();
        let summary = store.log.summary(session(1)).unwrap();
        assert_eq!(summary, fold(&read_all(store, session(1))));
    }
    let summary = store.log.summary(session(1)).unwrap().unwrap();
    assert_eq!((summary.title.as_str(), summary.open_turns, summary.turns), ("Fix it", 1, 1));
    assert_eq!(summary.totals().tokens.input, 500);
}

fn many_threads_append_side_by_side(store: &Store) {
    thread::scope(|scope| {
        for number in 1..=8 {
            scope.spawn(move || {
                create(store, session(number));
                for place in 1..=50 {
                    append(store, session(number), place, vec![titled(&place.to_string())]).unwrap();
                }
            });
        }
    });
    for number in 1..=8 {
        let entries = read_all(store, session(number));
        assert_eq!(entries.len(), 51);
        assert_eq!(store.log.summary(session(number)).unwrap(), fold(&entries));
    }
}

fn create_at(store: &Store, id: SessionId, at: u64, tenant: &str, workspace: &str) {
    let mut entries = entries(0, vec![created(id, tenant, workspace)]);
    entries[0].at = Timestamp::from_millis(at);
    append_entries(store, id, tenant, Seq::START, entries).unwrap();
}

fn sessions_are_listed_newest_first_in_pages(store: &Store) {
    // Two were created in the same millisecond, and the ids say nothing about the order.
    for (number, at) in [(5, 100), (1, 400), (9, 300), (3, 300), (2, 200)] {
        let tenant = if number == 2 { "other" } else { TENANT };
        let workspace = if number < 4 { "/w" } else { "/v" };
        create_at(store, session(number), at, tenant, workspace);
    }
    let numbers = |query: &ListQuery| -> Vec<Vec<u64>> {
        let mut query = query.clone();
        let mut pages = Vec::new();
        loop {
            let page = store.log.list(&query).unwrap();
            assert!(
                page.sessions
                    .iter()
                    .all(|summary| Some(summary) == store.log.summary(summary.id).unwrap().as_ref())
            );
            pages.push(
                page.sessions
                    .iter()
                    .map(|found| (1..10).find(|number| session(*number) == found.id).unwrap())
                    .collect(),
            );
            query.after = page.next;
            if query.after.is_none() {
                return pages;
            }
        }
    };
    let all = ListQuery::default();
    assert_eq!(numbers(&all), [[1, 3, 9, 2, 5]]);
    assert_eq!(numbers(&ListQuery { limit: 2, ..all.clone() }), [vec![1, 3], vec![9, 2], vec![5]]);
    assert_eq!(numbers(&ListQuery { limit: 5, ..all.clone() }), [[1, 3, 9, 2, 5]]);
    let tenant = Some(TENANT.to_owned());
    assert_eq!(
        numbers(&ListQuery { tenant: tenant.clone(), limit: 3, ..all.clone() }),
        [vec![1, 3, 9], vec![5]]
    );
    let workspace = Some("/w".to_owned());
    assert_eq!(numbers(&ListQuery { workspace: workspace.clone(), ..all.clone() }), [[1, 3, 2]]);
    assert_eq!(numbers(&ListQuery { tenant, workspace, limit: 1, ..all.clone() }), [[1], [3]]);
    assert_eq!(numbers(&ListQuery { tenant: Some("nobody".to_owned()), ..all.clone() }), [Vec::<u64>::new()]);
    // A session below another, with a title, that changed later than it was created.
    let mut entries = entries(0, vec![created(session(7), TENANT, "/w")]);
    let Record::SessionCreated(first) = &mut entries[0].record else { panic!("it is created first") };
    (first.parent, first.title) = (Some(session(3)), "Fix the Büro".to_owned());
    entries[0].at = Timestamp::from_millis(50);
    append_entries(store, session(7), TENANT, Seq::START, entries).unwrap();
    let kin = |kin| ListQuery { kin: Some(kin), ..all.clone() };
    assert_eq!(numbers(&kin(Kin::Roots)), [[1, 3, 9, 2, 5]]);
    assert_eq!(numbers(&kin(Kin::ChildrenOf(session(3)))), [[7]]);
    assert_eq!(numbers(&kin(Kin::ChildrenOf(session(7)))), [Vec::<u64>::new()]);
    assert_eq!(numbers(&ListQuery { title: Some("THE BÜ".to_owned()), ..all.clone() }), [[7]]);
    let since = |at| ListQuery { updated_since: Some(Timestamp::from_millis(at)), ..all.clone() };
    assert_eq!(numbers(&since(300)), [[1, 3, 9]]);
    assert_eq!(numbers(&since(401)), [Vec::<u64>::new()]);
    delete(store, session(7)).unwrap();
    // A cursor stays good when its session is gone.
    delete(store, session(3)).unwrap();
    let after = Some(Cursor { created: Timestamp::from_millis(300), session: session(3) });
    assert_eq!(numbers(&ListQuery { after, ..all }), [[9, 2, 5]]);
}

fn the_index_of_unfinished_sessions_follows_the_turns(store: &Store) {
    for number in 1..=3 {
        create(store, session(number));
    }
    let unfinished = || store.log.unfinished().unwrap();
    assert_eq!(unfinished(), []);
    append(store, session(1), 1, vec![admitted(1)]).unwrap();
    append(store, session(3), 1, vec![admitted(1), admitted(2)]).unwrap();
    assert_eq!(unfinished(), [session(1), session(3)]);
    append(store, session(1), 2, vec![ended(1)]).unwrap();
    append(store, session(3), 3, vec![ended(1)]).unwrap();
    assert_eq!(unfinished(), [session(3)]);
    append(store, session(2), 1, vec![admitted(1), ended(1)]).unwrap();
    assert_eq!(unfinished(), [session(3)]);
    delete(store, session(3)).unwrap();
    assert_eq!(unfinished(), []);
    // An attempt for a title outlives the turn that it is counted in.
    let of_tenant = || store.log.unfinished_of(TENANT).unwrap();
    append(store, session(1), 3, vec![admitted(5), started(5, 5), ended(5)]).unwrap();
    assert_eq!((unfinished(), of_tenant()), (vec![session(1)], vec![session(1)]));
    append(store, session(1), 6, vec![used(5, 1)]).unwrap();
    assert_eq!((unfinished(), of_tenant()), (vec![], vec![]));
    // A removal is finished when the log is gone.
    append(store, session(2), 3, vec![Record::Deleted {}]).unwrap();
    assert_eq!((unfinished(), of_tenant()), (vec![session(2)], vec![session(2)]));
    let report = store.upkeep.check().unwrap();
    assert_eq!((report.problems, report.sessions, report.removals), (vec![], 2, 1));
    delete(store, session(2)).unwrap();
    assert_eq!((unfinished(), of_tenant()), (vec![], vec![]));
}

fn listed(store: &Store, query: &ListQuery) -> Vec<SessionId> {
    let page = store.log.list(query).unwrap();
    assert_eq!(page.next, None);
    page.sessions.into_iter().map(|summary| summary.id).collect()
}

fn of_tenant(tenant: &str) -> ListQuery {
    ListQuery { tenant: Some(tenant.to_owned()), ..ListQuery::default() }
}

fn a_tenant_finds_its_few_sessions_among_those_of_others(store: &Store) {
    // More than one read of the table, and names that begin alike.
    for number in 1..=600 {
        let tenant = ["a", "ab", "a\u{ff}"][number % 3];
        create_at(store, session(number as u64), number as u64, tenant, "/w");
    }
    create_at(store, session(1000), 300, "few", "/w");
    create_at(store, session(1001), 301, "few", "/v");
    assert_eq!(listed(store, &of_tenant("few")), [session(1001), session(1000)]);
    let in_workspace = ListQuery { workspace: Some("/w".to_owned()), ..of_tenant("few") };
    assert_eq!(listed(store, &in_workspace), [session(1000)]);
    let mut query = ListQuery { limit: 90, workspace: Some("/w".to_owned()), ..of_tenant("ab") };
    let mut found = Vec::new();
    loop {
        let page = store.log.list(&query).unwrap();
        found.extend(page.sessions.into_iter().map(|summary| summary.id));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    let expected = (1..=600).rev().filter(|number| number % 3 == 1).map(session);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

fn the_lists_of_a_tenant_follow_what_changes(store: &Store) {
    for number in 1..=3 {
        create(store, session(number));
    }
    let with = |title: &str| ListQuery { title: Some(title.to_owned()), ..of_tenant(TENANT) };
    assert_eq!(listed(store, &with("fix")), []);
    append(store, session(2), 1, vec![titled("Fix it")]).unwrap();
    assert_eq!(listed(store, &with("fix")), [session(2)]);
    append(store, session(2), 2, vec![titled(&"and then FIX it ".repeat(100))]).unwrap();
    assert_eq!(listed(store, &with("then fix")), [session(2)]);
    append(store, session(2), 3, vec![titled("a")]).unwrap();
    assert_eq!(listed(store, &with("fix")), []);
    let later = Timestamp::from_millis(4_000_000_000_000);
    let since = ListQuery { updated_since: Some(later), ..of_tenant(TENANT) };
    assert_eq!(listed(store, &since), []);
    let mut entry = entries(1, vec![titled("b")]);
    entry[0].at = later;
    append_entries(store, session(3), TENANT, Seq(1), entry).unwrap();
    assert_eq!(listed(store, &since), [session(3)]);
    delete(store, session(3)).unwrap();
    assert_eq!(listed(store, &since), []);
    assert_eq!(listed(store, &of_tenant(TENANT)).len(), 2);
    // Those with work, by tenant.
    append(store, session(1), 1, vec![admitted(1)]).unwrap();
    let other = vec![created(session(9), "other", "/w"), admitted(1)];
    append_entries(store, session(9), "other", Seq::START, entries(0, other)).unwrap();
    let unfinished = |tenant| store.log.unfinished_of(tenant).unwrap();
    assert_eq!((unfinished(TENANT), unfinished("other")), (vec![session(1)], vec![session(9)]));
    append(store, session(1), 2, vec![ended(1)]).unwrap();
    delete(store, session(9)).unwrap();
    assert_eq!((unfinished(TENANT), unfinished("other")), (vec![], vec![]));
}

fn sessions_are_counted_by_tenant(store: &Store) {
    let counts = || [TENANT, "other", "nobody"].map(|tenant| store.log.count(tenant).unwrap());
    assert_eq!(counts(), [0, 0, 0]);
    // Many at once, so that some share a round of the writer.
    thread::scope(|scope| {
        for number in 1..=20 {
            scope.spawn(move || create_at(store, session(number), number, TENANT, "/w"));
        }
        scope.spawn(|| create_at(store, session(21), 1, "other", "/w"));
    });
    assert_eq!(counts(), [20, 1, 0]);
    append(store, session(1), 1, vec![titled("a")]).unwrap();
    assert!(append(store, session(1), 9, vec![titled("a")]).is_err());
    for number in [1, 2, 21] {
        delete(store, session(number)).unwrap();
    }
    assert!(delete(store, session(1)).is_err());
    assert_eq!(counts(), [18, 0, 0]);
    create(store, session(1));
    assert_eq!(counts(), [19, 0, 0]);
}

fn a_title_is_searched_as_it_is_now(store: &Store) {
    let found = |title: &str, after: Option<Cursor>| {
        let query = ListQuery {
            tenant: Some(TENANT.to_owned()),
            title: Some(title.to_owned()),
            limit: 2,
            after,
            ..ListQuery::default()
        };
        let page = store.log.list(&query).unwrap();
        (page.sessions.iter().map(|summary| summary.id).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(found("haus", None), (vec![], None));
    for number in 1..=4 {
        create(store, session(number));
        append(store, session(number), 1, vec![titled("Ein Haus")]).unwrap();
    }
    let (first, next) = found("HAUS", None);
    let (second, end) = found("haus", next);
    let all: std::collections::BTreeSet<_> = [first, second].concat().into_iter().collect();
    assert_eq!((all, end), ((1..=4).map(session).collect(), None));
    append(store, session(1), 2, vec![titled("Ein Hof")]).unwrap();
    delete(store, session(2)).unwrap();
    append(store, session(3), 2, vec![titled("Ein Hof")]).unwrap();
    assert_eq!(found("haus", None), (vec![session(4)], None));
    create(store, session(5));
    append(store, session(5), 1, vec![titled("Haus")]).unwrap();
    let (mut both, _) = found("haus", None);
    both.sort();
    assert_eq!(both, [4, 5].map(session));
}

fn a_deleted_session_leaves_nothing(store: &Store) {
    for number in 1..=2 {
        create(store, session(number));
    }
    append(store, session(1), 1, vec![admitted(1), titled("a")]).unwrap();
    assert_eq!(delete(store, session(1)).unwrap(), Seq(3));
    assert!(matches!(store.log.read(session(1), Seq::START, 9), Err(StoreError::Missing(_))));
    assert_eq!(store.log.summary(session(1)).unwrap(), None);
    assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions.len(), 1);
    assert_eq!(listed(store, &of_tenant(TENANT)), [session(2)]);
    assert_eq!(store.log.unfinished_of(TENANT).unwrap(), []);
    assert!(matches!(
        append(store, session(1), 3, vec![titled("b")]),
        Err(StoreError::Conflict { found: Seq(0), .. })
    ));
    // The other one is untouched, and the id may be used again.
    assert_eq!(read_all(store, session(2)).len(), 1);
    create(store, session(1));
    assert_eq!(read_all(store, session(1)).len(), 1);
}

fn a_session_that_is_not_there_is_missing(store: &Store) {
    assert!(
        matches!(store.log.read(session(1), Seq::START, 9), Err(StoreError::Missing(id)) if id == session(1))
    );
    assert!(matches!(store.log.read(session(1), Seq(7), 0), Err(StoreError::Missing(_))));
    assert!(matches!(delete(store, session(1)), Err(StoreError::Missing(id)) if id == session(1)));
    assert_eq!(store.log.summary(session(1)).unwrap(), None);
    assert_eq!(store.log.list(&ListQuery::default()).unwrap().sessions, []);
}

fn large_records_come_back_whole(store: &Store) {
    create(store, session(1));
    let records: Vec<Record> = [1_000, 65_000, 66_000, 5_000_000]
        .iter()
        .zip(1..)
        .map(|(size, call)| proposed(call, &"ä".repeat(size / 2)))
        .collect();
    append(store, session(1), 1, records.clone()).unwrap();
    assert_eq!(read_all(store, session(1))[1..], entries(1, records));
    // Also the first record, from which the tenant is known.
    let large = created(session(2), TENANT, &"w".repeat(100_000));
    append(store, session(2), 0, vec![large.clone()]).unwrap();
    assert_eq!(read_all(store, session(2)), entries(0, vec![large]));
}

fn the_shelf_compares_and_sets(store: &Store) {
    let shelf = &store.shelf;
    assert_eq!(shelf.get("a").unwrap(), None);
    assert!(!shelf.compare_and_set("a", Some(b"1"), Some(b"2")).unwrap());
    assert!(shelf.compare_and_set("a", None, Some(b"1")).unwrap());
    assert!(!shelf.compare_and_set("a", None, Some(b"2")).unwrap());
    assert!(shelf.compare_and_set("a", Some(b"1"), Some(b"")).unwrap());
    assert_eq!(shelf.get("a").unwrap().as_deref(), Some(&b""[..]));
    assert!(!shelf.compare_and_set("a", None, Some(b"3")).unwrap(), "an empty value is a value");
    assert!(shelf.compare_and_set("a", Some(b""), None).unwrap());
    assert!(shelf.compare_and_set("a", None, None).unwrap());
    assert_eq!(shelf.get("a").unwrap(), None);
}

fn the_shelf_is_scanned_by_prefix(store: &Store) {
    for key in ["keys/b", "keys/a", "keys", "keyz", "keys/ä", "keys/a/1"] {
        assert!(store.shelf.compare_and_set(key, None, Some(key.as_bytes())).unwrap());
    }
    let names = |prefix: &str| -> Vec<String> {
        let mut found = store.shelf.scan(prefix).unwrap();
        // What the store itself keeps there.
        found.retain(|(key, _)| !key.starts_with("engine/"));
        assert!(found.iter().all(|(key, value)| key.as_bytes() == value));
        found.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(names("keys/"), ["keys/a", "keys/a/1", "keys/b", "keys/ä"]);
    assert_eq!(names("key"), ["keys", "keys/a", "keys/a/1", "keys/b", "keys/ä", "keyz"]);
    assert_eq!(names("nothing"), Vec::<String>::new());
    assert_eq!(names(""), names("key"));
}

fn one_of_many_wins_on_the_shelf(store: &Store) {
    const THREADS: usize = 8;
    const ROUNDS: usize = 20;
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                for _ in 0..ROUNDS {
                    loop {
                        let before = store.shelf.get("counter").unwrap();
                        let count: usize = before
                            .as_deref()
                            .map_or(0, |text| std::str::from_utf8(text).unwrap().parse().unwrap());
                        let after = (count + 1).to_string();
                        if store
                            .shelf
                            .compare_and_set("counter", before.as_deref(), Some(after.as_bytes()))
                            .unwrap()
                        {
                            break;
                        }
                    }
                }
            });
        }
    });
    let total = (THREADS * ROUNDS).to_string();
    assert_eq!(store.shelf.get("counter").unwrap().unwrap(), total.as_bytes());
}

fn blobs_are_kept_per_tenant(store: &Store) {
    let blob = store.blobs.put(TENANT, b"hello").unwrap();
    assert_eq!(blob.hash, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!(blob.size, 5);
    assert_eq!(store.blobs.put(TENANT, b"hello").unwrap(), blob);
    assert_eq!(store.blobs.get(TENANT, &blob).unwrap(), b"hello");
    let empty = store.blobs.put("", b"").unwrap();
    assert_eq!(store.blobs.get("", &empty).unwrap(), b"");
    for (tenant, blob, expected) in [
        ("other", blob.clone(), "tenant \"other\" has no such content"),
        (TENANT, playhouse_protocol::message::BlobRef { size: 6, ..blob.clone() }, "should have 6 bytes"),
        (TENANT, playhouse_protocol::message::BlobRef { hash: "ab".repeat(32), size: 5 }, "no such content"),
    ] {
        let error = store.blobs.get(tenant, &blob).unwrap_err();
        assert!(matches!(error, StoreError::Blob { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
