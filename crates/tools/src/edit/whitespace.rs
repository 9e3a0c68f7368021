//! The wanted words with other white space between them, line breaks included.

use std::ops::Range;

use memchr::{memchr_iter, memrchr};

use super::exact;
use super::fit::{Pair, Pairs, fit};
use super::folded::Folded;
use super::lines::{indent, is_blank};
use super::strategy::{Found, Gathered, MOST, Place, Search, Strategy};
use super::trimmed::{confused, without_blank_ends};

/// Any white space between words counts as one space.
pub(super) struct WhitespaceNormalised;

impl Strategy for WhitespaceNormalised {
    fn name(&self) -> &'static str {
        "whitespace-normalised"
    }

    fn difference(&self) -> &'static str {
        "white space between words, or where lines break, differs"
    }

    fn find(&self, search: &Search<'_>) -> Found {
        let (wanted, new) = without_blank_ends(search.wanted, search.new);
        let words = fold(wanted);
        let words = words.text.trim_ascii();
        // One word alone has no white space that could differ.
        if !words.contains(&b' ') {
            return Found::Nothing;
        }
        let folded = fold(search.text);
        let ranges: Vec<Range<usize>> = exact::occurrences(&folded.text, words, search.all)
            .into_iter()
            .filter(|range| is_whole(&folded.text, range))
            .map(|range| folded.original(range.start)..folded.original(range.end))
            .collect();
        if ranges.len() > MOST || (ranges.len() > 1 && !search.all) {
            return Found::Places(ranges.into_iter().map(Place::plain).collect());
        }
        let mut gathered = Gathered::default();
        for range in ranges {
            if let Some(reason) = over_wide(search, &range) {
                return Found::Doubt { range, reason };
            }
            match place(search.text, &range, wanted, new) {
                Some(place) => {
                    if !gathered.take(place) {
                        break;
                    }
                }
                None => return confused(range),
            }
        }
        gathered.found()
    }
}

/// `text` with each run of white space as one space.
fn fold(text: &[u8]) -> Folded {
    let mut folded = Folded::default();
    let mut at = 0;
    while at < text.len() {
        let mut blank = 0;
        while let Some(more) = space(&text[at + blank..]) {
            blank += more;
        }
        if blank > 0 {
            folded.push(b' ', blank);
            at += blank;
        } else {
            folded.push(text[at], 1);
            at += 1;
        }
    }
    folded
}

/// How long the white space is that `text` begins with: a no-break and an ideographic space count too.
fn space(text: &[u8]) -> Option<usize> {
    match text {
        [first, ..] if first.is_ascii_whitespace() => Some(1),
        [0xC2, 0xA0, ..] => Some(2),
        [0xE3, 0x80, 0x80, ..] => Some(3),
        _ => None,
    }
}

/// Whether `range` neither begins nor ends in the middle of a word.
pub(super) fn is_whole(text: &[u8], range: &Range<usize>) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let cut = |before: Option<&u8>, after: Option<&u8>| {
        before.zip(after).is_some_and(|(before, after)| word(*before) && word(*after))
    };
    let before = range.start.checked_sub(1).and_then(|at| text.get(at));
    !cut(before, text.get(range.start)) && !cut(text.get(range.end - 1), text.get(range.end))
}

/// Why `range` is too much for what was wanted.
fn over_wide(search: &Search<'_>, range: &Range<usize>) -> Option<String> {
    let lines = |text: &[u8]| memchr_iter(b'\n', text).count() + 1;
    let (found, wanted) = (lines(&search.text[range.clone()]), lines(search.wanted.trim_ascii()));
    let wide = found > 2 * wanted + 4 || range.len() > 3 * search.wanted.len() + 200;
    wide.then(|| {
        let (bytes, few) = (range.len(), search.wanted.len());
        format!("it is much larger than oldString: {found} lines ({bytes} bytes) instead of {wanted} ({few} bytes)")
    })
}

/// The words in `range` as a place for `new`; `None` when it is not clear how to indent it.
fn place(text: &[u8], range: &Range<usize>, wanted: &[u8], new: &[u8]) -> Option<Place> {
    let bare = wanted.trim_ascii_end();
    let mut new = new;
    // The white space at the end of both is not part of the place, and stays.
    for byte in wanted[bare.len()..].iter().rev() {
        new = new.strip_suffix(&[*byte]).unwrap_or(new);
    }
    let mut wanted: Vec<&[u8]> = bare.split(|byte| *byte == b'\n').collect();
    let line = memrchr(b'\n', &text[..range.start]).map_or(0, |at| at + 1);
    let mut file: Vec<&[u8]> = text[line..range.end].split(|byte| *byte == b'\n').collect();
    let mut pairs = by_words(&file, &wanted);
    let begins_line = is_blank(&text[line..range.start])
        && !is_indented_from_second_line(&text[line..range.start], &file, &wanted, &pairs);

    let start = if begins_line { line } else { range.start };
    let mut end = range.end;
    if new.is_empty() && begins_line {
        // A line that is taken out goes with its ending.
        let blank = text[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if text.get(end + blank) == Some(&b'\n') {
            end += blank + 1;
        }
        return Some(Place { range: start..end, new: Some([].into()) });
    }
    let mut new: Vec<&[u8]> = new.split(|byte| *byte == b'\n').collect();
    if !begins_line {
        // What is before the first word in its line stays, so all texts begin with that word.
        pairs = {
            file[0] = &file[0][range.start - line..];
            Pairs { inline: true, ..by_words(&file, &wanted) }
        };
        let dropped = indent(wanted[0]);
        new[0] = new[0].strip_prefix(dropped).unwrap_or(new[0]);
        wanted[0] = &wanted[0][dropped.len()..];
    }
    let made = fit(&file, &wanted, &new, &pairs)?;
    Some(Place { range: start..end, new: Some(made.into()) })
}

/// The lines that begin with the same word; both texts have the same words, and may break their lines elsewhere.
fn by_words(file: &[&[u8]], wanted: &[&[u8]]) -> Pairs {
    let spans = |lines: &[&[u8]]| {
        let mut words = 0;
        let span = |(index, line): (usize, &&[u8])| {
            let first = words;
            words += fold(line).text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).count();
            (first, words, index)
        };
        lines.iter().enumerate().map(span).filter(|(first, end, _)| first < end).collect::<Vec<_>>()
    };
    let (there, mut rest) = (spans(file), spans(wanted).into_iter().peekable());
    let mut each = Vec::new();
    for (first, end, file) in there {
        while rest.next_if(|(own, ..)| *own < first).is_some() {}
        if let Some((_, own_end, wanted)) = rest.next_if(|(own, ..)| *own == first) {
            each.push(Pair { wanted, file, whole: own_end == end });
        }
    }
    Pairs { each, inline: false }
}

/// Whether the wanted text begins at the first word of a line, after the white space in `before`, and has the
/// indentation of the file in all lines but that one.
fn is_indented_from_second_line(before: &[u8], file: &[&[u8]], wanted: &[&[u8]], pairs: &Pairs) -> bool {
    if before.is_empty() || !indent(wanted[0]).is_empty() || wanted.len() == 1 {
        return false;
    }
    match pairs.each.get(1..) {
        Some(further) if !further.is_empty() => {
            further.iter().all(|pair| indent(wanted[pair.wanted]) == indent(file[pair.file]))
        }
        _ => wanted[1..].iter().any(|old| indent(old).starts_with(before)),
    }
}
