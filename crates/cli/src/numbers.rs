//! Statistics for people: what `sim`, `run` and `stats` print. Times have four digits, rounded up
//! (laxities down), so that what looks in time is in time; `-` stands for what is unknown.

use std::cmp::Reverse;
use std::fmt::Write as _;

use takt_log::causes::Cause;
use takt_log::stats::{DropCounts, InterruptStats, Merged, MessageStats, Stats, Summary, TaskStats};
use takt_model::{Lateness, Span, Time};

use crate::table::{Rows, Table, or_dash, time};

/// The words after "no deadline missed".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caveat {
    /// A simulation proves nothing about this system, but `takt check` does.
    CheckProves,
    /// A simulation proves nothing about this system, and `takt check` does not judge it.
    NoProof,
    None,
}

/// Tasks, then chains, messages, servers and CPUs, then one line that sums up.
pub(crate) fn numbers(stats: &Stats, caveat: Caveat, rows: Rows) -> String {
    let mut out = of_tasks(stats, rows);
    // Without the kernel's account a thread stamps its release when more important work lets it run.
    let name = if stats.release_latency_waits { "arrival to first run" } else { "release latency" };
    let mut latencies = Table::new(&[name, "min", "mean", "p50", "p99", "max"]);
    let mut ranks = Vec::new();
    for task in &stats.tasks {
        // Jobs that arrive by their wake-up have no release latency.
        if let Some(Some(s)) = task.release_latency_ns.filter(|s| s.is_none_or(|s| s.max > 0)) {
            latencies.row(name_and_times(&task.task, Some([s.min, s.mean, s.p50, s.p99, s.max])));
            ranks.push(rank(task));
        }
    }
    if !latencies.is_empty() {
        out.push('\n');
        out.push_str(&latencies.render_long(rows, "tasks", |row, _| ranks[row]));
    }
    for (what, table) in [
        ("chains", of_chains(stats)),
        ("tasks", of_messages(stats)),
        ("servers", of_servers(stats)),
        ("cpus", of_cpus(stats)),
    ] {
        if !table.is_empty() {
            out.push('\n');
            out.push_str(&table.render_long(rows, what, |_, _| 0));
        }
    }
    out + &sum_up(stats, caveat)
}

/// The order of importance of tasks: first tasks with a miss, then the least laxity.
pub(crate) fn rank(task: &TaskStats) -> (bool, i64) {
    let in_time = task.missed.is_none_or(|missed| missed == 0);
    (in_time, task.laxity_ns.map_or(i64::MAX, |laxity| laxity.min))
}

/// Interrupts alone, and how long they were watched.
pub(crate) fn interrupts(stats: &Stats) -> String {
    let mut table = Table::headed("interrupt|what|count|exec mean|p99|max|distance min|mean|p99|max");
    for one in stats.interrupts.iter().flatten() {
        let mut cells = vec![one.interrupt.clone(), interrupt_word(one.kind).to_owned(), one.count.to_string()];
        let times = |summary: Option<Summary<u64>>, of: &[fn(&Summary<u64>) -> u64]| -> Vec<String> {
            of.iter().map(|of| cell(&summary, *of)).collect()
        };
        cells.extend(times(one.execution_ns, &[|s| s.mean, |s| s.p99, |s| s.max]));
        cells.extend(times(one.inter_arrival_ns, &[|s| s.min, |s| s.mean, |s| s.p99, |s| s.max]));
        table.row(cells);
    }
    let told = if table.is_empty() { String::new() } else { table.render("") };
    told + &sum_up(stats, Caveat::None)
}

pub(crate) fn of_chains(stats: &Stats) -> Table {
    let mut chains = Table::new(&["chain", "completed", "resp min", "mean", "p50", "p99", "max"]);
    for chain in &stats.chains {
        let mut cells = name_and_times(&chain.chain, chain.response_ns.map(|s| [s.min, s.mean, s.p50, s.p99, s.max]));
        cells.insert(1, chain.responses.count().to_string());
        chains.row(cells);
    }
    chains
}

/// An empty line, whether deadlines were met, and what is missing.
pub(crate) fn sum_up(stats: &Stats, caveat: Caveat) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n{}", closing_line(stats, caveat));
    let censored: u64 = stats.tasks.iter().map(|task| task.censored).sum();
    if stats.lost_events != Some(0) || censored > 0 {
        let lost = stats.lost_events.map_or_else(|| "an unknown number of".to_owned(), |lost| lost.to_string());
        let _ = writeln!(
            out,
            "incomplete: {lost} events were lost; {censored} jobs whose end is unknown are in no \
             count"
        );
    }
    out
}

/// An interval: its tasks, then a line for its CPUs.
pub(crate) fn interval(from: Time, to: Time, stats: &Stats, rows: Rows) -> String {
    let part = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), percent);
    let heads = "task|released|completed|missed|open|cpu|exec mean|max|resp mean|max|laxity min|preempt|migrate";
    let mut table = Table::headed(heads);
    for task in &stats.tasks {
        table.row(vec![
            task.task.clone(),
            task.released.to_string(),
            task.completed.to_string(),
            or_dash(task.missed),
            task.unfinished.to_string(),
            part(task.utilization),
            cell(&task.execution_ns, |summary| summary.mean),
            cell(&task.execution_ns, |summary| summary.max),
            cell(&task.response_ns, |summary| summary.mean),
            cell(&task.response_ns, |summary| summary.max),
            or_dash(task.laxity_ns.map(|laxity| Lateness::from_ns(laxity.min).four_digits_down())),
            or_dash(task.preemptions),
            or_dash(task.migrations),
        ]);
    }
    let cpus: Vec<String> =
        stats.cpus.iter().map(|cpu| format!("{} {} {}", cpu.node, cpu.cpu, part(cpu.utilization))).collect();
    let cpus = if cpus.is_empty() { String::new() } else { format!("cpus: {}\n", cpus.join(", ")) };
    let lost = match stats.lost_events {
        Some(0) => String::new(),
        Some(lost) => format!("incomplete: {lost} events were lost\n"),
        None => "incomplete: an unknown number of events were lost\n".to_owned(),
    };
    let table = table.render_long(rows, "tasks", |row, _| rank(&stats.tasks[row]));
    format!("from {from} to {to}\n{table}{cpus}{lost}")
}

/// Why jobs were late: nothing where none was.
pub(crate) fn late(stats: &Stats, rows: Rows) -> String {
    let mut out = causes(stats, rows);
    let is_unknown =
        |task: &&TaskStats| matches!(task.late, Some(None)) && task.missed.is_some_and(|missed| missed > 0);
    let unknown: Vec<String> = stats.tasks.iter().filter(is_unknown).map(|task| format!("\"{}\"", task.task)).collect();
    if !unknown.is_empty() {
        const NAMED_MAX: usize = 6;
        let more = if unknown.len() > NAMED_MAX { ", ..." } else { "" };
        let named = unknown.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let _ =
            writeln!(out, "\nwhy jobs of {named}{more} were late is unknown: the log does not tell what the CPUs did");
    }
    out
}

/// Why jobs were late, of the tasks of which the log tells it.
pub(crate) fn causes(stats: &Stats, rows: Rows) -> String {
    let mut heads = vec!["late", "jobs", "by load"];
    heads.extend(Cause::ALL.map(Cause::name));
    heads.extend(["longest other, each", "longest task, each"]);
    let mut table = Table::new(&heads);
    let mut late_jobs = Vec::new();
    for task in &stats.tasks {
        let Some(late) = task.late.as_ref().and_then(Option::as_ref).filter(|late| late.jobs > 0) else { continue };
        // A cause without jobs shows a dash.
        let jobs = |jobs: u64| if jobs == 0 { "-".to_owned() } else { jobs.to_string() };
        let mut row = vec![task.task.clone(), late.jobs.to_string(), jobs(late.by_load)];
        row.extend(Cause::ALL.map(|cause| jobs(late.mainly(cause))));
        // Mean per late job: the sum may exceed the log's length, since one thread can delay many
        // jobs.
        let each = |span: Span| time(Span::from_ns(span.as_ns() / late.jobs));
        let longest = |all: &[(String, Span)]| {
            all.first().map_or_else(|| "-".to_owned(), |(name, span)| format!("{name} {}", each(*span)))
        };
        row.extend([longest(&late.others), longest(&late.tasks)]);
        table.row(row);
        late_jobs.push(late.jobs);
    }
    if table.is_empty() {
        return String::new();
    }
    let rank = |row: usize, _: &[String]| Reverse(late_jobs[row]);
    format!("\n{}", table.without_empty_columns().render_long(rows, "tasks", rank))
}

/// A time of a summary, or a dash.
pub(crate) fn cell(summary: &Option<Summary<u64>>, of: fn(&Summary<u64>) -> u64) -> String {
    or_dash(summary.as_ref().map(|summary| time(Span::from_ns(of(summary)))))
}

/// A part of the time of one CPU, rounded to the nearest.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// All distributions of tasks and interrupts, and who used the CPUs.
pub(crate) fn details(stats: &Stats) -> String {
    let head = |name| Table::new(&[name, "count", "mean", "deviation", "min", "p50", "p90", "p99", "p99.9", "max"]);
    let row = |name: &str, s: Summary<u64>| {
        let times = [s.mean, s.deviation, s.min, s.p50, s.p90, s.p99, s.p999, s.max];
        let mut cells = vec![name.to_owned(), s.count.to_string()];
        cells.extend(times.map(|ns| time(Span::from_ns(ns))));
        cells
    };
    type Quantity = fn(&TaskStats) -> Option<Summary<u64>>;
    let quantities: [(&str, Quantity); 5] = [
        ("response", |task| task.response_ns),
        ("execution", |task| task.execution_ns),
        ("execution without interrupts", |task| task.execution_without_interrupts_ns),
        ("inter-arrival", |task| task.inter_arrival_ns),
        ("start latency", |task| task.start_latency_ns),
    ];
    let mut tables = Vec::new();
    for (name, of) in quantities {
        let mut table = head(name);
        for (task, summary) in stats.tasks.iter().filter_map(|task| Some((task, of(task)?))) {
            table.row(row(&task.task, summary));
        }
        tables.push(table);
    }
    let mut laxities = head("laxity");
    for (task, s) in stats.tasks.iter().filter_map(|task| Some((task, task.laxity_ns?))) {
        let mut cells = vec![task.task.clone(), s.count.to_string()];
        let down = |ns| Lateness::from_ns(ns).four_digits_down().to_string();
        cells.extend([down(s.mean), time(Span::from_ns(s.deviation))]);
        cells.extend([s.min, s.p50, s.p90, s.p99, s.p999, s.max].map(down));
        laxities.row(cells);
    }
    tables.insert(1, laxities);
    let mut users = Table::new(&["user of the CPUs", "what", "busy", "of a CPU"]);
    let mut user = |name: &str, what: &str, busy: Option<u64>, part: Option<f64>| {
        let busy = or_dash(busy.map(|busy| time(Span::from_ns(busy))));
        users.row(vec![name.to_owned(), what.to_owned(), busy, or_dash(part.map(percent))]);
    };
    stats.tasks.iter().for_each(|task| user(&task.task, "task", task.busy_ns, task.utilization));
    let interrupts = || stats.interrupts.iter().flatten();
    for one in interrupts() {
        user(&one.interrupt, interrupt_word(one.kind), Some(one.busy_ns), one.utilization);
    }
    tables.push(users);
    type OfInterrupt = fn(&InterruptStats) -> Option<Summary<u64>>;
    let quantities: [(&str, OfInterrupt); 3] = [
        ("interrupts' execution", |one| one.execution_ns),
        ("with nested ones", |one| one.execution_with_nested_ns),
        ("interrupts' inter-arrival", |one| one.inter_arrival_ns),
    ];
    for (name, of) in quantities {
        let mut table = head(name);
        for (one, summary) in interrupts().filter_map(|one| Some((one, of(one)?))) {
            table.row(row(&one.interrupt, summary));
        }
        tables.push(table);
    }
    let told = tables.iter().filter(|table| !table.is_empty());
    told.map(|table| format!("\n{}", table.render(""))).collect()
}

/// The name of an interrupt of this kind.
pub(crate) fn interrupt_word(kind: Option<&str>) -> &'static str {
    if kind == Some("soft") { "softirq" } else { "interrupt" }
}

/// The numbers of all runs together, then the confidence intervals.
pub(crate) fn merged(merged: &Merged, caveat: Caveat, rows: Rows) -> String {
    let mut table = Table::new(&["95 % confidence", "mean response", "from", "to", "miss ratio", "from", "to"]);
    for task in &merged.confidence {
        let mut cells = vec![task.task.clone()];
        let response = |ns: i64| time(Span::from_ns(ns.max(0).unsigned_abs()));
        let ratio = |x: f64| format!("{:.4}", x.clamp(0.0, 1.0));
        cells.extend(confidence(task.response_mean_ns.map(|i| [i.mean, i.low, i.high].map(response))));
        cells.extend(confidence(task.miss_ratio.map(|i| [i.mean, i.low, i.high].map(ratio))));
        table.row(cells);
    }
    // The tasks stand in both in the same order.
    let table = table.render_long(rows, "tasks", |row, _| merged.stats.tasks.get(row).map(rank));
    format!("{}in {} runs\n\n{table}", numbers(&merged.stats, caveat, rows), merged.runs)
}

fn of_tasks(stats: &Stats, rows: Rows) -> String {
    // Only a dispatcher with bounded queues rejects.
    let rejects = stats.tasks.iter().any(|task| task.rejected > 0);
    let mut heads = vec!["task", "node", "released", "completed", "missed", "cancelled"];
    heads.extend(rejects.then_some("rejected"));
    heads.extend(["unfinished", "resp min", "mean", "p50", "p99", "max", "laxity min", "preempt", "migrate"]);
    let mut table = Table::new(&heads);
    for task in &stats.tasks {
        let mut cells = vec![
            task.task.clone(),
            task.node.clone(),
            task.released.to_string(),
            task.completed.to_string(),
            or_dash(task.missed),
            task.cancelled.to_string(),
        ];
        cells.extend(rejects.then(|| task.rejected.to_string()));
        cells.push(task.unfinished.to_string());
        cells.extend(spans(task.response_ns.map(|s| [s.min, s.mean, s.p50, s.p99, s.max])));
        cells.push(or_dash(task.laxity_ns.map(|laxity| Lateness::from_ns(laxity.min).four_digits_down())));
        cells.push(or_dash(task.preemptions));
        cells.push(or_dash(task.migrations));
        table.row(cells);
    }
    table.render_long(rows, "tasks", |row, _| rank(&stats.tasks[row]))
}

/// Messages by the task that left them, and how long they took from send to receive.
fn of_messages(stats: &Stats) -> Table {
    let on_links = stats.messages.iter().any(|one| one.bytes.is_some());
    let mut head = vec!["messages of", "sent", "received", "dropped", "way min", "mean", "p50", "p99", "max"];
    head.extend(["bytes", "link wait max"].iter().filter(|_| on_links));
    let mut table = Table::new(&head);
    for one in &stats.messages {
        let mut cells = vec![one.task.clone()];
        cells.extend([one.sent, one.received].map(|count| count.to_string()));
        cells.push(drops(one));
        cells.extend(spans(one.transit_ns.map(|s| [s.min, s.mean, s.p50, s.p99, s.max])));
        if on_links {
            cells.push(or_dash(one.bytes));
            cells.push(cell(&one.link_wait_ns, |waits| waits.max));
        }
        table.row(cells);
    }
    table
}

fn drops(of: &MessageStats) -> String {
    let DropCounts { lost, full, late, unknown } = of.dropped_by;
    let counts = [(lost, "lost"), (full, "full"), (late, "late"), (unknown, "unknown")];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
    if counts.is_empty() || unknown == of.dropped { of.dropped.to_string() } else { counts.join(", ") }
}

fn of_servers(stats: &Stats) -> Table {
    let heads = "server|node|rule|budget|period|supply|of the time|idle|most in a period|replenished|used up";
    let mut table = Table::headed(heads);
    let span = |ns: Option<u64>| or_dash(ns.map(|ns| time(Span::from_ns(ns))));
    for server in &stats.servers {
        table.row(vec![
            server.server.clone(),
            server.node.clone(),
            server.rule.clone(),
            span(server.budget_ns),
            span(server.period_ns),
            span(Some(server.supply_ns)),
            or_dash(server.utilization.map(percent)),
            span(Some(server.idle_ns)),
            span(server.supply_max_ns),
            server.replenishments.to_string(),
            server.exhaustions.to_string(),
        ]);
    }
    table
}

fn of_cpus(stats: &Stats) -> Table {
    let mut table = Table::new(&["cpu", "kernel cpu", "node", "busy", "of the time"]);
    for cpu in &stats.cpus {
        let part = cpu.busy_ns.filter(|_| stats.duration_ns > 0).map(|busy| {
            let permille = u128::from(busy) * 1000 / u128::from(stats.duration_ns);
            format!("{}.{} %", permille / 10, permille % 10)
        });
        let busy = or_dash(cpu.busy_ns.map(|busy| time(Span::from_ns(busy))));
        table.row(vec![cpu.cpu.to_string(), or_dash(cpu.kernel_cpu), cpu.node.clone(), busy, or_dash(part)]);
    }
    // In a log that does not tell, both numbers are the same.
    let told = stats.cpus.iter().any(|cpu| cpu.kernel_cpu.is_some());
    if told { table } else { table.without("kernel cpu") }
}

/// The length, whether deadlines were met, and the numbers of rejected jobs and lost messages.
fn closing_line(stats: &Stats, caveat: Caveat) -> String {
    let lost = [(stats.rejected(), "job", "rejected"), (stats.undelivered(), "message", "dropped or lost")];
    let lost = lost.into_iter().filter(|(count, ..)| *count > 0);
    let lost: String =
        lost.map(|(count, what, how)| format!(", {count} {what}{} {how}", if count == 1 { "" } else { "s" })).collect();
    // A run with lost jobs or messages has failed, so it needs no caveat.
    misses(stats, if lost.is_empty() { caveat } else { Caveat::None }) + &lost
}

fn misses(stats: &Stats, caveat: Caveat) -> String {
    let over = format!("over {}", Span::from_ns(stats.duration_ns));
    let counts: Option<Vec<u64>> = stats.tasks.iter().map(|task| task.missed).collect();
    match counts.map(|counts| counts.iter().sum::<u64>()) {
        None => over,
        Some(0) if stats.tasks.iter().all(|task| task.released == 0) => over,
        Some(0) if caveat == Caveat::CheckProves => {
            format!("{over}, no deadline missed; that proves nothing by itself: takt check proves")
        }
        Some(0) if caveat == Caveat::NoProof => {
            format!("{over}, no deadline missed; that proves nothing by itself")
        }
        Some(0) => format!("{over}, no deadline missed"),
        Some(1) => format!("{over}, 1 deadline missed"),
        Some(missed) => format!("{over}, {missed} deadlines missed"),
    }
}

fn confidence(shown: Option<[String; 3]>) -> [String; 3] {
    shown.unwrap_or_else(|| ["-", "-", "-"].map(str::to_owned))
}

fn name_and_times(name: &str, values: Option<[u64; 5]>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(spans(values)).collect()
}

fn spans(values: Option<[u64; 5]>) -> [String; 5] {
    values.map_or_else(|| ["-"; 5].map(str::to_owned), |values| values.map(|ns| time(Span::from_ns(ns))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_log::stats::{Collector, Replications};
    use takt_log::{CpuDef, Definitions, Event, JobKey, KindSet, Sink as _};
    use takt_model::{Builtin, NodeId, System, Task, TaskId};

    /// A job of 12.34567 ms with 40 ms of time, and one that starts and never ends, until `end_ms`.
    fn example(end_ms: u64) -> Stats {
        let ms = |n| Time::ZERO.saturating_add(Span::from_ms(n));
        let tasks = vec![Task::periodic("video", Span::from_ms(40), Span::from_ms(12))];
        let definitions = Definitions::of(&System::local(1, Builtin::Edf, tasks));
        let mut collector = Collector::new(&definitions, KindSet::JOBS);
        let job = |number| JobKey { task: TaskId(0), number };
        collector.event(0, ms(0), &Event::Release { job: job(0), arrival: ms(0), parent: None });
        collector.event(0, ms(0), &Event::Start { job: job(0), cpu: 0 });
        collector.event(0, Time::from_ns(12_345_670), &Event::Complete { job: job(0), cpu: 0 });
        collector.event(0, ms(40), &Event::Release { job: job(1), arrival: ms(40), parent: None });
        collector.event(0, ms(40), &Event::Start { job: job(1), cpu: 0 });
        collector.finish(ms(end_ms))
    }

    #[test]
    fn the_tables_show_everything_rounded_to_the_side_that_warns() {
        let expected = "\
task   node   released  completed  missed  cancelled  unfinished  resp min     mean      p50      p99      max  \
laxity min  preempt  migrate
video  local         2          1       1          0           1   12.35ms  12.35ms  12.35ms  12.35ms  \
12.35ms     27.65ms        0        0

cpu  node      busy  of the time
0    local  52.35ms       65.4 %

over 80ms, 1 deadline missed
";
        assert_eq!(numbers(&example(80), Caveat::CheckProves, Rows::Most), expected);
    }

    #[test]
    fn the_last_line_claims_no_more_than_was_seen() {
        let last = |stats: &Stats, caveat| numbers(stats, caveat, Rows::Most).lines().last().map(str::to_owned);
        assert_eq!(last(&example(79), Caveat::None).as_deref(), Some("over 79ms, no deadline missed"));
        assert_eq!(
            last(&example(79), Caveat::CheckProves).as_deref(),
            Some("over 79ms, no deadline missed; that proves nothing by itself: takt check proves")
        );
        let mut unknown = example(79);
        unknown.tasks[0].missed = None;
        assert_eq!(last(&unknown, Caveat::CheckProves).as_deref(), Some("over 79ms"));
    }

    #[test]
    fn the_kernels_number_of_a_cpu_and_what_a_release_is_are_named() {
        let mut definitions = Definitions::of(&System::local(1, Builtin::Edf, Vec::new()));
        definitions.cpus = vec![CpuDef { node: NodeId(0), cpu: 0, kernel_cpu: 1 }];
        let told = Collector::new(&definitions, KindSet::JOBS).finish(Time::ZERO);
        let mut stats = example(80);
        stats.cpus[0].kernel_cpu = told.cpus[0].kernel_cpu;
        stats.tasks[0].release_latency_ns = Some(stats.tasks[0].response_ns);
        let text = numbers(&stats, Caveat::None, Rows::Most);
        assert!(text.contains("cpu  kernel cpu  node ") && text.contains("\n0             1  local "), "{text}");
        assert!(text.contains("\nrelease latency  "), "{text}");
        stats.release_latency_waits = true;
        let text = numbers(&stats, Caveat::None, Rows::Most);
        assert!(text.contains("\narrival to first run  ") && !text.contains("release latency"), "{text}");
    }

    #[test]
    fn merged_runs_say_how_many() {
        let mut runs = Replications::new();
        runs.add(&example(79)).unwrap();
        runs.add(&example(80)).unwrap();
        let text = merged(&runs.finish().unwrap(), Caveat::None, Rows::Most);
        assert!(text.contains("over 159ms, 1 deadline missed\nin 2 runs\n\n95 % confidence"), "{text}");
    }
}
