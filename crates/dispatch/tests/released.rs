//! Operations released by events, although the plan knows their predecessors. No test asserts a
//! duration.

#[path = "common/live.rs"]
mod live;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use live::{alone, check, plan, sporadic, started, until};
use takt_dispatch::event::{Channel, Options as ChannelOptions, Pattern, SubscribeError};
use takt_dispatch::{Dispatcher, Handle, Operation, Operations, Plan, PushError, ReleaseError};
use takt_log::{Event, JobKey, NullSink};
use takt_model::{Builtin, Span, TaskId, Time};

const READING: u32 = 1;
const OPERATIONS: [&str; 3] = ["radar", "weapons", "display"];

/// A proxy, an operation that processes its readings on the same or another CPU, and a follower.
fn flight(strategy: Builtin, cpu: u32) -> Plan {
    let ms = Span::from_ms;
    let operations = Operations::new("flight")
        .cpus(2)
        .with(Operation::periodic("radar", ms(10)).wcet(ms(1)).deadline(ms(4)))
        .with(Operation::after("weapons", ["radar"]).wcet(ms(1)).deadline(ms(6)).on_cpu(cpu))
        .with(Operation::after("display", ["weapons"]).wcet(ms(1)).deadline(ms(9)).on_cpu(cpu).noncritical());
    plan(&operations, strategy)
}

#[test]
fn a_plan_tells_which_operations_events_can_release() {
    let plan = flight(Builtin::Muf, 0);
    let marked = plan.clone().released_by_events("weapons").unwrap();
    assert_eq!(marked.rows.iter().map(|row| row.by_events).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(marked.system, plan.system, "what is known of it is what it was");
    let wrong = |name: &str| plan.clone().released_by_events(name).unwrap_err();
    assert_eq!(wrong("radar"), ReleaseError::ComesAfterNone("radar".to_owned()));
    assert_eq!(wrong("sonar"), ReleaseError::Unknown("sonar".to_owned()));
    let pushed = crate::plan(&Operations::new("pushed").with(sporadic("alarm")), Builtin::Muf);
    assert_eq!(pushed.released_by_events("alarm"), Err(ReleaseError::ComesAfterNone("alarm".to_owned())));
    let channel = Channel::new(ChannelOptions::default());
    assert!(matches!(channel.subscribe(&plan, "weapons", Pattern::ANY), Err(SubscribeError::NotPushed(_))));
    assert!(channel.subscribe(&marked, "weapons", Pattern::ANY).is_ok());
}

/// Proofs of the plan concern releases by predecessors' ends.
#[test]
fn in_virtual_time_predecessors_release_it() {
    for cpu in [0, 1] {
        let plan = flight(Builtin::RmsMlf, cpu);
        let told = |plan: &Plan| {
            let mut all: Vec<(u32, Time, Event)> = Vec::new();
            let counts = plan.rehearse(Span::from_ms(200), 7, &mut all).unwrap();
            assert!(counts.iter().all(|(_, counts)| counts.completed >= 19), "{counts:?}");
            all
        };
        assert_eq!(told(&plan.clone().released_by_events("weapons").unwrap()), told(&plan));
    }
}

#[test]
fn each_event_releases_one_job_and_no_end_does() {
    let _alone = alone();
    for (strategy, cpu) in [(Builtin::Muf, 0), (Builtin::Rm, 0), (Builtin::RmsMlf, 1)] {
        let plan = flight(strategy, cpu).released_by_events("weapons").unwrap();
        let channel = Channel::new(ChannelOptions::default());
        let weapons = channel.subscribe(&plan, "weapons", Pattern::kind(READING)).unwrap();
        let supplier = channel.supplier(3);
        let read: Arc<Mutex<Vec<u64>>> = Arc::default();
        let given = Arc::new(AtomicU64::new(0));
        let (into, gives) = (read.clone(), given.clone());
        let dispatcher = Dispatcher::new(plan)
            .on("radar", move |job| {
                // Every third job gives no reading, and in the end none does.
                if job.number() % 3 != 2 && gives.load(Ordering::Acquire) < 15 {
                    // The first jobs may run before the channel is connected.
                    let pushed = supplier.push(READING, &job.number().to_be_bytes());
                    gives.fetch_add(pushed.map_or(0, |pushed| pushed.taken as u64), Ordering::AcqRel);
                }
            })
            .unwrap()
            .on_events(&weapons, move |delivery, _| {
                let number = delivery.first().payload.try_into().map(u64::from_be_bytes).unwrap();
                into.lock().unwrap().push(number);
            })
            .unwrap()
            .on("display", |_| ())
            .unwrap();
        let Some(dispatching) = started(dispatcher) else { return };
        let connected = channel.connect(&dispatching).unwrap();
        // The last reading is processed, and a job of the radar came after it.
        let completed = || dispatching.counts().iter().map(|(_, counts)| counts.completed).collect::<Vec<u64>>();
        until(|| completed()[0] > 20 && given.load(Ordering::Acquire) == 15 && completed()[1] == 15);
        let mut log: Vec<(u32, Time, Event)> = Vec::new();
        let stopped = dispatching.stop(&mut log).unwrap();
        drop(connected);
        check(&weapons);
        let read = read.lock().unwrap().clone();
        let counted = |name: &str| stopped.counts.iter().find(|(other, _)| other == name).unwrap().1;
        let [radar, weapons, display] = OPERATIONS.map(counted);
        assert!(read.iter().all(|number| number % 3 != 2) && read.is_sorted(), "{read:?}");
        assert!(weapons.released < radar.completed, "{weapons:?} {radar:?}");
        assert_eq!(weapons.completed, read.len() as u64);
        assert_eq!(display.released, weapons.completed, "whose end releases as ends do");
        for (_, _, event) in &log {
            if let Event::Release { job: JobKey { task, .. }, parent, .. } = event {
                assert_eq!(parent.map(|parent| parent.hop), (*task == TaskId(2)).then_some(1), "{event:?}");
            }
        }
    }
}

/// Also without a channel. The backlog limits the pushes, because no least distance holds.
#[test]
fn the_program_pushes_it_as_well_and_nobody_else_may() {
    let _alone = alone();
    let plan = flight(Builtin::Muf, 0).released_by_events("weapons").unwrap().with_backlog(2);
    let mut dispatcher = Dispatcher::new(plan);
    for name in OPERATIONS {
        dispatcher = dispatcher.on(name, |_| ()).unwrap();
    }
    let Some(dispatching) = started(dispatcher) else { return };
    let [radar, weapons, display]: [Handle; 3] = OPERATIONS.map(|name| dispatching.operation(name).unwrap());
    let pushed = [(); 20].map(|()| weapons.push());
    assert!(
        pushed[0].is_ok() && pushed.iter().all(|pushed| matches!(pushed, Ok(_) | Err(PushError::Full))),
        "{pushed:?}"
    );
    assert_eq!([radar.push(), display.push()], [Err(PushError::NotPushed); 2]);
    dispatching.stop(&mut NullSink).unwrap();
}
