//! Output for those who watch.

use crate::OutputSink;

/// The most that is shown of one command while it runs, in bytes. Nobody reads more, and the whole comes with the
/// result.
const MOST: usize = 1024 * 1024;
const STOPPED: &str = "\n[this is more than is shown while the command runs]\n";

/// Turns bytes into text, also where a character is cut by the end of a chunk.
pub(super) struct Live<'a> {
    sink: &'a dyn OutputSink,
    /// The beginning of a character: at most three bytes.
    carry: Vec<u8>,
    left: usize,
}

impl<'a> Live<'a> {
    pub(super) fn new(sink: &'a dyn OutputSink) -> Self {
        Self { sink, carry: Vec::new(), left: MOST }
    }

    pub(super) fn write(&mut self, chunk: &[u8]) {
        if self.left == 0 || chunk.is_empty() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.carry);
        bytes.extend_from_slice(chunk);
        self.carry = bytes.split_off(whole_characters(&bytes));
        self.left = self.left.saturating_sub(bytes.len());
        if !bytes.is_empty() {
            self.sink.write(&String::from_utf8_lossy(&bytes));
        }
        if self.left == 0 {
            self.carry = Vec::new();
            self.sink.write(STOPPED);
        }
    }

    /// No more comes.
    pub(super) fn finish(&mut self) {
        if !self.carry.is_empty() {
            self.sink.write(&String::from_utf8_lossy(&std::mem::take(&mut self.carry)));
        }
    }
}

/// Length of `bytes` without a character at the end that is begun and not complete.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let cut = last.map_or(0, |chunk| chunk.invalid().len());
    let tail = &bytes[bytes.len() - cut..];
    // Told apart from bytes that are wrong whatever follows.
    let is_begun = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    if is_begun { bytes.len() - cut } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Recorder;

    fn written(chunks: &[&[u8]]) -> String {
        let recorder = Recorder::default();
        let mut live = Live::new(&recorder);
        chunks.iter().for_each(|chunk| live.write(chunk));
        live.finish();
        recorder.text()
    }

    #[test]
    fn characters_are_put_together_again() {
        let text = "aé€😀z".as_bytes();
        for size in 1..=text.len() {
            let chunks: Vec<_> = text.chunks(size).collect();
            assert_eq!(written(&chunks), "aé€😀z", "{size}");
        }
    }

    #[test]
    fn wrong_bytes_are_marked_and_hold_nothing_back() {
        assert_eq!(written(&[b"a\xff", b"b\xe2\x82"]), "a\u{fffd}b\u{fffd}");
        let recorder = Recorder::default();
        Live::new(&recorder).write(b"a\xff");
        assert_eq!(recorder.text(), "a\u{fffd}");
    }

    #[test]
    fn it_stops_when_nobody_can_read_so_much() {
        let chunk = vec![b'x'; 100_000];
        let text = written(&vec![chunk.as_slice(); 100]);
        assert!(text.len() < MOST + 200_000 && text.ends_with(STOPPED), "{}", text.len());
    }
}
