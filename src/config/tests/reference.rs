//! Every key, as the reference lists it and as a file sets it.

use super::*;

#[test]
fn every_key_can_be_set_and_is_in_the_reference() {
    let reference = playhouse_config_reference();
    let place = Place::new();
    place.write("operator/a.md", "rules").write("operator/schema.json", "{}");
    let base = "providers.n.dialect = \"anthropic\"\nproviders.n.base_url = \"http://a\"\n\
                providers.n.models.m.context = 9\nproviders.n.models.m.output = 1\n";
    for key in KEYS {
        assert!(reference.contains(&format!("| `{}` |", key.path)), "{}", key.path);
        let value = match key.name {
            KeyName::Model | KeyName::SmallModel => "\"n/m\"",
            KeyName::ContextKeep => "40",
            KeyName::Agent => "\"plan\"",
            KeyName::Rules => "[\"a.md\"]",
            KeyName::PromptAppend => "\"Be kind.\"",
            KeyName::CaptureExamples => "[\"save_prd\"]",
            KeyName::CaptureDescription => "\"Keeps it.\"",
            KeyName::CaptureSchema => "\"schema.json\"",
            KeyName::Attachments => "[\"pdf\"]",
            KeyName::ApiKeyEnv => "\"N_KEY\"",
            KeyName::OutputLimitField => "\"max_completion_tokens\"",
            KeyName::Usage => "\"anthropic\"",
            KeyName::Http2 => "\"prior-knowledge\"",
            KeyName::CallIds => "\"nine-alphanumeric\"",
            KeyName::Header | KeyName::WebSearchHeader => "{ env = \"N_HEADER\" }",
            KeyName::WebAllowPrivate => "[\"10.0.0.0/8\"]",
            KeyName::WebSearch => "\"exa\"",
            KeyName::WebSearchUrl => "\"http://127.0.0.1:8080\"",
            KeyName::WebSearchTool | KeyName::WebCodeTool => "\"find\"",
            KeyName::ModelReasoning => "\"low\"",
            KeyName::CostLong => "[{ from = 200_000, input = 4 }]",
            KeyName::Permission => "{ \"x *\" = \"deny\" }",
            KeyName::Sandbox => "\"required\"",
            KeyName::Store => "\"redb\"",
            KeyName::StoreOnDamage => "\"salvage\"",
            KeyName::Resume => "\"manual\"",
            KeyName::Moderate => "\"allow\"",
            KeyName::WallsRead | KeyName::WallsWrite | KeyName::WallsRoots => "[\"/opt\"]",
            KeyName::SnapshotsInclude => "[\".env\"]",
            KeyName::BillingLight => "[\"*-mini\"]",
            KeyName::BillingLabels | KeyName::MetricsLabels => "[\"customer\"]",
            KeyName::BudgetTenantPer | KeyName::TenantPer => "\"day\"",
            KeyName::McpCommand | KeyName::McpCwd => "\"/opt/p\"",
            KeyName::McpArgs
            | KeyName::McpAllow
            | KeyName::McpDeny
            | KeyName::McpAgents
            | KeyName::McpRead
            | KeyName::McpWrite => "[\"/opt\"]",
            KeyName::McpEnv | KeyName::McpHeader => "\"m\"",
            KeyName::McpUrl => "\"https://a.example\"",
            KeyName::McpScope => "\"tenant\"",
            KeyName::McpSandbox => "\"walls\"",
            KeyName::McpRisk => "\"safe\"",
            KeyName::McpOauthClient => "\"n\"",
            KeyName::McpOauthSecret => "\"N_SECRET\"",
            KeyName::McpOauthDocument => "\"https://a.example/client.json\"",
            KeyName::McpOauthScopes => "[\"read\"]",
            KeyName::McpOauthGrant => "\"authorization_code\"",
            KeyName::LspCommand => "[\"p\"]",
            KeyName::LspExtensions | KeyName::FormatterExtensions => "[\".x\"]",
            KeyName::FormatterCommand => "[\"p\", \"$FILE\"]",
            KeyName::LspRootMarkers => "[\"x.toml\"]",
            KeyName::LspEnv => "\"m\"",
            KeyName::LspInitialization => "\"{}\"",
            KeyName::LspMemory | KeyName::LspTotalMemory => "64",
            KeyName::SinkUrl => "\"http://s\"",
            KeyName::SinkKey => "\"N_SINK\"",
            KeyName::SinkFolder => "\"usage\"",
            KeyName::SinkSource | KeyName::SinkEvent | KeyName::SinkOrganization => "\"n\"",
            KeyName::SinkStart => "\"now\"",
            KeyName::MetricsAccess => "\"open\"",
            KeyName::MetricsToken => "\"N_TOKEN\"",
            KeyName::ServerListen => "\"0.0.0.0:80\"",
            KeyName::ServerRoots => "[\"/srv\"]",
            KeyName::ServerMcpTools => "[\"read\"]",
            KeyName::ServerHosts => "[\"play.example.org\"]",
            KeyName::ServerOrigins => "[\"https://app.example.org\"]",
            KeyName::BashProcesses
            | KeyName::BashMemory
            | KeyName::BashOpenFiles
            | KeyName::BashSessionProcesses
            | KeyName::BashSessionMemory => "64",
            KeyName::Dialect | KeyName::BaseUrl | KeyName::Context | KeyName::Output | KeyName::SinkType => {
                continue;
            }
            _ if key.kind == Kind::Number => "0.5",
            _ if key.kind == Kind::Whole => "7",
            _ => "true",
        };
        let path = key.path.replacen("NAME", "n", 1).replacen("NAME", "m", 1);
        let sink = match key.name {
            KeyName::BudgetTenantPer => "budgets.tenant.cost = 1.5",
            KeyName::TenantPer => "budgets.tenants.n.cost = 1.5",
            KeyName::MetricsLabels => "billing.labels = [\"customer\"]",
            name if key.path.starts_with("sinks.") => of_sink(name),
            KeyName::McpCommand | KeyName::McpUrl => "",
            KeyName::McpOauthSecret => "mcp.n.url = \"https://a.example\"\nmcp.n.oauth.client_id = \"n\"",
            KeyName::McpHeader => "mcp.n.url = \"https://a.example\"",
            _ if key.path.starts_with("mcp.NAME.oauth") => "mcp.n.url = \"https://a.example\"",
            _ if key.path.starts_with("mcp.") => "mcp.n.command = \"p\"",
            KeyName::LspCommand => "lsp.n.extensions = [\".x\"]",
            KeyName::LspExtensions => "lsp.n.command = [\"p\"]",
            _ if key.path.starts_with("lsp.NAME") => "lsp.n.command = [\"p\"]\nlsp.n.extensions = [\".x\"]",
            KeyName::FormatterCommand => "formatter.n.extensions = [\".x\"]",
            KeyName::FormatterExtensions => "formatter.n.command = [\"p\", \"$FILE\"]",
            KeyName::FormatterEnabled => {
                "formatter.n.command = [\"p\", \"$FILE\"]\nformatter.n.extensions = [\".x\"]"
            }
            KeyName::CaptureDescription => "capture.n.schema = \"schema.json\"",
            KeyName::CaptureSchema => "capture.n.description = \"Keeps it.\"",
            _ => "",
        };
        place.write("operator/config.toml", format!("{path} = {value}\n{base}{sink}"));
        assert!(place.load().is_ok(), "{path}: {:?}", place.load().err());
    }
    assert_snapshot!("reference", reference);
}

/// What a sink needs beside this key.
fn of_sink(key: KeyName) -> &'static str {
    match key {
        KeyName::SinkFolder => "sinks.n.kind = \"file\"",
        KeyName::SinkRotateBytes | KeyName::SinkRotateSeconds => {
            "sinks.n.kind = \"file\"\nsinks.n.folder = \"usage\""
        }
        KeyName::SinkUrl => "sinks.n.kind = \"report\"",
        KeyName::SinkKey => "sinks.n.kind = \"webhook\"\nsinks.n.url = \"http://s\"",
        KeyName::SinkSource => "sinks.n.kind = \"cloudevents\"\nsinks.n.url = \"http://s\"",
        _ => "sinks.n.kind = \"polar\"\nsinks.n.key_env = \"N_SINK\"",
    }
}
