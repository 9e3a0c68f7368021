//! What a request is made of: whose key, which limiter, what the model is told.

use std::path::Path;
use std::sync::Arc;

use mock_llm::{Mock, Script};
use playhouse_actors::{Directory as _, Profile, ProfileRequest};
use playhouse_llm::{Credentials, DialectKind, Reasoning};
use playhouse_protocol::capability::Effort;
use playhouse_protocol::{ErrorCode, ErrorInfo, SessionId, Timestamp};
use playhouse_tools::Registry;
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;

use crate::config::Settings;
use crate::directory::SettingsDirectory;

/// A key for each tenant but one.
struct Vault;

impl Credentials for Vault {
    fn key(&self, tenant: &str, provider: &str) -> Result<Option<SecretString>, ErrorInfo> {
        match tenant {
            "poor" => Ok(None),
            "banned" => Err(ErrorInfo::new(ErrorCode::QuotaExceeded, "banned has not paid")),
            _ => Ok(Some(SecretString::from(format!("{provider}-key-of-{tenant}")))),
        }
    }
}

/// A directory over a configuration and agents, and a workspace.
struct Place {
    directory: SettingsDirectory,
    workspace: TempDir,
}

impl Place {
    fn new(config: &str, agents: &[(&str, &str)], credentials: Option<Arc<dyn Credentials>>) -> Self {
        let operator = tempfile::tempdir().unwrap();
        let file = operator.path().join("config.toml");
        fs_err::write(&file, config).unwrap();
        fs_err::create_dir(operator.path().join("agents")).unwrap();
        for (name, text) in agents {
            fs_err::write(operator.path().join("agents").join(name), text).unwrap();
        }
        let settings = Settings::load(Some(&file), &|_| None).unwrap();
        let variables = |name: &str| (name == "OPENAI_API_KEY").then(|| "key-of-the-house".to_owned());
        let registry = Registry::native();
        let directory = SettingsDirectory::new(
            settings,
            Arc::new(variables),
            credentials,
            Mock::new(Script::new()),
            |allowed| registry.specs(allowed),
        );
        Self { directory, workspace: tempfile::tempdir().unwrap() }
    }

    fn profile(&self, tenant: &str, agent: &str, model: &str) -> Result<Profile, ErrorInfo> {
        self.directory.profile(&ProfileRequest {
            session: session(),
            tenant: tenant.to_owned(),
            workspace: self.workspace.path().to_string_lossy().into_owned(),
            agent: agent.to_owned(),
            model: model.parse().unwrap(),
            created: Timestamp::from_millis(0),
        })
    }
}

fn session() -> SessionId {
    SessionId::parse("ses_000000000000AAAAAAAAAAAAAA").unwrap()
}

fn key(profile: &Profile) -> &str {
    profile.endpoint.key.as_ref().unwrap().expose_secret()
}

#[test]
fn each_tenant_has_a_key_and_a_limiter_of_its_own() {
    let place = Place::new("[providers.openai]\nlimits = { concurrent = 1 }", &[], Some(Arc::new(Vault)));
    let profile = |tenant| place.profile(tenant, "plan", "openai/gpt-5").unwrap();
    let (acme, again, globex) = (profile("acme"), profile("acme"), profile("globex"));
    assert_eq!((key(&acme), key(&globex)), ("openai-key-of-acme", "openai-key-of-globex"));
    let held = acme.limiter.try_acquire(1);
    assert!(held.is_some());
    assert!(again.limiter.try_acquire(1).is_none(), "the configured limit holds for all requests of one key");
    assert!(globex.limiter.try_acquire(1).is_some(), "another key waits for nobody");
}

#[test]
fn a_tenant_without_a_key_is_told_so_when_its_turn_comes() {
    let place = Place::new("", &[], Some(Arc::new(Vault)));
    let error = |tenant| place.profile(tenant, "plan", "openai/gpt-5").err().unwrap();
    let poor = error("poor");
    assert_eq!(poor.code, ErrorCode::Authentication);
    assert_eq!(poor.message, "no key for provider openai: tenant \"poor\" has none");
    assert_eq!(error("banned"), ErrorInfo::new(ErrorCode::QuotaExceeded, "banned has not paid"));
    // A platform may take its time to find a key: it is not asked where nothing may block.
    let model = "openai/gpt-5".parse().unwrap();
    assert!(place.directory.choose(None, Some(&model), None, None).is_ok());
}

#[test]
fn without_a_platform_the_environments_key_is_everybodys() {
    let place = Place::new("", &[], None);
    let profile = |tenant| place.profile(tenant, "plan", "openai/gpt-5").unwrap();
    assert_eq!((key(&profile("acme")), key(&profile("globex"))), ("key-of-the-house", "key-of-the-house"));
    let model = "groq/openai/gpt-oss-20b".parse().unwrap();
    let error = place.directory.choose(None, Some(&model), None, None).unwrap_err();
    assert!(error.starts_with("no key for provider groq: GROQ_API_KEY is not set"), "{error}");
    assert!(place.directory.defaults(Path::new("/nowhere/at/all")).is_err());
}

const TUNED: &str =
    "[providers.openai.models.\"gpt-4.1\"]\ntemperature = 0.5\ntop_p = 0.8\nreasoning = \"low\"\n";

#[test]
fn an_agents_wishes_stand_before_the_models() {
    let agent = "---\ndescription: d\nreasoning: 9000\ntemperature: 0.1\ntop_p: 0.2\n---";
    let place = Place::new(TUNED, &[("keen.md", agent)], None);
    let told = |agent, model| {
        let head = place.profile("t", agent, model).unwrap().head;
        (head.reasoning, head.temperature, head.top_p)
    };
    assert_eq!(told("plan", "openai/gpt-4.1"), (Some(Reasoning::Effort(Effort::Low)), Some(0.5), Some(0.8)));
    assert_eq!(told("keen", "openai/gpt-4.1"), (Some(Reasoning::Budget(9_000)), Some(0.1), Some(0.2)));
    // Neither is sent where it would be refused.
    assert_eq!(told("keen", "openai/gpt-5"), (Some(Reasoning::Budget(9_000)), None, None));
    assert_eq!(told("keen", "openai/gpt-4o"), (None, Some(0.1), Some(0.2)));
    assert_eq!(told("plan", "openai/gpt-5"), (None, None, None));
}

#[test]
fn requests_of_a_session_share_a_cache_key_where_the_server_knows_such() {
    let config = "[providers.local]\ndialect = \"openai-chat\"\nbase_url = \"http://a/v1\"\n\
                  [providers.local.models.m]\ncontext = 1000\noutput = 900\n";
    let place = Place::new(config, &[], None);
    let openai = place.profile("t", "plan", "openai/gpt-5.3-codex").unwrap();
    assert_eq!(openai.endpoint.dialect, DialectKind::OpenaiResponses);
    assert_eq!(openai.head.cache_key, Some(session().to_string()));
    let local = place.profile("t", "plan", "local/m").unwrap();
    assert_eq!(local.head.cache_key, None);
    assert_eq!(local.head.max_output, 500, "what is asked for leaves room for the question");
}
