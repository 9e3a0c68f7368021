//! `playhouse mcp serve`: this engine as an MCP server, on standard input and output.

use std::path::Path;
use std::sync::Arc;

use playhouse_mcp_server::{McpServer, over_pipes};
use tokio::io::{stdin, stdout};

use crate::cli::reach::or_start;
use crate::cli::run::{directory, text_of};
use crate::cli::{CommandResult, Common, Exit, Failure, WallsArguments};

/// Serves one client until its input ends.
pub(super) async fn serve(
    common: &Common,
    of: Option<&Path>,
    tools: &[String],
    walls: WallsArguments,
) -> CommandResult {
    let workspace = text_of(&directory(of)?)?;
    let held = or_start(common, walls).await?;
    let server = McpServer::new(Arc::new(held.client())).in_directory(workspace);
    let served = match server.offering(tools).await {
        Ok(server) => {
            let served = over_pipes(server, Box::new(stdin()), Box::new(stdout())).await;
            served.map_err(|error| Failure::failed(error.to_string()))
        }
        Err(error) => Err(Failure::usage(format!("--tools: {error}"))),
    };
    held.close().await;
    served?;
    Ok(Exit::Completed)
}
