//! Settings of git that a command writes. Git runs what some of them say, so they are told as the file that holds them.

use super::words::Word;

/// Options of git before its subcommand that have no value.
const FLAGS: &[&str] =
    &["--no-pager", "-P", "-p", "--paginate", "--no-optional-locks", "--literal-pathspecs", "--bare"];

/// Options of `git config` with which it only tells.
const READS: &[&str] = &[
    "--get",
    "--get-all",
    "--get-color",
    "--get-colorbool",
    "--get-regexp",
    "--get-urlmatch",
    "--list",
    "-l",
];
/// Options of `git config` that do not say what is written, or where.
const PLAIN: &[&str] = &[
    "--add",
    "--all",
    "--append",
    "--bool",
    "--bool-or-int",
    "--fixed-value",
    "--includes",
    "--int",
    "--local",
    "--name-only",
    "--no-includes",
    "--null",
    "--path",
    "--regexp",
    "--replace-all",
    "--show-origin",
    "--show-scope",
    "-z",
];
/// Options of `git config` with a value.
const VALUED: &[&str] = &["--blob", "--comment", "--default", "--file", "--type", "--url", "--value", "-f"];

/// Sections in which nothing is run and nothing says where something else is.
const PLAIN_SECTIONS: &[&str] = &[
    "advice",
    "apply",
    "blame",
    "branch",
    "checkout",
    "color",
    "column",
    "commit",
    "feature",
    "fetch",
    "fsck",
    "index",
    "log",
    "notes",
    "pull",
    "push",
    "rebase",
    "rerere",
    "stash",
    "status",
    "switch",
    "tag",
    "user",
    "versionsort",
];
/// Single settings of other sections that are like that.
const PLAIN_KEYS: &[&str] = &[
    "core.abbrev",
    "core.autocrlf",
    "core.bare",
    "core.commentchar",
    "core.compression",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.longpaths",
    "core.precomposeunicode",
    "core.preloadindex",
    "core.quotepath",
    "core.safecrlf",
    "core.symlinks",
    "core.untrackedcache",
    "core.whitespace",
    "diff.algorithm",
    "diff.colormoved",
    "diff.context",
    "diff.mnemonicprefix",
    "diff.noprefix",
    "diff.renamelimit",
    "diff.renames",
    "diff.submodule",
    "init.defaultbranch",
    "merge.conflictstyle",
    "merge.ff",
    "merge.log",
    "merge.renames",
    "merge.stat",
];
/// Settings of a remote that are like that.
const PLAIN_OF_REMOTE: &[&str] =
    &["fetch", "mirror", "prune", "prunetags", "push", "pushurl", "skipdefaultupdate", "tagopt", "url"];

/// The files of settings that the call of git in `words` writes, where what is written may be run or lies elsewhere.
pub(super) fn settings_written(words: &[Word]) -> Vec<String> {
    let Some(Call { at, directory, repository }) = subcommand(words) else { return Vec::new() };
    let own = |name: &str| match (&repository, &directory) {
        (Some(repository), _) => format!("{repository}/{name}"),
        (None, Some(directory)) => format!("{directory}/.git/{name}"),
        (None, None) => format!(".git/{name}"),
    };
    let arguments = &words[at + 1..];
    match words[at].text.as_str() {
        // `ext::sh -c …` is an address for git.
        "remote" if arguments.iter().any(|word| word.text.contains("::")) => vec![own("config")],
        "config" => match written(arguments) {
            Some((Place::Own(name), false)) => vec![own(name)],
            Some((Place::Other(file), _)) => vec![file],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Where a call of git has its subcommand, and which repository it is about.
struct Call {
    at: usize,
    directory: Option<String>,
    repository: Option<String>,
}

/// Which word of a call of git is its subcommand.
pub(super) fn subcommand_at(words: &[Word]) -> Option<usize> {
    subcommand(words).map(|call| call.at)
}

/// The directory in which a call of git runs (`-C`), as it is written.
pub(super) fn directory(words: &[Word]) -> Option<String> {
    subcommand(words)?.directory
}

fn subcommand(words: &[Word]) -> Option<Call> {
    let mut call = Call { at: 1, directory: None, repository: None };
    let mut is_understood = true;
    while let Some(word) = words.get(call.at) {
        let text = word.text.as_str();
        let next = || words.get(call.at + 1).map(|word| word.text.clone());
        match text {
            "-C" => {
                call.directory = match (call.directory.take(), next()) {
                    (Some(first), Some(then)) if !then.starts_with(['/', '~']) => {
                        Some(format!("{first}/{then}"))
                    }
                    (_, then) => then,
                };
                call.at += 1;
            }
            "--git-dir" => {
                call.repository = next();
                call.at += 1;
            }
            "-c" | "--namespace" | "--work-tree" | "--config-env" => call.at += 1,
            text if FLAGS.contains(&text) => {}
            text if text.starts_with('-') => match text.strip_prefix("--git-dir=") {
                Some(repository) => call.repository = Some(repository.to_owned()),
                None => is_understood &= text.contains('='),
            },
            _ => break,
        }
        call.at += 1;
    }
    if !is_understood {
        // Any word may be the subcommand.
        call.at = words.iter().position(|word| word.text == "config")?;
    }
    (call.at < words.len()).then_some(call)
}

/// A file of settings.
enum Place {
    /// One of the repository.
    Own(&'static str),
    /// Another one.
    Other(String),
}

/// The file that `git config` writes with these arguments, and whether what it writes there is plain; `None` where it
/// only tells.
fn written(arguments: &[Word]) -> Option<(Place, bool)> {
    let mut place = Place::Own("config");
    let (mut reads, mut is_plain, mut at) = (false, true, 0);
    let mut rest: Vec<&Word> = Vec::new();
    while let Some(word) = arguments.get(at) {
        let text = word.text.as_str();
        is_plain &= word.doubt.is_none();
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match name {
            "--global" => place = Place::Other("~/.gitconfig".to_owned()),
            "--system" => place = Place::Other("/etc/gitconfig".to_owned()),
            "--worktree" => place = Place::Own("config.worktree"),
            name if VALUED.contains(&name) && text.starts_with('-') => {
                let value = value.or_else(|| {
                    at += 1;
                    arguments.get(at).map(|word| word.text.as_str())
                });
                if let ("-f" | "--file", Some(file)) = (name, value) {
                    place = Place::Other(file.to_owned());
                }
            }
            name if READS.contains(&name) => reads = true,
            name if PLAIN.contains(&name) => {}
            "--unset" | "--unset-all" => rest.push(word),
            name if name.starts_with('-') => is_plain = false,
            _ => rest.push(word),
        }
        at += 1;
    }
    let texts: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    let (writes, key) = match texts.as_slice() {
        ["get" | "list", ..] => (false, None),
        ["edit" | "rename-section" | "remove-section", ..] => (true, None),
        ["set" | "unset" | "--unset" | "--unset-all", key, ..] => (true, Some(*key)),
        [key, _, ..] => (true, Some(*key)),
        _ => (false, None),
    };
    let is_understood = is_plain;
    is_plain &= key.is_some_and(is_plain_key) && !texts.iter().any(|text| text.contains("::"));
    match is_understood {
        true if reads || !writes => None,
        _ => Some((place, is_plain)),
    }
}

fn is_plain_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let Some((section, rest)) = key.split_once('.') else { return false };
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    PLAIN_SECTIONS.contains(&section)
        || PLAIN_KEYS.contains(&key.as_str())
        || (section == "remote" && PLAIN_OF_REMOTE.contains(&name))
}
