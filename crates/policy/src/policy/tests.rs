use super::*;

fn rules(rules: &[(&str, &str, Action)]) -> Rules {
    rules.iter().map(|(permission, pattern, action)| Rule::new(permission, pattern, *action)).collect()
}

fn bash(subject: &str) -> Want {
    Want::new("bash", subject, Risk::Dangerous)
}

fn action(policy: &Policy, want: Want) -> Action {
    match policy.judge(&[want]) {
        Verdict::Allow => Action::Allow,
        Verdict::Ask { .. } => Action::Ask,
        Verdict::Deny { .. } => Action::Deny,
    }
}

use Action::{Allow, Ask, Deny};

#[test]
fn without_a_rule_the_risk_decides() {
    let policy = Policy::default();
    assert_eq!(action(&policy, Want::new("glob", "*", Risk::Safe)), Allow);
    assert_eq!(action(&policy, Want::new("webfetch", "https://a", Risk::Moderate)), Ask);
    assert_eq!(action(&policy, bash("ls")), Ask);
    let open = Policy { moderate: Allow, ..Policy::default() };
    assert_eq!(action(&open, Want::new("webfetch", "https://a", Risk::Moderate)), Allow);
}

#[test]
fn within_a_layer_the_last_match_wins_and_a_stronger_layer_decides() {
    let configuration = rules(&[
        ("*", "*", Allow),
        ("bash", "*", Ask),
        ("bash", "git status *", Allow),
        ("bash", "rm -rf *", Deny),
    ]);
    let mut policy = Policy { configuration, ..Policy::default() };
    assert_eq!(action(&policy, bash("git status")), Allow);
    assert_eq!(action(&policy, bash("git push")), Ask);
    assert_eq!(action(&policy, bash("rm -rf /")), Deny);
    assert_eq!(action(&policy, Want::new("edit", "a.rs", Risk::Dangerous)), Allow);
    policy.agent = rules(&[("bash", "*", Deny)]);
    assert_eq!(action(&policy, bash("git status")), Deny);
    policy.session = rules(&[("bash", "git *", Allow), ("bash", "rm *", Allow)]);
    assert_eq!(action(&policy, bash("git push")), Allow, "an agent's deny is not final");
    assert_eq!(action(&policy, bash("rm -rf /")), Deny, "the operator's is");
}

#[test]
fn a_workspace_makes_things_stricter_only() {
    let configuration = rules(&[("bash", "*", Ask), ("edit", "*", Allow)]);
    let workspace = rules(&[("bash", "*", Allow), ("edit", "*.lock", Deny), ("read", "*", Ask)]);
    let policy = Policy { configuration, workspace, ..Policy::default() };
    assert_eq!(action(&policy, bash("ls")), Ask);
    assert_eq!(action(&policy, Want::new("edit", "a.rs", Risk::Dangerous)), Allow);
    assert_eq!(action(&policy, Want::new("edit", "Cargo.lock", Risk::Dangerous)), Deny);
    assert_eq!(action(&policy, Want::new("read", "a.rs", Risk::Safe)), Ask);
}

#[test]
fn what_is_in_doubt_may_be_anything() {
    let doubtful = |subject: &str| Want { doubt: Some("$X".into()), ..bash(subject) };
    let all = Policy { configuration: rules(&[("bash", "*", Allow)]), ..Policy::default() };
    assert_eq!(action(&all, doubtful("$X y")), Allow, "all is allowed, whatever it is");
    let but = |pattern: &str, action| Policy {
        configuration: rules(&[("bash", "*", Allow), ("bash", pattern, action)]),
        ..Policy::default()
    };
    assert_eq!(action(&but("rm *", Deny), doubtful("$X y")), Ask);
    assert_eq!(action(&but("rm *", Ask), doubtful("$X y")), Ask);
    let some = Policy { configuration: rules(&[("bash", "echo *", Allow)]), ..Policy::default() };
    assert_eq!(action(&some, bash("echo a")), Allow);
    assert_eq!(action(&some, doubtful("echo $X")), Ask);
    let few = Policy {
        configuration: rules(&[("bash", "*", Deny), ("bash", "echo *", Allow)]),
        ..Policy::default()
    };
    assert_eq!(action(&few, doubtful("echo $X")), Deny);
}

#[test]
fn what_only_a_person_can_allow_is_asked_whatever_rules_say() {
    let policy = Policy {
        configuration: rules(&[("*", "*", Allow)]),
        session: rules(&[("external_directory", "*", Allow)]),
        ..Policy::default()
    };
    let outside = Want::new("external_directory", "/etc/hosts", Risk::Dangerous);
    assert_eq!(action(&policy, outside.clone()), Allow);
    assert_eq!(action(&policy, Want { in_person: true, ..outside }), Ask);
}

#[test]
fn a_named_want_is_allowed_only_by_rules_that_name_its_permission() {
    let write = || Want { named: true, ..Want::new("external_directory", "/etc/hosts", Risk::Dangerous) };
    let judge = |configuration: &[(&str, &str, Action)], session: &[(&str, &str, Action)]| {
        let (configuration, session) = (rules(configuration), rules(session));
        action(&Policy { configuration, session, ..Policy::default() }, write())
    };
    let all = ("*", "*", Allow);
    assert_eq!(judge(&[all], &[]), Ask);
    assert_eq!(judge(&[("**", "/etc/*", Allow)], &[("?*", "*", Allow)]), Ask);
    assert_eq!(judge(&[("external_directory", "/etc/*", Allow)], &[]), Allow);
    assert_eq!(judge(&[("external_directory", "*", Allow), all], &[all]), Allow, "the next that decides");
    assert_eq!(judge(&[("external_directory", "/etc/*", Deny), all], &[all]), Deny);
    assert_eq!(judge(&[all, ("*", "/etc/*", Deny)], &[]), Deny, "a deny counts whomever it names");
    assert_eq!(judge(&[], &[("external_directory", "/etc/hosts", Allow)]), Allow);
    let doubtful = Want { doubt: Some("a variable".into()), ..write() };
    let policy = Policy { configuration: rules(&[all]), ..Policy::default() };
    assert_eq!(action(&policy, doubtful.clone()), Ask);
    let configuration = rules(&[("external_directory", "*", Allow)]);
    assert_eq!(action(&Policy { configuration, ..Policy::default() }, doubtful), Allow);
    let Verdict::Ask { reason, .. } = policy.judge(&[write()]) else { panic!("it must ask") };
    assert!(reason.contains("external_directory"), "{reason}");
    let risky = Policy { builtin: Rules::new(), configuration: rules(&[all]), ..Policy::default() };
    assert_eq!(action(&risky, Want { risk: Risk::Safe, ..write() }), Ask);
}

#[test]
fn the_strictest_of_all_wants_counts_and_all_that_ask_are_told() {
    let configuration = rules(&[("bash", "ls *", Allow), ("bash", "rm *", Deny)]);
    let policy = Policy { configuration, ..Policy::default() };
    let Verdict::Ask { wants, .. } = policy.judge(&[bash("ls"), bash("make"), bash("cargo test")]) else {
        panic!("it must ask")
    };
    assert_eq!(wants.iter().map(|want| want.subject.as_str()).collect::<Vec<_>>(), ["make", "cargo test"]);
    let Verdict::Deny { reason } = policy.judge(&[bash("make"), bash("rm x")]) else {
        panic!("must be denied")
    };
    assert!(
        reason.contains("configuration") && reason.contains("rm *") && reason.contains("rm x"),
        "{reason}"
    );
    assert_eq!(policy.judge(&[]), Verdict::Allow);
}

#[test]
fn what_is_in_doubt_is_allowed_where_the_strongest_layer_allows_all() {
    let doubtful = Want { doubt: Some("$X".into()), ..bash("$X y") };
    let mut policy = Policy { configuration: rules(&[("bash", "*", Ask)]), ..Policy::default() };
    assert_eq!(action(&policy, doubtful.clone()), Ask);
    policy.session = rules(&[("bash", "*", Allow)]);
    assert_eq!(action(&policy, doubtful.clone()), Allow, "what is asked below does not count");
    policy.session.push(Rule::new("bash", "rm *", Ask));
    assert_eq!(action(&policy, doubtful.clone()), Ask);
    policy.session.push(Rule::new("bash", "*", Allow));
    assert_eq!(action(&policy, doubtful.clone()), Allow, "the last rule overrules those before");
    policy.configuration.push(Rule::new("bash", "rm *", Deny));
    assert_eq!(action(&policy, doubtful.clone()), Ask, "the operator's deny is final");
    policy.configuration = rules(&[("bash", "rm *", Deny), ("bash", "*", Ask)]);
    assert_eq!(action(&policy, doubtful.clone()), Allow, "a deny that a later rule overrules is none");
    policy.workspace = rules(&[("bash", "ls *", Ask)]);
    assert_eq!(action(&policy, doubtful), Ask);
}

#[test]
fn a_deny_of_the_operator_is_final_and_that_of_others_is_not() {
    let ls = || bash("ls");
    let deny = || rules(&[("bash", "ls *", Deny)]);
    let allow = || rules(&[("*", "*", Allow)]);
    let builtin = Policy { builtin: deny(), session: allow(), agent: allow(), ..Policy::default() };
    let configuration = Policy { configuration: deny(), session: allow(), ..Policy::default() };
    let agent = Policy { agent: deny(), session: allow(), ..Policy::default() };
    let session = Policy { configuration: allow(), session: deny(), ..Policy::default() };
    let told = [builtin, configuration, agent, session].map(|policy| action(&policy, ls()));
    assert_eq!(told, [Deny, Deny, Allow, Deny]);
}

#[test]
fn permissions_are_patterns_too_and_may_hold_underscores() {
    let configuration =
        rules(&[("mcp", "github_*", Allow), ("git*_x", "*", Deny), ("webfetch", "https://a.org/*", Allow)]);
    let policy = Policy { configuration, ..Policy::default() };
    let want = |permission: &str, subject: &str| Want::new(permission, subject, Risk::Dangerous);
    assert_eq!(action(&policy, want("mcp", "github_list_issues")), Allow);
    assert_eq!(action(&policy, want("mcp", "gitlab_list")), Ask);
    assert_eq!(action(&policy, want("github_x", "a")), Deny);
    assert_eq!(action(&policy, want("webfetch", "https://a.org/b/c?d")), Allow);
    assert_eq!(action(&policy, want("webfetch", "https://a.org.evil.example/")), Ask);
}

#[test]
fn patterns_of_directories_expand_the_home_directory() {
    let configuration =
        rules(&[("external_directory", "~/src/*", Allow), ("external_directory", "$HOME/x", Deny)]);
    let policy = Policy { configuration: configuration.expanded("/home/ada"), ..Policy::default() };
    let outside = |path: &str| Want::new("external_directory", path, Risk::Dangerous);
    assert_eq!(action(&policy, outside("/home/ada/src/a/b")), Allow);
    assert_eq!(action(&policy, outside("/home/ada/x")), Deny);
    assert_eq!(action(&policy, outside("/home/bob/src/a")), Ask);
}

#[test]
fn people_are_told_what_is_wanted_in_words() {
    let policy = Policy::default();
    let reason = |want: Want| match policy.judge(&[want]) {
        Verdict::Ask { reason, .. } | Verdict::Deny { reason } => reason,
        Verdict::Allow => panic!("it must ask"),
    };
    let outside = Want::new("external_directory", "/etc/hosts", Risk::Dangerous);
    assert!(reason(outside.clone()).starts_with("/etc/hosts is outside the workspace"));
    let unknown =
        Want { doubt: Some("a variable".into()), ..Want::new("external_directory", "$X", Risk::Dangerous) };
    assert!(reason(unknown).starts_with("$X may lead outside the workspace"));
    let circle = Want::new("doom_loop", "read", Risk::Dangerous);
    assert!(reason(circle).starts_with("the same calls of read"));
    assert!(reason(bash("make")).starts_with("bash make: it can change things"));
}

#[test]
fn a_tool_that_is_denied_everywhere_is_hidden() {
    let hidden = |list: &[(&str, &str, Action)]| {
        Policy { configuration: rules(list), ..Policy::default() }.is_hidden("bash")
    };
    assert!(hidden(&[("bash", "*", Deny)]));
    assert!(hidden(&[("*", "*", Deny)]));
    assert!(hidden(&[("bash", "ls", Allow), ("*", "*", Deny), ("bash", "rm *", Deny)]));
    assert!(!hidden(&[("bash", "*", Deny), ("bash", "ls", Allow)]));
    assert!(!hidden(&[("bash", "rm *", Deny)]));
    assert!(!hidden(&[("edit", "*", Deny)]));
    let agent = Policy { agent: rules(&[("bash", "*", Deny)]), ..Policy::default() };
    assert!(agent.is_hidden("bash"));
    let session = Policy { session: rules(&[("bash", "ls", Allow)]), ..agent };
    assert!(!session.is_hidden("bash"));
}
