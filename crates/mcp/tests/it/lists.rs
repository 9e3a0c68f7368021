//! What servers offer.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::stage::{call, open, session};

#[tokio::test]
async fn a_listing_has_what_can_be_read() {
    let connection = open(&[]).await.unwrap();
    let listing = connection.listing().await.unwrap();
    let names: Vec<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["echo", "die", "liar"]);
    assert_eq!(listing.tools[0].annotations.read_only_hint, Some(true));
    assert_eq!(listing.tools[2].input_schema, "a lie");
    assert_eq!((listing.refused.len(), listing.prompts[0].name.as_str()), (1, "greet"));
    assert_eq!((listing.instructions.as_deref(), listing.has_resources), (Some("Do not trust me."), true));
}

#[tokio::test]
async fn a_list_without_end_is_read_to_a_bound() {
    let connection = open(&["--pages"]).await.unwrap();
    let listing = connection.listing().await.unwrap();
    assert_eq!((listing.tools.len(), listing.tools[49].name.as_str()), (50, "tool49"));
    assert_eq!(listing.refused[0], ("tools".into(), "more than 50 pages: the rest is left out".into()));
}

#[tokio::test]
async fn a_change_of_the_list_is_told() {
    let connection = open(&[]).await.unwrap();
    let mut changed = connection.changed();
    assert_eq!(call(&connection, "grow").await.unwrap(), "grown");
    changed.wait_for(|changes| *changes == 1).await.unwrap();
    assert_eq!(connection.listing().await.unwrap().tools.last().unwrap().name, "new");
}

#[tokio::test]
async fn a_change_is_told_to_those_who_listen_in_the_later_protocol() {
    let connection = open(&["--modern"]).await.unwrap();
    connection.changed().wait_for(|changes| *changes == 1).await.unwrap();
}

#[tokio::test]
async fn prompts_and_resources_are_read() {
    let connection = open(&[]).await.unwrap();
    let cancel = CancellationToken::new();
    let arguments = [("whom".to_owned(), json!("them"))].into_iter().collect();
    let prompt = connection.prompt("greet", arguments, session(1), &cancel).await.unwrap();
    assert_eq!(prompt[0].content, playhouse_mcp::result::Content::Text("Greet \"them\"".into()));
    assert_eq!(connection.resources().await.unwrap()[0].uri, "a:b");
    let read = connection.read_resource("a:b", session(1), &cancel).await.unwrap();
    assert_eq!(read[0].text.as_deref(), Some("content"));
}
