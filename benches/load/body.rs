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
            self.head.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let head = self.head.trim_ascii();
            // What ends the chunk before it.
            if !head.is_empty() {
                let size =
                    std::str::from_utf8(head).ok().and_then(|head| usize::from_str_radix(head, 16).ok());
                match size {
                    None | Some(0) => return false,
                    Some(size) => self.left = size,
                }
            }
            self.head.clear();
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
