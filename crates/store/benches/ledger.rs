//! What the ledger costs: processor time and flushes of a row beside its records, and sums over a month.
//!
//! `cargo bench -p playhouse-store --bench ledger`. Without `--bench` it makes one short run. With `--only paid` or `--only by-hand`,
//! and `--in-memory`, it makes such attempts and measures nothing: what `valgrind --tool=callgrind` counts in both, it is to be
//! told apart by.
#![allow(clippy::print_stdout, reason = "a bench tells its numbers")]

#[path = "../../../benches/common/machine.rs"]
mod machine;
#[path = "../../../benches/engine/report.rs"]
#[allow(dead_code, reason = "this bench writes no file")]
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use playhouse_protocol::day::DAY;
use playhouse_protocol::id::{AttemptId, IdGenerator, MessageId};
use playhouse_protocol::ledger::{GroupBy, Purpose, UsageQuery};
use playhouse_protocol::operator::BY_HAND_TENANT;
use playhouse_protocol::record::{AttemptEnded, AttemptOutcome, AttemptStarted, SessionCreated};
use playhouse_protocol::usage::{Cost, Prices, Quality, Tokens};
use playhouse_protocol::{Day, Entry, Metric, ModelRef, Record, Seq, SessionId, Timestamp, Usage};
use playhouse_store::{Append, Store};

use report::{HEAD, Measurement, Report};
use rustix::time::{ClockId, clock_gettime};

/// What a measurement ends with.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    /// Divides counts of samples and lengths of histories.
    divisor: usize,
}

impl Effort {
    /// `count`, or what is left of it in a short run.
    fn of(self, count: usize) -> usize {
        (count / self.divisor).max(1)
    }
}

/// Processor time of this process, all threads, user and system.
fn processor_microseconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--only") {
        let tenant = match arguments.get(at + 1).map(String::as_str) {
            Some("paid") => "acme",
            Some("by-hand") => BY_HAND_TENANT,
            _ => return Err("--only is followed by paid or by-hand".into()),
        };
        return only(tenant, arguments.iter().any(|argument| argument == "--in-memory"));
    }
    let in_earnest = std::env::args().any(|argument| argument == "--bench");
    println!("{}\n{HEAD}", Report::new().machine);
    for measurement in measure(Effort { divisor: if in_earnest { 1 } else { 50 } })? {
        println!("{measurement}");
    }
    Ok(())
}

/// What a month of a busy platform is told apart by: 30 million rows stand behind these sums, but it is their number that a
/// query takes its time from.
const DAYS: u64 = 30;
const MODELS: u64 = 10;
const PURPOSES: [Purpose; 4] = [Purpose::Turn, Purpose::Title, Purpose::Compaction, Purpose::Subagent];
const AGENTS: u64 = 5;

/// The first of the days.
const FIRST: Day = Day(20_000);

/// Attempts of one sample of the cost of a row, each appended by itself as an engine does it.
const ATTEMPTS: usize = 2_000;

/// So many with a row follow so many without: what else the machine does harms both alike.
const ALTERNATE: usize = 50;

/// Counts flushes of the log, and drops all else.
struct Flushes(Arc<AtomicU64>);

impl HistogramFn for Flushes {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder for Flushes {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() == Metric::LogFlush.name() {
            true => Histogram::from_arc(Arc::new(Self(Arc::clone(&self.0)))),
            false => Histogram::noop(),
        }
    }
}

/// One session of a tenant, whose log is written without an engine.
struct Log<'a> {
    store: &'a Store,
    ids: IdGenerator,
    session: SessionId,
    tenant: Arc<str>,
    head: Seq,
    entries: Vec<Entry>,
    /// The turn that runs.
    turn: MessageId,
}

impl<'a> Log<'a> {
    fn new(store: &'a Store, tenant: &str, at: Timestamp) -> Self {
        let mut ids = IdGenerator::new(|bytes| {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            bytes.iter_mut().zip(number.iter().rev().cycle()).for_each(|(byte, from)| *byte = *from);
        });
        let (session, turn) = (ids.next(at), ids.next(at));
        let mut log =
            Self { store, ids, session, tenant: tenant.into(), head: Seq::START, entries: Vec::new(), turn };
        log.add(
            at,
            Record::SessionCreated(SessionCreated {
                title: "Bench".to_owned(),
                ..SessionCreated::new(
                    session,
                    tenant,
                    "/home/bench/project",
                    "build",
                    ModelRef::new("provider", "model"),
                )
            }),
        );
        log.add(at, Record::TurnStarted { turn });
        log
    }

    fn add(&mut self, at: Timestamp, record: Record) {
        let seq = Seq(self.head.0 + self.entries.len() as u64 + 1);
        self.entries.push(Entry { seq, at, record });
    }

    /// Appends what was added, in one write.
    fn write(&mut self) -> Result<()> {
        let (sender, receiver) = sync_channel(1);
        let entries = std::mem::take(&mut self.entries);
        let append =
            Append { session: self.session, tenant: Arc::clone(&self.tenant), expected: self.head, entries };
        self.store.log.append(append, Box::new(move |end| drop(sender.send(end))));
        self.head = receiver.recv()??;
        Ok(())
    }

    fn begin(&mut self, at: Timestamp, model: ModelRef, purpose: Purpose, agent: String) -> AttemptId {
        let attempt = self.ids.next(at);
        let (turn, step) = (self.turn, self.ids.next(at));
        let price = |text: &str| text.parse().ok();
        let prices = Prices {
            input: price("3"),
            output: price("15"),
            cache_read: price("0.3"),
            cache_write: price("3.75"),
            ..Prices::default()
        };
        self.add(
            at,
            Record::AttemptStarted(AttemptStarted {
                purpose,
                catalogue: Some("2026-07".to_owned()),
                estimated_input: 20_000,
                prices,
                ..AttemptStarted::new(attempt, turn, step, agent, model)
            }),
        );
        attempt
    }

    fn end(&mut self, at: Timestamp, attempt: AttemptId, usage: Option<Usage>) {
        let cost = usage.as_ref().and_then(|_| Some(Cost("0.0123".parse().ok()?)));
        let outcome = AttemptOutcome::Finished;
        let answered_by = Some("model-2026-07-01".to_owned());
        self.add(
            at,
            Record::AttemptEnded(AttemptEnded {
                attempt,
                outcome,
                usage,
                cost,
                answered_by,
                assumed: Vec::new(),
                calls: Vec::new(),
                costs: None,
                ended: None,
                inner: Vec::new(),
            }),
        );
    }
}

/// What an attempt used, with the provider's own words for it.
fn usage() -> Usage {
    let tokens = Tokens { input: 1_234, cache_read: 20_000, output: 567, ..Tokens::default() };
    let raw = serde_json::json!({
        "input_tokens": 1_234, "cache_read_input_tokens": 20_000, "cache_creation_input_tokens": 0,
        "output_tokens": 567, "service_tier": "standard",
    });
    Usage {
        tokens,
        quality: Quality::Reported,
        raw: Some(raw),
        inner: Vec::new(),
        provider_cost: None,
        served: Vec::new(),
    }
}

fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let flushes = Arc::new(AtomicU64::new(0));
    metrics::set_global_recorder(Flushes(Arc::clone(&flushes))).map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir()?;
    let mut measurements = rows(effort, &flushes, &Store::open(folder.path())?, "on disk")?;
    measurements.extend(rows(effort, &flushes, &Store::memory()?, "in memory")?);
    measurements.extend(sums(effort)?);
    Ok(measurements)
}

/// Attempts of a tenant, and nothing else.
fn only(tenant: &str, in_memory: bool) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = if in_memory { Store::memory()? } else { Store::open(folder.path())? };
    let mut log = Log::new(&store, tenant, FIRST.start());
    attempts(&mut log, ATTEMPTS)?;
    println!("{ATTEMPTS} attempts of \"{tenant}\"");
    Ok(())
}

/// Makes so many, each appended by itself.
fn attempts(log: &mut Log<'_>, count: usize) -> Result<()> {
    let (model, at) = (ModelRef::new("provider", "model"), FIRST.start());
    for _ in 0..count {
        let attempt = log.begin(at, model.clone(), Purpose::Turn, "build".to_owned());
        log.write()?;
        log.end(at, attempt, Some(usage()));
        log.write()?;
    }
    Ok(())
}

/// The same attempts of a tenant that pays and of calls by hand, which have no rows, in alternation: the difference is what
/// rows cost.
fn rows(effort: Effort, flushes: &AtomicU64, store: &Store, place: &str) -> Result<Vec<Measurement>> {
    let (count, at) = (effort.of(ATTEMPTS), FIRST.start());
    let (mut paid, mut by_hand) = (Log::new(store, "acme", at), Log::new(store, BY_HAND_TENANT, at));
    // Processor time in microseconds and flushes of so many attempts.
    let some = |log: &mut Log<'_>, count: usize| -> Result<(f64, f64)> {
        let (before, flushed) = (processor_microseconds(), flushes.load(Ordering::Relaxed));
        attempts(log, count)?;
        let flushed = (flushes.load(Ordering::Relaxed) - flushed) as f64;
        Ok((processor_microseconds() - before, flushed))
    };
    let (mut time, mut flushed) = (Vec::new(), Vec::new());
    for number in 0..=effort.of(20) {
        let mut more = (0.0, 0.0);
        for _ in 0..count.div_ceil(ALTERNATE) {
            let (without, with) = (some(&mut by_hand, ALTERNATE)?, some(&mut paid, ALTERNATE)?);
            more = (more.0 + with.0 - without.0, more.1 + with.1 - without.1);
        }
        // The first one warms up.
        if number > 0 {
            let count = count.next_multiple_of(ALTERNATE) as f64;
            time.push(more.0 / count);
            flushed.push(more.1 / count);
        }
    }
    Ok(vec![
        Measurement::new(format!("processor time of a row of the ledger, {place}"), "µs", time).under(20.0),
        Measurement::new(format!("flushes that a row adds, {place}"), "flushes", flushed).under(0.01),
    ])
}

/// Sums of a month of one tenant, with all its groups, and one by one.
fn sums(effort: Effort) -> Result<Vec<Measurement>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path())?;
    let days = effort.of(usize::try_from(DAYS)?) as u64;
    let mut log = Log::new(&store, "acme", FIRST.start());
    for day in 0..days {
        let at = Timestamp::from_millis(FIRST.start().as_millis() + day * DAY);
        for model in 0..MODELS {
            for purpose in PURPOSES {
                for agent in 0..AGENTS {
                    let of = ModelRef::new(format!("provider-{}", model % 4), format!("model-{model}"));
                    let attempt = log.begin(at, of, purpose, format!("agent-{agent}"));
                    log.end(at, attempt, Some(usage()));
                }
            }
        }
        log.write()?;
    }
    let count = days * MODELS * PURPOSES.len() as u64 * AGENTS;
    let mut measurements = Vec::new();
    let all = vec![GroupBy::Tenant, GroupBy::Model, GroupBy::Day, GroupBy::Purpose, GroupBy::Agent];
    for (by, what) in [
        (vec![GroupBy::Model], "by model"),
        (vec![GroupBy::Day], "by day"),
        (all, "by tenant, model, day, purpose and agent"),
    ] {
        let from = Some(FIRST.start());
        let to = Some(Day(FIRST.0 + days).start());
        let query = UsageQuery { from, to, by, limit: 10_000, ..UsageQuery::default() };
        let mut samples = Vec::new();
        for _ in 0..effort.of(50) {
            let begun = Instant::now();
            let page = store.ledger.usage(&query)?;
            samples.push(begun.elapsed().as_secs_f64() * 1e3);
            let rows: u64 = page.groups.iter().map(|group| group.sum.totals.attempts).sum();
            if rows != count {
                return Err(format!("the sums are over {rows} rows of {count}").into());
            }
        }
        let name = format!("usage over {days} days, {count} sums, {what}");
        measurements.push(Measurement::new(name, "ms", samples).under(50.0));
    }
    Ok(measurements)
}
