//! Texts with holes.
//!
//! `{{name}}` stands for the value of a variable. `{{#if name}}…{{else}}…{{/if}}` (the middle part may be left out)
//! keeps the first text where the variable is not empty, and the second one where it is. Values are never read as
//! templates. A literal `{{` cannot be written.

use playhouse_protocol::nearest::did_you_mean;

use crate::PromptError;

/// How deep conditions may be nested.
const MAX_DEPTH: usize = 16;

/// A text that was checked: every variable in it is known, every condition ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Text(String),
    /// Index into the list of known variables.
    Variable(usize),
    If {
        variable: usize,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
}

impl Template {
    /// Reads `text`, in which the variables `known` may occur. `file` is for messages.
    ///
    /// # Errors
    /// Names file and line of a variable that is not known, of a tag that is none, and of a condition that has no end.
    ///
    /// ```
    /// use playhouse_prompts::Template;
    /// let template = Template::parse("greeting.md", "Hello{{#if name}} {{name}}{{/if}}!", &["name"]).unwrap();
    /// assert_eq!(template.render(&["Ada"]), "Hello Ada!");
    /// assert_eq!(template.render(&[""]), "Hello!");
    /// let error = Template::parse("greeting.md", "Hello\n{{nam}}", &["name"]).unwrap_err();
    /// assert_eq!(error.to_string(), "greeting.md:2: unknown variable `nam`; did you mean \"name\"?");
    /// ```
    pub fn parse(file: &str, text: &str, known: &[&str]) -> Result<Self, PromptError> {
        let mut parser = Parser { file, known, text, position: 0 };
        let (nodes, _) = parser.nodes(None, 0)?;
        Ok(Self { nodes })
    }

    /// The text with `values`, one for each known variable and in their order; one that is missing counts as empty.
    pub fn render(&self, values: &[&str]) -> String {
        let mut out = String::new();
        render(&self.nodes, values, &mut out);
        out
    }
}

fn render(nodes: &[Node], values: &[&str], out: &mut String) {
    let value = |index: &usize| values.get(*index).copied().unwrap_or_default();
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Variable(variable) => out.push_str(value(variable)),
            Node::If { variable, then, otherwise } => {
                render(if value(variable).is_empty() { otherwise } else { then }, values, out);
            }
        }
    }
}

struct Parser<'a> {
    file: &'a str,
    known: &'a [&'a str],
    text: &'a str,
    position: usize,
}

/// What ended a list of nodes.
#[derive(PartialEq)]
enum End {
    Text,
    Else,
    Close,
}

impl Parser<'_> {
    /// Nodes up to the end of the text, or up to what ends the condition that began in line `inside`.
    fn nodes(&mut self, inside: Option<usize>, depth: usize) -> Result<(Vec<Node>, End), PromptError> {
        let mut nodes = Vec::new();
        loop {
            let rest = &self.text[self.position..];
            let Some(start) = rest.find("{{") else {
                if let Some(line) = inside {
                    return Err(self.error(line, "this {{#if}} has no {{/if}}"));
                }
                push_text(&mut nodes, rest);
                self.position = self.text.len();
                return Ok((nodes, End::Text));
            };
            push_text(&mut nodes, &rest[..start]);
            let line = self.line(self.position + start);
            let Some(length) = rest[start..].find("}}") else {
                return Err(self.error(line, "`{{` has no `}}`"));
            };
            let tag = rest[start + 2..start + length].trim();
            self.position += start + length + 2;
            if let Some(name) = tag.strip_prefix("#if ") {
                nodes.push(self.condition(name.trim(), line, depth)?);
            } else if tag == "else" && inside.is_some() {
                return Ok((nodes, End::Else));
            } else if tag == "/if" && inside.is_some() {
                return Ok((nodes, End::Close));
            } else if matches!(tag, "else" | "/if") {
                return Err(self.error(line, format!("{{{{{tag}}}}} stands outside of any {{{{#if}}}}")));
            } else {
                nodes.push(Node::Variable(self.variable(tag, line)?));
            }
        }
    }

    fn condition(&mut self, name: &str, line: usize, depth: usize) -> Result<Node, PromptError> {
        if depth == MAX_DEPTH {
            return Err(self.error(line, format!("conditions are nested more than {MAX_DEPTH} deep")));
        }
        let variable = self.variable(name, line)?;
        let (then, end) = self.nodes(Some(line), depth + 1)?;
        let mut otherwise = Vec::new();
        if end == End::Else {
            let (nodes, end) = self.nodes(Some(line), depth + 1)?;
            if end == End::Else {
                return Err(self.error(line, "this {{#if}} has two {{else}}"));
            }
            otherwise = nodes;
        }
        Ok(Node::If { variable, then, otherwise })
    }

    fn variable(&self, name: &str, line: usize) -> Result<usize, PromptError> {
        self.known.iter().position(|known| *known == name).ok_or_else(|| {
            let meant = did_you_mean(name, self.known.iter().copied());
            let name: String = name.chars().take(64).collect();
            self.error(line, format!("unknown variable `{name}`{meant}"))
        })
    }

    fn line(&self, position: usize) -> usize {
        1 + self.text[..position].matches('\n').count()
    }

    fn error(&self, line: usize, message: impl Into<String>) -> PromptError {
        PromptError::at(self.file, line, message)
    }
}

fn push_text(nodes: &mut Vec<Node>, text: &str) {
    if !text.is_empty() {
        nodes.push(Node::Text(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 2] = ["name", "place"];

    fn render(text: &str, name: &str, place: &str) -> String {
        Template::parse("t.md", text, &KNOWN).unwrap().render(&[name, place])
    }

    fn error(text: &str) -> String {
        Template::parse("t.md", text, &KNOWN).unwrap_err().to_string()
    }

    #[test]
    fn variables_and_conditions_are_filled_in() {
        assert_eq!(render("a {{name}} b {{ place }}", "X", "Y"), "a X b Y");
        let nested = "{{#if name}}n{{#if place}}p{{else}}-{{/if}}{{else}}0{{/if}}";
        assert_eq!(
            [render(nested, "X", "Y"), render(nested, "X", ""), render(nested, "", "Y")],
            ["np", "n-", "0"]
        );
        assert_eq!(render("no tags } {", "", ""), "no tags } {");
    }

    #[test]
    fn values_are_not_templates() {
        assert_eq!(render("{{name}}", "{{place}}", "Y"), "{{place}}");
    }

    #[test]
    fn every_mistake_names_its_line() {
        assert_eq!(error("\n\n{{plaice}}"), "t.md:3: unknown variable `plaice`; did you mean \"place\"?");
        assert_eq!(error("{{}}"), "t.md:1: unknown variable ``");
        assert_eq!(error("\n{{#if nme}}{{/if}}"), "t.md:2: unknown variable `nme`; did you mean \"name\"?");
        assert_eq!(error("\n{{#if name}}\n\n"), "t.md:2: this {{#if}} has no {{/if}}");
        assert_eq!(error("x\n{{name"), "t.md:2: `{{` has no `}}`");
        assert_eq!(error("{{/if}}"), "t.md:1: {{/if}} stands outside of any {{#if}}");
        assert_eq!(error("{{else}}"), "t.md:1: {{else}} stands outside of any {{#if}}");
        assert_eq!(error("{{#if name}}{{else}}{{else}}{{/if}}"), "t.md:1: this {{#if}} has two {{else}}");
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = "{{#if name}}".repeat(100_000);
        assert_eq!(error(&text), "t.md:1: conditions are nested more than 16 deep");
    }
}
