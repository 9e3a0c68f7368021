//! Whole files in, settings or messages out.

use std::borrow::Cow;
use std::fmt::Display;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use insta::assert_snapshot;
use playhouse_llm::{DialectKind, OutputLimitField};
use playhouse_protocol::ModelRef;
use playhouse_sandbox::process::Limits;
use playhouse_tools::bash::BashOptions;
use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::*;

mod permissions;
mod prices;
mod reference;

/// The settings of a file, or why there are none, with the file's path.
pub(super) fn loaded(text: &str) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs_err::write(&file, text).unwrap();
    Settings::load(Some(&file), &|_| None).map_err(|error| error.to_string())
}

/// An operator's folder and a workspace.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join("operator/agents")).unwrap();
        fs_err::create_dir_all(root.path().join("workspace/.playhouse")).unwrap();
        Self { root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        fs_err::write(self.path(path), content).unwrap();
        self
    }

    fn load(&self) -> Result<Settings, ConfigError> {
        Settings::load(Some(&self.path("operator/config.toml")), &|_| None)
    }

    fn with_workspace(&self) -> Result<Settings, ConfigError> {
        let path = self.path("workspace");
        Settings::load(None, &|_| None).unwrap().with_workspace(&path).map(Cow::into_owned)
    }

    /// A message without the folder that differs from run to run.
    fn message(&self, error: impl Display) -> String {
        let shown = error.to_string();
        let canonical = fs_err::canonicalize(self.root.path()).unwrap();
        shown
            .replace(&format!("{}/", canonical.display()), "")
            .replace(&format!("{}/", self.root.path().display()), "")
    }
}

/// The message of an operator's file.
fn operator(text: &str) -> String {
    let place = Place::new();
    place.write("operator/config.toml", text);
    place.message(place.load().unwrap_err())
}

/// The message of a workspace's file.
fn workspace(text: &str) -> String {
    let place = Place::new();
    place.write("workspace/.playhouse/config.toml", text);
    place.message(place.with_workspace().unwrap_err())
}

fn each(texts: &[&str], message: fn(&str) -> String) -> String {
    texts.iter().map(|text| message(text)).collect::<Vec<_>>().join("\n")
}

const LOCAL: &str = r#"
model = "local/qwen3-coder"
agent = "atlas"
[providers.local]
dialect = "openai-chat"
base_url = "http://127.0.0.1:11434/v1/"
api_key_env = "LOCAL_KEY"
[providers.local.models."qwen3-coder"]
context = 128_000
output = 8192
cost = { input = 0.2, output = 8e-1, cache_read = 0.020, cache_write = 0 }
attachments = ["image"]
"#;

fn local() -> Settings {
    let place = Place::new();
    place.write("operator/config.toml", LOCAL).load().unwrap()
}

#[test]
fn a_provider_is_configured_and_resolved() {
    let settings = local();
    let model: ModelRef = "local/qwen3-coder".parse().unwrap();
    assert_eq!((settings.model.as_ref(), settings.agent.as_deref()), (Some(&model), Some("atlas")));
    let variables = |name: &str| (name == "LOCAL_KEY").then(|| "k-123\n".to_owned());
    let resolved = settings.resolve_model(&model, &variables).unwrap();
    assert_eq!(resolved.endpoint.dialect, DialectKind::OpenaiChat);
    assert_eq!(resolved.endpoint.base_url, "http://127.0.0.1:11434/v1");
    assert_eq!(resolved.endpoint.key.unwrap().expose_secret(), "k-123");
    assert_eq!(resolved.chat.output_limit_field, OutputLimitField::MaxTokens);
    let facts = resolved.facts;
    assert_eq!((facts.context, facts.output, facts.rules.prefill), (128_000, 8_192, false));
    assert!(facts.modalities.image && !facts.modalities.pdf);
    let price = |text: &str| Some(text.parse().unwrap());
    assert_eq!((facts.prices.usual.input, facts.prices.usual.output), (price("0.2"), price("0.8")));
    assert_eq!((facts.prices.usual.cache_read, facts.prices.usual.cache_write), (price("0.02"), price("0")));
}

#[test]
fn the_name_of_the_scripted_model_is_taken() {
    let text = "[providers.mock]\ndialect = \"anthropic\"\nbase_url = \"http://a\"\n";
    assert_eq!(
        operator(text),
        "operator/config.toml:1: provider \"mock\" is the scripted model in this process: give yours another name"
    );
}

#[test]
fn a_key_is_never_shown() {
    let variables = |_: &str| Some("k-123".to_owned());
    let resolved = local().resolve_model(&"local/qwen3-coder".parse().unwrap(), &variables).unwrap();
    assert!(!format!("{resolved:?}").contains("k-123"));
}

#[test]
fn builtin_providers_follow_their_libraries_variables() {
    let variables = |name: &str| match name {
        "ANTHROPIC_BASE_URL" => Some("http://127.0.0.1:1/".to_owned()),
        "OPENAI_BASE_URL" => Some("http://127.0.0.1:2/v1".to_owned()),
        "OPENAI_API_KEY" => Some("k".to_owned()),
        _ => None,
    };
    let settings = Settings::load(None, &variables).unwrap();
    assert_eq!(settings.providers["anthropic"].base_url, "http://127.0.0.1:1");
    let resolved = settings.resolve_model(&"openai/gpt-5".parse().unwrap(), &variables).unwrap();
    assert_eq!(resolved.endpoint.base_url, "http://127.0.0.1:2/v1");
    assert_eq!(resolved.chat.output_limit_field, OutputLimitField::MaxCompletionTokens);

    let bad = |name: &str| name.ends_with("_BASE_URL").then(|| "127.0.0.1".to_owned());
    let settings = Settings::load(None, &bad).unwrap();
    let error = settings.resolve_model(&"anthropic/claude-opus-4-5".parse().unwrap(), &bad).unwrap_err();
    assert_snapshot!(error, @r#"
    environment variable ANTHROPIC_BASE_URL: "127.0.0.1" has no scheme: write an address as in "http://127.0.0.1:11434/v1"
    "#);
}

#[test]
fn a_builtin_provider_is_changed_in_part() {
    let place = Place::new();
    let text = r#"
        [providers.openai]
        base_url = "https://gateway.example/v1"
        api_key_env = "GATEWAY_KEY"
        [providers.openai.models."gpt-5.4"]
        cost = { input = 1 }
        [providers.openai.models."ft:gpt/mine"]
        context = 1000
        output = 100
    "#;
    let settings = place.write("operator/config.toml", text).load().unwrap();
    let openai = &settings.providers["openai"];
    assert_eq!(openai.base_url, "https://gateway.example/v1");
    assert_eq!(openai.keys[0].name, "GATEWAY_KEY");
    assert_eq!(openai.chat.output_limit_field, OutputLimitField::MaxCompletionTokens);
    let catalogue = settings.catalogue.now();
    let known = catalogue.get(&"openai/gpt-5.4".parse().unwrap()).unwrap();
    assert_eq!((known.context, known.prices.usual.output), (1_050_000, Some("15".parse().unwrap())));
    assert_eq!(known.prices.at(1).input, Some("1".parse().unwrap()));
    assert_eq!(known.prices.at(900_000).input, Some("5".parse().unwrap()), "the step is not named");
    assert!(settings.catalogue.now().get(&"openai/ft:gpt/mine".parse().unwrap()).is_some());
}

#[test]
fn the_file_is_found_where_it_should_be() {
    let place = Place::new();
    for folder in ["home/.config/playhouse", "xdg/playhouse"] {
        fs_err::create_dir_all(place.path(folder)).unwrap();
    }
    place.write("home/.config/playhouse/config.toml", "agent = \"plan\"");
    place.write("xdg/playhouse/config.toml", "agent = \"atlas\"");
    place.write("operator/named.toml", "agent = \"build\"");
    place.write("operator/flag.toml", "agent = \"hephaestus\"");
    let agent = |flag: Option<&str>, names: &[&str]| {
        let variables = |name: &str| {
            let path = match name {
                "HOME" => "home",
                "XDG_CONFIG_HOME" => "xdg",
                _ => "operator/named.toml",
            };
            names.contains(&name).then(|| place.path(path).to_str().unwrap().to_owned())
        };
        let flag = flag.map(|path| place.path(path));
        Settings::load(flag.as_deref(), &variables).unwrap().agent
    };
    assert_eq!(agent(None, &[]), None);
    assert_eq!(agent(None, &["HOME"]).unwrap(), "plan");
    assert_eq!(agent(None, &["HOME", "XDG_CONFIG_HOME"]).unwrap(), "atlas");
    assert_eq!(agent(None, &["HOME", "XDG_CONFIG_HOME", "PLAYHOUSE_CONFIG"]).unwrap(), "build");
    assert_eq!(agent(Some("operator/flag.toml"), &["HOME", "PLAYHOUSE_CONFIG"]).unwrap(), "hephaestus");
}

#[test]
fn only_a_file_that_was_named_must_exist() {
    let place = Place::new();
    assert_snapshot!(place.message(place.load().unwrap_err()), @"operator/config.toml: there is no such file");
    let home = place.path("nobody").to_str().unwrap().to_owned();
    assert!(Settings::load(None, &|name| (name == "HOME").then(|| home.clone())).is_ok());
}

#[test]
fn agents_lie_beside_the_file() {
    let place = Place::new();
    place.write("operator/agents/reviewer.md", "---\ndescription: Reviews\n---\nBe kind.");
    place.write("operator/agents/notes.txt", "not an agent");
    place.write("operator/config.toml", "agent = \"reviewer\"");
    let settings = place.load().unwrap();
    assert_eq!(settings.agents.get("reviewer").unwrap().prompt.as_deref(), Some("Be kind."));

    place.write("operator/agents/b.md", "---\nname: reviewer\ndescription: d\n---");
    assert_snapshot!(place.message(place.load().unwrap_err()), @r#"
    operator/agents/reviewer.md: there is an agent "reviewer" already, in operator/agents/b.md
    "#);
    place.write("operator/agents/b.md", "---\ndescription: d\nstep: 3\n---");
    assert_snapshot!(place.message(place.load().unwrap_err()), @r#"
    operator/agents/b.md:3: unknown key `step`; an agent has name, description, mode, hidden, color, model, reasoning, variant, temperature, top_p, steps, tools, read_only, permission, permissions, prompt; did you mean "steps"?
    "#);
    place.write("operator/agents/b.md", "x".repeat(300_000));
    assert_snapshot!(place.message(place.load().unwrap_err()), @r"
    operator/agents/b.md: is 300000 bytes long; an agent has at most 262144
    ");
}

#[test]
fn rules_are_in_order_and_relative_to_the_file() {
    let place = Place::new();
    place
        .write("operator/config.toml", "rules = [\"house.md\", \"~/own.md\"]")
        .write("operator/house.md", "one");
    place.write("own.md", "two");
    place.write("workspace/AGENTS.md", "three").write("workspace/more.md", "four");
    place.write("workspace/.playhouse/config.toml", "rules = [\"./more.md\", \"AGENTS.md\"]");
    let home = place.root.path().to_str().unwrap().to_owned();
    let variables = |name: &str| (name == "HOME").then(|| home.clone());
    let settings = Settings::load(Some(&place.path("operator/config.toml")), &variables).unwrap();
    let settings = settings.with_workspace(&place.path("workspace")).unwrap();
    let texts: Vec<&str> = settings.rules.iter().map(|rules| rules.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "three", "four"]);
}

#[test]
fn unknown_keys_name_line_and_nearest_key() {
    assert_snapshot!(each(&[
        "\nmodle = \"a/b\"",
        "colour = 1",
        "[providers.local]\ndialect = \"openai-chat\"\nbase_ulr = \"http://a\"",
        "[providers.local]\napi_key = \"sk-secret\"",
        "[providers.local.models.\"q 3\"]\n\ncontxt = 1",
        "providers.local.models.q.cost = { in = 1 }",
        "[provider.local]",
    ], operator), @r#"
    operator/config.toml:2: unknown key `modle`; known here are agent, asking, billing, budgets, capture, context, formatter, lsp, mcp, metrics, model, moderate, permissions, prompt, providers, resume, retry, rules, sandbox, server, sessions, sinks, small_model, snapshots, store, store_on_damage, tasks, timeouts, tools, walls; did you mean "model" or "moderate"?
    operator/config.toml:1: unknown key `colour`; known here are agent, asking, billing, budgets, capture, context, formatter, lsp, mcp, metrics, model, moderate, permissions, prompt, providers, resume, retry, rules, sandbox, server, sessions, sinks, small_model, snapshots, store, store_on_damage, tasks, timeouts, tools, walls
    operator/config.toml:3: unknown key `providers.local.base_ulr`; known here are api_key_env, base_url, call_ids, deferred_tools, dialect, headers, http2, limits, models, output_limit_field, reasoning_content, stream_options, usage, user_after_results; did you mean "base_url"?
    operator/config.toml:2: unknown key `providers.local.api_key`; known here are api_key_env, base_url, call_ids, deferred_tools, dialect, headers, http2, limits, models, output_limit_field, reasoning_content, stream_options, usage, user_after_results; did you mean "api_key_env"?
    operator/config.toml:3: unknown key `providers.local.models."q 3".contxt`; known here are attachments, context, cost, output, prefill, reasoning, temperature, top_p; did you mean "context" or "cost"?
    operator/config.toml:1: unknown key `providers.local.models.q.cost.in`; known here are cache_read, cache_write, cache_write_12h, cache_write_1h, cache_write_30m, input, long, multiples, output, reasoning; did you mean "input"?
    operator/config.toml:1: unknown key `provider`; known here are agent, asking, billing, budgets, capture, context, formatter, lsp, mcp, metrics, model, moderate, permissions, prompt, providers, resume, retry, rules, sandbox, server, sessions, sinks, small_model, snapshots, store, store_on_damage, tasks, timeouts, tools, walls; did you mean "providers"?
    "#);
}

#[test]
fn wrong_types_name_line_expected_and_found() {
    assert_snapshot!(each(&[
        "\nmodel = 3",
        "agent = [\"a\"]",
        "rules = \"a.md\"",
        "rules = [\n\"a.md\",\n  1]",
        "providers = 1",
        "[[providers]]",
        "providers.local = \"x\"",
        "providers.local.models.q.context = \"128000\"",
        "providers.local.models.q.context = -1",
        "providers.local.models.q.context = 1.5",
        "providers.local.models.q.prefill = \"yes\"",
        "providers.local.models.q.cost = 1",
        "providers.local.models.q.cost.input = -0.5",
        "providers.local.models.q.cost.input = nan",
        "providers.local.models.q.cost.input = 1979-05-27",
        "providers.local.models.q.reasoning = true",
        "providers.local.headers = \"x-org: blue\"",
        "providers.local.headers.x-org = 1",
        "providers.local.headers.x-org = { env = \"A\", or = \"B\" }",
        "providers.local.limits = 5",
        "retry.base_ms = 0.5",
    ], operator), @r#"
    operator/config.toml:2: `model` is the whole number 3, expected text
    operator/config.toml:1: `agent` is a list, expected text
    operator/config.toml:1: `rules` is text, expected a list of texts
    operator/config.toml:3: `rules` holds the whole number 1, expected texts only
    operator/config.toml:1: `providers` is the whole number 1, expected a table
    operator/config.toml:1: `providers` is a list, expected a table
    operator/config.toml:1: `providers.local` is text, expected a table
    operator/config.toml:1: `providers.local.models.q.context` is text, expected a whole number from 0
    operator/config.toml:1: `providers.local.models.q.context` is the whole number -1, expected a whole number from 0
    operator/config.toml:1: `providers.local.models.q.context` is the number 1.5, expected a whole number from 0
    operator/config.toml:1: `providers.local.models.q.prefill` is text, expected true or false
    operator/config.toml:1: `providers.local.models.q.cost` is the whole number 1, expected a table
    operator/config.toml:1: `providers.local.models.q.cost.input` is the number -0.5, expected a number from 0
    operator/config.toml:1: `providers.local.models.q.cost.input` is the number nan, expected a number from 0
    operator/config.toml:1: `providers.local.models.q.cost.input` is a date or a time, expected a number from 0
    operator/config.toml:1: `providers.local.models.q.reasoning` is true, expected text or a whole number from 0
    operator/config.toml:1: `providers.local.headers` is text, expected a table
    operator/config.toml:1: `providers.local.headers.x-org` is the whole number 1, expected text or `{ env = "VARIABLE" }`
    operator/config.toml:1: `providers.local.headers.x-org` is a table, expected text or `{ env = "VARIABLE" }`
    operator/config.toml:1: `providers.local.limits` is the whole number 5, expected a table
    operator/config.toml:1: `retry.base_ms` is the number 0.5, expected a whole number from 0
    "#);
}

#[test]
fn wrong_values_name_line_and_what_there_is() {
    assert_snapshot!(each(&[
        "model = \"qwen3-coder\"",
        "agent = \"atlsa\"",
        "rules = [\"absent.md\"]",
        "[providers.local]\ndialect = \"openai\"",
        "[providers.local]\nbase_url = \"localhost:11434\"",
        "[providers.local]\nbase_url = \"ftp://a\"",
        "[providers.local]\nbase_url = \"http://ada:hunter2@a\"",
        "[providers.local]\nbase_url = \"http://\"",
        "[providers.local]\napi_key_env = \"sk-ant-secret\"",
        "[providers.local]\noutput_limit_field = \"max_output\"",
        "[providers.local]\nusage = \"openia-chat\"",
        "[providers.local]\nhttp2 = \"always\"",
        "[providers.local]\ncall_ids = \"nine\"",
        "[providers.local]\nstream_options = \"no\"",
        "[providers.local.limits]\nstreams_per_connection = 0",
        "[providers.local]\ndialect = \"gemini\"\nbase_url = \"http://a\"\nusage = \"xai-chat\"",
        "[providers.local.headers]\n\"x org\" = \"blue\"",
        "[providers.local.headers]\nHost = \"evil.example\"",
        "[providers.local.headers]\nAuthorization = \"Bearer hunter2\"",
        "[providers.local.headers]\nx-org = { env = \"sk-hunter2\" }",
        "[providers.local.headers]\nx-org = \"a\"\nX-Org = \"b\"",
        "[providers.local.headers]\nx-org = \" \"",
        "[providers.local.limits]\nconcurrent = 0",
        "[providers.local.limits]\nrequests_per_minute = 5_000_000_000",
        "[retry]\nattempts = 0",
        "[tools.bash]\nprocesses = 7",
        "[tools.bash]\nmemory_mb = 31",
        "[tools.bash]\nopen_files = 3",
        "[tools.bash]\nsession_processes = 0",
        "[tools.bash]\nsession_memory_mb = 0",
        "[tools.bash]\nmax_timeout_ms = 0",
        "[providers.openai.models.gpt-5]\nreasoning = \"lots\"",
        "[providers.openai.models.gpt-5]\nreasoning = 0",
        "[providers.openai.models.gpt-5]\ntemperature = 2.5",
        "[providers.openai.models.gpt-5]\ntop_p = 0",
        "[providers.\"lo/cal\"]",
        "[providers.local]",
        "[providers.local]\ndialect = \"anthropic\"",
        "[providers.openai]\ndialect = \"anthropic\"",
        "[providers.openai.models.x]\noutput = 5",
        "[providers.openai.models.x]\ncontext = 5\noutput = 6",
        "[providers.openai.models.\"\"]",
        "[providers.openai.models.x]\nattachments = [\"video\"]",
    ], operator), @r#"
    operator/config.toml:1: `model`: "qwen3-coder" is not a model: write PROVIDER/MODEL, as in "anthropic/claude-sonnet-4-5"
    operator/config.toml:1: `agent`: there is no agent "atlsa"; there are atlas, build, explore, general, hephaestus, plan, sisyphus; did you mean "atlas"?
    operator/config.toml:1: operator/absent.md: cannot be used as a rules file: there is no such file
    operator/config.toml:2: `providers.local.dialect`: unknown dialect "openai"; there are anthropic, openai-chat, openai-responses, gemini; did you mean "openai-chat" or "openai-responses"?
    operator/config.toml:2: `providers.local.base_url`: "localhost:11434" has no scheme: write an address as in "http://127.0.0.1:11434/v1"
    operator/config.toml:2: `providers.local.base_url`: "ftp" is not a scheme for a server: use http or https
    operator/config.toml:2: `providers.local.base_url`: the address must not hold a user or a password: keys come from `api_key_env`
    operator/config.toml:2: `providers.local.base_url`: "http://" is not the address of a server
    operator/config.toml:2: `providers.local.api_key_env`: this is not the name of an environment variable: give the name of the one that holds the key, never the key itself
    operator/config.toml:2: `providers.local.output_limit_field`: unknown output limit field "max_output"; there are max_tokens, max_completion_tokens
    operator/config.toml:2: `providers.local.usage`: unknown usage convention "openia-chat"; there are anthropic, openai-chat, openai-responses, gemini, deepseek-chat, xai-chat, openrouter-chat, alibaba-chat; did you mean "openai-chat", "openrouter-chat" or "xai-chat"?
    operator/config.toml:2: `providers.local.http2`: unknown way to speak HTTP/2 "always"; there are negotiated, prior-knowledge
    operator/config.toml:2: `providers.local.call_ids`: unknown form of ids "nine"; there are usual, nine-alphanumeric; did you mean "nine-alphanumeric"?
    operator/config.toml:2: `providers.local.stream_options` is text, expected true or false
    operator/config.toml:2: `providers.local.limits.streams_per_connection`: is 0, expected a whole number from 1 to 4294967295
    operator/config.toml:1: provider "local": `usage` does not fit the dialect gemini: there are gemini
    operator/config.toml:2: `providers.local.headers."x org"`: this is not the name of a header
    operator/config.toml:2: `providers.local.headers.Host`: the header host is the engine's own
    operator/config.toml:2: `providers.local.headers.Authorization`: keys never stand in a file: name the variable that holds it, as in `authorization = { env = "MY_KEY" }`
    operator/config.toml:2: `providers.local.headers.x-org`: this is not the name of an environment variable: give the name of the one that holds the key, never the key itself
    operator/config.toml:3: `providers.local.headers.X-Org`: this header is set already, in other letters
    operator/config.toml:2: `providers.local.headers.x-org`: is empty
    operator/config.toml:2: `providers.local.limits.concurrent`: is 0, expected a whole number from 1 to 4294967295
    operator/config.toml:2: `providers.local.limits.requests_per_minute`: is 5000000000, expected a whole number from 1 to 4294967295
    operator/config.toml:2: `retry.attempts`: is 0, expected a whole number from 1 to 4294967295
    operator/config.toml:2: `tools.bash.processes`: is 7, expected a whole number from 8
    operator/config.toml:2: `tools.bash.memory_mb`: is 31, expected 0 or a whole number from 32
    operator/config.toml:2: `tools.bash.open_files`: is 3, expected 0 or a whole number from 32
    operator/config.toml:2: `tools.bash.session_processes`: is 0, expected a whole number from 8
    operator/config.toml:2: `tools.bash.session_memory_mb`: is 0, expected a whole number from 32
    operator/config.toml:2: `tools.bash.max_timeout_ms`: is 0, expected a whole number from 1 to 4294967295
    operator/config.toml:2: `providers.openai.models.gpt-5.reasoning`: is "lots", expected none, minimal, low, medium, high, xhigh, max or a whole number of tokens from 1
    operator/config.toml:2: `providers.openai.models.gpt-5.reasoning`: is "0", expected none, minimal, low, medium, high, xhigh, max or a whole number of tokens from 1
    operator/config.toml:2: `providers.openai.models.gpt-5.temperature`: is 2.5, expected a number from 0 to 2
    operator/config.toml:2: `providers.openai.models.gpt-5.top_p`: is 0, expected a number above 0, up to 1
    operator/config.toml:1: "lo/cal" is not a name for a provider: use up to 64 lower-case letters, digits, `-`, `_` and `.`
    operator/config.toml:1: provider "local" has no `dialect`: there are anthropic, openai-chat, openai-responses, gemini
    operator/config.toml:1: provider "local" has no `base_url`
    operator/config.toml:1: the built-in provider "openai" speaks openai-chat and openai-responses, not anthropic: give yours another name
    operator/config.toml:1: model "openai/x" has no `context`: give it in tokens
    operator/config.toml:1: model "openai/x": `output` (6) is larger than `context` (5), which holds it
    operator/config.toml:1: this is not a name for a model: it is empty or holds control characters
    operator/config.toml:2: `providers.openai.models.x.attachments`: unknown kind "video"; there are image, pdf
    "#);
}

#[test]
fn the_limits_of_commands_are_carried_over() {
    let place = Place::new();
    let bash = |text: &str| {
        place.write("operator/config.toml", format!("[tools.bash]\n{text}"));
        place.load().unwrap().tools.bash
    };
    assert_eq!(bash(""), BashOptions::default());
    let all = "max_timeout_ms = 5_000\nprocesses = 64\nmemory_mb = 32\nfile_mb = 1\nopen_files = 99\ncpu_seconds = 7\n\
               session_processes = 65\nsession_memory_mb = 33\nbackground = 0";
    let limits = Limits {
        tasks: 64,
        memory: Some(32 << 20),
        file_size: Some(1 << 20),
        open_files: Some(99),
        cpu_seconds: Some(7),
        session_tasks: Some(65),
        session_memory: Some(33 << 20),
    };
    assert_eq!(bash(all), BashOptions { max_timeout: Duration::from_secs(5), limits, most_background: 0 });
    let none = bash("memory_mb = 0\nfile_mb = 0\nopen_files = 0\ncpu_seconds = 0").limits;
    assert_eq!((none.memory, none.file_size, none.open_files, none.cpu_seconds), (None, None, None, None));
}

#[test]
fn what_is_not_toml_names_its_line() {
    assert_snapshot!(each(&[
        "model = \"a/b\"\nmodel = \"a/c\"",
        "model = ",
        "[providers",
        "rules = [1,",
        "model = \"\u{1}\"",
    ], operator), @r"
    operator/config.toml:2: not valid TOML: duplicate key
    operator/config.toml:1: not valid TOML: string values must be quoted, expected literal string
    operator/config.toml:1: not valid TOML: unclosed table, expected `]`
    operator/config.toml:1: not valid TOML: unclosed array, expected `]`
    operator/config.toml:1: not valid TOML: invalid basic string, expected non-double-quote visible characters, `\`
    ");
    let place = Place::new();
    place.write("operator/config.toml", b"model = \"a/b\"\n# \xff\n");
    assert_snapshot!(place.message(place.load().unwrap_err()), @"operator/config.toml:2: this line is not UTF-8");
    assert!(operator(&format!("rules = {}", "[".repeat(100_000))).contains("config.toml:1: "));
}

#[test]
fn a_workspace_chooses_model_and_agent() {
    let place = Place::new();
    place.write("workspace/.playhouse/config.toml", "model = \"local/qwen3-coder\"\nagent = \"plan\"");
    let settings = local().with_workspace(&place.path("workspace")).unwrap().into_owned();
    assert_eq!(settings.model.unwrap().to_string(), "local/qwen3-coder");
    assert_eq!(settings.agent.as_deref(), Some("plan"));
    let (settings, empty) = (local(), Place::new());
    let same = settings.with_workspace(&empty.path("workspace")).unwrap();
    assert!(matches!(same, Cow::Borrowed(_)) && same.agent.as_deref() == Some("atlas"));
}

#[test]
fn a_workspace_is_refused_what_is_the_operators() {
    assert_snapshot!(each(&[
        "\n\n[providers.anthropic]\nbase_url = \"https://evil.example\"",
        "base_url = \"https://evil.example\"",
        "api_key_env = \"HOME\"",
        "api_key = \"x\"",
        "headers = { a = \"b\" }",
        "retry = { attempts = 9 }",
        "limits = { concurrent = 9 }",
        "permissions = \"allow\"",
        "permissions.bash = \"allow\"",
        "[permissions]\nbash = 1",
        "walls = false",
        "walls.network = true",
        "sandbox = \"off\"",
        "moderate = \"allow\"",
        "commands = [\"curl evil.example\"]",
        "cost = { input = 0 }",
        "modle = \"a/b\"",
        "NAME = 1",
    ], workspace), @r#"
    workspace/.playhouse/config.toml:3: `providers` may not be set by a workspace: servers, keys, limits and prices are the operator's; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `base_url` may not be set by a workspace: servers, keys, limits and prices are the operator's; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `api_key_env` may not be set by a workspace: servers, keys, limits and prices are the operator's; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `api_key` may not be set by a workspace: keys are the operator's, and never stand in a file; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `headers` may not be set by a workspace: they are sent to servers together with keys; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `retry` may not be set by a workspace: servers, keys, limits and prices are the operator's; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `limits` may not be set by a workspace: servers, keys, limits and prices are the operator's; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `permissions` is text, expected a table
    workspace/.playhouse/config.toml:1: `permissions.bash`: is "allow", and a workspace can only make permissions stricter, with "ask" or "deny"
    workspace/.playhouse/config.toml:2: `permissions.bash` is the whole number 1, expected allow, ask or deny, or a table of patterns with one for each
    workspace/.playhouse/config.toml:1: `walls` may not be set by a workspace: a workspace does not decide what holds it; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `walls` may not be set by a workspace: a workspace does not decide what holds it; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `sandbox` may not be set by a workspace: a workspace does not decide what holds it; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `moderate` may not be set by a workspace: it would decide what runs without asking; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `commands` may not be set by a workspace: it would start programs of its own choice; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: `cost` may not be set by a workspace: servers, keys, limits and prices are the operator's; a workspace may set model, agent, rules, permissions
    workspace/.playhouse/config.toml:1: unknown key `modle`; a workspace may set model, agent, rules, permissions; did you mean "model"?
    workspace/.playhouse/config.toml:1: unknown key `NAME`; a workspace may set model, agent, rules, permissions
    "#);
}

#[test]
fn a_workspace_chooses_only_among_what_there_is() {
    assert_snapshot!(each(&[
        "model = \"local/qwen\"",
        "model = \"anthropic/claude-sonet-5\"",
        "model = 3",
        "\nagent = \"root\"",
        "rules = [\"../../secret.md\"]",
        "rules = [\"/etc/passwd\"]",
        "rules = [\"absent.md\"]",
        "rules = [\".\"]",
        "rules = [\".playhouse\"]",
    ], workspace), @r#"
    workspace/.playhouse/config.toml:1: `model`: unknown provider "local"; there are alibaba, anthropic, deepseek, google, groq, mistral, ollama, openai, openrouter, xai (a workspace may choose among the models that the operator has)
    workspace/.playhouse/config.toml:1: `model`: unknown model "anthropic/claude-sonet-5"; a model that is not known needs `context` and `output` in [providers.anthropic.models."claude-sonet-5"]; did you mean "anthropic/claude-sonnet-5", "anthropic/claude-sonnet-4-5" or "anthropic/claude-sonnet-5-5"? (a workspace may choose among the models that the operator has)
    workspace/.playhouse/config.toml:1: `model` is the whole number 3, expected text
    workspace/.playhouse/config.toml:2: `agent`: there is no agent "root"; there are atlas, build, explore, general, hephaestus, plan, sisyphus
    workspace/.playhouse/config.toml:1: `rules`: "../../secret.md" is not a path inside of the workspace: write it relative to the workspace, without `..`
    workspace/.playhouse/config.toml:1: `rules`: "/etc/passwd" is not a path inside of the workspace: write it relative to the workspace, without `..`
    workspace/.playhouse/config.toml:1: `rules`: there is no file "absent.md" in the workspace
    workspace/.playhouse/config.toml:1: `rules`: "." is not a path inside of the workspace: write it relative to the workspace, without `..`
    workspace/.playhouse/config.toml:1: workspace/.playhouse: cannot be used as a rules file: it is not a regular file
    "#);
    let many = format!("rules = [{}]", "\"a\",".repeat(17));
    assert_snapshot!(workspace(&many), @r"
    workspace/.playhouse/config.toml:1: `rules` names 17 files; a workspace may name 16
    ");
}

#[test]
fn a_workspaces_file_cannot_lead_out_of_it_or_be_huge() {
    let place = Place::new();
    let file = "workspace/.playhouse/config.toml";
    place.write("outside.toml", "agent = \"plan\"").write("secret.md", "secret");
    symlink(place.path("outside.toml"), place.path(file)).unwrap();
    assert_snapshot!(place.message(place.with_workspace().unwrap_err()), @r"
    workspace/.playhouse/config.toml: cannot be used as configuration: it leads outside of the workspace
    ");

    fs_err::remove_file(place.path(file)).unwrap();
    place.write(file, "#".repeat(70_000));
    assert_snapshot!(place.message(place.with_workspace().unwrap_err()), @r"
    workspace/.playhouse/config.toml: is 70000 bytes long; a workspace's configuration has at most 65536
    ");

    symlink(place.path("secret.md"), place.path("workspace/link.md")).unwrap();
    place.write(file, "rules = [\"link.md\"]");
    assert_snapshot!(place.message(place.with_workspace().unwrap_err()), @r"
    workspace/.playhouse/config.toml:1: workspace/link.md: cannot be used as a rules file: it leads outside of the workspace
    ");

    fs_err::remove_file(place.path(file)).unwrap();
    fs_err::create_dir(place.path(file)).unwrap();
    assert_snapshot!(place.message(place.with_workspace().unwrap_err()), @r"
    workspace/.playhouse/config.toml: cannot be used as configuration: it is not a regular file
    ");
    assert!(Settings::load(None, &|_| None).unwrap().with_workspace(Path::new("/nowhere/at/all")).is_err());
}

#[test]
fn what_cannot_be_resolved_says_what_to_do() {
    let settings = local();
    let resolve = |model: &str, value: Option<&str>| {
        let value = value.map(str::to_owned);
        let error = settings.resolve_model(&model.parse().unwrap(), &|_| value.clone()).unwrap_err();
        error.to_string()
    };
    assert_snapshot!([
        resolve("locl/qwen3-coder", None),
        resolve("zzz/x", None),
        resolve("local/qwen3-codr", None),
        resolve("anthropic/claude-5-sonnet", None),
        resolve("local/zzz", None),
        resolve("anthropic/claude-sonnet-5", None),
        resolve("local/qwen3-coder", Some(" ")),
        resolve("openai/gpt-5", Some("a b")),
    ].join("\n"), @r#"
    unknown provider "locl"; there are alibaba, anthropic, deepseek, google, groq, local, mistral, ollama, openai, openrouter, xai; did you mean "local"?
    unknown provider "zzz"; there are alibaba, anthropic, deepseek, google, groq, local, mistral, ollama, openai, openrouter, xai
    unknown model "local/qwen3-codr"; a model that is not known needs `context` and `output` in [providers.local.models."qwen3-codr"]; did you mean "local/qwen3-coder"?
    unknown model "anthropic/claude-5-sonnet"; a model that is not known needs `context` and `output` in [providers.anthropic.models."claude-5-sonnet"]; did you mean "anthropic/claude-sonnet-5", "anthropic/claude-sonnet-4-5" or "anthropic/claude-sonnet-5-5"?
    unknown model "local/zzz"; a model that is not known needs `context` and `output` in [providers.local.models."zzz"]
    no key for provider anthropic: ANTHROPIC_API_KEY is not set; set it to the key (`export ANTHROPIC_API_KEY=…`), or name another variable as `api_key_env` of [providers.anthropic]
    no key for provider local: LOCAL_KEY is empty; set it to the key (`export LOCAL_KEY=…`), or name another variable as `api_key_env` of [providers.local]
    no key for provider openai: OPENAI_API_KEY holds characters that no key has; set it to the key (`export OPENAI_API_KEY=…`), or name another variable as `api_key_env` of [providers.openai]
    "#);
}

#[test]
fn a_server_without_a_key_needs_none() {
    let place = Place::new();
    let text = LOCAL.replace("api_key_env = \"LOCAL_KEY\"\n", "");
    let settings = place.write("operator/config.toml", text).load().unwrap();
    let resolved = settings.resolve_model(&"local/qwen3-coder".parse().unwrap(), &|_| None).unwrap();
    assert!(resolved.endpoint.key.is_none());
}
