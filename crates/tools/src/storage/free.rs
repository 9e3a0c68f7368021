//! The free space of a file system.

use std::path::Path;

/// Size of a file system and what is free of it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// What programs of this user can still write.
    pub free: u64,
    /// All of it.
    pub size: u64,
}

impl FreeSpace {
    /// That of the file system where `path` lies or would lie; `None` where the system does not tell. Blocks.
    pub fn at(path: &Path) -> Option<Self> {
        let facts = path.ancestors().find_map(|path| rustix::fs::statvfs(path).ok())?;
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        Some(Self { free: bytes(facts.f_bavail), size: bytes(facts.f_blocks) })
    }

    /// Whether less than so many percent are free.
    pub fn is_below(self, percent: u64) -> bool {
        u128::from(self.free) * 100 < u128::from(self.size) * u128::from(percent)
    }
}
