//! Lines of a stream of events, out of the chunks in which HTTP carries it.

/// How far a body was read.
#[derive(Default)]
pub(crate) struct Body {
    /// Bytes that are left of the chunk.
    left: usize,
    /// The head of a chunk, as far as it came.
    head: Vec<u8>,
    /// A line, as far as it came.
    line: Vec<u8>,
}

impl Body {
    /// Reads on, and gives every line that is complete to `take`. Says whether the body goes on.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8])) -> bool {
        while !bytes.is_empty() {
            if self.left > 0 {
                let (chunk, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= chunk.len();
                self.lines(chunk, &mut take);
                bytes = rest;
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                self.head.extend_from_slice(bytes);
                return true;
            };
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            let size = if self.head.is_empty() {
                size(line)
            } else {
                self.head.extend_from_slice(line);
                let size = size(&self.head);
                self.head.clear();
                size
            };
            match size {
                // What ends the chunk before it.
                None => {}
                Some(0) => return false,
                Some(size) => self.left = size,
            }
        }
        true
    }

    fn lines(&mut self, mut chunk: &[u8], take: &mut impl FnMut(&[u8])) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            if self.line.is_empty() {
                take(&chunk[..end]);
            } else {
                self.line.extend_from_slice(&chunk[..end]);
                take(&self.line);
                self.line.clear();
            }
            chunk = &chunk[end + 1..];
        }
        self.line.extend_from_slice(chunk);
    }
}

/// The size that the head of a chunk says; 0, which ends a body, where it says none. `None` for an empty line.
fn size(head: &[u8]) -> Option<usize> {
    let head = head.trim_ascii();
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let add = |size: usize, byte| Some(size.checked_mul(16)? + digit(byte)? as usize);
    (!head.is_empty()).then(|| head.iter().try_fold(0, add).unwrap_or(0))
}
