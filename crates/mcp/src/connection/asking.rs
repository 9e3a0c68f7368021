//! Questions of a server, put to the people behind a call.
//!
//! - A form is one question for each property. Answers are checked against the schema of the form; a field whose answer does not
//!   fit is asked again, with the reason.
//! - An address is shown in full, and people are asked whether they agree. Nothing is opened.

use std::sync::Arc;

use playhouse_protocol::question::{
    LONGEST_HEADER, MOST_QUESTIONS, Question, QuestionAnswer, QuestionOption,
};
use playhouse_tools::Host;
use playhouse_tools::schema::CheckedSchema;
use playhouse_tools::web::Url;
use serde_json::{Map, Value, json};

use super::handler::{Elicitation, ElicitationAnswer};
use crate::text::{cut, line};

/// Number of requests to people that one call may make.
const REQUESTS: usize = 20;
/// How often a field is asked.
const ATTEMPTS: usize = 3;
/// Number of fields of a form.
const FIELDS: usize = 40;
/// Number of values that are shown as options. More are named in the question.
const OPTIONS: usize = 100;
/// The longest part of a server's text in a question, in bytes.
const TEXT: usize = 2_000;
/// The longest label of an option, in bytes.
const LABEL: usize = 200;
/// The longest address that is shown, in bytes.
const ADDRESS: usize = 4_000;
const YES: &str = "Yes";
const NO: &str = "No";

/// Asks the people behind one call, one request at a time.
pub(super) struct Asker {
    host: Arc<dyn Host>,
    /// Number of requests that may still be made.
    left: tokio::sync::Mutex<usize>,
}

impl Asker {
    pub(super) fn new(host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self { host, left: tokio::sync::Mutex::new(REQUESTS) })
    }

    /// Asks, and waits for the answer. A second question waits until the first is settled.
    pub(super) async fn ask(&self, server: &str, question: Elicitation) -> ElicitationAnswer {
        let mut left = self.left.lock().await;
        let asked = match question {
            Elicitation::Form { message, schema } => self.form(&mut left, server, &message, &schema).await,
            Elicitation::Url { message, url } => self.address(&mut left, server, &message, &url).await,
        };
        asked.unwrap_or_else(|unanswered| unanswered)
    }

    async fn request(
        &self,
        left: &mut usize,
        questions: Vec<Question>,
    ) -> Result<Vec<Vec<String>>, ElicitationAnswer> {
        let many = || ElicitationAnswer::Decline(format!("a call may ask {REQUESTS} times"));
        *left = left.checked_sub(1).ok_or_else(many)?;
        match self.host.ask(questions).await {
            QuestionAnswer::Answered { answers } => Ok(answers),
            QuestionAnswer::Rejected => {
                Err(ElicitationAnswer::Decline("nobody is there to answer, or they would not".to_owned()))
            }
            QuestionAnswer::TimedOut | QuestionAnswer::Withdrawn => Err(ElicitationAnswer::Cancel),
        }
    }

    async fn agreement(
        &self,
        left: &mut usize,
        header: &str,
        question: String,
    ) -> Result<bool, ElicitationAnswer> {
        let option = |label: &str| QuestionOption { label: label.to_owned(), description: String::new() };
        let question = Question {
            question,
            header: header.to_owned(),
            options: vec![option(YES), option(NO)],
            multiple: false,
            custom: false,
        };
        let answers = self.request(left, vec![question]).await?;
        Ok(answers.first().and_then(|chosen| chosen.first()).is_some_and(|label| label == YES))
    }

    async fn address(
        &self,
        left: &mut usize,
        server: &str,
        message: &str,
        url: &str,
    ) -> Result<ElicitationAnswer, ElicitationAnswer> {
        let declined = |reason: &str| Err(ElicitationAnswer::Decline(reason.to_owned()));
        // As it is understood: with the host as it is resolved.
        let Some(url) = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
            return declined("only addresses of the web are shown");
        };
        if url.as_str().len() > ADDRESS {
            return declined("the address is too long to be shown");
        }
        let question = format!(
            "The server {server} asks you to open a page yourself: {url}\n{}\nDo you agree? It is not opened for you.",
            plain(message)
        );
        match self.agreement(left, "Open a page", question).await? {
            true => Ok(ElicitationAnswer::Accept(None)),
            false => declined("they do not agree"),
        }
    }

    async fn form(
        &self,
        left: &mut usize,
        server: &str,
        message: &str,
        schema: &Value,
    ) -> Result<ElicitationAnswer, ElicitationAnswer> {
        let message = format!("The server {server} asks: {}", plain(message));
        let fields = fields(schema).map_err(ElicitationAnswer::Decline)?;
        if fields.is_empty() {
            return match self.agreement(left, "Confirm", message).await? {
                true => Ok(ElicitationAnswer::Accept(Some(json!({})))),
                false => Err(ElicitationAnswer::Decline("they do not agree".to_owned())),
            };
        }
        let mut content = Map::new();
        let mut open: Vec<(&Field, Option<String>)> = fields.iter().map(|field| (field, None)).collect();
        for _ in 0..ATTEMPTS {
            let mut again = Vec::new();
            for some in open.chunks(MOST_QUESTIONS) {
                let asked = some.iter().enumerate().map(|(place, (field, problem))| {
                    let first = if place == 0 { message.as_str() } else { "" };
                    field.question(first, problem.as_deref())
                });
                let answers = self.request(left, asked.collect()).await?;
                for (place, (field, _)) in some.iter().enumerate() {
                    let chosen = answers.get(place).map_or(&[][..], Vec::as_slice);
                    match field.read(chosen) {
                        Ok(Some(value)) => drop(content.insert(field.name.clone(), value)),
                        Ok(None) => {}
                        Err(problem) => again.push((*field, Some(problem))),
                    }
                }
            }
            if again.is_empty() {
                let content = Value::Object(content);
                // A schema that is not understood checks nothing.
                let checked = CheckedSchema::new(schema).map_or(Ok(()), |schema| schema.check(&content));
                return match checked {
                    Ok(()) => Ok(ElicitationAnswer::Accept(Some(content))),
                    Err(problem) => {
                        Err(ElicitationAnswer::Decline(format!("the answers do not fit: {problem}")))
                    }
                };
            }
            open = again;
        }
        Err(ElicitationAnswer::Cancel)
    }
}

/// A property of a form.
struct Field {
    name: String,
    title: String,
    description: String,
    required: bool,
    kind: Kind,
    default: Option<Value>,
    check: Option<CheckedSchema>,
}

/// What is asked for.
enum Kind {
    Choice { options: Vec<(String, Value)>, multiple: bool },
    Boolean,
    Number,
    Text,
}

/// The fields of a form, in its order.
fn fields(schema: &Value) -> Result<Vec<Field>, String> {
    let Some(properties) = schema.get("properties") else { return Ok(Vec::new()) };
    let properties = properties.as_object().ok_or("the form has no fields that can be read")?;
    if properties.len() > FIELDS {
        return Err(format!("the form has more than {FIELDS} fields"));
    }
    let required = schema.get("required").and_then(Value::as_array);
    let field = |(name, property): (&String, &Value)| {
        let text = |key: &str| property.get(key).and_then(Value::as_str).unwrap_or_default().trim();
        Field {
            name: name.clone(),
            title: line(if text("title").is_empty() { name } else { text("title") }, LABEL),
            description: plain(text("description")),
            required: required.is_some_and(|required| required.iter().any(|wanted| wanted == name)),
            kind: kind(property),
            default: property.get("default").cloned(),
            check: CheckedSchema::new(property).ok(),
        }
    };
    Ok(properties.iter().map(field).collect())
}

fn kind(property: &Value) -> Kind {
    let is = |name: &str| property.get("type").is_some_and(|kind| kind == name);
    let options = if is("array") { property.get("items").and_then(options) } else { options(property) };
    match options {
        Some(options) => Kind::Choice { options, multiple: is("array") },
        None if is("boolean") => Kind::Boolean,
        None if is("number") || is("integer") => Kind::Number,
        None => Kind::Text,
    }
}

/// The values of a choice with their labels, each label once.
fn options(schema: &Value) -> Option<Vec<(String, Value)>> {
    let list = |key: &str| schema.get(key).and_then(Value::as_array);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let listed: Vec<(String, Value)> = match (list("enum"), list("oneOf").or_else(|| list("anyOf"))) {
        (Some(values), _) => {
            let names = list("enumNames");
            let name = |place: usize| names.and_then(|names| names.get(place)).and_then(Value::as_str);
            let named = values.iter().enumerate();
            named
                .map(|(place, value)| (name(place).map_or_else(|| text(value), str::to_owned), value.clone()))
                .collect()
        }
        (None, Some(choices)) => {
            let choice = |choice: &Value| {
                let value = choice.get("const")?.clone();
                let title = choice.get("title").and_then(Value::as_str);
                Some((title.map_or_else(|| text(&value), str::to_owned), value))
            };
            choices.iter().map(choice).collect::<Option<_>>()?
        }
        (None, None) => return None,
    };
    let mut options: Vec<(String, Value)> = Vec::new();
    for (label, value) in listed {
        let mut label = line(&label, LABEL);
        if label.is_empty() || options.iter().any(|(known, _)| *known == label) {
            label = line(&format!("{label} ({})", text(&value)), 2 * LABEL);
        }
        if !options.iter().any(|(known, _)| *known == label) {
            options.push((label, value));
        }
    }
    (!options.is_empty() && options.len() <= OPTIONS).then_some(options)
}

impl Field {
    /// The question for this field. `before` is what the server says of the whole form.
    fn question(&self, before: &str, problem: Option<&str>) -> Question {
        let mut parts: Vec<String> = Vec::new();
        parts.extend((!before.is_empty()).then(|| before.to_owned()));
        let optional = if self.required { "" } else { " (may be left out)" };
        let colon = if self.description.is_empty() { "" } else { ": " };
        parts.push(format!("{}{optional}{colon}{}", self.title, self.description));
        parts.extend(self.default.as_ref().map(|default| line(&format!("Default: {default}"), LABEL)));
        parts.extend(problem.map(|problem| format!("The answer did not fit: {problem}")));
        let option = |label: &str| QuestionOption { label: label.to_owned(), description: String::new() };
        let (options, multiple, custom) = match &self.kind {
            Kind::Choice { options, multiple } => {
                (options.iter().map(|(label, _)| option(label)).collect(), *multiple, false)
            }
            Kind::Boolean => (vec![option(YES), option(NO)], false, false),
            Kind::Number | Kind::Text => (Vec::new(), false, true),
        };
        let header = self.title.chars().take(LONGEST_HEADER).collect();
        Question { question: parts.join("\n"), header, options, multiple, custom }
    }

    /// The value of an answer; `None` for a field that is left out.
    fn read(&self, chosen: &[String]) -> Result<Option<Value>, String> {
        let Some(first) = chosen.first().filter(|text| !text.is_empty()) else {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, true) => Err("it must be answered".to_owned()),
                (None, false) => Ok(None),
            };
        };
        let value = match &self.kind {
            Kind::Choice { options, multiple } => {
                let value = |label: &String| {
                    let found = options.iter().find(|(known, _)| known == label);
                    found.map(|(_, value)| value.clone()).ok_or_else(|| format!("\"{label}\" is no option"))
                };
                if *multiple {
                    chosen.iter().map(value).collect::<Result<Value, _>>()?
                } else {
                    value(first)?
                }
            }
            Kind::Boolean => Value::Bool(first == YES),
            Kind::Number => {
                number(first).ok_or_else(|| format!("\"{}\" is not a number", line(first, LABEL)))?
            }
            Kind::Text => Value::String(first.clone()),
        };
        self.check.as_ref().map_or(Ok(()), |check| check.check(&value))?;
        Ok(Some(value))
    }
}

/// A text of a server, cut, and without characters that would change how the rest is shown.
fn plain(text: &str) -> String {
    let hides =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let kept: String = text.trim().chars().filter(|&c| c == '\n' || !(c.is_control() || hides(c))).collect();
    cut(&kept, TEXT)
}

fn number(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
}

#[cfg(test)]
mod tests;
