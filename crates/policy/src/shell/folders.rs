//! Commands that read all that lies in a folder. What of it may not be read unasked is hidden from them, or asked about.
//!
//! Of the words of such a command each that is a path is taken for a folder that it reads, and all that lies where it runs if there is
//! none: to hide a file from a command that would not read it does no harm.

use serde::{Deserialize, Serialize};

use super::words::Word;
use super::{git, paths};

/// A command that reads folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderUse {
    /// Its words but the first, as they are written, without quotes; of options with `=` what stands behind that. Those that are
    /// paths are what it reads.
    pub words: Vec<String>,
    /// Directories to which the script may have changed before, as [`PathUse::bases`](super::PathUse::bases).
    pub bases: Vec<String>,
    /// Whether it leaves out what is hidden or ignored.
    pub visible_only: bool,
}

/// When a command reads folders.
enum When {
    /// Always.
    Always,
    /// With one of these letters among its options, or a long option that begins like one of these.
    Option(&'static str, &'static [&'static str]),
}

const READERS: &[(&[&str], When)] = &[
    (&["rg", "ag", "ack", "ugrep", "rgrep"], When::Always),
    (
        &["grep", "egrep", "fgrep", "zgrep", "bzgrep", "xzgrep", "pcregrep"],
        When::Option("rRd", &["--rec", "--dereference-r", "--dir"]),
    ),
    (&["diff", "colordiff", "sdiff"], When::Option("r", &["--rec"])),
    (&["cp", "gcp", "rsync", "scp"], When::Option("rRa", &["--rec", "--ar"])),
    (&["gzip", "bzip2", "xz", "zstd"], When::Option("r", &["--rec"])),
    (&["zip", "7z", "7za", "7zz", "jar", "cpio", "pax"], When::Always),
    (&["fd", "fdfind"], When::Option("xX", &["--exec"])),
    (&["tar", "gtar", "bsdtar"], When::Always),
];

/// Subcommands of git that only show.
const GIT_SHOWS: &[&str] = &[
    "blame",
    "branch",
    "describe",
    "diff",
    "grep",
    "log",
    "ls-files",
    "ls-tree",
    "remote",
    "rev-parse",
    "show",
    "status",
];

/// The words of a command that reads folders, and whether it leaves out what is hidden or ignored; `None` for one that reads none.
pub(super) fn read(name: &str, words: &[Word]) -> Option<(Vec<String>, bool)> {
    let runs = |word: &Word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    let reads = match name {
        "git" => git::subcommand_at(words).is_some_and(|at| {
            words[at].text == "grep" || words[at..].iter().any(|word| word.text == "--no-index")
        }),
        "find" => words.iter().any(runs),
        _ => READERS.iter().find(|(names, _)| names.contains(&name)).is_some_and(|(_, when)| match when {
            When::Always => true,
            When::Option(letters, long) => has_option(&words[1..], letters, long),
        }),
    };
    let told = |word: &Word| match word.text.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value.to_owned(),
        _ => word.text.clone(),
    };
    let visible_only = matches!(name, "rg" | "ag") && !words.iter().skip(1).any(is_wider);
    reads.then(|| (words.iter().skip(1).map(told).collect(), visible_only))
}

/// Whether a command only reads: nothing of what it sees empty is kept by it.
pub(super) fn only_reads(name: &str, words: &[Word]) -> bool {
    match name {
        "git" => git::subcommand_at(words).is_some_and(|at| GIT_SHOWS.contains(&words[at].text.as_str())),
        "find" => !words.iter().any(|word| word.text == "-delete"),
        _ => paths::only_reads(name, words) || READERS.iter().any(|(names, _)| names.contains(&name)),
    }
}

/// Whether an option of a search may have it read what is hidden or ignored, or follow links.
fn is_wider(word: &Word) -> bool {
    let text = word.text.as_str();
    let is_letters = text.starts_with('-')
        && !text.starts_with("--")
        && text.contains(['u', '.', 'U', 'a', 'L', 'f', 'g']);
    let long = ["--no-ig", "--unr", "--hid", "--fol", "--gl", "--ig", "--pre", "--all"];
    is_letters || long.iter().any(|option| text.starts_with(option))
}

/// Whether one of these letters is among the options, or a long option begins like one of these.
fn has_option(words: &[Word], letters: &str, long: &[&str]) -> bool {
    words.iter().any(|word| match word.text.strip_prefix('-') {
        Some(option) if option.starts_with('-') => long.iter().any(|long| word.text.starts_with(long)),
        Some(option) => option.chars().any(|letter| letters.contains(letter)),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Vec<Word> {
        script.split(' ').map(|text| Word { text: text.into(), doubt: None }).collect()
    }

    #[test]
    fn commands_that_read_folders_are_known() {
        for (script, reads) in [
            ("grep -r x .", true),
            ("grep --recur x", true),
            ("grep -d recurse x", true),
            ("grep -r --exclude-dir src x", true),
            ("grep x file", false),
            ("rg x", true),
            ("git grep x", true),
            ("git -C sub grep x", true),
            ("git diff --no-index a b", true),
            ("git log", false),
            ("tar -cT list", true),
            ("zip -R a.zip x", true),
            ("7z a a.7z keys", true),
            ("cp -rt out keys", true),
            ("cp --rec a b", true),
            ("cp a b", false),
            ("gzip -rc keys", true),
            ("diff -ru a b", true),
            ("fd -x cat", true),
            ("fd x", false),
            ("find . -name x", false),
            ("find -exec cat {} +", true),
        ] {
            let words = words(script);
            assert_eq!(read(&words[0].text, &words).is_some(), reads, "{script}");
        }
        let told = read("grep", &words("grep -r --include=*.rs x src")).unwrap().0;
        assert_eq!(told, ["-r", "*.rs", "x", "src"]);
    }

    #[test]
    fn a_search_leaves_out_what_is_ignored_unless_it_is_told_not_to() {
        for (script, expected) in [
            ("rg x", true),
            ("rg -n x src", true),
            ("rg -uu x", false),
            ("rg --hidden x", false),
            ("rg -g .env x", false),
            ("rg --no-ignore-vcs x", false),
            ("git grep x", false),
            ("grep -r x", false),
        ] {
            let words = words(script);
            assert_eq!(read(&words[0].text, &words).unwrap().1, expected, "{script}");
        }
    }

    #[test]
    fn what_takes_in_files_does_more_than_read() {
        for (script, expected) in [
            ("grep -r x", true),
            ("git status", true),
            ("git commit -qam grep", false),
            ("git add -A", false),
            ("head -3", true),
            ("sed -i s/a/b/ x", false),
            ("make", false),
        ] {
            let words = words(script);
            assert_eq!(only_reads(&words[0].text, &words), expected, "{script}");
        }
    }

    #[test]
    fn every_reader_has_a_name_of_its_own() {
        let mut names: Vec<&str> = READERS.iter().flat_map(|(names, _)| *names).copied().collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
