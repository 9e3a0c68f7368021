//! `playhouse doctor`.

use mock_llm::Model;
use serde_json::Value;

use crate::stage::{Ended, Stage, finish};

/// What was found about one thing.
fn of(ended: &Ended, check: &str) -> Value {
    let lines = ended.lines();
    let found = lines.iter().find(|line| line["check"] == check);
    found.unwrap_or_else(|| panic!("{check} in {}", ended.stdout)).clone()
}

fn detail(ended: &Ended, check: &str) -> String {
    of(ended, check)["detail"].as_str().unwrap().to_owned()
}

#[test]
fn it_says_what_is_in_force() {
    let stage = Stage::new(Model::new());
    let ended = stage.playhouse(["doctor", "--format", "json"]).is(0);
    let lines = ended.lines();
    let checks: Vec<&str> = lines.iter().map(|line| line["check"].as_str().unwrap()).collect();
    let parts = [
        "configuration",
        "agents",
        "model",
        "lifecycle",
        "quotas",
        "sandbox",
        "walls",
        "network",
        "languages",
        "keys",
        "connections",
        "data",
    ];
    let machine = ["limits", "ends", "memory", "bash", "git", "bwrap"];
    assert_eq!(checks, parts.into_iter().chain(machine).collect::<Vec<_>>());
    for line in &lines {
        let status = line["status"].as_str().unwrap();
        assert!(["ok", "weak", "missing", "wrong"].contains(&status), "{line}");
        assert!(!line["detail"].as_str().unwrap().is_empty(), "{line}");
        assert!(status == "ok" || line["advice"].is_string(), "what to do: {line}");
    }
    assert!(detail(&ended, "configuration").contains("config.toml"));
    assert!(detail(&ended, "sandbox").starts_with("best-effort: "));
    assert_eq!(of(&ended, "bash")["status"], "ok");
    assert!(detail(&ended, "bash").contains("version"));
    assert!(!stage.data.exists(), "it makes nothing");
    let table = stage.playhouse(["doctor"]).is(0).stdout;
    for check in checks {
        let named = |line: &str| line.split_whitespace().nth(1) == Some(check);
        assert!(table.lines().any(named), "{check} in {table}");
    }
}

#[test]
fn it_says_when_files_or_room_on_the_disk_are_few() {
    let stage = Stage::new(Model::new());
    let doctor = |first: &[&str], data: &str| {
        let mut command = stage.program(first[0]);
        command.args(&first[1..]).arg(env!("CARGO_BIN_EXE_playhouse"));
        command.args(["doctor", "--format", "json", "--data", data, "--config"]).arg(&stage.config);
        finish(command).is(0)
    };
    let there = stage.root().join("data").display().to_string();
    let few = doctor(&["bash", "-c", "ulimit -n 300; exec \"$0\" \"$@\""], &there);
    let few = of(&few, "connections");
    assert_eq!(few["status"], "weak");
    assert_eq!(few["detail"], "4096 of clients at once, and 300 open files");
    assert!(few["advice"].as_str().unwrap().contains("allow 8192 open files"), "{few}");
    let enough = doctor(&["bash", "-c", "ulimit -n 9000; exec \"$0\" \"$@\""], &there);
    assert_eq!(of(&enough, "connections")["status"], "ok");

    let small = ["bwrap", "--dev-bind", "/", "/", "--size", "50000000", "--tmpfs", "/mnt"];
    let small = of(&doctor(&small, "/mnt/data"), "data");
    assert_eq!(small["status"], "weak", "{small}");
    let detail = small["detail"].as_str().unwrap();
    assert!(detail.contains("/mnt/data (it is made when it is needed), with room for "), "{small}");
    assert!(small["advice"].as_str().unwrap().contains("make room"), "{small}");
}

#[test]
fn it_names_keys_and_never_shows_them() {
    let stage = Stage::new(Model::new());
    assert_eq!(of(&stage.playhouse(["doctor", "--format", "json"]), "keys")["status"], "missing");
    let mut command = stage.command(["doctor", "--format", "json"]);
    command.env("ANTHROPIC_API_KEY", "sk-nobody-may-see-this");
    let ended = finish(command).is(0);
    assert_eq!(of(&ended, "keys")["status"], "ok");
    assert!(detail(&ended, "keys").contains("ANTHROPIC_API_KEY"));
    assert!(!format!("{ended:?}").contains("nobody-may-see"), "{ended:?}");
}

#[test]
fn it_says_what_holds_less_than_it_could() {
    let stage = Stage::new(Model::new());
    stage.configure("[walls]\nnetwork = true");
    let ended = stage.playhouse(["doctor", "--sandbox", "off", "--format", "json"]).is(0);
    assert_eq!(of(&ended, "sandbox")["status"], "weak");
    assert_eq!(of(&ended, "walls")["status"], "weak");
    assert!(detail(&ended, "network").starts_with("commands may reach it"));
}

#[test]
fn walls_that_are_required_are_there_or_it_fails() {
    let stage = Stage::new(Model::new());
    let ended = stage.playhouse(["doctor", "--sandbox", "required", "--format", "json"]);
    let walls = of(&ended, "walls");
    let met = walls["status"] == "ok" || walls["status"] == "weak";
    assert_eq!(ended.code, Some(if met { 0 } else { 1 }), "{walls}");
    let input = r#"{"command": "echo held"}"#;
    let tool = stage.playhouse(["tool", "--sandbox", "required", "bash", "--input", input]);
    assert_eq!(tool.code == Some(0), met, "what it says is so: {tool:?}");
}

#[test]
fn a_wrong_configuration_is_exit_code_2() {
    let stage = Stage::new(Model::new());
    stage.write(".playhouse/config.toml", "sandbox = \"off\"\n");
    let ended = stage.playhouse(["doctor", "--format", "json"]).is(2);
    assert_eq!(of(&ended, "configuration")["status"], "wrong");
    let stage = Stage::new(Model::new());
    fs_err::write(&stage.config, "sandbx = \"off\"\n").unwrap();
    let ended = stage.playhouse(["doctor", "--format", "json"]).is(2);
    assert_eq!(of(&ended, "configuration")["status"], "wrong");
    assert!(detail(&ended, "configuration").contains("sandbx"));
}

#[test]
fn it_says_what_sessions_begin_with() {
    let told = |configuration: &str, workspace: &str, check: &str| {
        let stage = Stage::new(Model::new());
        let text = fs_err::read_to_string(&stage.config).unwrap();
        fs_err::write(&stage.config, format!("{configuration}\n{text}")).unwrap();
        stage.write(".playhouse/config.toml", workspace);
        stage.write(".playhouse/agents/bad.md", "---\nsteps: many\n---\n");
        let ended = stage.playhouse(["doctor", "--format", "json"]);
        let found = of(&ended, check);
        (
            ended.code,
            found["status"].as_str().unwrap().to_owned(),
            found["detail"].as_str().unwrap().to_owned(),
        )
    };
    for (configuration, workspace, check, exit, status, says) in [
        (
            "",
            "",
            "model",
            0,
            "ok",
            "local/m; input 1, output 2.5, cache_read 0.1, cache_write 1.25 US dollars per million",
        ),
        ("", "", "agents", 0, "weak", "bad.md:2: "),
        ("agent = \"sisyfus\"", "", "configuration", 2, "wrong", "did you mean \"sisyphus\"?"),
        ("", "agent = \"bad\"", "agents", 2, "wrong", "bad.md:2: "),
        ("small_model = \"local/n\"", "", "small model", 2, "wrong", "unknown model \"local/n\""),
        ("small_model = \"mock/echo\"", "", "small model", 0, "ok", "mock/echo"),
        ("small_model = \"openai/gpt-5-mini\"", "", "small model", 0, "missing", "OPENAI_API_KEY"),
    ] {
        let (code, found, detail) = told(configuration, workspace, check);
        assert_eq!((code, &*found), (Some(exit), status), "{configuration}: {detail}");
        assert!(detail.contains(says), "{detail}");
    }
}

#[test]
fn a_configuration_with_which_nothing_runs_is_wrong() {
    const AGENT: &str = "---\ndescription: Goes\npermission:\n  bsh: deny\n---\nGo.\n";
    let places: [fn(&Stage); 3] = [
        |stage| {
            stage.configure("[permissions]\nbsh = \"allow\"");
        },
        |stage| {
            stage.write(".playhouse/config.toml", "[permissions]\nbsh = \"deny\"\n");
        },
        |stage| {
            let agents = stage.config.parent().unwrap().join("agents");
            fs_err::create_dir_all(&agents).unwrap();
            fs_err::write(agents.join("go.md"), AGENT).unwrap();
        },
    ];
    for make in places {
        let stage = Stage::new(Model::new());
        make(&stage);
        let said = "did you mean \"bash\"?";
        stage.run(["go"]).is(2).says([said]);
        let ended = stage.playhouse(["doctor", "--format", "json"]).is(2);
        let found = of(&ended, "configuration");
        assert_eq!(found["status"], "wrong");
        assert!(found["detail"].as_str().unwrap().contains(said), "{found}");
        assert!(!ended.lines().iter().any(|line| line["check"] == "walls"), "they are not at fault");
    }
}

#[test]
fn it_says_which_language_servers_there_are() {
    let stage = Stage::new(Model::new());
    stage.configure("[lsp.acc]\ncommand = [\"/nonexistent/acc\"]\nextensions = [\".acc\"]\n");
    let languages = || stage.playhouse(["doctor", "--format", "json"]).is(0);
    let wrong = languages();
    assert_eq!(of(&wrong, "languages")["status"], "wrong");
    assert!(detail(&wrong, "languages").contains("without a program: acc"));
    stage.configure("[lsp.other]\ncommand = [\"/bin/sh\"]\nextensions = [\".other\"]\n");
    let config = fs_err::read_to_string(&stage.config).unwrap();
    fs_err::write(&stage.config, config.replace("/nonexistent/acc", "/bin/cat")).unwrap();
    let found = languages();
    assert_eq!(of(&found, "languages")["status"], "ok");
    assert!(
        detail(&found, "languages").contains("acc (/") && detail(&found, "languages").contains("other (/")
    );
}
