//! Which arguments of commands that write are only read: sources of a copy, directories of headers, an archive that is
//! listed. Where that is not plain, all are written.

use super::words::Word;

/// One-letter options of `cp` and `install` without a value, with which a copy stays a copy: no links.
const COPYING: &str = "abfinprRuvxHLPDC";
/// Letters with which `tar` lists what is in an archive.
const LISTING: &str = "tvzjJaf";
/// Options of compilers that name a directory of what is read, joined with it or before it.
const DIRECTORIES: &[&str] = &["-I", "-L", "-isystem", "-iquote", "-idirafter"];

/// Whether the word at each place of `words` is only read.
pub(super) fn are_read(name: &str, words: &[Word]) -> Vec<bool> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    match name {
        // Which is the last argument is not known if one may be several.
        _ if words.iter().any(|word| word.doubt.is_some()) => vec![false; words.len()],
        "cp" | "install" if is_copy(&texts) => {
            let last = texts.iter().rposition(|text| !text.starts_with('-'));
            (0..words.len()).map(|at| last.is_some_and(|last| at < last)).collect()
        }
        "tar" | "gtar" | "bsdtar" => vec![is_listing(&texts); words.len()],
        "gcc" | "g++" | "cc" | "c++" | "clang" | "clang++" => {
            let is_option = |text: &str| DIRECTORIES.contains(&text);
            let is_joined = |text: &str| DIRECTORIES.iter().any(|option| text.starts_with(option));
            (0..texts.len()).map(|at| is_joined(texts[at]) || (at > 0 && is_option(texts[at - 1]))).collect()
        }
        _ => vec![false; words.len()],
    }
}

/// Whether all but the last of the words that are no options are sources.
fn is_copy(texts: &[&str]) -> bool {
    let is_plain = |text: &&str| match text.strip_prefix('-') {
        None => true,
        Some("-recursive" | "-force" | "-verbose" | "-no-clobber" | "-update" | "-archive") => true,
        Some(letters) => !letters.is_empty() && letters.chars().all(|letter| COPYING.contains(letter)),
    };
    texts.iter().skip(1).all(is_plain)
        && texts.iter().skip(1).filter(|text| !text.starts_with('-')).count() > 1
}

fn is_listing(texts: &[&str]) -> bool {
    let Some(first) = texts.get(1) else { return false };
    let letters = first.strip_prefix('-').unwrap_or(first);
    let is_list = letters.contains('t') && letters.chars().all(|letter| LISTING.contains(letter));
    is_list && texts.iter().skip(2).all(|text| !text.starts_with('-'))
}
