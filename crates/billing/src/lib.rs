//! From usage to totals: what the metering actor keeps; what may be used ([`budget`]); what rows cost at
//! other prices ([`reprice`]); and what leaves the ledger ([`export`]).
//!
//! ```
//! use playhouse_billing::Meter;
//! use playhouse_protocol::{IdGenerator, ModelRef, SessionId, Timestamp, Tokens, Usage};
//!
//! let session: SessionId = IdGenerator::new(|bytes| bytes.fill(1)).next(Timestamp::from_millis(1));
//! let mut meter = Meter::default();
//! let usage = Usage { tokens: Tokens { input: 10, ..Tokens::default() }, ..Usage::default() };
//! meter.add(session, &ModelRef::new("local", "m"), &usage, None);
//! assert_eq!(meter.totals().tokens.input, 10);
//! assert_eq!(meter.totals().unpriced, 1);
//! ```

pub mod budget;
pub mod export;
pub mod reprice;

use std::collections::BTreeMap;

use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Cost, ModelRef, SessionId, Usage};

/// Running totals of the attempts that ended, by session and by model.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    by_session: BTreeMap<SessionId, BTreeMap<ModelRef, Totals>>,
    by_model: BTreeMap<ModelRef, Totals>,
}

impl Meter {
    /// Adds an attempt that ended.
    pub fn add(&mut self, session: SessionId, model: &ModelRef, usage: &Usage, cost: Option<Cost>) {
        self.by_session
            .entry(session)
            .or_default()
            .entry(model.clone())
            .or_default()
            .add_attempt(usage, cost);
        self.by_model.entry(model.clone()).or_default().add_attempt(usage, cost);
    }

    /// Forgets a session; the totals by model keep what it used.
    pub fn forget(&mut self, session: SessionId) {
        self.by_session.remove(&session);
    }

    /// What `session` used, by model.
    pub fn session(&self, session: SessionId) -> BTreeMap<ModelRef, Totals> {
        self.by_session.get(&session).cloned().unwrap_or_default()
    }

    /// What all sessions used, by model.
    pub fn models(&self) -> &BTreeMap<ModelRef, Totals> {
        &self.by_model
    }

    /// What all sessions used.
    pub fn totals(&self) -> Totals {
        self.by_model.values().fold(Totals::default(), |mut sum, totals| {
            sum += *totals;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use playhouse_protocol::{IdGenerator, Timestamp, Tokens};

    #[test]
    fn forgetting_a_session_keeps_the_totals_by_model() {
        let session = IdGenerator::new(|bytes| bytes.fill(1)).next(Timestamp::from_millis(1));
        let usage = Usage { tokens: Tokens { output: 3, ..Tokens::default() }, ..Usage::default() };
        let (one, two) = (ModelRef::new("p", "one"), ModelRef::new("p", "two"));
        let mut meter = Meter::default();
        meter.add(session, &one, &usage, Some(Cost::ZERO));
        meter.add(session, &two, &usage, None);
        meter.add(session, &one, &usage, Some(Cost::ZERO));
        assert_eq!(meter.session(session)[&one].attempts, 2);
        meter.forget(session);
        assert!(meter.session(session).is_empty());
        assert_eq!(meter.totals().tokens.output, 9);
        assert_eq!(meter.models()[&two].unpriced, 1);
    }
}
