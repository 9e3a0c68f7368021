//! Records of work that one session hands over to another.

use playhouse_protocol::consent::{Action, PermissionRule};
use playhouse_protocol::record::{AttemptStarted, CallIntended, Effect, PromptAdmitted, Recovery};
use playhouse_protocol::{Attribution, Delegate, HandedOver, KeyRef, Mandate, ModelRef, Record};

use crate::samples::*;

/// They, under the names of their golden files.
pub(crate) fn with_work_handed_over() -> Vec<(&'static str, Record)> {
    let asks = |permission: &str| PermissionRule {
        permission: permission.to_owned(),
        pattern: "docs/*".to_owned(),
        action: Action::Ask,
    };
    let Record::PromptAdmitted(whole) = admitted(3) else { unreachable!("it admits a prompt") };
    let handed = HandedOver {
        from: session(2),
        agent: "build".to_owned(),
        model: ModelRef::new("anthropic", "claude-sonnet-4-5"),
        mandates: vec![Mandate {
            agent: vec![asks("edit")],
            session: vec![asks("bash")],
            restrictions: vec![asks("webfetch")],
            read_only: true,
            tools: None,
        }],
        report: Some(message(9)),
        attribution: None,
    };
    let Record::PromptAdmitted(bound) = admitted(3) else { unreachable!("it admits a prompt") };
    let with_tools = HandedOver {
        mandates: vec![Mandate {
            tools: Some(vec!["read".to_owned(), "task".to_owned()]),
            ..Mandate::default()
        }],
        ..handed.clone()
    };
    let labels = [("customer".to_owned(), "c-42".to_owned())];
    let key = KeyRef { id: "key_0aB4".to_owned(), name: "ci".to_owned() };
    let attribution = Some(Box::new(Attribution { labels: labels.into(), key: Some(key) }));
    let for_customer = HandedOver { attribution: attribution.clone(), ..handed.clone() };
    let Record::PromptAdmitted(attributed) = admitted(3) else { unreachable!("it admits a prompt") };
    let started = AttemptStarted::new(attempt(6), message(3), message(7), "build", model());
    let delegate = Delegate { session: session(3), prompt: message(4), report: Some(message(9)) };
    vec![
        (
            "prompt.admitted.handed",
            Record::PromptAdmitted(PromptAdmitted { handed: Some(Box::new(handed)), ..whole }),
        ),
        (
            "prompt.admitted.handed.tools",
            Record::PromptAdmitted(PromptAdmitted { handed: Some(Box::new(with_tools)), ..bound }),
        ),
        (
            "prompt.admitted.attribution",
            Record::PromptAdmitted(PromptAdmitted {
                handed: Some(Box::new(for_customer)),
                attribution: attribution.clone(),
                ..attributed
            }),
        ),
        ("attempt.started.attribution", Record::AttemptStarted(AttemptStarted { attribution, ..started })),
        (
            "call.intended.delegate",
            Record::CallIntended(CallIntended {
                call: part(11),
                effect: Effect::Delegated,
                recovery: Recovery::Reattach,
                delegate: Some(delegate),
                before: Vec::new(),
                tracked: false,
            }),
        ),
    ]
}
