//! What the program takes its memory from: jemalloc.

use std::process::Command;

use fs_err as fs;
use mock_llm::Model;
use playhouse_sandbox::walls::CONFINE;
use rustix::process::Signal;
use serde_json::json;

use crate::serve::Serving;
use crate::stage::{Stage, finish, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_playhouse");

#[test]
fn it_is_set_as_the_program_says_and_the_environment_has_the_last_word() {
    let mut command = Command::new(PROGRAM);
    command.arg("--version").env("_RJEM_MALLOC_CONF", "confirm_conf:true,dirty_decay_ms:2000");
    let said = finish(command).is(0).stderr;
    for set in ["dirty_decay_ms:1000", "narenas:2", "tcache_max:4096", "slab_sizes:1-1024:1"] {
        assert!(said.contains(set), "{set}: {said}");
    }
    let (usual, told) =
        (said.find("dirty_decay_ms:1000").unwrap(), said.find("dirty_decay_ms:2000").unwrap());
    assert!(usual < told && !said.to_lowercase().contains("invalid"), "{said}");
}

#[test]
fn a_thread_gives_back_what_is_unused_while_a_server_rests() {
    let stage = Stage::new(Model::new());
    let server = Serving::start(&stage, ["--port", "0"]);
    assert!(server.has_begun());
    let threads = format!("/proc/{}/task", server.process());
    let is_it = |thread: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(thread.unwrap().path().join("comm")).is_ok_and(|name| name.starts_with("jemalloc"))
    };
    until("the thread of the allocator", || fs::read_dir(&threads).unwrap().any(is_it));
}

/// What a store is read through when it is opened is not to stay as what a server rests with.
#[test]
fn unused_pages_are_given_back_at_once_until_the_store_is_open() {
    let stage = Stage::new(Model::new());
    for (configured, wait) in [("", 1_000), (",dirty_decay_ms:2000", 2_000)] {
        let command = |listen| {
            let mut command = stage.command(["serve", "--listen", listen]);
            command
                .env("_RJEM_MALLOC_CONF", format!("stats_print:true,stats_print_opts:mdablxeh{configured}"));
            command
        };
        // At the end.
        let set = |now| format!("opt.dirty_decay_ms: {wait} (arenas.dirty_decay_ms: {now})");
        let told = finish(command("nowhere")).is(2).stderr;
        assert!(told.contains(&set(0)), "{told}");
        let server = Serving::of(command("127.0.0.1:0"));
        assert!(server.has_begun());
        server.signal(Signal::TERM);
        let told = server.ended().is(0).stderr;
        assert!(told.contains(&set(wait)), "{told}");
    }
}

/// Its limits may refuse a thread, and what the allocator says of that would stand in what the command says.
#[test]
fn a_program_that_becomes_a_confined_command_has_no_thread_beside_it() {
    let rules = json!({"read": ["/"], "write": [], "network": true}).to_string();
    let confined = |megabytes: u32, options: &str| {
        let limited = format!("ulimit -v {}; exec \"$@\"", megabytes * 1024);
        let mut command = Command::new("bash");
        command.args(["-c", &limited, "bash", PROGRAM, CONFINE, &rules, "--", "/bin/echo", "ran"]);
        command.env("_RJEM_MALLOC_CONF", options);
        finish(command)
    };
    // As much as the program needs, which is too little for the stack of a thread beside it.
    let least = (16..2_000).step_by(2).find(|megabytes| confined(*megabytes, "").code == Some(0)).unwrap();
    let ended = confined(least, "");
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("ran\n", ""));
    let with_thread = confined(least, "background_thread:true");
    assert!(with_thread.code != Some(0) || !with_thread.stderr.is_empty(), "there is room for a thread");
}
