//! Commands that read folders: what may not be read unasked is hidden from them, or asked about.

use mock_llm::Model;
use serde_json::json;

use crate::stage::Stage;

/// A workspace with a file that rules ask about, one that they deny, and one that is plain.
fn stage(rules: &str) -> Stage {
    let stage = Stage::new(Model::new());
    stage
        .write(".env", "WORD=secret\n")
        .write("keys/id", "WORD of a key\n")
        .write("src/a.txt", "WORD in code\n");
    std::os::unix::fs::symlink("../.env", stage.workspace.join("src/link")).unwrap();
    stage.configure(&format!("[permissions]\nbash = \"allow\"\n{rules}"));
    stage
}

const DENIED: &str = "read = { \"keys/*\" = \"deny\" }";

/// What comes of a command by hand, and how it ends.
fn run(stage: &Stage, sandbox: &str, command: &str, code: i32) -> String {
    let input = json!({"command": command}).to_string();
    let ended = stage.playhouse(["tool", "--sandbox", sandbox, "bash", "--input", &input]).is(code);
    ended.lines()[0]["output"].as_str().unwrap().to_owned()
}

fn verdict(stage: &Stage, command: &str) -> String {
    let input = json!({"command": command}).to_string();
    stage.playhouse(["tool", "--sandbox", "off", "--verdict", "bash", "--input", &input]).is(0).stdout
}

#[test]
fn what_may_not_be_read_looks_empty_to_a_command_in_walls() {
    let stage = stage(DENIED);
    let shown = run(&stage, "required", "grep -r WORD .", 0);
    assert!(shown.starts_with("./src/a.txt:WORD in code\n"), "{shown}");
    assert!(!shown.contains("secret") && !shown.contains("key\n"), "{shown}");
    assert!(
        shown.ends_with("[2 files that may not be read unasked looked empty to the command, and could not be changed: .env, keys/id. Ask for one by name with read.]"),
        "{shown}"
    );
    // The target of a link is hidden, wherever it lies.
    let through = run(&stage, "required", "find src -exec cat {} +", 0);
    assert!(through.contains("WORD in code") && !through.contains("secret"), "{through}");
    // So is what lies in a folder that a link leads to.
    std::os::unix::fs::symlink("../keys", stage.workspace.join("src/keys")).unwrap();
    let linked = run(&stage, "required", "grep -R WORD src", 0);
    assert!(linked.contains("WORD in code") && !linked.contains("of a key"), "{linked}");
    // What else lies in the folder is as it was.
    assert_eq!(fs_err::read_to_string(stage.workspace.join(".env")).unwrap(), "WORD=secret\n");
    let plain = run(&stage, "required", "grep -r WORD src/a.txt", 0);
    assert_eq!(plain, "WORD in code\n");
}

#[test]
fn where_nothing_can_be_hidden_it_is_asked_about_by_name() {
    let denied = verdict(&stage(DENIED), "grep -r WORD .");
    assert!(denied.starts_with("deny: denied by a rule of the configuration (read \"keys/*\""), "{denied}");
    assert!(denied.contains("The tool grep leaves out what may not be read"), "{denied}");
    let stage = stage("");
    let asked = verdict(&stage, "grep -r WORD .");
    assert!(asked.starts_with("ask: read .env: "), "{asked}");
    assert_eq!(verdict(&stage, "grep -r WORD keys"), "allow\n");
    assert_eq!(verdict(&stage, "grep WORD src/a.txt"), "allow\n");
    assert_eq!(verdict(&stage, "rg WORD"), "allow\n", "it leaves out hidden files by itself");
    assert!(verdict(&stage, "rg --hidden WORD").starts_with("ask: read .env"));
    // A word may be a pattern or the value of an option: what lies where the command runs is read.
    for command in [
        "grep -rf src/a.txt",
        "grep -r src",
        "git grep src",
        "rg --hidden src",
        "find -newer src/a.txt -exec cat {} +",
        "tar cf - -T src/a.txt",
        "rsync --files-from=src/a.txt . out",
    ] {
        let said = verdict(&stage, command);
        assert!(said.starts_with("ask: read .env: "), "{command}: {said}");
    }
    assert_eq!(verdict(&stage, "find src/a.txt -newer src/a.txt -exec cat {} +"), "allow\n");
    // Git would take in what looks empty.
    let input = json!({"command": "grep -r WORD . && git add -A"}).to_string();
    let git =
        stage.playhouse(["tool", "--sandbox", "required", "--verdict", "bash", "--input", &input]).is(0);
    assert!(git.stdout.starts_with("ask: read .env"), "{}", git.stdout);
}

#[test]
fn what_a_pattern_of_file_names_matches_is_read() {
    let stage = stage(&format!("{DENIED}\nexternal_directory = \"allow\""));
    for (command, begin) in [
        ("cat keys/*", "deny: denied by a rule of the configuration (read \"keys/*\""),
        ("cp key?/i[a-z] out", "deny: "),
        ("cat .en*", "ask: read .env: "),
        ("head -n 1 s*/l*", "ask: read .env: "),
        ("cat {keys/id,src/a.txt}", "deny: "),
        ("cat keys/[[:lower:]]d", "deny: "),
        ("cat */../keys/id", "deny: "),
        ("shopt -s globstar; cat **/id", "deny: "),
        ("mv keys/* src", "deny: "),
        ("cat < keys/*", "deny: "),
        ("echo $(<.e*)", "ask: read .env: "),
        ("cat <> keys/id", "deny: "),
        ("cat keys/i['d']", "deny: "),
        ("shopt -s dotglob; cat *", "ask: read .env: "),
        ("shopt -s nocaseglob; cat keys/I*", "deny: "),
    ] {
        let said = verdict(&stage, command);
        assert!(said.starts_with(begin), "{command}: {said}");
    }
    let others = ["head -n $((2*3)) src/a.txt", "grep \"^$USER.*x\" src/a.txt", "grep k*y src/a.txt"];
    for command in
        ["cat src/*.txt", "cat *", "wc -l */a.*", "ls keys/*", "cat {src,other}/*.txt", "cat src/a{.txt,.md}"]
            .into_iter()
            .chain(others)
    {
        assert_eq!(verdict(&stage, command), "allow\n", "{command}");
    }
    let shown = run(&stage, "required", "cat keys/* src/*.txt", 0);
    assert!(shown.starts_with("WORD in code\n") && shown.contains("looked empty"), "{shown}");
}

#[test]
fn changes_of_a_file_that_git_tracks_are_shown_as_a_read_of_it() {
    let stage = stage("");
    let git = |arguments: &[&str]| {
        let git = std::process::Command::new("git").arg("-C").arg(&stage.workspace).args(arguments).output();
        assert!(git.unwrap().status.success(), "{arguments:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "src"]);
    assert_eq!(verdict(&stage, "git diff"), "allow\n", "git does not track it");
    git(&["add", "-f", ".env"]);
    for command in ["git diff", "git diff .env", "cd src && git diff", "git add -p", "git blame .env"] {
        let said = verdict(&stage, command);
        assert!(said.starts_with("ask: read .env: "), "{command}: {said}");
    }
    for command in
        ["git diff src", "git diff -- src", "git diff --cached", "git status", "git blame src/a.txt"]
    {
        assert_eq!(verdict(&stage, command), "allow\n", "{command}");
    }
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn a_folder_of_too_many_files_is_asked_about() {
    let partly = "read = { \"*\" = \"allow\", \"many/x/*\" = \"deny\" }";
    let stage = stage("");
    let configuration = fs_err::read_to_string(&stage.config).unwrap();
    let many = stage.workspace.join("many");
    fs_err::create_dir(&many).unwrap();
    (0..10_001).for_each(|number| fs_err::write(many.join(number.to_string()), "").unwrap());
    for (rules, is_asked) in [("", true), ("read = \"allow\"", false), (partly, true)] {
        fs_err::write(&stage.config, format!("{configuration}\n{rules}\n")).unwrap();
        let said = verdict(&stage, "grep -r WORD many");
        assert_eq!(said == "allow\n", !is_asked, "{said}");
        assert_eq!(said.contains("read many") && said.contains("more than 10,000 files"), is_asked, "{said}");
    }
}
