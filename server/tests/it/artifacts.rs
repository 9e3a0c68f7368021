//! What capture tools kept, and who may read it.

use std::sync::Arc;

use mock_llm::{Model, Script, call, text};
use playhouse_tools::capture::example;
use serde_json::{Value, json};

use crate::client::Client;
use crate::native_schema::Description;
use crate::support::Site;

/// A site with the examples among its tools.
fn site() -> Site {
    Site {
        tune: |options| {
            for name in ["save_prd", "update_story_status"] {
                options.tools.add(Arc::new(example(name).unwrap().unwrap())).unwrap();
            }
        },
        ..Site::new()
    }
}

fn script() -> Script {
    let story = |number: usize| {
        json!({"id": "US-001", "title": "t".repeat(number), "acceptance_criteria": ["a"], "priority": 1,
               "status": "done", "notes": ""})
    };
    let prd = |bytes: usize| json!({"prd": {"schema_version": 1, "id": "x", "branch_name": "b", "user_stories": [story(bytes)]}});
    let model = Model::new()
        .step(call("update_story_status", json!({"story_id": "US-001", "status": "done"})))
        .step(call("save_prd", prd(100_000)))
        .step(text("Kept."));
    Script::new().model("m", model)
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_read_by_their_tenant_and_in_forks() {
    let site = site();
    let (one, other) = (site.key("one"), site.key("other"));
    let served = site.serve(script(), |_| {}).await;
    let (one, other) = (Client::of(&served, Some(&one)), Client::of(&served, Some(&other)));
    let description = Description::of(&one).await;
    let session = one.session("m").await;
    let mut events = one.events(&format!("{session}/events"), None).await;
    one.post(&format!("{session}/prompts"), json!({"text": "keep"})).await.with(202);
    let told = events.until("artifact.captured").await;
    assert_eq!(
        (&told["data"]["name"], &told["data"]["value"]["status"]),
        (&json!("update_story_status"), &json!("done"))
    );
    events.until("turn.ended").await;

    let place = format!("{session}/artifacts");
    let list = one.get(&place).await.with(200);
    description.check("Artifacts", &list);
    let listed = list["artifacts"].as_array().unwrap();
    let names: Vec<&Value> = listed.iter().map(|artifact| &artifact["name"]).collect();
    assert_eq!(names, ["update_story_status", "save_prd"]);
    assert_eq!(listed[0]["value"], json!({"story_id": "US-001", "status": "done"}));
    assert!(listed[1].get("value").is_none() && listed[1]["bytes"].as_u64().unwrap() > 100_000);
    let call = listed[1]["call"].as_str().unwrap();
    let whole = one.get(&format!("{place}/{call}")).await.with(200);
    description.check("Artifact", &whole);
    let title = &whole["value"]["prd"]["user_stories"][0]["title"];
    assert_eq!((title.as_str().unwrap().len(), &whole["hash"]), (100_000, &listed[1]["hash"]));

    for path in [place.clone(), format!("{place}/{call}")] {
        other.get(&path).await.refused(404, "not-found");
    }
    let absent = format!("prt_1{}", &call[5..]);
    one.get(&format!("{place}/{absent}")).await.refused(404, "not-found");
    one.get(&format!("{place}/nothing")).await.refused(400, "invalid");

    // A fork has what its part of the log names, also when the session that it came from is gone and blobs are swept.
    let fork = one.post(&format!("{session}/fork"), json!({})).await.with(201);
    let fork = format!("/v1/sessions/{}", fork["id"].as_str().unwrap());
    one.delete(&session).await.with(204);
    site.store.upkeep.reclaim().unwrap();
    assert_eq!(one.get(&format!("{fork}/artifacts")).await.with(200)["artifacts"], list["artifacts"]);
    assert_eq!(one.get(&format!("{fork}/artifacts/{call}")).await.with(200), whole);
    one.get(&place).await.refused(404, "not-found");
    assert_eq!(
        one.get(&format!("{}/artifacts", one.session("m").await)).await.with(200),
        json!({"artifacts": []})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowlist_may_name_what_is_offered_by_name_only() {
    let site =
        Site { tune: |options| options.sources = vec![Arc::new(crate::artifacts::ByName)], ..Site::new() };
    let served = site.serve(script(), |_| {}).await;
    let client = Client::of(&served, None);
    let body = |tools: Value| json!({"model": "mock/m", "tools": tools});
    client.post("/v1/sessions", body(json!(["save_prd", "read"]))).await.with(201);
    let error = client.post("/v1/sessions", body(json!(["save_prt"]))).await.refused(400, "invalid");
    assert!(error.contains("there is no tool \"save_prt\""), "{error}");
}

/// Offers an example by name only.
struct ByName;

impl playhouse_tools::ToolSource for ByName {
    fn tools(&self, _: &playhouse_tools::ToolScope) -> Arc<[Arc<dyn playhouse_tools::Tool>]> {
        let tool: Arc<dyn playhouse_tools::Tool> =
            Arc::new(example("save_prd").unwrap().unwrap().by_name_only());
        [tool].into()
    }

    fn changed(&self) -> tokio::sync::watch::Receiver<u64> {
        tokio::sync::watch::Sender::new(0).subscribe()
    }
}
