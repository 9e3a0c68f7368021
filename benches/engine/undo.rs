//! Changes of files: what the change set of an edit and of a command costs in workspaces of three sizes, what it costs to take
//! 1,000 files back, and what language servers add to an edit.
//!
//! Commands are measured beside the same with `snapshots.max_files` below the workspace's size, which leaves the index out,
//! and beside git, which adds the same change to a seeded index. Gaps are from the end of an answer to the next request.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use playhouse::SessionHandle;
use playhouse::protocol::message::CallOutcome;
use playhouse::protocol::revert::{RevertRequest, UnrevertRequest};
use playhouse::protocol::{Entry, Record};

use crate::house::{Place, run};
use crate::model::{Asked, COMMANDS, EDITED, EDITED_FIRST, EDITS, EDITS_ASKED, SWEEP, Server, WALK};
use crate::report::Measurement;
use crate::{Effort, Result};

/// Files of the workspaces, a thousand in each folder.
const FILES: [usize; 3] = [1_000, 10_000, 100_000];
/// Steps of a turn.
const STEPS: usize = 40;
/// First steps that are told apart: files are read, the index is made, servers are asked.
const COLD: usize = 2;
/// Times that git adds a change.
const ADDED: usize = 20;
/// Times that files are taken back, and changed again.
const ROUNDS: usize = 5;
/// A language server that the tests have, and one that never answers.
const WARM: &str = include_str!("../../tests/fixtures/language-server.sh");
/// The target of an edit beside a warm server, as the wait that a server may take in milliseconds.
const WAIT: f64 = 1_500.0;

pub(crate) fn measure(effort: Effort) -> Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for files in FILES {
        measurements.extend(change_sets(effort, effort.of(files))?);
    }
    measurements.extend(reverts(effort)?);
    measurements.extend(servers(effort)?);
    Ok(measurements)
}

/// What one turn took and left.
struct Turn {
    /// What stood between an answer and the next request, by step, in milliseconds.
    gaps: Vec<f64>,
    /// Its log.
    log: Vec<Entry>,
}

impl Turn {
    /// The gaps behind the first steps.
    fn warm(&self) -> Vec<f64> {
        self.gaps.iter().skip(COLD).copied().collect()
    }

    /// Bytes of its change sets, with the contents that they name, for each.
    fn bytes(&self) -> Result<f64> {
        let (mut sets, mut records, mut contents) = (0_usize, 0, HashMap::new());
        for entry in &self.log {
            let Record::WorkspaceChanged(changed) = &entry.record else { continue };
            sets += 1;
            records += serde_json::to_vec(changed)?.len();
            for change in &changed.set.changes {
                let blobs = [&change.before, &change.after].into_iter().flatten();
                contents.extend(
                    blobs.filter_map(|image| image.content.blob()).map(|blob| (blob.hash.clone(), blob.size)),
                );
            }
        }
        if sets == 0 {
            return Err("the turn changed nothing".into());
        }
        Ok((records as f64 + contents.values().sum::<u64>() as f64) / sets as f64)
    }
}

fn change_sets(effort: Effort, files: usize) -> Result<Vec<Measurement>> {
    let steps = effort.of(STEPS).max(COLD + 2);
    let place = workspace(files)?;
    let off = format!("{ALLOWED}[snapshots]\nmax_files = 1\n");
    let read = turn(&place, steps, WALK, ALLOWED)?;
    let edit = turn(&place, steps, EDITS, ALLOWED)?;
    let without = turn(&place, steps, COMMANDS, &off)?;
    let command = turn(&place, steps, COMMANDS, ALLOWED)?;
    let (git_took, git_bytes) = git_adds(&place.path().join("workspace"), effort.of(ADDED))?;

    let name = |what: &str| format!("{files} files: {what}");
    let first = command.gaps.first().copied().ok_or("the turn had no steps")?;
    let (edit_bytes, command_bytes) = (edit.bytes()?, command.bytes()?);
    let read = Measurement::new(name("step with a read"), "ms", read.warm());
    let edit = Measurement::new(name("step with an edit"), "ms", edit.warm());
    let without = Measurement::new(name("step with a command, no index"), "ms", without.warm());
    let command = Measurement::new(name("step with a command"), "ms", command.warm());
    let git = Measurement::new(name("git add -A && git write-tree"), "ms", git_took);
    let change_set = command.median() - without.median();
    let ratio = |one: f64, other: f64, what: &str| Measurement::new(name(what), "times", vec![one / other]);
    Ok(vec![
        ratio(edit.median(), read.median(), "an edit, beside a read"),
        ratio(change_set, git.median(), "the change set of a command, beside git"),
        Measurement::new(name("the change set of a command"), "ms", vec![change_set]),
        Measurement::new(name("first step with a command"), "ms", vec![first]),
        read,
        edit,
        without,
        command,
        git,
        Measurement::new(name("change set of an edit"), "bytes", vec![edit_bytes]),
        Measurement::new(name("change set of a command"), "bytes", vec![command_bytes]),
        Measurement::new(name("objects that git adds"), "bytes", vec![git_bytes]),
    ])
}

/// A thousand files that one command changed are taken back, and changed again; and git takes them back.
fn reverts(effort: Effort) -> Result<Vec<Measurement>> {
    let (files, rounds) = (effort.of(FILES[0]), effort.of(ROUNDS));
    let place = workspace(files)?;
    let folder = place.path().join("workspace");
    let model = Server::start(place.path(), 1)?;
    let (mut undone, mut redone, mut restored) = (Vec::new(), Vec::new(), Vec::new());
    runtime()?.block_on(async {
        let house = place.start_with(&model, "anthropic", ALLOWED).await?;
        let session = place.session(&house, SWEEP).await?;
        run(&session).await?;
        for _ in 0..rounds {
            undone.push(timed(files, session.clone(), false).await?);
            redone.push(timed(files, session.clone(), true).await?);
            let begun = Instant::now();
            git(&folder, &["checkout", "--quiet", "--", "d0"])?;
            restored.push(begun.elapsed().as_secs_f64() * 1e3);
            // As it was before git.
            for file in fs_err::read_dir(folder.join("d0"))? {
                let file = file?.path();
                fs_err::write(&file, fs_err::read_to_string(&file)? + "changed\n")?;
            }
        }
        house.shutdown().await;
        Ok::<_, crate::Failure>(())
    })?;
    model.stop()?;
    let undone = Measurement::new(format!("undo of {files} files"), "ms", undone);
    let redone = Measurement::new(format!("redo of {files} files"), "ms", redone);
    let restored = Measurement::new(format!("git checkout of {files} files"), "ms", restored);
    let ratio = Measurement::new("undo, beside git", "times", vec![undone.median() / restored.median()]);
    Ok(vec![undone, redone, restored, ratio])
}

/// How long it takes to take the last prompt back, or to do it again, in milliseconds.
async fn timed(files: usize, session: SessionHandle, again: bool) -> Result<f64> {
    let begun = Instant::now();
    let report = match again {
        false => session.revert(RevertRequest::default()).await?,
        true => session.unrevert(UnrevertRequest::default()).await?,
    };
    let taken = begun.elapsed().as_secs_f64() * 1e3;
    if report.files.len() != files {
        return Err(format!("{} of {files} files were written: {report:?}", report.files.len()).into());
    }
    Ok(taken)
}

/// Edits without a language server, beside one that runs, and beside one that starts and starts.
fn servers(effort: Effort) -> Result<Vec<Measurement>> {
    let steps = effort.of(STEPS).max(COLD + 2);
    let place = workspace(10)?;
    let server =
        |command: &str| format!("{ALLOWED}[lsp.acc]\ncommand = {command}\nextensions = [\".acc\"]\n");
    let without = turn(&place, steps, EDITS_ASKED, ALLOWED)?.warm();
    let warm = server(&format!("[\"bash\", \"-c\", '''{WARM}''']")) + "env = { MODE = \"pull\" }\n";
    let warm = turn(&place, steps, EDITS_ASKED, &warm)?.warm();
    let cold = turn(&place, steps, EDITS, &server("[\"sleep\", \"3600\"]"))?.warm();
    let without = Measurement::new("step with an edit, no language server", "ms", without);
    let warm = Measurement::new("beside a warm one", "ms", warm).under(WAIT);
    let cold = Measurement::new("beside one that starts", "ms", cold);
    let added = |measured: &Measurement, what: &str| {
        Measurement::new(what, "ms", vec![measured.median() - without.median()])
    };
    let (by_warm, by_cold) = (added(&warm, "added by a warm one"), added(&cold, "added by one that starts"));
    Ok(vec![without, warm, cold, by_warm, by_cold])
}

/// The configuration of all: nobody is asked.
const ALLOWED: &str = "[permissions]\n\"*\" = \"allow\"\n";

/// One turn of a model in this place.
fn turn(place: &Place, steps: usize, name: &str, configuration: &str) -> Result<Turn> {
    fs_err::write(place.path().join("workspace").join(EDITED), EDITED_FIRST)?;
    let model = Server::start(place.path(), steps)?;
    let log = runtime()?.block_on(async {
        let house = place.start_with(&model, "anthropic", configuration).await?;
        let session = place.session(&house, name).await?;
        run(&session).await?;
        let (log, _) = house.engine().read(session.id()).await?;
        house.shutdown().await;
        Ok::<_, crate::Failure>(log)
    })?;
    let asked = model.stop()?;
    let gap = |pair: &[Asked]| match pair {
        [before, after] => Some(after.arrived_us.saturating_sub(before.sent_us) as f64 / 1e3),
        _ => None,
    };
    let gaps: Vec<f64> = asked.windows(2).filter_map(gap).collect();
    let failed = log.iter().find_map(|entry| match &entry.record {
        // Without a server there is no tool that asks it.
        Record::CallSettled { result, .. } if result.outcome != CallOutcome::Done && name != EDITS_ASKED => {
            Some(&result.output)
        }
        _ => None,
    });
    match failed {
        Some(failed) => Err(format!("a call of {name} failed: {failed:?}").into()),
        None if gaps.len() != steps => {
            Err(format!("{} of {steps} steps of {name} were seen", gaps.len()).into())
        }
        None => Ok(Turn { gaps, log }),
    }
}

/// A place whose workspace has so many files of half a kilobyte that git holds in a pack.
fn workspace(files: usize) -> Result<Place> {
    let place = Place::new()?;
    let folder = place.path().join("workspace");
    for number in 0..files {
        let inside = folder.join(format!("d{}", number / 1_000));
        if number % 1_000 == 0 {
            fs_err::create_dir(&inside)?;
        }
        fs_err::write(inside.join(format!("f{number}")), format!("line of {number}\n").repeat(35))?;
    }
    git(&folder, &["init", "--quiet"])?;
    git(&folder, &["add", "--all"])?;
    let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    git(&folder, &[&who[..], &["commit", "--quiet", "--message", "all"]].concat())?;
    git(&folder, &["gc", "--quiet"])?;
    Ok(place)
}

/// What git takes to add one changed file to an index that knows the others, in milliseconds, and bytes of its objects for each.
fn git_adds(folder: &Path, times: usize) -> Result<(Vec<f64>, f64)> {
    let add = |number: usize| {
        fs_err::write(folder.join("commanded"), format!("git's version {number}\n"))?;
        let begun = Instant::now();
        git(folder, &["add", "--all"])?;
        git(folder, &["write-tree"])?;
        Ok::<_, crate::Failure>(begun.elapsed().as_secs_f64() * 1e3)
    };
    add(0)?;
    let before = bytes_below(&folder.join(".git/objects"))?;
    let took = (1..=times).map(add).collect::<Result<Vec<f64>>>()?;
    let bytes = bytes_below(&folder.join(".git/objects"))?.saturating_sub(before);
    Ok((took, bytes as f64 / times as f64))
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    // Nothing of git's own runs beside what is measured.
    command.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]).args(arguments);
    let ended = command.current_dir(folder).stdout(Stdio::null()).status()?;
    if ended.success() { Ok(()) } else { Err(format!("git {arguments:?} ended with {ended}").into()) }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
