//! Server-sent events, as far as an answer of JSON-RPC needs them: their data.

/// Collects the data of events from pieces of a stream. The work is linear in what comes.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// A line that is not whole yet.
    line: Vec<u8>,
    /// The data of an event that is not whole yet.
    data: String,
    begun: bool,
    after_return: bool,
}

impl Events {
    /// Takes a piece, and hands the data of each event that is whole to `each`, until that gives something.
    pub(super) fn push<T>(&mut self, piece: &[u8], mut each: impl FnMut(&str) -> Option<T>) -> Option<T> {
        for byte in piece {
            // Lines end with LF, CR or both.
            let second = std::mem::replace(&mut self.after_return, *byte == b'\r') && *byte == b'\n';
            if second {
                continue;
            }
            if !matches!(byte, b'\n' | b'\r') {
                self.line.push(*byte);
                continue;
            }
            if let Some(found) = self.end_line(&mut each) {
                return Some(found);
            }
        }
        None
    }

    /// Takes the end of the stream: an event without the blank line behind it counts.
    pub(super) fn end<T>(mut self, mut each: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let found = self.end_line(&mut each);
        found.or_else(|| self.end_line(&mut each))
    }

    fn end_line<T>(&mut self, each: &mut impl FnMut(&str) -> Option<T>) -> Option<T> {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        if text.is_empty() {
            self.begun = false;
            let data = std::mem::take(&mut self.data);
            return if data.is_empty() { None } else { each(&data) };
        }
        let value = match text.strip_prefix("data")? {
            "" => "",
            value => {
                let value = value.strip_prefix(':')?;
                value.strip_prefix(' ').unwrap_or(value)
            }
        };
        if std::mem::replace(&mut self.begun, true) {
            self.data.push('\n');
        }
        self.data.push_str(value);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, size: usize) -> Vec<String> {
        let (mut events, mut found) = (Events::default(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            let _: Option<()> = events.push(piece, |data| {
                found.push(data.to_owned());
                None
            });
        }
        let _: Option<()> = events.end(|data| {
            found.push(data.to_owned());
            None
        });
        found
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = ": hello\nevent: message\ndata: {\"a\":\ndata:1}\n\nid: 7\r\ndata: zwei ä\r\n\r\nretry: 1\n\ndata\rdata: x\r\rdatum: no\n\ndata: last";
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(all(text, size), ["{\"a\":\n1}", "zwei ä", "\nx", "last"], "{size}");
        }
        assert_eq!(all("", 1), Vec::<String>::new());
    }

    #[test]
    fn it_stops_where_something_was_found() {
        let found =
            Events::default().push(b"data: 1\n\ndata: 2\n\n", |data| (data == "1").then(|| data.to_owned()));
        assert_eq!(found.as_deref(), Some("1"));
    }
}
