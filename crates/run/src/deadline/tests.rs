use takt_model::{Auto, Builtin, Late, StrategyRef};

use super::*;

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

/// Two components of one task under EDF.
fn system() -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    for (at, name) in (0u32..).zip(["a", "b"]) {
        let mut component = Component::new(name, NodeId(0), ServerRule::CbsHard);
        (component.period, component.budget) = (Auto::Value(ms(40)), Auto::Value(ms(12)));
        system.components.push(component);
        let mut task = Task::periodic(&format!("of {name}"), ms(40), ms(8));
        task.component = Some(ComponentId(at));
        system.tasks.push(task);
    }
    system
}

const LIMITS: Limits = Limits {
    rt_runtime_us: 950_000,
    rt_period_us: 1_000_000,
    dl_period_min: Span::from_us(100),
    dl_period_max: Span::from_s(4),
};

fn kernel() -> Kernel {
    let fair = Reservation { runtime: ms(50), deadline: ms(1000), period: ms(1000) }.bandwidth();
    Kernel { tick: Some(ms(4)), is_exact: false, fair }
}

/// What this machine allows by cpusets is not of interest here.
fn obstacles(system: &System, kernel: &Kernel) -> Vec<String> {
    let options = RunOptions::new(ms(100));
    let found = contract(system, NodeId(0), &options, (&LIMITS, kernel, 1)).unwrap();
    found.cannot.iter().map(ToString::to_string).filter(|text| !text.contains("cannot be divided")).collect()
}

/// The one obstacle of a changed system.
fn refused(change: impl FnOnce(&mut System)) -> String {
    let mut system = system();
    change(&mut system);
    let found = obstacles(&system, &kernel());
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

#[test]
fn hard_constant_bandwidth_servers_of_one_task_are_enforced() {
    assert_eq!(obstacles(&system(), &kernel()), Vec::<String>::new());
    let options = RunOptions::new(ms(100));
    let enforces = |kernel: &Kernel| {
        let contract = contract(&system(), NodeId(0), &options, (&LIMITS, kernel, 1)).unwrap();
        contract.enforces.concat()
    };
    assert!(enforces(&kernel()).contains("component \"a\" 12ms in each 40ms"), "{}", enforces(&kernel()));
    assert!(enforces(&kernel()).contains("up to 4ms more at a time"));
    assert!(enforces(&Kernel { is_exact: true, ..kernel() }).contains("a timer ends each budget"));
    let mapping = map(&system(), NodeId(0), &options, &LIMITS, 1).unwrap();
    let reserved = Reservation { runtime: ms(12), deadline: ms(40), period: ms(40) };
    assert!(mapping.is_strict && mapping.tasks.iter().all(|task| task.class == Class::Deadline(reserved)));
}

#[test]
fn every_other_rule_is_refused_with_the_difference_and_the_remedy() {
    for rule in ServerRule::ALL.into_iter().filter(|rule| *rule != ServerRule::CbsHard) {
        let text = refused(|system| system.components[0].server = rule);
        assert!(text.starts_with("component \"a\": ") && text.ends_with("or server = \"cbs-hard\""), "{text}");
    }
}

#[test]
fn components_that_sched_deadline_cannot_express_are_refused() {
    let text = refused(|system| {
        let mut second = Task::periodic("second", ms(40), ms(1));
        second.component = Some(ComponentId(0));
        system.tasks.push(second);
    });
    assert!(text.contains("the component has 2 tasks"), "{text}");
    assert!(refused(|system| system.components[0].quantum = Some(ms(1))).contains("quantum"));
    assert!(refused(|system| system.nodes[0].cancel = true).contains("cancels no job"));
    let (component, at) = (ComponentId(0), takt_model::Time::from_ns(1));
    let switch = takt_model::ServerSwitch { component, at, server: None, period: None, budget: Some(ms(2)) };
    assert!(refused(|system| system.switches.push(switch.clone())).contains("does not change servers"));
    assert!(refused(|system| system.tasks[0].late = Some(Late::Drop)).contains("drops"));
    assert!(refused(|system| system.nodes[0].strategy = StrategyRef::Builtin(Builtin::Rm)).contains("by deadline"));
    assert!(refused(|system| system.components[0].period = Auto::Value(Span::from_s(5))).contains("the kernel takes"));
    let mut nested = system();
    nested.components[1].parent = Some(ComponentId(0));
    assert!(obstacles(&nested, &kernel()).iter().all(|text| text.contains("do not nest")));
}

/// A budget below the grain of the kernel is no limit that it keeps.
#[test]
fn a_budget_below_a_tick_needs_the_timer() {
    let mut short = system();
    short.components[0].budget = Auto::Value(ms(3));
    let found = obstacles(&short, &kernel());
    assert!(found.len() == 1 && found[0].contains("ticks of 4ms (HRTICK_DL is off)"), "{found:?}");
    assert_eq!(obstacles(&short, &Kernel { is_exact: true, ..kernel() }), Vec::<String>::new());
}

/// The kernel admits 95 % of each CPU less the server for ordinary threads.
#[test]
fn more_bandwidth_than_the_kernel_admits_is_refused_before_anything_runs() {
    let with = |first, second| {
        let mut system = system();
        (system.components[0].budget, system.components[1].budget) = (Auto::Value(first), Auto::Value(second));
        obstacles(&system, &kernel())
    };
    assert_eq!(with(ms(18), ms(18)), Vec::<String>::new(), "90 %");
    let found = with(ms(18), ms(19));
    assert!(found.len() == 1 && found[0].contains("want 93 % of a CPU"), "{found:?}");
}

/// A file does not limit a task beside the components. The kernel does, and the contract says so.
#[test]
fn a_task_beside_the_components_has_a_limit_that_is_told() {
    let mut system = system();
    system.tasks.push(Task::periodic("alone", ms(100), ms(10)));
    let options = RunOptions::new(ms(100));
    let contract = contract(&system, NodeId(0), &options, (&LIMITS, &kernel(), 1)).unwrap();
    assert!(contract.enforces.concat().ends_with("\"alone\" 10.5ms in each 100ms"), "{contract:?}");
    let mapping = map(&system, NodeId(0), &options, &LIMITS, 1).unwrap();
    let reserved = Reservation { runtime: Span::from_us(10_500), deadline: ms(100), period: ms(100) };
    assert_eq!(mapping.tasks[2].class, Class::Deadline(reserved));
    // Its period is too long for the kernel.
    system.tasks[2].period = Span::from_s(5);
    let found = obstacles(&system, &kernel());
    assert!(found.len() == 1 && found[0].contains("the kernel takes"), "{found:?}");
}
