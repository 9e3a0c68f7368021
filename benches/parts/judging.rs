//! What a judgement costs: may this call run?

use std::hint::black_box;

use playhouse_policy::{Access, AccessKind, Action, Policy, Risk, Rule, Verdict, Want, Zone, shell, wants};

use crate::Part;

/// Rules as somebody writes them who has many.
fn policy() -> Policy {
    let rules = (0..50).flat_map(|number| {
        [
            Rule::new("bash", &format!("tool-{number} *"), Action::Allow),
            Rule::new("edit", &format!("generated/{number}/**"), Action::Deny),
        ]
    });
    Policy { configuration: rules.collect(), ..Policy::default() }
}

pub(crate) fn paths() -> Part {
    const CALLS: usize = 100;
    let policy = policy();
    Part::new(CALLS, "call", move || {
        for number in 0..CALLS {
            let path = format!("/repo/src/module_{number}.rs");
            let access = Access::path(AccessKind::Read, &path, Zone::Workspace);
            let wanted = wants("read", Risk::Safe, &[access]).expect("it is wanted");
            assert_eq!(black_box(policy.judge(&wanted)), Verdict::Allow);
        }
    })
}

pub(crate) fn script() -> Part {
    const SCRIPT: &str = "cd src && git status --short | grep -v '^??' > /tmp/changed; for f in $(cat /tmp/changed); \
                          do rustfmt --check \"$f\" || echo \"$f\"; done && cargo test -p demo -- --nocapture 2>&1 | tail -n 20";
    let policy = policy();
    Part::new(1, "script", move || {
        let commands = shell::analyse(black_box(SCRIPT)).commands;
        let wanted: Vec<Want> = commands
            .into_iter()
            .map(|command| Want { doubt: command.doubt, ..Want::new("bash", command.text, Risk::Dangerous) })
            .collect();
        assert!(wanted.len() > 3, "the script is understood");
        black_box(policy.judge(&wanted));
    })
}
