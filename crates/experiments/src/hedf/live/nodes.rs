//! Nodes under `takt run --node`, each a process in a network namespace of its own, and relays between them.

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;
use takt_linux::clock::{pause, realtime_ns};
use takt_linux::file::in_memory;
use takt_linux::net::Bridge;
use takt_linux::{process, sched};
use takt_model::Span;

use super::super::setups::NODES;
use super::relay::{Delay, Relay, Relayed};
use super::ways::Ways;
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::Findings;

/// Shorter runs refute nothing that they did not reach.
pub(super) const LIVE_LEAST: Span = Span::from_s(60);
/// Where nodes receive. Each relay has a port of its own from here on.
const PORT: u16 = 7000;
/// The relays' namespace, behind those of the nodes.
const RELAY: usize = NODES;
/// Processes start, and wait for their common start, within this time. If one comes late, all start again, with more.
const LEADS: [Span; 4] = [Span::from_s(2), Span::from_s(5), Span::from_s(20), Span::from_s(60)];
/// How long a node has to end after SIGTERM.
const END_MAX: Span = Span::from_s(2);
/// Beyond the run and its start, a node has ended by then.
const GRACE: Span = Span::from_s(10);

/// All nodes and the relays at one bridge.
pub(super) fn bridge() -> Result<Bridge, Failure> {
    super::bridge(NODES + 1)
}

/// A run of nodes.
pub(super) struct NodesRun<'a> {
    /// The system file in the experiment's folder, and its text.
    pub(super) file: &'a str,
    pub(super) text: String,
    pub(super) nodes: Vec<RunNode>,
    /// Each delays messages to the node with this number.
    pub(super) relays: Vec<(usize, Delay)>,
    pub(super) duration: Span,
}

/// A node of a run.
pub(super) struct RunNode {
    pub(super) number: usize,
    /// Whether it has the first CPU; else the last.
    pub(super) first_cpu: bool,
    /// The nodes that it sends to, and the relay on the way there.
    pub(super) peers: Vec<(usize, Option<usize>)>,
    /// Whether it writes a log.
    pub(super) logs: bool,
}

/// The outcome of a run.
pub(super) struct NodesRan {
    /// In the order of the run's nodes.
    pub(super) answers: Vec<Value>,
    /// By relay.
    pub(super) relayed: Vec<Relayed>,
    /// How long messages were under way, by the logs.
    pub(super) ways: Ways,
}

/// What the nodes of one attempt and its relays said.
type Attempt = (Vec<Ended>, Vec<Relayed>);

impl NodesRun<'_> {
    /// Writes the system file, runs all nodes together, and reads their logs; `None` if a signal ended the experiment.
    pub(super) fn run(
        &self,
        context: &Context,
        bridge: &Bridge,
        findings: &mut Findings,
    ) -> Result<Option<NodesRan>, Failure> {
        context.write(self.file, self.text.as_bytes())?;
        findings.files.push(self.file.to_owned());
        let ran = self.attempts(context, bridge)?;
        let logs = self.logs(context);
        findings.files.extend(logs.iter().cloned());
        let Some((ended, relayed)) = ran else { return Ok(None) };
        let answers = self.nodes.iter().zip(ended).map(|(node, ended)| ended.answer(self.file, node.number));
        let answers = answers.collect::<Result<_, _>>()?;
        let ways = Ways::read(&logs.iter().map(|log| context.path(log)).collect::<Vec<_>>())?;
        Ok(Some(NodesRan { answers, relayed, ways }))
    }

    /// The first attempt to which every node came in time.
    fn attempts(&self, context: &Context, bridge: &Bridge) -> Result<Option<Attempt>, Failure> {
        let key = Key::make()?;
        for lead in LEADS {
            let attempt = self.attempt(context, bridge, &key, lead)?;
            if !attempt.iter().any(|(ended, _)| ended.iter().any(Ended::came_late)) {
                return Ok(attempt);
            }
        }
        Err(Failure::trouble("nodes cannot be started within a minute: other programs take both CPUs; try again"))
    }

    fn attempt(&self, context: &Context, bridge: &Bridge, key: &Key, lead: Span) -> Result<Option<Attempt>, Failure> {
        let start = realtime_ns().saturating_add(lead.as_ns()).div_ceil(1_000_000_000);
        let open = |(relay, (to, delay)): (usize, &(usize, Delay))| {
            Relay::open(&bridge.nodes()[RELAY], relay_at(bridge, relay), node_at(bridge, *to), delay.clone())
        };
        let relays = self.relays.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let stop = AtomicBool::new(false);
        let (relayed, ended) = std::thread::scope(|scope| {
            let stop = &stop;
            let relays: Vec<_> = relays.into_iter().map(|relay| scope.spawn(move || relay.run(stop))).collect();
            let ended = self.start(context, bridge, key, start).and_then(|nodes| self.wait(context, nodes, start));
            stop.store(true, Ordering::Relaxed);
            let relayed: Vec<Relayed> = relays.into_iter().map(|relay| relay.join().unwrap_or_default()).collect();
            (relayed, ended)
        });
        Ok(ended?.map(|ended| (ended, relayed)))
    }

    fn start(&self, context: &Context, bridge: &Bridge, key: &Key, start: u64) -> Result<Vec<Running>, Failure> {
        self.nodes.iter().map(|node| self.start_node(context, bridge, node, (key, start))).collect()
    }

    fn start_node(
        &self,
        context: &Context,
        bridge: &Bridge,
        node: &RunNode,
        (key, start): (&Key, u64),
    ) -> Result<Running, Failure> {
        let takt = std::env::current_exe().map_err(|error| Failure::trouble(format_args!("takt itself: {error}")))?;
        let mut command = Command::new(takt);
        command.args(["run", &context.path(self.file), "--node", &format!("n{}", node.number)]);
        command.args(["--listen", &node_at(bridge, node.number).to_string(), "--key", &key.path, "--json"]);
        command.args(["--start-at", &start.to_string(), "--for", &format!("{}ns", self.duration.as_ns())]);
        for (peer, relay) in &node.peers {
            let at = relay.map_or_else(|| node_at(bridge, *peer), |relay| relay_at(bridge, relay));
            command.args(["--peer", &format!("n{peer}={at}")]);
        }
        if node.logs {
            command.args(["-o", &context.path(&self.log(node))]);
        }
        // A recording by each node would take time from all of them. A node ends with its input, and the kernel closes
        // that after a kill -9 of this process, too.
        command.args(["--no-trace", "--takt-ends-with-input"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A child stays in the namespace and on the CPUs of the thread that starts it.
        let child = super::at(&bridge.nodes()[node.number], || {
            let cpus = sched::affinity();
            let cpu = if node.first_cpu { cpus.first() } else { cpus.last() };
            sched::set_affinity(&cpu.copied().into_iter().collect::<Vec<_>>()).map_err(Failure::cannot)?;
            command.spawn().map_err(|error| Failure::trouble(format_args!("no node: {error}")))
        })?;
        Ok(Running::new(child))
    }

    /// Waits for all nodes; `None` if a signal ended the experiment.
    fn wait(&self, context: &Context, mut nodes: Vec<Running>, start: u64) -> Result<Option<Vec<Ended>>, Failure> {
        let start = start.saturating_mul(1_000_000_000);
        let last = start.saturating_add(self.duration.saturating_add(GRACE).as_ns());
        while !nodes.iter_mut().all(Running::has_ended) {
            if context.stopped() {
                return Ok(None);
            }
            if realtime_ns() > last {
                return Err(Failure::trouble("a node has not ended in time; the machine is too busy: try again"));
            }
            pause(Span::from_ms(20));
        }
        nodes.into_iter().map(Running::ended).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// The logs that nodes have written, in the folder.
    fn logs(&self, context: &Context) -> Vec<String> {
        let all = self.nodes.iter().filter(|node| node.logs).map(|node| self.log(node));
        all.filter(|log| fs::exists(context.path(log)).unwrap_or(false)).collect()
    }

    fn log(&self, node: &RunNode) -> String {
        format!("{}-n{}.takt", self.file.trim_end_matches(".toml"), node.number)
    }
}

fn node_at(bridge: &Bridge, number: usize) -> SocketAddr {
    SocketAddr::from((bridge.nodes()[number].address(), PORT))
}

fn relay_at(bridge: &Bridge, relay: usize) -> SocketAddr {
    SocketAddr::from((bridge.nodes()[RELAY].address(), PORT + relay as u16))
}

/// A running node. It is told to end if this is dropped first.
struct Running {
    child: Child,
    /// Its standard output and its standard error.
    printed: [Option<JoinHandle<Vec<u8>>>; 2],
}

impl Drop for Running {
    fn drop(&mut self) {
        process::end(&mut self.child, END_MAX, &mut |_| {});
    }
}

/// Reads a pipe to its end, so that its writer never waits.
fn read(pipe: Option<impl Read + Send + 'static>) -> Option<JoinHandle<Vec<u8>>> {
    pipe.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // The text before an error says enough.
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    })
}

impl Running {
    fn new(mut child: Child) -> Running {
        let printed = [read(child.stdout.take()), read(child.stderr.take())];
        Running { child, printed }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn ended(mut self) -> Result<Ended, Failure> {
        let status = self.child.wait();
        let status = status.map_err(|error| Failure::trouble(format_args!("a node gave no answer: {error}")))?;
        let [answer, said] = self.printed.each_mut().map(|reader| {
            let bytes = reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Ended { status: status.code(), answer, said })
    }
}

/// A node that has ended.
struct Ended {
    status: Option<i32>,
    answer: String,
    said: String,
}

impl Ended {
    /// Whether it came after the common start, or after the end.
    fn came_late(&self) -> bool {
        ["came to a run that had begun", "run of the nodes is over"].iter().any(|words| self.said.contains(words))
    }

    fn answer(self, file: &str, number: usize) -> Result<Value, Failure> {
        let said = self.said.trim();
        match (self.status, serde_json::from_str(&self.answer).ok()) {
            // Missed deadlines are no failure here.
            (Some(0 | 1), Some(answer)) => Ok(answer),
            (Some(3), _) => Err(Failure::cannot(said)),
            _ => Err(Failure::trouble(format_args!("node n{number} of {file}: {said}"))),
        }
    }
}

/// The key of the nodes, in a file without a name: it goes with this process, however that ends.
struct Key {
    /// The path from which nodes read it.
    path: String,
    _file: File,
}

impl Key {
    fn make() -> Result<Key, Failure> {
        let trouble = |error: std::io::Error| Failure::trouble(format_args!("the key of the nodes: {error}"));
        let mut file = in_memory().map_err(trouble)?;
        let bytes = process::random::<32>().ok_or_else(|| Failure::cannot("the kernel gives no random numbers"))?;
        for byte in bytes {
            write!(file, "{byte:02x}").map_err(trouble)?;
        }
        Ok(Key { path: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()), _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_take_the_key_and_no_file_of_it_is_left() {
        let key = Key::make().map_err(|failure| failure.message).unwrap();
        assert!(takt_run::node::Key::from_file(key.path.as_ref()).is_ok());
        let path = key.path.clone();
        drop(key);
        assert!(takt_run::node::Key::from_file(path.as_ref()).is_err());
    }

    #[test]
    fn nodes_that_came_late_are_known() {
        let of = |said: &str| Ended { status: Some(0), answer: String::new(), said: said.to_owned() };
        let late = "note: this node came to a run that had begun: its first jobs are those from 3ms on";
        assert!(of(late).came_late() && !of("note: the kernel is not recorded").came_late());
        let answer = |status, text: &str| Ended { status, answer: text.to_owned(), ..of("why") }.answer("a.toml", 3);
        assert!(answer(Some(1), "{}").is_ok_and(|answer| answer.is_object()));
        assert_eq!(answer(Some(3), "").map_err(|failure| failure.message), Err("why".to_owned()));
        assert_eq!(answer(Some(0), "").map_err(|failure| failure.message), Err("node n3 of a.toml: why".to_owned()));
    }
}
