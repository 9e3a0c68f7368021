//! Where control groups may be made.

use std::path::{Path, PathBuf};

use super::Controllers;

/// A folder that may be able to hold groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) version: u8,
    /// What its mount says that it offers; with version 2 each folder says it for itself.
    controllers: Controllers,
}

impl Place {
    /// What groups below it can bound.
    pub(super) fn offers(&self) -> Controllers {
        if self.version == 1 {
            return self.controllers;
        }
        let file = self.folder.join("cgroup.controllers");
        named(fs_err::read_to_string(file).unwrap_or_default().split_whitespace())
    }
}

fn named<'a>(names: impl Iterator<Item = &'a str>) -> Controllers {
    names.fold(Controllers::default(), |all, name| Controllers {
        tasks: all.tasks || name == "pids",
        memory: all.memory || name == "memory",
    })
}

/// Folders that may hold groups, the best first. `mounts` is `/proc/mounts`, `own` is `/proc/self/cgroup`.
pub(super) fn places(mounts: &str, own: &str) -> Vec<Place> {
    // The group of this process, from the root of a mount; `fits` says which, by its controllers.
    let own_path = |fits: &dyn Fn(&str) -> bool| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            fits(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let mut places = Vec::new();
    for mount in mounts.lines() {
        let mut fields = mount.split(' ').skip(1);
        let (Some(folder), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let mount = Path::new(folder);
        let controllers = named(options.split(','));
        if kind == "cgroup" && controllers != Controllers::default() {
            let place = |folder: PathBuf| Place { folder, version: 1, controllers };
            let fits = |names: &str| named(names.split(',')) == controllers;
            if let Some(own) = own_path(&fits).filter(|own| !own.is_empty()) {
                places.push(place(mount.join(own)));
            }
            // In a container the path may be the one outside of it.
            places.push(place(mount.to_owned()));
        } else if kind == "cgroup2" {
            let own = own_path(&str::is_empty).unwrap_or_default();
            let own = if own.is_empty() { mount.to_owned() } else { mount.join(own) };
            let above = own.ancestors().take_while(|folder| folder.starts_with(mount));
            let place = |folder: &Path| Place {
                folder: folder.to_owned(),
                version: 2,
                controllers: Controllers::default(),
            };
            places.extend(above.map(place));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mounts: &str, own: &str) -> Vec<String> {
        let shown = |place: Place| {
            let Controllers { tasks, memory } = place.controllers;
            let letters = [("t", tasks), ("m", memory)].map(|(letter, is)| if is { letter } else { "" });
            format!("{}{} {}", place.version, letters.concat(), place.folder.display())
        };
        places(mounts, own).into_iter().map(shown).collect()
    }

    #[test]
    fn places_of_the_first_version() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup /sys/fs/cgroup/pids cgroup rw,nosuid,pids 0 0\n";
        let own = "9:name=systemd:/x\n8:pids:/user/a:b\n4:memory:/\n1:cpu:/\n0::/\n";
        let memory = "1m /sys/fs/cgroup/memory";
        assert_eq!(shown(mounts, own), [memory, "1t /sys/fs/cgroup/pids/user/a:b", "1t /sys/fs/cgroup/pids"]);
        for own in ["", "8:pids:/\n"] {
            assert_eq!(shown(mounts, own), [memory, "1t /sys/fs/cgroup/pids"]);
        }
        let together = "cgroup /c cgroup rw,pids,memory 0 0\n";
        assert_eq!(shown(together, "3:memory,pids:/a\n"), ["1tm /c/a", "1tm /c"]);
    }

    #[test]
    fn places_of_the_second_version_go_up_from_the_own_group() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let own = "0::/user.slice/app.slice/one.scope\n";
        let expected = [
            "2 /sys/fs/cgroup/user.slice/app.slice/one.scope",
            "2 /sys/fs/cgroup/user.slice/app.slice",
            "2 /sys/fs/cgroup/user.slice",
            "2 /sys/fs/cgroup",
        ];
        assert_eq!(shown(mounts, own), expected);
        assert_eq!(shown("", own), Vec::<String>::new());
        assert_eq!(shown("nonsense\n\n/dev/x / ext4 rw 0 0", "nonsense"), Vec::<String>::new());
    }

    #[test]
    fn a_place_of_the_second_version_says_what_it_offers() {
        let folder = tempfile::tempdir().unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", folder.path().display());
        let place = places(&mounts, "0::/\n").pop().unwrap();
        assert_eq!(place.offers(), Controllers::default());
        fs_err::write(folder.path().join("cgroup.controllers"), "cpuset cpu io memory hugetlb\n").unwrap();
        assert_eq!(place.offers(), Controllers { tasks: false, memory: true });
        fs_err::write(folder.path().join("cgroup.controllers"), "memory pids\n").unwrap();
        assert_eq!(place.offers(), Controllers { tasks: true, memory: true });
    }
}
