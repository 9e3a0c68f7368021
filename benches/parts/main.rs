//! Guards of single parts: what a token, a step of a long history, an edit and a judgement cost.
//!
//! `cargo bench --bench parts` measures them by criterion. Times of a noisy machine tell little, so `scripts/instructions`
//! has callgrind count the instructions of each part, and compares them with those in `benches/instructions.tsv`. It runs
//! this program as `-- --list` and `-- --run PART TIMES`.
#![allow(clippy::print_stdout, reason = "a bench tells its numbers")]
#![allow(clippy::expect_used, reason = "a bench that cannot run stops")]

mod calls;
mod history;
mod judging;
mod stream;

use std::process::ExitCode;

use criterion::Criterion;

/// A part that is measured.
pub(crate) struct Part {
    /// What one run does it for, and how many of them.
    pub(crate) units: u64,
    pub(crate) unit: &'static str,
    /// One run.
    pub(crate) run: Box<dyn FnMut()>,
}

impl Part {
    pub(crate) fn new(units: usize, unit: &'static str, run: impl FnMut() + 'static) -> Self {
        Self { units: units as u64, unit, run: Box::new(run) }
    }
}

/// Makes a part: by itself, so that the preparations of one are not counted for another.
type Make = fn() -> Part;

/// All parts.
const PARTS: &[(&str, Make)] = &[
    ("decode-anthropic", stream::anthropic),
    ("decode-openai-chat", stream::openai_chat),
    ("decode-openai-responses", stream::openai_responses),
    ("decode-gemini", stream::gemini),
    ("ring", stream::ring),
    ("fold", history::fold),
    ("serialize-anthropic", history::serialize_anthropic),
    ("serialize-openai-chat", history::serialize_openai_chat),
    ("request-anthropic", history::request_anthropic),
    ("request-openai-chat", history::request_openai_chat),
    ("edit-exact", calls::edit_exact),
    ("edit-trimmed", calls::edit_trimmed),
    ("patch", calls::patch),
    ("policy-paths", judging::paths),
    ("policy-script", judging::script),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["--list", ..] => {
            for (name, make) in PARTS {
                let part = make();
                println!("{name}\t{}\t{}", part.units, part.unit);
            }
        }
        ["--run", name, times, ..] => {
            let Some((_, make)) = PARTS.iter().find(|(known, _)| *known == name) else {
                println!("there is no part \"{name}\": --list tells them");
                return ExitCode::FAILURE;
            };
            let Ok(times) = times.parse::<u64>() else {
                println!("\"{times}\" is no number of times");
                return ExitCode::FAILURE;
            };
            let mut part = make();
            (0..times).for_each(|_| (part.run)());
        }
        _ => {
            let mut criterion = Criterion::default().configure_from_args();
            for (name, make) in PARTS {
                let mut part = make();
                let shown = format!("{name} ({} x {})", part.units, part.unit);
                criterion.bench_function(&shown, |bencher| bencher.iter(|| (part.run)()));
            }
            criterion.final_summary();
        }
    }
    ExitCode::SUCCESS
}
