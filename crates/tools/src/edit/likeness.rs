//! How much two texts are alike, within a bounded amount of work.

/// Cells of Levenshtein's table that one search may fill: some tens of milliseconds.
const CELLS: usize = 8_000_000;

/// A measure of likeness that stops when it has done enough work.
#[derive(Debug)]
pub(super) struct Likeness {
    left: usize,
    different: usize,
    whole: usize,
}

impl Likeness {
    /// With all of its work ahead.
    pub(super) fn new() -> Self {
        Self { left: CELLS, different: 0, whole: 0 }
    }

    /// Begins another comparison, on what is left of the work.
    pub(super) fn restart(&mut self) {
        (self.different, self.whole) = (0, 0);
    }

    /// Two texts that are compared as they are. One that is too long for what is left counts as different throughout.
    pub(super) fn compare(&mut self, one: &[u8], other: &[u8]) {
        self.whole += one.len().max(other.len());
        let head = one.iter().zip(other).take_while(|(one, other)| one == other).count();
        let (one, other) = (&one[head..], &other[head..]);
        let tail = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
        let (one, other) = (&one[..one.len() - tail], &other[..other.len() - tail]);
        self.different += match one.len().checked_mul(other.len()) {
            Some(cells) if cells <= self.left => {
                self.left -= cells;
                strsim::generic_levenshtein(&Bytes(one), &Bytes(other))
            }
            _ => one.len().max(other.len()),
        };
    }

    /// Of all that was compared since the last restart: 100 is the same, 0 has nothing in common.
    pub(super) fn percent(&self) -> usize {
        (100 * (self.whole - self.different)).checked_div(self.whole).unwrap_or(100)
    }
}

/// A slice in the form that `strsim` takes.
struct Bytes<'a>(&'a [u8]);

impl<'a> IntoIterator for &Bytes<'a> {
    type Item = &'a u8;
    type IntoIter = std::slice::Iter<'a, u8>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_the_share_of_what_stays() {
        let percent = |one: &[u8], other: &[u8]| {
            let mut likeness = Likeness::new();
            likeness.compare(one, other);
            likeness.percent()
        };
        assert_eq!(percent(b"", b""), 100);
        assert_eq!(percent(b"abcd", b"abcd"), 100);
        assert_eq!(percent(b"abcd", b"abxd"), 75);
        assert_eq!(percent(b"abcd", b""), 0);
        assert_eq!(percent(b"aaaa", b"bbbb"), 0);
    }

    #[test]
    fn work_is_bounded() {
        let mut likeness = Likeness::new();
        likeness.compare(&b"a".repeat(1_000_000), &b"b".repeat(1_000_000));
        assert_eq!((likeness.percent(), likeness.left), (0, CELLS));
    }
}
