//! The paths that a script names.

use super::words::Word;
use crate::{AccessKind, Known};

/// A path that a script names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathUse {
    /// As it is written, without quotes; `~` is not replaced.
    pub text: String,
    /// Directories to which the script may have changed before, as written: a relative path is below one of them or
    /// below the one where the script began.
    pub bases: Vec<String>,
    /// What is done with it: written as the target of a redirection or by a command that is not known to read only; nobody
    /// can tell where it is an argument of a script.
    pub kind: AccessKind,
    /// Whether that is done for certain, so that rules about files are asked.
    pub known: Known,
    /// Names of what is written in it, where it is a directory.
    pub into: Vec<String>,
    /// Whether it is one only where something is there: it may be the name of something else.
    pub if_there: bool,
    /// Why `text` is not the path, which may be any.
    pub doubt: Option<String>,
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
    "egrep",
    "fgrep",
    "file",
    "fold",
    "gawk",
    "grep",
    "head",
    "hexdump",
    "jq",
    "less",
    "ls",
    "mawk",
    "md5sum",
    "more",
    "nl",
    "od",
    "paste",
    "popd",
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
];

/// Commands whose arguments are no files, whatever they are.
const WITHOUT_FILES: &[&str] = &[
    ":", "break", "continue", "echo", "exit", "expr", "false", "kill", "printf", "return", "seq", "shift",
    "sleep", "true", "wait",
];

/// Tests of `find` with which it changes something or runs something.
const CHANGES: &[&str] =
    &["-delete", "-exec", "-execdir", "-fls", "-fprint", "-fprint0", "-fprintf", "-ok", "-okdir"];

/// Files that are no files.
const NOWHERE: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/zero", "/dev/tty"];

/// Where the programs of a system lie: running one is no use of a path.
const PROGRAMS: &[&str] =
    &["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"];

/// With one of these begins what a shell replaces.
const REPLACED: &[char] = &['$', '`', '*', '?', '[', '{'];

/// Whether the command of `words` only reads what its arguments name.
pub(super) fn only_reads(name: &str, words: &[Word]) -> bool {
    match name {
        "find" => !words.iter().any(|word| CHANGES.contains(&word.text.as_str())),
        "sed" => super::sed::only_reads(words),
        _ => READERS.binary_search(&name).is_ok(),
    }
}

/// Whether the arguments of `name` are no files.
pub(super) fn takes_no_files(name: &str) -> bool {
    WITHOUT_FILES.contains(&name)
}

/// Which word of a command is a pattern or a program in a language of its own, and no path.
pub(super) fn pattern_of(name: &str, words: &[Word]) -> Option<usize> {
    match name {
        "sed" => super::sed::program(words),
        "awk" | "gawk" | "mawk" => super::awk::program(words),
        "grep" | "egrep" | "fgrep" | "rg" => {
            let is_option = |word: &Word| word.text.starts_with('-') && word.text != "-";
            let names_pattern = |word: &Word| is_option(word) && names_pattern(&word.text);
            // With one of these the pattern stands behind it, and every other word is a file.
            let elsewhere = words.iter().skip(1).any(names_pattern);
            let first = words.iter().skip(1).position(|word| !is_option(word));
            first.filter(|_| !elsewhere).map(|at| at + 1)
        }
        _ => None,
    }
}

/// Whether an option of grep may be the one that has the pattern, or the file with patterns.
fn names_pattern(option: &str) -> bool {
    const OTHERS: &[&str] =
        &["recursive", "fixed-strings", "follow", "files-with-matches", "files-without-match"];
    match option.strip_prefix("--") {
        Some(long) if OTHERS.contains(&long) => false,
        Some(long) => long.is_empty() || long.starts_with(['r', 'f']),
        None => option.contains(['e', 'f']),
    }
}

/// Whether `text` is a file that keeps nothing.
pub(super) fn is_nowhere(text: &str) -> bool {
    NOWHERE.contains(&text)
}

/// Whether `text` names a program of the system.
pub(super) fn is_program(text: &str) -> bool {
    PROGRAMS.iter().any(|folder| {
        text.strip_prefix(folder).is_some_and(|name| !name.contains('/') && !matches!(name, "" | "." | ".."))
    })
}

/// The paths in an argument: what it is itself, and what stands in it behind an option, `=`, `,`, `:` or `@`. Of what a
/// shell replaces, the directory before it.
pub(super) fn in_argument(word: &Word) -> Vec<&str> {
    let text = word.text.as_str();
    let fixed = match (word.doubt, below_home(text)) {
        (None, _) => text,
        // The home directory is one place, whatever it is called.
        (Some(_), Some(rest)) if rest.contains(REPLACED) => return vec!["~"],
        (Some(_), Some(_)) => return vec![text],
        (Some(_), None) => directory_before(text),
    };
    let mut found = Vec::new();
    let own = match fixed.strip_prefix('-') {
        None => match fixed.split_once('=') {
            // `if=/dev/sda`, `PREFIX=/usr`
            Some((name, value)) if !name.contains('/') => Some(value),
            _ => Some(fixed),
        },
        Some(option) => match option.split_once('=') {
            Some((_, value)) => Some(value),
            // `-I/usr/include`, `-o../x`
            None => option.find(['/', '~', '.']).map(|at| &option[at..]),
        },
    };
    found.extend(own.filter(|own| !is_address(own)));
    found.extend(own.and_then(|own| own.strip_prefix('@')));
    // `-v /:/host`, `type=bind,source=/etc`, `-F file=@/etc/passwd`, `host:../x`
    let before_address = address(fixed).map_or(fixed, |at| &fixed[..at]);
    for (at, _) in before_address.match_indices(['=', ',', ':', '@']) {
        let rest = &before_address[at + 1..];
        if (rest.starts_with(['/', '~']) || rest.starts_with("..")) && !found.contains(&rest) {
            found.push(rest);
        }
    }
    found.retain(|path| !path.is_empty() && !is_nowhere(path));
    found
}

/// Why a word may name any path; `None` where it says itself what it is, or can only be a number.
pub(super) fn unknown(word: &Word) -> Option<&'static str> {
    let doubt = word.doubt?;
    let text = word.text.as_str();
    let is_sum = text.starts_with("$((") && text.find("))") == Some(text.len() - 2);
    let is_sum = is_sum && text.matches('$').count() == 1 && doubt == super::words::ARITHMETIC;
    let is_number = is_sum || matches!(text, "$?" | "$#" | "$$" | "$!");
    let is_home = below_home(text).is_some_and(|rest| !rest.contains(REPLACED));
    (!is_number && !is_home).then_some(doubt)
}

/// What follows the home directory, where `text` begins with its variable.
fn below_home(text: &str) -> Option<&str> {
    let rest = ["$HOME", "${HOME}"].iter().find_map(|name| text.strip_prefix(name))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The directory in which lies what a shell replaces; empty where there is none.
fn directory_before(text: &str) -> &str {
    let fixed = &text[..text.find(REPLACED).unwrap_or(text.len())];
    match fixed.rfind('/') {
        Some(0) => "/",
        Some(at) => &fixed[..at],
        None if fixed.starts_with('~') => "~",
        None => "",
    }
}

/// The folder below which lies what a pattern of file names matches, and the pattern from there on.
pub fn split_pattern(text: &str) -> (&str, &str) {
    let folder = directory_before(text);
    let rest = text[folder.len()..].trim_start_matches('/');
    (if folder.is_empty() { "." } else { folder }, rest)
}

/// Where an address of a network begins in `text`.
fn address(text: &str) -> Option<usize> {
    let end = text.find("://")?;
    let is_part = |character: char| character.is_ascii_alphanumeric() || matches!(character, '+' | '.' | '-');
    let begin = text[..end]
        .rfind(|character| !is_part(character))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let scheme = &text[begin..end];
    (!scheme.is_empty() && !scheme.to_ascii_lowercase().contains("file")).then_some(begin)
}

fn is_address(text: &str) -> bool {
    address(text) == Some(0)
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
        for (argument, expected) in [
            ("a.txt", &["a.txt"][..]),
            ("--file=/etc/x", &["/etc/x"]),
            ("-I/usr/include", &["/usr/include"]),
            ("-o../x", &["../x"]),
            ("if=/dev/sda", &["/dev/sda"]),
            ("file:///etc/passwd", &["file:///etc/passwd", "///etc/passwd"]),
            ("FILE:///etc/passwd", &["FILE:///etc/passwd", "///etc/passwd"]),
            ("git+file:///srv/x", &["git+file:///srv/x", "///srv/x"]),
            ("-rf", &[]),
            ("--force", &[]),
            ("https://example.org/a?b=/etc", &[]),
            ("--url=https://example.org/a", &[]),
            ("é://x", &["é://x", "//x"]),
            ("type=bind,source=/etc,target=/x", &["bind,source=/etc,target=/x", "/etc,target=/x", "/x"]),
            ("file=@../secret", &["@../secret", "../secret"]),
            ("/:/host", &["/:/host", "/host"]),
            ("git@example.org:a/b", &["git@example.org:a/b"]),
            ("/dev/null", &[]),
            ("", &[]),
        ] {
            let word = Word::plain(argument);
            assert_eq!(in_argument(&word), expected, "{argument}");
        }
    }

    #[test]
    fn of_what_a_shell_replaces_the_directory_before_it_is_told() {
        for (text, path, is_unknown) in [
            ("/etc/*", &["/etc"][..], true),
            ("/*", &["/"], true),
            ("~/*.key", &["~"], true),
            ("$HOME/.ssh/id", &["$HOME/.ssh/id"], false),
            ("${HOME}", &["${HOME}"], false),
            ("$HOME/$X", &["~"], true),
            ("$HOMER/x", &[], true),
            ("$X", &[], true),
            ("../$X/a", &[".."], true),
            ("src/*.rs", &["src"], true),
            ("$?", &[], false),
        ] {
            let word = Word::doubtful(text, "a variable");
            assert_eq!((in_argument(&word), unknown(&word).is_some()), (path.to_vec(), is_unknown), "{text}");
        }
        for (text, is_unknown) in [("$((1 + 1))", false), ("$((1))$X", true), ("$((1))*))", true)] {
            let sum = Word::doubtful(text, super::super::words::ARITHMETIC);
            assert_eq!(unknown(&sum).is_some(), is_unknown, "{text}");
        }
    }

    #[test]
    fn a_pattern_is_no_path() {
        for (script, expected) in [
            ("grep -rn /etc src", Some(2)),
            ("grep --color=auto -n /etc", Some(3)),
            ("grep -e x /etc/passwd", None),
            ("grep -rfe /etc/passwd", None),
            ("grep --regexp x /etc/passwd", None),
            ("grep --file /etc/passwd x", None),
            ("rg --files /etc", None),
            ("cat /etc", None),
        ] {
            let words: Vec<Word> = script.split(' ').map(Word::plain).collect();
            let name = script.split(' ').next().unwrap();
            assert_eq!(pattern_of(name, &words), expected, "{script}");
        }
    }

    #[test]
    fn only_a_name_right_in_a_folder_of_programs_is_a_program() {
        assert!(is_program("/usr/bin/python3") && is_program("/bin/sh"));
        assert!(!is_program("/usr/bin/../../etc/x") && !is_program("/usr/bin/..") && !is_program("/opt/x"));
    }
}
