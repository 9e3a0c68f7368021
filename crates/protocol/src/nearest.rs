//! The names that a mistyped one was probably meant to be.

/// How alike two names must be (Jaro-Winkler, 0 to 1) for one to be offered in place of the other.
const ALIKE: f64 = 0.75;

/// Up to three of `candidates` that are most like `name`, the best first; none where nothing is alike.
///
/// Case does not count. A name that contains the other (`sonnet` in `claude-sonnet-4-5`) counts as alike.
///
/// ```
/// use playhouse_protocol::nearest::nearest;
/// assert_eq!(nearest("provders", ["model", "providers"]), ["providers"]);
/// assert!(nearest("colour", ["model", "providers"]).is_empty());
/// ```
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wanted = name.to_lowercase();
    let mut alike: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|candidate| (likeness(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    alike.sort_by(|(left, left_name), (right, right_name)| {
        right.total_cmp(left).then_with(|| left_name.cmp(right_name))
    });
    alike.into_iter().take(3).map(|(_, candidate)| candidate.to_owned()).collect()
}

/// How much of the longer name must be right (0 to 1), whatever the other measure says: it takes `nope` for `openai`.
const RIGHT: f64 = 0.4;

fn likeness(wanted: &str, candidate: &str) -> f64 {
    let score = strsim::jaro_winkler(wanted, candidate);
    let shorter = wanted.len().min(candidate.len());
    let contains = shorter >= 3 && (candidate.contains(wanted) || wanted.contains(candidate));
    let right = strsim::normalized_damerau_levenshtein(wanted, candidate) >= RIGHT;
    match (contains, right) {
        (true, _) => score.max(ALIKE),
        (false, true) => score,
        (false, false) => 0.0,
    }
}

/// `; did you mean "a" or "b"?`, the end of a message about an unknown name; empty where nothing is alike.
///
/// ```
/// use playhouse_protocol::nearest::did_you_mean;
/// assert_eq!(did_you_mean("atlsa", ["atlas", "plan"]), "; did you mean \"atlas\"?");
/// assert_eq!(did_you_mean("xyz", ["atlas", "plan"]), "");
/// ```
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = nearest(name, candidates).iter().map(|name| format!("\"{name}\"")).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first_and_there_are_at_most_three() {
        let names = ["claude-sonnet-4-5", "claude-sonnet-4-6", "claude-sonnet-5", "claude-opus-4-5", "gpt-5"];
        let found = nearest("claude-sonet-4-5", names);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], "claude-sonnet-4-5");
    }

    #[test]
    fn a_part_of_a_name_and_another_case_are_alike() {
        assert_eq!(nearest("sonnet", ["claude-sonnet-5", "gpt-5"]), ["claude-sonnet-5"]);
        assert_eq!(nearest("ATLAS", ["atlas"]), ["atlas"]);
        assert!(nearest("", ["atlas"]).is_empty());
        assert!(nearest("nope", ["openai", "openrouter"]).is_empty());
    }

    #[test]
    fn several_names_are_joined_in_words() {
        assert_eq!(did_you_mean("gpt5", ["gpt-5", "gpt-5.1"]), "; did you mean \"gpt-5\" or \"gpt-5.1\"?");
    }
}
