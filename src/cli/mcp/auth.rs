//! `playhouse mcp auth` and `playhouse mcp logout`: logins at servers of tools.

use std::io::IsTerminal as _;
use std::time::Duration;

use playhouse_mcp::{Loopback, Redirected};
use playhouse_server::{McpLogin, McpLoginEnd, McpLoginWish};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::reach::{Held, open};
use super::super::{CommandResult, Common, Exit, Failure, print, say};

/// How long somebody may take to log in.
const PATIENCE: Duration = Duration::from_secs(600);

/// Logs in to a server.
pub(super) async fn auth(common: &Common, name: &str) -> CommandResult {
    playhouse_mcp::names::check_name(name).map_err(Failure::usage)?;
    let held = open(common).await?;
    let done = logged_in(&held, name).await;
    held.close().await;
    done?;
    say(&format!("logged in to {name}; `playhouse mcp test {name}` lists its tools"));
    Ok(Exit::Completed)
}

async fn logged_in(held: &Held, name: &str) -> Result<(), Failure> {
    let port = Loopback::open()
        .await
        .map_err(|error| Failure::failed(format!("no port can be opened for the browser: {error}")))?;
    let wish = McpLoginWish { redirect_uri: Some(port.redirect().to_owned()) };
    let McpLogin { authorization_url, state, .. } = held.client().begin_mcp_login(name, &wish).await?;
    say("open this address in a browser, and log in:");
    print(&format!("{authorization_url}\n"))?;
    let is_terminal = std::io::stdin().is_terminal();
    if is_terminal {
        say("if the browser runs elsewhere, paste the address to which it was sent at the end:");
    }
    let came = async {
        tokio::select! {
            came = port.wait(&state) => came,
            pasted = pasted(is_terminal) => pasted,
        }
    };
    let redirected = timeout(PATIENCE, came).await;
    let redirected = redirected
        .unwrap_or_else(|_| Err(format!("nobody has logged in within {} minutes", PATIENCE.as_secs() / 60)))
        .map_err(Failure::failed)?;
    let Redirected { code, state, issuer } = redirected;
    held.client().end_mcp_login(name, &McpLoginEnd { code, state, iss: issuer }).await?;
    Ok(())
}

/// The address that somebody pastes. Never ends without a terminal, and when nobody types any more.
async fn pasted(is_terminal: bool) -> Result<Redirected, String> {
    if is_terminal {
        let (sender, mut lines) = mpsc::channel(1);
        // Ends with the program: nothing ends a read of a terminal.
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        while let Some(line) = lines.recv().await {
            if line.trim().is_empty() {
                continue;
            }
            match Redirected::read(&line) {
                Ok(redirected) => return Ok(redirected),
                Err(reason) => say(&reason),
            }
        }
    }
    std::future::pending().await
}

/// Forgets the login at a server.
pub(super) async fn logout(common: &Common, name: &str) -> CommandResult {
    playhouse_mcp::names::check_name(name).map_err(Failure::usage)?;
    let held = open(common).await?;
    let forgotten = held.client().forget_mcp_login(name).await;
    held.close().await;
    forgotten?;
    say(&format!("logged out of {name}"));
    Ok(Exit::Completed)
}
