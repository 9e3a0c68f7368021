//! The names in a directory.

use std::fmt::Write as _;

use playhouse_workspace::Resolved;
use playhouse_workspace::door::{self, Kind};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use super::page;
use crate::files;
use crate::tool::{ToolError, ToolOutput};

/// Names that are looked at.
const MOST: usize = 50_000;

/// Lists `limit` names from the 1-based `offset` on, hidden ones too. Directories have a slash, links an at sign.
pub(super) fn list(
    place: &Resolved,
    offset: u64,
    limit: u64,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let mut names = Vec::new();
    let mut more = false;
    for entry in door::read_dir(place)? {
        if cancel.is_cancelled() {
            return Err(files::cancelled());
        }
        if names.len() == MOST {
            more = true;
            break;
        }
        let entry = entry?;
        let mark = match entry.kind {
            Kind::Directory => "/",
            Kind::Link => "@",
            _ => "",
        };
        names.push(format!("{}{mark}", entry.name.to_string_lossy()));
    }
    names.sort_unstable();

    let skipped = usize::try_from(offset - 1).unwrap_or(usize::MAX);
    if skipped >= names.len() && skipped > 0 {
        return Err(ToolError::Failed(format!(
            "offset {offset} is past the end of {}, which has {}",
            place.shown,
            files::counted(names.len(), "entry")
        )));
    }
    let mut output = String::new();
    let mut shown = 0;
    for name in names.iter().skip(skipped).take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        if output.len() + name.len() > page::BYTES {
            break;
        }
        let _ = writeln!(output, "{name}");
        shown += 1;
    }
    let all = if more { format!("more than {MOST}") } else { names.len().to_string() };
    if names.is_empty() {
        let _ = write!(output, "({} is an empty directory)", place.shown);
    } else if skipped > 0 || shown < names.len() || more {
        let last = skipped + shown;
        let _ = write!(output, "(entries {offset}-{last} of {all}");
        if last < names.len() {
            let _ = write!(output, "; read on with offset {}", last + 1);
        }
        output.push(')');
    }
    let mut metadata = Map::new();
    metadata.insert("filePath".into(), place.path.to_string_lossy().into());
    metadata.insert("entries".into(), shown.into());
    Ok(ToolOutput { title: place.shown.clone(), output, metadata, ..ToolOutput::default() })
}
