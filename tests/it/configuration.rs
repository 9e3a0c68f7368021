//! Keys, models, and configuration that cannot be used.

use mock_llm::{Model, Script, call, text};
use serde_json::json;

use crate::stage::{Dialect, Stage, finish};

#[test]
fn a_missing_key_is_named() {
    let stage = Stage::new(Model::new());
    stage
        .run(["-m", "anthropic/claude-sonnet-4-5", "x"])
        .is(2)
        .says(["ANTHROPIC_API_KEY is not set", "export"]);
    stage.run(["-m", "openai/gpt-5", "x"]).is(2).says(["OPENAI_API_KEY is not set"]);
    let text = fs_err::read_to_string(&stage.config).unwrap();
    let text = text.replace("dialect = ", "api_key_env = \"LOCAL_KEY\"\ndialect = ");
    fs_err::write(&stage.config, text).unwrap();
    stage.run(["x"]).is(2).says(["no key for provider local: LOCAL_KEY is not set"]);
    let with_key = |key: &str| {
        let mut command = stage.command(["run", "x"]);
        command.env("LOCAL_KEY", key);
        finish(command)
    };
    with_key(" ").is(2).says(["LOCAL_KEY is empty"]);
    with_key("a-key").is(0);
    assert_eq!(stage.asked().len(), 1);
    // A session that began with the key cannot go on without it, and loses nothing.
    stage.run(["-c", "x"]).is(2).says(["LOCAL_KEY is not set"]);
    assert_eq!(stage.playhouse(["sessions", "list"]).is(0).stdout.lines().count(), 2);
}

#[test]
fn an_unknown_provider_or_model_is_answered_with_the_nearest() {
    let stage = Stage::speaking(Dialect::OpenaiChat, Script::new().model("qwen3-coder", Model::new()));
    stage.run(["-m", "locla/qwen3-coder", "x"]).is(2).says([
        "unknown provider \"locla\"",
        "did you mean",
        "local",
    ]);
    stage.run(["-m", "local/qwen3-codr", "x"]).is(2).says([
        "unknown model \"local/qwen3-codr\"",
        "did you mean",
        "local/qwen3-coder",
    ]);
    stage
        .run(["-m", "qwen3-coder", "x"])
        .is(2)
        .says(["\"qwen3-coder\" is not a model: write PROVIDER/MODEL"]);
    assert!(stage.asked().is_empty());
    assert_eq!(stage.playhouse(["sessions", "list"]).is(0).stdout.lines().count(), 1, "nothing was begun");
}

#[test]
fn without_a_model_it_says_how_to_choose_one() {
    let stage = Stage::new(Model::new());
    fs_err::write(&stage.config, "").unwrap();
    stage.run(["x"]).is(2).says(["no model is chosen", "-m PROVIDER/MODEL", "`model`"]);
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line() {
    for (text, says) in [
        ("# my own\nmodel = 3\n", "config.toml:2: "),
        ("modle = \"a/b\"\n", "did you mean \"model\""),
        ("[providers.x]\ndialect = \"openai-chat\"\nbase_ulr = \"http://a\"\n", "config.toml:3: "),
        ("[providers.x]\ndialect = \"openai-chat\"\nbase_ulr = \"http://a\"\n", "base_url"),
        ("model = \n", "config.toml:1"),
    ] {
        let stage = Stage::new(Model::new());
        fs_err::write(&stage.config, text).unwrap();
        for command in [&["run", "x"][..], &["sessions", "list"], &["tool", "list", "--input", "{}"]] {
            stage.playhouse(command).is(2).says(["error: ", says]);
        }
        assert!(!stage.data.exists());
    }
    let stage = Stage::new(Model::new());
    fs_err::remove_file(&stage.config).unwrap();
    stage.run(["x"]).is(2).says(["config.toml: there is no such file"]);
}

#[test]
fn the_configuration_is_found_in_its_usual_places() {
    let stage = Stage::new(Model::new().closing("Found."));
    let run = |change: &dyn Fn(&mut std::process::Command)| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_playhouse"));
        let usual = stage.command([""; 0]);
        let variables = usual.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.env_clear().envs(variables).current_dir(&stage.workspace).args(["--in-process", "run", "x"]);
        change(&mut command);
        finish(command)
    };
    run(&|_| {}).is(2).says(["no model is chosen"]);
    run(&|command| _ = command.env("PLAYHOUSE_CONFIG", &stage.config)).is(0);
    let folder = stage.root().join("home/.config/playhouse");
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::copy(&stage.config, folder.join("config.toml")).unwrap();
    assert_eq!(run(&|_| {}).is(0).stdout, "Found.\n");
    assert!(stage.root().join("home/.share/playhouse/format.json").exists());
    assert!(!stage.data.exists());
}

#[test]
fn a_workspace_chooses_a_model_an_agent_and_rules() {
    let script = Script::new().model("m", Model::new()).model("n", Model::new());
    let stage = Stage::speaking(Dialect::OpenaiChat, script);
    stage
        .write(
            ".playhouse/config.toml",
            "model = \"local/n\"\nagent = \"plan\"\nrules = [\"docs/rules.md\"]\n",
        )
        .write("docs/rules.md", "Always rhyme.")
        .write("AGENTS.md", "Never shout.");
    stage.run(["x"]).is(0);
    stage.run(["-m", "local/m", "--agent", "atlas", "x"]).is(0);
    let requests = stage.requests();
    assert_eq!(requests[0]["model"], "n");
    let system = requests[0]["messages"][0].to_string();
    assert!(system.contains("Always rhyme.") && system.contains("Never shout."), "{system}");
    assert!(system.contains("You plan work"), "{system}");
    assert_eq!(requests[1]["model"], "m");
    assert!(requests[1]["messages"][0].to_string().contains("You are an explorer"));
}

#[test]
fn a_workspace_may_not_set_what_is_the_operators() {
    for (text, says) in [
        (
            "[providers.local]\nbase_url = \"http://evil.example\"\n",
            "`providers` may not be set by a workspace",
        ),
        ("api_key = \"x\"\n", "`api_key` may not be set by a workspace"),
        ("\n[hooks]\nstart = \"rm\"\n", "config.toml:2: `hooks` may not be set by a workspace"),
        ("model = \"evil/one\"\n", "unknown provider \"evil\""),
        ("agent = \"evil\"\n", "there is no agent \"evil\""),
        ("rules = [\"../config.toml\"]\n", "is not a path inside of the workspace"),
        ("agnet = \"plan\"\n", "did you mean \"agent\"?"),
    ] {
        let stage = Stage::new(Model::new());
        stage.write(".playhouse/config.toml", text);
        stage.run(["x"]).is(2).says([".playhouse/config.toml", says]);
        assert!(stage.asked().is_empty(), "{text}");
    }
    // It came while the session was not running: the turn is refused or fails, and asks nobody.
    let stage = Stage::new(Model::new());
    stage.run(["x"]).is(0);
    stage.write(".playhouse/config.toml", "[providers.local]\nbase_url = \"http://evil.example\"\n");
    let ended = stage.run(["-c", "x"]);
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    ended.says(["`providers` may not be set by a workspace"]);
    assert_eq!(stage.asked().len(), 1);
}

#[test]
fn help_and_version_need_nothing() {
    let stage = Stage::new(Model::new());
    fs_err::write(&stage.config, "not even TOML").unwrap();
    stage.playhouse(["--version"]).is(0).shows(["playhouse 0.2.0"]);
    let help = stage.playhouse(["--help"]).is(0);
    for word in ["demo", "run", "tool", "sessions", "--data", "--config", "Exit codes", "130"] {
        assert!(help.stdout.contains(word), "{word} in {}", help.stdout);
    }
    for command in ["demo", "run", "tool", "sessions"] {
        stage.playhouse([command, "--help"]).is(0).shows(["Usage: playhouse"]);
    }
    stage.playhouse([""; 0]).is(2).says(["Usage: playhouse"]);
    stage.playhouse(["session"]).is(2).says(["'session'", "'sessions'"]);
}

#[test]
fn a_workspace_can_take_a_tool_away() {
    let model = Model::new().step(call("bash", json!({"command": "touch made"}))).step(text("I see."));
    let stage = Stage::new(model);
    stage.write(".playhouse/config.toml", "[permissions]\nbash = \"deny\"\n");
    stage
        .run(["go"])
        .is(0)
        .says(["declined", "the tool bash is denied by the workspace's own configuration"]);
    assert!(!stage.root().join("made").exists());
    let shown: Vec<String> =
        stage.requests()[0]["tools"].as_array().unwrap().iter().map(|tool| tool.to_string()).collect();
    assert!(
        !shown.is_empty() && !shown.iter().any(|tool| tool.contains("\"bash\"")),
        "it is not shown either"
    );

    stage.write(".playhouse/config.toml", "[permissions]\nbahs = \"deny\"\n");
    stage.run(["go"]).is(2).says(["`permissions.bahs` names no tool", "did you mean \"bash\"?"]);
    stage.write(".playhouse/config.toml", "[permissions]\nbash = \"allow\"\n");
    stage.run(["go"]).is(2).says(["config.toml:2", "only make permissions stricter"]);
}

#[test]
fn what_is_configured_is_shown_with_prices_and_their_sources_and_without_secrets() {
    let stage = Stage::new(Model::new());
    stage.configure(
        r#"
[providers.openai]
headers.x-team = "a-secret"
[providers.openai.models."gpt-5".cost]
input = 2.5
[providers.gw]
dialect = "openai-chat"
base_url = "http://localhost:1"
[providers.gw.models."my/model"]
context = 1000
output = 100
cost.output = 2
[providers.gw.models.'q"uo\te']
context = 1000
output = 100
[mcp.x]
command = "run"
args = ["--token", "a-secret"]
[lsp.x]
command = ["serve", "--key", "a-secret"]
extensions = [".x"]
initialization = '{"key": "a-secret"}'
[prompt]
append = "See https://a.example/x?y=1 and # headings."
"#,
    );
    let shown = stage.playhouse(["config"]).is(0).stdout;
    for line in [
        "  providers.gw.models.\"my/model\".context = 1000",
        "providers.openai.headers.x-team = \"(hidden)\"",
        "    input                  2.5  configured",
        "    output                  10  built in",
        "no price of input: what it costs is not known",
        "  providers.gw.models.\"q\\\"uo\\\\te\".context = 1000",
        "  mcp.x.args = \"(hidden)\"",
        "  lsp.x.command = [\"serve\",\"(hidden)\"]",
        "  prompt.append = \"See https://a.example/x?y=1 and # headings.\"",
        "cost.input = 2.5",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("a-secret"));
    let told: serde_json::Value =
        serde_json::from_str(&stage.playhouse(["config", "--format", "json"]).is(0).stdout).unwrap();
    let model =
        |name: &str| told["models"].as_array().unwrap().iter().find(|model| model["model"] == name).unwrap();
    assert_eq!(model("openai/gpt-5")["prices"]["input"], json!({"price": "2.5", "source": "configured"}));
    assert_eq!(model("openai/gpt-5")["prices"]["output"]["source"], "built in");
    assert_eq!(model("gw/my/model")["gaps"], json!(["input"]));
    fs_err::write(&stage.config, "modle = \"x/y\"").unwrap();
    stage.playhouse(["config"]).is(2).says(["unknown key `modle`", "did you mean"]);
    fs_err::remove_file(&stage.config).unwrap();
    stage.playhouse(["config"]).is(2).says(["there is no such file"]);
}
