//! The names by which models call the tools of servers.
//!
//! A tool is named `mcp_<server>_<tool>`. Providers take 1 to 64 of the characters a-z, A-Z, 0-9, `_` and `-`: others become
//! `_`, and a longer name is cut. A name that was changed and would then stand for two tools ends with a part of the hash of
//! both original names, as does one that was cut; so a name depends on no order and stays the same from start to start.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::text::hex;

/// The longest name of a tool, in bytes.
pub const LONGEST: usize = 64;
/// Number of digits of the hash.
const DIGITS: usize = 8;

/// The longest name of a server: the names of its tools begin with it.
const LONGEST_SERVER: usize = 32;

/// Refuses a name of a server that could not begin those of tools.
///
/// # Errors
/// Which characters it may have: a text for users.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    if !name.is_empty() && name.len() <= LONGEST_SERVER && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "\"{}\" cannot be the name of a server: use 1 to {LONGEST_SERVER} of the characters a-z, A-Z, 0-9, _ and -",
        name.chars().take(64).collect::<String>().escape_debug()
    ))
}

/// Whether tools of two servers could have one name: `mcp_a_b_c` is `b_c` of `a` and `c` of `a_b`.
pub fn mixes_up(one: &str, other: &str) -> bool {
    let begins = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('_'));
    begins(one, other) || begins(other, one)
}

/// The names of a server's tools, in their order; `None` for a tool whose name another before it has as well.
///
/// ```
/// use playhouse_mcp::names::of_tools;
///
/// assert_eq!(of_tools("git hub", ["get_issue"]), [Some("mcp_git_hub_get_issue".to_owned())]);
/// ```
pub fn of_tools<'a>(server: &str, tools: impl IntoIterator<Item = &'a str>) -> Vec<Option<String>> {
    let tools: Vec<&str> = tools.into_iter().collect();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for tool in &tools {
        *counts.entry(plain(server, tool)).or_default() += 1;
    }
    let mut taken = HashMap::new();
    let names = tools.iter().map(|tool| {
        let plain = plain(server, tool);
        let changed = !plain.ends_with(&format!("_{tool}"));
        let shared = changed && counts.get(&plain).is_some_and(|&count| count > 1);
        let name = if plain.len() > LONGEST || shared { hashed(&plain, server, tool) } else { plain };
        taken.insert(name.clone(), ()).is_none().then_some(name)
    });
    names.collect()
}

/// The name without a hash, however long.
fn plain(server: &str, tool: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    format!("mcp_{server}_{tool}").chars().map(allowed).collect()
}

fn hashed(plain: &str, server: &str, tool: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(server);
    hash.update([0]);
    hash.update(tool);
    let digits = &hex(&hash.finalize())[..DIGITS];
    // It is ASCII.
    let kept = &plain[..plain.len().min(LONGEST - DIGITS - 1)];
    format!("{kept}_{digits}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(server: &str, tools: &[&str]) -> Vec<Option<String>> {
        of_tools(server, tools.iter().copied())
    }

    #[test]
    fn what_providers_do_not_take_is_replaced() {
        assert_eq!(names("a.b", &["c/d", "e"]), [Some("mcp_a_b_c_d".into()), Some("mcp_a_b_e".into())]);
    }

    #[test]
    fn names_that_would_be_the_same_are_told_apart_whatever_their_order() {
        let one = names("s", &["a.b", "a b", "a_b"]);
        let two = names("s", &["a_b", "a b", "a.b"]);
        assert_eq!(one[2], Some("mcp_s_a_b".into()));
        assert_eq!(one.iter().rev().collect::<Vec<_>>(), two.iter().collect::<Vec<_>>());
        assert_ne!(one[0], one[1]);
    }

    #[test]
    fn a_tool_that_is_listed_twice_has_one_name() {
        assert_eq!(names("s", &["a", "a"]), [Some("mcp_s_a".into()), None]);
    }

    #[test]
    fn long_names_are_cut_and_told_apart() {
        let long = "x".repeat(100);
        let names = names("s", &[&format!("{long}1"), &format!("{long}2")]);
        assert!(names[0] != names[1] && names.iter().flatten().all(|name| name.len() == LONGEST));
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_providers_take(server in ".{0,80}", tools in prop::collection::hash_set(".{0,80}", 0..8)) {
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let names = names(&server, &tools);
            let mut given: Vec<&String> = names.iter().flatten().collect();
            // Equal original names aside, which there are none of here, all have a name of their own.
            prop_assert_eq!(given.len(), tools.len());
            for name in &given {
                prop_assert!(name.len() <= LONGEST && !name.is_empty());
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
            }
            given.sort();
            given.dedup();
            prop_assert_eq!(given.len(), tools.len());
        }
    }
}
