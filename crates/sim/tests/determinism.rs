//! The same System and seed give the same bytes: in every run, on every machine, in every version.
//!
//! The constants were computed once. A change of them is a change of results that users have published: it belongs
//! into CHANGELOG.md, with its reason.

mod common;

use common::random::{self, Dice};
use takt_log::{BackEnd, Definitions, Header, Writer};
use takt_model::{Span, System, file};
use takt_sim::{KINDS, SimOptions, kinds, simulate};

/// Jitter, sporadic arrivals, distributions, a chain, costs, an own strategy with late rules, a mode switch, two nodes.
const SYSTEM: &str = r#"
takt = 1
name = "determinism"

[[node]]
name = "front"
cpus = 2
strategy = "edf"
laxity-quantum = "1ms"
costs = { switch = "2us", migrate = "5us", release = "3us", tick = "1us", tick-period = "4ms" }

[[node]]
name = "back"
strategy = "mine"

[[strategy]]
name = "mine"
level = [
    { tasks = ["pump"], discipline = "fifo", preemptive = false },
    { tasks = "rest", discipline = "deadline", late = "drop" },
]

[[mode]]
node = "front"
at = "300ms"
strategy = "mlf"

[[task]]
name = "camera"
node = "front"
period = "10ms"
jitter = "2ms"
wcet = "4ms"
exec = { uniform = ["1ms", "4ms"] }

[[task]]
name = "detect"
node = "front"
after = ["camera"]
deadline = "9ms"
wcet = "4ms"
exec = { pmf = [["1ms", 0.5], ["4ms", 0.5]] }

[[task]]
name = "radar"
node = "front"
period = "7ms"
arrival = "sporadic"
wcet = "3ms"

[[task]]
name = "track"
node = "front"
period = "23ms"
offset = "1ms"
wcet = "11ms"

[[task]]
name = "pump"
node = "back"
period = "5ms"
arrival = { pmf = [["5ms", 0.75], ["8ms", 0.25]] }
wcet = "2ms"

[[task]]
name = "scan"
node = "back"
period = "9ms"
deadline = "7ms"
wcet = "5ms"
exec = { uniform = ["3ms", "5ms"] }
"#;

/// Servers of several rules, a change of one, flows over table and interrupt nodes, a link, a port with cross traffic,
/// loss, drift, error and time synchronisation.
const WORLD: &str = include_str!("common/world.toml");

/// The whole log of a simulation.
fn log(system: &System, seed: u64, duration: Span) -> Vec<u8> {
    let definitions = Definitions::of(system);
    let header = Header::new(file::write(system), Some(seed), BackEnd::Sim, kinds(system).union(KINDS));
    let mut writer = Writer::new(Vec::new(), &header, &definitions).unwrap();
    let done = simulate(system, &SimOptions { duration, seed, node: None }, &mut writer).unwrap();
    writer.finish(done.end).unwrap()
}

#[test]
fn a_system_and_a_seed_give_the_bytes_they_always_gave() {
    let system = file::parse(SYSTEM, "determinism.toml").unwrap();
    let first = log(&system, 7, Span::from_s(1));
    assert!(first == log(&system, 7, Span::from_s(1)), "two runs differ");
    assert!(first != log(&system, 8, Span::from_s(1)), "the seed has no effect");
    assert_eq!((first.len(), crc32fast::hash(&first)), (12_998, 0x4039_00E4));
}

/// The same of servers and of what lies between nodes.
#[test]
fn a_world_gives_the_bytes_it_always_gave() {
    let system = file::parse(WORLD, "world.toml").unwrap();
    let first = log(&system, 7, Span::from_s(1));
    assert!(first == log(&system, 7, Span::from_s(1)), "two runs differ");
    assert_eq!((first.len(), crc32fast::hash(&first)), (37_271, 0xBC43_75DA));
}

/// All strategies, placements and arrivals in small: a thousand random systems of one node. Hashes
/// the events as text, for their order within an instant counts.
#[test]
fn random_systems_give_the_bytes_they_always_gave() {
    let mut all = crc32fast::Hasher::new();
    let mut events = 0;
    for seed in 0..1000 {
        let mut dice = Dice::new(seed);
        let system = random::node_with_empty_jobs(&mut dice, "t");
        let duration = dice.roll(50, 200);
        for (at, event) in common::simulated(&system, seed, duration) {
            all.update(format!("{at} {event:?}\n").as_bytes());
            events += 1;
        }
    }
    assert_eq!((events, all.finalize()), (156_837, 0x3FD8_B6D9));
}
