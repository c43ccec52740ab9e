//! The search for the worst traffic, against all traffic of small networks.

use takt_log::{Definitions, stats::Collector};
use takt_model::*;
use takt_sim::traffic::{End, Ends, Traffic};
use takt_sim::worst::{Found, RUNS_PER_CLIMB, climb};
use takt_sim::{SimOptions, kinds, simulate_with};

#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
#[path = "common/random.rs"]
mod random;

use random::{Dice, cases, seeds};

fn replay(seed: u64, test: &str) -> String {
    format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test worst {test}")
}

/// Two nodes and a flow of few instances, in ns, so that all traffic can be tried.
fn small(dice: &mut Dice) -> (System, SimOptions) {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    system.nodes = (0..2).map(|i| NodeSpec::new(&format!("n{i}"), 1, StrategyRef::Builtin(Builtin::Edf))).collect();
    for node in &mut system.nodes {
        let table = |dice: &mut Dice| Some(TableTask { period: dice.ns(2, 6), wcet: dice.ns(1, 1), cost: None });
        (node.receive, node.send) = (table(dice), table(dice));
    }
    let mut busy = Task::periodic("busy", dice.ns(12, 20), dice.ns(1, 5));
    busy.node = NodeId(dice.roll(0, 1) as u32);
    system.tasks.push(busy);
    let period = dice.roll(10, 14);
    system.flows.push(Flow {
        name: "f".to_owned(),
        path: vec![NodeId(0), NodeId(1)],
        reply: false,
        period: Span::from_ns(period),
        wcet: dice.ns(1, 2),
        deadline: dice.ns(20, 40),
        send_gap: dice.ns(2, period),
        hop_wcet: dice.ns(1, 3),
        size: Bytes::default(),
        hop_deadlines: Vec::new(),
    });
    let least = dice.ns(0, 3);
    system.networks.push(Network::any(least, least + dice.ns(0, 7)));
    (system, SimOptions { duration: Span::from_ns(period * 4), seed: 0, node: None })
}

/// The largest end-to-end response of the only flow.
fn response(system: &System, options: &SimOptions, traffic: &Traffic) -> Option<Span> {
    let mut collector = Collector::new(&Definitions::of(system), kinds(system));
    let done = simulate_with(system, options, traffic, &mut collector).expect("it can be simulated");
    let stats = collector.finish(done.end);
    stats.chains[0].response_ns.map(|response| Span::from_ns(response.max))
}

/// The largest response of all first arrivals and all choices of delays.
fn exhaustive(system: &System, options: &SimOptions) -> Option<Span> {
    let all = (0..system.flows[0].period.as_ns()).flat_map(|offset| (0..16u64).map(move |bits| (offset, bits)));
    let responses = all.map(|(offset, bits)| {
        let others = (0..4).filter(|i| bits >> i & 1 == 1).collect();
        let ends = vec![vec![Some(Ends { usual: End::Least, others })]];
        response(system, options, &Traffic { offsets: vec![Span::from_ns(offset)], ends })
    });
    responses.max().flatten()
}

fn search(system: &System, options: &SimOptions) -> Found {
    let mut all = climb(system, options, 0, RUNS_PER_CLIMB).expect("it can be simulated");
    for start in 1..4 {
        all.merge(climb(system, options, start, RUNS_PER_CLIMB).expect("it can be simulated"));
    }
    all
}

#[test]
fn a_search_finds_nearly_always_the_worst_of_all_traffic_and_its_text_repeats_it() {
    let (mut reached, mut rounds) = (0, 0);
    for seed in seeds(150) {
        let replay = replay(seed, "a_search_finds");
        let (system, options) = small(&mut Dice::new(seed));
        let found = search(&system, &options);
        let Some(worst) = exhaustive(&system, &options) else {
            assert_eq!(found.flows[0], None, "{replay}");
            continue;
        };
        let case = found.flows[0].as_ref().unwrap_or_else(|| panic!("nothing found; {replay}"));
        assert!(case.response <= worst, "{replay}\n{} > {worst}\n{system:#?}", case.response);
        let again = Traffic::parse(&case.traffic.text(&system), &system).expect("a traffic");
        assert_eq!(response(&system, &options, &again), Some(case.response), "{replay}\n{system:#?}");
        (rounds, reached) = (rounds + 1, reached + u64::from(case.response == worst));
    }
    println!("the search reaches the worst of all traffic in {reached} of {rounds} systems");
    assert!(cases(150) < 100 || reached * 100 >= rounds * 90, "{reached} of {rounds}");
}

#[test]
fn the_same_seed_gives_the_same_search_and_a_miss_is_found() {
    let (mut system, options) = small(&mut Dice::new(1));
    assert_eq!(search(&system, &options), search(&system, &options));
    system.flows[0].deadline = Span::from_ns(2);
    let (count, traffic) = search(&system, &options).missed.expect("a miss");
    let mut collector = Collector::new(&Definitions::of(&system), kinds(&system));
    let done = simulate_with(&system, &options, &traffic, &mut collector).expect("it can be simulated");
    let tasks = collector.finish(done.end).tasks;
    let missed = tasks.iter().filter(|task| !task.task.contains("/receive") && !task.task.contains("/send"));
    assert_eq!(missed.filter_map(|task| task.missed).sum::<u64>(), count);
}

/// A delay that is chosen is the end of the interval, and the others stay as drawn.
#[test]
fn chosen_delays_are_ends_of_the_interval() {
    let (system, options) = small(&mut Dice::new(3));
    let Auto::Value((min, max)) = system.networks[0].delay else { panic!("an interval") };
    for (text, want) in [("f/0=min", [min; 3]), ("f/0=max", [max; 3]), ("f/0=min~1", [min, max, min])] {
        let traffic = Traffic::parse(text, &system).expect("a traffic");
        let mut events: Vec<(u32, Time, takt_log::Event)> = Vec::new();
        simulate_with(&system, &options, &traffic, &mut events).expect("it can be simulated");
        let mut sent = std::collections::BTreeMap::new();
        let mut last = Time::ZERO;
        for (_, at, event) in events {
            match event {
                takt_log::Event::Send { job, .. } => drop(sent.insert(job.number, at)),
                takt_log::Event::Arrive { job, .. } if job.number < 3 => {
                    // A link keeps the order of its messages.
                    let due = sent[&job.number] + want[job.number as usize];
                    assert_eq!(at, due.max(last), "{text}, instance {}", job.number);
                    last = at;
                }
                _ => {}
            }
        }
        assert!(sent.len() >= 2, "{text}");
    }
}
