use super::*;
use takt_linux::Class;
use takt_model::Task;

const NS: fn(u64) -> Time = Time::from_ns;

/// Lanes by their predecessors; deadlines are 10 ns.
fn lanes(after: &[&[usize]]) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = (0..after.len()).map(|i| Lane::new(TaskId(i as u32), Class::Other, false, 8)).collect();
    for (i, before) in after.iter().enumerate() {
        lanes[i].after = before.to_vec();
    }
    lanes
}
/// Relative deadlines; all releases come from the rings.
fn due<'a>(deadline_ns: u64, lanes: usize) -> Vec<LaneTask<'a>> {
    (0..lanes).map(|_| LaneTask { deadline: Span::from_ns(deadline_ns), releases: None }).collect()
}
fn push(lane: &Lane, at: u64, kind: Kind, number: u64, value: u64) {
    lane.ring.push(Record { at: NS(at), kind, number, value }.to_words());
    lane.floor.store(at, Ordering::Release);
}
fn floor(lane: &Lane, at: u64) {
    lane.floor.store(at, Ordering::Release);
}
/// One line per event, as `time what task.number`.
fn lines(events: &[(u32, Time, Event)]) -> Vec<String> {
    let line = |(_, at, event): &(u32, Time, Event)| {
        let (what, job) = match *event {
            Event::Release { job, arrival, parent: None } => (format!("release@{}", arrival.as_ns()), job),
            Event::Release { job, parent: Some(p), .. } => (format!("release<{}^{}", p.origin.as_ns(), p.hop), job),
            Event::Start { job, cpu } => (format!("start/{cpu}"), job),
            Event::Complete { job, cpu } => (format!("complete/{cpu}"), job),
            Event::Miss { job } => ("miss".to_owned(), job),
            other => return format!("{} {other:?}", at.as_ns()),
        };
        format!("{} {what} {}.{}", at.as_ns(), job.task.0, job.number)
    };
    events.iter().map(line).collect()
}

#[test]
fn nothing_is_told_before_it_is_certain_and_all_in_order() {
    let lanes = lanes(&[&[], &[]]);
    let mut events = Vec::new();
    let mut recorder = Recorder::new(Plain { sink: &mut events, stream: 3 }, &[4, 7], &lanes, due(10, 2));
    push(&lanes[0], 5, Kind::Release, 0, 5);
    push(&lanes[0], 6, Kind::Start, 0, 7);
    recorder.drain(&lanes, NS(1000));
    push(&lanes[1], 2, Kind::Release, 0, 1);
    push(&lanes[1], 3, Kind::Start, 0, 4);
    recorder.drain(&lanes, NS(1000));
    push(&lanes[1], 8, Kind::Complete, 0, 4);
    push(&lanes[0], 9, Kind::Complete, 0, 7);
    floor(&lanes[0], u64::MAX);
    floor(&lanes[1], u64::MAX);
    let (lost, last, _) = recorder.finish(&lanes, NS(20));
    assert_eq!((lost, last), (0, NS(9)));
    assert!(events.iter().all(|(stream, _, _)| *stream == 3));
    assert_eq!(
        lines(&events),
        [
            "2 release@1 1.0",
            "3 start/0 1.0",
            "5 release@5 0.0",
            "6 start/1 0.0",
            "8 complete/0 1.0",
            "9 complete/1 0.0"
        ]
    );
}

#[test]
fn an_open_lane_holds_back_later_events_of_others() {
    let lanes = lanes(&[&[], &[]]);
    let mut events = Vec::new();
    let mut recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0], &lanes, due(10, 2));
    push(&lanes[0], 5, Kind::Release, 0, 5);
    floor(&lanes[1], 4);
    recorder.drain(&lanes, NS(1000));
    assert_eq!(recorder.last_emitted, NS(0), "lane 1 may still write at 4");
    floor(&lanes[1], 6);
    recorder.drain(&lanes, NS(1000));
    assert_eq!(recorder.last_emitted, NS(5));
}

#[test]
fn misses_stand_at_the_deadline_and_completing_at_it_is_in_time() {
    let lanes = lanes(&[&[], &[]]);
    let mut events = Vec::new();
    let recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0], &lanes, due(10, 2));
    push(&lanes[0], 0, Kind::Release, 0, 0);
    push(&lanes[0], 10, Kind::Complete, 0, 0);
    push(&lanes[1], 1, Kind::Release, 0, 0);
    push(&lanes[1], 11, Kind::Complete, 0, 0);
    push(&lanes[1], 30, Kind::Release, 1, 15);
    floor(&lanes[0], u64::MAX);
    floor(&lanes[1], u64::MAX);
    recorder.finish(&lanes, NS(40));
    assert_eq!(
        lines(&events),
        [
            "0 release@0 0.0",
            "1 release@0 1.0",
            "10 complete/0 0.0",
            "10 miss 1.0",
            "11 complete/0 1.0",
            "30 release@15 1.1",
            // Released only after its deadline, 25: the stream does not go back.
            "30 miss 1.1",
        ]
    );
}

#[test]
fn the_end_is_a_deadline_that_counts() {
    let lanes = lanes(&[&[]]);
    let mut events = Vec::new();
    let mut recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0], &lanes, due(10, 1));
    push(&lanes[0], 0, Kind::Release, 0, 0);
    push(&lanes[0], 1, Kind::Release, 1, 1);
    floor(&lanes[0], u64::MAX);
    recorder.drain(&lanes, NS(1000));
    let (lost, last, _) = recorder.finish(&lanes, NS(10));
    assert_eq!((lost, last), (0, NS(10)));
    assert_eq!(lines(&events), ["0 release@0 0.0", "1 release@1 0.1", "10 miss 0.0"]);
}

#[test]
fn successors_are_released_when_the_last_predecessor_completes() {
    // 0 and 1 -> 2 -> 3
    let lanes = lanes(&[&[], &[], &[0, 1], &[2]]);
    let mut events = Vec::new();
    let mut recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0, 1], &lanes, due(100, 4));
    push(&lanes[0], 0, Kind::Release, 0, 0);
    push(&lanes[1], 1, Kind::Release, 0, 1);
    push(&lanes[0], 4, Kind::Complete, 0, 0);
    push(&lanes[1], 6, Kind::Complete, 0, 1);
    floor(&lanes[0], 50);
    floor(&lanes[1], 60);
    // This start has the instant of the completion that released its job, in a later lane. It still
    // comes after.
    push(&lanes[2], 6, Kind::Start, 0, 1);
    push(&lanes[2], 8, Kind::Complete, 0, 1);
    recorder.drain(&lanes, NS(1000));
    assert_eq!(recorder.last_emitted, NS(8), "lane 3 cannot start before 2 completes, lanes 2 and 3 wait for 0 and 1");
    push(&lanes[3], 9, Kind::Start, 0, 0);
    push(&lanes[3], 11, Kind::Complete, 0, 0);
    lanes.iter().for_each(|lane| floor(lane, u64::MAX));
    recorder.finish(&lanes, NS(70));
    assert_eq!(
        lines(&events),
        [
            "0 release@0 0.0",
            "1 release@1 1.0",
            "4 complete/0 0.0",
            "6 complete/1 1.0",
            "6 release<0^1 2.0",
            "6 start/1 2.0",
            "8 complete/1 2.0",
            "8 release<0^2 3.0",
            "9 start/0 3.0",
            "11 complete/0 3.0",
        ]
    );
}

#[test]
fn a_full_ring_is_told_as_lost() {
    let lanes = lanes(&[&[]]);
    let mut events = Vec::new();
    let mut recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0], &lanes, due(100, 1));
    for number in 0..11 {
        push(&lanes[0], number, Kind::Release, number, number);
    }
    recorder.drain(&lanes, NS(1000));
    let (lost, last, _) = recorder.finish(&lanes, NS(20));
    assert_eq!((lost, last), (3, NS(7)));
    assert_eq!(events.last().unwrap().2, Event::Lost { count: 3 });
}

fn every_ten() -> Task {
    Task { offset: Span::from_ns(3), ..Task::periodic("t", Span::from_ns(10), Span::from_ns(1)) }
}

/// One lane of a periodic task: arrivals at 3, 13, 23, ..., and a duration of 60.
fn of(task: &Task) -> Vec<LaneTask<'_>> {
    let arrivals = takt_model::draw::Arrivals::new(task, takt_model::draw::Draw::new(0, "t"));
    vec![LaneTask { deadline: Span::from_ns(10), releases: Some(Releases::new(arrivals, NS(60))) }]
}

#[test]
fn jobs_that_arrive_while_the_thread_is_busy_are_released_at_their_time() {
    let (lanes, task, mut events) = (lanes(&[&[]]), every_ten(), Vec::new());
    let recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0], &lanes, of(&task));
    push(&lanes[0], 5, Kind::Release, 0, 3);
    push(&lanes[0], 6, Kind::Start, 0, 0);
    push(&lanes[0], 23, Kind::Complete, 0, 0);
    push(&lanes[0], 24, Kind::Start, 1, 0);
    floor(&lanes[0], u64::MAX);
    // A signal ended the run at 45, in the middle of job 1.
    recorder.finish(&lanes, NS(45));
    assert_eq!(
        lines(&events),
        [
            "5 release@3 0.0",
            "6 start/0 0.0",
            "13 release@13 0.1",
            "13 miss 0.0",
            "23 release@23 0.2",
            "23 complete/0 0.0",
            "23 miss 0.1",
            "24 start/0 0.1",
            "33 release@33 0.3",
            "33 miss 0.2",
            "43 release@43 0.4",
            "43 miss 0.3",
        ]
    );
}

#[test]
fn all_jobs_of_the_duration_are_released_whatever_the_thread_came_to() {
    let (lanes, task, mut events) = (lanes(&[&[]]), every_ten(), Vec::new());
    let mut recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0], &lanes, of(&task));
    recorder.drain(&lanes, NS(60));
    assert_eq!(recorder.last_emitted, NS(0), "the thread may still wake up for them");
    floor(&lanes[0], u64::MAX);
    recorder.finish(&lanes, NS(60));
    let released = lines(&events).iter().filter(|line| line.contains("release")).count();
    assert_eq!(released, 6, "ceil((60 - 3) / 10)");
}

#[test]
fn a_lost_record_loses_no_release() {
    let (lanes, task, mut events) = (lanes(&[&[]]), every_ten(), Vec::new());
    let recorder = Recorder::new(Plain { sink: &mut events, stream: 0 }, &[0], &lanes, of(&task));
    // The records of jobs 0 and 1 found a full ring.
    push(&lanes[0], 25, Kind::Release, 2, 23);
    floor(&lanes[0], u64::MAX);
    recorder.finish(&lanes, NS(30));
    assert_eq!(
        lines(&events),
        ["3 release@3 0.0", "13 release@13 0.1", "13 miss 0.0", "23 miss 0.1", "25 release@23 0.2"]
    );
}

/// Collects stamps, and the events that came after `until` had passed them.
#[derive(Default)]
struct Collected {
    stamps: Vec<(Time, Event)>,
    until: Time,
    late: Vec<Event>,
}

impl Stamps for Collected {
    fn stamp(&mut self, stamp: Stamp) {
        if stamp.due < self.until {
            self.late.push(stamp.event);
        }
        self.stamps.push((stamp.at, stamp.event));
    }
    fn until(&mut self, until: Time) {
        self.until = until;
    }
}

#[test]
fn nothing_is_settled_before_the_misses_of_the_end_are_told() {
    let lanes = lanes(&[&[]]);
    let mut recorder = Recorder::new(Collected::default(), &[4], &lanes, due(10, 1));
    push(&lanes[0], 5, Kind::Release, 0, 5);
    push(&lanes[0], 6, Kind::Start, 0, 4);
    recorder.drain(&lanes, NS(100));
    assert_eq!(recorder.out().until, NS(6));
    // The thread is through, without having completed its job; the deadline was at 15.
    floor(&lanes[0], u64::MAX);
    recorder.drain(&lanes, NS(100));
    assert_eq!(recorder.out().until, NS(6), "a miss is still to come");
    let (_, _, kept) = recorder.finish(&lanes, NS(100));
    let job = JobKey { task: TaskId(0), number: 0 };
    assert_eq!(kept.stamps.last(), Some(&(NS(15), Event::Miss { job })));
    assert!(kept.late.is_empty(), "{:?}", kept.late);
}
