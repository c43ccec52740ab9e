//! `takt lab`: kernels in QEMU.

mod boot;
mod fetch;
mod guest;
mod repeat;
mod run;

use std::path::PathBuf;

use takt_run::lab::{Cache, LabError};

use crate::args;
use crate::args::LabAction;
use crate::failure::{Failure, Outcome, Status};

pub(crate) fn execute(options: &args::Lab, json: bool) -> Outcome {
    match &options.action {
        LabAction::Fetch(options) => fetch::execute(options, json),
        LabAction::Run(options) => run::execute(options, json),
        LabAction::Repeat(options) => repeat::execute(options, json),
        LabAction::Guest => guest::execute(),
    }
}

fn failure(error: &LabError) -> Failure {
    let status = match error.exit_code() {
        2 => Status::Input,
        3 => Status::Cannot,
        _ => Status::Trouble,
    };
    Failure { status, message: format!("takt: {error}") }
}

/// The folder of fetched kernels.
fn cache(options: &args::LabKernel) -> Result<Cache, Failure> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = options.cache.clone().or_else(|| {
        let base = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        base.map(|base| base.join("takt/lab"))
    });
    let folder = folder.ok_or_else(|| Failure::cannot("HOME is not set; name the folder of kernels: --cache DIR"))?;
    Ok(Cache::at(std::path::absolute(&folder).unwrap_or(folder)))
}
