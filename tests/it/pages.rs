//! README, guide and reference: examples that say they run do, links lead somewhere, and pages stay short.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::stage::{engine_at, finish};

/// Pages with the most lines that each may have.
const LONGEST: [(&str, usize); 4] =
    [("README.md", 150), ("ARCHITECTURE.md", 250), ("CHANGELOG.md", 200), ("docs/guide", 250)];

/// What stands before a block of shell commands that runs by itself.
const MARK: &str = "<!-- runnable -->";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The pages at `place`, a page or a folder of the repository.
fn pages(place: &str) -> Vec<PathBuf> {
    let path = root().join(place);
    if path.is_file() {
        return vec![path];
    }
    let mut pages = Vec::new();
    for entry in fs_err::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(path.to_str().unwrap()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

fn all() -> Vec<PathBuf> {
    let front = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md"];
    front.iter().chain(&["docs", "deploy"]).flat_map(|place| pages(place)).collect()
}

#[test]
fn pages_are_no_longer_than_they_may_be() {
    for (place, most) in LONGEST {
        for page in pages(place) {
            let lines = fs_err::read_to_string(&page).unwrap().lines().count();
            assert!(lines <= most, "{} has {lines} lines, at most {most}", page.display());
        }
    }
}

/// The anchors of a page: its headings as links name them.
fn anchors(page: &str) -> Vec<String> {
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |title: &str| -> String {
        title.to_lowercase().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    page.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    for page in all() {
        let text = fs_err::read_to_string(&page).unwrap();
        let code_free: String = text.split("```").step_by(2).collect();
        for link in code_free.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: there is no {link}", page.display());
            if !anchor.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
                let there = anchors(&fs_err::read_to_string(&target).unwrap());
                assert!(there.iter().any(|known| known == anchor), "{}: no heading {link}", page.display());
            }
        }
    }
}

/// The blocks of a page that run by themselves, each with the line where it begins.
fn runnable(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line != MARK {
            continue;
        }
        assert_eq!(lines.next().map(|(_, line)| line), Some("```sh"), "line {}: a block follows", number + 1);
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        blocks.push((number + 1, block.join("\n")));
    }
    blocks
}

/// Runs a block as somebody does who has just installed the program.
fn run(page: &Path, line: usize, block: &str) {
    let home = tempfile::tempdir().unwrap();
    let workspace = home.path().join("project");
    fs_err::create_dir(&workspace).unwrap();
    // Another server may have the port that people type.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let programs = Path::new(env!("CARGO_BIN_EXE_playhouse")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-eu", "-c", &block.replace("4096", &free.to_string())]).current_dir(&workspace);
    command.env_clear().env("HOME", home.path()).env("PATH", path).stdin(Stdio::null());
    let ended = finish(command);
    if let Some((engine, _)) = engine_at(&home.path().join(".local/share/playhouse")) {
        rustix::process::kill_process(engine, rustix::process::Signal::KILL).unwrap();
    }
    assert_eq!(ended.code, Some(0), "{}, line {line}: {ended:?}", page.display());
}

#[test]
fn examples_that_say_so_run_by_themselves() {
    let mut count = 0;
    for page in pages("README.md").into_iter().chain(pages("docs/guide")) {
        for (line, block) in runnable(&fs_err::read_to_string(&page).unwrap()) {
            run(&page, line, &block);
            count += 1;
        }
    }
    assert!(count > 20, "{count} examples ran");
}
