//! What a house tells and does for the operator's commands beside what its engine does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::nearest::did_you_mean;
use playhouse_protocol::operator::{
    BillingRequest, EngineFacts, OPERATOR_PROTOCOL, OperatorReply, ScriptedCall,
};
use playhouse_protocol::{CommandError, ModelRef};
use playhouse_server::Operations;
use playhouse_store::Upkeep;
use playhouse_tools::Registry;

use crate::directory::SettingsDirectory;
use crate::mock::{BY_HAND, PROVIDER};
use crate::sinks::Sinks;

/// Models that make calls by hand, of this process.
static SCRIPTS: AtomicU64 = AtomicU64::new(1);

pub(crate) struct HouseOperations {
    directory: Arc<SettingsDirectory>,
    sinks: Arc<Sinks>,
    upkeep: Arc<dyn Upkeep>,
    generation: u64,
}

impl HouseOperations {
    pub(crate) fn new(
        directory: Arc<SettingsDirectory>,
        sinks: Arc<Sinks>,
        upkeep: Arc<dyn Upkeep>,
        generation: u64,
    ) -> Self {
        Self { directory, sinks, upkeep, generation }
    }
}

impl Operations for HouseOperations {
    fn engine(&self) -> EngineFacts {
        let settings = &self.directory.settings;
        // Whoever compares it with its own may stand somewhere else.
        let file =
            settings.file.as_ref().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
        EngineFacts {
            protocol: OPERATOR_PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            generation: self.generation,
            configuration: settings.fingerprint.clone(),
            file: file.map(|file| file.display().to_string()),
            sandbox: settings.sandbox,
            network: settings.walls.network,
            background: false,
            ending: false,
        }
    }

    fn script(&self, calls: &[ScriptedCall]) -> Result<ModelRef, CommandError> {
        for call in calls {
            check_tool(&call.tool, &self.directory.tools).map_err(CommandError::Invalid)?;
        }
        // The generation keeps apart what an engine before this one left unfinished.
        let number = SCRIPTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{BY_HAND}{}-{number}", self.generation);
        self.directory.by_hand.add(&name, calls);
        Ok(ModelRef::new(PROVIDER, name))
    }

    fn billing(&self, request: BillingRequest) -> BoxFuture<'_, Result<OperatorReply, CommandError>> {
        self.sinks.answer(request).boxed()
    }

    fn upkeep(&self) -> Arc<dyn Upkeep> {
        Arc::clone(&self.upkeep)
    }

    fn exported(&self) -> BoxFuture<'_, Result<Vec<(String, u64)>, CommandError>> {
        self.sinks.exported().boxed()
    }

    fn observe(&self) {
        self.sinks.observe();
    }
}

/// Whether there is a tool of this name; else what to say.
pub(crate) fn check_tool(tool: &str, tools: &Registry) -> Result<(), String> {
    let names: Vec<&str> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    if names.contains(&tool) {
        return Ok(());
    }
    let meant = did_you_mean(tool, names.iter().copied());
    Err(format!("unknown tool \"{tool}\"; there are {}{meant}", names.join(", ")))
}
