//! Which arguments of commands are written for certain. Of a command that is not known to read only, and not told here,
//! any argument may be.

use super::words::Word;
use super::{paths, sed, sources};
use crate::AccessKind;

/// Commands that create, change or remove all that their arguments name.
const CHANGING: &[&str] = &[
    "chgrp", "chmod", "chown", "mkdir", "mkfifo", "mknod", "mv", "rm", "rmdir", "shred", "tee", "touch",
    "truncate", "unlink",
];

/// Commands that make something of the last argument, or in it.
const FILLING: &[&str] = &["cp", "install", "ln", "rsync", "scp"];

/// What the command of `words` does with what the word at each place names.
pub(super) fn kinds(name: &str, words: &[Word]) -> Vec<AccessKind> {
    if paths::only_reads(name, words) {
        return vec![AccessKind::Read; words.len()];
    }
    let are_read = sources::are_read(name, words);
    let are_written = are_written(name, words);
    let kind = |at: usize| match (are_read[at], are_written[at]) {
        (true, _) => AccessKind::Read,
        (false, true) => AccessKind::Write,
        (false, false) => AccessKind::MayWrite,
    };
    (0..words.len()).map(kind).collect()
}

fn are_written(name: &str, words: &[Word]) -> Vec<bool> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    match name {
        name if CHANGING.contains(&name) => vec![true; texts.len()],
        "sed" | "gsed" => vec![sed::is_in_place(words); texts.len()],
        "dd" => texts.iter().map(|text| text.starts_with("of=")).collect(),
        "find" if texts.contains(&"-delete") => {
            // Where it begins to look stands before all tests.
            let tests = texts.iter().skip(1).position(|text| text.starts_with(['-', '(', '!']));
            let end = tests.map_or(texts.len(), |at| at + 1);
            (0..texts.len()).map(|at| at < end).collect()
        }
        name if FILLING.contains(&name) => filled(name, &texts),
        _ => vec![false; texts.len()],
    }
}

/// The directory that an option names, or else the last of several arguments.
fn filled(name: &str, texts: &[&str]) -> Vec<bool> {
    let is_option = |text: &str| text.starts_with('-') && text != "-";
    let has_option = !matches!(name, "rsync" | "scp");
    let is_long = |text: &str| text.starts_with("--t");
    let is_short = |text: &str| is_option(text) && !text.starts_with("--") && text.contains('t');
    let names_it = |text: &str| has_option && (is_long(text) || is_short(text));
    if texts.iter().skip(1).any(|text| names_it(text)) {
        // Joined with it, or the word behind it.
        return (0..texts.len())
            .map(|at| names_it(texts[at]) || (at > 0 && names_it(texts[at - 1])))
            .collect();
    }
    let arguments: Vec<usize> = (1..texts.len()).filter(|at| !is_option(texts[*at])).collect();
    let last = arguments.last().filter(|_| arguments.len() > 1);
    (0..texts.len()).map(|at| last == Some(&at)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::analyse;
    use super::*;

    #[test]
    fn what_is_written_for_certain_is_told_from_what_may_be() {
        let kinds = |script: &str| {
            let of = |kind| {
                let paths = analyse(script).paths.into_iter().filter(move |path| path.kind == kind);
                paths
                    .map(|path| path.text)
                    .filter(|path| path.contains('/') && !path.contains(' '))
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            (of(AccessKind::Write), of(AccessKind::MayWrite))
        };
        for script in [
            "echo a > /s/x",
            "echo a >> /s/x",
            "echo a | tee /s/x",
            "rm -rf /s/x",
            "sudo rm /s/x",
            "sh -c 'rm /s/x'",
            "cp a /s/x",
            "cp -t /s/x a",
            "cp --target-directory=/s/x a",
            "install -m 644 a /s/x",
            "mv /s/x .",
            "mv a /s/x",
            "ln -s a /s/x",
            "rsync -a a /s/x",
            "sed -i s/a/b/ /s/x",
            "touch /s/x",
            "mkdir -p /s/x",
            "chmod +x /s/x",
            "truncate -s 0 /s/x",
            "dd if=a of=/s/x",
            "find /s/x -delete",
        ] {
            assert_eq!(kinds(script), ("/s/x".to_owned(), String::new()), "{script}");
        }
        for script in [
            "python3 /s/x",
            "python3 -m tool --config=/s/x",
            "sh /s/x",
            "bash -e /s/x a",
            ". /s/x",
            "source /s/x",
            "node /s/x",
            "tar xf /s/x -C .",
            "unzip /s/x",
            "cp -t . /s/x",
            "ln -s /s/x",
            "rsync -a /s/x .",
            "dd if=/s/x of=a",
            "find /s/x -exec cat {} +",
            "FOO=1 make -f /s/x",
        ] {
            assert_eq!(kinds(script), (String::new(), "/s/x".to_owned()), "{script}");
        }
        for script in
            ["cat /s/x", "/s/x", "cp /s/x .", "cd /s/x", "sed -n 1p /s/x", "diff /s/x a", "wc -l < /s/x"]
        {
            assert_eq!(kinds(script), (String::new(), String::new()), "{script}");
        }
    }
}
