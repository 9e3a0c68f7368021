//! Files that programs which transfer them send, and those that they keep under the name of the address.

use super::words::Word;

/// Options of curl whose value is a file that is sent or obeyed, or may be one.
const SENT: &[&str] =
    &["-T", "--upload-file", "-K", "--config", "-b", "--cookie", "-E", "--cert", "--key", "--netrc-file"];
/// Options of curl with data that stands in a file behind `@`, or `@` and `<` behind a name.
const DATA: &[&str] = &[
    "-d",
    "--data",
    "--data-ascii",
    "--data-binary",
    "--data-urlencode",
    "--json",
    "--url-query",
    "-F",
    "--form",
    "-H",
    "--header",
    "--proxy-header",
    "-w",
    "--write-out",
    "--variable",
];
/// Letters of curl behind which a value stands.
const VALUED: &str = "AbCcDdeEFHKmoPQrTtuUwxXyYz";

/// What a call of curl reads.
pub(super) fn sent(words: &[Word]) -> Vec<super::effects::Effect<'_>> {
    let mut files: Vec<&str> = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        at += 1;
        let text = word.text.as_str();
        if let Some(path) = text.strip_prefix("file://") {
            files.push(path);
        }
        let (option, joined) = match text.strip_prefix("--") {
            Some(_) => text.split_once('=').map_or((text, ""), |(option, value)| (option, value)),
            None if text.starts_with('-') => {
                let letter = text.char_indices().skip(1).find(|(_, letter)| VALUED.contains(*letter));
                let Some((index, letter)) = letter else { continue };
                let rest = &text[index + letter.len_utf8()..];
                (&text[index..text.len() - rest.len()], rest)
            }
            None => continue,
        };
        let is = |options: &[&str]| {
            options.iter().any(|listed| match listed.strip_prefix('-') {
                Some(letter) if !letter.starts_with('-') => option == letter,
                _ => option == *listed,
            })
        };
        let (is_file, is_data) = (is(SENT), is(DATA));
        if !is_file && !is_data {
            continue;
        }
        let value = if joined.is_empty() {
            at += 1;
            words.get(at - 1).map_or("", |word| word.text.as_str())
        } else {
            joined
        };
        if is_file {
            files.push(value);
        } else if let Some(path) = value.strip_prefix('@') {
            files.push(path);
        } else if let Some(found) = value.find(['@', '<']).filter(|_| !value[..].starts_with('<')) {
            // `name@file`, `name=@file;type=…`
            let is_named =
                value[..found].ends_with('=') || option == "--data-urlencode" || option == "--variable";
            let path = value[found + 1..].split([';', ',']).next().unwrap_or_default();
            files.extend(is_named.then_some(path));
        }
    }
    files.into_iter().map(super::effects::Effect::read).collect()
}

/// Files that are named as the address is.
pub(super) fn kept<'a>(name: &str, words: &'a [Word]) -> Vec<&'a str> {
    let has = |letters: char, long: &[&str]| {
        words.iter().skip(1).any(|word| match word.text.strip_prefix('-') {
            Some(option) if option.starts_with('-') => {
                long.iter().any(|long| word.text.split('=').next() == Some(*long))
            }
            Some(option) => {
                option.chars().take_while(|letter| !VALUED.contains(*letter)).any(|letter| letter == letters)
            }
            None => false,
        })
    };
    let keeps = match name {
        "curl" => has('O', &["--remote-name", "--remote-name-all"]),
        _ => !has('O', &["--spider", "--output-document"]),
    };
    let addresses = words.iter().skip(1).filter(|word| keeps && word.text.contains("://"));
    let file = |word: &'a Word| {
        let path = word.text.split(['?', '#']).next().unwrap_or_default();
        let below = path.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        match below.and_then(|(_, path)| path.rsplit('/').next()) {
            Some("") | None => "index.html",
            Some(name) => name,
        }
    };
    addresses.map(file).collect()
}
