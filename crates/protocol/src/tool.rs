//! Where a tool comes from that is not one of the engine's own.
//!
//! ```
//! # use playhouse_protocol::tool::ToolOrigin;
//! let origin = ToolOrigin::Mcp { server: "files".into(), tool: "read".into() };
//! let text = serde_json::to_string(&origin).unwrap();
//! assert_eq!(text, r#"{"kind":"mcp","server":"files","tool":"read"}"#);
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a tool comes from. Records, messages and lists leave it out for native tools, which come with the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolOrigin {
    /// A server of the Model Context Protocol.
    Mcp {
        /// The server's name in the configuration.
        server: String,
        /// The tool's name at the server.
        tool: String,
    },
    /// The platform that runs the engine: registered over the API.
    Host,
    /// A capture tool: its arguments are kept as an artifact.
    Capture,
}

impl ToolOrigin {
    /// What metrics call its tools: one of few values, however many there are.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Mcp { .. } => "mcp",
            Self::Host => "host",
            Self::Capture => "capture",
        }
    }

    /// The MCP server, and the tool's name there.
    pub fn mcp(&self) -> Option<(&str, &str)> {
        match self {
            Self::Mcp { server, tool } => Some((server, tool)),
            Self::Host | Self::Capture => None,
        }
    }
}
