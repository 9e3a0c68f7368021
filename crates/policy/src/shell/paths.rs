//! The paths that a script names.

use serde::{Deserialize, Serialize};

use super::words::Word;

/// A path that a script names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathUse {
    /// As it is written, without quotes; `~` is not replaced.
    pub text: String,
    /// Directories to which the script may have changed before, as written, in order: a relative path is below one of
    /// them or below the one where the script began.
    #[serde(default)]
    pub bases: Vec<String>,
    /// Whether it may be written: it is the target of a redirection, or an argument of a command that is not known to
    /// read only.
    pub writes: bool,
}

/// Commands that only read what their arguments name.
const READERS: &[&str] = &[
    "[",
    "awk",
    "basename",
    "bat",
    "cat",
    "cd",
    "cksum",
    "cmp",
    "comm",
    "cut",
    "df",
    "diff",
    "dir",
    "dirname",
    "du",
    "echo",
    "egrep",
    "fgrep",
    "file",
    "fold",
    "grep",
    "head",
    "hexdump",
    "jq",
    "less",
    "ls",
    "md5sum",
    "more",
    "nl",
    "od",
    "paste",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "readlink",
    "realpath",
    "rev",
    "rg",
    "sha1sum",
    "sha256sum",
    "stat",
    "strings",
    "tac",
    "tail",
    "test",
    "tr",
    "tree",
    "type",
    "wc",
    "which",
    "xxd",
];

/// Files that are no files.
const NOWHERE: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/zero", "/dev/tty"];

/// Whether `name` only reads what its arguments name.
pub(super) fn only_reads(name: &str) -> bool {
    READERS.binary_search(&name).is_ok()
}

pub(super) fn is_nowhere(text: &str) -> bool {
    NOWHERE.contains(&text)
}

/// The paths in an argument: what it is itself, or what stands behind `=` or a one-letter option.
pub(super) fn in_argument(word: &Word) -> Option<&str> {
    let text = word.text.as_str();
    if text.is_empty() || is_address(text) {
        return None;
    }
    let path = match text.strip_prefix('-') {
        None => match text.split_once('=') {
            // `if=/dev/sda`, `PREFIX=/usr`
            Some((name, value)) if !name.contains('/') => value,
            _ => text,
        },
        Some(option) => match option.split_once('=') {
            Some((_, value)) => value,
            // `-I/usr/include`, `-o../x`
            None => &option[option.find(['/', '~', '.'])?..],
        },
    };
    (!path.is_empty() && !is_nowhere(path) && !is_address(path)).then_some(path)
}

fn is_address(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme != "file"
            && !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readers_are_in_order() {
        assert!(READERS.is_sorted());
    }

    #[test]
    fn paths_in_arguments() {
        let path = |text: &str| in_argument(&Word { text: text.into(), doubt: None }).map(str::to_owned);
        for (argument, expected) in [
            ("a.txt", Some("a.txt")),
            ("--file=/etc/x", Some("/etc/x")),
            ("-I/usr/include", Some("/usr/include")),
            ("-o../x", Some("../x")),
            ("if=/dev/sda", Some("/dev/sda")),
            ("file:///etc/passwd", Some("file:///etc/passwd")),
            ("-rf", None),
            ("--force", None),
            ("https://example.org/a", None),
            ("/dev/null", None),
            ("", None),
        ] {
            assert_eq!(path(argument).as_deref(), expected, "{argument}");
        }
    }
}
