//! Commands: prompts that somebody wrote once, to be run by name.
//!
//! A command is a Markdown file; its name is the file's. It may begin with a head:
//!
//! | key | value |
//! |---|---|
//! | `description` | one line for people |
//! | `agent` | the agent that answers; left out: as if the prompt had been typed |
//! | `model` | `PROVIDER/MODEL`; left out: the same |
//! | `subtask` | `true`: another agent is given the work, in a session of its own; left out: `false` |
//!
//! The text is the prompt. In it `$1`, `$2` and so on stand for what was typed behind the name, word by word (quotes hold words
//! together), the last of them for all that follows; `$ARGUMENTS` for all of it. Where a text has none of these, what was typed
//! follows it. A word between `` !` `` and `` ` `` in one line is a command of the shell whose output stands in its place; arguments
//! are words of it, quoted. `\$1` and `` \!` `` are what they are without the `\`. Nothing that is put in is read again.

mod arguments;
mod folder;

use playhouse_protocol::ModelRef;

use crate::PromptError;
use crate::front_matter::{self, Field, FieldValue};
use arguments::{Arguments, quoted};

pub use arguments::words;
pub use folder::{CommandFault, Commands, Owner};

/// The keys of a command's head.
const KEYS: [&str; 4] = ["description", "agent", "model", "subtask"];
/// The longest name of a command, in bytes.
const LONGEST_NAME: usize = 64;
/// The most shell blocks of a command.
const MOST_BLOCKS: usize = 16;
/// What stands for all arguments.
const ALL: &str = "ARGUMENTS";

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandTemplate {
    /// Its name, without a `/`.
    pub name: String,
    /// One line for people.
    pub description: Option<String>,
    /// The agent that answers.
    pub agent: Option<String>,
    /// The model that answers.
    pub model: Option<ModelRef>,
    /// Whether another agent is given the work.
    pub subtask: bool,
    /// The text as it is written.
    pub template: String,
    /// The file that it was read from.
    pub file: String,
    /// The line of each key in its head.
    lines: Vec<(String, usize)>,
    pieces: Vec<Piece>,
    /// The highest number of an argument in it; 0 for none.
    highest: usize,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The argument of this number, from 1.
    Argument(usize),
    All,
    /// A shell block, of texts and arguments.
    Shell(Vec<Piece>),
}

/// A piece of a command with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Text of the prompt.
    Text(String),
    /// A command of the shell, whose output stands here.
    Shell(String),
}

impl CommandTemplate {
    /// Reads a command's file; `file` is its path, for messages and the name.
    ///
    /// # Errors
    /// Names file and line of what is wrong.
    ///
    /// ```
    /// use playhouse_prompts::{CommandTemplate, command::Filled};
    /// let text = "---\ndescription: Explains a file\n---\nExplain $1.\n";
    /// let command = CommandTemplate::parse("commands/explain.md", text).unwrap();
    /// assert_eq!(command.name, "explain");
    /// assert_eq!(command.fill("src/main.rs").unwrap(), [Filled::Text("Explain src/main.rs.".into())]);
    /// ```
    pub fn parse(file: &str, text: &str) -> Result<Self, PromptError> {
        let stem = std::path::Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if !is_name(stem) {
            return Err(PromptError::whole(
                file,
                format!(
                    "the name of a command is its file's: at most {LONGEST_NAME} letters, digits, `-`, `_` and `.`, and a letter or digit first"
                ),
            ));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let has_head = text.lines().next().is_some_and(|line| line.trim_end() == "---");
        let (fields, body) = match has_head {
            true => front_matter::parse(file, text).map(|document| (document.fields, document.body))?,
            false => (Vec::new(), text.trim()),
        };
        let begins = body_offset(text, body);
        let line = 1 + text[..begins].matches('\n').count();
        if body.is_empty() {
            return Err(PromptError::at(file, line, "there is no text: write the prompt"));
        }
        let pieces = Parser { file, body, line }.pieces()?;
        let mut command = Self {
            name: stem.to_owned(),
            description: None,
            agent: None,
            model: None,
            subtask: false,
            template: body.to_owned(),
            file: file.to_owned(),
            lines: fields.iter().map(|field| (field.key.to_owned(), field.line)).collect(),
            highest: highest(&pieces),
            pieces,
        };
        for field in &fields {
            command.set(field).map_err(|message| PromptError::at(file, field.line, message))?;
        }
        Ok(command)
    }

    fn set(&mut self, field: &Field<'_>) -> Result<(), String> {
        let key = field.key;
        let text = match (&field.value, key) {
            (FieldValue::Text(text), _) => text.trim(),
            (_, key) if KEYS.contains(&key) => return Err(format!("`{key}` is a text")),
            _ => "",
        };
        match key {
            "description" => self.description = Some(text.to_owned()).filter(|text| !text.is_empty()),
            "agent" if text.is_empty() => return Err("`agent` needs the name of an agent".to_owned()),
            "agent" => self.agent = Some(text.to_owned()),
            "model" => self.model = Some(text.parse().map_err(|error| format!("`model`: {error}"))?),
            "subtask" => {
                self.subtask = match text {
                    "true" => true,
                    "false" => false,
                    _ => return Err("`subtask` is `true` or `false`".to_owned()),
                }
            }
            // Files that were written for other programs have keys of theirs.
            _ => {}
        }
        Ok(())
    }

    /// What is wrong with the value of a key, as far as that is known only where the command is run.
    fn wrong(&self, key: &str, message: impl Into<String>) -> PromptError {
        let line = self.lines.iter().find(|(known, _)| known == key).map(|(_, line)| *line);
        PromptError { file: self.file.clone(), line, message: message.into() }
    }

    /// What may be typed behind the name: `$1`, `$2` and so on, and `$ARGUMENTS`.
    pub fn hints(&self) -> Vec<String> {
        let mut numbers: Vec<usize> = all(&self.pieces)
            .filter_map(|piece| match piece {
                Piece::Argument(number) => Some(*number),
                _ => None,
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut hints: Vec<String> = numbers.into_iter().map(|number| format!("${number}")).collect();
        hints.extend(all(&self.pieces).any(|piece| *piece == Piece::All).then(|| format!("${ALL}")));
        hints
    }

    /// The command with what was typed behind its name. No two texts stand side by side.
    ///
    /// # Errors
    /// An argument cannot be a word of a shell block.
    pub fn fill(&self, typed: &str) -> Result<Vec<Filled>, String> {
        let typed = typed.trim();
        let arguments = Arguments::new(typed, self.highest);
        let mut filled: Vec<Filled> = Vec::new();
        let add = |filled: &mut Vec<Filled>, text: &str| match filled.last_mut() {
            Some(Filled::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => filled.push(Filled::Text(text.to_owned())),
        };
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => add(&mut filled, text),
                Piece::Argument(number) => add(&mut filled, arguments.get(*number)),
                Piece::All => add(&mut filled, typed),
                Piece::Shell(pieces) => filled.push(Filled::Shell(shell(pieces, &arguments)?)),
            }
        }
        let takes_none = all(&self.pieces).all(|piece| matches!(piece, Piece::Text(_) | Piece::Shell(_)));
        if takes_none && !typed.is_empty() {
            add(&mut filled, "\n\n");
            add(&mut filled, typed);
        }
        Ok(filled)
    }
}

/// A shell block with its arguments, each of which is one word of it.
fn shell(pieces: &[Piece], arguments: &Arguments<'_>) -> Result<String, String> {
    let mut command = String::new();
    for piece in pieces {
        let words = match piece {
            Piece::Text(text) => {
                command.push_str(text);
                continue;
            }
            Piece::Argument(number) => arguments.of(*number),
            Piece::All => arguments.words(),
            // Blocks do not stand in each other.
            Piece::Shell(_) => &[],
        };
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                command.push(' ');
            }
            command.push_str(&quoted(word)?);
        }
    }
    Ok(command)
}

/// All pieces, those of shell blocks among them.
fn all(pieces: &[Piece]) -> impl Iterator<Item = &Piece> {
    pieces.iter().flat_map(|piece| {
        let inner = match piece {
            Piece::Shell(inner) => inner.as_slice(),
            _ => &[],
        };
        std::iter::once(piece).chain(inner)
    })
}

fn highest(pieces: &[Piece]) -> usize {
    let numbers = all(pieces).map(|piece| match piece {
        Piece::Argument(number) => *number,
        _ => 0,
    });
    numbers.max().unwrap_or(0)
}

/// Whether this can be the name of a command.
fn is_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Where `body`, a part of `text`, begins in it.
fn body_offset(text: &str, body: &str) -> usize {
    (body.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len())
}

struct Parser<'a> {
    file: &'a str,
    body: &'a str,
    /// The line of the file in which the body begins.
    line: usize,
}

impl Parser<'_> {
    fn pieces(&self) -> Result<Vec<Piece>, PromptError> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut at = 0;
        let mut blocks = 0;
        while let Some(first) = self.body[at..].chars().next() {
            let rest = &self.body[at..];
            if let Some((piece, length)) = argument(rest) {
                push(&mut pieces, &mut text);
                pieces.push(piece);
                at += length;
            } else if rest.starts_with("!`") && !follows_a_word(&self.body[..at]) {
                push(&mut pieces, &mut text);
                let (block, length) = self.block(at)?;
                blocks += 1;
                if blocks > MOST_BLOCKS {
                    return Err(self.error(at, format!("there are more than {MOST_BLOCKS} shell blocks")));
                }
                pieces.push(block);
                at += length;
            } else if let Some(escaped) = rest.strip_prefix('\\').filter(|rest| is_escaped(rest)) {
                // The sign behind it is taken as it is.
                text.push_str(&escaped[..1]);
                at += 2;
            } else {
                text.push(first);
                at += first.len_utf8();
            }
        }
        push(&mut pieces, &mut text);
        Ok(pieces)
    }

    /// The shell block at `start`, and its length.
    fn block(&self, start: usize) -> Result<(Piece, usize), PromptError> {
        let rest = &self.body[start + 2..];
        let line = rest.split('\n').next().unwrap_or_default();
        let Some(end) = line.find('`') else {
            return Err(self.error(start, "this shell block has no closing \"`\" in its line"));
        };
        let block = &line[..end];
        if block.trim().is_empty() {
            return Err(
                self.error(start, "this shell block is empty: write a command between \"!`\" and \"`\"")
            );
        }
        let (mut pieces, mut text) = (Vec::new(), String::new());
        let (mut at, mut quote) = (0, None);
        while let Some(first) = block[at..].chars().next() {
            if let Some((piece, length)) = argument(&block[at..]) {
                if quote.is_some() {
                    let written = &block[at..at + length];
                    return Err(self.error(
                        start,
                        format!(
                            "`{written}` stands in quotes in this shell block: leave them out, it is a quoted word already; or write `\\{written}` for one of the shell's own"
                        ),
                    ));
                }
                push(&mut pieces, &mut text);
                pieces.push(piece);
                at += length;
                continue;
            }
            let rest = &block[at + first.len_utf8()..];
            match (first, quote) {
                ('\\', _) if is_escaped(rest) => {
                    // The shell reads its own.
                    text.push_str(&rest[..1]);
                    at += 2;
                    continue;
                }
                ('\\', None | Some('"')) => {
                    // What follows opens and closes nothing.
                    let next = rest.chars().next();
                    text.push(first);
                    text.extend(next);
                    at += 1 + next.map_or(0, char::len_utf8);
                    continue;
                }
                ('\'' | '"', None) => quote = Some(first),
                (_, Some(open)) if first == open => quote = None,
                _ => {}
            }
            text.push(first);
            at += first.len_utf8();
        }
        push(&mut pieces, &mut text);
        Ok((Piece::Shell(pieces), end + 3))
    }

    fn error(&self, at: usize, message: impl Into<String>) -> PromptError {
        let line = self.line + self.body[..at].matches('\n').count();
        PromptError::at(self.file, line, message)
    }
}

/// Ends the text before something else.
fn push(pieces: &mut Vec<Piece>, text: &mut String) {
    if !text.is_empty() {
        pieces.push(Piece::Text(std::mem::take(text)));
    }
}

/// The argument that `text` begins with, and its length.
fn argument(text: &str) -> Option<(Piece, usize)> {
    let rest = text.strip_prefix('$')?;
    if let Some(behind) = rest.strip_prefix(ALL) {
        let goes_on = behind.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
        return (!goes_on).then_some((Piece::All, 1 + ALL.len()));
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number: usize = rest[..digits].parse().ok()?;
    // `$0` and `$2026` are no arguments.
    (1..=99).contains(&number).then_some((Piece::Argument(number), 1 + digits))
}

/// Whether a `\` before `rest` takes its meaning from it.
fn is_escaped(rest: &str) -> bool {
    argument(rest).is_some() || rest.starts_with("!`")
}

/// Whether `!` would end a word or a sentence here, as in "it works!`x`".
fn follows_a_word(before: &str) -> bool {
    before.chars().next_back().is_some_and(char::is_alphanumeric)
}

#[cfg(test)]
mod tests;
