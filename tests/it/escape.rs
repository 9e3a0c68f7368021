//! Attempts to get out of a workspace, as a table: what is tried, what the rules must say of it, and what may come of it.
//!
//! The table is data (`tests/escape`), and is run through `playhouse tool` at each level of the sandbox that this machine
//! has: `walled` is `--sandbox required`, `open` is `--sandbox off`. Most rows are tried without walls by `scripts/slow` only.
//! Each row says `verdict`, which must be what `--verdict` prints; its `effect`, and the levels at which that `happens` once all is
//! agreed to that can be (`--yes`). It is looked at where the effect would be: in files, processes and servers, and not in what was
//! answered. A row that happens without walls and not within them shows that they hold it, and that it would have worked.
//!
//! Whatever a row tries stays harmless where nothing holds it: it is about a [`Ground`], which is made for it.

mod attempt;
mod ground;
mod listener;
mod trial;
mod unattended;

use attempt::{Attempt, Kind, Level, Verdict};
use ground::Ground;
use trial::Trial;

/// With the walls that machines usually have.
const USUAL: [Level; 1] = [Level::Walled];
/// With walls and without. The run without shows that an attempt which the walls prevent would have succeeded.
const COMPARED: [Level; 2] = [Level::Walled, Level::Open];

#[test]
fn paths() {
    Trial::new(Kind::Paths).run(&USUAL);
}

#[test]
fn scripts() {
    Trial::new(Kind::Shell).run(&USUAL);
}

#[test]
fn processes() {
    Trial::new(Kind::Processes).run(&USUAL);
}

#[test]
fn secrets() {
    Trial::new(Kind::Secrets).run(&COMPARED);
}

#[test]
fn addresses() {
    Trial::new(Kind::Network).run(&USUAL);
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn all_of_them_within_weaker_walls() {
    Kind::ALL.into_iter().for_each(|kind| Trial::new(kind).run(&[Level::Weaker]));
}

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn all_of_them_without_walls() {
    Kind::ALL.into_iter().for_each(|kind| Trial::new(kind).run(&[Level::Open]));
}

#[test]
fn the_table_is_as_large_as_it_must_be() {
    let of = |kind| Attempt::all(kind).len();
    let all = Kind::ALL.map(of);
    assert!(all.iter().sum::<usize>() >= 120 && all.iter().all(|rows| *rows >= 30), "{all:?}");
    assert!(of(Kind::Shell) >= 60);
    let verdicts = [Verdict::Allow, Verdict::Ask, Verdict::Deny, Verdict::Refuse];
    let rows: Vec<Attempt> = Kind::ALL.into_iter().flat_map(Attempt::all).collect();
    for verdict in verdicts {
        let count = rows.iter().filter(|row| row.verdict == verdict).count();
        assert!(count >= 10, "{verdict:?}: {count}");
    }
    // Else nothing would show that walls hold anything.
    for (walls, fewest) in [(Level::Walled, 40), (Level::Weaker, 30)] {
        let held = |row: &&Attempt| {
            let is_tried = row.happens.contains(&Level::Open) && row.levels.contains(&walls);
            is_tried && !row.happens.contains(&walls)
        };
        let count = rows.iter().filter(held).count();
        assert!(count >= fewest, "{walls:?}: {count}");
    }
}

#[test]
fn a_ground_that_nobody_touched_is_still() {
    let ground = Ground::new("", &[]);
    assert_eq!(ground.disturbed(), Vec::<String>::new());
    fs_err::write(ground.place("{outside}/new"), "").unwrap();
    assert_eq!(ground.disturbed().len(), 1);
}
