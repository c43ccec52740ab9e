//! Golden schedules: each strategy, late rule and placement on a few lines of tasks, checked by hand.
//!
//! One character is one millisecond: `^` release, `v` deadline, `|` both, `X` miss, `o` omitted or
//! shed. A digit is the CPU of a running job, `.` a waiting job, `!` a job past its deadline.

use takt_model::*;
use takt_report::golden;
use takt_sim::{SimOptions, simulate};

#[track_caller]
fn expect(system: &System, units: u64, chart: &str) {
    let mut events = Vec::new();
    let duration = Span::from_ms(units);
    simulate(system, &SimOptions { duration, ..SimOptions::default() }, &mut events).expect("it can be simulated");
    let got = golden::chart(system, &events, units);
    assert_eq!(got.trim_end(), chart.trim_start_matches('\n').trim_end(), "\n{got}");
}

fn own(cpus: u32, levels: Vec<Level>, tasks: &str) -> System {
    let mut system = golden::system(cpus, Builtin::Edf, tasks);
    system.strategies.push(Strategy { name: "own".into(), levels });
    system.nodes[0].strategy = StrategyRef::Own(StrategyId(0));
    system
}

fn level(discipline: Discipline) -> Level {
    Level::new(Filter::Rest, discipline)
}

#[test]
fn rate_monotonic_preempts_by_period() {
    expect(
        &golden::system(1, Builtin::Rm, "a 4 1\nb 6 2\nc 12 3"),
        12,
        "
  ^   |   |   v
a 0   0   0
  ^     |     v
b .00   00
  ^           v
c ...0.0...0
",
    );
}

#[test]
fn sections_keep_their_cpu_and_end_where_they_say() {
    let mut system = golden::system(1, Builtin::Rm, "a 4 1\nb 8 5");
    system.tasks[1].preemption = Preemption::Between(vec![Span::from_ms(4), Span::from_ms(1)]);
    expect(
        &system,
        8,
        "
  ^   |   v
a 0   .0
  ^       v
b .0000.0
",
    );
    system.tasks[1].preemption = Preemption::Until(Span::from_ms(3));
    expect(
        &system,
        8,
        "
  ^   |   v
a 0   ..0
  ^       v
b .00000
",
    );
    // At the start of a section a more important job goes first.
    system.tasks[1].preemption = Preemption::Until(Span::from_ms(2));
    expect(
        &system,
        8,
        "
  ^   |   v
a 0   0
  ^       v
b .000.00
",
    );
}

#[test]
fn earliest_deadline_first_keeps_what_rate_monotonic_loses() {
    let tasks = "a 4 2\nb 6 3";
    expect(
        &golden::system(1, Builtin::Edf, tasks),
        12,
        "
  ^   |   |   v
a 00  .00 ..00
  ^     |     v
b ..000 .000
",
    );
    expect(
        &golden::system(1, Builtin::Rm, tasks),
        12,
        "
  ^   |   |   v
a 00  00  00
  ^     X     v
b ..00..!0..00
",
    );
}

#[test]
fn laxity_is_compared_at_events_unless_a_quantum_is_set() {
    let mut system = golden::system(1, Builtin::Mlf, "long 20 10 D=15\nshort 20 1 D=8");
    expect(
        &system,
        16,
        "
      ^              v
long  0000000000
      ^       X
short ..........!
",
    );
    system.nodes[0].laxity_quantum = Some(Span::from_ms(1));
    expect(
        &system,
        16,
        "
      ^              v
long  000.0000000
      ^       v
short ...0
",
    );
}

#[test]
fn maximum_urgency_first_saves_the_critical_tasks_of_an_overload() {
    let mut system = golden::system(1, Builtin::Muf, "soft 4 3\nhard 6 3");
    system.tasks[0].criticality = Criticality::Low;
    expect(
        &system,
        12,
        "
     ^   X   X   X
soft ...0!!...!!!
     ^     |     v
hard 000   000
",
    );
    system.nodes[0].cancel = true;
    expect(
        &system,
        12,
        "
     ^  o|   X o v
soft ... 00...!
     ^     |     v
hard 000   000
",
    );
}

#[test]
fn a_nonpreemptive_level_is_preempted_by_more_important_ones_alone() {
    let np = Level { preemptive: false, ..level(Discipline::Deadline) };
    let urgent = Level::new(Filter::Named(vec!["urgent".into()]), Discipline::Fifo);
    expect(
        &own(1, vec![urgent, np], "urgent 12 1 O=2\nlong 12 5\nshort 12 1 O=1 D=3"),
        12,
        "
         ^
urgent   0
       ^           v
long   00.000
        ^  X
short   .....!
",
    );
}

#[test]
fn late_jobs_continue_are_dropped_or_demoted() {
    let tasks = "late 12 6 D=4\nother 12 3 O=1";
    let under = |late| own(1, vec![Level { late, ..level(Discipline::Deadline) }], tasks);
    expect(
        &under(Late::Continue),
        12,
        "
      ^   X
late  0000!!
       ^
other  .....000
",
    );
    expect(
        &under(Late::Drop),
        12,
        "
      ^   X
late  0000
       ^
other  ...000
",
    );
    expect(
        &under(Late::Demote),
        12,
        "
      ^   X
late  0000...!!
       ^
other  ...000
",
    );
    // A started job keeps a level without preemption.
    let level = |late| Level { late, preemptive: false, ..level(Discipline::Deadline) };
    expect(
        &own(1, vec![level(Late::Demote)], tasks),
        12,
        "
      ^   X
late  0000!!
       ^
other  .....000
",
    );
}

#[test]
fn a_constant_makes_a_task_more_urgent_than_its_deadline() {
    let shift = [("b".to_owned(), Lateness::from_ns(-9_000_000))].into();
    expect(
        &own(1, vec![level(Discipline::Gel { shift })], "a 12 3 D=6\nb 12 3"),
        12,
        "
  ^     v
a ...000
  ^           v
b 000
",
    );
}

#[test]
fn global_edf_keeps_running_jobs_where_they_are() {
    expect(
        &golden::system(2, Builtin::Edf, "a 6 2\nb 6 2\nc 7 6"),
        14,
        "
  ^     |     |
a 00    11    00
  ^     |     |
b 11    ..00  ..
  ^      X      v
c ..00000!111111
",
    );
}

#[test]
fn a_pinned_job_takes_its_cpu_from_a_less_important_one_which_moves() {
    let mut system = golden::system(2, Builtin::Fp, "pinned 12 3 P=1 O=2\nfree 12 6 P=2\nlast 12 4 P=3 O=1");
    system.tasks[0].cpus = Some(CpuSet::first(1));
    expect(
        &system,
        12,
        "
         ^
pinned   000
       ^           v
free   001111
        ^
last    1...000
",
    );
}

#[test]
fn a_chain_runs_link_by_link_and_sheds_what_follows_an_omitted_job() {
    let mut system = golden::system(1, Builtin::Edf, "hog 16 4 D=5\na 8 2 D=4 O=1\nb 8 1 D=4 after=a");
    system.tasks[1].criticality = Criticality::Low;
    system.nodes[0].cancel = true;
    expect(
        &system,
        16,
        "
    ^    v
hog 0000
     ^  ov   ^   v
a    ...     00
        o   v  ^   v
b              0
",
    );
}

#[test]
fn a_mode_switch_reorders_waiting_jobs_by_the_new_strategy() {
    let mut system = golden::system(1, Builtin::Fifo, "a 12 4\nb 12 4 D=11\nc 12 2 D=8");
    let strategy = StrategyRef::Builtin(Builtin::Edf);
    system.modes.push(Mode { node: NodeId(0), at: Time::from_ns(1_000_000), strategy });
    expect(
        &system,
        12,
        "
  ^           v
a 0......000
  ^          v
b ...0000
  ^       v
c .00
",
    );
}
