//! Programs that format files which tools have edited.

use playhouse_actors::Formatter;

use super::document::Value;
use super::keys::KeyName;
use super::programs;

/// The place of a formatter in a file.
pub(super) const PATH: &str = "formatter.NAME";

/// A formatter as far as the file describes it.
#[derive(Default)]
pub(super) struct FormatterDraft {
    pub(super) line: usize,
    command: Option<Vec<String>>,
    extensions: Option<Vec<String>>,
    disabled: bool,
}

impl FormatterDraft {
    /// Takes a setting over. A fragment says what is wrong with it.
    pub(super) fn set(&mut self, key: KeyName, value: &Value) -> Result<(), String> {
        match (key, value) {
            (KeyName::FormatterCommand, Value::List(words)) => self.command = Some(programs::command(words)?),
            (KeyName::FormatterExtensions, Value::List(extensions)) => {
                self.extensions = Some(programs::extensions(extensions)?);
            }
            (KeyName::FormatterEnabled, Value::Boolean(enabled)) => self.disabled = !enabled,
            _ => return Err("does not belong here".to_owned()),
        }
        Ok(())
    }

    /// The formatter of this name; `None` if it is not enabled.
    pub(super) fn finish(self, name: &str) -> Result<Option<Formatter>, String> {
        programs::check_name(name, "a formatter")?;
        let missing = |key: &str| format!("the formatter \"{name}\" has no `{key}`");
        let command = self.command.ok_or_else(|| missing("command"))?;
        let extensions = self.extensions.ok_or_else(|| missing("extensions"))?;
        let formatter = Formatter { name: name.to_owned(), command, extensions };
        if !formatter.names_the_file() {
            return Err(format!(
                "no argument in `command` of the formatter \"{name}\" has `$FILE`, which stands for the file: \
                 [\"prettier\", \"--write\", \"$FILE\"]"
            ));
        }
        Ok(Some(formatter).filter(|_| !self.disabled))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::loaded;

    #[test]
    fn formatters_are_read_in_the_order_of_their_names_without_those_that_are_not_enabled() {
        let settings = loaded(
            "[formatter.z]\ncommand = [\"z\", \"$FILE\"]\nextensions = [\".z\"]\n\
             [formatter.b]\ncommand = [\"/bin/b\", \"--in=$FILE\"]\nextensions = [\".d.ts\", \".ts\"]\n\
             [formatter.a]\ncommand = [\"a\", \"$FILE\"]\nextensions = [\".a\"]\nenabled = false",
        )
        .unwrap();
        let read: Vec<_> = settings
            .formatters
            .iter()
            .map(|it| (it.name.as_str(), it.command.len(), it.extensions.len()))
            .collect();
        assert_eq!(read, [("b", 2, 2), ("z", 2, 1)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("[formatter.x]\nextensions = [\".x\"]", "toml:1: the formatter \"x\" has no `command`"),
            (
                "[formatter.x]\ncommand = [\"p\", \"$FILE\"]",
                "toml:1: the formatter \"x\" has no `extensions`",
            ),
            ("[formatter.x]\ncommand = []", "toml:2: `formatter.x.command`: no program is named"),
            (
                "[formatter.x]\ncommand = [\"./p\", \"$FILE\"]",
                "neither the name of a program nor an absolute path",
            ),
            ("[formatter.x]\ncommand = [\"p\"]\nextensions = [\".x\"]", "toml:1: no argument in `command`"),
            (
                "[formatter.x]\ncommand = [\"$FILE\"]\nextensions = [\".x\"]",
                "toml:1: no argument in `command`",
            ),
            ("[formatter.x]\nextensions = [\"x\"]", "toml:2: `formatter.x.extensions`: \"x\" is not how"),
            ("[formatter.x]\nenabled = 1", "toml:2: `formatter.x.enabled`"),
            ("[formatter]\nx = 1", "toml:2: `formatter.x`"),
            (
                "[formatter.\"a b\"]\ncommand = [\"p\"]\nextensions = [\".x\"]",
                "\"a b\" cannot be the name of a formatter",
            ),
        ] {
            let error = loaded(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
