//! A run of a prober. Threads send, receive, compare clocks, and send bulk packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use takt_linux::Epoch;
use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::datagram::Datagrams;
use takt_model::{Span, Time};
use takt_net::probe::{Arrivals, Arrived, MESSAGE_MAX, NUMBERS_MAX, Pace, ProbeMessage, Schedule, Send};

use super::offsets::{Offsets, follow};
use super::path::{Arrival, Inbox, Path, Welcome};
use super::{
    ClocksSpec, Message, ProbeError, ProbeOutcome, ProbeSpec, Progress, REPLIES_MAX, Reply, ServerOutcome, background,
};
use crate::time_sync::{TimeSync, TimeSyncSpec, random};

/// How often progress is told.
const LOOK: Span = Span::from_ms(50);

/// Measures. `stop` ends the sending early; `progress` is called now and then.
///
/// # Errors
/// A value out of range, or a server, a broker or a socket that is not there.
pub fn probe(
    spec: &ProbeSpec,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(Progress),
) -> Result<ProbeOutcome, ProbeError> {
    spec.check()?;
    let began = Time::from_ns(monotonic_ns());
    let mut path = Path::open(spec, random(), stop)?;
    let welcomed = spec.group.as_ref().map(|group| path.gather(group)).transpose()?;
    // From here on the servers of a group stand in its place.
    let grouped = welcomed.as_ref().map(|_| ProbeSpec { servers: path.servers().to_vec(), ..spec.clone() });
    let spec = grouped.as_ref().unwrap_or(spec);
    let mut inbox = Inbox::new(spec.servers.len());
    let welcomes = match welcomed {
        Some(welcomes) => welcomes,
        None => path.greet(&mut inbox)?,
    };
    if let (Some(broker), Some(deadline)) = (&spec.broker, spec.schedule.deadline) {
        path.join(broker, deadline)?;
    }
    let mut sync = spec.clocks.map(|clocks| compare(spec, &clocks, &welcomes)).transpose()?;
    let bulk = match &spec.background {
        Some(bulk) => Some((bulk, Datagrams::bind(any(spec), bulk.priority, 1 << 20, LOOK)?)),
        None => None,
    };
    let sinks: Vec<SocketAddr> =
        spec.servers.iter().zip(&welcomes).map(|(server, welcome)| at_port(*server, welcome.sink_port)).collect();
    let over = AtomicBool::new(false);
    let live = Live {
        sent: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        asked: AtomicU64::new(0),
        end: AtomicU64::new(0),
        stop,
    };
    std::thread::scope(|scope| {
        let clocks = sync.as_mut().zip(spec.clocks).map(|(sync, clocks)| {
            let run = spec.duration.saturating_add(spec.warm_up).saturating_add(spec.patience);
            let (servers, over) = (spec.servers.len(), &over);
            (clocks, scope.spawn(move || follow(sync, servers, clocks.drift_ppm, run, over)))
        });
        if let Some((clocks, _)) = &clocks {
            pause(clocks.before);
        }
        let bulk = bulk.as_ref().map(|(bulk, socket)| scope.spawn(|| background::send(bulk, socket, &sinks, &over)));
        let start = Epoch::in_future(Span::from_ms(1));
        let (path, live) = (&path, &live);
        let (sent, replies) = if spec.is_closed {
            let run = scope.spawn(move || {
                let mut replies = Replies::new(spec);
                let sent = send(spec, path, live, start, Some((&mut inbox, &mut replies)));
                (sent, replies, inbox)
            });
            watch(&run, live, start, progress);
            let (sent, replies, back) = joined(run);
            inbox = back;
            (sent, replies)
        } else {
            let receiver = scope.spawn(move || {
                let mut replies = Replies::new(spec);
                while !(live.is_over() || (live.has_sent() && inbox.have_all_ended())) {
                    replies.receive(path, &mut inbox, live);
                }
                (replies, inbox)
            });
            let sender = scope.spawn(move || send(spec, path, live, start, None));
            watch(&receiver, live, start, progress);
            let (replies, back) = joined(receiver);
            inbox = back;
            (joined(sender), replies)
        };
        // Without the questions that follow.
        let broker = path.broker();
        let reports = path.ask(&mut inbox);
        over.store(true, Ordering::Release);
        let offsets = clocks.map(|(clocks, thread)| (clocks, joined(thread)));
        let mut outcome = account(spec, sent, replies, offsets.as_ref());
        let elapsed = Time::from_ns(monotonic_ns()).saturating_since(began);
        for (place, ((server, report), welcome)) in outcome.servers.iter_mut().zip(reports).zip(&welcomes).enumerate() {
            let bytes = server.sent_bytes.saturating_add(server.unsent.saturating_mul(MESSAGE_MAX as u64));
            server.arrived = report.filter(|report| report.is_possible(server.sent + server.unsent, bytes, elapsed));
            server.is_report_refused = server.arrived.is_none() && report.is_some();
            (server.kernel_stamps, server.has_ended) = (welcome.kernel_stamps, path.has_ended(place));
        }
        outcome.foreign += inbox.foreign;
        outcome.kernel_stamps = path.kernel_stamps;
        outcome.background_bytes = bulk.map_or(0, joined);
        outcome.broker = broker;
        Ok(outcome)
    })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn any(spec: &ProbeSpec) -> SocketAddr {
    let any = if spec.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    SocketAddr::new(any, 0)
}

fn at_port(mut server: SocketAddr, port: u16) -> SocketAddr {
    server.set_port(port);
    server
}

fn compare(spec: &ProbeSpec, clocks: &ClocksSpec, welcomes: &[Welcome]) -> Result<TimeSync, ProbeError> {
    let peers = spec.servers.iter().zip(welcomes);
    let peers = peers.map(|(server, welcome)| at_port(*server, welcome.clock_port)).collect();
    let spec = TimeSyncSpec {
        listen: any(spec),
        peers,
        period: clocks.period,
        drift_ppm: clocks.drift_ppm,
        priority: spec.priority,
        // One-way delays are proven by exchanges alone.
        sources: None,
    };
    Ok(TimeSync::bind(&spec)?)
}

/// State that the threads of a run share.
struct Live<'a> {
    sent: AtomicU64,
    answered: AtomicU64,
    asked: AtomicU64,
    /// After the last send: until when replies are awaited.
    end: AtomicU64,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Live<'_> {
    fn has_sent(&self) -> bool {
        self.end.load(Ordering::Acquire) != 0
    }

    /// Nothing more is sent, and all replies have come or are lost.
    fn is_over(&self) -> bool {
        let end = self.end.load(Ordering::Acquire);
        let has_all = self.answered.load(Ordering::Relaxed) >= self.asked.load(Ordering::Relaxed);
        end != 0 && (has_all || monotonic_ns() >= end)
    }
}

fn watch<T>(
    thread: &std::thread::ScopedJoinHandle<'_, T>,
    live: &Live,
    start: Epoch,
    progress: &mut dyn FnMut(Progress),
) {
    let mut told = start.now();
    while !thread.is_finished() {
        pause(Span::from_ms(20));
        let elapsed = start.now();
        if elapsed.saturating_since(told) >= LOOK {
            told = elapsed;
            let [sent, answered] = [&live.sent, &live.answered].map(|count| count.load(Ordering::Relaxed));
            progress(Progress { elapsed: elapsed.saturating_since(Time::ZERO), sent, answered });
        }
    }
}

/// Counts of the messages to a server, without warm-up.
#[derive(Clone, Copy, Default)]
struct SentTo {
    sent: u64,
    bytes: u64,
    unsent: u64,
    asked: u64,
}

#[derive(Default)]
struct SentAll {
    /// All messages that asked for a reply, in their order, warm-up included.
    asked: Vec<Message>,
    /// How many of them belong to the warm-up.
    warm_up: usize,
    servers: Vec<SentTo>,
    skipped: u64,
    is_full: bool,
    is_stopped: bool,
    first: Option<Time>,
    last: Time,
}

/// Sends all messages. In a closed loop it receives the replies itself.
fn send(
    spec: &ProbeSpec,
    path: &Path,
    live: &Live,
    start: Epoch,
    mut closed: Option<(&mut Inbox, &mut Replies)>,
) -> SentAll {
    let servers = vec![SentTo::default(); spec.servers.len()];
    let mut all = SentAll { servers, asked: Vec::with_capacity(expected(spec)), ..SentAll::default() };
    let mut schedule_spec = spec.schedule.clone();
    schedule_spec.servers = if path.is_group() { 1 } else { spec.servers.len() as u32 };
    let is_paced = schedule_spec.pace != Pace::Max;
    let warm_up = if matches!(schedule_spec.pace, Pace::Playback(_)) { Span::ZERO } else { spec.warm_up };
    let until = Time::ZERO.saturating_add(warm_up).saturating_add(spec.duration);
    path.wait_until(start.monotonic(until.saturating_add(spec.patience)));
    let mut buffer = vec![0; MESSAGE_MAX];
    let (mut first_of_burst, mut handled) = (0, 0);
    while !start.sleep_until(Time::ZERO) {}
    let mut schedule = Schedule::new(&schedule_spec).take_while(|send| send.at < until).peekable();
    while let Some(next) = schedule.next() {
        let has_slept = sleep(start, next.at, live);
        let now = start.now();
        let is_behind = now >= if is_paced { until.saturating_add(spec.patience) } else { until };
        let is_full = next.number >= NUMBERS_MAX || all.asked.len() as u64 >= REPLIES_MAX;
        if !has_slept || is_behind || is_full || path.have_all_ended() {
            if let Pace::BurstsPerSecond(_) = &spec.schedule.pace {
                all.skipped += 1 + schedule.by_ref().count() as u64;
            }
            (all.is_full, all.is_stopped) = (is_full && !is_behind, !has_slept);
            break;
        }
        handled = next.number + 1;
        let is_warm_up = Time::ZERO.saturating_add(warm_up) > if is_paced { next.at } else { now };
        if path.has_ended(next.server as usize) {
            all.skipped += u64::from(is_paced);
        } else {
            send_one(path, live, start, (&next, is_paced, is_warm_up), &mut all, &mut buffer);
        }
        if let Some((inbox, replies)) = &mut closed
            && schedule.peek().is_none_or(|after| after.burst != next.burst)
        {
            replies.await_burst(&all.asked, first_of_burst, spec.patience, (path, inbox, live));
            first_of_burst = next.number + 1;
        }
    }
    if let Pace::Playback(sends) = &spec.schedule.pace {
        all.skipped += (sends.len() as u64).saturating_sub(handled);
    }
    // The run may have ended within a burst.
    if let Some((inbox, replies)) = &mut closed {
        replies.await_burst(&all.asked, first_of_burst, spec.patience, (path, inbox, live));
    }
    live.end.store(monotonic_ns().saturating_add(spec.patience.as_ns()).max(1), Ordering::Release);
    all
}

/// Until `at` of the run. `false`: it shall stop.
fn sleep(start: Epoch, at: Time, live: &Live) -> bool {
    while start.now() < at {
        // A stop is seen soon.
        let _ = start.sleep_until(at.min(start.now().saturating_add(LOOK)));
        if (live.stop)() {
            return false;
        }
    }
    !(live.stop)()
}

fn send_one(
    path: &Path,
    live: &Live,
    start: Epoch,
    (next, is_paced, is_warm_up): (&Send, bool, bool),
    all: &mut SentAll,
    buffer: &mut [u8],
) {
    let server = next.server as usize;
    let targets = if path.is_group() { 0..path.servers().len() } else { server..server + 1 };
    let asked = if next.wants_reply { targets.len() as u64 } else { 0 };
    // Before the send: its reply may come at once.
    live.asked.fetch_add(asked, Ordering::Relaxed);
    let sent = Time::from_ns(monotonic_ns());
    let intended = if is_paced { start.monotonic(next.at) } else { sent };
    let left = next.deadline.unwrap_or(Span::ZERO).saturating_sub(sent.saturating_since(intended));
    let message = ProbeMessage::Data { number: next.number, sent, wants_reply: next.wants_reply, is_warm_up };
    let was_taken = match path.is_group() {
        true => path.send_to_group(message, next.size, left, buffer),
        false => path.send(server, message, next.size, left, buffer),
    };
    if !was_taken {
        live.asked.fetch_sub(asked, Ordering::Relaxed);
    }
    for server in targets {
        if next.wants_reply {
            all.warm_up += usize::from(is_warm_up);
            all.asked.push(Message {
                number: next.number,
                server: server as u32,
                size: next.size,
                intended,
                sent: was_taken.then_some(sent),
                deadline: next.deadline,
                reply: None,
            });
        }
        let Some(to) = all.servers.get_mut(server).filter(|_| !is_warm_up) else { continue };
        if was_taken {
            (to.sent, to.bytes) = (to.sent + 1, to.bytes + u64::from(next.size));
            to.asked += u64::from(next.wants_reply);
        } else {
            to.unsent += 1;
        }
    }
    if was_taken && !is_warm_up {
        all.first.get_or_insert(sent);
        all.last = sent;
        live.sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// A reply as it came.
#[derive(Clone, Copy)]
struct RawReply {
    number: u64,
    server: u32,
    sent: Time,
    received: (Time, Time),
    came: Arrival,
}

/// Replies that a run expects. Memory that grew during the run would hold up its threads.
fn expected(spec: &ProbeSpec) -> usize {
    let every = u64::from(spec.schedule.reply_every);
    match &spec.schedule.pace {
        _ if every == 0 => 0,
        Pace::Max => 1 << 20,
        Pace::Playback(sends) => sends.len(),
        Pace::BurstsPerSecond(rate) => {
            let seconds = spec.duration.saturating_add(spec.warm_up).as_ns() / 1_000_000_000 + 1;
            let all = seconds * u64::from(*rate) * u64::from(spec.schedule.burst.1);
            let each = if spec.group.is_some() { spec.servers.len() as u64 } else { 1 };
            (all / every).saturating_mul(each).min(REPLIES_MAX) as usize
        }
    }
}

/// The replies in the order in which they came.
struct Replies {
    list: Vec<RawReply>,
    every: u64,
    servers: u64,
    /// Each message goes to all servers; else to one in turn.
    is_group: bool,
    /// The messages that they answer, by server.
    answered: Vec<Arrivals>,
    /// The messages from number `from` on that are answered.
    of_burst: usize,
    from: u64,
    /// Replies beyond those that are kept.
    foreign: u64,
}

impl Replies {
    fn new(spec: &ProbeSpec) -> Replies {
        let (every, servers) = (u64::from(spec.schedule.reply_every), spec.servers.len() as u64);
        let list = Vec::with_capacity(expected(spec));
        let (is_group, answered) = (spec.group.is_some(), vec![Arrivals::default(); spec.servers.len()]);
        Replies { list, every, servers, is_group, answered, of_burst: 0, from: 0, foreign: 0 }
    }

    /// Receives until all sent messages from number `from` on are answered, or are lost.
    fn await_burst(
        &mut self,
        asked: &[Message],
        from: u64,
        patience: Span,
        (path, inbox, live): (&Path, &mut Inbox, &Live),
    ) {
        let lost_at = Time::from_ns(monotonic_ns()).saturating_add(patience);
        let in_burst = asked.iter().rev().take_while(|message| message.number >= from);
        let awaited = in_burst.filter(|message| message.sent.is_some()).count();
        (self.of_burst, self.from) = (0, from);
        while self.of_burst < awaited && Time::from_ns(monotonic_ns()) < lost_at && !inbox.have_all_ended() {
            self.receive(path, inbox, live);
        }
    }

    /// Whether it is the first reply to a number that this server got.
    fn is_first(&mut self, number: u64, server: usize) -> bool {
        let turn = number.checked_div(self.every).map(|turn| (turn % self.servers) as usize);
        let is_asked = turn.is_some_and(|turn| self.is_group || turn == server) && number.is_multiple_of(self.every);
        let answered = self.answered.get_mut(server).filter(|_| is_asked);
        answered.is_some_and(|answered| matches!(answered.take(number), Arrived::InOrder | Arrived::Reordered))
    }

    fn receive(&mut self, path: &Path, inbox: &mut Inbox, live: &Live) {
        inbox.receive(path, &mut |server, message, came| {
            let ProbeMessage::Reply { number, sent, received_from, received_to, .. } = message else { return };
            // A wrong server may answer without end.
            let max = live.asked.load(Ordering::Relaxed).saturating_mul(2).saturating_add(64);
            if self.list.len() as u64 >= max {
                self.foreign += 1;
            } else {
                let received = (received_from, received_to);
                self.list.push(RawReply { number, server: server as u32, sent, received, came });
            }
            if self.is_first(number, server) {
                self.of_burst += usize::from(number >= self.from);
                live.answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// Brings messages, replies and clocks together.
fn account(
    spec: &ProbeSpec,
    sent: SentAll,
    replies: Replies,
    clocks: Option<&(ClocksSpec, Vec<Offsets>)>,
) -> ProbeOutcome {
    let SentAll { mut asked, warm_up, servers, skipped, is_full, is_stopped, first, last } = sent;
    let mut order = vec![Arrivals::default(); servers.len()];
    let mut answered = vec![0; servers.len()];
    let mut foreign = replies.foreign;
    for raw in replies.list {
        let place = asked.binary_search_by_key(&(raw.number, raw.server), |message| (message.number, message.server));
        let place = place.unwrap_or(usize::MAX);
        let message = asked.get_mut(place);
        let Some(message) = message.filter(|message| (message.server, message.sent) == (raw.server, Some(raw.sent)))
        else {
            foreign += 1;
            continue;
        };
        let server = raw.server as usize;
        let is_lost = raw.came.received.saturating_since(raw.sent) > spec.patience;
        if place < warm_up || is_lost || order[server].take(raw.number) == Arrived::Duplicate {
            continue;
        }
        answered[server] += 1;
        let arrived = clocks.and_then(|(clocks, offsets)| arrived(&raw, clocks, offsets.get(server)?));
        message.reply = Some(Reply { received: raw.came.received, stamped: raw.came.stamped, arrived });
    }
    let outcome = |(server, to): (usize, &SentTo)| ServerOutcome {
        address: spec.servers[server],
        kernel_stamps: false,
        sent: to.sent,
        sent_bytes: to.bytes,
        unsent: to.unsent,
        asked: to.asked,
        has_ended: false,
        is_report_refused: false,
        arrived: None,
        answered: answered[server],
        duplicate_replies: order[server].duplicates,
        reordered_replies: order[server].reordered,
        offset: clocks.and_then(|(_, offsets)| offsets.get(server)?.last()),
    };
    let servers = servers.iter().enumerate().map(outcome).collect();
    ProbeOutcome {
        messages: asked.split_off(warm_up.min(asked.len())),
        servers,
        duration: first.map_or(Span::ZERO, |first| last.saturating_since(first)),
        foreign,
        kernel_stamps: false,
        skipped,
        is_full,
        is_stopped,
        background_bytes: 0,
        broker: None,
    }
}

/// The own times between which a message arrived at its server.
fn arrived(raw: &RawReply, clocks: &ClocksSpec, offsets: &Offsets) -> Option<(Time, Time)> {
    let end = raw.came.stamped.unwrap_or(raw.came.received);
    let (low, high) = offsets.within(raw.sent, end)?;
    if high.abs_diff(low) > clocks.width_max.as_ns() {
        return None;
    }
    let own = |time: Time, by: i64| Time::from_ns(time.as_ns().saturating_add_signed(by));
    // It arrived after its send, and before its reply.
    let (from, to) = (own(raw.received.0, low).max(raw.sent), own(raw.received.1, high).min(end));
    (from <= to).then_some((from, to))
}
