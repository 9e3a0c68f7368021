//! A tool of your own: a model calls a Rust function of the program that embeds the engine.
//!
//! `cargo run --example custom_tool`

use std::sync::Arc;

use playhouse::House;
use playhouse::config::Settings;
use playhouse::mock_llm::{Model, Script, call, text};
use playhouse::protocol::message::{CallPart, CallState, Message, Part};
use playhouse::protocol::{NewSession, Prompt};
use playhouse::tools::{FunctionTool, ToolOutput};
use serde_json::json;

/// The arguments of the tool. Models are told of its fields and their comments.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    /// The city.
    city: String,
}

/// What the tool told the model, and what the model said then.
pub(crate) async fn ask() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let weather = FunctionTool::new("weather_at", "Tells the weather.", |place: Place, _| async move {
        Ok(ToolOutput::text(format!("rain in {}", place.city)))
    });
    // A scripted model, in place of a real one.
    let model =
        Model::new().step(call("weather_at", json!({"city": "Oslo"}))).step(text("Take an umbrella."));
    let house = House::builder(Settings::load(None, &|_| None)?)
        .mock(Script::new().model("m", model))
        .tool(Arc::new(weather))
        .start()
        .await?;
    let place = std::env::current_dir()?.to_string_lossy().into_owned();
    let new = NewSession { model: Some("mock/m".parse()?), ..NewSession::new("local", place) };
    let session = house.engine().create(new).await?;
    session.run(Prompt::text("What shall I take with me?")).await?;
    let snapshot = session.snapshot().await?;
    let parts = snapshot.messages.iter().flat_map(|message| match message {
        Message::User(message) => &message.parts,
        Message::Assistant(message) => &message.parts,
    });
    let told = parts.filter_map(|part| match part {
        Part::Call(CallPart { state: CallState::Settled(result), .. }) => Some(result.output.clone()),
        Part::Text { text, .. } => Some(text.clone()),
        _ => None,
    });
    let told = told.collect();
    house.shutdown().await;
    Ok(told)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:#?}", ask().await?);
    Ok(())
}
