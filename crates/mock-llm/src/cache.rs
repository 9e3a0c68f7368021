//! A simulated prompt cache: what requests share with earlier ones.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::wire::Dialect;

/// Prefixes that are remembered; the oldest are forgotten.
const PREFIXES: usize = 1 << 18;

/// How much of an input has to do with the cache, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cached {
    /// It was there.
    pub(crate) read: u64,
    /// It is kept for five minutes from now on.
    pub(crate) write_5m: u64,
    /// It is kept for an hour from now on.
    pub(crate) write_1h: u64,
}

impl Cached {
    /// As much of it as fits into an input of so many tokens.
    pub(crate) fn within(self, input: u64) -> Self {
        let read = self.read.min(input);
        let write_1h = self.write_1h.min(input - read);
        Self { read, write_1h, write_5m: self.write_5m.min(input - read - write_1h) }
    }
}

/// The prefixes that were seen.
#[derive(Debug, Default)]
pub(crate) struct PromptCache {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    prefixes: HashSet<u64>,
    /// The same, oldest first.
    order: VecDeque<u64>,
}

impl Seen {
    fn add(&mut self, prefix: u64) {
        if self.prefixes.insert(prefix) {
            self.order.push_back(prefix);
        }
        while self.order.len() > PREFIXES {
            if let Some(oldest) = self.order.pop_front() {
                self.prefixes.remove(&oldest);
            }
        }
    }
}

/// A request up to the end of one of its messages.
struct Prefix {
    hash: u64,
    /// Its size in bytes.
    bytes: usize,
}

/// A request as the cache sees it: its prefixes, shortest first (the first has no message), and how many of them it
/// asks to keep, for an hour and in all.
struct Prefixes {
    all: Vec<Prefix>,
    hour: usize,
    kept: usize,
}

impl PromptCache {
    /// What the cache has of a request, all of which it has from now on.
    ///
    /// Anthropic keeps what lies before the last `cache_control`, the others keep everything.
    pub(crate) fn ask(&self, dialect: Dialect, model: &str, body: &[u8]) -> Cached {
        let Some(prefixes) = prefixes(dialect, model, body) else { return Cached::default() };
        let mut seen = self.seen.lock();
        let kept = &prefixes.all[..prefixes.kept];
        let read =
            kept.iter().rposition(|prefix| seen.prefixes.contains(&prefix.hash)).map_or(0, |at| at + 1);
        kept.iter().for_each(|prefix| seen.add(prefix.hash));
        let tokens = |count: usize| match count.checked_sub(1).and_then(|last| kept.get(last)) {
            Some(prefix) => prefix.bytes.div_ceil(4) as u64,
            None => 0,
        };
        let (read_tokens, hour) = (tokens(read), tokens(prefixes.hour.max(read)));
        // Only this provider tells, and charges for, what it writes.
        let writes = dialect == Dialect::Anthropic;
        Cached {
            read: read_tokens,
            write_1h: if writes { hour - read_tokens } else { 0 },
            write_5m: if writes { tokens(prefixes.kept.max(read)) - hour } else { 0 },
        }
    }
}

/// What comes before the messages in a request, and the messages.
fn names(dialect: Dialect) -> (&'static [&'static str], &'static str) {
    match dialect {
        Dialect::Anthropic => (&["tools", "system"], "messages"),
        Dialect::OpenaiChat => (&["tools"], "messages"),
        Dialect::OpenaiResponses => (&["tools", "instructions"], "input"),
        Dialect::Gemini => (&["tools", "systemInstruction", "system_instruction"], "contents"),
    }
}

fn prefixes(dialect: Dialect, model: &str, body: &[u8]) -> Option<Prefixes> {
    let Value::Object(mut request) = serde_json::from_slice(body).ok()? else { return None };
    let (before, messages) = names(dialect);
    let mut head = Map::new();
    for name in before {
        if let Some(value) = request.remove(*name) {
            head.insert((*name).to_owned(), value);
        }
    }
    let mut hasher = DefaultHasher::new();
    (dialect, model).hash(&mut hasher);
    let mut pieces = vec![Value::Object(head)];
    match request.remove(messages)? {
        Value::Array(messages) => pieces.extend(messages),
        prompt => pieces.push(prompt),
    }
    let mut found = Prefixes { all: Vec::with_capacity(pieces.len()), hour: 0, kept: 0 };
    let mut bytes = 0;
    for piece in &mut pieces {
        let marks = take_marks(piece);
        let text = piece.to_string();
        text.hash(&mut hasher);
        bytes += text.len();
        found.all.push(Prefix { hash: hasher.finish(), bytes });
        let is_kept = dialect != Dialect::Anthropic || !marks.is_empty();
        found.kept = if is_kept { found.all.len() } else { found.kept };
        found.hour = if marks.contains(&Some("1h".to_owned())) { found.all.len() } else { found.hour };
    }
    Some(found)
}

/// Takes out the marks of what is to be kept, which move from request to request. Each is the time it asks for.
fn take_marks(value: &mut Value) -> Vec<Option<String>> {
    let mut marks = Vec::new();
    match value {
        Value::Object(object) => {
            if let Some(mark) = object.shift_remove("cache_control").filter(|mark| !mark.is_null()) {
                marks.push(mark["ttl"].as_str().map(str::to_owned));
            }
            object.values_mut().for_each(|value| marks.extend(take_marks(value)));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| marks.extend(take_marks(value))),
        _ => {}
    }
    marks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prefixes_are_bounded() {
        let mut seen = Seen::default();
        (0..PREFIXES as u64 + 5).for_each(|prefix| seen.add(prefix));
        assert_eq!((seen.prefixes.len(), seen.order.len()), (PREFIXES, PREFIXES));
        assert!(!seen.prefixes.contains(&4) && seen.prefixes.contains(&5));
    }

    #[test]
    fn the_longest_prefix_is_read() {
        let cache = PromptCache::default();
        let ask = |messages: &[&str], model: &str| {
            let messages: Vec<Value> = messages.iter().map(|text| json!({"content": text})).collect();
            let body = json!({"tools": ["t"], "messages": messages, "seed": messages.len()}).to_string();
            cache.ask(Dialect::OpenaiChat, model, body.as_bytes()).read
        };
        let size = |messages: &[&str]| {
            let texts = messages.iter().map(|text| json!({"content": text}).to_string().len());
            (texts.sum::<usize>() + json!({"tools": ["t"]}).to_string().len()).div_ceil(4) as u64
        };
        assert_eq!(ask(&["a", "b"], "m"), 0);
        assert_eq!(ask(&["a", "b", "c"], "m"), size(&["a", "b"]));
        assert_eq!(ask(&["a", "b", "c", "d"], "m"), size(&["a", "b", "c"]));
        assert_eq!(ask(&["a", "x", "c"], "m"), size(&["a"]));
        assert_eq!(ask(&["x"], "m"), size(&[]));
        assert_eq!(ask(&["a", "b"], "other"), 0);
    }

    #[test]
    fn marks_say_what_is_kept_and_may_move() {
        let cache = PromptCache::default();
        let ask = |marked: &[(&str, Option<Value>)]| {
            let messages: Vec<Value> = marked
                .iter()
                .map(|(text, mark)| match mark {
                    Some(mark) => json!({"content": [{"text": text, "cache_control": mark}]}),
                    None => json!({"content": [{"text": text}]}),
                })
                .collect();
            cache.ask(Dialect::Anthropic, "m", json!({"messages": messages}).to_string().as_bytes())
        };
        let mark = || Some(json!({"type": "ephemeral"}));
        let hour = || Some(json!({"type": "ephemeral", "ttl": "1h"}));
        assert_eq!(ask(&[("a", None), ("b", None)]), Cached::default());
        assert_eq!(ask(&[("a", None), ("b", None)]), Cached::default());
        let first = ask(&[("a", None), ("b", mark()), ("c", None)]);
        assert_eq!((first.read, first.write_1h), (0, 0));
        assert!(first.write_5m > 0);
        let second = ask(&[("a", None), ("b", None), ("c", mark())]);
        assert_eq!(second.read, first.write_5m);
        assert!(second.write_5m > 0 && second.write_5m < first.write_5m);
        let third = ask(&[("x", hour()), ("b", mark())]);
        assert!(third.write_1h > 0 && third.write_5m > 0);
    }

    #[test]
    fn what_is_cached_never_exceeds_the_input() {
        let cached = Cached { read: 5, write_5m: 5, write_1h: 5 };
        assert_eq!(cached.within(7), Cached { read: 5, write_5m: 0, write_1h: 2 });
        assert_eq!(cached.within(3), Cached { read: 3, write_5m: 0, write_1h: 0 });
        assert_eq!(cached.within(100), cached);
    }
}
