//! The command line of Playhouse.

#[cfg(all(target_os = "linux", target_env = "gnu", not(feature = "system-allocator")))]
mod allocator;

fn main() -> std::process::ExitCode {
    playhouse::cli::main()
}
