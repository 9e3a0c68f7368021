//! Rows that are priced anew: what is asked, and what came of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::day::Day;
use crate::model::ModelRef;
use crate::usage::Cost;

/// Which rows of the ledger are priced anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepriceRequest {
    /// The first day (UTC) whose rows are priced anew.
    #[schemars(with = "String")]
    pub from: Day,
    /// The first day behind them, which is after `from`.
    #[schemars(with = "String")]
    pub to: Day,
    /// The models, at least one.
    #[schemars(length(min = 1))]
    pub models: Vec<ModelRef>,
    /// Whether it is only said what would be corrected.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was corrected, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepriceReport {
    /// Rows of these models and days, without corrections.
    pub looked_at: u64,
    /// Rows whose cost is another now: as many corrections were added.
    pub corrected: u64,
    /// Rows whose model has no price now. They stay as they are.
    pub unpriced: u64,
    /// Rows that were archived. They are not priced anew.
    pub archived: u64,
    /// The sum of the corrections, by currency. Empty without corrections.
    pub difference: BTreeMap<String, Cost>,
    /// Whether nothing was written.
    pub dry_run: bool,
}
