//! What this program logs to standard error, and in which form.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use self::fields::Plain;

mod fields;

/// The variable that chooses the form.
pub(crate) const FORMAT: &str = "PLAYHOUSE_LOG_FORMAT";

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Lines for people.
    Human,
    /// One JSON object a line, with the spans that it stands in and their attributes.
    Json,
}

impl Format {
    /// What the variable says.
    ///
    /// # Errors
    /// It names no form.
    pub(crate) fn of(value: Option<&str>) -> Result<Self, String> {
        match value {
            None | Some("" | "human") => Ok(Self::Human),
            Some("json") => Ok(Self::Json),
            Some(other) => Err(format!("{FORMAT} is \"{}\", expected human or json", other.escape_debug())),
        }
    }
}

/// A filter that leaves out what the protocol library tells of logins, codes and tokens among it.
fn without_logins(filter: EnvFilter) -> EnvFilter {
    match "rmcp::transport::auth=error".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    }
}

/// Logs from now on to what `writer` gives: standard error.
pub(crate) fn start<W>(filter: EnvFilter, format: Format, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // To complain of a line that cannot be written is to write to the same place, and a program must not end by its log: lines
    // are lost instead.
    let filter = without_logins(filter);
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    match format {
        Format::Human => log.fmt_fields(Plain).with_ansi(std::io::stderr().is_terminal()).init(),
        // The innermost span is the last of the list.
        Format::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(true).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_human_or_json() {
        assert_eq!((Format::of(None), Format::of(Some(""))), (Ok(Format::Human), Ok(Format::Human)));
        assert_eq!(
            (Format::of(Some("human")), Format::of(Some("json"))),
            (Ok(Format::Human), Ok(Format::Json))
        );
        let error = Format::of(Some("xml")).unwrap_err();
        assert_eq!(error, "PLAYHOUSE_LOG_FORMAT is \"xml\", expected human or json");
    }
}
