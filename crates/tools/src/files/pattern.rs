//! Glob patterns as models write them.
//!
//! A pattern is matched against paths relative to the directory that is searched. One without a `/` matches the name
//! of a file at any depth, as in a `.gitignore`, because that is what is nearly always meant by `*.rs`.

use std::path::Path;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::tool::ToolError;

/// The longest pattern, in bytes.
const LONGEST: usize = 1_000;

/// One or more globs, of which one must match.
#[derive(Debug)]
pub(crate) struct Patterns {
    set: GlobSet,
    hidden: bool,
}

impl Patterns {
    /// Reads `globs`, which came as `parameter`.
    pub(crate) fn parse<'a>(
        parameter: &str,
        globs: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ToolError> {
        let mut set = GlobSetBuilder::new();
        let mut hidden = false;
        for glob in globs {
            let wrong = |why: String| {
                ToolError::Invalid(format!(
                    "{parameter} \"{}\" is not a usable glob: {why}. Examples: \"*.rs\", \"src/**/*.{{ts,tsx}}\"",
                    super::document::cut_characters(glob, 200).0
                ))
            };
            let relative = relative_form(glob).map_err(wrong)?;
            hidden |= relative.split(['/', '{', ',']).any(|name| name.starts_with('.'));
            let glob = GlobBuilder::new(&relative)
                .literal_separator(true)
                .build()
                .map_err(|error| wrong(error.kind().to_string()))?;
            set.add(glob);
        }
        let set = set
            .build()
            .map_err(|error| ToolError::Invalid(format!("{parameter} is too complex: {}", error.kind())))?;
        Ok(Self { set, hidden })
    }

    /// Whether one of the globs matches `path`, which is relative to the searched directory.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        self.set.is_match_candidate(&Candidate::new(path))
    }

    /// Whether a glob names something hidden outright, as in `.github/**`.
    pub(crate) fn names_hidden(&self) -> bool {
        self.hidden
    }
}

fn relative_form(glob: &str) -> Result<String, String> {
    let glob = glob.trim();
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    if glob.is_empty() {
        return Err("it is empty".into());
    }
    if glob.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    if glob.starts_with('/') {
        return Err("it must be relative; give the directory to search as path".into());
    }
    if glob.split('/').any(|name| name == "..") {
        return Err("it must not contain \"..\"; give the directory to search as path".into());
    }
    if glob.starts_with('!') {
        return Err("\"!\" in front does not negate it: give globs of what shall match (a name that begins with \"!\" is written \"\\!\")".into());
    }
    let glob = glob.trim_end_matches('/');
    Ok(if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") })
}

/// Splits a list of globs at commas and spaces, but not inside braces.
pub(crate) fn split_list(list: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    list.split(|character| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (character == ',' || character == ' ')
    })
    .filter(|glob| !glob.is_empty())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(glob: &str, yes: &[&str], no: &[&str]) {
        let patterns = Patterns::parse("pattern", [glob]).unwrap();
        for path in yes {
            assert!(patterns.matches(Path::new(path)), "{glob} must match {path}");
        }
        for path in no {
            assert!(!patterns.matches(Path::new(path)), "{glob} must not match {path}");
        }
    }

    #[test]
    fn a_name_matches_at_any_depth_and_a_path_where_it_says() {
        check("*.rs", &["a.rs", "src/deep/a.rs"], &["a.rs.txt"]);
        check("./src/*.rs", &["src/a.rs"], &["src/deep/a.rs", "a.rs"]);
        check("src/**/*.{ts,tsx}", &["src/a.ts", "src/b/c/d.tsx"], &["lib/a.ts", "src/a.js"]);
        check("**", &["a", "b/c"], &[]);
        check("node_modules/", &["node_modules", "a/node_modules"], &["node_modules2"]);
        check("\\!a", &["!a", "x/!a"], &["a"]);
        check("[ab].txt", &["a.txt", "x/b.txt"], &["c.txt"]);
    }

    #[test]
    fn bad_globs_are_explained() {
        let message = |glob: &str| Patterns::parse("pattern", [glob]).unwrap_err().to_string();
        insta::assert_snapshot!(message("src/{a,b"), @r#"pattern "src/{a,b" is not a usable glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?). Examples: "*.rs", "src/**/*.{ts,tsx}""#);
        insta::assert_snapshot!(message("[a"), @r#"pattern "[a" is not a usable glob: unclosed character class; missing ']'. Examples: "*.rs", "src/**/*.{ts,tsx}""#);
        insta::assert_snapshot!(message("../*.rs"), @r#"pattern "../*.rs" is not a usable glob: it must not contain ".."; give the directory to search as path. Examples: "*.rs", "src/**/*.{ts,tsx}""#);
        insta::assert_snapshot!(message("!*.rs"), @r#"pattern "!*.rs" is not a usable glob: "!" in front does not negate it: give globs of what shall match (a name that begins with "!" is written "\!"). Examples: "*.rs", "src/**/*.{ts,tsx}""#);
        assert!(message("/etc/*").contains("must be relative"));
        assert!(message("  ").contains("it is empty"));
        assert!(message(&"a".repeat(2_000)).contains("longer than 1000 bytes"));
    }

    #[test]
    fn hidden_names_are_noticed() {
        let hidden = |glob: &str| Patterns::parse("pattern", [glob]).unwrap().names_hidden();
        assert!(hidden(".github/**") && hidden("a/.env*") && hidden("{.a,b}/c"));
        assert!(!hidden("*.rs") && !hidden("./src/*") && !hidden("a.b/c"));
    }

    #[test]
    fn a_list_is_split_outside_braces() {
        assert_eq!(split_list("*.rs, *.{ts,tsx} a.c"), ["*.rs", "*.{ts,tsx}", "a.c"]);
        assert!(split_list(" , ").is_empty());
    }
}
