//! What is configured of sinks: where the ledger is exported to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use playhouse_exporters::{ACTIVE, Sink, SinkConfig, SinkKind, Start};
use playhouse_protocol::nearest::did_you_mean;
use rustix::fs::{Access, access as access_of};
use secrecy::SecretString;

use super::document::{Setting, Value, shown};
use super::error::ConfigError;
use super::keys::KeyName;
use super::provider::variable_name;
use super::settings::Variables;

/// The place of a sink in a file.
pub(super) const PATH: &str = "sinks.NAME";
/// What people call a server of CloudEvents that they know.
const OPENMETER: &str = "openmeter";

/// A sink as it is configured: everything but the value of its key is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSettings {
    config: SinkConfig,
    lines: Lines,
    file: PathBuf,
}

/// Where it stands in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lines {
    section: usize,
    keys: BTreeMap<&'static str, usize>,
}

impl SinkSettings {
    /// What is configured.
    pub fn config(&self) -> &SinkConfig {
        &self.config
    }

    /// The folder that it writes.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.config.folder.as_deref()
    }

    /// The sink of this name, with the key that its variable holds now.
    ///
    /// # Errors
    /// The variable is not set, or does not hold such a key; files cannot be written in its folder.
    pub fn sink(&self, name: &str, variables: Variables<'_>) -> Result<Sink, ConfigError> {
        if let Some(obstacle) = self.folder().and_then(obstacle) {
            let problem = format!(
                "cannot be written: {obstacle}. Name a folder that can be, as one in the data directory"
            );
            let error = playhouse_exporters::ConfigError { sink: name.to_owned(), key: "folder", problem };
            return Err(self.lines.error(&self.file, error));
        }
        let secret = |variable: &str| {
            let value = variables(variable).filter(|value| !value.trim().is_empty())?;
            Some(SecretString::from(value.trim()))
        };
        Sink::new(name, &self.config, &secret).map_err(|error| self.lines.error(&self.file, error))
    }
}

/// What keeps files from being written in this folder, which need not be there yet. Nothing is made to find out.
fn obstacle(folder: &Path) -> Option<String> {
    let there = folder.ancestors().find(|above| above.exists())?;
    if !there.is_dir() {
        return Some(format!("{} is not a folder", there.display()));
    }
    let denied = |path: &Path, access| {
        let error = access_of(path, access).err()?;
        Some(format!("{}: {}", path.display(), std::io::Error::from(error)))
    };
    let file = folder.join(ACTIVE);
    denied(there, Access::WRITE_OK | Access::EXEC_OK)
        .or_else(|| file.exists().then(|| denied(&file, Access::READ_OK | Access::WRITE_OK)).flatten())
}

impl Lines {
    fn error(&self, file: &Path, error: playhouse_exporters::ConfigError) -> ConfigError {
        let line = self.keys.get(error.key).copied().unwrap_or(self.section);
        let dot = if error.key.is_empty() { "" } else { "." };
        let message = format!("`sinks.{}{dot}{}` {}", shown(&error.sink), error.key, error.problem);
        ConfigError::line(file, line, message)
    }
}

/// A sink as far as the file describes it.
#[derive(Default)]
pub(super) struct SinkDraft {
    /// Where its table begins.
    pub(super) line: usize,
    kind: Option<SinkKind>,
    config: SinkConfig,
    keys: BTreeMap<&'static str, usize>,
}

impl SinkDraft {
    /// Takes a setting over. A fragment says what is wrong with it.
    pub(super) fn set(
        &mut self,
        setting: &Setting,
        path: impl FnOnce(&str) -> PathBuf,
    ) -> Result<(), String> {
        let config = &mut self.config;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        match (setting.key.name, &setting.value) {
            (KeyName::SinkType, Value::Text(text)) => self.kind = Some(kind(text)?),
            (KeyName::SinkUrl, Value::Text(text)) => config.url = Some(text.trim().to_owned()),
            (KeyName::SinkKey, Value::Text(text)) => config.key_env = Some(variable_name(text)?),
            (KeyName::SinkFolder, Value::Text(text)) if text.trim().is_empty() => {
                return Err("is empty: name a folder of its own".to_owned());
            }
            (KeyName::SinkFolder, Value::Text(text)) => config.folder = Some(path(text)),
            (KeyName::SinkSource, Value::Text(text)) => config.source = Some(text.clone()),
            (KeyName::SinkEvent, Value::Text(text)) => config.event = Some(text.clone()),
            (KeyName::SinkOrganization, Value::Text(text)) => config.organization = Some(text.clone()),
            (KeyName::SinkStart, Value::Text(text)) => config.start = start(text)?,
            (KeyName::SinkRotateBytes, Value::Whole(number)) => config.rotate_bytes = Some(*number),
            (KeyName::SinkRotateSeconds, Value::Whole(number)) => config.rotate_seconds = Some(*number),
            (KeyName::SinkBatchRows, Value::Whole(number)) => config.batch_rows = Some(size(*number)),
            (KeyName::SinkBatchBytes, Value::Whole(number)) => config.batch_bytes = Some(size(*number)),
            (KeyName::SinkLinger, Value::Whole(number)) => config.linger_ms = Some(*number),
            (KeyName::SinkTimeout, Value::Whole(number)) => config.timeout_ms = Some(*number),
            (KeyName::SinkRetryFirst, Value::Whole(number)) => config.retry_first_ms = Some(*number),
            (KeyName::SinkRetryLongest, Value::Whole(number)) => config.retry_longest_ms = Some(*number),
            _ => return Err("does not belong here".to_owned()),
        }
        let path = setting.key.path;
        self.keys.insert(path.rsplit_once('.').map_or(path, |(_, name)| name), setting.line);
        Ok(())
    }

    /// Checks it as a whole.
    pub(super) fn finish(self, name: &str, file: &Path) -> Result<SinkSettings, ConfigError> {
        let Self { line, kind, config, keys } = self;
        let lines = Lines { section: line, keys };
        let Some(kind) = kind else {
            let message = format!("`sinks.{}` has no `kind`: there are {}", shown(name), kinds().join(", "));
            return Err(ConfigError::line(file, lines.section, message));
        };
        let config = SinkConfig { kind, ..config };
        config.check(name).map_err(|error| lines.error(file, error))?;
        Ok(SinkSettings { config, lines, file: file.to_owned() })
    }
}

/// Two that write one folder would spoil each other's files.
pub(super) fn check_apart(sinks: &BTreeMap<String, SinkSettings>) -> Result<(), ConfigError> {
    let mut folders: BTreeMap<&Path, &str> = BTreeMap::new();
    for (name, sink) in sinks {
        let Some(folder) = sink.folder() else { continue };
        if let Some(other) = folders.insert(folder, name) {
            let problem = format!("is the folder of the sink {other}, too: give each one of its own");
            let error = playhouse_exporters::ConfigError { sink: name.clone(), key: "folder", problem };
            return Err(sink.lines.error(&sink.file, error));
        }
    }
    Ok(())
}

fn kinds() -> [&'static str; 5] {
    SinkKind::ALL.map(SinkKind::name)
}

fn kind(text: &str) -> Result<SinkKind, String> {
    let found = SinkKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.or((text == OPENMETER).then_some(SinkKind::Cloudevents)).ok_or_else(|| {
        let names = kinds();
        let meant = did_you_mean(text, names);
        format!("is \"{}\", expected {}{meant}", text.escape_debug(), names.join(", "))
    })
}

fn start(text: &str) -> Result<Start, String> {
    Start::ALL.into_iter().find(|start| start.name() == text).ok_or_else(|| {
        let names = Start::ALL.map(Start::name);
        format!(
            "is \"{}\", expected {}{}",
            text.escape_debug(),
            names.join(" or "),
            did_you_mean(text, names)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::settings::Settings;
    use super::*;

    /// Settings, or the message without the name of the file.
    fn load(text: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs_err::write(&file, text).unwrap();
        let place = format!("{}:", file.display());
        Settings::load(Some(&file), &|_| None).map_err(|error| error.to_string().replace(&place, ""))
    }

    #[test]
    fn a_sink_of_each_kind_is_configured() {
        let settings = load(
            "[sinks.files]\nkind = \"file\"\nfolder = \"usage\"\nrotate_bytes = 5\nrotate_seconds = 6\n\
             [sinks.meter]\nkind = \"openmeter\"\nurl = \"https://m.example\"\nsource = \"s\"\nevent = \"e\"\n\
             [sinks.polar]\nkind = \"polar\"\nkey_env = \"POLAR\"\norganization = \"o\"\nstart = \"now\"\n\
             [sinks.hook]\nkind = \"webhook\"\nurl = \"http://h\"\nkey_env = \"HOOK\"\nbatch_rows = 7\n\
             batch_bytes = 8\nlinger_ms = 0\ntimeout_ms = 9\nretry_first_ms = 10\nretry_longest_ms = 11\n\
             [sinks.turns]\nkind = \"report\"\nurl = \"http://r\"\n",
        )
        .unwrap();
        let config = |name: &str| settings.sinks[name].config().clone();
        let files = config("files");
        assert!(
            files.folder.as_ref().is_some_and(|folder| folder.is_absolute() && folder.ends_with("usage"))
        );
        assert!(settings.own.contains(files.folder.as_ref().unwrap()), "sessions do not see it");
        assert_eq!((files.rotate_bytes, files.rotate_seconds), (Some(5), Some(6)));
        let meter = config("meter");
        assert_eq!((meter.kind, meter.source.as_deref()), (SinkKind::Cloudevents, Some("s")));
        assert_eq!(meter.event.as_deref(), Some("e"));
        let polar = config("polar");
        assert_eq!((polar.start, polar.organization.as_deref()), (Start::Now, Some("o")));
        let hook = config("hook");
        assert_eq!((hook.batch_rows, hook.batch_bytes, hook.linger_ms), (Some(7), Some(8), Some(0)));
        let times = (hook.timeout_ms, hook.retry_first_ms, hook.retry_longest_ms);
        assert_eq!(times, (Some(9), Some(10), Some(11)));
        assert_eq!(config("turns").kind, SinkKind::Report);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, message) in [
            (
                "[sinks.a]\n",
                "1: `sinks.a` has no `kind`: there are file, cloudevents, polar, webhook, report",
            ),
            (
                "\n[sinks.a]\nkind = \"polr\"",
                "3: `sinks.a.kind`: is \"polr\", expected file, cloudevents, polar, webhook, report; did you mean \"polar\"?",
            ),
            (
                "[sinks.a]\nkind = \"file\"",
                "1: `sinks.a.folder` is needed: name the folder for the files, with its whole path",
            ),
            (
                "[sinks.a]\nkind = \"webhook\"\nkey_env = \"K\"",
                "1: `sinks.a.url` is needed: name the address of the server",
            ),
            (
                "[sinks.a]\nkind = \"report\"\nurl = \"r.example\"",
                "3: `sinks.a.url` is no address of the web: it must begin with https:// or http://",
            ),
            (
                "[sinks.a]\nkind = \"polar\"\nfolder = \"/x\"\nkey_env = \"K\"",
                "3: `sinks.a.folder` has no meaning for a sink of kind polar: remove it",
            ),
            (
                "[sinks.a]\nkind = \"file\"\nfolder = \" \"",
                "3: `sinks.a.folder`: is empty: name a folder of its own",
            ),
            (
                "[sinks.a]\nkind = \"polar\"",
                "1: `sinks.a.key_env` is needed: name the variable that holds the access token",
            ),
            (
                "[sinks.a]\nkind = \"polar\"\nkey_env = \"K\"\nbatch_rows = 0",
                "4: `sinks.a.batch_rows` must be from 1 to 10000",
            ),
            (
                "[sinks.a]\nkind = \"file\"\nfolder = \"/x\"\nstart = \"nows\"",
                "4: `sinks.a.start`: is \"nows\", expected beginning or now; did you mean \"now\"?",
            ),
            (
                "[sinks.a]\nkind = \"file\"\nfolder = \"/x\"\n[sinks.b]\nkind = \"file\"\nfolder = \"/x\"",
                "6: `sinks.b.folder` is the folder of the sink a, too: give each one of its own",
            ),
            (
                "[sinks.\"a b\"]\nkind = \"file\"\nfolder = \"/x\"",
                "1: `sinks.\"a b\"` is not the name of a sink: use 1 to 64 letters, digits, hyphens and underscores",
            ),
        ] {
            assert_eq!(load(text).unwrap_err(), message);
        }
        let error = load("[sinks.a]\nkind = \"polar\"\nkey = \"polar_oat_1\"").unwrap_err();
        assert!(
            error.starts_with("3: unknown key `sinks.a.key`") && !error.contains("polar_oat_1"),
            "{error}"
        );
        let error = load("[sinks.a]\nkind = \"polar\"\nkey_env = \"polar-oat-1\"").unwrap_err();
        assert!(
            error.starts_with("3: `sinks.a.key_env`: this is not the name") && !error.contains("oat"),
            "{error}"
        );
    }

    #[test]
    fn the_variable_of_a_key_must_hold_one_when_the_sink_is_made() {
        let settings = load("[sinks.a]\nkind = \"webhook\"\nurl = \"http://h\"\nkey_env = \"HOOK\"").unwrap();
        let make = |value: Option<&str>| {
            let made =
                settings.sinks["a"].sink("a", &|name| value.filter(|_| name == "HOOK").map(str::to_owned));
            made.map(drop).map_err(|error| error.to_string())
        };
        for missing in [None, Some(" \n")] {
            let error = make(missing).unwrap_err();
            assert!(
                error.contains(":4: `sinks.a.key_env` names the variable HOOK, which is not set"),
                "{error}"
            );
        }
        let error = make(Some("hunter2")).unwrap_err();
        assert!(error.contains("not a key of webhooks") && !error.contains("hunter2"), "{error}");
        assert_eq!(make(Some("whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n")), Ok(()));
    }
}
