//! The first block of a file of a journal: how long the file was made before anything in it counted.
//!
//! ```text
//! layout   "PHJRNL01" (8 bytes), length (8), salt (8), 1 if the other file has one too (1), zeros (3), CRC-32 (4)
//! ```
//!
//! The file is made longer first, durably, and then this is written: wherever that is cut off, the file is at least as long as it
//! says. It lies within one sector. Engines before it began entries at the first byte: a file with an entry there has none.

use super::blocks::BLOCK;

const MAGIC: &[u8; 8] = b"PHJRNL01";
/// How long it is without its checksum.
const SUMMED: usize = 28;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The least length of the file, in bytes.
    pub(super) length: u64,
    /// The journal's.
    pub(super) salt: u64,
    /// The other file begins with a layout as well.
    pub(super) both: bool,
}

impl Layout {
    /// What a file with this content begins with, if that is a layout of the journal with this salt.
    pub(super) fn of(content: &[u8], salt: u64) -> Option<Self> {
        let (summed, rest) = content.split_first_chunk::<SUMMED>()?;
        let number = |at: usize| summed[at..].first_chunk::<8>().copied().map(u64::from_le_bytes);
        let is_one =
            summed.starts_with(MAGIC) && rest.first_chunk() == Some(&crc32fast::hash(summed).to_le_bytes());
        let found = Self { length: number(8)?, salt: number(16)?, both: summed[24] == 1 };
        (is_one && found.salt == salt).then_some(found)
    }

    /// What the file begins with.
    pub(super) fn block(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..8].copy_from_slice(MAGIC);
        block[8..16].copy_from_slice(&self.length.to_le_bytes());
        block[16..24].copy_from_slice(&self.salt.to_le_bytes());
        block[24] = u8::from(self.both);
        let sum = crc32fast::hash(&block[..SUMMED]);
        block[SUMMED..SUMMED + 4].copy_from_slice(&sum.to_le_bytes());
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_back_and_no_other_byte_is_one() {
        let layout = Layout { length: 131_072, salt: 7, both: true };
        let mut block = layout.block();
        assert_eq!(Layout::of(&block, 7), Some(layout));
        assert_eq!(Layout::of(&block, 8), None, "of another journal");
        for byte in 0..SUMMED + 4 {
            block[byte] ^= 0x10;
            assert_eq!(Layout::of(&block, 7), None, "{byte}");
            block[byte] ^= 0x10;
            assert_eq!(Layout::of(&block[..byte], 7), None, "{byte}");
        }
    }
}
