//! What a request is made of: whose key, which limiter, what the model is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mock_llm::{Mock, Script};
use playhouse_actors::{
    AgentDirectory as _, LspLimits, LspOptions, LspServers, Moderate, Profile, ProfileDirectory as _,
    ProfileRequest, WorkspaceDirectory as _,
};
use playhouse_llm::{Credentials, DialectKind, Head, Reasoning, ToolChoice, Transcript};
use playhouse_lsp::ServerEntry;
use playhouse_prompts::{Agents, Family};
use playhouse_protocol::capability::Effort;
use playhouse_protocol::chat::{ChatMessage, ToolSpec, UserPart};
use playhouse_protocol::consent::{Action, PermissionRule};
use playhouse_protocol::{ErrorCode, ErrorInfo, Sandbox, SessionId, Timestamp};
use playhouse_tools::{Registry, ToolScope, ToolSource as _};
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;

use crate::config::{ConfigError, Settings};
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
        let (_, directory) = Self::made(config, agents, credentials);
        Self { directory: directory.unwrap(), workspace: tempfile::tempdir().unwrap() }
    }

    /// The operator's folder, and what is made of it.
    fn made(
        config: &str,
        agents: &[(&str, &str)],
        credentials: Option<Arc<dyn Credentials>>,
    ) -> (TempDir, Result<SettingsDirectory, ConfigError>) {
        let operator = tempfile::tempdir().unwrap();
        let file = operator.path().join("config.toml");
        fs_err::write(&file, config).unwrap();
        fs_err::create_dir(operator.path().join("agents")).unwrap();
        for (name, text) in agents {
            fs_err::write(operator.path().join("agents").join(name), text).unwrap();
        }
        let settings = Settings::load(Some(&file), &|_| None).unwrap();
        let variables = |name: &str| (name == "OPENAI_API_KEY").then(|| "key-of-the-house".to_owned());
        let (mock, tools) = (Mock::new(Script::new()), Registry::native());
        (operator, SettingsDirectory::new(settings, Arc::new(variables), credentials, mock, tools))
    }

    /// Writes the workspace's own file.
    fn workspaces(&self, text: &str) {
        let folder = self.workspace.path().join(".playhouse");
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::write(folder.join("config.toml"), text).unwrap();
    }

    fn profile(&self, tenant: &str, agent: &str, model: &str) -> Result<Profile, ErrorInfo> {
        self.profile_with(tenant, agent, model, &[])
    }

    fn profile_with(
        &self,
        tenant: &str,
        agent: &str,
        model: &str,
        permissions: &[PermissionRule],
    ) -> Result<Profile, ErrorInfo> {
        self.directory.profile(&ProfileRequest {
            tenant: tenant.to_owned(),
            model: model.parse().unwrap(),
            permissions: permissions.to_vec(),
            ..request_of(self.workspace.path(), agent)
        })
    }
}

/// The first request of a session in the workspace `root`, which grants nothing, and whose prompt names no file.
fn request_of(root: &Path, agent: &str) -> ProfileRequest {
    ProfileRequest {
        session: session(),
        tenant: "local".to_owned(),
        workspace: root.to_string_lossy().into_owned(),
        agent: agent.to_owned(),
        model: "openai/gpt-5".parse().unwrap(),
        created: Timestamp::from_millis(0),
        permissions: Vec::new(),
        system: None,
        settled: None,
        withheld: Registry::native().unneeded(root, |_| false),
        kept_to: None,
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
    assert!(error.to_string().starts_with("no key for provider groq: GROQ_API_KEY is not set"), "{error}");
    // Which variable that is, is the operator's to know.
    let playhouse_protocol::CommandError::Unusable(info) = error else { panic!("{error:?}") };
    assert_eq!(info.for_tenant().message, "groq accepts no key of this server: ask the operator");
    assert!(place.directory.defaults(Path::new("/nowhere/at/all")).is_err());
}

const TUNED: &str =
    "[providers.openai.models.\"gpt-4.1\"]\ntemperature = 0.5\ntop_p = 0.8\nreasoning = \"low\"\n";

#[test]
fn an_agents_wishes_stand_before_the_models() {
    let agent = "---\ndescription: d\nreasoning: 9000\ntemperature: 0.1\ntop_p: 0.2\n---";
    let place = Place::new(TUNED, &[("keen.md", agent)], None);
    let told = |agent, model| {
        let profile = place.profile("t", agent, model).unwrap();
        let request = Transcript::new(profile.endpoint.dialect, &profile.head).request(ToolChoice::Auto);
        let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
        (profile.head.reasoning, request["temperature"].as_f64(), request["top_p"].as_f64())
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
                  [providers.local.models.m]\ncontext = 2000\noutput = 900\n";
    let place = Place::new(config, &[], None);
    let openai = place.profile("t", "plan", "openai/gpt-5.3-codex").unwrap();
    assert_eq!(openai.endpoint.dialect, DialectKind::OpenaiResponses);
    assert_eq!(openai.head.cache_key, Some(session().to_string()));
    let local = place.profile("t", "plan", "local/m").unwrap();
    assert_eq!(local.head.cache_key, None);
    assert_eq!(local.head.max_output, 500, "what is asked for leaves room for the question");
}

const RULED: &str = "sandbox = \"required\"\nmoderate = \"allow\"\n[walls]\nnetwork = true\nread = [\"/opt\"]\n\
                     roots = [\"/\", \"/nowhere/at/all\"]\n[permissions]\nwebfetch = \"deny\"\n\
                     bash = { \"*\" = \"ask\", \"git *\" = \"allow\" }\n";

#[test]
fn what_holds_in_a_workspace_is_the_operators_and_its_own() {
    let place = Place::new(RULED, &[], None);
    let ground = || place.directory.ground("t", place.workspace.path());
    let alone = ground().unwrap();
    assert_eq!((alone.sandbox, alone.moderate), (Sandbox::Required, Moderate::Allow));
    assert_eq!((alone.walls.network, alone.walls.read), (true, vec!["/opt".to_owned()]));
    assert_eq!(alone.roots, [Path::new("/")], "what is not there holds nothing");
    assert_eq!(alone.configuration.iter().count(), 3);
    assert!(alone.workspace.is_empty());

    place.workspaces("[permissions]\nbash = \"deny\"\n");
    let both = ground().unwrap();
    assert_eq!((both.configuration, both.workspace.iter().count()), (alone.configuration, 1));
    place.workspaces("[permissions]\nbash = \"allow\"\n");
    assert!(ground().unwrap_err().contains("only make permissions stricter"));
}

#[test]
fn a_rule_about_a_permission_that_there_is_not_is_told_where_it_stands() {
    let error = |config: &str, agents: &[(&str, &str)]| {
        let (operator, made) = Place::made(config, agents, None);
        let error = made.err().expect("it cannot be used").to_string();
        error.replace(&format!("{}/", operator.path().display()), "")
    };
    let agent = |rules: &str| format!("---\ndescription: d\npermission: {rules}\n---");
    insta::assert_snapshot!(
        [
            error("\n[permissions]\nbahs = \"deny\"", &[]),
            error("[permissions.bahs]\n\"rm *\" = \"deny\"", &[]),
            error("permissions.write = \"deny\"", &[]),
            error("permissions.apply_patch = { \"*\" = \"ask\" }", &[]),
            error("permissions.\"wri*\" = \"deny\"", &[]),
            error("permissions.server_tool = \"deny\"", &[]),
            error("", &[("a.md", &agent("{ bsh: ask }"))]),
            error("", &[("a.md", &agent("{ multiedit: ask }"))]),
            error("", &[("a.md", &agent("\n  edit: ask\n  bash:\n    \"*\": ask\n  multiedit: deny"))]),
        ]
        .join("\n"), @r#"
        config.toml:3: `permissions.bahs` names no tool and no other permission: there are bash, batch, codesearch, doom_loop, edit, external_directory, glob, grep, host, list, lsp, mcp, process, question, read, skill, task, todoread, todowrite, webfetch, websearch; did you mean "bash"?
        config.toml:2: `permissions.bahs` names no tool and no other permission: there are bash, batch, codesearch, doom_loop, edit, external_directory, glob, grep, host, list, lsp, mcp, process, question, read, skill, task, todoread, todowrite, webfetch, websearch; did you mean "bash"?
        config.toml:1: `permissions.write` is covered by `edit`: write `edit` instead
        config.toml:1: `permissions.apply_patch` is covered by `edit`: write `edit` instead
        config.toml:1: `permissions."wri*"` matches no permission: there are bash, batch, codesearch, doom_loop, edit, external_directory, glob, grep, host, list, lsp, mcp, process, question, read, skill, task, todoread, todowrite, webfetch, websearch
        config.toml:1: `permissions.server_tool` names no tool and no other permission: there are bash, batch, codesearch, doom_loop, edit, external_directory, glob, grep, host, list, lsp, mcp, process, question, read, skill, task, todoread, todowrite, webfetch, websearch
        agents/a.md:3: `permission.bsh` names no tool and no other permission: there are bash, batch, codesearch, doom_loop, edit, external_directory, glob, grep, host, list, lsp, mcp, process, question, read, skill, task, todoread, todowrite, webfetch, websearch; did you mean "bash"?
        agents/a.md:3: `permission.multiedit` is covered by `edit`: write `edit` instead
        agents/a.md:7: `permission.multiedit` is covered by `edit`: write `edit` instead
        "#);
    let known = "[permissions]\n\"*\" = \"ask\"\n\"web*\" = \"deny\"\n\"todo????\" = \"ask\"\ntask = \"ask\"\n\
                 mcp = { \"github_*\" = \"allow\" }\nexternal_directory = \"ask\"\ndoom_loop = \"ask\"\nedit = \"ask\"\n";
    let place = Place::new(known, &[("a.md", &agent("{ mcp: deny, '*': ask }"))], None);
    place.workspaces("\n\n[permissions]\nraed = \"ask\"");
    let error = place.directory.defaults(place.workspace.path()).unwrap_err();
    assert!(error.contains("config.toml:4: `permissions.raed` names no tool"), "{error}");
    assert!(error.ends_with("did you mean \"read\"?"), "{error}");
    assert!(place.directory.ground("t", place.workspace.path()).is_err());
}

#[test]
fn a_model_is_not_shown_what_every_rule_denies() {
    let writer =
        "---\ndescription: d\ntools: [read, write, edit, bash, webfetch]\npermission:\n  edit: deny\n---";
    let place = Place::new(RULED, &[("writer.md", writer)], None);
    let shown = |agent: &str, permissions: &[PermissionRule]| {
        let profile = place.profile_with("t", agent, "openai/gpt-5", permissions).unwrap();
        profile.head.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    let has = |tools: &[String], name: &str| tools.iter().any(|tool| tool == name);
    let rule = |permission: &str, pattern: &str, action| PermissionRule {
        permission: permission.to_owned(),
        pattern: pattern.to_owned(),
        action,
    };
    assert_eq!(shown("writer", &[]), ["read", "bash"]);
    assert_eq!(place.directory.agent_rules("writer").iter().count(), 1);
    let all = shown("sisyphus", &[]);
    assert!(has(&all, "write") && has(&all, "apply_patch") && !has(&all, "webfetch"), "{all:?}");
    assert!(place.directory.agent_rules("sisyphus").is_empty());
    // A session's rules stand before its agent's, and not before the operator's.
    let session = [
        rule("edit", "docs/*", Action::Allow),
        rule("webfetch", "*", Action::Allow),
        rule("read", "*", Action::Deny),
    ];
    assert_eq!(shown("writer", &session), ["write", "edit", "bash"]);
    // A part that is left is enough to be shown.
    assert!(has(&shown("sisyphus", &[rule("bash", "*", Action::Ask)]), "bash"));
    place.workspaces("[permissions]\nbash = { \"*\" = \"deny\" }\nedit = { \"*.lock\" = \"deny\" }");
    let stricter = shown("sisyphus", &[]);
    assert!(!has(&stricter, "bash") && has(&stricter, "edit"), "{stricter:?}");
    assert!(place.directory.overhead_tokens("writer") < place.directory.overhead_tokens("sisyphus"));
}

/// A model of each family, as the catalogue has it.
const FAMILIES: [(&str, &str); Family::ALL.len()] = [
    ("anthropic", "anthropic/claude-sonnet-5"),
    ("gpt", "openai/gpt-5.5"),
    ("codex", "openai/gpt-5.3-codex"),
    ("gemini", "google/gemini-3.5-flash"),
    ("qwen", "alibaba/qwen3.7-max"),
    ("default", "deepseek/deepseek-v4-pro"),
];

/// The body of the first request of a session, as it is sent.
fn first_request(place: &Place, agent: &str, model: &str) -> Vec<u8> {
    first_request_with(place, agent, model, Vec::new())
}

/// The same with more tools.
fn first_request_with(place: &Place, agent: &str, model: &str, more: Vec<ToolSpec>) -> Vec<u8> {
    let mut profile = place.profile("acme", agent, model).unwrap();
    profile.head.tools = profile.head.tools.iter().cloned().chain(more).collect();
    let mut transcript = Transcript::new(profile.endpoint.dialect, &profile.head);
    let prompt = UserPart::Text { text: "What does this do?".to_owned() };
    transcript.push(&ChatMessage::User { parts: vec![prompt] }, &|_| None);
    transcript.request(ToolChoice::Auto).to_vec()
}

/// The most bytes that a first request may have in a workspace without rules and skills, by family of the model. Families
/// differ by their system prompts and by what their dialects put around tools.
const MOST_BYTES: [(&str, usize); Family::ALL.len()] = [
    ("anthropic", 17_000),
    ("gpt", 18_000),
    ("codex", 17_000),
    ("gemini", 17_000),
    ("qwen", 17_000),
    ("default", 17_000),
];

#[test]
fn the_first_request_is_small() {
    let place = Place::new("", &[], Some(Arc::new(Vault)));
    let sizes = FAMILIES.map(|(family, model)| (family, first_request(&place, Agents::DEFAULT, model).len()));
    for ((family, bytes), (_, most)) in sizes.iter().zip(MOST_BYTES) {
        assert!(
            *bytes <= most,
            "the first request of {family} has {bytes} bytes, {most} at most: shorten prompts/tools/ and prompts/system/, \
             say each rule once, and see what is long with `playhouse prompt --count`; all: {sizes:?}"
        );
    }
}

#[tokio::test]
async fn with_the_tool_of_language_servers_it_is_small_too() {
    let place = Place::new("", &[], Some(Arc::new(Vault)));
    let workspace = fs_err::canonicalize(place.workspace.path()).unwrap();
    fs_err::write(workspace.join("a.acc"), "").unwrap();
    let entry = ServerEntry::new("acc", vec!["sh".to_owned()], vec![".acc".to_owned()]);
    let homes = tempfile::tempdir().unwrap();
    let servers = LspServers::new(LspOptions {
        entries: vec![entry],
        folder: homes.path().to_owned(),
        runtime: tokio::runtime::Handle::current(),
        sandbox: Sandbox::Off,
        hidden: Vec::new(),
        roots: Vec::new(),
        limits: LspLimits { servers_per_tenant: 1, memory: 1 << 30, total_memory: 1 << 30 },
    });
    let session = SessionId::parse("ses_000000000000AAAAAAAAAAAAAA").unwrap();
    let scope = ToolScope { tenant: "local".into(), workspace: workspace.into(), session };
    servers.load(&scope);
    let specs: Vec<ToolSpec> = servers.tools(&scope).iter().map(|tool| tool.spec().clone()).collect();
    assert_eq!(specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["lsp"]);
    for (family, model) in FAMILIES {
        let bytes = first_request_with(&place, Agents::DEFAULT, model, specs.clone()).len();
        assert!(bytes < 20_000, "the first request of {family} with the tool lsp has {bytes} bytes");
    }
}

#[test]
fn a_search_is_shown_where_somebody_searches() {
    let names = |config: &str| {
        let operator = tempfile::tempdir().unwrap();
        let file = operator.path().join("config.toml");
        fs_err::write(&file, config).unwrap();
        let settings = Settings::load(Some(&file), &|_| None).unwrap();
        let tools = Registry::native_with(settings.native_tools(&|_| None).unwrap());
        let mock = Mock::new(Script::new());
        let directory =
            SettingsDirectory::new(settings, Arc::new(|_: &str| None), Some(Arc::new(Vault)), mock, tools);
        let workspace = tempfile::tempdir().unwrap();
        let tools = {
            let request = request_of(workspace.path(), "sisyphus");
            directory
                .unwrap()
                .profile(&ProfileRequest { withheld: Vec::new(), ..request })
                .unwrap()
                .head
                .tools
        };
        tools.iter().map(|tool| tool.name.clone()).filter(|name| name.ends_with("search")).collect::<Vec<_>>()
    };
    assert!(names("").is_empty());
    assert_eq!(names("[tools.web]\nsearch = \"exa\""), ["websearch", "codesearch"]);
    let searxng = "[tools.web]\nsearch = \"searxng\"\nsearch_url = \"http://127.0.0.1:8888\"";
    assert_eq!(names(searxng), ["websearch"]);
}

/// The first request of a session, to be read: what tools say of themselves stands in `prompts/tools/`, and is named; the workspace
/// is named as well; long texts have a line for each of theirs.
fn whole_request(place: &Place, agent: &str, model: &str) -> String {
    let profile = place.profile("acme", agent, model).unwrap();
    let request: serde_json::Value = serde_json::from_slice(&first_request(place, agent, model)).unwrap();
    let mut text = format!("{request:#}");
    for tool in profile.head.tools.iter() {
        let told = serde_json::Value::from(tool.description.as_str()).to_string();
        assert_eq!(text.matches(&told).count(), 1, "{} is described once, and as it is", tool.name);
        text = text.replace(&told, &format!("<prompts/tools/{}.md>", tool.name));
    }
    let workspace = place.workspace.path().to_string_lossy();
    // Midnight of the first day is another day west of Greenwich.
    let text = text.replace(&*workspace, "<workspace>").replace("1969-12-31", "1970-01-01");
    text.replace("\\n", "\n")
}

#[test]
fn the_whole_request_of_each_family() {
    let place = Place::new("", &[], Some(Arc::new(Vault)));
    for (family, model) in FAMILIES {
        assert_eq!(Family::of(&model.parse().unwrap()).name(), family);
        insta::assert_snapshot!(format!("request_{family}"), whole_request(&place, "sisyphus", model));
    }
}

#[test]
fn the_whole_request_of_each_agent() {
    let place = Place::new("", &[], Some(Arc::new(Vault)));
    for agent in Agents::builtin().iter() {
        let request = whole_request(&place, &agent.name, FAMILIES[0].1);
        insta::assert_snapshot!(format!("request_of_{}", agent.name), request);
    }
}

fn system(place: &Place, agent: &str) -> String {
    place.profile("acme", agent, "openai/gpt-5").unwrap().head.system
}

#[test]
fn a_system_prompt_has_everything_in_its_order_and_a_settled_one_stays() {
    let config = "rules = [\"house.md\"]\n[prompt]\nappend = \"Answer in French.\"\n";
    let operator = tempfile::tempdir().unwrap();
    let write = |path: &Path, text: &str| {
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    };
    let skill = |name: &str| format!("---\nname: {name}\ndescription: about {name}\n---\nDo it.");
    write(&operator.path().join("config.toml"), config);
    write(&operator.path().join("house.md"), "RULES OF THE HOUSE");
    write(&operator.path().join("AGENTS.md"), "RULES OF THE USER");
    write(&operator.path().join("skills/release/SKILL.md"), &skill("release"));
    let top = tempfile::tempdir().unwrap();
    let root = top.path().canonicalize().unwrap().join("apps/web");
    write(&top.path().join(".git/HEAD"), "ref: refs/heads/analytical\n");
    write(&top.path().join(".git/objects/info/x"), "");
    write(&top.path().join("AGENTS.md"), "RULES OF THE TOP");
    write(&root.join("AGENTS.md"), "RULES OF THE WORKSPACE");
    write(&root.join(".claude/skills/pdf/SKILL.md"), &skill("pdf"));
    write(&root.join(".claude/skills/bad/SKILL.md"), "---\nname: bad\n");
    let settings = Settings::load(Some(&operator.path().join("config.toml")), &|_| None).unwrap();
    let variables = |name: &str| (name == "OPENAI_API_KEY").then(|| "k".to_owned());
    let tools = Registry::native_with(settings.native_tools(&|_| None).unwrap());
    let mock = Mock::new(Script::new());
    let directory = SettingsDirectory::new(settings, Arc::new(variables), None, mock, tools).unwrap();
    let request = |kept_to: Option<Vec<PathBuf>>, settled: Option<&str>| ProfileRequest {
        tenant: "acme".to_owned(),
        system: Some("Be quick.".to_owned()),
        settled: settled.map(str::to_owned),
        kept_to,
        ..request_of(&root, "sisyphus")
    };
    let head = |request: ProfileRequest| directory.profile(&request).unwrap().head;
    let has_skill = |head: &Head| head.tools.iter().any(|tool| tool.name == "skill");

    let whole = head(request(None, None));
    let order = [
        "Git: branch analytical",
        "RULES OF THE USER",
        "RULES OF THE HOUSE",
        "RULES OF THE TOP",
        "RULES OF THE WORKSPACE",
        "- pdf: about pdf\n- release: about release",
        "Answer in French.",
        "Be quick.",
    ];
    let places: Vec<usize> = order.iter().map(|part| whole.system.find(part).expect(part)).collect();
    assert!(places.is_sorted(), "{}", whole.system);
    assert!(has_skill(&whole));
    let preview = directory.preview(&root, None, Some(&"openai/gpt-5".parse().unwrap())).unwrap();
    let before = whole.system.split("Date: ").next().unwrap();
    assert!(preview.system.text.starts_with(before));
    let [problem] = preview.system.problems.as_slice() else { panic!("{:?}", preview.system.problems) };
    assert!(problem.to_string().ends_with("bad/SKILL.md:1: the head that begins here has no closing `---`"));

    // A tenant that is kept to its workspace learns nothing of what lies above it.
    let kept = head(request(Some(Vec::new()), None)).system;
    assert!(
        !kept.contains("RULES OF THE TOP")
            && kept.contains("Git: no\n")
            && kept.contains("RULES OF THE WORKSPACE")
    );
    let kept = head(request(Some(vec![root.clone()]), None)).system;
    assert!(!kept.contains("RULES OF THE TOP"));
    let kept = head(request(Some(vec![top.path().canonicalize().unwrap()]), None)).system;
    assert!(kept.contains("RULES OF THE TOP"));

    // Where the operator keeps what belongs to it is not told.
    assert!(!whole.system.contains(operator.path().to_str().unwrap()), "{}", whole.system);

    // What cannot be used is left out, and stops nobody: a model can make such a link.
    fs_err::remove_file(root.join("AGENTS.md")).unwrap();
    std::os::unix::fs::symlink("/nowhere/AGENTS.md", root.join("AGENTS.md")).unwrap();
    let without = head(request(None, None)).system;
    assert!(without.contains("RULES OF THE TOP") && !without.contains("RULES OF THE WORKSPACE"));
    let preview = directory.preview(&root, None, Some(&"openai/gpt-5".parse().unwrap())).unwrap();
    assert!(preview.system.problems[0].to_string().contains("AGENTS.md: cannot be used as a rules file"));
    fs_err::remove_file(root.join("AGENTS.md")).unwrap();

    // What is settled is used as it is, whatever became of the files.
    write(&top.path().join(".git/HEAD"), "ref: refs/heads/other\n");
    write(&root.join("AGENTS.md"), "changed");
    let again = head(request(None, Some(&whole.system)));
    assert_eq!((&again.system, &again.tools), (&whole.system, &whole.tools));
    assert!(head(request(None, None)).system.contains("Git: branch other"));
}

#[test]
fn skills_are_offered_to_those_who_can_load_them() {
    let place = Place::new("", &[("mute.md", "---\ndescription: d\ntools: [read]\n---")], None);
    let folder = place.workspace.path().join(".agents/skills/pdf");
    assert!(!system(&place, "sisyphus").contains("<skills>"));
    let tools = |agent: &str| place.profile("acme", agent, "openai/gpt-5").unwrap().head.tools;
    assert!(tools("sisyphus").iter().all(|tool| tool.name != "skill"), "there is none to be loaded");
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::write(folder.join("SKILL.md"), "---\nname: pdf\ndescription: d\n---\n").unwrap();
    assert!(system(&place, "sisyphus").contains("\n- pdf: d\n</skills>"));
    assert!(tools("sisyphus").iter().any(|tool| tool.name == "skill"));
    assert!(!system(&place, "mute").contains("<skills>"));
}

#[test]
fn the_agents_of_a_workspace_have_a_bounded_part_of_every_request() {
    let place = Place::new("", &[], None);
    let folder = place.workspace.path().join(".playhouse/agents");
    fs_err::create_dir_all(&folder).unwrap();
    let write = |name: String, length: usize| {
        let text = format!("---\ndescription: {}\nmode: subagent\n---\nDo.", "d".repeat(length));
        fs_err::write(folder.join(name), text).unwrap();
    };
    for number in 0..60 {
        write(format!("a{number:02}.md"), 1_000);
    }
    write("fat.md".to_owned(), 60_000);
    let Place { directory, workspace } = place;
    let local = Arc::new(directory).local(workspace.path()).unwrap();
    let profile = |agent: &str| local.profile(&request_of(workspace.path(), agent));
    let tools = profile("sisyphus").unwrap().head.tools;
    let task = tools.iter().find(|tool| tool.name == "task").unwrap();
    assert!(task.description.len() < 24 * 1024, "{}", task.description.len());
    // Those that the operator has are told of whole, and the last ones by their names.
    for part in ["\n- general: ", "\n- a00: ddd", "\n- further ones: ", ", a59"] {
        assert!(task.description.contains(part), "{part} in {}", task.description);
    }
    let error = profile("fat").err().unwrap().message;
    assert!(error.contains("fat.md:2: `description` has 60000 characters"), "{error}");
}

#[test]
fn what_is_kept_of_tools_is_that_of_these_agents_and_of_what_is_withheld() {
    let place = Place::new("", &[], None);
    let write = |name: &str, text: &str| {
        let file = place.workspace.path().join(name);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, text).unwrap();
    };
    let root = place.workspace.path().to_owned();
    let head = |directory: &dyn playhouse_actors::Directory, withheld: &[&str]| {
        let withheld = withheld.iter().map(|&name| name.to_owned()).collect();
        directory.profile(&ProfileRequest { withheld, ..request_of(&root, "sisyphus") }).unwrap().head
    };
    let task = |head: &Head| head.tools.iter().find(|tool| tool.name == "task").unwrap().description.clone();
    let names = |head: &Head| head.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();

    write(".playhouse/agents/local-one.md", "---\ndescription: d\nmode: subagent\n---\nDo.");
    write(".agents/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: d\n---\n");
    let base = Arc::new(place.directory);
    let local = Arc::clone(&base).local(&root).unwrap();
    for _ in 0..2 {
        // The second time what is kept of the first is there.
        for withheld in [&[][..], &["skill"], &["skill", "bash"]] {
            let (of_base, of_local) = (head(&*base, withheld), head(&*local, withheld));
            assert!(!task(&of_base).contains("local-one") && task(&of_local).contains("- local-one: d"));
            assert_eq!(names(&of_base), names(&of_local));
            for name in ["skill", "bash"] {
                assert_eq!(names(&of_base).iter().any(|shown| shown == name), !withheld.contains(&name));
            }
            assert_eq!(of_base.system.contains("<skills>"), !withheld.contains(&"skill"));
        }
    }
    assert_eq!(head(&*base, &[]).tools.as_ptr(), head(&*base, &[]).tools.as_ptr(), "it is made once");
}
