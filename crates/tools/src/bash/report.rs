//! What is told of a command that has ended.

use std::time::Duration;

use playhouse_sandbox::process::{self, Exit, Share};
use serde_json::Map;

use super::BashOptions;
use crate::ToolOutput;
use crate::runner;
use crate::storage::StorageBound;
use crate::truncate::Capped;

/// How much of the end of the output clients get with the result, in bytes.
pub(super) const GLANCE: usize = 2048;

/// What held the command.
pub(super) struct Limits {
    pub(super) timeout: Option<Duration>,
    pub(super) options: BashOptions,
}

/// For people: one line, not too long.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

pub(super) fn cancelled(capped: &Capped) -> String {
    match capped.text.trim_end() {
        "" => "the command was ended".to_owned(),
        text => format!("the command was ended, after it had written:\n{text}"),
    }
}

/// What a model reads of a command that filled its home.
pub(super) fn filled_home(bound: StorageBound, capped: &Capped) -> String {
    let ended = format!(
        "the command was ended, as it filled its home directory: {bound}. Remove what is not needed in $HOME (du -sh ~/.* ~/*), \
         then let it write less"
    );
    match capped.text.trim_end() {
        "" => ended,
        text => format!("{ended}. It had written:\n{text}"),
    }
}

pub(super) fn result(
    title: String,
    capped: &Capped,
    glance: String,
    exit: Exit,
    limits: Limits,
) -> ToolOutput {
    let mut output = match capped.text.as_str() {
        "" => "(no output)".to_owned(),
        text => text.to_owned(),
    };
    if let Some(note) = note(exit, &limits) {
        if !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str(&note);
    }
    let mut metadata = Map::new();
    metadata.insert("exit".into(), exit.code.into());
    metadata.insert("signal".into(), exit.signal.into());
    metadata.insert("timedOut".into(), exit.timed_out.into());
    metadata.insert("truncated".into(), capped.truncated.into());
    metadata.insert("output".into(), glance.into());
    runner::describe(capped, &mut metadata);
    ToolOutput { title, output, metadata, ..ToolOutput::default() }
}

/// What the model has to know of the end, unless it was a good one.
fn note(exit: Exit, limits: &Limits) -> Option<String> {
    if let Some(timeout) = limits.timeout.filter(|_| exit.timed_out) {
        return Some(format!(
            "[The command did not end within {} ms, so it was ended, with all of its processes that could be found. If it needs longer, call \
             again with a greater timeout (at most {}). If it never ends, as a server does not, start it with \
             background: true]",
            timeout.as_millis(),
            limits.options.max_timeout.as_millis()
        ));
    }
    if exit.too_many_tasks {
        return Some(format!(
            "[The command wanted more than {} processes and threads at once, so all of them were ended. If it means to \
             do much at once, let it do less (as make -j4)]",
            limits.options.limits.tasks
        ));
    }
    if exit.out_of_memory {
        let Share { memory: together, .. } = limits.options.limits.of_session();
        return Some(format!(
            "[The command was ended: it used more than {} of memory, or all commands of this session together more than \
             {}. If it means to do much at once, let it do less (as make -j4)]",
            megabytes(limits.options.limits.memory),
            megabytes(together)
        ));
    }
    let ending = ending(exit);
    match (exit.code, broken_limit(exit, &limits.options.limits)) {
        (Some(0), _) => None,
        (_, Some(limit)) => Some(format!("[{ending}: {limit}]")),
        (_, None) => Some(format!("[{ending}]")),
    }
}

fn megabytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "all".to_owned(), |bytes| format!("{} MB", bytes >> 20))
}

/// What a process was ended for, where its signal tells. A shell adds 128 to the one that ended its child.
fn broken_limit(exit: Exit, limits: &process::Limits) -> Option<String> {
    const PROCESSOR_TIME: i32 = 24;
    const FILE_SIZE: i32 = 25;
    match exit.signal.or(exit.code.map(|code| code - 128))? {
        PROCESSOR_TIME => {
            limits.cpu_seconds.map(|most| format!("a process used the processor for over {most} s"))
        }
        FILE_SIZE => {
            limits.file_size.map(|most| format!("a process wrote a file of over {}", megabytes(Some(most))))
        }
        _ => None,
    }
}

/// How a command ended, in a few words.
pub(crate) fn ending(exit: Exit) -> String {
    match (exit.code, exit.signal) {
        _ if exit.too_many_tasks => "ended since it wanted too many processes".to_owned(),
        _ if exit.out_of_memory => "ended since it used too much memory".to_owned(),
        _ if exit.timed_out => "ended since its time was over".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "how the command ended is not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(exit: Exit) -> Option<String> {
        let limits =
            process::Limits { memory: Some(1 << 30), cpu_seconds: Some(5), ..process::Limits::default() };
        note(exit, &Limits { timeout: None, options: BashOptions { limits, ..BashOptions::default() } })
    }

    #[test]
    fn what_a_command_had_too_much_of_is_told() {
        let memory = told(Exit { signal: Some(9), out_of_memory: true, ..Exit::default() }).unwrap();
        assert!(memory.contains("more than 1024 MB of memory") && memory.contains("4096 MB"), "{memory}");
        let time = "a process used the processor for over 5 s";
        for exit in
            [Exit { signal: Some(24), ..Exit::default() }, Exit { code: Some(128 + 24), ..Exit::default() }]
        {
            assert!(told(exit).unwrap().contains(time));
        }
        let size = told(Exit { code: Some(128 + 25), ..Exit::default() }).unwrap();
        assert_eq!(size, "[exit code 153: a process wrote a file of over 16384 MB]");
        assert_eq!(told(Exit { code: Some(0), ..Exit::default() }), None);
        assert_eq!(told(Exit { code: Some(24), ..Exit::default() }).as_deref(), Some("[exit code 24]"));
    }
}
