//! The one definition of every configuration key.

use std::fmt;
use std::fmt::Write as _;

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Names it in code, so that no key is forgotten where they are read.
    pub name: KeyName,
    /// Its place; `NAME` stands for a name of the operator's choice.
    pub path: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds without it, for people.
    pub default: &'static str,
    /// Whether a workspace may set it too.
    pub workspace: bool,
    /// What it is for: one line of Markdown.
    pub doc: &'static str,
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number from 0.
    Whole,
    /// A number from 0, read exactly.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    List,
    /// Text, or a whole number from 0.
    TextOrWhole,
    /// Text, or `{ env = "VARIABLE" }` for what an environment variable holds.
    TextOrVariable,
    /// A list of tables, each with a threshold of input tokens and the prices of requests beyond it.
    Steps,
    /// `allow`, `ask` or `deny`, or a table of patterns with one for each, in which the order counts.
    Actions,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Whole => "a whole number from 0",
            Self::Number => "a number from 0",
            Self::Boolean => "true or false",
            Self::List => "a list of texts",
            Self::TextOrWhole => "text or a whole number from 0",
            Self::TextOrVariable => "text or `{ env = \"VARIABLE\" }`",
            Self::Steps => "a list of steps, as `[{ above = 200000, input = 4, output = 18 }]`",
            Self::Actions => "allow, ask or deny, or a table of patterns with one for each",
        })
    }
}

/// Stands for a name of the operator's choice in [`Key::path`].
pub(super) const NAME: &str = "NAME";

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $path:literal, $kind:ident, $default:literal, $workspace:literal, $text:literal;)*) => {
        /// Names every key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum KeyName {
            $(#[doc = concat!("`", $path, "`")] $name,)*
        }

        /// Every key there is.
        pub const KEYS: &[Key] = &[
            $(Key {
                name: KeyName::$name,
                path: $path,
                kind: Kind::$kind,
                default: $default,
                workspace: $workspace,
                doc: $text,
            },)*
        ];
    };
}

keys! {
    Model = "model", Text, "none", true,
        "The model of sessions that name none: `PROVIDER/MODEL`.";
    SmallModel = "small_model", Text, "none", false,
        "The model that names sessions by their first prompt, and that says in `playhouse serve` what came of each turn that changed files: `PROVIDER/MODEL`. Each of them is one small request beside the turns, which is in the ledger. Without one a title is the prompt's first line, at no cost, and turns have no summary but the files that they changed.";
    ContextKeep = "context.keep", Whole, "`30`", false,
        "How much of a model's window is kept for the answer and what comes with it, in percent, from 25 to 80. A request that would need more makes room first: old outputs are cleared, then a summary stands for what is older.";
    Agent = "agent", Text, "`sisyphus`", true,
        "The agent of sessions that name none.";
    Rules = "rules", List, "none", true,
        "Files that every session's system prompt holds, at most 32 KB of each. Relative to this file's folder, or to the workspace in a workspace's file.";
    PromptAppend = "prompt.append", Text, "nothing", false,
        "Text that every session's system prompt ends with, at most 32 KB: what you want all agents to know or to do.";
    Sandbox = "sandbox", Text, "`best-effort`", false,
        "Walls around the programs of sessions: `required` (where none can be built, none runs), `best-effort` (the best that this machine has, and none where it has none) or `off`.";
    Store = "store", Text, "`sled`", false,
        "What a new data directory keeps sessions in: `sled` or `redb`. One that is there keeps what it has.";
    StoreOnDamage = "store_on_damage", Text, "`refuse`", false,
        "What `serve` and `run` do with a store that is found damaged when it is opened: `refuse` it, or `salvage` what can be read of it and go on with that. The damaged one is kept. A second damage within an hour is refused.";
    WallsRead = "walls.read", List, "none", false,
        "Directories that programs may read beside the workspace and the system's own: absolute, or from `~/`. One that is not there is left out.";
    WallsWrite = "walls.write", List, "none", false,
        "Directories that programs may change beside the workspace.";
    WallsNetwork = "walls.network", Boolean, "`false`", false,
        "Whether programs reach the network.";
    WallsRoots = "walls.roots", List, "none", false,
        "Directories below which the git directory of a worktree or of a submodule may lie, so that git works in it.";
    Moderate = "moderate", Text, "`ask`", false,
        "What holds for tools that reach out (`webfetch`, `websearch`, `codesearch`) where no rule speaks: `allow` or `ask`.";
    Permission = "permissions.NAME", Actions, "by the tool's risk", true,
        "What holds for a permission (`*` for all), as in `bash = \"ask\"`, or for patterns of what it is asked for: `bash = { \"*\" = \"ask\", \"git status *\" = \"allow\" }`. The last rule of the file that matches wins. What is denied altogether is not shown to models. A workspace may only ask and deny.";
    RetryAttempts = "retry.attempts", Whole, "`4`", false,
        "The most attempts of one step: requests that are made because the ones before failed. 1 for no second one.";
    RetryBase = "retry.base_ms", Whole, "`500`", false,
        "The longest wait before the second attempt, in milliseconds; it doubles with each further one.";
    RetryLongest = "retry.longest_ms", Whole, "`60000`", false,
        "The longest wait, in milliseconds. A provider that asks for a longer one makes the turn fail, and says when to come back.";
    RetryTotal = "retry.total_ms", Whole, "`600000`", false,
        "No attempt begins later than this after the first one, in milliseconds.";
    ConnectTime = "timeouts.connect_ms", Whole, "`10000`", false,
        "How long a connection to a provider may take to be made, in milliseconds.";
    HeadTime = "timeouts.head_ms", Whole, "`300000`", false,
        "How long a provider may take from a request to the head of its answer, in milliseconds. A local model may read the whole prompt before.";
    SilenceTime = "timeouts.silence_ms", Whole, "`300000`", false,
        "How long an answer may be silent, in milliseconds. Comments that keep it alive count as something.";
    AttemptTime = "timeouts.attempt_ms", Whole, "`3600000`", false,
        "How long an attempt may take from the request to the end of the answer, in milliseconds, whatever comes.";
    AskingWait = "asking.wait_ms", Whole, "`86400000`", false,
        "How long a question of a model and a request for consent wait for an answer, in milliseconds: usually a day, since people go away. Then the model is told that nobody answered, and the call is declined. A turn that nobody attends (`unattended`, or `playhouse run` without a terminal) waits for nobody.";
    Resume = "resume", Text, "`auto`", false,
        "What becomes of turns that an engine left unfinished, however it ended: `auto` (`playhouse serve`, and an engine in the background, go on with them by themselves when they start) or `manual` (they wait for `playhouse sessions resume`, or for somebody who wants something of their session).";
    SessionsIdle = "sessions.idle_after_ms", Whole, "`300000`", false,
        "For how long a session has nothing to do before it leaves memory, in milliseconds; 0 for ever. It comes back when somebody asks for it, and loses nothing by it.";
    SnapshotsFiles = "snapshots.max_files", Whole, "`200000`", false,
        "How many files a workspace may have, those left out that git ignores, so that it is looked at what commands change in it. In a larger one no undo covers commands, and that is said.";
    SnapshotsScan = "snapshots.max_scan_ms", Whole, "`2000`", false,
        "How long one look at all files of a workspace may take, in milliseconds. Where it takes longer no undo covers commands for ten times as long, for twice that after the next slow look, and so on up to ten minutes; that is said.";
    SnapshotsKept = "snapshots.max_before_mb", Whole, "`64`", false,
        "How much of files that git does not hold may be copied for one turn before its commands, in MB. Changes of the others are not covered by undo, and that is said.";
    SnapshotsTotal = "snapshots.keep_mb", Whole, "`1024`", false,
        "How much may be kept of the contents of files before and after changes, for all sessions of a tenant, in MB; 0 for no limit. Looked at when an engine starts and each hour: the oldest ones above it go, and undo does not cover those changes any more.";
    SnapshotsInclude = "snapshots.include", List, "none", false,
        "Ignored files that undo covers all the same: patterns as in a `.gitignore`, from the workspace on, as `.env` or `/conf/*.local`.";
    TasksDepth = "tasks.depth", Whole, "`3`", false,
        "How many sub-sessions may stand below each other, where agents hand work over with `task`: from 0 (none is handed over) to 8.";
    TasksChildren = "tasks.children", Whole, "`8`", false,
        "How many tasks of one session may be at work at once, those in the background among them.";
    SessionsMost = "sessions.max_live", Whole, "`10000`", false,
        "The most sessions in memory: where there are more, those leave that had nothing to do for the longest time. Those at work stay, however many there are.";
    BashMaxTimeout = "tools.bash.max_timeout_ms", Whole, "`600000`", false,
        "The longest time that a command may be given which is waited for, in milliseconds.";
    BashProcesses = "tools.bash.processes", Whole, "`2048`", false,
        "How many processes and threads a command may have at once, at least 8. One that wants more is ended.";
    BashMemory = "tools.bash.memory_mb", Whole, "`16384`", false,
        "How much memory a command may use, in MB, at least 32; 0 for no limit. Without a control group for it: how much each of its processes may allocate.";
    BashFile = "tools.bash.file_mb", Whole, "`16384`", false,
        "How large a file may become that a command writes, in MB. 0 for no limit.";
    BashOpenFiles = "tools.bash.open_files", Whole, "`65536`", false,
        "How many files each process of a command may have open, at least 32. 0 for no limit of its own.";
    BashCpu = "tools.bash.cpu_seconds", Whole, "`14400`", false,
        "For how long each process of a command may use a processor, in seconds. 0 for no limit.";
    BashSessionProcesses = "tools.bash.session_processes", Whole, "four times `processes`", false,
        "How many processes and threads all commands of a session may have at once, at least 8.";
    BashSessionMemory = "tools.bash.session_memory_mb", Whole, "four times `memory_mb`", false,
        "How much memory all commands of a session may use, in MB, at least 32.";
    BashBackground = "tools.bash.background", Whole, "`16`", false,
        "How many commands of one session may run in the background. 0 for none.";
    WebAllowPrivate = "tools.web.allow_private", List, "none", false,
        "What `webfetch` may reach beside the public Internet: addresses (`127.0.0.1`), networks (`10.0.0.0/8`), hosts (`intranet.example`) and all below a host (`*.intranet.example`).";
    WebSearch = "tools.web.search", Text, "`off`", false,
        "Who searches for `websearch` and `codesearch`: `exa`, `searxng` (the web only), `mcp` (any server of MCP), or `off`: models see neither tool. Queries go to that server.";
    WebSearchUrl = "tools.web.search_url", Text, "Exa's for `exa`, else needed", false,
        "Where the server that searches is. It may be private.";
    WebSearchHeader = "tools.web.search_headers.NAME", TextOrVariable, "none", false,
        "A header of every search. One that holds a key must name a variable.";
    WebSearchTool = "tools.web.search_tool", Text, "none", false,
        "For `mcp`: the name of the server's tool that `websearch` calls, with `query` and `numResults`.";
    WebCodeTool = "tools.web.code_tool", Text, "none", false,
        "For `mcp`: the name of the server's tool that `codesearch` calls, with `query` and `tokensNum`.";
    KeepOutputs = "tools.keep_outputs_hours", Whole, "`24`", false,
        "How long results that were too long for a model are kept on disk, in hours. 0 keeps them as long as their session.";
    KeepOutputsMegabytes = "tools.keep_outputs_mb", Whole, "`256`", false,
        "How much the saved outputs of one session may take on disk, in MB; 0 for no limit. Above it its oldest ones are removed, then new ones are cut, and say so.";
    CaptureExamples = "tools.capture", List, "none", false,
        "The examples of capture tools that all sessions have: `save_interview_ideas`, `save_parsed_ideas`, `save_prd`, `update_story_status`, `wreckit_complete`. Without it only sessions have one whose list of tools names it.";
    CaptureDescription = "capture.NAME.description", Text, "needed", false,
        "What models are told of the capture tool `NAME`, which keeps its arguments as an artifact of the session.";
    CaptureSchema = "capture.NAME.schema", Text, "needed", false,
        "The file with the JSON Schema of what it keeps. Relative to this file's folder.";
    ServerListen = "server.listen", Text, "`127.0.0.1:4096`", false,
        "Where `playhouse serve` listens: an address with a port. Any but this machine's own needs keys.";
    ServerRoots = "server.roots", List, "the directory where it was started", false,
        "Directories below which the sessions of clients may work: absolute, or from `~/`.";
    ServerHosts = "server.hosts", List, "none", false,
        "Names of hosts by which clients may call the server, beside addresses and `localhost`.";
    ServerOrigins = "server.origins", List, "none", false,
        "Origins of web pages that may use the server, beside its own: `https://app.example.org`.";
    ServerMcpTools = "server.mcp_tools", List, "none", false,
        "Native tools that clients of `/v1/mcp` may call, by name: `[\"read\", \"grep\"]`. A name that there is not ends `serve` at its start.";
    ServerGrace = "server.grace_ms", Whole, "`10000`", false,
        "How long running turns may go on after the server was told to end, in milliseconds. Then they are suspended, and go on at the next start.";
    ServerConnections = "server.connections", Whole, "`4096`", false,
        "How many connections of clients there may be at once, at least 1; more wait until one ends. A client that follows a session holds one (`server.limits.subscribers` bounds those of a tenant). One in 32, 64 at most, is kept for the socket in the file system. Each takes an open file, and so does each request to a model; the server takes as many as the system lets it have (`ulimit -Hn`).";
    ServerSessions = "server.limits.sessions", Whole, "no limit", false,
        "How many sessions a tenant may have.";
    ServerRunningTurns = "server.limits.running_turns", Whole, "no limit", false,
        "How many turns of a tenant may run at once.";
    ServerTokens = "server.limits.tokens_per_minute", Whole, "no limit", false,
        "How many tokens a tenant may use within a minute; above, no prompt is admitted. Prompts that wait already still run.";
    ServerSpend = "server.limits.spend_per_day", Number, "no limit", false,
        "How many US dollars a tenant may spend on a day (UTC); above, no prompt is admitted. Prompts that wait already still run.";
    ServerSubscribers = "server.limits.subscribers", Whole, "`2000`", false,
        "How many streams of events a tenant may have open at once.";
    ServerStorage = "server.limits.storage_mb", Whole, "`10240`", false,
        "How much the outputs, the homes of commands and the attachments of a tenant may take on disk, in MB; 0 for no limit. Above it outputs are cut, uploads are refused with 413, and a command that fills its home is ended. What is there stays. It holds in `playhouse run`, too.";
    MetricsAccess = "metrics.access", Text, "`operator`", false,
        "Who may read `/metrics`: `operator` (on the Unix socket; over the network with the token, or where neither a token nor keys of clients are needed), `open` (everyone who reaches the server) or `off`.";
    MetricsToken = "metrics.token_env", Text, "none", false,
        "The environment variable with the token by which `/metrics` is read over the network: `authorization: Bearer TOKEN`.";
    MetricsTenants = "metrics.tenants", Boolean, "`false`", false,
        "Whether metrics of turns, tokens and cost have the tenant as a label.";
    MetricsLabels = "metrics.labels", List, "none", false,
        "Which of `billing.labels` the metrics of tokens and cost have as labels, as `label_NAME`: `[\"customer\"]`. The first 100 sets of values have series of their own; later ones are `other`.";
    BillingLight = "billing.light", List, "none", false,
        "Models whose use counts as `light` in the ledger, as patterns of `PROVIDER/MODEL`: `[\"*/claude-haiku-*\", \"openai/*-mini\"]`. All others are `pro`. Mind that `*mini*` matches `gemini`.";
    BillingLabels = "billing.labels", List, "none", false,
        "Keys of a session's metadata that rows of the ledger have as `labels`, 8 at most: `[\"customer\", \"project\"]`. Texts, numbers and booleans of at most 256 bytes, as they are when the request leaves; others are left out, and named once in the log. They are the tenant's own words.";
    BudgetTurnCost = "budgets.turn.cost", Number, "no limit", false,
        "How many US dollars a turn may use. Before each step the most that it may cost is reserved; a turn whose budget does not cover that ends with the error `budget`. So a little less than the budget is used. A model needs a price for it. With 0, here and for the other budgets, only what is free can be used.";
    BudgetTurnTokens = "budgets.turn.tokens", Whole, "no limit", false,
        "How many tokens a turn may use, of all classes: all input of every step counts, cached or not. With 0, here and for the other budgets, no step is made.";
    BudgetSessionCost = "budgets.session.cost", Number, "no limit", false,
        "How many US dollars a session may use, with the sessions below it.";
    BudgetSessionTokens = "budgets.session.tokens", Whole, "no limit", false,
        "How many tokens a session may use, with the sessions below it.";
    BudgetTenantCost = "budgets.tenant.cost", Number, "no limit", false,
        "How many US dollars each tenant may use within a period. Steps that do not fit beside those under way wait for them.";
    BudgetTenantTokens = "budgets.tenant.tokens", Whole, "no limit", false,
        "How many tokens each tenant may use within a period.";
    BudgetTenantPer = "budgets.tenant.per", Text, "`month`", false,
        "The period: `day` or `month` (of the calendar, in UTC), or `ever`. It needs a limit that it is of.";
    TenantCost = "budgets.tenants.NAME.cost", Number, "that of all tenants", false,
        "How many US dollars the tenant of this name may use within a period.";
    TenantTokens = "budgets.tenants.NAME.tokens", Whole, "that of all tenants", false,
        "How many tokens the tenant of this name may use within a period.";
    TenantPer = "budgets.tenants.NAME.per", Text, "that of all tenants", false,
        "The period of the tenant of this name.";
    McpCommand = "mcp.NAME.command", Text, "`url` is needed", false,
        "The program of a server of tools (MCP): a path, or a name that is looked for in `PATH`. See [MCP](../guide/mcp.md).";
    McpArgs = "mcp.NAME.args", List, "none", false,
        "Its arguments.";
    McpEnv = "mcp.NAME.env.NAME", TextOrVariable, "none", false,
        "A variable of its environment. It gets little else: `PATH`, language, time zone and certificates.";
    McpCwd = "mcp.NAME.cwd", Text, "one of its own", false,
        "The directory in which it starts.";
    McpUrl = "mcp.NAME.url", Text, "`command` is needed", false,
        "The address of a server that speaks streamable HTTP, in place of a program. Addresses that are not public need `tools.web.allow_private`.";
    McpHeader = "mcp.NAME.headers.NAME", TextOrVariable, "none", false,
        "A header of each request to it.";
    McpOauth = "mcp.NAME.oauth", Boolean, "`true`", false,
        "Whether a server behind an address that answers 401 may be [logged in to](../guide/mcp-login.md). What follows says more of it.";
    McpOauthClient = "mcp.NAME.oauth.client_id", Text, "the engine registers itself", false,
        "The client that was registered by hand at its authorization server.";
    McpOauthSecret = "mcp.NAME.oauth.client_secret_env", Text, "none", false,
        "The variable that holds the secret of that client.";
    McpOauthDocument = "mcp.NAME.oauth.client_metadata_url", Text, "none", false,
        "The address of a document that describes the client, for authorization servers that take one in place of a registration.";
    McpOauthScopes = "mcp.NAME.oauth.scopes", List, "those that the server names", false,
        "The scopes that are asked for.";
    McpOauthGrant = "mcp.NAME.oauth.grant", Text, "`authorization_code`", false,
        "Who grants access: a person in a browser, or with `client_credentials` the client by itself.";
    McpScope = "mcp.NAME.scope", Text, "`workspace`", false,
        "Who shares one process of it: `tenant`, the sessions of a `workspace`, or a `session`.";
    McpEnabled = "mcp.NAME.enabled", Boolean, "`true`", false,
        "Whether it may start.";
    McpTimeout = "mcp.NAME.timeout_ms", Whole, "`60000`", false,
        "How long a call may take.";
    McpAllow = "mcp.NAME.tools.allow", List, "all", false,
        "Globs of the names of its tools that are offered.";
    McpDeny = "mcp.NAME.tools.deny", List, "none", false,
        "Globs of the names of its tools that are not.";
    McpAgents = "mcp.NAME.agents", List, "all", false,
        "The agents that have its tools.";
    McpSandbox = "mcp.NAME.sandbox", Text, "`none`", false,
        "`walls` holds it as commands are held; with `none` it can do what the user of the engine can.";
    McpNetwork = "mcp.NAME.network", Boolean, "`false`", false,
        "Whether its walls let it reach the network.";
    McpRead = "mcp.NAME.read", List, "none", false,
        "Directories that its walls let it read.";
    McpWrite = "mcp.NAME.write", List, "none", false,
        "Directories that its walls let it change.";
    McpRisk = "mcp.NAME.risk", Text, "by its annotations, `moderate` at least", false,
        "How dangerous its tools are where no rule speaks: `safe`, `moderate` or `dangerous`.";
    LspEnabled = "lsp.enabled", Boolean, "`true`", false,
        "Whether [language servers](../guide/language-servers.md) are used.";
    LspServers = "lsp.servers_per_tenant", Whole, "`8`", false,
        "How many language servers of a tenant may run at once, at least 1.";
    LspMemory = "lsp.memory_mb", Whole, "`4096`", false,
        "How much memory one language server may use, in MB, at least 32.";
    LspTotalMemory = "lsp.total_memory_mb", Whole, "`16384`", false,
        "How much memory all of them use before no further one is started, in MB, at least 32.";
    LspCommand = "lsp.NAME.command", List, "needed, except for a server that is known", false,
        "The program of a language server and its arguments: a path, or a name that is looked for in the workspace and in `PATH`.";
    LspExtensions = "lsp.NAME.extensions", List, "needed, except for a server that is known", false,
        "How the names of its files end, each with its dot: `[\".sh\"]`.";
    LspRootMarkers = "lsp.NAME.root_markers", List, "none", false,
        "Names of files and folders that mark the folder of a project. The nearest one in the workspace counts, else the workspace.";
    LspEnv = "lsp.NAME.env.NAME", TextOrVariable, "none", false,
        "A variable of its environment. Beside these it has few: where programs lie, the language, the time zone.";
    LspInitialization = "lsp.NAME.initialization", Text, "`{}`", false,
        "What it is told when it is started, and its settings when it asks for them: an object as JSON text.";
    LspServerEnabled = "lsp.NAME.enabled", Boolean, "`true`", false,
        "Whether this one is used.";
    FormatterCommand = "formatter.NAME.command", List, "needed", false,
        "A program that [formats](../guide/undo.md#formatters) files which tools edited, and its arguments, one of which has `$FILE` for the path of the file. An absolute path, or a name that is looked for in `PATH`.";
    FormatterExtensions = "formatter.NAME.extensions", List, "needed", false,
        "How the names of its files end, each with its dot: `[\".ts\"]`. For a file of several formatters the first by name is used.";
    FormatterEnabled = "formatter.NAME.enabled", Boolean, "`true`", false,
        "Whether this one is used.";
    SinkType = "sinks.NAME.kind", Text, "needed", false,
        "Where the ledger is exported to: `file` (a folder of files with one row a line), `cloudevents` (a server that takes CloudEvents, as OpenMeter; `openmeter` says the same), `polar`, `webhook` (a server of your own, with signed batches) or `report` (a server that wants `{rawTokens, modelId, tier}` once for each turn and model). Rows are delivered at least once, each with the same id; `playhouse billing status` says how far a sink is.";
    SinkUrl = "sinks.NAME.url", Text, "Polar's for `polar`, else needed", false,
        "The address of the server. One without a path gets the usual one of its kind.";
    SinkKey = "sinks.NAME.key_env", Text, "needed for `polar` and `webhook`", false,
        "The environment variable with the key: a bearer token, or for a webhook the signing key (`whsec_…`).";
    SinkFolder = "sinks.NAME.folder", Text, "needed", false,
        "For `file`: the folder, which is made if it is not there and must be one that can be written. Relative to this file's folder.";
    SinkRotateBytes = "sinks.NAME.rotate_bytes", Whole, "`100000000`", false,
        "For `file`: a file of this many bytes is closed, and the next one begun.";
    SinkRotateSeconds = "sinks.NAME.rotate_seconds", Whole, "`86400`", false,
        "For `file`: a file that is this old is closed, in seconds.";
    SinkSource = "sinks.NAME.source", Text, "`playhouse`", false,
        "For `cloudevents`: the `source` of every event. Receivers know duplicates by it, so it must never change.";
    SinkEvent = "sinks.NAME.event", Text, "`playhouse.usage`", false,
        "For `cloudevents` the `type` of every event, for `polar` its name.";
    SinkOrganization = "sinks.NAME.organization", Text, "that of the token", false,
        "For `polar`: the organization.";
    SinkStart = "sinks.NAME.start", Text, "`beginning`", false,
        "Where a new sink begins: at the `beginning` of the ledger (what was archived by then is not sent), or `now`, with the rows that come after its first start.";
    SinkBatchRows = "sinks.NAME.batch_rows", Whole, "`500`; `100` for `webhook`, `16` for `report`", false,
        "The most rows of a batch; for `report` requests under way at once.";
    SinkBatchBytes = "sinks.NAME.batch_bytes", Whole, "`1000000`", false,
        "The most bytes of a batch.";
    SinkLinger = "sinks.NAME.linger_ms", Whole, "`250`", false,
        "How long a batch that is not full waits for more, in milliseconds.";
    SinkTimeout = "sinks.NAME.timeout_ms", Whole, "`30000`", false,
        "How long the server may take to answer, in milliseconds.";
    SinkRetryFirst = "sinks.NAME.retry_first_ms", Whole, "`500`", false,
        "The first wait after a failure, in milliseconds; the next ones double. What the server asks for (`retry-after`) comes before it, up to an hour.";
    SinkRetryLongest = "sinks.NAME.retry_longest_ms", Whole, "`60000`", false,
        "The longest wait after failures, and the one where address or key are wrong, in milliseconds.";
    Dialect = "providers.NAME.dialect", Text, "needed", false,
        "What the server speaks: `anthropic` (Messages), `openai-chat` (Chat Completions), `openai-responses` (Responses) or `gemini`. A built-in provider has one, and `openai` and `xai` may be given either of OpenAI's.";
    BaseUrl = "providers.NAME.base_url", Text, "needed", false,
        "Where the server is: with `/v1` for OpenAI's dialects, without for `anthropic`, and for `gemini` the host alone or all up to `/models`.";
    ApiKeyEnv = "providers.NAME.api_key_env", Text, "no key", false,
        "The environment variable that holds the key.";
    Header = "providers.NAME.headers.NAME", TextOrVariable, "none", false,
        "A header of every request, in the place of the dialect's own of that name. One that holds a key must name a variable.";
    LimitConcurrent = "providers.NAME.limits.concurrent", Whole, "`1000`", false,
        "Requests under way at once, for one key.";
    LimitRequests = "providers.NAME.limits.requests_per_minute", Whole, "no limit", false,
        "Requests a minute, for one key.";
    LimitTokens = "providers.NAME.limits.tokens_per_minute", Whole, "no limit", false,
        "Input tokens a minute as they are estimated before a request, for one key.";
    LimitStreams = "providers.NAME.limits.streams_per_connection", Whole, "`100`", false,
        "Requests at once on one connection of HTTP/2; more open another one. Not more than the server allows, or they wait for each other there.";
    Http2 = "providers.NAME.http2", Text, "`negotiated`", false,
        "`negotiated`: over TLS where the server offers it, else HTTP/1.1. `prior-knowledge`: always HTTP/2, also without TLS, as gateways inside a network speak it.";
    Usage = "providers.NAME.usage", Text, "that of its name and dialect", false,
        "How the server counts tokens, for a gateway before another provider: `anthropic`, `openai-chat`, `openai-responses`, `gemini`, `deepseek-chat`, `xai-chat`, `openrouter-chat` or `alibaba-chat`.";
    OutputLimitField = "providers.NAME.output_limit_field", Text, "`max_tokens`", false,
        "The field that limits an answer of an `openai-chat` server: `max_tokens` or `max_completion_tokens`.";
    StreamOptions = "providers.NAME.stream_options", Boolean, "`true`", false,
        "Whether an `openai-chat` server is asked for usage with `stream_options`; `false` for one that refuses the field.";
    ReasoningContent = "providers.NAME.reasoning_content", Boolean, "`false`", false,
        "Whether an `openai-chat` server gets the reasoning of its earlier answers back as `reasoning_content`, as DeepSeek wants it. Models of which the catalogue says so get it in any case.";
    DeferredTools = "providers.NAME.deferred_tools", Boolean, "`true` at Anthropic's and OpenAI's own servers for models of which the catalogue says so", false,
        "Whether the server of an `anthropic` or `openai-responses` dialect searches tools of MCP servers itself, where these are too many to be shown. `true` for a gateway that passes `defer_loading` on.";
    CallIds = "providers.NAME.call_ids", Text, "`usual`", false,
        "The ids of calls that an `openai-chat` server takes: `usual`, or `nine-alphanumeric` as Mistral's.";
    UserAfterResults = "providers.NAME.user_after_results", Boolean, "`true`", false,
        "Whether an `openai-chat` server takes a message of the user directly after results of calls; Mistral's does not, and reads a short answer of the model between them.";
    Context = "providers.NAME.models.NAME.context", Whole, "needed", false,
        "The model's context window in tokens, input and output together.";
    Output = "providers.NAME.models.NAME.output", Whole, "needed", false,
        "The most tokens of one answer.";
    CostInput = "providers.NAME.models.NAME.cost.input", Number, "unknown", false,
        "US dollars per million tokens of input that is not cached.";
    CostOutput = "providers.NAME.models.NAME.cost.output", Number, "unknown", false,
        "US dollars per million tokens of output.";
    CostCacheRead = "providers.NAME.models.NAME.cost.cache_read", Number, "unknown", false,
        "US dollars per million tokens read from the prompt cache.";
    CostCacheWrite = "providers.NAME.models.NAME.cost.cache_write", Number, "unknown", false,
        "US dollars per million tokens written to the prompt cache, for five minutes or the server's usual time.";
    CostCacheWrite30m = "providers.NAME.models.NAME.cost.cache_write_30m", Number, "unknown", false,
        "US dollars per million tokens written to a cache that keeps them for 30 minutes.";
    CostCacheWrite1h = "providers.NAME.models.NAME.cost.cache_write_1h", Number, "unknown", false,
        "US dollars per million tokens written to a cache that keeps them for an hour.";
    CostCacheWrite12h = "providers.NAME.models.NAME.cost.cache_write_12h", Number, "unknown", false,
        "US dollars per million tokens written to a cache that keeps them for twelve hours.";
    CostReasoning = "providers.NAME.models.NAME.cost.reasoning", Number, "that of output", false,
        "US dollars per million tokens of reasoning.";
    CostLong = "providers.NAME.models.NAME.cost.long", Steps, "those that are known", false,
        "The prices of long requests, for the whole request. Each step has `above` (more input tokens than this) or `from` (this many or more), and prices by class (`input`, `output`, `cache_read`, `cache_write`, …); a class that it does not name is unknown in it.";
    CostMultiple = "providers.NAME.models.NAME.cost.multiples.NAME", Number, "unknown", false,
        "A factor on all prices of requests that are served in this way: a service tier (`batch`, `flex`, `priority`), a speed (`fast`, `ultrafast`), a region (`us`, `eu`), as in `multiples = { flex = 0.5 }`.";
    Prefill = "providers.NAME.models.NAME.prefill", Boolean, "`false`", false,
        "Ignored; accepted so that older configurations can be read.";
    Attachments = "providers.NAME.models.NAME.attachments", List, "none", false,
        "What the model reads beside text: `image`, `pdf`.";
    ModelReasoning = "providers.NAME.models.NAME.reasoning", TextOrWhole, "the model's own", false,
        "How much it thinks before it answers: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or the most tokens to think with. A level that the model lacks becomes the next higher one that it has, else its highest. An agent's own stands before this.";
    Temperature = "providers.NAME.models.NAME.temperature", Number, "the server's own", false,
        "Sampling temperature, 0 to 2. An agent's own stands before this.";
    TopP = "providers.NAME.models.NAME.top_p", Number, "the server's own", false,
        "Nucleus sampling: the share of probability that is sampled from, above 0 and up to 1. An agent's own stands before this.";
}

/// The reference of all keys as a Markdown table, for `docs/reference/configuration.md`.
pub fn playhouse_config_reference() -> String {
    let mut table =
        String::from("| key | holds | without it | workspace | what it is |\n|---|---|---|---|---|\n");
    for key in KEYS {
        let workspace = if key.workspace { "yes" } else { "no" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {workspace} | {} |",
            key.path, key.kind, key.default, key.doc
        );
    }
    table
}
