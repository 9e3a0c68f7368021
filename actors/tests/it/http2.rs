//! The engine over HTTP/2: what goes wrong, as over HTTP/1.1; more answers at once than a connection carries; TLS.

use std::collections::BTreeMap;
use std::time::Duration;

use mock_llm::{Cut, Entry, Fault, Framing, Model, Moment, Outcome, Script, ServeOptions, Server, text};
use playhouse_llm::{Connections, Http2};
use playhouse_protocol::record::TurnOutcome;
use playhouse_protocol::{ErrorCode, Prompt};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::faults::{DIALECTS, run_on, stage};
use crate::support::Stage;

/// Nothing here takes long: what waits so long waits for ever.
const HANG: Duration = Duration::from_secs(60);

/// Lets the providers of `stage` be reached by HTTP/2 alone, so many streams on a connection.
fn speak_http2(stage: &Stage, streams: usize) {
    stage.directory.place.lock().unwrap().1 =
        Connections { http2: Http2::PriorKnowledge, streams, ..Connections::default() };
}

/// The requests by connection.
fn by_connection(entries: &[Entry]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for entry in entries {
        assert!(entry.http2, "{entry:?}");
        *counts.entry(entry.connection.unwrap()).or_insert(0) += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_in_every_dialect_goes_over_one_connection() {
    for dialect in DIALECTS {
        let framings = [
            Framing::default(),
            Framing::split(3),
            Framing { gzip: true, never_ends: true, ..Framing::default() },
        ];
        for framing in framings {
            let step = text("Let me see.").call("probe", json!({"mode": "free"})).framing(framing);
            let stage = stage(step).await;
            speak_http2(&stage, 100);
            let seen = run_on(&stage, dialect).await;
            let place = format!("{dialect}, {framing:?}: {:?}", seen.ended.error);
            assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
            assert_eq!(seen.texts(), ["Let me see.", "The end."], "{place}");
            let entries = stage.directory.mock.journal().entries();
            assert_eq!(by_connection(&entries), BTreeMap::from([(1, 2)]), "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_is_made_again_on_the_same_connection() {
    for dialect in DIALECTS {
        for moment in [Moment::FirstToken, Moment::InText, Moment::InArguments, Moment::FinalEvent] {
            for how in [Cut::Eof, Cut::Reset] {
                let step = text("Let me see.").call("probe", json!({"mode": "once", "pad": "x".repeat(200)}));
                let stage = stage(step.fault(Fault::cut(moment, how)).fail_first(1)).await;
                speak_http2(&stage, 100);
                let seen = run_on(&stage, dialect).await;
                let place = format!("{dialect}, {moment:?}, {how:?}: {:?}", seen.ended.error);
                assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{place}");
                assert_eq!(seen.texts(), ["Let me see.", "The end."], "{place}");
                let entries = stage.directory.mock.journal().entries();
                assert_eq!(by_connection(&entries), BTreeMap::from([(1, 3)]), "{place}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_says_no_with_is_read() {
    for dialect in DIALECTS {
        let stage = stage(text("never").fault(Fault::retry_after(429, 120))).await;
        speak_http2(&stage, 100);
        let seen = run_on(&stage, dialect).await;
        let (code, message) = seen.error();
        assert_eq!(code, ErrorCode::RateLimited, "{dialect}: {message}");
        assert!(message.contains("come back in 120 s"), "{dialect}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: scripts/slow runs it"]
async fn one_event_of_eight_megabytes_fits_through_the_windows_of_a_stream() {
    let long = "\u{e4}".repeat(4 << 20);
    let stage = stage(text(long.clone())).await;
    speak_http2(&stage, 100);
    let seen = run_on(&stage, "openai-responses").await;
    assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{:?}", seen.ended.error);
    assert!(seen.texts() == [long]);
}

/// Twenty-five answers that never end, from a server that takes ten on a connection: all of them begin.
#[tokio::test(flavor = "multi_thread")]
async fn more_answers_at_once_than_a_connection_carries_open_others() {
    const STREAMS: usize = 10;
    let script = Script::new()
        .model("stuck", Model::new().step(text("one two three").fault(Fault::stall(Moment::InText))))
        .model("m", Model::new().step(text("All is well.")));
    let stage = Stage::new(script).await;
    let mock = &stage.directory.mock;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = ServeOptions { http2_streams: Some(STREAMS as u32) };
    let server: Server = mock.serve_with(listener, options).unwrap();
    stage.directory.place.lock().unwrap().0 = server.url();
    speak_http2(&stage, STREAMS);
    // The first request gets the server's settings.
    let ended = stage.session_with("anthropic", "m").await.run(Prompt::text("go")).await.unwrap().ended;
    assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
    let mut sessions = Vec::new();
    for dialect in DIALECTS.iter().cycle().take(25) {
        let session = stage.session_with(dialect, "stuck").await;
        session.prompt(Prompt::text("go")).await.unwrap();
        sessions.push(session);
    }
    let is_stuck = |entry: &&Entry| entry.outcome == Outcome::Open && entry.tokens > 0;
    let all_begin = async {
        // The journal tells of requests, not of their tokens.
        while mock.journal().entries().iter().filter(is_stuck).count() < sessions.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        mock.journal().entries()
    };
    let entries = tokio::time::timeout(HANG, all_begin).await.expect("no answer waits for another");
    let stuck: Vec<Entry> = entries.iter().filter(is_stuck).cloned().collect();
    let counts = by_connection(&stuck);
    let fits = counts.values().all(|count| *count <= STREAMS);
    assert!(fits && counts.len() == 3, "{counts:?}");
    // What comes when they are gone takes the connections that are there.
    for session in sessions {
        assert_eq!(session.abort().await.unwrap(), 1);
    }
    for dialect in DIALECTS {
        let ended = stage.session_with(dialect, "m").await.run(Prompt::text("go")).await.unwrap().ended;
        assert_eq!(ended.outcome, TurnOutcome::Completed, "{:?}", ended.error);
        let last = mock.journal().entries().pop().unwrap();
        assert!(counts.contains_key(&last.connection.unwrap()), "{last:?}");
    }
    server.shutdown().await;
}

/// Passes on what comes over TLS, decrypted, to `to`. `certificate` and `key` are DER.
async fn terminate_tls(listener: TcpListener, certificate: Vec<u8>, key: Vec<u8>, to: std::net::SocketAddr) {
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio_rustls::rustls::{ServerConfig, crypto::ring};
    let provider = std::sync::Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    let mut config =
        builder.with_no_client_auth().with_single_cert(vec![CertificateDer::from(certificate)], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    while let Ok((socket, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that does not trust the certificate goes away here.
            let Ok(mut from) = acceptor.accept(socket).await else { return };
            let mut to = TcpStream::connect(to).await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut from, &mut to).await);
        });
    }
}

/// Tells the child of the test below where the server is.
const CHILD: &str = "PLAYHOUSE_TEST_TLS_SERVER";

/// A process trusts the certificates that `SSL_CERT_FILE` names when it starts: so the client is a child of this test.
#[tokio::test(flavor = "multi_thread")]
async fn http2_is_spoken_over_tls_where_the_server_offers_it() {
    let stage = stage(text("Let me see.").call("probe", json!({"mode": "free"}))).await;
    if let Ok(url) = std::env::var(CHILD) {
        *stage.directory.place.lock().unwrap() = (url, Connections::default());
        for dialect in DIALECTS {
            let seen = run_on(&stage, dialect).await;
            assert_eq!(seen.ended.outcome, TurnOutcome::Completed, "{dialect}: {:?}", seen.ended.error);
        }
        return;
    }
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let trusted = stage.folder.path().join("trusted.pem");
    fs_err::write(&trusted, made.cert.pem()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let to = stage.directory.server.lock().unwrap().as_ref().unwrap().address();
    let (certificate, key) = (made.cert.der().to_vec(), made.signing_key.serialize_der());
    let tls = tokio::spawn(terminate_tls(listener, certificate, key, to));
    let child = move |trusted: Option<std::path::PathBuf>| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "http2::http2_is_spoken_over_tls_where_the_server_offers_it"])
            .env(CHILD, &url);
        if let Some(trusted) = trusted {
            child.env("SSL_CERT_FILE", trusted);
        }
        tokio::task::spawn_blocking(move || child.output().unwrap())
    };
    let output = child(None).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains("certificate"), "nobody trusts it yet: {said}");
    assert!(said.contains("Misconfigured"), "which another attempt would not change: {said}");
    assert_eq!(stage.directory.mock.journal().count(), 0);
    let output = child(Some(trusted)).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let entries = stage.directory.mock.journal().entries();
    assert_eq!(by_connection(&entries), BTreeMap::from([(1, 2 * DIALECTS.len())]));
    tls.abort();
}
