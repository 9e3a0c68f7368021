//! A tree as a large repository has it: packages with nested directories, many small files and some large ones, and
//! ignored, hidden and binary files on the way. The same each time.

use std::fmt::Write as _;
use std::path::Path;

/// A word that is in a few lines only.
pub(crate) const RARE: &str = "needle_";

/// Files in a directory.
const SIDE_BY_SIDE: usize = 20;

const ENDINGS: [&str; 8] = ["rs", "rs", "rs", "ts", "md", "py", "json", "toml"];

const WORDS: [&str; 24] = [
    "let", "value", "match", "return", "config", "handle", "for", "entry", "self", "error", "buffer",
    "while", "index", "result", "token", "state", "record", "where", "stream", "length", "offset", "parent",
    "child", "window",
];

/// Makes `count` files below `root`, and a tenth of that on top which is ignored. Returns their bytes.
pub(crate) fn make(root: &Path, count: usize) -> u64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut bytes = 0;
    put(root, ".git/HEAD", b"ref: refs/heads/main\n");
    put(root, ".gitignore", b"target/\n*.log\n/dist\n**/generated/*.tmp\n!keep.log\n");
    for number in 0..count {
        let directory = directory(number / SIDE_BY_SIDE);
        let ending = ENDINGS[number % ENDINGS.len()];
        let content = content(&mut random, number, count);
        bytes += content.len() as u64;
        put(root, &format!("{directory}/file_{number}.{ending}"), &content);
        if number.is_multiple_of(1_000) {
            put(root, &format!("{directory}/.gitignore"), b"*.bak\nlocal_*\n");
            put(root, &format!("{directory}/.hidden/secret_{number}.rs"), b"let needle_hidden = 1;\n");
        }
        if number.is_multiple_of(10) {
            let name = if number.is_multiple_of(20) { "target/debug/out" } else { "run" };
            let ending = if number.is_multiple_of(20) { "o" } else { "log" };
            put(root, &format!("{directory}/{name}_{number}.{ending}"), b"let needle_ignored = 1;\n");
        }
    }
    bytes
}

/// Packages of 25 directories, up to five deep.
fn directory(number: usize) -> String {
    let mut path = format!("packages/package_{:03}/src", number / 25);
    let mut rest = number % 25;
    while rest > 0 {
        let _ = write!(path, "/part_{}", rest % 3);
        rest /= 3;
        let _ = write!(path, "_{rest}");
    }
    path
}

fn content(random: &mut Random, number: usize, count: usize) -> Vec<u8> {
    let size = match number % 1_000 {
        7 => 1_000_000,
        13 | 200 | 600 => 100_000,
        _ => 500 + random.below(8_000),
    };
    let mut text = String::with_capacity(size + 100);
    while text.len() < size {
        let _ = write!(text, "{}", " ".repeat(4 * random.below(4)));
        for _ in 0..3 + random.below(8) {
            let _ = write!(text, "{} ", WORDS[random.below(WORDS.len())]);
        }
        text.push('\n');
    }
    if number % (count / 40).max(1) == 3 {
        let _ = writeln!(text, "let {RARE}{number} = find();");
    }
    let mut bytes = text.into_bytes();
    if number % 250 == 17 {
        bytes[100] = 0;
    }
    bytes
}

fn put(root: &Path, name: &str, content: &[u8]) {
    let path = root.join(name);
    if let Err(error) = fs_err::write(&path, content) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, content).unwrap();
    }
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}
