//! A tree as text without any marks.

use super::clean::plain;
use super::tree::{Content, Id, Tree, is_block};

/// The text of `tree`, and whether it is all of it.
pub(super) fn text(tree: &Tree) -> (String, bool) {
    let mut writer = Writer { tree, out: String::new(), lines: 0, space: false };
    writer.children(Tree::ROOT);
    (writer.out.trim_end().to_owned(), !tree.cut)
}

struct Writer<'a> {
    tree: &'a Tree,
    out: String,
    /// Line breaks to be written before the next text.
    lines: usize,
    /// Whether there is a space before it.
    space: bool,
}

impl Writer<'_> {
    fn children(&mut self, id: Id) {
        let tree = self.tree;
        for child in &tree.node(id).children {
            let node = tree.node(*child);
            let Content::Element { name, .. } = &node.content else {
                if let Content::Text(text) = &node.content {
                    self.text(text);
                }
                continue;
            };
            match &**name {
                _ if node.hidden => {}
                "br" => self.lines = (self.lines + 1).min(2),
                "form" if !node.holds_page => {}
                "pre" | "listing" => {
                    self.lines = 2;
                    let code = plain(tree, *child);
                    let code = code.strip_prefix('\n').unwrap_or(&code).trim_end();
                    if !code.is_empty() {
                        self.flush();
                        self.out.push_str(code);
                    }
                    self.lines = 2;
                }
                "td" | "th" => {
                    self.children(*child);
                    if self.lines == 0 && !self.out.ends_with('\t') {
                        self.out.push('\t');
                    }
                    self.space = false;
                }
                "li" => {
                    self.lines = self.lines.max(1);
                    self.flush();
                    self.out.push_str("- ");
                    self.children(*child);
                    self.lines = self.lines.max(1);
                }
                name @ ("tr" | "dt" | "dd") => {
                    self.lines = self.lines.max(1);
                    self.children(*child);
                    if name == "tr" {
                        self.out.truncate(self.out.trim_end_matches('\t').len());
                    }
                    self.lines = self.lines.max(1);
                }
                "thead" | "tbody" | "tfoot" => self.children(*child),
                name if is_block(name) => {
                    self.lines = 2;
                    self.children(*child);
                    self.lines = 2;
                }
                _ => self.children(*child),
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.space |= text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            self.flush();
            self.out.push_str(word);
            self.space = true;
        }
        self.space = text.ends_with(char::is_whitespace) || (self.space && text.trim().is_empty());
    }

    /// Writes what stands between the text before and the next one.
    fn flush(&mut self) {
        if self.out.is_empty() || self.out.ends_with("- ") {
            // A list's item begins with its text.
        } else if self.lines > 0 {
            self.out.extend(std::iter::repeat_n('\n', self.lines));
        } else if self.space && !self.out.ends_with(['\n', '\t']) {
            self.out.push(' ');
        }
        (self.lines, self.space) = (0, false);
    }
}
