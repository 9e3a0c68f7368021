//! What is known of the tools of servers, whether they run or not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use playhouse_mcp::{KeptLists, Listing, OfferedTool, ServerEntry, offered};
use playhouse_sandbox::blocking;
use tokio::sync::watch;

/// An entry with its hash.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) entry: ServerEntry,
    pub(super) hash: String,
}

/// What a server was seen to offer last.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) listing: Arc<Listing>,
    pub(super) offered: Arc<[Arc<OfferedTool>]>,
    /// Tools that cannot be shown, by name and with the reason.
    pub(super) refused: Arc<[(String, String)]>,
}

/// The lists of all servers, by the hashes of their entries.
pub(super) struct Known {
    kept: KeptLists,
    seen: Mutex<HashMap<String, Seen>>,
    /// Counts changes of what is offered.
    pub(super) changed: watch::Sender<u64>,
}

impl Known {
    /// Reads the lists that are kept of these entries. Blocks.
    pub(super) fn load<'a>(
        kept: KeptLists,
        declared: impl IntoIterator<Item = &'a Arc<Declared>>,
    ) -> Arc<Self> {
        let known = Self { kept, seen: Mutex::default(), changed: watch::Sender::new(0) };
        for declared in declared {
            if let Some(listing) = known.kept.load(&declared.hash) {
                known.see(declared, listing);
            }
        }
        Arc::new(known)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, hash: &str) -> Option<Seen> {
        self.lock().get(hash).cloned()
    }

    /// Something else than before is offered.
    pub(super) fn change(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Takes what a server offers now.
    fn see(&self, declared: &Declared, listing: Listing) {
        let (offered, refused) = offered(&declared.entry, &listing);
        for (tool, reason) in &refused {
            tracing::warn!(server = declared.entry.name, tool, reason, "a tool is set aside");
        }
        let seen = Seen { listing: Arc::new(listing), offered: offered.into(), refused: refused.into() };
        self.lock().insert(declared.hash.clone(), seen);
        self.change();
    }

    /// Takes what a server offers now, and keeps it on disk before anybody sees it.
    pub(super) async fn learn(self: Arc<Self>, declared: Arc<Declared>, listing: Listing) {
        blocking(move || {
            if self.of(&declared.hash).is_some_and(|seen| *seen.listing == listing) {
                return;
            }
            if let Err(error) = self.kept.save(&declared.hash, &listing) {
                tracing::warn!(server = declared.entry.name, %error, "the list of a server's tools cannot be kept");
            }
            self.see(&declared, listing);
        })
        .await;
    }
}
