//! Models that answer badly, and calls that try what they may not.

use std::os::unix::fs::symlink;

use mock_llm::{Cut, Fault, Finish, Model, Script, Step, call, calls, malformed_call, reasoning, text};
use playhouse::protocol::message::{CallOutcome, CallResult};
use playhouse::protocol::record::TurnOutcome;
use playhouse::protocol::{ErrorCode, Record};
use serde_json::{Value, json};

use crate::stage::{Dialect, Stage, finish};

/// The results of the calls of the newest session, as they came.
fn results(stage: &Stage) -> Vec<CallResult> {
    let records = stage.records(&stage.session()).into_iter();
    records
        .filter_map(
            |record| if let Record::CallSettled { result, .. } = record { Some(result) } else { None },
        )
        .collect()
}

/// How the last turn of the newest session ended.
fn end(stage: &Stage) -> (TurnOutcome, Option<ErrorCode>) {
    let Some(Record::TurnEnded(ended)) = stage.records(&stage.session()).pop() else {
        panic!("no turn ended last")
    };
    (ended.outcome, ended.error.map(|error| error.code))
}

/// Makes one call in a turn that is completed, and gives its result.
fn result_of(stage: &Stage) -> CallResult {
    stage.run(["--yes", "Go."]).is(0);
    let mut results = results(stage);
    assert_eq!(results.len(), 1);
    results.remove(0)
}

#[track_caller]
fn failed(result: &CallResult, says: &str) {
    assert!(matches!(result.outcome, CallOutcome::Failed | CallOutcome::Declined), "{result:?}");
    assert!(result.output.contains(says), "expected {says:?} in {}", result.output);
}

#[test]
fn calls_that_make_no_sense_are_answered() {
    for dialect in Dialect::ALL {
        let model = Model::new()
            .step(malformed_call("read", "{\"filePath\": \"a.t"))
            .step(call("raed", json!({"filePath": "a.txt"})))
            .step(call("read", json!({"path": "a.txt"})))
            .step(text("I give up."));
        let stage = Stage::speaking(dialect, Script::new().model("m", model));
        stage.run(["Read it."]).is(0);
        let results = results(&stage);
        failed(&results[0], "not valid JSON");
        failed(&results[1], "there is no tool \"raed\". Did you mean read?");
        failed(&results[2], "filePath");
        // The model reads why.
        let request = stage.requests().pop().unwrap().to_string();
        assert!(request.contains("not valid JSON") && request.contains("Did you mean read?"), "{request}");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_answer_that_never_becomes_one_fails_the_turn() {
    let all = u64::from(playhouse::session::RetryPolicy::default().attempts);
    let cases: [(Step, ErrorCode, u64); 8] = [
        (Step::empty(), ErrorCode::EmptyAnswer, all),
        (text("x").fault(Fault::Html("<html><h1>Sign in</h1>".into())), ErrorCode::BadAnswer, 2),
        (text("x").fault(Fault::retry_after(429, 1_382_400)), ErrorCode::RateLimited, 1),
        (mock_llm::tokens(50).fault(Fault::cut(10, Cut::Eof)), ErrorCode::StreamCut, all),
        (mock_llm::tokens(50).fault(Fault::cut(10, Cut::Reset)), ErrorCode::StreamCut, all),
        (text("x").fault(Fault::status(401)), ErrorCode::Authentication, 1),
        (text("x").fault(Fault::status(500)), ErrorCode::ProviderUnavailable, all),
        (text("x").finish(Finish::ContentFilter), ErrorCode::ContentFilter, 1),
    ];
    std::thread::scope(|scope| {
        for dialect in Dialect::ALL {
            for (step, code, attempts) in &cases {
                scope.spawn(move || {
                    let model = Model::new().step(step.clone()).next_turn().step(text("All is well."));
                    let stage = Stage::speaking(dialect, Script::new().model("m", model));
                    let ended = stage.run(["Go."]).is(1);
                    assert!(
                        ended.stderr.lines().last().is_some_and(|line| line.starts_with("error: ")),
                        "{ended:#?}"
                    );
                    assert_eq!(
                        end(&stage),
                        (TurnOutcome::Failed, Some(*code)),
                        "{dialect:?} {step:?} {ended:#?}"
                    );
                    assert_eq!(stage.mock.journal().count(), *attempts, "{dialect:?} {step:?}");
                    // The session goes on with the next prompt.
                    assert_eq!(
                        stage.run(["-c", "And now?"]).is(0).stdout,
                        "All is well.\n",
                        "{dialect:?} {step:?}"
                    );
                });
            }
        }
    });
}

#[test]
fn an_answer_of_reasoning_only_is_asked_for_once_more_and_then_shown() {
    for dialect in Dialect::ALL {
        let model =
            Model::new().step(reasoning("The tests come first.")).next_turn().step(text("All is well."));
        let stage = Stage::speaking(dialect, Script::new().model("m", model));
        let ended =
            stage.run(["Go."]).is(0).says(["(thinking) The tests come first.\n", "note: ", "completed\n"]);
        assert!(ended.stderr.contains("only its reasoning"), "{dialect:?} {ended:#?}");
        assert_eq!(end(&stage), (TurnOutcome::Completed, None), "{dialect:?}");
        assert_eq!(stage.mock.journal().count(), 2, "{dialect:?}");
        assert_eq!(stage.run(["-c", "And now?"]).is(0).stdout, "All is well.\n", "{dialect:?}");
    }
}

#[test]
fn a_fault_that_passes_is_overcome_and_what_was_withdrawn_is_not_repeated() {
    for dialect in Dialect::ALL {
        let step = text("one two three four five six").fault(Fault::cut(5, Cut::Reset)).fail_first(1);
        let stage = Stage::speaking(dialect, Script::new().model("m", Model::new().step(step)));
        let ended =
            stage.run(["Count."]).is(0).says(["! attempt failed: ", "; trying again in 0.", " s (2 of 4)\n"]);
        let whole = "one two three four five six\n";
        let withdrawn = ended.stdout.strip_suffix(whole).expect("it ends with the answer");
        assert!(withdrawn.is_empty() || whole.starts_with(withdrawn.trim_end()), "{withdrawn}");
        assert_eq!(ended.stderr.contains("is withdrawn"), !withdrawn.is_empty(), "{ended:#?}");
        assert!(ended.stderr.ends_with("completed\n"), "{ended:#?}");
        let records = stage.records(&stage.session());
        let started = records.iter().filter(|record| matches!(record, Record::AttemptStarted(_))).count();
        assert_eq!((started, stage.asked().len()), (2, 2));
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let stage = Stage::new(Model::new());
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nowhere.local_addr().unwrap().to_string();
    drop(nowhere);
    let url = stage.url();
    let text = fs_err::read_to_string(&stage.config).unwrap().replace(&url, &format!("http://{address}"));
    fs_err::write(&stage.config, text).unwrap();
    stage.run(["Go."]).is(1).says(["error: ", &address, "(4 of 4)"]);
    assert_eq!(end(&stage), (TurnOutcome::Failed, Some(ErrorCode::Connection)));
}

#[test]
fn a_server_that_does_not_know_the_model_is_not_asked_again() {
    for dialect in Dialect::ALL {
        let model = Model::new().step(text("x").fault(Fault::status(404)));
        let stage = Stage::speaking(dialect, Script::new().model("m", model));
        stage.run(["Go."]).is(1).says(["error: ", "local", "404"]);
        assert_eq!(stage.asked().len(), 1);
    }
}

/// A model that makes one call.
fn caller(tool: &str, input: Value) -> Stage {
    Stage::new(Model::new().step(call(tool, input)).step(text("So be it.")))
}

#[test]
fn what_lies_outside_is_not_touched_without_consent() {
    let stage = Stage::new(
        Model::new()
            .step(calls([
                ("read", json!({"filePath": "../secret.txt"})),
                ("read", json!({"filePath": "link.txt"})),
                ("read", json!({"filePath": "door/secret.txt"})),
                ("read", json!({"filePath": "/etc/passwd"})),
                ("grep", json!({"pattern": "hidden", "path": ".."})),
                ("glob", json!({"pattern": "*", "path": "door"})),
                ("list", json!({"path": "below/../.."})),
                ("write", json!({"filePath": "../new.txt", "content": "x"})),
                ("write", json!({"filePath": "door/new.txt", "content": "x"})),
                ("bash", json!({"command": "pwd", "workdir": "door"})),
            ]))
            .step(text("So be it.")),
    );
    let root = stage.root();
    fs_err::write(root.join("secret.txt"), "hidden").unwrap();
    symlink(root.join("secret.txt"), stage.workspace.join("link.txt")).unwrap();
    symlink(&root, stage.workspace.join("door")).unwrap();
    stage.write("below/file.txt", "");
    stage.run(["Go."]).is(0);
    let results = results(&stage);
    assert_eq!(results.len(), 10);
    for result in &results {
        assert_eq!(result.outcome, CallOutcome::Declined, "{}", result.output);
    }
    let asked = stage.records(&stage.session()).into_iter().filter(|record| {
        let Record::ConsentAsked(asked) = record else { return false };
        asked.wants.iter().any(|want| want.permission == "external_directory")
    });
    assert_eq!(asked.count(), 10);
    assert!(!root.join("new.txt").exists());
    assert!(!stage.requests()[1].to_string().contains("hidden\\n"));
}

#[test]
fn a_file_of_a_gigabyte_is_read_in_pages_or_called_binary() {
    let read = |file| call("read", json!({"filePath": file}));
    let stage = Stage::new(Model::new().step(read("large.txt")).step(read("zeros")).step(text("So be it.")));
    stage.write("large.txt", "a line\n".repeat(20_000)).write("zeros", "");
    for name in ["large.txt", "zeros"] {
        let file = fs_err::OpenOptions::new().write(true).open(stage.workspace.join(name)).unwrap();
        file.set_len(1 << 30).unwrap();
    }
    stage.run(["Go."]).is(0);
    let results = results(&stage);
    assert_eq!(results[0].outcome, CallOutcome::Done);
    let output = &results[0].output;
    assert!(output.contains("2000\ta line\n") && output.contains("offset 2001"), "{output}");
    failed(&results[1], "is a binary file (1.1 GB)");
}

#[test]
fn a_file_that_is_not_utf_8_is_not_garbled() {
    let stage = Stage::new(
        Model::new()
            .step(call("read", json!({"filePath": "latin.txt"})))
            .step(call("edit", json!({"filePath": "latin.txt", "oldString": "gr", "newString": "GR"})))
            .step(call("read", json!({"filePath": "wide.txt"})))
            .step(call("edit", json!({"filePath": "wide.txt", "oldString": "g", "newString": "G"})))
            .step(text("So be it.")),
    );
    stage.write("latin.txt", b"gr\xfc\xdfe\n");
    let wide = b"\xff\xfeg\0r\0\n\0";
    stage.write("wide.txt", wide);
    stage.run(["--yes", "Go."]).is(0);
    let results = results(&stage);
    assert_eq!((results[0].outcome, results[1].outcome), (CallOutcome::Done, CallOutcome::Done));
    assert!(results[0].output.contains("(the file is not UTF-8"), "{}", results[0].output);
    assert_eq!(fs_err::read(stage.workspace.join("latin.txt")).unwrap(), b"GR\xfc\xdfe\n");
    assert_eq!((results[2].outcome, results[3].outcome), (CallOutcome::Done, CallOutcome::Done));
    assert_eq!(fs_err::read(stage.workspace.join("wide.txt")).unwrap(), b"\xff\xfeG\0r\0\n\0");
}

#[test]
fn a_command_in_the_background_holds_nothing_up() {
    let command = "sleep 600 & echo $! > child.pid; echo begun";
    let stage = caller("bash", json!({"command": command}));
    // The number that it names is the machine's.
    stage.run(["--yes", "--sandbox", "off", "Go."]).is(0);
    let result = results(&stage).remove(0);
    assert_eq!(result.outcome, CallOutcome::Done);
    assert!(result.output.contains("begun"), "{}", result.output);
    let child = stage.read("child.pid").trim().parse().unwrap();
    // Nobody else ends it.
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_endless_output_is_capped() {
    let stage = caller("bash", json!({"command": "head -c 300000000 /dev/zero | tr '\\0' 'x'; echo end"}));
    let result = result_of(&stage);
    assert!(result.output.len() < 200_000, "{} bytes", result.output.len());
    assert!(result.output.contains("end"), "the end is what tells most of a command");
}

#[test]
fn each_attempt_that_fails_is_shown_once_and_so_is_why_the_turn_did() {
    let step = text("one two three four five six").fault(Fault::cut(5, Cut::Eof));
    let stage = Stage::new(Model::new().step(step));
    stage.configure("[retry]\nattempts = 3\nbase_ms = 1");
    let ended = stage.run(["Count."]).is(1);
    // One line for each attempt, and none of them twice.
    assert_eq!(ended.stdout.lines().count(), 3, "{ended:#?}");
    assert_eq!(ended.stderr.matches("! attempt failed: ").count(), 2, "{ended:#?}");
    assert_eq!(ended.stderr.matches("is withdrawn").count(), 2, "the last one stays: {ended:#?}");
    assert_eq!(ended.stderr.matches("stopped before its end").count(), 3, "{ended:#?}");

    let stage = Stage::new(Model::new().step(text("x").fault(Fault::retry_after(429, 100))));
    let ended = stage.run(["Hurry."]).is(1);
    assert_eq!(ended.stderr.matches("100 s").count(), 1, "{ended:#?}");
}

#[test]
fn what_cannot_be_connected_to_is_told_before_anything_is_sent() {
    for address in ["http://127.0.0.1:99999/v1", "http://[::1/v1", "http://127.0.0.1:0/v1"] {
        let stage = Stage::new(Model::new());
        let text = fs_err::read_to_string(&stage.config).unwrap();
        let text = text.replace(&format!("{}/v1", stage.url()), address);
        fs_err::write(&stage.config, text).unwrap();
        stage.run(["Go."]).is(2).says(["base_url", "is not an address"]);
    }
}

#[test]
fn a_wrong_address_of_one_provider_leaves_the_others_alone() {
    let stage = Stage::new(Model::new().step(text("Hello.")));
    let run = |arguments: &[&str]| {
        let mut command = stage.command(arguments);
        command.env("OPENAI_BASE_URL", "api").env("OPENAI_API_KEY", "k");
        finish(command)
    };
    run(&["sessions", "list"]).is(0);
    run(&["models", "groq"]).is(0);
    run(&["run", "Go."]).is(0);
    run(&["run", "-m", "openai/gpt-5.4", "Go."])
        .is(2)
        .says(["environment variable OPENAI_BASE_URL: \"api\""]);
}
