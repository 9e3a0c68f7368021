//! How the text of a notebook is laid out, so that what is added looks like the rest.

use super::change::{CellKind, written};
use super::scan::Member;

/// The layout of a notebook.
pub(super) struct Layout {
    /// What ends a line, and one level of indentation; `None` where all stands in one line.
    lines: Option<Lines>,
    /// The white space after a comma, where all stands in one line.
    comma: String,
    /// What stands between the name of a member and its value.
    colon: String,
}

struct Lines {
    ending: &'static str,
    unit: String,
    /// The indentation of a cell.
    cell: String,
}

impl Layout {
    /// The layout of the notebook whose object begins at `root` and has these `members`; `cell` is where its first cell
    /// begins.
    pub(super) fn of(text: &[u8], root: usize, members: &[Member], cell: Option<usize>) -> Self {
        let colon = members.first().map(|first| text[first.key.end..first.value.start].to_vec());
        let comma = members.get(1).map(|second| {
            let before = &text[..second.key.start];
            before[before.trim_ascii_end().len()..].to_vec()
        });
        let string = |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let start = members.first().map_or(root, |first| first.key.start);
        let lines = indentation(text, start).map(|unit| {
            let ending = if text[..start].contains(&b'\r') { "\r\n" } else { "\n" };
            let cell =
                cell.and_then(|cell| indentation(text, cell)).map_or_else(|| unit.repeat(2), str::to_owned);
            Lines { ending, unit: unit.to_owned(), cell }
        });
        Self {
            lines,
            comma: string(comma).unwrap_or_else(|| " ".into()),
            colon: string(colon).unwrap_or_else(|| ": ".into()),
        }
    }

    /// The indentation of what stands at `at`, if it begins its line and the notebook is laid out in lines.
    pub(super) fn indent_before<'t>(&self, text: &'t [u8], at: usize) -> Option<&'t str> {
        self.lines.as_ref().and_then(|_| indentation(text, at))
    }

    /// What stands between `[` and the first cell.
    pub(super) fn before_cell(&self) -> String {
        self.lines.as_ref().map_or(String::new(), |lines| format!("{}{}", lines.ending, lines.cell))
    }

    /// What stands between a comma and the next cell.
    pub(super) fn between(&self, before_cell: &str) -> String {
        if self.lines.is_some() { before_cell.to_owned() } else { self.comma.clone() }
    }

    /// What stands between the last cell and `]`.
    pub(super) fn after_cells(&self) -> String {
        self.lines.as_ref().map_or(String::new(), |lines| {
            let outer = lines.cell.strip_suffix(&lines.unit).unwrap_or(&lines.cell);
            format!("{}{outer}", lines.ending)
        })
    }

    /// `source` as notebooks have it: a list of lines, each with its ending. `indent` is that of the member it belongs
    /// to; `None` puts all in one line.
    pub(super) fn lines(&self, source: &str, indent: Option<&str>) -> String {
        let items: Vec<String> = source.split_inclusive('\n').map(written).collect();
        let inner = indent.zip(self.lines.as_ref()).map(|(indent, lines)| format!("{indent}{}", lines.unit));
        self.wrap('[', ']', &items, inner.as_deref(), indent)
    }

    /// A new cell.
    pub(super) fn cell(&self, kind: CellKind, id: Option<&str>, source: &str) -> String {
        let outer = self.lines.as_ref().map(|lines| lines.cell.clone());
        let inner = self.lines.as_ref().map(|lines| format!("{}{}", lines.cell, lines.unit));
        let code = kind == CellKind::Code;
        // In the order in which Jupyter writes them.
        let members = [
            Some(("cell_type", written(kind.name()))),
            code.then(|| ("execution_count", "null".to_owned())),
            id.map(|id| ("id", written(id))),
            Some(("metadata", "{}".to_owned())),
            code.then(|| ("outputs", "[]".to_owned())),
            Some(("source", self.lines(source, inner.as_deref()))),
        ];
        let members: Vec<String> = members
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("\"{name}\"{}{value}", self.colon))
            .collect();
        self.wrap('{', '}', &members, inner.as_deref(), outer.as_deref())
    }

    /// `items` between brackets: each in a line of its own with the indentation `inner`, where there is one.
    fn wrap(
        &self,
        open: char,
        close: char,
        items: &[String],
        inner: Option<&str>,
        outer: Option<&str>,
    ) -> String {
        match (&self.lines, inner, outer) {
            _ if items.is_empty() => format!("{open}{close}"),
            (Some(Lines { ending, .. }), Some(inner), Some(outer)) => {
                let items = items.join(&format!(",{ending}{inner}"));
                format!("{open}{ending}{inner}{items}{ending}{outer}{close}")
            }
            _ => {
                let comma = if self.lines.is_some() { " " } else { &self.comma };
                format!("{open}{}{close}", items.join(&format!(",{comma}")))
            }
        }
    }
}

/// The white space before `at` in its line; `None` if something else stands there, or it is in the first line.
fn indentation(text: &[u8], at: usize) -> Option<&str> {
    let start = memchr::memrchr(b'\n', &text[..at])? + 1;
    let indent = std::str::from_utf8(&text[start..at]).ok()?;
    indent.bytes().all(|byte| matches!(byte, b' ' | b'\t')).then_some(indent)
}
