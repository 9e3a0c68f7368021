//! Which skills there are, whose counts, and what cannot be read by their way.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;

/// An operator's folder of skills, and a workspace.
struct Place {
    operator: TempDir,
    workspace: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { operator: tempfile::tempdir().unwrap(), workspace: tempfile::tempdir().unwrap() }
    }

    fn skill(root: &Path, folder: &str, name: &str) {
        fs_err::create_dir_all(root.join(folder)).unwrap();
        let text = format!("---\nname: {name}\ndescription: from {folder}\n---\n\nDo {name}.\n");
        fs_err::write(root.join(folder).join(FILE), text).unwrap();
    }

    fn find(&self) -> Skills {
        Skills::find(Some(self.operator.path()), self.workspace.path())
    }

    /// The problems, without where the folders are.
    fn problems(&self, skills: &Skills) -> Vec<String> {
        let plain = |problem: &PromptError| {
            let text = problem.to_string();
            let text = text.replace(&*self.workspace.path().to_string_lossy(), "WORK");
            text.replace(&*self.operator.path().to_string_lossy(), "OPERATOR")
        };
        skills.problems().map(plain).collect()
    }
}

#[test]
fn the_operators_come_first_and_then_the_first_of_a_name() {
    let place = Place::new();
    let (operator, workspace) = (place.operator.path(), place.workspace.path());
    Place::skill(operator, "release", "release");
    Place::skill(workspace, ".playhouse/skills/pdf", "pdf");
    Place::skill(workspace, ".claude/skills/pdf", "pdf");
    Place::skill(workspace, ".claude/skills/release", "release");
    Place::skill(workspace, ".agents/skills/other", "anything");
    symlink("../../.agents/skills/other", workspace.join(".claude/skills/link")).unwrap();
    fs_err::write(workspace.join(".claude/skills/README.md"), "about").unwrap();
    fs_err::create_dir(workspace.join(".claude/skills/empty")).unwrap();
    let skills = place.find();
    let found: Vec<_> =
        skills.iter().map(|skill| (skill.name.as_str(), skill.description.as_str())).collect();
    assert_eq!(
        found,
        [
            ("anything", "from .agents/skills/other"),
            ("pdf", "from .playhouse/skills/pdf"),
            ("release", "from release")
        ]
    );
    assert_eq!(skills.get("release").unwrap().owner, SkillOwner::Operator);
    assert_eq!(
        place.problems(&skills),
        [
            "WORK/.claude/skills/release/SKILL.md: the operator has a skill \"release\": give this one another name"
        ]
    );
    assert!(Skills::find(None, &workspace.join("nowhere")).iter().next().is_none());
}

#[test]
fn what_cannot_be_read_is_left_out_and_told() {
    let place = Place::new();
    let (operator, workspace) = (place.operator.path(), place.workspace.path());
    Place::skill(operator, "good", "good");
    Place::skill(workspace, ".claude/skills/bad", "Bad Name");
    symlink(operator.join("good"), workspace.join(".claude/skills/out")).unwrap();
    fs_err::create_dir_all(workspace.join(".agents")).unwrap();
    symlink(operator, workspace.join(".agents/skills")).unwrap();
    fs_err::create_dir(operator.join("foreign")).unwrap();
    fs_err::write(operator.join("foreign/SKILL.md"), b"---\nname: foreign\n\xff\n---").unwrap();
    let long = "x".repeat(300_000);
    fs_err::create_dir(operator.join("long")).unwrap();
    fs_err::write(operator.join("long/SKILL.md"), long).unwrap();
    let skills = place.find();
    assert_eq!(skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["good"]);
    insta::assert_snapshot!(place.problems(&skills).join("\n"), @r#"
    OPERATOR/foreign/SKILL.md:3: this line is not UTF-8
    OPERATOR/long/SKILL.md: is 300000 bytes long; a file of a skill has at most 262144
    WORK/.claude/skills/bad/SKILL.md:2: "Bad Name" is not a name for a skill: use up to 64 lower-case letters, digits, `-` and `_`
    WORK/.claude/skills/out/SKILL.md: cannot be read: it leads outside of the workspace
    WORK/.agents/skills: cannot be used as a folder of skills: it leads outside of the workspace
    "#);
    assert!(skills.problem_of("bad").is_some() && skills.problem_of("good").is_none());
}

#[test]
fn instructions_come_with_the_names_of_the_other_files() {
    let place = Place::new();
    let root = place.workspace.path().join(".agents/skills/pdf");
    Place::skill(place.workspace.path(), ".agents/skills/pdf", "pdf");
    fs_err::create_dir_all(root.join("scripts/deep")).unwrap();
    fs_err::create_dir_all(root.join(".git/objects")).unwrap();
    for file in ["reference.md", "scripts/fill.py", "scripts/deep/SKILL.md", ".git/HEAD", ".git/objects/1"] {
        fs_err::write(root.join(file), "x").unwrap();
    }
    let skills = place.find();
    let pdf = skills.get("pdf").unwrap();
    let instructions = skills.instructions(pdf).unwrap();
    assert_eq!(instructions.text, "Do pdf.");
    assert_eq!(instructions.files, ["reference.md", "scripts/deep/SKILL.md", "scripts/fill.py"]);
    fs_err::remove_dir_all(&root).unwrap();
    let error = skills.instructions(pdf).unwrap_err().to_string();
    assert!(error.ends_with("pdf/SKILL.md: is not there any more"), "{error}");
}

#[test]
fn the_files_of_a_skill_are_read_and_no_others() {
    let place = Place::new();
    let (operator, workspace) = (place.operator.path(), place.workspace.path());
    Place::skill(operator, "pdf", "pdf");
    Place::skill(workspace, ".claude/skills/form", "form");
    fs_err::write(operator.join("pdf/more.md"), "more").unwrap();
    fs_err::write(operator.join("pdf/run"), [0, 0xff]).unwrap();
    fs_err::set_permissions(operator.join("pdf/run"), Permissions::from_mode(0o755)).unwrap();
    fs_err::write(operator.join("key"), "secret").unwrap();
    symlink("../key", operator.join("pdf/out")).unwrap();
    symlink(operator.join("key"), workspace.join(".claude/skills/form/out")).unwrap();
    symlink("more.md", operator.join("pdf/same")).unwrap();
    let skills = place.find();
    let read = |skill: &str, file: &str| {
        let content = skills.content(skills.get(skill).unwrap(), file, 3);
        let content = content.map_err(|error| error.to_string())?;
        Ok::<_, String>(content.map(|content| (content.bytes, content.size, content.runs)))
    };
    let more = Ok(Some((b"mor".to_vec(), 4, false)));
    assert_eq!((read("pdf", "./more.md"), read("pdf", "same")), (more.clone(), more));
    assert_eq!(read("pdf", "run"), Ok(Some((vec![0, 0xff], 2, true))));
    assert_eq!(read("pdf", "absent"), Ok(None));
    let operator = operator.join("key");
    for file in ["out", "../key", operator.to_str().unwrap()] {
        let error = read("pdf", file).unwrap_err();
        assert!(error.ends_with("cannot be read: it leads out of the skill's folder"), "{error}");
    }
    let error = read("form", "out").unwrap_err();
    assert_eq!(error, "out: cannot be read: it leads outside of the workspace");
}

#[test]
fn a_skill_that_says_too_much_of_itself_is_left_out() {
    let place = Place::new();
    for (root, name) in [(place.operator.path(), "theirs"), (place.workspace.path(), "ours")] {
        let folder = match name {
            "theirs" => root.join(name),
            _ => root.join(".playhouse/skills").join(name),
        };
        fs_err::create_dir_all(&folder).unwrap();
        let text = format!(
            "---\nname: {name}\ndescription: >\n  {}\n---\nDo it.",
            "word ".repeat(if name == "ours" { 205 } else { 206 })
        );
        fs_err::write(folder.join(FILE), text).unwrap();
    }
    let skills = place.find();
    assert_eq!(skills.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["ours"]);
    insta::assert_snapshot!(place.problems(&skills).join("\n"), @"OPERATOR/theirs/SKILL.md:3: `description` has 1029 characters, and 1024 at most are read: say in a sentence or two what the skill is for, and the rest in its text");
}
