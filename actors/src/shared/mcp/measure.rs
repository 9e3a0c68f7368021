//! What servers use.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use metrics::gauge;
use playhouse_mcp::Connection;
use playhouse_protocol::metric::Metric;
use playhouse_sandbox::process::{GroupUse, use_of_groups};

use super::{McpServers, OF_WORKSPACES};

impl McpServers {
    /// Tells the recorder what the processes of each server use. Blocks.
    #[allow(clippy::cast_precision_loss, reason = "a count may be off by one in 2^53")]
    pub(crate) fn observe(&self) {
        for (name, GroupUse { processes, resident_bytes, processor }) in self.uses() {
            let labels = [("server", name)];
            gauge!(Metric::McpProcesses.name(), &labels).set(processes as f64);
            gauge!(Metric::McpMemory.name(), &labels).set(resident_bytes as f64);
            gauge!(Metric::McpProcessor.name(), &labels).set(processor.as_secs_f64());
        }
    }

    /// What the processes of each server of the operator use, and those of all that workspaces declare. Blocks.
    pub(super) fn uses(&self) -> BTreeMap<String, GroupUse> {
        let running: Vec<(Arc<str>, Arc<Connection>)> = {
            let mut running = self.0.running.lock();
            running.retain(|(_, connection)| connection.strong_count() > 0);
            let alive = |(name, connection): &(Arc<str>, Weak<Connection>)| {
                let connection = connection.upgrade().filter(|connection| connection.end().is_none())?;
                Some((Arc::clone(name), connection))
            };
            running.iter().filter_map(alive).collect()
        };
        let processes = running.iter().filter_map(|(name, connection)| Some((name, connection.process()?)));
        let processes: Vec<(&Arc<str>, u32)> = processes.collect();
        let leaders: Vec<u32> = processes.iter().map(|(_, id)| *id).collect();
        let uses = if leaders.is_empty() { Default::default() } else { use_of_groups(&leaders) };
        // One that stopped uses nothing.
        let own = self.0.declared.own.iter().map(|declared| declared.entry.name.as_str());
        let mut sums: BTreeMap<String, GroupUse> =
            own.chain([OF_WORKSPACES]).map(|name| (name.to_owned(), GroupUse::default())).collect();
        for (name, id) in processes {
            let (Some(used), Some(sum)) = (uses.get(&id), sums.get_mut(&**name)) else { continue };
            sum.processes += used.processes;
            sum.resident_bytes += used.resident_bytes;
            sum.processor += used.processor;
        }
        sums
    }
}
