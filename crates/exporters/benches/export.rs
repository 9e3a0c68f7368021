//! How fast a ledger is exported to a local server and to files, and in how much memory: sinks by themselves, with rows that
//! are made when they are read, and with the ledger of a store on the disk.
//!
//! `cargo bench -p playhouse-exporters`. Without `--bench` (as in `cargo test --benches`) it makes one short run.
#![allow(clippy::print_stdout, reason = "a bench tells its numbers")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use playhouse_billing::export::{FeedItem, TurnEnd};
use playhouse_exporters::{
    Exporters, Feed, LedgerFeed, Sink, SinkConfig, SinkKind, Surroundings, SystemTimer,
};
use playhouse_protocol::ledger::{CostByClass, Purpose, RowId, Tier};
use playhouse_protocol::record::{
    AttemptEnded, AttemptOutcome, AttemptStarted, SessionCreated, TurnEnded, TurnOutcome,
};
use playhouse_protocol::usage::{Prices, Quality, Tokens, Totals, Usage};
use playhouse_protocol::{Entry, IdGenerator, LedgerRow, ModelRef, Record, Seq, SessionId, Timestamp};
use playhouse_store::{Append, Store, StoreError};
use tokio::net::TcpListener;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Rows of a turn.
const TURN: u64 = 8;

fn main() -> Result<()> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let rows = if is_bench { 1_000_000 } else { 2_000 };
    let folder = tempfile::tempdir()?;
    let (address, seen) = serve_on_a_thread()?;
    for kind in [SinkKind::Cloudevents, SinkKind::Polar, SinkKind::Webhook, SinkKind::Report, SinkKind::File]
    {
        let path = if matches!(kind, SinkKind::Webhook | SinkKind::Report) { "/hook" } else { "" };
        let mut config = SinkConfig::new(kind);
        if kind == SinkKind::File {
            config.folder = Some(folder.path().join("files"));
        } else {
            config.url = Some(format!("http://{address}{path}"));
            config.key_env = Some("KEY".to_owned());
        }
        seen.store(0, Ordering::Relaxed);
        let store = Store::open(&folder.path().join(format!("store-{}", kind.name())))?;
        let before = memory();
        let feed = Arc::new(Counted { row: sample(), end: rows + rows / TURN });
        let time = export(&config, feed, &store)?;
        tell(kind.name(), rows, time, &seen, before);
    }
    let store = Store::open(&folder.path().join("ledger"))?;
    let begun = Instant::now();
    fill(&store, rows)?;
    println!("written: {rows} rows in {:.2?}", begun.elapsed());
    for kind in [SinkKind::Cloudevents, SinkKind::File] {
        let mut config = SinkConfig::new(kind);
        match kind {
            SinkKind::File => config.folder = Some(folder.path().join("from-a-store")),
            _ => config.url = Some(format!("http://{address}")),
        }
        seen.store(0, Ordering::Relaxed);
        let cursors = Store::memory()?;
        let before = memory();
        let feed = Arc::new(LedgerFeed::new(Arc::clone(&store.ledger)));
        let time = export(&config, feed, &cursors)?;
        tell(&format!("{} from a store", kind.name()), rows, time, &seen, before);
    }
    Ok(())
}

fn tell(what: &str, rows: u64, time: Duration, seen: &AtomicU64, before: u64) {
    println!(
        "{what}: {rows} rows in {time:.2?}: {:.0} rows a second, {} MB received, {} MB of memory at most, {before} before",
        rows as f64 / time.as_secs_f64(),
        seen.load(Ordering::Relaxed) / 1_000_000,
        memory(),
    );
}

fn export(config: &SinkConfig, feed: Arc<dyn Feed>, store: &Store) -> Result<Duration> {
    let vault = |_: &str| Some("whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=".to_owned().into());
    let sink = Sink::new("bench", config, &vault)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let surroundings = Surroundings {
        clock: Arc::new(|| Timestamp::from_millis(1_800_000_000_000)),
        timer: Arc::new(SystemTimer::start()),
        random: Arc::new(|| 0.5),
    };
    let end = feed.end();
    let begun = Instant::now();
    runtime.block_on(async {
        let exporters = Exporters::start(vec![sink], feed, Arc::clone(&store.shelf), surroundings);
        while exporters.statuses()[0].settled < end {
            if let Some(trouble) = &exporters.statuses()[0].trouble {
                return Err(io::Error::other(trouble.reason.clone()).into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let time = begun.elapsed();
        exporters.stop(Duration::from_secs(3)).await;
        Ok(time)
    })
}

/// The most memory that this process had, in megabytes; 0 where that is not told.
fn memory() -> u64 {
    let text = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1_000
}

/// A feed that makes its rows when they are read.
struct Counted {
    row: LedgerRow,
    end: u64,
}

impl Feed for Counted {
    fn after(&self, number: u64, limit: usize) -> std::result::Result<Vec<(u64, FeedItem)>, StoreError> {
        let numbers = number + 1..=self.end.min(number + limit as u64);
        Ok(numbers.map(|number| (number, self.item(number))).collect())
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn grown(&self, _: u64) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}

impl Counted {
    /// A turn of rows, and its end.
    fn item(&self, number: u64) -> FeedItem {
        if number.is_multiple_of(TURN + 1) {
            let LedgerRow { tenant, session, turn, ended, .. } = &self.row;
            return FeedItem::TurnEnded(TurnEnd {
                tenant: tenant.clone(),
                session: *session,
                turn: *turn,
                at: *ended,
            });
        }
        let mut row = self.row.clone();
        row.id = RowId(format!("row_{number:026}"));
        row.tokens.input = number;
        FeedItem::Row(Box::new(row))
    }
}

/// Turns of a session.
const SESSION: u64 = 1_000;
/// Writes that wait.
const WAITING: usize = 1_000;

/// Writes sessions whose attempts make so many rows.
fn fill(store: &Store, rows: u64) -> Result<()> {
    let mut ids = IdGenerator::new(|bytes| bytes.fill(5));
    let row = sample();
    let at = row.ended;
    let (sender, receiver) = sync_channel(WAITING);
    let mut session: SessionId = ids.next(at);
    let (mut head, mut waiting) = (Seq::START, 0);
    for turn in 0..rows / TURN {
        if turn % SESSION == 0 {
            session = ids.next(at);
            head = Seq::START;
        }
        let mut records = turn_of(&mut ids, &row);
        if head == Seq::START {
            records.insert(0, created(session, &row));
        }
        let expected = head;
        let mut seq = head.0;
        let entry = |record| {
            seq += 1;
            Entry { seq: Seq(seq), at, record }
        };
        let entries: Vec<Entry> = records.into_iter().map(entry).collect();
        head = Seq(head.0 + entries.len() as u64);
        if waiting == WAITING {
            receiver.recv()??;
            waiting -= 1;
        }
        let sender = sender.clone();
        let append = Append { session, tenant: "acme".into(), expected, entries };
        store.log.append(append, Box::new(move |result| drop(sender.send(result))));
        waiting += 1;
    }
    for _ in 0..waiting {
        receiver.recv()??;
    }
    Ok(())
}

fn created(session: SessionId, row: &LedgerRow) -> Record {
    Record::SessionCreated(SessionCreated {
        title: "New session".to_owned(),
        ..SessionCreated::new(
            session,
            row.tenant.clone(),
            row.workspace.clone(),
            row.agent.clone(),
            ModelRef::new(&row.provider, &row.model),
        )
    })
}

/// A turn whose attempts used what `row` did.
fn turn_of(ids: &mut IdGenerator, row: &LedgerRow) -> Vec<Record> {
    let turn = ids.next(row.ended);
    let mut records = vec![Record::TurnStarted { turn }];
    for _ in 0..TURN {
        let attempt = ids.next(row.ended);
        records.push(Record::AttemptStarted(AttemptStarted {
            purpose: row.purpose,
            tier: row.tier,
            catalogue: row.catalogue.clone(),
            estimated_input: row.tokens.all_input(),
            prices: row.prices,
            ..AttemptStarted::new(
                attempt,
                turn,
                ids.next(row.ended),
                row.agent.clone(),
                ModelRef::new(&row.provider, &row.model),
            )
        }));
        records.push(Record::AttemptEnded(AttemptEnded {
            attempt,
            outcome: AttemptOutcome::Finished,
            usage: Some(Usage {
                tokens: row.tokens,
                quality: row.quality,
                raw: row.raw.clone(),
                inner: Vec::new(),
                provider_cost: None,
                served: Vec::new(),
            }),
            cost: row.cost,
            answered_by: row.answered_by.clone(),
            assumed: Vec::new(),
            calls: Vec::new(),
            costs: None,
            ended: None,
            inner: Vec::new(),
        }));
    }
    let outcome = TurnOutcome::Completed;
    records.push(Record::TurnEnded(TurnEnded {
        changed: None,
        output: None,
        turn,
        outcome,
        error: None,
        steps: 8,
        totals: Totals::default(),
    }));
    records
}

fn sample() -> LedgerRow {
    let at = Timestamp::from_millis(1_790_000_000_000);
    let mut ids = IdGenerator::new(|bytes| bytes.fill(3));
    let price = |text: &str| text.parse().ok();
    let prices =
        Prices { input: price("3"), output: price("15"), cache_read: price("0.3"), ..Prices::default() };
    let tokens = Tokens { input: 12_345, cache_read: 67_890, output: 1_234, ..Tokens::default() };
    let attempt = ids.next(at);
    let session = ids.next(at);
    LedgerRow {
        id: RowId::of(attempt),
        tenant: "acme".to_owned(),
        workspace: "/home/ada/project".to_owned(),
        session,
        root: session,
        parent_step: None,
        turn: ids.next(at),
        step: ids.next(at),
        step_number: 3,
        attempt,
        attempt_number: 1,
        agent: "build".to_owned(),
        purpose: Purpose::Turn,
        provider: "anthropic".to_owned(),
        model: "claude-sonnet-4-5".to_owned(),
        answered_by: Some("claude-sonnet-4-5-20250929".to_owned()),
        tokens,
        calls: Vec::new(),
        quality: Quality::Reported,
        raw: Some(
            serde_json::json!({ "input_tokens": 12_345, "cache_read_input_tokens": 67_890, "output_tokens": 1_234 }),
        ),
        catalogue: Some("2026-11-01".to_owned()),
        prices,
        costs: CostByClass::new(&prices, &tokens),
        cost: prices.cost(&tokens),
        assumed: Vec::new(),
        served: Vec::new(),
        provider_cost: None,
        tier: Tier::Pro,
        labels: playhouse_protocol::Labels::new(),
        key: None,
        started: at,
        ended: at,
        corrects: None,
        late: false,
    }
}

/// A server that takes everything, and how many bytes it got.
fn serve_on_a_thread() -> Result<(SocketAddr, Arc<AtomicU64>)> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    std::thread::Builder::new().name("server".to_owned()).spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            tell.send(listener.local_addr()?)?;
            loop {
                let (stream, _) = listener.accept().await?;
                let count = Arc::clone(&count);
                let service = service_fn(move |request: Request<Incoming>| {
                    let count = Arc::clone(&count);
                    async move {
                        let body = request.into_body().collect().await?.to_bytes();
                        count.fetch_add(body.len() as u64, Ordering::Relaxed);
                        Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        })
    })?;
    Ok((told.recv()?, seen))
}
