//! Whether git stores the content of a file in another form than the worktree has it.

use std::path::{Path, PathBuf};

use playhouse_sandbox::folder::Folder;
use playhouse_sandbox::process::Environment;

use super::LONGEST_LIST;

/// Attributes by which git changes a content in a way that its length does not show.
pub(crate) const CONVERTING: [&str; 3] = ["filter", "ident", "working-tree-encoding"];

/// The most configurations of the user that are read.
const MOST_FILES: usize = 20;

/// Whether an attributes file outside of the worktree and its repository may make git store contents in another form: one
/// that is configured, whatever it says, or that of the user or the system. Then an object of git's need not be the content
/// of its file. Blocks.
pub(super) fn convert_elsewhere(own: &Folder, common: &Folder) -> bool {
    let by_repository = [(common, "config"), (own, "config.worktree")].into_iter().any(|(folder, name)| {
        folder
            .text(name, LONGEST_LIST)
            .is_some_and(|text| names_a_file(&text) || text.to_lowercase().contains("[include"))
    });
    by_repository || by_user(&Environment::of_this_process(), Path::new("/etc"))
}

/// Whether a configuration names a file of attributes.
fn names_a_file(configuration: &str) -> bool {
    configuration.to_lowercase().contains("attributesfile")
}

/// `system` is the folder of the system's configuration.
fn by_user(environment: &Environment, system: &Path) -> bool {
    let variable = |name: &str| {
        let found = environment.variables().find(|(known, _)| *known == name);
        found.map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute())
    };
    let home = variable("HOME");
    let folder = variable("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    let mut settings: Vec<PathBuf> = match variable("GIT_CONFIG_GLOBAL") {
        Some(file) => vec![file],
        None => {
            let own = home.as_ref().map(|home| home.join(".gitconfig"));
            own.into_iter().chain(folder.as_ref().map(|folder| folder.join("git/config"))).collect()
        }
    };
    settings.push(system.join("gitconfig"));
    let mut at = 0;
    while let Some(file) = settings.get(at).cloned().filter(|_| at < MOST_FILES) {
        at += 1;
        let text = text(&file);
        if names_a_file(&text) {
            return true;
        }
        settings.extend(included(&text, &file, home.as_deref()));
    }
    let attributes = [folder.map(|folder| folder.join("git/attributes")), Some(system.join("gitattributes"))];
    let converts = |text: String| CONVERTING.iter().any(|name| text.contains(name));
    attributes.iter().flatten().any(|file| converts(text(file)))
}

/// The files that a configuration includes, whether a condition holds or not.
fn included(configuration: &str, file: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let (mut found, mut is_include) = (Vec::new(), false);
    for line in configuration.lines().map(str::trim) {
        if line.starts_with('[') {
            is_include = line.to_lowercase().starts_with("[include");
        }
        let Some((name, path)) = line.split_once('=').filter(|_| is_include) else { continue };
        let path = path.trim().trim_matches('"');
        if !name.trim().eq_ignore_ascii_case("path") {
            continue;
        }
        match (path.strip_prefix("~/"), home, file.parent()) {
            (Some(rest), Some(home), _) => found.push(home.join(rest)),
            (None, _, Some(folder)) => found.push(folder.join(path)),
            _ => {}
        }
    }
    found
}

/// The text of a file; nothing where it cannot be read.
fn text(file: &Path) -> String {
    let bytes = fs_err::read(file).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_attributes_of_the_user_count() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::empty().with("HOME", home.path());
        let place = home.path().join(".config/git");
        fs_err::create_dir_all(&place).unwrap();
        assert!(!by_user(&environment, home.path()));
        fs_err::write(place.join("attributes"), "*.cs diff=csharp\n").unwrap();
        assert!(!by_user(&environment, home.path()));
        fs_err::write(place.join("attributes"), "*.enc filter=crypt\n").unwrap();
        assert!(by_user(&environment, home.path()));
        fs_err::remove_file(place.join("attributes")).unwrap();
        let own = "[user]\n\tname = a\n[includeIf \"gitdir:~/projects/\"]\n\tpath = ~/more\n";
        fs_err::write(home.path().join(".gitconfig"), own).unwrap();
        assert!(!by_user(&environment, home.path()));
        fs_err::write(home.path().join("more"), "[core]\n\tattributesFile = ~/a\n").unwrap();
        assert!(by_user(&environment, home.path()));
        let other = environment.with("GIT_CONFIG_GLOBAL", home.path().join("nothing"));
        assert!(!by_user(&other, home.path()));
    }
}
