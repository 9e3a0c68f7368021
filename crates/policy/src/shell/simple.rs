//! One simple command: what it is, what it runs in turn, and what it touches.

use tree_sitter::Node;

use super::effects::{self, Effect};
use super::interpreters::{self, Code};
use super::made::{self, Makes};
use super::walk::{PLACES, Walker, walk};
use super::words::{Word, word};
use super::wrappers::{self, ShellScript, Wrapped};
use super::{Command, DEEPEST, awk, folders, git, options, paths, prefix, sed, targets};
use crate::{AccessKind, Known};

/// Builtins that change what later commands mean.
const SHIFTING: &[&str] = &[
    ".",
    "alias",
    "bind",
    "complete",
    "declare",
    "enable",
    "export",
    "fc",
    "getopts",
    "hash",
    "let",
    "local",
    "mapfile",
    "read",
    "readarray",
    "readonly",
    "set",
    "shopt",
    "source",
    "typeset",
    "unalias",
    "unset",
];

/// Words that mean something else to the shell than a command.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "]]", "(", ")", "case", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "until", "while",
];

impl Walker<'_, '_> {
    /// The command that `node` is.
    pub(super) fn command(&mut self, node: Node<'_>) {
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

    /// Tells one command, and those that it runs. `outer` is a doubt that comes from around it.
    fn words(&mut self, words: &[Word], outer: Option<&'static str>, node: Node<'_>, depth: usize) {
        let Some(first) = words.first() else { return };
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let text = texts.join(" ");
        if !self.found.spend(text.len()) {
            return;
        }
        if depth > DEEPEST + 8 {
            self.found.doubt(&text, "commands within commands, too deep");
            return;
        }
        let name = first.text.rsplit('/').next().unwrap_or_default();
        let wrapped = wrappers::wrapped(name, words);
        let code = interpreters::code(name, words);
        let by_code = match code {
            Some(Code::Doubtful(why)) => Some(why),
            _ => None,
        };
        let doubt = outer
            .or_else(|| words.iter().find_map(|word| word.doubt))
            .or_else(|| misread(first))
            .or_else(|| SHIFTING.contains(&name).then_some("what comes after it may mean something else"))
            .or(wrapped.doubt)
            .or(by_code)
            .or_else(|| options::doubt(name, words));
        let always = if doubt.is_none() { prefix::always(words) } else { Vec::new() };
        let why = doubt.map(str::to_owned);
        self.found.command(Command { text: text.clone(), doubt: why.clone(), always });
        if name != first.text && !name.is_empty() {
            // Rules name programs, wherever they lie.
            let text = std::iter::once(name).chain(texts[1..].iter().copied()).collect::<Vec<_>>().join(" ");
            self.found.command(Command { text, doubt: why, always: Vec::new() });
        }
        self.files(name, words, &wrapped, code);
        self.scripts(name, words, node, depth);
        for script in &wrapped.scripts {
            self.script(&script.text, script.doubt, depth);
        }
        for inner in wrapped.inner {
            if inner.is_fed {
                self.found.unknown(&text, "arguments that come from elsewhere");
            }
            self.words(inner.words, inner.doubt.or(outer), node, depth + 1);
        }
    }

    /// Scripts in the arguments or the input of a command.
    fn scripts(&mut self, name: &str, words: &[Word], node: Node<'_>, depth: usize) {
        let skipped = usize::from(words.get(1).is_some_and(|word| word.text == "--"));
        let (script, doubt) = match name {
            "eval" => joined(&words[1 + skipped..]),
            "trap" => joined(words.get(1 + skipped..2 + skipped).unwrap_or_default()),
            "watch" | "parallel" | "ssh" => joined(&words[1..]),
            "env" => {
                let split = |word: &Word| word.text.starts_with("-S") || word.text.starts_with("--s");
                let Some(at) = words.iter().position(split) else { return };
                self.found.doubt(&joined(words).0, "a string that is split into words");
                joined(words.get(at + 1..).unwrap_or_default())
            }
            name if wrappers::is_shell(name) => {
                for file in wrappers::run_before(words) {
                    self.found.runs_file(&file.text);
                    if file.doubt.is_some() || wrappers::is_input(&file.text) {
                        self.found.doubt(&joined(words).0, "it runs what it reads");
                    }
                }
                if wrappers::is_other_shell(name) {
                    self.found.doubt(&joined(words).0, "a shell with a language of its own");
                }
                match wrappers::script_of(words) {
                    ShellScript::File(file) => return self.found.runs_file(&file.text),
                    ShellScript::Text(word) => (word.text.clone(), word.doubt),
                    ShellScript::Unknown => (joined(words).0, Some("a variable")),
                    ShellScript::Input => return self.input(&joined(words).0, node, depth),
                }
            }
            _ => return,
        };
        self.script(&script, doubt, depth);
    }

    fn script(&mut self, script: &str, doubt: Option<&'static str>, depth: usize) {
        match doubt {
            Some(doubt) => self.found.doubt(script, doubt),
            None if script.trim().is_empty() => {}
            None => walk(script, depth + 1, self.found),
        }
    }

    /// A shell that reads its script from standard input: known only where one text is all that it can be.
    fn input(&mut self, text: &str, node: Node<'_>, depth: usize) {
        let owner = node.parent().filter(|parent| parent.kind() == "redirected_statement").unwrap_or(node);
        let mut cursor = owner.walk();
        let mut redirects: Vec<Node<'_>> = owner.children(&mut cursor).collect();
        if owner != node {
            redirects.extend(node.children(&mut node.walk()));
        }
        let (mut known, mut inputs) = (0, 0);
        for redirect in redirects {
            match redirect.kind() {
                "heredoc_redirect" => {
                    inputs += 1;
                    let mut cursor = redirect.walk();
                    let children: Vec<Node<'_>> = redirect.children(&mut cursor).collect();
                    // What follows the mark on its line belongs to this node as well.
                    let simple = children.iter().all(|child| {
                        !child.is_named()
                            || matches!(child.kind(), "heredoc_start" | "heredoc_body" | "heredoc_end")
                    });
                    let body = children.iter().find(|child| child.kind() == "heredoc_body");
                    let Some(body) = body.map(|body| self.text(*body)) else { continue };
                    known += usize::from(simple && !body.contains(['$', '`', '\\']));
                    walk(body, depth + 1, self.found);
                }
                "herestring_redirect" => {
                    inputs += 1;
                    let string = redirect.named_child(0).map(|child| word(child, self.source));
                    if let Some(Word { text, doubt: None, .. }) = string {
                        known += 1;
                        walk(&text, depth + 1, self.found);
                    }
                }
                "file_redirect" if self.text(redirect).contains('<') => inputs += 1,
                _ => {}
            }
        }
        if (known, inputs) != (1, 1) {
            self.found.doubt(text, "it runs what it reads");
        }
    }

    /// The files that a command names, and the directory that it goes to.
    fn files(&mut self, name: &str, words: &[Word], wrapped: &Wrapped<'_>, code: Option<Code<'_>>) {
        let first = &words[0];
        if first.text.contains('/') && !paths::is_program(&first.text) {
            self.found.path(&first.text, AccessKind::Read);
            self.found.runs_file(&first.text);
        }
        if let Some(Code::File(file)) = code {
            self.found.runs_file(&file.text);
        }
        let sets = |word: &Word| {
            let name = word.text.split_once('=').map_or(word.text.as_str(), |(name, _)| name);
            PLACES.contains(&name.trim_end_matches('+'))
        };
        let may_set = !paths::takes_no_files(name) || matches!(name, "printf" | "wait");
        if may_set && words.iter().skip(1).any(sets) {
            self.found.lost(&joined(words).0);
        }
        for file in made::obeyed(name, words) {
            self.found.obeys_file(file);
        }
        // A file that is called `echo` is another one.
        if paths::takes_no_files(&first.text) {
            return;
        }
        self.hidden_paths(name, words);
        let makes = made::makes(name, words);
        if matches!(makes, Makes::Anything) {
            self.found.writes_any_file();
        }
        let kinds = targets::kinds(name, words);
        let pattern = paths::pattern_of(name, words);
        // Those of the command that it runs are told with that.
        let own = wrapped.own.unwrap_or(words.len());
        for (at, word) in words.iter().enumerate().take(own).skip(1) {
            if pattern == Some(at) {
                continue;
            }
            // A revision, unless there is such a file.
            if name == "git" && word.text == "HEAD" {
                let effect = Effect {
                    path: &word.text,
                    kind: kinds[at],
                    known: Known::No,
                    into: Vec::new(),
                    if_there: true,
                };
                self.found.effect(&effect, None);
                continue;
            }
            self.found.argument(word, kinds[at]);
            if matches!(makes, Makes::Arguments) {
                paths::in_argument(word).iter().for_each(|path| self.found.writes_file(path));
            }
        }
        self.effects(name, &words[..own]);
        let base = if name == "git" { git::directory(words) } else { None };
        if folders::loosens(name, words) {
            self.found.loosens_patterns();
        }
        if let Some(folder) = folders::read(name, words) {
            self.found.reads_folders(folder, base.as_deref());
        }
        if wrapped.own.is_none() && !folders::only_reads(name, words) {
            self.found.may_write();
        }
        match name {
            "cd" | "pushd" => self.enter(name, words),
            "popd" => self.found.lost("popd"),
            // The commands of these run elsewhere.
            "find" if words.iter().any(|word| ["-execdir", "-okdir"].contains(&word.text.as_str())) => {
                self.found.lost(&joined(words).0);
            }
            _ if wrapped.own.is_some() => {
                for directory in targets::gone_to(name, &words[..own]) {
                    match directory {
                        Some(directory) => self.found.enter(directory),
                        None => self.found.lost(&joined(words).0),
                    }
                }
            }
            _ => {}
        }
    }

    /// What the command does for certain to files that it names.
    fn effects(&mut self, name: &str, words: &[Word]) {
        let base = if name == "git" { git::directory(words) } else { None };
        for effect in effects::known(name, words) {
            // Every word of the command that may be this one.
            let is_it = |word: &&Word| word.text.contains(effect.path) && paths::unknown(word).is_some();
            let is_plain = words.iter().any(|word| word.text == effect.path && word.doubt.is_none());
            match words.iter().filter(|_| !is_plain).find(is_it).and_then(|word| word.doubt) {
                None => self.found.effect(&effect, base.as_deref()),
                Some(why) if effect.kind == AccessKind::Write => {
                    self.found.written_somewhere(effect.path, effect.known, why);
                }
                // That it may be any path is told with the argument.
                Some(_) => {}
            }
        }
    }

    /// Paths that no argument is: they stand in a program in a language of its own, or the command knows them itself.
    fn hidden_paths(&mut self, name: &str, words: &[Word]) {
        let is_hiding = match name {
            "sed" | "gsed" => sed::is_doubtful(words),
            "awk" | "gawk" | "mawk" | "nawk" => awk::is_doubtful(words),
            "jq" | "gojq" | "jaq" => words.iter().skip(1).any(|word| {
                let text = word.text.as_str();
                let is_cluster = text.starts_with('-') && !text.starts_with("--") && text.contains('f');
                is_cluster || text.starts_with("--f") || text.contains("import") || text.contains("include")
            }),
            "git" => {
                let files = git::settings_written(words);
                files.iter().for_each(|file| self.found.path(file, AccessKind::Write));
                false
            }
            _ => false,
        };
        let program = paths::pattern_of(name, words).filter(|_| !name.ends_with("grep") && name != "rg");
        let is_in_doubt = program.is_some_and(|at| words[at].doubt.is_some());
        if is_hiding || is_in_doubt {
            self.found.unknown(&joined(words).0, "a program that may name any path");
        }
    }

    fn enter(&mut self, name: &str, words: &[Word]) {
        let target = words[1..].iter().find(|word| !word.text.starts_with('-') || word.text == "-");
        match target {
            // The directories of before are changed.
            None if name == "pushd" => self.found.lost(name),
            None => {
                self.found.path("~", AccessKind::Read);
                self.found.enter("~");
            }
            Some(target) if target.doubt.is_none() && !target.text.starts_with(['-', '+']) => {
                self.found.enter(&target.text);
            }
            Some(target) => self.found.lost(&format!("{name} {}", target.text)),
        }
    }
}

fn joined(words: &[Word]) -> (String, Option<&'static str>) {
    let doubt = words.iter().find_map(|word| word.doubt);
    (words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "), doubt)
}

/// Why the first word of a command may be no name of a program.
fn misread(first: &Word) -> Option<&'static str> {
    let text = first.text.as_str();
    if text.contains(char::is_whitespace) {
        Some("a name with a space in it")
    } else if text.is_empty() || text.starts_with('-') {
        Some("no name of a program")
    } else if wrappers::is_assignment(text) {
        Some("an assignment")
    } else {
        RESERVED.contains(&text).then_some("a word of the shell where a program is expected")
    }
}
