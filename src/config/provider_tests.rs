//! Providers: what is built in, what a file changes, which key goes out and how.

use insta::assert_snapshot;
use playhouse_catalogue::{Catalogue, Source};
use playhouse_llm::{
    CallIdForm, ChatFacts, Connections, Credentials as _, DialectKind, Http2, OutputLimitField, Quota,
    ReasoningWords, UsageConvention,
};
use playhouse_prompts::Reasoning;
use playhouse_protocol::capability::ReasoningField;
use playhouse_session::RetryPolicy;
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::*;

/// The settings of a file with this text.
fn settings(text: &str) -> Settings {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs_err::write(&file, text).unwrap();
    Settings::load(Some(&file), &|_| None).unwrap()
}

fn resolve(
    settings: &Settings,
    model: &str,
    variables: &[(&str, &str)],
) -> Result<ResolvedModel, ConfigError> {
    let read = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    settings.resolve_model(&model.parse().unwrap(), &read)
}

/// The headers of a model's endpoint, opened.
fn headers(resolved: &ResolvedModel) -> Vec<(String, String)> {
    let open =
        |(name, value): &(String, secrecy::SecretString)| (name.clone(), value.expose_secret().to_owned());
    resolved.endpoint.headers.iter().map(open).collect()
}

#[test]
fn a_key_of_anthropic_goes_out_in_its_own_header_and_a_token_as_bearer() {
    let settings = settings("");
    let model = "anthropic/claude-sonnet-5";
    let key =
        resolve(&settings, model, &[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "t")]).unwrap();
    assert_eq!(key.endpoint.key.as_ref().unwrap().expose_secret(), "k");
    assert_eq!(headers(&key), []);

    let token =
        resolve(&settings, model, &[("ANTHROPIC_API_KEY", " "), ("ANTHROPIC_AUTH_TOKEN", "t\n")]).unwrap();
    assert!(token.endpoint.key.is_none());
    assert_eq!(headers(&token), [("authorization".to_owned(), "Bearer t".to_owned())]);
    assert_eq!(token.endpoint.key_variable.as_deref(), Some("ANTHROPIC_AUTH_TOKEN"));
    assert!(!format!("{token:?}").contains("Bearer t"));
}

#[test]
fn the_first_variable_that_is_set_counts() {
    let settings = settings("");
    let key = |variables: &[(&str, &str)]| {
        let resolved = resolve(&settings, "google/gemini-2.5-pro", variables);
        resolved.map(|resolved| resolved.endpoint.key.unwrap().expose_secret().to_owned())
    };
    assert_eq!(key(&[("GOOGLE_API_KEY", "b")]).unwrap(), "b");
    assert_eq!(key(&[("GEMINI_API_KEY", "a"), ("GOOGLE_API_KEY", "b")]).unwrap(), "a");
    assert_snapshot!(key(&[]).unwrap_err(), @"no key for provider google: GEMINI_API_KEY is not set; set it to the key (`export GEMINI_API_KEY=…`), or name another variable as `api_key_env` of [providers.google]");
}

#[test]
fn ollama_needs_no_key_and_its_models_must_be_told() {
    let settings =
        settings("[providers.ollama.models.\"qwen3-coder:30b\"]\ncontext = 65536\noutput = 8192\n");
    let resolved = resolve(&settings, "ollama/qwen3-coder:30b", &[]).unwrap();
    assert!(resolved.endpoint.key.is_none());
    assert_eq!(resolved.endpoint.base_url, "http://127.0.0.1:11434/v1");
    assert!(resolve(&settings, "ollama/other", &[]).is_err());
}

#[test]
fn models_that_need_responses_are_asked_there() {
    let key = &[("OPENAI_API_KEY", "k")];
    let dialect = |text: &str, model: &str| resolve(&settings(text), model, key).unwrap().endpoint.dialect;
    assert_eq!(dialect("", "openai/gpt-5.2"), DialectKind::OpenaiChat);
    assert_eq!(dialect("", "openai/gpt-5.3-codex"), DialectKind::OpenaiResponses);
    assert_eq!(dialect("", "openai/gpt-5.4"), DialectKind::OpenaiResponses);
    let chosen = "[providers.openai]\ndialect = \"openai-responses\"";
    assert_eq!(dialect(chosen, "openai/gpt-5.2"), DialectKind::OpenaiResponses);
    let chosen = "[providers.openai]\ndialect = \"openai-chat\"";
    assert_eq!(dialect(chosen, "openai/gpt-5.3-codex"), DialectKind::OpenaiChat);
}

#[test]
fn tokens_are_counted_as_the_provider_does_if_nothing_else_is_said() {
    let usage = |text: &str, model: &str| {
        let keys = &[("XAI_API_KEY", "k"), ("DEEPSEEK_API_KEY", "k")];
        resolve(&settings(text), model, keys).unwrap().endpoint.usage
    };
    assert_eq!(usage("", "xai/grok-4.3"), UsageConvention::XaiChat);
    assert_eq!(usage("", "deepseek/deepseek-v4-pro"), UsageConvention::DeepseekChat);
    let gateway = "[providers.gate]\ndialect = \"openai-chat\"\nbase_url = \"http://a/v1\"\nusage = \"xai-chat\"\n\
                   [providers.gate.models.m]\ncontext = 9\noutput = 1\n";
    assert_eq!(usage(gateway, "gate/m"), UsageConvention::XaiChat);
    let plain = gateway.replace("usage = \"xai-chat\"\n", "");
    assert_eq!(usage(&plain, "gate/m"), UsageConvention::OpenaiChat);
}

#[test]
fn what_a_provider_refuses_is_not_sent_to_it() {
    let settings = settings("");
    let chat = |provider: &str| settings.providers[provider].chat;
    let usual = ChatFacts::USUAL;
    assert_eq!(
        chat("mistral"),
        ChatFacts {
            stream_options: false,
            call_ids: CallIdForm::NineAlphanumeric,
            user_after_results: false,
            ..usual
        }
    );
    assert_eq!(
        chat("deepseek"),
        ChatFacts { reasoning_field: Some(ReasoningField::ReasoningContent), ..usual }
    );
    let openrouter = chat("openrouter");
    assert_eq!(openrouter.reasoning_field, Some(ReasoningField::ReasoningDetails));
    assert_eq!(openrouter.reasoning_words, ReasoningWords::Object);
    assert_eq!(chat("alibaba"), ChatFacts { reasoning_words: ReasoningWords::ThinkingBudget, ..usual });
    let renamed = ChatFacts { output_limit_field: OutputLimitField::MaxCompletionTokens, ..usual };
    for (provider, expected) in [("openai", renamed), ("groq", renamed), ("xai", renamed), ("ollama", usual)]
    {
        assert_eq!(chat(provider), expected, "{provider}");
    }
}

#[test]
fn a_cache_key_goes_where_it_is_known() {
    let keys =
        &[("OPENAI_API_KEY", "k"), ("MISTRAL_API_KEY", "k"), ("XAI_API_KEY", "k"), ("GROQ_API_KEY", "k")];
    let cache_key = |text: &str, model: &str| {
        resolve(&settings(text), model, keys).map(|resolved| resolved.cache_key).unwrap()
    };
    assert!(cache_key("", "openai/gpt-5.4") && cache_key("", "mistral/mistral-large-latest"));
    assert!(cache_key("", "openai/gpt-5.3-codex"), "on Responses, too");
    assert!(!cache_key("", "groq/openai/gpt-oss-20b") && !cache_key("", "xai/grok-4.3"));
    assert!(cache_key("[providers.xai]\ndialect = \"openai-responses\"", "xai/grok-4.3"));
}

#[test]
fn times_are_those_of_every_provider() {
    let text = "[timeouts]\nconnect_ms = 1\nhead_ms = 2\nsilence_ms = 3\nattempt_ms = 4\n";
    let resolved = resolve(&settings(text), "openai/gpt-5.4", &[("OPENAI_API_KEY", "k")]).unwrap();
    let times = [
        resolved.endpoint.connections.connect,
        resolved.limits.head,
        resolved.limits.silence,
        resolved.limits.attempt,
    ];
    assert_eq!(times.map(|time| time.as_millis()), [1, 2, 3, 4]);
}

#[test]
fn connections_and_facts_of_a_server_are_carried_over() {
    let gate = "[providers.gate]\ndialect = \"openai-chat\"\nbase_url = \"http://a/v1\"\n\
                [providers.gate.models.m]\ncontext = 9\noutput = 1\n";
    let plain = resolve(&settings(gate), "gate/m", &[]).unwrap();
    assert_eq!((plain.endpoint.connections, plain.chat), (Connections::default(), ChatFacts::USUAL));
    let text = gate.replace(
        "[providers.gate.models.m]",
        "http2 = \"prior-knowledge\"\nlimits = { streams_per_connection = 30 }\nstream_options = false\n\
         reasoning_content = true\ncall_ids = \"nine-alphanumeric\"\nuser_after_results = false\n\
         [providers.gate.models.m]",
    );
    let tuned = resolve(&settings(&text), "gate/m", &[]).unwrap();
    let connections = Connections { http2: Http2::PriorKnowledge, streams: 30, ..Connections::default() };
    assert_eq!(tuned.endpoint.connections, connections);
    assert_eq!(
        tuned.chat,
        ChatFacts {
            stream_options: false,
            reasoning_field: Some(ReasoningField::ReasoningContent),
            call_ids: CallIdForm::NineAlphanumeric,
            user_after_results: false,
            ..ChatFacts::USUAL
        }
    );
    let file = "[providers.mistral]\ncall_ids = \"usual\"";
    let mistral = settings(file).providers["mistral"].chat;
    let rest = ChatFacts { stream_options: false, user_after_results: false, ..ChatFacts::USUAL };
    assert_eq!(mistral, rest, "the rest stays");
}

const TUNED: &str = r#"
[retry]
attempts = 2
base_ms = 10
longest_ms = 20
total_ms = 30
[providers.openrouter]
headers = { "X-Org" = "blue team", x-pass = { env = "PASS" } }
limits = { concurrent = 3, requests_per_minute = 60, tokens_per_minute = 90_000 }
[providers.openrouter.models."z-ai/glm-5.2"]
reasoning = "high"
[providers.openrouter.models."qwen/qwen3-coder"]
reasoning = 2000
temperature = 0.3
top_p = 0.9
"#;

#[test]
fn headers_limits_and_preferences_are_carried_over() {
    let settings = settings(TUNED);
    assert_eq!(settings.engine.retry, RetryPolicy { attempts: 2, base_ms: 10, longest_ms: 20, total_ms: 30 });
    let variables = &[("OPENROUTER_API_KEY", "k"), ("PASS", " secret \n")];
    let resolved = resolve(&settings, "openrouter/qwen/qwen3-coder", variables).unwrap();
    let expected = [("x-org", "blue team"), ("x-pass", "secret"), ("x-title", "Playhouse")];
    assert_eq!(headers(&resolved), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let quota = Quota { concurrent: 3, requests_per_minute: Some(60), tokens_per_minute: Some(90_000) };
    assert_eq!(resolved.quota, quota);
    assert_eq!(
        resolved.preferences,
        ModelPreferences {
            reasoning: Some(Reasoning::Budget(2_000.try_into().unwrap())),
            temperature: Some(0.3),
            top_p: Some(0.9),
        }
    );
    assert!(resolved.facts.reasoning, "whoever sets it knows that the model can");
    assert_eq!(resolved.facts.context, 262_144, "the rest is known");
    assert!(!format!("{settings:?} {resolved:?}").contains("secret"));
}

#[test]
fn a_header_without_its_variable_is_named() {
    let error = |variables: &[(&str, &str)]| {
        let variables = [&[("OPENROUTER_API_KEY", "k")], variables].concat();
        resolve(&settings(TUNED), "openrouter/z-ai/glm-5.2", &variables).unwrap_err().to_string()
    };
    assert_snapshot!([error(&[]), error(&[("PASS", " ")]), error(&[("PASS", "a\nb")])].join("\n"), @r"
    no header x-pass for provider openrouter: PASS is not set
    no header x-pass for provider openrouter: PASS is empty
    no header x-pass for provider openrouter: PASS holds characters that no header can carry
    ");
}

#[test]
fn a_header_of_the_file_stands_before_a_token() {
    let settings = settings("[providers.anthropic]\nheaders = { authorization = { env = \"GATE\" } }");
    let variables = &[("ANTHROPIC_AUTH_TOKEN", "t"), ("GATE", "Basic x")];
    let resolved = resolve(&settings, "anthropic/claude-sonnet-5", variables).unwrap();
    assert_eq!(headers(&resolved), [("authorization".to_owned(), "Basic x".to_owned())]);
}

#[test]
fn the_environments_keys_are_the_same_for_every_tenant() {
    let read = |name: &str| (name == "OPENAI_API_KEY").then(|| "k".to_owned());
    let credentials = EnvironmentCredentials::new(&settings(""), read);
    for tenant in ["acme", "globex"] {
        assert_eq!(credentials.key(tenant, "openai").unwrap().unwrap().expose_secret(), "k");
    }
    assert!(credentials.key("acme", "ollama").unwrap().is_none());
    assert!(credentials.key("acme", "nobody").unwrap().is_none());
    let error = credentials.key("acme", "groq").unwrap_err();
    assert!(error.message.starts_with("no key for provider groq: GROQ_API_KEY is not set"), "{error:?}");
}

/// A folder with a configuration that may be absent, and a catalogue.
fn with_catalogue(text: &str) -> (TempDir, Result<Settings, ConfigError>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs_err::write(&file, "[providers.acme]\ndialect = \"openai-chat\"\nbase_url = \"http://a/v1\"").unwrap();
    fs_err::write(folder.path().join(CATALOGUE_FILE), text).unwrap();
    let settings = Settings::load(Some(&file), &|_| None);
    (folder, settings)
}

#[test]
fn a_catalogue_that_was_kept_is_found_again() {
    let json = r#"{"acme": {"models": {
        "one": {"limit": {"context": 1000, "output": 100}, "cost": {"input": 1, "output": 2}},
        "mute": {"limit": {"context": 0, "output": 0}}
    }}}"#;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("deep/config.toml");
    let file = Settings::catalogue_file(Some(&config), &|_| None).unwrap();
    assert_eq!(file, folder.path().join("deep").join(CATALOGUE_FILE));
    for _ in 0..2 {
        keep_catalogue(&file, &Catalogue::read(json).unwrap()).unwrap();
    }
    let (_folder, settings) = with_catalogue(&fs_err::read_to_string(&file).unwrap());
    let settings = settings.unwrap();
    let resolved = resolve(&settings, "acme/one", &[]).unwrap();
    assert_eq!(resolved.facts.context, 1_000);
    assert_eq!(settings.catalogue.now().source(&"acme/one".parse().unwrap()), Some(Source::Loaded));
    assert_snapshot!(resolve(&settings, "acme/mute", &[]).unwrap_err(), @r#"unknown model "acme/mute": the catalogue does not tell how much it reads or writes; set `context` and `output` in [providers.acme.models."mute"]"#);
}

#[test]
fn a_catalogue_that_changes_is_read_again_with_what_is_configured_on_top() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let text = "[providers.acme]\ndialect = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
                [providers.acme.models.one]\ncost.output = 7\n";
    fs_err::write(&config, text).unwrap();
    let file = folder.path().join(CATALOGUE_FILE);
    let keep = |context: u64, price: u64| {
        let json = format!(
            r#"{{"acme": {{"models": {{"one": {{"limit": {{"context": {context}, "output": 5}}, "cost": {{"input": {price}, "output": 1}}}}}}}}}}"#
        );
        keep_catalogue(&file, &Catalogue::read(&json).unwrap()).unwrap();
    };
    keep(1_000, 3);
    let settings = Settings::load(Some(&config), &|_| None).unwrap();
    let known = || {
        let facts = settings.catalogue.now().get(&"acme/one".parse().unwrap()).unwrap().clone();
        let number = |price: Option<rust_decimal::Decimal>| price.unwrap().to_string();
        (facts.context, number(facts.prices.usual.input), number(facts.prices.usual.output))
    };
    assert_eq!(known(), (1_000, "3".to_owned(), "7".to_owned()));
    keep(2_000, 4);
    let new = (2_000, "4".to_owned(), "7".to_owned());
    assert_eq!(known(), new);
    // One that cannot be used, or that lacks what the configuration counts on, changes nothing.
    fs_err::write(&file, "{").unwrap();
    assert_eq!(known(), new);
    fs_err::remove_file(&file).unwrap();
    assert_eq!(known(), new);
    keep(3_000, 4);
    assert_eq!(known().0, 3_000);
}

#[test]
fn a_catalogue_that_cannot_be_used_is_named() {
    for (text, says) in [
        ("{}", "not a catalogue that `playhouse models update` wrote"),
        (r#"{"format":"playhouse-models","version":9}"#, "catalogue version 9, this program reads version 3"),
    ] {
        let (folder, settings) = with_catalogue(text);
        let error = settings.unwrap_err().to_string();
        let file = folder.path().join(CATALOGUE_FILE);
        assert!(error.starts_with(&format!("{}: {says}", file.display())), "{error}");
    }
}
