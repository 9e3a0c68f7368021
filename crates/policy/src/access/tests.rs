use super::*;
use crate::{Action, Policy, Rule};

fn verdict(permission: &str, risk: Risk, accesses: &[Access]) -> Verdict {
    match wants(permission, risk, accesses) {
        Ok(wants) => Policy::default().judge(&wants),
        Err(verdict) => verdict,
    }
}

fn all_allowed() -> Policy {
    Policy { configuration: [Rule::new("*", "*", Action::Allow)].into_iter().collect(), ..Policy::default() }
}

#[test]
fn reading_inside_runs_and_outside_asks() {
    let inside = Access::path(AccessKind::Read, "/repo/a", Zone::Workspace).shown("a");
    assert_eq!(verdict("read", Risk::Safe, std::slice::from_ref(&inside)), Verdict::Allow);
    let outside = Access::path(AccessKind::Read, "/etc/passwd", Zone::Outside);
    let Verdict::Ask { wants, .. } = verdict("read", Risk::Safe, &[inside, outside]) else {
        panic!("must ask")
    };
    assert_eq!((wants.len(), wants[0].permission.as_str()), (1, EXTERNAL_DIRECTORY));
}

#[test]
fn a_call_writes_outside_only_where_a_rule_names_that() {
    let mut policy = all_allowed();
    let write =
        |zone| wants("edit", Risk::Dangerous, &[Access::path(AccessKind::Write, "/x/y", zone)]).unwrap();
    assert_eq!(policy.judge(&write(Zone::Workspace)), Verdict::Allow);
    let Verdict::Ask { wants, .. } = policy.judge(&write(Zone::Outside)) else { panic!("must ask") };
    assert!(wants[0].always.is_empty() && wants[0].named && !wants[0].in_person);
    policy.configuration.push(Rule::new(EXTERNAL_DIRECTORY, "/x/*", Action::Allow));
    assert_eq!(policy.judge(&write(Zone::Outside)), Verdict::Allow);
}

#[test]
fn a_name_with_wildcards_is_not_remembered() {
    for name in ["*", "a?b", "src/*"] {
        let access = Access::path(AccessKind::Read, format!("/repo/{name}"), Zone::Workspace).shown(name);
        assert!(wants("read", Risk::Safe, &[access]).unwrap()[0].always.is_empty(), "{name}");
    }
    for path in ["/*", "/etc/*", "/srv/a*/b", "/srv/data/?"] {
        let always = outside(AccessKind::Read, path).always;
        assert!(always.iter().all(|pattern| pattern == "/srv/data/*"), "{path}: {always:?}");
    }
    let wanted = wants("webfetch", Risk::Moderate, &[Access::Address("https://*/a".into())]).unwrap();
    assert!(wanted[0].always.is_empty());
}

#[test]
fn what_is_remembered_of_a_path_outside_is_no_more_than_its_directory() {
    for (path, expected) in [
        ("/usr/include/stdio.h", &["/usr/include/*"][..]),
        ("/etc/passwd", &["/etc/passwd", "/etc/passwd/*"]),
        ("/etc", &["/etc", "/etc/*"]),
        ("/home/ada/.ssh", &["/home/ada/.ssh", "/home/ada/.ssh/*"]),
        ("/home/ada/src/x", &["/home/ada/src/*"]),
        ("/", &[]),
    ] {
        assert_eq!(outside(AccessKind::Read, path).always, expected, "{path}");
        assert!(outside(AccessKind::Write, path).always.is_empty());
    }
}

#[test]
fn saved_outputs_are_read_without_asking_and_never_written() {
    let access = |kind| [Access::path(kind, "/data/output/x", Zone::Output)];
    assert_eq!(verdict("read", Risk::Safe, &access(AccessKind::Read)), Verdict::Allow);
    assert!(matches!(verdict("edit", Risk::Dangerous, &access(AccessKind::Write)), Verdict::Deny { .. }));
}

#[test]
fn a_command_may_run_among_saved_outputs_and_get_them_as_arguments() {
    let allowed = Policy {
        configuration: [Rule::new("bash", "*", Action::Allow)].into_iter().collect(),
        ..Policy::default()
    };
    let judged = |kind, zone| {
        let command = Access::Command(shell::analyse("python3 /data/output/x").commands.remove(0));
        let wanted = wants("bash", Risk::Dangerous, &[Access::path(kind, "/data/output/x", zone), command]);
        wanted.map_or_else(|verdict| verdict, |wants| allowed.judge(&wants))
    };
    for kind in [AccessKind::Read, AccessKind::MayWrite, AccessKind::Execute] {
        assert_eq!(judged(kind, Zone::Output), Verdict::Allow, "{kind:?}");
    }
    assert!(matches!(judged(AccessKind::Write, Zone::Output), Verdict::Deny { .. }));
    // It is for the command itself as for each of its kind.
    let command = Access::Command(shell::analyse("python3 /data/output/x").commands.remove(0));
    let accesses = [Access::path(AccessKind::MayWrite, "/data/output/x", Zone::Output), command];
    assert!(matches!(verdict("bash", Risk::Dangerous, &accesses), Verdict::Ask { .. }));
}

#[test]
fn what_may_be_written_is_judged_as_what_is_everywhere_else() {
    let command = || Access::Command(shell::analyse("tool x").commands.remove(0));
    for zone in [Zone::Workspace, Zone::Guarded, Zone::Hidden, Zone::Outside] {
        let judged = |kind| wants("bash", Risk::Dangerous, &[command(), Access::path(kind, "/x/y", zone)]);
        assert_eq!(judged(AccessKind::MayWrite), judged(AccessKind::Write), "{zone:?}");
        let by_file_tool = |kind| wants("edit", Risk::Dangerous, &[Access::path(kind, "/x/y", zone)]);
        assert_eq!(by_file_tool(AccessKind::MayWrite), by_file_tool(AccessKind::Write), "{zone:?}");
    }
}

#[test]
fn what_git_obeys_is_read_and_never_changed_but_by_commands_of_a_person() {
    let access = |kind| Access::path(kind, "/repo/.git/config", Zone::Guarded).shown(".git/config");
    assert_eq!(verdict("read", Risk::Safe, &[access(AccessKind::Read)]), Verdict::Allow);
    let Err(Verdict::Deny { reason }) = wants("edit", Risk::Dangerous, &[access(AccessKind::Write)]) else {
        panic!("must be denied")
    };
    assert!(reason.contains(".git/config"), "{reason}");
    let command = Access::Command(shell::analyse("tee .git/config").commands.remove(0));
    let by_command = [command.clone(), access(AccessKind::Write)];
    let wanted = wants("bash", Risk::Dangerous, &by_command).unwrap();
    let Verdict::Ask { wants: asked, .. } = all_allowed().judge(&wanted) else { panic!("must ask") };
    assert!(asked[0].in_person && asked[0].always.is_empty());
    let read = [command, access(AccessKind::Read)];
    assert_eq!(all_allowed().judge(&wants("bash", Risk::Dangerous, &read).unwrap()), Verdict::Allow);
}

#[test]
fn what_belongs_to_the_engine_is_never_touched() {
    let command = Access::Command(shell::analyse("cat x").commands.remove(0));
    for kind in [AccessKind::Read, AccessKind::Write, AccessKind::Execute] {
        let hidden = Access::path(kind, "/data/playhouse/key", Zone::Hidden);
        for accesses in [vec![hidden.clone()], vec![command.clone(), hidden.clone()]] {
            let Err(Verdict::Deny { reason }) = wants("bash", Risk::Safe, &accesses) else {
                panic!("must be denied")
            };
            assert!(reason.contains("/data/playhouse/key"), "{reason}");
        }
    }
}

#[test]
fn commands_are_judged_by_their_text_and_by_where_their_paths_lead() {
    let script = shell::analyse("cargo test > log");
    let mut accesses: Vec<Access> = script.commands.into_iter().map(Access::Command).collect();
    accesses.push(Access::path(AccessKind::Execute, "/repo", Zone::Workspace));
    accesses.push(Access::path(AccessKind::Write, "/repo/log", Zone::Workspace));
    let wanted = wants("bash", Risk::Dangerous, &accesses).unwrap();
    assert_eq!(wanted.len(), 1);
    assert_eq!(
        (wanted[0].subject.as_str(), wanted[0].always.join("|").as_str()),
        ("cargo test", "cargo test *")
    );
    accesses.push(Access::path(AccessKind::Write, "/etc/motd", Zone::Outside));
    assert!(wants("bash", Risk::Dangerous, &accesses).unwrap()[1].named);
}

#[test]
fn what_a_command_does_to_a_file_for_certain_is_judged_as_a_tool_for_files_would_be() {
    let command = || Access::Command(shell::analyse("cat x").commands.remove(0));
    let file = |kind, shown: &str| {
        Access::path(kind, format!("/repo/{shown}"), Zone::Workspace).shown(shown).known(Known::Aside)
    };
    let judge = |rules: &[(&str, &str, Action)], access: Access| {
        let rules = [("bash", "cat *", Action::Allow)].iter().chain(rules);
        let rules = rules.map(|(permission, pattern, action)| Rule::new(permission, pattern, *action));
        let policy = Policy { configuration: rules.collect(), ..Policy::default() };
        policy.judge(&wants("bash", Risk::Dangerous, &[command(), access]).unwrap())
    };
    let write = || file(AccessKind::Write, "src/a");
    let Verdict::Ask { wants, .. } = judge(&[], write()) else { panic!("must ask") };
    assert_eq!((wants[0].permission.as_str(), &*wants[0].always), ("edit", &["src/a".to_owned()][..]));
    assert_eq!(judge(&[("edit", "src/*", Action::Allow)], write()), Verdict::Allow);
    assert!(matches!(judge(&[("edit", "*", Action::Deny)], write()), Verdict::Deny { .. }));
    assert_eq!(judge(&[], file(AccessKind::Read, "src/a")), Verdict::Allow);
    assert!(matches!(judge(&[], file(AccessKind::Read, ".env")), Verdict::Ask { .. }));
    assert!(matches!(
        judge(&[("read", "src/*", Action::Deny)], file(AccessKind::Read, "src/a")),
        Verdict::Deny { .. }
    ));
    // Who allowed the command allowed what it is for, unless a rule about files speaks; who allowed any command, all of that.
    let purpose = || write().known(Known::Purpose);
    assert_eq!(judge(&[], purpose()), Verdict::Allow);
    assert!(matches!(judge(&[("edit", "*", Action::Ask)], purpose()), Verdict::Ask { .. }));
    let all = ("bash", "*", Action::Allow);
    assert_eq!(judge(&[all], write()), Verdict::Allow);
    assert_eq!(judge(&[all, ("bash", "rm *", Action::Deny)], write()), Verdict::Allow);
    assert!(matches!(judge(&[all, ("edit", "*", Action::Ask)], write()), Verdict::Ask { .. }));
    // To ask about everything is no rule about files.
    let everything = ("*", "*", Action::Ask);
    let cat = ("bash", "cat *", Action::Allow);
    assert_eq!(judge(&[everything, cat], file(AccessKind::Read, "src/a")), Verdict::Allow);
    assert_eq!(judge(&[everything, cat], purpose()), Verdict::Allow);
    assert!(matches!(judge(&[everything, cat], write()), Verdict::Ask { .. }));
    assert!(matches!(judge(&[everything, cat], file(AccessKind::Read, ".env")), Verdict::Ask { .. }));
    assert_eq!(judge(&[everything, all], write()), Verdict::Allow);
    // What it may only do is not judged by these.
    assert_eq!(judge(&[("edit", "*", Action::Deny)], write().known(Known::No)), Verdict::Allow);
    let unknown = || Access::Unknown { text: "$X".into(), doubt: "a variable".into(), written: Known::Aside };
    let outside = (EXTERNAL_DIRECTORY, "*", Action::Allow);
    assert!(matches!(judge(&[outside], unknown()), Verdict::Ask { .. }));
    assert!(matches!(judge(&[outside, ("edit", "*", Action::Deny)], unknown()), Verdict::Deny { .. }));
    assert_eq!(judge(&[outside, ("edit", "*", Action::Allow)], unknown()), Verdict::Allow);
}

#[test]
fn a_path_that_may_be_any_is_asked_for_unless_any_may_be_used() {
    let unknown = Access::Unknown { text: "$X".into(), doubt: "a variable".into(), written: Known::No };
    let command = shell::analyse("cat x").commands.remove(0);
    let wanted = wants("bash", Risk::Dangerous, &[Access::Command(command), unknown]).unwrap();
    let judge = |rules: &[(&str, &str, Action)]| {
        let rules = rules.iter().map(|(permission, pattern, action)| Rule::new(permission, pattern, *action));
        Policy { configuration: rules.collect(), ..Policy::default() }.judge(&wanted)
    };
    let Verdict::Ask { wants, reason } = judge(&[("bash", "*", Action::Allow)]) else { panic!("must ask") };
    let told = (wants.len(), wants[0].permission.as_str(), wants[0].in_person);
    assert_eq!(told, (1, EXTERNAL_DIRECTORY, false));
    assert!(reason.contains("$X") && wants[0].always.is_empty(), "{reason}");
    assert_eq!(judge(&[("*", "*", Action::Allow)]), Verdict::Allow);
    let some = [("*", "*", Action::Allow), ("external_directory", "/etc/*", Action::Deny)];
    assert!(matches!(judge(&some), Verdict::Ask { .. }));
    let denied = [("*", "*", Action::Allow), ("external_directory", "*", Action::Deny)];
    assert!(matches!(judge(&denied), Verdict::Deny { .. }));
}

#[test]
fn an_address_is_remembered_by_its_origin() {
    let wanted = wants("webfetch", Risk::Moderate, &[Access::Address("https://a.org:8/b?c".into())]).unwrap();
    assert_eq!(wanted[0].always, ["https://a.org:8/*"]);
}

#[test]
fn a_search_is_judged_by_what_it_looks_for() {
    let wanted = wants("task", Risk::Moderate, &[Access::Agent("explore".into())]).unwrap();
    assert_eq!(wanted, [Want::new("task", "explore", Risk::Moderate).always(["explore"])], "no other agent");
    let wanted = wants("websearch", Risk::Moderate, &[Access::Query("rust".into())]).unwrap();
    assert_eq!((wanted.len(), wanted[0].subject.as_str()), (1, "rust"));
}

#[test]
fn a_call_that_touches_nothing_is_judged_by_its_name() {
    let wanted = wants("todowrite", Risk::Safe, &[]).unwrap();
    assert_eq!((wanted[0].permission.as_str(), wanted[0].subject.as_str()), ("todowrite", "*"));
}

#[test]
fn always_for_what_is_usually_allowed_is_only_that() {
    let env = Access::path(AccessKind::Read, "/repo/.env", Zone::Workspace).shown(".env");
    assert_eq!(wants("read", Risk::Safe, &[env]).unwrap()[0].always, [".env"]);
    let edit = Access::path(AccessKind::Write, "/repo/a", Zone::Workspace).shown("a");
    assert_eq!(wants("edit", Risk::Dangerous, &[edit]).unwrap()[0].always, ["*"]);
}
