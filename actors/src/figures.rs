//! Counts that providers send and that nobody reads.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use playhouse_llm::unknown_figures;
use playhouse_protocol::usage::Quality;
use playhouse_session::AttemptReport;

/// The most fields that are remembered.
const MOST: usize = 1_000;

/// The fields that were named to the operator.
#[derive(Debug, Default)]
pub(crate) struct NamedFigures(Mutex<BTreeSet<(String, String)>>);

impl NamedFigures {
    /// Names to the operator the counts of an attempt that are not known, each once per provider.
    pub(crate) fn name_unknown(&self, provider: &str, report: &AttemptReport) {
        let usage = match report {
            AttemptReport::Finished(answer) => &answer.usage,
            AttemptReport::Failed(failed) => &failed.usage,
        };
        // With an unknown count no usage is taken as it was reported.
        let Some(usage) = usage.as_ref().filter(|usage| usage.quality != Quality::Reported) else {
            return;
        };
        for field in unknown_figures(usage) {
            let mut named = self.0.lock();
            if named.len() < MOST && named.insert((provider.to_owned(), field.clone())) {
                tracing::warn!(
                    provider,
                    field = %field.escape_debug(),
                    "the provider counts tokens in a field that is not known: rows with it are marked as unreconciled, and may cost too little"
                );
            }
        }
    }
}
