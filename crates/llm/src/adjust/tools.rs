//! Tools that a provider refuses: which one a refusal names, and how requests do without it.
//!
//! Only tools from outside are set aside: their schemas are written by others. A schema that was changed since is tried anew.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use playhouse_protocol::chat::ToolSpec;

use super::{Adjustments, Finding, Parameter, places, strip};

/// Number of tools that are set aside for one model. Beyond it all are tried anew.
pub(super) const MOST_SET_ASIDE: usize = 256;
/// Characters of a provider's words that are kept.
const MOST_WORDS: usize = 500;

/// One exact tool: another description or schema is another tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolIdentity {
    /// The name that models see.
    pub name: String,
    /// A hash of the rest. Only this process knows what it means.
    hash: u64,
}

impl ToolIdentity {
    fn of(spec: &ToolSpec) -> Self {
        let mut hash = DefaultHasher::new();
        spec.description.hash(&mut hash);
        spec.parameters.to_string().hash(&mut hash);
        Self { name: spec.name.clone(), hash: hash.finish() }
    }
}

impl Adjustments {
    /// What requests to the model tell of these tools from outside: without those that its provider refused, and without what
    /// it refused of schemas.
    pub fn tools(&self, specs: impl IntoIterator<Item = ToolSpec>) -> Vec<ToolSpec> {
        let specs = specs.into_iter().map(|spec| self.rewritten(spec));
        specs.filter(|spec| self.words_about(&ToolIdentity::of(spec)).is_none()).collect()
    }

    /// What the provider said when it refused this tool; `None` if it did not.
    pub fn refusal_of(&self, spec: &ToolSpec) -> Option<&str> {
        // Most have none, and schemas may be long.
        self.set_aside().next()?;
        self.words_about(&ToolIdentity::of(&self.rewritten(spec.clone())))
    }

    /// The tool without the keywords that are left out of schemas.
    pub(super) fn rewritten(&self, mut spec: ToolSpec) -> ToolSpec {
        let keywords: Vec<&str> = self.keywords().collect();
        if !keywords.is_empty() {
            strip(&mut spec.parameters, &keywords, false);
        }
        spec
    }

    /// Whether schemas of tools are written otherwise.
    pub(super) fn change_tools(&self) -> bool {
        self.omits(Parameter::Strict)
            || self.omits(Parameter::CacheControl)
            || self.keywords().next().is_some()
    }

    pub(super) fn set_aside(&self) -> impl Iterator<Item = (&ToolIdentity, &str)> {
        self.0.iter().filter_map(|finding| match finding {
            Finding::WithoutTool { tool, words } => Some((tool, words.as_str())),
            _ => None,
        })
    }

    fn words_about(&self, tool: &ToolIdentity) -> Option<&str> {
        self.set_aside().find(|(refused, _)| *refused == tool).map(|(_, words)| words)
    }
}

/// The tools of a request, in order; `None` in the place of each that requests never go without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Removable(Vec<Option<ToolIdentity>>);

impl Removable {
    pub(super) fn of(tools: &[ToolSpec], is_removable: impl Fn(&str) -> bool) -> Self {
        let identity = |spec: &ToolSpec| is_removable(&spec.name).then(|| ToolIdentity::of(spec));
        Self(tools.iter().map(identity).collect())
    }

    /// The tool that a refusal names, by its name or by its place in the list. `parameter` is what stands beside the message.
    pub(super) fn refused(&self, message: &str, parameter: &str) -> Option<Finding> {
        let by_name = || {
            let named =
                self.0.iter().flatten().filter_map(|tool| Some((named_at(message, &tool.name)?, tool)));
            named.min_by_key(|(at, tool)| (*at, std::cmp::Reverse(tool.name.len()))).map(|(_, tool)| tool)
        };
        let by_place = || {
            let at = place_of_tool(message).or_else(|| place_of_tool(parameter))?;
            self.0.get(at)?.as_ref()
        };
        let tool = by_place().or_else(by_name)?.clone();
        Some(Finding::WithoutTool { tool, words: message.chars().take(MOST_WORDS).collect() })
    }
}

/// Where a message names a tool. A name that others could mean something else by counts in quotes, or after a word for a tool.
fn named_at(message: &str, name: &str) -> Option<usize> {
    let is_word = !name.starts_with("mcp_");
    let is_part = |c: Option<char>| c == Some('-');
    places(message, name).find(|at| {
        let (before, after) = (&message[..*at], &message[at + name.len()..]);
        let is_whole = !is_part(before.chars().next_back()) && !is_part(after.chars().next());
        let is_name = before.ends_with(['\'', '"', '`'])
            || ["function ", "tool ", "function: ", "tool: "].iter().any(|words| before.ends_with(words));
        is_whole && (!is_word || is_name)
    })
}

/// The place in the list of tools that a text names: `tools.5`, `tools[5]`, `function_declarations[7]`, counted from 0.
fn place_of_tool(text: &str) -> Option<usize> {
    // Gemini's tools are declarations below the first entry of a list: that is named first.
    let text = text.to_ascii_lowercase();
    let number_after = |end: usize| {
        let rest = text[end..].strip_prefix(['.', '['])?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..digits].parse().ok()
    };
    let lists = ["function_declarations", "functiondeclarations", "tools"];
    let mut ends = lists.iter().flat_map(|list| places(&text, list).map(|at| at + list.len()));
    ends.find_map(number_after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<ToolSpec> {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: format!("Does {name}."),
            parameters: json!({"type": "object", "properties": {"q": {"type": "string", "pattern": "^a"}}}),
        };
        ["bash", "mcp_x_odd", "mcp_x_odd-2", "deploy", "mcp_x_last"].map(tool).into()
    }

    #[test]
    fn a_refusal_names_a_tool_by_name_or_by_place() {
        let removable = Removable::of(&tools(), |name| name != "bash");
        for (message, parameter, wanted) in [
            ("Invalid schema for function 'mcp_x_odd': x-never is not permitted", "", Some("mcp_x_odd")),
            ("Invalid schema for function 'mcp_x_odd-2': no", "", Some("mcp_x_odd-2")),
            ("Invalid schema for function 'bash': no", "", None),
            ("tools.4.custom.input_schema: JSON schema is invalid", "", Some("mcp_x_last")),
            ("tools.0.custom.input_schema: JSON schema is invalid", "", None),
            ("tools.9.custom.input_schema: JSON schema is invalid", "", None),
            ("Invalid type for this field", "tools[1].function.parameters", Some("mcp_x_odd")),
            (
                "* GenerateContentRequest.tools[0].function_declarations[3].parameters.properties: bad",
                "",
                Some("deploy"),
            ),
            ("we could not deploy a function for this", "", None),
            ("the tool deploy has a wrong schema", "", Some("deploy")),
            ("tools: too many", "", None),
        ] {
            let found = removable.refused(message, parameter);
            let name = match &found {
                Some(Finding::WithoutTool { tool, .. }) => Some(tool.name.as_str()),
                _ => None,
            };
            assert_eq!(name, wanted, "{message}");
        }
    }

    #[test]
    fn a_tool_that_was_refused_is_left_out_until_it_is_another() {
        let removable = Removable::of(&tools(), |_| true);
        let words = "Invalid schema for function 'deploy'";
        let refused = Adjustments([removable.refused(words, "").unwrap()].into());
        let names = |specs: Vec<ToolSpec>| specs.into_iter().map(|spec| spec.name).collect::<Vec<_>>();
        assert_eq!(names(refused.tools(tools())), ["bash", "mcp_x_odd", "mcp_x_odd-2", "mcp_x_last"]);
        assert_eq!(refused.refusal_of(&tools()[3]), Some(words));
        assert_eq!(refused.refusal_of(&tools()[4]), None);
        let mut mended = tools();
        mended[3].parameters = json!({"type": "object"});
        assert_eq!(refused.tools(mended).len(), 5);
    }

    #[test]
    fn what_is_left_out_of_schemas_is_left_out_of_tools_from_outside() {
        let adjustments = Adjustments([Finding::WithoutKeyword("pattern")].into());
        let told = adjustments.tools(tools());
        assert!(told.iter().all(|tool| !tool.parameters.to_string().contains("pattern")));
    }
}
