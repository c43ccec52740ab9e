//! `takt net`: shares of a network device.

mod apply;
mod broker;
mod clock;
mod doctor;
mod probe;
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
        NetAction::Probe(options) => probe::execute(options, json),
        NetAction::Show(options) => show::execute(options, json),
        NetAction::Remove(options) => show::remove(options, json),
        NetAction::Doctor(options) => doctor::execute(options, json),
    }
}

fn all() -> Result<Vec<Device>, Failure> {
    Device::list().map_err(|error| Failure::trouble(format_args!("devices cannot be read: {error}")))
}

fn device(name: &str) -> Result<Device, Failure> {
    let devices = all()?;
    if let Some(found) = devices.iter().find(|device| device.name == name) {
        return Ok(found.clone());
    }
    let known: Vec<String> = devices.iter().map(|device| format!("\"{}\"", device.name)).collect();
    Err(Failure::input(format_args!("no network device is called \"{name}\"; there are {}", known.join(", "))))
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
