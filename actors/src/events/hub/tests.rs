//! What readers of the hub are given, and what it keeps.

use playhouse_protocol::event::Provisional;
use playhouse_protocol::{Event, EventBody, IdGenerator, Seq, Timestamp};

use super::*;

fn owner(tenant: &str, workspace: &str) -> Owner {
    Owner { tenant: tenant.into(), workspace: workspace.into() }
}

fn sessions(count: usize) -> Vec<SessionId> {
    let mut ids = IdGenerator::new(|_| {});
    (0..count).map(|_| ids.next(Timestamp::from_millis(1))).collect()
}

fn event(session: SessionId) -> (Arc<Published>, usize) {
    let body = EventBody::Provisional(Provisional::Resync { after: Seq(1) });
    let (id, at) = ("1.1".parse().unwrap(), Timestamp::from_millis(1));
    (Published::new(Event { id, generation: 7, session, at, body }), 100)
}

fn position(heard: Option<Heard>) -> Option<u64> {
    match heard? {
        Heard::Event(shout) => Some(shout.position),
        Heard::Behind { .. } => panic!("it is behind"),
    }
}

#[test]
fn a_reader_is_given_what_is_its_tenants_and_wanted() {
    let (hub, ids) = (Hub::new(7, 10_000), sessions(3));
    let (here, there, foreign) = (owner("a", "/here"), owner("a", "/there"), owner("b", "/here"));
    let mut all = hub.listen(&here.tenant, None, |_| true);
    let mut some = hub.listen(&here.tenant, None, |owner| &*owner.workspace == "/there");
    for (owner, id) in [(&here, ids[0]), (&there, ids[1]), (&foreign, ids[2])] {
        hub.outlet(id, owner.clone()).write([event(id)]);
    }
    assert_eq!((position(all.try_next()), position(all.try_next())), (Some(1), Some(2)));
    assert!(all.try_next().is_none());
    assert_eq!(position(some.try_next()), Some(2));
    assert!(some.try_next().is_none());
    assert_eq!(some.place(), (7, 2));
}

#[test]
fn a_reader_of_all_tenants_is_given_all_and_goes_on_where_it_was() {
    let (hub, ids) = (Hub::new(7, 10_000), sessions(2));
    let outlets = [hub.outlet(ids[0], owner("a", "/x")), hub.outlet(ids[1], owner("b", "/y"))];
    let write = || outlets.iter().zip(&ids).for_each(|(outlet, id)| outlet.write([event(*id)]));
    write();
    let mut mine = hub.listen(&"a".into(), None, |_| true);
    let (mut all, mut some) =
        (hub.listen_to_all(None, |_| true), hub.listen_to_all(None, |owner| &*owner.tenant == "b"));
    write();
    assert_eq!((position(all.try_next()), position(all.try_next())), (Some(1), Some(2)));
    assert_eq!((position(some.try_next()), position(mine.try_next())), (Some(2), Some(2)));
    assert!(all.try_next().is_none() && some.try_next().is_none() && mine.try_next().is_none());
    drop(all);
    write();
    let mut back = hub.listen_to_all(Some((7, 3)), |_| true);
    assert_eq!((position(back.try_next()), back.place()), (Some(4), (7, 4)));
    hub.close();
    assert!(matches!(back.look(), Looked::Closed));
}

#[test]
fn a_reader_that_comes_back_goes_on_or_hears_what_changed() {
    let (hub, ids) = (Hub::new(7, 250), sessions(3));
    let mine = owner("a", "/a");
    let _watching = hub.listen(&mine.tenant, None, |_| true);
    for id in &ids {
        hub.outlet(*id, mine.clone()).write([event(*id)]);
    }
    let mut back = hub.listen(&mine.tenant, Some((7, 2)), |_| true);
    assert_eq!(position(back.try_next()), Some(3));
    assert!(back.try_next().is_none());
    let mut behind = hub.listen(&mine.tenant, Some((7, 0)), |_| true);
    let Some(Heard::Behind { position: 1, changed: Some(changed) }) = behind.try_next() else {
        panic!("the first event is gone")
    };
    let mut expected = ids.clone();
    expected.sort_unstable();
    assert_eq!(changed, expected);
    assert_eq!(position(behind.try_next()), Some(2));
    let mut lost = hub.listen(&mine.tenant, Some((6, 2)), |_| true);
    assert!(matches!(lost.try_next(), Some(Heard::Behind { position: 3, changed: None })));
    assert!(lost.try_next().is_none());
    let mut future = hub.listen(&mine.tenant, Some((7, u64::MAX)), |_| true);
    assert!(matches!(future.try_next(), Some(Heard::Behind { position: 3, changed: None })));
    assert!(future.try_next().is_none());
}

#[test]
fn what_is_not_remembered_any_more_is_not_told_as_unchanged() {
    let (hub, ids) = (Hub::new(1, 1), sessions(5));
    let mine = owner("a", "/a");
    let _watching = hub.listen(&mine.tenant, None, |_| true);
    hub.lane(Some(&mine.tenant)).inner.lock().remembered = 4;
    for id in &ids {
        hub.outlet(*id, mine.clone()).write([event(*id)]);
    }
    let heard = |after| hub.listen(&mine.tenant, Some((1, after)), |_| true).try_next();
    assert!(matches!(heard(0), Some(Heard::Behind { changed: None, .. })));
    let Some(Heard::Behind { changed: Some(changed), .. }) = heard(2) else { panic!("it is known") };
    assert_eq!(changed.len(), 3);
}

#[test]
fn a_session_that_was_forgotten_or_has_two_outlets_is_told_when_it_changes_again() {
    let (hub, ids) = (Hub::new(1, 1), sessions(5));
    let mine = owner("a", "/a");
    let _watching = hub.listen(&mine.tenant, None, |_| true);
    hub.lane(Some(&mine.tenant)).inner.lock().remembered = 4;
    let outlets: Vec<Outlet> = ids.iter().map(|id| hub.outlet(*id, mine.clone())).collect();
    let again = hub.outlet(ids[0], mine.clone());
    let changed_after = |after| {
        let heard = hub.listen(&mine.tenant, Some((1, after)), |_| true).try_next();
        let Some(Heard::Behind { changed: Some(changed), .. }) = heard else { panic!("it is known") };
        changed
    };
    let write = |outlet: &Outlet| outlet.write([event(outlet.mark.session)]);
    outlets.iter().for_each(write);
    // The first two were forgotten by now.
    write(&outlets[0]);
    write(&outlets[1]);
    let mut expected = vec![ids[0], ids[1], ids[4]];
    expected.sort_unstable();
    assert_eq!(changed_after(4), expected);
    write(&again);
    write(&outlets[0]);
    write(&outlets[1]);
    assert_eq!(changed_after(8).len(), 2);
    assert_eq!(outlets[0].lane.inner.lock().changed.len(), 3);
}

#[test]
fn nobody_keeps_old_events() {
    let (hub, ids) = (Hub::new(1, 10_000), sessions(2));
    let (mine, began) = (owner("a", "/a"), Instant::now());
    let _watching = hub.listen(&mine.tenant, None, |_| true);
    let outlet = hub.outlet(ids[0], mine.clone());
    let kept = || hub.lane(Some(&mine.tenant)).inner.lock().events.len();
    hub.age(began);
    outlet.write([event(ids[0]), event(ids[0])]);
    hub.age(began + KEPT_TO);
    hub.outlet(ids[1], mine.clone()).write([event(ids[1])]);
    hub.age(began + KEPT_TO * 2);
    hub.age(began + KEPT + KEPT_TO - Duration::from_millis(1));
    assert_eq!(kept(), 3);
    hub.age(began + KEPT + KEPT_TO);
    assert_eq!(kept(), 1);
    let mut behind = hub.listen(&mine.tenant, Some((1, 0)), |_| true);
    let Some(Heard::Behind { position: 2, changed: Some(changed) }) = behind.try_next() else {
        panic!("it is told which changed")
    };
    assert_eq!(changed.len(), 2);
    assert_eq!(position(behind.try_next()), Some(3));
    hub.age(began + KEPT * 2);
    assert!(hub.is_empty());
    assert_eq!(kept(), 0);
    outlet.write([event(ids[0])]);
    assert_eq!(position(behind.try_next()), Some(4), "who has read all misses nothing");
}

#[test]
fn all_tenants_together_keep_what_the_budget_allows() {
    let (hub, ids) = (Hub::new(1, 1_000), sessions(1));
    let tenants: Vec<Owner> = (0..100).map(|number| owner(&format!("t{number}"), "/a")).collect();
    let listen = |owner: &Owner| hub.listen(&owner.tenant, None, |_| true);
    let _watching: Vec<Listener> = tenants.iter().map(listen).collect();
    for mine in &tenants {
        let outlet = hub.outlet(ids[0], mine.clone());
        (0..20).for_each(|_| outlet.write([event(ids[0])]));
        let kept = |owner: &Owner| hub.lane(Some(&owner.tenant)).inner.lock().bytes;
        let sum: usize = tenants.iter().map(kept).sum();
        assert_eq!(sum, hub.lanes.bytes.load(Relaxed));
        assert!(sum <= 8 * 1_000, "{sum}");
        assert_eq!(kept(mine), 1_000, "who is at work keeps what one may");
    }
    // Places go on counting up, and who comes back is told that anything may have changed.
    let first = &tenants[0];
    let mut behind = hub.listen(&first.tenant, Some((1, 15)), |_| true);
    assert!(matches!(behind.try_next(), Some(Heard::Behind { position: 20, changed: None })));
    hub.outlet(ids[0], first.clone()).write([event(ids[0])]);
    assert_eq!(position(behind.try_next()), Some(21));
}

#[test]
fn nothing_is_kept_where_nobody_reads_or_may_come_back() {
    let (hub, ids) = (Hub::new(1, 10_000), sessions(3));
    let mine = owner("a", "/a");
    let outlets: Vec<Outlet> = ids.iter().map(|id| hub.outlet(*id, mine.clone())).collect();
    let write = |number: usize| outlets[number].write([event(ids[number]), event(ids[number])]);
    let kept = || {
        let lane = hub.lane(Some(&mine.tenant));
        let inner = lane.inner.lock();
        (inner.events.len(), inner.changed.len())
    };
    write(0);
    assert_eq!((kept(), hub.is_empty()), ((0, 0), true), "nobody ever read");
    let reader = hub.listen(&mine.tenant, None, |_| true);
    assert_eq!(reader.place(), (1, 2));
    write(0);
    let place = (1, 4);
    drop(reader);
    write(1);
    assert_eq!(kept(), (4, 2), "it may come back in a moment");
    let mut back = hub.listen(&mine.tenant, Some(place), |_| true);
    assert_eq!((position(back.try_next()), position(back.try_next())), (Some(5), Some(6)));
    assert!(back.try_next().is_none());
    drop(back);
    hub.age(Instant::now() + KEPT);
    assert!(hub.is_empty());
    write(2);
    assert_eq!(kept(), (0, 3), "who comes back later is told which sessions changed");
    let mut late = hub.listen(&mine.tenant, Some((1, 6)), |_| true);
    let Some(Heard::Behind { position: 8, changed: Some(changed) }) = late.try_next() else {
        panic!("it is told which changed")
    };
    assert_eq!(changed, [ids[2]]);
    write(1);
    assert_eq!(position(late.try_next()), Some(9));
    let mut first = hub.listen(&mine.tenant, Some((1, 1)), |_| true);
    let Some(Heard::Behind { changed: None, .. }) = first.try_next() else {
        panic!("nobody knows what changed before anybody read")
    };
}

#[tokio::test]
async fn a_reader_that_waits_is_woken_and_ends_with_the_engine() {
    let (hub, ids) = (Arc::new(Hub::new(1, 1_000)), sessions(1));
    let mine = owner("a", "/a");
    let mut reader = hub.listen(&mine.tenant, None, |_| true);
    let waiting = tokio::spawn(async move { (reader.next().await, reader.next().await) });
    tokio::task::yield_now().await;
    hub.outlet(ids[0], mine).write([event(ids[0])]);
    hub.close();
    let (event, end) = waiting.await.unwrap();
    assert_eq!(position(event), Some(1));
    assert!(end.is_none());
}
