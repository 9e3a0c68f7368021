//! `question`: asks the people behind the session, and waits.

use playhouse_protocol::question::{
    LONGEST_HEADER, MOST_QUESTIONS, Question as Asked, QuestionAnswer, QuestionOption,
};
use playhouse_protocol::record::{Effect, Recovery};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::tool::{CallContext, Risk, ToolError, ToolOutput};
use crate::{Ready, TypedTool};

/// The longest question, in characters.
const LONGEST_QUESTION: usize = 2_000;
/// The most options of a question.
const MOST_OPTIONS: usize = 20;
/// The longest label of an option, in characters.
const LONGEST_LABEL: usize = 100;
/// The longest description of an option, in characters.
const LONGEST_DESCRIPTION: usize = 500;

/// The tool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Question;

/// The arguments of `question`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    questions: Vec<WrittenQuestion>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WrittenQuestion {
    question: String,
    header: String,
    #[serde(default)]
    options: Option<Vec<WrittenOption>>,
    #[serde(default)]
    multiple: Option<bool>,
    #[serde(default)]
    custom: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WrittenOption {
    label: String,
    #[serde(default)]
    description: Option<String>,
}

impl WrittenQuestion {
    fn read(self) -> Asked {
        let options = self.options.unwrap_or_default().into_iter().map(|option| QuestionOption {
            label: option.label.trim().to_owned(),
            description: option.description.unwrap_or_default().trim().to_owned(),
        });
        Asked {
            question: self.question.trim().to_owned(),
            header: self.header.trim().to_owned(),
            options: options.collect(),
            multiple: self.multiple.unwrap_or(false),
            custom: self.custom.unwrap_or(true),
        }
    }
}

impl TypedTool for Question {
    const NAME: &'static str = "question";
    const DESCRIPTION: &'static str = include_str!("../../../prompts/tools/question.md");
    const RISK: Risk = Risk::Safe;
    type Arguments = Arguments;
    type Task = Vec<Asked>;

    async fn prepare(&self, arguments: Arguments, _: &CallContext) -> Result<Ready<Vec<Asked>>, ToolError> {
        let questions: Vec<Asked> = arguments.questions.into_iter().map(WrittenQuestion::read).collect();
        check(&questions).map_err(ToolError::Invalid)?;
        Ok(Ready {
            accesses: Vec::new(),
            effect: Effect::None,
            recovery: Recovery::Reattach,
            preview: questions.iter().map(|asked| asked.question.as_str()).collect::<Vec<_>>().join("\n"),
            title: title(&questions),
            task: questions,
        })
    }

    async fn execute(&self, questions: Vec<Asked>, context: &CallContext) -> Result<ToolOutput, ToolError> {
        let answer = tokio::select! {
            biased;
            () = context.cancel.cancelled() => QuestionAnswer::Withdrawn,
            answer = context.host.ask(questions.clone()) => answer,
        };
        let nothing =
            |why: &str| format!("not answered: {why}. Go on with what seems best, and say what you assumed");
        let (output, answers) = match answer {
            QuestionAnswer::Answered { answers } => (told(&questions, &answers), json!(answers)),
            QuestionAnswer::Rejected => {
                (nothing("nobody is there to answer, or they would not"), Value::Null)
            }
            QuestionAnswer::TimedOut => (nothing("nobody answered in time"), Value::Null),
            QuestionAnswer::Withdrawn => {
                return Err(ToolError::Cancelled("the question was not answered".to_owned()));
            }
        };
        let mut metadata = Map::new();
        metadata.insert("answers".to_owned(), answers);
        Ok(ToolOutput { title: title(&questions), output, metadata, ..ToolOutput::default() })
    }
}

/// What is wrong with the questions.
fn check(questions: &[Asked]) -> Result<(), String> {
    if !(1..=MOST_QUESTIONS).contains(&questions.len()) {
        return Err(format!("ask 1 to {MOST_QUESTIONS} questions in a call, not {}", questions.len()));
    }
    for (index, asked) in questions.iter().enumerate() {
        let at = format!("questions[{index}]");
        bounded(&format!("{at}.question"), &asked.question, LONGEST_QUESTION)?;
        bounded(&format!("{at}.header"), &asked.header, LONGEST_HEADER)?;
        if asked.options.len() > MOST_OPTIONS {
            return Err(format!("{at} has {} options, and at most {MOST_OPTIONS}", asked.options.len()));
        }
        if asked.options.is_empty() && !asked.custom {
            return Err(format!("{at} cannot be answered: give options, or leave out `custom`"));
        }
        for (place, option) in asked.options.iter().enumerate() {
            let at = format!("{at}.options[{place}]");
            bounded(&format!("{at}.label"), &option.label, LONGEST_LABEL)?;
            if option.description.chars().count() > LONGEST_DESCRIPTION {
                return Err(format!("{at}.description has more than {LONGEST_DESCRIPTION} characters"));
            }
            if asked.options[..place].iter().any(|before| before.label == option.label) {
                return Err(format!(
                    "{at}.label is the same as one before it: answers could not be told apart"
                ));
            }
        }
    }
    Ok(())
}

fn bounded(at: &str, text: &str, most: usize) -> Result<(), String> {
    match text.chars().count() {
        0 => Err(format!("{at} is empty")),
        length if length > most => Err(format!("{at} has {length} characters, and at most {most}")),
        _ => Ok(()),
    }
}

fn title(questions: &[Asked]) -> String {
    questions.iter().map(|asked| asked.header.as_str()).collect::<Vec<_>>().join(", ")
}

/// Each question with its answer.
fn told(questions: &[Asked], answers: &[Vec<String>]) -> String {
    let line = |(index, asked): (usize, &Asked)| {
        let chosen = answers.get(index).map(|chosen| chosen.join(", ")).filter(|text| !text.is_empty());
        format!("{}\n→ {}", asked.question, chosen.unwrap_or_else(|| "not answered".to_owned()))
    };
    questions.iter().enumerate().map(line).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::testing::{self, Person};
    use crate::{Registry, Typed};

    fn asked(header: &str) -> Value {
        json!({
            "question": format!("What about {header}?"),
            "header": header,
            "options": [{"label": "Keep", "description": "as it is"}, {"label": "Drop", "description": "all of it"}],
        })
    }

    async fn ask(input: Value, answer: Option<QuestionAnswer>) -> Result<ToolOutput, ToolError> {
        let folder = tempfile::tempdir().unwrap();
        let mut context = testing::context(folder.path(), &folder.path().join("outputs")).unwrap();
        let (silent, asked) = (answer.is_none(), CancellationToken::new());
        context.host = Arc::new(Person { answer, asked: asked.clone(), ..Person::default() });
        let mut registry = Registry::new();
        registry.add(Arc::new(Typed::new(Question))).unwrap();
        let calling = testing::call(&registry, "question", &input, &context);
        let cancelling = async {
            if silent {
                asked.cancelled().await;
                context.cancel.cancel();
            }
        };
        tokio::join!(calling, cancelling).0
    }

    #[tokio::test]
    async fn each_question_stands_with_its_answer() {
        let answers = vec![vec!["Keep".to_owned(), "Drop".to_owned()], vec![], vec!["neither".to_owned()]];
        let input = json!({"questions": [asked("one"), asked("two"), asked("three")]});
        let result = ask(input, Some(QuestionAnswer::Answered { answers })).await.unwrap();
        assert_eq!(
            result.output,
            "What about one?\n→ Keep, Drop\n\nWhat about two?\n→ not answered\n\nWhat about three?\n→ neither"
        );
        assert_eq!(result.title, "one, two, three");
        assert_eq!(result.metadata["answers"], json!([["Keep", "Drop"], [], ["neither"]]));
    }

    #[tokio::test]
    async fn the_model_is_told_when_nobody_answers() {
        for (answer, why) in [
            (QuestionAnswer::Rejected, "nobody is there to answer, or they would not"),
            (QuestionAnswer::TimedOut, "in time"),
        ] {
            let result = ask(json!({"questions": [asked("one")]}), Some(answer)).await.unwrap();
            assert!(result.output.starts_with("not answered: ") && result.output.contains(why));
            assert_eq!(result.metadata["answers"], Value::Null);
        }
        let error = ask(json!({"questions": [asked("one")]}), None).await.unwrap_err();
        assert_eq!(error.to_string(), "cancelled: the question was not answered");
    }

    #[tokio::test]
    async fn what_cannot_be_asked_is_refused() {
        let with = |key: &str, value: Value| {
            let mut question = asked("one");
            question[key] = value;
            json!({"questions": [question]})
        };
        let same = json!([{"label": "a", "description": ""}, {"label": "a ", "description": ""}]);
        for (input, says) in [
            (json!({}), "`questions` is missing"),
            (json!({"questions": []}), "1 to 4 questions in a call, not 0"),
            (json!({"questions": vec![asked("x"); 5]}), "1 to 4 questions in a call, not 5"),
            (with("header", json!("x".repeat(31))), "questions[0].header has 31 characters, and at most 30"),
            (with("header", json!(" ")), "questions[0].header is empty"),
            (with("question", json!("")), "questions[0].question is empty"),
            (with("options", same), "questions[0].options[1].label is the same"),
            (with("options", json!([{"label": "", "description": "x"}])), "options[0].label is empty"),
            (with("options", json!(["yes"])), "`questions[0].options[0]` must be an object"),
            (
                json!({"questions": [{"question": "q", "header": "h", "options": [], "custom": false}]}),
                "cannot be answered",
            ),
        ] {
            let error = ask(input, Some(QuestionAnswer::Rejected)).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
