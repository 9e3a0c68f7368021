use playhouse_protocol::message::CallInput;
use serde_json::{Value, json};

use super::*;
use crate::{CallContext, runner, testing};

struct Fixture {
    _folder: tempfile::TempDir,
    registry: Arc<Registry>,
    context: CallContext,
}

/// The workspace is `work`, with `a.txt` in it.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir(folder.path().join("work")).unwrap();
    fs_err::write(folder.path().join("work/a.txt"), "one\ntwo\n").unwrap();
    let context = testing::context(&folder.path().join("work"), &folder.path().join("outputs")).unwrap();
    Fixture { _folder: folder, registry: Arc::new(Registry::native()), context }
}

impl Fixture {
    async fn prepared(&self, tool: &str, input: Value) -> (Arc<dyn Tool>, Prepared) {
        let input = CallInput::from_model(&input.to_string());
        runner::prepare(&self.registry, tool, &input, &self.context).await.unwrap()
    }

    async fn judged(&self, policy: &Policy, tool: &str, input: Value) -> Verdict {
        let (tool, prepared) = self.prepared(tool, input).await;
        judge_call(policy, &*tool, &prepared, false)
    }
}

fn configured(rules: &[(&str, &str, Action)]) -> Policy {
    let rules = rules.iter().map(|(permission, pattern, action)| Rule::new(permission, pattern, *action));
    Policy { configuration: rules.collect(), ..Policy::default() }
}

/// The permissions that are asked about.
fn asked(verdict: Verdict) -> Vec<String> {
    match verdict {
        Verdict::Ask { wants, .. } => {
            wants.into_iter().map(|want| format!("{} {}", want.permission, want.subject)).collect()
        }
        other => panic!("it must ask, and said {other:?}"),
    }
}

#[tokio::test]
async fn a_person_may_make_any_call_that_stays_inside() {
    let fixture = fixture();
    let alone = Alone::new(Arc::clone(&fixture.registry));
    let judge = async |tool: &str, input: Value| {
        let (tool, prepared) = fixture.prepared(tool, input).await;
        alone.judge(&*tool, &prepared)
    };
    assert_eq!(judge("bash", json!({"command": "make > log"})).await, Verdict::Allow);
    assert_eq!(judge("write", json!({"filePath": "b", "content": "x"})).await, Verdict::Allow);
    let reads = asked(judge("read", json!({"filePath": "/etc/hosts"})).await);
    assert_eq!(reads, ["external_directory /etc/hosts"]);
    let Verdict::Ask { wants, .. } = judge("bash", json!({"command": "echo a > /etc/hosts"})).await else {
        panic!("it must ask")
    };
    assert!(wants[0].named && !wants[0].in_person);
    assert_eq!(asked(judge("bash", json!({"command": "cat $A"})).await), ["external_directory $A"]);
}

#[tokio::test]
async fn all_tools_that_change_files_share_a_permission() {
    let fixture = fixture();
    let policy = configured(&[
        ("edit", "a.txt", Action::Deny),
        ("edit", "*", Action::Allow),
        ("edit", "a.txt", Action::Deny),
    ]);
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+1\n*** End Patch";
    for (tool, input) in [
        ("write", json!({"filePath": "a.txt", "content": "x"})),
        ("edit", json!({"filePath": "a.txt", "oldString": "one", "newString": "1"})),
        ("multiedit", json!({"filePath": "a.txt", "edits": [{"oldString": "one", "newString": "1"}]})),
        ("apply_patch", json!({"patchText": patch})),
    ] {
        let verdict = fixture.judged(&policy, tool, input).await;
        assert!(matches!(verdict, Verdict::Deny { .. }), "{tool}: {verdict:?}");
    }
    assert_eq!(fixture.registry.get("notebook_edit").unwrap().permission(), "edit");
    assert_eq!(
        fixture.judged(&policy, "write", json!({"filePath": "b", "content": "x"})).await,
        Verdict::Allow
    );
}

#[tokio::test]
async fn previews_of_edits_inside_are_unified_diffs() {
    let fixture = fixture();
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+1\n*** End Patch";
    for (tool, input) in [
        ("write", json!({"filePath": "a.txt", "content": "1\ntwo\n"})),
        ("edit", json!({"filePath": "a.txt", "oldString": "one", "newString": "1"})),
        ("multiedit", json!({"filePath": "a.txt", "edits": [{"oldString": "one", "newString": "1"}]})),
        ("apply_patch", json!({"patchText": patch})),
    ] {
        let (_, prepared) = fixture.prepared(tool, input).await;
        let lines: Vec<&str> = prepared.preview.lines().collect();
        for part in ["-one", "+1"] {
            assert!(lines.contains(&part), "{tool}: {}", prepared.preview);
        }
        assert!(lines.iter().any(|line| line.starts_with("@@")), "{tool}: {}", prepared.preview);
    }
}

#[tokio::test]
async fn commands_addresses_and_searches_are_judged_by_what_they_are() {
    let fixture = fixture();
    let policy = configured(&[
        ("bash", "git status *", Action::Allow),
        ("webfetch", "https://a.org/*", Action::Allow),
    ]);
    assert_eq!(fixture.judged(&policy, "bash", json!({"command": "git status"})).await, Verdict::Allow);
    let both = fixture.judged(&policy, "bash", json!({"command": "git status && make"})).await;
    assert_eq!(asked(both), ["bash make"]);
    assert_eq!(fixture.judged(&policy, "webfetch", json!({"url": "a.org/b#c"})).await, Verdict::Allow);
    let other = fixture.judged(&policy, "webfetch", json!({"url": "HTTPS://B.org"})).await;
    assert_eq!(asked(other), ["webfetch https://b.org/"]);
    let open = Policy { moderate: Action::Allow, ..Policy::default() };
    assert_eq!(fixture.judged(&open, "webfetch", json!({"url": "https://b.org"})).await, Verdict::Allow);
    assert_eq!(
        asked(fixture.judged(&policy, "websearch", json!({"query": "rust"})).await),
        ["websearch rust"]
    );
}

#[tokio::test]
async fn a_call_that_closes_a_loop_is_asked_about() {
    let fixture = fixture();
    let (tool, prepared) = fixture.prepared("read", json!({"filePath": "a.txt"})).await;
    let policy = Policy::default();
    assert_eq!(judge_call(&policy, &*tool, &prepared, false), Verdict::Allow);
    assert_eq!(asked(judge_call(&policy, &*tool, &prepared, true)), ["doom_loop read"]);
    let tolerant = configured(&[("doom_loop", "read", Action::Allow)]);
    assert_eq!(judge_call(&tolerant, &*tool, &prepared, true), Verdict::Allow);
}

#[test]
fn a_tool_that_is_denied_everywhere_is_not_found() {
    let registry = Arc::new(Registry::native());
    let hidden = Alone::with_policy(Arc::clone(&registry), configured(&[("edit", "*", Action::Deny)]));
    for tool in ["write", "edit", "multiedit", "apply_patch", "notebook_edit"] {
        let error = hidden.find(tool).err().unwrap().to_string();
        assert!(error.contains("denied by a rule"), "{error}");
    }
    assert!(hidden.find("read").is_ok() && hidden.find("bash").is_ok());
    let partly = configured(&[("edit", "*", Action::Deny), ("edit", "src/*", Action::Allow)]);
    assert!(Alone::with_policy(registry, partly).find("edit").is_ok());
}

#[test]
fn what_starts_programs_says_so() {
    let registry = Registry::native();
    assert!(registry.get("bash").unwrap().starts_programs());
    for tool in ["read", "write", "grep", "webfetch", "process", "batch"] {
        assert!(!registry.get(tool).unwrap().starts_programs(), "{tool}");
    }
}
