//! What the backends do and cost: durable appends a second, bytes on the disk, bytes that are handed to them, memory, and the
//! time to open a store.
//!
//! `cargo bench -p playhouse-store --bench backends`. Without `--bench` it makes one short run. Each measurement has a
//! process of its own, so that memory is that of one backend, and so that a store can be left as a crash leaves it.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench tells its numbers, and ends with a panic if it must"
)]

#[path = "../tests/it/changes.rs"]
#[allow(dead_code, reason = "the tests need more of it")]
mod changes;
#[path = "../tests/it/samples.rs"]
#[allow(dead_code, reason = "the tests need more of it")]
mod samples;
#[path = "space/steps.rs"]
mod steps;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use fs_err as fs;
use playhouse_protocol::{Entry, Record, Seq, SessionId};
use playhouse_store::{Append, Backend, Store, StoreOptions};

use samples::*;
use steps::{Kind, Steps};

/// Tells a process of this bench what to do.
const TASK: &str = "PLAYHOUSE_BENCH_TASK";

fn main() {
    if let Ok(task) = std::env::var(TASK) {
        return work(&task.split('\t').collect::<Vec<_>>());
    }
    let divisor = if std::env::args().any(|argument| argument == "--bench") { 1 } else { 50 };
    println!("| measured | {} |", Backend::ALL.map(Backend::name).join(" | "));
    println!("|---|---|---|");
    for writers in [1, 64] {
        let count = (if writers == 1 { 2_000 } else { 20_000 }) / divisor;
        row(&format!("durable appends a second, {writers} writers"), |backend, data| {
            run(backend, data, &["append", &writers.to_string(), &count.to_string()])
        });
    }
    for (kind, name) in [("real", "prose and code"), ("random", "letters by chance")] {
        for size in [1_024, 2 * 1_024, 4 * 1_024, 16 * 1_024, 60 * 1_024] {
            let steps = (32 * 1024 * 1024 / (2 * size) / divisor).max(320);
            row(&format!("bytes handed over, on disk, of {name} in parts of {size}"), |backend, data| {
                run(backend, data, &["space", kind, &size.to_string(), &steps.to_string()])
            });
        }
    }
    let sessions = (10_000 / divisor).to_string();
    row(&format!("resident memory, opened with {sessions} sessions and listed"), |backend, data| {
        run(backend, data, &["make", &sessions, "close"]);
        run(backend, data, &["memory"])
    });
    row(&format!("time to open {sessions} sessions"), |backend, data| {
        run(backend, data, &["make", &sessions, "close"]);
        run(backend, data, &["open"])
    });
    row(&format!("time to open {sessions} sessions after a crash"), |backend, data| {
        run(backend, data, &["make", &sessions, "abort"]);
        run(backend, data, &["open"])
    });
    row("after half of 64 MB was deleted: MB before, after; seconds", |backend, data| {
        run(backend, data, &["shrink", &(64 / divisor.min(8)).to_string()])
    });
}

/// Prints a row with a number of each backend.
fn row(name: &str, measure: impl Fn(Backend, &Path) -> String) {
    let results = Backend::ALL.map(|backend| {
        let directory = tempfile::tempdir().unwrap();
        measure(backend, directory.path())
    });
    println!("| {name} | {} |", results.join(" | "));
}

/// Does a task in a process of its own; what it says.
fn run(backend: Backend, data: &Path, task: &[&str]) -> String {
    let task = [&[backend.name(), data.to_str().unwrap()], task].concat().join("\t");
    let output = Command::new(std::env::current_exe().unwrap()).env(TASK, task).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "a measurement failed: {}", String::from_utf8_lossy(&output.stderr));
    text.trim().to_owned()
}

fn work(task: &[&str]) {
    let [backend, data, task @ ..] = task else { panic!("{task:?}") };
    let (backend, data) = (backend.parse().unwrap(), Path::new(data));
    let number = |text: &str| text.parse::<u64>().unwrap();
    let store = || Store::open_with(data, &StoreOptions { backend, ..StoreOptions::default() }).unwrap();
    match task {
        ["append", writers, count] => println!("{:.0}", appends(&store(), number(writers), number(count))),
        ["space", kind, size, steps] => {
            let kind = if *kind == "real" { Kind::Real } else { Kind::Random };
            space(store(), data, kind, number(size) as usize, number(steps));
        }
        ["make", sessions, end] => {
            let store = store();
            make(&store, number(sessions));
            println!("made");
            if *end == "abort" {
                // As a crash leaves it: nothing is closed.
                std::process::abort();
            }
        }
        ["memory"] => {
            let before = resident();
            let store = store();
            let query = playhouse_store::ListQuery { limit: 1_000, ..Default::default() };
            let page = store.log.list(&query).unwrap();
            println!("{:.1} MB ({} listed)", (resident() - before) as f64 / 1e6, page.sessions.len());
        }
        ["open"] => {
            let began = Instant::now();
            let store = store();
            println!("{:.1} ms", began.elapsed().as_secs_f64() * 1e3);
            drop(store);
        }
        ["shrink", megabytes] => shrink(&store(), data, number(megabytes)),
        other => panic!("{other:?}"),
    }
}

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

/// Each writer appends to a session of its own and waits until it is durable.
fn appends(store: &Store, writers: u64, count: u64) -> f64 {
    (1..=writers).for_each(|number| create(store, session(number)));
    let began = Instant::now();
    let each = count / writers;
    std::thread::scope(|scope| {
        for number in 1..=writers {
            scope.spawn(move || {
                for seq in 1..=each {
                    append(store, session(number), seq, vec![proposed(seq, &letters(1_000, seq))]).unwrap();
                }
            });
        }
    });
    (each * writers) as f64 / began.elapsed().as_secs_f64()
}

/// How many sessions append side by side.
const SIDE_BY_SIDE: u64 = 16;

/// Appends steps, and says how many bytes that took for one of text and output: handed over, and on the disk.
fn space(store: Store, data: &Path, kind: Kind, size: usize, steps: u64) {
    let mut sessions: Vec<_> = (1..=SIDE_BY_SIDE).map(|number| (Steps::new(kind, number), 0)).collect();
    // To all sessions side by side; each append is durable before the next.
    let mut put = |records: &mut dyn FnMut(&mut Steps, SessionId) -> Vec<Record>| {
        let ends: Vec<_> = (1..=SIDE_BY_SIDE)
            .zip(&mut sessions)
            .map(|(number, (steps, head))| {
                let session = session(number);
                let places = *head + 1..;
                let records = records(steps, session);
                let expected = Seq(std::mem::replace(head, *head + records.len() as u64));
                let at = steps.now();
                let entries = places.zip(records).map(|(seq, record)| Entry { seq: Seq(seq), at, record });
                let (sender, receiver) = sync_channel(1);
                let append = Append { session, tenant: TENANT.into(), expected, entries: entries.collect() };
                store.log.append(append, Box::new(move |end| drop(sender.send(end))));
                receiver
            })
            .collect();
        for end in ends {
            end.recv().unwrap().unwrap();
        }
    };
    put(&mut |steps, session| steps.begin(session));
    let steps = (steps / SIDE_BY_SIDE).max(1);
    for _ in 0..steps {
        let mut rest = Vec::new();
        put(&mut |steps, _| {
            let [answered, settled] = steps.step(size);
            rest.push(settled);
            answered
        });
        let mut rest = rest.into_iter();
        put(&mut |_, _| rest.next().unwrap_or_default());
    }
    let steps = steps * SIDE_BY_SIDE;
    let produced = (2 * size as u64 * steps) as f64;
    let written = store.upkeep.written();
    let total = written.values().sum::<u64>() as f64 / produced;
    let mut kinds: Vec<_> =
        written.into_iter().map(|(kind, bytes)| (kind, bytes as f64 / produced)).collect();
    kinds.sort_by(|one, other| other.1.total_cmp(&one.1));
    let kinds: Vec<_> = kinds.iter().take(4).map(|(kind, share)| format!("{kind}/ {share:.3}")).collect();
    drop(store);
    println!("{total:.2} ({}), {:.2}", kinds.join(", "), taken_up(data) as f64 / produced);
}

/// What a directory takes up on the disk.
fn taken_up(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| Some((entry.path(), fs::symlink_metadata(entry.path()).ok()?)))
        .map(|(path, found)| if found.is_dir() { taken_up(&path) } else { found.blocks() * 512 })
        .sum()
}

/// Makes sessions with a short turn each, many at once.
fn make(store: &Store, sessions: u64) {
    for number in 1..=sessions {
        let records = vec![
            created(session(number), TENANT, "/w"),
            admitted(number),
            started(number, number),
            used(number, 1_000),
            proposed(number, &letters(500, number)),
            ended(number),
        ];
        let (sender, receiver) = sync_channel(1);
        let entries: Vec<Entry> = entries(0, records);
        let append =
            Append { session: session(number), tenant: TENANT.into(), expected: Seq::START, entries };
        store.log.append(append, Box::new(move |end| drop(sender.send(end))));
        // The last one, and one in each hundred, is waited for: rounds of an engine with much to do.
        if number % 100 == 0 || number == sessions {
            receiver.recv().unwrap().unwrap();
        }
    }
}

/// Deletes half of what was appended, and gives the space back.
fn shrink(store: &Store, data: &Path, megabytes: u64) {
    for number in 1..=megabytes {
        let records = (1..=32).map(|call| proposed(call, &letters(32 * 1_024, number * 32 + call)));
        let records = std::iter::once(created(session(number), TENANT, "/w")).chain(records).collect();
        append(store, session(number), 0, records).unwrap();
    }
    let before = taken_up(data);
    for number in (1..=megabytes).step_by(2) {
        delete(store, session(number)).unwrap();
    }
    let began = Instant::now();
    store.upkeep.reclaim().unwrap();
    let seconds = began.elapsed().as_secs_f64();
    println!("{:.1}, {:.1}; {seconds:.2} s", before as f64 / 1e6, taken_up(data) as f64 / 1e6);
}
