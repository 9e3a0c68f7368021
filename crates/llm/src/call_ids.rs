//! Ids and names of calls that every provider accepts.
//!
//! Ids come from whichever model made the call, and go back to whichever model goes on: so they may be too long, hold odd
//! characters, or (from servers that count calls from 0 in each answer) repeat. What a call is given here depends on the
//! conversation before it only, and its result gets the same.

use std::collections::HashMap;

/// The longest tool name that all dialects take.
const NAME_LIMIT: usize = 64;

/// Which ids a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdForm {
    /// Letters, digits, `_` and `-`, up to so many.
    UpTo(usize),
    /// Exactly nine letters and digits.
    NineAlphanumeric,
}

impl IdForm {
    /// `id` itself where it is fit to be sent, else what stands for it: with a hash of all of it, and with its beginning
    /// where there is room for that.
    fn clean(self, id: &str) -> String {
        let fits = match self {
            Self::UpTo(limit) => (1..=limit).contains(&id.len()) && id.chars().all(is_plain),
            Self::NineAlphanumeric => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        };
        match self {
            _ if fits => id.to_owned(),
            Self::UpTo(limit) => {
                let hash = format!("{:016x}", fnv1a(id));
                let beginning: String =
                    id.chars().filter(|character| is_plain(*character)).take(limit - 17).collect();
                if beginning.is_empty() { format!("call_{hash}") } else { format!("{beginning}_{hash}") }
            }
            Self::NineAlphanumeric => {
                let mut rest = fnv1a(id);
                let mut digit = || {
                    let digit = DIGITS[(rest % 36) as usize];
                    rest /= 36;
                    char::from(digit)
                };
                (0..9).map(|_| digit()).collect()
            }
        }
    }
}

/// Digits to the base 36.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The ids that the calls of a conversation go by.
#[derive(Clone, Debug)]
pub(crate) struct CallIds {
    /// What is taken.
    form: IdForm,
    /// How often each wire id was asked for.
    used: HashMap<String, u32>,
    /// Wire ids of the last assistant message's calls, by the ids that they came with.
    open: HashMap<String, String>,
}

impl CallIds {
    pub(crate) fn new(form: IdForm) -> Self {
        Self { form, used: HashMap::new(), open: HashMap::new() }
    }

    /// Another assistant message begins.
    pub(crate) fn begin_message(&mut self) {
        self.open.clear();
    }

    /// The id under which the call `id` is sent.
    pub(crate) fn call(&mut self, id: &str) -> String {
        let clean = self.form.clean(id);
        let mut wire = clean.clone();
        loop {
            let count = self.used.entry(wire.clone()).or_insert(0);
            *count += 1;
            if *count == 1 {
                break;
            }
            let again = *count;
            wire = self.form.clean(&format!("{clean}#{again}"));
        }
        self.open.insert(id.to_owned(), wire.clone());
        wire
    }

    /// The id under which the call `id` of the last assistant message was sent.
    pub(crate) fn result(&self, id: &str) -> String {
        self.open.get(id).cloned().unwrap_or_else(|| self.form.clean(id))
    }
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// A tool's name as providers accept it. A model may have called something that never was a tool.
pub(crate) fn clean_name(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|character| if is_plain(character) { character } else { '_' })
        .take(NAME_LIMIT)
        .collect();
    if clean.is_empty() { "unnamed".to_owned() } else { clean }
}

/// Stable across builds and platforms, unlike the standard library's hasher: requests must not change.
fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_id_stays_as_it_is() {
        let mut ids = CallIds::new(IdForm::UpTo(64));
        assert_eq!(ids.call("toolu_01-A"), "toolu_01-A");
        assert_eq!(ids.result("toolu_01-A"), "toolu_01-A");
    }

    #[test]
    fn unfit_ids_become_fit_ones_and_stay_apart() {
        let long = "x".repeat(200);
        let other = format!("{long}y");
        let mut ids = CallIds::new(IdForm::UpTo(40));
        let mut seen = Vec::new();
        for id in ["", "a.b", "a:b", "é", "tool call\n1", &long, &other] {
            let wire = ids.call(id);
            assert!((1..=40).contains(&wire.len()) && wire.chars().all(is_plain), "{id:?} became {wire:?}");
            assert_eq!(ids.result(id), wire);
            assert!(!seen.contains(&wire), "{wire} twice");
            seen.push(wire);
        }
    }

    #[test]
    fn a_repeated_id_is_made_unique_and_results_follow_the_last_message() {
        let mut ids = CallIds::new(IdForm::UpTo(64));
        let mut seen = Vec::new();
        for _ in 0..3 {
            ids.begin_message();
            let wire = ids.call("call_0");
            assert_eq!(ids.result("call_0"), wire);
            assert!(!seen.contains(&wire));
            seen.push(wire);
        }
        assert_eq!(seen[0], "call_0");
        let mut again = CallIds::new(IdForm::UpTo(64));
        let repeated: Vec<String> = (0..3).map(|_| again.call("call_0")).collect();
        assert_eq!(repeated, seen, "the same conversation gets the same ids");
    }

    #[test]
    fn where_ids_have_nine_characters_all_others_become_such() {
        let mut ids = CallIds::new(IdForm::NineAlphanumeric);
        assert_eq!(ids.call("D681PevKs"), "D681PevKs");
        let mut seen = vec!["D681PevKs".to_owned()];
        for id in ["D681PevKs", "toolu_01", "", "call_0", "call_0", "with-dash", "123456789012"] {
            let wire = ids.call(id);
            assert!(wire.len() == 9 && wire.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{wire}");
            assert_eq!(ids.result(id), wire);
            assert!(!seen.contains(&wire), "{wire} twice");
            seen.push(wire);
        }
    }

    #[test]
    fn names_are_made_fit() {
        assert_eq!(clean_name("read"), "read");
        assert_eq!(clean_name("read file!"), "read_file_");
        assert_eq!(clean_name(""), "unnamed");
        assert_eq!(clean_name(&"n".repeat(100)).len(), 64);
    }
}
