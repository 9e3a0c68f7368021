use std::os::unix::fs::symlink;

use super::*;

fn parse(text: &str) -> Result<CommandTemplate, PromptError> {
    CommandTemplate::parse(".playhouse/commands/fix.md", text)
}

/// The filled command, with shell blocks in brackets.
fn fill(template: &str, typed: &str) -> String {
    let filled = parse(template).unwrap().fill(typed).unwrap();
    let shown = filled.into_iter().map(|piece| match piece {
        Filled::Text(text) => text,
        Filled::Shell(command) => format!("[{command}]"),
    });
    shown.collect()
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_head_says_who_answers_and_is_not_needed() {
    let text = "---\ndescription: \"Fixes: it\"\nagent: build\nmodel: openai/gpt-5\nsubtask: true\nother: [x]\n---\n\nFix it.\n";
    let command = parse(text).unwrap();
    assert_eq!((command.name.as_str(), command.description.as_deref()), ("fix", Some("Fixes: it")));
    assert_eq!((command.agent.as_deref(), command.subtask), (Some("build"), true));
    assert_eq!(command.model, Some(ModelRef::new("openai", "gpt-5")));
    assert_eq!(command.template, "Fix it.");
    let plain = parse("\u{feff}\n# Fix\n\nAll of it.\n").unwrap();
    assert_eq!((plain.template.as_str(), plain.agent), ("# Fix\n\nAll of it.", None));
}

#[test]
fn arguments_are_put_in() {
    for (template, typed, expected) in [
        ("a $1 b $2", "x y", "a x b y"),
        ("a $1 b $2", "x y z  \"q r\"", "a x b y z  \"q r\""),
        ("a $1 b $2", "x", "a x b "),
        ("a $1.", "\"x y\"", "a x y."),
        ("a $1 $1", "it's fine", "a it's fine it's fine"),
        ("$2 $1", "'x y' z", "z x y"),
        ("<$ARGUMENTS>", "  x 'y z' ", "<x 'y z'>"),
        ("$1: $ARGUMENTS", "x y", "x y: x y"),
        ("no holes", "", "no holes"),
        ("no holes", "but words", "no holes\n\nbut words"),
        ("$0 $ARGUMENTS_ $2026 $ {{x}}", "", "$0 $ARGUMENTS_ $2026 $ {{x}}"),
        ("\\$1 \\$ARGUMENTS \\!`x` \\n $1", "y", "$1 $ARGUMENTS !`x` \\n y"),
        ("$12", "a b c d e f g h i j k l m", "l m"),
        ("ü$1ö", "ß", "üßö"),
    ] {
        assert_eq!(fill(template, typed), expected, "{template} / {typed}");
    }
}

#[test]
fn shell_blocks_take_arguments_as_words() {
    for (template, typed, expected) in [
        ("!`git log -1`", "", "[git log -1]"),
        ("see !`git show $1`.", "main", "see [git show main]."),
        ("!`grep $ARGUMENTS`", "'a b' src; rm x", "[grep 'a b' 'src;' rm x]"),
        ("!`grep $1 x`", "", "[grep  x]"),
        ("!`echo $1`", "$(rm -rf ~)", "[echo '$(rm' -rf '~)']"),
        ("!`echo $1`", "\"'; rm -rf ~; '\"", "[echo ''\\''; rm -rf ~; '\\''']"),
        ("!`awk '{print \\$1}' f`", "", "[awk '{print $1}' f]"),
        ("!`echo \\\" $1`", "x", "[echo \\\" x]"),
        ("wow!`x` !`y`", "", "wow!`x` [y]"),
    ] {
        assert_eq!(fill(template, typed), expected, "{template} / {typed}");
    }
    let refused = parse("!`echo $1`").unwrap().fill("'a\nb'").unwrap_err();
    assert_eq!(refused, "an argument has a line break or a control character, and a shell block takes none");
}

#[test]
fn nothing_that_is_put_in_is_read_again() {
    let all = "$1 $2 $ARGUMENTS !`touch x` {{name}} \\$1";
    for template in ["$1", "$ARGUMENTS", "$1 $2", "a", "$2 and $ARGUMENTS"] {
        let filled = parse(template).unwrap().fill(all).unwrap();
        let [Filled::Text(text)] = filled.as_slice() else { panic!("{template}: {filled:?}") };
        assert!(text.contains("$ARGUMENTS") && text.contains("!`touch x`"), "{template}: {text}");
    }
}

/// Words of every sign that means something to somebody: one of four, for each of six places.
#[test]
fn whatever_is_typed_a_shell_reads_the_same_words() {
    let signs = ["'", "\"", "$", "`", "\\", ";", "a", "*", "#", "-", "ü", "!"];
    let command = parse("!`printf '%s\\n' $ARGUMENTS`").unwrap();
    let mut state = 7_usize;
    for _ in 0..60 {
        let mut word = String::new();
        for _ in 0..6 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.push_str(signs[(state >> 33) % signs.len()]);
        }
        let arguments = Arguments::new(&word, 0);
        let filled = command.fill(&word).unwrap();
        let [Filled::Shell(script)] = filled.as_slice() else { panic!("{filled:?}") };
        let ran = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert!(ran.status.success(), "{script}");
        let expected = format!("{}\n", arguments.words().join("\n"));
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected, "{script}");
    }
}

#[test]
fn hints_name_what_may_be_typed() {
    assert_eq!(parse("$3 $1 !`x $2 $1` $ARGUMENTS").unwrap().hints(), ["$1", "$2", "$3", "$ARGUMENTS"]);
    assert!(parse("plain").unwrap().hints().is_empty());
}

#[test]
fn mistakes_name_file_and_line() {
    for (text, expected) in [
        ("---\nmodel: none\n---\nx", "2: `model`: "),
        ("---\nagent:\n---\nx", "2: `agent` needs the name of an agent"),
        ("---\nsubtask: maybe\n---\nx", "2: `subtask` is `true` or `false`"),
        ("---\ndescription: [x]\n---\nx", "2: `description` is a text"),
        ("---\nagent: x\n", "1: the head that begins here has no closing `---`"),
        ("---\nagent: x\n---\n\n", "4: there is no text: write the prompt"),
        ("", "1: there is no text: write the prompt"),
        ("---\nagent: x\n---\n\none\n!`ls\n` x", "6: this shell block has no closing \"`\" in its line"),
        ("a\n\nb !` `", "3: this shell block is empty"),
        ("a\n!`echo \"$1\"`", "2: `$1` stands in quotes in this shell block"),
        ("!`echo '$ARGUMENTS'`", "1: `$ARGUMENTS` stands in quotes in this shell block"),
        (&"!`x`\n".repeat(17), "17: there are more than 16 shell blocks"),
    ] {
        let said = error(text);
        assert!(said.starts_with(&format!(".playhouse/commands/fix.md:{expected}")), "{text}: {said}");
    }
    for file in ["a b.md", ".hidden.md", "ü.md", &format!("{}.md", "x".repeat(65))] {
        let said = CommandTemplate::parse(file, "x").unwrap_err().to_string();
        assert!(said.starts_with(&format!("{file}: the name of a command is its file's")), "{said}");
    }
}

#[test]
fn no_text_makes_it_panic() {
    let parts = ["$", "1", "ARGUMENTS", "!`", "`", "\\", "'", "\"", "\n", "ü", "---\n", " "];
    let count = parts.len();
    for case in 0..count.pow(4) {
        let text: String = (0..4).map(|place| parts[case / count.pow(place) % count]).collect();
        if let Ok(command) = parse(&text) {
            drop(command.fill(&text));
            drop(command.hints());
        }
    }
}

#[test]
fn a_bad_file_is_put_aside_and_an_operators_name_is_the_operators() {
    let (operator, root, outside) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = root.path().join(FOLDER_OF_TESTS);
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::write(operator.path().join("review.md"), "Review it.").unwrap();
    fs_err::write(operator.path().join("notes.txt"), "no command").unwrap();
    fs_err::write(folder.join("review.md"), "Steal it.").unwrap();
    fs_err::write(folder.join("test.md"), "Test it.").unwrap();
    fs_err::write(folder.join("bad.md"), "\n!`open").unwrap();
    fs_err::write(folder.join("bytes.md"), b"one\n\xff").unwrap();
    fs_err::write(folder.join("long.md"), "x".repeat(70_000)).unwrap();
    fs_err::write(outside.path().join("key"), "secret").unwrap();
    symlink(outside.path().join("key"), folder.join("key.md")).unwrap();
    let commands = Commands::read(Some(operator.path()), Some(root.path()));
    let found: Vec<(Owner, &str, &str)> = commands
        .iter()
        .map(|(owner, command)| (owner, command.name.as_str(), command.template.as_str()))
        .collect();
    assert_eq!(found, [(Owner::Operator, "review", "Review it."), (Owner::Workspace, "test", "Test it.")]);
    let refused: Vec<String> = commands.refused().iter().map(ToString::to_string).collect();
    assert_eq!(
        refused,
        [
            ".playhouse/commands/bad.md:2: this shell block has no closing \"`\" in its line",
            ".playhouse/commands/bytes.md:2: this line is not UTF-8",
            ".playhouse/commands/key.md: cannot be used for commands: it leads outside of the workspace",
            ".playhouse/commands/long.md: is 70000 bytes long; a command has at most 65536",
            ".playhouse/commands/review.md: the operator has a command \"review\" already: give this one another name",
        ]
    );
    assert_eq!(commands.find("bad").unwrap_err().to_string(), refused[0]);
    assert_eq!(
        commands.find("tset").unwrap_err().to_string(),
        "unknown command \"tset\"; there are review, test; did you mean \"test\"?"
    );
    assert_eq!(
        Commands::read(None, None).find("x").unwrap_err().to_string(),
        "unknown command \"x\"; there are none"
    );
}

#[test]
fn where_the_operator_keeps_commands_is_for_the_operator() {
    let (operator, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = root.path().join(FOLDER_OF_TESTS);
    fs_err::create_dir_all(&folder).unwrap();
    for (place, name) in [(operator.path(), "ours"), (&folder, "theirs")] {
        fs_err::write(place.join(format!("{name}.md")), "\n!`open").unwrap();
        fs_err::write(place.join(format!("{name}-good.md")), "---\nagent: a\n---\nx").unwrap();
    }
    fs_err::create_dir(operator.path().join("folder.md")).unwrap();
    let commands = Commands::read(Some(operator.path()), Some(root.path()));
    let told = |name: &str| commands.find(name).unwrap_err().told();
    let open = "this shell block has no closing \"`\" in its line";
    assert_eq!(told("ours"), format!("/ours: line 2: {open}"));
    assert_eq!(told("theirs"), format!(".playhouse/commands/theirs.md:2: {open}"));
    assert_eq!(told("folder"), "/folder: cannot be used for commands: it is not a regular file");
    let wrong = |name: &str| commands.wrong(commands.find(name).unwrap(), "agent", "no");
    assert_eq!(wrong("ours-good").told(), "/ours-good: line 2: no");
    assert_eq!(wrong("theirs-good").told(), ".playhouse/commands/theirs-good.md:2: no");
    // The operator is told the file.
    let place = operator.path().display();
    assert_eq!(wrong("ours-good").to_string(), format!("{place}/ours-good.md:2: no"));
    assert_eq!(commands.find("ours").unwrap_err().to_string(), format!("{place}/ours.md:2: {open}"));
    fs_err::write(root.path().join("file"), "").unwrap();
    let unusable = Commands::read(Some(&root.path().join("file")), None);
    let told: Vec<String> = unusable.refused().iter().map(CommandFault::told).collect();
    assert_eq!(told, ["the operator's commands: cannot be used for commands: Not a directory (os error 20)"]);
}

const FOLDER_OF_TESTS: &str = ".playhouse/commands";
