//! Descriptions of reservations, in words and in JSON.

use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use takt_linux::sched::Class;
use takt_run::reserve::{Budget, Outcome, Plan, Request, Returned, Target};

use super::held::{EndCause, EndedReservation};
use crate::args;
use crate::table::{Table, time};

/// `12ms every 40ms (30.0 % of a CPU)`, and the deadline if it differs from the period.
fn describe(request: &Request) -> String {
    let Request { runtime, period, deadline, .. } = request;
    let percent = 100.0 * request.share();
    if request.budget == Budget::Group {
        return format!("at most {runtime} every {period} ({percent:.1} % of a CPU)");
    }
    let deadline = if deadline == period { String::new() } else { format!(" within {deadline}") };
    let reclaim = if request.reclaim { ", and what others leave" } else { "" };
    format!("{runtime}{deadline} every {period} ({percent:.1} % of a CPU){reclaim}")
}

pub(super) fn reserved(target: &Target, request: &Request) -> String {
    format!("{} ({}) has {}", target.name, target.thread.pid, describe(request))
}

fn share(bandwidth: u64) -> f64 {
    bandwidth as f64 / f64::from(1 << 20)
}

fn room_json(plan: &Plan) -> Value {
    let Some(room) = &plan.facts.room else { return Value::Null };
    json!({
        "cpus": room.cpus,
        "limit": room.limit.map(share),
        "booked": share(room.booked),
        "servers": share(room.servers),
    })
}

pub(super) fn request(plan: &Plan) -> Value {
    let request = &plan.request;
    // A control group has none.
    let deadline = (request.budget == Budget::Deadline).then_some(request.deadline.as_ns());
    json!({
        "budget": request.budget.name(),
        "runtime_ns": request.runtime.as_ns(), "deadline_ns": deadline, "period_ns": request.period.as_ns(),
        "bandwidth": request.share(), "reclaim": request.reclaim,
    })
}

fn thread_json(target: &Target) -> Value {
    json!({
        "thread": target.name, "id": target.thread.pid, "process": target.process, "class": target.class.describe(),
    })
}

pub(super) fn dry_run_json(plan: &Plan, options: &args::Reserve) -> Value {
    json!({
        "dry_run": true,
        "reservation": request(plan),
        "threads": plan.threads.iter().map(thread_json).collect::<Vec<_>>(),
        "command": options.command,
        "room": room_json(plan),
        "left": plan.left().map(share),
        "notes": plan.notes,
    })
}

pub(super) fn dry_run_text(plan: &Plan, options: &args::Reserve) -> String {
    let mut text = String::new();
    for target in &plan.threads {
        let now = target.class.describe();
        text.push_str(&format!(
            "{} ({}), now {now}, would have {}\n",
            target.name,
            target.thread.pid,
            describe(&plan.request)
        ));
    }
    if let Some(program) = options.command.first() {
        text.push_str(&format!("{program} would begin with {}\n", describe(&plan.request)));
    }
    match plan.left() {
        None if plan.request.budget == Budget::Group => {
            for place in &plan.places {
                text.push_str(&format!("a control group would be made in {}\n", place.folder.display()));
            }
        }
        Some(left) => {
            let percent = (share(left) * 1000.0).floor() / 10.0;
            text.push_str(&format!("the kernel would admit it, and {percent:.1} % of a CPU would be left\n"));
        }
        None => text.push_str("whether the kernel would admit it is not known\n"),
    }
    text
}

pub(super) fn ended_json(plan: &Plan, held: &EndedReservation) -> Value {
    let threads = held.threads.iter().zip(&held.returned).map(|(target, returned)| {
        let mut entry = thread_json(target);
        entry["after"] = json!(returned.outcome.name());
        entry["throttled"] = throttled_json(plan, returned);
        entry["now"] = match &returned.outcome {
            Outcome::Restored => json!(target.class.describe()),
            Outcome::Changed { now } => json!(now),
            Outcome::Ended | Outcome::Failed { .. } => Value::Null,
        };
        entry
    });
    json!({
        "reservation": request(plan),
        "threads": threads.collect::<Vec<_>>(),
        "held_ns": held.duration.as_ns(),
        "over": held.over.name(),
        "interrupted": match &held.over { EndCause::Signal(signal) => Some(signal), _ => None },
        "command_status": held.command.and_then(|status| status.code()),
        "command_signal": held.command.and_then(|status| status.signal()),
        "leaked": held.leaked.map(share),
        "room": room_json(plan),
        "notes": plan.notes,
    })
}

/// How often a control group's budget was used up; null if this is unknown, and for SCHED_DEADLINE.
fn throttled_json(plan: &Plan, returned: &Returned) -> Value {
    let Some(throttled) = returned.throttled.filter(|_| plan.request.budget == Budget::Group) else {
        return Value::Null;
    };
    json!({"periods": throttled.periods, "throttled": throttled.throttled, "time_ns": throttled.time.as_ns()})
}

fn group_ended_text(plan: &Plan, held: &EndedReservation) -> String {
    let mut table = Table::new(&["THREAD", "ID", "AT MOST", "PERIOD", "CLASS", "PERIODS", "USED UP", "WAITED", "NOW"]);
    for (target, returned) in held.threads.iter().zip(&held.returned) {
        let told = returned.throttled;
        let or_not = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            target.name.clone(),
            target.thread.pid.to_string(),
            time(plan.request.runtime),
            time(plan.request.period),
            class_name(&target.class),
            or_not(told.map(|told| told.periods.to_string())),
            or_not(told.map(|told| told.throttled.to_string())),
            or_not(told.map(|told| time(told.time))),
            returned.outcome.describe(),
        ]);
    }
    format!("{}\nlimited for {}\n", table.render(""), time(held.duration))
}

pub(super) fn ended_text(plan: &Plan, held: &EndedReservation) -> String {
    if plan.request.budget == Budget::Group {
        return group_ended_text(plan, held);
    }
    let mut table = Table::new(&["THREAD", "ID", "RUNTIME", "DEADLINE", "PERIOD", "BEFORE", "NOW"]);
    for (target, returned) in held.threads.iter().zip(&held.returned) {
        table.row(vec![
            target.name.clone(),
            target.thread.pid.to_string(),
            time(plan.request.runtime),
            time(plan.request.deadline),
            time(plan.request.period),
            class_name(&target.class),
            returned.outcome.describe(),
        ]);
    }
    let back = match held.leaked {
        Some(0) => "; nothing of it is booked any more",
        _ => "",
    };
    format!("{}\nreserved for {}{back}\n", table.render(""), time(held.duration))
}

fn class_name(class: &Class) -> String {
    match class {
        Class::Fifo { priority } => format!("SCHED_FIFO {priority}"),
        Class::RoundRobin { priority } => format!("SCHED_RR {priority}"),
        class => class.describe(),
    }
}
