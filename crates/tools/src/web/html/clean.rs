//! A tree as plain, well-formed HTML that holds only what Markdown can say: what the converter is given.
//!
//! The converter is recursive, and some of its work grows with the square of what it is given: so nothing nests deep here,
//! equal neighbours are one, and a table that would be padded to a multiple of its size becomes lines.

use reqwest::Url;

use super::tree::{Content, Id, Node, Tree, is_block};

/// Lists and quotes within each other.
const DEEPEST: usize = 10;
/// The most that is converted, in bytes of text and marks.
const MOST: usize = 2_000_000;
/// A table is kept that has at most this many characters once its cells are padded.
const WIDEST_TABLE: usize = 200_000;
/// Columns that one cell may span.
const WIDEST_CELL: usize = 20;
/// Ancestors of a block of code that may name its language.
const LANGUAGE_FROM: usize = 4;

/// The text of `tree` as clean HTML, and whether it is all of it.
pub(super) fn clean(tree: &Tree, page: &Url) -> (String, bool) {
    let base = tree.base.as_deref().and_then(|base| page.join(base).ok()).unwrap_or_else(|| page.clone());
    let mut writer = Writer {
        tree,
        base,
        out: String::new(),
        written: 0,
        run: Run::None,
        depth: 0,
        link: false,
        strong: false,
        emphasis: false,
    };
    let title = collapse(&tree.title);
    let headed = (0..tree.len()).any(|id| tree.node(id).name() == "h1" && !tree.node(id).hidden);
    if !headed && !title.is_empty() {
        writer.out.push_str("<h1>");
        escape(&title, &mut writer.out);
        writer.out.push_str("</h1>");
    }
    writer.children(Tree::ROOT);
    writer.close();
    let whole = writer.written <= MOST && !tree.cut;
    (writer.out, whole)
}

/// What inline content is being written into.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    /// Nothing: a paragraph has to be begun.
    None,
    Paragraph,
    /// The beginning of a list's item.
    Bare,
    /// A heading, a link, a cell: blocks are spaces here.
    Line,
}

struct Writer<'a> {
    tree: &'a Tree,
    base: Url,
    out: String,
    /// What was written, in bytes.
    written: usize,
    run: Run,
    /// Lists and quotes that are open.
    depth: usize,
    link: bool,
    strong: bool,
    emphasis: bool,
}

impl<'a> Writer<'a> {
    fn children(&mut self, id: Id) {
        let tree = self.tree;
        for child in &tree.node(id).children {
            self.node(*child);
        }
    }

    fn node(&mut self, id: Id) {
        let tree = self.tree;
        let node = tree.node(id);
        if node.hidden || self.written > MOST {
            return;
        }
        match &node.content {
            Content::Text(text) => self.text(text),
            Content::Element { name, .. } => {
                self.written += 8;
                let name = &**name;
                if self.run == Run::Line && is_block(name) && name != "hr" {
                    self.out.push(' ');
                    self.children(id);
                    self.out.push(' ');
                } else {
                    self.element(id, node, name);
                }
            }
        }
    }

    fn element(&mut self, id: Id, node: &'a Node, name: &str) {
        match name {
            "form" if !node.holds_page => self.close(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let line = self.line(id);
                self.block(|writer| writer.wrap(name, &line));
            }
            "blockquote" if self.depth < DEEPEST => self.nest("<blockquote>", "</blockquote>", id, Run::None),
            "ul" | "menu" | "dir" if self.depth < DEEPEST => self.nest("<ul>", "</ul>", id, Run::None),
            "ol" if self.depth < DEEPEST => {
                let start = node.attribute("start").and_then(|start| start.trim().parse::<u32>().ok());
                let open = start.map_or("<ol>".to_owned(), |start| format!("<ol start=\"{start}\">"));
                self.nest(&open, "</ol>", id, Run::None);
            }
            "li" if matches!(self.tree.node(node.parent).name(), "ul" | "ol" | "menu" | "dir")
                && self.depth <= DEEPEST =>
            {
                self.nest("<li>", "</li>", id, Run::Bare);
            }
            "dt" => {
                let line = self.line(id);
                self.block(|writer| {
                    writer.out.push_str("<p>");
                    writer.wrap("strong", &line);
                    writer.out.push_str("</p>");
                });
            }
            "pre" | "listing" => self.code_block(id),
            "table" => self.table(id),
            "hr" if self.run != Run::Line => self.block(|writer| writer.out.push_str("<hr>")),
            "a" => self.anchor(id, node),
            "img" => self.image(node),
            "br" => {
                if self.run != Run::None && !self.out.ends_with("<br><br>") {
                    self.out.push_str("<br>");
                }
            }
            "code" | "kbd" | "samp" | "tt" if !node.holds_block => {
                let text = collapse(&plain(self.tree, id));
                if !text.is_empty() {
                    self.open();
                    self.begin("code");
                    escape(&text, &mut self.out);
                    self.out.push_str("</code>");
                }
            }
            "strong" | "b" if !node.holds_block && !self.strong => {
                self.strong = true;
                self.inline("strong", id);
                self.strong = false;
            }
            "em" | "i" if !node.holds_block && !self.emphasis => {
                self.emphasis = true;
                self.inline("em", id);
                self.emphasis = false;
            }
            _ if is_block(name) => {
                self.close();
                self.children(id);
                self.close();
            }
            _ => self.children(id),
        }
    }

    fn text(&mut self, text: &str) {
        if text.trim().is_empty() {
            if matches!(self.run, Run::Paragraph | Run::Line) || self.run == Run::Bare {
                self.out.push(' ');
            }
            return;
        }
        self.open();
        self.written += text.len();
        escape(text, &mut self.out);
    }

    /// Begins a paragraph, unless inline content can be written.
    fn open(&mut self) {
        if self.run == Run::None {
            self.out.push_str("<p>");
            self.run = Run::Paragraph;
        }
    }

    /// Ends the paragraph, if there is one.
    fn close(&mut self) {
        match self.run {
            Run::Paragraph => self.out.push_str("</p>"),
            Run::None | Run::Bare => {}
            Run::Line => return,
        }
        self.run = Run::None;
    }

    fn block(&mut self, write: impl FnOnce(&mut Self)) {
        self.close();
        write(self);
    }

    fn nest(&mut self, open: &str, close: &str, id: Id, run: Run) {
        self.close();
        self.out.push_str(open);
        self.depth += usize::from(run == Run::None);
        self.run = run;
        self.children(id);
        self.close();
        self.depth -= usize::from(run == Run::None);
        self.out.push_str(close);
    }

    fn wrap(&mut self, name: &str, content: &str) {
        if !content.trim().is_empty() {
            self.out.push_str(&format!("<{name}>{}</{name}>", content.trim()));
        }
    }

    /// The children of a node as one line, which is not written.
    fn line(&mut self, id: Id) -> String {
        let out = std::mem::take(&mut self.out);
        let run = std::mem::replace(&mut self.run, Run::Line);
        self.children(id);
        self.run = run;
        std::mem::replace(&mut self.out, out)
    }

    /// Begins an inline element. One that just ended with the same name goes on instead.
    fn begin(&mut self, name: &str) {
        let end = format!("</{name}>");
        if self.out.ends_with(&end) {
            self.out.truncate(self.out.len() - end.len());
        } else {
            self.out.push_str(&format!("<{name}>"));
        }
    }

    fn inline(&mut self, name: &str, id: Id) {
        let line = self.line(id);
        if line.trim().is_empty() {
            if !line.is_empty() {
                self.text(" ");
            }
            return;
        }
        self.open();
        // Markdown wants the marks to touch the text.
        if line.starts_with(char::is_whitespace) {
            self.out.push(' ');
        }
        self.begin(name);
        self.out.push_str(line.trim());
        self.out.push_str(&format!("</{name}>"));
        if line.ends_with(char::is_whitespace) {
            self.out.push(' ');
        }
    }

    fn anchor(&mut self, id: Id, node: &Node) {
        let target = node.attribute("href").filter(|href| !href.trim_start().starts_with('#'));
        let target = target.filter(|_| !self.link).and_then(|href| self.absolute(href));
        let Some(target) = target else { return self.children(id) };
        self.link = true;
        let line = self.line(id);
        self.link = false;
        if line.trim().is_empty() {
            return;
        }
        self.open();
        self.written += target.len();
        self.out.push_str("<a href=\"");
        escape(&target, &mut self.out);
        self.out.push_str("\">");
        self.out.push_str(line.trim());
        self.out.push_str("</a>");
        if line.ends_with(char::is_whitespace) {
            self.out.push(' ');
        }
    }

    fn image(&mut self, node: &Node) {
        let alt = collapse(node.attribute("alt").unwrap_or_default());
        let source = ["src", "data-src"].iter().filter_map(|name| node.attribute(name));
        let Some(source) = source.into_iter().find_map(|source| self.absolute(source)) else {
            return self.text(&alt);
        };
        // Without a text it is decoration, as its standard says.
        if alt.is_empty() {
            return;
        }
        self.open();
        self.written += source.len() + alt.len();
        self.out.push_str("<img src=\"");
        escape(&source, &mut self.out);
        self.out.push_str("\" alt=\"");
        escape(&alt, &mut self.out);
        self.out.push_str("\">");
    }

    /// Where a link leads, if that is an address that can be fetched or written to.
    fn absolute(&self, link: &str) -> Option<String> {
        let url = self.base.join(link.trim()).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.to_string())
    }

    fn code_block(&mut self, id: Id) {
        let text = plain(self.tree, id);
        let text = text.strip_prefix('\n').unwrap_or(&text).trim_end();
        if text.is_empty() {
            return;
        }
        let language = language(self.tree, id);
        self.written += text.len();
        self.block(|writer| {
            match language {
                Some(language) => writer.out.push_str(&format!("<pre><code class=\"language-{language}\">")),
                None => writer.out.push_str("<pre><code>"),
            }
            escape(text, &mut writer.out);
            writer.out.push_str("</code></pre>");
        });
    }

    fn table(&mut self, id: Id) {
        let mut rows = Vec::new();
        let tidy = self.rows(id, false, &mut rows);
        let widest = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
        let holds = |cell: &Id, name: &str| {
            let tree = self.tree;
            tree.node(*cell).children.iter().any(|child| tree.node(*child).name() == name)
        };
        let laid_out = !tidy
            || widest < 2
            || rows.iter().flat_map(|row| &row.cells).any(|cell| {
                self.tree.node(*cell).holds_table || self.tree.node(*cell).holds_page || holds(cell, "pre")
            });
        if laid_out {
            return self.block(|writer| {
                writer.children(id);
                writer.close();
            });
        }
        self.close();
        let tree = self.tree;
        for child in &tree.node(id).children {
            if tree.node(*child).name() == "caption" {
                let line = self.line(*child);
                self.wrap("p", &line);
            }
        }
        let lines: Vec<Vec<String>> = rows.iter().map(|row| self.cells(row)).collect();
        if !fits(&lines) {
            for line in &lines {
                self.wrap("p", &line.join(" | "));
            }
            return;
        }
        // Markdown's tables have one line of headings; without one in the page the first row is it.
        for (place, line) in lines.iter().enumerate() {
            let (begin, tag, end) = match place {
                0 => ("<table><thead><tr>", "th", "</tr></thead><tbody>"),
                _ => ("<tr>", "td", "</tr>"),
            };
            self.out.push_str(begin);
            for cell in line {
                self.out.push_str(&format!("<{tag}>{}</{tag}>", cell.trim()));
            }
            self.out.push_str(end);
        }
        self.out.push_str("</tbody></table>");
    }

    /// The rows of a table, those of tables in it not among them. Whether all that it holds stands in cells.
    fn rows(&self, id: Id, in_row: bool, rows: &mut Vec<Row>) -> bool {
        let tree = self.tree;
        let mut tidy = true;
        for child in &tree.node(id).children {
            let node = tree.node(*child);
            tidy &= match (node.name(), &node.content) {
                _ if node.hidden => true,
                (_, Content::Text(text)) => text.trim().is_empty(),
                ("tr", _) if !in_row => {
                    rows.push(Row { cells: Vec::new() });
                    self.rows(*child, true, rows)
                }
                ("td" | "th", _) => {
                    match rows.last_mut().filter(|_| in_row) {
                        Some(row) => row.cells.push(*child),
                        None => rows.push(Row { cells: vec![*child] }),
                    }
                    true
                }
                ("caption", _) => node.parent == id && !in_row && tree.node(id).name() == "table",
                ("thead" | "tbody" | "tfoot", _) if !in_row => self.rows(*child, false, rows),
                _ => false,
            };
        }
        tidy
    }

    fn cells(&mut self, row: &Row) -> Vec<String> {
        let mut cells = Vec::with_capacity(row.cells.len());
        for cell in &row.cells {
            cells.push(self.line(*cell));
            let span = self.tree.node(*cell).attribute("colspan").and_then(|span| span.trim().parse().ok());
            let more = span.unwrap_or(1usize).clamp(1, WIDEST_CELL) - 1;
            cells.extend(std::iter::repeat_n(String::new(), more));
        }
        cells
    }
}

struct Row {
    cells: Vec<Id>,
}

/// Is a table small enough once all cells of a column are as wide as the widest?
fn fits(lines: &[Vec<String>]) -> bool {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        widths.resize(widths.len().max(line.len()), 0);
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.len());
        }
    }
    let across: usize = widths.iter().map(|width| width + 3).sum();
    across.saturating_mul(lines.len()) <= WIDEST_TABLE
}

/// All text below a node as it stands, with line breaks where a block or `<br>` makes one.
pub(super) fn plain(tree: &Tree, id: Id) -> String {
    fn walk(tree: &Tree, id: Id, out: &mut String) {
        for child in &tree.node(id).children {
            let node = tree.node(*child);
            match &node.content {
                _ if node.hidden => {}
                Content::Text(text) => out.push_str(text),
                Content::Element { name, .. } if &**name == "br" => out.push('\n'),
                Content::Element { name, .. } => {
                    walk(tree, *child, out);
                    if is_block(name) && !matches!(&**name, "td" | "th") && !out.ends_with('\n') {
                        out.push('\n');
                    }
                }
            }
        }
    }
    let mut out = String::new();
    walk(tree, id, &mut out);
    out
}

/// The language that the classes in and around a block of code name.
fn language(tree: &Tree, id: Id) -> Option<String> {
    let code = tree.node(id).children.iter().copied().find(|child| tree.node(*child).name() == "code");
    let mut outer = Some(id);
    let around = std::iter::from_fn(|| {
        let here = outer?;
        outer = Some(tree.node(here).parent).filter(|parent| *parent != Tree::ROOT);
        Some(here)
    });
    code.into_iter().chain(around.take(LANGUAGE_FROM)).find_map(|id| language_of(tree.node(id)))
}

fn language_of(node: &Node) -> Option<String> {
    let named = ["data-lang", "data-language"].iter().find_map(|name| node.attribute(name));
    let classes: Vec<&str> = node.attribute("class").unwrap_or_default().split_ascii_whitespace().collect();
    let classed = classes.iter().enumerate().find_map(|(place, class)| {
        let after = ["language-", "lang-", "highlight-source-", "highlight-", "brush:"];
        let after = after.iter().find_map(|prefix| class.strip_prefix(prefix));
        after.or_else(|| (*class == "sourceCode").then(|| classes.get(place + 1).copied()).flatten())
    });
    let language = named.or(classed)?.trim_end_matches(';').to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '#' | '-' | '_' | '.');
    let good = !language.is_empty() && language.len() <= 32 && language.chars().all(fits);
    (good && !matches!(language.as_str(), "default" | "none" | "plaintext" | "text")).then_some(language)
}

/// `text` on one line, without spaces around it.
pub(super) fn collapse(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(character),
        }
    }
}
