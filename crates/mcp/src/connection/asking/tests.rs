use std::collections::VecDeque;
use std::sync::Mutex;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_policy::Verdict;
use playhouse_protocol::question::Todo;
use playhouse_tools::{Alone, Prepared, Showing, Tool, ToolError};

use super::*;

/// Somebody who gives these answers, one after another, and then none any more.
struct Script {
    alone: Alone,
    answers: Mutex<VecDeque<QuestionAnswer>>,
    asked: Mutex<Vec<Vec<Question>>>,
}

impl Host for Script {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.alone.find(tool)
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        self.alone.judge(tool, prepared)
    }

    fn showing(&self) -> Showing {
        self.alone.showing()
    }

    fn todos(&self) -> Arc<[Todo]> {
        self.alone.todos()
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        self.asked.lock().unwrap().push(questions);
        let answer = self.answers.lock().unwrap().pop_front();
        std::future::ready(answer.unwrap_or(QuestionAnswer::TimedOut)).boxed()
    }
}

fn said(answers: &[&[&str]]) -> QuestionAnswer {
    let owned = |labels: &&[&str]| labels.iter().map(|&label| label.to_owned()).collect();
    QuestionAnswer::Answered { answers: answers.iter().map(owned).collect() }
}

async fn ask(question: Elicitation, answers: Vec<QuestionAnswer>) -> (ElicitationAnswer, Vec<Vec<Question>>) {
    let host = Arc::new(Script {
        alone: Alone::default(),
        answers: Mutex::new(answers.into()),
        asked: Mutex::default(),
    });
    let answer = Asker::new(Arc::<Script>::clone(&host)).ask("shed", question).await;
    let asked = host.asked.lock().unwrap().clone();
    (answer, asked)
}

fn form(properties: Value, required: Value) -> Elicitation {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    Elicitation::Form { message: "Which colour?".into(), schema }
}

fn accepted(content: Value) -> ElicitationAnswer {
    ElicitationAnswer::Accept(Some(content))
}

#[tokio::test]
async fn each_property_is_a_question() {
    let properties = json!({
        "colour": {"type": "string", "enum": ["red", "green"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
        "sure": {"type": "boolean", "title": "Are you sure?"},
        "count": {"type": "integer", "minimum": 1, "description": "How many"},
        "note": {"type": "string"},
        "kind": {"type": "string", "default": "plain"},
    });
    let answers = vec![said(&[&["green"], &["Large"], &["a", "c"], &["Yes"]]), said(&[&["3"], &[], &[]])];
    let (answer, asked) = ask(form(properties, json!(["colour", "count"])), answers).await;
    let expected = json!({
        "colour": "green", "size": "l", "extras": ["a", "c"], "sure": true, "count": 3, "kind": "plain",
    });
    assert_eq!(answer, accepted(expected));
    assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [4, 3]);
    let first = &asked[0][0];
    assert_eq!(first.question, "The server shed asks: Which colour?\ncolour");
    assert_eq!((first.header.as_str(), first.options.len(), first.custom), ("colour", 2, false));
    assert!(asked[0][2].multiple && asked[0][3].header == "Are you sure?");
    assert_eq!(asked[1][0].question, "The server shed asks: Which colour?\ncount: How many");
    assert!(asked[1][0].custom && asked[1][2].question.ends_with("Default: \"plain\""));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_again() {
    let number = || form(json!({"n": {"type": "integer", "minimum": 2}}), json!(["n"]));
    let (answer, asked) = ask(number(), vec![said(&[&["two"]]), said(&[&["1"]]), said(&[&["2"]])]).await;
    assert_eq!(answer, accepted(json!({"n": 2})));
    assert!(asked[1][0].question.ends_with("The answer did not fit: \"two\" is not a number"), "{asked:?}");
    assert!(asked[2][0].question.ends_with("1 is less than the minimum of 2"), "{asked:?}");
    let (answer, asked) = ask(number(), vec![said(&[&[]]), said(&[&["1.5"]]), said(&[&["x"]])]).await;
    assert_eq!((answer, asked.len()), (ElicitationAnswer::Cancel, 3));
    assert!(asked[1][0].question.ends_with("it must be answered"));
}

#[tokio::test]
async fn whoever_does_not_answer_declines_or_cancels() {
    let question = || form(json!({"a": {"type": "string"}}), json!([]));
    let (answer, _) = ask(question(), vec![QuestionAnswer::Rejected]).await;
    assert!(matches!(answer, ElicitationAnswer::Decline(_)));
    for left in [QuestionAnswer::TimedOut, QuestionAnswer::Withdrawn] {
        assert_eq!(ask(question(), vec![left]).await.0, ElicitationAnswer::Cancel);
    }
}

#[tokio::test]
async fn a_form_without_fields_is_confirmed() {
    let (answer, asked) = ask(form(json!({}), json!([])), vec![said(&[&["Yes"]])]).await;
    assert_eq!(answer, accepted(json!({})));
    assert_eq!(asked[0][0].question, "The server shed asks: Which colour?");
    let (answer, _) = ask(form(json!({}), json!([])), vec![said(&[&["No"]])]).await;
    assert!(matches!(answer, ElicitationAnswer::Decline(_)));
}

#[test]
fn a_text_cannot_change_how_the_rest_is_shown() {
    assert_eq!(plain(" a\u{1b}[2J\n\u{202e}b\r "), "a[2J\nb");
}

#[tokio::test]
async fn an_address_is_shown_whole_and_never_opened() {
    let page = |url: &str| Elicitation::Url { message: "Sign in".into(), url: url.into() };
    let (answer, asked) = ask(page("https://exämple.org/a?b=c"), vec![said(&[&["Yes"]])]).await;
    assert_eq!(answer, ElicitationAnswer::Accept(None));
    assert!(asked[0][0].question.contains("https://xn--exmple-cua.org/a?b=c\nSign in"), "{asked:?}");
    let (answer, _) = ask(page("https://example.org"), vec![said(&[&["No"]])]).await;
    assert!(matches!(answer, ElicitationAnswer::Decline(_)));
    let long = format!("https://example.org/{}", "a".repeat(ADDRESS));
    for url in ["file:///etc/passwd", "javascript:alert(1)", "no address", &long] {
        let (answer, asked) = ask(page(url), Vec::new()).await;
        assert!(matches!(answer, ElicitationAnswer::Decline(_)) && asked.is_empty(), "{url}");
    }
}
