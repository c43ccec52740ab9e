//! `takt net broker`.

use serde_json::json;
use takt_linux::signals::StopSignals;
use takt_linux::{Epoch, process};
use takt_model::Time;
use takt_net::{LateRule, Order};
use takt_run::broker::{Broker, BrokerError, BrokerSpec, BrokerStats};

use crate::args;
use crate::args::{BrokerLate, BrokerOrder};
use crate::failure::{Failure, Outcome, Status as Exit};
use crate::input;
use crate::output::{note, print, print_json};
use crate::table::Table;

pub(super) fn execute(options: &args::NetBroker, json: bool) -> Outcome {
    input::not_zero("--for", options.duration)?;
    if options.rate.is_some_and(|rate| rate.as_bps() == 0) {
        return Err(Failure::input("--rate is zero; give the rate of the line, like 20Mbit"));
    }
    let spec = BrokerSpec {
        order: match options.order {
            BrokerOrder::Edf => Order::Edf,
            BrokerOrder::Fifo => Order::Fifo,
        },
        late: match options.late {
            BrokerLate::Drop => LateRule::Drop,
            BrokerLate::Send => LateRule::Send,
            BrokerLate::Demote => LateRule::Demote,
        },
        rate: options.rate,
        priority: options.priority,
        ..BrokerSpec::new(&options.socket)
    };
    // Before the socket file is made, so that each signal removes it.
    let signals = StopSignals::catch();
    process::allow_most_files();
    let mut broker = Broker::bind(spec).map_err(|error| match &error {
        BrokerError::Listen { cause, .. } | BrokerError::Priority { cause, .. }
            if cause.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Failure::cannot(error)
        }
        _ => Failure::input(error),
    })?;
    note(format_args!("programs find the broker at {}", options.socket.display()));
    let epoch = Epoch::now_is_zero();
    let end = options.duration.map(|duration| Time::ZERO.saturating_add(duration));
    let stats = broker.serve(&mut |_| signals.caught().is_some() || end.is_some_and(|end| epoch.now() >= end));
    match json {
        true => print_json(&as_json(&stats))?,
        false => print(&render(&stats))?,
    }
    Ok(Exit::Yes)
}

fn render(stats: &BrokerStats) -> String {
    let mut table = Table::new(&["CLIENTS", "SOCKETS", "SENT", "LATE", "REFUSED", "WAITING AT MOST"]);
    let numbers = [stats.clients, stats.sockets, stats.sent, stats.late, stats.refused, stats.waiting_max as u64];
    table.row(numbers.map(|number| number.to_string()).to_vec());
    let mut text = table.render("");
    if stats.malformed > 0 {
        text.push_str(&format!(
            "{} clients sent requests that make no sense; their connections were ended\n",
            stats.malformed
        ));
    }
    text
}

fn as_json(stats: &BrokerStats) -> serde_json::Value {
    json!({
        "clients": stats.clients,
        "malformed": stats.malformed,
        "sockets": stats.sockets,
        "sent": stats.sent,
        "sent_bytes": stats.bytes,
        "late": stats.late,
        "refused": stats.refused,
        "waiting_max": stats.waiting_max,
    })
}
