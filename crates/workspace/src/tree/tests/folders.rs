//! Folders that commands make and remove.

use super::*;

/// Each change as `path: before > after`.
fn told(seen: &SeenChanges, stage: &Stage) -> Vec<String> {
    let mode = |mode: Option<u32>| mode.map_or("-".to_owned(), |mode| format!("{mode:o}"));
    let told = |write: &FolderWrite| {
        let path = write.path.strip_prefix(&stage.root).unwrap().display();
        format!("{path}: {} > {}", mode(write.before), mode(write.after))
    };
    seen.folders.iter().map(told).collect()
}

fn make(stage: &Stage, path: &str, mode: u32) {
    let path = stage.root.join(path);
    fs::create_dir_all(&path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn folders_that_are_made_or_removed_are_seen_with_their_permissions() {
    for watched in [false, true] {
        let stage = Stage::new(&[(".gitignore", "built/\n"), ("secrets/key", "k"), ("kept/a", "1")]);
        stage.git("init -q");
        make(&stage, "secrets", 0o700);
        make(&stage, "old/empty", 0o750);
        make(&stage, "old", 0o755);
        make(&stage, "kept", 0o755);
        let _ears = watched.then(|| stage.index.watch().unwrap());
        drop(stage.begin("s"));
        let seen = stage.seen(|| {
            fs::remove_dir_all(stage.root.join("secrets")).unwrap();
            fs::remove_dir_all(stage.root.join("old")).unwrap();
            make(&stage, "new/inner", 0o711);
            make(&stage, "new", 0o755);
            make(&stage, "kept", 0o700);
            stage.write("built/thing", "ignored");
            make(&stage, "passing", 0o755);
            fs::remove_dir(stage.root.join("passing")).unwrap();
        });
        let expected = [
            "kept: 755 > 700",
            "new: - > 755",
            "new/inner: - > 711",
            "old: 755 > -",
            "old/empty: 750 > -",
            "secrets: 700 > -",
        ];
        assert_eq!(told(&seen, &stage), expected, "{watched}");
        assert_eq!(seen.files.len(), 1, "{seen:?}");
        assert_eq!(stage.seen(|| ()), SeenChanges::default());
        let seen = stage.seen(|| fs::remove_dir(stage.root.join("new/inner")).unwrap());
        assert_eq!(told(&seen, &stage), ["new/inner: 711 > -"]);
        let seen = stage.seen(|| {
            fs::remove_dir(stage.root.join("new")).unwrap();
            stage.write("new", "a file in its place");
        });
        assert_eq!(told(&seen, &stage), ["new: 755 > -"]);
    }
}

#[test]
fn a_folder_that_a_tool_makes_meanwhile_is_not_the_commands() {
    let stage = Stage::new(&[("a", "one")]);
    let command = stage.begin("first");
    let place = stage.root.join("new/inner/file");
    let held = stage.index.hold(&"tool".into(), [place.as_path()]);
    stage.write("new/inner/file", "by the tool");
    // Somebody looks between the write and its notice.
    drop(stage.begin("third"));
    let state = FileState::new(hash(b"by the tool"), b"by the tool", 0o100_644);
    let folders = [stage.root.join("new"), stage.root.join("new/inner")].map(|path| FolderWrite::made(&path));
    held.wrote(&[FileWrite { path: place, before: None, after: Some(state) }], &folders);
    let seen = command.end();
    assert_eq!((told(&seen, &stage), seen.files), (Vec::new(), Vec::new()));
    let seen = stage.seen(|| fs::remove_dir_all(stage.root.join("new/inner")).unwrap());
    assert_eq!(told(&seen, &stage).len(), 1);
}
