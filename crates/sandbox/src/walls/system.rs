//! What every program needs of the system: its folders of programs and libraries, and a few of its settings.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::arrange::{Mount, What};

/// Folders with programs and libraries, and nothing that is secret.
const FOLDERS: &[&str] = &["/usr", "/nix/store", "/gnu/store", "/run/current-system/sw"];
/// Folders that are links into `/usr` on most systems.
const ROOT_FOLDERS: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Settings without which programs do not run: how libraries are found, what time it is, which certificates count. Nothing
/// that an operator may have written a key into.
const SETTINGS: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "magic.mime",
    "maven/logging",
    "maven/m2.conf",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];
/// The same for names that begin so: those of versions.
const SETTINGS_BY_VERSION: &[&str] = &["java", "python3"];
/// What is needed to find other machines.
const NETWORK_SETTINGS: &[&str] = &["hosts", "resolv.conf"];
/// The users that programs see, who are others than those of the machine.
pub(super) const USERS: &str = "/etc/passwd";
/// Files that programs see another version of.
const REPLACED: &[&str] = &["passwd", "group", "hosts"];

/// The names that are known without a network.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
/// Larger files are not copied, in bytes.
const LARGE: u64 = 256 * 1024;

/// Where settings lie.
pub(super) const ETC: &str = "/etc";

/// A setting as it is on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Where programs see it.
    place: PathBuf,
    /// Where it lies, links resolved.
    source: PathBuf,
    is_folder: bool,
    length: u64,
    /// When it was changed: seconds and nanoseconds.
    changed: (i64, i64),
}

/// The system's folders, its processes and its devices.
pub(super) fn mounts() -> Vec<Mount> {
    let mut mounts = vec![
        Mount { place: "/proc".into(), what: What::Processes },
        Mount { place: "/dev".into(), what: What::Devices },
    ];
    mounts.extend(FOLDERS.iter().filter(|folder| Path::new(folder).is_dir()).map(Mount::read));
    mounts.extend(ROOT_FOLDERS.iter().filter_map(|folder| root_folder(Path::new(folder))));
    if rustix::process::getuid().is_root() {
        mounts.extend(about_the_machine());
    }
    mounts
}

fn root_folder(folder: &Path) -> Option<Mount> {
    match fs_err::read_link(folder) {
        Ok(target) => Some(Mount { place: folder.to_owned(), what: What::Link(target) }),
        Err(_) => folder.is_dir().then(|| Mount::read(folder)),
    }
}

/// What `/proc` says of the machine beside its processes. Root can change it there, whatever its rights are: so it is put
/// over itself, to be read only.
fn about_the_machine() -> Vec<Mount> {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    let is_wanted = |entry: &fs_err::DirEntry| {
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let can_be_changed = |facts: std::fs::Metadata| {
            facts.is_dir() || (!facts.is_symlink() && facts.permissions().mode() & 0o222 != 0)
        };
        !is_process && entry.metadata().is_ok_and(can_be_changed)
    };
    entries.filter(is_wanted).map(|entry| Mount::read(entry.path())).collect()
}

/// The settings that are seen, as they are now. One that goes in this moment is left out.
pub(super) fn settings(network: bool) -> Vec<Setting> {
    let setting = |place: PathBuf| {
        let source = fs_err::canonicalize(&place).ok()?;
        let facts = fs_err::metadata(&source).ok()?;
        let changed = (facts.ctime(), facts.ctime_nsec());
        Some(Setting { place, source, is_folder: facts.is_dir(), length: facts.len(), changed })
    };
    places(network).into_iter().filter_map(setting).collect()
}

/// Where the settings lie that are seen.
fn places(network: bool) -> Vec<PathBuf> {
    let etc = Path::new(ETC);
    let named = SETTINGS.iter().map(|name| etc.join(name));
    let for_network = NETWORK_SETTINGS.iter().filter(|_| network).map(|name| etc.join(name));
    let all = named.chain(by_version(etc)).chain(for_network);
    all.filter(|path| path.exists()).collect()
}

fn by_version(etc: &Path) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(etc).into_iter().flatten().flatten();
    let is_wanted = |name: &OsStr| {
        name.to_str().is_some_and(|name| SETTINGS_BY_VERSION.iter().any(|start| name.starts_with(start)))
    };
    entries.filter(|entry| is_wanted(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// Fills a folder that is seen as `/etc`. Small files are copied, since each mount takes time; the rest is put into it, and
/// so are those that change with the network.
///
/// # Errors
/// When the folder cannot be written.
pub(super) fn fill_etc(folder: &Path, settings: &[Setting], network: bool) -> io::Result<Vec<Mount>> {
    let mut mounts = vec![Mount { place: ETC.into(), what: What::Read(folder.to_owned()) }];
    for Setting { place, source, is_folder, length, .. } in settings {
        let Ok(within) = place.strip_prefix(ETC) else { continue };
        let copy = folder.join(within);
        fs_err::create_dir_all(copy.parent().unwrap_or(folder))?;
        if *is_folder {
            fs_err::create_dir_all(&copy)?;
        } else if *length <= LARGE && !NETWORK_SETTINGS.iter().any(|name| within == Path::new(name)) {
            // One that may not be read here would not be read in walls either.
            let _ = fs_err::copy(source, &copy);
            continue;
        } else {
            fs_err::write(&copy, "")?;
        }
        mounts.push(Mount { place: place.clone(), what: What::Read(source.clone()) });
    }
    // Each session has users of its own, who are put there.
    let replaced = ["", &groups(), HOSTS];
    for (name, text) in REPLACED.iter().zip(replaced).take(if network { 2 } else { 3 }) {
        fs_err::write(folder.join(name), text)?;
    }
    fs_err::os::unix::fs::symlink("/proc/mounts", folder.join("mtab"))?;
    Ok(mounts)
}

/// The settings that lie where they are, for walls that cannot put anything elsewhere.
pub(super) fn settings_in_place(network: bool) -> Vec<PathBuf> {
    let replaced = REPLACED.iter().map(|name| Path::new(ETC).join(name));
    places(network).into_iter().chain(replaced).collect()
}

/// The users that programs see: root, nobody, and the one that they run as, whose HOME is `home`.
pub(super) fn users(home: &Path) -> String {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // A colon would end the field.
    let home = home.to_str().filter(|home| !home.contains([':', '\n'])).unwrap_or("/");
    let mut users = format!("{}:x:{user}:{group}::{home}:/bin/sh\n", name_of(USERS, user));
    users.extend(others(user).map(|(number, name)| format!("{name}:x:{number}:{number}::/:/bin/sh\n")));
    users
}

/// The groups that programs see: root, nobody, and the one that they run as.
fn groups() -> String {
    let group = rustix::process::getgid().as_raw();
    let mut groups = format!("{}:x:{group}:\n", name_of("/etc/group", group));
    groups.extend(others(group).map(|(number, name)| format!("{name}:x:{number}:\n")));
    groups
}

/// The users and groups that are always there, but for the own one.
fn others(own: u32) -> impl Iterator<Item = (u32, &'static str)> {
    [(0, "root"), (65534, "nobody")].into_iter().filter(move |(number, _)| *number != own)
}

/// The name that goes with a number in a file of users or of groups.
fn name_of(file: &str, number: u32) -> String {
    let text = fs_err::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| "user".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_seen_and_its_secrets_are_not() {
        let places = |network: bool| {
            let mounts = mounts().into_iter().map(|mount| mount.place);
            mounts.chain(super::places(network)).collect::<Vec<_>>()
        };
        let without = places(false);
        for place in ["/usr", "/bin", "/etc/nsswitch.conf"] {
            assert!(without.contains(&PathBuf::from(place)), "{place} is missing");
        }
        for place in ["/", "/etc", "/etc/shadow", "/etc/ssl", "/root", "/home", "/var", "/run", "/sys"] {
            assert!(!without.contains(&PathBuf::from(place)), "{place} is seen");
        }
        assert!(!without.contains(&PathBuf::from("/etc/resolv.conf")));
        assert!(
            places(true).contains(&PathBuf::from("/etc/resolv.conf")),
            "a machine has an /etc/resolv.conf"
        );
    }

    #[test]
    fn settings_are_copied_or_have_a_place() {
        let folder = tempfile::tempdir().unwrap();
        let mounts = fill_etc(folder.path(), &settings(false), false).unwrap();
        assert_eq!(mounts[0].place, Path::new("/etc"));
        for mount in &mounts[1..] {
            let copy = folder.path().join(mount.place.strip_prefix("/etc").unwrap());
            assert_eq!(copy.is_dir(), mount.place.is_dir(), "{mount:?}");
        }
        assert_eq!(fs_err::read_to_string(folder.path().join("hosts")).unwrap(), HOSTS);
        let (copy, real) = (folder.path().join("nsswitch.conf"), "/etc/nsswitch.conf");
        assert_eq!(fs_err::read(copy).unwrap(), fs_err::read(real).unwrap());
    }

    #[test]
    fn programs_see_few_users() {
        let (users, groups) = (users(Path::new("/data/home")), groups());
        let number = rustix::process::getuid().as_raw().to_string();
        let own: Vec<_> = users.lines().filter(|line| line.split(':').nth(2) == Some(&number)).collect();
        assert_eq!(own.len(), 1, "{users}");
        assert!(own[0].ends_with(":/data/home:/bin/sh"), "{users}");
        assert!(users.lines().count() <= 3 && groups.lines().count() <= 3, "{users}{groups}");
        let users = super::users(Path::new("/data/a:b"));
        assert!(!users.contains("a:b"), "{users}");
    }
}
