//! Changing one cell of a notebook, in its text.

use std::ops::Range;

use playhouse_workspace::hash;

use super::layout::Layout;
use super::scan::{self, Member};

/// Cells that an error lists.
const LISTED: usize = 20;

/// The kinds of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    Code,
    Markdown,
    Raw,
}

impl CellKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Markdown => "markdown",
            Self::Raw => "raw",
        }
    }
}

/// How a cell is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// By its id.
    Id(String),
    /// By its place, from 0.
    Index(usize),
}

/// A change of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Its source becomes another.
    Replace { cell: Name, source: String },
    /// A cell comes after the one with that id, or to that place; at the beginning where none is named.
    Insert { cell: Option<Name>, kind: CellKind, source: String },
    /// It goes.
    Delete { cell: Name },
}

/// A notebook after a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    /// All of its text.
    pub(super) text: Vec<u8>,
    /// The place of the cell that changed, came or went, from 0.
    pub(super) index: usize,
    /// Its id, if it has one.
    pub(super) id: Option<String>,
    /// Its kind.
    pub(super) kind: String,
    /// Whether outputs of the cell were removed with what had made them.
    pub(super) cleared: bool,
}

/// A part of the text, and what comes in its place.
type Splice = (Range<usize>, String);

/// A notebook, taken apart.
pub(super) struct Notebook<'a> {
    text: &'a [u8],
    /// Where the array of cells is.
    array: Range<usize>,
    cells: Vec<Cell>,
    /// Whether cells of its format have an id.
    has_ids: bool,
    layout: Layout,
}

struct Cell {
    span: Range<usize>,
    members: Vec<Member>,
    id: Option<String>,
    kind: String,
}

impl Cell {
    fn of(text: &[u8], span: Range<usize>) -> Option<Self> {
        let members = scan::members(text, span.start)?;
        let string = |name: &str| -> Option<String> {
            let member = member(&members, name)?;
            serde_json::from_slice(&text[member.value.clone()]).ok()
        };
        let (id, kind) = (string("id"), string("cell_type").unwrap_or_default());
        Some(Self { span, members, id, kind })
    }
}

/// The member of this name; the last one, where there are several, as readers of JSON have it.
fn member<'a>(members: &'a [Member], name: &str) -> Option<&'a Member> {
    members.iter().rev().find(|member| member.name == name)
}

impl<'a> Notebook<'a> {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// When it is no notebook of format 4.
    pub(super) fn of(text: &'a [u8]) -> Result<Self, String> {
        scan::check(text).map_err(|error| format!("it is not valid JSON ({error}), so it is no notebook"))?;
        let root = scan::past_space(text, 0);
        let members = scan::members(text, root).ok_or("it is no JSON object, so it is no notebook")?;
        let number = |name: &str| -> Option<u64> {
            serde_json::from_slice(&text[member(&members, name)?.value.clone()]).ok()
        };
        match number("nbformat") {
            Some(4) => {}
            Some(other) => {
                return Err(format!(
                    "its format is {other}, and only format 4 is edited: convert it first (jupyter nbconvert --to notebook)"
                ));
            }
            None => return Err("it has no \"nbformat\", so it is no notebook".into()),
        }
        let cells = member(&members, "cells").ok_or("it has no \"cells\", so it is no notebook")?;
        let array = cells.value.clone();
        let spans = scan::elements(text, array.start).ok_or("its \"cells\" are no array")?;
        let cells: Option<Vec<Cell>> = spans.into_iter().map(|span| Cell::of(text, span)).collect();
        let cells = cells.ok_or("one of its cells is no object")?;
        let layout = Layout::of(text, root, &members, cells.first().map(|cell| cell.span.start));
        let has_ids = number("nbformat_minor").is_some_and(|minor| minor >= 5);
        Ok(Self { text, array, cells, has_ids, layout })
    }

    /// The text with `change` in it.
    ///
    /// # Errors
    /// When there is no such cell, or nothing would change.
    pub(super) fn apply(&self, change: &Change) -> Result<Changed, String> {
        match change {
            Change::Replace { cell, source } => self.replace(self.find(cell)?, source),
            Change::Insert { cell, kind, source } => {
                let index = match cell {
                    None => 0,
                    Some(Name::Index(index)) if *index == self.cells.len() => *index,
                    Some(name @ Name::Index(_)) => self.find(name)?,
                    Some(name @ Name::Id(_)) => self.find(name)? + 1,
                };
                Ok(self.insert(index, *kind, source))
            }
            Change::Delete { cell } => Ok(self.delete(self.find(cell)?)),
        }
    }

    fn find(&self, name: &Name) -> Result<usize, String> {
        let (index, asked) = match name {
            Name::Index(index) => ((*index < self.cells.len()).then_some(*index), index.to_string()),
            Name::Id(id) => {
                let same = |cell: &Cell| cell.id.as_deref() == Some(id);
                if self.cells.iter().filter(|cell| same(cell)).count() > 1 {
                    return Err(format!("more than one cell has the id {id:?}: name the cell by cellIndex"));
                }
                (self.cells.iter().position(same), format!("{id:?}"))
            }
        };
        index.ok_or_else(|| format!("it has no cell {asked}. {}", self.listed()))
    }

    fn listed(&self) -> String {
        if self.cells.is_empty() {
            return "It has no cells at all".into();
        }
        let one = |(index, cell): (usize, &Cell)| match &cell.id {
            Some(id) => format!("{index} (id {id}, {})", cell.kind),
            None => format!("{index} ({})", cell.kind),
        };
        let listed: Vec<String> = self.cells.iter().enumerate().take(LISTED).map(one).collect();
        let more = self.cells.len() - listed.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let ids = if self.cells.iter().any(|cell| cell.id.is_some()) { "" } else { ", without ids" };
        format!("Its cells{ids} are {}{more}", listed.join(", "))
    }

    fn replace(&self, index: usize, source: &str) -> Result<Changed, String> {
        let cell = &self.cells[index];
        let Some(old) = member(&cell.members, "source") else {
            return Err(format!("cell {index} has no \"source\": delete it, and insert another"));
        };
        let indent = self.layout.indent_before(self.text, old.key.start);
        let plain = self.text[old.value.start] == b'"';
        let new = if plain { written(source) } else { self.layout.lines(source, indent) };
        if self.source_of(old).as_deref() == Some(source) {
            return Err(format!("cell {index} has exactly this source already; nothing was changed"));
        }
        let mut splices = vec![(old.value.clone(), new)];
        let mut cleared = false;
        if cell.kind == CellKind::Code.name() {
            if let Some(outputs) = member(&cell.members, "outputs")
                && scan::elements(self.text, outputs.value.start).is_none_or(|outputs| !outputs.is_empty())
            {
                splices.push((outputs.value.clone(), "[]".into()));
                cleared = true;
            }
            if let Some(count) = member(&cell.members, "execution_count")
                && self.text[count.value.clone()] != *b"null"
            {
                splices.push((count.value.clone(), "null".into()));
            }
        }
        Ok(self.changed(splices, index, cell.id.clone(), &cell.kind, cleared))
    }

    /// The source of a cell as one text; `None` where it is neither a text nor a list of texts.
    fn source_of(&self, source: &Member) -> Option<String> {
        let value = &self.text[source.value.clone()];
        serde_json::from_slice::<String>(value)
            .or_else(|_| serde_json::from_slice::<Vec<String>>(value).map(|lines| lines.concat()))
            .ok()
    }

    fn insert(&self, index: usize, kind: CellKind, source: &str) -> Changed {
        let id = self.has_ids.then(|| self.fresh_id(index, source));
        let cell = self.layout.cell(kind, id.as_deref(), source);
        let gap = self.layout.before_cell();
        let splice = if self.cells.is_empty() {
            (self.array.start + 1..self.array.end - 1, format!("{gap}{cell}{}", self.layout.after_cells()))
        } else if let Some(next) = self.cells.get(index) {
            (next.span.start..next.span.start, format!("{cell},{}", self.layout.between(&gap)))
        } else {
            let end = self.cells[index - 1].span.end;
            (end..end, format!(",{}{cell}", self.layout.between(&gap)))
        };
        self.changed(vec![splice], index, id, kind.name(), false)
    }

    fn delete(&self, index: usize) -> Changed {
        let cell = &self.cells[index];
        let range = match (index.checked_sub(1), self.cells.get(index + 1)) {
            (Some(previous), _) => self.cells[previous].span.end..cell.span.end,
            (None, Some(next)) => cell.span.start..next.span.start,
            (None, None) => self.array.start + 1..self.array.end - 1,
        };
        self.changed(vec![(range, String::new())], index, cell.id.clone(), &cell.kind, false)
    }

    fn changed(
        &self,
        mut splices: Vec<Splice>,
        index: usize,
        id: Option<String>,
        kind: &str,
        cleared: bool,
    ) -> Changed {
        splices.sort_by_key(|(range, _)| range.start);
        let mut text =
            Vec::with_capacity(self.text.len() + splices.iter().map(|(_, new)| new.len()).sum::<usize>());
        let mut from = 0;
        for (range, new) in &splices {
            text.extend_from_slice(&self.text[from..range.start]);
            text.extend_from_slice(new.as_bytes());
            from = range.end;
        }
        text.extend_from_slice(&self.text[from..]);
        Changed { text, index, id, kind: kind.to_owned(), cleared }
    }

    /// An id that no cell has: eight hexadecimal digits, as notebooks have them. Made from what is inserted where, so
    /// that the same call gives the same notebook.
    fn fresh_id(&self, index: usize, source: &str) -> String {
        let content = hash(self.text);
        let mut attempt = 0_u64;
        loop {
            let id: String = hash(format!("{content} {index} {attempt} {source}").as_bytes())
                .to_string()
                .chars()
                .take(8)
                .collect();
            if self.cells.iter().all(|cell| cell.id.as_ref() != Some(&id)) {
                return id;
            }
            attempt += 1;
        }
    }
}

/// `text` as a JSON string.
pub(super) fn written(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
