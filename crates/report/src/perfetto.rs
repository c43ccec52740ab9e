//! A log as a Perfetto trace (TrackEvent protobuf) that ui.perfetto.dev opens.
//!
//! A process is a node. It has a track per CPU (the running job), a track per task, and two tracks per server: when it
//! pays, and its budget.
//!
//! A job is a slice of its task's track. The slice begins when the job is the first of its task: at
//! its release, or at the completion of the job before. It ends with the job. If the end was lost,
//! it ends when a later job of its task has a CPU. Within it stand slices "runs" and "waits".
//! Arrival, release, deadline, start, response and lateness are arguments of the slice.
//!
//! Messages are instants where they are sent and received, joined by an arrow, which goes on to the
//! job that the message releases.
//!
//! Releases, misses, cancellations, migrations, switches of strategy and losses are instants. A
//! counter shows the jobs that are released and not over. A log without preemptions does not tell
//! the running job, so it has no tracks of CPUs.
//!
//! Interrupts and softirqs are slices on a track of their own for each CPU that serves any. A
//! nested interrupt lies within the interrupted one.
//!
//! Field numbers: protos/perfetto/trace of the Perfetto project. Each name is interned once. A late
//! definition of a log is written at once, so its name and track precede its events.

mod messages;
mod proto;
mod schema;

use std::io;

use takt_log::{Definition, Event, InterruptKind, JobKey, Sink};
use takt_model::{NodeId, Span, TaskId, Time};

use crate::jobs::{JobRecord, JobTracker};
use crate::messages::Deliveries;
use crate::scene::Scene;
use proto::Message;
use schema::{
    ARGUMENTS, COUNTER, CPUS_MAX, EVENT_NAMES, INCREMENTAL_STATE_CLEARED, INSTANT, NAMES, NEEDS_INCREMENTAL_STATE,
    ORDER_EXPLICIT, SEQUENCE, SLICE_BEGIN, SLICE_END, argument, budget_track, child, cpu_track, event_name, field,
    irq_track, node_track, pending_track, server_track, task_track,
};

enum Value<'a> {
    Uint(u64),
    Int(i64),
    Text(&'a str),
}

/// Writes a trace while events come in. Memory grows with the jobs that are open at one time only.
#[derive(Debug)]
pub struct PerfettoWriter<W: io::Write> {
    out: W,
    scene: Scene,
    tracker: JobTracker,
    /// Per task, the job whose slice is open, and whether a slice is open within it.
    slices: Vec<Option<(u64, bool)>>,
    /// Per task, node and CPU on whose track its slice is open.
    on_cpu: Vec<Option<(NodeId, u32)>>,
    /// Per node and CPU, the task whose slice is open on its track.
    holders: Vec<Vec<Option<TaskId>>>,
    /// Per node, the jobs released and not over.
    pending: Vec<u64>,
    /// Interned ids of the names of tasks, and of interrupts; the next free one.
    task_names: Vec<u64>,
    irq_names: Vec<u64>,
    next_name: u64,
    /// Per node and CPU, the interrupts being served, outermost first; `None` before the first interrupt.
    serving: Vec<Vec<Option<Vec<u32>>>>,
    /// Per server, the budget left.
    budgets: Vec<Span>,
    /// Numbers of the flows of messages that were just received.
    deliveries: Deliveries<u64>,
    packet: Message,
    error: Option<io::Error>,
}

impl<W: io::Write> PerfettoWriter<W> {
    /// Writes the names and the tracks.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(out: W, scene: &Scene) -> io::Result<Self> {
        let mut writer = PerfettoWriter {
            out,
            scene: scene.clone(),
            tracker: JobTracker::new(scene),
            slices: vec![None; scene.tasks.len()],
            on_cpu: vec![None; scene.tasks.len()],
            holders: Vec::new(),
            pending: Vec::new(),
            task_names: Vec::new(),
            irq_names: Vec::new(),
            next_name: NAMES,
            serving: Vec::new(),
            budgets: Vec::new(),
            deliveries: Deliveries::default(),
            packet: Message::default(),
            error: None,
        };
        writer.write_names()?;
        for node in 0..scene.nodes.len() {
            writer.open_node(node)?;
        }
        for task in 0..scene.tasks.len() {
            writer.open_task(task)?;
        }
        for irq in 0..scene.interrupts.len() {
            writer.open_interrupt(irq)?;
        }
        for server in 0..scene.servers.len() {
            writer.open_server(server)?;
        }
        Ok(writer)
    }

    /// Ends all open slices at `end`, and gives the output back.
    ///
    /// # Errors
    /// The first error of `out` after [`PerfettoWriter::new`].
    pub fn finish(mut self, end: Time) -> io::Result<W> {
        for task in 0..self.scene.tasks.len() {
            let id = TaskId(task as u32);
            self.leave_cpu(end, id);
            let outcome = self.tracker.first(id).map(|job| job.outcome_if_open(end).name());
            let outcome = outcome.map(|outcome| (argument("outcome"), Value::Text(outcome)));
            self.end_job(end, id, outcome.as_slice());
        }
        for node in 0..self.serving.len() {
            self.end_interrupts(end, node);
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_names(&mut self) -> io::Result<()> {
        self.packet.clear();
        let fixed = EVENT_NAMES.iter().enumerate().map(|(i, name)| (i as u64 + 1, *name));
        self.packet.message(field::INTERNED_DATA, |data| {
            for (iid, name) in fixed {
                data.message(field::INTERNED_EVENT_NAMES, |entry| {
                    entry.uint(field::IID, iid).text(field::IID_NAME, name);
                });
            }
            for (i, name) in ARGUMENTS.iter().enumerate() {
                data.message(field::INTERNED_ANNOTATION_NAMES, |entry| {
                    entry.uint(field::IID, i as u64 + 1).text(field::IID_NAME, name);
                });
            }
        });
        self.packet.uint(field::SEQUENCE_FLAGS, INCREMENTAL_STATE_CLEARED | NEEDS_INCREMENTAL_STATE);
        self.send()
    }

    fn intern(&mut self, name: &str) -> io::Result<u64> {
        let iid = self.next_name;
        self.next_name += 1;
        self.packet.clear();
        self.packet.message(field::INTERNED_DATA, |data| {
            data.message(field::INTERNED_EVENT_NAMES, |entry| {
                entry.uint(field::IID, iid).text(field::IID_NAME, name);
            });
        });
        self.packet.uint(field::SEQUENCE_FLAGS, NEEDS_INCREMENTAL_STATE);
        self.send()?;
        Ok(iid)
    }

    /// Describes the new tracks of a node.
    fn open_node(&mut self, n: usize) -> io::Result<()> {
        let Some(node) = self.scene.nodes.get(n).cloned() else { return Ok(()) };
        let id = NodeId(n as u32);
        let cpus = node.cpus.min(CPUS_MAX);
        let is_new = n == self.holders.len();
        if is_new {
            self.holders.push(Vec::new());
            self.serving.push(Vec::new());
            self.pending.push(0);
            self.describe_track(|track| {
                track.uint(field::TRACK_UUID, node_track(id)).uint(field::TRACK_CHILD_ORDERING, ORDER_EXPLICIT);
                track.message(field::TRACK_PROCESS, |process| {
                    process.uint(field::PROCESS_PID, n as u64 + 1).text(field::PROCESS_NAME, &node.name);
                });
            })?;
        }
        let before = self.holders[n].len() as u32;
        for cpu in before..if self.scene.preemptions { cpus } else { 0 } {
            self.describe_track(|track| {
                child(track, cpu_track(id, cpu), id, &format!("CPU {cpu}"), 2 * u64::from(cpu))
            })?;
        }
        // A CPU that is gone keeps its track.
        let count = cpus.max(before) as usize;
        self.holders[n].resize(count, None);
        self.serving[n].resize(count, None);
        if is_new {
            self.describe_track(|track| {
                child(track, pending_track(id), id, "jobs released and not over", 900_000);
                track.message(field::TRACK_COUNTER, |counter| {
                    counter.text(field::COUNTER_UNIT_NAME, "jobs");
                });
            })?;
        }
        Ok(())
    }

    fn open_task(&mut self, t: usize) -> io::Result<()> {
        let Some(task) = self.scene.tasks.get(t).cloned() else { return Ok(()) };
        let name = self.intern(&task.name)?;
        match self.task_names.get_mut(t) {
            Some(old) => *old = name,
            None => {
                self.task_names.push(name);
                self.slices.resize(self.task_names.len().max(self.slices.len()), None);
                self.on_cpu.resize(self.slices.len(), None);
            }
        }
        self.describe_track(|track| child(track, task_track(TaskId(t as u32)), task.node, &task.name, 1_000 + t as u64))
    }

    fn open_interrupt(&mut self, i: usize) -> io::Result<()> {
        let Some(name) = self.scene.interrupts.get(i).map(|irq| irq.name.clone()) else { return Ok(()) };
        let name = self.intern(&name)?;
        match self.irq_names.get_mut(i) {
            Some(old) => *old = name,
            None => self.irq_names.push(name),
        }
        Ok(())
    }

    fn open_server(&mut self, s: usize) -> io::Result<()> {
        let Some(server) = self.scene.servers.get(s).filter(|_| self.scene.payments).cloned() else { return Ok(()) };
        if s < self.budgets.len() {
            return Ok(());
        }
        // A sporadic server begins with a full budget, without an event.
        let full = server.budget.filter(|_| server.rule == "sporadic");
        self.budgets.push(full.unwrap_or_default());
        let (at, rank) = (s as u32, 500_000 + 2 * s as u64);
        let name = format!("server {}", server.name);
        self.describe_track(|track| child(track, server_track(at), server.node, &name, rank))?;
        self.describe_track(|track| {
            child(track, budget_track(at), server.node, &format!("{name}: budget"), rank + 1);
            track.message(field::TRACK_COUNTER, |counter| {
                counter.text(field::COUNTER_UNIT_NAME, "ns");
            });
        })
    }

    /// A payment is a slice from its start until now. The budget falls over its time.
    fn server(&mut self, now: Time, server: u32, event: &Event) {
        let Some(left) = self.budgets.get(server as usize).copied() else { return };
        let track = server_track(server);
        let (name, left) = match *event {
            Event::Charge { since, amount, idle, .. } => {
                let since = since.min(now);
                let name = event_name(if idle { "pays idle" } else { "pays" });
                let args = [(argument("amount_ns"), Value::Uint(amount.as_ns()))];
                self.budget(since, server, left);
                self.track_event(since, SLICE_BEGIN, track, name, &args);
                self.track_event(now, SLICE_END, track, 0, &[]);
                return self.budget(now, server, left.saturating_sub(amount));
            }
            Event::Replenish { budget, .. } => ("replenished", budget),
            Event::Exhaust { .. } => ("used up", left),
            _ => {
                let gives_up = self.scene.servers.get(server as usize).is_some_and(|server| server.rule == "polling");
                ("idle", if gives_up { Span::ZERO } else { left })
            }
        };
        self.track_event(now, INSTANT, track, event_name(name), &[]);
        self.budget(now, server, left);
    }

    fn budget(&mut self, at: Time, server: u32, left: Span) {
        self.budgets[server as usize] = left;
        self.emit(at, |event| {
            event.uint(field::EVENT_TYPE, COUNTER).uint(field::EVENT_TRACK, budget_track(server));
            event.uint(field::EVENT_COUNTER, left.as_ns());
        });
    }

    fn define_late(&mut self, definition: &Definition) -> io::Result<()> {
        match definition {
            Definition::Node(id, _) => self.open_node(id.index()),
            Definition::Task(id, _) => self.open_task(id.index()),
            Definition::Interrupt(id, _) => self.open_interrupt(*id as usize),
            Definition::Server(id, _) => self.open_server(*id as usize),
            _ => Ok(()),
        }
    }

    fn describe_track(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packet.clear();
        self.packet.message(field::TRACK_DESCRIPTOR, fill);
        self.send()
    }

    fn send(&mut self) -> io::Result<()> {
        self.packet.uint(field::SEQUENCE_ID, SEQUENCE);
        let mut framed = Message::default();
        framed.bytes(field::TRACE_PACKET, self.packet.as_bytes());
        self.out.write_all(framed.as_bytes())
    }

    fn emit(&mut self, now: Time, fill: impl FnOnce(&mut Message)) {
        if self.error.is_some() {
            return;
        }
        self.packet.clear();
        self.packet.uint(field::TIMESTAMP, now.as_ns()).uint(field::SEQUENCE_FLAGS, NEEDS_INCREMENTAL_STATE);
        self.packet.message(field::TRACK_EVENT, fill);
        self.error = self.send().err();
    }

    fn track_event(&mut self, now: Time, kind: u64, track: u64, name: u64, args: &[(u64, Value<'_>)]) {
        self.emit(now, |event| {
            event.uint(field::EVENT_TYPE, kind).uint(field::EVENT_TRACK, track);
            if name > 0 {
                event.uint(field::EVENT_NAME_IID, name);
            }
            for (name, value) in args {
                event.message(field::EVENT_ANNOTATION, |annotation| {
                    annotation.uint(field::ANNOTATION_NAME_IID, *name);
                    match value {
                        Value::Uint(value) => annotation.uint(field::ANNOTATION_UINT, *value),
                        Value::Int(value) => annotation.int(field::ANNOTATION_INT, *value),
                        Value::Text(value) => annotation.text(field::ANNOTATION_TEXT, value),
                    };
                });
            }
        });
    }

    fn instant(&mut self, now: Time, job: JobKey, name: &str) {
        if job.task.index() >= self.scene.tasks.len() {
            return;
        }
        let args = [(argument("job"), Value::Uint(job.number))];
        self.track_event(now, INSTANT, task_track(job.task), event_name(name), &args);
    }

    fn count_pending(&mut self, now: Time, task: TaskId, released: bool) {
        let Some(node) = self.scene.tasks.get(task.index()).map(|task| task.node) else { return };
        let Some(pending) = self.pending.get_mut(node.index()) else { return };
        *pending = if released { *pending + 1 } else { pending.saturating_sub(1) };
        let value = *pending;
        self.emit(now, |event| {
            event.uint(field::EVENT_TYPE, COUNTER).uint(field::EVENT_TRACK, pending_track(node));
            event.uint(field::EVENT_COUNTER, value);
        });
    }

    /// Opens the slice of the first job of `task`, if none is open.
    fn begin_job(&mut self, now: Time, task: TaskId) {
        let Some(record) = self.tracker.first(task).copied() else { return };
        let Some(slice @ None) = self.slices.get_mut(task.index()) else { return };
        *slice = Some((record.job.number, false));
        let mut args = vec![
            (argument("job"), Value::Uint(record.job.number)),
            (argument("arrival_ns"), Value::Uint(record.arrival.as_ns())),
            (argument("release_ns"), Value::Uint(record.release.as_ns())),
        ];
        args.extend(record.earliest.map(|at| (argument("earliest_ns"), Value::Uint(at.as_ns()))));
        args.extend(record.deadline.map(|deadline| (argument("deadline_ns"), Value::Uint(deadline.as_ns()))));
        self.track_event(now, SLICE_BEGIN, task_track(task), self.task_name(task), &args);
        self.phase(now, task, "waits", &[]);
    }

    fn end_job(&mut self, now: Time, task: TaskId, args: &[(u64, Value<'_>)]) {
        let Some(Some((_, inner))) = self.slices.get_mut(task.index()).map(Option::take) else { return };
        if inner {
            self.track_event(now, SLICE_END, task_track(task), 0, &[]);
        }
        self.track_event(now, SLICE_END, task_track(task), 0, args);
    }

    fn phase(&mut self, now: Time, task: TaskId, name: &str, args: &[(u64, Value<'_>)]) {
        let Some(Some((_, inner))) = self.slices.get_mut(task.index()) else { return };
        if std::mem::replace(inner, true) {
            self.track_event(now, SLICE_END, task_track(task), 0, &[]);
        }
        self.track_event(now, SLICE_BEGIN, task_track(task), event_name(name), args);
    }

    fn enter_cpu(&mut self, now: Time, job: JobKey, cpu: u32) {
        if !self.scene.preemptions {
            return self.phase(now, job.task, "in progress", &[(argument("cpu"), Value::Uint(u64::from(cpu)))]);
        }
        self.phase(now, job.task, "runs", &[(argument("cpu"), Value::Uint(u64::from(cpu)))]);
        self.leave_cpu(now, job.task);
        let Some(node) = self.scene.tasks.get(job.task.index()).map(|task| task.node) else { return };
        let Some(holder) = self.holders.get_mut(node.index()).and_then(|cpus| cpus.get_mut(cpu as usize)) else {
            return;
        };
        // If an event was lost, the CPU's last job has left it by now.
        if let Some(other) = holder.replace(job.task) {
            self.leave_cpu(now, other);
            self.holders[node.index()][cpu as usize] = Some(job.task);
        }
        self.on_cpu[job.task.index()] = Some((node, cpu));
        let args = [(argument("job"), Value::Uint(job.number))];
        self.track_event(now, SLICE_BEGIN, cpu_track(node, cpu), self.task_name(job.task), &args);
    }

    fn leave_cpu(&mut self, now: Time, task: TaskId) {
        let Some(Some((node, cpu))) = self.on_cpu.get_mut(task.index()).map(Option::take) else { return };
        self.holders[node.index()][cpu as usize] = None;
        self.track_event(now, SLICE_END, cpu_track(node, cpu), 0, &[]);
    }

    fn task_name(&self, task: TaskId) -> u64 {
        self.task_names.get(task.index()).copied().unwrap_or(0)
    }

    /// A CPU begins to serve an interrupt, or ends an interrupt and all that seem nested in it.
    fn interrupt(&mut self, now: Time, node: NodeId, irq: u32, cpu: u32, begins: bool) {
        let Some(name) = self.irq_names.get(irq as usize).copied() else { return };
        let Some(serving) = self.serving.get_mut(node.index()).and_then(|cpus| cpus.get_mut(cpu as usize)) else {
            return;
        };
        let track = irq_track(node, cpu);
        if begins {
            let is_new = serving.is_none();
            let stack = serving.get_or_insert_default();
            // If the interrupt is open already, its end was lost, with the ends of all within it.
            let again = stack.iter().position(|open| *open == irq);
            let ended = stack.drain(again.unwrap_or(stack.len())..).count();
            stack.push(irq);
            if is_new && self.error.is_none() {
                let name = format!("CPU {cpu} interrupts");
                let described = self.describe_track(|it| child(it, track, node, &name, 2 * u64::from(cpu) + 1));
                self.error = described.err();
            }
            (0..ended).for_each(|_| self.track_event(now, SLICE_END, track, 0, &[]));
            let kind = self.scene.interrupts.get(irq as usize).map_or(InterruptKind::Hard, |irq| irq.kind);
            self.track_event(now, SLICE_BEGIN, track, name, &[(argument("kind"), Value::Text(kind.name()))]);
        } else if let Some(stack) = serving
            && let Some(at) = stack.iter().rposition(|open| *open == irq)
        {
            let ended = stack.drain(at..).count();
            (0..ended).for_each(|_| self.track_event(now, SLICE_END, track, 0, &[]));
        }
    }

    /// Ends the phases of the node's jobs: their states are unknown until their next events.
    fn lose_jobs(&mut self, now: Time, node: NodeId) {
        for task in 0..self.scene.tasks.len() {
            if self.scene.tasks[task].node == node {
                self.lose_job(now, TaskId(task as u32));
            }
        }
    }

    fn lose_job(&mut self, now: Time, task: TaskId) {
        self.leave_cpu(now, task);
        if let Some(Some((_, inner @ true))) = self.slices.get_mut(task.index()) {
            *inner = false;
            self.track_event(now, SLICE_END, task_track(task), 0, &[]);
        }
    }

    /// Ends the interrupts that the node's CPUs serve.
    fn end_interrupts(&mut self, now: Time, node: usize) {
        for cpu in 0..self.serving.get(node).map_or(0, Vec::len) {
            let ended = self.serving[node][cpu].as_mut().map_or(0, |stack| stack.drain(..).count());
            let track = irq_track(NodeId(node as u32), cpu as u32);
            (0..ended).for_each(|_| self.track_event(now, SLICE_END, track, 0, &[]));
        }
    }

    fn job_over(&mut self, now: Time, job: JobKey, record: Option<JobRecord>) {
        self.leave_cpu(now, job.task);
        let mut args = Vec::new();
        if let Some(record) = record {
            args.extend(record.start.map(|start| (argument("start_ns"), Value::Uint(start.as_ns()))));
            args.extend(record.response().map(|response| (argument("response_ns"), Value::Uint(response.as_ns()))));
            args.extend(record.lateness().map(|lateness| (argument("lateness_ns"), Value::Int(lateness.as_ns()))));
            args.push((argument("outcome"), Value::Text(record.outcome.name())));
        }
        let open = self.slices.get(job.task.index()).copied().flatten();
        if open.is_some_and(|(number, _)| number == job.number) {
            self.end_job(now, job.task, &args);
        }
        self.begin_job(now, job.task);
        if record.is_some() {
            self.count_pending(now, job.task, false);
        }
    }
}

impl<W: io::Write> Sink for PerfettoWriter<W> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        // Nodes and tasks without a definition have no track.
        let known_node = (stream as usize) < self.scene.nodes.len();
        while let Some(over) = self.tracker.overtaken(event) {
            self.job_over(now, over.job, Some(over));
        }
        let ended = self.tracker.event(now, event);
        match *event {
            Event::Release { job, .. } if job.task.index() < self.scene.tasks.len() => {
                self.release_instant(stream, now, job);
                self.begin_job(now, job.task);
                self.count_pending(now, job.task, true);
            }
            Event::Start { job, cpu } | Event::Resume { job, cpu } => self.enter_cpu(now, job, cpu),
            Event::Preempt { job, .. } | Event::Block { job, .. } => {
                self.leave_cpu(now, job.task);
                self.phase(now, job.task, "waits", &[]);
            }
            Event::Complete { job, .. } => {
                self.deliveries.completed(stream, job.task.index());
                self.job_over(now, job, ended);
            }
            Event::Send { .. } | Event::Receive { .. } | Event::Drop { .. } => self.message(stream, now, event),
            Event::Cancel { job, cause } => {
                self.instant(now, job, cause.name());
                self.job_over(now, job, ended);
            }
            Event::Miss { job } => self.instant(now, job, "deadline missed"),
            Event::Migrate { job, from, to } if job.task.index() < self.scene.tasks.len() => {
                let args = [
                    (argument("from_cpu"), Value::Uint(u64::from(from))),
                    (argument("to_cpu"), Value::Uint(u64::from(to))),
                ];
                self.track_event(now, INSTANT, task_track(job.task), event_name("migrates"), &args);
            }
            Event::ModeChange { mode } if known_node => {
                let name = self.scene.strategy(NodeId(stream), mode as usize);
                let name = format!("strategy {name}");
                self.emit(now, |event| {
                    event.uint(field::EVENT_TYPE, INSTANT).uint(field::EVENT_TRACK, node_track(NodeId(stream)));
                    event.text(field::EVENT_NAME, &name);
                });
            }
            Event::IrqEnter { irq, cpu } => self.interrupt(now, NodeId(stream), irq, cpu, true),
            Event::IrqExit { irq, cpu } => self.interrupt(now, NodeId(stream), irq, cpu, false),
            Event::Replenish { server, .. }
            | Event::Exhaust { server }
            | Event::ServerIdle { server }
            | Event::Charge { server, .. } => self.server(now, server, event),
            Event::Gap { job } if job.task.index() < self.scene.tasks.len() => {
                self.lose_job(now, job.task);
                self.instant(now, job, "events missing");
            }
            Event::Lost { count } if known_node => {
                self.end_interrupts(now, stream as usize);
                self.lose_jobs(now, NodeId(stream));
                self.tracker.lose(NodeId(stream));
                let args = [(argument("count"), Value::Uint(count))];
                self.track_event(now, INSTANT, node_track(NodeId(stream)), event_name("events lost"), &args);
            }
            _ => {}
        }
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &Definition) {
        let is_known = matches!(definition, Definition::Task(id, def) if self.scene.tasks.get(id.index())
            .is_some_and(|task| task.name == def.name && task.node == def.node));
        self.scene.define(definition);
        self.tracker.define(definition);
        if self.error.is_none() && !is_known {
            self.error = self.define_late(definition).err();
        }
    }
}
