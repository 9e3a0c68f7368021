//! Questions and lists of things to do on the command line.

use mock_llm::{Model, Script, call, text};
use playhouse::protocol::Record;
use playhouse::protocol::question::QuestionAnswer;
use playhouse::protocol::record::TurnOutcome;
use serde_json::{Value, json};

use crate::stage::{Dialect, Ended, Stage, in_both};
use crate::terminal::at_a_terminal;

fn questions() -> Value {
    let option = |label: &str| json!({"label": label, "description": format!("take {label}")});
    json!({"questions": [
        {"question": "Which colour?", "header": "Colour", "options": [option("Red"), option("Blue")], "custom": false},
        {"question": "Which sizes?", "header": "Sizes", "options": [option("S"), option("M"), option("L")], "multiple": true},
        {"question": "Anything else?", "header": "Else", "options": []},
    ]})
}

fn asker() -> Model {
    Model::new().step(call("question", questions())).step(text("Then so."))
}

fn answers(stage: &Stage) -> Vec<QuestionAnswer> {
    let settled = stage.records(&stage.session()).into_iter().filter_map(|record| match record {
        Record::QuestionSettled { answer, .. } => Some(answer),
        _ => None,
    });
    settled.collect()
}

#[test]
fn somebody_at_a_terminal_is_asked() {
    in_both(|| {
        let stage = Stage::new(asker());
        let (child, mut terminal) = at_a_terminal(&stage, ["Ask me."]);
        let shown = terminal.until("Colour (a number; empty for no answer): ");
        for part in
            ["? Colour: Which colour?", "1. Red  take Red", "2. Blue", "? Sizes: ", "3. L", "? Else: "]
        {
            assert!(shown.contains(part), "{part:?} in {shown}");
        }
        terminal.types("green");
        terminal.until("type one number from 1 to 2");
        terminal.until("Colour (a number;");
        terminal.types("2");
        terminal.until("Sizes (numbers, as 1,3, or your own words; empty for no answer): ");
        terminal.types("1,3");
        terminal.until("Else (empty for no answer): ");
        terminal.types("with ribbons");
        terminal.until("→ Blue; S, L; with ribbons");
        terminal.until("completed");
        let ended = Ended::from(child.wait_with_output().unwrap()).is(0);
        assert_eq!(ended.stdout, "Then so.\n");
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let given = vec![list(&["Blue"]), list(&["S", "L"]), list(&["with ribbons"])];
        assert_eq!(answers(&stage), [QuestionAnswer::Answered { answers: given }]);
        assert!(stage.requests()[1].to_string().contains("→ S, L"), "the model reads it");
    });
}

#[test]
fn ctrl_c_while_somebody_is_asked_aborts_the_turn() {
    in_both(|| {
        use rustix::process::{Pid, Signal, kill_process};
        let stage = Stage::new(asker());
        let (child, mut terminal) = at_a_terminal(&stage, ["Ask me."]);
        terminal.until("Colour (a number");
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
        terminal.until("aborted");
        Ended::from(child.wait_with_output().unwrap()).is(3);
        assert_eq!(answers(&stage), [QuestionAnswer::Withdrawn]);
    });
}

#[test]
fn without_a_terminal_nothing_waits() {
    in_both(|| {
        for format in ["text", "json", "tags"] {
            let stage = Stage::new(asker());
            let ended = stage.run(["--format", format, "Ask me."]).is(0);
            assert_eq!(answers(&stage), [QuestionAnswer::Rejected], "{format}");
            match format {
                "text" => {
                    drop(ended.says(["? Colour: Which colour?", "    1. Red  take Red", "  → not answered"]))
                }
                "json" => drop(ended.shows(["\"question.asked\"", "\"question.settled\""])),
                _ => drop(ended.shows(["<opencode-tool name=\"question\"", "not answered: "])),
            }
            assert!(stage.requests()[1].to_string().contains("not answered: "));
        }
        let stage = Stage::new(Model::new());
        let input = questions().to_string();
        let ended = stage.playhouse(["tool", "question", "--input", &input]).is(0);
        assert_eq!(ended.lines()[0]["metadata"]["answers"], Value::Null);
    });
}

#[test]
fn what_was_asked_before_a_crash_is_asked_again() {
    let stage = Stage::new(asker());
    let (mut child, mut terminal) = at_a_terminal(&stage, ["Ask me."]);
    terminal.until("Colour (a number");
    child.kill().unwrap();
    child.wait().unwrap();
    let (child, mut terminal) = at_a_terminal(&stage, ["-c", "And then?"]);
    let shown = terminal.until("Colour (a number");
    assert!(shown.contains("? Colour: Which colour?"), "{shown}");
    for line in ["1", "", ""] {
        terminal.types(line);
    }
    terminal.until("→ Red; not answered; not answered");
    terminal.until("completed");
    Ended::from(child.wait_with_output().unwrap()).is(0);
    let records = stage.records(&stage.session());
    let asked = records.iter().filter(|record| matches!(record, Record::QuestionAsked(_))).count();
    let ends = records.iter().filter(
        |record| matches!(record, Record::TurnEnded(ended) if ended.outcome == TurnOutcome::Completed),
    );
    assert_eq!((asked, ends.count()), (1, 2), "it is one question, and two turns");
}

#[test]
fn how_long_a_request_waits_is_configured() {
    let stage = Stage::new(asker());
    stage.configure("[asking]\nwait_ms = 1");
    let (child, mut terminal) = at_a_terminal(&stage, ["Ask me."]);
    terminal.until("→ not answered in time");
    terminal.until("completed");
    Ended::from(child.wait_with_output().unwrap()).is(0);
}

#[test]
fn a_list_of_things_to_do_is_shown_when_it_changes() {
    let todo = |content: &str, status: &str| json!({"content": content, "status": status, "priority": "low"});
    let todos = json!({"todos": [todo("look\nat it", "completed"), todo("mend it", "in_progress"), todo("rest", "pending")]});
    let model = Model::new().step(call("todowrite", todos)).step(text("On it."));
    for dialect in Dialect::ALL {
        let stage = Stage::speaking(dialect, Script::new().model("m", model.clone()));
        let ended = stage.run(["Plan."]).is(0);
        ended.says(["  [x] look…\n  [>] mend it\n  [ ] rest\n", "✓ todowrite"]);
        let listed = stage.records(&stage.session()).into_iter().find_map(|record| match record {
            Record::TodosChanged { todos } => Some(todos.len()),
            _ => None,
        });
        assert_eq!(listed, Some(3));
    }
}
