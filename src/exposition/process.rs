//! What this process uses, as `/proc` tells: by the names that client libraries of Prometheus give it. Where there is no
//! `/proc`, nothing is told.

use playhouse_protocol::Metric;

use super::write_plain;

/// What this process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    threads: f64,
    /// In seconds since 1970.
    started: f64,
}

/// How the kernel counts.
#[derive(Clone, Copy, Debug)]
struct Units {
    /// Of processor time, a second.
    ticks: f64,
    /// Bytes.
    page: f64,
    /// When the machine was started, in seconds since 1970.
    booted: f64,
}

/// Whether a metric is written here, and not by the recorder.
pub(super) fn is_of_process(metric: Metric) -> bool {
    metric.name().starts_with("process_")
}

/// Writes what this process uses. Reads a few small files.
pub(super) fn write(text: &mut String) {
    let mut plain = |metric: Metric, value: f64| write_plain(text, &metric.facts(), value);
    if let Some(used) = used() {
        plain(Metric::ProcessCpu, used.cpu_seconds);
        plain(Metric::ProcessResident, used.resident_bytes);
        plain(Metric::ProcessVirtual, used.virtual_bytes);
        plain(Metric::ProcessThreads, used.threads);
        plain(Metric::ProcessStart, used.started);
    }
    if let Ok(open) = fs_err::read_dir("/proc/self/fd") {
        // One of them is the folder itself.
        plain(Metric::ProcessFiles, number(open.count().saturating_sub(1)));
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        plain(Metric::ProcessMostFiles, number(usize::try_from(most).unwrap_or(usize::MAX)));
    }
}

fn used() -> Option<Used> {
    let read = |path: &str| fs_err::read_to_string(path).ok();
    let booted = booted(&read("/proc/stat")?)?;
    let (ticks, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size());
    let units = Units { ticks: number(usize::try_from(ticks).ok()?), page: number(page), booted };
    parse(&read("/proc/self/stat")?, units)
}

/// When the machine was started, out of `/proc/stat`.
fn booted(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// What `/proc/PID/stat` says.
fn parse(stat: &str, units: Units) -> Option<Used> {
    // The second field is the program's name, in which anything may stand. What follows begins with the third.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<f64>().ok();
    Some(Used {
        cpu_seconds: (field(14)? + field(15)?) / units.ticks,
        threads: field(20)?,
        started: units.booted + field(22)? / units.ticks,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * units.page,
    })
}

#[allow(clippy::cast_precision_loss, reason = "a count may be off by one in 2^53")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 1500 0 3 0 250 50 0 0 20 0 12 0 1000 90000000 700 \
                        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn fields_are_found_after_any_name() {
        let units = Units { ticks: 100.0, page: 4_096.0, booted: 1_000_000.0 };
        let expected = Used {
            cpu_seconds: 3.0,
            resident_bytes: 700.0 * 4_096.0,
            virtual_bytes: 90_000_000.0,
            threads: 12.0,
            started: 1_000_010.0,
        };
        assert_eq!(parse(STAT, units), Some(expected));
        for broken in ["", "4711", "4711 (a) S 1 2", "4711 (a"] {
            assert_eq!(parse(broken, units), None, "{broken}");
        }
        assert_eq!(booted("cpu 1 2\nbtime 1700000000\nprocesses 1\n"), Some(1_700_000_000.0));
    }

    #[test]
    fn this_process_uses_something() {
        let mut text = String::new();
        write(&mut text);
        let value = |metric: Metric| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{} ", metric.name())));
            line.unwrap_or_else(|| panic!("{} is not in\n{text}", metric.name())).parse().unwrap()
        };
        assert!(value(Metric::ProcessResident) > 1_000_000.0);
        assert!(value(Metric::ProcessVirtual) >= value(Metric::ProcessResident));
        assert!(value(Metric::ProcessThreads) >= 1.0 && value(Metric::ProcessFiles) >= 3.0);
        assert!(value(Metric::ProcessMostFiles) >= value(Metric::ProcessFiles));
        assert!(value(Metric::ProcessStart) > 1_600_000_000.0 && value(Metric::ProcessCpu) >= 0.0);
        assert_eq!(text.matches("# HELP process_").count(), 7);
    }
}
