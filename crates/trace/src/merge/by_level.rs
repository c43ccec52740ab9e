//! Runs of a dispatcher, which says what becomes of its jobs.
//!
//! The dispatcher knows which job begins and ends when, and on which CPU; the kernel knows which thread had that CPU. A thread takes a job while it has its CPU, so
//! that the job's thread is the one that the kernel has there. Releases, starts, completions, cancellations and misses are told as they come; from the kernel come:
//!
//! | event | when |
//! |---|---|
//! | preempt, resume | when the CPU went from the job's thread to another one, and came back |
//! | block, wake | when the job's thread slept or waited, and was woken; also where it was ready and its CPU idle or with an ordinary thread: the kernel stopped it |
//! | occupy | when the CPU went to a thread that is not the dispatcher's, to nobody, or to one of the dispatcher's without a job |
//! | gap | where switches of the job's thread are missing: whatever is counted of the job is unknown |

use std::collections::VecDeque;

use takt_log::{Event, JobKey, Sink};
use takt_model::Time;

use super::by_task::Merged;
use super::seen::{Onlooker, Seen, SeenWhat as What, Why, enqueue};
use super::strangers::{Line, Strangers};

/// A thread of a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worker {
    /// Its model CPU.
    pub cpu: u32,
    /// Whether it runs jobs; the others keep time.
    pub works: bool,
}

/// Merges both accounts into one stream.
pub struct ByLevel {
    stream: u32,
    lanes: Vec<Worker>,
    /// Not yet looked at, each in the order of time.
    events: VecDeque<(Time, Event)>,
    seen: VecDeque<Seen>,
    cpus: Vec<Cpu>,
    strangers: Strangers,
    settled: Time,
    told: Time,
    /// How many gaps of the kernel's account are open.
    blind: u32,
    missing: u64,
}

/// Who has a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Unknown,
    /// A thread of the dispatcher; nothing of one that runs jobs and of which the switch was not told.
    Ours(Option<usize>),
    Other,
}

/// A job that has started and is not over.
struct Open {
    job: JobKey,
    /// Its thread, where that is known.
    lane: Option<usize>,
    /// The log says that it has the CPU.
    runs: bool,
    /// The log says that it waits.
    waits: bool,
}

struct Cpu {
    holder: Holder,
    /// The kernel has told of it since the beginning, or since events were lost.
    heard: bool,
    open: Vec<Open>,
}

impl ByLevel {
    /// Of a dispatcher with these threads on so many CPUs.
    #[must_use]
    pub fn new(stream: u32, lanes: Vec<Worker>, cpus: u32) -> ByLevel {
        let cpus = lanes.iter().map(|lane| lane.cpu.saturating_add(1)).chain([cpus]).max().unwrap_or(0);
        let cpu = |_| Cpu { holder: Holder::Unknown, heard: false, open: Vec::new() };
        ByLevel {
            stream,
            lanes,
            events: VecDeque::new(),
            seen: VecDeque::new(),
            cpus: (0..cpus).map(cpu).collect(),
            strangers: Strangers::new(stream),
            settled: Time::ZERO,
            told: Time::ZERO,
            blind: 0,
            missing: 0,
        }
    }

    /// Nothing more will be told of what was before `until`, by neither; passes on what is settled.
    pub fn advance(&mut self, until: Time, sink: &mut (impl Sink + ?Sized)) {
        self.settled = self.settled.max(until);
        loop {
            // At one instant: jobs end, then the kernel switches, then jobs begin.
            let ends = |event: &Event| matches!(event, Event::Complete { .. } | Event::Cancel { .. });
            let event = self.events.front().map(|(at, event)| (*at, if ends(event) { 0 } else { 2 }));
            let seen = self.seen.front().map(|seen| (seen.at, 1));
            match (event, seen) {
                (event, Some(seen)) if seen.0 < self.settled && event.is_none_or(|event| seen < event) => {
                    if let Some(seen) = self.seen.pop_front() {
                        self.saw(seen, sink);
                    }
                }
                (Some(event), _) if event.0 < self.settled => {
                    if let Some((at, event)) = self.events.pop_front() {
                        self.heard(at, event, sink);
                    }
                }
                _ => return,
            }
        }
    }

    /// Both accounts are whole, and the run ended at `end`: tells the rest.
    pub fn finish(mut self, end: Time, sink: &mut (impl Sink + ?Sized)) -> Merged {
        // What the kernel did afterwards is not the run's.
        self.seen.retain(|seen| seen.at <= end);
        self.advance(Time::MAX, sink);
        Merged { last: self.told, stamped: Vec::new(), missing: self.missing }
    }

    fn say(&mut self, at: Time, event: Event, sink: &mut (impl Sink + ?Sized)) {
        self.told = self.told.max(at);
        sink.event(self.stream, self.told, &event);
    }

    fn lines(&mut self, at: Time, lines: &[Line], sink: &mut (impl Sink + ?Sized)) {
        self.told = self.told.max(at);
        lines.iter().for_each(|line| line.tell(self.stream, self.told, sink));
    }

    /// The job of a lane that has started and is not over.
    fn open(&mut self, lane: usize) -> Option<&mut Open> {
        let cpu = self.lanes.get(lane)?.cpu as usize;
        self.cpus.get_mut(cpu)?.open.iter_mut().find(|open| open.lane == Some(lane))
    }
}

/// What the dispatcher says.
impl ByLevel {
    fn heard(&mut self, at: Time, event: Event, sink: &mut (impl Sink + ?Sized)) {
        match event {
            Event::Start { job, cpu } => {
                self.say(at, event, sink);
                self.start(at, job, cpu, sink);
            }
            Event::Complete { job, .. } => {
                self.forget_before(job);
                self.end(at, job, false, sink);
                self.say(at, event, sink);
            }
            Event::Cancel { job, cause } => {
                self.end(at, job, cause == takt_log::CancelCause::Late, sink);
                self.say(at, event, sink);
            }
            Event::Lost { .. } => {
                self.say(at, event, sink);
                self.strangers.forget();
                // Which jobs began or ended meanwhile nobody knows.
                for cpu in &mut self.cpus {
                    cpu.open.clear();
                    cpu.holder = Holder::Unknown;
                }
            }
            // The dispatcher's own idea of who has the CPU.
            Event::Preempt { .. } | Event::Resume { .. } | Event::Gap { .. } => {}
            _ => self.say(at, event, sink),
        }
    }

    /// Jobs of a task end in turn: what was before this one and is still here ended untold.
    fn forget_before(&mut self, job: JobKey) {
        let stale = |open: &Open| open.job.task == job.task && open.job.number < job.number;
        for cpu in &mut self.cpus {
            cpu.open.retain(|open| !stale(open));
        }
    }

    fn start(&mut self, at: Time, job: JobKey, cpu: u32, sink: &mut (impl Sink + ?Sized)) {
        self.forget_before(job);
        let blind = self.blind > 0;
        let Some(here) = self.cpus.get_mut(cpu as usize) else { return };
        let works = |lane: usize| self.lanes.get(lane).is_some_and(|lane| lane.works);
        let lane = match here.holder {
            Holder::Ours(Some(lane)) if works(lane) && here.open.iter().all(|open| open.lane != Some(lane)) => {
                Some(lane)
            }
            _ => None,
        };
        let unseen = lane.is_none() && here.holder != Holder::Ours(None) && here.heard;
        // Whoever had the CPU by the log lost it unseen.
        let mut gaps = here.lose_unseen(None);
        here.open.push(Open { job, lane, runs: true, waits: false });
        // Where the kernel tells nothing, nobody knows how long the job keeps the CPU.
        here.holder = if here.heard && !blind { Holder::Ours(lane) } else { Holder::Unknown };
        self.missing += u64::from(unseen && !blind);
        if blind {
            gaps.push(job);
        }
        for job in gaps {
            self.say(at, Event::Gap { job }, sink);
        }
    }

    /// A job completed, or was cancelled; `dropped` where that was at its deadline.
    fn end(&mut self, at: Time, job: JobKey, dropped: bool, sink: &mut (impl Sink + ?Sized)) {
        let blind = self.blind > 0;
        let Some(here) = self.cpus.iter_mut().find(|cpu| cpu.open.iter().any(|open| open.job == job)) else { return };
        let Some(place) = here.open.iter().position(|open| open.job == job) else { return };
        let Open { lane, runs, .. } = here.open.remove(place);
        let unseen = !runs && !dropped;
        if let Some(lane) = lane.filter(|_| !dropped && here.heard && !blind) {
            here.holder = Holder::Ours(Some(lane));
        }
        if unseen {
            self.missing += u64::from(!blind && here.heard);
            self.say(at, Event::Gap { job }, sink);
        }
    }
}

/// What the kernel says.
impl ByLevel {
    fn saw(&mut self, seen: Seen, sink: &mut (impl Sink + ?Sized)) {
        let at = seen.at;
        match seen.what {
            What::Woken { lane } => {
                if let Some(open) = self.open(lane)
                    && std::mem::take(&mut open.waits)
                {
                    let job = open.job;
                    self.say(at, Event::Wake { job }, sink);
                }
            }
            What::In { lane, cpu } => self.came(at, lane, cpu, sink),
            What::Out { lane, cpu, why } => self.left(at, lane, cpu, why, sink),
            What::Other { cpu, thread } => {
                if let Some(here) = self.cpus.get_mut(cpu as usize) {
                    here.heard |= self.blind == 0;
                    here.holder = Holder::Other;
                    let lines = self.strangers.got(cpu, &thread);
                    self.lines(at, &lines, sink);
                }
            }
            What::Gave { cpu, thread } => {
                let lines = self.strangers.gave(cpu, &thread);
                self.lines(at, &lines, sink);
            }
            What::Interrupt { cpu, kind, number, name, begins } => {
                let lines = self.strangers.interrupt(cpu, kind, number, &name, begins);
                self.lines(at, &lines, sink);
            }
            What::Stolen { cpu, span, within } => self.say(at, Event::Steal { cpu, span, within }, sink),
            What::Blind { count } => {
                self.blind += 1;
                self.say(at, Event::Lost { count }, sink);
                self.strangers.forget();
                let mut gaps = Vec::new();
                for cpu in &mut self.cpus {
                    cpu.forget();
                    gaps.extend(cpu.open.iter().map(|open| open.job));
                }
                for job in gaps {
                    self.say(at, Event::Gap { job }, sink);
                }
            }
            What::Sighted => {
                self.blind = self.blind.saturating_sub(1);
                self.cpus.iter_mut().for_each(Cpu::forget);
            }
        }
    }

    /// A thread got its CPU.
    fn came(&mut self, at: Time, lane: usize, cpu: u32, sink: &mut (impl Sink + ?Sized)) {
        let blind = self.blind > 0;
        let Some(here) = self.cpus.get_mut(cpu as usize) else { return };
        let sure = std::mem::replace(&mut here.heard, !blind);
        here.holder = Holder::Ours(Some(lane));
        // Whose job had the CPU by the log lost it unseen.
        let mut lines: Vec<Event> = here.lose_unseen(Some(lane)).into_iter().map(|job| Event::Gap { job }).collect();
        match here.open.iter_mut().find(|open| open.lane == Some(lane)) {
            Some(open) => {
                let job = open.job;
                if std::mem::take(&mut open.waits) {
                    lines.push(Event::Wake { job });
                }
                if std::mem::replace(&mut open.runs, true) {
                    lines.push(Event::Gap { job });
                } else {
                    lines.push(Event::Resume { job, cpu });
                }
            }
            None => {
                let lines = self.strangers.takt(cpu);
                self.lines(at, &lines, sink);
            }
        }
        let gap = |line: &&Event| matches!(line, Event::Gap { .. });
        self.missing += lines.iter().filter(gap).count() as u64 * u64::from(!blind && sure);
        for line in lines {
            self.say(at, line, sink);
        }
    }

    /// A thread left its CPU.
    fn left(&mut self, at: Time, lane: usize, cpu: u32, why: Why, sink: &mut (impl Sink + ?Sized)) {
        let works = self.lanes.get(lane).is_some_and(|lane| lane.works);
        let blind = self.blind > 0;
        let Some(here) = self.cpus.get_mut(cpu as usize) else { return };
        let sure = std::mem::replace(&mut here.heard, !blind);
        // That it came was not told: a job that began meanwhile is its.
        if works && here.holder != Holder::Ours(Some(lane)) && here.open.iter().all(|open| open.lane != Some(lane)) {
            let mut unplaced = here.open.iter_mut().filter(|open| open.lane.is_none());
            if let (Some(open), None) = (unplaced.next(), unplaced.next()) {
                open.lane = Some(lane);
            }
        }
        let mut line = None;
        let mut unseen = false;
        if let Some(open) = here.open.iter_mut().find(|open| open.lane == Some(lane)) {
            let job = open.job;
            open.waits = matches!(why, Why::Asleep | Why::Held);
            unseen = !std::mem::take(&mut open.runs) && sure;
            line = match why {
                Why::Ended => None,
                _ if unseen => Some(Event::Gap { job }),
                Why::Taken => Some(Event::Preempt { job, cpu }),
                Why::Stopped | Why::Asleep | Why::Held => Some(Event::Block { job, cpu }),
            };
        }
        here.holder = Holder::Unknown;
        self.missing += u64::from(unseen && !blind);
        if let Some(line) = line {
            self.say(at, line, sink);
        }
    }
}

impl Cpu {
    /// Events were lost, or were until now.
    fn forget(&mut self) {
        (self.holder, self.heard) = (Holder::Unknown, false);
        for open in &mut self.open {
            (open.runs, open.waits) = (false, false);
        }
    }

    /// The jobs of threads but this one that had the CPU by the log have it no more.
    fn lose_unseen(&mut self, but: Option<usize>) -> Vec<JobKey> {
        let mut lost = Vec::new();
        for open in &mut self.open {
            if (but.is_none() || open.lane != but) && std::mem::take(&mut open.runs) {
                lost.push(open.job);
            }
        }
        lost
    }
}

impl Sink for ByLevel {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        self.events.push_back((now.max(self.settled), *event));
    }
}

impl Onlooker for ByLevel {
    fn see(&mut self, seen: Seen) {
        enqueue(&mut self.seen, self.settled, seen);
    }
}
