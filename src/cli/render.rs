//! Shows a session's events: as text for people, or as one JSON object a line.

use std::collections::HashMap;
use std::io::{IsTerminal, Write as _};

use playhouse_actors::Published;
use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::id::{AttemptId, PartId};
use playhouse_protocol::message::{CallInput, CallOutcome, CallResult};
use playhouse_protocol::question::{QuestionAnswer, QuestionAsked, Todo, TodoStatus};
use playhouse_protocol::record::{CallProposed, StepPart, TurnEnded, TurnOutcome};
use playhouse_protocol::usage::Totals;
use playhouse_protocol::{Entry, EventBody, Record, SessionId, Timestamp};

use crate::tags::Tags;

/// Things to do that are shown at once.
const TODOS_SHOWN: usize = 20;

/// How to show events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text {
        color: bool,
    },
    Json,
    /// Text, with calls as tags in it.
    Tags,
}

impl Format {
    /// Text, with colours where `stream` is a terminal and nobody said `NO_COLOR`.
    pub(super) fn text(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self::Text { color: stream.is_terminal() && !refused }
    }
}

/// A text part that streams.
struct Shown {
    attempt: AttemptId,
    /// How many bytes of it are shown.
    bytes: usize,
}

type BeforeEnd = Box<dyn Fn() -> String + Send>;

/// Shows events as they come.
pub(super) struct Renderer {
    format: Format,
    /// Whether what is no part of the answer goes to standard output too.
    all_on_stdout: bool,
    /// Whether standard output is a terminal: the model's text must not command it.
    terminal: bool,
    /// Text parts under way.
    parts: HashMap<PartId, Shown>,
    /// Calls that have no result yet: what to call them.
    calls: HashMap<PartId, String>,
    /// The same calls as tags.
    tags: Tags,
    /// What is shown before the totals.
    before_end: Option<BeforeEnd>,
    /// Whether standard output stands at the beginning of a line.
    at_line_start: bool,
}

impl Renderer {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            all_on_stdout: false,
            terminal: std::io::stdout().is_terminal(),
            parts: HashMap::new(),
            calls: HashMap::new(),
            tags: Tags::default(),
            before_end: None,
            at_line_start: true,
        }
    }

    /// Shows what `text` says before the totals.
    pub(super) fn before_end(mut self, text: BeforeEnd) -> Self {
        self.before_end = Some(text);
        self
    }

    /// Writes everything to standard output.
    pub(super) fn all_on_stdout(mut self) -> Self {
        self.all_on_stdout = true;
        self
    }

    /// Learns the names of calls that were proposed before.
    pub(super) fn remember(&mut self, entries: &[Entry]) {
        for entry in entries {
            if let Record::CallProposed(proposed) = &entry.record {
                self.propose(proposed);
            }
        }
    }

    fn propose(&mut self, proposed: &CallProposed) {
        if self.format == Format::Tags {
            self.tags.proposed(proposed, title(&proposed.input));
        } else {
            self.calls.insert(proposed.call, label(proposed));
        }
    }

    pub(super) fn show(&mut self, event: &Published) -> std::io::Result<()> {
        if self.format == Format::Json {
            let mut line = event.json().to_vec();
            line.push(b'\n');
            return write_out(&line);
        }
        match &event.event().body {
            EventBody::Durable(record) => self.show_record(record),
            EventBody::Provisional(piece) => self.show_piece(piece, event.event().at),
        }
    }

    /// `at`: when the piece was made.
    fn show_piece(&mut self, piece: &Provisional, at: Timestamp) -> std::io::Result<()> {
        match piece {
            Provisional::PartStarted { part, attempt, kind: OpenPartKind::Text, .. } => {
                self.parts.insert(*part, Shown { attempt: *attempt, bytes: 0 });
                Ok(())
            }
            Provisional::PartSnapshot { part, attempt, kind: OpenPartKind::Text, text, .. } => {
                // After falling behind, part of it may have been shown.
                let all = Shown { attempt: *attempt, bytes: text.len() };
                let shown = self.parts.insert(*part, all).map_or(0, |shown| shown.bytes);
                let rest = text.get(shown..).unwrap_or_default().to_owned();
                self.text(&rest)
            }
            Provisional::PartDelta { part, offset, text } => {
                let Some(Shown { bytes: shown, .. }) = self.parts.get_mut(part) else { return Ok(()) };
                let skip = shown.saturating_sub(usize::try_from(*offset).unwrap_or(usize::MAX));
                *shown = (*shown).max(usize::try_from(*offset).unwrap_or(0) + text.len());
                let rest = text.get(skip..).unwrap_or_default().to_owned();
                self.text(&rest)
            }
            Provisional::StepRetry { attempt_number, attempts, at: again, error, .. } => {
                self.end_line()?;
                let wait = seconds(again.millis_since(at));
                let next = format!("trying again in {wait} ({attempt_number} of {attempts})");
                self.note(&format!("! attempt failed: {error}; {next}"), "33")?;
                self.withdraw(None)
            }
            Provisional::AttemptWaiting { until, reason, .. } => {
                self.end_line()?;
                let wait = until.map(|until| format!("; {} at least", seconds(until.millis_since(at))));
                self.note(&format!("… {reason}{}", wait.unwrap_or_default()), "2")
            }
            _ => Ok(()),
        }
    }

    /// What was shown of attempts other than `current` is no part of the answer: it cannot be taken back, and is said to be
    /// void.
    fn withdraw(&mut self, current: Option<AttemptId>) -> std::io::Result<()> {
        let mut void = false;
        self.parts.retain(|_, shown| {
            let stays = Some(shown.attempt) == current;
            void = void || (!stays && shown.bytes > 0);
            stays
        });
        if !void {
            return Ok(());
        }
        self.end_line()?;
        self.note("  the text that it wrote is withdrawn", "33")
    }

    fn show_record(&mut self, record: &Record) -> std::io::Result<()> {
        match record {
            Record::StepFinished(finished) => {
                for part in &finished.parts {
                    let StepPart::Text { id, text } = part else { continue };
                    // What streamed is shown; what was missed (a slow terminal) follows here.
                    let shown = self.parts.remove(id).map_or(0, |shown| shown.bytes);
                    let rest = text.get(shown..).unwrap_or_default().to_owned();
                    self.text(&rest)?;
                    self.end_line()?;
                }
                Ok(())
            }
            Record::CallProposed(proposed) => {
                self.propose(proposed);
                Ok(())
            }
            Record::CallIntended(intended) if self.format == Format::Tags => {
                let tag = self.tags.running(intended.call);
                self.tag(tag)
            }
            Record::CallSettled { call, result } if self.format == Format::Tags => {
                let tag = self.tags.settled(*call, result);
                self.tag(tag)
            }
            Record::CallSettled { call, result } => {
                let label = self.calls.remove(call).unwrap_or_default();
                self.call(&label, result)
            }
            // Who fell behind, or came after a crash, was not told of the retry. What a last attempt wrote stays in the log,
            // and is not withdrawn.
            Record::AttemptStarted(started) => self.withdraw(Some(started.attempt)),
            Record::ConsentAsked(asked) => {
                self.end_line()?;
                self.note(&format!("? {}\n  {}", asked.reason, asked.preview), "33")
            }
            Record::QuestionAsked(asked) => self.questions(asked),
            Record::QuestionSettled { answer, .. } => {
                self.end_line()?;
                self.note(&format!("  → {}", told(answer)), "33")
            }
            Record::TodosChanged { todos } => {
                self.end_line()?;
                self.note(&listed(todos), "2")
            }
            _ => Ok(()),
        }
    }

    /// Shows the questions of a request, with the numbers of their options.
    pub(super) fn questions(&mut self, asked: &QuestionAsked) -> std::io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        self.end_line()?;
        for question in &asked.questions {
            let mut text = format!("? {}: {}", question.header, question.question);
            for (number, option) in (1..).zip(&question.options) {
                text.push_str(&format!("\n    {number}. {}  {}", option.label, option.description));
            }
            self.note(text.trim_end(), "33")?;
        }
        Ok(())
    }

    /// Asks for a line of input.
    pub(super) fn prompt(&mut self, text: &str) -> std::io::Result<()> {
        self.end_line()?;
        drop(std::io::stderr().lock().write_all(printable(text).as_bytes()));
        Ok(())
    }

    fn tag(&mut self, tag: Option<String>) -> std::io::Result<()> {
        let Some(tag) = tag else { return Ok(()) };
        self.end_line()?;
        self.text(&format!("{tag}\n"))
    }

    /// Nothing more is shown: ends what was begun.
    pub(super) fn close(&mut self) -> std::io::Result<()> {
        let left = self.tags.close();
        left.into_iter().try_for_each(|tag| self.tag(Some(tag)))
    }

    fn call(&mut self, label: &str, result: &CallResult) -> std::io::Result<()> {
        self.end_line()?;
        let took = result.ended.millis_since(result.started);
        let (mark, word, color) = match result.outcome {
            CallOutcome::Done => ("✓", "", "32"),
            CallOutcome::Failed => ("✗", "failed: ", "31"),
            CallOutcome::Declined => ("✗", "declined: ", "31"),
            CallOutcome::Cancelled => ("✗", "", "33"),
            CallOutcome::Interrupted => ("✗", "", "33"),
            CallOutcome::Crashed => ("✗", "", "31"),
        };
        let detail = match result.outcome {
            CallOutcome::Done => match result.metadata.get("exit").and_then(serde_json::Value::as_i64) {
                Some(code) if code != 0 => format!("  exit {code}"),
                _ => String::new(),
            },
            _ => format!("\n    {word}{}", result.output.lines().next().unwrap_or_default()),
        };
        self.note(&format!("{mark} {label}  {took} ms{detail}"), color)
    }

    /// Says how the turn ended, and what it used.
    pub(super) fn finish(&mut self, session: SessionId, ended: &TurnEnded) -> std::io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        self.end_line()?;
        if let Some(text) = &self.before_end {
            write_out(format!("\n{}\n", text()).as_bytes())?;
        }
        let steps = ended.steps;
        let plural = if steps == 1 { "" } else { "s" };
        self.note(&format!("{steps} step{plural}, {}; session {session}", usage(&ended.totals)), "2")?;
        if let Some(error) = &ended.error {
            self.note(&format!("error: {error}"), "31")?;
        }
        if ended.outcome == TurnOutcome::Failed && ended.error.is_some() {
            return Ok(());
        }
        let color = if ended.outcome == TurnOutcome::Completed { "32" } else { "33" };
        self.note(&ended.outcome.to_string(), color)
    }

    fn text(&mut self, text: &str) -> std::io::Result<()> {
        let Some(last) = text.as_bytes().last() else { return Ok(()) };
        self.at_line_start = *last == b'\n';
        if self.terminal { write_out(printable(text).as_bytes()) } else { write_out(text.as_bytes()) }
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        if self.at_line_start {
            return Ok(());
        }
        self.at_line_start = true;
        write_out(b"\n")
    }

    /// A line that is no part of the answer.
    pub(super) fn note(&self, text: &str, code: &str) -> std::io::Result<()> {
        let text = printable(text);
        let line = match self.format {
            Format::Text { color: true } => format!("\x1b[{code}m{text}\x1b[0m\n"),
            _ => format!("{text}\n"),
        };
        if self.all_on_stdout {
            return write_out(line.as_bytes());
        }
        // A closed standard error does not end a turn.
        drop(std::io::stderr().lock().write_all(line.as_bytes()));
        Ok(())
    }
}

/// A wait for people.
fn seconds(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} s", millis.div_ceil(1_000)),
    }
}

/// Tokens and cost in one line.
pub(super) fn usage(totals: &Totals) -> String {
    let tokens = &totals.tokens;
    let mut text = format!("{} tokens in", tokens.all_input());
    if tokens.cache_read > 0 {
        text.push_str(&format!(" ({} from cache)", tokens.cache_read));
    }
    text.push_str(&format!(", {} out, ", tokens.output + tokens.reasoning));
    match totals.known_cost() {
        Some(cost) => text.push_str(&cost.to_string()),
        None => text.push_str("cost unknown"),
    }
    if totals.estimated > 0 {
        text.push_str(" (partly estimated)");
    }
    text
}

/// How a request with questions ended, in one line.
fn told(answer: &QuestionAnswer) -> String {
    let nothing = || "not answered".to_owned();
    match answer {
        QuestionAnswer::Answered { answers } => {
            let each =
                answers.iter().map(|chosen| if chosen.is_empty() { nothing() } else { chosen.join(", ") });
            each.collect::<Vec<_>>().join("; ").replace('\n', " ")
        }
        QuestionAnswer::TimedOut => "not answered in time".to_owned(),
        QuestionAnswer::Rejected | QuestionAnswer::Withdrawn => nothing(),
    }
}

/// A list of things to do, one a line.
fn listed(todos: &[Todo]) -> String {
    let line = |todo: &Todo| {
        let mark = match todo.status {
            TodoStatus::Pending => "[ ]",
            TodoStatus::InProgress => "[>]",
            TodoStatus::Completed => "[x]",
            TodoStatus::Cancelled => "[-]",
        };
        format!("  {mark} {}", first_line(&todo.content))
    };
    let mut lines: Vec<String> = todos.iter().take(TODOS_SHOWN).map(line).collect();
    match todos.len().saturating_sub(TODOS_SHOWN) {
        0 => {}
        more => lines.push(format!("  and {more} more")),
    }
    if lines.is_empty() { "  (nothing to do)".to_owned() } else { lines.join("\n") }
}

/// What to call a call, in one short line.
fn label(proposed: &CallProposed) -> String {
    format!("{} {}", proposed.tool, argument(&proposed.input)).trim_end().to_owned()
}

/// What a call is said to do, where it says so, as in the title of its result.
fn title(input: &CallInput) -> String {
    let described = match input {
        CallInput::Object(object) => object.get("description").and_then(serde_json::Value::as_str),
        CallInput::Malformed(_) => None,
    };
    match described.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => first_line(text),
        None => argument(input),
    }
}

/// The argument that tells most about a call, in one short line.
fn argument(input: &CallInput) -> String {
    let CallInput::Object(object) = input else { return String::new() };
    let known = ["command", "filePath", "pattern", "path"].iter().find_map(|key| object.get(*key));
    let value = known.or_else(|| object.values().find(|value| value.is_string()));
    let text = value.and_then(serde_json::Value::as_str).unwrap_or_default();
    first_line(text)
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(100).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Without characters that would command the terminal.
pub(super) fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "\u{fffd}")
}

/// Writes to standard output; a reader that went away is no error.
fn write_out(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
