//! What stands for a configuration, so that two processes can tell whether theirs are the same.

use std::collections::BTreeMap;
use std::path::Path;

use playhouse_sandbox::process::PASSED_DOWN;
use playhouse_tools::Tool as _;
use sha2::{Digest as _, Sha256};

use super::catalogue::CATALOGUE_FILE;
use super::lsp::LspServerSettings;
use super::mcp::McpSettings;
use super::provider::HeaderSource;
use super::settings::{Settings, Variables};

/// Of the names that begin with `LC_`, those that there are.
const LOCALE: &[&str] =
    &["LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"];

/// SHA-256, in hexadecimal digits, over what belongs to the operator: files, where requests go, the variables in which keys
/// lie, and those that commands get. No value can be read from it.
pub(super) fn fingerprint(settings: &Settings, variables: Variables<'_>) -> String {
    let mut hash = Sha256::new();
    // The length of each piece comes first, so that none can be taken for a part of another.
    let mut add = |piece: &[u8]| {
        hash.update((piece.len() as u64).to_be_bytes());
        hash.update(piece);
    };
    // A running engine follows the catalogue by itself.
    let catalogue = Some(std::ffi::OsStr::new(CATALOGUE_FILE));
    for path in settings.own.iter().filter(|path| path.file_name() != catalogue) {
        add_file(path, &mut add);
    }
    for rules in &settings.rules {
        add(rules.file.as_bytes());
        add(rules.text.as_bytes());
    }
    for tool in &settings.captures {
        add(tool.spec().parameters.to_string().as_bytes());
    }
    for (name, provider) in &settings.providers {
        add(name.as_bytes());
        add(provider.base_url.as_bytes());
        for key in &provider.keys {
            add_variable(&key.name, variables, &mut add);
        }
        add_headers(&provider.headers, variables, &mut add);
    }
    add_headers(&settings.web.search_headers, variables, &mut add);
    for name in settings.sinks.values().filter_map(|sink| sink.config().key_env.as_ref()) {
        add_variable(name, variables, &mut add);
    }
    for name in settings.mcp.values().flat_map(McpSettings::variables) {
        add_variable(name, variables, &mut add);
    }
    for name in settings.lsp.servers.values().flat_map(LspServerSettings::variables) {
        add_variable(name, variables, &mut add);
    }
    for name in PASSED_DOWN.iter().chain(LOCALE) {
        add_variable(name, variables, &mut add);
    }
    add(settings.home.as_deref().unwrap_or_default().as_bytes());
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds a variable, if it is set.
fn add_variable(name: &str, variables: Variables<'_>, add: &mut dyn FnMut(&[u8])) {
    if let Some(value) = variables(name).filter(|value| !value.trim().is_empty()) {
        add(name.as_bytes());
        add(value.as_bytes());
    }
}

/// Adds the variables from which headers are taken. The others stand in the files.
fn add_headers(
    headers: &BTreeMap<String, HeaderSource>,
    variables: Variables<'_>,
    add: &mut dyn FnMut(&[u8]),
) {
    for source in headers.values() {
        if let HeaderSource::Variable(name) = source {
            add_variable(name, variables, add);
        }
    }
}

/// Adds a file, or the files of a folder of agents. What cannot be read counts as absent, as it does for the settings.
fn add_file(path: &Path, add: &mut dyn FnMut(&[u8])) {
    if let Ok(content) = fs_err::read(path) {
        add(&content);
        return;
    }
    let Ok(entries) = fs_err::read_dir(path) else { return };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    for file in files {
        add(file.file_name().unwrap_or_default().as_encoded_bytes());
        add(&fs_err::read(&file).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_files_and_the_keys_and_tells_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let of = |text: &str, key: Option<&str>| {
            fs_err::write(&file, text).unwrap();
            let variables = |name: &str| key.filter(|_| name == "OPENAI_API_KEY").map(str::to_owned);
            Settings::load(Some(&file), &variables).unwrap().fingerprint
        };
        let plain = of("", None);
        assert_eq!(plain, of("", None));
        assert_ne!(plain, of("sandbox = \"off\"", None));
        assert_ne!(plain, of("", Some("one")));
        assert_eq!(of("", Some("one")), of("", Some("one")));
        assert_ne!(of("", Some("one")), of("", Some("another")));
        let with_path = |path: &str| {
            let variables = |name: &str| (name == "PATH").then(|| path.to_owned());
            Settings::load(Some(&file), &variables).unwrap().fingerprint
        };
        assert_eq!(with_path("/bin"), with_path("/bin"));
        assert_ne!(with_path("/bin"), with_path("/usr/bin"));
        fs_err::write(
            folder.path().join(CATALOGUE_FILE),
            r#"{"format":"playhouse-models","version":3,"models":{}}"#,
        )
        .unwrap();
        assert_eq!(plain, of("", None), "an engine that runs takes a new catalogue");
        fs_err::create_dir(folder.path().join("agents")).unwrap();
        fs_err::write(folder.path().join("agents/a.md"), "---\ndescription: An agent.\n---\nBe quick.")
            .unwrap();
        assert_ne!(plain, of("", None));
    }
}
