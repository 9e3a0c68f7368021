//! The machine that is measured on.

/// What this machine is, in a line; what it does not tell is left out.
pub(crate) fn line() -> String {
    let read = |path: &str| fs_err::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let cores = std::thread::available_parallelism().ok().map(|count| format!("{count} cores"));
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|size| size.trim_end_matches(" kB").parse::<u64>().ok())
        .map(|kilobytes| format!("{} GB", (kilobytes + (1 << 19)) >> 20));
    let kernel = read("/proc/sys/kernel/osrelease");
    let system = Some(format!("{} {} {}", std::env::consts::OS, kernel.trim(), std::env::consts::ARCH));
    [processor, cores, memory, system].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
