//! Three-way merge of texts.

/// Bytes of a file that is merged.
const LARGEST: usize = 2 * 1024 * 1024;

/// `ours` with what leads from `base` to `theirs`; `None` where one of them is no text, or too large, or where both changed the
/// same lines.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let is_text = |bytes: &[u8]| bytes.len() <= LARGEST && !bytes.contains(&0);
    if ![base, ours, theirs].into_iter().all(is_text) {
        return None;
    }
    diffy::merge_bytes(base, ours, theirs).ok()
}
