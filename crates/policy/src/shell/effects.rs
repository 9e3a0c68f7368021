//! What commands do for certain to the files that they name. Of these, rules about files are asked, as if a tool for files did it.
//!
//! A command that is not listed is judged by its text alone, unless a redirection names a file.

use super::words::Word;
use super::{operands, paths, sed, transfers};
use crate::{AccessKind, Known};

/// What is known of one word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Effect<'a> {
    /// The path.
    pub(super) path: &'a str,
    /// Whether its content is changed, or shown.
    pub(super) kind: AccessKind,
    /// Whether that is what the command is for, or done aside.
    pub(super) known: Known,
    /// What is written in it, where it is a directory.
    pub(super) into: Vec<&'a str>,
    /// Whether it is a path only where something is there.
    pub(super) if_there: bool,
}

/// Which of the words of a command that are no options it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// None.
    Nothing,
    /// All.
    All,
    /// All but the first.
    AfterFirst,
    /// The first.
    First,
    /// The second.
    Second,
    /// The last of several, into which the others are copied.
    CopiedTo,
    /// All of several: the others are moved into the last.
    MovedTo,
}

/// Commands that write files, or read some and write others.
struct Writer {
    names: &'static [&'static str],
    written: Written,
    /// Options whose value is a file that is written: short, and long.
    outputs: &'static [&'static str],
    /// Options whose value is no file.
    valued: &'static [&'static str],
    /// Letters of options with which it writes none of its arguments, and long ones.
    spared: (&'static str, &'static [&'static str]),
    /// Whether letters of options may stand together: `-uo FILE`.
    clusters: bool,
    /// Whether it shows or copies the content of those that it does not write.
    reads: bool,
}

const fn writer(names: &'static [&'static str], written: Written) -> Writer {
    Writer { names, written, outputs: &[], valued: &[], spared: ("", &[]), clusters: true, reads: false }
}

const WRITERS: &[Writer] = &[
    Writer { valued: &["-d", "--date", "-t", "-r", "--reference"], ..writer(&["touch"], Written::All) },
    writer(&["tee", "rm", "rmdir", "mkdir", "unlink", "shred", "mkfifo"], Written::All),
    Writer { valued: &["-s", "--size", "-r", "--reference"], ..writer(&["truncate"], Written::All) },
    writer(&["chmod", "chown", "chgrp"], Written::AfterFirst),
    Writer {
        outputs: &["-t", "--target-directory"],
        valued: &["-S", "--suffix", "-m", "--mode", "-o", "--owner", "-g", "--group"],
        reads: true,
        ..writer(&["cp", "gcp", "install"], Written::CopiedTo)
    },
    Writer {
        valued: &["-e", "--rsh", "-f", "--filter", "--exclude", "--include"],
        reads: true,
        ..writer(&["rsync"], Written::CopiedTo)
    },
    Writer {
        valued: &["-c", "-D", "-F", "-i", "-J", "-l", "-o", "-P", "-S", "-X"],
        reads: true,
        ..writer(&["scp"], Written::CopiedTo)
    },
    Writer {
        outputs: &["-t", "--target-directory"],
        valued: &["-S", "--suffix"],
        reads: true,
        ..writer(&["mv", "gmv"], Written::MovedTo)
    },
    // What has another name can be read by that.
    Writer {
        outputs: &["-t"],
        valued: &["-S", "--suffix"],
        reads: true,
        ..writer(&["ln"], Written::CopiedTo)
    },
    Writer {
        outputs: &["-o", "--output"],
        valued: &["-k", "--key", "-t", "--field-separator", "-S", "--buffer-size", "-T", "--parallel"],
        reads: true,
        ..writer(&["sort", "gsort"], Written::Nothing)
    },
    Writer {
        valued: &["-f", "--skip-fields", "-s", "--skip-chars", "-w", "--check-chars"],
        reads: true,
        ..writer(&["uniq"], Written::Second)
    },
    Writer {
        valued: &["-c", "-cols", "-l", "-len", "-s", "-seek", "-g", "-o", "-n", "-name", "-R"],
        clusters: false,
        reads: true,
        ..writer(&["xxd"], Written::Second)
    },
    Writer {
        outputs: &["-o", "--output"],
        valued: &["-f", "--from-code", "-t", "--to-code"],
        reads: true,
        ..writer(&["iconv", "pandoc"], Written::Nothing)
    },
    Writer {
        outputs: &["-o", "--output"],
        valued: &["-n", "--head-count", "-i", "--input-range", "--random-source"],
        reads: true,
        ..writer(&["shuf", "gshuf"], Written::Nothing)
    },
    Writer { outputs: &["-o"], ..writer(&["tree"], Written::Nothing) },
    Writer {
        outputs: &["-o", "--output", "--output-dir", "-D", "--dump-header", "-c", "--cookie-jar", "--trace"],
        // Letters behind one of these belong to its value.
        valued: &[
            "-A", "-b", "-C", "-d", "-e", "-E", "-F", "-H", "-K", "-m", "-P", "-Q", "-r", "-t", "-T", "-u",
            "-U", "-w", "-x", "-X", "-y", "-Y", "-z",
        ],
        ..writer(&["curl"], Written::Nothing)
    },
    Writer {
        outputs: &["-O", "--output-document", "-o", "--output-file", "-a", "--append-output", "-P"],
        valued: &["-A", "-B", "-D", "-e", "-i", "-I", "-l", "-Q", "-R", "-t", "-T", "-U", "-w", "-X"],
        ..writer(&["wget"], Written::Nothing)
    },
    Writer {
        outputs: &["-o"],
        clusters: false,
        ..writer(
            &["gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "rustc", "go", "dot", "strace", "time"],
            Written::Nothing,
        )
    },
    Writer { outputs: &["-out"], clusters: false, ..writer(&["openssl"], Written::Nothing) },
    Writer {
        outputs: &["-o", "--output", "-r"],
        valued: &["-p", "-i"],
        ..writer(&["patch"], Written::First)
    },
    Writer {
        valued: &["-S", "--suffix"],
        spared: ("ctl", &["--stdout", "--to-stdout", "--test", "--list"]),
        ..writer(&["gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd", "unzstd"], Written::All)
    },
    Writer {
        valued: &["-x", "-i", "-b", "-P", "-s", "-t", "-tt"],
        clusters: false,
        ..writer(&["zip"], Written::First)
    },
];

/// Commands that show what is in the files that they name, and write none.
const SHOWING: &[&str] = &[
    ".",
    "ack",
    "ag",
    "awk",
    "base32",
    "base64",
    "basenc",
    "bat",
    "batcat",
    "bzcat",
    "bzgrep",
    "bzless",
    "bzmore",
    "cat",
    "cmp",
    "colordiff",
    "column",
    "comm",
    "csplit",
    "cut",
    "diff",
    "diff3",
    "egrep",
    "expand",
    "fgrep",
    "fmt",
    "fold",
    "gawk",
    "ggrep",
    "gojq",
    "grep",
    "gzcat",
    "hd",
    "head",
    "hexdump",
    "jaq",
    "join",
    "jq",
    "less",
    "look",
    "lzcat",
    "mawk",
    "more",
    "nawk",
    "nl",
    "od",
    "paste",
    "pcre2grep",
    "pcregrep",
    "pr",
    "rev",
    "rg",
    "rgrep",
    "sdiff",
    "sed",
    "source",
    "split",
    "strings",
    "tac",
    "tail",
    "tr",
    "tsort",
    "ug",
    "ugrep",
    "unexpand",
    "uuencode",
    "xmllint",
    "xzcat",
    "xzgrep",
    "xzless",
    "yq",
    "zcat",
    "zegrep",
    "zfgrep",
    "zgrep",
    "zless",
    "zmore",
    "zstdcat",
    "zstdgrep",
    "zstdless",
];
/// Commands that write the files which they name, beside [`WRITERS`].
const OTHER_WRITERS: &[&str] = &["bsdtar", "dd", "gtar", "tar", "unzip"];
/// Options of openssl whose value is a file that is read.
const OPENSSL_INPUTS: &[&str] = &["-CAfile", "-cert", "-in", "-inkey", "-key", "-kfile"];

/// Subcommands of git that change or remove the files which they name.
const GIT_WRITING: &[&str] = &["checkout", "clean", "mv", "restore", "rm"];
/// Options of `git checkout` with the name of a branch.
const GIT_BRANCHING: &[&str] = &["-b", "-B", "--orphan", "--conflict"];
/// Options of git's subcommands whose value is a file that is written.
const GIT_OUTPUTS: &[(&str, &[&str])] =
    &[("archive", &["-o", "--output"]), ("format-patch", &["-o", "--output-directory", "--output"])];

/// Whether a program, or a subcommand of git, may write the files that it names.
pub(super) fn is_writer(name: &str, subcommand: Option<&str>) -> bool {
    let writes = |writer: &Writer| writer.names.contains(&name) && writer.written != Written::Nothing;
    let by_git = |subcommand: &str| GIT_WRITING.contains(&subcommand) || subcommand == "bundle";
    WRITERS.iter().any(writes)
        || OTHER_WRITERS.contains(&name)
        || (name == "git" && subcommand.is_some_and(by_git))
}

/// What the command of `words` does for certain to files that it names.
pub(super) fn known<'a>(name: &str, words: &'a [Word]) -> Vec<Effect<'a>> {
    let mut known = match name {
        "git" => by_git(words),
        "dd" => by_dd(words),
        "find" => by_find(words),
        "sed" | "gsed" if sed::is_in_place(words) => written(sed::files(words)),
        "install" if words.iter().any(|word| matches!(word.text.as_str(), "-d" | "--directory")) => {
            arguments(&words[1..], &[], &["-m", "--mode", "-o", "-g"], true)
                .plain
                .into_iter()
                .map(Effect::written)
                .collect()
        }
        "chmod" if words.iter().skip(1).any(|word| is_mode(&word.text)) => files_of(&words[1..]),
        "chmod" | "chown" | "chgrp" if words.iter().any(|word| word.text.starts_with("--ref")) => {
            files_of(&words[1..])
        }
        "unzip" => by_unzip(words),
        "perl" | "ruby" => in_place(words),
        "tar" | "gtar" | "bsdtar" => by_tar(words),
        _ => WRITERS
            .iter()
            .find(|writer| writer.names.contains(&name))
            .map_or_else(Vec::new, |writer| writer.of(words)),
    };
    match name {
        "curl" => known.extend(transfers::sent(words)),
        "openssl" => {
            let inputs = words.windows(2).filter(|pair| OPENSSL_INPUTS.contains(&pair[0].text.as_str()));
            known.extend(inputs.map(|pair| Effect::read(&pair[1].text)));
        }
        "rsync" | "scp" => {
            // What lies on another host.
            known.retain(|effect| effect.path.split('/').next().is_none_or(|first| !first.contains(':')));
        }
        _ => {}
    }
    if matches!(name, "curl" | "wget") {
        known.extend(transfers::kept(name, words).into_iter().map(Effect::aside));
    }
    if known.is_empty() && SHOWING.contains(&name) && (name != "sed" || sed::is_understood(words)) {
        let pattern = paths::pattern_of(name, words);
        let files = words.iter().enumerate().skip(1).filter(|(at, _)| pattern != Some(*at));
        known = files.flat_map(|(_, word)| paths::in_argument(word)).map(Effect::read).collect();
    }
    known.retain(|effect| !effect.path.is_empty() && effect.path != "-" && !paths::is_nowhere(effect.path));
    known
}

/// All words that are no options.
fn files_of(words: &[Word]) -> Vec<Effect<'_>> {
    words.iter().filter(|word| !word.text.starts_with('-')).map(|word| Effect::written(&word.text)).collect()
}

/// Whether `text` is a mode that looks like an option: `-w`.
fn is_mode(text: &str) -> bool {
    let rights = text.strip_prefix('-').unwrap_or_default();
    !rights.is_empty() && rights.chars().all(|right| "rwxXst,+=ugoa".contains(right))
}

fn written<'a>(files: impl IntoIterator<Item = &'a Word>) -> Vec<Effect<'a>> {
    files.into_iter().map(|word| Effect::written(&word.text)).collect()
}

impl<'a> Effect<'a> {
    fn written(path: &'a str) -> Self {
        Self { path, kind: AccessKind::Write, known: Known::Purpose, into: Vec::new(), if_there: false }
    }

    /// What an option names, whatever the command is for.
    fn aside(path: &'a str) -> Self {
        Self { known: Known::Aside, ..Self::written(path) }
    }

    pub(super) fn read(path: &'a str) -> Self {
        Self { kind: AccessKind::Read, ..Self::written(path) }
    }
}

/// The words of a command, told apart.
struct Arguments<'a> {
    /// Values of options that are written.
    outputs: Vec<&'a str>,
    /// Words that are no options, and no values of any.
    plain: Vec<&'a str>,
}

impl Writer {
    fn of<'a>(&self, words: &'a [Word]) -> Vec<Effect<'a>> {
        let (letters, long) = self.spared;
        let is_spared = |word: &Word| match word.text.strip_prefix('-') {
            Some(option) if option.starts_with('-') => long.contains(&word.text.as_str()),
            // What follows a letter with a value is that.
            Some(cluster) => {
                cluster.chars().take_while(|letter| *letter != 'S').any(|letter| letters.contains(letter))
            }
            None => false,
        };
        if words.iter().skip(1).any(is_spared) {
            return Vec::new();
        }
        let Arguments { outputs, plain } = arguments(&words[1..], self.outputs, self.valued, self.clusters);
        let copied_into = !outputs.is_empty() && matches!(self.written, Written::CopiedTo | Written::MovedTo);
        let names = |sources: &[&'a str]| sources.iter().map(|source| last_name(source)).collect();
        let mut effects: Vec<Effect<'a>> = Vec::new();
        for (at, path) in plain.iter().copied().enumerate() {
            let is_last = at + 1 == plain.len();
            let is_written = match self.written {
                Written::Nothing => false,
                Written::All => true,
                Written::First => at == 0,
                Written::Second => at == 1,
                Written::AfterFirst => at > 0,
                Written::CopiedTo => is_last && at > 0 && !copied_into,
                Written::MovedTo => true,
            };
            let is_target =
                is_last && !copied_into && matches!(self.written, Written::CopiedTo | Written::MovedTo);
            if is_written {
                let into = if is_target { names(&plain[..at]) } else { Vec::new() };
                effects.push(Effect { into, ..Effect::written(path) });
                if self.reads && self.written == Written::MovedTo && !is_target {
                    effects.push(Effect::read(path));
                }
            } else if self.reads {
                effects.push(Effect::read(path));
            }
        }
        let into = if copied_into { names(&plain) } else { Vec::new() };
        let known = if copied_into { Known::Purpose } else { Known::Aside };
        let output = |path| Effect { into: into.clone(), known, ..Effect::written(path) };
        effects.extend(outputs.into_iter().map(output));
        effects
    }
}

/// Tells the words of a command apart: options with a value that is written, or with another one.
/// `clusters`: whether letters of
/// options may stand together, and a value may stand right behind its letter.
fn arguments<'a>(words: &'a [Word], outputs: &[&str], valued: &[&str], clusters: bool) -> Arguments<'a> {
    let mut told = Arguments { outputs: Vec::new(), plain: Vec::new() };
    let (mut at, mut ended) = (0, false);
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        at += 1;
        if ended || text == "-" || !text.starts_with('-') {
            told.plain.push(text);
        } else if text == "--" {
            ended = true;
        } else if let Some((name, value)) = text.split_once('=').filter(|_| text.starts_with("--")) {
            if outputs.iter().any(|option| is_short_for(name, option)) {
                told.outputs.push(value);
            }
        } else if let Some((is_output, value)) = with_value(text, outputs, valued, clusters) {
            let value = if value.is_empty() {
                at += 1;
                words.get(at - 1).map_or("", |word| &word.text)
            } else {
                value
            };
            if is_output {
                told.outputs.push(value);
            }
        }
    }
    told
}

/// Whether the option in `text` has a value, whether that is written, and what of it stands in the same word.
fn with_value<'a>(
    text: &'a str,
    outputs: &[&str],
    valued: &[&str],
    clusters: bool,
) -> Option<(bool, &'a str)> {
    if text.starts_with("--") {
        let is_one = |options: &[&str]| options.iter().any(|option| is_short_for(text, option));
        return (is_one(outputs) || is_one(valued)).then(|| (is_one(outputs), ""));
    }
    if !clusters {
        // `-out FILE`, `-o=FILE`
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        return (outputs.contains(&name) || valued.contains(&name)).then(|| (outputs.contains(&name), value));
    }
    // `-o file`, `-ofile`, `-uo file`
    for (index, letter) in text.char_indices().skip(1) {
        let is = |option: &&str| option.len() == 2 && option.ends_with(letter);
        let rest = &text[index + letter.len_utf8()..];
        if outputs.iter().any(is) {
            return Some((true, rest));
        }
        if valued.iter().any(is) {
            return Some((false, rest));
        }
    }
    None
}

/// Whether `typed` is the long option, or a beginning of it that programs understand.
fn is_short_for(typed: &str, option: &str) -> bool {
    option.starts_with("--") && typed.len() > 2 && option.starts_with(typed)
}

fn last_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

fn by_git(words: &[Word]) -> Vec<Effect<'_>> {
    let Some(at) = super::git::subcommand_at(words) else { return Vec::new() };
    let (subcommand, rest) = (words[at].text.as_str(), &words[at + 1..]);
    if GIT_WRITING.contains(&subcommand) {
        // What stands before `--` may be a branch.
        let end = rest.iter().position(|word| word.text == "--");
        let files = end.map_or(rest, |end| &rest[end + 1..]);
        let if_there = subcommand == "checkout" && end.is_none();
        let valued: &[&str] = if if_there { GIT_BRANCHING } else { &["-s", "--source"] };
        let Arguments { plain, .. } = arguments(files, &[], valued, true);
        return plain.into_iter().map(|path| Effect { if_there, ..Effect::written(path) }).collect();
    }
    if matches!(subcommand, "blame" | "annotate") {
        let Arguments { plain, .. } = arguments(rest, &[], &["-L", "-S"], true);
        return plain.into_iter().map(Effect::read).collect();
    }
    if subcommand == "bundle" && rest.first().is_some_and(|word| word.text == "create") {
        return written(rest.iter().skip(1).find(|word| !word.text.starts_with('-')));
    }
    let outputs =
        GIT_OUTPUTS.iter().find(|(of, _)| *of == subcommand).map_or(&["--output"][..], |(_, of)| of);
    arguments(rest, outputs, &[], true).outputs.into_iter().map(Effect::aside).collect()
}

fn by_dd(words: &[Word]) -> Vec<Effect<'_>> {
    let effect = |word: &'_ Word| -> Option<(AccessKind, usize)> {
        match word.text.as_str() {
            text if text.starts_with("of=") => Some((AccessKind::Write, 3)),
            text if text.starts_with("if=") => Some((AccessKind::Read, 3)),
            _ => None,
        }
    };
    let told = words.iter().filter_map(|word| effect(word).map(|(kind, from)| (&word.text[from..], kind)));
    told.map(|(path, kind)| Effect { kind, ..Effect::written(path) }).collect()
}

fn by_find(words: &[Word]) -> Vec<Effect<'_>> {
    const OUTPUTS: &[&str] = &["-fprint", "-fprint0", "-fprintf", "-fls"];
    let mut effects: Vec<Effect<'_>> = Vec::new();
    for pair in words.windows(2) {
        if OUTPUTS.contains(&pair[0].text.as_str()) {
            effects.push(Effect::aside(&pair[1].text));
        }
    }
    if words.iter().any(|word| word.text == "-delete") {
        let roots = operands::roots(words).filter(|roots| !roots.is_empty());
        effects.extend(roots.unwrap_or_else(|| vec!["."]).into_iter().map(Effect::written));
    }
    effects
}

/// `perl -pi -e SCRIPT FILE …`
fn in_place(words: &[Word]) -> Vec<Effect<'_>> {
    let is_option = |word: &Word| word.text.starts_with('-') && !word.text.starts_with("--");
    // What follows one of these letters is its value.
    let changes = |word: &Word| {
        let mut letters = word.text.chars().skip(1).take_while(|letter| !"CDdeEFIMmrSxV".contains(*letter));
        is_option(word) && letters.any(|letter| letter == 'i')
    };
    if !words.iter().skip(1).any(changes) {
        return Vec::new();
    }
    let mut script = false;
    let files = words.iter().skip(1).filter(|word| {
        let is_value = std::mem::replace(&mut script, is_option(word) && word.text.ends_with(['e', 'E']));
        !is_value && !is_option(word)
    });
    written(files.collect::<Vec<_>>())
}

/// An archive that is made, or the directory in which one is unpacked.
fn by_tar(words: &[Word]) -> Vec<Effect<'_>> {
    let rest = words.get(1..).unwrap_or_default();
    let is_old = rest.first().is_some_and(|word| !word.text.starts_with('-'));
    let cluster = |(at, word): (usize, &Word)| match word.text.strip_prefix('-') {
        Some(option) if !option.starts_with('-') => option.to_owned(),
        None if at == 0 => word.text.clone(),
        _ => String::new(),
    };
    let letters: String = rest.iter().enumerate().map(cluster).collect();
    let is_one = |names: &[&str]| rest.iter().any(|word| names.contains(&word.text.as_str()));
    if letters.contains(['c', 'r', 'u', 'A']) || is_one(&["--create", "--append", "--update", "--catenate"]) {
        let mut archives = arguments(rest, &["-f", "--file"], &["-C", "--directory"], true).outputs;
        archives.extend(rest.get(1).filter(|_| is_old).map(|word| word.text.as_str()));
        return archives.into_iter().map(Effect::written).collect();
    }
    if letters.contains('x') || is_one(&["--extract", "--get"]) {
        return unpacked(arguments(rest, &["-C", "--directory"], &["-f", "--file"], true).outputs);
    }
    Vec::new()
}

fn by_unzip(words: &[Word]) -> Vec<Effect<'_>> {
    let shows = |word: &Word| matches!(word.text.as_str(), "-l" | "-p" | "-t" | "-v" | "-z" | "-Z");
    match words.iter().any(shows) {
        true => Vec::new(),
        false => unpacked(arguments(&words[1..], &["-d"], &[], true).outputs),
    }
}

/// Where an archive is unpacked: where the command runs, unless directories are named.
fn unpacked(directories: Vec<&str>) -> Vec<Effect<'_>> {
    let here = directories.is_empty().then_some(".");
    here.into_iter().chain(directories).map(Effect::written).collect()
}

#[cfg(test)]
mod tests;
