//! What is typed behind the name of a command.

/// The words that were typed.
pub(super) struct Arguments<'a> {
    words: Vec<&'a str>,
    /// From the word of the highest number on, as it was typed.
    rest: &'a str,
    /// The highest number that stands for one; it takes all that follows.
    highest: usize,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(typed: &'a str, highest: usize) -> Self {
        let words = split(typed);
        let rest = match words.get(highest.saturating_sub(1)) {
            // One word stands for itself, without its quotes; several as they were typed.
            Some((_, word)) if words.len() <= highest => word,
            Some((start, _)) => &typed[*start..],
            None => "",
        };
        Self { words: words.into_iter().map(|(_, word)| word).collect(), rest, highest }
    }

    /// The text of the argument of this number; nothing where there are fewer.
    pub(super) fn get(&self, number: usize) -> &str {
        match number == self.highest {
            true => self.rest,
            false => self.words.get(number - 1).copied().unwrap_or_default(),
        }
    }

    /// Its words.
    pub(super) fn of(&self, number: usize) -> &[&'a str] {
        let end = if number == self.highest { self.words.len() } else { number };
        self.words.get(number - 1..end).unwrap_or_default()
    }

    /// All words.
    pub(super) fn words(&self) -> &[&'a str] {
        &self.words
    }
}

/// The words of what was typed behind the name of a command: `most` at most, where the last takes the rest as it was typed.
///
/// ```
/// use playhouse_prompts::command::words;
///
/// assert_eq!(words("one 'two words' three four", 3), ["one", "two words", "three four"]);
/// assert!(words(" ", 3).is_empty());
/// ```
pub fn words(typed: &str, most: usize) -> Vec<String> {
    let arguments = Arguments::new(typed, most);
    let given = arguments.words.len().min(most.max(1));
    (1..=given).map(|number| arguments.get(number).to_owned()).collect()
}

/// The words of a text, and where each begins. A quote at the beginning of a word holds it together up to the same quote at a
/// word's end; any other is a sign like others, as in "it's".
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(skipped) = text[at..].find(|next: char| !next.is_whitespace()) {
        at += skipped;
        let rest = &text[at..];
        let closed = ['"', '\''].into_iter().find_map(|quote| {
            let inner = rest.strip_prefix(quote)?;
            let ends = |end: &usize| inner[end + 1..].chars().next().is_none_or(char::is_whitespace);
            inner.match_indices(quote).map(|(end, _)| end).find(ends).map(|end| &inner[..end])
        });
        let (word, length) = match closed {
            Some(word) => (word, word.len() + 2),
            None => {
                let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (&rest[..length], length)
            }
        };
        words.push((at, word));
        at += length;
    }
    words
}

/// A word as a shell reads it as one, whatever it holds.
///
/// # Errors
/// It has a sign that no word of one line has.
pub(super) fn quoted(word: &str) -> Result<String, String> {
    if word.chars().any(|sign| sign.is_control() && sign != '\t') {
        return Err(
            "an argument has a line break or a control character, and a shell block takes none".to_owned()
        );
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    // A word that looks like an option stays one: whoever wrote the command says `--` before it.
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => Ok(word.to_owned()),
        false => Ok(format!("'{}'", word.replace('\'', "'\\''"))),
    }
}
