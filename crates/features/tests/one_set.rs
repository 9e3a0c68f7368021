//! Whatever is built or tested, the features of shared dependencies are the same, and the program has none for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Packages with their versions, and the sets of features that each has: one for the program, one more where procedural macros and
/// build scripts choose another.
type Features = BTreeMap<String, BTreeSet<String>>;

/// The output of `cargo tree` with these arguments.
fn tree(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(arguments)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names are UTF-8")
}

/// The features of the registry's packages in what is selected.
fn features(selection: &[&str]) -> Features {
    let mut features = Features::new();
    for line in tree(&[&["--format", "{p}|{f}"], selection].concat()).lines() {
        // What was listed before is marked.
        let line = line.trim_end_matches(" (*)");
        let Some((package, named)) = line.split_once('|') else { continue };
        // Those of this workspace are followed by their path.
        if !package.contains("(/") {
            let package = package.trim_end_matches(" (proc-macro)").to_owned();
            features.entry(package).or_default().insert(named.to_owned());
        }
    }
    assert!(!features.is_empty());
    features
}

/// The names of the packages of this workspace.
fn members() -> BTreeSet<String> {
    let listed = tree(&["--workspace", "--depth", "0", "--format", "{p}"]);
    listed.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

#[test]
fn nothing_of_the_registry_is_compiled_twice() {
    let all = features(&["--workspace", "--edges", "normal,build,dev"]);
    let check = |selection: &[&str]| {
        for (package, sets) in features(selection) {
            let whole = &all[&package];
            assert!(
                sets.is_subset(whole),
                "with `{}` {package} has the features {sets:?}, in the whole workspace {whole:?}: name what differs in \
                 crates/features/Cargo.toml",
                selection.join(" ")
            );
        }
    };
    check(&["--package", "playhouse", "--edges", "normal,build"]);
    let members = members();
    assert!(members.len() > 10, "{members:?}");
    for member in &members {
        check(&["--package", member, "--edges", "normal,build,dev"]);
    }
}

#[test]
fn the_program_has_no_feature_for_tests() {
    let of_tests = ["test-util", "failpoints"];
    let whole = tree(&["--package", "playhouse", "--edges", "normal,build,features"]);
    assert!(whole.contains("tokio feature \"time\""), "{whole}");
    for line in whole.lines() {
        for feature in of_tests {
            assert!(!line.contains(&format!("feature \"{feature}\"")), "the program is built with {line}");
        }
    }
}
