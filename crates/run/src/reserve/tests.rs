//! Decisions on made-up machines, and what the refusals say.

use takt_linux::SchedError;
use takt_linux::group::{GroupError, Place, RealTime, Share, Version};
use takt_linux::hold::HoldError;
use takt_linux::machine::{DomainBandwidth, Limits};
use takt_linux::process::Identity;
use takt_linux::sched::{Class, Reservation};
use takt_model::Span;

use super::{Budget, Facts, Outcome, Plan, Request, ReserveError, Target, as_limit, plan, plan_command, plan_limit};

const CPU: u64 = 1 << 20;

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

/// Two CPUs, 95 % of each for real time, 5 % of each booked by the fair servers, `booked` of one by threads.
fn facts(booked: u64) -> Facts {
    let limits = Limits {
        rt_runtime_us: 950_000,
        rt_period_us: 1_000_000,
        dl_period_min: Span::from_us(100),
        dl_period_max: Span::from_us(1 << 22),
    };
    let room =
        DomainBandwidth { cpus: vec![0, 1], limit: Some(2 * 996_147), booked: 104_856 + booked, servers: 104_856 };
    Facts { limits, cap_sys_nice: true, domain: Some(vec![0, 1]), room: Some(room), tick: Some(ms(4)) }
}

fn target(id: u32, affinity: &[u32]) -> Target {
    Target {
        thread: Identity { pid: id, start: 5 },
        process: 100,
        name: "player".to_owned(),
        of_kernel: false,
        class: Class::Other,
        affinity: affinity.to_vec(),
    }
}

fn one(request: &Request, facts: &Facts) -> Result<Plan, ReserveError> {
    plan(request, vec![target(7, &[0, 1])], facts)
}

fn says(result: Result<Plan, ReserveError>) -> String {
    status_and_text(&result.unwrap_err())
}

fn status_and_text(error: &ReserveError) -> String {
    format!("{}: {error}", error.exit_code())
}

#[test]
fn refusals_by_sched_deadline_differ_from_impossible_requests() {
    let request = Request::new(ms(10), ms(40));
    let pinned = plan(&request, vec![target(7, &[1])], &facts(0)).unwrap_err();
    let full = one(&request, &facts(2 * CPU)).unwrap_err();
    let refused = |cause| ReserveError::refused("player", cause, &facts(0));
    let class = || "SCHED_DEADLINE".to_owned();
    for error in [
        pinned,
        full,
        ReserveError::bound(&target(7, &[1]), &[0, 1]),
        refused(SchedError::Admission { class: class(), percent: 95 }),
        refused(SchedError::Affinity { class: class(), cpuset: None }),
    ] {
        assert!(error.is_of_deadline_class(), "{error}");
    }
    let nobody = one(&request, &Facts { cap_sys_nice: false, ..facts(0) }).unwrap_err();
    let parameters = one(&Request::new(ms(50), ms(40)), &facts(0)).unwrap_err();
    let privilege = refused(SchedError::Privilege { class: class(), missing: "CAP_SYS_NICE".to_owned() });
    for error in [nobody, parameters, privilege, ReserveError::NoThread { id: 7 }] {
        assert!(!error.is_of_deadline_class(), "{error}");
    }
}

#[test]
fn a_limit_has_the_share_that_was_reserved_in_periods_that_a_group_takes() {
    let of = |runtime, period| as_limit(&Request::new(runtime, period));
    let group = |runtime, period| Request { budget: Budget::Group, ..Request::new(runtime, period) };
    assert_eq!(of(ms(10), ms(40)), group(ms(10), ms(40)));
    assert_eq!(of(Span::from_us(1), ms(1)), group(ms(1), Span::from_s(1)));
    assert_eq!(of(Span::from_us(300), ms(10)), group(Span::from_us(1200), ms(40)));
    assert_eq!(of(Span::from_us(999), ms(10)), group(Span::from_us(1998), ms(20)));
    let thread = |limit: Request| {
        plan_limit(&limit, vec![target(7, &[1])], Some(vec![place(Version::V1, None, None)]), &facts(0))
    };
    for (runtime, period) in [(Span::from_us(999), ms(10)), (Span::from_us(2), ms(1)), (ms(1), Span::from_s(1))] {
        assert!(thread(of(runtime, period)).is_ok());
    }
    assert!(matches!(thread(of(Span::from_us(1), ms(2))), Err(ReserveError::Quota { .. })), "too long a period");
    assert_eq!(as_limit(&Request::new(Span::ZERO, ms(1))).runtime, Span::ZERO);
}

#[test]
fn the_kernels_limits_are_told_one_by_one() {
    let request = |runtime, deadline, period| Request { deadline, ..Request::new(runtime, period) };
    let says = |request: Request| says(one(&request, &facts(0)));
    assert_eq!(
        says(request(Span::from_ns(1023), ms(1), ms(1))),
        "2: a runtime of 1.023us is too short: the kernel takes 1.024us or more"
    );
    assert_eq!(
        says(request(ms(50), ms(40), ms(40))),
        "2: a runtime of 50ms does not fit into a deadline of 40ms: the kernel wants runtime <= deadline <= period"
    );
    assert_eq!(
        says(request(ms(5), ms(50), ms(40))),
        "2: a deadline of 50ms is later than the period of 40ms ends: the kernel wants runtime <= deadline <= period"
    );
    let range = "the kernel takes 100us to 4.194304s (sysctl kernel.sched_deadline_period_min_us and _max_us)";
    for (period, text) in [(Span::from_us(99), "99us"), (Span::from_us((1 << 22) + 1), "4.194305s")] {
        assert_eq!(
            says(request(Span::from_ns(1024), period, period)),
            format!("2: a period of {text} is out of range: {range}")
        );
    }
    for period in [Span::from_us(100), Span::from_us(1 << 22)] {
        assert!(one(&Request::new(Span::from_ns(1024), period), &facts(0)).is_ok(), "the limits themselves are taken");
    }
}

#[test]
fn admission_is_predicted_as_the_kernel_decides_it_and_explained() {
    let request = Request::new(ms(12), ms(40));
    // 2 * 996147 - 104856 = 1887438: six times 314572 = floor(0.3 * 2^20) is one too many by 6.
    assert_eq!(request.reservation().bandwidth(), 314_572);
    let left = 2 * 996_147 - 104_856;
    assert!(one(&request, &facts(left - 314_572)).is_ok(), "to the last bit");
    assert!(one(&request, &facts(left - 314_571)).is_err());
    assert_eq!(
        says(one(&request, &facts(CPU * 16 / 10))),
        "3: 12ms every 40ms is 30.0 % of a CPU, and only 20.0 % are left: of 2 CPUs, SCHED_DEADLINE may \
         have 190.0 % together, of which 160.0 % are booked by threads and 10.0 % by the kernel's \
         servers for ordinary threads\n\
         at most --runtime 8ms fits into this period, until other reservations end; a control group can \
         limit without guaranteeing anything: --budget cgroup"
    );
    let three = plan(&Request::new(ms(30), ms(40)), (7..10).map(|id| target(id, &[0, 1])).collect(), &facts(0));
    assert!(
        says(three)
            .starts_with("3: 30ms every 40ms for each of 3 threads is 225.0 % of a CPU, and only 180.0 % are left")
    );
    let full = one(&request, &facts(left));
    assert!(says(full).contains("\nnothing fits, until other reservations end;"));
    let unlimited = Facts { room: facts(0).room.map(|room| DomainBandwidth { limit: None, ..room }), ..facts(0) };
    assert!(one(&Request::new(ms(40), ms(40)), &unlimited).is_ok(), "sched_rt_runtime_us = -1");
    let largest = one(&Request::new(ms(8), ms(40)), &facts(CPU * 16 / 10));
    assert!(largest.is_ok(), "what is said to fit does fit");
}

#[test]
fn threads_that_cannot_be_are_told_what_can() {
    let request = Request::new(ms(12), ms(40));
    let bound = || vec![target(7, &[1])];
    assert_eq!(
        says(plan(&request, bound(), &facts(0))),
        "3: player (7) may use CPUs 1 only, and SCHED_DEADLINE wants all of its scheduling domain: 0, \
         1\nlet it run on all of them during the reservation: --all-cpus; or use a control group, which guarantees \
         nothing: --budget cgroup"
    );
    let widened = plan(&Request { widen: true, ..request }, bound(), &facts(0)).unwrap();
    assert_eq!(widened.widened(&widened.threads[0]), Some([0, 1].as_slice()));
    assert_eq!(widened.widened(&target(8, &[0, 1])), None);
    assert!(plan(&request, bound(), &Facts { domain: None, room: None, ..facts(0) }).is_ok(), "the kernel decides");
    assert_eq!(
        says(plan_command(&request, "./player", &[0], &facts(0))),
        format!(
            "3: ./player would have CPUs 0 only, as takt has, and SCHED_DEADLINE wants all of their scheduling \
             domain: 0, 1\n{}; or use a control group, which guarantees nothing: --budget cgroup",
            takt_linux::sched::unconfined()
        )
    );
    let reservation = Reservation { runtime: ms(1), deadline: ms(10), period: ms(10) };
    let already = Target { class: Class::Deadline(reservation), ..target(7, &[0, 1]) };
    assert_eq!(
        says(plan(&request, vec![already], &facts(0))),
        "3: player (7) has a reservation already: SCHED_DEADLINE runtime 1ms, deadline 10ms, period \
         10ms; ask its owner to give it back, or set it with chrt"
    );
    assert_eq!(
        says(one(&request, &Facts { cap_sys_nice: false, ..facts(0) })),
        "3: SCHED_DEADLINE runtime 12ms, deadline 40ms, period 40ms needs the capability CAP_SYS_NICE\n\
         grant it once: sudo setcap cap_sys_nice+ep \"$(command -v takt)\", or run takt with sudo"
    );
    let bound = ReserveError::bound(&Target { name: "ksoftirqd/1".to_owned(), ..target(22, &[1]) }, &[0, 1]);
    assert_eq!(
        status_and_text(&bound),
        "3: ksoftirqd/1 (22) cannot be let on CPUs 0, 1: the kernel has bound it to 1, and so it can \
         have no reservation of its own"
    );
}

#[test]
fn refusals_of_the_kernel_itself_say_what_may_be_behind_them() {
    let class = "SCHED_DEADLINE runtime 2ms, deadline 10ms, period 10ms".to_owned();
    let busy = ReserveError::refused("player", SchedError::Admission { class: class.clone(), percent: 95 }, &facts(0));
    assert_eq!(
        busy.to_string(),
        "player: SCHED_DEADLINE runtime 2ms, deadline 10ms, period 10ms was refused by the kernel's \
         admission control: with what runs already, more than 95 % of each CPU would be reserved\n\
         it should have fitted: another program reserved first, or the bandwidth of an ended thread is \
         not back yet (it comes back within its period)"
    );
    let divided = Facts { domain: None, room: None, ..facts(0) };
    let domains = ReserveError::refused("player", SchedError::Affinity { class, cpuset: None }, &divided).to_string();
    assert!(domains.ends_with("the thread must be within one of them, and may use all of it"), "{domains}");
    assert_eq!(ReserveError::Hold(HoldError::Gone { id: 7 }).exit_code(), 2);
    assert_eq!(
        ReserveError::NoThread { id: 7 }.to_string(),
        "there is no thread 7; \"ps -eL\" lists all threads (column LWP)"
    );
    let start = ReserveError::Start { program: "./x".to_owned(), cause: "No such file or directory".to_owned() };
    assert_eq!(status_and_text(&start), "2: cannot start ./x: No such file or directory");
}

#[test]
fn notes_say_what_a_reservation_is_not() {
    let short = one(&Request::new(ms(2), ms(10)), &facts(0)).unwrap();
    assert_eq!(
        short.notes,
        ["a runtime of 2ms is shorter than the kernel's tick of 4ms: without its high-resolution \
             tick (HRTICK_DL) it stops a thread with a used-up runtime only at a tick"]
    );
    assert!(one(&Request::new(ms(12), ms(40)), &facts(0)).unwrap().notes.is_empty());
    let unknown = one(&Request::new(ms(12), ms(40)), &Facts { room: None, ..facts(0) }).unwrap();
    assert!(unknown.notes[0].starts_with("the present reservations are unknown"), "{:?}", unknown.notes);
    let left = one(&Request::new(ms(12), ms(40)), &facts(0)).unwrap().left();
    assert_eq!(left, Some(2 * 996_147 - 104_856 - 314_572));
}

#[test]
fn outcomes_are_told_in_words() {
    let changed = Outcome::Changed { now: "SCHED_FIFO priority 3".to_owned() };
    assert_eq!(changed.describe(), "was changed by others to SCHED_FIFO priority 3, and left so");
    assert_eq!((Outcome::Restored.name(), Outcome::Ended.describe().as_str()), ("restored", "has ended"));
    assert_eq!(Outcome::Failed { cause: "x".to_owned() }.describe(), "not restored: x");
}

/// A group with a quota and a budget for real-time threads, where it has such.
fn place(version: Version, quota: Option<u64>, real_time: Option<RealTime>) -> Result<Place, GroupError> {
    Ok(Place { folder: "/cg/app".into(), version, quota, real_time })
}

fn limited(runtime: Span, period: Span) -> Request {
    Request { budget: Budget::Group, ..Request::new(runtime, period) }
}

#[test]
fn a_control_group_takes_what_sched_deadline_does_not() {
    let request = limited(ms(12), ms(40));
    let pinned = || vec![target(7, &[1])];
    let plan_in = |request: &Request, threads: Vec<Target>, place: Result<Place, GroupError>| {
        let places = threads.iter().map(|_| place.clone()).collect();
        plan_limit(request, threads, Some(places), &Facts { cap_sys_nice: false, ..facts(2 * CPU) })
    };
    let free = place(Version::V2, None, None);
    let plan = plan_in(&request, pinned(), free.clone()).unwrap();
    assert_eq!((plan.places.len(), plan.left()), (1, None), "nothing is booked");
    assert!(plan.notes[0].contains("no guarantee"), "{:?}", plan.notes);
    for (runtime, period) in [(Span::from_us(999), ms(40)), (ms(12), ms(1001))] {
        let text = says(plan_in(&limited(runtime, period), pinned(), free.clone()));
        let end = "a control group takes a runtime no longer than its \
            period, and for ordinary threads 1ms or more in 1s or less";
        assert!(text.starts_with("2: ") && text.ends_with(end), "{text}");
    }
    assert!(says(plan_in(&limited(ms(41), ms(40)), pinned(), free.clone())).starts_with("2: "));
    let tight = place(Version::V1, Some(Share { runtime_us: 10_000, period_us: 100_000 }.bandwidth()), None);
    assert_eq!(
        says(plan_in(&request, pinned(), tight)),
        "3: player (7) cannot be given 12ms every 40ms, 30.0 % of a CPU: its control group /cg/app has 9.9 % left"
    );
    let gone = says(plan_in(&request, pinned(), Err(GroupError::Gone { id: 7 })));
    assert_eq!(gone, "2: thread 7 has ended");
    assert!(says(plan_in(&request, pinned(), Err(GroupError::NoController))).starts_with("3: "));
}

#[test]
fn real_time_threads_are_limited_by_their_own_budget_or_not_at_all() {
    let request = limited(ms(12), ms(40));
    let fifo = |id: u32| Target { class: Class::Fifo { priority: 50 }, ..target(id, &[0]) };
    let plan_in = |threads: Vec<Target>, place: Result<Place, GroupError>| {
        let places = threads.iter().map(|_| place.clone()).collect();
        plan_limit(&request, threads, Some(places), &facts(0))
    };
    let left = |taken: u64| place(Version::V1, None, Some(RealTime { limit: Some(996_147), taken }));
    let plan = plan_in(vec![fifo(7)], left(996_147 - 314_572)).unwrap();
    assert!(plan.notes[0].contains("on each CPU by itself"), "{:?}", plan.notes);
    assert!(plan_in(vec![fifo(7)], left(996_147 - 314_571)).is_err(), "to the last bit");
    assert!(plan_in((7..10).map(fifo).collect(), left(0)).is_ok());
    assert_eq!(
        says(plan_in((7..11).map(fifo).collect(), left(0))),
        "3: 4 threads cannot be given 12ms every 40ms each, 120.0 % of a CPU: their control group \
         /cg/app has 94.9 % left",
        "all four together"
    );
    assert_eq!(
        says(plan_in(vec![fifo(7)], place(Version::V2, None, None))),
        "3: player (7) has SCHED_FIFO priority 50, which no control group of version 2 limits: cpu.max \
         is for ordinary threads\nreserve for it by SCHED_DEADLINE: leave out --budget"
    );
    let missing = says(plan_in(vec![fifo(7)], place(Version::V1, None, None)));
    assert!(missing.contains("which no control group of this kernel limits"), "{missing}");
}

#[test]
fn files_of_a_control_group_have_whole_microseconds_on_the_safe_side() {
    let request = limited(Span::from_ns(12_000_001), Span::from_ns(39_999_999));
    let limit = super::limit::of(&request, &target(7, &[0]));
    assert_eq!(limit.share, Share { runtime_us: 12_001, period_us: 39_999 });
    assert!(!limit.real_time);
}
