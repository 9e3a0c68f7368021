//! Documents within a script: `<<MARK`. Where the mark has no quotes, the shell runs what stands in them.
//!
//! The grammar finds most of it, but no backquotes, and nothing right behind a tab that `<<-` takes away. It also ends
//! some documents at another line than a shell does. So what may hide something is in doubt, and what can be found by
//! hand is told as well.

use tree_sitter::Node;

use super::walk::{Walker, walk};

/// The parts of a document, as its node has them.
struct Document<'s> {
    /// With its quotes.
    mark: &'s str,
    /// The document, as far as the grammar sees it.
    body: &'s str,
    /// Whether it is `<<-`, which takes tabs away.
    is_indented: bool,
}

impl<'s> Walker<'_, 's> {
    /// Tells what the document that `node` is would run.
    pub(super) fn document(&mut self, node: Node<'_>) {
        let Some(document) = self.parts(node) else {
            self.found.doubt(self.text(node), "a document that is not understood");
            return;
        };
        let Document { mark, body, is_indented } = document;
        if node.child_by_field_name("argument").is_some() {
            let owner = node.parent().unwrap_or(node);
            self.found.doubt(self.text(owner), "words behind a document");
        }
        let Some((word, is_quoted)) = unquoted(mark) else {
            self.found.doubt(self.text(node), "a mark that is not understood");
            return;
        };
        if self.source.lines().any(|line| may_end(line, word, is_indented)) {
            self.found.doubt(self.text(node), "a document that may end elsewhere");
        }
        if is_quoted {
            return;
        }
        // A shell joins such lines first.
        let body = body.replace("\\\n", "");
        let runs = ["`", "$(", "${", "$["].iter().any(|sign| body.contains(sign));
        if runs || (is_indented && body.contains('$')) {
            self.found.doubt(&body, "a document with the output of commands in it");
            let scripts = backquoted(&body);
            let more = if is_indented { substituted(&body) } else { Vec::new() };
            for script in scripts.into_iter().chain(more) {
                walk(&script, self.depth + 1, self.found);
            }
        }
    }

    fn parts(&self, node: Node<'_>) -> Option<Document<'s>> {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let text =
            |kind: &str| children.iter().find(|child| child.kind() == kind).map(|child| self.text(*child));
        let start = children.iter().find(|child| child.kind() == "heredoc_start")?;
        // Of two documents in one line the grammar sees one: all that follows may stand in either.
        let lines = || self.source[start.end_byte()..].split_once('\n').map_or("", |(_, lines)| lines);
        Some(Document {
            mark: self.text(*start),
            body: text("heredoc_body").unwrap_or_else(lines),
            is_indented: text("<<-").is_some(),
        })
    }
}

/// A mark without its quotes, and whether it had some; `None` where it is not plain.
fn unquoted(mark: &str) -> Option<(&str, bool)> {
    let inner = |quote: char| mark.strip_prefix(quote).and_then(|mark| mark.strip_suffix(quote));
    let (word, is_quoted) = match inner('\'').or_else(|| inner('"')).or_else(|| mark.strip_prefix('\\')) {
        Some(word) => (word, true),
        None => (mark, false),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'!');
    (!word.is_empty() && word.bytes().all(is_plain)).then_some((word, is_quoted))
}

/// Whether a line looks like the end of a document and is none, or only for some.
fn may_end(line: &str, mark: &str, is_indented: bool) -> bool {
    let is_end = if is_indented { line.trim_start_matches('\t') } else { line } == mark;
    !is_end
        && line.trim_start().strip_prefix(mark).is_some_and(|rest| {
            !rest.starts_with(|character: char| character.is_alphanumeric() || character == '_')
        })
}

/// What stands between backquotes.
fn backquoted(body: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), None::<String>);
    let mut characters = body.chars();
    while let Some(character) = characters.next() {
        match (character, &mut open) {
            ('`', Some(script)) => {
                found.push(std::mem::take(script));
                open = None;
            }
            ('`', None) => open = Some(String::new()),
            ('\\', Some(script)) => match characters.next() {
                Some(escaped @ ('`' | '\\' | '$')) => script.push(escaped),
                other => script.extend(std::iter::once('\\').chain(other)),
            },
            ('\\', None) => drop(characters.next()),
            (other, Some(script)) => script.push(other),
            (_, None) => {}
        }
    }
    found.extend(open);
    found
}

/// What stands in `$(…)`, up to the bracket that closes it, or to the end.
fn substituted(body: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.find("$(") {
        rest = &rest[at + 2..];
        let mut depth = 1_usize;
        let end = rest.char_indices().find(|(_, character)| {
            match character {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let end = end.map_or(rest.len(), |(end, _)| end);
        found.push(rest[..end].to_owned());
        // What stands in it is found when it is gone through.
        rest = &rest[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read() {
        assert_eq!(unquoted("E"), Some(("E", false)));
        assert_eq!(unquoted("'E'"), Some(("E", true)));
        assert_eq!(unquoted("\"E\""), Some(("E", true)));
        assert_eq!(unquoted("\\E"), Some(("E", true)));
        assert_eq!(unquoted("E''"), None);
        assert_eq!(unquoted("'E F'"), None);
        assert_eq!(unquoted("''"), None);
    }

    #[test]
    fn lines_that_may_end_a_document_are_told() {
        for (line, is_indented) in [(" E", false), ("E ", false), ("\tE", false), (" E", true), ("E)", false)]
        {
            assert!(may_end(line, "E", is_indented), "{line:?}");
        }
        for (line, is_indented) in [("E", false), ("\tE", true), ("Else", false), ("a E", false), ("", true)]
        {
            assert!(!may_end(line, "E", is_indented), "{line:?}");
        }
    }

    #[test]
    fn what_runs_in_a_document_is_found() {
        assert_eq!(backquoted("a `b` \\`c\\` `d \\`e\\``"), ["b", "d `e`"]);
        assert_eq!(backquoted("`a"), ["a"]);
        assert_eq!(substituted("a $(b (c)) $(d"), ["b (c)", "d"]);
    }
}
