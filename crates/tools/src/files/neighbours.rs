//! What may have been meant by a path that leads nowhere.

use playhouse_policy::Zone;
use playhouse_workspace::door::{self, Kind};
use playhouse_workspace::{Resolved, Workspace};

/// Names that are compared.
const MOST: usize = 10_000;

/// Suggestions that are made.
const SHOWN: usize = 3;

/// How alike two names must be, from 0 to 1.
const ALIKE: f64 = 0.55;

/// Says that there is nothing at `place`, and what there is in its stead.
pub(crate) fn missing(workspace: &Workspace, place: &Resolved) -> String {
    let shown = &place.shown;
    if place.zone == Zone::Output && place.path.extension().is_some_and(|end| end == "txt") {
        return format!(
            "{shown} is not kept: saved outputs are removed after a time, and the oldest ones when newer ones \
             need their room. Make the call again that it came from, with less output \
             if that is possible"
        );
    }
    let name = place.path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let parent = place.path.parent().and_then(|parent| workspace.walked(parent).ok());
    // Only the place itself was judged: what lies beyond its zone is not looked at.
    let parent = parent.filter(|parent| parent.zone == place.zone);
    let Some(parent) = parent else { return format!("{shown} does not exist") };
    let Ok(entries) = door::read_dir(&parent) else {
        return format!(
            "{shown} does not exist, and neither does the directory {}: find the file with glob (**/{name})",
            parent.shown
        );
    };
    let mut alike: Vec<(f64, String)> = entries
        .take(MOST)
        .flatten()
        .map(|entry| {
            let other = entry.name.to_string_lossy().into_owned();
            let likeness = likeness(&name, &other);
            (likeness, if entry.kind == Kind::Directory { format!("{other}/") } else { other })
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    alike.sort_by(|(one, first), (other, second)| other.total_cmp(one).then_with(|| first.cmp(second)));
    alike.truncate(SHOWN);
    if alike.is_empty() {
        return format!(
            "{shown} does not exist: list {} to see what does, or find the file with glob (**/{name})",
            parent.shown
        );
    }
    let paths: Vec<String> =
        alike.into_iter().map(|(_, name)| super::shown_below(&parent, std::path::Path::new(&name))).collect();
    format!("{shown} does not exist. Did you mean {}?", paths.join(", "))
}

fn likeness(wanted: &str, name: &str) -> f64 {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let (wanted_stem, name_stem) = (stem(&wanted), stem(&name));
    if wanted_stem == name_stem && !wanted_stem.is_empty() {
        // The same name with another ending.
        return 0.95;
    }
    let contained = wanted_stem.len() > 2
        && name_stem.len() > 2
        && (name.contains(&wanted_stem) || wanted.contains(&name_stem));
    let near = strsim::normalized_damerau_levenshtein(&wanted, &name);
    if contained { near.max(0.7) } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_meant_are_alike() {
        for (wanted, name) in [
            ("main.rs", "Main.rs"),
            ("index.js", "index.ts"),
            ("conifg.toml", "config.toml"),
            ("user.rs", "users.rs"),
        ] {
            assert!(likeness(wanted, name) >= ALIKE, "{wanted} {name}");
        }
        for (wanted, name) in [("main.rs", "Cargo.lock"), ("a.rs", "b.rs.txt.bak")] {
            assert!(likeness(wanted, name) < ALIKE, "{wanted} {name}");
        }
    }
}
