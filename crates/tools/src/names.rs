//! Names that were meant, for those that were written.

/// The most names that are proposed.
const MOST: usize = 3;

/// The candidates that `written` was probably meant to be, nearest first; none where nothing is near.
pub(crate) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let written = plain(written);
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| Some((distance(&written, &plain(candidate))?, candidate)))
        .collect();
    // Stable, so equally near ones keep the order in which they are known.
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(MOST).map(|(_, candidate)| candidate).collect()
}

/// `file_path`, `file-path` and `filePath` are the same mistake.
fn plain(name: &str) -> String {
    name.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn distance(written: &str, candidate: &str) -> Option<usize> {
    if written == candidate {
        return Some(0);
    }
    let contains = |longer: &str, shorter: &str| shorter.len() >= 4 && longer.contains(shorter);
    if contains(written, candidate) || contains(candidate, written) {
        return Some(1);
    }
    let distance = strsim::damerau_levenshtein(written, candidate);
    let length = written.chars().count().max(candidate.chars().count());
    (distance <= 3 && distance * 2 <= length).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: [&str; 5] = ["read", "write", "edit", "bash", "grep"];

    #[test]
    fn what_is_near_is_proposed_nearest_first() {
        assert_eq!(nearest("raed", TOOLS), ["read"]);
        assert_eq!(nearest("read_file", TOOLS), ["read"]);
        assert_eq!(nearest("Bash", TOOLS), ["bash"]);
        assert_eq!(nearest("file_path", ["limit", "filePath"]), ["filePath"]);
        assert_eq!(nearest("frobnicate", TOOLS), Vec::<&str>::new());
        assert_eq!(nearest("", TOOLS), Vec::<&str>::new());
    }
}
