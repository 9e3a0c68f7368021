//! A head whose values are typed and nested, as JSON Schemas are: more of YAML than the [small form](super).
//!
//! Read are maps and lists in both forms, plain and quoted scalars of the core schema, block scalars (`|`, `>`) and comments. Not
//! read are anchors, aliases, tags and keys that are no scalars: they are errors. Nothing grows beyond the size of its text.

mod flow;

use serde_json::{Map, Value};

use crate::PromptError;

/// So deep may values be nested.
const DEEPEST: usize = 64;

/// A head of typed values, and where the text begins.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedDocument<'a> {
    /// The members in their order.
    pub members: Vec<Member>,
    /// Everything after the head, without blank lines around it.
    pub body: &'a str,
}

/// One member of the head.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The key.
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// Reads a file that begins with a head. `file` is for messages.
///
/// # Errors
/// Names file and line of what cannot be read.
///
/// ```
/// use playhouse_prompts::front_matter::yaml::parse;
/// use serde_json::json;
///
/// let text = "---\nschema:\n  type: object\n  properties:\n    n: {type: integer, minimum: 3}\n---\nHello.\n";
/// let document = parse("a.md", text).unwrap();
/// let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}});
/// assert_eq!((&document.members[0].value, document.body), (&schema, "Hello."));
/// ```
pub fn parse<'a>(file: &str, text: &'a str) -> Result<TypedDocument<'a>, PromptError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    let mut position = 0;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        position += whole.len();
        let line = whole.trim_end();
        match (index, line) {
            (0, "---") => {}
            (0, _) => break,
            (_, "---") => {
                let mut parser = Parser { lines, at: 0, depth: 0 };
                let members =
                    parser.head().map_err(|(line, message)| PromptError::at(file, line, message))?;
                return Ok(TypedDocument { members, body: text[position..].trim() });
            }
            _ => lines.push(Line::new(index + 1, line)),
        }
    }
    let message = "the file must begin with a head between two lines `---`";
    Err(PromptError::at(file, 1, message))
}

/// What is wrong, and in which line.
type Wrong = (usize, String);

#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    indent: usize,
    /// The line without what indents it.
    text: &'a str,
}

impl<'a> Line<'a> {
    fn new(number: usize, line: &'a str) -> Self {
        let text = line.trim_start_matches(' ');
        Self { number, indent: line.len() - text.len(), text }
    }

    fn says_nothing(&self) -> bool {
        self.text.is_empty() || self.text.starts_with('#')
    }

    fn is_item(&self) -> bool {
        self.text == "-" || self.text.starts_with("- ")
    }
}

struct Parser<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn head(&mut self) -> Result<Vec<Member>, Wrong> {
        let members = match self.next()? {
            None => Vec::new(),
            Some(line) if line.indent == 0 && !line.is_item() => self.members(0)?,
            Some(line) => return Err((line.number, "expected `key: value`, without indentation".to_owned())),
        };
        match self.next()? {
            None => Ok(members),
            Some(line) => {
                Err((line.number, "this line is indented, and belongs to no key before it".to_owned()))
            }
        }
    }

    /// The next line that says something.
    fn next(&mut self) -> Result<Option<Line<'a>>, Wrong> {
        while self.lines.get(self.at).is_some_and(Line::says_nothing) {
            self.at += 1;
        }
        match self.lines.get(self.at) {
            Some(line) if line.text.starts_with('\t') => {
                Err((line.number, "this line is indented with a tab: use spaces".to_owned()))
            }
            line => Ok(line.copied()),
        }
    }

    /// The members of a map whose lines are indented by `indent`.
    fn members(&mut self, indent: usize) -> Result<Vec<Member>, Wrong> {
        let mut members: Vec<Member> = Vec::new();
        while let Some(line) = self.next()?.filter(|line| line.indent == indent && !line.is_item()) {
            let Some((key, rest)) = flow::key(line.text) else {
                return Err((line.number, "expected `key: value`".to_owned()));
            };
            if let Some(first) = members.iter().find(|member| member.key == key) {
                let message = format!("`{key}` is set twice: first in line {}", first.line);
                return Err((line.number, message));
            }
            self.at += 1;
            let value = self.value(rest, line, indent)?;
            members.push(Member { key, line: line.number, value });
        }
        Ok(members)
    }

    /// What stands behind a key in `line`, or in the lines below it. `indent` is that of the key.
    fn value(&mut self, rest: &'a str, line: Line<'a>, indent: usize) -> Result<Value, Wrong> {
        if !(rest.is_empty() || rest.starts_with('#')) {
            return self.scalar(rest, line.number, indent);
        }
        match self.next()? {
            Some(below) if below.indent > indent => self.node(),
            Some(below) if below.indent == indent && below.is_item() => self.node(),
            _ => Ok(Value::Null),
        }
    }

    /// The map, list or scalar that begins with the next line.
    fn node(&mut self) -> Result<Value, Wrong> {
        let Some(line) = self.next()? else { return Ok(Value::Null) };
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err((line.number, format!("values stand in each other more than {DEEPEST} deep")));
        }
        let value = if line.is_item() {
            self.items(line.indent)?
        } else if flow::key(line.text).is_some() {
            let members = self.members(line.indent)?.into_iter();
            Value::Object(members.map(|member| (member.key, member.value)).collect::<Map<_, _>>())
        } else {
            self.at += 1;
            self.scalar(line.text, line.number, line.indent.saturating_sub(1))?
        };
        self.depth -= 1;
        Ok(value)
    }

    /// The items of a list whose lines are indented by `indent`.
    fn items(&mut self, indent: usize) -> Result<Value, Wrong> {
        let mut items = Vec::new();
        while let Some(line) = self.next()?.filter(|line| line.indent == indent && line.is_item()) {
            let rest = line.text[1..].trim_start_matches(' ');
            let item = if rest.is_empty() || rest.starts_with('#') {
                self.at += 1;
                match self.next()? {
                    Some(below) if below.indent > indent => self.node()?,
                    _ => Value::Null,
                }
            } else {
                // What follows the `-` stands in a block of its own.
                let within = indent + line.text.len() - rest.len();
                self.lines[self.at] = Line { number: line.number, indent: within, text: rest };
                self.node()?
            };
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    /// The scalar, or the value in one line, that begins with `text` in the line `number`. What continues it is indented more than
    /// `indent`.
    fn scalar(&mut self, text: &'a str, number: usize, indent: usize) -> Result<Value, Wrong> {
        let at = |message: String| (number, message);
        match text.as_bytes()[0] {
            b'|' | b'>' => self.block(text, number, indent),
            b'[' | b'{' => {
                let mut open = flow::Open::default();
                let mut whole = text.to_owned();
                let mut is_open = open.read(text);
                while is_open && self.at < self.lines.len() {
                    let line = self.lines[self.at];
                    is_open = open.read(line.text);
                    whole.push('\n');
                    whole.push_str(line.text);
                    self.at += 1;
                }
                flow::whole(&whole, DEEPEST - self.depth.min(DEEPEST)).map_err(at)
            }
            b'"' | b'\'' => flow::whole(text, 0).map_err(at),
            b'&' | b'*' | b'!' => {
                Err(at("anchors, aliases and tags are not read: write the value here".to_owned()))
            }
            b'%' | b'@' | b'`' => Err(at("a text that begins so needs quotes around it".to_owned())),
            _ => {
                let mut whole = flow::uncommented(text).to_owned();
                if whole.contains(": ") || whole.ends_with(':') {
                    return Err(at("a text with `: ` in it needs quotes around it".to_owned()));
                }
                let mut is_one = true;
                while let Some(line) = self.next()?.filter(|line| line.indent > indent) {
                    if flow::key(line.text).is_some() {
                        let message = "this line is indented, and the key before it has a value already";
                        return Err((line.number, message.to_owned()));
                    }
                    is_one = false;
                    whole.push(' ');
                    whole.push_str(flow::uncommented(line.text));
                    self.at += 1;
                }
                Ok(if is_one { flow::typed(&whole) } else { Value::String(whole) })
            }
        }
    }

    /// A block scalar with this header: the lines below that are indented more than `indent`.
    fn block(&mut self, header: &str, number: usize, indent: usize) -> Result<Value, Wrong> {
        let marks = flow::uncommented(&header[1..]);
        if !matches!(marks, "" | "-" | "+") {
            return Err((number, format!("`{header}` begins no block: write `|`, `|-`, `>` or `>-`")));
        }
        let mut lines: Vec<Line<'a>> = Vec::new();
        while let Some(line) = self.lines.get(self.at) {
            if !line.text.is_empty() && line.indent <= indent {
                break;
            }
            lines.push(*line);
            self.at += 1;
        }
        let full = lines.iter().rposition(|line| !line.text.is_empty()).map_or(0, |last| last + 1);
        let blank = lines.len() - full;
        lines.truncate(full);
        let margin = lines.iter().find(|line| !line.text.is_empty()).map_or(0, |line| line.indent);
        let folds = header.starts_with('>');
        let mut text = String::new();
        let mut before: Option<bool> = None;
        for line in &lines {
            let is_plain = !line.text.is_empty() && line.indent <= margin;
            match before {
                Some(true) if folds && is_plain => text.push(' '),
                // The line end before blank lines that are folded is not one.
                Some(true) if folds && line.text.is_empty() => {}
                Some(_) => text.push('\n'),
                None => {}
            }
            text.push_str(&" ".repeat(line.indent.saturating_sub(margin)));
            text.push_str(line.text);
            before = Some(is_plain);
        }
        match marks {
            "-" => {}
            "+" => text.push_str(&"\n".repeat(blank + 1)),
            _ if text.is_empty() => {}
            _ => text.push('\n'),
        }
        Ok(Value::String(text))
    }
}

#[cfg(test)]
mod tests;
