//! `mock-llm`: the scripted model as a server.
//!
//! Exit codes: 0 when it was asked to stop, 1 when it failed while it ran, 2 for bad usage, script or address.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mock_llm::{JournalOptions, Mock, MockOptions, RefusalShape, Rules, Script, ServeOptions};
use tokio::net::TcpListener;

/// A scripted model that speaks the wire formats of real providers: Anthropic Messages, OpenAI Chat Completions, OpenAI
/// Responses and Gemini, over HTTP/1.1 and HTTP/2 (in the clear, to clients that know it beforehand).
///
/// Models come from a script (JSON), and these are built in: `echo` repeats the prompt, `tokens-N` says N tokens,
/// `tools-K-tokens-N` calls `read` in K steps and then says N tokens.
#[derive(Parser)]
#[command(version, after_long_help = concat!("A script:\n", include_str!("../examples/script.json")))]
struct Arguments {
    /// Where to listen; port 0 picks a free one. The address is printed first.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// The script. Without one there are the built-in models.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Tokens a second of models that set none; as fast as possible without it.
    #[arg(long, value_name = "TOKENS", value_parser = rate)]
    rate: Option<f64>,
    /// Write a line of JSON for each request, when it is over, to this file, which is begun anew.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Have the bodies of the requests in the journal.
    #[arg(long, requires = "journal")]
    journal_bodies: bool,
    /// Simulate a prompt cache: what a request shares with earlier ones is reported as read from it.
    #[arg(long)]
    prompt_cache: bool,
    /// Refuse what real providers refuse, by the names of the models. What the rules found is in the journal.
    #[arg(long)]
    rules: bool,
    /// Drop thinking of Claude that is bound to another conversation, in place of refusing the request.
    #[arg(long, requires = "rules")]
    drop_stale_thinking: bool,
    /// Refuse requests with this parameter to models that have no rules of their own. May be given several times.
    #[arg(long = "refuse-field", value_name = "NAME", requires = "rules")]
    refused_fields: Vec<String>,
    /// How such a refusal names the parameter: param, path or prose.
    #[arg(long, value_name = "SHAPE", default_value = "param", requires = "rules")]
    refusal_shape: RefusalShape,
    /// Write all that the rules found as JSON to this file when it stops.
    #[arg(long, value_name = "FILE", requires = "rules")]
    rules_report: Option<PathBuf>,
    /// The most streams of a connection of HTTP/2; 200 without it.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    http2_streams: Option<u32>,
    /// Threads that answer; as many as there are processors without it.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("give a number of tokens a second above 0".to_owned()),
    }
}

/// What went wrong, with its exit code.
struct Failure(u8, String);

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(code, message)) => {
            let _ = writeln!(io::stderr(), "mock-llm: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let usage = |message: String| Failure(2, message);
    let failed = |error: io::Error| Failure(1, error.to_string());
    let mut script = match &arguments.script {
        Some(path) => Script::load(path).map_err(|error| usage(error.to_string()))?,
        None => Script::new(),
    };
    script.prompt_cache |= arguments.prompt_cache;
    let keep = JournalOptions::default();
    let options = MockOptions {
        rate: arguments.rate,
        journal: JournalOptions {
            // Only the file is ever read.
            entries: 0,
            body_bytes: if arguments.journal_bodies { keep.body_bytes } else { 0 },
            file: arguments.journal,
        },
    };
    let rules = arguments.rules.then_some(Rules {
        drop_stale_thinking: arguments.drop_stale_thinking,
        refused_fields: arguments.refused_fields,
        refusal_shape: arguments.refusal_shape,
    });
    let mock = match rules {
        Some(rules) => Mock::with_rules(script, options, rules),
        None => Mock::with_options(script, options),
    };
    let mock = mock.map_err(|error| usage(format!("cannot create the journal: {error}")))?;
    let serve = ServeOptions { http2_streams: arguments.http2_streams };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = arguments.threads {
        runtime.worker_threads(threads.into());
    }
    let runtime = runtime.enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&arguments.listen)
            .await
            .map_err(|error| usage(format!("cannot listen on {}: {error}", arguments.listen)))?;
        let server = mock.serve_with(listener, serve).map_err(failed)?;
        // Before anybody hears that it runs, and stops it.
        let stop = asked_to_stop().map_err(failed)?;
        let mut out = io::stdout().lock();
        // Whoever started it may not read; that is no reason to stop.
        let _ = writeln!(out, "mock-llm listening on {}", server.url()).and_then(|()| out.flush());
        drop(out);
        stop.await;
        server.shutdown().await;
        Ok(())
    })?;
    if let Some(path) = &arguments.rules_report {
        let report = serde_json::to_vec_pretty(&mock.rules_report()).map_err(io::Error::from);
        report.and_then(|report| fs_err::write(path, report)).map_err(failed)?;
    }
    mock.journal().flush().map_err(|error| Failure(1, format!("cannot write the journal: {error}")))
}

/// Ends when this process is asked to stop; it can be asked from the call on.
#[cfg(unix)]
fn asked_to_stop() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn asked_to_stop() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}
