//! A tree as indented text, with as much of it as there is room for.

use std::fmt::Write as _;

use crate::files::directory::Kind;

/// Entries that are shown.
pub(super) const SHOWN: usize = 200;

/// Characters of a name that are shown. No file system has longer ones by much.
const NAME: usize = 255;

/// An entry, in the order of a walk: a directory before what it holds.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its name.
    pub(super) name: String,
    /// What it is.
    pub(super) kind: Kind,
    /// 1 for what lies in the listed directory.
    pub(super) depth: usize,
}

/// The text of a tree.
#[derive(Debug)]
pub(super) struct Tree {
    /// A line for each entry, and one wherever entries are left out.
    pub(super) text: String,
    /// Entries that are shown.
    pub(super) shown: usize,
}

impl Tree {
    /// Shows `nodes` level by level: what is nearer to the top comes first when there is not room for all.
    pub(super) fn of(nodes: &[Node]) -> Self {
        let mut is_shown = vec![false; nodes.len()];
        let mut shown = 0;
        let deepest = nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        for depth in 1..=deepest {
            for (index, node) in nodes.iter().enumerate() {
                if node.depth == depth && shown < SHOWN {
                    is_shown[index] = true;
                    shown += 1;
                }
            }
        }

        let mut text = String::new();
        // How many entries were left out at each depth, in the directory that the walk is in.
        let mut hidden: Vec<usize> = Vec::new();
        for (node, is_shown) in nodes.iter().zip(is_shown) {
            close(&mut text, &mut hidden, node.depth + 1);
            hidden.resize(hidden.len().max(node.depth + 1), 0);
            if is_shown {
                write_line(&mut text, node);
            } else {
                hidden[node.depth] += 1;
            }
        }
        close(&mut text, &mut hidden, 0);
        Self { text, shown }
    }
}

/// Tells what was left out in the directories that the walk came out of.
fn close(text: &mut String, hidden: &mut Vec<usize>, depth: usize) {
    while hidden.len() > depth {
        let count = hidden.pop().unwrap_or(0);
        if count > 0 {
            let _ = writeln!(text, "{}… {count} more", indent(hidden.len()));
        }
    }
}

fn write_line(text: &mut String, node: &Node) {
    let mark = match node.kind {
        Kind::Directory => "/",
        Kind::Link => "@",
        Kind::File | Kind::Other => "",
    };
    let name: String = node.name.chars().take(NAME).collect();
    let _ = writeln!(text, "{}{name}{mark}", indent(node.depth));
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(depth: usize, name: &str) -> Node {
        let kind = if name.ends_with('/') { Kind::Directory } else { Kind::File };
        Node { name: name.trim_end_matches('/').to_owned(), kind, depth }
    }

    #[test]
    fn a_small_tree_is_shown_whole() {
        let nodes = [node(1, "a/"), node(2, "b/"), node(3, "c"), node(2, "d"), node(1, "e")];
        let tree = Tree::of(&nodes);
        assert_eq!(tree.text, "  a/\n    b/\n      c\n    d\n  e\n");
        assert_eq!(tree.shown, 5);
    }

    #[test]
    fn what_is_left_out_is_counted_where_it_lies() {
        let mut nodes = vec![node(1, "big/")];
        nodes.extend((0..300).map(|number| node(2, &format!("f{number:03}"))));
        nodes.extend([node(1, "small/"), node(2, "x"), node(1, "z")]);
        let tree = Tree::of(&nodes);
        assert_eq!(tree.shown, SHOWN);
        let end: Vec<&str> = tree.text.lines().rev().take(4).collect();
        assert_eq!(end, ["  z", "    … 1 more", "  small/", "    … 103 more"]);
    }
}
