//! What the log says of attempts: repairs of answers and failures, with where they were.

use std::collections::BTreeMap;

use mock_llm::{Defect, Fault, Step, UsageOverride, text};
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::usage::Quality;
use serde_json::json;

use crate::faults::{DIALECTS, Seen, run};
use crate::logs;

/// The repairs that the log has of a session, without their order.
fn repairs(seen: &Seen) -> Vec<String> {
    logs::of(seen.session).into_iter().filter(|line| line.contains("an answer was repaired")).collect()
}

fn two_calls() -> Step {
    text("Let me see.").call_with_id("call_one", "probe", json!({"mode": "free-a"})).call_with_id(
        "call_two",
        "probe",
        json!({"mode": "free-b"}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_is_logged_with_session_attempt_and_model() {
    logs::keep();
    for dialect in DIALECTS {
        for (defect, times, words) in [
            (Defect::SameCallId, 1, "a call with the id of an earlier one was given another id"),
            (Defect::ArgumentsNotAnObject, 2, "a call whose arguments are no JSON object"),
            (Defect::NoUsage, 1, "usage that was not reported is estimated"),
        ] {
            let seen = run(dialect, two_calls().fault(Fault::Broken(defect))).await;
            assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{dialect}, {defect:?}");
            let lines = repairs(&seen);
            let [line] = lines.as_slice() else { panic!("{dialect}, {defect:?}: {lines:?}") };
            let attempt = seen.first_attempt().to_string();
            let model = format!("model={dialect}/m");
            for part in ["WARN", words, &format!("times={times}"), &attempt, &model] {
                assert!(line.contains(part), "{dialect}, {defect:?}: \"{part}\" in {line}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_that_contradict_each_other_are_logged() {
    logs::keep();
    // Anthropic reports no total.
    for dialect in ["openai-chat", "openai-responses", "gemini"] {
        let usage = UsageOverride { total: Some(7), ..UsageOverride::default() };
        let seen = run(dialect, text("Seven.").usage(usage)).await;
        assert_eq!(seen.qualities(), [Quality::Unreconciled], "{dialect}");
        let lines = repairs(&seen);
        let [line] = lines.as_slice() else { panic!("{dialect}: {lines:?}") };
        assert!(line.contains("figures contradict each other"), "{dialect}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_answer_leaves_no_line() {
    logs::keep();
    for dialect in DIALECTS {
        let seen = run(dialect, two_calls()).await;
        assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{dialect}");
        assert_eq!(repairs(&seen), Vec::<String>::new(), "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_is_logged_as_it_was_told_with_session_and_attempt() {
    logs::keep();
    let body = json!({"error": {"message": "bad thing at backend 10.1.2.3"}}).to_string();
    let fault = Fault::Status { code: 404, headers: BTreeMap::new(), retry_after: None, body: Some(body) };
    let seen = run("openai-chat", text("never").fault(fault)).await;
    assert_eq!(seen.ended.outcome, TurnOutcome::Failed);
    let lines: Vec<String> =
        logs::of(seen.session).into_iter().filter(|line| line.contains("an attempt failed")).collect();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let attempt = seen.first_attempt().to_string();
    let model = "model=openai-chat/m";
    for part in ["WARN", "bad thing at backend 10.1.2.3", "404", "bad_request", model, &attempt] {
        assert!(line.contains(part), "\"{part}\" in {line}");
    }
}
