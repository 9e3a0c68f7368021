//! What the index says of the files that git knows.

use rustix::fs::Stat;

/// git has marked the file as one that does not change.
const VALID: u64 = 0x8000;
/// The file is not wanted in the worktree.
const SKIPPED: u64 = 1 << 30;
/// The lines that follow an entry.
const LINES: usize = 5;
/// Numbers are kept in so many bits.
const BITS: u64 = 0xffff_ffff;

/// A moment: seconds and nanoseconds. Where the second is 0, it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64, u32);

impl Moment {
    /// When the content of a file changed.
    pub(super) fn changed(facts: &Stat) -> Self {
        Self::of(facts.st_mtime.try_into().unwrap_or(0), u32::try_from(facts.st_mtime_nsec).unwrap_or(0))
    }

    fn of(seconds: u64, nanoseconds: u32) -> Self {
        Self(seconds & BITS, nanoseconds)
    }

    fn is(self, other: Self) -> bool {
        self.0 == other.0 && (self.1 == other.1 || self.1 == 0)
    }
}

/// A file that git knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) mode: u32,
    pub(super) id: String,
    /// 0, or which of the versions that are to be merged.
    pub(super) stage: u8,
    status: Moment,
    content: Moment,
    inode: u64,
    size: u64,
    flags: u64,
}

impl Entry {
    /// Whether its place in the worktree does not count.
    pub(super) fn is_skipped(&self) -> bool {
        self.flags & SKIPPED != 0
    }

    /// Whether the file is the one that git saw, or git was told to take it for that.
    pub(super) fn is(&self, facts: &Stat, indexed: Moment) -> bool {
        self.flags & VALID != 0 || self.is_surely(facts, indexed)
    }

    /// Whether the file is surely the one that git saw. `indexed`: when the index was written; what is not older may have changed
    /// since, at the same moment.
    pub(super) fn is_surely(&self, facts: &Stat, indexed: Moment) -> bool {
        let status = Moment::of(
            facts.st_ctime.try_into().unwrap_or(0),
            u32::try_from(facts.st_ctime_nsec).unwrap_or(0),
        );
        let is_same = self.content.is(Moment::changed(facts))
            && self.status.is(status)
            && self.inode == facts.st_ino & BITS
            && self.size == u64::try_from(facts.st_size).unwrap_or(0) & BITS;
        let is_older = if self.content.1 == 0 { self.content.0 < indexed.0 } else { self.content < indexed };
        is_same && is_older
    }
}

/// Reads `git ls-files --stage --debug -z`. `None` where that is not what it says.
pub(super) fn parse(said: &[u8]) -> Option<Vec<Entry>> {
    let (mut entries, mut rest) = (Vec::new(), said);
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let head = &rest[..end];
        let tab = head.iter().position(|byte| *byte == b'\t')?;
        let mut words = std::str::from_utf8(&head[..tab]).ok()?.split(' ');
        let (mode, id, stage) = (words.next()?, words.next()?, words.next()?);
        rest = &rest[end + 1..];
        let mut numbers = Vec::new();
        for _ in 0..LINES {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = std::str::from_utf8(&rest[..end]).ok()?;
            let words = line.split([':', ' ', '\t']).filter(|word| !word.is_empty());
            numbers.extend(words.filter(|word| word.starts_with(|first: char| first.is_ascii_digit())));
            rest = &rest[end + 1..];
        }
        // Flags are written in another way, and may begin with a letter.
        let before = &said[..said.len() - rest.len() - 1];
        let flags = before.rsplit(|byte| matches!(byte, b' ' | b'\t')).next()?;
        let number = |place: usize| numbers.get(place)?.parse::<u64>().ok();
        let moment = |place: usize| Some(Moment::of(number(place)?, number(place + 1)?.try_into().ok()?));
        entries.push(Entry {
            path: head[tab + 1..].to_vec(),
            mode: u32::from_str_radix(mode, 8).ok()?,
            id: id.to_owned(),
            stage: stage.parse().ok()?,
            status: moment(0)?,
            content: moment(2)?,
            inode: number(5)?,
            size: number(8)?,
            flags: u64::from_str_radix(std::str::from_utf8(flags).ok()?, 16).ok()?,
        });
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_with_all_that_git_saw() {
        let one = "100644 61780798228d17af2d34fce4cfbdf35556832472 0\td/b\tc\n\0  ctime: 1:2\n  mtime: 3:4\n  \
                   dev: 5\tino: 6\n  uid: 7\tgid: 8\n  size: 9\tflags: c0004000\n";
        let entries = parse([one, one].concat().as_bytes()).unwrap();
        assert_eq!(entries.len(), 2);
        let entry = &entries[0];
        assert_eq!((entry.path.as_slice(), entry.mode, entry.stage), (&b"d/b\tc\n"[..], 0o100_644, 0));
        assert_eq!((entry.status, entry.content), (Moment(1, 2), Moment(3, 4)));
        assert_eq!((entry.inode, entry.size, entry.flags), (6, 9, 0xc000_4000));
        assert!(entry.is_skipped());
        assert_eq!(parse(b""), Some(Vec::new()));
        for cut in [10, 50, 60, 70, one.len() - 1] {
            assert_eq!(parse(&one.as_bytes()[..cut]), None, "{cut}");
        }
    }
}
