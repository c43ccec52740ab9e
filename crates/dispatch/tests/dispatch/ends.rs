//! How jobs and dispatchers end: by panics, stops and drops.

use super::*;

#[test]
fn a_panic_is_counted_and_stops_nobody() {
    let _alone = alone();
    std::panic::set_hook(Box::new(|_| {}));
    let operations = Operations::new("panics")
        .with(Operation::periodic("shaky", ms(5)).wcet(us(100)))
        .with(Operation::after("follower", ["shaky"]).wcet(us(100)))
        .with(Operation::periodic("steady", ms(5)).wcet(us(100)));
    let built = dispatcher(&operations, Builtin::Edf.strategy())
        .on("shaky", |job| assert!(job.number() % 2 == 0, "odd"))
        .and_then(|built| built.on("follower", |job| assert!(job.number() % 2 == 0)))
        .and_then(|built| built.on("steady", |_| ()));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let enough = |dispatching: &Dispatching| {
        let counts = dispatching.counts();
        let of = |name: &str| counts.iter().find(|(of, _)| of == name).unwrap().1;
        of("shaky").failed >= 3 && of("shaky").completed >= 3 && of("follower").completed >= 2
    };
    let (stopped, events) = run(dispatching, enough);
    let _ = std::panic::take_hook();
    let (shaky, follower) = (count(&stopped, "shaky"), count(&stopped, "follower"));
    assert!(shaky.failed >= 3 && shaky.completed >= 3, "{shaky:?}");
    // Followers of failed and rejected jobs are shed, once.
    assert_eq!((follower.failed, follower.rejected), (0, 0), "{follower:?}");
    assert!(follower.cancelled >= 2 && follower.completed >= 2, "{follower:?} {shaky:?}");
    follows(&events, 1, 0, follower.released);
    assert!(count(&stopped, "steady").completed > 0);
    assert_eq!(stopped.panics, [("shaky".to_owned(), "odd".to_owned())]);
}

/// A panic payload. A bad one panics again when it is dropped.
struct Thrown {
    bad: bool,
    _counted: Arc<()>,
}

impl Drop for Thrown {
    fn drop(&mut self) {
        assert!(!self.bad, "of this test, too");
    }
}

#[test]
fn the_payload_of_a_panic_is_dropped() {
    let _alone = alone();
    std::panic::set_hook(Box::new(|_| {}));
    let set = Operations::new("thrown").with(Operation::periodic("shaky", ms(5)).wcet(us(100)));
    let counted = Arc::new(());
    let thrown = counted.clone();
    let built = dispatcher(&set, Builtin::Edf.strategy())
        .on("shaky", move |job| std::panic::panic_any(Thrown { bad: job.number() % 2 == 1, _counted: thrown.clone() }));
    let Some(dispatching) = started(built.unwrap()) else { return };
    let (stopped, _) = run(dispatching, |dispatching| dispatching.counts()[0].1.failed >= 4);
    let _ = std::panic::take_hook();
    assert!(count(&stopped, "shaky").failed >= 4, "{stopped:?}");
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn a_dispatcher_that_is_dropped_stops() {
    let _alone = alone();
    let operations = Operations::new("dropped").with(Operation::periodic("tick", ms(2)).wcet(us(100)));
    let ticks = Arc::new(AtomicU64::new(0));
    let counted = ticks.clone();
    let built = dispatcher(&operations, Builtin::Edf.strategy());
    let built = built
        .on("tick", move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    let Some(dispatching) = started(built) else { return };
    let epoch = Epoch::now_is_zero();
    while ticks.load(Ordering::SeqCst) == 0 && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(ms(1));
    }
    drop(dispatching);
    let after = ticks.load(Ordering::SeqCst);
    assert!(after > 0);
    clock::pause(ms(20));
    assert_eq!(ticks.load(Ordering::SeqCst), after);
}

/// Two operations. The handler of the first holds a handle of its own dispatcher, calls `on`, and
/// pushes the second.
fn pushing(on: impl Fn() + Send + 'static) -> (Dispatching, Arc<OnceLock<Handle>>) {
    let sporadic = |name| Operation::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(ms(100));
    let set = Operations::new("held").with(sporadic("first")).with(sporadic("second"));
    let place = Arc::new(OnceLock::<Handle>::new());
    let second = place.clone();
    let built = dispatcher(&set, Builtin::Muf.strategy())
        .with(Options { best_effort: true, ..Options::default() })
        .on("first", move |_| {
            on();
            let _ = second.get().unwrap().push();
        })
        .and_then(|built| built.on("second", |_| ()));
    let dispatching = built.unwrap().start().unwrap();
    assert!(place.set(dispatching.operation("second").unwrap()).is_ok());
    dispatching.operation("first").unwrap().push().unwrap();
    (dispatching, place)
}

/// The stopping thread is less important than all threads of the dispatcher, on their CPU. The
/// overload leaves it only the kernel's reserve for ordinary threads.
#[test]
fn an_ordinary_thread_stops_an_overload_of_its_own_cpu() {
    let _alone = alone();
    let mut set = Operations::new("overload");
    let names: Vec<String> = (0..8).map(|at| format!("o{at}")).collect();
    for (name, at) in names.iter().zip(0..) {
        set.add(Operation::periodic(name, ms(5 + at)).wcet(us(20)).backlog(4));
    }
    let mut built = dispatcher(&set, Builtin::Rm.strategy());
    let patience = Epoch::now_is_zero();
    for name in &names {
        let handler = move |job: &Job<'_>| {
            let until = job.now().saturating_add(us(2500));
            // The test ends even if the stop fails.
            while job.now() < until && !job.must_stop() && patience.now() < Time::ZERO + Span::from_s(20) {}
        };
        built = built.on(name, handler).unwrap();
    }
    let Some(dispatching) = started(built) else { return };
    let before = sched::affinity();
    sched::set_affinity(&before[..1]).unwrap();
    while dispatching.counts().iter().all(|(_, counts)| counts.rejected == 0) {
        clock::pause(ms(5));
    }
    let stopped = dispatching.stop(&mut NullSink);
    sched::set_affinity(&before).unwrap();
    stopped.unwrap();
    assert!(patience.now() < Time::ZERO + Span::from_s(20), "only the end of all load let it stop");
}

/// Otherwise the handler would keep itself and its dispatcher.
#[test]
fn a_handler_goes_with_its_dispatcher_though_it_has_a_handle_of_it() {
    let _alone = alone();
    for stops in [true, false] {
        let counted = Arc::new(());
        let held = counted.clone();
        let (dispatching, place) = pushing(move || drop(held.clone()));
        let epoch = Epoch::now_is_zero();
        while !each(1)(&dispatching) && epoch.now() < Time::ZERO + Span::from_s(20) {
            clock::pause(ms(1));
        }
        if stops {
            dispatching.stop(&mut NullSink).unwrap();
        } else {
            drop(dispatching);
        }
        assert_eq!((Arc::strong_count(&counted), Arc::strong_count(&place)), (1, 1));
    }
}

#[test]
fn a_handler_that_stops_its_own_dispatcher_is_not_waited_for() {
    let _alone = alone();
    let own: Arc<Mutex<Option<Dispatching>>> = Arc::default();
    let ended: Arc<Mutex<Option<StopError>>> = Arc::default();
    let (stops, tells) = (own.clone(), ended.clone());
    let stop = move || {
        let own = loop {
            if let Some(own) = stops.lock().unwrap().take() {
                break own;
            }
            clock::pause(ms(1));
        };
        *tells.lock().unwrap() = own.stop(&mut NullSink).err();
    };
    let (dispatching, place) = pushing(stop);
    *own.lock().unwrap() = Some(dispatching);
    let epoch = Epoch::now_is_zero();
    while ended.lock().unwrap().is_none() && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(ms(1));
    }
    let Some(StopError::Stuck { operation, grace, .. }) = ended.lock().unwrap().take() else { panic!("no such end") };
    assert_eq!((operation.as_str(), grace), ("first", Span::ZERO));
    assert_eq!(place.get().unwrap().push(), Err(PushError::Stopped));
}

#[test]
fn a_handler_that_does_not_return_is_named_and_what_happened_is_told_all_the_same() {
    let _alone = alone();
    let set = Operations::new("stuck")
        .with(Operation::sporadic("stuck", ms(1)).wcet(us(100)))
        .with(Operation::periodic("steady", ms(5)).wcet(us(100)));
    let go = Arc::new(AtomicU64::new(0));
    let entered = Arc::new(AtomicBool::new(false));
    let (held, seen) = (go.clone(), entered.clone());
    let built = dispatcher(&set, Builtin::Rm.strategy())
        .on("stuck", move |_| {
            seen.store(true, Ordering::SeqCst);
            while held.load(Ordering::SeqCst) == 0 {
                clock::pause(ms(2));
            }
        })
        .and_then(|built| built.on("steady", |_| ()));
    let Some(dispatching) = started(built.unwrap()) else { return };
    dispatching.operation("stuck").unwrap().push().unwrap();
    let epoch = Epoch::now_is_zero();
    // A job that has not begun when the dispatcher stops never begins.
    let begun = || entered.load(Ordering::SeqCst) && dispatching.counts()[1].1.completed >= 3;
    while !begun() && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(ms(5));
    }
    let mut events = Events::new();
    let error = dispatching.stop(&mut events).unwrap_err();
    go.store(1, Ordering::SeqCst);
    assert!(error.to_string().starts_with("operation \"stuck\" has not returned for 5s"), "{error}");
    let StopError::Stuck { operation, stopped, .. } = error else { panic!("{error}") };
    assert_eq!(operation, "stuck");
    assert_eq!((count(&stopped, "stuck").released, count(&stopped, "stuck").unfinished()), (1, 1));
    assert!(count(&stopped, "steady").completed >= 3);
    check(&stopped, &events);
}
