//! The way through a parsed script.

use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

use super::paths::{self, PathUse};
use super::words::{Word, word};
use super::wrappers::{self, ShellScript};
use super::{Command, DEEPEST, MOST_COMMANDS, Script, prefix};

/// How often the parser may look up whether to go on before it gives up. It looks up after a fixed amount of work, so that
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

/// Builtins that change what later commands mean.
const SHIFTING: &[&str] =
    &["alias", "enable", "hash", "set", "shopt", "unalias", "source", ".", "bind", "complete"];

/// Adds what `source` runs and touches to `found`.
pub(super) fn walk(source: &str, depth: usize, found: &mut Script) {
    if depth > DEEPEST {
        found.doubt(source, "scripts within scripts, too deep");
        return;
    }
    // The grammar and the shell read these differently, or not at all.
    if source.contains(['\0', '\r']) {
        found.doubt(source, "a control character");
    }
    let Some(tree) = parse(source) else {
        found.doubt(source, "a script that could not be parsed in time");
        return;
    };
    let mut walker = Walker { source, depth, found, bases: Vec::new() };
    walker.tree(&tree);
}

fn parse(source: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let mut looks = 0;
    let mut late = |_: &ParseState| {
        looks += 1;
        if looks > MOST_LOOKS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let bytes = source.as_bytes();
    let mut read = |at: usize, _| bytes.get(at..).unwrap_or_default();
    parser.parse_with_options(&mut read, None, Some(ParseOptions::new().progress_callback(&mut late)))
}

struct Walker<'a, 's> {
    source: &'s str,
    depth: usize,
    found: &'a mut Script,
    /// Where the script may have gone.
    bases: Vec<String>,
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
            if self.found.commands.len() > MOST_COMMANDS {
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

    fn text(&self, node: Node<'_>) -> &'s str {
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
                self.found.push(Command { text, doubt, always: Vec::new() });
                self.tested_paths(node);
            }
            "declaration_command" | "unset_command" => {
                self.found.doubt(self.text(node), "an assignment");
            }
            "variable_assignment" | "variable_assignments" => {
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
            "herestring_redirect" => self.joined(node),
            // A `$` by itself is no variable, but the grammar looks for a name behind it.
            "simple_expansion" if self.text(node).contains(char::is_whitespace) => {
                self.found.doubt(self.source, "a `$` by itself");
            }
            "heredoc_redirect" => {}
            kind if STRUCTURE.contains(&kind) => {}
            kind => {
                let why = format!("a construct that is not understood ({kind})");
                self.found.doubt(self.text(node), &why);
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

    fn command(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut words = Vec::new();
        let mut assigned = false;
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => assigned = true,
                "file_redirect" | "heredoc_redirect" | "herestring_redirect" | "comment" => {}
                "ERROR" => assigned = true,
                _ => words.push(word(child, self.source)),
            }
        }
        if words.is_empty() {
            self.found.doubt(self.text(node), "an assignment");
            return;
        }
        let doubt = assigned.then_some("an assignment");
        self.words(&words, doubt, node, self.depth);
    }

    /// Tells one command, and those that it runs.
    fn words(&mut self, words: &[Word], outer: Option<&'static str>, node: Node<'_>, depth: usize) {
        let Some(first) = words.first() else { return };
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let text = texts.join(" ");
        if depth > DEEPEST + 8 {
            self.found.doubt(&text, "commands within commands, too deep");
            return;
        }
        let name = first.text.rsplit('/').next().unwrap_or_default();
        let doubt = outer
            .or_else(|| words.iter().find_map(|word| word.doubt))
            .or_else(|| first.text.contains(char::is_whitespace).then_some("a name with a space in it"))
            .or_else(|| first.text.is_empty().then_some("an empty name"))
            .or_else(|| SHIFTING.contains(&name).then_some("what comes after it may mean something else"));
        let always = if doubt.is_none() { prefix::always(words) } else { Vec::new() };
        let doubt = doubt.map(str::to_owned);
        self.found.push(Command { text: text.clone(), doubt: doubt.clone(), always });
        if name != first.text && !name.is_empty() {
            // Rules name programs, wherever they lie.
            let text = std::iter::once(name).chain(texts[1..].iter().copied()).collect::<Vec<_>>().join(" ");
            self.found.push(Command { text, doubt, always: Vec::new() });
        }
        self.named_paths(name, words);
        self.scripts(name, words, node, depth);
        for inner in wrappers::inner(name, words) {
            if inner.doubt == Some(wrappers::UNKNOWN_OPTIONS) {
                self.found.doubt(&text, wrappers::UNKNOWN_OPTIONS);
            }
            self.words(inner.words, inner.doubt.or(outer), node, depth + 1);
        }
    }

    /// Scripts in the arguments or the input of a command.
    fn scripts(&mut self, name: &str, words: &[Word], node: Node<'_>, depth: usize) {
        let joined = |words: &[Word]| {
            let doubt = words.iter().find_map(|word| word.doubt);
            (words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "), doubt)
        };
        let (script, doubt) = match name {
            "eval" => joined(&words[1..]),
            "trap" => joined(words.get(1..2).unwrap_or_default()),
            "watch" | "parallel" => joined(&words[1..]),
            "su" | "script" | "flock" | "runuser" => {
                let Some(at) = words.iter().position(|word| matches!(word.text.as_str(), "-c" | "--command"))
                else {
                    return;
                };
                joined(words.get(at + 1..at + 2).unwrap_or_default())
            }
            "env" => {
                let split =
                    |word: &Word| word.text.starts_with("-S") || word.text.starts_with("--split-string");
                let Some(at) = words.iter().position(split) else { return };
                self.found.doubt(&joined(words).0, "a string that is split into words");
                joined(words.get(at + 1..).unwrap_or_default())
            }
            name if wrappers::is_shell(name) => match wrappers::script_of(words) {
                ShellScript::File => return,
                ShellScript::Text(word) => (word.text.clone(), word.doubt),
                ShellScript::Unknown => (joined(words).0, Some("a variable")),
                ShellScript::Input => return self.input(&joined(words).0, node, depth),
            },
            _ => return,
        };
        match doubt {
            Some(doubt) => self.found.doubt(&script, doubt),
            None if script.trim().is_empty() => {}
            None => walk(&script, depth + 1, self.found),
        }
    }

    /// A shell that reads its script from standard input.
    fn input(&mut self, text: &str, node: Node<'_>, depth: usize) {
        let owner = node.parent().filter(|parent| parent.kind() == "redirected_statement").unwrap_or(node);
        let mut cursor = owner.walk();
        let redirects: Vec<Node<'_>> =
            owner.children(&mut cursor).chain(node.children(&mut node.walk())).collect();
        for redirect in redirects {
            match redirect.kind() {
                "heredoc_redirect" => {
                    let mut cursor = redirect.walk();
                    let children: Vec<Node<'_>> = redirect.children(&mut cursor).collect();
                    // What follows the mark on its line belongs to this node as well.
                    let simple = children.iter().all(|child| {
                        !child.is_named()
                            || matches!(child.kind(), "heredoc_start" | "heredoc_body" | "heredoc_end")
                    });
                    let body = children.iter().find(|child| child.kind() == "heredoc_body");
                    match body {
                        Some(body) if simple => {
                            let body = self.text(*body);
                            if body.contains(['$', '`', '\\']) {
                                self.found.doubt(text, "a variable in what it reads");
                            }
                            walk(body, depth + 1, self.found);
                        }
                        Some(_) => self.found.doubt(text, "it runs what it reads"),
                        None => {}
                    }
                    return;
                }
                "herestring_redirect" => {
                    let string = redirect.named_child(0).map(|child| word(child, self.source));
                    match string {
                        Some(Word { text, doubt: None }) => walk(&text, depth + 1, self.found),
                        _ => self.found.doubt(text, "it runs what it reads"),
                    }
                    return;
                }
                _ => {}
            }
        }
        self.found.doubt(text, "it runs what it reads");
    }

    fn named_paths(&mut self, name: &str, words: &[Word]) {
        let first = &words[0].text;
        if first.contains('/') {
            self.path(first.clone(), false);
        }
        let writes = !paths::only_reads(name);
        for word in &words[1..] {
            // Where the text may become anything, the doubt about the command asks.
            if let Some(path) = paths::in_argument(word) {
                self.path(path.to_owned(), writes);
            }
        }
        if matches!(name, "cd" | "pushd") {
            let target = words[1..].iter().find(|word| !word.text.starts_with('-') || word.text == "-");
            match target {
                Some(target) if target.doubt.is_none() && target.text != "-" => {
                    self.bases.push(target.text.clone())
                }
                Some(_) => self.found.doubt(
                    &format!("{name} {}", words[1..].last().map_or("", |word| &word.text)),
                    "a directory that is not known",
                ),
                None => self.bases.push("~".into()),
            }
        }
        if name == "popd" {
            self.found.doubt("popd", "a directory that is not known");
        }
    }

    fn tested_paths(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let mut waiting: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        while let Some(node) = waiting.pop() {
            match node.kind() {
                "word" | "string" | "raw_string" | "concatenation" => {
                    let word = word(node, self.source);
                    if let Some(path) = paths::in_argument(&word).filter(|path| path.contains(['/', '~'])) {
                        self.path(path.to_owned(), false);
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
        if let Some(doubt) = target.doubt {
            self.found.doubt(text, doubt);
            return;
        }
        if paths::is_nowhere(&target.text) {
            return;
        }
        if target.text.starts_with("/dev/tcp/") || target.text.starts_with("/dev/udp/") {
            self.found.doubt(text, "a connection");
            return;
        }
        self.path(target.text, text.contains('>'));
    }

    fn path(&mut self, text: String, writes: bool) {
        let is_relative = !text.starts_with(['/', '~']);
        let bases = if is_relative { self.bases.clone() } else { Vec::new() };
        self.found.path(PathUse { text, bases, writes });
    }
}
