//! `takt net apply`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use takt_linux::signals::StopSignals;
use takt_linux::tc::{
    self, Applied, Device, Discipline, LateDatagrams, Match, NetError, Plan, Role, Rule, TagCounts, TagSpec, Tags,
};
use takt_linux::{Epoch, clock};
use takt_model::{Late, NodeSpec, Span, System, Time};

use super::show::{classes_json, counters, restored_json, restored_told, rules_json};
use super::{device, refused};
use crate::args;
use crate::failure::{Failure, Outcome, Status as Exit};
use crate::input;
use crate::output::{note, print, print_json};
use crate::table::{Table, time};

/// How often is looked whether a signal came.
const LOOK: Span = Span::from_ms(20);
const WATCH: Span = Span::from_ms(200);

#[derive(Clone, PartialEq, Debug)]
struct Request {
    node: String,
    plan: Plan,
    rules: Vec<Rule>,
}

pub(super) fn execute(options: &args::NetApply, json: bool) -> Outcome {
    input::not_zero("--for", options.duration)?;
    if options.watch && options.file == "-" {
        return Err(Failure::input("standard input cannot be watched; name the system file"));
    }
    let own = options.discipline == args::ApplyDiscipline::Takt;
    if own && options.keep {
        return Err(Failure::input(NetError::NotKept));
    }
    if own && options.late.is_some() {
        return Err(Failure::input(
            "under --discipline takt the file decides what becomes of late datagrams: leave --late out, and write \
             link.late = \"drop\", \"demote\" or \"continue\"",
        ));
    }
    let device = device(&options.device)?;
    if own || options.deadlines.is_some() {
        Tags::built().map_err(|error| refused(&error))?;
    }
    let tags = tags(options);
    // Read before it is parsed: a change in between is then noticed.
    let text = text(options);
    let request = read(options, &device)?;
    if options.dry_run {
        match json {
            true => print_json(&plan_json(&request, &device, tags.as_ref()))?,
            false => print(&plan_told(&request, &device, tags.as_ref()))?,
        }
        return Ok(Exit::Yes);
    }
    // Before the first change, so that each signal ends in order.
    let signals = StopSignals::catch();
    let applied = tc::apply(&device, &request.plan, &request.rules, options.keep);
    let applied = applied.map_err(|error| refused(&error))?;
    if options.keep {
        let (told, document) = (plan_told(&request, &device, None), plan_json(&request, &device, None));
        let answer = (told + &checked(&applied), document, checks_json(&applied));
        applied.leave();
        match json {
            true => print_json(&with(answer.1, [("checks", answer.2), ("kept", json!(true))]))?,
            false => print(&(answer.0 + "kept until takt net remove\n"))?,
        }
        return Ok(Exit::Yes);
    }
    let tags = tags.map(|spec| Tags::attach(&applied, spec)).transpose().map_err(|error| refused(&error))?;
    if !json {
        let told = plan_told(&request, &device, tags.as_ref().map(Tags::spec)) + &checked(&applied);
        print(&(told + &tags.as_ref().map_or(String::new(), tags_checked)))?;
    }
    note(format_args!("{} is shared until takt ends", device.name));
    hold(options, json, (request, text), (applied, tags), &signals)
}

fn tags(options: &args::NetApply) -> Option<TagSpec> {
    let late = match options.late {
        Some(args::ApplyLate::Drop) | None => LateDatagrams::Drop,
        Some(args::ApplyLate::Send) => LateDatagrams::Send,
    };
    options.deadlines.clone().map(|group| TagSpec { group, late })
}

/// The rule for late datagrams that is in force.
fn late_rule(plan: &Plan, tags: &TagSpec) -> Late {
    match (plan.discipline, tags.late) {
        (Discipline::Own { late, .. }, _) => late,
        (Discipline::Htb, LateDatagrams::Drop) => Late::Drop,
        (Discipline::Htb, LateDatagrams::Send) => Late::Continue,
    }
}

fn hold(
    options: &args::NetApply,
    json: bool,
    (mut request, mut text): (Request, Option<Vec<u8>>),
    (mut applied, mut tags): (Applied, Option<Tags>),
    signals: &StopSignals,
) -> Outcome {
    let epoch = Epoch::now_is_zero();
    let end = options.duration.map(|duration| Time::ZERO.saturating_add(duration));
    let (mut changes, mut looked) = (0u32, Time::ZERO);
    while signals.caught().is_none() && end.is_none_or(|end| epoch.now() < end) {
        clock::pause(LOOK);
        if !options.watch || epoch.now() < looked.saturating_add(WATCH) {
            continue;
        }
        looked = epoch.now();
        let now = self::text(options);
        if now == text {
            continue;
        }
        text = now;
        match read(options, applied.device()) {
            Ok(new) if new == request => {}
            Ok(new) => {
                match applied.change(&new.plan, &new.rules) {
                    Ok(()) => {}
                    Err(error @ (NetError::Between { .. } | NetError::NotInstalled { .. })) => {
                        return Err(refused(&error));
                    }
                    Err(error) => {
                        note(format_args!("{} has changed; its shares stay: {error}", options.file));
                        continue;
                    }
                }
                tags.iter_mut().try_for_each(|tags| tags.change(&new.plan)).map_err(|error| refused(&error))?;
                request = new;
                changes += 1;
                note(format_args!("{} has changed: its shares are in place", options.file));
            }
            Err(failure) => note(format_args!("{} has changed; its shares stay: {}", options.file, failure.message)),
        }
    }
    // None where somebody else has taken takt's classes away.
    let status = applied.status().ok();
    let checks = checks_json(&applied);
    let plan = plan_json(&request, applied.device(), tags.as_ref().map(Tags::spec));
    let tagged = tags.as_ref().map(Tags::counts).transpose().map_err(|error| refused(&error))?;
    let late = applied.late_drops().map_err(|error| refused(&error))?;
    let tagged = tagged.map(|counts| TagCounts { dropped: counts.dropped + late, ..counts });
    drop(tags);
    let restored = applied.restore().map_err(|error| refused(&error))?;
    if json {
        let more = [
            ("checks", checks),
            ("kept", json!(false)),
            ("changes", json!(changes)),
            ("counters", json!(status.as_ref().map(classes_json))),
            ("packets_with_deadline", json!(tagged.map(tagged_json))),
            ("restored", restored_json(restored.as_ref())),
        ];
        print_json(&with(plan, more))?;
    } else {
        let counters = status.map_or(String::new(), |status| format!("\n{}", counters(&status).render("")));
        let tagged = tagged.map_or(String::new(), tagged_told);
        let end = match &restored {
            Some(restored) => restored_told(restored),
            None => format!("another program has replaced takt's classes on {}; its discipline stays", options.device),
        };
        print(&format!("{counters}{tagged}\n{end}\n"))?;
    }
    Ok(Exit::Yes)
}

fn text(options: &args::NetApply) -> Option<Vec<u8>> {
    options.watch.then(|| std::fs::read(&options.file).ok())?
}

/// The plan of the file for this device, and the rules.
fn read(options: &args::NetApply, device: &Device) -> Result<Request, Failure> {
    let system = input::system(&options.file)?;
    let node = node(&system, options.node.as_deref())?;
    let link = node.link.as_ref().ok_or_else(|| {
        Failure::input(format_args!(
            "node \"{}\" has no link, so there is nothing to share; write link = {{ rate = \"100Mbit\", bucket = \
             {{ burst = \"4kB\", rate = \"20Mbit\" }} }}",
            node.name
        ))
    })?;
    if link.replies.is_none() && !options.reply.is_empty() {
        return Err(Failure::input(format_args!(
            "node \"{}\" has no share for replies; write link.replies, or leave --reply out",
            node.name
        )));
    }
    let discipline = match options.discipline {
        args::ApplyDiscipline::Htb => Discipline::Htb,
        args::ApplyDiscipline::Takt => Discipline::own(link),
    };
    let plan = Plan::under(discipline, link, device)
        .map_err(|error| Failure::input(format_args!("node \"{}\": {error}", node.name)))?;
    let usual = Rule::usual(link.replies.is_some());
    let of = |role: Role, given: &[Match]| -> Vec<Rule> {
        if given.is_empty() {
            return usual.iter().filter(|rule| rule.role == role).cloned().collect();
        }
        given.iter().map(|of| Rule { of: of.clone(), role }).collect()
    };
    let rules = [of(Role::RealTime, &options.real_time), of(Role::Reply, &options.reply)].concat();
    Ok(Request { node: node.name.clone(), plan, rules })
}

fn node<'a>(system: &'a System, name: Option<&str>) -> Result<&'a NodeSpec, Failure> {
    if let Some(id) = input::node(system, name)? {
        return Ok(&system.nodes[id.index()]);
    }
    let linked: Vec<&NodeSpec> = system.nodes.iter().filter(|node| node.link.is_some()).collect();
    match linked[..] {
        [only] => Ok(only),
        [] => Err(Failure::input(format_args!(
            "no node of system \"{}\" has a link, so there is nothing to share; write link = {{ rate = \"100Mbit\" }} \
             at its node",
            system.name
        ))),
        _ => {
            let names: Vec<String> = linked.iter().map(|node| format!("\"{}\"", node.name)).collect();
            Err(Failure::input(format_args!(
                "nodes {} have links; say which one this machine is with --node",
                names.join(", ")
            )))
        }
    }
}

/// How often the larger goes into the smaller, with one decimal.
fn times(large: Span, small: Span) -> String {
    let tenths = u128::from(large.as_ns()) * 10 / u128::from(small.as_ns().max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn plan_told(request: &Request, device: &Device, tags: Option<&TagSpec>) -> String {
    let plan = &request.plan;
    let rate = plan.line.bits();
    let mut text = format!("{}: {rate} of node \"{}\" in {} classes\n", device.name, request.node, plan.classes.len());
    let own = plan.discipline != Discipline::Htb;
    let order = if own { "ORDER" } else { "QUANTUM" };
    let mut table = Table::new(&["CLASS", "RATE", "CEILING", "BURST", order, "PRIORITY", "QUEUE"]);
    for class in &plan.classes {
        let is_share = !own || class.role != Role::Background;
        table.row(vec![
            class.role.to_string(),
            if is_share { class.assured.bits().to_string() } else { "-".to_owned() },
            class.ceiling.bits().to_string(),
            format!("{}B", if is_share { class.assured.burst } else { class.ceiling.burst }),
            if own { order_of(plan, class.role).to_owned() } else { format!("{}B", class.quantum) },
            class.priority.to_string(),
            class.packets_max.to_string(),
        ]);
    }
    text.push_str(&table.render(""));
    text.push('\n');
    for role in Role::ALL {
        let of: Vec<String> =
            request.rules.iter().filter(|rule| rule.role == role).map(|rule| rule.of.to_string()).collect();
        if !of.is_empty() {
            let _ = writeln!(text, "{role}: {}", of.join(", "));
        }
    }
    let _ = writeln!(text, "background: all other packets");
    if let Some(tags) = tags {
        let late = match late_rule(plan, tags) {
            Late::Drop => "dropped",
            Late::Demote => "sent after all others",
            Late::Continue => "sent in their turn",
        };
        let _ = writeln!(
            text,
            "SO_DEADLINE: sockets of control group {}; their packets are real-time, and late datagrams are {late}",
            tags.group.display()
        );
    }
    let (blocking, gso) = (plan.blocking(), plan.blocking_with_gso());
    let _ = writeln!(text, "a real-time packet waits at most {} for other classes", time(blocking));
    let _ = writeln!(
        text,
        "gso_max_segs 1 (before: {}); packets of many segments would make that {}, {} times as long",
        device.gso_max_segs,
        time(gso),
        times(gso, blocking)
    );
    for sentence in &plan.notes {
        let _ = writeln!(text, "note: {sentence}");
    }
    text
}

fn checked(applied: &Applied) -> String {
    let sent = |probed: bool| applied.checks().iter().filter(move |check| (check.sent > 0) == probed);
    let frames: u64 = sent(true).map(|check| check.sent).sum();
    let mut text = format!("verified: read back; {frames} of {frames} frames were counted by their classes\n");
    for check in sent(false) {
        if let Some(rule) = &check.rule {
            let _ = writeln!(text, "not probed: {} (takt net show counts its packets)", rule.of);
        }
    }
    text
}

fn tags_checked(tags: &Tags) -> String {
    match tags.probed() {
        0 => "not probed: SO_DEADLINE (this process is outside of its control group)\n".to_owned(),
        frames => format!("verified: {frames} of {frames} frames with a deadline came to the device and left it\n"),
    }
}

fn tagged_told(counts: TagCounts) -> String {
    let TagCounts { came, dropped, left, late } = counts;
    format!("\npackets with a deadline: {came} came, {dropped} dropped, {left} left, {late} of them late\n")
}

fn tagged_json(counts: TagCounts) -> Value {
    json!({ "came": counts.came, "dropped": counts.dropped, "left": counts.left, "late": counts.late })
}

/// The order of a class under takt's own discipline.
fn order_of(plan: &Plan, role: Role) -> &'static str {
    match plan.discipline {
        Discipline::Own { edf: true, .. } if role == Role::RealTime => "edf",
        _ => "fifo",
    }
}

fn plan_json(request: &Request, device: &Device, tags: Option<&TagSpec>) -> Value {
    let plan = &request.plan;
    let class = |class: &tc::ClassPlan| {
        json!({
            "class": class.role.name(),
            "rate_bps": class.assured.bits().as_bps(),
            "ceiling_bps": class.ceiling.bits().as_bps(),
            "burst_bytes": class.assured.burst,
            "ceiling_burst_bytes": class.ceiling.burst,
            "quantum_bytes": class.quantum,
            "order": order_of(plan, class.role),
            "priority": class.priority,
            "packets_max": class.packets_max,
        })
    };
    json!({
        "device": device.name,
        "node": request.node,
        "discipline": if plan.discipline == Discipline::Htb { "htb" } else { "takt" },
        "rate_bps": plan.line.bits().as_bps(),
        "burst_bytes": plan.line.burst,
        "frame_max_bytes": plan.frame_max,
        "overhead_bytes": plan.overhead,
        "classes": plan.classes.iter().map(class).collect::<Vec<_>>(),
        "rules": rules_json(&request.rules),
        "deadlines": tags.map(|spec| json!({
            "group": spec.group,
            "late": match late_rule(plan, spec) {
                Late::Drop => "drop",
                Late::Demote => "demote",
                Late::Continue => "send",
            },
        })),
        "blocking_ns": plan.blocking().as_ns(),
        "blocking_with_gso_ns": plan.blocking_with_gso().as_ns(),
        "gso_max_segs_before": device.gso_max_segs,
        "notes": plan.notes,
    })
}

fn checks_json(applied: &Applied) -> Value {
    let check = |check: &tc::Check| {
        json!({
            "rule": check.rule.as_ref().map(|rule| rule.of.to_string()),
            "class": check.role.name(),
            "sent": check.sent,
            "counted": check.counted,
        })
    };
    applied.checks().iter().map(check).collect()
}

fn with<const N: usize>(mut document: Value, more: [(&str, Value); N]) -> Value {
    for (key, value) in more {
        document[key] = value;
    }
    document
}
