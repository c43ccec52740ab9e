//! A node of a system with flows: programs in C carry out the jobs of its flows.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use takt_log::{Definition, Event, Sink};
use takt_model::flows::{Lowered, Role, lower};
use takt_model::{FlowId, NodeId, Span, System, TaskId, Time, file};
use takt_run::handlers::{Handlers, RunControl};
use takt_run::node::{Key, NodeCounts, NodeNetwork};
use takt_run::{Prepared, RunError, RunOptions, Trace, prepare_node};

use crate::dispatcher::User;
use crate::flow_job::{job_of, takt_flow_handler};
use crate::log_place::{Log, LogPlace, unwritten};
use crate::refusal::not_run;
use crate::status::{Wrong, call, copy, free, give, object, object_mut, place, takt_status, text};

/// Another node that this one sends messages to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_flow_peer {
    /// Its name in the system.
    pub node: *const c_char,
    /// The address at which it receives: "10.0.0.2:7000" or "[fe80::1%2]:7000".
    pub at: *const c_char,
}

/// How a node runs. All zeros: the default, for a node without messages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct takt_flow_options {
    /// The address at which the node receives: "10.0.0.1:7000" or "[fe80::1%2]:7000". Null: none, for a
    /// node without messages.
    pub listen: *const c_char,
    /// The nodes that it sends to; 65,535 at most. May be null where there are none.
    pub peers: *const takt_flow_peer,
    /// How many there are.
    pub peer_count: usize,
    /// A file of 64 hexadecimal digits with mode 600: the key that all nodes share. Null: none, for a
    /// node without messages.
    pub key_file: *const c_char,
    /// The common start of all nodes, in ns of CLOCK_REALTIME since 1970. At most a year ahead. Zero: the
    /// next multiple of ten seconds that is two seconds ahead, or in a second where there are no peers.
    pub start_at_ns: u64,
    /// Jobs are released for so long. Zero: until takt_flow_node_stop, _end, or a signal. At most 10^17.
    pub duration_ns: u64,
    /// The seed of jitter, distances and execution times, as of `takt run --seed`.
    pub seed: u64,
    /// Run without privilege and without any guarantee, as ordinary threads. Without it a missing
    /// privilege is TAKT_STATUS_PRIVILEGE.
    pub best_effort: bool,
    /// Run even if the tasks use more of the CPUs than the kernel lets real-time threads have.
    pub force: bool,
    /// The SCHED_FIFO priority of the table thread, 1 to 98. Zero: 48.
    pub top_priority: u8,
    /// Whether messages are sent with SO_PRIORITY 0; then so_priority is unused.
    pub unprioritized: bool,
    /// SO_PRIORITY of messages. More than 6 needs CAP_NET_ADMIN. Zero: 6.
    pub so_priority: u32,
    /// The port at which nodes measure how their clocks differ, the same on all nodes. Zero: all nodes
    /// trust CLOCK_REALTIME.
    pub clocks_port: u16,
}

/// Counters of the messages of a node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_flow_counts {
    /// Messages that the kernel took.
    pub sent: u64,
    /// Messages that it refused, or that were without a place or still here at the end.
    pub unsent: u64,
    /// Messages dropped because they could leave only after their deadline.
    pub late: u64,
    /// Messages that came.
    pub arrived: u64,
    /// Datagrams that are no message of this version, or that contradict the system.
    pub malformed: u64,
    /// Datagrams of another system or of another run.
    pub foreign: u64,
    /// Datagrams that nobody with the key made.
    pub forged: u64,
    /// Datagrams that came again, or from a former process of their sender.
    pub replayed: u64,
    /// Datagrams that found no room in the socket. Known after the run.
    pub overflowed: u64,
    /// Receiving jobs that left datagrams for the next one, for want of budget.
    pub exhausted: u64,
    /// How late a receiving job started at most.
    pub receive_late_ns: u64,
    /// How late a sending job started at most.
    pub send_late_ns: u64,
    /// The longest receiving job.
    pub receive_longest_ns: u64,
    /// The longest sending job.
    pub send_longest_ns: u64,
}

/// The outcomes of the jobs of one hop, or of another task.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct takt_flow_jobs {
    /// Jobs released.
    pub released: u64,
    /// Jobs that came to their end.
    pub completed: u64,
    /// Deadlines that passed before the job was complete.
    pub missed: u64,
    /// Jobs that were dropped or omitted.
    pub cancelled: u64,
}

/// Counts of one task.
#[derive(Default)]
struct TaskTally {
    released: AtomicU64,
    completed: AtomicU64,
    missed: AtomicU64,
    cancelled: AtomicU64,
}

/// A node before its start, while it runs, and after its end.
pub struct takt_flow_node {
    system: System,
    lowered: Lowered,
    node: NodeId,
    control: RunControl,
    /// By task of the lowered system.
    tallies: Arc<[TaskTally]>,
    is_running: Arc<AtomicBool>,
    notes: Mutex<String>,
    stage: Mutex<Stage>,
}

enum Stage {
    Building(Building),
    Running(JoinHandle<Ended>),
    /// A thread waits for its end.
    Awaited,
    Ended,
    /// Its start was refused.
    Refused,
}

#[derive(Default)]
struct Building {
    handlers: BTreeMap<String, Handled>,
    log: Option<LogPlace>,
}

/// A handler of C's with its pointer.
type Handled = Box<dyn FnMut(&mut takt_run::handlers::LiveJob<'_>) + Send>;

/// How a run ended.
struct Ended {
    result: Result<Vec<String>, RunError>,
    log: Result<(), Wrong>,
}

/// The node of this name in a system file's text. `node` may be null where the system has one node.
///
/// All nodes need the same text, with tasks that are placed and budgets that are set: `takt size` writes
/// them. Nodes of `takt run` with this file then understand the messages. Execution times and delays from
/// trace files are not read.
///
/// # Safety
/// `toml` is a string, `node` is null or a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_new(
    toml: *const c_char,
    node: *const c_char,
    into: *mut *mut takt_flow_node,
) -> takt_status {
    call(|| {
        place(into)?;
        // SAFETY: by this function's condition, here and below.
        let toml = unsafe { text(toml, "the system") }?;
        // SAFETY: as above.
        let name = if node.is_null() { None } else { Some(unsafe { text(node, "the node's name") }?) };
        let system = file::parse(toml, "system").map_err(Wrong::invalid)?;
        let node = node_of(&system, name)?;
        let lowered = lower(&system).filter(|_| takt_run::node::has_flows(&system, node));
        let lowered = lowered.ok_or_else(|| {
            let name = system.nodes.get(node.index()).map_or("", |node| &node.name);
            Wrong::invalid(format_args!(
                "no flow visits node \"{name}\", and it has no receiving or sending task; name another node"
            ))
        })?;
        let tallies = lowered.system.tasks.iter().map(|_| TaskTally::default()).collect();
        let made = takt_flow_node {
            system,
            lowered,
            node,
            control: RunControl::new(),
            tallies,
            is_running: Arc::new(AtomicBool::new(false)),
            notes: Mutex::default(),
            stage: Mutex::new(Stage::Building(Building::default())),
        };
        // SAFETY: as above.
        unsafe { give(into, made) }
    })
}

/// The node of this name, or the only one.
fn node_of(system: &System, name: Option<&str>) -> Result<NodeId, Wrong> {
    let names = || system.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    match name {
        Some(name) => {
            let at = system.nodes.iter().position(|node| node.name == name);
            let none = || Wrong::invalid(format_args!("the system has no node \"{name}\"; it has: {}", names()));
            at.map(|at| NodeId(at as u32)).ok_or_else(none)
        }
        None if system.nodes.len() == 1 => Ok(NodeId(0)),
        None => Err(Wrong::invalid(format_args!("the system has several nodes; name one of: {}", names()))),
    }
}

/// Gives a flow its handler, which is called with `user`, before the start. It carries out the jobs of
/// all hops of the flow on this node; takt_flow_job_hop tells which. A flow that visits the node more
/// than once has a thread for each of these hops.
///
/// `flow` may also name one task of the node: "put/1" is hop 1 of flow `put`. A task without a handler
/// does busy work for its execution time. Table tasks have no handler.
///
/// # Safety
/// `node` came from takt_flow_node_new, `flow` is a string. `handler` does not unwind. From the start on
/// the node's threads may call it with `user`, one call at a time for each hop, until takt_flow_node_stop
/// or _wait has answered something else than TAKT_STATUS_TROUBLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_on(
    node: *const takt_flow_node,
    flow: *const c_char,
    handler: takt_flow_handler,
    user: *mut c_void,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let node = unsafe { object(node, "the node") }?;
        // SAFETY: as above.
        let flow = unsafe { text(flow, "the flow's name") }?;
        let handler = handler.ok_or_else(|| Wrong::invalid("the handler is a null pointer"))?;
        let tasks = node.tasks_of(flow)?;
        node.building("handlers are given before that", |building| {
            if let Some(task) = tasks.iter().find(|task| building.handlers.contains_key(*task)) {
                return Err(Wrong::invalid(format_args!("task \"{task}\" has a handler already; give it one")));
            }
            for task in tasks {
                let user = User(user);
                // SAFETY: as above; the job lives during the call.
                building.handlers.insert(task, Box::new(move |job| unsafe { handler(job_of(job), user.get()) }));
            }
            Ok(())
        })
    })
}

/// Writes all that happens to a log, which `takt stats`, `takt chart` and the others read. To be called
/// before the start. A file that is there stays as it is until the node runs. TAKT_STATUS_UNWRITTEN:
/// there can be no such file.
///
/// # Safety
/// `node` came from takt_flow_node_new, `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_log(node: *const takt_flow_node, path: *const c_char) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let node = unsafe { object(node, "the node") }?;
        // SAFETY: as above.
        let path = unsafe { text(path, "the path") }?;
        node.building("a log is opened before that", |building| {
            // Perhaps the same file, and new.
            building.log = None;
            building.log = Some(LogPlace::open(path)?);
            Ok(())
        })
    })
}

/// Starts all threads and returns once they wait for the common start. `options` may be null. A node can
/// be started once. If takt refuses options before it asks the kernel, the node stays as it was. It may
/// then be started with others. After any other refusal make another node.
///
/// While the node runs, the signals that would end the process end the run instead: SIGINT, SIGTERM,
/// SIGHUP, SIGQUIT, and others whose action is the default. One node at a time runs in a process.
///
/// # Safety
/// `node` came from takt_flow_node_new; `options` is null or can be read, its strings are null or
/// strings, and its peers are as many as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_start(
    node: *const takt_flow_node,
    options: *const takt_flow_options,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let node = unsafe { object(node, "the node") }?;
        // SAFETY: as above.
        let asked = match unsafe { options.as_ref() } {
            // SAFETY: as above.
            Some(options) => unsafe { asked(options, node.node) }?,
            None => Asked::default_of(node.node),
        };
        node.start(&asked)
    })
}

/// The checked options of a node.
struct Asked {
    run: RunOptions,
    network: NodeNetwork,
}

impl Asked {
    fn default_of(node: NodeId) -> Asked {
        let run = RunOptions { node: Some(node), trace: Trace::Never, ..RunOptions::new(Span::FILE_MAX) };
        let start = NodeNetwork::next_start(true);
        let (peers, priority) = (Vec::new(), PRIORITY);
        Asked { run, network: NodeNetwork { listen: None, peers, key: None, start, priority, clocks: None } }
    }
}

/// SO_PRIORITY of messages: the real-time class of `takt net apply`.
const PRIORITY: u32 = 6;
/// The most peers.
const PEERS_MAX: usize = 65_535;
/// The most that a start may be ahead.
const AHEAD_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Options of C's.
///
/// # Safety
/// Its strings are null or strings, and its peers are null or as many as it says.
unsafe fn asked(options: &takt_flow_options, node: NodeId) -> Result<Asked, Wrong> {
    let Asked { run, .. } = Asked::default_of(node);
    let listen = match options.listen.is_null() {
        true => None,
        // SAFETY: by this function's condition, here and below.
        false => Some(unsafe { address("listen", options.listen) }?),
    };
    let count = options.peer_count;
    if count > 0 && options.peers.is_null() {
        return Err(Wrong::invalid("the peers are a null pointer"));
    }
    if count > PEERS_MAX {
        return Err(Wrong::invalid(format_args!("{count} peers; {PEERS_MAX} are the most")));
    }
    let mut peers: Vec<(String, SocketAddr)> = Vec::new();
    for at in 0..count {
        // SAFETY: as above; there are so many.
        let peer = unsafe { options.peers.add(at).read() };
        // SAFETY: as above.
        let name = unsafe { text(peer.node, "the name of a peer") }?;
        // SAFETY: as above.
        let to = unsafe { address(&format!("peer \"{name}\""), peer.at) }?;
        if to.port() == 0 {
            return Err(Wrong::invalid(format_args!("peer \"{name}\": port 0 is no address of a peer; give its port")));
        }
        if peers.iter().any(|(other, _)| other == name) {
            return Err(Wrong::invalid(format_args!("peer \"{name}\" is given twice; give each node one address")));
        }
        peers.push((name.to_owned(), to));
    }
    let key = match options.key_file.is_null() {
        true => None,
        // SAFETY: as above.
        false => Some(Path::new(unsafe { text(options.key_file, "the path of the key") }?)),
    };
    let key = key.map(Key::from_file).transpose().map_err(Wrong::invalid)?;
    let start = match options.start_at_ns {
        0 => NodeNetwork::next_start(listen.is_none() && peers.is_empty()),
        start => start,
    };
    if start.saturating_sub(takt_linux::clock::realtime_ns()) > AHEAD_NS {
        return Err(Wrong::invalid("start_at_ns is more than a year ahead; give ns since 1970"));
    }
    let or = |value: u64, default: u64| if value > 0 { value } else { default };
    let priority = if options.unprioritized { 0 } else { or(options.so_priority.into(), PRIORITY.into()) as u32 };
    let run = RunOptions {
        duration: Span::from_ns(or(options.duration_ns, run.duration.as_ns())),
        seed: options.seed,
        best_effort: options.best_effort,
        force: options.force,
        top_priority: or(options.top_priority.into(), run.top_priority.into()) as u8,
        ..run
    };
    let clocks = (options.clocks_port > 0).then_some(options.clocks_port);
    Ok(Asked { run, network: NodeNetwork { listen, peers, key, start, priority, clocks } })
}

/// An address of C's.
///
/// # Safety
/// `at` is null or a string.
unsafe fn address(of: &str, at: *const c_char) -> Result<SocketAddr, Wrong> {
    // SAFETY: by this function's condition.
    let at = unsafe { text(at, &format!("the address of {of}")) }?;
    at.parse().map_err(|_| {
        let text = "is no address with a port, such as 10.0.0.1:7000 or [fe80::1%2]:7000";
        Wrong::invalid(format_args!("{of}: \"{at}\" {text}"))
    })
}

impl takt_flow_node {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is given before the start.
    fn building(&self, why: &str, change: impl FnOnce(&mut Building) -> Result<(), Wrong>) -> Result<(), Wrong> {
        match &mut *self.stage() {
            Stage::Building(building) => change(building),
            Stage::Refused => Err(refused_before()),
            _ => Err(Wrong::invalid(format_args!("the node has started: {why}"))),
        }
    }

    /// The tasks of a flow on this node, or the task of this name.
    fn tasks_of(&self, name: &str) -> Result<Vec<String>, Wrong> {
        let tasks = &self.lowered.system.tasks;
        let own = |id: &TaskId| tasks.get(id.index()).filter(|task| task.node == self.node);
        let here = self.system.nodes.get(self.node.index()).map_or("", |node| &node.name);
        if let Some((flow, of)) = (0..).map(FlowId).zip(&self.system.flows).find(|(_, flow)| flow.name == name) {
            let hops = (0..of.hops().count() as u32).filter_map(|hop| self.lowered.task_of(flow, hop));
            let found: Vec<String> = hops.filter_map(|id| own(&id)).map(|task| task.name.clone()).collect();
            if found.is_empty() {
                let path = of.hops().filter_map(|id| self.system.nodes.get(id.index()));
                let path = path.map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(Wrong::invalid(format_args!(
                    "flow \"{name}\" does not visit node \"{here}\"; it visits {path}"
                )));
            }
            return Ok(found);
        }
        let found = (0..).map(TaskId).zip(tasks).find(|(id, task)| task.name == name && own(id).is_some());
        match found {
            Some((id, task)) if matches!(self.lowered.role(id), None | Some(Role::Hop { .. })) => {
                Ok(vec![task.name.clone()])
            }
            Some(_) => Err(Wrong::invalid(format_args!(
                "takt itself carries out task \"{name}\"; give handlers to flows and tasks"
            ))),
            None => Err(Wrong::invalid(format_args!(
                "node \"{here}\" has no flow or task \"{name}\"; hop 1 of flow \"put\" is the task \"put/1\""
            ))),
        }
    }

    fn start(&self, asked: &Asked) -> Result<(), Wrong> {
        let mut stage = self.stage();
        match &*stage {
            Stage::Building(_) => {}
            Stage::Refused => return Err(refused_before()),
            _ => return Err(Wrong::invalid("the node has started before")),
        }
        // A refusal of the options leaves the node as it was.
        let prepared = prepare_node(&self.system, &asked.run, &asked.network).map_err(|error| not_run(&error))?;
        let Stage::Building(building) = std::mem::replace(&mut *stage, Stage::Refused) else { return Ok(()) };
        let add = |handlers: Handlers, (task, handler): (String, Handled)| handlers.on(&task, handler);
        let handlers = building.handlers.into_iter().fold(Handlers::new(), add).with_control(&self.control);
        let (begun, begins) = mpsc::channel();
        let (tallies, is_running) = (self.tallies.clone(), self.is_running.clone());
        let log = building.log;
        let run = move || {
            let ended = run(&prepared, handlers, (tallies, log), || _ = begun.send(()));
            is_running.store(false, Ordering::Release);
            ended
        };
        self.is_running.store(true, Ordering::Release);
        let thread = std::thread::Builder::new().name("takt-flows".to_owned()).spawn(run);
        let thread = thread.map_err(|error| {
            self.is_running.store(false, Ordering::Release);
            Wrong::new(takt_status::Refused, format_args!("the thread of the run was not started: {error}"))
        })?;
        // The channel closes when the run was refused.
        if begins.recv().is_ok() {
            *stage = Stage::Running(thread);
            return Ok(());
        }
        let ended = joined(thread)?;
        ended.log?;
        match ended.result {
            Err(error) => Err(not_run(&error)),
            // It was over before anybody looked.
            Ok(notes) => {
                self.keep(notes);
                *stage = Stage::Ended;
                Ok(())
            }
        }
    }

    fn keep(&self, notes: Vec<String>) {
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner) = notes.join("\n");
    }

    /// Waits for the end of the run.
    fn wait(&self) -> Result<(), Wrong> {
        let mut stage = self.stage();
        let thread = match std::mem::replace(&mut *stage, Stage::Awaited) {
            Stage::Running(thread) => thread,
            other => {
                let text = match &other {
                    Stage::Awaited => "another thread waits for the end of the node",
                    Stage::Ended => "the node has ended before",
                    Stage::Refused => "the start of the node was refused",
                    _ => "the node has not been started",
                };
                *stage = other;
                return Err(Wrong::new(takt_status::Stopped, text));
            }
        };
        drop(stage);
        let ended = joined(thread);
        *self.stage() = Stage::Ended;
        let ended = ended?;
        match (ended.result, ended.log) {
            (Ok(notes), log) => {
                self.keep(notes);
                log
            }
            (Err(error), Ok(())) => Err(not_run(&error)),
            (Err(error), Err(log)) => {
                let run = not_run(&error);
                Err(Wrong::new(run.status, format_args!("{}; {}", run.text, log.text)))
            }
        }
    }
}

fn refused_before() -> Wrong {
    Wrong::invalid("the start of this node was refused, so it cannot start again: make another one of the same system")
}

fn joined(thread: JoinHandle<Ended>) -> Result<Ended, Wrong> {
    thread.join().map_err(|_| Wrong::new(takt_status::Panic, "a defect of takt: the thread of the run panicked"))
}

/// Runs a node until its end. `begun` is called once all threads wait for the start, and now and then.
fn run(
    prepared: &Prepared,
    handlers: Handlers,
    (tallies, log): (Arc<[TaskTally]>, Option<LogPlace>),
    begun: impl Fn(),
) -> Ended {
    let ready = match prepared.open() {
        Ok(ready) => ready,
        Err(error) => return Ended { result: Err(error), log: Ok(()) },
    };
    let log = log.map_or(LogStage::None, |place| LogStage::Place(Box::new((place, ready.log_head()))));
    let mut sink = FlowSink { tallies, log, flushed: Time::ZERO };
    let summary = ready.run_handled(&mut sink, &mut |_| begun(), handlers);
    // A refused run leaves a file as it was.
    let log = if summary.is_ok() { sink.open() } else { Ok(()) };
    let end = summary.as_ref().map_or(sink.flushed, |summary| summary.end);
    let log = log.and_then(|()| sink.finish(end));
    Ended { result: summary.map(|summary| summary.notes), log }
}

/// The log of a node.
enum LogStage {
    None,
    /// Not begun, with its head.
    Place(Box<(LogPlace, (takt_log::Header, takt_log::Definitions))>),
    Open(Box<Log>),
    Failed(Wrong),
}

/// How much of a run a crash can take from its log, at most.
const FLUSH: Span = Span::from_s(1);

/// Counts the jobs, and writes the log.
struct FlowSink {
    tallies: Arc<[TaskTally]>,
    log: LogStage,
    /// The event before which it was flushed last.
    flushed: Time,
}

impl FlowSink {
    /// Begins the log.
    fn open(&mut self) -> Result<(), Wrong> {
        self.log = match std::mem::replace(&mut self.log, LogStage::None) {
            LogStage::Place(of) => {
                let (place, (header, definitions)) = *of;
                place.begin(&header, &definitions).map_or_else(LogStage::Failed, |log| LogStage::Open(Box::new(log)))
            }
            LogStage::Failed(wrong) => return Err(wrong),
            other => other,
        };
        Ok(())
    }

    fn finish(self, end: Time) -> Result<(), Wrong> {
        match self.log {
            LogStage::Open(log) => log.finish(end).map(drop).map_err(unwritten),
            LogStage::Failed(wrong) => Err(wrong),
            LogStage::None | LogStage::Place(_) => Ok(()),
        }
    }

    fn tally(&self, event: &Event) {
        let (job, of): (_, fn(&TaskTally) -> &AtomicU64) = match event {
            Event::Release { job, .. } => (job, |tally| &tally.released),
            Event::Complete { job, .. } => (job, |tally| &tally.completed),
            Event::Miss { job } => (job, |tally| &tally.missed),
            Event::Cancel { job, .. } => (job, |tally| &tally.cancelled),
            _ => return,
        };
        if let Some(tally) = self.tallies.get(job.task.index()) {
            of(tally).fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Sink for FlowSink {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.tally(event);
        if let LogStage::Place(_) = self.log {
            let _ = self.open();
        }
        let LogStage::Open(log) = &mut self.log else { return };
        if now.saturating_since(self.flushed) >= FLUSH {
            self.flushed = now;
            // An error stays with the log until its end.
            let _ = log.flush();
        }
        log.event(stream, now, event);
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        if let LogStage::Open(log) = &mut self.log {
            log.define(stream, now, definition);
        }
    }
}

/// Whether the node runs: from its start to its end by duration_ns, takt_flow_node_stop, _end or a signal.
///
/// # Safety
/// `node` is null or came from takt_flow_node_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_runs(node: *const takt_flow_node) -> bool {
    // SAFETY: by this function's condition.
    unsafe { node.as_ref() }.is_some_and(|node| node.is_running.load(Ordering::Acquire))
}

/// Lets the run end soon, in order, and does not wait for it. Any thread and any handler may call it.
///
/// # Safety
/// `node` is null or came from takt_flow_node_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_end(node: *const takt_flow_node) {
    // SAFETY: by this function's condition.
    if let Some(node) = unsafe { node.as_ref() } {
        node.control.stop();
    }
}

/// Waits until the run has ended. No handler may call it.
///
/// After TAKT_STATUS_OK and TAKT_STATUS_UNWRITTEN no handler runs any more. After TAKT_STATUS_TROUBLE a
/// handler has not returned, and its data must stay. TAKT_STATUS_STOPPED: the node does not run.
///
/// # Safety
/// `node` came from takt_flow_node_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_wait(node: *const takt_flow_node) -> takt_status {
    // SAFETY: by this function's condition.
    call(|| unsafe { object(node, "the node") }?.wait())
}

/// takt_flow_node_end and takt_flow_node_wait.
///
/// # Safety
/// `node` came from takt_flow_node_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_stop(node: *const takt_flow_node) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition.
        let node = unsafe { object(node, "the node") }?;
        node.control.stop();
        node.wait()
    })
}

/// The counters of the node's messages so far, or in the end. TAKT_STATUS_STOPPED: it has not been
/// started. Any thread may call it, but no handler.
///
/// # Safety
/// `node` came from takt_flow_node_new, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_counts(
    node: *const takt_flow_node,
    into: *mut takt_flow_counts,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let node = unsafe { object(node, "the node") }?;
        // SAFETY: as above.
        let into = unsafe { object_mut(into, "the pointer to the counts") }?;
        let counts = node.control.counts();
        *into = counted(counts.ok_or_else(|| Wrong::new(takt_status::Stopped, "the node has not been started"))?);
        Ok(())
    })
}

fn counted(counts: NodeCounts) -> takt_flow_counts {
    takt_flow_counts {
        sent: counts.sent,
        unsent: counts.unsent,
        late: counts.late,
        arrived: counts.arrived,
        malformed: counts.malformed,
        foreign: counts.foreign,
        forged: counts.forged,
        replayed: counts.replayed,
        overflowed: counts.overflowed,
        exhausted: counts.exhausted,
        receive_late_ns: counts.receive_late_ns,
        send_late_ns: counts.send_late_ns,
        receive_longest_ns: counts.receive_longest_ns,
        send_longest_ns: counts.send_longest_ns,
    }
}

/// The outcomes of the jobs of a task so far, or in the end: "put/1" is hop 1 of flow `put`. The name of
/// a flow alone sums up its hops on this node. While the node runs, the counts are some 10 ms behind. Any
/// thread may call it, but no handler.
///
/// # Safety
/// `node` came from takt_flow_node_new, `task` is a string, `into` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_jobs(
    node: *const takt_flow_node,
    task: *const c_char,
    into: *mut takt_flow_jobs,
) -> takt_status {
    call(|| {
        // SAFETY: by this function's condition, here and below.
        let node = unsafe { object(node, "the node") }?;
        // SAFETY: as above.
        let name = unsafe { text(task, "the task's name") }?;
        // SAFETY: as above.
        let into = unsafe { object_mut(into, "the pointer to the jobs") }?;
        let names = node.tasks_of(name)?;
        let mut sum = takt_flow_jobs::default();
        for (task, tally) in node.lowered.system.tasks.iter().zip(node.tallies.iter()) {
            if task.node == node.node && names.contains(&task.name) {
                let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
                sum.released += of(&tally.released);
                sum.completed += of(&tally.completed);
                sum.missed += of(&tally.missed);
                sum.cancelled += of(&tally.cancelled);
            }
        }
        *into = sum;
        Ok(())
    })
}

/// Differences from the request, and causes of doubtful figures: one sentence per line. Known once the
/// run has ended and takt_flow_node_wait or _stop has answered. Copied as takt_plan_text does it. Returns
/// the number of bytes.
///
/// # Safety
/// `node` is null or came from takt_flow_node_new; `into` is null, or `size` bytes of it may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_notes(node: *const takt_flow_node, into: *mut c_char, size: usize) -> usize {
    let mut length = 0;
    let _ = call(|| {
        // SAFETY: by this function's condition, here and below.
        let node = unsafe { object(node, "the node") }?;
        let notes = node.notes.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as above.
        length = unsafe { copy(&notes, into, size) };
        Ok(())
    });
    length
}

/// Stops a node if it runs, as takt_flow_node_stop, and frees it; a null pointer is no harm. No handler
/// calls it. Whether a handler runs on only takt_flow_node_stop tells.
///
/// # Safety
/// It came from takt_flow_node_new, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_flow_node_free(node: *mut takt_flow_node) {
    // SAFETY: by this function's condition.
    if let Some(running) = unsafe { node.as_ref() }.filter(|node| matches!(&*node.stage(), Stage::Running(_))) {
        let _ = call(|| {
            running.control.stop();
            running.wait()
        });
    }
    // SAFETY: as above.
    unsafe { free(node) }
}
