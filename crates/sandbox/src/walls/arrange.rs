//! The order in which a view is built up.
//!
//! What lies deeper is put on top of what lies higher. Where something is put into a place that programs can write, every
//! folder on the way there is bound onto itself: what is bound cannot be renamed or removed, so no program can put
//! another folder, or a link, where the next view is built.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Something that is put into the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where programs see it: absolute.
    pub(super) place: PathBuf,
    pub(super) what: What,
}

/// What is put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A file or folder of the machine, which can be read.
    Read(PathBuf),
    /// One that can be changed as well.
    Write(PathBuf),
    /// An empty folder over one that is never seen.
    NoFolder,
    /// An empty file over one that is never seen.
    NoFile,
    /// A link that says this.
    Link(PathBuf),
    /// The processes of the walls.
    Processes,
    /// Devices that every program may use.
    Devices,
}

impl Mount {
    /// A file or folder that is read where it lies.
    pub(super) fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { what: What::Read(path.clone()), place: path }
    }

    /// A file or folder that is changed where it lies.
    pub(super) fn write(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { what: What::Write(path.clone()), place: path }
    }

    /// The file or folder of the machine that is seen here, if one is.
    pub(super) fn source(&self) -> Option<&Path> {
        match &self.what {
            What::Read(source) | What::Write(source) => Some(source),
            _ => None,
        }
    }

    /// What of the machine is seen at a place within this one.
    fn seen_at(&self, place: &Path) -> Option<PathBuf> {
        let within = place.strip_prefix(&self.place).ok()?;
        Some(joined(self.source()?, within))
    }

    /// Where `path` of the machine is seen through this.
    pub(super) fn place_of(&self, path: &Path) -> Option<PathBuf> {
        let within = path.strip_prefix(self.source()?).ok()?;
        Some(joined(&self.place, within))
    }
}

/// `base.join("")` would end in a slash.
fn joined(base: &Path, within: &Path) -> PathBuf {
    if within.as_os_str().is_empty() { base.to_owned() } else { base.join(within) }
}

/// Puts mounts into their order. Of two at one place the later counts. What would change nothing is left out.
pub(super) fn arranged(mut mounts: Vec<Mount>) -> Vec<Mount> {
    mounts.reverse();
    let mut places = HashSet::new();
    mounts.retain(|mount| places.insert(mount.place.clone()));
    mounts.sort_by_key(|mount| mount.place.components().count());
    let mut done: Vec<Mount> = Vec::with_capacity(mounts.len());
    for mount in mounts {
        let Some(around) = around(&done, &mount.place) else {
            done.push(mount);
            continue;
        };
        let unchanged = matches!(
            (&around.what, &mount.what),
            (What::Read(_), What::Read(source)) if around.seen_at(&mount.place).as_ref() == Some(source)
        );
        if unchanged {
            continue;
        }
        let pins = pins(&done, around, &mount.place);
        done.extend(pins);
        done.push(mount);
    }
    done
}

/// The innermost of those that hold a place.
pub(super) fn around<'a>(mounts: &'a [Mount], place: &Path) -> Option<&'a Mount> {
    let holding = mounts.iter().filter(|mount| place.starts_with(&mount.place));
    holding.max_by_key(|mount| mount.place.components().count())
}

/// The folders between a mount that can be written and a place within it, from the outer to the inner.
fn pins(done: &[Mount], around: &Mount, place: &Path) -> Vec<Mount> {
    let What::Write(_) = &around.what else { return Vec::new() };
    let between = place.ancestors().skip(1).take_while(|folder| *folder != around.place);
    let free = between.filter(|folder| !done.iter().any(|mount| mount.place == **folder));
    let pin = |folder: &Path| {
        let source = around.seen_at(folder)?;
        Some(Mount { place: folder.to_owned(), what: What::Write(source) })
    };
    let mut pins: Vec<_> = free.filter_map(pin).collect();
    pins.reverse();
    pins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(mounts: Vec<Mount>) -> Vec<String> {
        let shown = |mount: Mount| match mount.what {
            What::Read(source) => format!("r {} {}", source.display(), mount.place.display()),
            What::Write(source) => format!("w {} {}", source.display(), mount.place.display()),
            what => format!("{what:?} {}", mount.place.display()),
        };
        arranged(mounts).into_iter().map(shown).collect()
    }

    #[test]
    fn deeper_comes_later_and_the_last_of_one_place_counts() {
        let mounts = vec![
            Mount::write("/a/b"),
            Mount::read("/a"),
            Mount { place: "/a/b/c".into(), what: What::NoFolder },
            Mount::read("/a/b"),
        ];
        assert_eq!(places(mounts), ["r /a /a", "NoFolder /a/b/c"]);
    }

    #[test]
    fn what_is_seen_already_is_left_out_unless_it_comes_from_elsewhere() {
        let link = Mount { place: "/usr/x".into(), what: What::Read("/opt/x".into()) };
        let mounts = vec![Mount::read("/usr"), Mount::read("/usr/lib/go"), link, Mount::write("/usr/w")];
        assert_eq!(places(mounts), ["r /usr /usr", "w /usr/w /usr/w", "r /opt/x /usr/x"]);
    }

    #[test]
    fn the_way_through_what_can_be_written_is_held() {
        let mounts = vec![
            Mount { place: "/tmp".into(), what: What::Write("/private".into()) },
            Mount::write("/tmp/x/ws"),
            Mount::read("/tmp/x/ws/.git/a/hooks"),
            Mount::read("/tmp/x/y/z"),
        ];
        let expected = [
            "w /private /tmp",
            "w /private/x /tmp/x",
            "w /private/x/y /tmp/x/y",
            "r /tmp/x/y/z /tmp/x/y/z",
            "w /tmp/x/ws /tmp/x/ws",
            "w /tmp/x/ws/.git /tmp/x/ws/.git",
            "w /tmp/x/ws/.git/a /tmp/x/ws/.git/a",
            "r /tmp/x/ws/.git/a/hooks /tmp/x/ws/.git/a/hooks",
        ];
        let mut placed = places(mounts);
        let order = |line: &str| placed.iter().position(|other| other == line);
        assert!(order(expected[1]) < order(expected[4]) && order(expected[1]) < order(expected[2]));
        assert!(order(expected[5]) < order(expected[6]) && order(expected[6]) < order(expected[7]));
        placed.sort_by_key(|line| expected.iter().position(|other| other == line));
        assert_eq!(placed, expected);
    }

    #[test]
    fn everything_may_be_readable() {
        let mounts = vec![Mount::read("/"), Mount::read("/usr"), Mount::write("/home/a/ws")];
        assert_eq!(places(mounts), ["r / /", "w /home/a/ws /home/a/ws"]);
    }
}
