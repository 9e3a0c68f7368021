//! How git may convert contents of files.

use std::path::{Path, PathBuf};

use playhouse_sandbox::folder::Folder;
use playhouse_sandbox::process::Environment;

use super::LONGEST_LIST;

/// Attributes by which git changes a content in a way that its length does not show.
pub(crate) const CONVERTING: [&str; 3] = ["filter", "ident", "working-tree-encoding"];

/// Whether contents may be converted by files of attributes outside of the worktree and its repository: by one that is
/// configured, whatever it says, or by that of the user or of the system. What git keeps of a file need not be its content then. Blocks.
pub(super) fn convert_elsewhere(own: &Folder, common: &Folder) -> bool {
    let by_repository = [(common, "config"), (own, "config.worktree")]
        .into_iter()
        .any(|(folder, name)| folder.text(name, LONGEST_LIST).is_some_and(|text| names_a_file(&text)));
    by_repository || by_user(&Environment::of_this_process(), Path::new("/etc"))
}

/// Whether a configuration names a file of attributes, or other configurations, which may.
fn names_a_file(configuration: &str) -> bool {
    let text = configuration.to_lowercase();
    text.contains("attributesfile") || text.contains("[include")
}

/// `system` is the folder of the system's configuration.
fn by_user(environment: &Environment, system: &Path) -> bool {
    let variable = |name: &str| {
        let found = environment.variables().find(|(known, _)| *known == name);
        found.map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute())
    };
    let home = variable("HOME");
    let folder = variable("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    let settings = [
        home.map(|home| home.join(".gitconfig")),
        folder.as_ref().map(|folder| folder.join("git/config")),
        Some(system.join("gitconfig")),
    ];
    let attributes = [folder.map(|folder| folder.join("git/attributes")), Some(system.join("gitattributes"))];
    let converts = |text: String| CONVERTING.iter().any(|name| text.contains(name));
    settings.iter().flatten().any(|file| names_a_file(&text(file)))
        || attributes.iter().flatten().any(|file| converts(text(file)))
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
        for configured in ["[core]\n\tattributesFile = ~/a\n", "[include]\n\tpath = more\n"] {
            fs_err::write(home.path().join(".gitconfig"), configured).unwrap();
            assert!(by_user(&environment, home.path()), "{configured}");
        }
    }
}
