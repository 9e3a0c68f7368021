//! Formatters: programs that format files which tools edited.

use mock_llm::{Model, call, text};
use playhouse::protocol::Record;
use serde_json::{Value, json};

use crate::host_tools::{LISTENING, asked};
use crate::serve::Serving;
use crate::stage::{Stage, in_both, results};

/// Writes the file in capitals.
const CAPITALS: &str = "text=$(tr a-z A-Z < \"$1\") && printf \"%s\\n\" \"$text\" > \"$1\"";
/// Says something, and fails.
const FAILS: &str = "echo this is no program >&2; exit 3";

/// A configuration whose formatter for `*.up` is this script. It gets the file as its first argument.
fn configuration(script: &str) -> String {
    format!(
        "[permissions]\n\"*\" = \"allow\"\n[formatter.up]\ncommand = [\"sh\", \"-c\", '{script}', \"sh\", \"$FILE\"]\n\
         extensions = [\".up\"]\n"
    )
}

fn edit(file: &str, old: &str, new: &str) -> mock_llm::Step {
    call("edit", json!({"filePath": file, "oldString": old, "newString": new}))
}

fn read(file: &str) -> mock_llm::Step {
    call("read", json!({"filePath": file}))
}

/// A workspace with one file that the formatter is for and one that it is not for.
fn stage(script: &str, steps: impl IntoIterator<Item = mock_llm::Step>) -> Stage {
    let stage = Stage::new(steps.into_iter().fold(Model::new(), Model::step).step(text("Done.")));
    stage.configure(&configuration(script)).write("it's $(a).up", "one\ntwo\n").write("plain.txt", "one\n");
    stage
}

#[test]
fn an_edited_file_is_formatted_in_the_same_change_set_and_undo_brings_back_what_was_before_both() {
    in_both(|| {
        let name = "it's $(a).up";
        let steps = [
            read(name),
            read("plain.txt"),
            edit(name, "two", "three"),
            // What the model was shown counts as read.
            edit(name, "THREE", "four"),
            edit("plain.txt", "one", "three"),
            call("undo_last", json!({})),
            call("undo_last", json!({})),
        ];
        let stage = stage(CAPITALS, steps);
        stage.run(["go"]).is(0);
        let told = results(&stage);
        assert!(told[2].contains(&format!("[up formatted {name}:]")), "{}", told[2]);
        assert!(told[2].contains("-three") && told[2].contains("+THREE"), "{}", told[2]);
        assert!(told[3].contains("+FOUR"), "{}", told[3]);
        assert!(!told[4].contains("formatted"), "{}", told[4]);
        // The second edit was taken back, to what the first one left, and that is not formatted again.
        assert!(told[6].contains(name) && !told[6].contains("formatted"), "{}", told[6]);
        assert_eq!((stage.read(name), stage.read("plain.txt")), ("ONE\nTHREE\n".into(), "one\n".into()));
        let session = stage.session();
        let mut sets = stage.records(&session).into_iter().filter_map(|record| match record {
            Record::WorkspaceChanged(set) => Some(set),
            _ => None,
        });
        let first = sets.next().unwrap();
        assert_eq!(first.set.changes.len(), 1);
        assert_eq!((first.set.changes[0].additions, first.set.changes[0].deletions), (2, 2));
        assert_eq!(sets.count(), 4);
        stage.playhouse(["sessions", "undo", &session]).is(0);
        assert_eq!((stage.read(name), stage.read("plain.txt")), ("one\ntwo\n".into(), "one\n".into()));
    });
}

#[test]
fn where_a_formatter_fails_the_edit_stands_and_the_model_is_told_why() {
    let name = "it's $(a).up";
    let fails = stage(FAILS, [read(name), edit(name, "two", "three")]);
    fails.run(["go"]).is(0);
    let told = &results(&fails)[1];
    let wanted = format!(
        "[up did not format {name}: exit code 3: this is no program; the file stands as you wrote it]"
    );
    assert!(told.contains(&wanted), "{told}");
    assert_eq!(fails.read(name), "one\nthree\n");

    let removes = stage("rm \"$1\"", [read(name), edit(name, "two", "three")]);
    removes.run(["go"]).is(0);
    let told = &results(&removes)[1];
    assert!(told.contains("the file is gone") && told.contains("it changed the file all the same"), "{told}");
    removes.playhouse(["sessions", "undo", &removes.session()]).is(0);
    assert_eq!(removes.read(name), "one\ntwo\n");
}

#[test]
fn a_program_that_is_not_there_is_named_with_the_result() {
    let steps = Model::new().step(read("plain.txt")).step(edit("plain.txt", "one", "three"));
    let stage = Stage::new(steps.step(text("Done.")));
    stage.configure(
        "[permissions]\n\"*\" = \"allow\"\n[formatter.none]\ncommand = [\"no-such-program\", \"$FILE\"]\n\
         extensions = [\".txt\"]\n",
    );
    stage.write("plain.txt", "one\n");
    stage.run(["go"]).is(0);
    let told = &results(&stage)[1];
    assert!(told.contains("none did not format plain.txt") && told.contains("no-such-program"), "{told}");
    assert_eq!(stage.read("plain.txt"), "three\n");
}

#[test]
fn a_workspace_configures_no_formatter_and_clients_see_those_of_the_operator() {
    let stage = stage(CAPITALS, []);
    let serving = Serving::start(&stage, LISTENING);
    let directory = stage.workspace.display();
    let (status, listed) = asked(&serving, "GET", &format!("/formatter?directory={directory}"), &Value::Null);
    assert_eq!(status, 200);
    assert_eq!(listed, json!([{"name": "up", "extensions": [".up"], "enabled": true}]));
    drop(serving);
    let own = "[formatter.x]\ncommand = [\"touch\", \"started\", \"$FILE\"]\nextensions = [\".up\"]\n";
    stage.write(".playhouse/config.toml", own);
    let ended = stage.run(["go"]).is(2);
    assert!(ended.stderr.contains("`formatter` may not be set by a workspace"), "{}", ended.stderr);
    assert!(!stage.workspace.join("started").exists());
}
