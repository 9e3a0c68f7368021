//! What git says of changes, read.

use std::collections::{BTreeMap, HashMap};

/// A file that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// From the directory on that was asked about.
    pub path: String,
    /// What became of it.
    pub status: Status,
    /// Lines that were added; 0 for one that is no text.
    pub added: u64,
    /// Lines that were removed; 0 for one that is no text.
    pub removed: u64,
    /// The change as a patch, if it was asked for.
    pub patch: Option<String>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was not there.
    Added,
    /// It is gone.
    Deleted,
    /// It is another one.
    Modified,
}

/// Reads `git diff --raw --numstat -z`.
pub(super) fn parse(said: &[u8]) -> Vec<Change> {
    let mut changes: BTreeMap<String, Change> = BTreeMap::new();
    let mut fields = said.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    while let Some(field) = fields.next() {
        if let Some(facts) = field.strip_prefix(':') {
            let Some(path) = fields.next().filter(|path| !path.is_empty()) else { break };
            let status = match facts.rsplit(' ').next().and_then(|letter| letter.chars().next()) {
                Some('A') => Status::Added,
                Some('D') => Status::Deleted,
                // What is not merged is told once more as what it is.
                Some('U') | None => continue,
                Some(_) => Status::Modified,
            };
            let path = path.into_owned();
            changes.insert(path.clone(), Change { path, status, added: 0, removed: 0, patch: None });
            continue;
        }
        let mut counts = field.splitn(3, '\t');
        let (Some(added), Some(removed), Some(path)) = (counts.next(), counts.next(), counts.next()) else {
            continue;
        };
        if let Some(change) = changes.get_mut(path) {
            change.added += added.parse::<u64>().unwrap_or(0);
            change.removed += removed.parse::<u64>().unwrap_or(0);
        }
    }
    changes.into_values().collect()
}

/// Gives each change its part of `git diff --patch`.
pub(super) fn add_patches(changes: &mut [Change], said: &[u8]) {
    const HEAD: &str = "diff --git ";
    let said = String::from_utf8_lossy(said);
    let mut parts: HashMap<&str, String> = HashMap::new();
    let mut head = None;
    for line in said.split_inclusive('\n') {
        // Lines of files have a sign in front.
        if line.starts_with(HEAD) {
            head = Some(line.trim_end_matches('\n'));
        } else if line.starts_with("* Unmerged path ") {
            head = None;
        }
        if let Some(head) = head {
            parts.entry(head).or_default().push_str(line);
        }
    }
    for change in changes {
        let head = format!("{HEAD}{} {}", quoted("a/", &change.path), quoted("b/", &change.path));
        // A file that became a link has two of them, under one head.
        change.patch = parts.remove(head.as_str());
    }
}

/// A path as git writes it: in quotes where it has characters that would mislead.
fn quoted(prefix: &str, path: &str) -> String {
    let misleads = |character: char| character.is_ascii_control() || matches!(character, '"' | '\\');
    if !path.contains(misleads) {
        return format!("{prefix}{path}");
    }
    let mut text = format!("\"{prefix}");
    for character in path.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{7}' => text.push_str("\\a"),
            '\u{8}' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\u{b}' => text.push_str("\\v"),
            '\u{c}' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            _ if character.is_ascii_control() => text.push_str(&format!("\\{:03o}", u32::from(character))),
            _ => text.push(character),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_counts_come_together() {
        let zero = "0".repeat(40);
        let raw = |letter: &str, path: &str| format!(":100644 100644 {zero} {zero} {letter}\0{path}\0");
        let said = [
            raw("M", "a b.txt"),
            raw("A", ":odd"),
            raw("D", "gone"),
            raw("U", "both"),
            raw("M", "both"),
            raw("T", "link"),
            ["3\t1\ta b.txt", "-\t-\t:odd", "0\t9\tgone", "0\t0\tboth", "2\t1\tboth", "1\t1\tlink", ""]
                .join("\0"),
        ];
        let said = said.concat();
        let told: Vec<_> = parse(said.as_bytes())
            .into_iter()
            .map(|change| (change.path, change.status, change.added, change.removed))
            .collect();
        use Status::{Added, Deleted, Modified};
        let expected = [
            (":odd", Added, 0, 0),
            ("a b.txt", Modified, 3, 1),
            ("both", Modified, 2, 1),
            ("gone", Deleted, 0, 9),
            ("link", Modified, 1, 1),
        ];
        assert_eq!(
            told,
            expected.map(|(path, status, added, removed)| (path.to_owned(), status, added, removed))
        );
        assert!(parse(b"").is_empty() && parse(b":x\0").is_empty());
    }

    #[test]
    fn paths_are_quoted_as_git_does_it() {
        assert_eq!(quoted("a/", "ä b"), "a/ä b");
        assert_eq!(quoted("a/", "x\"y\\\t\u{1}"), "\"a/x\\\"y\\\\\\t\\001\"");
    }
}
