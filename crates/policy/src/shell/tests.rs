use super::*;
use crate::AccessKind;

fn texts(script: &str) -> Vec<String> {
    analyse(script).commands.into_iter().map(|command| command.text).collect()
}

fn is_doubtful(script: &str) -> bool {
    analyse(script).commands.iter().any(|command| command.doubt.is_some())
}

#[test]
fn every_simple_command_is_found() {
    for script in [
        "rm -rf x",
        "a && rm -rf x",
        "a || rm -rf x",
        "a; rm -rf x",
        "a | rm -rf x",
        "a |& rm -rf x",
        "a & rm -rf x",
        "a\nrm -rf x",
        "(rm -rf x)",
        "{ rm -rf x; }",
        "! rm -rf x",
        "echo $(rm -rf x)",
        "echo `rm -rf x`",
        "echo \"$(rm -rf x)\"",
        "cat <(rm -rf x)",
        "a > >(rm -rf x)",
        "if a; then rm -rf x; fi",
        "if rm -rf x; then a; fi",
        "if a; then b; else rm -rf x; fi",
        "if a; then b; elif rm -rf x; then c; fi",
        "while a; do rm -rf x; done",
        "until rm -rf x; do a; done",
        "for i in 1 2; do rm -rf x; done",
        "for ((i=0;i<2;i++)); do rm -rf x; done",
        "case a in b) rm -rf x;; esac",
        "f() { rm -rf x; }; f",
        "sudo rm -rf x",
        "sudo -u bob rm -rf x",
        "sudo --user=bob -n -- rm -rf x",
        "env rm -rf x",
        "env -i A=1 rm -rf x",
        "A=1 rm -rf x",
        "xargs rm -rf x",
        "ls | xargs -0 -n 1 rm -rf x",
        "find . -name y -exec rm -rf x \\;",
        "find . -execdir rm -rf x +",
        "nohup rm -rf x",
        "setsid -f rm -rf x",
        "timeout 5 rm -rf x",
        "timeout -s KILL 5s rm -rf x",
        "nice -n 5 rm -rf x",
        "time rm -rf x",
        "command rm -rf x",
        "exec rm -rf x",
        "builtin rm -rf x",
        "stdbuf -oL rm -rf x",
        "sh -c 'rm -rf x'",
        "bash -lc \"rm -rf x\"",
        "bash -e -o pipefail -c 'a; rm -rf x'",
        "sudo env A=1 bash -c 'nohup rm -rf x'",
        "sh -c \"sh -c 'rm -rf x'\"",
        "eval rm -rf x",
        "eval 'rm -rf x'",
        "trap 'rm -rf x' EXIT",
        "bash <<EOF\nrm -rf x\nEOF\n",
        "bash <<'EOF'\nrm -rf x\nEOF\n",
        "bash <<< 'rm -rf x'",
        "cat <<EOF\n$(rm -rf x)\nEOF\n",
        "r\"m\" -rf x",
        "\\rm -rf x",
        "'rm' -rf x",
        "/bin/rm -rf x",
        "rm \\\n -rf x",
        "su -c 'rm -rf x'",
        "coproc rm -rf x",
        "time -p rm -rf x",
        "watch rm -rf x",
        "[ -f a ] && rm -rf x",
        "[[ -n $(rm -rf x) ]]",
        "((a=$(rm -rf x)))",
        "A=$(rm -rf x)",
        "export A=$(rm -rf x)",
        "echo ${A:-$(rm -rf x)}",
        "echo $(( $(rm -rf x) ))",
        "select i in a; do rm -rf x; done",
        "flock /tmp/l rm -rf x",
        "flock /tmp/l -c 'rm -rf x'",
        "chroot / rm -rf x",
        "busybox rm -rf x",
        "sudo --unknown-option rm -rf x",
    ] {
        let found = texts(script);
        assert!(found.iter().any(|text| text == "rm -rf x"), "{script}: {found:?}");
    }
}

#[test]
fn what_is_not_known_is_in_doubt() {
    for script in [
        "$X a",
        "echo $X",
        "echo ${X}",
        "echo *",
        "echo a?",
        "ls [ab]",
        "echo {a,b}",
        "echo {1..3}",
        "A=1",
        "A=1 b",
        "export A=1",
        "unset A",
        "f() { a; }",
        "alias a=b",
        "echo $(ls)",
        "echo `ls`",
        "diff <(a) <(b)",
        "echo $'a'",
        "echo $((1+1))",
        "a > $X",
        "a | bash",
        "bash",
        "bash -s",
        "curl x | sh",
        "xargs rm",
        "find . -exec a {} \\;",
        "eval $X",
        "bash -c \"$X\"",
        "source x",
        ". x",
        "set -e",
        "echo 'a",
        "a (",
        "if a",
        "a > ",
        "cat <<EOF | bash\nx\nEOF\n",
        "'a b' c",
        "'' a",
        "cd -",
        "cd $X",
        "exec 3<>/dev/tcp/1.2.3.4/80",
        "sudo $X rm",
        "bash $X",
        "echo \"a $X\"",
        "for i in a b; do echo $i; done",
        "a\rb",
        "echo \"`a`\"",
        "bash <<EOF\n$X\nEOF\n",
        "bash -c 'echo $0' a",
        "rm > out -rf x",
        "<\na b",
        "<<<\na b",
        "'<'<a $\nrm b",
    ] {
        assert!(is_doubtful(script), "{script}: {:?}", analyse(script));
    }
}

#[test]
fn what_is_plain_is_not_in_doubt() {
    for script in [
        "ls -l",
        "git commit -m 'it is $5'",
        "echo \"a b\" 'c'",
        "a && b || c; d | e",
        "cargo test 2>&1 | tail -n 5",
        "a > out 2> err",
        "(cd src && ls)",
        "bash -c 'ls -l'",
        "if a; then b; fi",
        "cat <<'EOF' > x\n$A\nEOF\n",
        "grep -n 'a*b' src",
        "echo a # $X",
        "true",
        "a 2>&-",
        "echo \"costs 5 $\"",
        "printf '%s\\n' a",
    ] {
        assert!(!is_doubtful(script), "{script}: {:?}", analyse(script));
    }
}

#[test]
fn paths_of_arguments_and_redirections_are_told() {
    let paths = |script: &str| {
        let found = analyse(script).paths.into_iter();
        found
            .map(|path| format!("{}{}", path.text, if path.kind.may_write() { " w" } else { "" }))
            .collect::<Vec<_>>()
    };
    assert_eq!(paths("cat /etc/passwd ../x"), ["/etc/passwd", "../x"]);
    assert_eq!(paths("echo a > /etc/x"), ["/etc/x w"]);
    assert_eq!(paths("./echo a"), ["./echo", "a w"]);
    assert_eq!(paths("a < in >> out 2>/dev/null"), ["in", "out w"]);
    assert_eq!(paths("cp -t /etc x"), ["/etc w", "x w", "x"]);
    assert_eq!(paths("dd if=/dev/sda of=y"), ["/dev/sda w", "y w", "/dev/sda"]);
    assert_eq!(paths("/usr/bin/x ~/y"), ["~/y w"]);
    assert_eq!(paths("/usr/bin/../x /opt/x"), ["/usr/bin/../x", "/opt/x w"]);
    assert_eq!(paths("cat $HOME/x"), ["~/x"]);
    let script = analyse("cd sub && cat ../x");
    assert!(script.paths.iter().any(|path| path.text == "../x" && path.bases == ["sub"]), "{script:?}");
}

#[test]
fn too_much_is_in_doubt_as_a_whole() {
    for script in ["a; ".repeat(40_000), "(".repeat(30_000), "$(".repeat(20_000), "`".repeat(9_999)] {
        assert!(is_doubtful(&script), "{}", &script[..10]);
    }
    let mut nested = "rm -rf x".to_owned();
    for _ in 0..12 {
        nested = format!("sh -c {}", quoted(&nested));
    }
    assert!(is_doubtful(&nested));
}

#[test]
fn commands_within_commands_cost_a_bounded_effort() {
    for script in [
        "sudo --unknown a ".repeat(900),
        "env --unknown 'sudo --unknown b' ".repeat(400),
        "xargs sh -c ".repeat(1_000),
        "find . -exec ".repeat(1_000),
        "watch 'watch a' ".repeat(900),
        format!("parallel {}", "'a b c' ".repeat(1_500)),
        "bash <<A\n".repeat(1_500),
        "cd a; cat b; ".repeat(1_000),
        format!("cat {}", "/a/b ".repeat(3_000)),
    ] {
        let found = analyse(&script);
        assert!(found.commands.len() <= MOST_COMMANDS && found.paths.len() <= MOST_PATHS + 1);
        let in_doubt = found.commands.iter().any(|command| command.doubt.is_some());
        assert!(in_doubt || found.paths.len() == 1, "{}", &script[..40]);
    }
}

#[test]
fn a_relative_path_is_below_each_directory_to_which_the_script_went() {
    let bases = |script: &str| analyse(script).paths.pop().unwrap().bases;
    assert_eq!(bases("cat x"), [""; 0]);
    assert_eq!(bases("cd a; cd b; cat x"), ["a", "b", "a/b"]);
    assert_eq!(bases("(cd /a); cd b && cat x"), ["/a", "b", "/a/b"]);
    assert_eq!(bases("cd; cat x"), ["~"]);
    assert_eq!(bases("sh -c 'cd a'; cat x"), ["a"]);
    let lost = analyse(&format!("{} cat x", "cd a; cd b; ".repeat(6)));
    assert!(lost.paths.iter().any(|path| path.doubt.is_some()), "{lost:?}");
    for script in ["cd $A; cat x", "cd -; cat x", "popd; cat x", "pushd +1; cat x"] {
        assert!(analyse(script).paths.iter().any(|path| path.doubt.is_some()), "{script}");
    }
}

#[test]
fn words_that_may_be_any_path_are_told() {
    let unknown = |script: &str| {
        let paths = analyse(script).paths.into_iter();
        paths.filter(|path| path.doubt.is_some()).map(|path| path.text).collect::<Vec<_>>()
    };
    assert_eq!(unknown("cat $A b"), ["$A"]);
    assert_eq!(unknown("cat src/*.rs"), ["src/*.rs"]);
    assert_eq!(unknown("cat \"$(ls)\""), ["$(ls)"]);
    // Beside what it may name, that it is written.
    assert_eq!(unknown("ls > $A"), ["$A", "$A"]);
    assert_eq!(unknown("ls | xargs cat"), ["xargs cat"]);
    assert_eq!(unknown("echo $A; exit $?; cat $((1 + 1)) $HOME/a"), [""; 0]);
    assert_eq!(unknown("find . -exec cat {} +"), [""; 0]);
}

#[test]
fn the_home_directory_is_gone_to_without_its_name() {
    for script in ["cd; ls", "cd; find -delete", "cd -P; ls", "cd --"] {
        let script = analyse(script);
        assert!(
            script.paths.iter().any(|path| path.text == "~" && path.kind == AccessKind::Read),
            "{script:?}"
        );
    }
}

fn has_unknown_path(script: &str) -> bool {
    analyse(script).paths.iter().any(|path| path.doubt.is_some())
}

#[test]
fn where_a_directory_leads_is_not_known_once_its_variables_are_set() {
    for script in [
        "CDPATH=/ cd etc; cat passwd",
        "CDPATH=/; cd etc; cat passwd",
        "HOME=/etc cd; cat passwd",
        "export CDPATH=/; cd etc",
        "OLDPWD=/etc; cd -",
        "PWD=/etc; cat ~+/x",
        "env HOME=/etc sh x",
        "read -r HOME; cd",
        "printf -v HOME /etc; cd",
        "declare -n A=HOME; cd",
        "for HOME in /etc; do cd; done",
        "export 'HOME=/etc'; cd",
        "export H\"OME=/etc\"; cd",
        "export $A; cd",
        ": ${HOME:=/etc}; cd",
        ": ${CDPATH=/}; cd etc",
        "HOME+=/x; cd",
        "pushd; ls",
    ] {
        assert!(has_unknown_path(script), "{script}: {:?}", analyse(script));
    }
    for script in [
        "A=1 cd etc; cat passwd",
        "echo HOME=1",
        "for A in a; do cd b; done",
        "A=$HOME/x; ls",
        "export PATH=$HOME/bin:$PATH A",
        "echo \"${HOME:-x}\"",
    ] {
        assert!(!has_unknown_path(script), "{script}: {:?}", analyse(script));
    }
}

#[test]
fn a_program_in_an_argument_may_name_any_path() {
    for script in [
        "sed 's/a/b/w /tmp/x' a",
        "sed 'r /etc/passwd' a",
        "sed -f x a",
        "awk 'BEGIN { getline x < \"/etc/passwd\" }'",
        "awk 'BEGIN { ARGV[1] = \"/etc/passwd\"; ARGC = 2 } 1'",
        "awk '{ print > \"/tmp/x\" }' a",
        "jq 'import \"../x\" as x; 1' a",
        "jq -n 'include \"../x\"; 1'",
        "jq --from-file x a",
    ] {
        assert!(has_unknown_path(script), "{script}: {:?}", analyse(script));
    }
    for script in ["sed -n '1,5p' a", "awk '{ print $2 }' a", "jq .a b"] {
        assert!(!has_unknown_path(script), "{script}: {:?}", analyse(script));
    }
}

#[test]
fn settings_that_git_runs_are_written_where_git_keeps_them() {
    let written = |script: &str| {
        let paths =
            analyse(script).paths.into_iter().filter(|path| path.kind.may_write() && path.doubt.is_none());
        paths
            .map(|path| path.text)
            .filter(|path| path.contains(['/']) && path.contains("config"))
            .collect::<Vec<_>>()
    };
    for script in [
        "git config core.hooksPath x",
        "git config CORE.HOOKSPATH x",
        "git config --local --add core.fsmonitor x",
        "git config set core.pager x",
        "git config alias.x '!ls'",
        "git config filter.a.clean x",
        "git config diff.a.textconv x",
        "git config merge.a.driver x",
        "git config credential.helper x",
        "git config include.path x",
        "git config --rename-section user alias",
        "git config --edit",
        "git config --unknown user.name x",
        "git config $A x",
        "git config remote.origin.uploadpack x",
    ] {
        assert!(written(script).contains(&".git/config".to_owned()), "{script}: {:?}", analyse(script));
    }
    assert!(written("git -C sub config core.pager x").contains(&"sub/.git/config".to_owned()));
    assert!(written("git config --global core.pager x").contains(&"~/.gitconfig".to_owned()));
    assert!(written("git config --global user.name x").contains(&"~/.gitconfig".to_owned()));
    assert!(written("git config -f ../config core.pager x").contains(&"../config".to_owned()));
    for script in [
        "git config user.name x",
        "git config --get core.hooksPath",
        "git config core.hooksPath",
        "git config --list",
        "git config get core.pager",
        "git config remote.origin.url x",
        "git config branch.main.merge x",
        "git remote add a b",
    ] {
        assert_eq!(written(script), [""; 0], "{script}");
    }
}

#[test]
fn what_is_plainly_read_is_not_written() {
    let written = |script: &str| {
        let paths = analyse(script).paths.into_iter().filter(|path| path.kind.may_write());
        paths.map(|path| path.text).collect::<Vec<_>>()
    };
    assert_eq!(written("cp /etc/hosts a"), ["a"]);
    assert_eq!(written("cp -r /usr/a /usr/b c"), ["c"]);
    assert_eq!(written("install -m 644 /etc/a b"), ["644", "/etc/a", "b"]);
    assert_eq!(written("install /etc/a b"), ["b"]);
    assert_eq!(written("cp -t /etc a"), ["/etc", "a"]);
    assert_eq!(written("cp -l /etc/a b"), ["/etc/a", "b"], "a link is another name to write by");
    assert_eq!(written("ln -s /etc/a b"), ["/etc/a", "b"]);
    assert_eq!(written("mv /etc/a b"), ["/etc/a", "b"]);
    assert_eq!(written("gcc -I/usr/a -L /usr/b -isystem /usr/c x.c -o /usr/d"), ["x.c", "/usr/d"]);
    assert_eq!(written("tar -tvf /usr/a.tar"), [""; 0]);
    assert_eq!(written("tar tzf /usr/a.tgz"), [""; 0]);
    assert_eq!(written("tar -xf /usr/a.tar"), ["/usr/a.tar", "."]);
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

mod property {
    use proptest::prelude::*;

    use super::*;
    use crate::{Action, Policy, Risk, Rule, Verdict, Want};

    fn wants(script: &str) -> Vec<Want> {
        let commands = analyse(script).commands.into_iter();
        commands
            .map(|command| Want { doubt: command.doubt, ..Want::new("bash", command.text, Risk::Dangerous) })
            .collect()
    }

    fn policy() -> Policy {
        let configuration = [Rule::new("bash", "*", Action::Allow), Rule::new("bash", "rm *", Action::Deny)]
            .into_iter()
            .collect();
        Policy { configuration, ..Policy::default() }
    }

    /// Ways to put a script into another one.
    fn wrapped(script: &str, way: u8) -> String {
        match way % WAYS {
            0 => format!("a && {script}"),
            1 => format!("({script})"),
            2 => format!("echo $({script})"),
            3 => format!("sh -c {}", quoted(script)),
            4 => format!("if a; then {script}; fi"),
            5 => format!("while {script}; do b; done"),
            6 => format!("cat <({script})"),
            7 => format!("bash <<'E'\n{script}\nE\n"),
            8 => format!("eval {}", quoted(script)),
            9 => format!("{{ {script}; }} > out"),
            10 => format!("sudo -n sh -c {}", quoted(script)),
            11 => format!("echo \"$({script})\""),
            12 => format!("f() {{ {script}; }}"),
            13 => format!("for i in a; do {script}; done"),
            14 => format!("X=$({script}) b"),
            15 => format!("echo {}", backquoted(script)),
            16 => format!("echo \"a {} b\"", backquoted(script)),
            17 => document("<<", script, &format!("$({script})")),
            18 => document("<<-", script, &format!("\t$({script})")),
            19 => document("<<", script, &backquoted(script)),
            20 => document("<<-", script, &format!("\t\"{}\"", backquoted(script))),
            21 => document("<<", script, &format!("${{A:-{}}}", backquoted(script))),
            22 => format!("xargs --max-lines --replace --process-slot-var=A sh -c {}", quoted(script)),
            23 => format!("env --unset=A --ignore-environment sh -c {}", quoted(script)),
            24 => format!("timeout --foreground --signal KILL 5 bash -login -c {}", quoted(script)),
            25 => format!("wait -n -p {}", quoted(&format!("a[$({script})]"))),
            26 => format!("((A[{}]))", quoted(&format!("$({script})"))),
            _ => format!("ls | {script}"),
        }
    }

    const WAYS: u8 = 28;

    fn backquoted(script: &str) -> String {
        format!("`{}`", script.replace('\\', "\\\\").replace('`', "\\`"))
    }

    /// A document whose mark is in no script that stands in it.
    fn document(sign: &str, script: &str, body: &str) -> String {
        let mark = format!("E{}", script.len());
        format!("cat {sign}{mark}\n{body}\n{mark}\n")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_denied_command_is_never_allowed_wherever_it_stands(ways in proptest::collection::vec(0..WAYS, 0..6)) {
            let script = ways.iter().fold("rm -rf x".to_owned(), |script, way| wrapped(&script, *way));
            let verdict = policy().judge(&wants(&script));
            prop_assert!(verdict != Verdict::Allow, "{script}: {:?}", analyse(&script));
        }

        #[test]
        fn nothing_panics(script in "[a-z $(){}\"'`|&;<>\\\\\n=*\\[\\]!#-]{0,200}") {
            analyse(&script);
        }

        #[test]
        fn a_denied_command_next_to_anything_is_never_allowed(before in "[a-z $(){}\"'`|&<>=-]{0,30}") {
            // What the shell takes as a command of its own: on a line of its own, where the line before is complete.
            let script = format!("{before}\nrm -rf x");
            let verdict = policy().judge(&wants(&script));
            prop_assert!(verdict != Verdict::Allow, "{script}: {:?}", analyse(&script));
        }

        #[test]
        fn a_denied_command_in_a_document_is_never_allowed(
            before in "[a-z $(){}\"'&|<>\t=-]{0,20}",
            after in "[a-z \"'|&<>\t-]{0,20}",
            is_indented in any::<bool>(),
            is_backquoted in any::<bool>(),
            rest in prop::sample::select(vec!["", " > o", " | cat", " && g", "; g", " 2>&1", " &"]),
        ) {
            let (sign, tab) = if is_indented { ("<<-", "\t") } else { ("<<", "") };
            let command = if is_backquoted { "`rm -rf x`" } else { "$(rm -rf x)" };
            let script = format!("cat {sign}E{rest}\n{tab}{before}{command}{after}\n{tab}E\n");
            // What a shell takes for a document, since its mark is not quoted.
            let verdict = policy().judge(&wants(&script));
            prop_assert!(verdict != Verdict::Allow, "{script}: {:?}", analyse(&script));
        }
    }
}
