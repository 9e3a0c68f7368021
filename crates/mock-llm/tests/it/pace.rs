//! Rates and delays, on a clock that stands still until everything waits.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use mock_llm::{Mock, MockOptions, Model, Script, reasoning, text, tokens};
use tokio::time::Instant;

use crate::support::{CHAT, MESSAGES, ask, chat, messages, prompt, read};

#[tokio::test(start_paused = true)]
async fn each_token_comes_when_it_is_due() {
    let mock = Mock::new(Script::new().model("m", Model::new().step(tokens(40).rate(20.0))));
    let start = Instant::now();
    let answer = ask(&mock, MESSAGES, &messages("m", prompt())).await;
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    // One frame for each token, and one for what ends the answer.
    assert_eq!(answer.frames, 41);
    assert_eq!(answer.events().iter().filter(|event| event["type"] == "content_block_delta").count(), 40);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_due_together_go_together() {
    // The timer ticks once a millisecond, and ten tokens are due in that time.
    let mock = Mock::new(Script::new().model("m", Model::new().step(tokens(1000).rate(10_000.0))));
    let start = Instant::now();
    let answer = ask(&mock, CHAT, &chat("m", prompt())).await;
    let elapsed = start.elapsed().as_millis();
    assert!((100..=101).contains(&elapsed), "{elapsed}");
    assert!(answer.frames <= 102, "{}", answer.frames);
    assert_eq!(mock.journal().entries()[0].tokens, 1000);
}

#[tokio::test(start_paused = true)]
async fn the_nearest_rate_counts() {
    let script = Script::new()
        .model("own", Model::new().step(tokens(10).rate(10.0)).next_turn().step(tokens(10)).rate(5.0))
        .model("plain", Model::new().step(reasoning("one two three").text("four")));
    let options = MockOptions { rate: Some(1.0), ..MockOptions::default() };
    let mock = Mock::with_options(script, options).unwrap();
    let took = async |request| {
        let start = Instant::now();
        ask(&mock, CHAT, &request).await;
        start.elapsed().as_secs()
    };
    assert_eq!(took(chat("own", prompt())).await, 1);
    let two = serde_json::json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]);
    assert_eq!(took(chat("own", two)).await, 2);
    assert_eq!(took(chat("plain", prompt())).await, 4);
    let mut in_one_piece = chat("plain", prompt());
    in_one_piece["stream"] = false.into();
    assert_eq!(took(in_one_piece).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_before_the_head() {
    let step = text("a").delay(Duration::from_millis(1500));
    let mock = Mock::new(Script::new().model("m", Model::new().step(step)));
    let start = Instant::now();
    let request = Bytes::from(messages("m", prompt()).to_string());
    let response = mock.respond(MESSAGES, &[], request).await;
    assert_eq!(start.elapsed(), Duration::from_millis(1500));
    assert_eq!(read(response).await.said(), "a");
    assert_eq!(start.elapsed(), Duration::from_millis(1500));
}

#[tokio::test]
async fn at_full_speed_events_share_frames() {
    let mock = Mock::new(Script::new());
    let request = Bytes::from(messages("tokens-20000", prompt()).to_string());
    let mut body = mock.respond(MESSAGES, &[], request).await.body;
    let mut sizes = Vec::new();
    while let Some(frame) = body.next().await {
        sizes.push(frame.unwrap().len());
    }
    let (last, full) = sizes.split_last().unwrap();
    assert!(full.iter().all(|size| (16_384..17_500).contains(size)), "{sizes:?}");
    assert!((1..17_500).contains(last));
}
