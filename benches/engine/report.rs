//! Samples, and how they are told.

use std::fmt;

use serde::Serialize;

use crate::machine;

/// The head of the table.
pub(crate) const HEAD: &str = "\
| measured | median | least | 90 % | target | samples |
|---|---|---|---|---|---|";

/// Everything that was measured, and where.
#[derive(Serialize)]
pub(crate) struct Report {
    /// The version of the engine.
    version: &'static str,
    /// Processor, cores, memory and system.
    pub(crate) machine: String,
    /// The measurements, in order.
    pub(crate) measurements: Vec<Measurement>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), machine: machine::line(), measurements: Vec::new() }
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }
}

/// One number, from many samples.
#[derive(Serialize)]
pub(crate) struct Measurement {
    /// What was measured.
    name: String,
    /// The unit of all numbers here.
    unit: &'static str,
    /// The middle sample.
    median: f64,
    /// The least one.
    least: f64,
    /// The sample that nine of ten do not exceed.
    ninth_decile: f64,
    /// How many there are.
    samples: usize,
    /// What the median shall stay under; absent where nothing is demanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<f64>,
}

impl Measurement {
    /// A measurement of at least one sample.
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |tenths: usize| samples.get(samples.len().saturating_sub(1) * tenths / 10).copied();
        Self {
            name: name.into(),
            unit,
            median: at(5).unwrap_or(f64::NAN),
            least: at(0).unwrap_or(f64::NAN),
            ninth_decile: at(9).unwrap_or(f64::NAN),
            samples: samples.len(),
            target: None,
        }
    }

    /// With what the median shall stay under.
    pub(crate) fn under(mut self, target: f64) -> Self {
        self.target = Some(target);
        self
    }

    pub(crate) fn median(&self) -> f64 {
        self.median
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, unit, median, least, ninth_decile, samples, target } = self;
        let target = match target {
            Some(target) => {
                let met = if median < target { "met" } else { "**missed**" };
                format!("< {target:.2} {unit}: {met} ({:.2})", median / target)
            }
            None => String::new(),
        };
        write!(f, "| {name} | {median:.2} {unit} | {least:.2} | {ninth_decile:.2} | {target} | {samples} |")
    }
}
