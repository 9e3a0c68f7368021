//! Attached files, and who may read them.

use mock_llm::{Model, Script, text};
use serde_json::{Value, json};

use crate::client::Client;
use crate::support::{Served, Site};
use crate::wire_client::Wire;

/// A picture of one pixel.
const DOT: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mOoBwAAgQCAfhwpxwAAAABJRU5ErkJggg==";

async fn served(site: &Site) -> Served {
    let greets = || Model::new().step(text("I see it.")).cycle();
    site.serve(Script::new().model("m", greets()), |_| {}).await
}

fn prompt(mime: &str, filename: &str, content: &str) -> Value {
    json!({"text": "look", "files": [{"mime": mime, "filename": filename, "base64": content}]})
}

/// The hashes of the files of a session's messages.
async fn hashes(client: &Client, session: &str) -> Vec<String> {
    let page = client.get(&format!("{session}/messages")).await.with(200);
    let parts =
        page["messages"].as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
    parts.filter_map(|part| part["blob"]["hash"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attached_file_is_read_by_its_own_tenant_in_its_own_session() {
    let site = Site::new();
    let (one, other) = (site.key("one"), site.key("other"));
    let served = served(&site).await;
    let (one, other) = (Client::of(&served, Some(&one)), Client::of(&served, Some(&other)));
    let session = one.session("m").await;
    let files = [("image/png", "dot é\".png", DOT), ("text/html", "page.html", "PHNjcmlwdD4=")];
    for (mime, name, content) in files {
        let path = format!("{session}/prompts");
        one.post(&path, prompt(mime, name, content)).await.with(202);
    }
    let known = hashes(&one, &session).await;
    assert_eq!(known.len(), 2);
    let page = one.get(&format!("{session}/attachments/{}", known[1])).await;
    assert_eq!((page.status, page.body.as_str()), (200, "<script>"));
    for (header, value) in [
        ("content-type", "text/html"),
        ("content-disposition", "attachment; filename=\"page.html\"; filename*=UTF-8''page.html"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
    ] {
        assert_eq!(page.header(header), Some(value));
    }
    // Another session of the same tenant does not name it, and another tenant has nothing of it.
    let empty = one.session("m").await;
    one.get(&format!("{empty}/attachments/{}", known[0])).await.refused(404, "not-found");
    other.get(&format!("{session}/attachments/{}", known[0])).await.refused(404, "not-found");
    let theirs = other.session("m").await;
    other.get(&format!("{theirs}/attachments/{}", known[0])).await.refused(404, "not-found");
    for hash in ["0".repeat(64), "..%2f..%2fkeys".to_owned()] {
        one.get(&format!("{session}/attachments/{hash}")).await.refused(404, "not-found");
    }
}

/// A document of one page.
const PAGE: &str = "\
    JVBERi0xLjcKMSAwIG9iago8PC9UeXBlL0NhdGFsb2cvUGFnZXMgMiAwIFI+PgplbmRvYmoKMiAwIG9iago8PC9UeX\
    BlL1BhZ2VzL0tpZHNbMyAwIFIgXS9Db3VudCAxPj4KZW5kb2JqCjMgMCBvYmoKPDwvVHlwZS9QYWdlL1BhcmVudCAy\
    IDAgUi9NZWRpYUJveFswIDAgOSA5XT4+CmVuZG9iagp4cmVmCjAgNAowMDAwMDAwMDAwIDY1NTM1IGYgCjAwMDAwMD\
    AwMDkgMDAwMDAgbiAKMDAwMDAwMDA1NCAwMDAwMCBuIAowMDAwMDAwMTA2IDAwMDAwIG4gCnRyYWlsZXIKPDwvUm9v\
    dCAxIDAgUi9TaXplIDQ+PgpzdGFydHhyZWYKMTY3CiUlRU9GCgoK";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn small_files_are_in_the_answers_of_the_wire_and_large_ones_have_an_address() {
    let site = Site::new();
    let served = served(&site).await;
    let (wire, client) = (Wire::of(&served, None), Client::of(&served, None));
    let session = wire.session("m", "tester").await;
    let mut events = wire.events("/event", None).await;
    // Zeros between two: four letters of this code are three bytes.
    let large = format!("{PAGE}{}{PAGE}", "A".repeat(2 * 1024 * 1024));
    let file = |name: &str, mime: &str, content: &str| json!({"type": "file", "mime": mime, "filename": name, "url": format!("data:{mime};base64,{content}")});
    let parts = json!([{"type": "text", "text": "look"}, file("dot.png", "image/png", DOT), file("large.pdf", "application/pdf", &large)]);
    wire.ask("POST", &format!("/session/{session}/prompt_async"), &[], &json!({"parts": parts}).to_string())
        .await
        .with(204);
    let is_file = |part: &&Value| part["type"] == "file";
    let told = events.turn().await;
    let told: Vec<&Value> = told.iter().map(|event| &event["properties"]["part"]).filter(is_file).collect();
    let listed = wire.get(&format!("/session/{session}/message")).await;
    let listed: Vec<&Value> = listed[0]["parts"].as_array().unwrap().iter().filter(is_file).collect();
    assert_eq!(told, listed);
    assert_eq!(listed[0]["url"], format!("data:image/png;base64,{DOT}"));
    let address = listed[1]["url"].as_str().unwrap();
    assert!(address.starts_with(&format!("/v1/sessions/{session}/attachments/")), "{address}");
    let content = client.get(address).await;
    assert_eq!((content.status, content.body.len()), (200, large.len() / 4 * 3));
}
