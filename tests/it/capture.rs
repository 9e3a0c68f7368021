//! Capture tools: declared by a workspace and by configuration, what they kept is read later.

use fs_err as fs;
use mock_llm::{Model, call, text};
use playhouse::protocol::Record;
use playhouse::protocol::message::CallOutcome;
use playhouse::server::ArtifactView;
use serde_json::{Value, json};

use crate::stage::{Stage, finish, in_both};

const NOTE: &str = "---\nname: save_note\ndescription: Keeps a note\nschema:\n  type: object\n  properties:\n    \
                    title: {type: string, maxLength: 10}\n  required: [title]\n---\nOnce for each note.\n";

fn shown(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

fn artifacts(stage: &Stage, session: &str) -> Vec<ArtifactView> {
    let ended = stage.playhouse(["sessions", "artifacts", session, "--format", "json"]).is(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn settled(records: &[Record]) -> Vec<(CallOutcome, String)> {
    let settled = |record: &Record| match record {
        Record::CallSettled { result, .. } => Some((result.outcome, result.output.clone())),
        _ => None,
    };
    records.iter().filter_map(settled).collect()
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn what_a_tool_of_the_workspace_keeps_is_read_after_restarts_as_well() {
    in_both(|| {
        let large = "x".repeat(100_000);
        let so_far = || {
            Model::new()
                .step(call("save_note", json!({"title": "much too long a title"})))
                .step(call("save_note", json!({"title": "short"})))
                .step(call("save_note", json!({"title": "large", "text": large})))
                .step(text("Kept."))
        };
        let mut stage = Stage::new(so_far());
        stage.write(".playhouse/capture/note.md", NOTE);
        stage.run(["Keep notes."]).is(0);
        let tools = &stage.requests()[0]["tools"];
        let note =
            tools.as_array().unwrap().iter().find(|tool| tool["function"]["name"] == "save_note").unwrap();
        assert_eq!(note["function"]["description"], "Keeps a note\n\nOnce for each note.");
        assert_eq!(note["function"]["parameters"]["properties"]["title"]["maxLength"], 10);

        let session = stage.session();
        let records = stage.records(&session);
        let results = settled(&records);
        assert_eq!(results[0].0, CallOutcome::Failed);
        assert!(results[0].1.contains("title: ") && results[0].1.contains("10"), "{}", results[0].1);
        let places: Vec<usize> = (0..records.len())
            .filter(|place| matches!(records[*place], Record::ArtifactCaptured(_)))
            .collect();
        assert_eq!(places.len(), 2);
        for place in places {
            let Record::ArtifactCaptured(artifact) = &records[place] else { unreachable!() };
            let Record::CallSettled { call, result } = &records[place + 1] else {
                panic!("its result follows")
            };
            assert_eq!((call, result.outcome), (&artifact.call, CallOutcome::Done));
            assert!(result.output.contains(&artifact.hash), "{}", result.output);
        }

        let kept = artifacts(&stage, &session);
        assert_eq!(kept.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["save_note", "save_note"]);
        assert_eq!((&kept[0].value, kept[0].bytes), (&Some(json!({"title": "short"})), 17));
        assert_eq!((&kept[1].value, kept[1].bytes), (&None, 100_027));
        let whole = stage.playhouse(["sessions", "artifacts", &session, kept[1].call.as_str()]).is(0);
        let whole: Value = serde_json::from_str(&whole.stdout).unwrap();
        assert_eq!((&whole["title"], whole["text"].as_str().unwrap().len()), (&json!("large"), 100_000));
        stage.playhouse(["sessions", "artifacts", &session]).is(0).shows([
            "CALL ",
            "save_note",
            "100027",
            "sha256:",
        ]);
        let absent = format!("prt_1{}", &kept[0].call.as_str()[5..]);
        stage.playhouse(["sessions", "artifacts", &session, &absent]).is(2).says(["no artifact of call"]);
        stage.playhouse(["sessions", "artifacts", "ses_x"]).is(2);

        // The session wakes in another process, and its tool is still there.
        let more = call("save_note", json!({"title": "more"}));
        stage.goes_on_with(so_far().next_turn().step(more).step(text("Kept.")));
        stage.run(["-s", &session, "Another one."]).is(0);
        assert_eq!(artifacts(&stage, &session).len(), 3);
        assert!(!stage.requests()[0]["messages"].to_string().contains("The tools have changed"));
    });
}

#[test]
fn files_that_cannot_be_used_are_left_out_with_their_reason_and_the_native_tool_stays() {
    let stage = Stage::new(Model::new().step(call("read", json!({"filePath": "a.txt"}))).step(text("Read.")));
    stage
        .write("a.txt", "as it was\n")
        .write(".playhouse/capture/a.md", NOTE.replace("save_note", "read"))
        .write(".playhouse/capture/b.md", NOTE.replace("save_note", "mcp_files_read"))
        .write(".playhouse/capture/c.md", NOTE.replace("save_note", "submit_output"))
        .write(".playhouse/capture/d.md", NOTE.replace("type: object", "type: objekt"))
        .write(".playhouse/capture/e.md", "no head")
        .write(".playhouse/capture/good.md", NOTE);
    stage.write("secret/x.md", NOTE.replace("save_note", "linked"));
    fs::rename(stage.workspace.join("secret"), stage.root().join("secret")).unwrap();
    std::os::unix::fs::symlink(
        stage.root().join("secret/x.md"),
        stage.workspace.join(".playhouse/capture/f.md"),
    )
    .unwrap();
    let mut command = stage.command(["run", "Read it."]);
    command.env("PLAYHOUSE_LOG", "warn");
    let ended = finish(command).is(0);
    ended.says([
        ".playhouse/capture/a.md:2: `name` is \"read\", and there is such a tool already",
        ".playhouse/capture/b.md:2: `name` is \"mcp_files_read\"",
        ".playhouse/capture/c.md:2: `name` is \"submit_output\"",
        ".playhouse/capture/d.md:4: `schema`: ",
        ".playhouse/capture/e.md:1: the file must begin with a head",
        ".playhouse/capture/f.md: cannot be used for a capture tool: it leads outside of the workspace",
    ]);
    let names = shown(&stage.requests()[0]);
    assert_eq!(names.iter().filter(|name| *name == "read").count(), 1);
    assert!(names.contains(&"save_note".to_owned()), "{names:?}");
    assert!(names.iter().all(|name| !["linked", "submit_output"].contains(&name.as_str())), "{names:?}");
    assert!(stage.requests()[1]["messages"].to_string().contains("as it was"));
}

#[test]
fn tools_of_the_configuration_are_there_in_every_workspace() {
    let stage = Stage::new(
        Model::new()
            .step(call("verdict", json!({"value": "maybe"})))
            .step(call("verdict", json!({"value": ["good"]})))
            .step(call("update_story_status", json!({"story_id": "US-001", "status": "done"})))
            .step(call("save_prd", json!({"prd": {}})))
            .step(text("Said.")),
    );
    fs::write(stage.root().join("verdict.json"), r#"{"type": "array", "items": {"type": "string"}}"#)
        .unwrap();
    stage.configure(
        "[capture.verdict]\ndescription = \"Says it.\"\nschema = \"verdict.json\"\n[tools]\ncapture = [\"update_story_status\"]\n\
         [permissions]\nverdict = \"allow\"",
    );
    stage.run(["Judge."]).is(0);
    let names = shown(&stage.requests()[0]);
    assert!(names.contains(&"verdict".to_owned()) && names.contains(&"update_story_status".to_owned()));
    assert!(!names.contains(&"save_prd".to_owned()), "nobody named it");
    let session = stage.session();
    let kept = artifacts(&stage, &session);
    let kept: Vec<(&str, &Value)> =
        kept.iter().map(|one| (&*one.name, one.value.as_ref().unwrap())).collect();
    let status = json!({"story_id": "US-001", "status": "done"});
    assert_eq!(kept, [("verdict", &json!(["good"])), ("update_story_status", &status)]);
    let results = settled(&stage.records(&session));
    assert!(results[0].1.contains("value: "), "{}", results[0].1);
    assert!(results[3].1.contains("there is no tool"), "{}", results[3].1);
}
