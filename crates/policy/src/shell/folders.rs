//! Commands that read all that lies in a folder. What of it may not be read unasked is hidden from them, or asked about.

use serde::{Deserialize, Serialize};

use super::effects::arguments;
use super::git;
use super::words::Word;

/// A folder of which a script reads what lies in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderUse {
    /// As it is written, without quotes; `~` is not replaced. It may be a file.
    pub text: String,
    /// Directories to which the script may have changed before, as [`PathUse::bases`](super::PathUse::bases).
    pub bases: Vec<String>,
    /// How much of it is read.
    pub sweep: Sweep,
}

/// How much of a folder a command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sweep {
    /// What is neither hidden nor ignored.
    Visible,
    /// What is not ignored.
    Unignored,
    /// All.
    All,
}

/// When a command reads folders.
enum When {
    /// Always.
    Always,
    /// With one of these letters among its options, or one of these long ones.
    Option(&'static str, &'static [&'static str]),
}

/// What its arguments are.
enum Arguments {
    /// A pattern, unless an option has it, and files; without files all that lies where it runs.
    Pattern,
    /// Files that are read.
    Files,
    /// Files that are read, and where they go: so many at the end (or at the beginning).
    Last,
    First,
}

/// A command that reads folders.
struct Reader {
    names: &'static [&'static str],
    when: When,
    arguments: Arguments,
    /// Options with a value that is no file.
    valued: &'static [&'static str],
}

const SEARCH_VALUES: &[&str] = &[
    "-A",
    "-B",
    "-C",
    "-D",
    "-d",
    "-e",
    "-f",
    "-g",
    "-j",
    "-m",
    "-M",
    "-r",
    "-t",
    "-T",
    "-E",
    "--regexp",
    "--file",
    "--glob",
    "--iglob",
    "--type",
    "--type-not",
    "--max-count",
    "--context",
    "--after-context",
    "--before-context",
    "--max-depth",
    "--replace",
    "--threads",
    "--sort",
    "--color",
    "--encoding",
    "--depth",
];
const GREP_VALUES: &[&str] = &[
    "-A",
    "-B",
    "-C",
    "-D",
    "-d",
    "-e",
    "-f",
    "-m",
    "--regexp",
    "--file",
    "--max-count",
    "--context",
    "--after-context",
    "--before-context",
    "--devices",
    "--directories",
];

const READERS: &[Reader] = &[
    Reader {
        names: &["rg", "ag", "ack", "ugrep"],
        when: When::Always,
        arguments: Arguments::Pattern,
        valued: SEARCH_VALUES,
    },
    Reader {
        names: &["grep", "egrep", "fgrep", "zgrep", "rgrep"],
        when: When::Option("rR", &["--recursive", "--dereference-recursive", "--directories=recurse"]),
        arguments: Arguments::Pattern,
        valued: GREP_VALUES,
    },
    Reader {
        names: &["diff"],
        when: When::Option("r", &["--recursive"]),
        arguments: Arguments::Files,
        valued: &["-x", "-X", "-U", "-C", "-I", "-F", "-W"],
    },
    Reader {
        names: &["cp", "gcp", "rsync", "scp"],
        when: When::Option("rRa", &["--recursive", "--archive"]),
        arguments: Arguments::Last,
        valued: &["-S", "--suffix", "-t", "--target-directory", "-e", "--exclude", "--include", "-P", "-i"],
    },
    Reader {
        names: &["zip", "7z", "7za", "jar"],
        when: When::Option("ra", &["--recurse-paths"]),
        arguments: Arguments::First,
        valued: &["-x", "-i", "-b", "-P", "-n", "-s", "-t"],
    },
];

/// The folders, as they are written, of which the command of `words` reads what lies in them. Files may be among them.
pub(super) fn read<'a>(name: &str, words: &'a [Word]) -> (Vec<&'a str>, Sweep) {
    (folders(name, words), sweep(name, words))
}

/// How much of a folder is read by a command of this name.
fn sweep(name: &str, words: &[Word]) -> Sweep {
    let is_wider = |word: &Word| {
        let text = word.text.as_str();
        let is_letters =
            text.starts_with('-') && !text.starts_with("--") && text.contains(['u', '.', 'U', 'a', 'L']);
        is_letters
            || text.starts_with("--no-ignore")
            || text.starts_with("--unrestricted")
            || text.starts_with("--hidden")
            || text.starts_with("--follow")
    };
    match name {
        "git" => Sweep::Unignored,
        "rg" | "ag" if !words.iter().skip(1).any(is_wider) => Sweep::Visible,
        _ => Sweep::All,
    }
}

fn folders<'a>(name: &str, words: &'a [Word]) -> Vec<&'a str> {
    let found = match name {
        "git" => by_git(words),
        "find" => by_find(words),
        "tar" | "gtar" | "bsdtar" => by_tar(words),
        _ => READERS
            .iter()
            .find(|reader| reader.names.contains(&name))
            .map_or_else(Vec::new, |reader| reader.of(name, words)),
    };
    // One that is not known may be any of those here.
    let is_known = |text: &&&str| words.iter().any(|word| word.text == **text && word.doubt.is_none());
    let is_all_known = found.iter().filter(|text| **text != HERE).all(|text| is_known(&text));
    if is_all_known || found.contains(&HERE) { found } else { found.into_iter().chain([HERE]).collect() }
}

/// Where the command runs.
const HERE: &str = ".";

impl Reader {
    fn of<'a>(&self, name: &str, words: &'a [Word]) -> Vec<&'a str> {
        if let When::Option(letters, long) = &self.when
            && name != "rgrep"
            && !has_option(&words[1..], letters, long)
        {
            return Vec::new();
        }
        let mut plain = arguments(&words[1..], &[], self.valued, true).plain;
        match self.arguments {
            Arguments::Files => {}
            Arguments::Last => drop(plain.pop()),
            Arguments::First => drop((!plain.is_empty()).then(|| plain.remove(0))),
            Arguments::Pattern => {
                let has_pattern = words.iter().skip(1).any(|word| {
                    ["-e", "-f", "--regexp", "--file", "--files"]
                        .iter()
                        .any(|option| word.text.starts_with(option))
                });
                if !has_pattern && !plain.is_empty() {
                    plain.remove(0);
                }
                if plain.is_empty() {
                    plain.push(HERE);
                }
            }
        }
        plain
    }
}

/// Whether one of these letters is among the options, or one of these long options.
fn has_option(words: &[Word], letters: &str, long: &[&str]) -> bool {
    words.iter().take_while(|word| word.text != "--").any(|word| match word.text.strip_prefix('-') {
        Some(option) if option.starts_with('-') => long.contains(&word.text.as_str()),
        Some(option) => option.chars().any(|letter| letters.contains(letter)),
        // `7z a`, `zip`
        None => false,
    })
}

/// `git grep PATTERN [-- PATH…]`, `git archive` reads objects only.
fn by_git(words: &[Word]) -> Vec<&str> {
    let Some(at) = git::subcommand_at(words).filter(|at| words[*at].text == "grep") else {
        return Vec::new();
    };
    let rest = &words[at + 1..];
    let paths = rest.iter().position(|word| word.text == "--").map_or(&[][..], |end| &rest[end + 1..]);
    if paths.is_empty() { vec![HERE] } else { paths.iter().map(|word| word.text.as_str()).collect() }
}

/// `find ROOT… -exec COMMAND`: what it runs is given all files.
fn by_find(words: &[Word]) -> Vec<&str> {
    const RUNS: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
    if !words.iter().any(|word| RUNS.contains(&word.text.as_str())) {
        return Vec::new();
    }
    let is_option = |text: &str| matches!(text, "-H" | "-L" | "-P") || text.starts_with("-O");
    let roots = words.iter().skip(1).skip_while(|word| is_option(&word.text));
    let roots: Vec<&str> =
        roots.map(|word| word.text.as_str()).take_while(|text| !text.starts_with(['-', '(', '!'])).collect();
    if roots.is_empty() { vec![HERE] } else { roots }
}

/// `tar c … FILE…`, `tar -C FOLDER`.
fn by_tar(words: &[Word]) -> Vec<&str> {
    let rest = words.get(1..).unwrap_or_default();
    let is_old = rest.first().is_some_and(|word| !word.text.starts_with('-'));
    let first = rest.first().map_or("", |word| word.text.as_str());
    let creates = has_option(rest, "cru", &["--create", "--append", "--update"])
        || (is_old && first.contains(['c', 'r', 'u']));
    if !creates {
        return Vec::new();
    }
    let told = arguments(
        rest,
        &["-C", "--directory"],
        &["-f", "--file", "-X", "--exclude", "-T", "--exclude-from"],
        true,
    );
    let mut files = told.plain;
    if is_old {
        // The letters, and the archive.
        let letters = 1 + usize::from(first.contains('f'));
        files.drain(..letters.min(files.len()));
    }
    if told.outputs.is_empty() { files } else { told.outputs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(script: &str) -> String {
        let word = |text: &str| Word { text: text.into(), doubt: text.contains('$').then_some("a variable") };
        let words: Vec<Word> = script.split(' ').map(word).collect();
        read(script.split(' ').next().unwrap(), &words).0.join(" ")
    }

    #[test]
    fn commands_that_read_folders_are_known() {
        for (script, folders) in [
            ("grep -r x .", "."),
            ("grep -rn x src lib", "src lib"),
            ("grep -r x", "."),
            ("grep -A 3 -R -e x src", "src"),
            ("grep --recursive x", "."),
            ("grep x file", ""),
            ("rg x", "."),
            ("rg -t rust x src", "src"),
            ("rg -e x", "."),
            ("rg x $DIR", "$DIR ."),
            ("git grep x", "."),
            ("git grep x -- src", "src"),
            ("git log", ""),
            ("git -C sub grep x", "."),
            ("tar czf a.tgz .", "."),
            ("tar czf a.tgz src lib", "src lib"),
            ("tar -czf a.tgz src", "src"),
            ("tar -c -f a.tar -C src .", "src"),
            ("tar xf a.tgz", ""),
            ("tar tf a.tgz", ""),
            ("zip -r a.zip src", "src"),
            ("zip a.zip src", ""),
            ("cp -a src lib ../to", "src lib"),
            ("cp a b", ""),
            ("rsync -av src/ host:to", "src/"),
            ("diff -ru a b", "a b"),
            ("find . -name x", ""),
            ("find -exec cat {} +", "."),
            ("find src lib -type f -exec cat {} ;", "src lib"),
        ] {
            assert_eq!(told(script), folders, "{script}");
        }
    }

    #[test]
    fn every_reader_has_a_name_of_its_own() {
        let mut names: Vec<&str> = READERS.iter().flat_map(|reader| reader.names).copied().collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_search_leaves_out_what_is_ignored_unless_it_is_told_not_to() {
        for (script, expected) in [
            ("rg x", Sweep::Visible),
            ("rg -n x src", Sweep::Visible),
            ("rg -uu x", Sweep::All),
            ("rg --hidden x", Sweep::All),
            ("rg --no-ignore-vcs x", Sweep::All),
            ("git grep x", Sweep::Unignored),
            ("grep -r x", Sweep::All),
        ] {
            let words: Vec<Word> =
                script.split(' ').map(|text| Word { text: text.into(), doubt: None }).collect();
            assert_eq!(read(&words[0].text, &words).1, expected, "{script}");
        }
    }
}
