//! Statistics as Prometheus metrics (the text exposition format, version 0.0.4).
//!
//! Times are in seconds, exact to the nanosecond. Quantities that only grow are counters. Jobs and
//! events are counted from the start of the log. Responses and executions are histograms with
//! buckets at 1, 2 and 5 times powers of ten. They add up over machines, and can be watched over a
//! window. Other times are summaries with the quantiles of docs/reference/statistics.md since the start of
//! the log. Quantities that the log does not record have no sample.
//!
//! ```
//! use takt_log::{KindSet, Definitions, stats::Collector};
//! use takt_model::Time;
//!
//! let stats = Collector::new(&Definitions::default(), KindSet::JOBS).finish(Time::from_ns(1_500_000_000));
//! let text = takt_report::prometheus(&stats);
//! assert!(text.contains("# TYPE takt_log_seconds gauge\ntakt_log_seconds 1.5\n"));
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use takt_log::stats::{Histogram, InterruptStats, Stats, Summary, TaskStats};

/// Upper bounds of histograms' buckets, in nanoseconds: 1, 2 and 5 times powers of ten from a microsecond to 100 s.
const BOUNDS: [u64; 25] = bounds();
const QUANTILES: [&str; 4] = ["0.5", "0.9", "0.99", "0.999"];

const fn bounds() -> [u64; 25] {
    let mut bounds = [0; 25];
    let (mut i, mut power) = (0, 1_000);
    while i < 25 {
        bounds[i] = power * [1, 2, 5][i % 3];
        if i % 3 == 2 {
            power *= 10;
        }
        i += 1;
    }
    bounds
}

/// The whole text, each metric with its HELP and TYPE. `stats` are those since the start of the log.
#[must_use]
pub fn prometheus(stats: &Stats) -> String {
    let mut page = Page(String::new());
    page.metric("takt_log_seconds", "gauge", "How far the log reaches.");
    page.sample("takt_log_seconds", "", &[], &seconds(stats.duration_ns.into()));
    page.metric("takt_lost_events_total", "counter", "Events that the log is known to have lost.");
    if let Some(lost) = stats.lost_events {
        page.sample("takt_lost_events_total", "", &[], &lost.to_string());
    }
    page.metric("takt_losses_counted", "gauge", "1 unless an unknown number of events was lost.");
    page.sample("takt_losses_counted", "", &[], if stats.lost_events.is_some() { "1" } else { "0" });
    tasks(&mut page, stats);
    chains(&mut page, stats);
    cpus(&mut page, stats);
    interrupts(&mut page, stats.interrupts.as_deref().unwrap_or_default());
    page.0
}

type Labels = Vec<(&'static str, String)>;

fn tasks(page: &mut Page, stats: &Stats) {
    let labels =
        numbered(stats.tasks.iter().map(|task| vec![("node", task.node.clone()), ("task", task.task.clone())]));
    let all = || labels.iter().zip(&stats.tasks);
    type Count = fn(&TaskStats) -> Option<u64>;
    let counts: [(&str, &str, &str, Count); 10] = [
        ("takt_jobs_released_total", "counter", "Jobs released.", |t| Some(t.released)),
        ("takt_jobs_completed_total", "counter", "Jobs completed.", |t| Some(t.completed)),
        ("takt_jobs_missed_total", "counter", "Jobs that missed their deadline.", |t| t.missed),
        ("takt_jobs_cancelled_total", "counter", "Jobs omitted, or shed with a predecessor.", |t| Some(t.cancelled)),
        ("takt_jobs_rejected_total", "counter", "Jobs not queued, for the backlog was full.", |t| Some(t.rejected)),
        ("takt_jobs_unfinished", "gauge", "Jobs that are open, were dropped, or failed.", |t| Some(t.unfinished)),
        ("takt_jobs_censored_total", "counter", "Jobs whose fate lost events hide.", |t| Some(t.censored)),
        ("takt_jobs_uncertain_total", "counter", "Jobs whose nominal arrival is known as a window.", |t| {
            Some(t.uncertain)
        }),
        ("takt_preemptions_total", "counter", "How often a running job lost its CPU to another.", |t| t.preemptions),
        ("takt_migrations_total", "counter", "How often a job resumed on another CPU.", |t| t.migrations),
    ];
    for (name, kind, help, of) in counts {
        page.metric(name, kind, help);
        for (labels, value) in all().filter_map(|(labels, task)| Some((labels, of(task)?))) {
            page.sample(name, "", labels, &value.to_string());
        }
    }
    let times: [(&str, &str, &str, Count); 4] = [
        ("takt_task_busy_seconds_total", "counter", "How long the task's jobs held CPUs.", |t| t.busy_ns),
        ("takt_task_period_seconds", "gauge", "The period or minimum inter-arrival time.", |t| t.period_ns),
        ("takt_task_deadline_seconds", "gauge", "The relative deadline.", |t| t.deadline_ns),
        ("takt_task_wcet_seconds", "gauge", "The worst-case execution time, or budget.", |t| t.wcet_ns),
    ];
    for (name, kind, help, of) in times {
        page.metric(name, kind, help);
        for (labels, value) in all().filter_map(|(labels, task)| Some((labels, of(task)?))) {
            page.sample(name, "", labels, &seconds(value.into()));
        }
    }
    page.metric("takt_response_seconds", "histogram", "Completion minus nominal arrival.");
    all().for_each(|(labels, task)| page.histogram("takt_response_seconds", labels, &task.responses));
    page.metric("takt_response_max_seconds", "gauge", "The longest response since the start.");
    for (labels, summary) in all().filter_map(|(labels, task)| Some((labels, task.response_ns?))) {
        page.sample("takt_response_max_seconds", "", labels, &seconds(summary.max.into()));
    }
    page.metric("takt_laxity_min_seconds", "gauge", "The least deadline minus completion; negative when late.");
    for (labels, summary) in all().filter_map(|(labels, task)| Some((labels, task.laxity_ns?))) {
        page.sample("takt_laxity_min_seconds", "", labels, &seconds(summary.min.into()));
    }
    page.metric("takt_execution_seconds", "histogram", "How long completed jobs held CPUs.");
    let executed = |task: &TaskStats| task.busy_ns.is_some();
    let known = all().filter(|(_, task)| executed(task));
    known.for_each(|(labels, task)| page.histogram("takt_execution_seconds", labels, &task.executions));
    type Part = fn(&TaskStats) -> (Option<Summary<u64>>, &Histogram);
    let summaries: [(&str, &str, Part); 3] = [
        ("takt_execution_without_interrupts_seconds", "The same without interrupts and softirqs.", |t| {
            (t.execution_without_interrupts_ns, &t.net_executions)
        }),
        ("takt_inter_arrival_seconds", "Between the nominal arrivals of jobs that follow each other.", |t| {
            (t.inter_arrival_ns, &t.inter_arrivals)
        }),
        ("takt_start_latency_seconds", "Start minus nominal arrival.", |t| (t.start_latency_ns, &t.start_latencies)),
    ];
    for (name, help, of) in summaries {
        page.metric(name, "summary", help);
        for (labels, task) in all() {
            let (summary, histogram) = of(task);
            page.summary(name, labels, summary, histogram);
        }
    }
}

fn chains(page: &mut Page, stats: &Stats) {
    let labels = numbered(stats.chains.iter().map(|chain| vec![("chain", chain.chain.clone())]));
    page.metric("takt_chain_response_seconds", "histogram", "End-to-end responses.");
    for (labels, chain) in labels.iter().zip(&stats.chains) {
        page.histogram("takt_chain_response_seconds", labels, &chain.responses);
    }
}

fn cpus(page: &mut Page, stats: &Stats) {
    let cpu = |cpu: &takt_log::stats::CpuStats| vec![("node", cpu.node.clone()), ("cpu", cpu.cpu.to_string())];
    let labels = numbered(stats.cpus.iter().map(cpu));
    type Time = fn(&takt_log::stats::CpuStats) -> Option<u64>;
    let times: [(&str, &str, Time); 3] = [
        ("takt_cpu_busy_seconds_total", "How long jobs held the CPU.", |cpu| cpu.busy_ns),
        ("takt_cpu_interrupts_seconds_total", "How long interrupts and softirqs ran on the CPU.", |cpu| {
            cpu.interrupts_ns
        }),
        ("takt_cpu_used_seconds_total", "How long either was so.", |cpu| cpu.used_ns),
    ];
    for (name, help, of) in times {
        page.metric(name, "counter", help);
        for (labels, value) in labels.iter().zip(&stats.cpus).filter_map(|(labels, cpu)| Some((labels, of(cpu)?))) {
            page.sample(name, "", labels, &seconds(value.into()));
        }
    }
}

fn interrupts(page: &mut Page, interrupts: &[InterruptStats]) {
    let labels = numbered(interrupts.iter().map(|interrupt| {
        let or_empty = |text: Option<&str>| text.unwrap_or_default().to_owned();
        vec![
            ("node", or_empty(interrupt.node.as_deref())),
            ("interrupt", interrupt.interrupt.clone()),
            ("kind", or_empty(interrupt.kind)),
        ]
    }));
    let all = || labels.iter().zip(interrupts);
    page.metric("takt_interrupts_total", "counter", "How often the handler began.");
    all().for_each(|(labels, one)| page.sample("takt_interrupts_total", "", labels, &one.count.to_string()));
    page.metric("takt_interrupt_busy_seconds_total", "counter", "How long the handler ran, without nested ones.");
    for (labels, one) in all() {
        page.sample("takt_interrupt_busy_seconds_total", "", labels, &seconds(one.busy_ns.into()));
    }
    page.metric("takt_interrupt_execution_seconds", "summary", "How long the handler runs, without nested ones.");
    for (labels, one) in all() {
        page.summary("takt_interrupt_execution_seconds", labels, one.execution_ns, &one.executions);
    }
    page.metric("takt_interrupt_inter_arrival_seconds", "summary", "Between beginnings of the handler.");
    for (labels, one) in all() {
        page.summary("takt_interrupt_inter_arrival_seconds", labels, one.inter_arrival_ns, &one.inter_arrivals);
    }
}

struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[(&'static str, String)], value: &str) {
        self.labelled(name, suffix, labels, None, value);
    }

    fn labelled(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &[(&'static str, String)],
        last: Option<(&str, &str)>,
        value: &str,
    ) {
        let labels = labels.iter().map(|(key, value)| (*key, value.as_str())).chain(last);
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{suffix}{labels} {value}");
    }

    /// A value counts in a bucket once all of its own (docs/reference/statistics.md) lies in it: never too early.
    fn histogram(&mut self, name: &str, labels: &Labels, histogram: &Histogram) {
        let mut buckets = histogram.buckets().peekable();
        let mut seen = 0;
        for bound in BOUNDS {
            while let Some(bucket) = buckets.next_if(|bucket| bucket.upper_ns <= bound) {
                seen += bucket.count;
            }
            self.labelled(name, "_bucket", labels, Some(("le", &seconds(bound.into()))), &seen.to_string());
        }
        self.labelled(name, "_bucket", labels, Some(("le", "+Inf")), &histogram.count().to_string());
        self.total(name, labels, histogram);
    }

    fn summary(&mut self, name: &str, labels: &Labels, summary: Option<Summary<u64>>, histogram: &Histogram) {
        let Some(summary) = summary else { return };
        for (quantile, value) in QUANTILES.into_iter().zip([summary.p50, summary.p90, summary.p99, summary.p999]) {
            self.labelled(name, "", labels, Some(("quantile", quantile)), &seconds(value.into()));
        }
        self.total(name, labels, histogram);
    }

    fn total(&mut self, name: &str, labels: &Labels, histogram: &Histogram) {
        self.sample(name, "_sum", labels, &seconds(i128::try_from(histogram.sum()).unwrap_or(i128::MAX)));
        self.sample(name, "_count", labels, &histogram.count().to_string());
    }
}

/// Series must differ: of several with the same labels, the second and further ones say which they are.
fn numbered(all: impl Iterator<Item = Labels>) -> Vec<Labels> {
    let mut seen: BTreeMap<Labels, u64> = BTreeMap::new();
    let number = |mut labels: Labels| {
        let count = seen.entry(labels.clone()).or_default();
        *count += 1;
        if *count > 1 {
            labels.push(("nth", count.to_string()));
        }
        labels
    };
    all.map(number).collect()
}

/// Nanoseconds as decimal seconds, every digit kept.
fn seconds(ns: i128) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let text = format!("{sign}{whole}.{part:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_log::stats::Collector;
    use takt_log::{
        CancelCause, Definitions, Event, InterruptDef, InterruptKind, JobKey, KindSet, NodeDef, Sink as _, TaskDef,
    };
    use takt_model::{NodeId, Span, TaskId, Time};

    /// Two tasks of one name, which the format has to escape, an interrupt, a miss, a rejected job.
    fn stats() -> Stats {
        let task = || TaskDef {
            name: "a \"b\"\\\n".into(),
            node: NodeId(0),
            period: Some(Span::from_ms(10)),
            deadline: Some(Span::from_ms(2)),
            wcet: None,
            class: None,
        };
        let definitions = Definitions {
            nodes: vec![NodeDef { name: "n".into(), cpus: 1, strategy: "edf".into() }],
            tasks: vec![task(), task()],
            interrupts: vec![InterruptDef { name: "24 eth0".into(), node: NodeId(0), kind: InterruptKind::Hard }],
            ..Definitions::default()
        };
        let mut collector = Collector::new(&definitions, KindSet::ALL);
        let at = Time::from_ns;
        for number in 0..3 {
            let job = JobKey { task: TaskId(0), number };
            let now = number * 10_000_000;
            collector.event(0, at(now), &Event::Release { job, arrival: at(now), parent: None });
            collector.event(0, at(now), &Event::Start { job, cpu: 0 });
            collector.event(0, at(now + 100), &Event::IrqEnter { irq: 0, cpu: 0 });
            collector.event(0, at(now + 350), &Event::IrqExit { irq: 0, cpu: 0 });
            collector.event(0, at(now + 1_000_000 * (number + 1)), &Event::Complete { job, cpu: 0 });
        }
        let (job, arrival) = (JobKey { task: TaskId(1), number: 0 }, at(25_000_000));
        collector.event(0, arrival, &Event::Release { job, arrival, parent: None });
        collector.event(0, arrival, &Event::Cancel { job, cause: CancelCause::Rejected });
        collector.event(0, at(29_000_000), &Event::Lost { count: 0 });
        collector.finish(at(30_000_000))
    }

    #[test]
    fn numbers_are_in_seconds_and_labels_escaped() {
        let text = prometheus(&stats());
        let a = r#"node="n",task="a \"b\"\\\n""#;
        for line in [
            "takt_log_seconds 0.03".to_owned(),
            "takt_losses_counted 0".to_owned(),
            format!("takt_jobs_missed_total{{{a}}} 1"),
            format!("takt_jobs_released_total{{{a},nth=\"2\"}} 1"),
            format!("takt_jobs_rejected_total{{{a},nth=\"2\"}} 1"),
            format!("takt_task_busy_seconds_total{{{a}}} 0.006"),
            format!("takt_response_seconds_bucket{{{a},le=\"0.0005\"}} 0"),
            format!("takt_response_seconds_bucket{{{a},le=\"0.001\"}} 0"),
            format!("takt_response_seconds_bucket{{{a},le=\"0.002\"}} 1"),
            format!("takt_response_seconds_bucket{{{a},le=\"0.005\"}} 3"),
            format!("takt_response_seconds_bucket{{{a},le=\"+Inf\"}} 3"),
            format!("takt_response_seconds_sum{{{a}}} 0.006"),
            format!("takt_laxity_min_seconds{{{a}}} -0.001"),
            format!("takt_execution_without_interrupts_seconds_count{{{a}}} 3"),
            format!("takt_inter_arrival_seconds{{{a},quantile=\"0.999\"}} 0.01"),
            r#"takt_cpu_used_seconds_total{node="n",cpu="0"} 0.006"#.to_owned(),
            r#"takt_interrupt_busy_seconds_total{node="n",interrupt="24 eth0",kind="hard"} 0.00000075"#.to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.lines().any(|line| line.starts_with("takt_lost_events_total")), "nobody knows how many");
        assert_eq!([0, -1, 1_000_000_000, 1_230_000_000].map(seconds), ["0", "-0.000000001", "1", "1.23"]);
    }

    /// Every line is what the format allows; names and series are unique; histograms are cumulative.
    #[test]
    fn the_text_is_well_formed() {
        let text = prometheus(&stats());
        assert!(text.ends_with('\n'));
        let name = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        };
        let mut types: BTreeMap<String, String> = BTreeMap::new();
        let mut series: BTreeMap<String, f64> = BTreeMap::new();
        let mut family = String::new();
        let mut last_bucket: Option<(String, f64, f64)> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (of, help) = rest.split_once(' ').unwrap();
                assert!(name(of) && !help.is_empty() && !types.contains_key(of), "{line}");
                family = of.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (of, kind) = rest.split_once(' ').unwrap();
                assert!(of == family && ["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", of.ends_with("_total"), "{line}");
                assert!(types.insert(of.to_owned(), kind.to_owned()).is_none(), "{line}");
            } else {
                let (key, value) = line.rsplit_once(' ').unwrap();
                let value: f64 = value.parse().unwrap();
                let (of, labels) = parse(key);
                let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| of.strip_suffix(end));
                let base = base.filter(|base| types.contains_key(*base)).unwrap_or(&of);
                assert_eq!(base, family, "{line} stands under another metric");
                let has = |wanted: &str| labels.iter().any(|(key, _)| key == wanted);
                match types[&family].as_str() {
                    "histogram" => assert_eq!(of.ends_with("_bucket"), has("le"), "{line}"),
                    "summary" => assert_eq!(of == family, has("quantile"), "{line}"),
                    kind => assert!(of == family && (kind == "gauge" || value >= 0.0), "{line}"),
                }
                if let Some((_, le)) = labels.iter().find(|(key, _)| key == "le") {
                    let le: f64 = le.parse().unwrap();
                    let of: String =
                        labels.iter().filter(|(key, _)| key != "le").map(|(k, v)| format!("{k}={v} ")).collect();
                    if let Some((before, bound, count)) =
                        last_bucket.filter(|(before, ..)| *before == of && le != 0.000_001)
                    {
                        assert!(bound < le && count <= value, "{before} {line}");
                    }
                    last_bucket = Some((of, le, value));
                }
                assert!(labels.iter().all(|(key, _)| name(key)));
                assert!(series.insert(key.to_owned(), value).is_none(), "{line} is there twice");
            }
        }
        assert!(types.len() > 20 && series.len() > 100);
    }

    /// The name and the labels of a sample, strictly by the format.
    fn parse(key: &str) -> (String, Vec<(String, String)>) {
        let Some((name, rest)) = key.split_once('{') else { return (key.to_owned(), Vec::new()) };
        let mut rest = rest.strip_suffix('}').unwrap();
        let mut labels = Vec::new();
        while !rest.is_empty() {
            let (label, after) = rest.split_once("=\"").unwrap();
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('"' | '\\') => c,
                        c => panic!("\\{c} is no escape"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            rest = after[end + 1..].strip_prefix(',').unwrap_or(&after[end + 1..]);
        }
        (name.to_owned(), labels)
    }
}
