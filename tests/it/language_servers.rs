//! Language servers: what a model is told after its edits, the tool `lsp`, and what clients see of them.

use mock_llm::{Model, call, text};
use serde_json::{Value, json};

use crate::host_tools::{LISTENING, asked};
use crate::serve::Serving;
use crate::stage::{Stage, results, until};

/// A server for files `*.acc` that finds an error in each line that holds BAD, in the way that its `MODE` says.
const SERVER: &str = include_str!("../fixtures/language-server.sh");

fn configuration(mode: &str) -> String {
    format!(
        "[permissions]\n\"*\" = \"allow\"\n[lsp.acc]\ncommand = [\"bash\", \"-c\", '''{SERVER}''']\n\
         extensions = [\".acc\"]\nenv = {{ MODE = \"{mode}\" }}\n"
    )
}

fn edit(old: &str, new: &str) -> mock_llm::Step {
    call("edit", json!({"filePath": "a.acc", "oldString": old, "newString": new}))
}

fn ask(operation: &str) -> mock_llm::Step {
    let arguments =
        json!({"operation": operation, "filePath": "a.acc", "line": 1, "character": 1, "query": "th"});
    call("lsp", arguments)
}

/// Runs these steps in a workspace with one file. The first call waits until the server runs.
fn run(mode: &str, steps: impl IntoIterator<Item = mock_llm::Step>) -> Vec<String> {
    let first = [call("read", json!({"filePath": "a.acc"})), ask("hover")];
    let all = first.into_iter().chain(steps).fold(Model::new(), Model::step);
    let stage = Stage::new(all.step(text("Done.")));
    stage.configure(&configuration(mode)).write("a.acc", "fine\nwords\nend\n");
    stage.run(["go"]).is(0);
    let results = results(&stage);
    assert_eq!(results[1], "a word");
    results[2..].to_vec()
}

#[test]
fn the_errors_of_an_edit_are_told_with_its_result() {
    let told =
        run("pull", [edit("words", "a BAD word"), edit("fine", "fine BAD"), edit("a BAD word", "words")]);
    assert!(told[0].contains("1 new error in a.acc:\na.acc:2:1: BAD is not allowed"), "{}", told[0]);
    let both = "1 new error in a.acc:\na.acc:1:1: BAD is not allowed\nfrom before:\na.acc:2:1: BAD";
    assert!(told[1].contains(both) || told[1].contains("1 new error in a.acc:\na.acc:2:1"), "{}", told[1]);
    assert!(told[2].contains("no new errors in a.acc; 1 error from before:\na.acc:1:1:"), "{}", told[2]);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_late_answer_stands_at_the_start_of_a_later_result() {
    let told =
        run("late", [edit("words", "a BAD word"), ask("hover"), ask("hover"), ask("hover"), ask("hover")]);
    assert!(told[0].contains("not known yet") && !told[0].contains("no errors"), "{}", told[0]);
    let later = told[1..].iter().find(|told| told.starts_with("(of an edit before)")).expect("it is told");
    assert!(later.contains("1 new error in a.acc:\na.acc:2:1") && later.ends_with("a word"), "{later}");
}

#[test]
fn a_server_that_starts_is_not_waited_for() {
    let steps = [edit("words", "a BAD word"), ask("diagnostics"), ask("hover"), ask("hover")];
    let all = [call("read", json!({"filePath": "a.acc"}))].into_iter().chain(steps);
    let stage = Stage::new(all.fold(Model::new(), Model::step).step(text("Done.")));
    stage.configure(&configuration("pull")).write("a.acc", "fine\nwords\nend\n");
    stage.run(["go"]).is(0);
    let told = results(&stage);
    assert!(told[1].contains("not known yet, the server starts"), "{}", told[1]);
    assert!(told[2].contains("a.acc:2:1: error: BAD is not allowed"), "{}", told[2]);
    let later = told[2..].iter().filter(|told| told.starts_with("(of an edit before)")).count();
    assert_eq!(later, 1, "{told:?}");
}

#[test]
fn a_server_that_loads_is_asked_again_once_it_has_loaded() {
    // The first of its calls is a hover, whose answer is looked at.
    assert_eq!(run("loads", []), [] as [String; 0]);
}

#[test]
fn a_word_that_is_defined_in_a_file_that_may_not_be_read_is_left_out() {
    let hover = |read: &str| {
        let stage = Stage::new(Model::new().step(ask("hover")).step(text("Done.")));
        let allowed = "\"*\" = \"allow\"\n";
        let rules = format!("{allowed}read = {{ \"*\" = \"allow\", {read} = \"deny\" }}\n");
        stage.configure(&configuration("pull").replacen(allowed, &rules, 1)).write("a.acc", "fine\n");
        stage.run(["go"]).is(0);
        results(&stage).pop().unwrap()
    };
    assert_eq!(hover("\"*.key\""), "a word");
    let hidden = hover("\"/etc/*\"");
    assert!(hidden.contains("left out") && !hidden.contains("a word"), "{hidden}");
}

#[test]
fn silence_is_not_taken_for_no_errors() {
    let told = run("silent", [edit("words", "a BAD word")]);
    assert!(told[0].contains("not known yet") && !told[0].contains("no errors"), "{}", told[0]);
}

#[test]
fn what_is_said_of_an_older_version_does_not_count() {
    let told = run("stale", [edit("words", "a BAD word"), edit("a BAD word", "words")]);
    assert!(told[0].contains("1 new error in a.acc:\na.acc:2:1"), "{}", told[0]);
    assert!(told[1].contains("no errors in a.acc") && !told[1].contains("unverified"), "{}", told[1]);
}

#[test]
fn a_server_that_dies_or_says_too_much_is_told_and_the_turn_goes_on() {
    let told = run("dies", [edit("words", "other words"), call("read", json!({"filePath": "a.acc"}))]);
    assert!(
        told[0].contains("it died: it ended with exit code 4; its last words: the last words"),
        "{}",
        told[0]
    );
    assert!(told[1].contains("other words"), "{}", told[1]);
    let told = run("huge", [edit("words", "other words")]);
    assert!(told[0].contains("200000000 bytes") && told[0].len() < 2_000, "{}", told[0]);
}

#[test]
fn places_outside_of_the_workspace_are_left_out_and_the_tool_is_shown_where_a_server_is() {
    let told = run("pull", [ask("goToDefinition"), ask("nonsense"), ask("rename")]);
    assert_eq!(told[0], "a.acc:3:1: end\n(1 place left out: outside of the workspace, or not to be read)");
    assert!(told[1].contains("no operation \"nonsense\": there are goToDefinition,"), "{}", told[1]);
    assert!(told[2].contains("rename needs `newName`"), "{}", told[2]);
    // Other servers may be installed here, but there are no files for them.
    let stage = Stage::new(Model::new().step(text("Done.")));
    stage.write("a.acc", "fine\n").run(["go"]).is(0);
    let tools = stage.requests()[0]["tools"].to_string();
    assert!(tools.contains("\"edit\"") && !tools.contains("\"lsp\""), "{tools}");
}

#[test]
fn a_rename_is_shown_and_then_made_as_edits_are() {
    let rename = |apply: bool| {
        let arguments = json!({"operation": "rename", "filePath": "a.acc", "line": 1, "character": 1, "newName": "good", "apply": apply});
        call("lsp", arguments)
    };
    // The rules of `edit`, and what then stands in the two files.
    let renamed = |edit: &str| {
        let steps = [rename(false), rename(true), edit_of("b.acc"), call("undo_last", json!({}))];
        let all = steps.into_iter().fold(Model::new(), Model::step);
        let stage = Stage::new(all.step(text("Done.")));
        let rules = format!("\"*\" = \"allow\"\nedit = {edit}\n");
        stage.configure(&configuration("pull").replacen("\"*\" = \"allow\"\n", &rules, 1));
        stage.write("a.acc", "fine\nwords\n").write("b.acc", "fine words\r\n");
        stage.run(["go"]).is(0);
        let now = ["a.acc", "b.acc"].map(|name| fs_err::read_to_string(stage.workspace.join(name)).unwrap());
        (results(&stage), now)
    };
    let (told, now) = renamed("\"allow\"");
    assert!(told[0].contains("would change 2 places; nothing is changed yet"), "{}", told[0]);
    assert!(
        told[0].contains("a.acc:1:1: fine -> good")
            && told[0].contains("b.acc:1:1: fine words -> good words"),
        "{}",
        told[0]
    );
    assert!(
        told[1].starts_with(
            "applied the rename to 2 files (+2 -2)\nupdate a.acc (+1 -1)\nupdate b.acc (+1 -1)\n"
        ),
        "{}",
        told[1]
    );
    assert!(told[1].contains("-fine words") && told[1].contains("+good words"), "{}", told[1]);
    // It was changed, and not read.
    assert!(told[2].contains("b.acc exists and has not been read in this session"), "{}", told[2]);
    assert!(told[3].contains("a.acc") && told[3].contains("b.acc"), "{}", told[3]);
    assert_eq!(now, ["fine\nwords\n", "fine words\r\n"]);

    // A rule about any of the files holds for the whole.
    let (told, now) = renamed("{ \"*\" = \"allow\", \"b.*\" = \"deny\" }");
    assert!(told[1].contains("denied") && told[1].contains("b.acc"), "{}", told[1]);
    assert_eq!(now, ["fine\nwords\n", "fine words\r\n"]);

    // Whoever is asked sees that it writes, though the tool usually reads.
    let stage = Stage::new(Model::new().step(rename(true)).step(text("Done.")));
    stage.configure(&configuration("pull").replacen("\"*\" = \"allow\"\n", "edit = \"ask\"\n", 1));
    stage.write("a.acc", "fine\nwords\n").write("b.acc", "fine words\r\n");
    let serving = Serving::start(&stage, LISTENING);
    let (_, made) = asked(&serving, "POST", "/v1/sessions", &json!({"workspace": stage.workspace}));
    let prompts = format!("/v1/sessions/{}/prompts", made["id"].as_str().unwrap());
    assert_eq!(asked(&serving, "POST", &prompts, &json!({"text": "go"})).0, 202);
    let waiting = || asked(&serving, "GET", "/v1/consents", &Value::Null).1["consents"].clone();
    until("somebody is asked", || waiting().as_array().is_some_and(|all| !all.is_empty()));
    let waiting = waiting();
    // Absent for `dangerous`.
    assert_eq!((&waiting[0]["tool"], &waiting[0]["risk"]), (&json!("lsp"), &Value::Null), "{waiting}");
}

fn edit_of(path: &str) -> mock_llm::Step {
    call("edit", json!({"filePath": path, "oldString": "good", "newString": "best"}))
}

#[test]
fn a_workspace_configures_no_server() {
    let stage = Stage::new(Model::new().step(text("Done.")));
    let own = "[lsp.x]\ncommand = [\"touch\", \"started\"]\nextensions = [\".acc\"]\n";
    stage.write(".playhouse/config.toml", own);
    let ended = stage.run(["go"]).is(2);
    assert!(ended.stderr.contains("`lsp`") && !stage.workspace.join("started").exists(), "{}", ended.stderr);
}

#[test]
fn clients_see_the_servers_what_they_say_and_their_symbols() {
    let first = [call("read", json!({"filePath": "a.acc"})), ask("hover"), edit("words", "a BAD word")];
    let stage = Stage::new(first.into_iter().fold(Model::new(), Model::step).step(text("Done.")));
    stage.configure(&configuration("pull")).write("a.acc", "fine\nwords\nend\n");
    let serving = Serving::start(&stage, LISTENING);
    let get = |path: &str| {
        let (status, body) = asked(&serving, "GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {body}");
        body
    };
    let at = stage.workspace.to_str().unwrap();
    let list = format!("/v1/lsp-servers?workspace={at}");
    assert_eq!(get(&list)["servers"][0]["status"], "stopped");
    let (status, made) = asked(&serving, "POST", "/v1/sessions", &json!({"workspace": stage.workspace}));
    assert_eq!(status, 201, "{made}");
    let place = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
    assert_eq!(asked(&serving, "POST", &format!("{place}/prompts"), &json!({"text": "go"})).0, 202);
    until("the turn ends", || get(&format!("{place}/messages")).to_string().contains("Done."));
    let server = &get(&list)["servers"][0];
    assert_eq!(
        (&server["name"], &server["status"], &server["root"]),
        (&json!("acc"), &json!("connected"), &json!(at))
    );
    let (_, metrics) = serving.ask("GET", "/metrics", &[], "");
    for sample in ["playhouse_lsp_wait_seconds_count{server=\"acc\"} 1", "playhouse_lsp_servers"] {
        assert!(metrics.contains(sample), "{sample}: {metrics}");
    }
    let said = get(&format!("{place}/lsp"));
    assert_eq!(said["files"][0]["path"], "a.acc");
    assert_eq!(said["files"][0]["problems"][0]["line"], 2, "{said}");
    let wire = get(&format!("/lsp?directory={at}"));
    assert_eq!((&wire[0]["id"], &wire[0]["status"]), (&json!("acc"), &json!("connected")), "{wire}");
    let symbols = get(&format!("/find/symbol?directory={at}&query=th"));
    assert!(
        symbols[0]["name"] == "thing" && symbols[0]["location"]["uri"].as_str().unwrap().ends_with("/a.acc")
    );
}
