//! Host tools with a webhook: a session's turn calls the platform over TLS, also over a killed engine.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mock_llm::{Model, Script, call, text};
use playhouse_actors::{HostToolSpec, HostTools, NewWebhook, Resume};
use playhouse_billing::export::signature::{key_bytes, sign};
use playhouse_protocol::consent::Risk;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{Prompt, Record, Seq};
use playhouse_store::Store;
use playhouse_tools::web::Door;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use crate::support::{Stage, until};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Names the folder with certificate and key of the platform to the child of the test below.
const CHILD: &str = "PLAYHOUSE_TEST_WEBHOOKS";
/// Nothing here takes long: what waits so long waits for ever.
const HANG: Duration = Duration::from_secs(60);

/// A delivery that waits for its answer.
struct Delivery {
    head: String,
    body: String,
    answer: oneshot::Sender<String>,
}

impl Delivery {
    fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name} in {}", self.head))
    }

    /// Checks the signature.
    fn check(&self) {
        let (id, seconds) = (self.header("webhook-id"), self.header("webhook-timestamp"));
        let expected = sign(&key_bytes(SECRET).unwrap(), id, seconds.parse().unwrap(), self.body.as_bytes());
        assert_eq!(self.header("webhook-signature"), expected);
        let body: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(body["call"], id, "{body}");
        assert_eq!((&body["type"], &body["tool"]), (&json!("tool.call"), &json!("weather_at")), "{body}");
        assert_eq!(body["arguments"], json!({"city": "Oslo"}));
    }

    fn call(&self) -> String {
        serde_json::from_str::<Value>(&self.body).unwrap()["call"].as_str().unwrap().to_owned()
    }

    fn answer(self, body: &Value) {
        let body = body.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        self.answer.send(head + &body).unwrap();
    }
}

/// A platform behind TLS: its address, and the deliveries that come.
async fn platform(folder: &Path) -> (String, mpsc::Receiver<Delivery>) {
    let certificate = CertificateDer::from(fs_err::read(folder.join("certificate.der")).unwrap());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(fs_err::read(folder.join("key.der")).unwrap()));
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://127.0.0.1:{}/hook", listener.local_addr().unwrap().port());
    let (sender, deliveries) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(socket).await.unwrap();
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                // The body is an object, and nothing before it has a brace.
                while !request.ends_with(b"}}") {
                    let read = stream.read(&mut piece).await.unwrap();
                    assert!(read > 0, "the request is whole");
                    request.extend_from_slice(&piece[..read]);
                }
                let request = String::from_utf8(request).unwrap();
                let (head, body) = request.split_once("\r\n\r\n").unwrap();
                let (answer, answered) = oneshot::channel::<String>();
                let (head, body) = (head.to_owned(), body.to_owned());
                sender.send(Delivery { head, body, answer }).await.unwrap();
                if let Ok(answer) = answered.await {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            });
        }
    });
    (url, deliveries)
}

fn script() -> Script {
    let asks = || call("weather_at", json!({"city": "Oslo"}));
    Script::new().model("m", Model::new().step(asks()).step(text("Rain.")).cycle())
}

/// An engine over `store` that takes tools of the platform, which may be in this machine.
async fn stage(store: &Store, folder: &Arc<tempfile::TempDir>, resume: Resume) -> (Stage, HostTools) {
    let secrets = folder.path().join("host-tools");
    let door = Door::new(vec!["127.0.0.1".parse().unwrap()]);
    let tools = HostTools::open(Arc::clone(&store.shelf), HashSet::new(), secrets, door).unwrap();
    let given = tools.clone();
    let stage = Stage::with(store.clone(), Arc::clone(folder), script(), |options| {
        options.host_tools = Some(given);
        options.resume = resume;
    });
    (stage.await, tools)
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

async fn next(deliveries: &mut mpsc::Receiver<Delivery>) -> Delivery {
    let delivery = tokio::time::timeout(HANG, deliveries.recv()).await.expect("a delivery comes").unwrap();
    delivery.check();
    delivery
}

/// The results of calls, in order.
fn results(records: &[Record]) -> Vec<(CallOutcome, &str)> {
    let settled = records.iter().filter_map(|record| match record {
        Record::CallSettled { result, .. } => Some((result.outcome, result.output.as_str())),
        _ => None,
    });
    settled.collect()
}

fn is_ended(record: &Record) -> bool {
    matches!(record, Record::TurnEnded(ended) if ended.outcome == TurnOutcome::Completed)
}

/// A process trusts the certificates that `SSL_CERT_FILE` names when it starts: so all of it is in a child of this test.
#[test]
fn a_turn_calls_a_webhook_and_a_call_under_way_outlives_the_engine() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return calls_over_a_killed_engine(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let trusted = folder.path().join("trusted.pem");
    fs_err::write(&trusted, made.cert.pem()).unwrap();
    fs_err::write(folder.path().join("certificate.der"), made.cert.der()).unwrap();
    fs_err::write(folder.path().join("key.der"), made.signing_key.serialize_der()).unwrap();
    let name = "webhooks::a_turn_calls_a_webhook_and_a_call_under_way_outlives_the_engine";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name]).env(CHILD, folder.path()).env("SSL_CERT_FILE", trusted);
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn calls_over_a_killed_engine(certificate: &Path) {
    let platforms = runtime();
    let (url, mut deliveries) = platforms.block_on(platform(certificate));
    let (store, folder) = (Store::memory().unwrap(), Arc::new(tempfile::tempdir().unwrap()));
    let killed = runtime();
    let (session, lost) = killed.block_on(async {
        let (stage, tools) = stage(&store, &folder, Resume::OnDemand).await;
        let spec = HostToolSpec {
            name: "weather_at".to_owned(),
            description: "Tells the weather.".to_owned(),
            schema: json!({"type": "object"}),
            risk: Risk::Safe,
            webhook: None,
            capture: false,
            roots: Vec::new(),
        };
        tools.register("local", spec, Some(NewWebhook::new(url.as_str(), SECRET))).unwrap();
        let session = stage.engine.create(stage.new_session("m")).await.unwrap();
        let mut events = session.events(None).await.unwrap();
        session.prompt(Prompt::text("How is the weather?")).await.unwrap();
        next(&mut deliveries).await.answer(&json!({"output": "rain"}));
        until(&mut events, is_ended).await;
        assert_eq!(results(&stage.records(&session).await), [(CallOutcome::Done, "rain")]);

        session.prompt(Prompt::text("And now?")).await.unwrap();
        until(&mut events, |record| matches!(record, Record::CallOffered(_))).await;
        // It arrived, and has no answer when the engine is killed.
        (session.id(), next(&mut deliveries).await)
    });
    killed.shutdown_timeout(Duration::from_secs(20));

    runtime().block_on(async {
        let (stage, _tools) = stage(&store, &folder, Resume::Auto).await;
        let session = stage.engine.session(session).await.unwrap();
        let mut events = session.events(Some(Seq::START)).await.unwrap();
        let again = next(&mut deliveries).await;
        assert_eq!(again.call(), lost.call(), "it is the same call");
        again.answer(&json!({"output": "still rain"}));
        until(&mut events, is_ended).await;
        until(&mut events, is_ended).await;
        let records = stage.records(&session).await;
        assert_eq!(results(&records), [(CallOutcome::Done, "rain"), (CallOutcome::Done, "still rain")]);
        let offered = records.iter().filter(|record| matches!(record, Record::CallOffered(_))).count();
        assert_eq!(offered, 2, "each call is offered once");
        assert!(deliveries.try_recv().is_err(), "and nothing is delivered behind its result");
    });
}
