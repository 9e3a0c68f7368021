//! How fast the mock talks: events a second over a real socket, with the server on one thread, requests a second, and what
//! a token costs it that comes at a pace, on many connections.
//!
//! `cargo bench -p mock-llm`. Without `--bench` (as in `cargo test --benches`) it makes one short run.
#![allow(clippy::print_stdout, reason = "a bench tells its numbers")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use mock_llm::{Mock, Model, Script, Step};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (tokens, requests) = if is_bench { (5_000_000, 20_000) } else { (5_000, 20) };
    let address = serve_on_a_thread()?;
    let paths = [
        "/v1/messages",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1beta/models/MODEL:streamGenerateContent?alt=sse",
    ];
    for path in paths {
        let (events, time, work) = run(address, path, &format!("tokens-{tokens}"), 1)?;
        println!("{path}: {events} events in {time:.2?}: {} events a second{work}", per_second(events, time));
        let (_, time, work) = run(address, path, "tokens-1", requests)?;
        println!(
            "{path}: {requests} requests in {time:.2?}: {} requests a second{work}",
            per_second(requests, time)
        );
    }
    println!("{}", paced(address, if is_bench { 1_000 } else { 10 })?);
    Ok(())
}

/// Tokens a second of each connection, as [`serve_on_a_thread`] has them.
const RATE: f64 = 50.0;
/// Tokens of each of them.
const SAID: u64 = 200;

/// So many connections on which tokens come at a pace.
fn paced(address: SocketAddr, connections: u64) -> Result<String> {
    let body = request("/v1/messages", "paced").to_string();
    let request =
        format!("POST /v1/messages HTTP/1.1\r\nhost: mock\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (start, work) = (Instant::now(), server_time());
    let reads = runtime.block_on(async {
        let read = |_| async {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            stream.write_all(request.as_bytes()).await?;
            let (mut buffer, mut tail, mut reads) = (vec![0; 4096], Vec::new(), 0_u64);
            while !tail.ends_with(END) {
                let count = stream.read(&mut buffer).await?;
                if count == 0 {
                    return Err("the server closed the connection".into());
                }
                reads += 1;
                tail.extend_from_slice(&buffer[..count]);
                tail.drain(..tail.len().saturating_sub(END.len()));
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(reads)
        };
        futures::future::try_join_all((0..connections).map(read)).await
    })?;
    let (time, worked) = (start.elapsed(), server_time());
    let all = connections * SAID;
    let reads: u64 = reads.into_iter().sum();
    let each = match (work, worked) {
        (Some(before), Some(after)) => {
            format!(
                ", {:.2} µs of the server's processor time a token",
                (after - before).as_secs_f64() * 1e6 / all as f64
            )
        }
        _ => String::new(),
    };
    Ok(format!(
        "{connections} connections at {RATE} tokens a second: {all} tokens in {time:.2?}, {reads} reads{each}"
    ))
}

/// What ends a body in chunks.
const END: &[u8] = b"\r\n0\r\n\r\n";

fn per_second(count: u64, time: Duration) -> u64 {
    (count as f64 / time.as_secs_f64()) as u64
}

fn serve_on_a_thread() -> Result<SocketAddr> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new().name("server".to_owned()).spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let paced = Model::new().step(Step::empty().times(SAID).rate(RATE));
            let server = Mock::new(Script::new().model("paced", paced)).serve(listener)?;
            tell.send(server.address())?;
            std::future::pending().await
        })
    })?;
    Ok(told.recv()?)
}

/// Asks so many times on one connection: events in all, the time, and the server's processor time where it is known.
fn run(address: SocketAddr, path: &str, model: &str, times: u64) -> Result<(u64, Duration, String)> {
    let body = request(path, model).to_string();
    let path = path.replace("MODEL", model);
    let request =
        format!("POST {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 1 << 18];
    let mut events = 0;
    let (start, work) = (Instant::now(), server_time());
    for _ in 0..times {
        stream.write_all(request.as_bytes())?;
        events += read_answer(&mut stream, &mut buffer)?;
    }
    let (time, worked) = (start.elapsed(), server_time());
    let work = match (work, worked) {
        (Some(before), Some(after)) => format!(", {:.2?} of it the server's processor time", after - before),
        _ => String::new(),
    };
    Ok((events, time, work))
}

fn request(path: &str, model: &str) -> Value {
    let messages = json!([{"role": "user", "content": "Go."}]);
    if path.ends_with("/responses") {
        json!({"model": model, "stream": true, "input": messages})
    } else if path.contains("MODEL") {
        json!({"contents": [{"parts": [{"text": "Go."}]}]})
    } else {
        json!({"model": model, "max_tokens": 1, "stream": true, "stream_options": {"include_usage": true},
            "messages": messages})
    }
}

/// Counts the events up to the last chunk.
fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<u64> {
    /// What the data of every event begins with; no size of a chunk looks like it.
    const EVENT: &[u8] = b"\ndata";
    let (mut events, mut found, mut tail) = (0, 0, Vec::new());
    while !tail.ends_with(END) {
        let count = stream.read(buffer)?;
        if count == 0 {
            return Err("the server closed the connection".into());
        }
        for byte in &buffer[..count] {
            found = if *byte == EVENT[found] { found + 1 } else { usize::from(*byte == EVENT[0]) };
            if found == EVENT.len() {
                events += 1;
                found = 0;
            }
        }
        tail.extend_from_slice(&buffer[count.saturating_sub(END.len())..count]);
        tail.drain(..tail.len().saturating_sub(END.len()));
    }
    Ok(events)
}

/// The processor time of the server's thread, in hundredths of a second; Linux only.
fn server_time() -> Option<Duration> {
    for task in fs_err::read_dir("/proc/self/task").ok()? {
        let path = task.ok()?.path();
        let stat = fs_err::read_to_string(path.join("stat")).ok()?;
        if stat.contains("(server)") {
            let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
            let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
            return Some(Duration::from_millis(ticks * 10));
        }
    }
    None
}
