//! The way through a parsed script.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use super::effects::Effect;
use super::findings::Findings;
use super::words::word;
use super::{Command, DEEPEST, folders, paths};
use crate::{AccessKind, Known};

/// How often the parsers of one analysis may look up whether to go on before they give up. They look up after a fixed amount of work, so that
/// the bound does not depend on the machine.
const MOST_LOOKS: u32 = 20_000;

/// Kinds that only hold other ones, or mean nothing by themselves.
const STRUCTURE: &[&str] = &[
    "array",
    "arithmetic_expansion",
    "binary_expression",
    "brace_expression",
    "c_style_for_statement",
    "case_item",
    "case_statement",
    "command_name",
    "command_substitution",
    "comment",
    "compound_statement",
    "concatenation",
    "do_group",
    "elif_clause",
    "else_clause",
    "expansion",
    "extglob_pattern",
    "file_descriptor",
    "for_statement",
    "heredoc_body",
    "heredoc_content",
    "heredoc_end",
    "heredoc_start",
    "if_statement",
    "list",
    "negated_command",
    "number",
    "parenthesized_expression",
    "pipeline",
    "postfix_expression",
    "process_substitution",
    "program",
    "raw_string",
    "redirected_statement",
    "regex",
    "simple_expansion",
    "special_variable_name",
    "string",
    "string_content",
    "subscript",
    "subshell",
    "ternary_expression",
    "test_operator",
    "translated_string",
    "ansi_c_string",
    "unary_expression",
    "variable_name",
    "while_statement",
    "word",
];

/// Variables that decide what patterns of file names match.
const MATCHING: &[&str] = &["BASHOPTS", "GLOBIGNORE"];

/// Variables that say where directories are.
pub(super) const PLACES: &[&str] = &["CDPATH", "DIRSTACK", "HOME", "OLDPWD", "PWD"];

fn is_part_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Whether a string stands in arithmetic or in a subscript, where quotes keep nothing from being evaluated.
fn is_evaluated(node: Node<'_>, source: &str) -> bool {
    let mut above = node.parent();
    while let Some(node) = above {
        match node.kind() {
            "expansion" | "subscript" | "arithmetic_expansion" | "c_style_for_statement" => return true,
            "compound_statement" if source[node.byte_range()].starts_with("((") => return true,
            "command" | "command_substitution" | "test_command" | "program" => return false,
            _ => above = node.parent(),
        }
    }
    false
}

/// Adds what `source` runs and touches to `found`.
pub(super) fn walk(source: &str, depth: usize, found: &mut Findings) {
    if depth > DEEPEST {
        found.doubt(source, "scripts within scripts, too deep");
        return;
    }
    if !found.spend(source.len()) {
        return;
    }
    // The grammar and the shell read these differently, or not at all.
    if source.contains(['\0', '\r']) {
        found.doubt(source, "a control character");
    }
    if is_joined(source) {
        found.doubt(source, "a word that goes over lines");
    }
    let Some(tree) = parse(source, &mut found.looks) else {
        found.doubt(source, "a script that could not be parsed in time");
        return;
    };
    Walker { source, depth, found }.tree(&tree);
}

/// Whether a line goes on in the middle of a word: there the grammar sees two words, and a shell one.
fn is_joined(source: &str) -> bool {
    let stands_alone = |character: Option<char>| {
        character.is_none_or(|character| character.is_whitespace() || ";&|(){}".contains(character))
    };
    source.match_indices("\\\n").any(|(at, joint)| {
        let (before, after) = (&source[..at], &source[at + joint.len()..]);
        !stands_alone(before.chars().next_back()) && !stands_alone(after.chars().next())
    })
}

fn parse(source: &str, looks: &mut u32) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let mut late = |_: &ParseState| {
        *looks += 1;
        if *looks > MOST_LOOKS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let bytes = source.as_bytes();
    let mut read = |at: usize, _| bytes.get(at..).unwrap_or_default();
    parser.parse_with_options(&mut read, None, Some(ParseOptions::new().progress_callback(&mut late)))
}

/// The way through one script.
pub(super) struct Walker<'a, 's> {
    pub(super) source: &'s str,
    /// In how many other scripts it stands.
    pub(super) depth: usize,
    pub(super) found: &'a mut Findings,
}

impl<'s> Walker<'_, 's> {
    /// Visits every node, without recursion: a script may be nested as deeply as it is long.
    fn tree(&mut self, tree: &Tree) {
        let mut cursor = tree.walk();
        let mut covered = 0;
        loop {
            let node = cursor.node();
            if node.child_count() == 0 {
                self.gap(covered, node.start_byte());
                covered = covered.max(node.end_byte());
            }
            self.node(node);
            if self.found.is_full() {
                return;
            }
            if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    self.gap(covered, self.source.len());
                    return;
                }
            }
        }
    }

    /// Nothing that means something may be left out.
    fn gap(&mut self, from: usize, to: usize) {
        let gap = self.source.get(from..to).unwrap_or_default();
        if gap.contains(|character: char| !character.is_ascii_whitespace() && character != '\\') {
            self.found.doubt(self.source, "text that the parser left out");
        }
    }

    pub(super) fn text(&self, node: Node<'_>) -> &'s str {
        &self.source[node.byte_range()]
    }

    fn node(&mut self, node: Node<'_>) {
        if node.is_error() || node.is_missing() {
            let line = node.start_position().row + 1;
            self.found.doubt(self.source, &format!("line {line} cannot be parsed"));
            return;
        }
        if !node.is_named() {
            return;
        }
        match node.kind() {
            "command" => {
                self.joined(node);
                self.command(node);
            }
            "test_command" => {
                let text = self.text(node).split_whitespace().collect::<Vec<_>>().join(" ");
                let doubt = text.contains(['$', '`', '*', '?']).then(|| "a variable".to_owned());
                self.found.command(Command { text, doubt, always: Vec::new() });
                self.tested_paths(node);
            }
            "declaration_command" | "unset_command" => {
                let text = self.text(node);
                self.found.doubt(text, "an assignment");
                let mut options = text.split_whitespace().filter(|word| word.starts_with('-'));
                // Another name for a variable hides which one is set.
                if text.starts_with(['d', 'l', 't']) && options.any(|option| option.contains('n')) {
                    self.found.lost(text);
                }
                self.declared(node);
            }
            "variable_assignment" | "variable_assignments" => {
                self.moved(self.text(node));
                // Those before a command are told with it.
                if node.parent().is_none_or(|parent| parent.kind() != "command") {
                    self.found.doubt(self.text(node), "an assignment");
                }
            }
            "function_definition" => self.found.doubt(self.text(node), "a function"),
            "file_redirect" => {
                self.joined(node);
                self.redirect(node);
            }
            "herestring_redirect" => {
                self.joined(node);
                if let Some(doubt) = node.named_child(0).and_then(|child| word(child, self.source).doubt) {
                    self.found.doubt(self.text(node), doubt);
                }
            }
            "for_statement" => {
                if let Some(variable) = node.child_by_field_name("variable") {
                    self.moved(self.text(variable));
                }
            }
            // `${NAME:=value}`
            "expansion" => {
                let inner = self.text(node).trim_start_matches(['$', '{']);
                let rest = inner.trim_start_matches(is_part_of_name);
                if rest.starts_with([':', '=']) && rest.trim_start_matches(':').starts_with('=') {
                    self.moved(inner);
                }
            }
            "raw_string" if self.text(node).contains(['$', '`']) && is_evaluated(node, self.source) => {
                self.found.doubt(self.text(node), "a string that is evaluated");
            }
            // A `$` by itself is no variable, but the grammar looks for a name behind it.
            "simple_expansion" if self.text(node).contains(char::is_whitespace) => {
                self.found.doubt(self.source, "a `$` by itself");
            }
            "heredoc_redirect" => self.document(node),
            kind if STRUCTURE.contains(&kind) => {}
            kind => {
                let why = format!("a construct that is not understood ({kind})");
                self.found.doubt(self.text(node), &why);
            }
        }
    }

    /// The variable is set whose name `text` begins with. If it says where directories are, nobody knows where `cd` goes.
    fn moved(&mut self, text: &str) {
        let end = text.find(|character| !is_part_of_name(character)).unwrap_or(text.len());
        if PLACES.contains(&&text[..end]) {
            self.found.lost(text);
        }
        if MATCHING.contains(&&text[..end]) {
            self.found.loosens_patterns();
        }
    }

    /// What `export` and its like set by words that the grammar takes for none of their assignments.
    fn declared(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut end = 0;
        for child in node.named_children(&mut cursor) {
            // The grammar takes a word of several parts for several words.
            let is_part = std::mem::replace(&mut end, child.end_byte()) == child.start_byte();
            if child.kind() == "variable_assignment" && !is_part {
                continue;
            }
            let word = word(child, self.source);
            let rest = word.text.trim_start_matches(is_part_of_name);
            if is_part || (word.doubt.is_some() && !rest.starts_with('=')) {
                self.found.lost(self.text(node));
            } else if !rest.is_empty() {
                self.moved(&word.text);
            }
        }
    }

    /// The grammar reads over the ends of some lines where a shell stops.
    fn joined(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut end = node.start_byte();
        for child in node.children(&mut cursor) {
            let gap = self.source.get(end..child.start_byte()).unwrap_or_default();
            end = child.end_byte();
            if gap.replace("\\\n", "").contains(|character| !matches!(character, ' ' | '\t')) {
                self.found.doubt(self.text(node), "a command that goes over lines");
                return;
            }
        }
    }

    fn tested_paths(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut waiting: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        while let Some(node) = waiting.pop() {
            match node.kind() {
                "word" | "string" | "raw_string" | "concatenation" => {
                    let word = word(node, self.source);
                    for path in paths::in_argument(&word) {
                        if path.contains(['/', '~', '$']) {
                            self.found.path(path, AccessKind::Read);
                        }
                    }
                }
                _ => waiting.extend(node.named_children(&mut node.walk())),
            }
        }
    }

    fn redirect(&mut self, node: Node<'_>) {
        let text = self.text(node);
        let Some(destination) = node.child_by_field_name("destination") else {
            // `>&-` closes.
            if !text.contains("&-") {
                self.found.doubt(text, "a redirection without a target");
            }
            return;
        };
        let mut cursor = node.walk();
        if node.children_by_field_name("destination", &mut cursor).count() > 1 {
            // What follows the first one belongs to the command.
            let owner = node.parent().unwrap_or(node);
            self.found.doubt(self.text(owner), "words behind a redirection");
        }
        let target = word(destination, self.source);
        let is_descriptor =
            !target.text.is_empty() && target.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        if is_descriptor && text.contains('&') {
            return;
        }
        let writes = text.contains('>');
        let kind = if writes { AccessKind::Write } else { AccessKind::Read };
        let reads_too = text.contains("<>");
        if let Some(doubt) = target.doubt {
            self.found.doubt(text, doubt);
            self.found.argument(&target, kind);
            if writes {
                self.found.written_somewhere(&target.text, Known::Aside, doubt);
            }
            if let Some(read) = folders::redirected(&target).filter(|_| !writes || reads_too) {
                self.found.reads_folders(read, None);
            }
            return;
        }
        if target.text.starts_with("/dev/tcp/") || target.text.starts_with("/dev/udp/") {
            self.found.doubt(text, "a connection");
            return;
        }
        let effect =
            Effect { path: &target.text, kind, known: Known::Aside, into: Vec::new(), if_there: false };
        self.found.effect(&effect, None);
        if reads_too {
            self.found.effect(&Effect { kind: AccessKind::Read, ..effect }, None);
        }
        if writes {
            self.found.writes_file(&target.text);
        }
    }
}
