//! What versions of the ledger wrote, in files of `tests/golden/ledger`. It must stay readable for ever.
//!
//! `PLAYHOUSE_UPDATE_GOLDEN=1 cargo test -p playhouse-store golden` writes the files anew: right for a form that was added,
//! wrong for one that exists, whose new form is a new version with a file of its own.

use std::path::PathBuf;

use fs_err as fs;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ledger").join(name)
}

/// The bytes of a form that is written today: they must be `written`.
pub(super) fn of_today(name: &str, written: &[u8]) -> Vec<u8> {
    if std::env::var_os("PLAYHOUSE_UPDATE_GOLDEN").is_some() {
        fs::write(file(name), written).unwrap();
    }
    let golden = fs::read(file(name)).unwrap();
    let told = [&golden[..], written].map(|bytes| bytes.escape_ascii().to_string());
    assert!(golden == written, "{name} would be written in another form:\n{}\nis now\n{}", told[0], told[1]);
    golden
}

/// The bytes of a form that nothing writes any more.
pub(super) fn of_before(name: &str) -> Vec<u8> {
    fs::read(file(name)).unwrap()
}
