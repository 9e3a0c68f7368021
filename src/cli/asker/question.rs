//! A question at the terminal: how it looks, and what a line answers.

use playhouse_protocol::SessionId;
use playhouse_protocol::question::{Question, QuestionAsked};

use super::{Line, Style};

/// The questions of a request, with the numbers of their options.
pub(in crate::cli) fn shown(asked: &QuestionAsked, from: Option<SessionId>) -> Vec<Line> {
    let mut lines = Vec::new();
    let place = super::place(from);
    for question in &asked.questions {
        let text = format!("? {}{place}: {}", question.header, question.question);
        lines.extend(text.split('\n').map(|line| Line::new(Style::Warning, line)));
        for (number, option) in (1..).zip(&question.options) {
            let text = format!("    {number}. {}  {}", option.label, option.description);
            lines.extend(text.trim_end().split('\n').map(|line| Line::new(Style::Warning, line)));
        }
    }
    lines
}

/// What to type.
pub(super) fn prompt(question: &Question) -> String {
    let how = match (question.options.len(), question.multiple, question.custom) {
        (0, ..) => "",
        (_, false, false) => "a number; ",
        (_, false, true) => "a number, or your own words; ",
        (_, true, false) => "numbers, as 1,3; ",
        (_, true, true) => "numbers, as 1,3, or your own words; ",
    };
    format!("{} ({how}empty for no answer): ", question.header)
}

/// What a line chooses. Empty for no answer.
pub(super) fn answer(question: &Question, line: &str) -> Result<Vec<String>, String> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(Vec::new());
    }
    let option = |text: &str| {
        let text = text.trim();
        let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_label =
            || question.options.iter().find(|option| option.label.to_lowercase() == text.to_lowercase());
        let found = number.and_then(|index| question.options.get(index)).or_else(by_label);
        found.map(|option| option.label.clone())
    };
    if let Some(label) = option(line) {
        return Ok(vec![label]);
    }
    let several: Option<Vec<String>> = line.split(',').map(option).collect();
    match several {
        Some(labels) if question.multiple => {
            let mut chosen: Vec<String> = Vec::new();
            for label in labels {
                if !chosen.contains(&label) {
                    chosen.push(label);
                }
            }
            Ok(chosen)
        }
        _ if question.custom => Ok(vec![line.to_owned()]),
        _ if question.multiple => Err(format!("type numbers from 1 to {}, as 1,2", question.options.len())),
        _ => Err(format!("type one number from 1 to {}", question.options.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{question, texts};
    use super::*;

    #[test]
    fn lines_are_numbers_labels_or_words_of_their_own() {
        let one = question(&["Red", "Green"], false, true);
        let many = question(&["Red", "Green", "7"], true, true);
        for (question, line, chosen) in [
            (&one, "2", texts(&["Green"])),
            (&one, " red ", texts(&["Red"])),
            (&one, "1,2", texts(&["1,2"])),
            (&one, "3", texts(&["3"])),
            (&one, "0", texts(&["0"])),
            (&one, "  ", texts(&[])),
            (&many, "1,2", texts(&["Red", "Green"])),
            (&many, "green, 1, 2", texts(&["Green", "Red"])),
            (&many, "1, or not", texts(&["1, or not"])),
            (&many, "7", texts(&["7"])),
            (&question(&[], false, true), "anything", texts(&["anything"])),
        ] {
            assert_eq!(answer(question, line), Ok(chosen), "{line:?}");
        }
        let one = question(&["Red", "Green"], false, false);
        let many = question(&["Red", "Green"], true, false);
        assert_eq!(answer(&one, "blue"), Err("type one number from 1 to 2".to_owned()));
        assert_eq!(answer(&one, "1,2"), Err("type one number from 1 to 2".to_owned()));
        assert_eq!(answer(&many, "1,3"), Err("type numbers from 1 to 2, as 1,2".to_owned()));
    }
}
