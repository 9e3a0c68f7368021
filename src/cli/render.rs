//! Shows a session's events: as text for people, or as one JSON object a line.

mod words;

use std::collections::HashMap;
use std::io::{IsTerminal, Write as _};

use playhouse_actors::Published;
use playhouse_protocol::event::{OpenPartKind, Provisional};
use playhouse_protocol::id::{AttemptId, PartId};
use playhouse_protocol::message::{CallOutcome, CallResult, CompactionKind, FinishReason};
use playhouse_protocol::record::{CallProposed, ConsentAsked, StepPart, TurnEnded, TurnOutcome};
use playhouse_protocol::{ConsentId, Entry, EventBody, Record, SessionId, Timestamp};
use playhouse_session::tags::Tags;

use super::asker::{self, Line};
use words::{first_line, label, listed, seconds, told};

/// How a command prints what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Shape {
    /// Columns for people
    Table,
    /// One JSON document
    Json,
    /// One JSON object a line
    Ndjson,
}
pub(super) use words::{settled, usage};

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
    /// Requests for consent that wait: what to call them.
    consents: HashMap<ConsentId, String>,
    /// Whether requests are shown by somebody else: where they are answered.
    requests_elsewhere: bool,
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
            consents: HashMap::new(),
            requests_elsewhere: false,
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

    /// Leaves requests, but not their ends, to whoever asks for the answers.
    pub(super) fn leave_requests(mut self, elsewhere: bool) -> Self {
        self.requests_elsewhere = elsewhere;
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
            self.tags.proposed(proposed);
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
            Provisional::DescendantRequest { session, record } => self.request(Some(*session), record),
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
                // A step that ended well has a note where nothing but reasoning came.
                let note = finished.error.as_ref().filter(|_| finished.finish == FinishReason::Stop);
                for part in &finished.parts {
                    if let (StepPart::Reasoning { text, .. }, Some(_)) = (part, note)
                        && !text.is_empty()
                    {
                        self.note(&format!("(thinking) {}", text.trim_end()), "2")?;
                    }
                    let StepPart::Text { id, text, .. } = part else { continue };
                    // What streamed is shown; what was missed (a slow terminal) follows here.
                    let shown = self.parts.remove(id).map_or(0, |shown| shown.bytes);
                    let rest = text.get(shown..).unwrap_or_default().to_owned();
                    self.text(&rest)?;
                    self.end_line()?;
                }
                note.map_or(Ok(()), |note| self.note(&format!("note: {note}"), "33"))
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
            Record::AttemptStarted(started) if started.purpose.is_aside() => Ok(()),
            Record::AttemptStarted(started) => self.withdraw(Some(started.attempt)),
            Record::ContextCompacted(compacted) => {
                self.end_line()?;
                let what = match compacted.how {
                    CompactionKind::Summary => "a summary stands for what was said before",
                    CompactionKind::Cut => "a part of what was said before is left out",
                };
                let (before, after) = (compacted.before, compacted.after);
                self.note(&format!("room was made: {what} (about {before} tokens became {after})"), "2")
            }
            Record::ConsentAsked(_)
            | Record::ConsentSettled { .. }
            | Record::QuestionAsked(_)
            | Record::QuestionSettled { .. } => self.request(None, record),
            Record::TodosChanged { todos } => {
                self.end_line()?;
                self.note(&listed(todos), "2")
            }
            _ => Ok(()),
        }
    }

    /// Shows a request, or the end of one; of the sub-session `from` where it is not the session's own.
    pub(super) fn request(&mut self, from: Option<SessionId>, record: &Record) -> std::io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        match record {
            Record::ConsentAsked(asked) => {
                self.consents.insert(asked.consent, name(asked));
                if self.requests_elsewhere {
                    return Ok(());
                }
                self.lines(&asker::consent_shown(asked, from, false))
            }
            Record::QuestionAsked(_) if self.requests_elsewhere => Ok(()),
            Record::QuestionAsked(asked) => self.lines(&asker::questions_shown(asked, from)),
            Record::ConsentSettled { consent, answer } => {
                let name = self.consents.remove(consent).unwrap_or_default();
                let separator = if name.is_empty() { "" } else { ": " };
                self.end_line()?;
                self.note(&format!("  → {name}{separator}{}", settled(answer)), "33")
            }
            Record::QuestionSettled { answer, .. } => {
                self.end_line()?;
                self.note(&format!("  → {}", told(answer)), "33")
            }
            _ => Ok(()),
        }
    }

    /// Shows lines that may hold anything.
    pub(super) fn lines(&mut self, lines: &[Line]) -> std::io::Result<()> {
        let color = self.format == Format::Text { color: true };
        self.end_line()?;
        let text: String = lines.iter().map(|line| line.painted(color) + "\n").collect();
        self.aside(&text)
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
            _ => {
                let line = result.output.lines().next().unwrap_or_default();
                // Most say it themselves.
                let word = if line.starts_with(word.trim_end_matches(": ")) { "" } else { word };
                format!("\n    {word}{line}")
            }
        };
        self.note(&format!("{mark} {label}  {took} ms{detail}"), color)
    }

    /// Says how the turn ended, and what it used.
    pub(super) fn finish(&mut self, session: SessionId, ended: &TurnEnded) -> std::io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        self.end_line()?;
        if let Some(output) = &ended.output {
            write_out(format!("{output:#}\n").as_bytes())?;
        }
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
        self.aside(&line)
    }

    /// Writes what is no part of the answer.
    fn aside(&self, text: &str) -> std::io::Result<()> {
        if self.all_on_stdout {
            return write_out(text.as_bytes());
        }
        // A closed standard error does not end a turn.
        drop(std::io::stderr().lock().write_all(text.as_bytes()));
        Ok(())
    }
}

/// What to call a request for consent, in one short line.
fn name(asked: &ConsentAsked) -> String {
    // The first line of a diff may name no file at all.
    let about = asked.wants.first().filter(|_| asked.diff).map_or(&asked.preview, |want| &want.subject);
    format!("{} {}", asked.tool, first_line(about)).trim_end().to_owned()
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
