//! The change sets that a revert takes back, as logs tell them.

use std::collections::{HashMap, HashSet};

use playhouse_protocol::changes::{ChangeSet, Coverage};
use playhouse_protocol::id::PartId;
use playhouse_protocol::message::CallOutcome;
use playhouse_protocol::record::Effect;
use playhouse_protocol::revert::LeftFile;
use playhouse_protocol::{CommandError, Entry, MessageId, Record, Seq, SessionId, Timestamp};
use playhouse_store::Log;
use playhouse_tools::changed::GOES_ON;

use crate::wake::{DEEPEST, PAGE};

/// Which change sets of a log.
pub(crate) enum Wanted {
    /// Those of these calls, and of work that they handed over.
    Calls(HashSet<PartId>),
    /// Those of the calls of one turn.
    Turn(MessageId),
    /// Those of these reverts.
    Reverts(Vec<Seq>),
}

/// Change sets, and what is missing of them.
#[derive(Default)]
pub(crate) struct History {
    sets: Vec<(Timestamp, Seq, SessionId, ChangeSet)>,
    /// Calls of which not all is known.
    pub(crate) not_covered: Vec<LeftFile>,
}

/// A call of which nothing was said yet.
struct Silent {
    tool: String,
    effect: Effect,
    /// All that it changes would have been said.
    is_known: bool,
    /// It was cut off: what it wrote since is told in a record of its own.
    is_cut_off: bool,
}

impl History {
    /// The sets, newest first, each with its session.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (&str, &ChangeSet)> {
        self.sets.iter().map(|(_, _, session, set)| (session.as_str(), set))
    }

    /// Adds what is wanted of a log, and of the logs of sub-sessions. Blocks.
    ///
    /// # Errors
    /// A log cannot be read.
    pub(crate) fn read(
        &mut self,
        log: &dyn Log,
        session: SessionId,
        wanted: &Wanted,
        depth: usize,
    ) -> Result<(), CommandError> {
        let mut below = Vec::new();
        let mut scan = Scan::default();
        let (begun, known) = (self.sets.len(), self.not_covered.len());
        each(log, session, |entry| {
            if let Record::Forked(forked) = &entry.record {
                // What stands before is another session's.
                if self.sets.len() > begun || !scan.silent.is_empty() {
                    self.sets.truncate(begun);
                    self.not_covered.truncate(known);
                    let why = format!("changes before the fork are those of session {}", forked.from);
                    self.not_covered.push(LeftFile { path: None, call: None, reason: why });
                }
                below.clear();
                scan = Scan::default();
            }
            scan.look(&entry, wanted);
            match entry.record {
                Record::CallIntended(intended) if scan.calls.contains(&intended.call) => {
                    // One that runs again after a restart goes on with what it had begun.
                    below.extend(intended.delegate.filter(|delegate| !below.contains(delegate)));
                }
                Record::WorkspaceChanged(changed) if scan.calls.contains(&changed.call) => {
                    // What goes on behind its call is told once more.
                    for left in self.not_covered.iter_mut().filter(|left| left.call == Some(changed.call)) {
                        let others = left.reason.split("; ").filter(|reason| *reason != GOES_ON);
                        left.reason = others.collect::<Vec<_>>().join("; ");
                    }
                    self.not_covered.retain(|left| !left.reason.is_empty());
                    if let Coverage::Partial { reason } = &changed.set.coverage {
                        self.not_covered.push(LeftFile::call(changed.call, reason.clone()));
                    }
                    self.sets.push((entry.at, entry.seq, session, changed.set));
                }
                Record::Reverted(reverted) if matches!(wanted, Wanted::Reverts(seqs) if seqs.contains(&entry.seq)) =>
                {
                    self.sets.push((entry.at, entry.seq, session, reverted.set));
                }
                _ => {}
            }
        })?;
        for (call, silent) in scan.silent {
            // One that says that it only reads is tracked where it is not believed.
            let is_concerned = silent.effect == Effect::Workspace || silent.is_known;
            if is_concerned && (!silent.is_known || silent.is_cut_off) {
                let why = match silent.is_known {
                    false => format!("what {} changes is not tracked", silent.tool),
                    true => {
                        format!("{} was cut off, and the engine stopped before all was known", silent.tool)
                    }
                };
                self.not_covered.push(LeftFile::call(call, why));
            }
        }
        for delegate in below {
            if depth < DEEPEST {
                // One that was removed is not there to be read.
                match self.read(log, delegate.session, &Wanted::Turn(delegate.prompt), depth + 1) {
                    Err(CommandError::NotFound(_)) | Ok(()) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if depth == 0 {
            self.sets.sort_by_key(|(at, seq, ..)| std::cmp::Reverse((*at, *seq)));
            self.not_covered.sort_by_key(|left| left.call);
        }
        Ok(())
    }
}

/// What is known so far of a log that is read.
#[derive(Default)]
struct Scan {
    /// The turn under way is wanted.
    in_turn: bool,
    /// The wanted calls that began.
    calls: HashSet<PartId>,
    tools: HashMap<PartId, String>,
    silent: HashMap<PartId, Silent>,
}

impl Scan {
    fn look(&mut self, entry: &Entry, wanted: &Wanted) {
        let is_turn = |turn: &MessageId| matches!(wanted, Wanted::Turn(wanted) if wanted == turn);
        match &entry.record {
            Record::TurnStarted { turn } => self.in_turn = is_turn(turn),
            Record::AttemptStarted(started) => self.in_turn |= started.steered.iter().any(is_turn),
            Record::TurnEnded(_) => self.in_turn = false,
            Record::CallProposed(proposed) => {
                self.tools.insert(proposed.call, proposed.tool.clone());
            }
            Record::CallIntended(intended) => {
                let is_wanted = match wanted {
                    Wanted::Calls(calls) => calls.contains(&intended.call),
                    Wanted::Turn(_) => self.in_turn,
                    Wanted::Reverts(_) => false,
                };
                if is_wanted {
                    self.calls.insert(intended.call);
                    let tool = self.tools.remove(&intended.call).unwrap_or_default();
                    let is_known = intended.tracked || !intended.before.is_empty();
                    let silent = Silent { tool, effect: intended.effect, is_known, is_cut_off: false };
                    self.silent.insert(intended.call, silent);
                }
            }
            Record::CallSettled { call, result } => {
                if let Some(silent) = self.silent.get_mut(call) {
                    silent.is_cut_off =
                        matches!(result.outcome, CallOutcome::Cancelled | CallOutcome::Crashed);
                }
            }
            Record::WorkspaceChanged(changed) => {
                self.silent.remove(&changed.call);
            }
            _ => {}
        }
    }
}

/// Shows each entry of a log.
fn each(log: &dyn Log, session: SessionId, mut show: impl FnMut(Entry)) -> Result<(), CommandError> {
    let mut after = Seq::START;
    loop {
        let read = log.read(session, after, PAGE)?;
        let count = read.entries.len();
        for entry in read.entries {
            after = entry.seq;
            show(entry);
        }
        if let Some(damage) = read.damage {
            return Err(CommandError::Parked { session, reason: damage.to_string() });
        }
        if count == 0 && after == Seq::START {
            return Err(CommandError::NotFound(session));
        }
        if count < PAGE {
            return Ok(());
        }
    }
}
