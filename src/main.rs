//! The command line of Playhouse.

fn main() -> std::process::ExitCode {
    playhouse::cli::main()
}
