//! What is known of the tools of servers, whether they run or not.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_mcp::{KeptLists, Listing, OfferedTool, offered};
use playhouse_protocol::chat::ToolSpec;
use playhouse_sandbox::blocking;
use tokio::sync::watch;

use super::declared::Declared;
use super::key::ServerKey;

/// Number of servers whose own lists are remembered.
const MOST_OWN: usize = 4_096;

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
    /// By the hash of the entry: what those begin with of whose own server nothing was seen.
    seen: Mutex<HashMap<String, Seen>>,
    /// What each server was seen to offer: what one tenant's does is nothing to those of others.
    own: Mutex<HashMap<ServerKey, Seen>>,
    /// Counts changes of what is offered.
    pub(super) changed: watch::Sender<u64>,
}

impl Known {
    /// Reads the lists that are kept of these entries. Blocks.
    pub(super) fn load<'a>(
        kept: KeptLists,
        declared: impl IntoIterator<Item = &'a Arc<Declared>>,
    ) -> Arc<Self> {
        let (seen, own) = (Mutex::default(), Mutex::default());
        let known = Self { kept, seen, own, changed: watch::Sender::new(0) };
        for declared in declared {
            if let Some(listing) = known.kept.load(&declared.hash) {
                known.seen.lock().insert(declared.hash.clone(), Seen::of(declared, listing));
            }
        }
        Arc::new(known)
    }

    /// What is known of all servers of an entry.
    pub(super) fn of(&self, hash: &str) -> Option<Seen> {
        self.seen.lock().get(hash).cloned()
    }

    /// What is known of one.
    pub(super) fn of_key(&self, key: &ServerKey) -> Option<Seen> {
        let own = self.own.lock().get(key).cloned();
        own.or_else(|| self.of(&key.hash))
    }

    /// Something else than before is offered.
    pub(super) fn change(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Takes what a server offers now. What it offers when it has just started, which nobody changed, is kept on disk before
    /// anybody sees it, for all that begin later.
    pub(super) async fn learn(
        self: Arc<Self>,
        declared: Arc<Declared>,
        key: ServerKey,
        listing: Listing,
        started: bool,
    ) {
        blocking(move || {
            let is_known = |seen: &Seen| *seen.listing == listing;
            let keeps = started && !self.of(&declared.hash).as_ref().is_some_and(is_known);
            if !keeps && self.of_key(&key).as_ref().is_some_and(is_known) {
                return;
            }
            let seen = Seen::of(&declared, listing);
            if keeps {
                if let Err(error) = self.kept.save(&declared.hash, &seen.listing) {
                    tracing::warn!(server = declared.entry.name, %error, "the list of a server's tools cannot be kept");
                }
                self.seen.lock().insert(declared.hash.clone(), seen.clone());
            }
            {
                let mut own = self.own.lock();
                if own.len() >= MOST_OWN {
                    // They begin with what is kept.
                    own.clear();
                }
                own.insert(key, seen);
            }
            self.change();
        })
        .await;
    }
}

impl Seen {
    /// The tools that are set aside, with those that providers refused.
    pub(super) fn refused_with(
        &self,
        refusal: &dyn Fn(&ToolSpec) -> Option<String>,
    ) -> Vec<(String, String)> {
        let by_providers = self
            .offered
            .iter()
            .filter_map(|offered| refusal(offered.spec()).map(|reason| (offered.name().to_owned(), reason)));
        self.refused.iter().cloned().chain(by_providers).collect()
    }

    fn of(declared: &Declared, listing: Listing) -> Self {
        let (offered, refused) = offered(&declared.entry, &listing);
        for (tool, reason) in &refused {
            tracing::warn!(server = declared.entry.name, tool, reason, "a tool is set aside");
        }
        Self { listing: Arc::new(listing), offered: offered.into(), refused: refused.into() }
    }
}
