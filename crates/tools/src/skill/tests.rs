use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use playhouse_protocol::walls::{Sandbox, WallsAllowed};
use playhouse_sandbox::{Walls, WallsSpec};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::testing;
use crate::{NativeOptions, Registry};

struct Place {
    operator: TempDir,
    workspace: TempDir,
    /// Holds that of the session.
    outputs: TempDir,
}

fn mode(mode: u32) -> std::fs::Permissions {
    std::fs::Permissions::from_mode(mode)
}

impl Place {
    fn new() -> Self {
        let [operator, workspace, outputs] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let place = Self { operator, workspace, outputs };
        place.skill(place.operator.path(), "release");
        place.skill(&place.workspace.path().join(".claude/skills"), "pdf");
        place
    }

    fn skill(&self, folder: &Path, name: &str) {
        let folder = folder.join(name);
        fs_err::create_dir_all(folder.join("scripts")).unwrap();
        let text = format!("---\nname: {name}\ndescription: d\n---\nDo {name}.\n");
        fs_err::write(folder.join("SKILL.md"), text).unwrap();
        fs_err::write(folder.join("scripts/run.sh"), "echo").unwrap();
    }

    fn context(&self) -> CallContext {
        testing::context(self.workspace.path(), &self.outputs.path().join("o")).unwrap()
    }

    fn registry(&self) -> Registry {
        let skills = Some(self.operator.path().to_owned());
        Registry::native_with(NativeOptions { skills, ..NativeOptions::default() })
    }

    /// None, and those that are required.
    fn walls(&self) -> [Walls; 2] {
        let outputs = fs_err::canonicalize(self.outputs.path()).unwrap();
        let spec = WallsSpec {
            sandbox: Sandbox::Required,
            allowed: WallsAllowed::default(),
            workspace: fs_err::canonicalize(self.workspace.path()).unwrap(),
            output: outputs.join("o"),
            shared: Vec::new(),
            home: outputs.join("home"),
            hidden: vec![self.operator.path().to_owned()],
            roots: Vec::new(),
        };
        [Walls::open(), Walls::build(&spec).unwrap()]
    }

    async fn call(&self, input: Value) -> Result<ToolOutput, String> {
        let called = testing::call(&self.registry(), "skill", &input, &self.context()).await;
        called.map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn instructions_are_loaded_with_where_the_other_files_are() {
    let place = Place::new();
    let pdf = place.call(json!({"name": "pdf"})).await.unwrap();
    assert_eq!(
        pdf.output,
        "<skill name=\"pdf\">\nDo pdf.\n</skill>\n\nIts folder is .claude/skills/pdf. Its other files, for `read` and \
         `bash`, from there on:\n- scripts/run.sh"
    );
    assert_eq!((pdf.title.as_str(), &pdf.metadata["files"]), ("pdf", &json!(["scripts/run.sh"])));
    fs_err::remove_dir_all(place.workspace.path().join(".claude/skills/pdf/scripts")).unwrap();
    let pdf = place.call(json!({"name": "pdf"})).await.unwrap();
    assert!(
        pdf.output.ends_with("Its folder is .claude/skills/pdf. It has no other files."),
        "{}",
        pdf.output
    );
}

#[tokio::test]
async fn the_files_of_an_operators_skill_are_copied_for_the_session() {
    let place = Place::new();
    let copy = place.outputs.path().join("o/skills/release");
    fs_err::set_permissions(place.operator.path().join("release/scripts/run.sh"), mode(0o755)).unwrap();
    let release = place.call(json!({"name": "release"})).await.unwrap();
    let told = format!(
        "Its folder is {}, a copy for this session: when it is gone, load the skill again. Its other files, for `read` \
         and `bash`, from there on:\n- scripts/run.sh",
        copy.display()
    );
    assert!(release.output.ends_with(&told), "{}", release.output);
    assert_eq!(release.metadata["folder"], json!(copy));
    assert_eq!(fs_err::read_to_string(copy.join("scripts/run.sh")).unwrap(), "echo");
    assert_eq!(fs_err::metadata(copy.join("scripts/run.sh")).unwrap().permissions().mode() & 0o777, 0o700);
    // Where the operator keeps it is not told.
    let operator = place.operator.path().to_str().unwrap();
    assert!(!format!("{} {:?}", release.output, release.metadata).contains(operator));

    // It is as the skill is when it is loaded, and nothing else is left there.
    let skill = place.operator.path().join("release");
    fs_err::remove_dir_all(skill.join("scripts")).unwrap();
    fs_err::write(skill.join("notes.md"), "new").unwrap();
    place.call(json!({"name": "release"})).await.unwrap();
    assert!(!copy.join("scripts").exists());
    assert_eq!(fs_err::read_to_string(copy.join("notes.md")).unwrap(), "new");
    let names = |folder: &Path| {
        let names = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&place.outputs.path().join("o")), names(&copy)),
        (vec!["skills".into()], vec!["notes.md".into()])
    );
}

#[tokio::test]
async fn a_session_reads_and_runs_what_it_loaded_within_walls_and_without() {
    let place = Place::new();
    let kept = fs_err::canonicalize(place.operator.path()).unwrap().join("release/scripts/run.sh");
    fs_err::write(&kept, "#!/bin/sh\necho \"ran $1\"\n").unwrap();
    fs_err::set_permissions(&kept, mode(0o755)).unwrap();
    let outputs = fs_err::canonicalize(place.outputs.path()).unwrap();
    let copy = outputs.join("o/skills/release/scripts/run.sh").display().to_string();
    for (walls, held) in place.walls().into_iter().zip([false, true]) {
        let mut context = place.context();
        context.walls = walls;
        let call = async |tool: &str, input: Value| {
            let called = testing::call(&place.registry(), tool, &input, &context).await;
            called.map(|output| output.output).map_err(|error| error.to_string())
        };
        call("skill", json!({"name": "release"})).await.unwrap();
        assert_eq!(call("bash", json!({"command": format!("{copy} well")})).await.unwrap(), "ran well\n");
        let read = call("read", json!({"filePath": copy})).await.unwrap();
        assert!(read.contains("echo \"ran $1\""), "{read}");
        // Rules see what is named; what they cannot tell is for the walls.
        let error = call("bash", json!({"command": format!("echo '#' > {copy}")})).await.unwrap_err();
        assert!(error.contains("which can only be read"), "{error}");
        let works = async |command: String| {
            call("bash", json!({"command": format!("{command} && echo works")}))
                .await
                .unwrap()
                .contains("works")
        };
        assert_eq!(works(format!("cat \"$(printf %s '{}')\"", kept.display())).await, !held);
        assert_eq!(works(format!("touch \"$(printf %s '{copy}')\"")).await, !held);
    }
}

#[tokio::test]
async fn scripts_of_a_copy_run_in_all_usual_forms() {
    let place = Place::new();
    let skill = fs_err::canonicalize(place.operator.path()).unwrap().join("release");
    fs_err::write(skill.join("scripts/run.sh"), "#!/bin/sh\necho \"ran $1\"\n").unwrap();
    fs_err::set_permissions(skill.join("scripts/run.sh"), mode(0o755)).unwrap();
    fs_err::write(skill.join("lib.sh"), "well() { echo \"ran $1\"; }\n").unwrap();
    fs_err::write(skill.join("said"), "ran well\n").unwrap();
    fs_err::write(skill.join("packed.sh"), "well() { echo \"ran $1\"; }\n").unwrap();
    let mut tar = std::process::Command::new("tar");
    assert!(tar.args(["-cf", "lib.tar", "packed.sh"]).current_dir(&skill).status().unwrap().success());
    fs_err::write(skill.join("x.awk"), "BEGIN { print \"ran well\" }\n").unwrap();
    fs_err::write(skill.join("Makefile"), "all:\n\t@echo ran well\n").unwrap();
    let folder = fs_err::canonicalize(place.outputs.path()).unwrap().join("o/skills/release");
    let (f, w) = (folder.display(), fs_err::canonicalize(place.workspace.path()).unwrap());
    let w = w.display();
    for walls in place.walls() {
        let context = CallContext { walls, ..place.context() };
        let bash = async |input: Value| {
            let called = testing::call(&place.registry(), "bash", &input, &context).await;
            called.map_or_else(|error| error.to_string(), |output| output.output)
        };
        testing::call(&place.registry(), "skill", &json!({"name": "release"}), &context).await.unwrap();
        for command in [
            format!("{f}/scripts/run.sh well"),
            format!("sh {f}/scripts/run.sh well"),
            format!("bash -e {f}/scripts/run.sh well"),
            format!(". {f}/lib.sh && well well"),
            format!("source {f}/lib.sh; well well"),
            format!("cd {f} && scripts/run.sh well"),
            format!("cd {f}/scripts && bash run.sh well"),
            format!("(cd {f} && sh scripts/run.sh well)"),
            format!("(cd {f} && sh scripts/run.sh well) > {w}/made.txt; cat {w}/made.txt; rm {w}/made.txt"),
            format!("awk -f {f}/x.awk"),
            format!("python3 -c 'import sys; print(open(sys.argv[1]).read(), end=\"\")' {f}/said"),
            format!("cp {f}/scripts/run.sh . && sh ./run.sh well && rm run.sh"),
            format!("tar -xf {f}/lib.tar && . ./packed.sh && well well && rm packed.sh"),
            format!("env A=1 timeout 9 sh {f}/scripts/run.sh well > made.txt; cat made.txt; rm made.txt"),
        ] {
            let said = bash(json!({"command": command})).await;
            assert_eq!(said, "ran well\n", "{command}");
        }
        for command in ["scripts/run.sh well", "sh scripts/run.sh well", "make -s"] {
            let said = bash(json!({"command": command, "workdir": folder})).await;
            assert_eq!(said, "ran well\n", "{command}");
        }
        for command in [
            format!("echo a > {f}/lib.sh"),
            format!("rm -rf {f}/scripts"),
            format!("cp made.txt {f}/"),
            format!("mv {f}/lib.sh ."),
            format!("echo a | tee -a {f}/lib.sh"),
            format!("sed -i s/a/b/ {f}/lib.sh"),
            format!("cd {f} && rm lib.sh"),
            format!("cd {f}; touch lib.sh"),
            // Where it is then is not looked at: it may have stayed.
            format!("cd {f}; cd {w} | rm lib.sh"),
            format!("cd {f}; false && cd {w}; rm lib.sh"),
            format!("cd {f}; (cd {w}); echo x > lib.sh"),
            format!("sort -o {f}/lib.sh made.txt"),
            format!("find -L {f} -name lib.sh -delete"),
            format!("find {f} -name lib.sh -exec rm -f {{}} +"),
            format!("find {f}/.. -maxdepth 0 -execdir ls ';'"),
            format!("env -C {f} rm lib.sh"),
            format!("env -C {f} cat lib.sh"),
            format!("gzip {f}/lib.sh"),
            format!("tar xf {f}/lib.tar -C {f}"),
            format!("perl -pi -e s/a/b/ {f}/lib.sh"),
            format!("ln {f}/lib.sh hard"),
            format!("cp made.txt {f}/lib.sh -S .bak"),
        ] {
            let said = bash(json!({"command": command})).await;
            assert!(said.contains("which can only be read"), "{command}: {said}");
        }
        let said = bash(json!({"command": "rm lib.sh", "workdir": folder})).await;
        assert!(said.contains("which can only be read"), "{said}");
        let path = folder.join("lib.sh");
        for (tool, input) in [
            ("write", json!({"filePath": path, "content": "x"})),
            ("edit", json!({"filePath": path, "oldString": "well", "newString": "x"})),
        ] {
            let called = testing::call(&place.registry(), tool, &input, &context).await;
            assert!(called.is_err_and(|error| error.to_string().contains("can only be read")), "{tool}");
        }
        assert!(fs_err::read_to_string(path).unwrap().starts_with("well()"));
    }
}

#[tokio::test]
async fn what_cannot_be_copied_is_named() {
    let place = Place::new();
    let skill = place.operator.path().join("release");
    fs_err::write(place.operator.path().join("key"), "secret").unwrap();
    std::os::unix::fs::symlink("../key", skill.join("out")).unwrap();
    fs_err::File::create(skill.join("huge")).unwrap().file().set_len(17 * 1024 * 1024).unwrap();
    let release = place.call(json!({"name": "release"})).await.unwrap();
    let said = "from there on:\n- scripts/run.sh\n\nNot copied:\n- out: it leads out of the skill's folder\n- huge: it has \
                17825792 bytes, and 16777216 are copied at most";
    assert!(release.output.ends_with(said), "{}", release.output);
    assert_eq!(release.metadata["files"], json!(["scripts/run.sh"]));
    let copy = place.outputs.path().join("o/skills/release");
    assert!(copy.join("scripts/run.sh").exists() && !copy.join("out").exists());

    // Where nothing can be written, the instructions come all the same.
    fs_err::remove_dir_all(place.outputs.path().join("o")).unwrap();
    fs_err::write(place.outputs.path().join("o"), "in the way").unwrap();
    let release = place.call(json!({"name": "release"})).await.unwrap();
    let said =
        "Do release.\n</skill>\n\nIts other files could not be copied for this session: not a directory";
    assert!(release.output.ends_with(said), "{}", release.output);
    assert_eq!(release.metadata["files"], json!([]));
}

#[tokio::test]
async fn what_there_is_not_is_answered_with_what_there_is() {
    let place = Place::new();
    let error = place.call(json!({"name": "pfd"})).await.unwrap_err();
    assert_eq!(error, "there is no skill \"pfd\": there are pdf, release; did you mean pdf?");
    fs_err::create_dir_all(place.workspace.path().join(".agents/skills/bad")).unwrap();
    fs_err::write(place.workspace.path().join(".agents/skills/bad/SKILL.md"), "---\nname: bad\n").unwrap();
    let error = place.call(json!({"name": "bad"})).await.unwrap_err();
    assert!(error.contains("bad/SKILL.md:1: the head that begins here has no closing `---`"), "{error}");
}

#[tokio::test]
async fn a_copy_that_fails_leaves_nothing_and_tells_no_place() {
    let place = Place::new();
    let context = place.context();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), place.outputs.path().join("o")).unwrap();
    let release =
        testing::call(&place.registry(), "skill", &json!({"name": "release"}), &context).await.unwrap();
    let said = "Its other files could not be copied for this session: not a directory";
    assert!(release.output.ends_with(said), "{}", release.output);
    assert_eq!(fs_err::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_commands_put_in_the_place_of_copies_is_not_followed() {
    let place = Place::new();
    let outputs = place.outputs.path().join("o");
    let victim = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(victim.path().join("release")).unwrap();
    let dear = victim.path().join("release/dear");
    fs_err::write(&dear, "kept").unwrap();
    fs_err::create_dir_all(&outputs).unwrap();
    let (copies, copy) = (outputs.join("skills"), outputs.join("skills/release"));
    std::os::unix::fs::symlink(victim.path(), &copies).unwrap();
    place.call(json!({"name": "release"})).await.unwrap();
    assert!(dear.exists() && copy.join("scripts/run.sh").exists());
    assert!(!fs_err::symlink_metadata(&copies).unwrap().is_symlink());

    fs_err::remove_dir_all(&copy).unwrap();
    std::os::unix::fs::symlink(victim.path().join("release"), &copy).unwrap();
    place.call(json!({"name": "release"})).await.unwrap();
    assert!(dear.exists() && copy.join("scripts/run.sh").exists() && !copy.join("dear").exists());

    // One without other files any more has no copy.
    fs_err::remove_dir_all(place.operator.path().join("release/scripts")).unwrap();
    let release = place.call(json!({"name": "release"})).await.unwrap();
    assert!(release.output.ends_with("</skill>\n\nIt has no other files."), "{}", release.output);
    let names: Vec<_> = fs_err::read_dir(&outputs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!copy.exists() && names == ["skills"], "{names:?}");
}

#[tokio::test]
async fn what_is_left_out_of_a_skill_is_told_as_one_line_each() {
    let place = Place::new();
    for skill in [place.operator.path().join("release"), place.workspace.path().join(".claude/skills/pdf")] {
        std::os::unix::fs::symlink("scripts", skill.join("lib")).unwrap();
        fs_err::write(skill.join("a\n\x1b[2J"), "x").unwrap();
        fs_err::write(skill.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
        fs_err::create_dir_all(skill.join("1/2/3/4/5/6/7/8")).unwrap();
    }
    for (name, missing) in [("release", "Not copied"), ("pdf", "Not listed")] {
        let told = place.call(json!({"name": name})).await.unwrap();
        let said = format!(
            "from there on:\n- a\\n\\u{{1b}}[2J\n- lib/run.sh\n- scripts/run.sh\n\n{missing}:\n- 1/2/3/4/5/6/7/8: folders that lie \
             more than 7 deep are not looked at\n- \\xFF: its name is not UTF-8"
        );
        assert!(told.output.ends_with(&said), "{}", told.output);
    }
    let copy = place.outputs.path().join("o/skills/release");
    assert_eq!(fs_err::read_to_string(copy.join("lib/run.sh")).unwrap(), "echo");
    assert!(!fs_err::symlink_metadata(copy.join("lib")).unwrap().is_symlink());
}
