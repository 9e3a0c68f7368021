//! Three-way merge of texts.

/// Bytes of a file that is merged.
const LARGEST: usize = 2 * 1024 * 1024;
/// Lines between the first and the last that differ, of two texts together. The time that a comparison takes grows with their
/// square at worst.
const MOST_LINES: usize = 20_000;

/// `ours` with what leads from `base` to `theirs`; `None` where one of them is no text, or too large, or where both changed the
/// same lines.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let is_text = |bytes: &[u8]| bytes.len() <= LARGEST && !bytes.contains(&0);
    if ![base, ours, theirs].into_iter().all(is_text) {
        return None;
    }
    let is_quick = between(base, ours) <= MOST_LINES && between(base, theirs) <= MOST_LINES;
    is_quick.then(|| diffy::merge_bytes(base, ours, theirs).ok()).flatten()
}

/// Lines between the first and the last that differ.
fn between(one: &[u8], other: &[u8]) -> usize {
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    let same =
        |pairs: &mut dyn Iterator<Item = (&u8, &u8)>| pairs.take_while(|(one, other)| one == other).count();
    let head = same(&mut one.iter().zip(other));
    let (one, other) = (&one[head..], &other[head..]);
    let tail = same(&mut one.iter().rev().zip(other.iter().rev()));
    lines(&one[..one.len() - tail]) + lines(&other[..other.len() - tail])
}
