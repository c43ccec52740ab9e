//! `takt export`: a log for other tools, or a script with the budgets of components.

use std::io::Write as _;

use takt_report::{JobCsv, Keeper, PerfettoWriter, script};

use crate::args::{self, ExportFormat};
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, Log};
use crate::output::{note, only_one, print_files};

pub(crate) fn execute(options: &args::Export, json: bool) -> Outcome {
    only_one(json, options.output.is_stdout(), "export")?;
    write(options)?;
    if json {
        print_files(&[&options.output.0])?;
    }
    Ok(Status::Yes)
}

fn write(options: &args::Export) -> Result<(), Failure> {
    let keeper = match options.format {
        ExportFormat::Perfetto | ExportFormat::Csv => return log(options, input::log(&options.file)?),
        ExportFormat::CpuMax => Keeper::CpuMax,
        ExportFormat::CpuRt => Keeper::CpuRt,
        ExportFormat::QemuHook => Keeper::QemuHook,
        ExportFormat::Xl => Keeper::Xl,
    };
    let system = input::system(&options.file)?;
    let refused = |why| Failure::input(format_args!("{}: {why}", input::shown(&options.file)));
    let script = script(&system, keeper).map_err(refused)?;
    for warning in &script.warnings {
        note(format_args!("warning: {warning}"));
    }
    let mut out = options.output.open()?;
    let written = out.write_all(script.text.as_bytes()).and_then(|()| out.flush());
    options.output.check(written)
}

fn log(options: &args::Export, mut log: Log) -> Result<(), Failure> {
    let scene = input::scene_of(&options.file, &log);
    let out = options.output.open()?;
    let failed = |error| input::log_failure(&options.file, &error);
    let end = match options.format {
        ExportFormat::Perfetto => PerfettoWriter::new(out, &scene).map(|mut writer| {
            let end = log.copy_to(&mut writer).map_err(failed)?;
            Ok(writer.finish(end).and_then(|mut out| out.flush()))
        }),
        _ => JobCsv::new(out, &scene).map(|mut writer| {
            let end = log.copy_to(&mut writer).map_err(failed)?;
            Ok(writer.finish(end).and_then(|mut out| out.flush()))
        }),
    };
    let written = match end {
        Ok(written) => written?,
        Err(error) => Err(error),
    };
    options.output.check(written)?;
    input::warn_of_damage(&options.file, &log.damage());
    Ok(())
}
