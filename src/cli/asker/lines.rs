//! Lines: those that are shown, and those that are typed.

use std::io::BufRead as _;

use tokio::sync::mpsc;

/// Lines that are read ahead.
const AHEAD: usize = 16;

/// How a line looks where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Style {
    /// As it is.
    Plain,
    /// What somebody must look at.
    Warning,
    /// What explains.
    Dim,
    /// A line that a change adds.
    Added,
    /// A line that a change removes.
    Removed,
    /// Where in a file a change is.
    Place,
}

/// A line for people. It may hold anything: what is not visible is made so where it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Line {
    pub(in crate::cli) style: Style,
    pub(in crate::cli) text: String,
}

impl Line {
    pub(in crate::cli) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { style, text: text.into() }
    }

    /// The text as it is written to a terminal.
    pub(in crate::cli) fn painted(&self, color: bool) -> String {
        let text = visible(&self.text);
        let code = match self.style {
            Style::Warning => "33",
            Style::Dim => "2",
            Style::Added => "32",
            Style::Removed => "31",
            Style::Place => "36",
            Style::Plain => return text,
        };
        if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
    }
}

/// With everything written out that would command the terminal, change the order of what is read, or not be seen: who
/// agrees to a command must see all of it.
pub(in crate::cli) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let unseen = matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        );
        match character {
            '\t' => out.push(character),
            _ if unseen || character.is_control() => out.extend(character.escape_default()),
            _ => out.push(character),
        }
    }
    out
}

/// Reads standard input on a thread of its own: nothing can end a read of a terminal.
pub(super) fn read_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    // Without the thread the channel is closed, which is the end of the input.
    drop(std::thread::Builder::new().name("terminal".to_owned()).spawn(read));
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_commands_the_terminal_or_hides() {
        assert_eq!(visible("a\tb é 漢"), "a\tb é 漢");
        let hiding = "rm\r\x1b[2Kls\u{9b}1m\u{202e}x\u{200b}";
        assert_eq!(visible(hiding), "rm\\r\\u{1b}[2Kls\\u{9b}1m\\u{202e}x\\u{200b}");
        for style in [Style::Plain, Style::Warning, Style::Dim, Style::Added, Style::Removed, Style::Place] {
            let line = Line::new(style, "\x1b[0m\n");
            assert_eq!(line.painted(false), "\\u{1b}[0m\\n");
            let painted = line.painted(true);
            let inner = painted.trim_start_matches(|c| c != '\\').trim_end_matches("\x1b[0m");
            assert_eq!(inner, "\\u{1b}[0m\\n", "{style:?}");
        }
    }
}
