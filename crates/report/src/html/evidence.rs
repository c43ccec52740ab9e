//! Chains, CPUs, the tests of theory, and the system itself.

use std::fmt::Write as _;

use serde_json::Value;
use takt_analysis::{Answer, CheckReport, TestReport, Verdict};
use takt_model::{Arrival, Criticality, Placement, Span, System, Task};

use super::{ReportInput, count, number_cells, plural, time_or_dash};
use crate::axis::short;
use crate::markup::{Esc, clip};
use crate::plot::percent;

pub(super) fn in_short(check: &CheckReport) -> String {
    let decisive = check.tests.iter().filter(|test| test.verdict.answer() == check.schedulable);
    match check.schedulable {
        Answer::Yes => {
            let mut names: Vec<&str> = decisive.map(|test| test.test.name()).collect();
            names.sort_unstable();
            names.dedup();
            format!(
                "Proven by {}: every deadline is met as long as the tasks keep to what the file says.",
                names.join(", ")
            )
        }
        Answer::No => match decisive.map(|test| (test.test.name(), &test.scope, test.verdict.why())).next() {
            Some((test, scope, why)) => format!("{test} on {scope}: {}", clip(why, 220)),
            None => "See the tests below.".to_owned(),
        },
        Answer::Unknown => "No applicable test could prove it or show a miss. So the verdict is open.".to_owned(),
    }
}

/// How late the machine released jobs, where that was measured.
pub(super) fn release_latencies(out: &mut String, input: &ReportInput<'_>) {
    let Some(source) = input.measured else { return };
    let rows =
        || source.stats.tasks.iter().filter_map(|task| Some((task, task.release_latency_ns.as_ref()?.as_ref()?)));
    if rows().next().is_none() {
        return;
    }
    let (heading, note) = if source.stats.release_latency_waits {
        (
            "Arrival to first run",
            "From the nominal arrival to the moment in which the measured task ran. The kernel was not \
             recorded, so this holds the time behind more important \
             tasks.",
        )
    } else {
        (
            "Release latency",
            "From the nominal arrival to the moment in which the measured task was awake: what the machine adds \
             before the first \
             instruction.",
        )
    };
    let _ = write!(
        out,
        "<h2 id=\"latency\">{heading}</h2>\n<p class=\"note\">{note}</p>\n<div class=\"wide\"><table \
         class=\"snug\">\n<thead><tr><th>Task</th>\
         <th class=\"n\">min</th><th class=\"n\">p50</th><th class=\"n\">p99</th><th \
         class=\"n\">max</th></tr></thead>\n<tbody>\n",
    );
    for (task, latency) in rows() {
        let _ = write!(out, "<tr><th scope=\"row\" title=\"{n}\">{n}</th>", n = Esc(&task.task));
        number_cells(out, [latency.min, latency.p50, latency.p99, latency.max].map(|ns| short(Span::from_ns(ns))));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

pub(super) fn chains(out: &mut String, input: &ReportInput<'_>) {
    let of = |source: Option<&crate::Source>| {
        source.map_or_else(Vec::new, |s| s.stats.chains.iter().map(|c| c.chain.clone()).collect())
    };
    let mut names: Vec<String> = of(input.simulated);
    names.extend(of(input.measured));
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    if names.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"chains\">Chains</h2>\n<p class=\"note\">From the nominal arrival of the first link's job to \
         the completion of the last one's.</p>\n<div \
         class=\"wide\"><table>\n<thead><tr><th>Chain</th>",
    );
    if input.check.is_some() {
        out.push_str("<th class=\"n\">Bound</th>");
    }
    for (source, word) in [(input.simulated, "Simulated"), (input.measured, "Measured")] {
        if source.is_some() {
            let _ = write!(
                out,
                "<th class=\"n\">{word}<br/>p50</th><th class=\"n\">{word}<br/>p99</th><th \
                 class=\"n\">{word}<br/>max</th>"
            );
        }
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for name in &names {
        let _ = write!(out, "<tr><th scope=\"row\" title=\"{n}\">{n}</th>", n = Esc(name));
        number_cells(out, input.check.map(|check| time_or_dash(check.chain_bound(name).map(Span::as_ns))));
        for source in [input.simulated, input.measured].into_iter().flatten() {
            let chain = source.stats.chains.iter().find(|chain| chain.chain == *name);
            let response = chain.and_then(|chain| chain.response_ns.as_ref());
            let times = [response.map(|r| r.p50), response.map(|r| r.p99), response.map(|r| r.max)];
            number_cells(out, times.map(time_or_dash));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

pub(super) fn servers(out: &mut String, input: &ReportInput<'_>) {
    let sources = [("simulated", input.simulated), ("measured", input.measured)];
    let all = sources.into_iter().filter_map(|(word, source)| Some((word, source?)));
    let all: Vec<_> = all.flat_map(|(word, source)| source.stats.servers.iter().map(move |one| (word, one))).collect();
    if all.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"servers\">Servers</h2>\n<p class=\"note\">Supply is the time for which a server paid. It was idle or \
         lent the CPU while none of its jobs ran.</p>\n<div class=\"wide\"><table class=\"snug\">\n\
         <thead><tr><th>Server</th><th>Rule</th><th>Seen</th><th class=\"n\">Budget</th><th class=\"n\">Period</th>\
         <th class=\"n\">Supply</th><th class=\"n\">Share of<br/>a CPU</th><th class=\"n\">Idle</th>\
         <th class=\"n\">Most in<br/>a period</th><th class=\"n\">Replenished</th><th \
         class=\"n\">Used up</th></tr></thead>\n<tbody>\n",
    );
    for (word, one) in all {
        let _ = write!(
            out,
            "<tr><th scope=\"row\" title=\"{n}\">{n}</th><td>{}</td><td>{word}</td>",
            Esc(&one.rule),
            n = Esc(&one.server)
        );
        let cells = [
            time_or_dash(one.budget_ns),
            time_or_dash(one.period_ns),
            time_or_dash(Some(one.supply_ns)),
            one.utilization.map_or_else(|| "-".to_owned(), percent),
            time_or_dash(Some(one.idle_ns)),
            time_or_dash(one.supply_max_ns),
            count(one.replenishments),
            count(one.exhaustions),
        ];
        number_cells(out, cells);
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

pub(super) fn cpus(out: &mut String, input: &ReportInput<'_>) {
    let known = |source: &&crate::Source| source.stats.cpus.iter().any(|cpu| cpu.busy_ns.is_some());
    let sources: Vec<(&str, &crate::Source)> = [("Simulated", input.simulated), ("Measured", input.measured)]
        .into_iter()
        .filter_map(|(word, source)| Some((word, source.filter(known)?)))
        .collect();
    let Some((_, first)) = sources.first() else { return };
    out.push_str("<h2 id=\"cpus\">CPUs</h2>\n<div class=\"wide\"><table class=\"snug\">\n<thead><tr><th>CPU</th>");
    for (word, _) in &sources {
        let _ = write!(out, "<th class=\"n\">{word}<br/>busy</th><th class=\"n\">{word}<br/>share</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for cpu in &first.stats.cpus {
        let _ = write!(out, "<tr><th scope=\"row\">{} CPU {}</th>", Esc(&cpu.node), cpu.cpu);
        for (_, source) in &sources {
            let same = source.stats.cpus.iter().find(|other| other.node == cpu.node && other.cpu == cpu.cpu);
            match same.and_then(|cpu| cpu.busy_ns) {
                Some(busy) => {
                    // As the tables of the command say it.
                    let permille = u128::from(busy) * 1000 / u128::from(source.stats.duration_ns.max(1));
                    let _ = write!(
                        out,
                        "<td class=\"n\">{}</td><td class=\"n\">{}.{} %</td>",
                        Esc(&short(Span::from_ns(busy))),
                        permille / 10,
                        permille % 10
                    );
                }
                None => out.push_str("<td class=\"n\">-</td><td class=\"n\">-</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// Interrupts and softirqs that took CPU time while the log was made.
pub(super) fn interrupts(out: &mut String, input: &ReportInput<'_>) {
    let all = input.measured.iter().flat_map(|source| source.stats.interrupts.iter().flatten());
    let mut all: Vec<_> = all.filter(|one| one.count > 0).collect();
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.busy_ns));
    out.push_str(
        "<h2 id=\"interrupts\">Interrupts</h2>\n<p class=\"note\">Executions are without those that interrupted \
         them.</p>\n<div class=\"wide\"><table class=\"snug\">\n\
         <thead><tr><th>Interrupt</th><th>Kind</th><th class=\"n\">Count</th><th class=\"n\">Share of<br/>a \
         CPU</th><th class=\"n\">Between<br/>p50</th>\
         <th class=\"n\">Executed<br/>mean</th><th class=\"n\">Executed<br/>p99</th><th \
         class=\"n\">Executed<br/>max</th></tr></thead>\n<tbody>\n",
    );
    for one in all {
        let kind = match one.kind {
            Some("soft") => "softirq",
            Some(_) => "interrupt",
            None => "-",
        };
        let _ = write!(out, "<tr><th scope=\"row\" title=\"{n}\">{n}</th><td>{kind}</td>", n = Esc(&one.interrupt));
        let cells = [
            count(one.count),
            one.utilization.map_or_else(|| "-".to_owned(), percent),
            time_or_dash(one.inter_arrival_ns.map(|between| between.p50)),
            time_or_dash(one.execution_ns.map(|execution| execution.mean)),
            time_or_dash(one.execution_ns.map(|execution| execution.p99)),
            time_or_dash(one.execution_ns.map(|execution| execution.max)),
        ];
        number_cells(out, cells);
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

pub(super) fn tests(out: &mut String, input: &ReportInput<'_>) {
    let Some(check) = input.check else { return };
    if check.tests.is_empty() {
        return;
    }
    out.push_str(
        "<h2 id=\"theory\">Theory</h2>\n<div class=\"wide\"><table>\n\
         <thead><tr><th>Test</th><th>Scope</th><th>Verdict</th><th>Why</th></tr></thead>\n<tbody>\n",
    );
    for test in &check.tests {
        test_row(out, test);
    }
    out.push_str("</tbody></table></div>\n");
}

fn test_row(out: &mut String, test: &TestReport) {
    let (class, word) = match test.verdict {
        Verdict::Schedulable { .. } => ("yes", "yes"),
        Verdict::Infeasible { .. } => ("no", "no"),
        Verdict::NotProven { .. } => ("open", "not proven"),
        Verdict::NotApplicable { .. } => ("", "not applicable"),
    };
    let mut why = test.verdict.why().to_owned();
    if let Verdict::Schedulable { bounds } = &test.verdict
        && !bounds.is_empty()
    {
        why = format!("bounds the response times of {}", plural(bounds.len() as u64, "task"));
    }
    let figures: Vec<String> = test.figures.iter().filter_map(|(name, value)| figure(name, value)).collect();
    if !figures.is_empty() {
        let _ = write!(why, "{}{}", if why.is_empty() { "" } else { " - " }, figures.join(", "));
    }
    let _ = writeln!(
        out,
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"{class}\">{word}</td><td class=\"why\">{}</td></tr>",
        Esc(test.test.name()),
        Esc(&test.scope),
        Esc(&why)
    );
}

/// A figure for reading: `utilization 71.3 %`. Lists and objects are left to the JSON.
fn figure(name: &str, value: &Value) -> Option<String> {
    let words = |suffix: &str| name.strip_suffix(suffix).map(|name| name.replace('_', " "));
    if let (Some(name), Some(ns)) = (words("_ns"), value.as_u64()) {
        return Some(format!("{name} {}", short(Span::from_ns(ns))));
    }
    if let (Some(name), Some(ppm)) = (words("_ppm"), value.as_f64()) {
        return Some(format!("{name} {}", percent(ppm / 1e6)));
    }
    let name = name.replace('_', " ");
    match value {
        Value::Number(number) => Some(format!("{name} {number}")),
        Value::String(text) => Some(format!("{name} {text}")),
        Value::Bool(truth) => Some(format!("{name} {}", if *truth { "yes" } else { "no" })),
        _ => None,
    }
}

pub(super) fn system(out: &mut String, input: &ReportInput<'_>) {
    let Some(system) = input.system else { return };
    out.push_str(
        "<h2 id=\"system\">System</h2>\n<div class=\"wide\"><table class=\"snug\">\n\
         <thead><tr><th>Node</th><th class=\"n\">CPUs</th><th>Strategy</th><th>Placement</th><th \
         class=\"n\">Utilization</th></tr></thead>\n<tbody>\n",
    );
    for (i, node) in system.nodes.iter().enumerate() {
        let load: f64 = system.tasks_of(takt_model::NodeId(i as u32)).map(|(_, task)| share(task)).sum();
        let placement = match node.placement {
            Placement::Global => "global".to_owned(),
            Placement::Partitioned => "partitioned".to_owned(),
            Placement::Clustered { cpus } => format!("clusters of {cpus}"),
        };
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td>{}</td><td>{placement}</td><td \
             class=\"n\">{} of {}</td></tr>",
            Esc(&node.name),
            node.cpus,
            Esc(&strategies(system, i)),
            percent(load),
            percent(f64::from(node.cpus)),
        );
    }
    out.push_str("</tbody></table></div>\n");
    task_table(out, system);
    if !input.toml.is_empty() {
        let _ = writeln!(
            out,
            "<details><summary>The system file</summary><pre><code>{}</code></pre></details>",
            Esc(input.toml)
        );
    }
}

fn share(task: &Task) -> f64 {
    task.wcet.as_ns() as f64 / task.period.as_ns().max(1) as f64
}

fn strategies(system: &System, node: usize) -> String {
    let mut text = system.strategy_name(system.nodes[node].strategy).to_owned();
    for mode in system.modes.iter().filter(|mode| mode.node.index() == node) {
        let _ = write!(text, ", {} from {}", system.strategy_name(mode.strategy), mode.at);
    }
    text
}

fn task_table(out: &mut String, system: &System) {
    let several = system.nodes.len() > 1;
    out.push_str("<div class=\"wide\"><table>\n<thead><tr><th>Task</th>");
    if several {
        out.push_str("<th>Node</th>");
    }
    out.push_str(
        "<th class=\"n\">Period</th><th class=\"n\">Deadline</th><th class=\"n\">WCET</th><th \
         class=\"n\">Utilization</th><th>Besides</th></tr></thead>\n<tbody>\n",
    );
    for task in &system.tasks {
        let _ = write!(out, "<tr><th scope=\"row\" title=\"{n}\">{n}</th>", n = Esc(&task.name));
        if several {
            let _ = write!(out, "<td>{}</td>", Esc(&system.nodes[task.node.index()].name));
        }
        number_cells(out, [task.period, task.deadline, task.wcet].map(short));
        let _ = writeln!(
            out,
            "<td class=\"n\">{}</td><td>{}</td></tr>",
            percent(share(task)),
            Esc(&attributes(system, task))
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn attributes(system: &System, task: &Task) -> String {
    let mut parts = Vec::new();
    if !matches!(task.arrival, Arrival::Periodic) {
        parts.push(if matches!(task.arrival, Arrival::Sporadic) { "sporadic" } else { "own arrivals" }.to_owned());
    }
    if let Some(priority) = task.priority {
        parts.push(format!("priority {priority}"));
    }
    for (name, span) in [("offset", task.offset), ("jitter", task.jitter), ("blocking", task.blocking)] {
        if !span.is_zero() {
            parts.push(format!("{name} {}", short(span)));
        }
    }
    if task.criticality == Criticality::Low {
        parts.push("low criticality".to_owned());
    }
    if task.importance > 0 {
        parts.push(format!("importance {}", task.importance));
    }
    if let Some(cpus) = task.cpus {
        let cpus: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
        parts.push(format!("CPU {}", cpus.join(", ")));
    }
    if !task.after.is_empty() {
        let names: Vec<&str> =
            task.after.iter().filter_map(|id| system.tasks.get(id.index())).map(|t| t.name.as_str()).collect();
        parts.push(format!("after {}", names.join(", ")));
    }
    if let Some(component) = task.component.and_then(|id| system.components.get(id.index())) {
        parts.push(format!("in {}", component.name));
    }
    parts.join("; ")
}
