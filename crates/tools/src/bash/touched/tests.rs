use fs_err::os::unix::fs::symlink;
use playhouse_policy::Zone;

use super::*;

struct Fixture {
    _folder: tempfile::TempDir,
    base: PathBuf,
    workspace: Workspace,
}

/// `base/work` is the workspace, with `src/deep` and links out of it.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let base = fs_err::canonicalize(folder.path()).unwrap();
    fs_err::create_dir_all(base.join("work/src/deep")).unwrap();
    fs_err::create_dir(base.join("other")).unwrap();
    fs_err::write(base.join("work/file"), "x").unwrap();
    symlink(base.join("other"), base.join("work/out")).unwrap();
    symlink(base.join("other"), base.join("work/src/deep/out")).unwrap();
    symlink("circle", base.join("work/circle")).unwrap();
    let workspace = Workspace::open(&base.join("work"), base.join("outputs")).unwrap();
    Fixture { _folder: folder, base, workspace }
}

impl Fixture {
    fn touched(&self, command: &str) -> Vec<Access> {
        touched(command, ".", &self.workspace).unwrap().accesses
    }

    /// The paths outside, from `base`, and whether they are written.
    fn outside(&self, command: &str) -> Vec<String> {
        let paths = self.touched(command).into_iter().filter_map(|access| match access {
            Access::Path { kind, path, zone: Zone::Outside, .. } => Some((kind, path)),
            _ => None,
        });
        let base = format!("{}/", self.base.display());
        paths
            .map(|(kind, path)| {
                let path = path.strip_prefix(&base).unwrap_or(&path).to_owned();
                if kind.may_write() { format!("{path} w") } else { path }
            })
            .collect()
    }

    fn unknown(&self, command: &str) -> Vec<String> {
        let texts = self.touched(command).into_iter().filter_map(|access| match access {
            Access::Unknown { text, .. } => Some(text),
            _ => None,
        });
        texts.collect()
    }
}

#[test]
fn the_name_of_the_last_commit_is_a_path_only_where_there_is_such_a_file() {
    let fixture = fixture();
    let guarded = |command: &str| {
        let is_guarded = |access: &Access| matches!(access, Access::Path { zone: Zone::Guarded, .. });
        fixture.touched(command).iter().any(is_guarded)
    };
    for command in ["git diff HEAD", "git show HEAD", "git reset --hard HEAD", "git checkout HEAD file"] {
        assert!(!guarded(command), "{command}");
    }
    assert!(guarded("git init . && echo x > HEAD") && guarded("touch HEAD"));
    fs_err::write(fixture.base.join("work/HEAD"), "ref: refs/heads/main\n").unwrap();
    assert!(guarded("git checkout HEAD"));
}

#[test]
fn the_directory_the_commands_and_the_paths_are_told() {
    let fixture = fixture();
    let accesses = fixture.touched("cat file > src/copy; /usr/bin/make");
    let commands: Vec<&str> = accesses
        .iter()
        .filter_map(|access| match access {
            Access::Command(command) => Some(command.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(commands, ["cat file", "/usr/bin/make", "make"]);
    let path = |kind, name: &str, shown: &str| {
        let path = fixture.base.join("work").join(name);
        Access::path(kind, path.to_str().unwrap().trim_end_matches('/'), Zone::Workspace).shown(shown)
    };
    assert_eq!(accesses[0], path(AccessKind::Execute, "", "."));
    // `cat` and redirections are known to do that.
    let known = [
        path(AccessKind::Read, "file", "file").known(Known::Purpose),
        path(AccessKind::Write, "src/copy", "src/copy").known(Known::Aside),
    ];
    assert!(known.iter().all(|known| accesses.contains(known)), "{accesses:?}");
    assert_eq!(fixture.outside("cat file > src/copy; /usr/bin/make"), [""; 0]);
}

#[test]
fn what_is_done_for_certain_is_told_with_the_file_that_it_is_done_to() {
    let fixture = fixture();
    let known = |command: &str| {
        let paths = fixture.touched(command).into_iter().filter_map(|access| match access {
            Access::Path { known: Known::No, .. } | Access::Unknown { written: Known::No, .. } => None,
            Access::Path { kind, shown, .. } if kind.may_write() => Some(format!("{shown} w")),
            Access::Path { shown, .. } => Some(shown),
            Access::Unknown { text, .. } => Some(format!("{text} ?")),
            _ => None,
        });
        paths.collect::<Vec<_>>().join(", ")
    };
    for (command, expected) in [
        ("ls -la > gone", "gone w"),
        ("cat < file > /dev/null", "file"),
        ("cp file src", "file, src w, src/file w"),
        ("cp file src/new", "file, src/new w"),
        ("mv file src/deep", "file w, src/deep w, src/deep/file w, file"),
        ("cd src && sort -o deep/b deep/a", "src/deep/b w, deep/b w, src/deep/a, deep/a"),
        ("git -C src log --output=x", "src/x w, x w"),
        ("git checkout main", ""),
        ("git checkout file", "file w"),
        ("git checkout HEAD~1 src", "src w"),
        ("git checkout .", ". w"),
        ("git checkout -- gone", "gone w"),
        ("git blame file", "file"),
        ("ls > $X", "$X ?"),
        ("tee \"$X\" < file", "$X ?, file"),
        ("make > /dev/null 2>&1", ""),
        ("python3 file", ""),
    ] {
        assert_eq!(known(command), expected, "{command}");
    }
}

#[test]
fn what_lies_outside_is_told_by_where_it_leads() {
    let fixture = fixture();
    assert_eq!(fixture.outside("cat ../other/a"), ["other/a"]);
    assert_eq!(fixture.outside("cat out/a"), ["other/a"]);
    assert_eq!(fixture.outside("echo a > out/a"), ["other/a w"]);
    assert_eq!(fixture.outside("tool --to=/etc/hosts"), ["/etc/hosts w"]);
    assert_eq!(fixture.outside("cat /etc/hosts /etc/hosts"), ["/etc/hosts"]);
    assert_eq!(fixture.outside("ls /etc/*"), ["/etc"]);
    assert_eq!(fixture.outside("git commit -m 'a message'; cat src/../file"), [""; 0]);
    let inside = fixture.base.join("work/file");
    assert_eq!(fixture.outside(&format!("cat {}", inside.display())), [""; 0]);
}

#[test]
fn a_path_may_be_below_any_directory_to_which_the_command_goes() {
    let fixture = fixture();
    assert_eq!(fixture.outside("cd src && cd deep && cat out/a"), ["other/a"]);
    assert_eq!(fixture.outside("cd src; cat ../file"), ["file"], "it may not come to that");
    let above = fixture.base.parent().unwrap().display().to_string();
    assert_eq!(fixture.outside("cd src/deep; cd ../.."), [above], "it may not have gone there");
}

#[test]
fn what_a_command_writes_it_writes_wherever_it_may_be() {
    let fixture = fixture();
    let outputs = fixture.base.join("outputs");
    let written = |command: &str, workdir: &str| {
        let accesses = touched(command, workdir, &fixture.workspace).unwrap().accesses;
        accesses
            .iter()
            .any(|access| matches!(access, Access::Path { kind: AccessKind::Write, zone: Zone::Output, .. }))
    };
    let (outputs, work) = (outputs.display(), fixture.base.join("work"));
    for (command, is_written) in [
        (format!("rm {outputs}/a"), true),
        (format!("cd {outputs} && rm a"), true),
        (format!("cd src; cd {outputs}; rm a"), true),
        (format!("cd {outputs} && cd deep && echo > a"), true),
        (format!("cd {outputs} && ./a && cd {} && rm a", work.display()), true),
        (format!("cd {outputs} && ./a b c"), false),
        (format!("rm a; cd {outputs} && ./a"), false),
        (format!("cd {outputs} && cd $WORK && rm a"), true),
        (format!("cd {outputs} && python3 a b"), false),
    ] {
        assert_eq!(written(&command, "."), is_written, "{command}");
    }
    let outputs = outputs.to_string();
    fs_err::create_dir_all(&outputs).unwrap();
    assert!(written("rm a", &outputs) && !written("sh a", &outputs));
    assert!(written(&format!("cd {} && rm a", work.display()), &outputs));
}

#[test]
fn the_home_directory_is_the_one_that_the_command_gets() {
    let fixture = fixture();
    let home = std::env::var("HOME").expect("the tests need the variable HOME: set it to a directory");
    let home = fixture.workspace.resolve(&home).unwrap();
    let expected = home.path.join("a").display().to_string();
    for command in ["cat ~/a", "cat $HOME/a", "cat ${HOME}/a", "cd; cat ./a"] {
        assert!(fixture.outside(command).contains(&expected), "{command}: {:?}", fixture.outside(command));
    }
    assert_eq!(fixture.unknown("cat ~nobody/a"), ["~nobody/a"]);
}

#[test]
fn what_cannot_be_told_is_unknown() {
    let fixture = fixture();
    assert_eq!(fixture.unknown("cat $A"), ["$A"]);
    assert_eq!(fixture.unknown("cat src/*.rs"), ["src/*.rs"]);
    assert_eq!(fixture.unknown("echo $A $((1 + 1))"), [""; 0]);
    assert_eq!(fixture.unknown("cat circle/a"), ["circle/a"]);
    assert_eq!(fixture.unknown("cat file/below"), ["file/below"]);
    assert_eq!(fixture.unknown("# nothing"), ["# nothing"]);
    assert_eq!(fixture.unknown("> made"), ["> made"]);
}

#[test]
fn the_home_directory_and_what_git_runs_are_told_where_no_argument_names_them() {
    let fixture = fixture();
    let home = std::env::var("HOME").expect("the tests need the variable HOME: set it to a directory");
    let home = fixture.workspace.resolve(&home).unwrap().path.display().to_string();
    assert_eq!(fixture.outside("cd; ls"), [home.as_str()]);
    let guarded = |command: &str| {
        let mut accesses = fixture.touched(command).into_iter();
        accesses
            .any(|access| matches!(access, Access::Path { kind: AccessKind::Write, zone: Zone::Guarded, .. }))
    };
    assert!(guarded("git config core.hooksPath x") && guarded("git -C src config alias.a b"));
    assert!(!guarded("git config user.name x") && !guarded("git config --get core.hooksPath"));
    assert_eq!(fixture.outside("cp /etc/hosts a"), ["/etc/hosts"]);
    assert_eq!(fixture.unknown("sed 's/a/b/w /tmp/x' file"), ["sed s/a/b/w /tmp/x file"]);
    assert_eq!(fixture.unknown("CDPATH=/ cd etc; cat passwd")[..1], ["CDPATH=/"]);
}

#[test]
fn a_long_text_is_no_path() {
    let fixture = fixture();
    let command = format!("git commit -m '{}'", "word ".repeat(200));
    assert_eq!(fixture.unknown(&command), [""; 0]);
    let accesses = fixture.touched(&command);
    let in_doubt = |access: &Access| matches!(access, Access::Command(command) if command.doubt.is_some());
    assert!(!accesses.iter().any(in_doubt), "{accesses:?}");
}

#[test]
fn very_many_places_are_not_looked_at() {
    let fixture = fixture();
    let mut command = "cd a; cd b; cd c; cd d; ".to_owned();
    (0..900).for_each(|number| command.push_str(&format!("cat f{number}; ")));
    let accesses = fixture.touched(&command);
    let texts = fixture.unknown(&command);
    assert!(accesses.len() < 6_000 && texts.contains(&"…".to_owned()), "{} {texts:?}", accesses.len());
}
