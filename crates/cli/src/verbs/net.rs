//! `takt net`: shares of a network device.

mod apply;
mod broker;
mod clock;
mod doctor;
mod show;

use takt_linux::tc::{Device, NetError};

use crate::args;
use crate::args::NetAction;
use crate::failure::{Failure, Outcome};

pub(crate) fn execute(options: &args::Net, json: bool) -> Outcome {
    match &options.action {
        NetAction::Apply(options) => apply::execute(options, json),
        NetAction::Broker(options) => broker::execute(options, json),
        NetAction::Clock(options) => clock::execute(options, json),
        NetAction::Show(options) => show::execute(options, json),
        NetAction::Remove(options) => show::remove(options, json),
        NetAction::Doctor(options) => doctor::execute(options, json),
    }
}

/// The device of that name.
fn device(name: &str) -> Result<Device, Failure> {
    let found =
        Device::find(name).map_err(|error| Failure::trouble(format_args!("devices cannot be read: {error}")))?;
    found.ok_or_else(|| {
        let known: Vec<String> = Device::all_names()
            .map(|names| names.iter().map(|name| format!("\"{name}\"")).collect())
            .unwrap_or_default();
        Failure::input(format_args!("no network device is called \"{name}\"; there are {}", known.join(", ")))
    })
}

/// The status of a refusal.
fn refused(error: &NetError) -> Failure {
    match error {
        NetError::Rule { .. } => Failure::input(error),
        NetError::NotInstalled { .. } => Failure::no(error),
        NetError::State(_) | NetError::NotAsBefore { .. } | NetError::Refused { .. } => Failure::trouble(error),
        _ => Failure::cannot(error),
    }
}
