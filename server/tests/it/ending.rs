//! How a server ends.

use std::time::Duration;

use mock_llm::{Model, Script, text};
use playhouse_protocol::Prompt;

use crate::support::{PATIENCE, Served, Site};

/// Answers at once as `greeter`, after a while as `slow`, and never as `silent`.
fn script() -> Script {
    Script::new()
        .model("greeter", Model::new().step(text("Hello!")).cycle())
        .model("slow", Model::new().step(text("Well.").delay(Duration::from_millis(300))).cycle())
        .model("silent", Model::new().step(text("…").delay(Duration::from_secs(3_600))).cycle())
}

/// Waits until `/readyz` says so.
async fn ready(served: &Served, status: u16) {
    let wait = async {
        while served.get("/readyz").await.status != status {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it becomes so");
}

#[tokio::test]
async fn while_it_drains_it_is_not_ready_takes_no_prompts_and_lets_turns_end() {
    let ground = Site::new();
    let served = ground.serve(script(), |options| options.grace = PATIENCE).await;
    ready(&served, 200).await;
    let (slow, silent) = (served.session("local", "slow").await, served.session("local", "silent").await);
    slow.prompt(Prompt::text("Well?")).await.unwrap();
    silent.prompt(Prompt::text("Are you there?")).await.unwrap();
    served.stop();
    ready(&served, 503).await;
    assert!(served.get("/readyz").await.header("retry-after").is_some());
    assert_eq!(served.get("/healthz").await.status, 200);
    let path = format!("/v1/sessions/{}/prompts", slow.id());
    let refused = served.ask("POST", &path, &[], r#"{"text": "More."}"#).await;
    assert_eq!((refused.problem().as_str(), refused.status), ("overloaded", 503));
    let wait = async {
        while served.app.engine().unfinished().await.unwrap() != [silent.id()] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the slow turn ends");
    // The other one would hold it up for the whole grace.
    served.hurry();
    let ended = served.ended().await;
    assert_eq!((ended.finished, ended.suspended, ended.stopped.stragglers.len()), (1, 1, 0), "{ended:?}");
    assert_eq!(ended.stopped.sessions, 2);
}

#[tokio::test]
async fn the_grace_ends_and_what_was_suspended_goes_on_at_the_next_start() {
    let ground = Site::new();
    let served = ground.serve(script(), |options| options.grace = Duration::from_millis(20)).await;
    let session = served.session("local", "silent").await;
    session.prompt(Prompt::text("Are you there?")).await.unwrap();
    served.stop();
    let ended = served.ended().await;
    assert_eq!((ended.finished, ended.suspended), (0, 1));
    // The model found its voice.
    let again = Script::new().model("silent", Model::new().step(text("Here.")).cycle());
    let served = ground.serve(again, |_| {}).await;
    let wait = async {
        while !served.app.engine().unfinished().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the turn goes on without anybody asking");
    assert_eq!(served.app.engine().summary(session.id()).await.unwrap().turns, 1);
}

#[tokio::test]
async fn an_idle_server_ends_at_once_whoever_is_connected() {
    let served = Site::new().serve(script(), |_| {}).await;
    let mut idle = tokio::net::TcpStream::connect(served.address).await.unwrap();
    assert_eq!(served.get("/healthz").await.status, 200);
    let address = served.address;
    served.stop();
    let ended = served.ended().await;
    assert_eq!((ended.finished, ended.suspended, ended.cut), (0, 0, 0), "{ended:?}");
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut idle, &mut rest);
    assert_eq!(tokio::time::timeout(PATIENCE, read).await.expect("it is closed").unwrap_or(0), 0);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
