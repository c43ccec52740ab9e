//! The results of `takt doctor`'s probe: its table, its JSON, and the costs for a system file.

use std::fmt::Write as _;

use serde_json::{Value, json};
use takt_linux::doctor::Distribution;
use takt_linux::doctor::probe::{Measured, Probe};
use takt_model::Span;
use takt_model::file::{COSTS_COMMENT, Document, Edit};

use crate::args::{self, Charge};
use crate::failure::Failure;
use crate::input;
use crate::output::note;
use crate::table::{Table, or_dash, time};

/// The measurements: the key of `costs` (or a name), a description, the values.
fn rows(probe: &Probe) -> Vec<(&'static str, &'static str, Measured)> {
    vec![
        ("latency", "timer to running thread, on an idle CPU", Ok(probe.latency_of_all())),
        ("release", "timer interrupt to running thread, on a busy CPU, less a switch", probe.release.clone()),
        ("switch", "one thread to the next", probe.switch.clone()),
        ("migrate", "to another CPU, with the working set", probe.migrate.clone()),
        ("migrate-small", "to another CPU, with a cache line", probe.migrate_small.clone()),
        ("tick", "the time of a tick", probe.tick.clone()),
    ]
}

fn charged(of: &Distribution, charge: Charge) -> Option<Span> {
    match charge {
        Charge::P50 => of.quantile(500),
        Charge::P99 => of.quantile(990),
        Charge::P999 => of.quantile(999),
        Charge::Max => of.max(),
    }
    .map(Span::four_digits)
}

/// The costs that can be charged, by their key in the file.
fn costs(probe: &Probe, charge: Charge) -> Vec<(&'static str, Span)> {
    let measured = rows(probe).into_iter().filter(|(key, _, _)| *key != "migrate-small");
    let values = measured.filter_map(|(key, _, of)| Some((key, charged(&of.ok()?, charge)?)));
    let mut values: Vec<(&'static str, Span)> = values.collect();
    // A few ticks during which the machine stood still would leave no time at all.
    values.retain(|(key, span)| *key != "tick" || probe.tick_period.is_some_and(|period| *span < period));
    let tick = values.iter().any(|(key, _)| *key == "tick");
    values.extend(probe.tick_period.filter(|_| tick).map(|period| ("tick-period", period)));
    values
}

pub(super) fn rendered(probe: &Probe, charge: Charge) -> String {
    let cpus: Vec<String> = probe.latency.iter().map(|(cpu, _)| cpu.to_string()).collect();
    let mut text = format!(
        "\nmeasured for {} on CPUs {}, SCHED_FIFO priority {}; check and sim charge {} of it with -o FILE\n\n",
        time(probe.options.duration),
        cpus.join(","),
        probe.priority,
        charge.described()
    );
    let mut table = Table::new(&["COST", "COUNT", "P50", "P99", "P99.9", "MAX", "CHARGED"]);
    let mut missing = String::new();
    for (key, what, of) in rows(probe) {
        match of {
            Ok(of) => {
                let at = |permille| or_dash(of.quantile(permille).map(time));
                let charge = if key == "migrate-small" { None } else { charged(&of, charge) };
                table.row(vec![
                    key.to_owned(),
                    of.count().to_string(),
                    at(500),
                    at(990),
                    at(999),
                    or_dash(of.max().map(time)),
                    or_dash(charge.map(time)),
                ]);
            }
            Err(why) => {
                let _ = writeln!(missing, "{key} ({what}): not measured: {why}");
            }
        }
    }
    text.push_str(&table.render(""));
    text.push_str(&missing);
    let _ = write!(
        text,
        "\nThe maxima are no bounds: a longer measurement may show larger values. Working set of migrate: {}.\n",
        probe.options.working_set
    );
    if let Some(steal) = probe.steal.filter(|steal| !steal.is_zero()) {
        let took = time(steal);
        let _ = writeln!(text, "The hypervisor took {took} meanwhile: on a quiet host all values may be smaller.");
    }
    text
}

/// How often what: a line for each power of two.
pub(super) fn histogram(probe: &Probe) -> String {
    let mut text = String::new();
    for (cpu, of) in &probe.latency {
        let _ = writeln!(text, "    CPU {cpu}, timers late by up to");
        let octaves = of.octaves();
        let most = octaves.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        for (end, count) in octaves {
            // At least a mark where there is one.
            let bar = "#".repeat(usize::try_from((count * 40).div_ceil(most)).unwrap_or(40));
            let _ = writeln!(text, "    {:>10} {count:>8} {bar}", time(end));
        }
    }
    text
}

pub(super) fn as_json(probe: &Probe, charge: Charge) -> Value {
    let one = |of: &Distribution| {
        let ns = |span: Option<Span>| span.map(Span::as_ns);
        let histogram: Vec<Value> =
            of.octaves().iter().map(|(end, count)| json!({ "upto_ns": end.as_ns(), "count": count })).collect();
        json!({
            "count": of.count(), "min_ns": ns(of.min()), "p50_ns": ns(of.quantile(500)), "p99_ns": ns(of.quantile(990)),
            "p999_ns": ns(of.quantile(999)), "max_ns": ns(of.max()), "histogram": histogram,
        })
    };
    let mut measured = serde_json::Map::new();
    let mut missing = serde_json::Map::new();
    for (key, _, of) in rows(probe) {
        measured.insert(key.replace('-', "_"), of.as_ref().map_or(Value::Null, one));
        if let Err(why) = of {
            missing.insert(key.replace('-', "_"), Value::String(why));
        }
    }
    let charged: serde_json::Map<String, Value> = costs(probe, charge)
        .into_iter()
        .map(|(key, span)| (format!("{}_ns", key.replace('-', "_")), span.as_ns().into()))
        .collect();
    let cpus: Vec<Value> = probe.latency.iter().map(|(cpu, of)| json!({ "cpu": cpu, "latency": one(of) })).collect();
    let gaps = &probe.gaps;
    let longest: Vec<Value> = gaps
        .longest
        .iter()
        .map(|pause| json!({ "cpu": pause.cpu, "at_ns": pause.at.as_ns(), "length_ns": pause.length.as_ns() }))
        .collect();
    let interrupts: Vec<Value> =
        gaps.interrupts.iter().map(|(name, count)| json!({ "interrupt": name, "count": count })).collect();
    json!({
        "duration_ns": probe.options.duration.as_ns(),
        "priority": probe.priority,
        "working_set_bytes": probe.options.working_set.get(),
        "steal_ns": probe.steal.map(Span::as_ns),
        "clock_ns": probe.clock.as_ns(),
        "measured": measured,
        "not_measured": missing,
        "cpus": cpus,
        "pauses": {
            "threshold_ns": gaps.threshold.as_ns(), "watched_ns": gaps.watched.as_ns(), "lengths": one(&gaps.others),
            "left_out": gaps.left_out, "longest": longest, "interrupts": interrupts,
            "steal_ns": gaps.steal.map(Span::as_ns),
        },
        "charge": charge.name(),
        "costs": charged,
    })
}

const EMPTY: &str = "takt = 1\n\n[[node]]\nname = \"local\"\n";

/// Writes the costs into a system file, which is made where there is none.
pub(super) fn write(options: &args::Doctor, kernel: &str, probe: &Probe) -> Result<(), Failure> {
    let Some(output) = &options.output else { return Ok(()) };
    let source = options.file.as_deref().or_else(|| (!output.is_stdout()).then_some(output.0.as_str()));
    let known = source.filter(|path| options.file.is_some() || std::path::Path::new(path).exists());
    let (name, text) = match known {
        Some(path) => (input::shown(path).into_owned(), input::system_and_text(path)?.1),
        None => (
            "the new system".to_owned(),
            EMPTY.replace("name = \"local\"\n", &format!("name = \"local\"\ncpus = {}\n", probe.latency.len())),
        ),
    };
    let mut document = Document::parse(&text, &name).map_err(Failure::located)?;
    let node = match (input::node(document.system(), options.node.as_deref())?, document.system().nodes.len()) {
        (Some(node), _) => node,
        (None, 1) => takt_model::NodeId(0),
        (None, _) => {
            return Err(Failure::input("the system has several nodes; --node says which of them this machine is"));
        }
    };
    let values = costs(probe, options.charge);
    for (key, what, of) in rows(probe) {
        if let (Err(why), false) = (&of, key == "migrate-small") {
            note(format_args!("warning: costs.{key} ({what}) is not written: {why}"));
        }
    }
    if probe.tick.is_ok() && !values.iter().any(|(key, _)| *key == "tick") {
        note("warning: costs.tick is not written: the measured value is not below the tick period; measure for longer");
    }
    let comment =
        comment(kernel, probe, options.charge).into_iter().map(|line| format!("{COSTS_COMMENT}{line}")).collect();
    document.apply(&[Edit::Costs { node, values, comment }]).map_err(Failure::located)?;
    output.write(document.text().as_bytes())
}

fn comment(kernel: &str, probe: &Probe, charge: Charge) -> Vec<String> {
    let mut lines = vec![format!(
        "{} of the values measured in {} on {} CPUs under Linux {kernel}, working set {}; no bound: a longer \
         measurement may show larger ones",
        charge.described(),
        time(probe.options.duration),
        probe.latency.len(),
        probe.options.working_set
    )];
    let most: Vec<String> = rows(probe)
        .into_iter()
        .filter(|(key, _, _)| *key != "migrate-small")
        .filter_map(|(key, _, of)| Some(format!("{key} {}", time(of.ok()?.max()?))))
        .collect();
    lines.push(format!("the most that was seen: {}", most.join(", ")));
    if let Some(steal) = probe.steal.filter(|steal| !steal.is_zero()) {
        lines.push(format!("the hypervisor took {} meanwhile", time(steal)));
    }
    lines
}
