//! Rates and delays.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use mock_llm::{Mock, MockOptions, Model, Script, reasoning, text, tokens};

use crate::support::{CHAT, MESSAGES, PATIENCE, ask, chat, messages, prompt, read};

#[tokio::test]
async fn each_token_comes_when_it_is_due() {
    let mock = Mock::new(Script::new().model("m", Model::new().step(tokens(20).rate(200.0))));
    let due = |tokens: usize| Duration::from_millis(5) * u32::try_from(tokens).unwrap();
    let start = Instant::now();
    let request = Bytes::from(messages("m", prompt()).to_string());
    let mut body = mock.respond(MESSAGES, &[], request).await.body;
    let (mut frames, mut said) = (0, String::new());
    let deltas = |said: &str| said.matches("\"content_block_delta\"").count();
    while let Some(frame) = body.next().await {
        let elapsed = start.elapsed();
        let before = deltas(&said);
        said.push_str(std::str::from_utf8(&frame.unwrap()).unwrap());
        frames += 1;
        assert!(elapsed >= due(deltas(&said).saturating_sub(1)), "{elapsed:?} is too early: {said}");
        assert!(deltas(&said) > before || said.contains("message_stop"), "a frame without a token");
    }
    assert_eq!(deltas(&said), 20);
    assert!(start.elapsed() >= due(20), "the end is too early");
    // One frame for each token, and one for what ends the answer; fewer where the machine was late.
    assert!((2..=21).contains(&frames), "{frames}");
}

#[tokio::test]
async fn tokens_that_are_due_together_go_together() {
    let mock = Mock::new(Script::new().model("m", Model::new().step(tokens(1000).rate(10_000.0))));
    let start = Instant::now();
    let answer = ask(&mock, CHAT, &chat("m", prompt())).await;
    let elapsed = start.elapsed().as_millis();
    assert!(elapsed >= 100, "{elapsed}");
    // The timer ticks once a millisecond, and ten tokens are due in that time. More ticks than that are the machine's.
    assert!(answer.frames <= 500, "{} in {elapsed} ms", answer.frames);
    assert_eq!(mock.journal().entries()[0].tokens, 1000);
}

#[tokio::test]
async fn the_nearest_rate_counts() {
    // An answer at this rate takes hours.
    const NEVER: f64 = 0.0001;
    let script = Script::new()
        .model("own", Model::new().step(tokens(10).rate(200.0)).next_turn().step(tokens(10)).rate(100.0))
        .model("fast", Model::new().step(tokens(10).rate(200.0)).rate(NEVER))
        .model("plain", Model::new().step(reasoning("one two three").text("four")));
    let at = |rate| {
        let options = MockOptions { rate: Some(rate), ..MockOptions::default() };
        Mock::with_options(script.clone(), options).unwrap()
    };
    let took = async |mock: &Mock, request| {
        let start = Instant::now();
        tokio::time::timeout(PATIENCE, ask(mock, CHAT, &request))
            .await
            .expect("it is at a rate farther away");
        start.elapsed().as_millis()
    };
    let never = at(NEVER);
    assert!(took(&never, chat("own", prompt())).await >= 50);
    let two = serde_json::json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]);
    assert!(took(&never, chat("own", two)).await >= 100);
    assert!(took(&never, chat("fast", prompt())).await >= 50);
    let mock = at(100.0);
    assert!(took(&mock, chat("plain", prompt())).await >= 40);
    let mut in_one_piece = chat("plain", prompt());
    in_one_piece["stream"] = false.into();
    assert!(took(&mock, in_one_piece).await >= 40);
}

#[tokio::test]
async fn a_delay_is_before_the_head() {
    let step = text("a").delay(Duration::from_millis(50));
    let mock = Mock::new(Script::new().model("m", Model::new().step(step)));
    let start = Instant::now();
    let request = Bytes::from(messages("m", prompt()).to_string());
    let response = mock.respond(MESSAGES, &[], request).await;
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!(read(response).now_or_never().expect("the body waits").said(), "a");
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
