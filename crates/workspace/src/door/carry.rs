//! What a file that comes in the place of another one takes over from it: owner, permissions, and extended attributes,
//! which access control lists are stored as.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;

/// Attributes that belong to a content, so that a file with another one must not have them, and one that the system gives
/// to each file.
const OWN: [&[u8]; 4] = [b"security.capability", b"security.ima", b"security.evm", b"com.apple.provenance"];

/// Gives `to` what `from`, a file with the facts `before`, has. False: the system does not let all of it be taken over.
pub(super) fn carry(from: impl AsFd, before: &Stat, to: impl AsFd) -> Result<bool, Errno> {
    let is_whole = carry_owner(before, &to)? & carry_attributes(from, &to);
    carry_mode(before, to)?;
    Ok(is_whole)
}

/// The owner and the group. Only root may give a file away; for others it becomes theirs.
pub(super) fn carry_owner(before: &Stat, to: impl AsFd) -> Result<bool, Errno> {
    let now = rustix::fs::fstat(&to)?;
    let (owner, group) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
    let is_same = (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid);
    Ok(is_same || rustix::fs::fchown(to, Some(owner), Some(group)).is_ok())
}

/// The permissions. The bits that let a program run as somebody else are not among them: the system takes them away from
/// a file that is written, too.
pub(super) fn carry_mode(before: &Stat, to: impl AsFd) -> Result<(), Errno> {
    let permissions = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    rustix::fs::fchmod(to, Mode::from_raw_mode(before.st_mode) & permissions)
}

fn carry_attributes(from: impl AsFd, to: impl AsFd) -> bool {
    // What cannot be read cannot be given on.
    let (Ok(wanted), Ok(there)) = (attributes(from), attributes(&to)) else { return false };
    let mut is_whole = true;
    for (name, value) in &wanted {
        if there.get(name) != Some(value) {
            is_whole &= rustix::fs::fsetxattr(&to, name.as_slice(), value, XattrFlags::empty()).is_ok();
        }
    }
    // Such as the list that a directory gives to new files in it.
    for name in there.keys().filter(|name| !wanted.contains_key(*name)) {
        is_whole &= rustix::fs::fremovexattr(&to, name.as_slice()).is_ok();
    }
    is_whole
}

/// The extended attributes of a file; none where the file system has no such thing.
fn attributes(file: impl AsFd) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let names =
        match whole(|| rustix::fs::flistxattr_query(&file), |buffer| rustix::fs::flistxattr(&file, buffer)) {
            Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(BTreeMap::new()),
            names => names?,
        };
    let mut attributes = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty() && !OWN.contains(name)) {
        let value = whole(
            || rustix::fs::fgetxattr_query(&file, name),
            |buffer| rustix::fs::fgetxattr(&file, name, buffer),
        );
        match value {
            Ok(value) => drop(attributes.insert(name.to_vec(), value)),
            // Gone meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(attributes)
}

/// What `read` gives, whose size `query` tells. It may grow between the two.
fn whole(
    query: impl Fn() -> Result<usize, Errno>,
    read: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    loop {
        let mut buffer = vec![0; query()?];
        if buffer.is_empty() {
            return Ok(buffer);
        }
        match read(&mut buffer) {
            Err(Errno::RANGE) => {}
            length => {
                buffer.truncate(length?);
                return Ok(buffer);
            }
        }
    }
}
