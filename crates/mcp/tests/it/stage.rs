//! Servers for tests.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use playhouse_mcp::{
    CallError, CallRequest, CallResult, Connection, OpenError, Place, Progress, ServerEntry,
};
use playhouse_policy::Verdict;
use playhouse_protocol::SessionId;
use playhouse_protocol::question::{Question, QuestionAnswer, Todo};
use playhouse_sandbox::Walls;
use playhouse_sandbox::process::Scope;
use playhouse_tools::web::Door;
use playhouse_tools::{Alone, Host, Prepared, Showing, Tool, ToolError};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Longer than anything takes that ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn session(number: u64) -> SessionId {
    SessionId::parse(&format!("ses_{number:012x}Sess1234567890")).unwrap()
}

/// The example that is a server.
pub(crate) fn example() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples/scripted");
    assert!(
        example.exists(),
        "run `cargo build -p playhouse-mcp --example scripted` first, or run all tests of the crate: `--test it` alone builds no example"
    );
    example
}

pub(crate) fn entry(arguments: &[&str]) -> ServerEntry {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let mut entry = ServerEntry::stdio("scripted", example().to_str().unwrap(), arguments);
    entry.start_timeout = PATIENCE;
    entry.timeout = PATIENCE;
    entry
}

pub(crate) fn place() -> Place {
    Place {
        workdir: "/".into(),
        roots: vec!["/tmp".into()],
        scope: Scope::new(),
        walls: Walls::open(),
        door: Door::new(Vec::new()),
        authorizer: None,
    }
}

pub(crate) async fn open(arguments: &[&str]) -> Result<Connection, OpenError> {
    connect(&entry(arguments)).await
}

pub(crate) async fn connect(entry: &ServerEntry) -> Result<Connection, OpenError> {
    Ok(Connection::open(entry, &place()).await?.0)
}

pub(crate) fn request(tool: &str, arguments: Value) -> CallRequest {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    CallRequest {
        session: session(1),
        tool: tool.to_owned(),
        arguments,
        cancel: CancellationToken::new(),
        timeout: None,
        progress: None,
        host: None,
    }
}

pub(crate) fn call<'a>(
    connection: &'a Connection,
    tool: &str,
) -> impl Future<Output = Result<String, CallError>> + 'a + use<'a> {
    let request = request(tool, Value::Object(Map::new()));
    async move { connection.call(request).await.map(text_of) }
}

/// The text of a result.
pub(crate) fn text_of(result: CallResult) -> String {
    result.into_output(String::new()).map_or_else(|error| error.to_string(), |output| output.output)
}

/// A request whose progress is told to a channel.
pub(crate) fn watched(mut request: CallRequest) -> (CallRequest, mpsc::Receiver<Progress>) {
    let (sender, told) = mpsc::channel(8);
    request.progress = Some(Arc::new(move |progress| drop(sender.try_send(progress))));
    (request, told)
}

/// Somebody who is asked, and answers as soon as the test does.
#[derive(Default)]
pub(crate) struct Person {
    pub(crate) alone: Alone,
    /// What they answer.
    pub(crate) name: String,
    pub(crate) asked: Mutex<Vec<Vec<Question>>>,
    /// Holds answers back, if there is one.
    pub(crate) gate: Option<Arc<tokio::sync::Semaphore>>,
    /// Told of each question.
    pub(crate) arrived: Option<mpsc::Sender<()>>,
}

impl Host for Person {
    fn find(&self, tool: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.alone.find(tool)
    }

    fn judge(&self, tool: &dyn Tool, prepared: &Prepared) -> Verdict {
        self.alone.judge(tool, prepared)
    }

    fn showing(&self) -> Showing {
        self.alone.showing()
    }

    fn todos(&self) -> Arc<[Todo]> {
        self.alone.todos()
    }

    fn ask(&self, questions: Vec<Question>) -> BoxFuture<'_, QuestionAnswer> {
        self.asked.lock().unwrap().push(questions);
        Box::pin(async move {
            if let Some(arrived) = &self.arrived {
                arrived.send(()).await.unwrap();
            }
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            QuestionAnswer::Answered { answers: vec![vec![self.name.clone()]] }
        })
    }
}
