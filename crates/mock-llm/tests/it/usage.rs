//! How usage is reported: calls inside of answers, ways of service, several reports, lifetimes of caches.

use mock_llm::{InnerCall, Mock, Model, Reports, Script, Told, UsageOverride, text};
use playhouse_protocol::Tokens;
use serde_json::{Value, json};

use crate::support::{Answer, ask_all, ask_all_whole};

const COUNTS: UsageOverride = UsageOverride {
    input: Some(20),
    cache_read: Some(50),
    cache_write: Some(1),
    cache_write_30m: Some(2),
    cache_write_1h: Some(3),
    cache_write_12h: Some(4),
    output: Some(7),
    reasoning: Some(5),
    total: None,
};

fn mock(reports: Reports) -> Mock {
    Mock::new(Script::new().model("m", Model::new().step(text("fine").usage(COUNTS).reports(reports))))
}

/// The usage objects of an answer, in order.
fn usages(answer: &Answer) -> Vec<Value> {
    let places = ["/usage", "/message/usage", "/response/usage", "/usageMetadata"];
    let events = answer.events();
    let of = |event: &Value| places.iter().find_map(|place| event.pointer(place)).cloned();
    events.iter().filter_map(of).filter(|usage| !usage.is_null()).collect()
}

#[tokio::test]
async fn lifetimes_of_caches_are_told_where_the_format_has_them() {
    let mock = mock(Reports::default());
    let [messages, chat, responses, gemini] =
        ask_all(&mock, "m").await.map(|answer| usages(&answer).pop().unwrap());
    assert_eq!(messages["cache_creation_input_tokens"], 4);
    let ephemeral = json!({"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 3});
    assert_eq!((&messages["cache_creation"], &messages["input_tokens"]), (&ephemeral, &json!(26)));
    let details = json!({"cached_tokens": 50, "cache_write_tokens": 6,
        "cache_write_tokens_details": {"ttl_30m_tokens": 2, "ttl_12h_tokens": 4}});
    assert_eq!((&chat["prompt_tokens_details"], &chat["prompt_tokens"]), (&details, &json!(80)));
    assert_eq!((&responses["input_tokens_details"], &responses["input_tokens"]), (&details, &json!(80)));
    assert_eq!((&gemini["promptTokenCount"], &gemini["cachedContentTokenCount"]), (&json!(80), &json!(50)));
    let told: Vec<Tokens> = mock.journal().entries().iter().map(|entry| entry.reported.unwrap()).collect();
    let [messages, chat, responses, gemini] = told[..] else { panic!("{told:?}") };
    assert_eq!((messages.cache_write_5m, messages.cache_write_1h, messages.cache_writes()), (1, 3, 4));
    assert_eq!((chat.cache_write_30m, chat.cache_write_12h, chat.cache_writes()), (2, 4, 6));
    assert_eq!((responses, gemini.cache_writes(), gemini.all_input()), (chat, 0, 80));
}

#[tokio::test]
async fn calls_and_ways_of_service_are_told() {
    let call = |kind: &str, model: Option<&str>| InnerCall {
        kind: kind.to_owned(),
        model: model.map(str::to_owned),
        tokens: Tokens { input: 9, output: 2, ..Tokens::default() },
    };
    let reports = Reports {
        calls: vec![call("compaction", None), call("advisor_message", Some("other"))],
        tier: Some("flex".to_owned()),
        speed: Some("fast".to_owned()),
        region: Some("us".to_owned()),
        ..Reports::default()
    };
    let mock = mock(reports.clone());
    let streamed = ask_all(&mock, "m").await;
    for (number, answer) in streamed.iter().enumerate() {
        let usage = usages(answer).pop().unwrap();
        let [compaction, advisor] = &usage["iterations"].as_array().unwrap()[..] else { panic!("{usage}") };
        assert_eq!((&compaction["type"], compaction.get("model")), (&json!("compaction"), None));
        assert_eq!((&advisor["type"], &advisor["model"]), (&json!("advisor_message"), &json!("other")));
        let input = ["input_tokens", "prompt_tokens", "input_tokens", "promptTokenCount"][number];
        assert_eq!(advisor[input], 9, "{usage}");
        assert_eq!((&usage["speed"], &usage["inference_geo"]), (&json!("fast"), &json!("us")));
        let tier = match number {
            0 => usage["service_tier"] == "flex",
            3 => usage["trafficType"] == "ON_DEMAND_FLEX",
            _ => answer.text.contains("\"service_tier\":\"flex\"") && usage.get("service_tier").is_none(),
        };
        assert!(tier, "{}", answer.text);
    }
    // In one piece it is the same.
    let places = ["/usage", "/usage", "/usage", "/usageMetadata"];
    for ((answer, streamed), place) in ask_all_whole(&mock, "m").await.iter().zip(&streamed).zip(places) {
        assert_eq!(answer.json().pointer(place), usages(streamed).last());
    }
    assert!(mock.journal().entries().iter().all(|entry| entry.reports.as_deref() == Some(&reports)));
}

#[tokio::test]
async fn several_reports_come_one_after_the_other() {
    let told = vec![Told::Half, Told::Unsplit, Told::Counts, Told::NoLifetimes, Told::Nulls, Told::Zeros];
    let mock = mock(Reports { told, ..Reports::default() });
    let [messages, chat, responses, gemini] = ask_all(&mock, "m").await.map(|answer| usages(&answer));
    assert_eq!(messages[0], json!({"output_tokens": 1}), "nothing of the input is told before");
    let of = |usages: &[Value], name: &str| -> Vec<Value> {
        usages.iter().map(|usage| usage[name].clone()).collect()
    };
    assert_eq!(
        of(&messages[1..], "cache_read_input_tokens"),
        [json!(25), json!(0), json!(50), json!(50), Value::Null, json!(0)]
    );
    assert_eq!(of(&messages[1..], "output_tokens")[..3], [6, 12, 12]);
    assert!(messages[3]["cache_creation"].is_object() && messages[4].get("cache_creation").is_none());
    assert_eq!(
        of(&chat, "prompt_tokens"),
        [json!(40), json!(80), json!(80), json!(80), Value::Null, json!(0)]
    );
    assert_eq!(chat[1]["prompt_tokens_details"], json!({"cached_tokens": 0}));
    assert_eq!(chat[3]["prompt_tokens_details"], json!({"cached_tokens": 50, "cache_write_tokens": 6}));
    assert_eq!(of(&gemini, "candidatesTokenCount")[..3], [3, 12, 7]);
    assert_eq!((responses.len(), &responses[0]["input_tokens"]), (1, &json!(80)), "it reports once");
    // What takes something back is no count.
    assert!(mock.journal().entries().iter().all(|entry| entry.reported.unwrap().cache_read == 50));
}

#[tokio::test]
async fn a_usage_object_is_sent_as_it_is() {
    let object = json!({"prompt_tokens": 80.0, "mystery": {"dream_tokens": 7}});
    let reports = Reports { object: object.as_object().cloned(), ..Reports::default() };
    let mock = mock(reports);
    for answer in ask_all(&mock, "m").await {
        assert_eq!(usages(&answer).pop(), Some(object.clone()));
    }
    for entry in mock.journal().entries() {
        let told = entry.reported.unwrap();
        assert_eq!((told.input, told.cache_write_12h, told.reasoning), (20, 4, 5), "what it means");
    }
}
