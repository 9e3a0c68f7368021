//! What commands do with their arguments. All that a command is not known to read only counts as written, but where it is a
//! script that takes it: scripts run with files, and what they do with them nobody can tell.

use super::words::Word;
use super::{paths, sources};
use crate::AccessKind;

/// Interpreters of scripts, and shells; with other digits and dots behind them, too.
const RUNNERS: &[&str] = &[
    ".", "bash", "bun", "dash", "deno", "ksh", "lua", "node", "perl", "php", "python", "ruby", "sh",
    "source", "zsh",
];
/// Of these, those that change files in place where an option says so.
const IN_PLACE: &[&str] = &["perl", "ruby"];
/// Options with which commands that run others go elsewhere first.
const GOING: &[&str] = &["--chdir", "-C", "-D"];

/// What the command of `words` does with what the word at each place names.
pub(super) fn kinds(name: &str, words: &[Word]) -> Vec<AccessKind> {
    if paths::only_reads(name, words) {
        return vec![AccessKind::Read; words.len()];
    }
    let are_read = sources::are_read(name, words);
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let may_be = taken(name, &texts);
    let kind = |at: usize| match (are_read[at], may_be[at]) {
        (true, _) => AccessKind::Read,
        (false, true) => AccessKind::MayWrite,
        (false, false) => AccessKind::Write,
    };
    (0..words.len()).map(kind).collect()
}

/// Which arguments a script takes, or is.
fn taken(name: &str, texts: &[&str]) -> Vec<bool> {
    let bare = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    let bare = if name == "." { name } else { bare };
    // A file with a path to it is none of the system's programs.
    let is_file = texts[0].contains('/') && !paths::is_program(texts[0]);
    let in_place = |text: &&str| text.starts_with('-') && !text.starts_with("--") && text.contains('i');
    match name {
        _ if RUNNERS.contains(&bare) => {
            let changes = IN_PLACE.contains(&bare) && texts.iter().skip(1).any(in_place);
            vec![!changes; texts.len()]
        }
        // The archive that is taken apart; where it goes is written.
        "tar" | "gtar" | "bsdtar" if is_extracted(texts) => (0..texts.len()).map(|at| at == 2).collect(),
        "unzip" => {
            let archive = texts.iter().skip(1).position(|text| !text.starts_with('-')).map(|at| at + 1);
            (0..texts.len()).map(|at| archive == Some(at)).collect()
        }
        _ => vec![is_file; texts.len()],
    }
}

/// `tar xf ARCHIVE …`, with letters that say nothing of where anything is.
fn is_extracted(texts: &[&str]) -> bool {
    let Some(letters) = texts.get(1).map(|first| first.strip_prefix('-').unwrap_or(first)) else {
        return false;
    };
    let is_plain = letters.chars().all(|letter| "xvzjJafpmok".contains(letter));
    is_plain && letters.contains('x') && letters.ends_with('f')
}

/// Where the command of `words`, which runs another, goes first. `None` for where nobody knows.
pub(super) fn gone_to<'a>(name: &str, words: &'a [Word]) -> Vec<Option<&'a str>> {
    if !matches!(name, "env" | "sudo" | "doas") {
        return Vec::new();
    }
    let mut places = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        let Some(option) = GOING.iter().find(|option| word.text.starts_with(**option)) else { continue };
        let rest = &word.text[option.len()..];
        let place = match rest.strip_prefix('=').unwrap_or(rest) {
            "" => words.get(at + 1),
            _ if word.doubt.is_some() => None,
            joined => {
                places.push(Some(joined));
                continue;
            }
        };
        places.push(place.filter(|place| place.doubt.is_none()).map(|place| place.text.as_str()));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::analyse;
    use super::*;

    #[test]
    fn what_scripts_take_is_told_from_what_is_written() {
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
            "echo a | tee /s/x",
            "rm -rf /s/x",
            "/bin/rm /s/x",
            "sudo rm /s/x",
            "sh -c 'rm /s/x'",
            "cp a /s/x",
            "cp a /s/x -S .bak",
            "cp -t /s/x a",
            "install -m 644 a /s/x",
            "install -d /s/x",
            "mv /s/x .",
            "ln /s/x a",
            "ln -s /s/x",
            "rsync -a a /s/x",
            "sed -i s/a/b/ /s/x",
            "perl -pi -e s,a,b, /s/x",
            "ruby -i.bak a /s/x",
            "touch /s/x",
            "chmod +x /s/x",
            "dd if=a of=/s/x",
            "sort -o /s/x a",
            "gzip /s/x",
            "curl -o /s/x a",
            "tar xf a -C /s/x",
            "tar cf /s/x a",
            "unzip a -d /s/x",
            "find /s/x -delete",
            "find -L /s/x -name a -delete",
            "find /s/x -exec rm {} +",
            "find /s/x -execdir cat a ';'",
            "env -C /s/x cat a",
            "git -C /s/x init",
        ] {
            let (written, taken) = kinds(script);
            assert!(
                written.split(' ').any(|path| path == "/s/x") && taken.is_empty(),
                "{script}: {written}, {taken}"
            );
        }
        for script in [
            "python3 /s/x",
            "python3.12 -m tool --config=/s/x",
            "sh /s/x",
            "bash -e /s/x a",
            ". /s/x",
            "source /s/x",
            "node /s/x",
            "perl /s/x",
            "./tool /s/x",
            "timeout 5 sh /s/x",
            "FOO=1 python3 /s/x",
            "tar xf /s/x -C .",
            "tar -xzf /s/x",
            "unzip /s/x",
        ] {
            assert_eq!(kinds(script), (String::new(), "/s/x".to_owned()), "{script}");
        }
        for script in
            ["cat /s/x", "/s/x", "cp /s/x .", "cp -r /s/x .", "cd /s/x", "sed -n 1p /s/x", "wc -l < /s/x"]
        {
            assert_eq!(kinds(script), (String::new(), String::new()), "{script}");
        }
    }

    #[test]
    fn commands_that_run_elsewhere_are_judged_there() {
        let bases = |script: &str| {
            let script = analyse(script);
            let path =
                script.paths.iter().find(|path| path.text == "../x").unwrap_or_else(|| panic!("{script:?}"));
            let unknown = script.paths.iter().any(|path| path.doubt.is_some());
            (path.bases.join(" "), unknown)
        };
        assert_eq!(bases("cat ../x"), (String::new(), false));
        for script in [
            "env -C /a cat ../x",
            "env --chdir=/a cat ../x",
            "env -C/a FOO=1 cat ../x",
            "sudo -D /a cat ../x",
        ] {
            assert_eq!(bases(script), ("/a".to_owned(), false), "{script}");
        }
        for script in ["env -C $A cat ../x", "find a -execdir cat ../x ';'", "find a -okdir cat ../x ';'"] {
            assert_eq!(bases(script), (String::new(), true), "{script}");
        }
    }
}
