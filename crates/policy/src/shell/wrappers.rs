//! Commands that run the command in their arguments.

use super::words::Word;

/// How a wrapper's own arguments are told from the command that it runs.
struct Wrapper {
    name: &'static str,
    /// One-letter options without a value.
    flags: &'static str,
    /// One-letter options with a value, attached or in the next word.
    valued: &'static str,
    /// Long options with a value in the next word.
    long_valued: &'static [&'static str],
    /// Long options without a value.
    long_flags: &'static [&'static str],
    /// Arguments that come before the command.
    positional: usize,
    /// Whether `NAME=value` may come before the command.
    assignments: bool,
    /// Whether the command gets more arguments than are written.
    adds_arguments: bool,
}

const fn wrapper(name: &'static str, flags: &'static str, valued: &'static str) -> Wrapper {
    Wrapper {
        name,
        flags,
        valued,
        long_valued: &[],
        long_flags: &[],
        positional: 0,
        assignments: false,
        adds_arguments: false,
    }
}

const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        assignments: true,
        long_valued: &["--unset", "--chdir"],
        long_flags: &["--ignore-environment", "--null"],
        ..wrapper("env", "i0v", "uC")
    },
    Wrapper {
        assignments: true,
        long_valued: &["--user", "--group", "--chdir", "--host", "--prompt"],
        long_flags: &["--non-interactive", "--login", "--preserve-env", "--stdin", "--set-home"],
        ..wrapper("sudo", "AbEHiknPSs", "CDghpRrtTUu")
    },
    wrapper("doas", "nsL", "uC"),
    Wrapper {
        adds_arguments: true,
        long_valued: &[
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
            "--max-lines",
            "--max-chars",
        ],
        long_flags: &["--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit"],
        ..wrapper("xargs", "0rtpx", "nPILdasE")
    },
    Wrapper { adds_arguments: true, ..wrapper("parallel", "", "j") },
    wrapper("nohup", "", ""),
    Wrapper { long_flags: &["--fork", "--wait", "--ctty"], ..wrapper("setsid", "cfw", "") },
    Wrapper { long_valued: &["--adjustment"], ..wrapper("nice", "", "n") },
    wrapper("ionice", "t", "cn"),
    Wrapper { long_valued: &["--input", "--output", "--error"], ..wrapper("stdbuf", "", "ioe") },
    Wrapper {
        positional: 1,
        long_valued: &["--signal", "--kill-after"],
        long_flags: &["--preserve-status", "--foreground", "--verbose"],
        ..wrapper("timeout", "v", "sk")
    },
    wrapper("time", "pv", "fo"),
    wrapper("command", "pvV", ""),
    wrapper("builtin", "", ""),
    wrapper("exec", "cl", "a"),
    wrapper("coproc", "", ""),
    wrapper("busybox", "", ""),
    Wrapper { positional: 1, ..wrapper("chroot", "", "") },
    Wrapper { positional: 1, ..wrapper("flock", "sxunoFe", "wE") },
    wrapper("strace", "fqtv", "eop"),
    wrapper("unshare", "", ""),
    wrapper("nsenter", "", ""),
    wrapper("watch", "bcdegtx", "n"),
    wrapper("caffeinate", "dimsu", "tw"),
    wrapper("proxychains", "q", "f"),
];

/// The most places at which a command is looked for behind options that are not understood.
const MOST_BEGINNINGS: usize = 16;
/// Why a wrapper is in doubt itself.
pub(super) const UNKNOWN_OPTIONS: &str = "options that are not understood";

/// A command within a command.
pub(super) struct Inner<'a> {
    /// Its words.
    pub(super) words: &'a [Word],
    /// Why more may be in it than is written.
    pub(super) doubt: Option<&'static str>,
}

/// The commands that the command of `words` may run.
pub(super) fn inner<'a>(name: &str, words: &'a [Word]) -> Vec<Inner<'a>> {
    if name == "find" || name == "fd" || name == "fdfind" {
        return executed_by_find(words);
    }
    match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        Some(wrapper) => wrapper.unwrap(words),
        None => Vec::new(),
    }
}

impl Wrapper {
    fn unwrap<'a>(&self, words: &'a [Word]) -> Vec<Inner<'a>> {
        let added = self.adds_arguments.then_some("arguments that come from elsewhere");
        match self.command(words) {
            Some(at) if at >= words.len() => Vec::new(),
            Some(at) => vec![Inner { words: &words[at..], doubt: added }],
            // Its options are not understood: the command may begin at any word.
            None => (1..words.len())
                .filter(|at| !words[*at].text.starts_with('-'))
                .take(MOST_BEGINNINGS)
                .map(|at| Inner { words: &words[at..], doubt: Some(UNKNOWN_OPTIONS) })
                .collect(),
        }
    }

    /// Where the command begins; `None` when that cannot be told.
    fn command(&self, words: &[Word]) -> Option<usize> {
        let mut at = 1;
        let mut positional = self.positional;
        while let Some(word) = words.get(at) {
            let text = word.text.as_str();
            if word.doubt.is_some() {
                // Behind a variable anything may follow.
                return (positional == 0 && !text.starts_with('-')).then_some(at);
            }
            if text == "--" {
                return Some(at + 1 + positional);
            } else if let Some(long) = text.strip_prefix("--") {
                let has_value = long.contains('=');
                if self.long_valued.contains(&text) {
                    at += 1;
                } else if !has_value && !self.long_flags.contains(&text) {
                    return None;
                }
            } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                at += self.value_of(letters)?;
            } else if self.assignments && is_assignment(text) {
            } else if positional > 0 {
                positional -= 1;
            } else {
                return Some(at);
            }
            at += 1;
        }
        Some(at)
    }

    /// How many words the value of the last of these one-letter options takes.
    fn value_of(&self, letters: &str) -> Option<usize> {
        // `nice -5`
        if self.name == "nice" && letters.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(0);
        }
        for (index, letter) in letters.char_indices() {
            if self.valued.contains(letter) {
                return Some(usize::from(index + letter.len_utf8() == letters.len()));
            }
            if !self.flags.contains(letter) {
                return None;
            }
        }
        Some(0)
    }
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

fn executed_by_find(words: &[Word]) -> Vec<Inner<'_>> {
    const RUN: &[&str] = &["-exec", "-execdir", "-ok", "-okdir", "-x", "--exec", "-X", "--exec-batch"];
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if !RUN.contains(&word.text.as_str()) {
            continue;
        }
        let rest = &words[at + 1..];
        let end = rest.iter().position(|word| word.text == ";" || word.text == "+").unwrap_or(rest.len());
        if end > 0 {
            found.push(Inner { words: &rest[..end], doubt: Some("names of files that are found") });
        }
    }
    found
}

/// What a shell's own arguments say of where its script comes from.
pub(super) enum ShellScript<'a> {
    /// A word holds it.
    Text(&'a Word),
    /// A file holds it.
    File,
    /// It is read from standard input.
    Input,
    /// That cannot be told.
    Unknown,
}

/// Shells whose language this is.
pub(super) fn is_shell(name: &str) -> bool {
    matches!(
        name,
        "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "rbash" | "fish" | "csh" | "tcsh"
    )
}

pub(super) fn script_of(words: &[Word]) -> ShellScript<'_> {
    let (mut at, mut takes_text) = (1, false);
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        if word.doubt.is_some() && !takes_text {
            return ShellScript::Unknown;
        }
        if text == "--" || text == "-" {
            at += 1;
            break;
        }
        let Some(letters) = text.strip_prefix(['-', '+']) else { break };
        if let Some(long) = letters.strip_prefix('-') {
            at += usize::from(matches!(long, "rcfile" | "init-file"));
        } else {
            takes_text |= letters.contains('c');
            at += usize::from(letters.ends_with(['o', 'O']));
        }
        at += 1;
    }
    match words.get(at) {
        Some(word) if takes_text => ShellScript::Text(word),
        Some(_) => ShellScript::File,
        None => ShellScript::Input,
    }
}
