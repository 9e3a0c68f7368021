//! `playhouse run`: the turn, its options and its exit codes.

use std::collections::BTreeMap;
use std::path::Path;

use mock_llm::{Fault, Model, Script, call, calls, text};
use playhouse::protocol::record::TurnOutcome;
use playhouse::protocol::{EventBody, Record};
use serde_json::{Value, json};

use crate::stage::{Dialect, Stage, in_both, through_an_engine};

/// A picture of one pixel, and the beginning of it in base64.
const DOT: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\x0aIDATx\xdac\xa8\x07\x00\x00\x81\x00\x80~\x1c)\xc7\x00\x00\x00\x00IEND\xaeB`\x82";
const DOT_CODE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptV";

/// Reads, edits and runs something.
fn worker() -> Model {
    Model::new()
        .step(text("First a look.").call("read", json!({"filePath": "greeting.txt"})))
        .step(call("edit", json!({"filePath": "greeting.txt", "oldString": "wrold", "newString": "world"})))
        .step(call("bash", json!({"command": "cp greeting.txt copy.txt && wc -c copy.txt"})))
        .step(text("It greets the world now."))
}

/// The last message of a request.
fn last_message(request: &Value) -> &Value {
    request["messages"].as_array().unwrap().last().unwrap()
}

#[test]
fn a_turn_changes_files_in_both_dialects() {
    in_both(|| {
        for dialect in Dialect::ALL {
            let stage = Stage::speaking(dialect, Script::new().model("m", worker()));
            stage.write("greeting.txt", "hello wrold\n");
            let ended = stage.run(["--yes", "Fix the greeting."]).is(0);
            assert_eq!(ended.stdout, "First a look.\nIt greets the world now.\n", "{dialect:?}");
            let ended = ended.says([
                "✓ read greeting.txt  ",
                "✓ edit greeting.txt  ",
                "✓ bash cp greeting.txt copy.txt",
                "4 steps, ",
                "; session ses_",
                "\ncompleted\n",
            ]);
            assert!(!ended.stderr.contains('\x1b'), "{}", ended.stderr);
            assert_eq!(stage.read("copy.txt"), "hello world\n");
            // What the provider reported is what the session says it used.
            let reported: u64 = stage.asked().iter().map(|entry| entry.reported.unwrap().total()).sum();
            let list = stage.playhouse(["sessions", "list"]).is(0);
            assert!(list.stdout.contains(&format!(" {reported} ")), "{reported} in {}", list.stdout);
        }
    });
}

#[test]
fn every_request_is_the_one_before_with_more_at_its_end() {
    for dialect in Dialect::ALL {
        let stage = Stage::speaking(dialect, Script::new().model("m", worker()));
        stage.write("greeting.txt", "hello wrold\n");
        stage.run(["--yes", "Fix the greeting."]).is(0);
        let messages = |request: &Value| {
            let mut messages = request["messages"].to_string();
            messages = messages.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
            messages.trim_end_matches(']').to_owned()
        };
        for pair in stage.requests().windows(2) {
            assert!(messages(&pair[1]).starts_with(&messages(&pair[0])), "{dialect:?}");
            assert_eq!(pair[0]["tools"], pair[1]["tools"]);
        }
    }
}

#[test]
fn the_model_and_the_directory_are_chosen() {
    in_both(|| {
        let script = Script::new()
            .model("m", Model::new().closing("I am the default."))
            .model("other/one", Model::new().closing("I am the other."));
        let stage = Stage::speaking(Dialect::OpenaiChat, script);
        stage.write("below/file.txt", "");
        let ended = stage.run(["-m", "local/other/one", "-C", "below", "Who are you?"]).is(0);
        assert_eq!(ended.stdout, "I am the other.\n");
        assert_eq!(stage.requests()[0]["model"], "other/one");
        let below = stage.workspace.join("below");
        assert!(stage.requests()[0]["messages"][0].to_string().contains(below.to_str().unwrap()));
        // A session keeps its model, and a directory its sessions.
        assert_eq!(stage.run(["-C", "below", "-c", "And now?"]).is(0).stdout, "I am the other.\n");
        stage.run(["-c", "Is there one here?"]).is(2).says(["there is no session in", "leave out -c"]);
        assert_eq!(stage.run(["And here?"]).is(0).stdout, "I am the default.\n");
    });
}

#[test]
fn an_agent_may_only_use_its_own_tools() {
    let stage = Stage::new(
        Model::new()
            .step(calls([("write", json!({"filePath": "new.txt", "content": "x"})), ("list", json!({}))]))
            .step(text("I may not.")),
    );
    stage.write("old.txt", "");
    let ended = stage.run(["--agent", "plan", "Write a file."]).is(0);
    assert!(!stage.workspace.join("new.txt").exists());
    ended.says(["✗ write new.txt", "declined: ", "plan", "✓ list"]);
    let requests = stage.requests();
    let tools: Vec<&str> = requests[0]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(tools, ["read", "glob", "grep", "list", "todoread", "todowrite", "question", "batch"]);
    stage.run(["--agent", "plna", "x"]).is(2).says(["unknown agent \"plna\"", "did you mean \"plan\"?"]);
}

#[test]
fn sessions_go_on() {
    in_both(|| {
        let stage = Stage::new(
            Model::new().step(text("One.")).next_turn().step(text("Two.")).next_turn().step(text("Three.")),
        );
        assert_eq!(stage.run(["first"]).is(0).stdout, "One.\n");
        let session = stage.session();
        assert_eq!(stage.run(["-s", &session, "second"]).is(0).stdout, "Two.\n");
        assert_eq!(stage.run(["-c", "third"]).is(0).stdout, "Three.\n");
        let request = stage.requests().pop().unwrap().to_string();
        for said in ["first", "One.", "second", "Two.", "third"] {
            assert!(request.contains(said), "{said} in {request}");
        }
        stage.run(["-s", &session, "-c", "x"]).is(2).says(["cannot be used with"]);
    });
}

#[test]
fn json_is_one_event_a_line_and_durable_ids_have_no_gaps() {
    in_both(|| {
        let stage = Stage::new(worker());
        stage.write("greeting.txt", "hello wrold\n");
        for prompt in ["Fix the greeting.", "And once more."] {
            let mut arguments = vec!["run", "--yes", "--format", "json", prompt];
            if prompt.starts_with("And") {
                arguments.insert(1, "-c");
            }
            let ended = stage.playhouse(arguments).is(0);
            assert_eq!(ended.stderr, "");
            let events = ended.events();
            let durable: Vec<u64> =
                events.iter().filter(|event| event.id.is_durable()).map(|event| event.id.seq.0).collect();
            let expected: Vec<u64> = (durable[0]..).take(durable.len()).collect();
            assert_eq!(durable, expected);
            assert!(events.iter().all(|event| event.session == events[0].session));
            let EventBody::Durable(last) = &events.last().unwrap().body else {
                panic!("{:?}", events.last())
            };
            let Record::TurnEnded(ended) = last.as_ref() else { panic!("{last:?}") };
            assert_eq!(ended.outcome, TurnOutcome::Completed);
            // The log holds the same records.
            let records = stage.records(events[0].session.as_str());
            for event in &events {
                if let EventBody::Durable(record) = &event.body {
                    assert_eq!(
                        records[usize::try_from(event.id.seq.0).unwrap() - 1].clone().into_event(),
                        **record
                    );
                }
            }
            // A new session is shown from its beginning, an old one from where it stood.
            let EventBody::Durable(first) = &events[0].body else { panic!("{:?}", events[0]) };
            assert_eq!(
                first.kind(),
                if prompt.starts_with("And") { "prompt.admitted" } else { "session.created" }
            );
        }
    });
}

#[test]
fn at_the_step_limit_the_model_may_call_nothing_more() {
    in_both(|| {
        let looking = || {
            Model::new()
                .step(call("list", json!({})))
                .step(call("list", json!({})))
                .step(call("list", json!({})))
        };
        for dialect in Dialect::ALL {
            let stage = Stage::speaking(dialect, Script::new().model("m", looking()));
            stage.run(["--steps", "2", "Look around."]).is(4).says(["2 steps, ", "\nmax-steps\n"]);
            let requests = stage.requests();
            assert_eq!(requests.len(), 2);
            assert_eq!(requests[0]["tools"], requests[1]["tools"], "{dialect:?}");
            assert!(requests[0].get("tool_choice").is_none());
            let none = match dialect {
                Dialect::Anthropic => json!({"type": "none"}),
                Dialect::OpenaiChat => json!("none"),
            };
            assert_eq!(requests[1]["tool_choice"], none);
            let last = last_message(&requests[1]);
            let role = if dialect == Dialect::OpenaiChat { "tool" } else { "user" };
            assert_eq!(last["role"], role, "the text stands behind the last result");
            assert!(last.to_string().contains("The step limit of this turn is reached."), "{last}");
            assert!(stage.records(&stage.session()).iter().any(
            |record| matches!(record, Record::TurnEnded(ended) if ended.outcome == TurnOutcome::MaxSteps && ended.steps == 2)
        ));
        }
    });
}

#[test]
fn an_agent_brings_its_own_limit() {
    let stage = Stage::new(Model::new().step(call("list", json!({}))).step(call("list", json!({}))));
    let agents = stage.root().join("agents");
    fs_err::create_dir(&agents).unwrap();
    let agent = "---\nname: hasty\ndescription: Looks once\nmode: primary\nsteps: 1\ntools: [list]\n---\nLook once.\n";
    fs_err::write(agents.join("hasty.md"), agent).unwrap();
    stage.run(["--agent", "hasty", "Look around."]).is(4).says(["1 step, ", "\nmax-steps\n"]);
    assert_eq!(stage.requests()[0]["tool_choice"], "none");
}

#[test]
fn a_text_file_is_put_into_the_prompt() {
    let stage = Stage::new(Model::new());
    stage.write("notes/todo.txt", "buy <milk>\n").write("more.md", "# More\n");
    stage.run(["-f", "notes/todo.txt", "--file", "more.md", "What is in these?"]).is(0);
    let request = stage.requests().remove(0);
    let prompt = last_message(&request)["content"].to_string();
    for text in ["What is in these?", "notes/todo.txt", "buy <milk>", "more.md", "# More"] {
        assert!(prompt.contains(text), "{text} in {prompt}");
    }
}

#[test]
fn images_and_pdf_are_attached() {
    in_both(|| {
        for dialect in Dialect::ALL {
            let stage = Stage::speaking(dialect, Script::new().model("m", Model::new()));
            stage.write("dot.png", DOT).write("page.pdf", include_bytes!("../fixtures/page.pdf"));
            stage.run(["-f", "dot.png", "-f", "page.pdf", "What is this?"]).is(0);
            let request = stage.requests().remove(0).to_string();
            // Both in base64.
            for content in [DOT_CODE, "JVBERi0xLjcKMSAwIG9i"] {
                assert!(request.contains(content), "{dialect:?}: {content} in {request}");
            }
            assert!(request.contains("image/png") && request.contains("page.pdf"), "{request}");
            // They are there in the next turn too.
            stage.run(["-c", "And again?"]).is(0);
            assert!(stage.requests().remove(1).to_string().contains(DOT_CODE));
            stage
                .playhouse(["sessions", "show", &stage.session()])
                .is(0)
                .shows(["[dot.png, image/png, 67 bytes]"]);
        }
    });
}

#[test]
fn a_file_that_the_provider_refuses_is_a_note_in_the_next_request() {
    let words = json!({"error": {"message": "Could not process image", "type": "invalid_request_error"}});
    let refused = Fault::Status {
        code: 400,
        headers: BTreeMap::new(),
        retry_after: None,
        body: Some(words.to_string()),
    };
    // It refuses whatever comes, so that the second refusal is final.
    let model = Model::new().step(text("x").fault(refused)).next_turn().step(text("I see nothing."));
    let stage = Stage::new(model);
    stage.write("dot.png", DOT);
    stage.run(["-f", "dot.png", "What is this?"]).is(1);
    assert_eq!(stage.run(["-c", "And now?"]).is(0).stdout, "I see nothing.\n");
    let requests: Vec<String> = stage.requests().iter().map(ToString::to_string).collect();
    assert_eq!(requests.len(), 3);
    let holds = |text: &str| requests.iter().map(|request| request.contains(text)).collect::<Vec<_>>();
    assert_eq!(holds(DOT_CODE), [true, false, false], "{requests:?}");
    assert_eq!(holds("[dot.png (image/png) was attached here."), [false, true, true], "{requests:?}");
}

#[test]
fn what_cannot_be_attached_is_named() {
    let stage = Stage::new(Model::new());
    stage.write("data.bin", b"\x00\xff\xfe").write("folder/x", "").write("long.txt", "x".repeat(300_000));
    let large = fs_err::File::create(stage.workspace.join("large.png")).unwrap();
    large.set_len(1 << 30).unwrap();
    stage.run(["-f", "absent.txt", "x"]).is(2).says(["cannot attach", "absent.txt"]);
    stage.run(["-f", "folder", "x"]).is(2).says(["cannot attach folder: it is not a file"]);
    stage.run(["-f", "data.bin", "x"]).is(2).says(["cannot attach data.bin: it is neither text"]);
    stage.run(["-f", "long.txt", "x"]).is(2).says(["cannot attach long.txt", "300000 bytes", "204800"]);
    stage.write("half.png", &DOT[..40]);
    stage
        .run(["-f", "half.png", "x"])
        .is(2)
        .says(["cannot attach half.png: it is damaged or not whole (image/png)"]);
    stage.run(["-f", "large.png", "x"]).is(2).says(["cannot attach large.png", "1073741824 bytes"]);
    assert!(stage.asked().is_empty());
    assert!(!stage.data.exists(), "nothing was begun");
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let stage = Stage::new(Model::new());
    stage.playhouse_reading("Who is\nthere?\n", ["run", "-"]).is(0);
    assert!(last_message(&stage.requests()[0]).to_string().contains("Who is\\nthere?"));
    stage.playhouse_reading(b"\xff\xfe".as_slice(), ["run", "-"]).is(2).says(["standard input", "UTF-8"]);
    stage.playhouse_reading(" \n", ["run", "-"]).is(2).says(["the prompt is empty"]);
    assert_eq!(stage.asked().len(), 1);
}

/// One that is larger than what is kept of events in memory is read from the log, and is one's own all the same.
#[test]
fn a_prompt_of_megabytes_is_no_turn_of_somebody_else() {
    through_an_engine(|| {
        let stage = Stage::new(Model::new());
        let ended = stage.playhouse_reading("word ".repeat(450_000), ["run", "-"]).is(1);
        assert!(ended.stderr.contains("too long") && !ended.stderr.contains("another turn"), "{ended:?}");
    });
}

#[test]
fn an_empty_prompt_is_bad_usage() {
    let stage = Stage::new(Model::new());
    for prompt in ["", "  \n"] {
        stage.run([prompt]).is(2).says(["the prompt is empty"]);
    }
    stage.run([]).is(2).says(["<PROMPT>"]);
    stage.run(["--steps", "0", "x"]).is(2).says(["--steps"]);
    assert!(stage.asked().is_empty());
}

#[test]
fn the_built_in_providers_read_their_variables() {
    let script = || Script::new().model("claude-sonnet-4-5", Model::new()).model("gpt-5", Model::new());
    for (dialect, model, prefix, path) in [
        (Dialect::Anthropic, "anthropic/claude-sonnet-4-5", "ANTHROPIC", ""),
        (Dialect::OpenaiChat, "openai/gpt-5", "OPENAI", "/v1"),
    ] {
        let stage = Stage::speaking(dialect, script());
        let key = "a-secret-that-nobody-may-see";
        let mut command = stage.command(["run", "--format", "json", "-m", model, "Hello."]);
        command.env(format!("{prefix}_API_KEY"), key);
        command.env(format!("{prefix}_BASE_URL"), format!("{}{path}", stage.url()));
        let ended = crate::stage::finish(command).is(0);
        assert_eq!(stage.asked().len(), 1);
        assert!(!format!("{ended:?}").contains(key));
        for (file, content) in crate::stage::contents(&stage.data) {
            let found = content.windows(key.len()).any(|window| window == key.as_bytes());
            assert!(!found, "the key is in {}", file.display());
        }
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_reader_that_goes_away_does_not_disturb_the_turn() {
    in_both(|| {
        let stage = Stage::new(Model::new().step(mock_llm::tokens(5_000)).closing("unused"));
        let binary = env!("CARGO_BIN_EXE_playhouse");
        for (format, closing) in [("text", ">&-"), ("json", "| head -n 1")] {
            let before = stage.asked().len();
            let mut shell = stage.command([""; 0]);
            let line = format!(
                "\"{binary}\" --data \"{}\" --config \"{}\" {} run --format {format} Talk. {closing}",
                stage.data.display(),
                stage.config.display(),
                stage.flag(),
            );
            let environment: Vec<_> = shell
                .get_envs()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                .collect();
            shell = std::process::Command::new("sh");
            shell.args(["-c", &line]).env_clear().envs(environment).current_dir(Path::new(&stage.workspace));
            let ended = crate::stage::finish(shell).is(0);
            assert!(!ended.stderr.contains("error"), "{}", ended.stderr);
            assert_eq!(stage.asked().len(), before + 1);
            let records = stage.records(&stage.session());
            assert!(
                matches!(records.last(), Some(Record::TurnEnded(ended)) if ended.outcome == TurnOutcome::Completed),
                "{records:?}"
            );
        }
    });
}

#[test]
fn a_fork_goes_on_and_leaves_its_session_as_it_was() {
    in_both(|| {
        let script =
            Script::new().model("m", Model::new().step(text("One.")).step(text("Two.")).step(text("Three.")));
        let stage = Stage::speaking(Dialect::Anthropic, script);
        stage.run(["--fork", "Hi."]).is(2).says(["--fork goes with -s SESSION or -c"]);
        stage.run(["First."]).is(0);
        let session = stage.playhouse(["sessions", "list"]).is(0).stdout;
        let session = session.split_whitespace().find(|word| word.starts_with("ses_")).unwrap().to_owned();
        stage.run(["-c", "--fork", "In the fork."]).is(0).says(["; session ses_"]);
        // The fork is another session, whose request begins as that of its origin.
        stage.run(["-s", &session, "In the origin."]).is(0);
        let requests = stage.requests();
        let said = |request: &Value| request["messages"].to_string();
        assert!(said(&requests[1]).contains("First.") && said(&requests[1]).contains("In the fork."));
        assert!(said(&requests[2]).contains("First.") && !said(&requests[2]).contains("In the fork."));
        let listed = stage.playhouse(["sessions", "list"]).is(0).stdout;
        assert_eq!(listed.matches("ses_").count(), 2, "{listed}");
    });
}
