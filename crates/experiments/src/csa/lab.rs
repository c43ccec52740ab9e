//! [CSA] Figs. 4 to 7 on a kernel of the lab: its sched_ext scheduler keeps the budgets of domains, in virtual time.

use takt_log::{Reader, Sink as _};
use takt_model::{Span, System, Time, file};

use super::kernel::{CsaRun, Kernel, claim_names};
use super::measure::Responsiveness;
use super::overheads::{Overheads, Watch, charged};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{self, Findings};
use crate::host::LabRuns;

pub(super) const LAB: Kernel = Kernel {
    name: "a kernel of the lab",
    source: findings::LAB,
    // The scheduler keeps no budget below 1 ms, which is the paper's quantum.
    speed: 1,
    has_quantum: false,
    duration: (Span::from_s(20), Span::from_s(3)),
    claims: claim_names!("lab"),
    run: run_in_the_lab,
    difference: "The paper ran a patched Xen on one core. Here a sched_ext scheduler keeps the budgets of threads on a \
                 stock kernel, in a guest in which an instruction takes 1 ns. It decides at any time, and not at \
                 multiples of a quantum.",
};

/// CPU time that the emulation may take: booting, and for each second of a run.
const BOOT: Span = Span::from_s(120);
const EACH: u64 = 30;

fn run_in_the_lab(
    context: &Context,
    systems: &[System],
    here: Span,
    findings: &mut Findings,
) -> Result<Vec<CsaRun>, Failure> {
    let Some(machine) = &context.lab else { return Err(Failure::trouble("the lab was not asked for")) };
    let mut files = Vec::new();
    for (at, system) in systems.iter().enumerate() {
        let name = format!("lab-{at:02}-{}.toml", system.name);
        let text = file::write(system);
        context.write(&name, text.as_bytes())?;
        files.push(context.path(&name).into());
        findings.files.push(name);
    }
    // A scheduler takes some seconds to load.
    let each = here.saturating_add(Span::from_s(6)).checked_mul(EACH * systems.len() as u64);
    let timeout = BOOT.saturating_add(each.unwrap_or(Span::MAX));
    let runs = LabRuns { files, duration: here, seed: context.seed, timeout };
    let Some(logs) = context.unless_stopped((context.host.lab_runs)(machine, &runs))? else {
        return Ok(Vec::new());
    };
    let mut overheads = Overheads::default();
    let runs = systems.iter().zip(&logs).map(|(system, log)| read(system, log, here, &mut overheads));
    let all: Vec<Responsiveness> = runs.collect::<Result<_, _>>()?;
    let costs = overheads.costs();
    if let Some(costs) = &costs {
        findings.notes.push(charged(costs, "Interrupts and the thread that wakes the scheduler"));
    }
    Ok(all.into_iter().map(|found| CsaRun { found, costs }).collect())
}

fn read(system: &System, log: &[u8], duration: Span, overheads: &mut Overheads) -> Result<Responsiveness, Failure> {
    let broken = |error: takt_log::ReadError| Failure::trouble(format_args!("a log of the guest: {error}"));
    let mut watch = Watch::of(system, overheads);
    for record in Reader::new(log).map_err(broken)? {
        let record = record.map_err(broken)?;
        watch.event(record.stream, record.time, &record.event);
    }
    Ok(watch.jobs.finish(Time::ZERO + duration))
}

#[cfg(test)]
mod tests {
    use takt_log::{BackEnd, Definitions, Header, KindSet, Writer};
    use takt_model::ServerRule;
    use takt_model::generate::Random;
    use takt_sim::{SimOptions, simulate};

    use super::super::RANGES;
    use super::super::measure::run_system;
    use super::super::workload::synthetic;
    use super::*;

    /// A log gives the responsiveness that a simulation of the file gives.
    #[test]
    fn the_file_and_its_log_are_those_of_the_workload() {
        let domains = synthetic(&mut Random::new(3), 0.7, RANGES[0]).map_err(|error| error.message).unwrap();
        let system = domains.system(ServerRule::Crps, 100);
        let parsed = file::parse(&file::write(&system), "lab.toml").unwrap();
        let duration = Span::from_s(3);
        let header = Header::new(String::new(), Some(1), BackEnd::Sim, KindSet::ALL);
        let mut writer = Writer::new(Vec::new(), &header, &Definitions::of(&parsed)).unwrap();
        simulate(&parsed, &SimOptions { duration, seed: 1, node: None }, &mut writer).unwrap();
        let log = writer.finish(Time::ZERO + duration).unwrap();
        let found = read(&system, &log, duration, &mut Overheads::default()).map_err(|error| error.message).unwrap();
        let wanted = run_system(&system, 1, duration).map_err(|error| error.message).unwrap();
        assert!(!wanted.all().is_empty() && found.all() == wanted.all());
    }
}
