//! A reservation with a look at the thread before and after, and with `--auto` sized from the first.

use std::process::Command;

use serde_json::{Value, json};
use takt_linux::Epoch;
use takt_linux::guard::Guard;
use takt_linux::paused::PausedChild;
use takt_linux::process::Identity;
use takt_linux::signals::StopSignals;
use takt_model::Span;
use takt_run::reserve::{Budget, Plan, Request, ReserveError, Reserved, Target, as_limit, find};

use super::compare::{Numbers, table};
use super::hold::{Running, finish, hand_on, tell_reserved};
use super::judge::{Guarantee, Sized, jobs_for, judge};
use super::phase::{Phase, StopRule, look};
use super::planned::{plan_for, refused, request_of, requested, serving};
use super::tell;
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{note, print, print_json};
use crate::table::time;

/// How long a look takes at most where the command line does not say.
const LOOK_MAX: Span = Span::from_s(60);

pub(super) fn execute(options: &args::Reserve, json: bool) -> Outcome {
    let signals = StopSignals::catch();
    let (mut child, thread, process) = thread_to_reserve(options)?;
    let enough = jobs_for(options.probability);
    let until = options.observe.map_or(StopRule::Jobs { enough, most: LOOK_MAX }, StopRule::Time);
    let before = observe(thread, process, until, &mut child, &signals)?;
    let target = target_now(thread, &before)?;
    fail_if_interrupted(&signals, child.is_some(), &before)?;
    let sized = options.auto.then(|| size(&target, &before, options)).transpose()?;
    let request = match &sized {
        Some(sized) => request_of(options, sized.reserved.budget, sized.reserved.period),
        None => requested(options)?,
    };
    let deadline = sized.as_ref().map_or(request.deadline, |sized| sized.deadline);
    let mut plan = match plan_for(&request, vec![target.clone()]) {
        Ok(plan) => plan,
        Err(error) => limit_instead(options, &request, &target, &error)?,
    };
    for sentence in notes(&plan, &before, sized.as_ref()) {
        note(format_args!("note: {sentence}"));
    }
    let before_numbers = Numbers::of(&before, deadline);
    if options.dry_run {
        if json {
            let mut answer = tell::dry_run_json(&plan, options);
            answer["sized"] = sized.as_ref().map_or(Value::Null, describe_json);
            answer["before"] = before_numbers.json();
            print_json(&answer)?;
        } else {
            let found = sized.as_ref().map_or(String::new(), |sized| describe(&target, sized, plan.request.budget));
            print(&format!("{found}{}", tell::dry_run_text(&plan, options)))?;
        }
        return Ok(Status::Yes);
    }
    let reserved = match Reserved::apply(&plan, &Guard::ThisProgram) {
        Ok(reserved) => reserved,
        Err(error) if plan.request.budget == Budget::Group => return Err(refused(&error)),
        // Booked bandwidth is not always known before.
        Err(error) => {
            plan = limit_instead(options, &request, &target, &error)?;
            for sentence in &plan.notes {
                note(format_args!("note: {sentence}"));
            }
            Reserved::apply(&plan, &Guard::ThisProgram).map_err(|error| refused(&error))?
        }
    };
    if let (Some(sized), false) = (&sized, json) {
        print(&describe(&target, sized, plan.request.budget))?;
    }
    tell_reserved(&reserved, &plan);
    let epoch = Epoch::now_is_zero();
    let length = options.duration.map_or(before.duration, |duration| duration.min(before.duration));
    let after = observe(thread, process, StopRule::Time(length), &mut child, &signals)?;
    for sentence in &after.defects {
        note(format_args!("warning: {sentence}"));
    }
    let after_numbers = Numbers::of(&after, deadline);
    if !json {
        print(&format!("\n{}\n", side_by_side(&before_numbers, &after_numbers, deadline, plan.request.budget)))?;
    }
    let held = finish(&plan, reserved, child, options.duration, &signals, epoch);
    for sentence in held.warnings() {
        note(format_args!("warning: {sentence}"));
    }
    if json {
        let mut answer = tell::ended_json(&plan, &held);
        answer["sized"] = sized.as_ref().map_or(Value::Null, describe_json);
        (answer["before"], answer["after"]) = (before_numbers.json(), after_numbers.json());
        print_json(&answer)?;
    } else {
        print(&tell::ended_text(&plan, &held))?;
    }
    Ok(held.status())
}

/// The thread and its process, and the command where one is started for it.
fn thread_to_reserve(options: &args::Reserve) -> Result<(Option<Running>, Identity, u32), Failure> {
    let Some((program, arguments)) = options.command.split_first() else {
        let target = target_of(options)?;
        return Ok((None, target.thread, target.process));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let failed = |error| Failure::input(format_args!("cannot start {program}: {error}"));
    let paused = PausedChild::spawn(command).map_err(failed)?;
    let thread = Identity::of(paused.id());
    let child = Running(paused.release().map_err(failed)?);
    let thread = thread.ok_or_else(|| Failure::no(format_args!("{program} has ended at once")))?;
    Ok((Some(child), thread, thread.pid))
}

/// The thread that the command line names.
fn target_of(options: &args::Reserve) -> Result<Target, Failure> {
    let targets = if options.irq.is_empty() {
        let [id] = options.pid[..] else {
            return Err(Failure::input("--auto and --observe look at one thread; give one --pid"));
        };
        find(&[id], false)
    } else {
        serving(&options.irq)
    };
    let targets = targets.map_err(|error| refused(&error))?;
    if targets.len() > 1 {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let names = names.join(", ");
        let why = "--auto and --observe look at one thread, and these are meant";
        return Err(Failure::input(format_args!("{why}: {names}; name one of them")));
    }
    targets.into_iter().next().ok_or_else(|| Failure::input("the thread has ended"))
}

fn observe(
    thread: Identity,
    process: u32,
    until: StopRule,
    child: &mut Option<Running>,
    signals: &StopSignals,
) -> Result<Phase, Failure> {
    look(thread, process, until, &mut || match child {
        Some(running) => {
            hand_on(&mut running.0, signals);
            !matches!(running.0.try_wait(), Ok(None))
        }
        None => signals.caught().is_some(),
    })
}

/// The thread as it is now: a command has its own name only after it has begun.
fn target_now(thread: Identity, phase: &Phase) -> Result<Target, Failure> {
    let gone = || {
        Failure::no(format_args!(
            "thread {} ended after {}, before anything was reserved",
            thread.pid,
            time(phase.duration)
        ))
    };
    let targets = find(&[thread.pid], false).map_err(|_| gone())?;
    targets.into_iter().find(|target| target.thread == thread && thread.is_alive()).ok_or_else(gone)
}

/// Fails after a signal, unless a command got it.
fn fail_if_interrupted(signals: &StopSignals, has_child: bool, phase: &Phase) -> Result<(), Failure> {
    match signals.caught().filter(|_| !has_child) {
        Some(signal) => Err(Failure::no(format_args!(
            "interrupted by {signal} after {}, before anything was reserved",
            time(phase.duration)
        ))),
        None => Ok(()),
    }
}

fn size(target: &Target, before: &Phase, options: &args::Reserve) -> Result<Sized, Failure> {
    let want = Guarantee { probability: options.probability, deadline: options.deadline, margin: options.margin };
    let name = format!("{} ({})", target.name, target.thread.pid);
    judge(&name, before, &want).map_err(Failure::no)
}

/// A control group for a thread that SCHED_DEADLINE cannot take, where the command line leaves that open.
fn limit_instead(
    options: &args::Reserve,
    request: &Request,
    target: &Target,
    error: &ReserveError,
) -> Result<Plan, Failure> {
    if !options.may_be_limited_instead() || !error.is_of_deadline_class() {
        return Err(refused(error));
    }
    let said = error.to_string();
    let reason = said.lines().next().unwrap_or_default();
    let limit = as_limit(request);
    let mut plan = plan_for(&limit, vec![target.clone()]).map_err(|other| Failure {
        message: format!("takt: {said}\nand a control group cannot limit it: {other}"),
        ..refused(error)
    })?;
    plan.notes.insert(0, format!("{reason}; so a control group limits it instead (--budget deadline refuses that)"));
    Ok(plan)
}

fn notes(plan: &Plan, before: &Phase, sized: Option<&Sized>) -> Vec<String> {
    let mut all: Vec<String> = before.defects.clone();
    all.extend(plan.notes.iter().cloned());
    if let Some(sized) = sized.filter(|sized| sized.longest && sized.independence.is_doubtful()) {
        all.push(format!(
            "executions depend on each other (correlation {:.2} of neighbours), so a share of them says nothing \
             about several long ones in a row: sized for the longest seen, as with --probability 1",
            sized.independence.lag_1
        ));
    }
    if let Some(sized) = sized.filter(|sized| sized.late > 0 && sized.latest > sized.jitter) {
        all.push(format!(
            "{} of {} releases came more than {} after their timers, the latest {}: no reservation helps \
             against that (\"takt doctor\")",
            sized.late,
            before.jobs.len(),
            time(sized.jitter),
            time(sized.latest)
        ));
    }
    all
}

/// The found parameters, and the reservation that follows.
fn describe(target: &Target, sized: &Sized, budget: Budget) -> String {
    let (min, mean, max) = sized.exec;
    let share = |share: f64| format!("{:.2} %", (share * 1e4).floor() / 100.0);
    let (proven, limited) = match budget {
        Budget::Deadline => ("", ""),
        Budget::Group => {
            (" under SCHED_DEADLINE", "a control group guarantees none of it; the second look shows the effect\n")
        }
    };
    let supposed = if sized.independence.is_doubtful() {
        "this holds for the longest execution seen: executions depend on each other, so the sample does not tell how \
         many later executions take longer"
            .to_owned()
    } else {
        let later = share(sized.confidence);
        format!(
            "if executions are independent, which no test refutes; at least {later} of later jobs need no more than \
             the longest seen, 95 % sure"
        )
    };
    format!(
        "{} ({}) comes every {}, usually up to {} late; {} jobs executed {} to {}, {} on average\n\
         with {} for each, {} every {} suffices{}: at least {} of such jobs are done within {} of their arrival\n\
         ({})\n{}",
        target.name,
        target.thread.pid,
        sized.period,
        time(sized.jitter),
        sized.jobs,
        time(min),
        time(max),
        time(mean),
        time(sized.margin),
        time(sized.reserved.budget),
        time(sized.reserved.period),
        proven,
        share(sized.reserved.probability.low),
        time(sized.deadline),
        supposed,
        limited,
    )
}

fn describe_json(sized: &Sized) -> Value {
    let (min, mean, max) = sized.exec;
    json!({
        "period_ns": sized.period.as_ns(), "deadline_ns": sized.deadline.as_ns(), "jitter_ns": sized.jitter.as_ns(),
        "late_releases": sized.late, "latest_ns": sized.latest.as_ns(), "jobs": sized.jobs,
        "exec_min_ns": min.as_ns(), "exec_mean_ns": mean.as_ns(), "wcet_ns": max.as_ns(),
        "margin_ns": sized.margin.as_ns(),
        "in_time": sized.reserved.probability.low, "longest": sized.longest,
        "utilization": sized.reserved.utilization, "exec_confidence": sized.confidence,
        "independence": {
            "samples": sized.independence.samples, "lag_1": sized.independence.lag_1,
            "ljung_box_p": sized.independence.ljung_box, "runs_p": sized.independence.runs,
            "doubtful": sized.independence.is_doubtful(),
        },
    })
}

fn side_by_side(before: &Numbers, after: &Numbers, deadline: Span, budget: Budget) -> String {
    let said = match (before.missed, after.missed) {
        _ if before.jobs == 0 || after.jobs == 0 => "there were too few jobs to compare",
        (0, 0) if budget == Budget::Group => "no job missed its deadline before, and none after",
        (0, 0) => {
            "no job missed its deadline before, and none after: the reservation keeps it so beside any \
             other threads"
        }
        (_, 0) => "no job missed its deadline any more",
        (before_missed, after_missed)
            if after_missed as f64 * (before.jobs as f64) < before_missed as f64 * (after.jobs as f64) =>
        {
            "fewer jobs missed their deadlines"
        }
        _ if budget == Budget::Group => "no fewer jobs missed their deadlines",
        _ => "no fewer jobs missed their deadlines: a lack of CPU time was not the cause",
    };
    format!("{}\na job is to be done within {}; {said}\n", table(before, after), time(deadline))
}
