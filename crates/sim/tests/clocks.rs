//! Clocks that begin apart or step: what the receiver of a message makes of its deadline.

use proptest::prelude::*;
use takt_log::{DropCause, Event};
use takt_model::{
    Auto, Bytes, ClockStep, Cross, Discipline, Filter, Late, Lateness, Level, Link, MessageArrivals, Network, NodeId,
    Port, PortId, Probability, Rate, Span, Strategy, StrategyId, StrategyRef, System, Time, file,
};
use takt_sim::{SimOptions, simulate};

const SYNC: &str = r#", sync = { period = "20ms", wcet = "10us" }"#;

/// A flow from `a` to `b` every 10 ms. Its first job is due after 5 ms, the second one `share` later.
fn system(clock: &str, delay: [u64; 2], share: u64) -> System {
    let [least, most] = delay;
    let table = r#"{ period = "1ms", wcet = "10us" }"#;
    let text = format!(
        r#"
takt = 1
clock = {{ {clock} }}
[[node]]
name = "a"
receive = {table}
send = {table}
[[node]]
name = "b"
receive = {table}
send = {table}
[[network]]
delay = ["{least}us", "{most}us"]
[[flow]]
name = "put"
path = ["a", "b"]
period = "10ms"
wcet = "100us"
size = "100B"
deadline = "{deadline}us"
hop-deadlines = ["5ms", "{share}us"]
"#,
        deadline = 5_000 + share
    );
    file::parse(&text, "clocks.toml").unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

fn events(system: &System, ms: u64, seed: u64) -> Vec<(u32, Time, Event)> {
    let mut events = Vec::new();
    let options = SimOptions { duration: Span::from_ms(ms), seed, node: None };
    simulate(system, &options, &mut events).unwrap_or_else(|error| panic!("{error}"));
    events
}

/// When a node begins: its table jobs are the first.
fn start(events: &[(u32, Time, Event)], node: u32) -> Time {
    let released = |(stream, _, event): &&(u32, Time, Event)| {
        *stream == node && matches!(event, Event::Release { parent: None, .. })
    };
    events.iter().find(released).map(|(_, at, _)| *at).expect("it begins")
}

/// The jobs of the second hop: number, and nominal arrival in true time.
fn arrivals(events: &[(u32, Time, Event)]) -> Vec<(u64, Time)> {
    let arrival = |(_, _, event): &(u32, Time, Event)| match *event {
        Event::Release { job, arrival, parent: Some(parent) } if parent.hop == 1 => Some((job.number, arrival)),
        _ => None,
    };
    events.iter().filter_map(arrival).collect()
}

/// The jobs of the second hop: number, and arrival of the flow's instance in true time.
fn origins(events: &[(u32, Time, Event)]) -> Vec<(u64, Time)> {
    let origin = |(_, _, event): &(u32, Time, Event)| match *event {
        Event::Release { job, parent: Some(parent), .. } if parent.hop == 1 => Some((job.number, parent.origin)),
        _ => None,
    };
    events.iter().filter_map(origin).collect()
}

/// An instance of the flow arrives at `a` this long after the start.
fn after(start: Time, number: u64) -> Time {
    start + Span::from_ms(10 * number)
}

#[test]
fn a_node_that_measures_nothing_reads_deadlines_as_its_own() {
    let (mut behind, mut ahead) = (false, false);
    for seed in 0..20 {
        let events = events(&system(r#"offset = "5ms""#, [10_000, 10_000], 30_000), 200, seed);
        let (a, b) = (start(&events, 0), start(&events, 1));
        let made = arrivals(&events);
        assert!(made.len() > 15, "seed {seed}: {made:?}");
        for (number, arrival) in made {
            assert_eq!(arrival, after(b, number), "seed {seed}, a began at {a}");
        }
        (behind, ahead) = (behind || b > a, ahead || b < a);
    }
    assert!(behind && ahead);
    // Clocks that begin at once are known.
    let events = events(&system(r#"error = "0us""#, [10_000, 10_000], 30_000), 200, 0);
    assert!(arrivals(&events).into_iter().all(|(number, arrival)| arrival == after(Time::ZERO, number)));
}

/// A node that begins late counts the end-to-end response from the arrival at the first node, as all nodes do.
#[test]
fn a_response_counts_from_the_arrival_of_the_flow_whenever_the_last_node_begins() {
    let system = system(r#"offset = "40ms""#, [100, 100], 60_000);
    let mut waited = 0;
    for seed in 0..20 {
        let events = events(&system, 200, seed);
        let (a, b) = (start(&events, 0), start(&events, 1));
        let made = origins(&events);
        assert!(made.len() > 10, "seed {seed}: {made:?}");
        for (number, origin) in made {
            assert_eq!(origin, after(a, number), "seed {seed}, instance {number}: b began at {b}");
            waited += u64::from(origin < b);
        }
    }
    assert!(waited > 4, "{waited} messages waited for their receiver");
}

/// The least exchange may be as lopsided as the delays allow. Half of that is the error of the middle.
#[test]
fn a_node_that_measures_knows_deadlines_but_for_half_of_what_delays_vary() {
    let system = system(&format!(r#"offset = "5ms"{SYNC}"#), [100, 900], 30_000);
    for seed in 0..20 {
        let events = events(&system, 300, seed);
        let (a, b, made) = (start(&events, 0), start(&events, 1), arrivals(&events));
        assert!(made.len() > 20, "seed {seed}: {made:?}");
        // A request that comes before its node begins waits: that exchange tells less. The next one is 20 ms later.
        let measured = a.max(b) + Span::from_ms(45);
        for (number, arrival) in made.into_iter().filter(|(_, arrival)| *arrival > measured) {
            let error = arrival.lateness_to(after(a, number)).as_ns().abs();
            assert!(error <= 400_001, "seed {seed}: instance {number} is off by {error} ns");
        }
    }
}

#[test]
fn clocks_are_measured_over_links_alone() {
    let mut system = system(&format!(r#"offset = "5ms"{SYNC}"#), [100, 900], 30_000);
    system.networks.clear();
    let text = file::write(&system).replace("name = \"a\"\n", "name = \"a\"\nlink = { rate = \"10Mbit\" }\n");
    let text = text.replace("name = \"b\"\n", "name = \"b\"\nlink = { rate = \"10Mbit\" }\n");
    let system = file::parse(&text, "links.toml").unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    let events = events(&system, 300, 1);
    assert!(arrivals(&events).len() > 20, "each message finds the clock of its sender unknown");
}

/// What became of the messages at `b`: dropped, or taken.
fn outcomes(system: &System, seed: u64) -> Vec<(u64, Option<DropCause>)> {
    let lowered = takt_model::flows::lower(system).expect("there is a flow");
    let put = lowered.system.task_by_name("put/0").expect("its first hop");
    let outcome = |(stream, _, event): (u32, Time, Event)| match event {
        Event::Drop { job, cause, .. } if stream == 1 && job.task == put => Some((job.number, Some(cause))),
        Event::Receive { job, .. } if stream == 1 && job.task == put => Some((job.number, None)),
        _ => None,
    };
    events(system, 200, seed).into_iter().filter_map(outcome).collect()
}

/// Messages take 10 ms each way, so the interval is 20 ms wide and its middle is right. A message is received 11 ms to
/// 13 ms after the arrival of its instance. Its job is due `share` + 5 ms after that, or 10 ms earlier to be safe.
#[test]
fn a_message_beyond_its_safe_deadline_or_of_an_unknown_clock_is_dropped() {
    let measured = format!(r#"offset = "3ms"{SYNC}"#);
    let at_once = format!(r#"offset = "0ms"{SYNC}"#);
    for (clock, share, expected) in
        [(&measured, 20_000, None), (&measured, 15_000, Some(DropCause::Late)), (&at_once, 15_000, None)]
    {
        let mut system = system(clock, [10_000, 10_000], share);
        let level = Level { late: Late::Drop, ..Level::new(Filter::Rest, Discipline::Deadline) };
        system.strategies = vec![Strategy { name: "drops".to_owned(), levels: vec![level] }];
        system.nodes[1].strategy = StrategyRef::Own(StrategyId(0));
        for seed in 0..5 {
            let seen = outcomes(&system, seed);
            // The first answer comes after two ways of 10 ms.
            let first = clock.contains("3ms").then_some(DropCause::Unknown);
            assert_eq!(seen.first(), Some(&(0, first)), "{clock}, {share}");
            let later: Vec<_> = seen.iter().filter(|(number, _)| *number >= 4).collect();
            assert!(
                later.len() > 10 && later.iter().all(|(_, cause)| *cause == expected),
                "{clock}, {share}: {seen:?}"
            );
        }
    }
}

/// A step of a clock by these milliseconds, 105 ms after the begin of its node.
fn step(by: i64) -> Vec<ClockStep> {
    vec![ClockStep { at: Time::ZERO + Span::from_ms(105), by: Lateness::from_ns(by * 1_000_000) }]
}

/// Nodes ask at 120 ms for the first time after the step. Messages take 0.1 ms each way, so the middle of an interval
/// is right.
#[test]
fn a_step_of_either_clock_starts_the_table_again() {
    for (node, by) in [(0, -30), (0, 3), (1, -3), (1, 30)] {
        let mut system = system(SYNC.trim_start_matches(", "), [100, 100], 30_000);
        system.nodes[node].clock_steps = step(by);
        let lowered = takt_model::flows::lower(&system).expect("there is a flow");
        let put = lowered.system.task_by_name("put/0").expect("its first hop");
        let (mut first, mut unknown) = (Vec::new(), Vec::new());
        let events = events(&system, 300, 0);
        for (stream, _, event) in &events {
            match *event {
                Event::Release { job, arrival, .. } if job.task == put => first.push((job.number, arrival)),
                Event::Drop { job, cause: DropCause::Unknown, .. } if *stream == 1 && job.task == put => {
                    unknown.push(job.number);
                }
                _ => {}
            }
        }
        // The node goes on as before.
        assert_eq!(first.len(), 30);
        assert!(first.iter().all(|(number, arrival)| *arrival == after(Time::ZERO, *number)), "{first:?}");
        let (before, later): (Vec<u64>, Vec<u64>) = unknown.into_iter().partition(|number| *number < 10);
        assert!(before == [0] && (later == [11] || later == [11, 12]), "{node}, {by}: {before:?}, {later:?}");
        let made = arrivals(&events);
        assert!(made.len() >= 26, "{node}, {by}: {made:?}");
        for (number, arrival) in made {
            let error = arrival.lateness_to(after(Time::ZERO, number)).as_ns().abs();
            assert!(error <= 2, "{node}, {by}: instance {number} is off by {error} ns");
        }
    }
}

#[test]
fn a_step_shifts_the_deadlines_of_messages_where_nobody_measures() {
    for (node, by) in [(0, -3), (1, 3)] {
        let mut system = system(r#"error = "0us""#, [100, 100], 30_000);
        system.nodes[node].clock_steps = step(by);
        let made = arrivals(&events(&system, 300, 0));
        assert!(made.len() >= 29, "{made:?}");
        for (number, arrival) in made {
            let shift = if number < 11 { 0 } else { -3_000_000 };
            assert_eq!(arrival.lateness_to(after(Time::ZERO, number)).as_ns(), shift, "{node}: instance {number}");
        }
    }
}

/// Steps this many microseconds after each other, by so many microseconds, at most back to zero.
fn steps(spec: &[(u64, i64)]) -> Vec<ClockStep> {
    let (mut at, mut ahead, mut steps) = (0_i64, 0_i64, Vec::new());
    for &(gap, by) in spec {
        at += gap as i64 * 1_000;
        let by = (by * 1_000).max(-(at + ahead));
        if by != 0 {
            ahead += by;
            steps.push(ClockStep { at: Time::from_ns(at as u64), by: Lateness::from_ns(by) });
        }
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// As below, with clocks that step.
    #[test]
    fn no_interval_outlives_a_step(
        seed: u64,
        drift_ppm in 0u32..10_000,
        offset in 0u64..50_000,
        delay in (0u64..3_000, 0u64..3_000),
        of_a in proptest::collection::vec((1u64..150_000, -200_000i64..200_000), 0..4),
        of_b in proptest::collection::vec((1u64..150_000, -200_000i64..200_000), 0..4),
        interrupts: bool,
    ) {
        let clock = format!(r#"offset = "{offset}us", drift-ppm = {drift_ppm}{SYNC}"#);
        let mut system = system(&clock, [delay.0, delay.0 + delay.1], 30_000);
        for (node, of_node) in system.nodes.iter_mut().zip([&of_a, &of_b]) {
            node.clock_steps = steps(of_node);
            if interrupts {
                (node.receive, node.send) = (None, None);
                node.arrivals = MessageArrivals::Interrupt { cost: Span::from_us(10) };
            }
        }
        // The last step is in the first half of the second.
        let made = arrivals(&events(&system, 1_000, seed));
        prop_assert!(made.len() > 20, "{} messages were taken", made.len());
    }

    /// Each message that is taken by the table asserts that the interval holds the true difference, in builds with
    /// debug assertions.
    #[test]
    fn the_interval_of_a_simulated_table_holds_the_true_difference(
        seed: u64,
        drift_ppm in 0u32..10_000,
        offset in 1u64..50_000,
        there in (0u64..3_000, 0u64..3_000),
        back in (0u64..3_000, 0u64..3_000),
        interrupts: bool,
    ) {
        let mut system = system(&format!(r#"offset = "{offset}us", drift-ppm = {drift_ppm}{SYNC}"#), [0, 0], 30_000);
        let loss = Probability::from_billionths(50_000_000).expect("a probability");
        let network = |from, to, (least, more): (u64, u64)| Network {
            from: Some(NodeId(from)),
            to: Some(NodeId(to)),
            loss,
            ..Network::any(Span::from_us(least), Span::from_us(least + more))
        };
        system.networks = vec![network(0, 1, there), network(1, 0, back)];
        if interrupts {
            for node in &mut system.nodes {
                (node.receive, node.send) = (None, None);
                node.arrivals = MessageArrivals::Interrupt { cost: Span::from_us(10) };
            }
        }
        let made = arrivals(&events(&system, 1_000, seed));
        prop_assert!(made.len() > 50, "{} messages were taken", made.len());
    }

    /// The same where exchanges wait for messages on the links, and for others at a port.
    #[test]
    fn the_interval_holds_the_true_difference_where_exchanges_wait_on_links(
        seed: u64,
        drift_ppm in 0u32..10_000,
        offset in 1u64..50_000,
        kbit in (2_000u64..50_000, 2_000u64..50_000),
        bytes in 1u64..1_500,
        edf: bool,
        interrupts: bool,
    ) {
        let mut system = system(&format!(r#"offset = "{offset}us", drift-ppm = {drift_ppm}{SYNC}"#), [0, 0], 30_000);
        system.flows[0].size = Bytes::new(bytes);
        let rate = |kbit: u64| Rate::from_bps(kbit * 1_000);
        for (node, kbit) in system.nodes.iter_mut().zip([kbit.0, kbit.1]) {
            node.link = Some(Link { edf, ..Link::at(rate(kbit)) });
            if interrupts {
                (node.receive, node.send) = (None, None);
                node.arrivals = MessageArrivals::Interrupt { cost: Span::from_us(10) };
            }
        }
        let cross = Some(Cross { burst: Bytes::new(3_076), rate: rate(4_000) });
        let latency = Span::from_us(900);
        system.ports = vec![Port { name: "p".to_owned(), rate: rate(10_000), latency, cross, fifo: !edf }];
        let loss = Probability::from_billionths(50_000_000).expect("a probability");
        let any = Network::any(Span::ZERO, Span::ZERO);
        system.networks = vec![Network { delay: Auto::Auto, through: vec![PortId(0)], loss, ..any }];
        let made = arrivals(&events(&system, 1_000, seed));
        prop_assert!(made.len() > 50, "{} messages were taken", made.len());
    }
}
