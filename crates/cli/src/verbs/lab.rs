//! `takt lab`: kernels in QEMU.

mod boot;
mod fetch;
mod guest;
mod repeat;
mod run;

use std::path::PathBuf;

use takt_experiments::{LabMachine, LabOutput, LabRequest, LabRuns, Logs};
use takt_lab::machine::Devices;
use takt_run::lab::{Cache, LabError};

use crate::args;
use crate::args::LabAction;
use crate::failure::{Failure, Outcome};

pub(crate) fn execute(options: &args::Lab, json: bool) -> Outcome {
    match &options.action {
        LabAction::Fetch(options) => fetch::execute(options, json),
        LabAction::Run(options) => run::execute(options, json),
        LabAction::Repeat(options) => repeat::execute(options, json),
        LabAction::Guest => guest::execute(),
        LabAction::Play(options) => guest::play(options),
    }
}

fn failure(error: &LabError) -> Failure {
    Failure::with_exit_code(error.exit_code(), error)
}

/// Runs a script in a guest with one CPU.
pub(crate) fn script(machine: &LabMachine, request: &LabRequest) -> Result<LabOutput, Failure> {
    let options = args::LabExperiments {
        kernel: args::LabKernel { kernel: machine.kernel.clone(), cache: machine.cache.clone() },
        binary: machine.binary.clone(),
        devices: match request.devices {
            Devices::Exact => args::DeviceSet::Exact,
            Devices::Tolerant => args::DeviceSet::Tolerant,
        },
        cpus: Some(1),
        cards: request.cards,
        disk: request.disk_mib,
        virtio_disk: request.virtio_disk_mib,
        timeout: request.timeout,
        module: request.modules.iter().map(|(name, parameters)| args::Module::of(name, parameters)).collect(),
        ..args::LabExperiments::of(vec!["sh".to_owned(), "-c".to_owned(), request.script.clone()])
    };
    let bench = boot::Bench::prepare(&options)?;
    let mut boot = bench.boot(&options)?;
    let outcome = boot.results.experiments.pop().unwrap_or_default();
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    if outcome.status != Some(0) {
        return Err(Failure::trouble(format_args!("the script of the guest failed: {}", stderr.trim_end())));
    }
    Ok(LabOutput { text: String::from_utf8_lossy(&outcome.stdout).into_owned(), log: outcome.log })
}

/// Runs Systems in a guest with one CPU, under its sched_ext scheduler. Returns their logs.
pub(crate) fn runs(machine: &LabMachine, request: &LabRuns) -> Result<Logs, Failure> {
    let options = args::LabExperiments {
        files: request.files.iter().map(|file| file.to_string_lossy().into_owned()).collect(),
        duration: Some(request.duration),
        backend: args::BackEnd::SchedExt,
        // Servers that have more than the CPU are no harm: their tasks want less.
        run: ["--force", "--no-trace", "--seed", &request.seed.to_string()].map(str::to_owned).to_vec(),
        kernel: args::LabKernel { kernel: machine.kernel.clone(), cache: machine.cache.clone() },
        binary: machine.binary.clone(),
        timeout: request.timeout,
        ..args::LabExperiments::of(Vec::new())
    };
    let bench = boot::Bench::prepare(&options)?;
    let boot = bench.boot(&options)?;
    let told = |number: usize| boot.results.experiments.get(number).map_or(&[][..], |outcome| &outcome.stderr);
    if let Some(why) = boot::failures(&bench.names, &boot).first() {
        let number = boot.results.experiments.iter().position(|outcome| outcome.status != Some(0));
        let text = String::from_utf8_lossy(told(number.unwrap_or(0))).trim_end().to_owned();
        return Err(Failure::trouble(format_args!("{why}: {text}")));
    }
    Ok(boot.results.experiments.into_iter().map(|outcome| outcome.log.unwrap_or_default()).collect())
}

fn cache(options: &args::LabKernel) -> Result<Cache, Failure> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = options.cache.clone().or_else(|| {
        let base = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        base.map(|base| base.join("takt/lab"))
    });
    let folder = folder.ok_or_else(|| Failure::cannot("HOME is not set; name the folder of kernels: --cache DIR"))?;
    Ok(Cache::at(std::path::absolute(&folder).unwrap_or(folder)))
}
