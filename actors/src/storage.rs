//! Counts what tenants take up on disk: at once when an engine starts, and then every hour.
//!
//! In between the outputs are counted as they are written, attachments as they are stored, and homes while
//! commands run. Contents that are kept for undo are counted, and those above their bound removed, only here.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playhouse_protocol::limit::{Amount, LimitScope, LimitUnit};
use playhouse_protocol::message::BlobRef;
use playhouse_protocol::{CommandError, Limit, SessionSummary};
use playhouse_store::{ListQuery, StoreError};
use playhouse_tools::storage::{self, SessionStorage, StorageBound};
use tokio::time::MissedTickBehavior;

use crate::base::spawn;
use crate::context::EngineContext;
use crate::grants::digits;
use crate::space::payer;

/// The time between two counts.
const PERIOD: Duration = Duration::from_secs(3_600);
/// Sessions that are listed at once.
const PAGE: usize = 500;
/// Hexadecimal digits by which the HOME of a tenant's programs in a workspace is known.
const HOME_DIGITS: usize = 32;

/// The limit, as metrics name it.
fn of_storage(most: u64, used: u64) -> Limit {
    let limit = Limit::of_count("storage", LimitScope::Tenant, LimitUnit::Bytes, most);
    Limit { used: Some(Amount::Count(used)), ..limit }
}

impl EngineContext {
    /// The HOME of a tenant's programs in a workspace.
    pub(crate) fn home(&self, summary: &SessionSummary) -> PathBuf {
        self.homes.join(digits([payer(&summary.tenant), &summary.workspace], HOME_DIGITS))
    }

    /// The account of the saved outputs of the session whose outputs lie in this folder.
    pub(crate) fn storage_of(&self, summary: &SessionSummary, outputs: &Path) -> SessionStorage {
        let home = self.home(summary);
        let homes = vec![for_looking(&home), home];
        self.storage.session(payer(&summary.tenant), outputs.to_owned(), homes)
    }

    /// Stores content that somebody uploaded, if its tenant may take up so much. Blocks.
    pub(crate) fn put_blob(&self, tenant: &str, content: &[u8]) -> Result<BlobRef, CommandError> {
        let (blobs, bytes) = (&self.store.blobs, content.len() as u64);
        let of = payer(tenant);
        if self.storage.take_attachment(of, bytes).is_err() && !blobs.holds(tenant, content)? {
            // Some may have been removed since they were counted.
            self.storage.note_attachments(of, blobs.size(tenant)?);
            if let Err(bound) = self.storage.take_attachment(of, bytes) {
                tracing::warn!(
                    tenant = of,
                    "an attachment is refused: its tenant reached `server.limits.storage_mb`"
                );
                let told = format!(
                    "{bytes} bytes cannot be stored: {bound}. Delete sessions that are not needed any more, or ask the operator"
                );
                let limit = match bound {
                    StorageBound::Tenant { used, most } => of_storage(most, used),
                    StorageBound::Session(most) => of_storage(most, most),
                };
                let limit = Limit { needed: Some(Amount::Count(bytes)), ..limit };
                return Err(CommandError::OutOfStorage { told, limit: Box::new(limit) });
            }
        }
        Ok(blobs.put(tenant, content)?)
    }

    /// The bound of what a tenant takes up on disk, if there is one, with what it takes up as far as that is counted.
    pub(crate) fn storage_limit(&self, tenant: &str) -> Option<Limit> {
        let used = self.storage.usage(payer(tenant)).total();
        self.storage.limits().tenant.map(|most| of_storage(most, used).with_left())
    }

    /// Counts everything, and removes what is above the bound of contents that are kept for undo. Blocks.
    fn count_storage(&self) -> Result<(), StoreError> {
        let (mut after, mut tenants, mut homes) = (None, HashSet::new(), HashSet::new());
        let mut undo: HashMap<String, u64> = HashMap::new();
        loop {
            let query = ListQuery { after, limit: PAGE, ..ListQuery::default() };
            let page = self.store.log.list(&query)?;
            for summary in page.sessions {
                let tenant = payer(&summary.tenant);
                self.storage.count_outputs(tenant, &self.outputs.join(summary.id.as_str()));
                let home = self.home(&summary);
                if homes.insert(home.clone()) {
                    for home in [for_looking(&home), home] {
                        self.storage.note_home(tenant, &home, storage::allocated(&home));
                    }
                }
                if !tenants.contains(&summary.tenant) {
                    tenants.insert(summary.tenant.clone());
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let most = self.storage.most_undo().unwrap_or(u64::MAX);
        for tenant in tenants {
            let of = payer(&tenant);
            if of == tenant {
                self.storage.note_attachments(of, self.store.blobs.size(of)?);
            }
            *undo.entry(of.to_owned()).or_default() += self.store.blobs.trim_images(&tenant, most)?;
        }
        undo.into_iter().for_each(|(tenant, bytes)| self.storage.note_undo(&tenant, bytes));
        Ok(())
    }
}

/// The HOME of programs that change nothing, beside that of the others.
pub(crate) fn for_looking(home: &Path) -> PathBuf {
    let mut home = home.to_owned().into_os_string();
    home.push("-looking");
    home.into()
}

/// Counts at once, and then every hour, as long as the engine runs.
pub(crate) fn keep_counting(shared: &Arc<EngineContext>) {
    repeat(shared, PERIOD, |shared| async move {
        let pool = shared.tool_pool.clone();
        if let Err(error) = pool.run(move || shared.count_storage()).await {
            tracing::warn!(%error, "what tenants take up on disk cannot be counted");
        }
    });
}

/// Does `work` at once, and again after each `period`, as long as the engine runs.
pub(crate) fn repeat<F: Future<Output = ()> + Send>(
    shared: &Arc<EngineContext>,
    period: Duration,
    work: impl Fn(Arc<EngineContext>) -> F + Send + 'static,
) {
    let (weak, cancel) = (Arc::downgrade(shared), shared.sweeper.token());
    // Not awaited: it is over soon after the engine has stopped.
    drop(spawn(async move {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let Some(shared) = weak.upgrade() else { return };
            work(shared).await;
        }
    }));
}
