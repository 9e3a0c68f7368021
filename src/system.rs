//! The system prompt of a session: what it is made of, read where the session works. Blocks.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use playhouse_actors::ProfileRequest;
use playhouse_prompts::{
    Additions, Agent, Environment, GitState, PromptError, RulesFile, Skill, Skills, system_prompt,
};
use playhouse_protocol::Timestamp;
use playhouse_workspace::repository::{Repository, is_kept};

use crate::config::Settings;

/// The tool that loads skills.
pub(crate) const SKILL: &str = "skill";

/// A system prompt.
pub(crate) struct System {
    pub(crate) text: String,
    /// What was left out, and why.
    pub(crate) problems: Vec<PromptError>,
}

/// Makes the system prompt that `request` is for. `operator` are the settings without the workspace's part, `settings` those
/// with it; `skills` says whether the agent can load any.
pub(crate) fn make(
    request: &ProfileRequest,
    agent: &Agent,
    operator: &Settings,
    settings: &Settings,
    skills: bool,
) -> System {
    let root = Path::new(&request.workspace);
    let top = top(root, request.kept_to.as_deref());
    let mut problems = settings.left_out.clone();
    let environment = Environment {
        workspace: request.workspace.clone(),
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        git: top.as_deref().map_or(GitState::None, |top| git(top, settings)),
        date: date(request.created),
        model: request.model.clone(),
    };
    let above = top.map(|top| RulesFile::above(root, &top));
    let (above, unusable) = above.unwrap_or_default();
    problems.extend(unusable);
    // The workspace's own rules were added behind the operator's.
    let (of_operator, of_workspace) = settings.rules.split_at(operator.rules.len());
    let rules = RulesFile::once([of_operator, &above, of_workspace].concat());
    let skills =
        if skills { Skills::find(settings.tools.skills.as_deref(), root) } else { Skills::default() };
    problems.extend(skills.problems().cloned());
    let skills: Vec<Skill> = skills.iter().cloned().collect();
    let additions = Additions {
        rules: &rules,
        skills: &skills,
        operator: settings.append.as_deref(),
        session: request.system.as_deref(),
    };
    System { text: system_prompt(agent, &environment, &additions), problems }
}

/// The top of the repository that holds the workspace `root`: at or above it, as far up as its tenant may be, and as long as what
/// lies there belongs to whom the workspace belongs to. Anybody can put a repository above a directory that they share.
fn top(root: &Path, kept_to: Option<&[PathBuf]>) -> Option<PathBuf> {
    let owner = |folder: &Path| fs_err::metadata(folder).ok().map(|facts| facts.uid());
    let own = owner(root)?;
    let may_see = |folder: &&Path| {
        *folder == root
            || owner(folder) == Some(own)
                && kept_to.is_none_or(|kept| kept.iter().any(|directory| folder.starts_with(directory)))
    };
    let mut folders = root.ancestors().take_while(may_see);
    folders.find(|folder| is_kept(folder, &|path| path.starts_with(folder))).map(Path::to_owned)
}

fn git(top: &Path, settings: &Settings) -> GitState {
    let roots: Vec<PathBuf> =
        settings.roots.iter().filter_map(|root| fs_err::canonicalize(root).ok()).collect();
    let hidden = |path: &Path| settings.own.iter().any(|own| path.starts_with(own));
    let branch = Repository::open(top, &roots, &hidden).and_then(|repository| repository.branch());
    branch.map_or(GitState::NoBranch, GitState::Branch)
}

/// The day of `time` where this machine is, as in `2026-07-04`.
fn date(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => time.to_zoned(TimeZone::system()).date().to_string(),
        Err(_) => "unknown".to_owned(),
    }
}
