//! `check` on flows and on nodes with tables.

use takt_analysis::distributed::network::{NetworkChange, NetworkSizeError, SizedShare, size_network};
use takt_analysis::distributed::shares::Weigh;
use takt_analysis::{Answer, CheckOptions, CheckReport, TestId, check};
use takt_model::file::{Document, Edit, parse};
use takt_model::{ActualDelay, Auto, Bucket, Bytes, Link, Network, NodeId, Probability, Rate, Span, System};

const TWO: &str = include_str!("systems/put.toml");
const RECEIVE_TEN: &str = "receive = { period = \"5ms\", wcet = \"1ms\", cost = \"100us\" }";

fn system(text: &str) -> System {
    parse(text, "two.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

fn checked(text: &str) -> CheckReport {
    check(&system(text), &CheckOptions::default())
}

fn said<'a>(report: &'a CheckReport, scope: &str) -> (Answer, &'a str) {
    let test = report.tests.iter().find(|test| test.scope == scope).unwrap_or_else(|| panic!("no {scope}: {report:?}"));
    (test.verdict.answer(), test.verdict.why())
}

#[test]
fn nodes_and_flows_are_proven_with_figures() {
    let report = checked(TWO);
    assert_eq!(report.schedulable, Answer::Yes, "{report:?}");
    let scopes: Vec<&str> = report.tests.iter().map(|test| test.scope.as_str()).collect();
    assert_eq!(scopes, ["a", "b", "flow/put"]);
    let b = &report.tests[1].figures;
    let hop = &b["flows"][0];
    // T_r + R - C_r + R_s + δ+ - δ- = 5 + 1 + 2 + 1 = 9 ms, a message every 5 ms.
    assert_eq!((hop["messages"].as_u64(), hop["deadline_ns"].as_u64()), (Some(2), Some(20_000_000)));
    // 20 - (T_s + R_s + δ+ + T_r + R_r) = 20 - (5 + 2 + 2 + 5 + 2)
    assert_eq!(hop["hop_deadlines_ns"], serde_json::json!([4_000_000]));
    assert_eq!(hop["release_ns"].as_u64(), Some(36_000_000));
    assert_eq!(report.tests[2].figures["end_to_end_ns"].as_u64(), Some(40_000_000));
    assert!(b["margin_ns"].as_u64().is_some_and(|margin| margin > 0));
    assert!(report.tests[1].tasks.iter().all(|task| task.verdict == Answer::Yes));
}

/// The JSON of flows, against Eq. 6, 12 and 13 of [HEDF] by hand. D_0 = D_1 = D / 2, and hop 1 has
/// D' = D_1 - (T_s + R_s + δ+ + T_r + R_r) = D / 2 - (5 + 2 + 2 + 5 + 2) ms to execute for 1 ms.
#[test]
fn flows_stand_in_json_with_their_bounds() {
    let cases = [
        ("40ms", Some("yes"), Some(40_000_000u64)),
        ("60ms", Some("yes"), Some(60_000_000)),
        // D' = 15 - 16 < 0.
        ("30ms", Some("unknown"), None),
    ];
    for (deadline, verdict, bound) in cases {
        let report = checked(&TWO.replace("deadline = \"40ms\"", &format!("deadline = \"{deadline}\"")));
        let json = serde_json::to_value(&report).expect("JSON");
        let due = deadline.trim_end_matches("ms").parse::<u64>().expect("a number") * 1_000_000;
        let flow = serde_json::json!({ "flow": "put", "verdict": verdict, "end_to_end_ns": bound, "deadline_ns": due });
        assert_eq!(json["flows"], serde_json::json!([flow]), "{deadline}: {report:?}");
    }
    let json = serde_json::to_value(checked("takt = 1\n[[task]]\nname = \"a\"\nperiod = \"1s\"\nwcet = \"1ms\"\n"))
        .expect("JSON");
    assert_eq!(json["flows"], serde_json::json!([]));
}

/// Jobs of the table that may last longer than a period miss their own deadlines, and harm no flow.
#[test]
fn a_node_whose_table_may_be_late_is_not_proven() {
    // R = 5 + 2 x 1 ms, and the sending task is due after 4 ms.
    let table = "receive = { period = \"20ms\", wcet = \"5ms\" }\nsend = { period = \"4ms\", wcet = \"1ms\" }\n";
    let flow = "[[flow]]\nname = \"f\"\npath = [\"a\", \"b\"]\nperiod = \"100ms\"\nsend-gap = \"50ms\"\n\
                wcet = \"500us\"\nsize = \"400B\"\ndeadline = \"300ms\"\n[[network]]\ndelay = [\"1ms\", \"1ms\"]\n";
    let of = |table: &str| {
        checked(&format!("takt = 1\n[[node]]\nname = \"a\"\n{table}[[node]]\nname = \"b\"\n{table}{flow}"))
    };
    let report = of(table);
    let why = "a job of its receiving or sending task may need 7ms, and is due a period of 4ms after its release";
    let (answer, said_of_a) = said(&report, "a");
    assert!(answer == Answer::Unknown && said_of_a.starts_with(why), "{report:?}");
    assert_eq!((said(&report, "flow/f").0, report.schedulable), (Answer::Yes, Answer::Unknown));
    assert_eq!(of(&table.replace("4ms", "8ms")).schedulable, Answer::Yes);
}

#[test]
fn uncovered_flows_are_named_with_the_reason() {
    let cases = [
        ("\"a\"\nreceive", "\"a\"\ncpus = 2\nreceive", "flow/put", "visits node \"a\", which is not covered"),
        ("\"2ms\"]", "\"2ms\"]\nloss = 0.1", "flow/put", "may lose messages"),
        (
            "\"a\"\nreceive = { period = \"5ms\", wcet = \"1ms\" }\nsend = { period = \"5ms\", wcet = \"1ms\" }",
            "\"a\"",
            "flow/put",
            "node \"a\" sends its messages and has no sending task",
        ),
        (
            "\"b\"\nreceive = { period = \"5ms\", wcet = \"1ms\" }",
            "\"b\"",
            "flow/put",
            "node \"b\" receives its messages and has no receiving task",
        ),
        ("\"40ms\"", "\"30ms\"", "flow/put", "on node \"b\" (hop 1) it may arrive 1ms after its deadline there"),
        ("send-gap = \"5ms\"", "send-gap = \"10ms\"", "flow/put", ""),
        (
            "period = \"10ms\"\nsend-gap = \"5ms\"",
            "period = \"4ms\"\nsend-gap = \"4ms\"",
            "flow/put",
            "its messages pile up on node \"a\": they come every 4ms, and may leave every 5ms",
        ),
        (
            "wcet = \"4ms\"",
            "wcet = \"7ms\"\ndeadline = \"10ms\"",
            "b",
            "within 14ms its jobs may demand 9ms, and the table leaves less than that",
        ),
        ("wcet = \"4ms\"", "wcet = \"7ms\"\ndeadline = \"10ms\"", "a", "rests on node \"b\", which is not proven"),
        ("takt = 1\n", "takt = 1\nclock = { drift-ppm = 100 }\n", "flow/put", ""),
        (
            "\"b\"\nreceive",
            "\"b\"\nclock-step = [{ at = \"1s\", by = \"-3ms\" }]\nreceive",
            "flow/put",
            "visits node \"a\", which is not covered",
        ),
        ("send-gap = \"5ms\"", "send-gap = \"10ms\"\nhop-deadlines = [\"1ms\", \"39ms\"]", "a", "within 1ms"),
    ];
    for (from, to, scope, why) in cases {
        assert!(TWO.contains(from), "{from}");
        let report = checked(&TWO.replacen(from, to, 1));
        let (answer, found) = said(&report, scope);
        let expected = if why.is_empty() { Answer::Yes } else { Answer::Unknown };
        assert_eq!((answer, report.schedulable), (expected, expected), "{to}: {found}");
        assert!(found.contains(why), "{to}: {found}");
    }
    // Without a network the delay follows from links.
    let mut linked = system(TWO);
    linked.networks[0].from = linked.node_by_name("b");
    let report = check(&linked, &CheckOptions::default());
    let why = "no [[network]] says how long a message takes from \"a\" to \"b\"; takt size --network-delay finds it";
    assert_eq!(said(&report, "flow/put"), (Answer::Unknown, why));
}

#[test]
fn a_hopeless_local_task_is_refuted() {
    let report = checked(&TWO.replacen("wcet = \"4ms\"", "wcet = \"4ms\"\ndeadline = \"3ms\"", 1));
    assert_eq!(report.schedulable, Answer::No);
}

#[test]
fn other_tests_do_not_speak_of_such_nodes() {
    let options = CheckOptions { all: true, ..CheckOptions::default() };
    let report = check(&system(TWO), &options);
    assert_eq!(report.schedulable, Answer::Yes);
    let decided = report.tests.iter().filter(|test| test.verdict.answer() != Answer::Unknown);
    assert!(decided.clone().all(|test| test.test == TestId::PartialEdf), "{report:?}");
    let only = CheckOptions { only: vec![TestId::Qpa], ..CheckOptions::default() };
    assert_eq!(check(&system(TWO), &only).schedulable, Answer::Unknown);
    let only = CheckOptions { only: vec![TestId::PartialEdf], ..CheckOptions::default() };
    assert_eq!(check(&system(TWO), &only).schedulable, Answer::Yes);
}

const SWITCHED: &str = include_str!("../../../examples/switched.toml");

/// The file with the delays found.
fn delays_found(text: &str, wanted: Span) -> String {
    let found = size_network(&system(text), Weigh::Bytes, wanted).unwrap_or_else(|error| panic!("{error}"));
    let mut document = Document::parse(text, "switched.toml").expect("it is good");
    let edits = found.changes.iter().map(|change| match change {
        NetworkChange::Delay(network, delay) => Edit::Delay { network: *network, delay: *delay },
        NetworkChange::Bucket(node, bucket) => Edit::Bucket { node: *node, bucket: *bucket },
        NetworkChange::Add(network) => Edit::AddNetwork { network: network.clone() },
    });
    document.apply(&edits.collect::<Vec<_>>()).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(document.system(), &found.system);
    let longest = found.delays.iter().map(|way| way.delay).max();
    assert!(longest.is_some_and(|longest| longest <= wanted && !longest.is_zero()));
    document.text().to_owned()
}

#[test]
fn delays_found_are_written_and_used() {
    let wanted = Span::from_ms(4);
    let report = checked(SWITCHED);
    assert_eq!(report.schedulable, Answer::Unknown);
    assert!(said(&report, "flow/put").1.contains("is \"auto\"; takt size --network-delay finds it"));
    let text = delays_found(SWITCHED, wanted);
    assert!(!text.contains("\"auto\"\n") && text.contains("# from n1 and from n2"), "{text}");
    assert_eq!(checked(&text).schedulable, Answer::Yes);
    // A second time nothing changes, and what was found is used: with a deadline that only a
    // shorter delay meets, or not.
    assert_eq!(delays_found(&text, wanted), text);
    let tight = text.replace("deadline = \"80ms\"", "deadline = \"40ms\"");
    let slower = tight.replace("delay = [\"0ns\", \"4ms\"]", "delay = [\"0ns\", \"7ms\"]");
    assert_ne!(tight, slower);
    let answers = [&tight, &slower].map(|text| said(&checked(text), "flow/state").0);
    assert_eq!(answers, [Answer::Yes, Answer::Unknown]);
    // An entry for several pairs gets their longest delay. Pairs without an entry get a new entry.
    let [head, tail] = [SWITCHED.find("[[network]]"), SWITCHED.find("[[flow]]")].map(|at| at.expect("it is there"));
    let one = format!("{}[[network]]\ndelay = [\"1ms\", \"9ms\"]\n\n{}", &SWITCHED[..head], &SWITCHED[tail..]);
    let of_one = system(&delays_found(&one, wanted));
    assert_eq!(of_one.networks.len(), 1);
    let none = format!("{}{}", &SWITCHED[..head], &SWITCHED[tail..]);
    let of_none = system(&delays_found(&none, wanted));
    let longest = |system: &System| system.networks.iter().filter_map(|network| Some(network.delay.given()?.1)).max();
    assert_eq!((of_none.networks.len(), longest(&of_none)), (3, longest(&of_one)));
    assert_eq!(checked(&delays_found(&none, wanted)).schedulable, Answer::Yes);
}

#[test]
fn networks_that_cannot_be_sized_say_why() {
    let cases = [
        (
            "rate = \"40Mbit\"",
            "rate = \"99.5Mbit\"",
            "port \"trunk\" is to send 100700000 bit/s, and its rate is 100000000 bit/s; lead messages \
             elsewhere, or send less",
        ),
        (
            "burst = \"15kB\"",
            "burst = \"65kB\"",
            "whole links are not enough for a delay of 4ms: from \"n0\" to \"n1\" messages may take ",
        ),
    ];
    for (from, to, why) in cases {
        assert!(SWITCHED.contains(from), "{from}");
        let found = size_network(&system(&SWITCHED.replacen(from, to, 1)), Weigh::Bytes, Span::from_ms(4));
        let error = found.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(why), "{to}: {error}");
    }
    let sized =
        |system: &System| size_network(system, Weigh::Bytes, Span::from_ms(4)).expect_err("no size").to_string();
    let switched = system(SWITCHED);
    let mut ambiguous = switched.clone();
    ambiguous.networks.push(Network { from: switched.node_by_name("n2"), ..Network::any(Span::ZERO, Span::ZERO) });
    let why = "messages from \"n2\" to \"n0\" go through other ports by one [[network]] than by another; give the pair";
    assert!(sized(&ambiguous).starts_with(why), "{}", sized(&ambiguous));
    let mut measured = switched.clone();
    measured.networks[1].delay = Auto::Value((Span::ZERO, Span::from_ms(9)));
    measured.networks[1].actual_delay = ActualDelay::Pmf(vec![(Span::from_ms(9), Probability::ONE)]);
    let why = "actual-delay of network 2 has a delay of 9ms, and links and ports delay its messages by ";
    assert!(sized(&measured).starts_with(why), "{}", sized(&measured));
    let mut far = switched.clone();
    far.networks[0].delay = Auto::Value((Span::from_ms(5), Span::from_ms(9)));
    let why = "network 1 has a least delay of 5ms, and links and ports delay its messages by ";
    assert!(sized(&far).starts_with(why), "{}", sized(&far));
    // A bucket of the file is named, and a share is what a node gets of the total.
    let mut own = switched.clone();
    let bucket = Bucket { burst: Bytes::new(9_000), rate: Rate::from_bps(50_000_000) };
    own.nodes[0].link.as_mut().unwrap().bucket = Some(bucket);
    let shares = size_network(&own, Weigh::Bytes, Span::from_ms(4)).unwrap().shares;
    let total: u64 = shares.iter().map(|share| share.rate_bps).sum();
    let is_part = |share: &SizedShare| (share.weight - share.rate_bps as f64 / total as f64).abs() < 1e-9;
    assert!(shares.iter().all(is_part), "{shares:?}");
    own.nodes[0].link.as_mut().unwrap().bucket = Some(Bucket { rate: Rate::from_bps(5_000_000), ..bucket });
    assert!(sized(&own).starts_with("whole links and the token buckets of the file are not enough"), "{}", sized(&own));
    let mut linkless = switched;
    linkless.nodes[0].link = None;
    assert!(sized(&linkless).starts_with("node \"n0\" sends messages and has no link"), "{}", sized(&linkless));
}

#[test]
fn messages_of_clock_sync_are_in_the_share_of_their_node() {
    let clock = "takt = 1\nclock = { sync = { period = \"100ms\", wcet = \"100us\" } }\n";
    let synced = SWITCHED.replacen("takt = 1\n", clock, 1);
    // What the bucket of n0 must send.
    let needs = |text: &str| {
        let mut system = system(text);
        let bucket = Bucket { burst: Bytes::new(9_000), rate: Rate::from_bps(1) };
        system.nodes[0].link.as_mut().unwrap().bucket = Some(bucket);
        match size_network(&system, Weigh::Bytes, Span::from_ms(4)) {
            Err(NetworkSizeError::Bucket { rate, .. }) => rate,
            found => panic!("{found:?}"),
        }
    };
    // A request and an answer to each of two neighbours, 210 bytes in 100 ms each.
    assert_eq!(needs(&synced) - needs(SWITCHED), 4 * 16_800);
    let total = |text: &str| size_network(&system(text), Weigh::Bytes, Span::from_ms(5)).unwrap().total_rate;
    assert!(total(&synced) > total(SWITCHED));
}

#[test]
fn messages_of_clock_sync_bunch_less_where_their_nodes_are_proven() {
    const STORE: &str = include_str!("../../../examples/store.toml");
    let total = |text: &str| size_network(&system(text), Weigh::Bytes, Span::from_ms(2)).unwrap().total_rate;
    assert_eq!(total(STORE), 28_000_448);
    // Nothing is proven of n0, and so of no node: a request may leave at any time of its period.
    let overloaded = STORE.replacen("wcet = \"20ms\"", "wcet = \"55ms\"", 1);
    assert_eq!(total(&overloaded), 44_978_090);
}

/// Node b sends no message of a flow, so its link has no bound. The file has the delay of its requests, and the answers
/// of node a come after them.
#[test]
fn answers_about_clocks_bunch_more_where_requests_take_longer() {
    let clock = "takt = 1\nclock = { sync = { period = \"100ms\", wcet = \"1ms\" } }\n";
    let total = |delay: Span| {
        let mut system = system(&TWO.replacen("takt = 1\n", clock, 1));
        system.nodes.iter_mut().for_each(|node| node.link = Some(Link::at(Rate::from_bps(100_000_000))));
        let (from, to) = (Some(NodeId(1)), Some(NodeId(0)));
        system.networks.push(Network { from, to, ..Network::any(Span::ZERO, delay) });
        size_network(&system, Weigh::Bytes, Span::from_ms(2)).unwrap().total_rate
    };
    let [short, long] = [1, 900].map(|ms| total(Span::from_ms(ms)));
    assert!(long > short, "{long} {short}");
}

/// Receiving jobs take ten messages at most. So it counts how many messages of `clock.sync` may come at once.
#[test]
fn exchanges_of_clocks_need_delays_both_ways() {
    let clock = "takt = 1\nclock = { sync = { period = \"100ms\", wcet = \"1ms\" } }\n";
    let text = TWO.replacen("takt = 1\n", clock, 1);
    let text = text.replace("receive = { period = \"5ms\", wcet = \"1ms\" }", RECEIVE_TEN);
    assert_eq!(checked(&text).schedulable, Answer::Yes, "{:?}", checked(&text));
    // From b to a no network has a delay, and the link of b has no bound of its own.
    let one_way = text.replace("[[network]]\n", "[[network]]\nfrom = \"a\"\nto = \"b\"\n");
    let linked = one_way.replace("receive = {", "link = { rate = \"1Gbit\" }\nreceive = {");
    let report = checked(&linked);
    let (answer, why) = said(&report, "flow/put");
    let start =
        "exchanges of clocks (clock.sync) have no bound from \"b\" to \"a\": write the delay of that [[network]]";
    assert!(answer == Answer::Unknown && why.starts_with(start), "{why}");
    // Every job takes all messages.
    let all = linked.replace(RECEIVE_TEN, "receive = { period = \"5ms\", wcet = \"1ms\" }");
    assert_eq!(checked(&all).schedulable, Answer::Yes, "{:?}", checked(&all));
}

#[test]
fn late_timers_and_ordinary_threads_are_charged() {
    // Hop 1 on b: latest release and least D'. Then the load of b.
    let cases = [
        ("", "", 36_000_000u64, 4_000_000u64, 700_000u64),
        // Each table is done 0.1 ms later.
        ("costs = { latency = \"100us\" }", "", 36_200_000, 3_800_000, 700_000),
        // Late in one period and early in the next.
        ("costs = { ordinary = \"100us\", ordinary-period = \"100ms\" }", "", 36_400_000, 3_600_000, 701_000),
        ("", "clock = { sync = { period = \"100ms\", wcet = \"1ms\" } }", 36_000_000, 4_000_000, 710_000),
    ];
    for (costs, clock, release, window, load) in cases {
        let text = TWO.replacen("takt = 1\n", &format!("takt = 1\n{clock}\n"), 1);
        let text = text.replace("receive = {", &format!("{costs}\nreceive = {{"));
        let report = checked(&text);
        assert_eq!(report.schedulable, Answer::Yes, "{costs} {clock} {report:?}");
        let b = report.tests.iter().find(|test| test.scope == "b").expect("it is checked");
        let hop = &b.figures["flows"][0];
        assert_eq!((hop["release_ns"].as_u64(), hop["hop_deadlines_ns"][0].as_u64()), (Some(release), Some(window)));
        assert_eq!(b.figures["utilization_ppm"].as_u64(), Some(load), "{costs} {clock}");
    }
    let much = TWO.replace("receive = {", "costs = { ordinary = \"500us\" }\nreceive = {");
    assert_eq!(checked(&much).schedulable, Answer::Unknown);
    // A job that starts as late as its first deadline has no time left.
    let late = TWO.replace("receive = {", "costs = { latency = \"20ms\" }\nreceive = {");
    let report = checked(&late);
    assert!(said(&report, "flow/put").1.contains("on node \"a\" (hop 0)"), "{report:?}");
}
