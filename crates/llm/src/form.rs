//! The form of the last event, for those that differ from it in their text only.
//!
//! Most events of an answer are one more piece of text in an envelope that stays the same. To parse the envelope costs ten
//! times what it costs to see that it is the one of the event before. So a decoder that found nothing but a piece of text
//! in an event lets the form learn what stands around it; while events have this form, only the text is looked at. Any
//! other event is parsed, and ends the form.

/// What stood around the text of the last event, if that was nothing but more of what is being said.
#[derive(Debug, Default)]
pub(crate) struct Form {
    /// The event's name.
    name: String,
    /// Its data up to the text, with the quote.
    before: String,
    /// Its data behind the text, from the quote on. Empty while there is no form.
    after: String,
}

impl Form {
    /// The text of an event, if it has this form and the text holds no escapes.
    pub(crate) fn piece<'a>(&self, name: &str, data: &'a str) -> Option<&'a str> {
        if self.after.is_empty() || self.name != name {
            return None;
        }
        let piece = data.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        // A quote would end the text, and what follows would have another meaning.
        piece.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\').then_some(piece)
    }

    /// An event of another form came, with this name.
    pub(crate) fn forget(&mut self, name: &str) {
        self.after.clear();
        if self.name != name {
            name.clone_into(&mut self.name);
        }
    }

    /// That event was nothing but `piece`. A piece that is not a part of `data`, since it had escapes, teaches nothing.
    pub(crate) fn learn(&mut self, data: &str, piece: &str) {
        let parts = || {
            let begin = piece.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
            let (before, after) = (data.get(..begin)?, data.get(begin.checked_add(piece.len())?..)?);
            (before.ends_with('"') && after.starts_with('"')).then_some((before, after))
        };
        if let Some((before, after)) = parts() {
            before.clone_into(&mut self.before);
            after.clone_into(&mut self.after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A form that learned from an event whose text is `word`.
    fn learned(data: &str, word: &str) -> Form {
        let mut form = Form::default();
        form.forget("delta");
        let begin = data.find(word).unwrap();
        form.learn(data, &data[begin..begin + word.len()]);
        form
    }

    #[test]
    fn only_what_differs_in_plain_text_has_the_form() {
        let form = learned(r#"{"index":0,"text":"one"}"#, "one");
        for (data, piece) in [
            (r#"{"index":0,"text":"two"}"#, Some("two")),
            (r#"{"index":0,"text":""}"#, Some("")),
            (r#"{"index":0,"text":" schön }"}"#, Some(" schön }")),
            (r#"{"index":1,"text":"two"}"#, None),
            (r#"{"index":0,"text":"two","more":1}"#, None),
            (r#"{"index":0,"text":"a","text":"b"}"#, None),
            (r#"{"index":0,"text":"a\nb"}"#, None),
            (r#"{"index":0,"text":"a\"}"#, None),
            ("{\"index\":0,\"text\":\"a\nb\"}", None),
            (r#"{"index":0,"text":"#, None),
            ("", None),
        ] {
            assert_eq!(form.piece("delta", data), piece, "{data}");
        }
        assert_eq!(form.piece("other", r#"{"index":0,"text":"two"}"#), None);
    }

    #[test]
    fn beginning_and_end_may_not_be_the_same_bytes() {
        let form = learned(r#"""""#, "");
        assert_eq!(form.piece("delta", r#"""#), None);
        let form = learned(r#"["a"]"#, "a");
        assert_eq!(form.piece("delta", r#"["]"#), None);
        assert_eq!(form.piece("delta", r#"[""]"#), Some(""));
    }

    #[test]
    fn another_event_ends_the_form_and_a_copied_piece_makes_none() {
        let data = r#"{"text":"one"}"#;
        let mut form = learned(data, "one");
        form.forget("delta");
        assert_eq!(form.piece("delta", data), None);
        form.learn(data, &String::from("one"));
        assert_eq!(form.piece("delta", data), None);
        // The text is not what stands between two quotes.
        form.learn(data, &data[8..10]);
        assert_eq!(form.piece("delta", data), None);
    }
}
