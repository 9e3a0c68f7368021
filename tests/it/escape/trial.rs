//! Makes the attempts of a part of the table, and looks at what came of them.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::attempt::{Attempt, Call, Effect, Harmed, Kind, Level, Verdict};
use super::ground::{Ground, Snapshot, snapshot};
use super::listener::Listener;
use super::unattended::Unattended;
use crate::stage::{Ended, finish};

/// So many attempts are made at once: most of their time they wait.
const THREADS: usize = 4;
/// What a process that must end may take to, after the engine has.
const END: Duration = Duration::from_secs(10);

/// A part of the table.
pub(super) struct Trial {
    kind: Kind,
    attempts: Vec<Attempt>,
}

/// A piece of work; fails with what is wrong.
type Task<'a> = Box<dyn Fn() -> Vec<String> + Send + Sync + 'a>;

impl Trial {
    pub(super) fn new(kind: Kind) -> Self {
        let mut attempts = Attempt::all(kind);
        // For one that is looked into: a part of its name.
        if let Ok(wanted) = std::env::var("ESCAPE") {
            attempts.retain(|attempt| attempt.name.contains(&wanted));
        }
        Self { kind, attempts }
    }

    /// Makes all attempts at these levels, and tells at once of all that went wrong. What holds at any level is looked at within
    /// the usual walls, and whether what is denied would work, where nothing holds it.
    pub(super) fn run(&self, levels: &[Level]) {
        check_machine(levels);
        let is_usual = levels.contains(&Level::Walled);
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for group in self.groups() {
            if is_usual {
                let group = group.clone();
                tasks.push(Box::new(move || self.judged(&group)));
            }
            let some = |test: &dyn Fn(&Attempt) -> bool| -> Vec<usize> {
                group.iter().copied().filter(|at| test(&self.attempts[*at])).collect()
            };
            let asked = some(&|attempt| attempt.verdict == Verdict::Ask && attempt.before.is_empty());
            if is_usual && !asked.is_empty() {
                tasks.push(Box::new(move || self.unattended(&asked)));
            }
            for &level in levels {
                let stopped = some(&|attempt| is_plainly_stopped(attempt) && attempt.levels.contains(&level));
                if !stopped.is_empty() {
                    tasks.push(Box::new(move || self.stopped(&stopped, level)));
                }
            }
            let apart = some(&|attempt| attempt.apart);
            if !apart.is_empty() {
                for &level in levels {
                    let apart = apart.clone();
                    tasks.push(Box::new(move || self.agreed(&apart, level)));
                }
                if levels.contains(&Level::Open) {
                    tasks.push(Box::new(move || self.would_work(&apart)));
                }
            }
        }
        let single = |attempt: &Attempt| !attempt.apart && !is_plainly_stopped(attempt);
        for (at, attempt) in self.attempts.iter().enumerate().filter(|(_, attempt)| single(attempt)) {
            for &level in levels.iter().filter(|level| attempt.levels.contains(level)) {
                tasks.push(Box::new(move || self.attempted(at, level)));
            }
        }
        let wrong = side_by_side(&tasks);
        assert!(wrong.is_empty(), "{} are wrong:\n\n{}", wrong.len(), wrong.join("\n\n"));
    }

    /// Rows with the same configuration and the same workspace.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (at, attempt) in self.attempts.iter().enumerate() {
            let same = |group: &&mut Vec<usize>| {
                let first = &self.attempts[group[0]];
                (&first.configuration, &first.without) == (&attempt.configuration, &attempt.without)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(at),
                None => groups.push(vec![at]),
            }
        }
        groups
    }

    fn ground(&self, group: &[usize]) -> Ground {
        let first = &self.attempts[group[0]];
        let ground = Ground::new(&first.configuration, &first.without);
        for at in group.iter().filter(|at| self.attempts[**at].apart) {
            ground.apart(&folder(*at));
        }
        ground
    }

    /// What tells one attempt at one level from all others of this process and of others.
    fn mark(&self, at: usize, way: &str) -> String {
        format!("mark{:?}{at}{way}{}", self.kind, std::process::id()).to_lowercase()
    }

    /// The call of a row, here.
    fn call(&self, ground: &Ground, at: usize, mark: &str) -> (String, Value) {
        let attempt = &self.attempts[at];
        let mut call = attempt.call.clone();
        if attempt.apart {
            call.input.insert("workdir".into(), folder(at).into());
        }
        let here = ground.workspace().join(folder(at));
        filled(&call, &|text| ground.text(text, mark).replace("{here}", &here.to_string_lossy()))
    }

    /// What the rules say, and that nothing runs meanwhile.
    fn judged(&self, group: &[usize]) -> Vec<String> {
        let ground = self.ground(group);
        let calls: Vec<_> = group.iter().map(|at| self.call(&ground, *at, &self.mark(*at, "v"))).collect();
        let ended = script(&ground, &calls, &["--verdict"], Level::Walled);
        let lines: Vec<&str> = ended.stdout.lines().collect();
        if lines.len() != group.len() {
            return vec![format!("--verdict said {} of {} calls: {ended:#?}", lines.len(), group.len())];
        }
        let mut wrong: Vec<String> = Vec::new();
        for (at, line) in group.iter().zip(lines) {
            let attempt = &self.attempts[*at];
            if Verdict::of(line) != Some(attempt.verdict) {
                wrong.push(format!("{}: not {:?} but {line}", attempt.name, attempt.verdict));
            }
        }
        wrong.extend(self.still(&ground, group, "v", "while it was judged"));
        wrong
    }

    /// Where nobody is asked nothing is done of what has to be asked.
    fn unattended(&self, asked: &[usize]) -> Vec<String> {
        let mut ground = self.ground(asked);
        let calls: Vec<_> = asked.iter().map(|at| self.call(&ground, *at, &self.mark(*at, "u"))).collect();
        let ended = Unattended::new(&mut ground, calls).run(&ground);
        let mut wrong = Vec::new();
        for (at, declined) in asked.iter().zip(&ended.declined) {
            if !declined {
                wrong.push(format!("{}: it was not declined where nobody is there", self.attempts[*at].name));
            }
        }
        if ended.declined.len() != asked.len() {
            wrong.push(format!("{} of {} calls were made: {ended:#?}", ended.declined.len(), asked.len()));
        }
        let revealed = ground.revealed(&ended.printed, true);
        if !revealed.is_empty() {
            wrong.push(format!("{revealed:?} were revealed where nobody is there"));
        }
        wrong.extend(self.still(&ground, asked, "u", "where nobody is there"));
        wrong
    }

    /// Nothing has come of any of these.
    fn still(&self, ground: &Ground, group: &[usize], way: &str, when: &str) -> Vec<String> {
        let mut wrong: Vec<String> =
            ground.disturbed().into_iter().map(|what| format!("{when}: {what}")).collect();
        for at in group {
            let attempt = &self.attempts[*at];
            let happened = match &attempt.effect {
                Effect::Removes => !is_there(ground, *at),
                Effect::Reaches => reached(ground, &self.mark(*at, way)),
                Effect::Outlives => outlives(&self.mark(*at, way)),
                Effect::Grows { path, over } => grown(ground, path) > *over,
                _ => false,
            };
            if happened {
                wrong.push(format!("{}: {:?} happened {when}", attempt.name, attempt.effect));
            }
        }
        wrong
    }

    /// Rows that rules or tools stop, in one session, with consent to whatever can be agreed to.
    fn stopped(&self, group: &[usize], level: Level) -> Vec<String> {
        let ground = self.ground(group);
        let way = level.mark();
        let calls: Vec<_> = group.iter().map(|at| self.call(&ground, *at, &self.mark(*at, way))).collect();
        let ended = script(&ground, &calls, &["--yes", "--sandbox", level.sandbox()], level);
        let lines: Vec<&str> = ended.stdout.lines().collect();
        if lines.len() != group.len() {
            return vec![format!("{} of {} calls were answered: {ended:#?}", lines.len(), group.len())];
        }
        let mut wrong = Vec::new();
        for (at, line) in group.iter().zip(lines) {
            let attempt = &self.attempts[*at];
            let said: Value = serde_json::from_str(line).unwrap();
            if said["ok"] == true {
                wrong.push(format!("{} was done: {line}", attempt.name));
            }
            let revealed = ground.revealed(line, true);
            if !revealed.is_empty() {
                wrong.push(format!("{} revealed {revealed:?}: {line}", attempt.name));
            }
        }
        let when = format!("{level:?}, where it is denied");
        wrong.into_iter().chain(self.still(&ground, group, way, &when)).collect()
    }

    /// All rows apart, agreed to, in one session.
    fn agreed(&self, group: &[usize], level: Level) -> Vec<String> {
        let runs = |at: &usize| {
            let attempt = &self.attempts[*at];
            attempt.levels.contains(&level) && (attempt.is_stopped() || !attempt.unsure)
        };
        let group: Vec<usize> = group.iter().copied().filter(runs).collect();
        let ground = self.ground(&group);
        let wrong = self.removed(&ground, &group, level, |attempt| attempt.happens.contains(&level));
        wrong.into_iter().chain(ground.disturbed()).map(|wrong| format!("{level:?}: {wrong}")).collect()
    }

    /// Each script that is denied would do it, if it were not.
    fn would_work(&self, group: &[usize]) -> Vec<String> {
        let runs = |at: &usize| self.attempts[*at].is_stopped() && !self.attempts[*at].unsure;
        let group: Vec<usize> = group.iter().copied().filter(runs).collect();
        if group.is_empty() {
            return Vec::new();
        }
        let ground = Ground::new("[permissions]\n\"*\" = \"allow\"", &[]);
        for at in &group {
            ground.apart(&folder(*at));
        }
        let wrong = self.removed(&ground, &group, Level::Open, |_| true);
        wrong.into_iter().map(|wrong| format!("where nothing is denied: {wrong}")).collect()
    }

    fn removed(
        &self,
        ground: &Ground,
        group: &[usize],
        level: Level,
        expected: impl Fn(&Attempt) -> bool,
    ) -> Vec<String> {
        let calls: Vec<_> = group.iter().map(|at| self.call(ground, *at, "")).collect();
        let ended = script(ground, &calls, &["--yes", "--sandbox", level.sandbox()], level);
        let lines: Vec<&str> = ended.stdout.lines().collect();
        if lines.len() != group.len() {
            return vec![format!("{} of {} calls were answered: {ended:#?}", lines.len(), group.len())];
        }
        let mut wrong = Vec::new();
        for (at, line) in group.iter().zip(lines) {
            let attempt = &self.attempts[*at];
            let is_gone = !is_there(ground, *at);
            if is_gone != expected(attempt) {
                let what = if is_gone { "removed it" } else { "did not remove it" };
                wrong.push(format!("{} {what}: {line}", attempt.name));
            }
        }
        wrong
    }

    /// One attempt at one level, with consent to all that can be agreed to.
    fn attempted(&self, at: usize, level: Level) -> Vec<String> {
        let attempt = &self.attempts[at];
        let ground = self.ground(&[at]);
        let mark = self.mark(at, level.mark());
        let before = match &attempt.effect {
            Effect::Changes(place) => snapshot(&ground.place(place)),
            _ => Snapshot::new(),
        };
        let first = attempt.before.iter().map(|call| filled(call, &|text| ground.text(text, &mark)));
        let last = std::iter::repeat_n(self.call(&ground, at, &mark), attempt.times);
        let calls: Vec<_> = first.chain(last).collect();
        let ended = script(&ground, &calls, &["--yes", "--sandbox", level.sandbox()], level);
        let mut wrong = Vec::new();
        let engine_harmed = ended.stdout.lines().count() != calls.len() || !matches!(ended.code, Some(0 | 1));
        let happened = match &attempt.effect {
            Effect::Reveals(name) => ended.stdout.contains(&ground.secret(name)),
            Effect::Changes(place) => ground.is_changed(place, &before),
            Effect::Says(text) => outputs(&ended).contains(text),
            Effect::Reaches => reached(&ground, &mark),
            Effect::Harms(Harmed::Bystander) => ground.is_bystander_harmed(),
            Effect::Harms(Harmed::Engine) => engine_harmed,
            Effect::Outlives => outlives(&mark),
            Effect::Grows { path, over } => grown(&ground, path) > *over,
            Effect::Removes => !is_there(&ground, at),
        };
        let expected = attempt.happens.contains(&level);
        if happened != expected {
            let what = if happened { "happened" } else { "did not happen" };
            wrong.push(format!("{:?} {what}: {}", attempt.effect, shortened(&ended)));
        }
        if engine_harmed && attempt.effect != Effect::Harms(Harmed::Engine) {
            wrong.push(format!("the engine did not end well: {}", shortened(&ended)));
        }
        wrong.extend(self.beside(&ground, attempt, level, &ended));
        wrong.into_iter().map(|wrong| format!("{}, {level:?}: {wrong}", attempt.name)).collect()
    }

    /// What came of an attempt beside what it was after.
    fn beside(&self, ground: &Ground, attempt: &Attempt, level: Level, ended: &Ended) -> Vec<String> {
        if level == Level::Open && attempt.happens.contains(&level) {
            return Vec::new();
        }
        let is_command = attempt.call.tool == "bash";
        let wanted = match &attempt.effect {
            Effect::Reveals(name) => name,
            _ => "",
        };
        // What it was after is told already.
        let revealed = ground.revealed(&ended.stdout, is_command && level != Level::Open);
        let revealed: Vec<_> = revealed.into_iter().filter(|name| *name != wanted).collect();
        let mut wrong = ground.disturbed();
        if let Effect::Changes(_) | Effect::Harms(_) = attempt.effect {
            wrong.clear();
        }
        if !revealed.is_empty() {
            wrong.push(format!("{revealed:?} were revealed as well: {}", shortened(ended)));
        }
        wrong
    }
}

/// What attempts are made with, and against.
fn check_machine(levels: &[Level]) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for program in ["bash", "perl", "setsid"] {
        let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        assert!(is_there, "the attempts need {program}: install it (`apt install bash perl util-linux`)");
    }
    if levels.contains(&Level::Walled) {
        let walls = walls(|ground, arguments| ground.engine(arguments));
        assert!(
            walls.starts_with("bubblewrap"),
            "the attempts need bubblewrap that works (`apt install bubblewrap`, and user namespaces; see docs/guide/permissions-and-sandbox.md): {walls}"
        );
    }
    if levels.contains(&Level::Weaker) {
        let walls = walls(|ground, arguments| ground.engine_without_bubblewrap(arguments));
        assert!(walls.starts_with("landlock"), "the attempts need a kernel with Landlock: {walls}");
    }
}

/// What the doctor says of the walls.
fn walls(engine: impl Fn(&Ground, &[&str]) -> Command) -> String {
    let ground = Ground::new("", &[]);
    let ended = finish(engine(&ground, &["doctor", "--sandbox", "required", "--format", "json"]));
    let findings = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let walls = findings.into_iter().find(|finding| finding["check"] == "walls").unwrap();
    walls["detail"].as_str().unwrap_or_default().to_owned()
}

/// Whether it is one call that does not get to run, so that many can be made in one session.
fn is_plainly_stopped(attempt: &Attempt) -> bool {
    attempt.is_stopped() && !attempt.apart && attempt.before.is_empty() && attempt.times == 1
}

/// The directory of a row apart.
fn folder(at: usize) -> String {
    format!("row{at}")
}

fn is_there(ground: &Ground, at: usize) -> bool {
    ground.workspace().join(folder(at)).join("victim/file").is_file()
}

fn reached(ground: &Ground, mark: &str) -> bool {
    Listener::get().was_reached(mark) || ground.was_reached(mark)
}

fn grown(ground: &Ground, path: &str) -> u64 {
    fs_err::metadata(ground.place(path)).map_or(0, |facts| facts.len())
}

/// Whether a process with this in its words is there for good.
fn outlives(mark: &str) -> bool {
    let start = Instant::now();
    loop {
        let found = with_words(mark);
        if found.is_empty() {
            return false;
        }
        if start.elapsed() > END {
            for process in found {
                let process = rustix::process::Pid::from_raw(process).unwrap();
                // It may end at last.
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn with_words(mark: &str) -> Vec<i32> {
    let ids = fs_err::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |id: &i32| {
        let words = fs_err::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).next().is_some_and(|first| first == mark.as_bytes())
    };
    ids.filter(has).collect()
}

/// What the last call said.
fn outputs(ended: &Ended) -> String {
    let last = ended.stdout.lines().last().unwrap_or("{}");
    let line: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"));
    line["output"].as_str().unwrap_or_default().to_owned()
}

fn shortened(ended: &Ended) -> String {
    let last = ended.stdout.lines().last().unwrap_or_default();
    let cut: String = last.chars().take(600).collect();
    format!("{:?} {cut} {}", ended.code, ended.stderr)
}

/// A call with its placeholders replaced, also deep in its input.
fn filled(call: &Call, fill: &dyn Fn(&str) -> String) -> (String, Value) {
    fn walk(value: &Value, fill: &dyn Fn(&str) -> String) -> Value {
        match value {
            Value::String(text) => fill(text).into(),
            Value::Array(values) => values.iter().map(|value| walk(value, fill)).collect(),
            Value::Object(object) => {
                object.iter().map(|(name, value)| (name.clone(), walk(value, fill))).collect()
            }
            other => other.clone(),
        }
    }
    (call.tool.clone(), walk(&Value::Object(call.input.clone()), fill))
}

/// Runs calls in one session.
fn script(ground: &Ground, calls: &[(String, Value)], options: &[&str], level: Level) -> Ended {
    let file = ground.root().join("calls.jsonl");
    let lines = calls.iter().map(|(tool, input)| json!({"tool": tool, "input": input}).to_string());
    fs_err::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let file = file.to_string_lossy().into_owned();
    let data = ground.place("{data}").to_string_lossy().into_owned();
    let fixed = ["--data", &data, "tool", "--script", &file];
    let arguments: Vec<&str> = fixed.into_iter().chain(options.iter().copied()).collect();
    finish(match level {
        Level::Weaker => ground.engine_without_bubblewrap(&arguments),
        Level::Open | Level::Walled => ground.engine(&arguments),
    })
}

/// Does all tasks on a few threads. What is wrong comes in the order of the tasks.
fn side_by_side(tasks: &[Task<'_>]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let wrong: Mutex<Vec<(usize, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(at) else { return };
                    let found = task().into_iter().map(|wrong| (at, wrong));
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort();
    wrong.into_iter().map(|(_, wrong)| wrong).collect()
}
