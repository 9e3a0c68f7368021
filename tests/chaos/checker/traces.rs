//! What programs left behind: lines in files, and processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fs_err as fs;
use playhouse::protocol::message::CallOutcome;

use super::logs::{Call, Log, Logs};
use crate::model::{Failure, World};
use crate::plan::{ASKED, KINDS, LINES, MARK, notes};

/// How long what a killed engine left behind may take to end.
const GONE: Duration = Duration::from_secs(20);

/// A line of [`LINES`]: the session whose program wrote it, and the tag of its call.
fn read_line(line: &str) -> Option<(String, String)> {
    let (marks, tag) = line.rsplit_once(' ')?;
    // Of the widest to the narrowest: run, engine, session, command.
    let session = marks.split([':', ' ']).find(|part| part.starts_with("ses_"))?;
    Some((session.to_owned(), tag.to_owned()))
}

/// The tag in the arguments of a call.
fn tag_of(call: &Call) -> Option<String> {
    match call.tool.as_str() {
        "bash" => {
            let (program, rest) = call.input["command"].as_str()?.strip_prefix("./")?.split_once(' ')?;
            let is_known = [MARK, ASKED].contains(&program);
            rest.split(';').next().filter(|_| is_known).map(ToOwned::to_owned)
        }
        "edit" => call.input["newString"].as_str()?.strip_suffix("\nEND").map(ToOwned::to_owned),
        _ => None,
    }
}

/// Calls that change something ran at most once, and once where the log says that they did.
pub(super) fn check_lines(world: &World, logs: &Logs) -> Result<(), Failure> {
    let mut lines: BTreeMap<(String, String), u64> = BTreeMap::new();
    for workspace in world.tenants.iter().flat_map(|tenant| &tenant.workspaces) {
        let Ok(text) = fs::read_to_string(workspace.join(LINES)) else { continue };
        for line in text.lines() {
            let of = read_line(line).ok_or_else(|| Failure::new("a line that a program wrote", line))?;
            *lines.entry(of).or_default() += 1;
            world.counters.lines.fetch_add(1, Ordering::Relaxed);
        }
    }
    if let Some(((session, tag), times)) = lines.iter().find(|(_, times)| **times > 1) {
        return Err(Failure::of(
            session,
            format!("the command {tag} runs at most once"),
            format!("{times} times"),
        ));
    }
    for (session, log) in &logs.sessions {
        let mut known = BTreeSet::new();
        for call in log.calls.iter().filter(|call| call.tool == "bash") {
            let Some(tag) = tag_of(call) else { continue };
            let ran = lines.contains_key(&(session.clone(), tag.clone()));
            if ran && !call.intended {
                return Err(Failure::of(
                    session,
                    format!("no command runs without an intent: {tag}"),
                    format!("{call:?}"),
                ));
            }
            if !ran && call.outcome == CallOutcome::Done {
                return Err(Failure::of(
                    session,
                    format!("the command {tag} left its line"),
                    format!("{call:?}"),
                ));
            }
            known.insert(tag);
        }
        let unknown = lines.keys().find(|(of, tag)| of == session && !known.contains(tag));
        if let Some((_, tag)) = unknown {
            return Err(Failure::of(session, "what ran is in the log", format!("the command {tag} ran")));
        }
    }
    check_notes(world, logs)
}

/// The same for edits. A file is shared by sessions with the same model; where one of these is gone, so is what it did.
fn check_notes(world: &World, logs: &Logs) -> Result<(), Failure> {
    let told = world.sessions.lock().unwrap();
    for workspace in world.tenants.iter().flat_map(|tenant| &tenant.workspaces) {
        for kind in 0..KINDS {
            let here: Vec<&String> = told
                .iter()
                .filter(|(_, told)| told.workspace == *workspace && told.kind == kind)
                .map(|(id, _)| id)
                .collect();
            let logs_here: Vec<&Log> = here.iter().filter_map(|id| logs.sessions.get(*id)).collect();
            // Sessions whose making was never acknowledged are known by nobody but the store.
            let unknown = logs.sessions.values().any(|log| {
                Path::new(&log.summary.workspace) == workspace && !told.contains_key(log.summary.id.as_str())
            });
            if logs_here.len() != here.len() || unknown {
                continue;
            }
            let mut intended: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            for call in logs_here.iter().flat_map(|log| &log.calls).filter(|call| call.tool == "edit") {
                let Some(tag) = tag_of(call) else { continue };
                let (most, least) = intended.entry(tag).or_default();
                *most += u64::from(call.intended);
                *least += u64::from(call.outcome == CallOutcome::Done);
            }
            let text = fs::read_to_string(workspace.join(notes(kind))).unwrap_or_default();
            let mut found: BTreeMap<&str, u64> = BTreeMap::new();
            for line in text.lines().filter(|line| !matches!(*line, "BEGIN" | "END")) {
                *found.entry(line).or_default() += 1;
            }
            for (tag, (most, least)) in &intended {
                let times = found.remove(tag.as_str()).unwrap_or_default();
                if times > *most || times < *least {
                    let expected =
                        format!("the edit {tag} in {} was made {least} to {most} times", workspace.display());
                    return Err(Failure::new(expected, format!("{times} times")));
                }
            }
            if let Some((tag, _)) = found.first_key_value() {
                let seen = format!("the edit {tag} in {}", workspace.join(notes(kind)).display());
                return Err(Failure::new("every edit that was made is in a log", seen));
            }
        }
    }
    Ok(())
}

/// No process of the run is left: none that works in its folder, and none that carries the mark of one of its sessions.
pub(super) fn check_processes(world: &World) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let left = processes(world);
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > GONE {
            return Err(Failure::new(
                "no process is left when the server has ended",
                left.join("\n          "),
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The processes of the run, each with its command.
pub(crate) fn processes(world: &World) -> Vec<String> {
    let sessions = world.sessions.lock().unwrap();
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let folder = entry.path();
        let Some(id) = folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else {
            continue;
        };
        if id == std::process::id() {
            continue;
        }
        let is_in_place = fs::read_link(folder.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&world.place));
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let is_marked = environment.split(|byte| *byte == 0).any(|variable| {
            let variable = String::from_utf8_lossy(variable);
            variable.starts_with("PLAYHOUSE_COMMAND=")
                && variable.split([':', ' ']).any(|part| sessions.contains_key(part))
        });
        if is_in_place || is_marked {
            let command = fs::read(folder.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            // One that ended and waits for its parent has none.
            if !command.is_empty() {
                left.push(format!("{id}: {command}"));
            }
        }
    }
    left
}
