//! Holds the invariants of ARCHITECTURE.md that can be held by looking: which crate may know which, what the pure crates
//! must not touch, and what stands in one place only. It reads manifests and sources as text and runs nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Each package, and the packages of this workspace that it may depend on. Arrows point one way.
const ARROWS: [(&str, &[&str]); 22] = [
    ("protocol", &[]),
    ("tls", &[]),
    ("features", &[]),
    ("policy", &["protocol"]),
    ("catalogue", &["protocol"]),
    ("prompts", &["protocol"]),
    ("session", &["protocol", "policy"]),
    ("sandbox", &["protocol"]),
    ("workspace", &["protocol", "policy", "sandbox"]),
    ("store", &["protocol"]),
    ("billing", &["protocol"]),
    ("changes", &["protocol"]),
    ("exporters", &["protocol", "tls", "store", "billing"]),
    ("llm", &["protocol", "tls"]),
    ("tools", &["protocol", "tls", "policy", "prompts", "sandbox", "workspace"]),
    ("lsp", &[]),
    ("mcp", &["protocol", "policy", "sandbox", "workspace", "tools"]),
    ("mcp-server", &["protocol"]),
    ("mock-llm", &["protocol"]),
    (
        "actors",
        &[
            "protocol",
            "policy",
            "session",
            "changes",
            "sandbox",
            "workspace",
            "store",
            "billing",
            "llm",
            "tools",
            "lsp",
            "mcp",
        ],
    ),
    ("server", &["protocol", "policy", "session", "store", "tools", "mcp-server", "actors"]),
    (
        "playhouse",
        &[
            "protocol",
            "policy",
            "catalogue",
            "prompts",
            "session",
            "sandbox",
            "workspace",
            "store",
            "billing",
            "exporters",
            "features",
            "llm",
            "lsp",
            "mcp",
            "mcp-server",
            "tools",
            "actors",
            "mock-llm",
            "server",
        ],
    ),
];

/// Packages that only compute: no file, no socket, no clock, no thread, no runtime.
const PURE: [&str; 6] = ["protocol", "session", "policy", "catalogue", "billing", "changes"];

/// Libraries that one package alone may name, outside of tests.
const KEPT: [(&str, &str); 15] = [
    ("ractor", "actors"),
    ("sled", "store"),
    ("reqwest", "llm"),
    ("h2", "llm"),
    ("hyper-rustls", "llm"),
    ("eventsource-stream", "llm"),
    ("hyper", "mock-llm"),
    ("grep-searcher", "tools"),
    ("image", "tools"),
    ("rmcp", "mcp"),
    ("jsonschema", "tools"),
    ("tracing-subscriber", "playhouse"),
    ("metrics-exporter-prometheus", "playhouse"),
    ("metrics-util", "playhouse"),
    ("toml", "playhouse"),
];

/// The most lines of a source file. The aim is 500.
const LONGEST_FILE: usize = 700;

/// A package of this workspace.
struct Package {
    name: String,
    folder: PathBuf,
    manifest: Table,
}

impl Package {
    fn read(folder: &Path) -> Self {
        let manifest: Table = fs_err::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap();
        let name = name.strip_prefix("playhouse-").unwrap_or(name).to_owned();
        Self { name, folder: folder.to_owned(), manifest }
    }

    /// The dependencies that its code has, those of its tests left out.
    fn dependencies(&self) -> BTreeSet<String> {
        let names = |table: &str| self.manifest.get(table).and_then(Value::as_table).map(Table::keys);
        ["dependencies", "build-dependencies"].into_iter().filter_map(names).flatten().cloned().collect()
    }

    /// The files below its `src`, by path from the root of the workspace.
    fn sources(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        collect(&self.folder.join("src"), "rs", &mut found);
        found
    }

    /// Its code: without comments and without tests.
    fn code(&self) -> BTreeMap<PathBuf, String> {
        self.sources()
            .into_iter()
            .filter(|(path, _)| !is_test(path))
            .map(|(path, text)| (path, code_of(&text)))
            .collect()
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn packages() -> Vec<Package> {
    let mut folders = vec![root(), root().join("actors"), root().join("server")];
    for entry in fs_err::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        // A folder without a manifest may be left behind by another branch.
        if folder.join("Cargo.toml").exists() {
            folders.push(folder);
        }
    }
    folders.sort();
    folders.iter().map(|folder| Package::read(folder)).collect()
}

fn package(name: &str) -> Package {
    packages().into_iter().find(|package| package.name == name).unwrap()
}

fn collect(folder: &Path, extension: &str, found: &mut BTreeMap<PathBuf, String>) {
    if !folder.exists() {
        return;
    }
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // The fuzz targets are a workspace of their own, which is built where it stands.
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text = fs_err::read_to_string(&path).unwrap();
            found.insert(path.strip_prefix(root()).unwrap().to_owned(), text);
        }
    }
}

fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    stem == "testing"
        || stem.ends_with("tests")
        || stem.ends_with("_test")
        || path.components().any(|part| part.as_os_str() == "tests")
}

/// A source without its comments, and without the module of tests at its end.
fn code_of(text: &str) -> String {
    let body = text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end]);
    let lines = body.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Whether `word` stands in `text`, and not as a part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, _)| {
        !text[..start].ends_with(is_part) && !text[start + word.len()..].starts_with(is_part)
    })
}

/// The files of `packages` whose code holds one of `words`.
fn users(packages: &[Package], words: &[&str]) -> Vec<String> {
    let mut users = Vec::new();
    for package in packages {
        for (path, code) in package.code() {
            let found = words.iter().filter(|word| has_word(&code, word));
            users.extend(found.map(|word| format!("{}: {word}", path.display())));
        }
    }
    users
}

#[test]
fn arrows_point_one_way() {
    let packages = packages();
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let known: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, known, "a package without a place in ARROWS, or a place without a package");
    for package in &packages {
        let (_, allowed) = ARROWS.iter().find(|(name, _)| *name == package.name).unwrap();
        let ours = package
            .dependencies()
            .into_iter()
            .map(|name| name.strip_prefix("playhouse-").unwrap_or(&name).to_owned())
            .filter(|name| known.contains(name.as_str()));
        for dependency in ours {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{} must not depend on {dependency}",
                package.name
            );
        }
    }
}

#[test]
fn what_one_package_keeps_no_other_names() {
    for package in packages() {
        let dependencies = package.dependencies();
        for (library, keeper) in KEPT {
            let may = package.name == keeper
                // Names features, and uses nothing.
                || package.name == "features"
                // Reads its built-in facts with it.
                || (library, package.name.as_str()) == ("toml", "catalogue")
                // Reaches out for models, through one door.
                || (library, package.name.as_str()) == ("reqwest", "tools")
                // Speaks to the systems that bill.
                || (library, package.name.as_str()) == ("reqwest", "exporters")
                // The other side of the protocol.
                || (library, package.name.as_str()) == ("rmcp", "mcp-server")
                // Has an accept loop of its own, for its time limits.
                || (library, package.name.as_str()) == ("hyper", "server")
                // Says who drives the connections of its client.
                || (library, package.name.as_str()) == ("hyper", "llm");
            assert!(
                may || !dependencies.contains(library),
                "{} depends on {library}, which belongs to {keeper}",
                package.name
            );
        }
    }
    let others: Vec<Package> = packages().into_iter().filter(|package| package.name != "actors").collect();
    assert_eq!(users(&others, &["ractor"]), Vec::<String>::new());
}

#[test]
fn the_pure_packages_touch_nothing() {
    let pure: Vec<Package> =
        packages().into_iter().filter(|package| PURE.contains(&&*package.name)).collect();
    assert_eq!(pure.len(), PURE.len());
    for package in &pure {
        let allowed = [
            "base64",
            "diffy",
            "itoa",
            // Locks.
            "parking_lot",
            "serde",
            "serde_json",
            "rust_decimal",
            // Makes JSON Schemas of types, as values.
            "schemars",
            "sha2",
            "strsim",
            "thiserror",
            "toml",
            "tree-sitter",
            "tree-sitter-bash",
        ];
        for dependency in package.dependencies() {
            let fits = dependency.starts_with("playhouse-") || allowed.contains(&dependency.as_str());
            assert!(fits, "{} depends on {dependency}: is that pure?", package.name);
        }
    }
    let words = [
        "tokio",
        "std::fs",
        "fs_err",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "thread",
        "std::io",
        "SystemTime",
        "Instant",
        "std::time",
        "getrandom",
        "rand",
    ];
    assert_eq!(users(&pure, &words), Vec::<String>::new());
}

#[test]
fn what_computes_beside_files_has_no_runtime_and_no_clock() {
    for name in ["prompts", "store"] {
        let package = package(name);
        assert!(!package.dependencies().contains("tokio"), "{name} depends on tokio");
        assert_eq!(users(&[package], &["SystemTime", "tokio"]), Vec::<String>::new());
    }
}

#[test]
fn the_session_makes_no_ids_of_its_own() {
    // Ids come from the stamp of an input: nothing but the stamp's generator makes one.
    let made: Vec<String> = users(&[package("session")], &["IdGenerator::new", "from_bytes", "parse"]);
    assert_eq!(made, Vec::<String>::new());
}

#[test]
fn one_place_reads_the_clock_for_what_is_stored() {
    let engine: Vec<Package> = packages().into_iter().filter(|package| package.name != "mock-llm").collect();
    // `door.rs` carries the times of files, `sweeper.rs`, `outputs.rs`, `folders.rs`, `walk.rs` and both `leftovers.rs` compare them; `failure` reads dates that say when
    // to come back, and `grant.rs` compares when a token ends.
    let expected = [
        "actors/src/base.rs: SystemTime",
        "actors/src/sweeper.rs: SystemTime",
        "crates/llm/src/failure/mod.rs: SystemTime",
        "crates/llm/src/failure/wait.rs: SystemTime",
        "crates/mcp/src/oauth/grant.rs: SystemTime",
        "crates/sandbox/src/walls/folders.rs: SystemTime",
        "crates/tools/src/outputs.rs: SystemTime",
        "crates/workspace/src/door.rs: SystemTime",
        "crates/workspace/src/door/leftovers.rs: SystemTime",
        "crates/workspace/src/tree/walk.rs: SystemTime",
        "src/cli/leftovers.rs: SystemTime",
    ];
    let mut found = users(&engine, &["SystemTime"]);
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn programs_are_started_in_one_place() {
    // The others are the demo, which makes its own repository before there is an engine, and the command that starts this
    // program as an engine in the background, which is to outlive it.
    let expected = [
        "crates/sandbox/src/process.rs: Command::new",
        "src/cli/demo.rs: Command::new",
        "src/cli/reach/background.rs: Command::new",
    ];
    let mut found = users(&packages(), &["Command::new"]);
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn keys_are_opened_only_where_they_are_sent() {
    for user in users(&packages(), &["expose_secret"]) {
        // `mock.rs` carries the headers of a request to the model in the same process.
        let carriers = [
            "crates/llm/src/",
            "crates/tools/src/web/search.rs",
            "crates/exporters/src/keys.rs",
            // Signs the calls that a platform is sent.
            "actors/src/host_tools/webhook.rs",
            // Hands a server of tools the environment or the headers that are declared for it.
            "crates/mcp/src/entry.rs",
            // Hands a language server the environment that is configured for it.
            "crates/lsp/src/entry.rs",
            // Sends tokens to the server, and the secret of a client to its authorization server.
            "crates/mcp/src/oauth/",
            "src/mock.rs",
        ];
        let fits = carriers.iter().any(|carrier| user.starts_with(carrier));
        assert!(fits, "{user}");
    }
}

#[test]
fn what_a_model_asks_of_the_network_goes_through_one_door() {
    let tools = package("tools");
    let found =
        users(&[tools], &["Client::builder", "Client::new", "TcpStream", "reqwest::get", "lookup_host"]);
    assert_eq!(found, ["crates/tools/src/web/door.rs: Client::builder"]);
}

#[test]
fn the_environment_is_read_by_the_product_and_passed_down_by_a_list() {
    // Configuration gets a function that reads variables, so that tests and two engines can have different ones.
    let product = |file: &str| file.starts_with("src/") && !file.starts_with("src/config/");
    // For the folder of the shell, and for what commands get.
    let sandbox = ["crates/sandbox/src/process.rs", "crates/sandbox/src/process/environment.rs"];
    for user in users(&packages(), &["env::var", "env::var_os", "env::vars", "env::vars_os"]) {
        let (file, _) = user.split_once(": ").unwrap();
        // What no release has: see below.
        let fails = file == "crates/store/src/fail.rs";
        assert!(product(file) || sandbox.contains(&file) || fails, "{user}");
    }
}

#[test]
fn no_release_has_fail_points() {
    // They are compiled in debug builds, and with a feature that no package turns on.
    const FEATURE: &str = "failpoints";
    let code = package("store").code();
    let store = &code[Path::new("crates/store/src/lib.rs")];
    assert!(
        store.contains("#[cfg(any(debug_assertions, feature = \"failpoints\"))]\npub mod fail;"),
        "the module is not in a release"
    );
    let manifest = fs_err::read_to_string(root().join("Cargo.toml")).unwrap();
    let workspace: Table = manifest.parse().unwrap();
    assert!(!workspace["workspace"].to_string().contains(FEATURE));
    // Nor is a release built as if it were none.
    for (name, profile) in workspace["profile"].as_table().unwrap() {
        assert!(name == "dev" || !profile.to_string().contains("debug-assertions"), "{name}");
    }
    for Package { name, manifest, .. } in packages() {
        let features = manifest.get("features").and_then(Value::as_table);
        let of_features = features.map(|features| features.keys().map(String::as_str).collect::<Vec<_>>());
        let turned_on: Vec<&String> = manifest
            .iter()
            .filter(|(table, value)| {
                !matches!(table.as_str(), "features" | "workspace") && value.to_string().contains(FEATURE)
            })
            .map(|(table, _)| table)
            .collect();
        match name.as_str() {
            "store" => {
                let features = features.unwrap();
                assert_eq!(features[FEATURE].as_array().unwrap().len(), 0);
                let others = features.iter().filter(|(other, _)| other.as_str() != FEATURE);
                assert!(!others.map(|(_, on)| on.to_string()).any(|on| on.contains(FEATURE)));
                assert!(turned_on.is_empty(), "{name}: {turned_on:?}");
            }
            _ => {
                assert!(turned_on.is_empty() && !of_features.unwrap_or_default().contains(&FEATURE), "{name}")
            }
        }
    }
}

#[test]
fn every_fail_point_is_used_once() {
    let code = package("store").code();
    let points = &code[Path::new("crates/store/src/fail.rs")];
    let names = points.lines().filter_map(|line| {
        let (name, text) = line.trim().split_once(" = \"")?;
        text.ends_with("\";").then(|| name.to_owned())
    });
    let names: Vec<String> =
        names.filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_')).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let used =
            code.values().map(|code| code.matches(&format!("fail_point!({name})")).count()).sum::<usize>();
        assert_eq!(used, 1, "{name}");
    }
}

/// The module of a file: its path from `src`, without the extension.
fn module_of(path: &Path) -> Option<Vec<String>> {
    let stem = path.with_extension("");
    let parts = stem.iter().skip_while(|part| *part != "src").skip(1);
    let module: Vec<String> = parts.map(|part| part.to_str().unwrap().to_owned()).collect();
    (module != ["lib"]).then_some(module)
}

/// The modules and items that a module names by a path from `crate` or `super`, as paths from the root of its package.
fn named_by(module: &[String], code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut named = Vec::new();
    for (start, _) in ["crate::", "super::"].iter().flat_map(|word| code.match_indices(word)) {
        if code[..start].ends_with(is_part) {
            continue;
        }
        let rest = &code[start..];
        let (path, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        let names: Vec<&str> = path.split("::").filter(|name| !name.is_empty()).collect();
        let up = names.iter().take_while(|name| **name == "super").count();
        let base = if up == 0 { &[] } else { &module[..module.len().saturating_sub(up)] };
        let below = names[up.max(1)..].iter().map(|name| (*name).to_owned());
        let path: Vec<String> = base.iter().cloned().chain(below).collect();
        // `path::{one, Other}`
        let group = behind.strip_prefix('{').and_then(|group| group.split('}').next());
        let last = group.into_iter().flat_map(|group| group.split(|c| !is_part(c)));
        for name in last.filter(|name| !name.is_empty()) {
            assert!(!name.contains("::"), "a group within a group is not understood: {rest:.60}");
            named.push(path.iter().cloned().chain([name.to_owned()]).collect());
        }
        named.push(path);
    }
    named
}

/// Which of their siblings modules use: by the folder in which they lie, each with those that it names, itself or in one of
/// its own modules.
fn siblings(code: &BTreeMap<PathBuf, String>) -> BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> {
    let modules: BTreeMap<Vec<String>, &String> =
        code.iter().filter_map(|(path, text)| Some((module_of(path)?, text))).collect();
    let mut found: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
    for (module, text) in &modules {
        for named in named_by(module, text) {
            let common = module.iter().zip(&named).take_while(|(one, other)| one == other).count();
            let (Some(user), Some(used)) = (module.get(common), named.get(common)) else { continue };
            let folder = module[..common].to_vec();
            let sibling = folder.iter().cloned().chain([used.clone()]).collect::<Vec<_>>();
            if modules.contains_key(&sibling) {
                found.entry(folder).or_default().entry(user.clone()).or_default().insert(used.clone());
            }
        }
    }
    found
}

/// Takes away what uses nothing that is left, until nothing can be taken: what stays is in a cycle, or leads to one.
fn cyclic(mut uses: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let users: BTreeSet<String> = uses.keys().cloned().collect();
        let before = users.len();
        uses.values_mut().for_each(|used| used.retain(|name| users.contains(name)));
        uses.retain(|_, used| !used.is_empty());
        if uses.len() == before {
            return uses;
        }
    }
}

#[test]
fn sibling_modules_of_the_actors_form_no_cycle() {
    for (folder, uses) in siblings(&package("actors").code()) {
        assert_eq!(cyclic(uses), BTreeMap::new(), "in actors/src/{}", folder.join("/"));
    }
    // That it would see one.
    let code = |path: &str, text: &str| (PathBuf::from("actors/src").join(path), text.to_owned());
    let made = BTreeMap::from([
        code("a.rs", "use crate::b::{B, Other};"),
        code("b/inner.rs", "fn f() { crate::c::go() }"),
        code("c.rs", "use super::a::A;"),
        code("b.rs", "mod inner;"),
        code("b/deep.rs", "use super::inner::X;\nuse crate::base::now;"),
        code("base.rs", ""),
    ]);
    let found = siblings(&made);
    assert_eq!(cyclic(found[&Vec::new()].clone()).into_keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(cyclic(found[&vec!["b".to_owned()]].clone()), BTreeMap::new());
}

#[test]
fn metrics_have_their_names_from_the_table() {
    // A name that stands where something is measured is in no table, so no test would miss it.
    for (path, code) in packages().iter().flat_map(Package::code) {
        let flat: String = code.split_whitespace().collect();
        for word in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
            assert!(!flat.contains(word), "{}: {word}", path.display());
        }
    }
    // The recorder is global: an embedder has one of its own.
    let installs = users(&packages(), &["set_global_recorder", "install_recorder"]);
    assert_eq!(installs, ["src/exposition/mod.rs: set_global_recorder"]);
}

#[test]
fn nothing_is_unbounded_and_nothing_is_printed() {
    for (path, code) in packages().iter().flat_map(Package::code) {
        let banned = ["unbounded_channel", "unbounded", "println!", "eprintln!", "print!", "eprint!", "dbg!"];
        for word in banned {
            assert!(!code.contains(&format!("{word}(")), "{}: {word}", path.display());
        }
        for word in ["allow(unsafe_code", "todo!", "unimplemented!"] {
            assert!(!code.contains(word), "{}: {word}", path.display());
        }
    }
}

/// One call of the C library, for which nobody has a safe wrapper, and the name by which the allocator finds how it is set, with
/// the settings that are read and made later.
#[test]
fn unsafe_code_stands_in_two_places() {
    let packages = packages();
    let blocks = packages.iter().flat_map(Package::code).filter_map(|(path, code)| {
        let count: usize =
            ["unsafe_code", "unsafe {", "unsafe("].map(|word| code.matches(word).count()).iter().sum();
        (count > 0).then(|| format!("{}: {count}", path.display()))
    });
    assert_eq!(blocks.collect::<Vec<_>>(), ["src/allocator.rs: 6", "actors/src/supervisor/memory.rs: 2"]);
}

#[test]
fn files_stay_short_and_open_with_a_page() {
    let mut files = BTreeMap::new();
    for folder in ["src", "actors", "server", "crates", "tests", "benches", "examples"] {
        collect(&root().join(folder), "rs", &mut files);
    }
    assert!(files.len() > 100, "found only {} files", files.len());
    for (path, text) in files {
        let lines = text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines", path.display());
        let says = text.starts_with("//!") || is_test(&path);
        assert!(says, "{} does not say what it is", path.display());
    }
}

#[test]
fn every_package_takes_the_lints_and_the_facts_of_the_workspace() {
    for package in packages() {
        let lints = &package.manifest["lints"]["workspace"];
        assert_eq!(lints.as_bool(), Some(true), "{}", package.name);
        for fact in ["version", "edition", "rust-version", "license", "publish"] {
            let inherited = package.manifest["package"][fact].get("workspace").and_then(Value::as_bool);
            assert_eq!(inherited, Some(true), "{}: {fact}", package.name);
        }
    }
    let manifest = package("playhouse").manifest;
    let levels = &manifest["workspace"]["lints"];
    assert_eq!(levels["rust"]["unsafe_code"].as_str(), Some("deny"));
    for lint in ["await_holding_lock", "disallowed_methods", "large_futures", "print_stdout", "unwrap_used"] {
        assert_eq!(levels["clippy"][lint].as_str(), Some("deny"), "{lint}");
    }
    // A panic has to stay in its actor.
    for (name, profile) in manifest["profile"].as_table().unwrap() {
        let panic = profile.get("panic").and_then(Value::as_str).unwrap_or("unwind");
        assert_eq!(panic, "unwind", "profile {name}");
    }
}

#[test]
fn the_page_on_the_architecture_names_what_there_is() {
    let page = fs_err::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for package in packages() {
        let folder = package.folder.strip_prefix(root()).unwrap();
        let name = if folder.as_os_str().is_empty() { Path::new("src") } else { folder };
        assert!(page.contains(&format!("`{}/", name.display())), "{} is not in the code map", name.display());
    }
    let quoted = page.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        ["src/", "actors/", "server/", "crates/", "prompts/", "tests/", "scripts/", "examples/"]
            .iter()
            .any(|folder| text.starts_with(folder))
            && !text.contains([' ', '*', '<'])
    };
    let missing: Vec<&str> = quoted.filter(is_path).filter(|path| !root().join(path).exists()).collect();
    assert_eq!(missing, Vec::<&str>::new(), "ARCHITECTURE.md names files that are not there");
}
