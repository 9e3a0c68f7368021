//! Many times in little memory.

/// Steps within each doubling: a time is known to about one part in so many.
const STEPS: u64 = 64;
/// Doublings that are told apart, from a microsecond on: more than an hour.
const DOUBLINGS: u64 = 32;

/// Counts of times, in microseconds, by their size.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let size = usize::try_from(STEPS * DOUBLINGS).unwrap_or_default();
        Self { counts: vec![0; size], count: 0 }
    }
}

impl Histogram {
    /// A time more, in microseconds.
    pub(crate) fn add(&mut self, time: u64) {
        // Below the first step every microsecond has a place of its own.
        let place = match time.checked_ilog2() {
            Some(log) if time >= STEPS => {
                let doubling = u64::from(log) - u64::from(STEPS.ilog2());
                STEPS * (doubling + 1) + (time >> doubling) - STEPS
            }
            _ => time,
        };
        let last = self.counts.len() - 1;
        let place = usize::try_from(place).unwrap_or(last).min(last);
        self.counts[place] += 1;
        self.count += 1;
    }

    /// The time, in milliseconds, that this share of all does not exceed; not a number where there is none.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0);
        let mut seen = 0_u64;
        for (place, count) in (0_u64..).zip(&self.counts) {
            seen += count;
            if seen as f64 >= wanted {
                let doubling = (place / STEPS).saturating_sub(1);
                let time = if place < STEPS { place } else { (STEPS + place % STEPS) << doubling };
                return time as f64 / 1e3;
            }
        }
        f64::NAN
    }
}

/// The sample, of those that are sorted, that this share of all does not exceed; not a number where there is none.
pub(crate) fn share(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
