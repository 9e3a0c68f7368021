//! Which tools there are in a directory.

use std::path::Path;
use std::sync::Arc;

use playhouse_protocol::CommandError;
use playhouse_protocol::consent::Risk;
use playhouse_protocol::tool::ToolOrigin;
use playhouse_tools::ToolScope;
use serde_json::Value;

use crate::api::engine::Engine;

/// A tool that does not come with the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct OutsideTool {
    /// Its name.
    pub name: String,
    /// What a model is told of it.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
    /// How dangerous it is without a rule about it.
    pub risk: Risk,
    /// What rules call it.
    pub permission: String,
    /// Where it comes from.
    pub origin: ToolOrigin,
}

impl Engine {
    /// The tools beside those that come with the engine which a new session of `tenant` in `workspace` would have, as far as
    /// they are known now. Reads what the workspace declares.
    ///
    /// # Errors
    /// The workspace could not be read.
    pub async fn outside_tools(
        &self,
        tenant: &str,
        workspace: &Path,
    ) -> Result<Vec<OutsideTool>, CommandError> {
        let scope =
            ToolScope { tenant: tenant.into(), workspace: workspace.into(), session: self.ids.next() };
        let shared = Arc::clone(&self.shared);
        let catalogue = move || {
            shared.tools.load(&scope);
            let catalogue = shared.tools.catalogue(&scope, None);
            let outside = catalogue.iter().filter_map(|tool| {
                let spec = tool.spec();
                Some(OutsideTool {
                    name: spec.name.clone(),
                    description: spec.description.clone(),
                    parameters: spec.parameters.clone(),
                    risk: tool.risk(),
                    permission: tool.permission().to_owned(),
                    origin: tool.origin()?.clone(),
                })
            });
            Ok(outside.collect())
        };
        self.shared.pool.run(catalogue).await
    }
}
