//! What a turn asks, as elicitation asks the people behind a client; and what their answers say to the engine.

use playhouse_protocol::question::{Question, QuestionAsked};
use playhouse_protocol::{ConsentAsked, SessionId};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::tools::{Waits, line_of};

/// The longest preview in a message, in characters.
const LONGEST_PREVIEW: usize = 8_000;

/// A request of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    /// The session that asks.
    pub(crate) session: SessionId,
    /// The id of the request.
    pub(crate) id: String,
}

impl Key {
    /// Its name among the requests of one result.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.session, self.id)
    }
}

/// A request of a session, and what it asks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) session: SessionId,
    pub(crate) asked: Asked,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// May a call run?
    Consent(Box<ConsentAsked>),
    /// One to four questions.
    Questions(QuestionAsked),
}

/// A request to the API that answers one of a session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) path: String,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn key(&self) -> Key {
        let id = match &self.asked {
            Asked::Consent(asked) => asked.consent.to_string(),
            Asked::Questions(asked) => asked.question.to_string(),
        };
        Key { session: self.session, id }
    }

    /// For the status of a session.
    pub(crate) fn waits(&self) -> Waits {
        Waits { session: self.session, tool: self.tool(), asked: self.line() }
    }

    pub(crate) fn tool(&self) -> String {
        match &self.asked {
            Asked::Consent(asked) => asked.tool.clone(),
            Asked::Questions(_) => "question".to_owned(),
        }
    }

    /// What it asks, in one line.
    pub(crate) fn line(&self) -> String {
        match &self.asked {
            Asked::Consent(asked) => line_of(asked),
            Asked::Questions(asked) => {
                let texts: Vec<_> =
                    asked.questions.iter().map(|question| question.question.as_str()).collect();
                texts.join(" ").chars().take(400).collect()
            }
        }
    }

    /// The request to the people behind the client; `None` where it cannot be made of the questions.
    pub(crate) fn elicitation(&self) -> Option<ElicitRequestParams> {
        let (message, properties, required) = match &self.asked {
            Asked::Consent(asked) => (consent_message(asked), Map::new(), Vec::new()),
            Asked::Questions(asked) => {
                let texts: Vec<_> = asked
                    .questions
                    .iter()
                    .map(|question| format!("{}: {}", question.header, question.question))
                    .collect();
                let mut properties = Map::new();
                let mut required = Vec::new();
                for (place, question) in asked.questions.iter().enumerate() {
                    if !question.custom && !question.options.is_empty() {
                        required.push(name(place));
                    }
                    add_properties(&mut properties, place, question);
                }
                (texts.join("\n"), properties, required)
            }
        };
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
        Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
    }

    /// What the people's answer says to the engine.
    pub(crate) fn reply(&self, result: &ElicitResult) -> Reply {
        match (&self.asked, &result.action) {
            (Asked::Consent(_), ElicitationAction::Accept) => self.answer(json!({"answer": "once"})),
            (Asked::Questions(asked), ElicitationAction::Accept) => {
                let content = result.content.as_ref().and_then(Value::as_object);
                let empty = Map::new();
                let content = content.unwrap_or(&empty);
                let answers: Vec<Vec<String>> = asked
                    .questions
                    .iter()
                    .enumerate()
                    .map(|(place, question)| answers_of(content, place, question))
                    .collect();
                self.answer(json!({"answers": answers}))
            }
            _ => self.refusal("the people behind the calling agent declined"),
        }
    }

    /// Says that it is not granted.
    pub(crate) fn refusal(&self, why: &str) -> Reply {
        match &self.asked {
            Asked::Consent(_) => self.answer(json!({"answer": "decline", "message": why})),
            Asked::Questions(_) => self.answer(json!({"reject": true})),
        }
    }

    fn answer(&self, body: Value) -> Reply {
        let Key { session, id } = self.key();
        let kind = match &self.asked {
            Asked::Consent(_) => "consents",
            Asked::Questions(_) => "questions",
        };
        Reply { path: format!("/v1/sessions/{session}/{kind}/{id}"), body }
    }
}

fn consent_message(asked: &ConsentAsked) -> String {
    let mut message = format!("The tool {} asks for consent, this once: {}", asked.tool, asked.reason);
    if !asked.preview.is_empty() {
        let shown: String = asked.preview.chars().take(LONGEST_PREVIEW).collect();
        let left = asked.preview.chars().count() - shown.chars().count();
        message.push_str("\n\n");
        message.push_str(&shown);
        if left > 0 {
            message.push_str(&format!("\n… ({left} more characters are not shown)"));
        }
    }
    message
}

fn name(place: usize) -> String {
    format!("answer_{}", place + 1)
}

fn own_words(place: usize) -> String {
    format!("answer_{}_own_words", place + 1)
}

fn add_properties(properties: &mut Map<String, Value>, place: usize, question: &Question) {
    if question.options.is_empty() {
        let property = json!({"type": "string", "title": question.header, "description": question.question});
        properties.insert(name(place), property);
        return;
    }
    let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
    let meanings: Vec<String> =
        question.options.iter().map(|option| format!("{}: {}", option.label, option.description)).collect();
    let description = format!("{} ({})", question.question, meanings.join("; "));
    let mut property = json!({"title": question.header, "description": description});
    if question.multiple {
        property["type"] = "array".into();
        property["items"] = json!({"type": "string", "enum": labels});
    } else {
        property["type"] = "string".into();
        property["enum"] = labels.into();
    }
    properties.insert(name(place), property);
    if question.custom {
        let title = format!("{} (in your own words)", question.header);
        properties.insert(own_words(place), json!({"type": "string", "title": title}));
    }
}

/// The labels that were chosen, and what was written. What is no option of a question without own words is left out.
fn answers_of(content: &Map<String, Value>, place: usize, question: &Question) -> Vec<String> {
    let texts = |name: String| -> Vec<String> {
        match content.get(&name) {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    let takes_all = question.custom || question.options.is_empty();
    let is_option = |text: &String| question.options.iter().any(|option| option.label == *text);
    let mut answers: Vec<String> =
        texts(name(place)).into_iter().filter(|text| takes_all || is_option(text)).collect();
    if question.custom {
        answers.extend(texts(own_words(place)));
    }
    answers.retain(|text| !text.trim().is_empty());
    if !question.multiple {
        // Own words say more than the choice beside them.
        answers = answers.pop().into_iter().collect();
    }
    answers
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::question::QuestionOption;

    use super::*;

    fn question(labels: &[&str], multiple: bool, custom: bool) -> Question {
        let option = |label: &&str| QuestionOption {
            label: (*label).to_owned(),
            description: format!("take {label}"),
        };
        Question {
            question: "Which?".to_owned(),
            header: "Choice".to_owned(),
            options: labels.iter().map(option).collect(),
            multiple,
            custom,
        }
    }

    fn request(questions: Vec<Question>) -> Request {
        let asked = QuestionAsked {
            question: "que_00000000000012345678901234".parse().unwrap(),
            call: "prt_00000000000012345678901234".parse().unwrap(),
            questions,
        };
        let session = "ses_00000000000012345678901234".parse().unwrap();
        Request { session, asked: Asked::Questions(asked) }
    }

    #[test]
    fn questions_are_forms_with_their_options() {
        let request = request(vec![
            question(&["Red", "Blue"], false, false),
            question(&["S", "M"], true, true),
            question(&[], false, true),
        ]);
        let asked = serde_json::to_value(request.elicitation().unwrap()).unwrap();
        let schema = &asked["requestedSchema"];
        assert_eq!(schema["properties"]["answer_1"]["enum"], json!(["Red", "Blue"]), "{asked}");
        assert_eq!(schema["properties"]["answer_2"]["items"]["enum"], json!(["S", "M"]), "{asked}");
        assert_eq!(schema["properties"]["answer_3"]["type"], "string", "{asked}");
        assert_eq!(schema["required"], json!(["answer_1"]), "{asked}");
        let mut result = ElicitResult::new(ElicitationAction::Accept);
        result.content = Some(json!({
            "answer_1": "Blue",
            "answer_2": ["S"],
            "answer_2_own_words": "huge",
            "answer_3": "no",
        }));
        let reply = request.reply(&result);
        assert_eq!(reply.body, json!({"answers": [["Blue"], ["S", "huge"], ["no"]]}));
        assert!(reply.path.ends_with("/questions/que_00000000000012345678901234"), "{}", reply.path);
    }

    #[test]
    fn what_is_no_option_is_no_answer() {
        let request = request(vec![question(&["Red"], false, false)]);
        let mut result = ElicitResult::new(ElicitationAction::Accept);
        result.content = Some(json!({"answer_1": "Green"}));
        assert_eq!(request.reply(&result).body, json!({"answers": [[]]}));
        result.content = Some(json!(7));
        assert_eq!(request.reply(&result).body, json!({"answers": [[]]}));
        let declined = ElicitResult::new(ElicitationAction::Cancel);
        assert_eq!(request.reply(&declined).body, json!({"reject": true}));
    }
}
