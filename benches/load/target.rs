//! A server under load: what all scenarios ask of it, by the engine's own wire or by the v1 wire.

use std::path::PathBuf;
use std::rc::Rc;

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::Result;
use crate::http::Connection;
use crate::place::Place;
use crate::process::{self, Process, Used};
use crate::streams::{Client, follow};
use crate::watch::{Feed, Shared, unheard};

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Wire {
    /// `/v1/…`, with a stream of events for each session.
    Native,
    /// The v1 wire of opencode, with one stream for all sessions.
    V1,
}

/// A running server.
pub(crate) struct Target {
    pub(crate) wire: Wire,
    /// Host and port.
    pub(crate) address: String,
    /// Where its sessions work.
    pub(crate) workspace: PathBuf,
    /// Absent for one that runs already.
    pub(crate) process: Option<Process>,
    /// Whose numbers are read; absent where nobody knows.
    pub(crate) id: Option<u32>,
    /// Where everything is kept that it needs.
    pub(crate) place: Option<Rc<Place>>,
    /// Sent with every request.
    pub(crate) authorization: Option<String>,
}

impl Target {
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.address).await?;
        Ok(match &self.authorization {
            Some(value) => connection.with("authorization", value),
            None => connection,
        })
    }

    /// What the server used so far; nothing where that cannot be seen.
    pub(crate) fn used(&self) -> Result<Used> {
        self.id.map_or(Ok(Used::default()), process::used)
    }

    /// What it has in memory, in millions of bytes; not a number where that cannot be seen.
    pub(crate) fn resident(&self) -> Result<f64> {
        self.id.map_or(Ok(f64::NAN), process::resident)
    }

    /// The same without pages of files.
    pub(crate) fn own_memory(&self) -> Result<f64> {
        self.id.map_or(Ok(f64::NAN), process::anonymous)
    }

    /// The most that it had in memory.
    pub(crate) fn peak(&self) -> Result<f64> {
        self.id.map_or(Ok(f64::NAN), process::peak)
    }

    /// How often it flushed its log so far; not a number where it does not tell.
    pub(crate) async fn flushes(&self) -> f64 {
        const NAME: &str = "playhouse_log_flush_duration_seconds_count";
        let Ok(mut connection) = self.connect().await else { return f64::NAN };
        let Ok((200, text)) = connection.ask("GET", "/metrics", None).await else { return f64::NAN };
        let text = String::from_utf8_lossy(&text).into_owned();
        let count = text.lines().find_map(|line| line.strip_prefix(NAME)?.trim().parse().ok());
        count.unwrap_or(f64::NAN)
    }

    fn in_workspace(&self, path: &str) -> String {
        format!("{path}?directory={}", self.workspace.display())
    }

    /// A new session.
    pub(crate) async fn session(&self, connection: &mut Connection, model: &str) -> Result<String> {
        let permissions = json!([{"permission": "*", "pattern": "*", "action": "allow"}]);
        let session = match self.wire {
            Wire::Native => {
                let new = json!({
                    "workspace": self.workspace, "title": model, "model": format!("bench/{model}"),
                    "unattended": true, "permissions": permissions,
                });
                connection.json("POST", "/v1/sessions", Some(&new)).await?
            }
            Wire::V1 => {
                let new = json!({"title": model, "permission": permissions});
                connection.json("POST", &self.in_workspace("/session"), Some(&new)).await?
            }
        };
        let id = session["id"].as_str().ok_or_else(|| format!("a session without an id: {session}"))?;
        Ok(id.to_owned())
    }

    /// Begins a turn.
    pub(crate) async fn prompt(
        &self,
        connection: &mut Connection,
        id: &str,
        model: &str,
        text: &str,
    ) -> Result<()> {
        let (path, body) = match self.wire {
            Wire::Native => (
                format!("/v1/sessions/{id}/prompts"),
                json!({"text": text, "model": format!("bench/{model}")}),
            ),
            Wire::V1 => {
                let body = json!({
                    "model": {"providerID": "bench", "modelID": model},
                    "parts": [{"type": "text", "text": text}],
                });
                (self.in_workspace(&format!("/session/{id}/prompt_async")), body)
            }
        };
        accepted(connection, &path, &body).await
    }

    /// Ends the turn that runs.
    pub(crate) async fn abort(&self, connection: &mut Connection, id: &str) -> Result<()> {
        let path = match self.wire {
            Wire::Native => format!("/v1/sessions/{id}/abort"),
            Wire::V1 => self.in_workspace(&format!("/session/{id}/abort")),
        };
        accepted(connection, &path, &json!({})).await
    }

    /// Follows sessions, which have the numbers from `first` on, each with a client of its own where the wire has such
    /// streams. All connect at once.
    pub(crate) async fn follow(&self, watch: &Shared, first: usize, ids: &[String]) -> Result<()> {
        let clients = match self.wire {
            Wire::Native => {
                let clients = ids.iter().zip(first..).map(|(id, number)| self.client(watch, id, number));
                try_join_all(clients).await?
            }
            Wire::V1 if first > 0 => Vec::new(),
            Wire::V1 => {
                let path = self.in_workspace("/event");
                let (stream, begun) = self.connect().await?.stream("GET", &path, None).await?;
                vec![follow(stream, &begun, Feed::Shared, watch)?]
            }
        };
        watch.borrow_mut().clients.extend(clients);
        Ok(())
    }

    /// A client of one session, by the engine's own wire. What it sees counts for the session of this number.
    pub(crate) async fn client(&self, watch: &Shared, id: &str, number: usize) -> Result<Client> {
        let path = format!("/v1/sessions/{id}/events");
        let (stream, begun) = self.connect().await?.stream("GET", &path, None).await?;
        follow(stream, &begun, Feed::Of(number), watch)
    }

    /// A client of one session that only reads, on a thread of its own: what it does delays no other.
    pub(crate) async fn unheard(&self, id: &str) -> Result<()> {
        let path = match self.wire {
            Wire::Native => format!("/v1/sessions/{id}/events"),
            Wire::V1 => self.in_workspace("/event"),
        };
        let (stream, _) = self.connect().await?.stream("GET", &path, None).await?;
        unheard(stream)
    }

    /// So many sessions more, followed by clients.
    pub(crate) async fn sessions(&self, watch: &Shared, count: usize, model: &str) -> Result<Vec<String>> {
        let lanes = (0..count.min(LANES)).map(|lane| async move {
            let mut connection = self.connect().await?;
            let mut ids = Vec::new();
            for number in (lane..count).step_by(LANES) {
                ids.push((number, self.session(&mut connection, model).await?));
            }
            Ok::<_, crate::Failure>(ids)
        });
        let mut ids: Vec<(usize, String)> = try_join_all(lanes).await?.into_iter().flatten().collect();
        ids.sort();
        let ids: Vec<String> = ids.into_iter().map(|(_, id)| id).collect();
        let first = watch.borrow().sessions.len();
        for id in &ids {
            watch.borrow_mut().session(id);
        }
        self.follow(watch, first, &ids).await?;
        Ok(ids)
    }

    /// Prompts sessions, which have the numbers from `first` on, all at once. Each has a text of its own, and a connection for it, as
    /// clients have that know nothing of one another: none waits until the prompt of another was acknowledged.
    pub(crate) async fn prompt_all(
        &self,
        watch: &Shared,
        first: usize,
        ids: &[String],
        model: &str,
    ) -> Result<()> {
        self.prompt_each(watch, first, ids, |_| model.to_owned()).await
    }

    /// The same with a model for each.
    pub(crate) async fn prompt_each(
        &self,
        watch: &Shared,
        first: usize,
        ids: &[String],
        model: impl Fn(usize) -> String,
    ) -> Result<()> {
        let model = &model;
        let prompts = ids.iter().enumerate().map(|(number, id)| async move {
            let mut connection = self.connect().await?;
            watch.borrow_mut().begin(first + number);
            let text = format!("Session {}: go on.", first + number);
            if let Err(error) = self.prompt(&mut connection, id, &model(number), &text).await {
                watch.borrow_mut().fail(error.to_string());
            }
            Ok::<_, crate::Failure>(())
        });
        try_join_all(prompts).await?;
        Ok(())
    }
}

/// Connections on which sessions are made.
const LANES: usize = 32;

/// Asks for something whose answer is of no interest but that it is none that says no.
async fn accepted(connection: &mut Connection, path: &str, body: &Value) -> Result<()> {
    let (status, answer) = connection.ask("POST", path, Some(body)).await?;
    match status {
        200..300 => Ok(()),
        _ => Err(format!("{path} was answered {status}: {}", String::from_utf8_lossy(&answer)).into()),
    }
}
