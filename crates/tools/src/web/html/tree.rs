//! A page as a tree that is bounded in depth and in nodes, whatever the page holds.
//!
//! The tokens are read as the standard says. The tree is built by rules that are simpler than the standard's: elements end
//! where their end is implied, what nests too deep is flattened, and nothing is ever copied or opened again. So the work
//! is linear in the size of the page, which that of the standard is not.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use html5ever::{Attribute, LocalName};

/// Elements within each other; deeper ones are left out, and their content stays.
const DEEPEST: usize = 128;
/// Elements and texts of a page; what follows is left out.
const MOST_NODES: usize = 300_000;
/// The page is read in pieces of this many bytes, between which the work can be stopped.
const PIECE: usize = 4 * 1024;
/// Reading takes a tenth of a second for the largest pages. The tokenizer compares each attribute of a tag with all before
/// it, so a tag that has a hundred thousand takes minutes: what is not read by then is left out.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest value of an attribute that is kept, in bytes.
const LONGEST_VALUE: usize = 4 * 1024;

/// Place of a node in [`Tree::nodes`].
pub(super) type Id = usize;

/// A page.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root is the first; each other one stands behind its parent.
    nodes: Vec<Node>,
    /// What `<title>` says.
    pub(super) title: String,
    /// Where relative links start from, if the page says so.
    pub(super) base: Option<String>,
    /// Whether something was left out because there is too much of it.
    pub(super) cut: bool,
}

/// An element or a text.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: Id,
    pub(super) content: Content,
    pub(super) children: Vec<Id>,
    /// Whether nobody reads it: the page hides it, or it is for moving about.
    pub(super) hidden: bool,
    /// Whether there is a block below it.
    pub(super) holds_block: bool,
    /// Whether there is a table below it.
    pub(super) holds_table: bool,
    /// For a form: whether it holds what pages are made of.
    pub(super) holds_page: bool,
}

#[derive(Debug)]
pub(super) enum Content {
    Element { name: LocalName, attributes: Vec<(LocalName, StrTendril)> },
    Text(String),
}

impl Node {
    fn new(parent: Id, content: Content) -> Self {
        Self {
            parent,
            content,
            children: Vec::new(),
            hidden: false,
            holds_block: false,
            holds_table: false,
            holds_page: false,
        }
    }

    /// The name of an element, in lower case; empty for a text.
    pub(super) fn name(&self) -> &str {
        match &self.content {
            Content::Element { name, .. } => name,
            Content::Text(_) => "",
        }
    }

    pub(super) fn attribute(&self, wanted: &str) -> Option<&str> {
        match &self.content {
            Content::Element { attributes, .. } => {
                attributes.iter().find(|(name, _)| &**name == wanted).map(|(_, value)| &**value)
            }
            Content::Text(_) => None,
        }
    }
}

impl Tree {
    pub(super) const ROOT: Id = 0;

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Reads a page. `None` when `stopped` says so in between.
    pub(super) fn read(page: &str, stopped: &dyn Fn() -> bool) -> Option<Self> {
        Self::read_within(page, PATIENCE, stopped)
    }

    /// The same, with what was read when `patience` is over.
    pub(super) fn read_within(page: &str, patience: Duration, stopped: &dyn Fn() -> bool) -> Option<Self> {
        let tokenizer = Tokenizer::new(Sink::default(), TokenizerOpts::default());
        let (mut rest, begun) = (page, Instant::now());
        while !rest.is_empty() {
            if stopped() {
                return None;
            }
            if begun.elapsed() > patience {
                break;
            }
            let (piece, after) = rest.split_at(boundary(rest, PIECE));
            let queue = BufferQueue::default();
            queue.push_back(StrTendril::from_slice(piece));
            // Ends before the queue is empty only where a script would run, which the sink never asks for.
            let _ = tokenizer.feed(&queue);
            rest = after;
        }
        tokenizer.end();
        let mut tree = tokenizer.sink.builder.into_inner().tree;
        tree.cut |= !rest.is_empty();
        tree.look_up();
        Some(tree)
    }

    /// Tells every node what stands below it.
    fn look_up(&mut self) {
        for id in (1..self.nodes.len()).rev() {
            let node = &self.nodes[id];
            if node.hidden {
                continue;
            }
            let (name, parent) = (node.name(), node.parent);
            let block = node.holds_block || is_block(name);
            let table = node.holds_table || name == "table";
            let page = node.holds_page || matches!(name, "main" | "article" | "h1" | "h2" | "pre");
            let parent = &mut self.nodes[parent];
            parent.holds_block |= block;
            parent.holds_table |= table;
            parent.holds_page |= page;
        }
    }
}

/// The last place up to `most` where `text` can be cut.
fn boundary(text: &str, most: usize) -> usize {
    let most = most.min(text.len());
    (0..=most).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(most)
}

/// Does this element begin on a line of its own?
pub(super) fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "center"
            | "dd"
            | "details"
            | "dialog"
            | "dir"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hgroup"
            | "hr"
            | "legend"
            | "li"
            | "listing"
            | "main"
            | "menu"
            | "ol"
            | "p"
            | "pre"
            | "search"
            | "section"
            | "summary"
            | "table"
            | "caption"
            | "thead"
            | "tbody"
            | "tfoot"
            | "tr"
            | "td"
            | "th"
            | "ul"
    )
}

/// Elements without content.
fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "basefont"
            | "bgsound"
            | "br"
            | "col"
            | "embed"
            | "frame"
            | "hr"
            | "img"
            | "input"
            | "keygen"
            | "link"
            | "meta"
            | "param"
            | "source"
            | "track"
            | "wbr"
    )
}

/// What is left out with all that it holds until its end: code, pictures in code, controls.
fn is_dropped(name: &str) -> bool {
    matches!(
        name,
        "applet"
            | "audio"
            | "canvas"
            | "colgroup"
            | "datalist"
            | "iframe"
            | "map"
            | "math"
            | "noembed"
            | "noframes"
            | "noscript"
            | "object"
            | "optgroup"
            | "option"
            | "script"
            | "select"
            | "style"
            | "svg"
            | "template"
            | "textarea"
            | "video"
            | "xmp"
    )
}

/// Does the page hide it, or is it for moving about?
fn is_hidden(tag: &Tag) -> bool {
    if matches!(&*tag.name, "nav" | "button") {
        return true;
    }
    tag.attrs.iter().any(|attribute| {
        let value = &*attribute.value;
        match &*attribute.name.local {
            "hidden" => !value.eq_ignore_ascii_case("until-found"),
            // A page behind an open dialog is hidden from readers of screens only.
            "aria-hidden" => value == "true" && !matches!(&*tag.name, "main" | "article" | "section" | "div"),
            "role" => matches!(value, "navigation" | "search" | "menu" | "menubar"),
            "style" => {
                let style: String = value.chars().take(500).filter(|c| !c.is_whitespace()).collect();
                let style = style.to_ascii_lowercase();
                style.contains("display:none") || style.contains("visibility:hidden")
            }
            "class" => value.split_ascii_whitespace().any(|class| {
                matches!(
                    class,
                    "lineno"
                        | "linenos"
                        | "linenodiv"
                        | "line-number"
                        | "line-numbers"
                        | "line-numbers-rows"
                        | "gutter"
                        | "blob-num"
                        | "headerlink"
                )
            }),
            _ => false,
        }
    })
}

/// Attributes that are looked at later.
fn is_kept(name: &str) -> bool {
    matches!(
        name,
        "href"
            | "src"
            | "data-src"
            | "alt"
            | "class"
            | "start"
            | "colspan"
            | "data-lang"
            | "data-language"
            | "lang"
    )
}

#[derive(Default)]
struct Sink {
    builder: RefCell<Builder>,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut builder = self.builder.borrow_mut();
        match token {
            Token::CharacterTokens(text) => builder.text(&text),
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => return builder.start(tag),
            Token::TagToken(tag) => builder.end(&tag.name),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// Puts tokens into the tree.
struct Builder {
    tree: Tree,
    /// The elements that are open, the root not among them.
    open: Vec<Id>,
    /// How many elements are open that are not in the tree because they are too deep.
    flattened: usize,
    /// What is left out now: the element that began it, and how many of its name are open within.
    dropped: Option<(LocalName, usize)>,
    in_title: bool,
}

impl Default for Builder {
    fn default() -> Self {
        let root = Node::new(Tree::ROOT, Content::Text(String::new()));
        let tree = Tree { nodes: vec![root], title: String::new(), base: None, cut: false };
        Self { tree, open: Vec::new(), flattened: 0, dropped: None, in_title: false }
    }
}

impl Builder {
    fn text(&mut self, text: &str) {
        if self.in_title {
            if self.tree.title.len() < LONGEST_VALUE {
                self.tree.title.push_str(text);
            }
            return;
        }
        if self.dropped.is_some() {
            return;
        }
        let parent = self.parent();
        if let Some(&last) = self.tree.nodes[parent].children.last()
            && let Content::Text(before) = &mut self.tree.nodes[last].content
        {
            before.push_str(text);
            return;
        }
        self.add(Content::Text(text.to_owned()));
    }

    fn start(&mut self, tag: Tag) -> TokenSinkResult<()> {
        let name = &*tag.name;
        let raw = match name {
            "script" => TokenSinkResult::RawData(RawKind::ScriptData),
            "style" | "xmp" | "iframe" | "noembed" | "noframes" | "noscript" => {
                TokenSinkResult::RawData(RawKind::Rawtext)
            }
            "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
            "plaintext" => return TokenSinkResult::Plaintext,
            _ => TokenSinkResult::Continue,
        };
        if let Some((outer, depth)) = &mut self.dropped {
            // Within drawings elements may close themselves.
            let foreign = matches!(&**outer, "svg" | "math");
            if foreign && tag.self_closing {
                return TokenSinkResult::Continue;
            }
            if *outer == tag.name {
                *depth += 1;
            }
            return raw;
        }
        match name {
            "html" | "head" | "body" => return TokenSinkResult::Continue,
            "title" => {
                self.in_title = self.tree.title.is_empty();
                self.dropped = Some((tag.name, 1));
                return raw;
            }
            "base" => {
                let href = tag.attrs.iter().find(|attribute| &*attribute.name.local == "href");
                if let (None, Some(href)) = (&self.tree.base, href) {
                    self.tree.base = Some(href.value.to_string());
                }
                return TokenSinkResult::Continue;
            }
            "math" => {
                if let Some(text) = tag.attrs.iter().find(|attribute| &*attribute.name.local == "alttext") {
                    self.text(&text.value);
                }
            }
            _ => {}
        }
        if is_dropped(name) {
            if !(matches!(name, "svg" | "math") && tag.self_closing) {
                self.dropped = Some((tag.name, 1));
            }
            return raw;
        }
        let void = is_void(name);
        self.close_implied(name);
        if void {
            if matches!(name, "br" | "hr" | "img") {
                self.element(tag);
            }
            return raw;
        }
        if self.open.len() >= DEEPEST {
            self.flattened += 1;
        } else if let Some(id) = self.element(tag) {
            self.open.push(id);
        }
        raw
    }

    fn end(&mut self, name: &LocalName) {
        if let Some((outer, depth)) = &mut self.dropped {
            if outer == name {
                *depth -= 1;
                if *depth == 0 {
                    self.dropped = None;
                    self.in_title = false;
                }
            }
            return;
        }
        let text = &**name;
        if is_void(text) || matches!(text, "html" | "head" | "body") {
            return;
        }
        if self.flattened > 0 {
            self.flattened -= 1;
            return;
        }
        // What ends within a cell began within it.
        let barriers: &[&str] = match text {
            "table" => &[],
            "td" | "th" | "tr" | "thead" | "tbody" | "tfoot" | "caption" => &["table"],
            _ => &["td", "th", "caption", "table"],
        };
        self.close(&[text], barriers);
    }

    /// Closes what ends without saying so where an element of this name begins.
    fn close_implied(&mut self, name: &str) {
        if self.flattened > 0 {
            return;
        }
        const CELLS: [&str; 4] = ["td", "th", "caption", "table"];
        match name {
            "li" => self.close(&["li"], &["ul", "ol", "menu", "dir", "td", "th", "caption", "table"]),
            "dt" | "dd" => self.close(&["dt", "dd"], &["dl", "td", "th", "caption", "table"]),
            "td" | "th" => self.close(&["td", "th", "caption"], &["tr", "table"]),
            "tr" => self.close(&["tr", "caption"], &["table"]),
            "thead" | "tbody" | "tfoot" => self.close(&["thead", "tbody", "tfoot", "caption"], &["table"]),
            "a" => self.close(&["a"], &CELLS),
            _ => {}
        }
        if is_block(name) {
            self.close(&["p"], &CELLS);
        }
    }

    /// Closes the innermost open element of these names, and what is open within it.
    fn close(&mut self, names: &[&str], barriers: &[&str]) {
        for (place, id) in self.open.iter().enumerate().rev() {
            let name = self.tree.nodes[*id].name();
            if names.contains(&name) {
                self.open.truncate(place);
                return;
            }
            if barriers.contains(&name) {
                return;
            }
        }
    }

    fn element(&mut self, tag: Tag) -> Option<Id> {
        let keep =
            |attribute: &Attribute| is_kept(&attribute.name.local) && attribute.value.len() <= LONGEST_VALUE;
        let hidden = is_hidden(&tag);
        let attributes = tag.attrs.into_iter().filter(keep);
        let attributes = attributes.map(|attribute| (attribute.name.local, attribute.value)).collect();
        let id = self.add(Content::Element { name: tag.name, attributes })?;
        self.tree.nodes[id].hidden = hidden;
        Some(id)
    }

    fn add(&mut self, content: Content) -> Option<Id> {
        let id = self.tree.nodes.len();
        if id >= MOST_NODES {
            self.tree.cut = true;
            return None;
        }
        let parent = self.parent();
        self.tree.nodes.push(Node::new(parent, content));
        self.tree.nodes[parent].children.push(id);
        Some(id)
    }

    fn parent(&self) -> Id {
        self.open.last().copied().unwrap_or(Tree::ROOT)
    }
}
