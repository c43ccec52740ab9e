//! `takt net show` and `takt net remove`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use takt_linux::tc::{self, Restored, Rule, Status};

use super::{device, refused};
use crate::args;
use crate::failure::{Outcome, Status as Exit};
use crate::output::{print, print_json};
use crate::table::Table;

pub(super) fn execute(options: &args::NetShow, json: bool) -> Outcome {
    let only = options.device.as_deref().map(device).transpose()?;
    let all = tc::show(only.as_ref()).map_err(|error| refused(&error))?;
    if json {
        print_json(&json!({ "devices": all.iter().map(as_json).collect::<Vec<_>>() }))?;
    } else if all.is_empty() {
        let whom = options.device.as_ref().map_or("no device".to_owned(), |name| format!("device {name}"));
        let verb = if options.device.is_some() { "has no" } else { "has" };
        print(&format!("{whom} {verb} shares of takt\n"))?;
    } else {
        print(&all.iter().map(render).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(if all.is_empty() { Exit::No } else { Exit::Yes })
}

pub(super) fn remove(options: &args::NetRemove, json: bool) -> Outcome {
    let restored = tc::remove(&device(&options.device)?).map_err(|error| refused(&error))?;
    if json {
        print_json(&restored_json(Some(&restored)))?;
    } else {
        print(&format!("{}\n", restored_told(&restored)))?;
    }
    Ok(Exit::Yes)
}

pub(super) fn restored_told(restored: &Restored) -> String {
    let Restored { device, discipline, gso_max_segs, is_former } = restored;
    if *is_former {
        format!("{device} has what it had before: {discipline}, gso_max_segs {gso_max_segs}")
    } else {
        format!(
            "{device} has the kernel's default now, {discipline}, and gso_max_segs {gso_max_segs}: no state file tells \
             what it had before"
        )
    }
}

/// The same; null where somebody else has taken takt's classes away.
pub(super) fn restored_json(restored: Option<&Restored>) -> Value {
    restored.map_or(Value::Null, |restored| {
        json!({
            "device": restored.device,
            "discipline": restored.discipline,
            "gso_max_segs": restored.gso_max_segs,
            "is_former": restored.is_former,
        })
    })
}

fn render(status: &Status) -> String {
    let until = match status.holder {
        Some(pid) => format!("process {pid} holds them"),
        None if status.former.is_some() => "kept until takt net remove".to_owned(),
        None => "no state file of this user names the program that installed them".to_owned(),
    };
    let rate = takt_model::Rate::from_bps(status.rate.saturating_mul(8));
    let Status { device, discipline, classes, .. } = status;
    if classes.is_empty() {
        let why = "its classes can be read by root, by a takt with the feature \"bpf\"";
        return format!("{device}: shares under {discipline}; {until}; {why}\n");
    }
    let mut text = format!("{device}: {rate} in {} classes of {discipline}; {until}\n", classes.len());
    text.push_str(&counters(status).render(""));
    for rule in &status.rules {
        let _ = writeln!(text, "{}: {}", rule.role, rule.of);
    }
    text
}

pub(super) fn counters(status: &Status) -> Table {
    let mut table = Table::new(&["CLASS", "RATE", "CEILING", "PACKETS", "BYTES", "DROPPED", "WAITING"]);
    for class in &status.classes {
        let counters = class.counters;
        table.row(vec![
            class.role.to_string(),
            if class.assured.rate > 0 { class.assured.bits().to_string() } else { "-".to_owned() },
            class.ceiling.bits().to_string(),
            counters.packets.to_string(),
            counters.bytes.to_string(),
            counters.dropped.to_string(),
            counters.waiting.to_string(),
        ]);
    }
    table
}

pub(super) fn rules_json(rules: &[Rule]) -> Vec<Value> {
    rules.iter().map(|rule| json!({ "rule": rule.of.to_string(), "class": rule.role.name() })).collect()
}

pub(super) fn classes_json(status: &Status) -> Vec<Value> {
    let class = |class: &tc::ClassStatus| {
        json!({
            "class": class.role.name(),
            "rate_bps": class.assured.bits().as_bps(),
            "ceiling_bps": class.ceiling.bits().as_bps(),
            "packets": class.counters.packets,
            "bytes": class.counters.bytes,
            "dropped": class.counters.dropped,
            "waiting": class.counters.waiting,
        })
    };
    status.classes.iter().map(class).collect()
}

fn as_json(status: &Status) -> Value {
    json!({
        "device": status.device,
        "discipline": status.discipline,
        "rate_bps": status.rate.saturating_mul(8),
        "holder": status.holder,
        "former": status.former,
        "gso_max_segs": status.gso_max_segs,
        "classes": classes_json(status),
        "rules": rules_json(&status.rules),
    })
}
