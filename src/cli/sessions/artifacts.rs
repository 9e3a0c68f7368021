//! `playhouse sessions artifacts`.

use playhouse_protocol::SessionId;
use playhouse_protocol::id::PartId;
use playhouse_server::ArtifactView;

use super::{json, one_line, print, time};
use crate::cli::Failure;
use crate::cli::render::Shape;
use crate::client::Client;

/// Prints the artifacts of a session, or the value of the one that `call` captured.
pub(super) async fn print_artifacts(
    client: &Client,
    session: SessionId,
    call: Option<PartId>,
    format: Shape,
) -> Result<(), Failure> {
    if let Some(call) = call {
        let artifact = client.artifact(session, call).await?;
        let value = artifact.value.unwrap_or_default();
        let text =
            serde_json::to_string_pretty(&value).map_err(|error| Failure::failed(error.to_string()))?;
        print(&format!("{text}\n"))?;
        return Ok(());
    }
    let found = client.artifacts(session).await?;
    match format {
        Shape::Json => print(&format!("{}\n", json(&found.artifacts)?))?,
        Shape::Ndjson => {
            for artifact in &found.artifacts {
                print(&format!("{}\n", json(artifact)?))?;
            }
        }
        Shape::Table => {
            print(&format!("{:30}  {:16}  {:>9}  {:24}  {}\n", "CALL", "CAPTURED", "BYTES", "NAME", "HASH"))?;
            found.artifacts.iter().try_for_each(|artifact| print(&row(artifact)))?;
        }
    }
    match found.damage {
        None => Ok(()),
        Some(damage) => {
            Err(Failure::failed(format!("session {session} is parked and read up to there: {damage}")))
        }
    }
}

fn row(artifact: &ArtifactView) -> String {
    format!(
        "{:30}  {:16}  {:>9}  {:24}  {}\n",
        artifact.call.as_str(),
        time(artifact.at),
        artifact.bytes,
        one_line(&artifact.name),
        one_line(&artifact.hash),
    )
}
