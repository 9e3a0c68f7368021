//! The command line of Playhouse.

#[cfg(all(target_os = "linux", target_env = "gnu", feature = "jemalloc"))]
mod allocator;

fn main() -> std::process::ExitCode {
    #[cfg(all(target_os = "linux", target_env = "gnu", feature = "jemalloc"))]
    {
        allocator::begin();
        playhouse::cli::main(allocator::opened)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", feature = "jemalloc")))]
    playhouse::cli::main(|| {})
}
