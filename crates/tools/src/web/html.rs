//! Pages of HTML as Markdown or text. The work is linear in the size of the page and does not nest, whatever it holds.

mod clean;
mod text;
mod tree;

use htmd::HtmlToMarkdown;
use htmd::options::{BulletListMarker, Options};
use reqwest::Url;

use tree::Tree;

/// A page in another form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The text.
    pub(super) text: String,
    /// What the page calls itself; may be empty.
    pub(super) title: String,
    /// Whether it is all of it: pages that are too large are cut.
    pub(super) whole: bool,
}

/// A page as Markdown, with links made absolute: `url` is where the page is. `None` when `stopped` says so.
pub(super) fn markdown(page: &str, url: &Url, stopped: &dyn Fn() -> bool) -> Option<Page> {
    let tree = Tree::read(page, stopped)?;
    let (clean, whole) = clean::clean(&tree, url);
    let title = clean::collapse(&tree.title);
    drop(tree);
    if stopped() {
        return None;
    }
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let converter = HtmlToMarkdown::builder().options(options).build();
    let markdown = converter.tree_to_markdown(&converter.html_to_tree(&clean).ok()?);
    Some(Page { text: markdown, title, whole })
}

/// A page as text. `None` when `stopped` says so.
pub(super) fn plain_text(page: &str, stopped: &dyn Fn() -> bool) -> Option<Page> {
    let tree = Tree::read(page, stopped)?;
    let (text, whole) = text::text(&tree);
    Some(Page { text, title: clean::collapse(&tree.title), whole })
}

#[cfg(test)]
mod tests;
