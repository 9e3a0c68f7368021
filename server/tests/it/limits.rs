//! What a tenant may have, over the native API.

use std::time::Duration;

use mock_llm::{Model, Script, text};
use playhouse_protocol::{MessageId, Prompt};
use playhouse_server::{ServerOptions, TenantLimits};
use serde_json::json;

use crate::support::{Answer, PATIENCE, Served, Site};

fn script() -> Script {
    Script::new()
        .model("greeter", Model::new().step(text("Hello!")).cycle())
        .model("silent", Model::new().step(text("…").delay(Duration::from_secs(3_600))).cycle())
}

async fn served(site: &Site, limits: TenantLimits) -> Served {
    site.serve(script(), |options: &mut ServerOptions| options.limits = limits).await
}

async fn create(served: &Served, key: &str) -> Answer {
    let directory = served.app.roots().first().unwrap().to_string_lossy().into_owned();
    let body = serde_json::json!({"workspace": directory}).to_string();
    served.ask("POST", "/v1/sessions", &[("authorization", &format!("Bearer {key}"))], &body).await
}

async fn prompt(served: &Served, key: &str, session: &str) -> Answer {
    let path = format!("/v1/sessions/{session}/prompts");
    let headers = [("authorization", &*format!("Bearer {key}"))];
    served.ask("POST", &path, &headers, r#"{"text": "Hello?"}"#).await
}

#[tokio::test]
async fn sessions_that_come_at_once_do_not_pass_together() {
    let site = Site::new();
    let (mine, theirs) = (site.key("acme"), site.key("other"));
    let served = served(&site, TenantLimits { sessions: Some(3), ..TenantLimits::default() }).await;
    let answers = futures::future::join_all((0..10).map(|_| create(&served, &mine))).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    // Of those that come together some may be refused too many, and none may pass too many.
    assert!(made.len() <= 3, "{made:?}");
    for answer in refused {
        assert_eq!((answer.problem().as_str(), answer.status), ("limited", 429));
    }
    for _ in made.len()..3 {
        assert_eq!(create(&served, &mine).await.status, 201);
    }
    let refused = create(&served, &mine).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, None), "waiting does not help");
    let limit = json!({"name": "sessions", "scope": "tenant", "unit": "count", "max": 3, "used": 3});
    assert_eq!(refused.json()["limit"], limit);
    assert_eq!(create(&served, &theirs).await.status, 201, "others have limits of their own");
    let first = served.ask("GET", "/v1/sessions", &[("authorization", &format!("Bearer {mine}"))], "").await;
    let id = first.json()["sessions"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{id}");
    let gone = served.ask("DELETE", &path, &[("authorization", &format!("Bearer {mine}"))], "").await;
    assert!(gone.status < 300, "{gone:?}");
    assert_eq!(create(&served, &mine).await.status, 201);
}

#[tokio::test]
async fn a_turn_more_than_may_run_is_refused_and_one_that_waits_is_not() {
    let site = Site::new();
    let key = site.key("acme");
    let served = served(&site, TenantLimits { running_turns: Some(1), ..TenantLimits::default() }).await;
    let (first, second) = (served.session("acme", "silent").await, served.session("acme", "greeter").await);
    assert_eq!(prompt(&served, &key, first.id().as_str()).await.status, 202);
    let refused = prompt(&served, &key, second.id().as_str()).await;
    assert_eq!((refused.problem().as_str(), refused.status), ("limited", 429));
    assert_eq!(prompt(&served, &key, first.id().as_str()).await.status, 202, "it waits for the one before");
    first.abort().await.unwrap();
    assert_eq!(prompt(&served, &key, second.id().as_str()).await.status, 202);
}

#[tokio::test]
async fn what_was_used_of_late_counts() {
    for limits in [
        TenantLimits { tokens_per_minute: Some(1), ..TenantLimits::default() },
        TenantLimits { spend_per_day: Some(0.000_001), ..TenantLimits::default() },
    ] {
        let site = Site::new();
        let (mine, theirs) = (site.key("acme"), site.key("other"));
        let served = served(&site, limits).await;
        let (first, other) =
            (served.session("acme", "greeter").await, served.session("other", "greeter").await);
        assert_eq!(prompt(&served, &mine, first.id().as_str()).await.status, 202);
        let refused = async {
            loop {
                let answer = prompt(&served, &mine, first.id().as_str()).await;
                if answer.status != 202 {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let refused = tokio::time::timeout(PATIENCE, refused).await.expect("it is used up");
        assert_eq!((refused.problem().as_str(), refused.status), ("limited", 429));
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=24 * 3_600).contains(&wait), "{wait}");
        let problem = refused.json();
        assert!(
            problem["limit"]["renews_at"].is_string() || problem["limit"]["renews_at"].is_u64(),
            "{problem}"
        );
        // The same stands in the list, for whoever asks before.
        let listed =
            served.ask("GET", "/v1/limits", &[("authorization", &format!("Bearer {mine}"))], "").await;
        let listed = listed.json();
        let limit = &listed["limits"][0];
        assert_eq!(
            (&limit["name"], &limit["max"]),
            (&problem["limit"]["name"], &problem["limit"]["max"]),
            "{listed}"
        );
        assert!(limit["left"] == 0 || limit["left"] == "0", "{listed}");
        assert_eq!(prompt(&served, &theirs, other.id().as_str()).await.status, 202);
    }
}

#[tokio::test]
async fn what_was_admitted_before_is_said_again_at_every_limit() {
    for limits in [
        TenantLimits { tokens_per_minute: Some(1), ..TenantLimits::default() },
        TenantLimits { running_turns: Some(1), ..TenantLimits::default() },
    ] {
        let site = Site::new();
        let key = site.key("acme");
        let served = served(&site, limits.clone()).await;
        let model = if limits.running_turns.is_some() { "silent" } else { "greeter" };
        let (first, second) = (served.session("acme", "greeter").await, served.session("acme", model).await);
        let authorization = format!("Bearer {key}");
        let ask = async |path: &str, body: &str| {
            served.ask("POST", path, &[("authorization", &authorization)], body).await
        };
        let path = format!("/v1/sessions/{}/prompts", first.id());
        let message = "msg_00000000000012345678901234";
        let body = format!(r#"{{"text": "Hello?", "message": "{message}"}}"#);
        assert_eq!(ask(&path, &body).await.json()["repeated"], false);
        let waited =
            first.run(Prompt { message: Some(MessageId::parse(message).unwrap()), ..Prompt::text("Hello?") });
        tokio::time::timeout(PATIENCE, waited).await.expect("it ends").unwrap();
        // What runs there takes the place of the tenant's turn.
        let held = prompt(&served, &key, second.id().as_str()).await;
        let refused = async {
            loop {
                let answer = prompt(&served, &key, first.id().as_str()).await;
                if answer.status != 202 {
                    return answer.status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let refused = tokio::time::timeout(PATIENCE, refused).await.expect("the limit is reached");
        assert_eq!((refused, held.status == 202 || held.status == 429), (429, true));
        let again = ask(&path, &body).await;
        assert_eq!((again.status, &again.json()["repeated"]), (202, &serde_json::json!(true)));
        let wired =
            format!(r#"{{"messageID": "{message}", "parts": [{{"type": "text", "text": "Hello?"}}]}}"#);
        assert_eq!(ask(&format!("/session/{}/prompt_async", first.id()), &wired).await.status, 204);
        let other = format!("/v1/sessions/{}/prompts", second.id());
        if model == "greeter" {
            assert_eq!(ask(&other, &body).await.status, 429, "it is another session's");
        }
        second.abort().await.unwrap();
    }
}

#[tokio::test]
async fn a_key_with_directories_of_its_own_reads_what_is_allowed_and_not_what_others_use() {
    let site = Site::new();
    let folder = site.workspace().join("below");
    fs_err::create_dir(&folder).unwrap();
    let (whole, below) = (site.key("acme"), site.key_below("acme", &folder));
    let served = served(&site, TenantLimits { sessions: Some(3), ..TenantLimits::default() }).await;
    assert_eq!(create(&served, &whole).await.status, 201);
    let limits = async |key: &str| {
        let answer =
            served.ask("GET", "/v1/limits", &[("authorization", &format!("Bearer {key}"))], "").await;
        answer.json()["limits"][0].clone()
    };
    let all = json!({"name": "sessions", "scope": "tenant", "unit": "count", "max": 3, "used": 1, "left": 2});
    assert_eq!(limits(&whole).await, all);
    assert_eq!(
        limits(&below).await,
        json!({"name": "sessions", "scope": "tenant", "unit": "count", "max": 3})
    );
}
