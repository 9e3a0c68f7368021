//! Sessions that go on for long: a summary by hand, and prompts to a session that is at work.

use mock_llm::{Model, Script, call, text};
use playhouse::protocol::Record;
use serde_json::json;

use crate::interrupt::{process, start};
use crate::stage::{Dialect, Stage, in_both, through_an_engine, until};

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_summary_is_asked_for_by_hand_and_by_which_model() {
    in_both(|| {
        let said = "word ".repeat(2_000);
        let script = Script::new()
            .model("m", Model::new().step(text(said)).cycle())
            .model("other", Model::new().step(text("## Goal\nTo talk.")).cycle());
        let stage = Stage::speaking(Dialect::OpenaiChat, script);
        stage.run(["Hello."]).is(0);
        let session = stage.session();
        for _ in 0..4 {
            stage.run(["-s", &session, "Go on."]).is(0);
        }
        stage.playhouse(["sessions", "compact", &session, "-m", "local/none"]).is(2);
        let told = stage.playhouse(["sessions", "compact", &session, "-m", "local/other"]).is(0);
        told.shows([&format!("compacted {session}: from about ")]);
        stage.run(["-s", &session, "And now?"]).is(0);
        let requests = stage.requests();
        let last = requests.last().unwrap()["messages"].to_string();
        assert!(last.contains("<summary-of-the-conversation-so-far>") && last.contains("To talk."), "{last}");
        assert_eq!(requests[requests.len() - 2]["model"], "other");
        // What is short already stays.
        let again = stage.playhouse(["sessions", "compact", "ses_000000000000AAAAAAAAAAAAAA"]);
        assert_ne!(again.code, Some(0));
    });
}

#[test]
fn a_running_turn_reads_a_prompt_that_steers_and_both_see_the_answer() {
    through_an_engine(|| {
        let wait = json!({"command": "echo $$ > wait.pid; while [ ! -e go ]; do sleep 0.02; done"});
        // What steers begins a turn of the script, but none of the session.
        let model = Model::new().step(call("bash", wait)).next_turn().step(text("Both are done."));
        let stage = Stage::new(model);
        stage.configure_first("sandbox = \"off\"");
        stage.configure("[permissions]\nbash = \"allow\"");
        let first = start(&stage, ["--yes", "Do a."]);
        process(&stage, "wait.pid");
        let second = start(&stage, ["-c", "--steer", "Do b, too."]);
        let session = stage.session();
        until("the prompt is admitted", || {
            let records = stage.records(&session);
            records.iter().any(|record| matches!(record, Record::PromptAdmitted(prompt) if prompt.steer))
        });
        stage.write("go", "");
        let first = crate::stage::Ended::from(first.wait_with_output().unwrap()).is(0);
        let second = crate::stage::Ended::from(second.wait_with_output().unwrap()).is(0);
        assert!(first.stdout.ends_with("Both are done.\n"), "{first:?}");
        assert!(second.stdout.ends_with("Both are done.\n"), "{second:?}");
        assert!(!second.stderr.contains("another turn"), "{second:?}");
        let requests = stage.requests();
        assert_eq!(requests.len(), 2, "no turn of its own");
        assert!(requests[1]["messages"].to_string().contains("Do b, too."));
        let ends =
            stage.records(&session).into_iter().filter(|record| matches!(record, Record::TurnEnded(_)));
        assert_eq!(ends.count(), 1);
    });
}
