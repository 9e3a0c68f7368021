//! Proof that the checker finds what it looks for: each fault is planted into what was told or left behind, must be found, and
//! is taken back.

use fs_err as fs;

use crate::model::{Deletion, Failure, Told, World};
use crate::plan::LINES;
use crate::stage::Stage;

/// Of so many commands some ran to their end.
const MANY: usize = 50;

/// What takes a fault back.
type Undo = Box<dyn FnOnce(&World)>;

/// Plants each fault for which the run has a place. How many were found.
pub(crate) fn prove(stage: &Stage) -> Result<u32, Failure> {
    let world = &stage.world;
    let mut found = 0;
    for (name, plant) in FAULTS {
        let Some(undo) = plant(world) else { continue };
        let result = super::check(stage);
        undo(world);
        if result.is_ok() {
            return Err(Failure::new(format!("the checker finds the fault \"{name}\""), "it finds nothing"));
        }
        found += 1;
    }
    Ok(found)
}

type Plant = fn(&World) -> Option<Undo>;

const FAULTS: [(&str, Plant); 9] = [
    ("a prompt is lost", |world| {
        let (id, _) = session(world, |_| true)?;
        change(world, &id, |told| told.prompts.push("msg_ffffffffffff00000000000000".to_owned()));
        Some(Box::new(move |world| change(world, &id, |told| drop(told.prompts.pop()))))
    }),
    ("prompts are in another order", |world| {
        let (id, _) = session(world, |told| told.prompts.len() > 1)?;
        change(world, &id, |told| told.prompts.reverse());
        Some(Box::new(move |world| change(world, &id, |told| told.prompts.reverse())))
    }),
    ("a record is another than a client saw", |world| {
        let (id, before) = session(world, |told| told.seen.first().is_some_and(|seen| seen.hash > 0))?;
        change(world, &id, |told| told.seen[0].hash ^= 1);
        Some(Box::new(move |world| change(world, &id, |told| told.seen = before.seen)))
    }),
    ("an answer does not count", |world| {
        let (id, before) = session(world, |told| !told.answers.is_empty())?;
        change(world, &id, |told| told.answers.values_mut().for_each(|word| *word = "never given"));
        Some(Box::new(move |world| change(world, &id, |told| told.answers = before.answers)))
    }),
    ("a deletion does not count", |world| {
        let (id, _) = session(world, |told| told.deletion == Deletion::No)?;
        change(world, &id, |told| told.deletion = Deletion::Acknowledged);
        Some(Box::new(move |world| change(world, &id, |told| told.deletion = Deletion::No)))
    }),
    ("a command ran twice", |world| {
        lines(world, |text| format!("{text}{}\n", text.lines().next().unwrap_or_default()), 1)
    }),
    // All of them: what was interrupted may not have run.
    ("commands did not run", |world| lines(world, |_| String::new(), usize::MAX)),
    ("a request is not in the sums", |world| {
        world.usage.lock().unwrap()[0] += 1;
        Some(Box::new(|world| world.usage.lock().unwrap()[0] -= 1))
    }),
    ("a blob is left over", |world| {
        let path = world.data().join("blobs/left-over");
        fs::create_dir_all(path.parent()?).ok()?;
        fs::write(&path, "").ok()?;
        Some(Box::new(move |_| fs::remove_file(path).unwrap()))
    }),
];

/// The first session that is not gone and of which this is so, and what is known of it.
fn session(world: &World, is_so: impl Fn(&Told) -> bool) -> Option<(String, Told)> {
    let sessions = world.sessions.lock().unwrap();
    let found = sessions.iter().find(|(_, told)| told.deletion == Deletion::No && is_so(told))?;
    Some((found.0.clone(), found.1.clone()))
}

fn change(world: &World, session: &str, change: impl FnOnce(&mut Told)) {
    world.told(session, change);
}

/// Other lines in so many workspaces that have some; where there are many lines.
fn lines(world: &World, other: impl Fn(&str) -> String, most: usize) -> Option<Undo> {
    let files = world.tenants.iter().flat_map(|tenant| &tenant.workspaces).map(|folder| folder.join(LINES));
    let files: Vec<_> =
        files.filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text))).collect();
    if files.iter().map(|(_, text)| text.lines().count()).sum::<usize>() < MANY {
        return None;
    }
    for (path, text) in files.iter().take(most) {
        fs::write(path, other(text)).unwrap();
    }
    Some(Box::new(move |_| files.iter().for_each(|(path, text)| fs::write(path, text).unwrap())))
}
