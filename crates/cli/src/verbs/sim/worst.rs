//! `takt sim --delays worst`: a search for the largest end-to-end responses of flows.

use serde_json::{Value, json};
use takt_analysis::{CheckOptions, check};
use takt_model::{Span, System};
use takt_sim::traffic::Traffic;
use takt_sim::worst::{Case, Found, RUNS_PER_CLIMB, climb};
use takt_sim::{SimError, SimOptions};

use super::failure;
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::numbers::percent;
use crate::output::{note, print, print_json, quoted};
use crate::parallel::in_order;
use crate::progress;
use crate::table::{Table, or_dash, time};

/// Simulations of a search, unless `--runs` says otherwise.
const RUNS_DEFAULT: u32 = 10 * RUNS_PER_CLIMB;
/// Flows whose command is printed, at most. The JSON has all.
const COMMANDS_MAX: usize = 8;

pub(super) fn execute(options: &args::Sim, system: &System, sim: &SimOptions, json: bool) -> Outcome {
    if options.output.is_some() {
        return Err(Failure::input("a search makes many runs and writes no log; leave out -o, and run what it prints"));
    }
    if sim.node.is_some() {
        return Err(Failure::input("a search simulates all nodes of a flow; leave out --node"));
    }
    if system.flows.is_empty() {
        return Err(Failure::input("--delays worst is about [[flow]]s, and the system has none"));
    }
    let found = search(system, sim, options.runs.unwrap_or(RUNS_DEFAULT)).map_err(|error| failure(&error))?;
    let answer = Answer { options, system, sim, found: &found, bounds: bounds(system) };
    answer.warn();
    if json {
        print_json(&answer.json())?;
    } else {
        print(&answer.text())?;
    }
    Ok(if options.fail_on_miss && found.missed.is_some() { Status::No } else { Status::Yes })
}

fn bounds(system: &System) -> Vec<Option<Span>> {
    let report = check(system, &CheckOptions::default());
    let of = |name: &str| report.flows.iter().find(|flow| flow.flow == name)?.end_to_end;
    system.flows.iter().map(|flow| of(&flow.name)).collect()
}

/// Climbs on all CPUs, and merges what they find in the order of the climbs. So the result does not
/// depend on the number of threads.
fn search(system: &System, sim: &SimOptions, runs: u32) -> Result<Found, SimError> {
    let bar = progress::bar("searching", u64::from(runs));
    let climb = |start: u32| climb(system, sim, start, (runs - start * RUNS_PER_CLIMB).min(RUNS_PER_CLIMB));
    let mut all = Found { flows: vec![None; system.flows.len()], missed: None, runs: 0 };
    let outcome: Result<(), SimError> = in_order(runs.div_ceil(RUNS_PER_CLIMB), climb, |found| {
        all.merge(found?);
        bar.set_position(u64::from(all.runs));
        Ok(())
    });
    bar.finish_and_clear();
    outcome?;
    Ok(all)
}

struct Answer<'a> {
    options: &'a args::Sim,
    system: &'a System,
    sim: &'a SimOptions,
    found: &'a Found,
    bounds: Vec<Option<Span>>,
}

impl Answer<'_> {
    /// Each flow with its worst case and its bound.
    fn cases(&self) -> impl Iterator<Item = (&takt_model::Flow, Option<&Case>, Option<Span>)> {
        let flows = self.system.flows.iter().zip(&self.found.flows).zip(&self.bounds);
        flows.map(|((flow, case), bound)| (flow, case.as_ref(), *bound))
    }

    /// A bound that is exceeded is wrong, or the simulation is.
    fn warn(&self) {
        // Measured clocks may be off by more than clock.error, which the bound relies on.
        if !self.system.clock.offset.is_zero() {
            return;
        }
        for (flow, case, bound) in self.cases() {
            if let (Some(case), Some(bound)) = (case, bound)
                && case.response > bound
            {
                note(format_args!(
                    "warning: flow \"{}\" took {}, and takt check proves at most {bound}: one of the two is wrong; \
                     please report the file and \"{}\"",
                    flow.name,
                    case.response,
                    self.command(&case.traffic, &flow.name)
                ));
            }
        }
    }

    fn command(&self, traffic: &Traffic, name: &str) -> String {
        let SimOptions { duration, seed, .. } = self.sim;
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let log: String = name.chars().map(plain).collect::<String>() + ".takt";
        let (file, list) = (quoted(&self.options.file), quoted(&traffic.text(self.system)));
        format!("takt sim {file} --for {duration} --seed {seed} --delays {list} -o {}", quoted(&log))
    }

    fn text(&self) -> String {
        let mut table = Table::new(&["FLOW", "DEADLINE", "WORST FOUND", "INSTANCE", "BOUND", "OF THE BOUND"]);
        for (flow, case, bound) in self.cases() {
            let of_bound = case.zip(bound).map(|(case, bound)| case.response.as_ns() as f64 / bound.as_ns() as f64);
            table.row(vec![
                flow.name.clone(),
                time(flow.deadline),
                or_dash(case.map(|case| time(case.response))),
                or_dash(case.map(|case| case.instance)),
                or_dash(bound.map(time)),
                or_dash(of_bound.map(percent)),
            ]);
        }
        let mut out = format!(
            "{} simulations of {}, with varied delays of messages and first arrivals of flows\n\n{}\n",
            self.found.runs,
            self.sim.duration,
            table.render("")
        );
        match &self.found.missed {
            None => out += "no deadline missed; a search proves nothing: takt check proves\n",
            Some((count, traffic)) => {
                let deadlines = if *count == 1 { "deadline" } else { "deadlines" };
                out += &format!("{count} {deadlines} missed in one run:\n  {}\n", self.command(traffic, "missed"));
            }
        }
        out += "\ncommands that repeat these runs:\n";
        let cases = self.cases().filter_map(|(flow, case, _)| Some((flow, case?)));
        for (flow, case) in cases.take(COMMANDS_MAX) {
            out += &format!("  {}\n", self.command(&case.traffic, &flow.name));
        }
        let left = self.found.flows.iter().flatten().count().saturating_sub(COMMANDS_MAX);
        if left > 0 {
            out += &format!("  and {left} more: --json has them all\n");
        }
        out
    }

    fn json(&self) -> Value {
        let flows = self.cases().map(|(flow, case, bound)| {
            json!({
                "flow": flow.name,
                "deadline_ns": flow.deadline.as_ns(),
                "bound_ns": bound.map(Span::as_ns),
                "response_ns": case.map(|case| case.response.as_ns()),
                "instance": case.map(|case| case.instance),
                "delays": case.map(|case| case.traffic.text(self.system)),
                "command": case.map(|case| self.command(&case.traffic, &flow.name)),
            })
        });
        let missed = self.found.missed.as_ref().map(|(count, traffic)| {
            json!({
                "deadlines": count,
                "delays": traffic.text(self.system),
                "command": self.command(traffic, "missed"),
            })
        });
        json!({
            "system": self.system.name,
            "simulations": self.found.runs,
            "duration_ns": self.sim.duration.as_ns(),
            "seed": self.sim.seed,
            "flows": flows.collect::<Vec<_>>(),
            "missed": missed,
        })
    }
}
