//! The scripted model, in a process of its own, which keeps a journal and can be asked for it.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use playhouse::mock_llm::{
    JournalOptions, Mock, MockOptions, Model, Outcome, Script, Step, call, text, tokens,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;

use crate::process::Process;
use crate::{Options, Result, tls};

/// The argument that makes this program the model.
pub(crate) const ROLE: &str = "scripted-model";
/// Tells the time in each of [`CALLS`] steps that end with a call of `read`, and in one more: a turn of [`TURN`] tokens.
pub(crate) const STEADY: &str = "steady";
/// So many models do the same in steps of other lengths each, so that not all sessions end a step at one moment.
const VARIANTS: u64 = 91;
/// Calls of a turn of [`STEADY`].
pub(crate) const CALLS: usize = 5;
/// Tokens of each of its steps.
const STEP: u64 = 100;
/// Tokens of its turns.
pub(crate) const TURN: u64 = STEP * (CALLS as u64 + 1);
/// Words of a call that tell no time.
const CALLED: u64 = 2;
/// Tokens of its turns that tell the time.
pub(crate) const TIMES: u64 = TURN - CALLED * CALLS as u64;
/// Tells the time until nobody listens.
pub(crate) const CLOCK: &str = "clock";
/// Says the [`TURN`] tokens of a turn in one answer, each of which tells the time.
pub(crate) const FLOOR: &str = "floor";
/// Says as many tokens as it was started with, as fast as it goes.
pub(crate) const BURST: &str = "burst";
/// The same without an end that is near.
pub(crate) const FLOOD: &str = "flood";
/// Reads a file in each of many steps, and says little.
pub(crate) const WALK: &str = "walk";
/// Says little.
pub(crate) const SHORT: &str = "short";
/// Has a command run which begins processes that sleep.
pub(crate) const SLEEPER: &str = "sleeper";
/// Names sessions.
pub(crate) const TITLE: &str = "title";
/// The file that is read, in the workspace.
pub(crate) const FILE: &str = "notes.txt";
/// Entries of the journal that are kept.
const ENTRIES: usize = 400_000;
/// Answers of an endless turn.
const ENDLESS: u64 = 1_000_000;

/// Which models are called by name.
const MODELS: [&str; 9] = [STEADY, CLOCK, FLOOR, BURST, FLOOD, WALK, SHORT, SLEEPER, TITLE];

/// The model that speaks as [`STEADY`] does in the session of this number.
pub(crate) fn steady(number: usize) -> String {
    format!("{STEADY}-{}", number as u64 % VARIANTS)
}

/// All models.
fn names() -> impl Iterator<Item = String> {
    MODELS.iter().map(|model| (*model).to_owned()).chain((0..VARIANTS as usize).map(steady))
}

/// The lengths of the steps of a variant: a step begins up to 45 tokens before or after that of [`STEADY`], and over all variants these
/// are spread evenly.
fn lengths(variant: u64) -> Vec<u64> {
    // Without a common factor with the count of variants.
    const SPREAD: [u64; CALLS] = [37, 41, 43, 47, 53];
    let begins =
        SPREAD.iter().zip(1..).map(|(spread, step)| STEP * step + variant * spread % VARIANTS - VARIANTS / 2);
    let begins: Vec<u64> = begins.chain([TURN]).collect();
    let before = std::iter::once(&0).chain(&begins);
    begins.iter().zip(before).map(|(end, begin)| end - begin).collect()
}

/// A running model.
pub(crate) struct Scripted {
    pub(crate) process: Process,
    /// Host and port.
    pub(crate) address: String,
    /// Where it speaks TLS, and the file of the certificate: with `--tls` only.
    secure: Option<(String, PathBuf)>,
    /// Holds its script and its certificate.
    _folder: TempDir,
    /// How long the processes sleep that [`SLEEPER`] begins: it is theirs alone, so that they can be found.
    pub(crate) sleep: String,
}

/// What the model noted of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) model: Option<String>,
    pub(crate) turn: Option<usize>,
    pub(crate) step: Option<usize>,
    /// Stands for the prompt, and so for the session.
    pub(crate) prompt: Option<u64>,
    /// When its first bytes could be read, in microseconds.
    pub(crate) arrived: u64,
    /// When the last of its answer was handed over, in microseconds.
    pub(crate) sent: u64,
    /// Tokens that were said.
    pub(crate) tokens: u64,
    /// Bytes of the request.
    pub(crate) bytes: u64,
    /// Whether it was answered to the end.
    pub(crate) is_complete: bool,
}

impl Scripted {
    /// Starts a model that says `options.rate` tokens a second, walks `steps` and says `burst` tokens at once.
    pub(crate) fn start(options: &Options, steps: usize, burst: u64) -> Result<Self> {
        Self::with_threads(options, steps, burst, options.model_threads)
    }

    /// The same on so many threads.
    pub(crate) fn with_threads(options: &Options, steps: usize, burst: u64, threads: usize) -> Result<Self> {
        let sleep = format!("86399.{}", std::process::id());
        let folder = options.folder()?;
        let file = folder.path().join("script.json");
        fs_err::write(&file, serde_json::to_vec(&script(options.rate, steps, burst, &sleep))?)?;
        let threads = threads.to_string();
        let file = file.to_str().ok_or("the folder's name is no text")?;
        let certificate = folder.path().join("certificate.pem");
        let port = options.model_port.to_string();
        let mut arguments = vec![file, &threads, &port];
        if options.tls {
            arguments.push(certificate.to_str().ok_or("the folder's name is no text")?);
        }
        let process = Process::role(ROLE, &arguments)?;
        let mut said = process.line.split_whitespace();
        let address = said.next().and_then(|url| url.strip_prefix("http://")).map(str::to_owned);
        let address =
            address.ok_or_else(|| format!("the model did not start: it said {:?}", process.line))?;
        let secure = said.next().map(|url| (url.to_owned(), certificate));
        Ok(Self { process, address, secure, _folder: folder, sleep })
    }

    /// The certificate that an engine has to trust, if any.
    pub(crate) fn certificate(&self) -> Option<&Path> {
        self.secure.as_ref().map(|(_, certificate)| certificate.as_path())
    }

    /// What makes the models of this process known to an engine.
    pub(crate) fn config(&self) -> String {
        let plain = format!("http://{}", self.address);
        let url = self.secure.as_ref().map_or(&plain, |(url, _)| url);
        // All sessions ask at once, and some without an end: whoever is over the usual limit would wait for them.
        let mut config = format!(
            "[providers.bench]\ndialect = \"anthropic\"\nbase_url = \"{url}/v1\"\nlimits.concurrent = 1000000\n"
        );
        for model in names() {
            config += &format!("[providers.bench.models.{model}]\ncontext = 10000000\noutput = 1000000\n");
        }
        config
    }

    /// The same for the peer, as JSON.
    pub(crate) fn peer_config(&self) -> serde_json::Value {
        let limit = json!({"limit": {"context": 10_000_000, "output": 1_000_000}, "tool_call": true});
        let models: serde_json::Map<_, _> = names().map(|model| (model, limit.clone())).collect();
        json!({
            "provider": {"bench": {
                "npm": "@ai-sdk/anthropic",
                "options": {"baseURL": format!("http://{}/v1", self.address), "apiKey": "none"},
                "models": models,
            }},
            "model": format!("bench/{STEADY}"), "small_model": format!("bench/{TITLE}"),
            "permission": "allow", "autoupdate": false, "share": "disabled",
        })
    }

    /// How many requests came so far.
    pub(crate) fn count(&mut self) -> Result<u64> {
        Ok(self.process.ask("count")?.trim().parse()?)
    }

    /// What it was asked after the first `count` requests, in the order in which it came.
    pub(crate) fn asked(&mut self, count: u64) -> Result<Vec<Asked>> {
        Ok(serde_json::from_str(&self.process.ask(&format!("asked {count}"))?)?)
    }
}

/// From the last byte of an answer to the next request of the same turn, in milliseconds: the step of the request, and the time.
pub(crate) fn overheads<'a>(asked: impl IntoIterator<Item = &'a Asked>) -> Vec<(usize, f64)> {
    let mut last: HashMap<(Option<u64>, Option<usize>), (usize, u64)> = HashMap::new();
    let mut overheads = Vec::new();
    for asked in asked {
        let Some(step) = asked.step else { continue };
        let before = last.insert((asked.prompt, asked.turn), (step, asked.sent));
        if let Some((_, sent)) = before.filter(|(number, sent)| number + 1 == step && *sent > 0) {
            overheads.push((step, asked.arrived.saturating_sub(sent) as f64 / 1e3));
        }
    }
    overheads
}

fn script(rate: f64, steps: usize, burst: u64, sleep: &str) -> Script {
    let read = || call("read", json!({"filePath": FILE}));
    let turn = |lengths: &[u64]| {
        let last = lengths.len() - 1;
        let steps = lengths.iter().enumerate().map(|(step, length)| match step == last {
            false => Step::empty().times(length - CALLED).call("read", json!({"filePath": FILE})),
            true => Step::empty().times(*length),
        });
        steps.fold(Model::new(), Model::step).rate(rate).cycle()
    };
    let clock = Model::new().step(Step::empty().times(ENDLESS)).rate(rate).cycle();
    let floor = Model::new().step(Step::empty().times(TURN)).rate(rate).cycle();
    let walk = (0..steps).fold(Model::new(), |model, _| model.step(read())).cycle();
    let command = format!("sleep {sleep} & (sleep {sleep} & sleep {sleep}) & sleep {sleep}");
    let sleeper =
        Model::new().step(call("bash", json!({"command": command, "description": "Sleeps"}))).cycle();
    let variants = (0..VARIANTS).map(|variant| (steady(variant as usize), turn(&lengths(variant))));
    variants
        .fold(Script::new(), |script, (name, model)| script.model(name, model))
        .model(STEADY, turn(&[STEP; CALLS + 1]))
        .model(CLOCK, clock)
        .model(FLOOR, floor)
        .model(BURST, Model::new().step(tokens(burst)).cycle())
        .model(FLOOD, Model::new().step(tokens(10_000_000)).cycle())
        .model(WALK, walk)
        .model(SHORT, Model::new().step(tokens(20)).cycle())
        .model(SLEEPER, sleeper)
        .model(TITLE, Model::new().step(text("A title")).cycle())
}

/// Serves until its input ends, and answers what is asked there.
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let script = Script::load(Path::new(&arguments.next().ok_or("the script is missing")?))?;
    let threads: usize = arguments.next().ok_or("the count of threads is missing")?.parse()?;
    let port: u16 = arguments.next().ok_or("the port is missing")?.parse()?;
    let certificate = arguments.next();
    let journal = JournalOptions { entries: ENTRIES, body_bytes: 0, file: None };
    let mock = Mock::with_options(script, MockOptions { rate: None, journal })?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        let server = mock.serve(listener)?;
        match certificate {
            None => println!("{}", server.url()),
            Some(file) => {
                println!("{} {}", server.url(), tls::before(server.address(), Path::new(&file)).await?)
            }
        }
        std::io::stdout().flush()?;
        let journal = mock.journal().clone();
        tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while std::io::stdin().lock().read_line(&mut line)? > 0 {
                let answer = match line.trim().strip_prefix("asked ") {
                    Some(count) => told(&journal, count.parse()?)?,
                    None => journal.count().to_string(),
                };
                println!("{answer}");
                std::io::stdout().flush()?;
                line.clear();
            }
            Ok::<_, crate::Failure>(())
        })
        .await??;
        server.shutdown().await;
        Ok::<_, crate::Failure>(())
    })
}

fn told(journal: &playhouse::mock_llm::Journal, after: u64) -> Result<String> {
    let asked: Vec<Asked> = journal
        .entries()
        .into_iter()
        .filter(|entry| entry.number > after)
        .map(|entry| Asked {
            model: entry.model,
            turn: entry.turn,
            step: entry.step,
            prompt: entry.prompt,
            arrived: entry.arrived_us,
            sent: entry.sent_us,
            tokens: entry.tokens,
            bytes: entry.request_bytes,
            is_complete: entry.outcome == Outcome::Complete,
        })
        .collect();
    Ok(serde_json::to_string(&asked)?)
}
