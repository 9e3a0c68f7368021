//! What a script of sed may do beside writing to standard output: with `e` it runs commands, with `w` it writes files.

use std::iter::Peekable;
use std::str::Chars;

use super::words::Word;

/// Long options without a value that only change how lines are read and shown.
const PLAIN_LONG: &[&str] = &[
    "quiet",
    "silent",
    "regexp-extended",
    "debug",
    "posix",
    "sandbox",
    "separate",
    "unbuffered",
    "null-data",
    "zero-terminated",
    "version",
    "help",
];

/// A call of sed, as far as its options are understood.
struct Call {
    /// The words with scripts, and what of each is the script.
    scripts: Vec<(usize, String)>,
    in_place: bool,
    /// Whether every option is known, and no script stands in a file.
    is_understood: bool,
}

fn read(words: &[Word]) -> Call {
    let mut call = Call { scripts: Vec::new(), in_place: false, is_understood: true };
    let (mut first, mut options_ended, mut at) = (None, false, 1);
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        if options_ended || text == "-" || !text.starts_with('-') {
            first = first.or(Some(at));
        } else if let Some(long) = text.strip_prefix("--") {
            match long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value))) {
                ("", _) => options_ended = true,
                ("expression", Some(script)) => call.scripts.push((at, script.to_owned())),
                ("in-place", _) => call.in_place = true,
                (name, _) if "in-place".starts_with(name) => {
                    call.in_place = true;
                    call.is_understood = false;
                }
                (name, None) if PLAIN_LONG.contains(&name) => {}
                _ => call.is_understood = false,
            }
        } else {
            at += call.letters(words, at);
        }
        at += 1;
    }
    if let Some(at) = first.filter(|_| call.scripts.is_empty() && call.is_understood) {
        call.scripts.push((at, words[at].text.clone()));
    }
    call
}

impl Call {
    /// Reads the one-letter options of the word at `at`; gives back how many words after it belong to them.
    fn letters(&mut self, words: &[Word], at: usize) -> usize {
        let text = words[at].text.as_str();
        for (index, letter) in text.char_indices().skip(1) {
            let value = &text[index + letter.len_utf8()..];
            match letter {
                'n' | 'E' | 'r' | 's' | 'u' | 'z' => {}
                // What follows is the ending of the copies.
                'i' => {
                    self.in_place = true;
                    return 0;
                }
                'e' => {
                    let next = words.get(at + 1).filter(|_| value.is_empty());
                    let place = at + usize::from(next.is_some());
                    self.scripts.push((place, next.map_or(value, |next| next.text.as_str()).to_owned()));
                    return place - at;
                }
                _ => {
                    self.is_understood = false;
                    return 0;
                }
            }
        }
        0
    }
}

/// Which word of a call of sed is its script, where that is a word of its own.
pub(super) fn program(words: &[Word]) -> Option<usize> {
    match &read(words).scripts[..] {
        [(at, script)] if words[*at].text == *script => Some(*at),
        _ => None,
    }
}

/// Whether a call of sed changes its files.
pub(super) fn is_in_place(words: &[Word]) -> bool {
    read(words).in_place
}

/// Whether all options of a call of sed are known.
pub(super) fn is_understood(words: &[Word]) -> bool {
    read(words).is_understood
}

/// The files that a call of sed names.
pub(super) fn files(words: &[Word]) -> impl Iterator<Item = &Word> {
    let call = read(words);
    let is_script = move |at: usize| call.scripts.iter().any(|(script, _)| *script == at);
    let files = words.iter().enumerate().skip(1).filter(move |(at, _)| !is_script(*at));
    files.map(|(_, word)| word).filter(|word| !word.text.starts_with('-'))
}

/// Whether a call of sed leaves its files as they are.
pub(super) fn only_reads(words: &[Word]) -> bool {
    let call = read(words);
    call.is_understood && !call.in_place
}

/// Whether a call of sed may run a command, or write a file that is not one of its arguments.
pub(super) fn is_doubtful(words: &[Word]) -> bool {
    let call = read(words);
    !call.is_understood || !call.scripts.iter().all(|(_, script)| is_plain(script))
}

/// Whether a script holds only commands that are known to do nothing else than change what is printed.
fn is_plain(script: &str) -> bool {
    let mut rest = script.chars().peekable();
    while let Some(next) = rest.peek().copied() {
        if next.is_whitespace() || matches!(next, ';' | '}') {
            rest.next();
        } else if command(&mut rest).is_none() {
            return false;
        }
    }
    true
}

/// Goes over one command; `None` where it is not a plain one.
fn command(rest: &mut Peekable<Chars<'_>>) -> Option<()> {
    address(rest)?;
    skip(rest, char::is_whitespace);
    if rest.next_if_eq(&',').is_some() {
        skip(rest, char::is_whitespace);
        address(rest)?;
    }
    skip(rest, |character| character.is_whitespace() || character == '!');
    match rest.next()? {
        '{' => Some(()),
        'p' | 'P' | 'd' | 'D' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | '=' | 'z' | 'F' => ended(rest),
        'l' | 'q' | 'Q' => {
            skip(rest, |character| character.is_ascii_digit() || character == ' ');
            ended(rest)
        }
        's' => {
            let delimiter = rest.next()?;
            part(rest, delimiter)?;
            part(rest, delimiter)?;
            skip(rest, |character| character.is_ascii_digit() || matches!(character, 'g' | 'i' | 'I' | 'p'));
            ended(rest)
        }
        'y' => {
            let delimiter = rest.next()?;
            part(rest, delimiter)?;
            part(rest, delimiter)?;
            ended(rest)
        }
        // A label. Some seds end it at a semicolon, and go on with the next command.
        ':' | 'b' | 't' | 'T' => {
            skip(rest, |character| !matches!(character, ';' | '\n' | '}'));
            Some(())
        }
        // A text or a comment: up to the end of the line.
        'a' | 'i' | 'c' | '#' => {
            let mut escaped = false;
            for character in rest.by_ref() {
                if character == '\n' && !escaped {
                    break;
                }
                escaped = character == '\\' && !escaped;
            }
            Some(())
        }
        _ => None,
    }
}

/// Goes over which lines a command is for.
fn address(rest: &mut Peekable<Chars<'_>>) -> Option<()> {
    match rest.peek().copied()? {
        '0'..='9' | '$' | '+' | '~' => {
            skip(rest, |character| character.is_ascii_digit() || matches!(character, '$' | '+' | '~'));
        }
        '/' => {
            rest.next();
            part(rest, '/')?;
            skip(rest, |character| character == 'I');
        }
        '\\' => {
            rest.next();
            let delimiter = rest.next()?;
            part(rest, delimiter)?;
            skip(rest, |character| character == 'I');
        }
        _ => {}
    }
    Some(())
}

/// Goes behind the next `delimiter`. Seds do not agree whether one in brackets counts, so that is not plain.
fn part(rest: &mut Peekable<Chars<'_>>, delimiter: char) -> Option<()> {
    if matches!(delimiter, '\\' | '\n' | '[' | ']') || delimiter.is_whitespace() {
        return None;
    }
    let mut in_brackets = false;
    while let Some(character) = rest.next() {
        match character {
            '\\' => drop(rest.next()?),
            _ if character == delimiter => return (!in_brackets).then_some(()),
            // Brackets within brackets, or one that stands first in them.
            '[' if in_brackets => return None,
            '[' => {
                rest.next_if_eq(&'^');
                if rest.peek() == Some(&']') {
                    return None;
                }
                in_brackets = true;
            }
            ']' => in_brackets = false,
            _ => {}
        }
    }
    None
}

/// Whether a command ends here.
fn ended(rest: &mut Peekable<Chars<'_>>) -> Option<()> {
    skip(rest, |character| character == ' ' || character == '\t');
    match rest.peek() {
        None | Some(';' | '\n' | '}' | '#') => Some(()),
        Some(_) => None,
    }
}

fn skip(rest: &mut Peekable<Chars<'_>>, skipped: impl Fn(char) -> bool) {
    while rest.next_if(|character| skipped(*character)).is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &[&str]) -> Vec<Word> {
        script.iter().map(|text| Word::plain(*text)).collect()
    }

    #[test]
    fn scripts_that_only_print_are_plain() {
        for script in [
            "s/a/b/",
            "s|/usr|/opt|g;s,a,b,2p",
            "1,5p",
            "/from/,/to/p",
            "$!d",
            "/a/I{s/x/y/;p}",
            "\\,a,d",
            "10q",
            "y/abc/xyz/",
            "a some text; w is a letter",
            "# w x",
            ":a;N;$!ba;s/\\n/ /g",
            "s/[0-9]*//",
            "",
        ] {
            assert!(is_plain(script), "{script}");
        }
    }

    #[test]
    fn scripts_that_run_or_write_are_not() {
        for script in [
            "e",
            "1e rm -rf x",
            "s/.*/rm -rf x/e",
            "s/a/b/w /etc/x",
            "s/a/b/ge",
            "w /etc/x",
            "/a/w x",
            "r /etc/passwd",
            "s/[/]/x/;e",
            "p;e",
            "a x\ne rm",
            "{e}",
            "s/a/b",
            "1,/x/W y",
            "a x\\\\\ne rm",
            "s/a/b/#\ne",
            "$!b;e rm",
            "s/[]/X]/g;/e;#/p",
            "s/[[:alpha:]/]/g;/e;#/p",
        ] {
            assert!(!is_plain(script), "{script}");
        }
    }

    #[test]
    fn calls_are_read() {
        let told = |script: &[&str]| {
            let words = words(script);
            (program(&words), only_reads(&words), is_doubtful(&words))
        };
        assert_eq!(told(&["sed", "-n", "/x/p", "f"]), (Some(2), true, false));
        assert_eq!(told(&["sed", "-ne", "p", "f"]), (Some(2), true, false));
        assert_eq!(told(&["sed", "-i.bak", "s/a/b/", "f"]), (Some(2), false, false));
        assert_eq!(told(&["sed", "-Ei", "s/a/b/", "f"]), (Some(2), false, false));
        assert_eq!(told(&["sed", "-ep", "f"]), (None, true, false));
        assert_eq!(told(&["sed", "--expression=e", "f"]), (None, true, true));
        assert_eq!(told(&["sed", "-f", "x.sed", "f"]), (None, false, true));
        assert_eq!(told(&["sed", "--in-pl", "p", "f"]), (None, false, true));
        assert_eq!(told(&["sed", "p", "-e", "e", "f"]), (Some(3), true, true));
        assert_eq!(told(&["sed", "-né", "p"]), (None, false, true));
    }
}
