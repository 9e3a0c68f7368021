//! Random stories of a session whose changes are taken back and done again: every file is as it was, or listed.
//!
//! A story has three turns of edits and commands in a git repository with CRLF files and a `filter` attribute. In the middle of a
//! turn a person and another session write, too, and the engine may be dropped there and begun anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mock_llm::{Model, Script, Step, call, text};
use playhouse_actors::SessionHandle;
use playhouse_protocol::revert::{RevertReport, RevertRequest, UnrevertRequest};
use playhouse_protocol::{ModelRef, Prompt, Record, SessionId};
use playhouse_store::Store;
use serde_json::json;
use tokio::runtime::Builder;

use crate::support::{Stage, until};

/// Seeds of the stories that every run of the tests tells, and of those that `scripts/slow` tells.
const STORIES: Range<u64> = 0..8;
const MORE_STORIES: Range<u64> = 8..50;
const TURNS: usize = 3;
/// Changes of a turn, half of them before others write.
const CHANGES: usize = 4;
const FILES: u64 = 6;

/// Numbers that look random, from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Mode and content of every file of a workspace but those of git; folders have none.
type Files = BTreeMap<String, (u32, Vec<u8>)>;

fn files(folder: &Path) -> Files {
    let (mut found, mut folders) = (Files::new(), vec![PathBuf::new()]);
    while let Some(below) = folders.pop() {
        for entry in fs_err::read_dir(folder.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let name = below.join(entry.file_name());
            let facts = entry.metadata().unwrap();
            if !facts.is_dir() {
                let content = fs_err::read(entry.path()).unwrap();
                found.insert(name.to_str().unwrap().to_owned(), (facts.permissions().mode(), content));
            } else if name != Path::new(".git") {
                let mode = facts.permissions().mode();
                found.insert(name.to_str().unwrap().to_owned(), (mode, Vec::new()));
                folders.push(name);
            }
        }
    }
    found
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = std::process::Command::new("git");
    assert!(command.current_dir(folder).args(arguments).status().unwrap().success(), "git {arguments:?}");
}

/// A repository whose object of `f0` is as long as the file and has another content, and where `f1` is dirty.
fn repository(folder: &Path, draw: &mut Draw) {
    git(folder, &["init", "--quiet"]);
    git(folder, &["config", "filter.shout.clean", "tr a-z A-Z"]);
    fs_err::write(folder.join(".gitattributes"), "f0 filter=shout\nf2 text eol=crlf\n").unwrap();
    for number in 0..FILES {
        let end = if number == 2 || draw.below(3) == 0 { "\r\n" } else { "\n" };
        let lines = (0..12).map(|line| format!("line {line} of f{number}{end}"));
        fs_err::write(folder.join(format!("f{number}")), lines.collect::<String>()).unwrap();
    }
    git(folder, &["add", "--all"]);
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    git(folder, &[&who[..], &["commit", "--quiet", "--message", "all"]].concat());
    git(folder, &["gc", "--quiet"]);
    let dirty = folder.join("f1");
    let content = fs_err::read_to_string(&dirty).unwrap();
    fs_err::write(&dirty, format!("dirty {content}")).unwrap();
}

/// One change of the session, as the calls that make it.
fn change(draw: &mut Draw) -> Vec<Step> {
    let name = format!("f{}", draw.below(FILES));
    let (line, number) = (draw.below(12), draw.below(100));
    let command = match draw.below(7) {
        0 => {
            let content = format!("new {number}\n");
            return vec![call(
                "write",
                json!({"filePath": format!("new-{}", draw.below(4)), "content": content}),
            )];
        }
        1 | 2 => {
            let edit = json!({
                "filePath": name,
                "oldString": format!("line {line} of {name}"),
                "newString": format!("edited {number}"),
            });
            return vec![call("read", json!({"filePath": name})), call("edit", edit)];
        }
        3 => format!("sed -i 's/line {line} of/command {number} of/' {name}"),
        4 => format!("rm -f {name}; echo fresh > {name}"),
        5 => format!("mv -f {name} moved-{}", draw.below(3)),
        6 if draw.below(3) == 0 => format!("rm -rf deep; mkdir -p deep/inner-{}", draw.below(2)),
        _ => {
            let mode = if draw.below(2) == 0 { "600" } else { "755" };
            format!("chmod {mode} {name}; mkdir -p deep; echo {number} > deep/made-{}", draw.below(3))
        }
    };
    vec![call("bash", json!({"command": command}))]
}

/// A turn whose session waits for others after half of its changes.
fn turn(draw: &mut Draw) -> Model {
    let mut steps = Vec::new();
    for number in 0..CHANGES {
        if number == CHANGES / 2 {
            steps.push(call("probe", json!({"mode": "wait"})));
        }
        steps.extend(change(draw));
    }
    steps.into_iter().fold(Model::new(), Model::step).step(text("done"))
}

/// A story while it is told.
struct Story {
    draw: Draw,
    store: Store,
    folder: Arc<tempfile::TempDir>,
    script: Script,
    session: Option<SessionId>,
    /// What others wrote, by file.
    theirs: Vec<(String, String)>,
}

impl Story {
    fn begin(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let workspace = folder.path().join("workspace");
        fs_err::create_dir(&workspace).unwrap();
        repository(&workspace, &mut draw);
        let mut script = Script::new();
        for number in 0..TURNS {
            let name = format!("f{}", draw.below(FILES));
            let edit = json!({
                "filePath": name,
                "oldString": format!("line {} of {name}", draw.below(12)),
                "newString": format!("theirs {number}"),
            });
            let own = json!({"filePath": format!("own-{number}"), "content": format!("theirs {number}\n")});
            let other = Model::new()
                .step(call("read", json!({"filePath": name})))
                .step(call("edit", edit))
                .step(call("write", own))
                .step(text("done"));
            script = script
                .model(format!("turn-{number}"), turn(&mut draw))
                .model(format!("other-{number}"), other);
        }
        // Each model answers one prompt of several.
        script.models.values_mut().for_each(|model| model.cycle = true);
        Self { draw, store: Store::memory().unwrap(), folder, script, session: None, theirs: Vec::new() }
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// Runs an engine up to the end of `work`, and drops it there: nothing of it runs any more.
    fn engine<T>(&mut self, work: impl AsyncFnOnce(&mut Self, &Stage, &SessionHandle) -> T) -> T {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let done = runtime.block_on(async {
            let (store, folder) = (self.store.clone(), Arc::clone(&self.folder));
            let stage = Stage::on(store, folder, self.script.clone(), 1 << 20).await;
            let session = match self.session {
                Some(id) => stage.engine.session(id).await.unwrap(),
                None => stage.session("turn-0").await,
            };
            self.session = Some(session.id());
            work(self, &stage, &session).await
        });
        runtime.shutdown_timeout(Duration::from_secs(20));
        done
    }

    /// A person adds a line, and another session changes a file and makes one.
    async fn meddle(&mut self, stage: &Stage, number: usize) {
        let workspace = self.workspace();
        let name = format!("f{}", self.draw.below(FILES));
        if let Ok(content) = fs_err::read_to_string(workspace.join(&name)) {
            let line = format!("a person was here in turn {number}");
            fs_err::write(workspace.join(&name), format!("{content}{line}\n")).unwrap();
            self.theirs.push((name, line));
        }
        let other = stage.session(&format!("other-{number}")).await;
        other.run(Prompt::text("go")).await.unwrap();
        let theirs = format!("theirs {number}");
        let theirs = files(&workspace)
            .into_iter()
            .filter(|(_, (_, content))| String::from_utf8_lossy(content).contains(&theirs))
            .map(|(name, _)| (name, theirs.clone()));
        self.theirs.extend(theirs.collect::<Vec<_>>());
    }

    /// Tells all turns.
    fn tell(&mut self) {
        for number in 0..TURNS {
            let is_dropped = self.draw.below(3) == 0;
            self.engine(async |story, stage, session| {
                let model = Some(ModelRef::new("mock", format!("turn-{number}")));
                let mut events = session.events(None).await.unwrap();
                session.prompt(Prompt { model, ..Prompt::text("go") }).await.unwrap();
                stage.probe.begun().await;
                story.meddle(stage, number).await;
                if !is_dropped {
                    stage.probe.release(1);
                    until(&mut events, |record| matches!(record, Record::TurnEnded(_))).await;
                }
            });
            if is_dropped {
                // Whatever is to be done again waits for nothing more.
                self.engine(async |_, stage, session| {
                    stage.probe.release(10);
                    crate::resume::all_is_finished(stage).await;
                    assert!(session.snapshot().await.unwrap().summary.open_turns == 0);
                });
            }
        }
    }
}

/// Paths that a report lists as left alone or not covered.
fn listed(reports: &[RevertReport]) -> BTreeSet<String> {
    let left = reports
        .iter()
        .flat_map(|report| report.conflicts.iter().chain(&report.ambiguous).chain(&report.not_covered));
    left.filter_map(|left| left.path.clone()).collect()
}

/// What is wrong with files that shall be as in `wanted`, but for what others wrote.
fn wrong(
    when: &str,
    wanted: &Files,
    now: &Files,
    theirs: &[(String, String)],
    left: &BTreeSet<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let of_others: BTreeSet<&String> = theirs.iter().map(|(name, _)| name).collect();
    for name in wanted.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
        let differs = wanted.get(name) != now.get(name);
        // A folder stays for what is in it.
        let holds =
            |path: &&String| path.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('/'));
        if of_others.iter().copied().chain(left).any(|path| holds(&path)) {
            continue;
        }
        if differs && !left.contains(name) && !of_others.contains(name) {
            let told = |files: &Files| {
                files.get(name).map(|(mode, content)| (*mode, String::from_utf8_lossy(content).into_owned()))
            };
            wrong.push(format!("{when}: {name} is {:?} instead of {:?}", told(now), told(wanted)));
        }
    }
    for (name, line) in theirs {
        let has_it =
            now.get(name).is_some_and(|(_, content)| String::from_utf8_lossy(content).contains(line));
        if !has_it && !left.contains(name) {
            wrong.push(format!("{when}: {line:?} is lost in {name}"));
        }
    }
    wrong
}

/// How a story ended.
#[derive(Debug)]
struct Ended {
    wrong: Vec<String>,
    /// Number of files that the turns changed.
    changed: usize,
    /// Number of files that were left alone when the turns were taken back.
    listed: usize,
}

/// A story that is taken back, and done again.
fn story(seed: u64) -> Ended {
    let mut story = Story::begin(seed);
    let workspace = story.workspace();
    let before = files(&workspace);
    story.tell();
    let after = files(&workspace);
    let undone = story.engine(async |_, _, session| {
        let mut reports = Vec::new();
        for _ in 0..TURNS {
            reports.push(session.revert(RevertRequest::default()).await.unwrap());
        }
        reports
    });
    let left = listed(&undone);
    let names = before.keys().chain(after.keys()).collect::<BTreeSet<_>>();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name)).count();
    let count = left.len();
    let mut problems = wrong("undone", &before, &files(&workspace), &story.theirs, &left);
    let redone = story.engine(async |_, _, session| {
        let mut reports = Vec::new();
        for _ in 0..TURNS {
            let once = UnrevertRequest { steps: Some(1), dry_run: false };
            // One that wrote nothing is none.
            reports.extend(session.unrevert(once).await);
        }
        reports
    });
    let left = left.union(&listed(&redone)).cloned().collect();
    // What others wrote may have been removed by the session since.
    let still = |(name, line): &&(String, String)| {
        after.get(name).is_some_and(|(_, content)| String::from_utf8_lossy(content).contains(line))
    };
    let theirs: Vec<_> = story.theirs.iter().filter(still).cloned().collect();
    problems.extend(wrong("redone", &after, &files(&workspace), &theirs, &left));
    Ended { wrong: problems, changed, listed: count }
}

#[test]
fn whatever_happened_each_file_is_as_it_was_or_listed() {
    tell(STORIES);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn whatever_happened_in_many_stories_each_file_is_as_it_was_or_listed() {
    tell(MORE_STORIES);
}

fn tell(stories: Range<u64>) {
    let next = AtomicU64::new(stories.start);
    let some = || {
        let seeds = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        seeds.take_while(|seed| *seed < stories.end).map(|seed| (seed, story(seed))).collect::<Vec<_>>()
    };
    let told: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let failed: Vec<_> = told.iter().filter(|(_, ended)| !ended.wrong.is_empty()).collect();
    assert!(failed.is_empty(), "seeds with what is wrong: {failed:#?}");
    // To list everything would be easy.
    let sum = |count: fn(&Ended) -> usize| told.iter().map(|(_, ended)| count(ended)).sum::<usize>();
    let (changed, listed) = (sum(|ended| ended.changed), sum(|ended| ended.listed));
    assert!(changed > 3 * listed && listed > 0, "{listed} of {changed} files are listed");
}
