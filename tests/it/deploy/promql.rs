//! What an expression of PromQL names: enough of its grammar to find selectors and labels, and no more.

use std::collections::BTreeSet;

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Its selectors, each with its matchers and without range and offset.
    pub(super) selectors: Vec<String>,
    /// The labels of its matchers, and those that it groups and joins by.
    pub(super) labels: BTreeSet<String>,
}

impl Named {
    /// The names of the metrics that are selected.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &str> {
        self.selectors.iter().map(|selector| selector.split('{').next().unwrap())
    }
}

/// Words that are followed by labels in parentheses.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words between operands.
const OPERATORS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "atan2", "inf"];

/// Reads an expression that Prometheus takes.
pub(super) fn named(expression: &str) -> Named {
    let mut named = Named::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' | '\'' | '`' => &rest[string(rest)..],
            // A range, as in [5m].
            '[' => &rest[rest.find(']').expect("a range ends") + 1..],
            '0'..='9' => &rest[run(rest, |c| c.is_ascii_alphanumeric() || c == '.')..],
            c if is_word(c) => {
                let (word, after) = rest.split_at(run(rest, is_word));
                let next = after.trim_start();
                if GROUPING.contains(&word) {
                    let Some(list) = next.strip_prefix('(') else {
                        rest = after;
                        continue;
                    };
                    let (list, after) = list.split_once(')').expect("a list of labels ends");
                    named.labels.extend(list.split(',').map(|label| label.trim().to_owned()));
                    after
                } else if next.starts_with('(') || aggregates(next) || OPERATORS.contains(&word) {
                    after
                } else if next.starts_with('{') {
                    let length = matchers(next, &mut named.labels);
                    named.selectors.push(format!("{word}{}", &next[..length]));
                    &next[length..]
                } else {
                    named.selectors.push(word.to_owned());
                    after
                }
            }
            '{' => panic!("a selector without a name in {expression}"),
            _ => &rest[first.len_utf8()..],
        };
    }
    named.labels.remove("");
    named
}

/// Whether what follows says by which labels the word before aggregates.
fn aggregates(next: &str) -> bool {
    matches!(&next[..run(next, is_word)], "by" | "without")
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// How long the run of such characters at the beginning is.
fn run(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|c| !fits(c)).unwrap_or(text.len())
}

/// How long the string at the beginning is, with its quotes.
fn string(text: &str) -> usize {
    let quote = text.chars().next().unwrap();
    let mut escaped = false;
    for (place, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            c if c == quote => return place + 1,
            _ => {}
        }
    }
    panic!("a string does not end: {text}")
}

/// How long the matchers at the beginning are, with their braces; adds their labels.
fn matchers(text: &str, labels: &mut BTreeSet<String>) -> usize {
    let mut place = 1;
    loop {
        let rest = &text[place..];
        match rest.chars().next().expect("matchers end") {
            '}' => return place + 1,
            '"' | '\'' | '`' => place += string(rest),
            c if is_word(c) => {
                let length = run(rest, is_word);
                labels.insert(rest[..length].to_owned());
                place += length;
            }
            c => place += c.len_utf8(),
        }
    }
}

#[test]
fn selectors_and_labels_are_found() {
    let expression = r#"(
          histogram_quantile(0.95, sum by (job, le) (rate(a_bucket{x="}\" b", y=~"c|d"}[5m] offset 1h)))
        or 0 * r:b:c
      ) / on (job) group_left (m) count without () (e) > bool 1e6 and changes(f{} [1d]) unless absent(up{job="p"}) or vector(0)"#;
    let named = named(expression);
    let selectors = [r#"a_bucket{x="}\" b", y=~"c|d"}"#, "r:b:c", "e", "f{}", r#"up{job="p"}"#];
    assert_eq!(named.selectors, selectors);
    assert_eq!(named.metrics().collect::<Vec<_>>(), ["a_bucket", "r:b:c", "e", "f", "up"]);
    assert_eq!(named.labels, ["job", "le", "m", "x", "y"].map(str::to_owned).into());
}
