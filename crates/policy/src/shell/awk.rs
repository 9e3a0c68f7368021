//! What a program of awk may do beside writing to standard output.

use super::words::Word;

/// Which word of a call of awk is its program; `None` where that stands in a file, or cannot be told.
pub(super) fn program(words: &[Word]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        match text.strip_prefix('-') {
            None | Some("") => return Some(at),
            Some("-") => return (at + 1 < words.len()).then_some(at + 1),
            // A separator or a variable, here or in the next word.
            Some("F" | "v") => at += 1,
            Some(option) if option.starts_with(['F', 'v']) => {}
            Some(_) => return None,
        }
        at += 1;
    }
    None
}

/// Whether a call of awk may run a command or write a file.
pub(super) fn is_doubtful(words: &[Word]) -> bool {
    match program(words) {
        Some(at) => !is_plain(&words[at].text),
        None => true,
    }
}

/// Whether `program` only computes and writes to standard output: what is printed can be sent to a command or a file.
fn is_plain(program: &str) -> bool {
    if ["system", "getline", "@", "close", "fflush", "ARGV"].iter().any(|word| program.contains(word)) {
        return false;
    }
    let mut printed = program.split("print");
    printed.next();
    printed.all(|rest| !rest.replace("||", "").contains(['|', '>']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &[&str]) -> Vec<Word> {
        script.iter().map(|text| Word::plain(*text)).collect()
    }

    #[test]
    fn what_only_prints_is_plain() {
        for script in [
            &["awk", "{ print $2 }", "x"][..],
            &["awk", "-F", ",", "$1 > 5 && /a|b/ { n++ } END { print n }"],
            &["awk", "-F:", "-v", "x=1", "NR == x || 0"],
            &["awk", "--", "1"],
        ] {
            assert!(!is_doubtful(&words(script)), "{script:?}");
        }
    }

    #[test]
    fn what_runs_or_writes_is_not() {
        for script in [
            &["awk", "BEGIN { system(\"rm -rf x\") }"][..],
            &["awk", "{ print | \"sh\" }"],
            &["awk", "{ print $1 > \"/etc/x\" }"],
            &["awk", "BEGIN { \"date\" | getline d }"],
            &["awk", "BEGIN { f = \"system\"; @f(\"x\") }"],
            &["awk", "-f", "x.awk"],
            &["awk", "-i", "inplace", "1", "x"],
            &["awk"],
        ] {
            assert!(is_doubtful(&words(script)), "{script:?}");
        }
    }
}
