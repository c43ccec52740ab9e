//! Grants and refusals of cpu.max.

use takt_linux::machine::Limits;
use takt_model::file;
use takt_policy::CpuPart;

use super::*;
use crate::manager;

/// Servers of 10, 20 and 40 ms; the second one's changes at 1 s by the file.
const THREE: &str = "takt = 1
[[node]]
name = \"n\"
strategy = \"rm\"
[[component]]
name = \"a\"
server = \"deferrable\"
period = \"10ms\"
budget = \"2ms\"
threads = \"cgroup:/a\"
[[component]]
name = \"b\"
server = \"deferrable\"
period = \"20ms\"
budget = \"4ms\"
threads = \"cgroup:/b\"
[[component]]
name = \"c\"
server = \"deferrable\"
period = \"40ms\"
budget = \"8ms\"
threads = \"cgroup:/c\"
[[mode]]
component = \"b\"
at = \"1s\"
budget = \"5ms\"
";

/// Refuses more than 95 % of the CPU.
fn admit(system: &System, node: NodeId) -> Result<(), RunError> {
    let limits = Limits {
        rt_runtime_us: 950_000,
        rt_period_us: 1_000_000,
        dl_period_min: Span::from_us(100),
        dl_period_max: Span::from_s(4),
    };
    let parts = CpuPart::of_node(system, node)?;
    manager::refuse_overload(system, node, &parts, &limits)
}

fn servers() -> Servers {
    servers_of(THREE)
}

fn servers_of(text: &str) -> Servers {
    let system = file::parse(text, "test.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let system = Arc::new(crate::foreign::lowered(&system, NodeId(0)).ok().unwrap().into_owned());
    let (plan, cannot) = plan::plan(&system, NodeId(0)).unwrap();
    assert!(cannot.is_empty(), "{cannot:?}");
    Servers::new(&system, NodeId(0), &plan, Some(admit))
}

/// The levels of the servers at the start.
fn entries(plan: &ServedPlan) -> Vec<u32> {
    plan.cpus.iter().flat_map(|cpu| &cpu.entries).map(|terms| terms.level).collect()
}

fn ms(at: u64) -> Time {
    Time::ZERO.saturating_add(Span::from_ms(at))
}

fn max(quota_us: impl Into<Option<u64>>, period_us: u64) -> Written {
    Written { count: 1, period_us, quota_us: quota_us.into() }
}

#[test]
fn a_grant_has_its_place_in_the_order_and_others_keep_theirs() {
    let mut servers = servers();
    let [a, b, c] = [0, 1, 2].map(ComponentId);
    let levels = entries(&servers.plan);
    // c goes between a and b.
    let granted = servers.ask(c, ms(100), max(3000, 15_000)).unwrap();
    assert_eq!((granted.terms.budget, granted.terms.period, granted.at), (3_000_000, 15_000_000, ms(100)));
    assert_eq!((granted.cpu, granted.server), (0, 2));
    assert!(levels[0] < granted.terms.level && granted.terms.level < levels[1], "{granted:?} {levels:?}");
    // b as c now is: the same level. Then before all, and behind all.
    assert_eq!(servers.ask(b, ms(200), max(3000, 15_000)).unwrap().terms.level, granted.terms.level);
    assert!(servers.ask(b, ms(300), max(1000, 5000)).unwrap().terms.level < levels[0]);
    let last = servers.ask(b, ms(400), max(5000, 500_000)).unwrap().terms.level;
    assert!(last > levels[2], "{last} {levels:?}");
    assert_eq!(entries(&servers.plan), levels);
    // Without a limit the file's terms are back, with their place: before and after its mode.
    let back = servers.ask(b, ms(500), max(None, 100_000)).unwrap().terms;
    assert_eq!((back.budget, back.period), (4_000_000, 20_000_000));
    assert!(granted.terms.level < back.level && back.level < last);
    assert_eq!(servers.ask(b, ms(1500), max(None, 100_000)).unwrap().terms.budget, 5_000_000);
    // A grant each millisecond leaves no trace.
    for at in 0..100 {
        servers.ask(a, ms(2000 + at), max(1000 + at, 9000)).unwrap();
    }
    assert!(servers.now.switches.len() <= 4 && servers.plan.changes.len() <= 4);
}

#[test]
fn a_change_beyond_the_cpus_capacity_is_refused_without_effect() {
    let mut servers = servers();
    for (written, why) in
        [(max(20_000, 10_000), "one CPU"), (max(999, 10_000), "no budget below 1ms"), (max(9000, 10_000), "CPU")]
    {
        let before = (servers.now.clone(), format!("{:?}", servers.plan));
        let refused = servers.ask(ComponentId(0), ms(100), written).unwrap_err();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(before, (servers.now.clone(), format!("{:?}", servers.plan)));
    }
    // By --force.
    servers.admit = None;
    assert!(servers.ask(ComponentId(0), ms(100), max(9000, 10_000)).is_ok());
    // A present mode is no ceiling for later grants.
    servers.admit = Some(admit);
    assert!(servers.ask(ComponentId(0), ms(200), max(1000, 10_000)).is_ok());
}

#[test]
fn earlier_grants_and_later_modes_count_in_admission() {
    let mut servers = servers();
    let [a, b, c] = [0, 1, 2].map(ComponentId);
    // 50 % beside 20 % and 20 %. Then 50 % more is too much, and 20 % is not.
    assert!(servers.ask(a, ms(100), max(5000, 10_000)).is_ok());
    assert!(servers.ask(c, ms(200), max(10_000, 20_000)).unwrap_err().contains("CPU"));
    // The mode of b takes 25 % from 1 s on: 50 + 25 + 21 are too much then.
    assert!(servers.ask(c, ms(300), max(8400, 40_000)).unwrap_err().contains("CPU"));
    // With less for a there is room for both.
    assert!(servers.ask(a, ms(400), max(1000, 10_000)).is_ok());
    assert!(servers.ask(c, ms(500), max(10_000, 20_000)).is_ok());
    // A grant with a long period is its share, whatever the file's period is.
    assert!(servers.ask(c, ms(600), max(50_000, 500_000)).is_ok());
    assert!(servers.ask(a, ms(700), max(5000, 10_000)).is_ok());
    assert!(servers.ask(b, ms(2000), max(5000, 20_000)).is_ok());
}

#[test]
fn the_order_is_that_of_the_servers_own_cpu() {
    let text = THREE.replace("strategy = \"rm\"", "cpus = 2\nplacement = \"partitioned\"\nstrategy = \"rm\"");
    let on = |text: String, name: &str, cpu: u32| {
        text.replace(&format!("name = \"{name}\"\n"), &format!("name = \"{name}\"\nserver-cpus = [{cpu}]\n"))
    };
    let text = on(on(on(text, "a", 0), "b", 0), "c", 1);
    let mut servers = servers_of(&text);
    // Between a and b of its own CPU, whatever c has on the other one.
    let (levels, granted) = (entries(&servers.plan), servers.ask(ComponentId(0), ms(100), max(3000, 15_000)).unwrap());
    assert!(granted.terms.level < levels[1], "{granted:?} {levels:?}");
}

#[test]
fn the_order_is_that_of_the_component_around() {
    let outer = "[[component]]\nname = \"o\"\nserver = \"deferrable\"\nperiod = \"30ms\"\nbudget = \"9ms\"\n\
                 strategy = \"rm\"\n";
    let text = THREE.replacen("[[component]]\nname = \"a\"", &format!("{outer}[[component]]\nname = \"a\""), 1);
    let within = |text: String, name: &str| {
        text.replace(&format!("name = \"{name}\"\n"), &format!("name = \"{name}\"\nparent = \"o\"\n"))
    };
    let mut servers = servers_of(&within(within(text, "b"), "c"));
    let [a, b, c] = [1, 2, 3].map(ComponentId);
    let level = |servers: &Servers, id| {
        let (cpu, server) = servers.place(id).unwrap();
        servers.plan.cpus[cpu as usize].entries[server as usize]
    };
    let [a, b] = [a, b].map(|id| level(&servers, id));
    assert_eq!((a.outer(), b.outer().is_some()), (None, true));
    // c comes before b. Whether it comes before a, which stands elsewhere, means nothing.
    let granted = servers.ask(c, ms(100), max(3000, 15_000)).unwrap().terms;
    assert_eq!(granted.outer(), b.outer());
    assert!(granted.level < b.level, "{granted:?} {b:?}");
}

#[test]
fn a_level_between_neighbours_ends() {
    let mut known = vec![(1, LEVEL_GAP), (100, 2 * LEVEL_GAP)];
    for rank in 2.. {
        let Some(level) = level_among(rank, &known) else { break };
        assert!(known.iter().all(|(other, of)| (*other < rank) == (*of < level)), "{known:?} {level}");
        known.push((rank, level));
        assert!(rank < 99);
    }
    assert_eq!(known.len(), 2 + 16);
    assert_eq!(level_among(7, &[]), Some(LEVEL_GAP));
    assert_eq!(level_among(0, &[(1, 0)]), None);
}
