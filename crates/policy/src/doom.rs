//! Loops in which a model is caught.

/// The longest cycle that is looked for, in calls.
pub const LONGEST_CYCLE: usize = 3;
/// So many times something happens in a row before it is a loop.
pub const REPEATS: usize = 3;

/// Whether the last of `calls` closes a loop: the same call, or the same two or three calls, three times in a row. `same` says
/// whether one call is another one again.
///
/// ```
/// use playhouse_policy::is_looping;
///
/// let is_loop = |calls: &[&str]| is_looping(calls, |call, again| call == again);
/// assert!(is_loop(&["ls", "ls", "ls"]));
/// assert!(is_loop(&["x", "a", "b", "a", "b", "a", "b"]));
/// assert!(!is_loop(&["ls", "ls", "cat", "ls"]));
/// ```
pub fn is_looping<T>(calls: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    (1..=LONGEST_CYCLE).any(|cycle| {
        let Some(from) = calls.len().checked_sub(cycle * REPEATS) else { return false };
        let tail = &calls[from..];
        tail.iter().zip(&tail[cycle..]).all(|(call, again)| same(call, again))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_of_one_two_and_three() {
        for looping in ["aaa", "baaa", "ababab", "xababab", "abcabcabc", "aaaa"] {
            assert!(is_looping(looping.as_bytes(), u8::eq), "{looping}");
        }
        for fine in ["", "a", "aa", "aab", "abab", "babab", "abcabcab", "abcdabcdabcd", "aaab"] {
            assert!(!is_looping(fine.as_bytes(), u8::eq), "{fine}");
        }
    }
}
