//! Commands that run the command in their arguments.

mod table;

use super::words::Word;
use table::{WRAPPERS, Wrapper};

/// The most places at which a command is looked for behind options that are not understood.
const MOST_BEGINNINGS: usize = 16;
/// Why a wrapper is in doubt itself.
const UNKNOWN_OPTIONS: &str = "options that are not understood";
/// Words between a program and its subcommand that are none of its options.
const BETWEEN: &[&str] = &["compose", "container", "netns"];

/// A command within a command.
pub(super) struct Inner<'a> {
    /// Its words.
    pub(super) words: &'a [Word],
    /// Why more may be in it than is written.
    pub(super) doubt: Option<&'static str>,
    /// Whether it gets words that stand nowhere in the script.
    pub(super) is_fed: bool,
}

/// What a command runs that stands in its arguments.
#[derive(Default)]
pub(super) struct Wrapped<'a> {
    /// The commands that it may run.
    pub(super) inner: Vec<Inner<'a>>,
    /// Words that may be scripts.
    pub(super) scripts: Vec<&'a Word>,
    /// Where its own words end.
    pub(super) own: Option<usize>,
    /// Why the command itself may do something else.
    pub(super) doubt: Option<&'static str>,
}

/// What the command of `words` runs that stands in its arguments.
pub(super) fn wrapped<'a>(name: &str, words: &'a [Word]) -> Wrapped<'a> {
    if matches!(name, "find" | "fd" | "fdfind") {
        return run_by_find(name, words);
    }
    let mut found = Wrapped::default();
    for wrapper in WRAPPERS.iter().filter(|wrapper| wrapper.name == name) {
        let Some((begins, is_clear)) = wrapper.begins(words) else { continue };
        found.take(
            wrapper,
            words,
            begins,
            if is_clear && !wrapper.is_opaque { wrapper.command(words, begins) } else { None },
        );
    }
    found
}

impl<'a> Wrapped<'a> {
    /// Adds what `wrapper` runs: its own words begin at `begins`, and its command at `at` as far as that can be told.
    fn take(&mut self, wrapper: &Wrapper, words: &'a [Word], begins: usize, at: Option<usize>) {
        match at {
            Some(at) if at >= words.len() => {
                if !wrapper.idle_alone {
                    self.doubt = Some("it may run what it reads");
                }
            }
            Some(at) => {
                self.own = Some(at);
                self.doubt = wrapper.change(&words[begins..at]);
                let fed = wrapper.adds_arguments.then_some("arguments that come from elsewhere");
                let doubt = fed.or(self.doubt);
                self.inner.push(Inner { words: &words[at..], doubt, is_fed: wrapper.adds_arguments });
                if wrapper.takes_scripts {
                    self.doubt = Some("a script in a word");
                    self.scripts.extend(&words[at..]);
                }
            }
            // Its options are not understood: the command may begin at any word.
            None => {
                self.doubt = Some(UNKNOWN_OPTIONS);
                let beginnings = (begins..words.len()).filter(|at| !words[*at].text.starts_with('-'));
                for at in beginnings.take(MOST_BEGINNINGS) {
                    let doubt = Some(UNKNOWN_OPTIONS);
                    self.inner.push(Inner { words: &words[at..], doubt, is_fed: wrapper.adds_arguments });
                    if words[at].text.contains(char::is_whitespace) {
                        self.scripts.push(&words[at]);
                    }
                }
            }
        }
    }
}

impl Wrapper {
    /// Where its own words begin, and whether nothing stands before them that is not understood; `None` where it is not
    /// used as a wrapper.
    fn begins(&self, words: &[Word]) -> Option<(usize, bool)> {
        let Some(subcommand) = self.subcommand else { return Some((1, true)) };
        let at = words.iter().skip(1).position(|word| word.text == subcommand)? + 1;
        let first = words[1].text.as_str();
        match at {
            1 => Some((2, true)),
            _ if first.starts_with('-') || BETWEEN.contains(&first) => Some((at + 1, false)),
            _ => None,
        }
    }

    /// Where the command begins; `None` when that cannot be told.
    fn command(&self, words: &[Word], begins: usize) -> Option<usize> {
        let mut at = begins;
        let mut positional = self.positional;
        while let Some(word) = words.get(at) {
            let text = word.text.as_str();
            if word.doubt.is_some() {
                // Behind a variable anything may follow.
                return (positional == 0 && !text.starts_with('-')).then_some(at);
            }
            if text == "--" {
                at += 1 + positional;
                while self.assignments && words.get(at).is_some_and(|word| is_assignment(&word.text)) {
                    at += 1;
                }
                return Some(at);
            } else if let Some(long) = text.strip_prefix("--") {
                let has_value = long.contains('=');
                if self.long_valued.contains(&text) {
                    at += 1;
                } else if !has_value && !self.long_flags.contains(&text) {
                    return None;
                }
            } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                if self.looks_up.is_some_and(|looks| letters.contains(looks)) {
                    return Some(words.len());
                }
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

    /// Why what runs is something else than it says, after `own`, the words before the command.
    fn change(&self, own: &[Word]) -> Option<&'static str> {
        let sets = |word: &Word| self.assignments && is_assignment(&word.text);
        let moves = |word: &Word| {
            self.assignments && ["--chdir", "-C", "-D"].iter().any(|option| word.text.starts_with(option))
        };
        let assigns = own.iter().any(sets).then_some("an assignment");
        assigns.or_else(|| own.iter().any(moves).then_some("a directory that is not known"))
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

/// Whether `text` is `NAME=value`.
pub(super) fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

fn run_by_find<'a>(name: &str, words: &'a [Word]) -> Wrapped<'a> {
    const FIND: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
    const FD: &[&str] = &["-x", "--exec", "-X", "--exec-batch"];
    let runs = if name == "find" { FIND } else { FD };
    let mut found = Wrapped::default();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        let rest = &words[at + 1..];
        if runs.contains(&text) {
            found.own = found.own.or(Some(at));
            let end = rest.iter().position(|word| word.text == ";" || word.text == "+").unwrap_or(rest.len());
            // They lie below the directories that it is told to search.
            let doubt = Some("names of files that are found");
            found.inner.push(Inner { words: &rest[..end], doubt, is_fed: false });
            at += end;
        } else if name != "find" {
            let is_cluster = text.starts_with('-') && !text.starts_with("--") && text.contains(['x', 'X']);
            if is_cluster || text.starts_with("--exec") {
                found.doubt = Some(UNKNOWN_OPTIONS);
                found.inner.push(Inner { words: rest, doubt: Some(UNKNOWN_OPTIONS), is_fed: true });
                break;
            }
        }
        at += 1;
    }
    found
}

/// What a shell's own arguments say of where its script comes from.
pub(super) enum ShellScript<'a> {
    /// A word holds it.
    Text(&'a Word),
    /// A file holds it.
    File(&'a Word),
    /// It is read from standard input.
    Input,
    /// That cannot be told.
    Unknown,
}

/// Shells, of which most read the language of bash, or nearly.
pub(super) fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash" | "ash" | "ksh" | "mksh" | "rbash") || is_other_shell(name)
}

/// Shells with a language of their own.
pub(super) fn is_other_shell(name: &str) -> bool {
    matches!(name, "fish" | "csh" | "tcsh" | "zsh" | "nu" | "xonsh" | "elvish" | "rc" | "es")
}

/// Long options of bash, which understands them behind one dash as well.
const LONG: &[&str] = &[
    "debug",
    "debugger",
    "dump-po-strings",
    "dump-strings",
    "help",
    "login",
    "noediting",
    "noprofile",
    "norc",
    "posix",
    "pretty-print",
    "protected",
    "restricted",
    "verbose",
    "version",
    "wordexp",
];
/// Those that name a file which is run before the script.
const WITH_FILE: &[&str] = &["init-file", "rcfile"];

/// The files that a shell runs before its script.
pub(super) fn run_before(words: &[Word]) -> impl Iterator<Item = &Word> {
    let names_file = |word: &Word| {
        let option = word.text.strip_prefix('-');
        option.is_some_and(|option| WITH_FILE.contains(&option.strip_prefix('-').unwrap_or(option)))
    };
    words.windows(2).filter(move |pair| names_file(&pair[0])).map(|pair| &pair[1])
}

pub(super) fn script_of(words: &[Word]) -> ShellScript<'_> {
    let (mut at, mut takes_text, mut reads) = (1, false, false);
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
        let long = letters.strip_prefix('-').unwrap_or(letters);
        if WITH_FILE.contains(&long) {
            at += 1;
        } else if long == letters && !LONG.contains(&long) {
            takes_text |= letters.contains('c');
            reads |= letters.contains(['s', 'i']);
            // Each takes the name of an option, wherever among the letters it stands.
            at += letters.matches(['o', 'O']).count();
        }
        at += 1;
    }
    match words.get(at) {
        Some(word) if takes_text => ShellScript::Text(word),
        Some(word) if word.doubt.is_some() => ShellScript::Unknown,
        Some(word) if reads || is_input(&word.text) => ShellScript::Input,
        Some(word) => ShellScript::File(word),
        None => ShellScript::Input,
    }
}

/// Whether `path` is what a command reads, whatever it is called, and no file.
pub(super) fn is_input(path: &str) -> bool {
    path == "-" || path.starts_with("/dev/") || path.starts_with("/proc/")
}
