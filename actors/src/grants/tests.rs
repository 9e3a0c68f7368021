use playhouse_protocol::PartId;
use playhouse_protocol::consent::{Action, Risk};
use playhouse_store::Store;

use super::*;

fn asked(command: &str) -> ConsentAsked {
    ConsentAsked {
        consent: ConsentId::parse("per_000000000001Cons1234567890").unwrap(),
        call: Some(PartId::parse("prt_000000000001Part1234567890").unwrap()),
        tool: "bash".into(),
        risk: Risk::Dangerous,
        reason: "why".into(),
        preview: command.into(),
        diff: false,
        wants: vec![Want::new("bash", command, Risk::Dangerous).always([format!("{command} *")])],
        walls: None,
    }
}

fn at() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000)
}

fn patterns(book: &Book) -> Vec<String> {
    let mut rules = Rules::new();
    book.extend(&mut rules);
    rules.iter().map(|rule| rule.pattern.to_string()).collect()
}

#[test]
fn a_grant_is_stored_once_and_read_by_whoever_comes_later() {
    let shelf = Store::memory().unwrap().shelf;
    let grants = Grants::default();
    let book = grants.book(&*shelf, "acme", "/repo");
    let added = book.add(&*shelf, &asked("make"), at()).unwrap();
    assert_eq!((added.len(), added[0].len()), (1, NAME_DIGITS));
    assert_eq!(book.add(&*shelf, &asked("make"), at()).unwrap(), Vec::<String>::new());
    assert!(Arc::ptr_eq(&book, &grants.book(&*shelf, "acme", "/repo")), "one object for all");
    assert_eq!(patterns(&book), ["make *"]);
    let later = Grants::default();
    assert_eq!(patterns(&later.book(&*shelf, "acme", "/repo")), ["make *"]);
    for (tenant, workspace) in [("acme", "/repo2"), ("acm", "/repo"), ("", "/repo"), ("acme/", "/repo")] {
        assert!(patterns(&later.book(&*shelf, tenant, workspace)).is_empty(), "{tenant} {workspace}");
    }
}

#[test]
fn what_is_granted_is_listed_by_tenant_and_withdrawn_by_name() {
    let shelf = Store::memory().unwrap().shelf;
    let grants = Grants::default();
    let book = grants.book(&*shelf, "acme", "/repo");
    book.add(&*shelf, &asked("make"), at()).unwrap();
    grants.book(&*shelf, "ac", "/repo").add(&*shelf, &asked("make"), at()).unwrap();
    assert_eq!(list(&*shelf, None).unwrap().len(), 2);
    let mine = list(&*shelf, Some("acme")).unwrap();
    assert_eq!(mine.len(), 1);
    assert_eq!(mine[0].rule.action, Action::Allow);
    let foreign = grants.revoke(&*shelf, Some("ac"), &mine[0].id).unwrap_err();
    assert!(matches!(foreign, CommandError::Invalid(_)), "{foreign}");
    assert_eq!(grants.revoke(&*shelf, Some("acme"), &mine[0].id).unwrap(), mine[0]);
    assert!(patterns(&book).is_empty(), "it holds in the object that sessions share");
    assert!(grants.revoke(&*shelf, None, &mine[0].id).is_err());
    assert_eq!(list(&*shelf, None).unwrap().len(), 1);
}

#[test]
fn two_engines_on_one_shelf_lose_nothing() {
    let shelf = Store::memory().unwrap().shelf;
    let work = |engine: usize| {
        let shelf = Arc::clone(&shelf);
        std::thread::spawn(move || {
            let book = Grants::default().book(&*shelf, "acme", "/repo");
            for number in 0..20 {
                book.add(&*shelf, &asked(&format!("make {engine}-{number}")), at()).unwrap();
            }
        })
    };
    for worker in [work(0), work(1)] {
        worker.join().unwrap();
    }
    assert_eq!(list(&*shelf, Some("acme")).unwrap().len(), 40);
}

#[test]
fn there_is_a_bound_and_a_longest_pattern() {
    let shelf = Store::memory().unwrap().shelf;
    let book = Grants::default().book(&*shelf, "acme", "/repo");
    let many = (0..MOST).map(|number| Want::new("bash", "x", Risk::Dangerous).always([format!("x{number}")]));
    let all = ConsentAsked { wants: many.collect(), ..asked("x") };
    assert_eq!(book.add(&*shelf, &all, at()).unwrap().len(), MOST);
    let refused = book.add(&*shelf, &asked("make"), at()).unwrap_err();
    let CommandError::AtLimit { told, limit, passes: false } = refused else { panic!("{refused}") };
    assert!(told.contains("withdraw some"), "{told}");
    let most = Amount::Count(MOST as u64);
    assert_eq!((&*limit.name, limit.scope, limit.max), ("grants", LimitScope::Tenant, most));
    assert_eq!((limit.used, limit.needed), (Some(most), Some(Amount::Count(1))));
    let long = book.add(&*shelf, &asked(&"x".repeat(LONGEST)), at()).unwrap_err().to_string();
    assert!(long.contains("longer than"), "{long}");
    assert_eq!(list(&*shelf, None).unwrap().len(), MOST);
}

#[test]
fn the_first_form_stays_readable_and_a_newer_one_is_left_alone() {
    let shelf = Store::memory().unwrap().shelf;
    let first = r#"{"version":1,"grants":[{"id":"0123456789ab","tenant":"acme","workspace":"/repo","rule":{"permission":"bash","pattern":"make *","action":"allow"},"given":1800000000000,"consent":"per_000000000001Cons1234567890"}]}"#;
    assert_eq!(decode(first.as_bytes()).unwrap()[0].rule.pattern, "make *");
    let newer = br#"{"version":2,"grants":"elsewhere"}"#;
    assert!(shelf.compare_and_set(&key("acme", "/repo"), None, Some(newer)).unwrap());
    let book = Grants::default().book(&*shelf, "acme", "/repo");
    assert!(patterns(&book).is_empty(), "nothing counts as granted");
    let refused = book.add(&*shelf, &asked("make"), at()).unwrap_err().to_string();
    assert!(refused.contains("form 2"), "{refused}");
    assert_eq!(shelf.get(&key("acme", "/repo")).unwrap().as_deref(), Some(&newer[..]));
}

#[test]
fn books_that_nobody_uses_leave_memory() {
    let shelf = Store::memory().unwrap().shelf;
    let grants = Grants::default();
    for number in 0..1_000 {
        grants.book(&*shelf, "acme", &format!("/repo{number}"));
    }
    assert!(grants.books.lock().by_key.len() <= FIRST_PRUNE + 1);
}
