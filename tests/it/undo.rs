//! `sessions undo`, `redo` and `diff`, and a session that is killed again and again while it writes.

use std::process::Stdio;
use std::time::Duration;

use fs_err as fs;
use mock_llm::{Model, call, text};
use playhouse::protocol::{Record, RevertReport};
use serde_json::json;

use crate::stage::{Stage, contents, finish, in_both, until};

/// Nobody is there to be asked.
const ALLOWED: &str = "[permissions]\nedit = \"allow\"\n";

#[test]
fn what_file_tools_changed_is_taken_back_and_done_again() {
    in_both(|| {
        let stage = Stage::new(
            Model::new()
                .step(call("read", json!({"filePath": "a.txt"})))
                .step(call("edit", json!({"filePath": "a.txt", "oldString": "two", "newString": "TWO"})))
                .step(call("write", json!({"filePath": "new.txt", "content": "made\n"})))
                .step(text("Done.")),
        );
        stage.configure(ALLOWED).write("a.txt", "one\ntwo\nthree\n");
        stage.run(["go"]).is(0);
        let session = stage.session();
        let diff = stage.playhouse(["sessions", "diff", &session]).is(0).stdout;
        assert!(diff.contains("-two") && diff.contains("+TWO") && diff.contains("+made"), "{diff}");

        let preview = stage.playhouse(["sessions", "undo", &session, "--dry-run"]).is(0).stdout;
        assert!(preview.contains("would write a.txt (+1 -1)"), "{preview}");
        assert_eq!(stage.read("a.txt"), "one\nTWO\nthree\n");

        stage.write("a.txt", "one\nTWO\nthree\nfour by a person\n");
        let done = stage.playhouse(["sessions", "undo", &session, "--format", "json"]).is(0).stdout;
        let report: RevertReport = serde_json::from_str(&done).unwrap();
        assert_eq!((report.files.len(), report.conflicts.len()), (2, 0));
        assert_eq!(stage.read("a.txt"), "one\ntwo\nthree\nfour by a person\n");
        assert!(!stage.workspace.join("new.txt").exists());
        stage.playhouse(["sessions", "undo", &session]).is(2).says(["no prompt"]);

        let again = stage.playhouse(["sessions", "redo", &session]).is(0).stdout;
        assert!(again.contains("wrote new.txt (+1 -0)"), "{again}");
        assert_eq!(stage.read("a.txt"), "one\nTWO\nthree\nfour by a person\n");
        stage.playhouse(["sessions", "redo", &session]).is(2).says(["nothing is undone"]);
        stage
            .playhouse(["sessions", "undo", &session, "--to", "prt_nothing"])
            .is(2)
            .says(["there is no message"]);
    });
}

#[test]
fn an_undo_that_only_meets_conflicts_names_them_and_ids_to_go_back_to_are_shown() {
    let stage = Stage::new(
        Model::new()
            .step(call("write", json!({"filePath": "new.txt", "content": "made\n"})))
            .step(text("Done.")),
    );
    stage.configure(ALLOWED).run(["go"]).is(0);
    let session = stage.session();
    let shown = stage.playhouse(["sessions", "show", &session]).is(0).stdout;
    let id_of = |line: &str, prefix: &str| {
        let line = shown.lines().find(|shown| shown.contains(line)).unwrap();
        let from = &line[line.rfind(prefix).unwrap()..];
        from.trim_end_matches(']').to_owned()
    };
    let (message, call) = (id_of("── user", "msg_"), id_of("[write", "prt_"));
    stage.write("new.txt", "by a person\n");
    for to in [&message, &call] {
        let undo = ["sessions", "undo", &session, "--to", to];
        let preview = stage.playhouse(undo.into_iter().chain(["--dry-run"])).is(0);
        preview.shows(["conflict: new.txt"]);
    }
    stage.playhouse(["sessions", "undo", &session]).is(0).shows(["conflict: new.txt"]);
    assert_eq!(stage.read("new.txt"), "by a person\n");
}

#[test]
fn a_folder_that_holds_what_is_not_covered_holds_up_no_further_undo() {
    let command = "mkdir deep; echo x > deep/made; echo y > deep/kept.log";
    let stage = Stage::new(
        Model::new()
            .step(call("write", json!({"filePath": "first.txt", "content": "made\n"})))
            .step(call("bash", json!({"command": command})))
            .step(text("Done.")),
    );
    stage.configure(&format!("{ALLOWED}bash = \"allow\"\n")).write(".gitignore", "*.log\n");
    stage.run(["go"]).is(0);
    let session = stage.session();
    let shown = stage.playhouse(["sessions", "show", &session]).is(0).stdout;
    let line = shown.lines().find(|line| line.contains("[bash")).unwrap();
    let call = line[line.rfind("prt_").unwrap()..].trim_end_matches(']');
    let undo = |to: &[&str]| {
        let words = ["sessions", "undo", &session].into_iter().chain(to.iter().copied());
        stage.playhouse(words.collect::<Vec<_>>()).is(0).stdout
    };
    let of_command = undo(&["--to", call]);
    let shows = |text: &str| of_command.contains(text);
    assert!(shows("removed deep/made") && shows("not covered: deep/kept.log"), "{of_command}");
    assert!(stage.workspace.join("deep/kept.log").exists() && stage.workspace.join("first.txt").exists());
    let before = undo(&[]);
    assert!(before.contains("removed first.txt"), "{before}");
}

#[test]
fn after_kills_in_the_middle_of_writes_undo_leaves_nothing_behind() {
    let mut model = Model::new();
    for number in 0..60 {
        let file = format!("w{number}.txt");
        model =
            model.step(call("write", json!({"filePath": file, "content": format!("content {number}\n")})));
    }
    let stage = Stage::new(model.step(text("Done.")));
    stage.configure(ALLOWED);
    let count = || {
        let names = fs::read_dir(&stage.workspace)
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        names.filter(|name| name.starts_with('w') && name.ends_with(".txt")).count()
    };
    let mut command = stage.command(["run", "go"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut engine = command.spawn().unwrap();
    until("it writes", || count() > 3);
    engine.kill().unwrap();
    engine.wait().unwrap();
    let session = stage.session();
    for _ in 0..2 {
        let before = count();
        let mut command = stage.command(["sessions", "resume", &session]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut engine = command.spawn().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        until("it goes on", || count() > before || std::time::Instant::now() > deadline);
        engine.kill().unwrap();
        engine.wait().unwrap();
    }
    stage.playhouse(["sessions", "resume", &session]).is(0);
    assert!(count() > 3);
    let undone = stage.playhouse(["sessions", "undo", &session, "--format", "json"]).is(0).lines().remove(0);
    // Who wrote a file of a call that was cut off, nobody knows: it is named, and goes when the user names it.
    let ambiguous = undone["ambiguous"].as_array().unwrap();
    assert_eq!(count(), ambiguous.len(), "each other file that the session made is gone: {undone}");
    if !ambiguous.is_empty() {
        let mut words = vec!["sessions", "undo", &session];
        for left in ambiguous {
            words.extend(["--path", left["path"].as_str().unwrap()]);
        }
        stage.playhouse(words).is(0);
    }
    assert_eq!(count(), 0, "every file that the session made is gone");
    // A path that was not changed is no path to take back.
    stage.playhouse(["sessions", "undo", &session, "--path", "typo.txt"]).is(2).says(["was not changed"]);
    let sets = stage.records(&session);
    assert!(sets.iter().any(|record| matches!(record, Record::WorkspaceChanged(_))));
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_undo_that_is_killed_goes_on_when_it_is_asked_for_again() {
    let made = "for n in $(seq 400); do echo made > m$n.txt; echo changed > f$n.txt; done";
    let stage = Stage::new(Model::new().step(call("bash", json!({"command": made}))).step(text("Done.")));
    stage.configure("[permissions]\n\"*\" = \"allow\"\n");
    for number in 1..=400 {
        stage.write(&format!("f{number}.txt"), format!("before {number}\n"));
    }
    let before = contents(&stage.workspace);
    stage.run(["go"]).is(0);
    let after = contents(&stage.workspace);
    assert_eq!(after.len(), 2 * before.len());
    let session = stage.session();
    let mut cut_off = 0;
    for rest in [750, 650, 550] {
        let mut command = stage.command(["sessions", "undo", &session]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut engine = command.spawn().unwrap();
        let mut ended = false;
        until("it takes back", || {
            ended = engine.try_wait().unwrap().is_some();
            ended || fs::read_dir(&stage.workspace).unwrap().count() <= rest
        });
        cut_off += usize::from(!ended);
        engine.kill().unwrap();
        engine.wait().unwrap();
        if ended {
            break;
        }
    }
    assert!(cut_off > 0, "it was over before it could be killed");
    stage.playhouse(["sessions", "undo", &session]).is(0);
    // What a killed process had just taken away stands under a hidden name for an hour.
    let files = || {
        let mut files = contents(&stage.workspace);
        files.retain(|path, _| !path.file_name().unwrap().to_string_lossy().starts_with(".playhouse-"));
        files
    };
    assert!(files() == before, "all is as it was");
    // However often it began, all of it is done again.
    until("all is done again", || {
        stage.playhouse(["sessions", "redo", &session]).is(0);
        files() == after
    });
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn an_undo_on_a_full_disk_writes_each_file_whole_or_not_at_all_and_goes_on_when_there_is_room() {
    let cut = "for n in 1 2 3 4 5 6; do echo cut > f$n; done";
    let stage = Stage::new(Model::new().step(call("bash", json!({"command": cut}))).step(text("Done.")));
    stage.configure_first("sandbox = \"off\"").configure("[permissions]\n\"*\" = \"allow\"\n");
    // Room for one file is left, and not for two.
    let script = r#"
        cd "$0"
        for n in 1 2 3 4 5 6; do yes $n | head -c 200000 > f$n; done
        "$@" run go >&2
        session=$("$@" sessions list --format json | sed -n 's/.*"id": *"\(ses_[^"]*\)".*/\1/p' | head -n 1)
        dd if=/dev/zero of=filler bs=4k 2>/dev/null
        truncate -s -300K filler
        "$@" sessions undo $session --format json
        stat --format '%n %s' f?
        ls -A | grep -v -e '^f[1-6]$' -e '^filler$'
        rm filler
        "$@" sessions undo $session --format json
        cksum f? | cksum
        for n in 1 2 3 4 5 6; do yes $n | head -c 200000 > f$n; done
        cksum f? | cksum
    "#;
    let mut command = stage.program("bwrap");
    command.args(["--dev-bind", "/", "/", "--size", "2000000", "--tmpfs"]).arg(&stage.workspace);
    command.args(["--unshare-pid", "--die-with-parent", "--", "sh", "-c", script]).arg(&stage.workspace);
    let inner = stage.command([""; 0]);
    command.arg(inner.get_program()).args(inner.get_args());
    let ended = finish(command);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [first, sizes @ .., second, undone, before] = &lines[..] else {
        panic!("{}{}", ended.stdout, ended.stderr)
    };
    let [first, second] = [first, second].map(|line| serde_json::from_str::<RevertReport>(line).unwrap());
    assert_eq!((first.files.len(), first.conflicts.len()), (1, 5), "{first:?}");
    assert!(first.conflicts.iter().all(|left| left.reason.contains("No space left")), "{first:?}");
    // The others are as the command left them, and nothing lies beside them.
    assert_eq!(sizes, ["f1 200000", "f2 4", "f3 4", "f4 4", "f5 4", "f6 4"]);
    assert_eq!((second.files.len(), second.conflicts.len()), (5, 0), "{second:?}");
    assert_eq!(undone, before);
}

#[test]
fn an_undo_of_a_folder_that_is_gone_says_so_and_works_when_it_is_back() {
    let write = call("write", json!({"filePath": "new.txt", "content": "made\n"}));
    let stage = Stage::new(Model::new().step(write).step(text("Done.")));
    stage.configure(ALLOWED);
    stage.run(["go"]).is(0);
    let (session, away) = (stage.session(), stage.root().join("away"));
    fs::rename(&stage.workspace, &away).unwrap();
    let undo = || {
        let mut command = stage.command(["sessions", "undo", &session]);
        command.current_dir(stage.root());
        finish(command)
    };
    let refused = undo().is(2);
    assert!(refused.stderr.contains(stage.workspace.to_str().unwrap()), "{}", refused.stderr);
    assert!(away.join("new.txt").exists());
    fs::rename(&away, &stage.workspace).unwrap();
    undo().is(0);
    assert!(!stage.workspace.join("new.txt").exists());
}
