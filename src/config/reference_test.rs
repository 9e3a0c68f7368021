//! The page on the configuration holds the reference of all keys, as [`KEYS`](super::KEYS) has them.

use super::playhouse_config_reference;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/configuration.md");
const BEGIN: &str = "<!-- reference of the configuration: begin -->\n";
const END: &str = "<!-- reference of the configuration: end -->";
/// Set it to write the reference into the page instead of comparing it.
const UPDATE: &str = "PLAYHOUSE_UPDATE_REFERENCE";

#[test]
fn the_page_holds_the_reference_of_all_keys() {
    let page = fs_err::read_to_string(FILE).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the mark of the beginning is in the page");
    let (held, after) = rest.split_once(END).expect("the mark of the end is in the page");
    let reference = playhouse_config_reference();
    if std::env::var_os(UPDATE).is_some() {
        fs_err::write(FILE, format!("{before}{BEGIN}{reference}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(
        held, reference,
        "the page is behind: run `{UPDATE}=1 cargo test --lib the_page_holds` and look at what changed"
    );
}
