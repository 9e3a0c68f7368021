//! Commands that read all that lies in a folder, or all of it that a pattern matches. What of it may not be read unasked is
//! hidden from them, or asked about.
//!
//! Where the operands of such a command are known exactly, it reads these. Elsewhere each of its words that is a path is taken for a
//! folder that it reads, and so is the one where it runs: to hide a file from a command that would not read it does no harm.

use super::words::Word;
use super::{git, operands, paths};

/// A command that reads folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderUse {
    /// What may be a folder that it reads: operands, or all of its words but the first, and `.`. As they are written, without quotes;
    /// of options with `=` what stands behind that.
    pub words: Vec<String>,
    /// Directories to which the script may have changed before, as [`PathUse::bases`](super::PathUse::bases).
    pub bases: Vec<String>,
    /// Whether it leaves out what is hidden or ignored.
    pub visible_only: bool,
    /// Whether it shows changes of files that git tracks, and reads no others: in the whole worktree, unless `words` say where.
    pub tracked: bool,
    /// Whether `words` are patterns of file names, and it reads the files that they match.
    pub matched: bool,
    /// Whether the script may turn on `dotglob` or `nocaseglob`: its patterns match hidden files then, and ignore case.
    pub loose: bool,
}

/// When a command reads folders.
enum When {
    /// Always.
    Always,
    /// With one of these letters among its options, or a long option that begins like one of these.
    Option(&'static str, &'static [&'static str]),
}

const READERS: &[(&[&str], When)] = &[
    (&["rg", "ag", "ack", "ugrep", "ug", "rgrep", "pt", "sift"], When::Always),
    (
        &["grep", "ggrep", "egrep", "fgrep", "zgrep", "bzgrep", "xzgrep", "pcregrep", "pcre2grep"],
        When::Option("rRd", &["--rec", "--dereference-r", "--dir"]),
    ),
    (&["diff", "colordiff", "sdiff"], When::Option("r", &["--rec"])),
    (&["cp", "gcp", "rsync", "scp"], When::Option("rRa", &["--rec", "--ar", "--files"])),
    (&["gzip", "bzip2", "xz", "zstd"], When::Option("r", &["--rec"])),
    (&["zip", "7z", "7za", "7zz", "jar", "cpio", "pax"], When::Always),
    (&["fd", "fdfind"], When::Option("xX", &["--exec"])),
    // Where an archive is not only unpacked or listed.
    (&["tar", "gtar", "bsdtar"], When::Always),
];

/// Commands that show, copy or move what their operands hold, beside those that only read.
const TAKERS: &[&str] =
    &["base64", "column", "cp", "gcp", "install", "ln", "mv", "openssl", "pr", "rsync", "scp", "shuf", "xxd"];

/// Commands that show no more of files than their names and what they are.
const NAMES_ONLY: &[&str] = &[
    "[", "basename", "cd", "df", "dir", "dirname", "du", "find", "ls", "popd", "pushd", "pwd", "readlink",
    "realpath", "stat", "test", "tree", "type", "which",
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

/// What a command reads in folders, without directories; `None` for one that reads none.
pub(super) fn read(name: &str, words: &[Word]) -> Option<FolderUse> {
    let exact = |operands: Vec<&str>| operands.into_iter().map(str::to_owned).collect();
    if name == "git" && shows_changes(words) {
        let words = operands::known(name, words).map(exact).unwrap_or_default();
        return Some(FolderUse { words, tracked: true, ..FolderUse::default() });
    }
    let runs = |word: &Word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    let reads = match name {
        "git" => git::subcommand_at(words).is_some_and(|at| {
            words[at].text == "grep" || words[at..].iter().any(|word| word.text == "--no-index")
        }),
        "find" => words.iter().any(runs),
        "tar" | "gtar" | "bsdtar" => !unpacks(words),
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
    let used = reads.then(|| {
        let all = || words.iter().skip(1).map(told).chain([".".to_owned()]).collect();
        let words = operands::known(name, words).map_or_else(all, exact);
        FolderUse { words, visible_only, ..FolderUse::default() }
    });
    let reads_words = paths::only_reads(name, words) && !NAMES_ONLY.contains(&name) || TAKERS.contains(&name);
    used.or_else(|| reads_words.then(|| matched(name, words)).flatten())
}

/// The patterns of file names among the words of a command that reads what they match.
fn matched(name: &str, words: &[Word]) -> Option<FolderUse> {
    // A pattern of the command's own, as grep has one.
    let own = paths::pattern_of(name, words);
    let others = words.iter().enumerate().skip(1).filter(|(at, _)| Some(*at) != own);
    let words: Vec<String> = others.filter_map(|(_, word)| word.pattern()).collect();
    (!words.is_empty()).then(|| FolderUse { words, matched: true, ..FolderUse::default() })
}

/// Whether a command turns on `dotglob` or `nocaseglob`, or may do so.
pub(super) fn loosens(name: &str, words: &[Word]) -> bool {
    let is_wide =
        |word: &Word| word.doubt.is_some() || ["dotglob", "nocaseglob"].contains(&word.text.as_str());
    let sets = |word: &Word| word.text.starts_with('-') && word.text.contains(['s', 'O']);
    let is_assigned =
        |word: &Word| ["BASHOPTS=", "GLOBIGNORE="].iter().any(|name| word.text.starts_with(name));
    match name {
        "shopt" | "bash" => words.iter().any(sets) && words.iter().any(is_wide),
        "setopt" | "zsh" => true,
        _ => words.iter().any(is_assigned),
    }
}

/// The files that a redirection reads, where its target is a pattern.
pub(super) fn redirected(target: &Word) -> Option<FolderUse> {
    let words = vec![target.pattern()?];
    Some(FolderUse { words, matched: true, ..FolderUse::default() })
}

/// Whether a call of git shows changes of files in the worktree. Those of what it keeps are not meant.
fn shows_changes(words: &[Word]) -> bool {
    let Some(at) = git::subcommand_at(words) else { return false };
    let has = |options: &[&str], letters: &[char]| {
        words[at + 1..].iter().any(|word| match word.text.strip_prefix('-') {
            Some(option) if option.starts_with('-') => options.contains(&word.text.as_str()),
            Some(option) => option.contains(letters),
            None => false,
        })
    };
    match words[at].text.as_str() {
        "diff" | "difftool" | "diff-files" | "diff-index" => {
            !has(&["--cached", "--staged", "--no-index"], &[])
        }
        "add" | "checkout" | "reset" | "restore" | "stash" => {
            has(&["--patch", "--interactive", "--edit"], &['p', 'i', 'e'])
        }
        "commit" | "status" => has(&["--patch", "--interactive", "--verbose"], &['p', 'v']),
        _ => false,
    }
}

/// Whether a command only reads: nothing of what it sees empty is kept by it.
pub(super) fn only_reads(name: &str, words: &[Word]) -> bool {
    match name {
        "git" => git::subcommand_at(words).is_some_and(|at| GIT_SHOWS.contains(&words[at].text.as_str())),
        "find" => !words.iter().any(|word| word.text == "-delete"),
        _ => paths::only_reads(name, words) || READERS.iter().any(|(names, _)| names.contains(&name)),
    }
}

/// Whether a call of tar does nothing but unpack or list an archive.
fn unpacks(words: &[Word]) -> bool {
    let rest = words.get(1..).unwrap_or_default();
    let (mut unpacks, mut packs) = (false, false);
    for (at, word) in rest.iter().enumerate() {
        let (letters, long) = match word.text.strip_prefix('-') {
            Some(option) if option.starts_with('-') => ("", &option[1..]),
            Some(option) => (option, ""),
            None if at == 0 => (word.text.as_str(), ""),
            None => continue,
        };
        packs |= letters.contains(['c', 'r', 'u', 'A', 'd'])
            || ["a", "c", "dif", "de", "u"].iter().any(|begin| long.starts_with(begin));
        unpacks |=
            letters.contains(['x', 't']) || ["ex", "get", "li"].iter().any(|begin| long.starts_with(begin));
    }
    unpacks && !packs
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
        script.split(' ').map(Word::plain).collect()
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
            ("tar xf a.tar", false),
            ("tar -tvf a.tar", false),
            ("tar --extract -f a.tar", false),
            ("tar --cr -f a.tar -T list", true),
            ("tar -x -c -f a.tar b", true),
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
        let told = |script| read("grep", &words(script)).unwrap().words;
        assert_eq!(told("grep -r --include=*.rs x src"), ["src"]);
        assert_eq!(told("grep -r --include=*.rs src"), ["-r", "*.rs", "src", "."]);
    }

    #[test]
    fn a_reader_reads_what_its_patterns_match() {
        let patterns = |script: &str| {
            let found = super::super::analyse(script).folders;
            found.into_iter().filter(|used| used.matched).map(|used| used.words.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(patterns("cat keys/* 'a*' b; head -n 3 *.[ch] {a,b}"), ["keys/*", "*.[ch] {a,b}"]);
        assert_eq!(patterns("cp k?y /tmp; echo *; rm *; ls *; cat \"$x\""), ["k?y"]);
        assert_eq!(patterns("cat < keys/a*; echo $(<.e*)"), ["keys/a*", ".e*"]);
        assert_eq!(patterns("cat 'k[a]'* \"b-\"?c \\*d*; cat k'{a,b}'*"), ["k?a?* b??c ?d*", "k?a?b?*"]);
        let quoted = "cat k['-']1 .e[\"n\"]v* x/[a]'*'";
        assert_eq!(patterns(quoted), ["* .e[n]v* x/*"]);
        let is_loose = |script: &str| super::super::analyse(script).folders[0].loose;
        for script in [
            "shopt -s dotglob; cat *",
            "sho\"\"pt -s nullglob dot\"\"glob; cat *",
            "GLOBIGNORE=x; cat *",
            "bash -O dotglob -c 'cat *'",
        ] {
            assert!(is_loose(script), "{script}");
        }
        for script in ["cat *", "cat * | grep shopt", "shopt -s nullglob; wc -l *", "shopt -u dotglob; cat *"]
        {
            assert!(!is_loose(script), "{script}");
        }
        let none = "head -n $((2*3)) a; grep ^$x.* a; grep a*b c; head -n ${#a[@]} b; jq \".[] | $x\" c";
        assert_eq!(patterns(none), [""; 0]);
        assert_eq!(paths::split_pattern("keys/a/b*/c?"), ("keys/a", "b*/c?"));
        assert_eq!([paths::split_pattern("*.md"), paths::split_pattern("/*")], [(".", "*.md"), ("/", "*")]);
    }

    #[test]
    fn what_shows_changes_of_tracked_files_is_known() {
        for (script, expected) in [
            ("git diff", Some(&[][..])),
            ("git diff HEAD~1 .env", Some(&["HEAD~1", ".env"])),
            ("git diff -U5 -S keys src", Some(&["src"])),
            ("git diff --unknown src", Some(&[])),
            ("git diff main -- src", Some(&["src"])),
            ("git diff -- :/", Some(&[])),
            ("git diff --cached", None),
            ("git add -p", Some(&[])),
            ("git add -A", None),
            ("git commit -qm x", None),
            ("git status -v", Some(&[])),
            ("git log -p", None),
        ] {
            let words = words(script);
            let told = read("git", &words).filter(|told| told.tracked).map(|told| told.words);
            let expected =
                expected.map(|words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect());
            assert_eq!(told, expected, "{script}");
        }
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
            assert_eq!(read(&words[0].text, &words).unwrap().visible_only, expected, "{script}");
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
