//! The text of bytes from the web: which encoding they are in.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Where a page may name its encoding.
const HEAD: usize = 1024;

/// The text of `bytes`, which came with this media type: by a byte order mark, else as the type says, else as the page says
/// (if it is HTML), else as UTF-8 if it is that, else as Western European.
pub(super) fn decode(bytes: &[u8], content_type: Option<&str>, is_html: bool) -> String {
    if let Some((encoding, _)) = Encoding::for_bom(bytes) {
        return encoding.decode(bytes).0.into_owned();
    }
    let named = content_type.and_then(|kind| parameter(kind, "charset"));
    let named = named.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = named.or_else(|| if is_html { in_page(bytes) } else { None });
    match (encoding, std::str::from_utf8(bytes)) {
        (None | Some(_), Ok(text)) if encoding.is_none_or(|encoding| encoding == UTF_8) => text.to_owned(),
        (Some(encoding), _) => encoding.decode_without_bom_handling(bytes).0.into_owned(),
        (None, _) => WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned(),
    }
}

/// The encoding that a `<meta>` in the beginning of a page names.
fn in_page(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(HEAD)];
    let head: String = head.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    let mut rest = head.as_str();
    while let Some((_, after)) = rest.split_once("<meta") {
        let tag = after.split('>').next().unwrap_or_default();
        if let Some((_, value)) = tag.split_once("charset") {
            let value = value.trim_start().strip_prefix('=').unwrap_or_default().trim_start();
            let label = value.trim_start_matches(['"', '\'']).split(['"', '\'', ';', ' ', '/']).next();
            let encoding = label.and_then(|label| Encoding::for_label(label.as_bytes()));
            // Who can read "meta" so far does not read UTF-16.
            return encoding.map(|encoding| if encoding.is_ascii_compatible() { encoding } else { UTF_8 });
        }
        rest = after;
    }
    None
}

/// The value of a parameter of a media type.
fn parameter<'a>(content_type: &'a str, wanted: &str) -> Option<&'a str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches(['"', '\'']))
    })
}

/// The media type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_found() {
        let table: [(&[u8], Option<&str>, bool, &str); 12] = [
            ("ä€".as_bytes(), None, false, "ä€"),
            ("\u{feff}ä".as_bytes(), Some("text/plain; charset=iso-8859-1"), false, "ä"),
            (b"\xff\xfea\0\xe4\0", Some("text/plain"), false, "aä"),
            (b"caf\xe9", Some("text/plain; charset=ISO-8859-1"), false, "café"),
            (b"caf\xe9", Some("text/plain; Charset=\"latin1\""), false, "café"),
            (b"caf\xe9 \x80", Some("text/plain"), false, "café €"),
            (b"\x93\xfa\x96\x7b", Some("text/html; charset=Shift_JIS"), true, "日本"),
            (b"<meta charset=\"koi8-r\">\xd0", None, true, "<meta charset=\"koi8-r\">п"),
            (
                b"<META http-equiv=Content-Type content='text/html; charset=gbk'>\xc4\xe3",
                None,
                true,
                "<META http-equiv=Content-Type content='text/html; charset=gbk'>你",
            ),
            (b"<meta charset=utf-16>\xc3\xa4", None, true, "<meta charset=utf-16>ä"),
            (
                b"<meta name=x><meta charset=nonsense>\xe4",
                None,
                true,
                "<meta name=x><meta charset=nonsense>ä",
            ),
            ("ä".as_bytes(), Some("text/plain; charset=nonsense"), false, "ä"),
        ];
        for (bytes, kind, html, expected) in table {
            assert_eq!(decode(bytes, kind, html), expected, "{kind:?}");
        }
        assert_eq!(decode(b"\xc3\x28", Some("text/plain; charset=utf-8"), false), "\u{fffd}(");
        assert_eq!(essence("Text/HTML ; charset=x"), "text/html");
    }
}
