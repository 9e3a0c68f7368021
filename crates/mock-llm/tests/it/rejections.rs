//! What providers say no with, and when they say to come back.

use mock_llm::{Fault, Mock, Model, Rejection, RetryAfter, Script, text};

use crate::support::{Answer, ask_all, ask_all_whole};

fn mock(fault: Fault) -> Mock {
    Mock::new(Script::new().model("m", Model::new().step(text("a").fault(fault))))
}

const FORMATS: [&str; 4] = ["anthropic", "chat", "responses", "gemini"];

/// The status, and the whole body, of each rejection in each format.
#[tokio::test]
async fn each_provider_has_its_own_words() {
    let mut told = String::new();
    for rejection in Rejection::ALL {
        let mock = mock(Fault::Rejected(rejection));
        let (streamed, whole) = (ask_all(&mock, "m").await, ask_all_whole(&mock, "m").await);
        for ((format, answer), whole) in FORMATS.iter().zip(&streamed).zip(&whole) {
            told += &format!("{rejection:?} {format}: {} {}\n", answer.status, answer.text);
            assert_eq!(answer.status, whole.status);
            if answer.status != 200 {
                assert_eq!(answer.header("content-type"), Some("application/json"));
                assert!(answer.json()["error"]["message"].is_string());
            }
        }
        assert!(mock.journal().entries().iter().all(|entry| entry.reported.is_none() && entry.tokens == 0));
    }
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn a_blocked_request_is_an_answer_of_the_asked_kind() {
    let mock = mock(Fault::Rejected(Rejection::ContentFilter));
    let [.., streamed] = ask_all(&mock, "m").await;
    assert_eq!(streamed.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(streamed.events()[0]["promptFeedback"]["blockReason"], "PROHIBITED_CONTENT");
    let [.., whole] = ask_all_whole(&mock, "m").await;
    assert_eq!(whole.json()["promptFeedback"]["blockReason"], "PROHIBITED_CONTENT");
}

#[tokio::test]
async fn statuses_say_when_to_come_back_or_not() {
    for code in [429, 529, 503] {
        let check = async |fault: Fault, name: &str, is_value: &dyn Fn(&str) -> bool| {
            for answer in ask_all(&mock(fault), "m").await {
                assert_eq!(answer.status, code);
                let values: Vec<&str> = answer
                    .headers
                    .iter()
                    .filter(|(header, _)| header.starts_with("retry-after"))
                    .map(|(header, value)| {
                        assert_eq!(header, name);
                        value.as_str()
                    })
                    .collect();
                assert!(if name.is_empty() { values.is_empty() } else { is_value(values[0]) }, "{values:?}");
            }
        };
        check(Fault::retry_after(code, 7), "retry-after", &|value| value == "7").await;
        check(Fault::come_back(code, RetryAfter::Ms(250)), "retry-after-ms", &|value| value == "250").await;
        check(Fault::come_back(code, RetryAfter::DateIn(3600)), "retry-after", &|value| {
            let date = httpdate::parse_http_date(value).unwrap();
            let wait = date.duration_since(std::time::SystemTime::now()).unwrap().as_secs();
            (3000..=3600).contains(&wait)
        })
        .await;
        check(Fault::status(code), "", &|_| false).await;
    }
}

#[tokio::test]
async fn a_redirect_names_a_place() {
    for answer in ask_all(&mock(Fault::redirect("http://127.0.0.1:1/elsewhere")), "m").await {
        assert_eq!((answer.status, answer.header("location")), (307, Some("http://127.0.0.1:1/elsewhere")));
    }
}

#[tokio::test]
async fn unknown_models_are_not_found() {
    let answers: [Answer; 4] = ask_all(&Mock::new(Script::new()), "nobody").await;
    for answer in answers {
        assert_eq!(answer.status, 404);
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("nobody"), "{}", answer.text);
    }
}
