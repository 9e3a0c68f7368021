//! Gauges of an engine, set at the moment when metrics are read.

use crate::api::engine::Engine;
use crate::measure::{Count, Doing};
use metrics::gauge;
use playhouse_protocol::metric::{MAILBOXES, Metric, POOLS, SESSION_STATES, SUSPENSION_REASONS};

impl Engine {
    /// Tells the recorder of metrics how many there are of what goes up and down: sessions, requests for consent, messages
    /// that wait, work that runs. To be called before what was recorded is read. Fast, however many sessions there are.
    pub fn observe(&self) {
        let shared = &self.shared;
        if let Some(servers) = &shared.mcp {
            servers.observe();
        }
        if let Some(servers) = &shared.lsp {
            servers.observe();
        }
        let census = &shared.measures.census;
        for (state, doing) in SESSION_STATES.iter().zip(Doing::ALL) {
            gauge!(Metric::Sessions.name(), "state" => *state).set(number(census.doing(doing)));
        }
        let suspended = shared.store.log.health().map(|suspended| suspended.reason.name());
        for reason in SUSPENSION_REASONS {
            let is_this = suspended == Some(reason);
            gauge!(Metric::StoreSuspended.name(), "reason" => *reason).set(f64::from(u8::from(is_this)));
        }
        for (metric, count) in [
            (Metric::ConsentsWaiting, Count::Consents),
            (Metric::QuestionsWaiting, Count::Questions),
            (Metric::ProviderWaiting, Count::ProviderWaiting),
        ] {
            gauge!(metric.name()).set(number(census.count(count)));
        }
        let depths =
            [census.count(Count::Supervisor), census.count(Count::Metering), shared.store.log.waiting()];
        for (mailbox, depth) in MAILBOXES.iter().zip(depths) {
            gauge!(Metric::MailboxDepth.name(), "mailbox" => *mailbox).set(number(depth));
        }
        for (pool, of) in POOLS.iter().zip([&shared.pool, &shared.tool_pool]) {
            gauge!(Metric::PoolRunning.name(), "pool" => *pool).set(number(of.running()));
            gauge!(Metric::PoolWaiting.name(), "pool" => *pool).set(number(of.waiting()));
        }
        shared.measures.storage(&shared.storage.usages());
        if let Some(space) = shared.space.get() {
            gauge!(Metric::DataFree.name()).set(bytes(space.free));
            gauge!(Metric::DataSize.name()).set(bytes(space.size));
        }
        gauge!(Metric::TenantsSuspended.name()).set(number(shared.space.suspended()));
        shared.purses.observe();
        gauge!(Metric::Children.name()).set(number(shared.children.count()));
        gauge!(Metric::ToolProcesses.name()).set(number(playhouse_sandbox::process::under_way()));
    }
}

#[allow(clippy::cast_precision_loss, reason = "a size may be off by one in 2^53")]
fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

#[allow(clippy::cast_precision_loss, reason = "a count may be off by one in 2^53")]
fn number(count: usize) -> f64 {
    count as f64
}
