use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::storage::{Storage, StorageLimits};
use crate::testing;

struct Fixture {
    folder: tempfile::TempDir,
    context: CallContext,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let context = testing::context(folder.path(), &folder.path().join("outputs")).unwrap();
    Fixture { folder, context }
}

impl Fixture {
    async fn cap(&self, text: &str) -> Capped {
        cap(text.to_owned(), &self.context).await
    }

    async fn cap_bytes(&self, bytes: &[u8]) -> Capped {
        let mut buffer = CappedBuffer::of(&self.context);
        for piece in bytes.chunks(10_000) {
            buffer.push(piece).await;
        }
        buffer.finish().await
    }

    fn saved(&self) -> Vec<u8> {
        fs_err::read(&self.context.output_file).unwrap()
    }
}

fn check_caps(capped: &Capped) {
    assert!(capped.text.len() <= MAX_BYTES, "{} bytes", capped.text.len());
    assert!(capped.text.lines().count() <= MAX_LINES, "{} lines", capped.text.lines().count());
}

#[tokio::test]
async fn what_is_short_enough_stays_as_it_is() {
    let fixture = fixture();
    for text in ["", "one", "one\ntwo\n", &"x".repeat(MAX_BYTES), &"y\n".repeat(MAX_LINES)] {
        let capped = fixture.cap(text).await;
        assert_eq!((capped.text.as_str(), capped.truncated, &capped.file), (text, false, &None));
        assert_eq!(capped.lines, text.lines().count() as u64);
        assert_eq!(fixture.cap_bytes(text.as_bytes()).await, capped);
    }
    assert!(!fixture.context.output_file.exists());
}

#[tokio::test]
async fn too_many_lines_keep_their_beginning_and_their_end() {
    let fixture = fixture();
    let text: String = (1..=5000).map(|number| format!("line {number}\n")).collect();
    let capped = fixture.cap(&text).await;
    check_caps(&capped);
    assert!(capped.truncated);
    assert_eq!((capped.bytes, capped.lines), (text.len() as u64, 5000));
    assert!(capped.text.starts_with("line 1\nline 2\n"));
    assert!(
        capped.text.contains("\nline 990\n\n[… 3020 lines, 30191 bytes left out …]\n\nline 4011\n"),
        "{}",
        capped.text
    );
    assert!(capped.text.contains("\nline 5000\n\n[This was 5000 lines, "));
    let path = capped.file.unwrap();
    assert!(capped.text.contains(path.to_str().unwrap()));
    assert_eq!(fixture.saved(), text.as_bytes());
    let mode = fs_err::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn one_endless_line_is_cut_between_characters() {
    let fixture = fixture();
    let text = "é€😀".repeat(100_000);
    let capped = fixture.cap(&text).await;
    check_caps(&capped);
    assert!(!capped.text.contains('\u{fffd}'));
    assert_eq!(capped.lines, 1);
    assert!(capped.text.contains("bytes left out …]") && !capped.text.contains("lines"));
    assert_eq!(fixture.saved(), text.as_bytes());
}

#[tokio::test]
async fn nothing_is_counted_twice_or_lost() {
    let fixture = fixture();
    let text: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    for size in [1, 7, 4096, 1 << 20] {
        let text = &text.as_bytes()[..if size == 1 { 60_000 } else { text.len() }];
        let mut buffer = CappedBuffer::of(&fixture.context);
        for piece in text.chunks(size) {
            buffer.push(piece).await;
        }
        let capped = buffer.finish().await;
        check_caps(&capped);
        assert_eq!(capped.bytes, text.len() as u64);
        let (head, rest) = capped.text.split_once("\n\n[… ").unwrap();
        let (hidden, rest) = rest.split_once(" left out …]\n\n").unwrap();
        let (tail, _) = rest.split_once("\n\n[This was").unwrap();
        let tail_from = text.len() - 1 - tail.len();
        assert_eq!(&text[..head.len()], head.as_bytes());
        assert_eq!(&text[tail_from..text.len() - 1], tail.as_bytes());
        let between = tail_from - head.len() - 1;
        assert!(hidden.ends_with(&format!(" lines, {between} bytes")), "{hidden}, {between}");
        assert_eq!(fixture.saved(), text);
    }
}

#[tokio::test]
async fn binary_output_is_described_and_kept() {
    let fixture = fixture();
    let small = fixture.cap_bytes(b"a\0\0b\xff").await;
    assert_eq!((small.text.as_str(), small.truncated), ("a�b�", false));
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let large = fixture.cap_bytes(&bytes).await;
    assert!(large.text.starts_with("[binary output of 100000 bytes is not shown]"), "{}", large.text);
    assert!(large.truncated);
    assert_eq!(fixture.saved(), bytes);
}

#[tokio::test]
async fn bytes_that_grow_when_they_are_made_readable_stay_within_the_cap() {
    let fixture = fixture();
    for count in [40_000, 200_000] {
        let bytes: Vec<u8> = b"a\xff".iter().copied().cycle().take(count).collect();
        let capped = fixture.cap_bytes(&bytes).await;
        check_caps(&capped);
        assert!(capped.truncated);
        assert_eq!(fixture.saved(), bytes);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_said_and_ends_nothing() {
    let fixture = fixture();
    fs_err::write(fixture.folder.path().join("outputs"), "in the way").unwrap();
    let capped = fixture.cap(&"line\n".repeat(100_000)).await;
    check_caps(&capped);
    assert!(capped.text.contains("could not be saved: "), "{}", capped.text);
    assert!(capped.text.starts_with("line\n") && capped.truncated && capped.file.is_none());
}

#[tokio::test]
async fn a_push_that_is_given_up_loses_nothing() {
    let fixture = fixture();
    let mut buffer = CappedBuffer::of(&fixture.context);
    let piece = "0123456789\n".repeat(30_000);
    for _ in 0..5 {
        // Polled once: the piece is taken, the write is begun and not waited for.
        let _ = buffer.push(piece.as_bytes()).now_or_never();
    }
    let capped = buffer.finish().await;
    assert_eq!(capped.bytes, 5 * piece.len() as u64);
    assert_eq!(fixture.saved(), piece.repeat(5).as_bytes());
}

#[tokio::test]
async fn memory_is_bounded() {
    let mut buffer =
        CappedBuffer::new("/dev/null/x".into(), SessionStorage::alone("/dev/null".into()), Pool::new(1));
    let piece = [b'x'; PIECE];
    for _ in 0..2000 {
        buffer.push(&piece).await;
        assert!(buffer.head.capacity() + buffer.tail.capacity() <= 512 * 1024);
    }
    assert_eq!(buffer.last(3), "xxx");
    assert_eq!(buffer.finish().await.bytes, 2000 * PIECE as u64);
}

#[tokio::test]
async fn what_is_above_a_bound_is_cut_and_the_model_is_told_of_it() {
    let mut fixture = fixture();
    let limits = StorageLimits { outputs: Some(1 << 20), tenant: None, undo: None };
    let folder = fixture.context.workspace.output().to_owned();
    fixture.context.storage = Storage::new(limits).session("acme", folder, Vec::new());
    let capped = fixture.cap(&"0123456789\n".repeat(200_000)).await;
    check_caps(&capped);
    let told = "1048576 of 2200000 bytes are kept, the rest was not: the session's outputs may take 1 MB";
    assert!(capped.text.contains(told), "{}", capped.text);
    assert_eq!(fixture.saved().len(), 1 << 20);
}
