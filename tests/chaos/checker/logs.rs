//! The logs, held against what was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use playhouse::protocol::message::{Attachment, CallOutcome, CallResult, Part};
use playhouse::protocol::record::{AttemptOutcome, CallProposed, Effect};
use playhouse::protocol::{ConsentAnswer, Entry, Record, Seq, SessionSummary};
use playhouse::store::{ListQuery, Store};
use serde_json::Value;

use crate::follower::hash;
use crate::model::{Counters, Deletion, Failure, Told, World};

/// A larger record lies in a blob. No record of the load is about as large.
const INSIDE: usize = 64 * 1024;

/// A call of a session's own.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) input: Value,
    pub(super) intended: bool,
    pub(super) outcome: CallOutcome,
}

/// What a session's log says.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) summary: SessionSummary,
    pub(super) calls: Vec<Call>,
}

/// What all logs say.
#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) sessions: BTreeMap<String, Log>,
    /// How each attempt ended.
    pub(super) outcomes: BTreeMap<String, AttemptOutcome>,
    /// Blobs that are needed, by tenant: files by their hash, large records by one of their content.
    pub(super) blobs: BTreeSet<(String, String)>,
}

/// Reads and checks every log.
pub(super) fn read(world: &World, store: &Store) -> Result<Logs, Failure> {
    let mut logs = Logs::default();
    let mut query = ListQuery { limit: 500, ..ListQuery::default() };
    loop {
        let page = store
            .log
            .list(&query)
            .map_err(|error| Failure::new("sessions can be listed", error.to_string()))?;
        for summary in page.sessions {
            let id = summary.id.to_string();
            let log = one(world, store, summary, &mut logs)?;
            logs.sessions.insert(id, log);
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    for (id, told) in &*world.sessions.lock().unwrap() {
        let is_there = logs.sessions.contains_key(id);
        match told.deletion {
            Deletion::No if !is_there => {
                return Err(Failure::of(id, "the session is in the store", "it is not"));
            }
            Deletion::Acknowledged if is_there => {
                return Err(Failure::of(id, "a deleted session is not in the store", "it is"));
            }
            _ => {}
        }
    }
    let unfinished = store.log.unfinished().map_err(|error| Failure::new("an index", error.to_string()))?;
    match unfinished.first() {
        Some(one) => Err(Failure::of(one.as_str(), "no session is unfinished by the index", "it is")),
        None => Ok(logs),
    }
}

/// The hashes of all blobs that a record names.
fn hashes(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let hash = members.get("hash").and_then(Value::as_str).filter(|_| members.contains_key("size"));
            found.extend(hash.map(str::to_owned));
            members.values().for_each(|value| hashes(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| hashes(item, found)),
        _ => {}
    }
}

fn one(world: &World, store: &Store, summary: SessionSummary, logs: &mut Logs) -> Result<Log, Failure> {
    let id = summary.id.to_string();
    let read = store.log.read(summary.id, Seq::START, usize::MAX);
    let read = read.map_err(|error| Failure::of(&id, "its log can be read", error.to_string()))?;
    if let Some(damage) = read.damage {
        return Err(Failure::of(&id, "its log is whole", damage.to_string()));
    }
    world.counters.records.fetch_add(read.entries.len() as u64, Ordering::Relaxed);
    let mut reader = Reader { id: &id, ..Reader::default() };
    for (index, entry) in read.entries.iter().enumerate() {
        if entry.seq.0 != index as u64 + 1 {
            return Err(Failure::of(&id, format!("record {}", index + 1), format!("record {}", entry.seq)));
        }
        reader.entry(entry)?;
    }
    if summary.head.0 != read.entries.len() as u64 {
        let seen = format!("the summary ends at {}", summary.head);
        return Err(Failure::of(&id, format!("{} records", read.entries.len()), seen));
    }
    reader.check_blobs(store, &summary.tenant)?;
    logs.blobs.extend(reader.files.iter().map(|file| (summary.tenant.clone(), file.blob.hash.clone())));
    for entry in &read.entries {
        // Files as they were before and after calls.
        let mut named = Vec::new();
        hashes(&serde_json::to_value(&entry.record).unwrap(), &mut named);
        logs.blobs.extend(named.into_iter().map(|hash| (summary.tenant.clone(), hash)));
        let json = serde_json::to_string(&entry.record).unwrap();
        if json.len() > INSIDE {
            let name = format!("record {}", hash("", &Value::String(json)));
            logs.blobs.insert((summary.tenant.clone(), name));
        }
    }
    reader.check_ends()?;
    if let Some(told) = world.sessions.lock().unwrap().get(&id) {
        reader.check_told(told, &read.entries, &summary)?;
    }
    for (attempt, outcome) in std::mem::take(&mut reader.ended) {
        // Forks share attempts with their origin.
        logs.outcomes.insert(attempt, outcome);
    }
    let calls = reader.calls()?;
    for call in &calls {
        let outcome = format!("{:?}", call.outcome).to_lowercase();
        Counters::hit(&world.counters.calls, format!("{} {outcome}", call.tool));
    }
    Ok(Log { summary, calls })
}

/// What is found in a log.
#[derive(Default)]
struct Reader<'a> {
    id: &'a str,
    /// The last record that is shared with an origin; 0 for none.
    shared: u64,
    /// Prompts of its own that begin a turn, in order; all of them; those that a running turn took over.
    admitted: Vec<String>,
    begun: Vec<String>,
    steered: BTreeSet<String>,
    /// Prompts that asked to be taken over.
    may_steer: BTreeSet<String>,
    ends: BTreeMap<String, u32>,
    proposed: Vec<(u64, CallProposed)>,
    intended: BTreeSet<String>,
    settled: BTreeMap<String, Vec<CallResult>>,
    started: BTreeSet<String>,
    ended: BTreeMap<String, AttemptOutcome>,
    asked: BTreeSet<String>,
    answers: BTreeMap<String, String>,
    files: Vec<Attachment>,
}

impl Reader<'_> {
    fn failure(&self, expected: impl Into<String>, seen: impl Into<String>) -> Failure {
        Failure::of(self.id, expected, seen)
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        let twice = |what: String| {
            Failure::of(self.id, format!("{what} stands in the log once"), format!("{entry:?}"))
        };
        match &entry.record {
            Record::Forked(forked) => {
                self.shared = forked.at.0;
                // What waited in the part that is shared is no part of the fork.
                self.admitted.clear();
            }
            Record::PromptAdmitted(prompt) => {
                let id = prompt.message.to_string();
                if self.admitted.contains(&id) {
                    return Err(twice(format!("prompt {id}")));
                }
                if prompt.steer {
                    self.may_steer.insert(id.clone());
                }
                if !prompt.kind.is_note() {
                    self.admitted.push(id);
                }
                self.files.extend(prompt.parts.iter().filter_map(|part| match part {
                    Part::File { file, .. } => Some(file.clone()),
                    _ => None,
                }));
            }
            Record::TurnStarted { turn } => self.begun.push(turn.to_string()),
            Record::TurnEnded(ended) => *self.ends.entry(ended.turn.to_string()).or_default() += 1,
            Record::AttemptStarted(started) => {
                if !self.started.insert(started.attempt.to_string()) {
                    return Err(twice(format!("the beginning of attempt {}", started.attempt)));
                }
                self.steered.extend(started.steered.iter().map(ToString::to_string));
            }
            Record::AttemptEnded(ended) => {
                let before = self.ended.insert(ended.attempt.to_string(), ended.outcome.clone());
                if before.is_some() {
                    return Err(twice(format!("the end of attempt {}", ended.attempt)));
                }
            }
            Record::CallProposed(call) => self.proposed.push((entry.seq.0, call.clone())),
            Record::CallIntended(intended) => {
                // What changes nothing may run again after a restart, which is intended again.
                let is_first = self.intended.insert(intended.call.to_string());
                if !is_first && intended.effect != Effect::None {
                    return Err(twice(format!("the intent of call {}", intended.call)));
                }
            }
            Record::CallSettled { call, result } => {
                self.files.extend(result.attachments.iter().cloned());
                self.settled.entry(call.to_string()).or_default().push(result.clone());
            }
            Record::ConsentAsked(asked) => drop(self.asked.insert(asked.consent.to_string())),
            Record::QuestionAsked(asked) => drop(self.asked.insert(asked.question.to_string())),
            Record::ConsentSettled { consent, answer } => {
                let word = match answer {
                    ConsentAnswer::Once => "once",
                    ConsentAnswer::Decline { .. } => "decline",
                    _ => "another",
                };
                if self.answers.insert(consent.to_string(), word.to_owned()).is_some() {
                    return Err(twice(format!("the answer to {consent}")));
                }
            }
            Record::QuestionSettled { question, answer } => {
                let word =
                    serde_json::to_value(answer).unwrap()["answer"].as_str().unwrap_or_default().to_owned();
                if self.answers.insert(question.to_string(), word).is_some() {
                    return Err(twice(format!("the answer to {question}")));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Everything that began is over, once.
    fn check_ends(&self) -> Result<(), Failure> {
        for prompt in &self.admitted {
            let ends = self.ends.get(prompt).copied().unwrap_or_default();
            let wanted = u32::from(!self.steered.contains(prompt));
            if ends != wanted {
                return Err(
                    self.failure(format!("prompt {prompt} has one end"), format!("{ends} ends of its own"))
                );
            }
        }
        if let Some((turn, ends)) = self.ends.iter().find(|(_, ends)| **ends != 1) {
            return Err(self.failure(format!("turn {turn} ends once"), format!("it ends {ends} times")));
        }
        // Those that a running turn may take over come before others, where it did not.
        let in_order = |prompts: &[String]| -> Vec<String> {
            let own = prompts.iter().filter(|prompt| self.admitted.contains(prompt));
            own.filter(|prompt| !self.may_steer.contains(*prompt)).cloned().collect()
        };
        let begun = in_order(&self.begun);
        let mut admitted = in_order(&self.admitted);
        admitted.retain(|prompt| begun.contains(prompt));
        if begun != admitted {
            return Err(self.failure(
                format!("turns begin in the order of their prompts: {admitted:?}"),
                format!("{begun:?}"),
            ));
        }
        if let Some(attempt) = self.started.iter().find(|attempt| !self.ended.contains_key(*attempt)) {
            return Err(self.failure(format!("attempt {attempt} has an end"), "it has none"));
        }
        if let Some(asked) = self.asked.iter().find(|asked| !self.answers.contains_key(*asked)) {
            return Err(self.failure(format!("request {asked} is settled"), "it is not"));
        }
        Ok(())
    }

    fn check_told(&self, told: &Told, entries: &[Entry], summary: &SessionSummary) -> Result<(), Failure> {
        let kept: Vec<&String> =
            self.admitted.iter().filter(|prompt| told.prompts.contains(prompt)).collect();
        if kept != told.prompts.iter().collect::<Vec<_>>() {
            let expected = format!("the prompts that were acknowledged, in order: {:?}", told.prompts);
            return Err(self.failure(expected, format!("{:?}", self.admitted)));
        }
        for (request, word) in &told.answers {
            let found = self.answers.get(request).map(String::as_str);
            if found != Some(word) {
                return Err(self.failure(
                    format!("request {request} is settled by the answer \"{word}\""),
                    format!("{found:?}"),
                ));
            }
        }
        if let Some(title) = told.title.as_ref().filter(|title| **title != summary.title) {
            return Err(self.failure(format!("the title is \"{title}\""), &summary.title));
        }
        for (seen, entry) in told.seen.iter().zip(entries) {
            let record = serde_json::to_value(entry.record.clone().into_event()).unwrap();
            let data = record.get("data").cloned().unwrap_or_default();
            let same =
                seen.kind == entry.record.kind() && (seen.hash == 0 || seen.hash == hash(&seen.kind, &data));
            if !same {
                let expected = format!("record {} is the {} that its client saw", entry.seq, seen.kind);
                return Err(self.failure(expected, record.to_string()));
            }
        }
        match told.deletion {
            Deletion::No if told.seen.len() != entries.len() => {
                let expected = format!("its client saw {} records", entries.len());
                Err(self.failure(expected, told.seen.len().to_string()))
            }
            _ => Ok(()),
        }
    }

    fn check_blobs(&self, store: &Store, tenant: &str) -> Result<(), Failure> {
        for file in &self.files {
            store.blobs.get(tenant, &file.blob).map_err(|error| {
                self.failure(
                    format!("the file {} that a record names is there", file.blob.hash),
                    error.to_string(),
                )
            })?;
        }
        Ok(())
    }

    /// The calls of its own, each with its one result.
    fn calls(&self) -> Result<Vec<Call>, Failure> {
        let mut calls = Vec::new();
        for (seq, proposed) in &self.proposed {
            let id = proposed.call.to_string();
            let results = self.settled.get(&id).map_or(&[][..], Vec::as_slice);
            let [result] = results else {
                return Err(self.failure(format!("call {id} has one result"), format!("{results:?}")));
            };
            if *seq > self.shared {
                calls.push(Call {
                    tool: proposed.tool.clone(),
                    input: proposed.input.to_value(),
                    intended: self.intended.contains(&id),
                    outcome: result.outcome,
                });
            }
        }
        if let Some(call) = self
            .settled
            .keys()
            .find(|call| !self.proposed.iter().any(|(_, of)| of.call.to_string() == **call))
        {
            return Err(self.failure("a result is one of a call", format!("a result of {call}")));
        }
        Ok(calls)
    }
}
