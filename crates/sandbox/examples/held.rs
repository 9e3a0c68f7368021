//! Runs a command within walls, as an application that embeds Playhouse would.
//!
//! ```text
//! cargo run -p playhouse-sandbox --example held -- [--landlock] FOLDER COMMAND
//! ```
//!
//! The command works in `FOLDER/workspace`, has its HOME in `FOLDER/home` and reads `FOLDER/output`. What holds it is said
//! first.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use playhouse_protocol::walls::{Sandbox, WallsAllowed};
use playhouse_sandbox::process::{Environment, Limits, Receive, Run, Scope, Spec, run};
use playhouse_sandbox::walls::{CONFINE, Material, Walls, WallsSpec, confined, set_confiner};
use tokio_util::sync::CancellationToken;

/// Hands output on as it comes.
struct Print;

impl Receive for Print {
    fn receive<'a>(&'a mut self, chunk: &'a [u8]) -> BoxFuture<'a, ()> {
        use std::io::Write as _;
        let mut output = std::io::stdout();
        // Nobody reads it: then it need not be written.
        let _ = output.write_all(chunk).and_then(|()| output.flush());
        std::future::ready(()).boxed()
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Before there are threads.
    if arguments.first().is_some_and(|first| first == CONFINE) {
        let Err(error) = confined(arguments.drain(1..));
        eprintln!("{error}");
        return ExitCode::from(126);
    }
    match held(arguments) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("held: {error}");
            ExitCode::from(125)
        }
    }
}

#[tokio::main]
async fn held(mut arguments: Vec<OsString>) -> Result<i32, Box<dyn std::error::Error>> {
    set_confiner(std::env::current_exe()?);
    let landlock = arguments.first().is_some_and(|first| first == "--landlock");
    arguments.drain(..usize::from(landlock));
    let [folder, command] =
        <[OsString; 2]>::try_from(arguments).map_err(|_| "[--landlock] FOLDER COMMAND")?;
    let folder = fs_err::canonicalize(PathBuf::from(folder))?;
    let spec = WallsSpec {
        sandbox: Sandbox::Required,
        allowed: WallsAllowed::default(),
        workspace: folder.join("workspace"),
        output: folder.join("output"),
        shared: Vec::new(),
        home: folder.join("home"),
        hidden: Vec::new(),
        roots: Vec::new(),
    };
    let walls = if landlock { Walls::build_of(&spec, Material::Landlock)? } else { Walls::build(&spec)? };
    println!("{}", walls.in_force()?);
    let spec = Spec {
        run: Run::Shell(command.into_string().map_err(|_| "the command is not text")?),
        workdir: spec.workspace,
        timeout: None,
        environment: Environment::of_this_process(),
        scope: Scope::new(),
        limits: Limits::default(),
        walls,
    };
    let exit = run(&spec, &CancellationToken::new(), &mut Print).await?;
    Ok(exit.code.unwrap_or(1))
}
