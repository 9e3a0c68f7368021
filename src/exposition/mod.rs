//! Metrics as Prometheus reads them: installs the recorder of this process, describes what it records, and writes it down.
//!
//! Only the product does this: the recorder is global, and an embedder has one of its own. What is recorded where is in the
//! crates; the names are in `playhouse_protocol::metric`.
//!
//! A series that nothing was added to for a day goes away, so that a model or a tool that nobody uses any more costs
//! nothing. When it comes back it begins at 0, which Prometheus takes for a restart: `rate` and `increase` stay right, but
//! for the first addition after the gap. Series whose labels all stand in the table are there from the start, and stay;
//! histograms among them begin at 0 again after such a day.

mod process;

use std::fmt::Write as _;
use std::time::Duration;

use metrics::{KeyName, Label, Recorder, Unit, counter, gauge, histogram};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_util::MetricKindMask;
use playhouse_protocol::metric::{self, Facts, Kind, Metric};
use playhouse_server::MetricsSource;

/// After so long without an addition a series goes away.
const IDLE: Duration = Duration::from_secs(24 * 3_600);
/// How often what was recorded is put into its buckets, so that it takes no memory while nobody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Everything that this process recorded. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Exposition {
    handle: PrometheusHandle,
    /// Whether some metrics have the label of the tenant.
    by_tenant: bool,
}

impl Exposition {
    /// Makes this process record. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// It has a recorder already.
    pub(crate) fn install(by_tenant: bool) -> Result<Self, String> {
        let recorder = recorder(IDLE).map_err(|error| error.to_string())?;
        let exposition = Self { handle: recorder.handle(), by_tenant };
        metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
        let handle = exposition.handle.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                let handle = handle.clone();
                // It ends with the runtime.
                drop(tokio::task::spawn_blocking(move || handle.run_upkeep()).await);
            }
        });
        Ok(exposition)
    }

    /// Adds nothing to every series whose labels are known, so that they are there and stay.
    fn keep(&self) {
        for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
            let has_more_labels = self.by_tenant && facts.by_tenant;
            if has_more_labels || process::is_of_process(facts.metric) {
                continue;
            }
            for values in facts.combinations().unwrap_or_default() {
                let labels = facts.labels.iter().zip(values);
                let labels: Vec<Label> =
                    labels.map(|(label, value)| Label::from_static_parts(label.name, value)).collect();
                match facts.kind {
                    Kind::Counter => counter!(facts.name, labels).increment(0),
                    Kind::Histogram(_) => drop(histogram!(facts.name, labels)),
                    // They are set when somebody asks.
                    Kind::Gauge => {}
                }
            }
        }
    }
}

impl MetricsSource for Exposition {
    fn render(&self) -> String {
        self.keep();
        gauge!(Metric::BuildInfo.name(), "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        let mut text = self.handle.render();
        process::write(&mut text);
        text
    }
}

/// A recorder that knows all metrics: their help, their units and their buckets.
fn recorder(idle: Duration) -> Result<PrometheusRecorder, BuildError> {
    let mut builder = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::COUNTER | MetricKindMask::HISTOGRAM, Some(idle));
    for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
        if let Kind::Histogram(buckets) = facts.kind {
            builder = builder.set_buckets_for_metric(Matcher::Full(facts.name.to_owned()), buckets)?;
        }
    }
    let recorder = builder.build_recorder();
    for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
        let (name, unit, help) = (KeyName::from(facts.name), Some(unit(facts.unit)), facts.help.into());
        match facts.kind {
            // What the process is measured by is described where it is written.
            _ if process::is_of_process(facts.metric) => {}
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram(_) => recorder.describe_histogram(name, unit, help),
        }
    }
    Ok(recorder)
}

/// The facade has no money.
fn unit(unit: metric::Unit) -> Unit {
    match unit {
        metric::Unit::Count | metric::Unit::Dollars => Unit::Count,
        metric::Unit::Seconds => Unit::Seconds,
        metric::Unit::Bytes => Unit::Bytes,
    }
}

/// Writes a metric that the recorder does not hold.
fn write_plain(text: &mut String, facts: &Facts, value: f64) {
    let kind = match facts.kind {
        Kind::Counter => "counter",
        Kind::Gauge | Kind::Histogram(_) => "gauge",
    };
    let name = facts.name;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n{name} {value}\n", facts.help);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition(recorder: &PrometheusRecorder, by_tenant: bool) -> Exposition {
        Exposition { handle: recorder.handle(), by_tenant }
    }

    #[test]
    fn series_of_known_labels_are_there_before_anything_happened() {
        let recorder = recorder(IDLE).unwrap();
        let text = metrics::with_local_recorder(&recorder, || exposition(&recorder, false).render());
        for line in [
            "playhouse_turns_total{outcome=\"max-steps\"} 0",
            "playhouse_turn_duration_seconds_bucket{outcome=\"failed\",le=\"+Inf\"} 0",
            "playhouse_event_resyncs_total{stream=\"tenant\"} 0",
            "# HELP playhouse_sessions_created_total Sessions that were created.",
            "# TYPE playhouse_log_flush_duration_seconds histogram",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("playhouse_build_info{version=\""), "{text}");
        assert!(!text.contains("playhouse_tokens_total"), "nobody knows the models: {text}");
    }

    #[test]
    fn what_is_told_by_tenant_has_no_series_without_one() {
        let recorder = recorder(IDLE).unwrap();
        let text = metrics::with_local_recorder(&recorder, || exposition(&recorder, true).render());
        assert!(!text.contains("playhouse_turns_total"), "{text}");
        assert!(text.contains("playhouse_turn_duration_seconds_count"), "{text}");
    }

    #[test]
    fn every_histogram_has_its_own_buckets_and_none_is_a_summary() {
        let recorder = recorder(IDLE).unwrap();
        let text = metrics::with_local_recorder(&recorder, || {
            for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
                if matches!(facts.kind, Kind::Histogram(_)) {
                    histogram!(facts.name).record(0.2);
                }
            }
            exposition(&recorder, false).render()
        });
        for facts in Metric::ALL.iter().map(|metric| metric.facts()) {
            let Kind::Histogram(buckets) = facts.kind else { continue };
            assert!(text.contains(&format!("# TYPE {} histogram", facts.name)), "{}", facts.name);
            for bucket in buckets {
                let line = format!("{}_bucket{{le=\"{bucket}\"}}", facts.name);
                assert!(text.contains(&line), "{line} is not in\n{text}");
            }
        }
    }

    #[test]
    fn a_series_that_nobody_adds_to_goes_away_and_one_of_known_labels_stays() {
        let recorder = recorder(Duration::ZERO).unwrap();
        metrics::with_local_recorder(&recorder, || {
            let exposition = exposition(&recorder, false);
            counter!(Metric::Retries.name(), "provider" => "p", "reason" => "connection").increment(2);
            counter!(Metric::Turns.name(), "outcome" => "completed").increment(3);
            let text = exposition.render();
            assert!(
                text.contains("playhouse_retries_total{provider=\"p\",reason=\"connection\"} 2"),
                "{text}"
            );
            let text = exposition.render();
            assert!(!text.contains("playhouse_retries_total"), "{text}");
            assert!(text.contains("playhouse_turns_total{outcome=\"completed\"} 3"), "{text}");
            counter!(Metric::Retries.name(), "provider" => "p", "reason" => "connection").increment(1);
            let text = exposition.render();
            assert!(
                text.contains("playhouse_retries_total{provider=\"p\",reason=\"connection\"} 1"),
                "{text}"
            );
        });
    }

    #[test]
    fn a_histogram_of_known_labels_that_was_idle_begins_again() {
        let recorder = recorder(Duration::ZERO).unwrap();
        metrics::with_local_recorder(&recorder, || {
            let exposition = exposition(&recorder, false);
            histogram!(Metric::TurnDuration.name(), "outcome" => "failed").record(1.0);
            let told = |text: &str, count: u64| {
                text.contains(&format!(
                    "playhouse_turn_duration_seconds_count{{outcome=\"failed\"}} {count}\n"
                ))
            };
            let text = exposition.render();
            assert!(told(&text, 1), "{text}");
            // It is missing once.
            let texts = [exposition.render(), exposition.render()];
            assert!(texts.iter().any(|text| told(text, 0)), "{}", texts[1]);
        });
    }
}
