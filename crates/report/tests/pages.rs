//! Whole pages from simulated logs: well-formed, complete, and safe with any name.

use takt_analysis::{CheckOptions, check};
use takt_log::causes::Rules;
use takt_log::{BackEnd, Definitions, Event, Header, Kind, KindSet, Sink};
use takt_model::{Span, System, Time};
use takt_report::axis::short;
use takt_report::{ReportInput, Source, SourceBuilder, html};
use takt_sim::{SimOptions, simulate};

const ROBOT: &str = r#"
takt = 1
name = "robot"

[[node]]
name = "arm"
cpus = 2
strategy = "rm"

[[task]]
name = "imu"
period = "5ms"
wcet = "1ms"
exec = { uniform = ["0.4ms", "1ms"] }

[[task]]
name = "camera"
period = "40ms"
wcet = "12ms"
exec = { uniform = ["6ms", "12ms"] }

[[task]]
name = "detect"
after = ["camera"]
deadline = "30ms"
wcet = "8ms"
exec = { uniform = ["3ms", "8ms"] }

[[task]]
name = "control"
period = "10ms"
deadline = "8ms"
wcet = "2.5ms"
exec = { uniform = ["1ms", "2.5ms"] }

[[task]]
name = "planner"
period = "100ms"
wcet = "45ms"
exec = { uniform = ["20ms", "45ms"] }

[[task]]
name = "telemetry"
period = "50ms"
wcet = "6ms"
arrival = "sporadic"
criticality = "low"
"#;

const HOPS: &str = r#"
takt = 1
name = "hops"
[[node]]
name = "n0"
send = { period = "5ms", wcet = "500us" }
[[node]]
name = "n1"
receive = { period = "5ms", wcet = "500us" }
[[flow]]
name = "f"
path = ["n0", "n1"]
period = "20ms"
send-gap = "5ms"
wcet = "1ms"
deadline = "30ms"
hop-deadlines = ["12ms", "18ms"]
size = "200B"
[[network]]
delay = ["0us", "5ms"]
"#;

fn parse(text: &str) -> System {
    takt_model::file::parse(text, "robot.toml").unwrap()
}

fn simulated(system: &System, seed: u64, span: Span) -> Source {
    let header = Header::new(String::new(), Some(seed), BackEnd::Sim, KindSet::JOBS.with(Kind::ModeChange));
    let mut builder = SourceBuilder::new(&system.name, &header, &Definitions::of(system), None);
    let summary = simulate(system, &SimOptions { duration: span, seed, node: None }, &mut builder).unwrap();
    builder.finish(summary.end)
}

/// Makes a simulated log look like a live one: no preemptions, and everything but arrivals comes later.
struct Live<'a>(&'a mut SourceBuilder, u64);

impl Sink for Live<'_> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        match event {
            Event::Preempt { .. } | Event::Resume { .. } | Event::Migrate { .. } => {}
            _ => self.0.event(stream, now + Span::from_us(self.1), event),
        }
    }
}

fn measured(system: &System, seed: u64, span: Span, late_us: u64) -> Source {
    measured_by(BackEnd::RunBestEffort, system, seed, span, late_us)
}

fn measured_by(back_end: BackEnd, system: &System, seed: u64, span: Span, late_us: u64) -> Source {
    let kinds = KindSet::of(&[Kind::Release, Kind::Start, Kind::Complete, Kind::Miss, Kind::Cancel]);
    let mut header = Header::new(String::new(), None, back_end, kinds);
    header.notes.push("Steal time grew by 12 ms during the run: another guest took this machine's CPUs.".to_owned());
    let mut builder = SourceBuilder::new(&system.name, &header, &Definitions::of(system), None);
    let options = SimOptions { duration: span, seed, node: None };
    let summary = simulate(system, &options, &mut Live(&mut builder, late_us)).unwrap();
    builder.finish(summary.end + Span::from_us(late_us))
}

/// Parses the page as XML, and asserts that it refers to nothing outside.
#[track_caller]
fn assert_sound(page: &str) {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}"));
    let mut ids = std::collections::BTreeSet::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        assert!(!["script", "link", "img", "iframe", "object", "embed", "base"].contains(&node.tag_name().name()));
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!name.starts_with("on") && !["src", "href", "srcset", "action"].contains(&name), "{name}={value}");
            assert!(name != "id" || ids.insert(value), "id {value} is there twice");
            assert!(!value.contains("NaN") && !value.contains("inf"), "{name}={value}");
        }
    }
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    for url in ["http:", "https:", "//", "url(", "@import"] {
        assert!(!outside.contains(url), "the page refers to {url}");
    }
    keep(page);
}

/// Leaves the pages in the folder TAKT_KEEP, if that is set, for a look at them.
fn keep(page: &str) {
    if let Some(folder) = std::env::var_os("TAKT_KEEP") {
        let name = std::thread::current().name().unwrap_or("page").to_owned();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.html")), page).unwrap();
    }
}

#[test]
fn a_whole_report() {
    let system = parse(ROBOT);
    let report = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
    let sim = simulated(&system, 1, Span::from_s(10));
    let run = measured(&system, 7, Span::from_s(10), 180);
    let commands = [
        "takt check robot.toml".to_owned(),
        "takt sim robot.toml --for 10s --seed 1 -o sim.takt".to_owned(),
        "takt run robot.toml --for 10s -o run.takt".to_owned(),
    ];
    let page = html(&ReportInput {
        system: Some(&system),
        toml: ROBOT,
        check: Some(&report),
        simulated: Some(&sim),
        measured: Some(&run),
        commands: &commands,
        maker: "takt 0.1.0",
        ..ReportInput::default()
    });
    assert_sound(&page);
    for part in [
        "<h1>robot</h1>",
        "6 tasks, 2 CPUs, rm",
        "10 s of virtual time, seed 1.",
        "best effort under SCHED_OTHER",
        "camera -&gt; detect",
        "Steal time grew",
        "A simulation without a miss proves nothing",
        "does not record preempt, resume, migrate; what would follow from that is left empty, not zero.",
        "takt sim robot.toml --for 10s --seed 1",
        "This log has no preemptions",
    ] {
        assert!(page.contains(part), "no \"{part}\"");
    }
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn a_report_of_an_overload_shows_the_first_miss() {
    let text = ROBOT
        .replace("wcet = \"45ms\"", "wcet = \"90ms\"")
        .replace("\"45ms\"]", "\"90ms\"]")
        .replace("cpus = 2", "cpus = 1");
    let system = parse(&text);
    let report = check(&system, &CheckOptions::default());
    let sim = simulated(&system, 1, Span::from_s(5));
    let page = html(&ReportInput {
        title: "An overload",
        system: Some(&system),
        toml: &text,
        check: Some(&report),
        simulated: Some(&sim),
        maker: "takt 0.1.0",
        ..ReportInput::default()
    });
    assert_sound(&page);
    assert!(page.contains("Not schedulable") && page.contains("Deadlines missed (simulated): "), "{page}");
    assert!(page.contains("class=\"miss\"") || page.contains("around the first miss"));
    assert!(!page.contains("Measured") && !page.contains("SCHED_OTHER"));
}

fn page_of(system: &System, span: Span) -> String {
    let sim = simulated(system, 3, span);
    html(&ReportInput {
        system: Some(system),
        toml: &takt_model::file::write(system),
        check: Some(&check(system, &CheckOptions::default())),
        simulated: Some(&sim),
        maker: "takt 0.1.0",
        ..ReportInput::default()
    })
}

/// The axes of distributions span the responses and not the way to a deadline far from them. Where the responses of
/// several tasks lie far apart, the axis is logarithmic.
#[test]
fn axes_of_distributions_fit_the_responses() {
    let task = |name: &str, period: &str, wcet: &str| {
        format!("[[task]]\nname = \"{name}\"\nperiod = \"{period}\"\nwcet = \"{wcet}\"\n")
    };
    let node = "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"rm\"\n";
    let text = format!("{node}{}{}", task("a", "10ms", "1us"), task("b", "20ms", "19ms"));
    let page = page_of(&parse(&text), Span::from_ms(400));
    let plot = |id: &str| {
        let plots = page.split("<svg ").filter_map(|svg| svg.split("</svg>").next());
        plots.into_iter().find(|svg| svg.contains(&format!("aria-labelledby=\"{id}\""))).expect("the plot")
    };
    let ticks = |plot: &str| -> Vec<String> {
        let ticks =
            plot.split("<g class=\"ticks\">").nth(1).and_then(|ticks| ticks.split("</g>").next()).expect("ticks");
        ticks.split("<text ").filter_map(|text| text.split(['<', '>']).nth(1)).map(str::to_owned).collect()
    };
    // All of a's responses are 1 us: its deadline of 10 ms stands at the edge.
    let a = plot("cdf-0");
    assert!(a.contains("class=\"beyond\"") && !a.contains("<path class=\"due\""), "{a}");
    let times: Vec<String> = ticks(a).into_iter().filter(|tick| !tick.contains('%') && tick != "0").collect();
    assert!(!times.is_empty() && times.iter().all(|tick| tick.ends_with("ns") || tick.ends_with("us")), "{times:?}");
    // b's deadline is near its responses: it is a line among them.
    let b = plot("cdf-1");
    assert!(!b.contains("class=\"beyond\"") && b.contains("<path class=\"due\""), "{b}");
    // From 0.01 % to 95 % of the deadlines: decades, which no linear axis has.
    let shares = ticks(plot("share-sim"));
    assert!(["0.1 %", "1 %", "10 %"].iter().all(|tick| shares.iter().any(|shown| shown == tick)), "{shares:?}");
}

#[test]
fn hostile_names_are_only_text() {
    let hostile = "</title></style><script>alert('x')</script>&\"\u{1}<!-- ]]> \u{fffe}";
    let mut system = parse(ROBOT);
    system.name = hostile.to_owned();
    system.nodes[0].name = format!("{hostile}n");
    for (i, task) in system.tasks.iter_mut().enumerate() {
        task.name = format!("{hostile}{i}");
    }
    let source = simulated(&system, 3, Span::from_ms(500));
    let page = html(&ReportInput {
        title: hostile,
        system: Some(&system),
        toml: hostile,
        check: Some(&check(&system, &CheckOptions::default())),
        simulated: Some(&source),
        measured: Some(&measured(&system, 3, Span::from_ms(500), 1)),
        commands: &[hostile.to_owned()],
        maker: hostile,
        ..ReportInput::default()
    });
    assert_sound(&page);
    assert!(!page.contains("<script") && !page.contains('\u{1}'));
    let terminal = takt_report::text(&source.start, &takt_report::TextOptions::default());
    assert!(!terminal.contains('\u{1}'));
}

#[test]
fn a_system_without_tasks_and_logs_without_events_make_a_page() {
    let mut system = parse(ROBOT);
    let silent = |system: &System| {
        let header = Header::new(String::new(), None, BackEnd::Run, KindSet::EMPTY);
        SourceBuilder::new(&system.name, &header, &Definitions::of(system), None).finish(Time::ZERO)
    };
    for _ in 0..2 {
        let (sim, run) = (silent(&system), silent(&system));
        let page = html(&ReportInput {
            system: Some(&system),
            simulated: Some(&sim),
            measured: Some(&run),
            maker: "takt",
            ..ReportInput::default()
        });
        assert_sound(&page);
        assert!(page.contains("Misses unknown") || system.tasks.is_empty());
        system.tasks.clear();
    }
    let page = html(&ReportInput { system: Some(&system), maker: "takt", ..ReportInput::default() });
    assert_sound(&page);
}

#[test]
fn two_hundred_tasks_on_four_nodes_fit_a_page() {
    let mut system = parse("takt = 1\n[[node]]\nname = \"n0\"\ncpus = 8\nstrategy = \"edf\"\n");
    for n in 1..4 {
        let mut node = system.nodes[0].clone();
        node.name = format!("n{n}");
        system.nodes.push(node);
    }
    for i in 0..200 {
        let period = Span::from_ms([5, 10, 20, 50, 100][i % 5]);
        let mut task = takt_model::Task::periodic(&format!("task-{i}"), period, Span::from_ns(period.as_ns() / 9));
        task.node = takt_model::NodeId(i as u32 % 4);
        system.tasks.push(task);
    }
    let page = page_of(&system, Span::from_s(1));
    assert_sound(&page);
    assert!(page.len() < 2_500_000, "{} bytes", page.len());
    assert!(page.contains("188 tasks more"), "plots beyond a dozen wait behind a click");
}

#[test]
fn periods_of_hours_and_runs_of_days_stay_readable() {
    let text = "takt = 1\n[[task]]\nname = \"backup\"\nperiod = \"43200s\"\nwcet = \"5000s\"\n[[task]]\nname \
         = \"rotate\"\nperiod = \"86400s\"\nwcet = \"40000s\"\n";
    let page = page_of(&parse(text), Span::from_s(3 * 86_400));
    assert_sound(&page);
    assert!(page.contains(">12:00:00<") || page.contains(">24:00:00<"), "ticks read like a clock");
}

#[test]
fn a_simulated_miss_settles_what_theory_left_open() {
    // Dhall's effect: two light tasks take both CPUs when the heavy one needs one. Jitter is beyond
    // the exhaustive search.
    let text = "takt = 1\n[[node]]\nname = \"n\"\ncpus = 2\n[[task]]\nname = \"a\"\njitter = \"1us\"\nperiod \
         = \"10ms\"\nwcet = \"4ms\"\n\
                [[task]]\nname = \"b\"\nperiod = \"10ms\"\nwcet = \"4ms\"\n[[task]]\nname = \"heavy\"\nperiod \
                = \"20ms\"\nwcet = \"17ms\"\n";
    let system = parse(text);
    let log = simulated(&system, 1, Span::from_ms(200));
    let check = check(&system, &CheckOptions::default());
    let page = html(&ReportInput {
        system: Some(&system),
        toml: text,
        check: Some(&check),
        measured: Some(&log),
        maker: "takt",
        ..ReportInput::default()
    });
    assert_sound(&page);
    assert!(page.contains("Undecided") && page.contains("a legal schedule of this system misses a deadline"), "{page}");
    assert!(!page.contains("Measured"), "a simulated log is no measurement");
}

#[test]
fn a_live_run_whose_jobs_exceed_their_reservations_says_that_they_are_throttled() {
    let mut system = parse(&ROBOT.replace("\"rm\"", "\"edf\"").replace("[\"6ms\", \"12ms\"]", "[\"6ms\", \"15ms\"]"));
    let findings = |back_end, system: &System| {
        let log = measured_by(back_end, system, 1, Span::from_ms(200), 1);
        takt_report::findings(&ReportInput {
            system: Some(system),
            measured: Some(&log),
            maker: "takt",
            ..ReportInput::default()
        })
    };
    let throttled = |said: &[String]| {
        let begins = "The file lets jobs of \"camera\" execute for longer than their wcet. SCHED_DEADLINE throttles";
        said.iter().any(|sentence| sentence.starts_with(begins))
    };
    assert!(throttled(&findings(BackEnd::Run, &system)), "{:?}", findings(BackEnd::Run, &system));
    assert!(!throttled(&findings(BackEnd::RunBestEffort, &system)), "SCHED_OTHER throttles nobody");
    system.nodes[0].strategy = takt_model::StrategyRef::Builtin(takt_model::Builtin::Rm);
    assert!(!throttled(&findings(BackEnd::Run, &system)), "nor does SCHED_FIFO");
}

#[test]
fn hops_above_their_bounds_are_named_with_their_causes() {
    let system = parse(HOPS);
    let (check, definitions) = (check(&system, &CheckOptions::default()), Definitions::of(&system));
    let findings = |late_us| {
        let header = Header::new(String::new(), None, BackEnd::Run, KindSet::ALL);
        let builder = SourceBuilder::new(&system.name, &header, &definitions, None);
        let mut builder = builder.explaining(Rules::of(&header, Some(&system)), &definitions);
        let options = SimOptions { duration: Span::from_ms(200), seed: 1, node: None };
        let summary = simulate(&system, &options, &mut Live(&mut builder, late_us)).unwrap();
        let log = builder.finish(summary.end + Span::from_us(late_us));
        takt_report::findings(&ReportInput {
            system: Some(&system),
            check: Some(&check),
            measured: Some(&log),
            maker: "takt",
            ..ReportInput::default()
        })
    };
    let said = findings(30_000);
    let tells = |begins: &str, what: &str| said.iter().any(|one| one.starts_with(begins) && one.contains(what));
    assert!(tells("Deadlines missed (measured): ", "\"f/1\" 10 of 10"), "{said:?}");
    assert!(tells("Measured above bound: ", "(bound 30 ms)"), "{said:?}");
    assert!(tells("Measured above bound: ", "jobs of \"f/1\" were late for this: 10 late message"), "{said:?}");
    assert_eq!(findings(1), [""; 0]);
}

/// The table of flows has a row for each hop, and one for the whole flow. The slack is what is left above the largest
/// response.
#[test]
fn the_table_of_flows_has_bounds_responses_and_slacks() {
    let system = parse(HOPS);
    let (check, sim) = (check(&system, &CheckOptions::default()), simulated(&system, 3, Span::from_ms(200)));
    let page = page_of(&system, Span::from_ms(200));
    assert_sound(&page);
    let table = page.split("<h2 id=\"flows\">").nth(1).and_then(|rest| rest.split("</table>").next());
    let table = table.expect("the table");
    let heads = ["Deadline", "Bound", "Simulated<br/>max", "Slack to<br/>the bound", "Slack to<br/>the deadline"];
    let heads = heads.map(|head| format!("<th class=\"n\" scope=\"col\">{head}</th>")).concat();
    assert!(table.contains(&heads), "{table}");
    let job = |name: &str| sim.stats.tasks.iter().find(|task| task.task == name)?.response_ns;
    let flow = sim.stats.chains.iter().find(|chain| chain.chain == "f").and_then(|chain| chain.response_ns);
    for (name, node, deadline, bound, response) in [
        ("f/0", "n0", 12, check.hop_bound("f", 0), job("f/0")),
        ("f/1", "n1", 30, check.hop_bound("f", 1), job("f/1")),
        ("f", "end to end", 30, check.flows[0].end_to_end, flow),
    ] {
        let (bound, most) = (bound.expect("a bound"), Span::from_ns(response.expect("a response").max));
        let deadline = Span::from_ms(deadline);
        assert!(most <= bound, "{name}: {most} {bound}");
        let left = |limit: Span| short(limit.saturating_sub(most).four_digits_down());
        let cells = [short(deadline), short(bound), short(most), left(bound), left(deadline)];
        let cells = cells.map(|cell| format!("<td class=\"n\">{cell}</td>")).concat();
        let row = format!("<tr><th scope=\"row\">{name}</th><td>{node}</td>{cells}</tr>");
        assert!(table.contains(&row), "no {row} in {table}");
    }
}

#[test]
fn a_log_without_a_system_tells_what_it_tells_by_itself() {
    let system = parse(ROBOT);
    let mut seen = measured(&system, 7, Span::from_s(10), 180);
    seen.back_end = takt_log::BackEnd::Observe;
    // The deadline of one thread is unknown.
    (seen.stats.tasks[0].deadline_ns, seen.stats.tasks[0].missed) = (None, None);
    let input = ReportInput {
        title: "seen <b>.takt",
        measured: Some(&seen),
        commands: &["takt report seen.takt".to_owned()],
        maker: "takt 0.1.0",
        ..ReportInput::default()
    };
    let page = html(&input);
    assert_sound(&page);
    for part in [
        "<h1>seen &lt;b&gt;.takt</h1>",
        "6 tasks seen on 2 CPUs",
        "No model",
        "The log has no system, so there is no verdict",
        "<h2 id=\"tasks\">Tasks</h2>",
        "Execution and response times of",
        "Measured: the first",
        "takt report seen.takt",
    ] {
        assert!(page.contains(part), "no \"{part}\"");
    }
    for part in ["Bound", "Simulated", "Simulation", "id=\"system\"", "No deadline missed"] {
        assert!(!page.contains(part), "\"{part}\" of nothing");
    }
    assert_eq!(takt_report::findings(&input).len(), usize::from(seen.stats.missed() > 0));
}

#[test]
fn a_simulation_that_shows_one_case_of_many_is_no_proof() {
    let no_proof = |text: &str, ms| takt_report::is_no_proof(&parse(text), Span::from_ms(ms));
    let plain = "takt = 1\n[[task]]\nname = \"t\"\nperiod = \"10ms\"\nwcet = \"2ms\"\n";
    assert_eq!([no_proof(plain, 19), no_proof(plain, 20)], [true, false]);
    let mode = plain.to_owned() + "[[mode]]\nat = \"30ms\"\nstrategy = \"rm\"\n";
    assert_eq!([no_proof(&mode, 49), no_proof(&mode, 50)], [true, false], "the second strategy takes part");
    let server = plain.to_owned()
        + "component = \"c\"\n[[component]]\nname = \"c\"\nserver = \"ptps\"\nperiod = \"5ms\"\nbudget = \"2ms\"\n";
    let flow = plain.to_owned()
        + "node = \"a\"\n[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[network]]\ndelay = [\"1ms\", \"2ms\"]\n\
           [[flow]]\nname = \"f\"\npath = [\"a\", \"b\"]\nperiod = \"10ms\"\nwcet = \"1ms\"\nsize = \"100B\"\n";
    for text in [server, flow] {
        assert!(no_proof(&text, 10_000), "{text}");
    }
}
