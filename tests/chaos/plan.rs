//! What is done, from the seed: dice, what the models say, and how each life of the server ends.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use mock_llm::{Cut, Fault, Model, Moment, Rejection, Script, Step, reasoning, text};
use playhouse::store::fail::POINTS;
use serde_json::{Value, json};

use crate::arguments::Arguments;

/// Models that say different things. What one says in a turn it says to every session.
pub(crate) const KINDS: usize = 16;
/// Turns of a model; after them it only says a word.
const TURNS: usize = 20;
/// The most steps of a turn before its last one.
const STEPS: u64 = 4;

/// Where programs write what they did, in each workspace, and the programs. The second one needs consent.
pub(crate) const LINES: &str = "lines.txt";
pub(crate) const MARK: &str = "mark";
pub(crate) const ASKED: &str = "asked";

/// Numbers that follow from a seed and a name.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, name: impl Hash) -> Self {
        // The same in every process: its keys are fixed.
        let mut hasher = DefaultHasher::new();
        (seed, name).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether something happens that happens so many times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// How fast clients are, in milliseconds.
#[derive(Debug)]
pub(crate) struct Tempo {
    /// The longest before the first thing that a client does, and between two.
    pub(crate) first: u64,
    pub(crate) pause: u64,
    /// The longest that a connection lasts, and that a client is away.
    pub(crate) connected: u64,
    pub(crate) away: u64,
    /// The most sessions that a client leaves behind, and the most forks of the one that it works with.
    pub(crate) left: usize,
    pub(crate) forks: usize,
    /// How long what commands leave behind would live, in seconds.
    pub(crate) lingers: u64,
}

impl Tempo {
    const OF_CHAOS: Self = Self {
        first: 4_000,
        pause: 4_000,
        connected: 9_000,
        away: 4_000,
        left: 2,
        forks: usize::MAX,
        lingers: 300,
    };
    /// As people are: most sessions sleep at most times. There are as many at the end as in the first minute: a client that forked
    /// its session lets the fork go before it does anything else.
    const OF_SOAK: Self =
        Self { first: 20_000, pause: 60_000, connected: 60_000, away: 20_000, left: 0, forks: 0, lingers: 5 };
}

/// How a life of the server ends.
#[derive(Debug, PartialEq)]
pub(crate) struct Life {
    /// What `PLAYHOUSE_FAIL` says; empty for nothing.
    pub(crate) fail: String,
    /// When it is killed, counted from its start, if nothing did before.
    pub(crate) after: Duration,
    /// How long it is away after that.
    pub(crate) away: Duration,
    /// When somebody asks for a compaction.
    pub(crate) compacts: Option<Duration>,
}

/// The whole plan.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) sessions: usize,
    pub(crate) points: Vec<&'static str>,
    /// Whether writes of the store fail, too.
    pub(crate) write_errors: bool,
    pub(crate) tempo: Tempo,
}

impl Plan {
    pub(crate) fn new(arguments: &Arguments) -> Self {
        let Arguments { seed, sessions, write_errors, .. } = *arguments;
        let wanted = &arguments.points;
        let is_wanted =
            |point: &str| wanted.is_empty() || wanted.iter().any(|wanted| point.starts_with(wanted));
        // Nothing is salvaged here.
        let points = POINTS.iter().copied().filter(|point| is_wanted(point) && !point.starts_with("salvage"));
        let points = points.collect();
        let tempo = if arguments.soak { Tempo::OF_SOAK } else { Tempo::OF_CHAOS };
        Self { seed, sessions, points, write_errors, tempo }
    }

    pub(crate) fn dice(&self, name: impl Hash) -> Dice {
        Dice::new(self.seed, name)
    }

    /// The life of this number.
    pub(crate) fn life(&self, number: u64) -> Life {
        let mut dice = self.dice(("life", number));
        let at_a_point = dice.chance(60) && !self.points.is_empty();
        let (fail, after) = if at_a_point {
            // In turn, so that each is used when it runs for long enough.
            let first = self.dice("points").below(self.points.len() as u64) + number;
            let point = self.points[usize::try_from(first).unwrap() % self.points.len()];
            let often = point.starts_with("append") || point.starts_with("flush");
            let most = if often { 2 << dice.below(7) } else { 3 };
            let at = 1 + dice.below(most);
            // A writer that failed has to be opened again.
            let may_fail = self.write_errors
                || !["append", "flush", "rewrite.between"].iter().any(|of| point.starts_with(of));
            let action = match dice.below(100) {
                0..=19 if may_fail => "error",
                20..=29 if may_fail => "panic",
                _ => "kill",
            };
            (format!("{point}={action}@{at}"), dice.millis(1_500, 5_000))
        } else if dice.chance(20) {
            // While it begins, or shortly after.
            (String::new(), dice.millis(0, 500))
        } else {
            (String::new(), dice.millis(800, 5_000))
        };
        let compacts = (fail.starts_with("rewrite") || fail.starts_with("sweep") || dice.chance(20))
            .then(|| dice.millis(300, 1_500));
        Life { fail, after, away: dice.millis(0, 300), compacts }
    }

    /// The models.
    pub(crate) fn script(&self) -> Script {
        (0..KINDS).fold(Script::new().prompt_cache(), |script, kind| {
            let mut dice = self.dice(("kind", kind));
            let model = (0..TURNS).fold(Model::new(), |model, turn| {
                let model = if turn == 0 { model } else { model.next_turn() };
                let steps = dice.below(STEPS);
                let model = (0..steps).fold(model, |model, step| {
                    model.step(working(
                        &mut dice,
                        &format!("{}.{turn}.{step}", kind_name(kind)),
                        kind,
                        self.tempo.lingers,
                    ))
                });
                model.step(last(&mut dice))
            });
            script.model(kind_name(kind), model)
        })
    }
}

/// The name of a model.
pub(crate) fn kind_name(kind: usize) -> String {
    format!("k{kind:02}")
}

/// The file that sessions with this model edit.
pub(crate) fn notes(kind: usize) -> String {
    format!("notes-{}.txt", kind_name(kind))
}

/// A command that says in [`LINES`] that it ran, with a tag that no other call of the session has.
fn line(tag: &str, rest: &str) -> Value {
    json!({"command": format!("./{MARK} {tag}{rest}")})
}

/// A step with calls.
fn working(dice: &mut Dice, tag: &str, kind: usize, lingers: u64) -> Step {
    let notes = notes(kind);
    let said = || text("Let me see.");
    let step = match dice.below(12) {
        0..=3 => said().call("bash", line(tag, "")),
        4 => said().call("bash", line(tag, "; sleep 1")),
        // Something that would outlive whoever does not look after it.
        5 => {
            let left = format!("; setsid sleep {lingers} >/dev/null 2>&1 & sleep 0.2");
            said().call("bash", line(tag, &left))
        }
        6 => said().call("bash", json!({"command": format!("./{ASKED} {tag}")})),
        7 => said().call("read", json!({"filePath": notes})),
        8 => {
            let edited = json!({"filePath": notes, "oldString": "END", "newString": format!("{tag}\nEND")});
            said().call("read", json!({"filePath": notes})).call("edit", edited)
        }
        9 => {
            let question = json!({"questions": [{"question": format!("Which way at {tag}?"), "header": "Way",
                "options": [{"label": "left"}, {"label": "right"}]}]});
            said().call("question", question)
        }
        10 => said().call("bash", line(tag, "; seq 1 20000")),
        _ => {
            let read = || json!({"filePath": notes});
            said().call("read", read()).call("bash", line(tag, "")).call("list", json!({"path": "."}))
        }
    };
    faulty(dice, step)
}

/// The last step of a turn.
fn last(dice: &mut Dice) -> Step {
    let step = match dice.below(4) {
        0 => text("Done."),
        1 => reasoning("Hm.").tokens(30 + dice.below(200)),
        // Slow enough to be cut by a kill.
        2 => reasoning("Well.").tokens(30 + dice.below(40)).rate(60.0),
        _ => Step::default().tokens(2_000),
    };
    faulty(dice, step)
}

/// The same, with something that goes wrong the first time.
fn faulty(dice: &mut Dice, step: Step) -> Step {
    if !dice.chance(12) {
        return step;
    }
    let faults = [
        Fault::cut(Moment::FirstToken, Cut::Eof),
        Fault::cut(Moment::InText, Cut::Reset),
        Fault::cut(Moment::FinalEvent, Cut::Eof),
        Fault::Rejected(Rejection::Overloaded),
        Fault::status(500),
    ];
    let fault = dice.pick(&faults).clone();
    step.fault(fault).fail_first(1)
}
