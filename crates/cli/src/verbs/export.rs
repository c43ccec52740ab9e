//! `takt export`: a log for other tools.

use std::io::Write as _;

use takt_report::{JobCsv, PerfettoWriter};

use crate::args::{self, ExportFormat};
use crate::failure::{Outcome, Status};
use crate::input;

pub(crate) fn execute(options: &args::Export) -> Outcome {
    let mut log = input::log(&options.log)?;
    let scene = input::scene_of(&options.log, &log);
    let out = options.output.open()?;
    let failed = |error| input::log_failure(&options.log, &error);
    let written = match options.format {
        ExportFormat::Perfetto => match PerfettoWriter::new(out, &scene) {
            Ok(mut writer) => {
                let end = log.copy_to(&mut writer).map_err(failed)?;
                writer.finish(end).and_then(|mut out| out.flush())
            }
            Err(error) => Err(error),
        },
        ExportFormat::Csv => match JobCsv::new(out, &scene) {
            Ok(mut writer) => {
                let end = log.copy_to(&mut writer).map_err(failed)?;
                writer.finish(end).and_then(|mut out| out.flush())
            }
            Err(error) => Err(error),
        },
    };
    options.output.check(written)?;
    input::warn_of_damage(&options.log, &log.damage());
    Ok(Status::Yes)
}
