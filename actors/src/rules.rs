//! Which rules files of subdirectories a session's models were shown: each once, as long as they still read where it stands.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::CallResult;
use playhouse_session::{Session, rules_in};

/// The files by path, each with the call that is about to show it, until its result stands in the log. Calls claim files, the
/// session actor says what became of that.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownRules(Arc<Mutex<HashMap<String, Option<PartId>>>>);

impl ShownRules {
    /// What the history of `session` shows.
    pub(crate) fn of(session: &Session) -> Self {
        let shown = Self::default();
        shown.set(session);
        shown
    }

    /// The same anew, since models read less of the history than before. What calls are about to show stays claimed.
    pub(crate) fn set(&self, session: &Session) {
        let mut files = self.0.lock();
        files.retain(|_, call| call.is_some());
        files.extend(session.shown_rules().map(|file| (file.to_owned(), None)));
    }

    /// Whether `call` is the first to show `file`.
    pub(crate) fn claim(&self, file: &str, call: PartId) -> bool {
        match self.0.lock().entry(file.to_owned()) {
            Entry::Vacant(free) => {
                free.insert(Some(call));
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// The result of `call` stands in the log. What it had claimed and does not show is free again.
    pub(crate) fn settled(&self, call: PartId, result: &CallResult) {
        self.0.lock().retain(|file, by| {
            if *by != Some(call) {
                return true;
            }
            *by = None;
            rules_in(result).any(|shown| shown == file)
        });
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::Timestamp;
    use playhouse_protocol::message::CallOutcome;
    use serde_json::{Map, json};

    use super::*;

    fn call(number: u8) -> PartId {
        PartId::parse(&format!("prt_00000000000{number}AAAAAAAAAAAAAA")).unwrap()
    }

    fn result(rules: &[&str]) -> CallResult {
        let mut metadata = Map::new();
        metadata.insert("rules".into(), json!(rules));
        CallResult {
            outcome: CallOutcome::Done,
            title: String::new(),
            output: String::new(),
            metadata,
            attachments: Vec::new(),
            started: Timestamp::from_millis(0),
            ended: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn a_file_is_shown_by_one_call_unless_that_does_not_show_it_after_all() {
        let rules = ShownRules::default();
        assert!(rules.claim("docs/AGENTS.md", call(1)) && rules.claim("src/AGENTS.md", call(1)));
        assert!(!rules.claim("docs/AGENTS.md", call(2)), "another call that runs beside it");
        rules.settled(call(2), &result(&[]));
        assert!(!rules.claim("docs/AGENTS.md", call(2)));
        rules.settled(call(1), &result(&["docs/AGENTS.md"]));
        assert!(!rules.claim("docs/AGENTS.md", call(2)));
        assert!(rules.claim("src/AGENTS.md", call(2)), "it was cut off before it showed this one");
    }
}
