//! The fields of spans as `name=value`, as `tracing_subscriber` writes them, in a third of the instructions: each step begins two
//! spans and ends them, between an answer and the next request.

use std::error::Error;
use std::fmt::{self, Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// More than the fields of a span usually take, in bytes.
const ROOM: usize = 512;

/// Writes the fields of spans without colours. Those of events, which may hold what is not to reach a terminal, are left to
/// [`DefaultFields`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain;

impl<'writer> FormatFields<'writer> for Plain {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = Text { written: String::with_capacity(ROOM), is_of_event: false };
        fields.record(&mut text);
        if text.is_of_event || writer.has_ansi_escapes() {
            return DefaultFields::new().format_fields(writer, fields);
        }
        writer.write_str(&text.written)
    }
}

struct Text {
    written: String,
    is_of_event: bool,
}

impl Text {
    /// Writes what stands before a value.
    fn begin(&mut self, field: &Field) {
        if !self.written.is_empty() {
            self.written.push(' ');
        }
        let name = field.name();
        self.written.push_str(name.strip_prefix("r#").unwrap_or(name));
        self.written.push('=');
    }

    /// Whether a field is one that spans have.
    fn takes(&mut self, field: &Field) -> bool {
        let name = field.name();
        self.is_of_event |= name == "message" || name.starts_with("log.");
        !self.is_of_event
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        if !value.bytes().all(is_plain) {
            self.record_debug(field, &value);
        } else if self.takes(field) {
            self.begin(field);
            for part in ["\"", value, "\""] {
                self.written.push_str(part);
            }
        }
    }

    fn record_error(&mut self, _: &Field, _: &(dyn Error + 'static)) {
        self.is_of_event = true;
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.takes(field) {
            self.begin(field);
            // Of a value that cannot be written stands there as much as could be.
            let _written = write!(self.written, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::format::FmtSpan;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What a log has of the same spans and events, with these fields.
    fn log<F>(fields: F) -> String
    where
        F: for<'writer> FormatFields<'writer> + Send + Sync + 'static,
    {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_span_events(FmtSpan::NEW)
            .fmt_fields(fields)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::other(fmt::Error);
            let outer = tracing::info_span!(
                "outer",
                text = "two words",
                quoted = "say \"so\"\\\n\u{1b}[31m\u{e4}",
                empty = "",
                number = 7,
                negative = -7_i64,
                half = 0.5,
                yes = true,
                display = %"shown \u{1b}[31m",
                debug = ?Some("x"),
                r#type = "t",
                later = tracing::field::Empty,
                dotted.name = tracing::field::Empty,
            );
            let _outer = outer.enter();
            outer.record("later", "now");
            outer.record("dotted.name", 3_u64);
            let inner = tracing::info_span!("inner", error = &error as &dyn Error, "a message");
            let _inner = inner.enter();
            let _bare = tracing::info_span!("bare").entered();
            tracing::info!(error = &error as &dyn Error, count = 2, "an event \u{1b}[31m");
            tracing::warn!(value = ?error);
        });
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn fields_are_written_as_by_the_library() {
        let plain = log(Plain);
        assert_eq!(plain, log(DefaultFields::new()));
        assert!(plain.contains(r#"text="two words" quoted="say \"so\""#), "{plain}");
        assert!(plain.contains(r#"later="now" dotted.name=3"#), "{plain}");
    }
}
