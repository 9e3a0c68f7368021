//! Rules of real providers.

mod anthropic;
mod compatible;
mod gemini;
mod openai;
mod program;
mod reasoning;
mod thinking;

use bytes::Bytes;
use mock_llm::{Mock, MockOptions, Model, Rules, Script, Step, text};
use serde_json::{Value, json};

use crate::support::{Answer, read};

/// A mock with rules, whose model `name` says `steps` in one turn.
fn mock_with(rules: Rules, name: &str, steps: impl IntoIterator<Item = Step>) -> Mock {
    let model = steps.into_iter().fold(Model::new(), Model::step);
    Mock::with_rules(Script::new().model(name, model), MockOptions::default(), rules).unwrap()
}

/// The answer to a request with these fields set, by a mock with these rules.
async fn answer_with(
    rules: Rules,
    path: &str,
    headers: &[(&str, &str)],
    mut request: Value,
    set: &Value,
) -> Answer {
    for (name, value) in set.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    let name = request["model"].as_str().unwrap_or_else(|| path.split(['/', ':']).rev().nth(1).unwrap());
    let mock = mock_with(rules, name, [text("Fine.")]);
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let answer = read(mock.respond(path, &headers, Bytes::from(request.to_string())).await).await;
    let note = mock.journal().entries().pop().unwrap().rules;
    let report = mock.rules_report();
    if answer.status == 200 {
        assert_eq!((note, report.total.refused), (None, 0));
    } else {
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(note.unwrap().refused.unwrap(), message);
        assert_eq!((report.total.refused, report.models[name].messages[&message]), (1, 1));
    }
    answer
}

/// A request without the field `name`.
fn without(mut request: Value, name: &str) -> Value {
    request.as_object_mut().unwrap().remove(name);
    request
}

/// An error of OpenAI's formats.
fn openai_error(message: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}})
}
