//! `playhouse demo`.

use std::process::Command;

use fs_err as fs;
use mock_llm::Model;

use crate::stage::{Stage, finish};

#[test]
fn the_demo_shows_a_whole_turn_and_leaves_nothing() {
    let stage = Stage::new(Model::new());
    let ended = stage.playhouse(["demo"]).is(0).shows([
        "I will run the test first",
        "✓ bash sh test.sh",
        " ms  exit 1",
        "✓ edit sum.sh",
        "✓ bash sh test.sh",
        "The test passes now.",
        "-    total=$number",
        "+    total=$((total + number))",
        "5 steps, ",
        " tokens in, ",
        " out, $0.0",
        "\ncompleted\n",
    ]);
    for call in ["✓ list  ", "✓ grep total  ", "✓ read sum.sh  "] {
        assert!(ended.stdout.contains(call), "expected {call:?} in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains('\x1b'), "no colours where there is no terminal: {}", ended.stdout);
    assert_eq!(ended.stderr, "");
    assert_eq!(fs::read_dir(stage.root().join("home")).unwrap().count(), 0, "it keeps nothing");
    assert!(!stage.data.exists(), "it touches no data directory");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_kept_repository_holds_the_fix() {
    let stage = Stage::new(Model::new());
    let ended = stage.playhouse(["demo", "--keep"]).is(0);
    let folder = ended.stdout.lines().last().unwrap().strip_prefix("the repository is in ").unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder);
        finish(command).is(0).stdout
    };
    assert_eq!(run("sh", &["test.sh"]), "all tests pass\n");
    assert_eq!(run("git", &["status", "--short"]), " M sum.sh\n");
    assert_eq!(run("git", &["log", "--format=%s"]), "Add sum\n");
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_demo_makes_a_repository_of_its_own_wherever_it_is_started() {
    let stage = Stage::new(Model::new());
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(&stage.workspace);
        finish(command).is(0).stdout
    };
    git(&["init", "-q"]);
    let mut command = stage.command(["demo"]);
    command.env("GIT_DIR", stage.workspace.join(".git"));
    finish(command).is(0).shows(["\ncompleted\n"]);
    assert_eq!(git(&["log", "--all", "--format=%s"]), "", "nothing was committed to the user's repository");
}
