//! Files that a script makes, and files that it has run: what it makes and runs is nowhere to be read before.
//!
//! Files are known by their last names. What a program makes under a name that no argument says (a compiler, an archive,
//! a program of the workspace) is not followed.

use super::words::Word;
use super::{paths, sed};

/// Programs that make files of other files, or of what they get, under names that are arguments.
const MAKERS: &[&str] = &[
    "cp", "curl", "dd", "gsort", "gunzip", "gzip", "iconv", "install", "ln", "mv", "objcopy", "openssl",
    "rsync", "shuf", "sort", "tee", "uniq", "wget", "xxd",
];

/// Programs that make files whose names stand in what they read, or follow from a pattern.
const NAMELESS: &[&str] = &["csplit", "gcsplit", "gsplit", "patch", "prename", "rename", "split"];

/// Subcommands of git that do either.
const MAKERS_OF_GIT: &[&str] = &["mv"];
const NAMELESS_OF_GIT: &[&str] = &["am", "apply"];

/// Files that a program obeys if they are there, whether an argument names them or not.
const OBEYED: &[(&[&str], &[&str])] = &[
    (&["make", "gmake", "bmake"], &["Makefile", "makefile", "GNUmakefile", "BSDmakefile"]),
    (&["npm", "npx", "pnpm", "yarn", "bun"], &["package.json"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (&["rake"], &["Rakefile", "rakefile"]),
    (&["ninja"], &["build.ninja"]),
];

/// What a command makes.
pub(super) enum Makes {
    /// Nothing that is known of.
    Nothing,
    /// What its arguments name.
    Arguments,
    /// What nobody can tell.
    Anything,
}

/// What the command of `words` makes.
pub(super) fn makes(name: &str, words: &[Word]) -> Makes {
    let any = |test: &dyn Fn(&str) -> bool| words.iter().skip(1).any(|word| test(&word.text));
    let of_git = |subcommands: &[&str]| name == "git" && any(&|text| subcommands.contains(&text));
    let is_renaming = |text: &str| {
        text.starts_with("--tr") || text.starts_with("--xf") || (text.starts_with("-s") && text.len() > 2)
    };
    let is_tar = matches!(name, "tar" | "gtar" | "bsdtar");
    if NAMELESS.contains(&name) || of_git(NAMELESS_OF_GIT) || (is_tar && any(&is_renaming)) {
        Makes::Anything
    } else if MAKERS.contains(&name) || of_git(MAKERS_OF_GIT) || (is_sed(name) && !sed::only_reads(words)) {
        Makes::Arguments
    } else {
        Makes::Nothing
    }
}

fn is_sed(name: &str) -> bool {
    matches!(name, "sed" | "gsed")
}

/// The files that the command of `words` obeys, as far as they are known.
pub(super) fn obeyed<'a>(name: &str, words: &'a [Word]) -> Vec<&'a str> {
    let Some((names, files)) = OBEYED.iter().find(|(names, _)| names.contains(&name)) else {
        return Vec::new();
    };
    let mut found = files.to_vec();
    if names.contains(&"make") {
        found.extend(words.iter().skip(1).flat_map(makefile));
    }
    found
}

/// What an argument of make may say is its makefile: a word, or what is joined with an option.
fn makefile(word: &Word) -> Vec<&str> {
    let joined = word.text.starts_with('-').then(|| word.text.find('f').map(|at| &word.text[at + 1..]));
    paths::in_argument(word).into_iter().chain(joined.flatten()).collect()
}
