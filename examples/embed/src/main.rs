//! Two engines in one process, each with a tool of its own: what a program does that embeds Playhouse.
//!
//! Run it with `cargo run -p embed`. The model is scripted, so that it needs no key and no network.

use std::error::Error;
use std::sync::Arc;

use playhouse::House;
use playhouse::config::Settings;
use playhouse::mock_llm::{Model, Script, call, text};
use playhouse::protocol::consent::Action;
use playhouse::protocol::{EventBody, ModelRef, NewSession, PermissionRule, Prompt, Record};
use playhouse::tools::{FunctionTool, ToolOutput};

/// The arguments of the tool, as the model is told of them.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greeting {
    /// Whom to greet.
    guest: String,
}

/// Starts an engine in memory, runs a prompt in it, and gives the kinds of its events, with the results of its calls.
pub(crate) async fn play(host: &'static str) -> Result<Vec<String>, Box<dyn Error>> {
    let greet = FunctionTool::new("greet", "Greets somebody.", move |greeting: Greeting, _| async move {
        Ok(ToolOutput::text(format!("{host} greets {}.", greeting.guest)))
    });
    let model = Model::new()
        .step(call("greet", serde_json::json!({"guest": "the postman"})))
        .step(text("The postman was greeted."));
    let house = House::builder(Settings::load(None, &|_| None)?)
        .mock(Script::new().model("butler", model))
        .tool(Arc::new(greet))
        .start()
        .await?;
    let workspace = std::env::temp_dir().to_string_lossy().into_owned();
    let model = Some(ModelRef::new("mock", "butler"));
    let new = NewSession {
        model,
        // Nobody is there to be asked, so a rule says what may be done.
        permissions: vec![PermissionRule {
            permission: "greet".into(),
            pattern: "*".into(),
            action: Action::Allow,
        }],
        unattended: true,
        ..NewSession::new("me", workspace)
    };
    let session = house.engine().create(new).await?;
    let mut events = session.events(None).await?;
    session.prompt(Prompt::text("Somebody is at the door.")).await?;
    let mut seen = Vec::new();
    while let Some(event) = events.next().await? {
        let EventBody::Durable(record) = &event.event().body else { continue };
        match record.as_ref() {
            Record::CallSettled { result, .. } => seen.push(result.output.clone()),
            Record::TurnEnded(_) => break,
            other => seen.push(other.kind().to_owned()),
        }
    }
    house.shutdown().await;
    Ok(seen)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{:#?}", tokio::try_join!(play("Ada"), play("Grace"))?);
    Ok(())
}
