//! [HEDF IV-C] on this kernel: nodes under `takt run --node` in network namespaces, and a relay that
//! delays their messages.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use takt_analysis::{CheckOptions, TestId, check};
use takt_linux::clock::{pause, realtime_ns};
use takt_linux::net::{Bridge, End};
use takt_linux::{process, sched};
use takt_model::Span;

use super::super::ki::{LEAST, bounds_of};
use super::super::rounded;
use super::super::setups::{self, Setup, parse};
use super::relay::{Delay, Relay, Relayed};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Findings, LIVE, PAPER, Row, SIMULATED};

const PORT: u16 = 7000;
/// Processes start, and wait for their common start, within this time.
const LEAD: Span = Span::from_s(3);
/// How long a node has to end after SIGTERM.
const END_MAX: Span = Span::from_s(2);
/// Beyond the run and its start, a node has ended by then.
const GRACE: Span = Span::from_s(10);
/// Shorter runs refute nothing that they did not reach.
const LIVE_LEAST: Span = Span::from_s(60);
/// The paper adds this to the delays of node 0.
const ADDED: (Span, Span) = (Span::from_ms(5), Span::from_ms(15));
/// Of the receiving tasks, and between messages.
const PERIOD: Span = Span::from_ms(10);
const GAP: Span = Span::from_ms(5);
/// The relay shifts messages by up to a period of the receiving task, and back. The step is between
/// neighbouring messages. So all phases come by, although clocks of one computer do not drift.
const SHIFT: (Span, Span) = (Span::from_ms(10), Span::from_us(100));

/// Those of the paper. Its local task needs 50 ms of 60, and with the flow 97 % of a CPU. Linux gives
/// real-time threads 95 %.
fn set_ups() -> [Setup; 3] {
    setups::setups().map(|setup| Setup { text: setup.text.replace(LOCAL[0], LOCAL[1]), ..setup })
}

/// The local task's WCET in the paper and here.
const LOCAL: [&str; 2] = ["wcet = \"50ms\"", "wcet = \"45ms\""];

struct Hop {
    name: &'static str,
    paper: Option<f64>,
    observed: Option<f64>,
    equation: Option<u64>,
    bound: Option<u64>,
    simulated: u64,
    live: Option<u64>,
    /// k by Eq. 5 if delays vary, beside the drawn ones, by all lateness that was measured.
    excused: u64,
}

struct KiRun {
    hops: Vec<Hop>,
    relayed: Relayed,
    sent: u64,
    arrived: u64,
    disturbances: Vec<String>,
}

pub(in super::super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = context.duration(Span::from_s(60), Span::from_s(5));
    let bridge = super::bridge(NODES)?;
    let mut findings = Findings::default();
    let mut all = Vec::new();
    let bar = (context.host.bar)("set-ups", set_ups().len() as u64);
    for (number, setup) in set_ups().iter().enumerate() {
        if context.stopped() {
            break;
        }
        let delay = if number == 0 { Delay::shifting(SHIFT) } else { Delay::drawn(ADDED, context.seed) };
        let ran = run(context, &bridge, setup, delay, duration, &mut findings)?;
        all.extend(ran);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !context.stopped() {
        findings.tables.push(table(&all));
        findings.tables.push(relays(&all));
        claims(&all, duration, &mut findings);
    }
    notes(&all, &mut findings);
    differences(&mut findings);
    Ok(findings)
}

/// The largest number of a node, and the relay's namespace.
const NODES: usize = 6;
const RELAY: usize = NODES - 1;

/// A running node. It is told to end if this is dropped first.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            process::end(child, END_MAX, &mut |_| {});
        }
    }
}

impl Running {
    fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn output(mut self) -> Result<Output, Failure> {
        let child = self.0.take().ok_or_else(|| Failure::trouble("a node ended twice"))?;
        child.wait_with_output().map_err(|error| Failure::trouble(format_args!("a node gave no answer: {error}")))
    }
}

/// The nodes of a set-up, in the order of its path.
fn path(setup: &Setup) -> Result<Vec<usize>, Failure> {
    let system = parse(&setup.text, setup.file)?;
    let names = system.flows[0].hops().map(|node| system.nodes[node.index()].name.clone());
    let numbers = names.map(|name| name.trim_start_matches('n').parse::<usize>().ok());
    numbers.collect::<Option<Vec<_>>>().ok_or_else(|| Failure::trouble("a node without a number"))
}

fn run(
    context: &Context,
    bridge: &Bridge,
    setup: &Setup,
    delay: Delay,
    duration: Span,
    findings: &mut Findings,
) -> Result<Option<KiRun>, Failure> {
    context.write(setup.file, setup.text.as_bytes())?;
    findings.files.push(setup.file.to_owned());
    let key = Key::make(context)?;
    let path = path(setup)?;
    let start = realtime_ns().saturating_add(LEAD.as_ns()).div_ceil(1_000_000_000);
    let at = |node: usize| SocketAddr::from((bridge.nodes()[node].address(), PORT));
    let range = delay.range();
    let relay = Relay::open(&bridge.nodes()[RELAY], at(RELAY), at(path[1]), delay)?;
    let stop = AtomicBool::new(false);
    let (relayed, outputs) = std::thread::scope(|scope| {
        let relay = scope.spawn(|| relay.run(&stop));
        let outputs = (|| {
            let mut nodes = Vec::new();
            for (place, node) in path.iter().enumerate() {
                // Messages of the first hop go over the relay.
                let next = path.get(place + 1).map(|next| (*next, if place == 0 { at(RELAY) } else { at(*next) }));
                let before = place.checked_sub(1).map(|before| (path[before], at(path[before])));
                let peers: Vec<_> = next.into_iter().chain(before).collect();
                let of = Node { number: *node, place, listen: at(*node), peers, start, duration };
                nodes.push(of.start(context, &bridge.nodes()[*node], setup, &key)?);
            }
            wait(context, nodes, start, duration)
        })();
        stop.store(true, Ordering::Relaxed);
        (relay.join().unwrap_or_default(), outputs)
    });
    let Some(outputs) = outputs? else { return Ok(None) };
    report(context, setup, &path, &outputs, (range, relayed)).map(Some)
}

/// Waits for all nodes; `None` if a signal ended the experiment.
fn wait(
    context: &Context,
    mut nodes: Vec<Running>,
    start: u64,
    duration: Span,
) -> Result<Option<Vec<Output>>, Failure> {
    let last = start.saturating_mul(1_000_000_000).saturating_add(duration.saturating_add(GRACE).as_ns());
    while !nodes.iter_mut().all(Running::has_ended) {
        if context.stopped() {
            return Ok(None);
        }
        if realtime_ns() > last {
            return Err(Failure::trouble("a node has not ended in time; the machine is too busy: try again"));
        }
        pause(Span::from_ms(20));
    }
    nodes.into_iter().map(Running::output).collect::<Result<Vec<_>, _>>().map(Some)
}

struct Node {
    number: usize,
    /// In the path.
    place: usize,
    listen: SocketAddr,
    peers: Vec<(usize, SocketAddr)>,
    start: u64,
    duration: Span,
}

impl Node {
    /// Node 0 has a CPU of its own, as its local task needs most of one.
    fn start(&self, context: &Context, space: &End, setup: &Setup, key: &Key) -> Result<Running, Failure> {
        let takt = std::env::current_exe().map_err(|error| Failure::trouble(format_args!("takt itself: {error}")))?;
        let mut command = Command::new(takt);
        command.args(["run", &context.path(setup.file), "--node", &format!("n{}", self.number)]);
        command.args(["--listen", &self.listen.to_string(), "--key", &key.path, "--json"]);
        command.args(["--start-at", &self.start.to_string(), "--for", &format!("{}ns", self.duration.as_ns())]);
        for (peer, at) in &self.peers {
            command.args(["--peer", &format!("n{peer}={at}")]);
        }
        // A node ends with its input, and the kernel closes that after a kill -9 of this process, too.
        command.arg("--takt-ends-with-input");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A child stays in the namespace and on the CPUs of the thread that starts it.
        super::at(space, || {
            let cpus = sched::affinity();
            let cpu = if self.place == 0 { cpus.first() } else { cpus.last() };
            sched::set_affinity(&cpu.copied().into_iter().collect::<Vec<_>>()).map_err(Failure::cannot)?;
            let child = command.spawn().map_err(|error| Failure::trouble(format_args!("no node: {error}")))?;
            Ok(Running(Some(child)))
        })
    }
}

/// The key of the nodes, in a file that goes when this is dropped.
struct Key {
    path: String,
}

impl Key {
    fn make(context: &Context) -> Result<Key, Failure> {
        use std::io::Write as _;
        let path = context.path("key");
        let trouble = |error: std::io::Error| Failure::trouble(format_args!("cannot write {path}: {error}"));
        let _ = fs::remove_file(&path);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(trouble)?;
        let key = Key { path: path.clone() };
        let bytes = process::random::<32>().ok_or_else(|| Failure::cannot("the kernel gives no random numbers"))?;
        for byte in bytes {
            write!(file, "{byte:02x}").map_err(trouble)?;
        }
        Ok(key)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn report(
    context: &Context,
    setup: &Setup,
    path: &[usize],
    outputs: &[Output],
    (range, relayed): (Span, Relayed),
) -> Result<KiRun, Failure> {
    let mut answers = Vec::new();
    for (node, output) in path.iter().zip(outputs) {
        let said = String::from_utf8_lossy(&output.stderr);
        let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match (output.status.code(), answer) {
            // Missed deadlines are no failure here.
            (Some(0 | 1), Some(answer)) => answers.push(answer),
            (Some(3), _) => return Err(Failure::cannot(said.trim())),
            _ => return Err(Failure::trouble(format_args!("node n{node} of {}: {}", setup.file, said.trim()))),
        }
    }
    let system = parse(&setup.text, setup.file)?;
    let checked = check(&system, &CheckOptions { all: true, ..CheckOptions::default() });
    let simulated = super::super::batches::run(&system, context.seed, LEAST)?;
    let sum = |key: &str| answers.iter().filter_map(|answer| answer["flows"][key].as_u64()).sum::<u64>();
    let late = |node: u32, key: &str| {
        answers.get(node as usize).and_then(|answer| answer["flows"][key].as_u64()).map_or(Span::ZERO, Span::from_ns)
    };
    let hop = |(number, (name, paper, observed)): (u32, (&'static str, Option<f64>, Option<f64>))| {
        let answer = answers.get(number as usize);
        let hops = answer.and_then(|answer| answer["flows"]["hops"].as_array());
        let hop = hops.and_then(|hops| hops.iter().find(|hop| hop["hop"] == number));
        let sender = late(number.saturating_sub(1), "send_late_max_ns");
        let varied = [relayed.late, sender, late(number, "receive_late_max_ns")];
        Hop {
            name,
            paper,
            observed,
            equation: bounds_of(&checked, TestId::PartialEdfPaper, "put", number),
            bound: bounds_of(&checked, TestId::PartialEdf, "put", number),
            simulated: simulated.most(0, number),
            live: hop.and_then(taken),
            excused: equation(varied.into_iter().fold(range, Span::saturating_add)),
        }
    };
    let told = answers.iter().filter_map(|answer| answer["flows"]["disturbances"].as_array()).flatten();
    Ok(KiRun {
        hops: (1..).zip(setup.hops.iter().copied()).map(hop).collect(),
        relayed,
        sent: sum("sent"),
        arrived: sum("arrived"),
        disturbances: told.filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

/// k of a hop. If no message came, nothing was measured.
fn taken(hop: &Value) -> Option<u64> {
    hop["messages"].as_u64().filter(|most| *most > 0)
}

/// [HEDF Eq. 5] for the paper's periods, where delays vary by this.
fn equation(varied: Span) -> u64 {
    1 + PERIOD.saturating_add(varied).as_ns() / GAP.as_ns()
}

fn table(all: &[KiRun]) -> Comparison {
    let value = |value: Option<u64>| value.map(|value| value as f64);
    let row = |hop: &Hop| Row {
        name: hop.name.to_owned(),
        values: vec![
            vec![hop.paper, None, hop.observed],
            vec![value(hop.equation), value(hop.bound), Some(hop.simulated as f64)],
            vec![None, None, value(hop.live)],
        ],
    };
    Comparison::new(
        "Messages that one receiving job takes at most on this kernel",
        "Section IV-C",
        "k, the messages of one flow",
        0,
    )
    .with(
        "set-up",
        ["Eq. 5", "proven", "observed"],
        [PAPER, SIMULATED, LIVE],
        all.iter().flat_map(|ran| &ran.hops).map(row),
    )
}

fn relays(all: &[KiRun]) -> Comparison {
    let ms = |span: Span| Some(span.as_ns() as f64 / 1e6);
    let row = |ran: &KiRun| {
        let Relayed { passed, least, most, late, late_mean, .. } = ran.relayed;
        Row {
            name: ran.hops.first().map_or("", |hop| hop.name).to_owned(),
            values: vec![vec![Some(passed as f64), ms(least), ms(most), ms(late_mean), ms(late)]],
        }
    };
    Comparison::new("The relay that delays messages of node 0", "Section IV-C", "messages, and ms", 3).with(
        "set-up",
        ["messages", "least", "largest", "mean error", "largest error"],
        [LIVE],
        all.iter().map(row),
    )
}

/// Reached, or not yet, or passed. What the measured lateness explains refutes nothing.
fn reached(hop: &Hop, wanted: u64, most: u64, duration: Span) -> Option<bool> {
    let found = hop.live?;
    if found > most {
        return (found > hop.excused).then_some(false);
    }
    if found >= wanted { Some(true) } else { (duration >= LIVE_LEAST).then_some(false) }
}

/// Whether a hop keeps its bound, or that for the lateness that was measured.
fn kept(hop: &Hop) -> Option<bool> {
    hop.live.zip(hop.bound).map(|(live, bound)| live <= bound.max(hop.excused))
}

fn claims(all: &[KiRun], duration: Span, findings: &mut Findings) {
    let hops: Vec<&Hop> = all.iter().flat_map(|ran| &ran.hops).collect();
    let [near, delayed, second, third] = hops[..] else { return };
    let told = |value: Option<u64>| value.map_or("nothing".to_owned(), |value| value.to_string());
    let waited = |hop: &Hop, most: u64| {
        let late = hop.live.is_some_and(|live| live > most);
        let excuse = format!("; with the lateness that was measured Eq. 5 allows {}", hop.excused);
        let excuse = if late { excuse } else { String::new() };
        format!("Eq. 5 says {}, and {} waited{excuse}", told(hop.equation), told(hop.live))
    };
    findings.claim(
        "live_three_messages_wait_at_small_delays",
        "On this kernel, with small delays, at most 3 messages wait at once, as Eq. 5 says",
        waited(near, 3),
        reached(near, 3, 3, duration),
    );
    findings.claim(
        "live_five_are_the_bound_at_large_delays",
        "On this kernel, with 10 +- 5 ms added, at most the 5 messages of Eq. 5 wait; 4 were observed in the paper",
        waited(delayed, 5),
        reached(delayed, 4, 5, duration),
    );
    let same = second.live.zip(third.live).zip(delayed.live);
    findings.claim(
        "live_a_longer_way_changes_little",
        "On this kernel, over nodes 0, 3 and 4 as many messages wait at node 3 as over nodes 0 and 1, but for one, and \
         no more at node 4",
        format!("{} at node 3 and {} at node 4, {} at node 1", told(second.live), told(third.live), told(delayed.live)),
        same.and_then(|((one, two), three)| {
            let alike = one.abs_diff(three) <= 1 && two <= one.max(three);
            if alike { Some(true) } else { (duration >= LIVE_LEAST).then_some(false) }
        }),
    );
    findings.claim(
        "live_k_keeps_its_bound",
        "On this kernel no receiving job takes more messages than partial-edf proves, or than Eq. 5 says with the \
         lateness that was measured",
        hops.iter()
            .map(|hop| format!("{}: {} of {}", hop.name, told(hop.live), told(hop.bound)))
            .collect::<Vec<_>>()
            .join("; "),
        crate::findings::all(hops.iter().map(|hop| kept(hop))),
    );
}

fn notes(all: &[KiRun], findings: &mut Findings) {
    for ran in all {
        let name = ran.hops.first().map_or("", |hop| hop.name);
        let (lost, refused) = (ran.relayed.lost, ran.relayed.refused);
        let mut note = format!(
            "{name}: {} messages sent and {} arrived at nodes. The relay held each {} longer than drawn at most, lost \
             {lost} and could not send {refused}.",
            ran.sent,
            ran.arrived,
            rounded(ran.relayed.late)
        );
        if !ran.disturbances.is_empty() {
            note.push_str(&format!(" Disturbed: {}.", ran.disturbances.join("; ")));
        }
        findings.notes.push(note);
    }
}

fn differences(findings: &mut Findings) {
    findings.differ([
        "The paper ran its storage system on eight computers. Here up to three nodes under takt run --node are in \
         network namespaces of one computer. Node 0 has a CPU of its own, since its local task needs most of one. The \
         others share the second.",
        "Its local task takes 45 ms of 60 here, 50 ms in the paper: with the flow that would be 97 % of a CPU, and \
         Linux gives real-time threads 95 %.",
        "Clocks of one computer do not drift. In the first set-up a relay shifts messages slowly, by up to 10 ms and \
         back, so that all phases of the table tasks come by.",
        "The paper adds 10 +- 5 ms by a traffic control utility. This kernel has no netem. Here a relay in user space \
         holds each message for a drawn time, in order, and its error is in a table.",
        "The set-up with four tasks of each of eight nodes needs more CPUs than there are. It is simulated: takt \
         reproduce hedf-ki.",
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(live: Option<u64>, late: u64) -> Hop {
        Hop {
            name: "",
            paper: None,
            observed: None,
            equation: None,
            bound: Some(3),
            simulated: 0,
            live,
            excused: equation(Span::from_ms(late)),
        }
    }

    #[test]
    fn only_what_lateness_does_not_explain_is_refuted() {
        let [short, long] = [Span::from_s(5), LIVE_LEAST];
        assert_eq!([0, 4, 5].map(|late| equation(Span::from_ms(late))), [3, 3, 4]);
        let of = |live, late, duration| reached(&hop(live, late), 3, 3, duration);
        assert_eq!([of(Some(2), 0, short), of(Some(2), 0, long), of(None, 0, long)], [None, Some(false), None]);
        assert_eq!(
            [of(Some(3), 0, short), of(Some(4), 4, short), of(Some(4), 5, long)],
            [Some(true), Some(false), None]
        );
    }

    #[test]
    fn a_bound_is_kept_up_to_the_lateness_that_was_measured() {
        assert_eq!([3, 4, 50].map(|live| kept(&hop(Some(live), 0))), [Some(true), Some(false), Some(false)]);
        assert_eq!([4, 50].map(|live| kept(&hop(Some(live), 5))), [Some(true), Some(false)]);
        assert_eq!(kept(&hop(None, 0)), None);
    }

    #[test]
    fn set_ups_have_numbered_nodes() {
        let paths = set_ups().map(|setup| path(&setup).map_err(|failure| failure.message).unwrap());
        assert!(set_ups().iter().all(|setup| setup.text.contains(LOCAL[1])));
        assert_eq!(paths, [vec![0, 1], vec![0, 1], vec![0, 3, 4]]);
        assert!(paths.iter().flatten().all(|node| *node < RELAY));
    }
}
