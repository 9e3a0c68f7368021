//! Operands of commands that read folders, where every option of a call is known. Elsewhere a word may be a pattern or the value of an
//! option, and what is read may be named nowhere.

use super::git;
use super::words::Word;

/// Options of commands. One that is not listed may have a value, or name what is read.
struct Options {
    names: &'static [&'static str],
    /// Letters without a value.
    flags: &'static str,
    /// Letters with a value.
    valued: &'static str,
    /// Long options without a value, or with one behind `=`.
    long: &'static [&'static str],
    /// Long options whose value may be the next word.
    long_valued: &'static [&'static str],
    /// Letters and long options that stand for the pattern before the operands; empty where there is none.
    patterns: &'static [&'static str],
}

/// Options of searches that have the pattern.
const PATTERNS: &[&str] = &["e", "f", "regexp", "file"];

const OPTIONS: &[Options] = &[
    Options {
        names: &["grep", "ggrep", "egrep", "fgrep", "rgrep"],
        flags: "EFGPivwxycolLnHhqsTUzZarRIb0123456789",
        valued: "efmABCdD",
        long: &[
            "extended-regexp",
            "fixed-strings",
            "basic-regexp",
            "perl-regexp",
            "ignore-case",
            "no-ignore-case",
            "invert-match",
            "word-regexp",
            "line-regexp",
            "count",
            "color",
            "colour",
            "files-with-matches",
            "files-without-match",
            "only-matching",
            "quiet",
            "silent",
            "no-messages",
            "byte-offset",
            "with-filename",
            "no-filename",
            "line-number",
            "initial-tab",
            "null",
            "null-data",
            "text",
            "recursive",
            "dereference-recursive",
            "line-buffered",
            "binary",
        ],
        long_valued: &[
            "regexp",
            "file",
            "max-count",
            "after-context",
            "before-context",
            "context",
            "label",
            "binary-files",
            "directories",
            "devices",
            "exclude",
            "exclude-dir",
            "exclude-from",
            "include",
        ],
        patterns: PATTERNS,
    },
    Options {
        names: &["rg"],
        flags: "cFiIlLnNoPqsSuUvwxz.0aHb",
        valued: "efABCdEgjmMrtT",
        long: &[
            "hidden",
            "no-ignore",
            "no-ignore-vcs",
            "files-with-matches",
            "files-without-match",
            "line-number",
            "no-line-number",
            "ignore-case",
            "case-sensitive",
            "smart-case",
            "fixed-strings",
            "word-regexp",
            "line-regexp",
            "count",
            "count-matches",
            "only-matching",
            "quiet",
            "no-messages",
            "no-heading",
            "heading",
            "with-filename",
            "no-filename",
            "json",
            "multiline",
            "multiline-dotall",
            "follow",
            "invert-match",
            "pcre2",
            "text",
            "vimgrep",
            "column",
            "stats",
            "trim",
            "null",
            "unrestricted",
            "pretty",
            "no-config",
            "search-zip",
        ],
        long_valued: &[
            "regexp",
            "file",
            "max-count",
            "after-context",
            "before-context",
            "context",
            "max-depth",
            "glob",
            "iglob",
            "type",
            "type-not",
            "color",
            "colors",
            "sort",
            "sortr",
            "replace",
            "max-columns",
            "threads",
            "encoding",
        ],
        patterns: PATTERNS,
    },
    Options {
        names: &["diff", "colordiff"],
        flags: "abBdeEiNnpqrstTuwyZ",
        valued: "FIUCDWxXSL",
        long: &[
            "recursive",
            "brief",
            "unified",
            "context",
            "new-file",
            "text",
            "side-by-side",
            "ignore-case",
            "ignore-all-space",
            "ignore-space-change",
            "ignore-blank-lines",
            "suppress-common-lines",
            "color",
            "report-identical-files",
            "no-dereference",
            "strip-trailing-cr",
        ],
        long_valued: &["exclude", "label", "width", "ignore-matching-lines"],
        patterns: &[],
    },
    Options {
        names: &["cp", "gcp"],
        flags: "aAdfHiLlnPpRrsTuvx",
        valued: "S",
        long: &[
            "archive",
            "recursive",
            "force",
            "verbose",
            "no-clobber",
            "interactive",
            "preserve",
            "parents",
            "update",
            "dereference",
            "no-dereference",
            "link",
            "symbolic-link",
            "no-target-directory",
            "one-file-system",
            "reflink",
            "attributes-only",
            "remove-destination",
            "backup",
        ],
        long_valued: &["suffix", "sparse"],
        patterns: &[],
    },
    Options {
        names: &["rsync"],
        flags: "avzrlptgoDhnPuRcxiqHAXSWkLm",
        valued: "e",
        long: &[
            "archive",
            "recursive",
            "verbose",
            "compress",
            "delete",
            "delete-after",
            "delete-excluded",
            "dry-run",
            "progress",
            "stats",
            "human-readable",
            "update",
            "checksum",
            "links",
            "copy-links",
            "perms",
            "times",
            "owner",
            "group",
            "partial",
            "inplace",
            "quiet",
            "itemize-changes",
            "relative",
            "ignore-existing",
            "existing",
            "mkpath",
        ],
        long_valued: &["exclude", "include", "rsh", "chmod", "info", "max-size", "min-size"],
        patterns: &[],
    },
    Options {
        names: &["scp"],
        flags: "3BCpqrTv46",
        valued: "cFiJloPSXD",
        long: &[],
        long_valued: &[],
        patterns: &[],
    },
    Options {
        names: &["tar", "gtar", "bsdtar"],
        flags: "cruzjJvpkhSPO",
        valued: "fb",
        long: &[
            "create",
            "append",
            "update",
            "verbose",
            "gzip",
            "bzip2",
            "xz",
            "zstd",
            "dereference",
            "auto-compress",
            "totals",
            "sparse",
            "no-recursion",
            "numeric-owner",
            "exclude-vcs",
        ],
        long_valued: &["file", "transform", "format", "sort", "mtime", "owner", "group", "mode", "exclude"],
        patterns: &[],
    },
    Options {
        names: &["zip"],
        flags: "rqvjyuTmX0123456789D",
        valued: "",
        long: &["recurse-paths", "quiet", "symlinks", "junk-paths", "verbose"],
        long_valued: &[],
        patterns: &[],
    },
    Options {
        names: &["gzip", "bzip2", "xz", "zstd"],
        flags: "cdfhklnNqrtv0123456789",
        valued: "S",
        long: &[
            "recursive",
            "stdout",
            "decompress",
            "force",
            "keep",
            "quiet",
            "verbose",
            "test",
            "list",
            "fast",
            "best",
        ],
        long_valued: &["suffix"],
        patterns: &[],
    },
];

/// What stands before `--` may be a revision as well: of one word git takes only one of both.
const GIT_DIFF: Options = Options {
    names: &[],
    flags: "puswbRaWz0123456789",
    valued: "SGIOlU",
    long: &[
        "patch",
        "stat",
        "numstat",
        "shortstat",
        "name-only",
        "name-status",
        "summary",
        "color",
        "no-color",
        "word-diff",
        "color-words",
        "ignore-all-space",
        "ignore-space-change",
        "ignore-blank-lines",
        "no-ext-diff",
        "minimal",
        "patience",
        "histogram",
        "function-context",
        "find-renames",
        "no-renames",
        "merge-base",
        "check",
        "exit-code",
        "quiet",
        "raw",
        "text",
        "relative",
    ],
    long_valued: &["diff-algorithm", "output", "unified", "diff-filter"],
    patterns: &[],
};

/// What a call reads, if that is known exactly. `None` where it may read what lies where it runs.
pub(super) fn known<'a>(name: &str, words: &'a [Word]) -> Option<Vec<&'a str>> {
    if words.iter().any(|word| word.doubt.is_some()) {
        return None;
    }
    let plain = match name {
        "git" => {
            let from = git::subcommand_at(words)?;
            match words[from..].iter().position(|word| word.text == "--") {
                Some(end) => words[from + end + 1..].iter().map(|word| word.text.as_str()).collect(),
                None if words[from].text == "diff" => GIT_DIFF.operands("diff", &words[from..])?,
                None => return None,
            }
        }
        "find" => roots(words)?,
        _ => OPTIONS.iter().find(|options| options.names.contains(&name))?.operands(name, words)?,
    };
    // A pattern of git may be any path.
    let is_pattern = |text: &&str| text.starts_with(':') || text.contains(['*', '?', '[']);
    (!plain.is_empty() && !plain.iter().any(is_pattern)).then_some(plain)
}

/// The folders in which `find` begins, unless an option names them.
pub(super) fn roots(words: &[Word]) -> Option<Vec<&str>> {
    let mut texts = words.iter().skip(1).map(|word| word.text.as_str());
    if texts.clone().any(|text| matches!(text, "-D" | "-f" | "-files0-from")) {
        return None;
    }
    let is_option = |text: &str| matches!(text, "-H" | "-L" | "-P") || text.starts_with("-O");
    let first = texts.by_ref().find(|text| !is_option(text));
    Some(first.into_iter().chain(texts).take_while(|text| !text.starts_with(['-', '(', '!'])).collect())
}

impl Options {
    /// The words that are no options, no values of any and no pattern; `None` where not every option is known.
    fn operands<'a>(&self, name: &str, words: &'a [Word]) -> Option<Vec<&'a str>> {
        // The first word of `tar czf FILE` is one of letters.
        let is_old = name.ends_with("tar") && words.get(1).is_some_and(|word| !word.text.starts_with('-'));
        let (mut plain, mut at, mut ended) = (Vec::new(), 1, false);
        let mut has_pattern = self.patterns.is_empty();
        while let Some(word) = words.get(at) {
            let text = word.text.as_str();
            at += 1;
            if is_old && at == 2 {
                let with_value = text.chars().filter(|letter| self.valued.contains(*letter)).count();
                let is_known = |letter| self.flags.contains(letter) || self.valued.contains(letter);
                if !text.chars().all(is_known) {
                    return None;
                }
                at += with_value;
            } else if ended || text == "-" || !text.starts_with('-') {
                plain.push(text);
            } else if text == "--" {
                ended = true;
            } else if let Some(long) = text.strip_prefix("--") {
                let (option, is_joined) =
                    long.split_once('=').map_or((long, false), |(name, _)| (name, true));
                if self.long_valued.contains(&option) {
                    at += usize::from(!is_joined);
                } else if !self.long.contains(&option) {
                    return None;
                }
                has_pattern |= self.patterns.contains(&option);
            } else if let Some((index, letter)) =
                text.char_indices().skip(1).find(|(_, letter)| !self.flags.contains(*letter))
            {
                // What stands behind a letter with a value is that.
                let rest = &text[index + letter.len_utf8()..];
                if !self.valued.contains(letter) {
                    return None;
                }
                at += usize::from(rest.is_empty());
                has_pattern |= self.patterns.contains(&&text[index..text.len() - rest.len()]);
            }
        }
        if !has_pattern && !plain.is_empty() {
            plain.remove(0);
        }
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_known_where_every_option_is() {
        for (script, expected) in [
            ("grep -r x src", Some(&["src"][..])),
            ("grep -rn -A 3 --include=*.rs x src lib", Some(&["src", "lib"])),
            ("grep -r -e x src", Some(&["src"])),
            ("grep -rfx src", Some(&["src"])),
            ("grep -r x -- src -a", Some(&["src", "-a"])),
            ("grep -r src", None),
            ("grep -rf README.md", None),
            ("grep -r --unknown x src", None),
            ("grep -r x src/*", None),
            ("rgrep x src", Some(&["src"])),
            ("rg --hidden src", None),
            ("rg --files src", None),
            ("rg -t rust x src", Some(&["src"])),
            ("git grep src", None),
            ("git grep x -- src", Some(&["src"])),
            ("git grep x -- src :/", None),
            ("find src lib -newer README.md -exec cat {} +", Some(&["src", "lib"])),
            ("find -L src -exec cat {} +", Some(&["src"])),
            ("find -newer README.md -exec cat {} +", None),
            ("find -files0-from list -exec cat {} +", None),
            ("tar czf a.tgz src", Some(&["src"])),
            ("tar -czf a.tgz src", Some(&["src"])),
            ("tar cf - -T list.txt", None),
            ("tar -C keys -cf - a", None),
            ("rsync -a --exclude x src/ out", Some(&["src/", "out"])),
            ("rsync --files-from=list.txt . out", None),
            ("cp -r a b", Some(&["a", "b"])),
            ("cp -rt out keys", None),
            ("diff -ru a b", Some(&["a", "b"])),
            ("zip -r a.zip src", Some(&["a.zip", "src"])),
            ("zip a.zip -@", None),
            ("7z a a.7z keys", None),
        ] {
            let words: Vec<Word> = script.split(' ').map(Word::plain).collect();
            assert_eq!(known(&words[0].text, &words).as_deref(), expected, "{script}");
        }
        let mut words = ["grep", "-r", "x", "a.txt"].map(Word::plain).to_vec();
        words.push(Word::doubtful("$X", "a variable"));
        assert_eq!(known("grep", &words), None);
    }
}
