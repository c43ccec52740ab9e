//! Measures the time from a supplier's push to the first statement of a handler in another channel,
//! by a gateway. It measures a put of Zenoh's own and its callback in the same run, for comparison.
//! Both use the same number of bytes at the same priority, between two sessions over loopback TCP.
//!
//! takt's way has three hand-overs more: to the thread that publishes, to the thread that offers,
//! and to the handler's thread.
//!
//! `cargo bench --manifest-path crates/zenoh/Cargo.toml --target-dir target/zenoh --bench gateway -- [--rounds 5]`

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_dispatch::event::{Channel, Options, Pattern};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations, Plan};
use takt_linux::{Epoch, clock};
use takt_log::NullSink;
use takt_model::{Builtin, Span};
use takt_zenoh::zenoh::{self, Config, Session, Wait};
use takt_zenoh::{Gateway, Priority, Route, header};

const TRACK: u32 = 1;
const PAYLOAD: [u8; 64] = [7; 64];
/// Hand-overs of a round.
const HAND_OVERS: usize = 500;
/// From one to the next, and how often the pusher looks whether one came.
const PAUSE: Span = Span::from_us(500);
/// A machine that takes longer pauses: in steps of [`PAUSE`].
const PATIENCE: usize = 200;
/// How often is looked at most whether the two know each other, or a first sample has come: for 20 s or more.
const LOOKS_MAX: usize = 40_000;

/// The times of a round in ns, sorted, and how many hand-overs nobody answered.
type Round = (Vec<u64>, usize);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = match (arguments.next().as_deref(), arguments.next().map(|value| value.parse())) {
        (None, _) => 5,
        (Some("--rounds"), Some(Ok(rounds))) if rounds > 0 => rounds,
        _ => {
            eprintln!("--rounds N, above zero, is all there is");
            return ExitCode::from(2);
        }
    };
    let Some((one, two)) = sessions() else {
        println!("skipped: no sessions of Zenoh over loopback TCP");
        return ExitCode::SUCCESS;
    };
    let mut all: Vec<(Round, Round)> = Vec::new();
    for _ in 0..rounds {
        let Some(pair) = by_gateway(&one, &two).zip(raw(&one, &two)) else {
            println!("skipped: SCHED_FIFO or a thread was refused");
            return ExitCode::SUCCESS;
        };
        match pair {
            (Ok(by_gateway), Ok(raw)) => all.push((by_gateway, raw)),
            (Err(what), _) | (_, Err(what)) => {
                eprintln!("given up after {LOOKS_MAX} looks: {what}");
                return ExitCode::FAILURE;
            }
        }
    }
    let of = |pick: &dyn Fn(&(Round, Round)) -> f64| median(all.iter().map(pick).collect());
    println!("64 bytes to another session, {rounds} rounds           p50 us   p99 us  missed");
    for (name, side) in [("push to handler", 0), ("put to callback", 1)] {
        let of_side = |both: &(Round, Round), percent| quantile(if side == 0 { &both.0 } else { &both.1 }, percent);
        let missed: usize = all.iter().map(|both| if side == 0 { both.0.1 } else { both.1.1 }).sum();
        let (p50, p99) = (of(&|both| of_side(both, 50)) / 1e3, of(&|both| of_side(both, 99)) / 1e3);
        println!("{name:<48} {p50:>8.1} {p99:>8.1} {missed:>7}");
    }
    let ratio = |percent| of(&|both| quantile(&both.0, percent) / quantile(&both.1, percent));
    println!("{:<48} {:>8.2} {:>8.2}", "ratio", ratio(50), ratio(99));
    ExitCode::SUCCESS
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn quantile((sorted, _): &Round, percent: usize) -> f64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64)
}

/// Two that know each other.
fn sessions() -> Option<(Session, Session)> {
    let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
    let open = |listen: bool| {
        let mut config = Config::default();
        let (at, not) = ("listen/endpoints", "connect/endpoints");
        let (at, not) = if listen { (at, not) } else { (not, at) };
        config.insert_json5(at, &format!("[\"tcp/127.0.0.1:{port}\"]")).ok()?;
        config.insert_json5(not, "[]").ok()?;
        config.insert_json5("scouting/multicast/enabled", "false").ok()?;
        zenoh::open(config).wait().ok()
    };
    Some((open(true)?, open(false)?))
}

/// An ordinary thread pushes, and sleeps meanwhile: all others are ordinary, too, and are to have the CPUs.
fn hand_overs(epoch: Epoch, seen: &AtomicU64, mut push: impl FnMut()) -> Round {
    let (mut times, mut missed) = (Vec::with_capacity(HAND_OVERS), 0);
    for _ in 0..HAND_OVERS {
        seen.store(0, Ordering::Release);
        let before = epoch.now().as_ns();
        push();
        let came = (0..PATIENCE).find_map(|_| {
            clock::pause(PAUSE);
            Some(seen.load(Ordering::Acquire)).filter(|at| *at > 0)
        });
        match came {
            Some(at) => times.push(at.saturating_sub(before)),
            None => missed += 1,
        }
    }
    times.sort_unstable();
    (times, missed)
}

fn plan() -> Option<Plan> {
    let event =
        Operation::sporadic("event", Span::from_us(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1)).backlog(1);
    Operations::new("events").with(event).compute(&Builtin::Edf.strategy(), &Limits::default()).ok()
}

/// A dispatcher whose operation says when it was called.
fn consumer(channel: &Channel, plan: &Plan, epoch: Epoch, seen: &Arc<AtomicU64>) -> Option<Dispatching> {
    let subscription = channel.subscribe(plan, "event", Pattern::kind(TRACK)).ok()?;
    let seen = seen.clone();
    let handler = subscription.handler(move |_, _| seen.store(epoch.now().as_ns(), Ordering::Release));
    Dispatcher::new(plan.clone()).on("event", handler).ok()?.start().ok()
}

/// Looks until something is so.
fn until(mut so: impl FnMut() -> bool) -> bool {
    (0..LOOKS_MAX).any(|_| {
        clock::pause(PAUSE);
        so()
    })
}

/// `None`: something that it needs was refused. An error: what never came.
fn by_gateway(one: &Session, two: &Session) -> Option<Result<Round, &'static str>> {
    let (epoch, seen, plan) = (Epoch::now_is_zero(), Arc::new(AtomicU64::new(0)), plan()?);
    let (from, to) = (Channel::new(Options::default()), Channel::new(Options::default()));
    let route = Route::new("tracks").sends(Pattern::kind(TRACK));
    let sends = Gateway::new(1, "bench").with(route).open(one, &from, &plan).ok()?;
    let receives = Gateway::new(2, "bench").subscribe("bench/1/*").open(two, &to, &plan).ok()?;
    let (idle, dispatching) = (consumer(&from, &plan, epoch, &Arc::default())?, consumer(&to, &plan, epoch, &seen)?);
    let connected = (from.connect(&idle).ok()?, to.connect(&dispatching).ok()?);
    if !until(|| sends.traffic().peers == [2] && receives.traffic().peers == [1]) {
        return Some(Err("the gateways do not hear of each other"));
    }
    let supplier = from.supplier(7);
    let round = hand_overs(epoch, &seen, || {
        let _ = supplier.push(TRACK, &PAYLOAD);
    });
    drop((connected, sends, receives));
    let _ = (idle.stop(&mut NullSink), dispatching.stop(&mut NullSink));
    Some(Ok(round))
}

fn raw(one: &Session, two: &Session) -> Option<Result<Round, &'static str>> {
    let (epoch, seen) = (Epoch::now_is_zero(), Arc::new(AtomicU64::new(0)));
    let stamp = seen.clone();
    let subscriber = two.declare_subscriber("raw/1/*");
    let subscriber = subscriber.callback(move |_| stamp.store(epoch.now().as_ns(), Ordering::Release)).wait().ok()?;
    let put = || {
        let put = one.put("raw/1/1", &PAYLOAD[..]).attachment([0_u8; header::ATTACHMENT]);
        let _ = put.priority(Priority::RealTime).express(true).wait();
    };
    // Until the subscription has come there.
    let came = until(|| {
        put();
        seen.load(Ordering::Acquire) > 0
    });
    if !came {
        return Some(Err("no put comes to the subscriber"));
    }
    let round = hand_overs(epoch, &seen, put);
    drop(subscriber);
    Some(Ok(round))
}
