//! Labels of usage: which of a session's metadata rows of the ledger have.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use playhouse_protocol::Labels;
use playhouse_protocol::attribution::{LONGEST_LABEL, labels_of};
use serde_json::{Map, Value};

/// Makes labels, and logs once for each key that a value cannot be one.
#[derive(Default)]
pub(crate) struct Labelling {
    told: Mutex<BTreeSet<String>>,
}

impl Labelling {
    /// The labels at `keys` of this metadata.
    pub(crate) fn labels(&self, keys: &[String], metadata: &Map<String, Value>) -> Labels {
        labels_of(keys, metadata, |name| {
            let mut told = self.told.lock();
            if told.insert(name.to_owned()) {
                tracing::warn!(
                    key = name,
                    "a session's metadata has a value that cannot be a label of its usage: write a text, a number or a \
                     boolean of at most {LONGEST_LABEL} bytes; rows go without it"
                );
            }
        })
    }
}
