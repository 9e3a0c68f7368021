//! The built-in providers, each on its own wire; keys, headers and retries on their way to a server.

use std::sync::Arc;

use mock_llm::{Dialect as Wire, Fault, Model, Script, text};
use playhouse::config::Settings;
use playhouse::protocol::{ErrorInfo, NewSession, Prompt};
use playhouse::{Credentials, House};
use secrecy::SecretString;

use crate::stage::{Dialect, Ended, Stage, finish};
use crate::tap::Tap;

/// A built-in provider as its users meet it.
struct Provider {
    model: &'static str,
    /// The variable that says where it is, and what comes after the host.
    address: (&'static str, &'static str),
    /// The variable that holds its key.
    key: Option<&'static str>,
    /// The header that the key goes out in, and what stands before it there.
    header: (&'static str, &'static str),
    /// Where the request arrives.
    path: &'static str,
    wire: Wire,
}

const BEARER: (&str, &str) = ("authorization", "Bearer ");
const CHAT: (&str, Wire) = ("/v1/chat/completions", Wire::OpenaiChat);

const fn chat(model: &'static str, variable: &'static str, key: &'static str) -> Provider {
    let (path, wire) = CHAT;
    Provider { model, address: (variable, "/v1"), key: Some(key), header: BEARER, path, wire }
}

fn providers() -> [Provider; 13] {
    let anthropic = Provider {
        model: "anthropic/claude-sonnet-5",
        address: ("ANTHROPIC_BASE_URL", ""),
        key: Some("ANTHROPIC_API_KEY"),
        header: ("x-api-key", ""),
        path: "/v1/messages",
        wire: Wire::Anthropic,
    };
    let google = Provider {
        model: "google/gemini-2.5-flash",
        address: ("GOOGLE_GEMINI_BASE_URL", ""),
        key: Some("GEMINI_API_KEY"),
        header: ("x-goog-api-key", ""),
        path: "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
        wire: Wire::Gemini,
    };
    let openai = chat("openai/gpt-5.2", "OPENAI_BASE_URL", "OPENAI_API_KEY");
    let groq = chat("groq/openai/gpt-oss-20b", "GROQ_BASE_URL", "GROQ_API_KEY");
    let ollama = chat("ollama/qwen3-coder:30b", "OLLAMA_HOST", "");
    [
        Provider { key: Some("ANTHROPIC_AUTH_TOKEN"), header: BEARER, ..anthropic },
        anthropic,
        Provider {
            model: "openai/gpt-5.3-codex",
            path: "/v1/responses",
            wire: Wire::OpenaiResponses,
            ..openai
        },
        openai,
        Provider { key: Some("GOOGLE_API_KEY"), ..google },
        google,
        chat("openrouter/z-ai/glm-5.2", "OPENROUTER_BASE_URL", "OPENROUTER_API_KEY"),
        chat("mistral/mistral-small-latest", "MISTRAL_BASE_URL", "MISTRAL_API_KEY"),
        Provider { address: ("GROQ_BASE_URL", ""), path: "/openai/v1/chat/completions", ..groq },
        chat("deepseek/deepseek-v4-flash", "DEEPSEEK_BASE_URL", "DEEPSEEK_API_KEY"),
        chat("xai/grok-4.3", "XAI_BASE_URL", "XAI_API_KEY"),
        chat("alibaba/qwen3-coder-plus", "DASHSCOPE_BASE_URL", "DASHSCOPE_API_KEY"),
        Provider { address: ("OLLAMA_HOST", ""), key: None, ..ollama },
    ]
}

/// The name of a model without its provider.
fn bare(model: &str) -> &str {
    model.split_once('/').unwrap().1
}

#[test]
fn every_builtin_provider_is_reached_with_its_own_variables() {
    std::thread::scope(|scope| {
        for provider in providers() {
            scope.spawn(move || {
                let model = bare(provider.model);
                let script =
                    Script::new().model(model, Model::new().step(text("Hello from the other side.")));
                let stage = Stage::speaking(Dialect::OpenaiChat, script);
                stage.configure(
                    "[providers.ollama.models.\"qwen3-coder:30b\"]\ncontext = 65536\noutput = 8192",
                );
                let tap = Tap::before(&stage.url());
                let mut command = stage.command(["run", "-m", provider.model, "Go."]);
                let (variable, path) = provider.address;
                command.env(variable, format!("{}{path}", tap.url()));
                if let Some(key) = provider.key {
                    command.env(key, "key-123456789");
                }
                let ended = finish(command).is(0);
                assert_eq!(ended.stdout, "Hello from the other side.\n", "{}", provider.model);
                let [asked] = &stage.asked()[..] else { panic!("{}", provider.model) };
                assert_eq!(asked.path.split('?').next(), Some(provider.path), "{}", provider.model);
                assert_eq!(asked.dialect, Some(provider.wire), "{}", provider.model);
                assert_eq!(asked.model.as_deref(), Some(model));
                let (header, before) = provider.header;
                let expected: Vec<String> =
                    provider.key.map(|_| format!("{before}key-123456789")).into_iter().collect();
                assert_eq!(tap.header(header), expected, "{}", provider.model);
                assert_eq!(tap.heard().matches("key-123456789").count(), expected.len(), "it goes out once");
                if provider.key.is_some() {
                    missing_key(&stage, &provider);
                }
            });
        }
    });
}

/// Without its key a provider is not asked, and the variable is named.
fn missing_key(stage: &Stage, provider: &Provider) {
    let ended = stage.run(["-m", provider.model, "Go."]).is(2);
    let name = provider.model.split('/').next().unwrap();
    ended.says([&format!("no key for provider {name}: "), " is not set"]);
}

#[test]
fn openai_is_asked_on_the_wire_that_is_chosen() {
    let stage = Stage::speaking(Dialect::OpenaiChat, Script::new().model("gpt-5.4", Model::new()));
    stage.configure("[providers.openai]\ndialect = \"openai-responses\"");
    let mut command = stage.command(["run", "-m", "openai/gpt-5.4", "Go."]);
    command.env("OPENAI_BASE_URL", format!("{}/v1", stage.url())).env("OPENAI_API_KEY", "k");
    finish(command).is(0);
    assert_eq!(stage.asked()[0].dialect, Some(Wire::OpenaiResponses));
    assert!(stage.requests()[0]["prompt_cache_key"].as_str().unwrap().starts_with("ses_"));
}

/// Runs `local/m` through a tap, with lines at the end of its configuration.
fn tapped(model: Model, lines: &str, variables: &[(&str, &str)]) -> (Stage, Tap, Ended) {
    let stage = Stage::new(model);
    let tap = Tap::before(&stage.url());
    let text = fs_err::read_to_string(&stage.config).unwrap().replace(&stage.url(), tap.url());
    fs_err::write(&stage.config, text).unwrap();
    stage.configure(lines);
    let mut command = stage.command(["run", "Go."]);
    command.envs(variables.iter().copied());
    let ended = finish(command);
    (stage, tap, ended)
}

#[test]
fn configured_headers_arrive_and_a_missing_one_is_named() {
    let lines = "[providers.local.headers]\n\"X-Org\" = \"blue team\"\nx-pass = { env = \"PASS\" }";
    let (_, tap, ended) = tapped(Model::new(), lines, &[("PASS", "pass-123456")]);
    ended.is(0);
    assert_eq!(tap.header("x-org"), ["blue team"]);
    assert_eq!(tap.header("x-pass"), ["pass-123456"]);
    let (stage, _, ended) = tapped(Model::new(), lines, &[]);
    ended.is(2).says(["no header x-pass for provider local: PASS is not set"]);
    assert!(stage.asked().is_empty());
}

/// Where nobody has a name, so that only a proxy leads there.
#[test]
fn a_proxy_of_the_environment_is_asked_unless_the_provider_is_excepted() {
    let stage = Stage::new(Model::new().step(text("Hello through the proxy.")));
    let tap = Tap::before(&stage.url());
    let far = fs_err::read_to_string(&stage.config).unwrap().replace(&stage.url(), "http://model.invalid");
    fs_err::write(&stage.config, far).unwrap();
    stage.configure("[retry]\nattempts = 1");
    let through = |variables: &[(&str, &str)]| {
        let mut command = stage.command(["run", "Go."]);
        command.envs(variables.iter().copied());
        finish(command)
    };
    let proxy = format!("http://ada:secret@{}", tap.url().trim_start_matches("http://"));
    let ended = through(&[("HTTP_PROXY", &proxy)]).is(0);
    assert_eq!(ended.stdout, "Hello through the proxy.\n");
    assert!(tap.heard().starts_with("POST http://model.invalid/v1/chat/completions HTTP/1.1\r\n"));
    assert_eq!(tap.header("proxy-authorization"), ["Basic YWRhOnNlY3JldA=="]);
    let ended = through(&[("HTTP_PROXY", &proxy), ("NO_PROXY", "model.invalid")]).is(1);
    ended.says(["model.invalid/v1/chat/completions: its name was not found"]);
    assert_eq!(stage.asked().len(), 1);
}

#[test]
fn retries_are_as_configured() {
    let model = || Model::new().step(text("x").fault(Fault::status(500)));
    let (stage, _, ended) = tapped(model(), "[retry]\nattempts = 2\nbase_ms = 1", &[]);
    ended.is(1);
    assert_eq!(stage.asked().len(), 2);
    let (stage, _, ended) = tapped(model(), "[retry]\nattempts = 1", &[]);
    ended.is(1);
    assert_eq!(stage.asked().len(), 1);
}

#[test]
fn what_a_model_is_told_is_as_configured() {
    let lines = "reasoning = \"high\"\ntemperature = 0.25\ntop_p = 0.5";
    let (stage, _, ended) = tapped(Model::new(), lines, &[]);
    ended.is(0);
    let request = &stage.requests()[0];
    assert_eq!(request["reasoning_effort"], "high");
    assert_eq!((request["temperature"].as_f64(), request["top_p"].as_f64()), (Some(0.25), Some(0.5)));
}

/// A platform with a key for each tenant.
struct Vault;

impl Credentials for Vault {
    fn key(&self, tenant: &str, provider: &str) -> Result<Option<SecretString>, ErrorInfo> {
        Ok(Some(SecretString::from(format!("{provider}-key-of-{tenant}"))))
    }
}

#[test]
fn the_key_that_arrives_is_the_tenants() {
    let stage = Stage::speaking(Dialect::OpenaiChat, Script::new().model("gpt-5.4", Model::new()));
    let tap = Tap::before(&stage.url());
    let url = format!("{}/v1", tap.url());
    let settings = Settings::load(None, &|name| (name == "OPENAI_BASE_URL").then(|| url.clone())).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let house = House::builder(settings)
            .variables(|_| Some("key-of-the-house".to_owned()))
            .credentials(Arc::new(Vault))
            .start()
            .await
            .unwrap();
        for tenant in ["acme", "globex"] {
            let new = NewSession {
                model: Some("openai/gpt-5.4".parse().unwrap()),
                unattended: true,
                ..NewSession::new(tenant, stage.workspace.to_string_lossy())
            };
            let session = house.engine().create(new).await.unwrap();
            let finished = session.run(Prompt::text("Go.")).await.unwrap();
            assert_eq!(finished.ended.outcome.to_string(), "completed");
        }
        house.shutdown().await;
    });
    assert_eq!(tap.header("authorization"), ["Bearer openai-key-of-acme", "Bearer openai-key-of-globex"]);
}
