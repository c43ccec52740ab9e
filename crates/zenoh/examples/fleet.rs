//! Two robots of a fleet in one process: each tells the other its pose every 20 ms, and learns when
//! the other is gone. A base station that knows nothing of takt routes, and reads along. Ends after
//! a second.
//!
//! `cargo run --manifest-path crates/zenoh/Cargo.toml --target-dir target/zenoh --example fleet`

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_dispatch::event::{Channel, Connected, Filter, Options, PEER_FOUND, PEER_LOST, Pattern};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations, StartError};
use takt_linux::clock;
use takt_log::NullSink;
use takt_model::{Builtin, Span};
use takt_zenoh::zenoh::{self, Config, Session, Wait};
use takt_zenoh::{Gateway, Opened, Route};

const POSE: u32 = 1;

/// Fields are dropped from first to last.
struct Robot {
    connected: Connected,
    opened: Opened,
    dispatching: Dispatching,
    channel: Channel,
    poses: Arc<AtomicU64>,
    news: Arc<AtomicU64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    // The base station routes. Robots would find it, or each other, by multicast, unless they are
    // told where it is: here at a free port.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let station = session("router", "listen/endpoints", port)?;
    let sessions = [session("client", "connect/endpoints", port)?, session("client", "connect/endpoints", port)?];
    let base = Arc::new(AtomicU64::new(0));
    let seen = base.clone();
    let reads = station.declare_subscriber("fleet/*/1").callback(move |sample| {
        // The payload is what the supplier said.
        seen.fetch_add(u64::from(sample.payload().to_bytes().starts_with(b"x=")), Ordering::Relaxed);
    });
    let _reads = reads.wait().map_err(|error| error.to_string())?;
    let robots = match (robot(1, &sessions[0]), robot(2, &sessions[1])) {
        (Ok(one), Ok(two)) => [one, two],
        (Err(error), _) | (_, Err(error)) => match error.downcast_ref::<StartError>() {
            Some(StartError::Privilege { missing }) => {
                println!("skipped: {missing}");
                return Ok(());
            }
            _ => return Err(error),
        },
    };
    let suppliers = [robots[0].channel.supplier(1), robots[1].channel.supplier(2)];
    for turn in 0..40 {
        for supplier in &suppliers {
            supplier.push_for(POSE, format!("x={turn}").as_bytes(), Span::from_ms(200))?;
        }
        clock::pause(Span::from_ms(20));
    }
    let [one, two] = robots;
    for (robot, name) in [(&one, "one"), (&two, "two")] {
        let traffic = robot.opened.traffic();
        let route = &traffic.routes[0];
        println!(
            "robot {name}: {} poses pushed, {} published as {:?}, {} came, {} handled, peers {:?}",
            route.pushed,
            route.sent,
            route.priority,
            traffic.events,
            robot.poses.load(Ordering::Relaxed),
            traffic.peers,
        );
    }
    println!("the base station read {}", base.load(Ordering::Relaxed));
    end(two);
    clock::pause(Span::from_ms(100));
    println!("robot one: {} changes among its peers", one.news.load(Ordering::Relaxed));
    end(one);
    Ok(())
}

/// A session at a port of this machine, which looks for nobody.
fn session(mode: &str, at: &str, port: u16) -> Result<Session, Box<dyn Error>> {
    let mut config = Config::default();
    for (key, value) in [
        ("mode", format!("\"{mode}\"")),
        (at, format!("[\"tcp/127.0.0.1:{port}\"]")),
        ("scouting/multicast/enabled", "false".to_owned()),
    ] {
        config.insert_json5(key, &value).map_err(|error| error.to_string())?;
    }
    Ok(zenoh::open(config).wait().map_err(|error| error.to_string())?)
}

fn robot(node: u64, session: &Session) -> Result<Robot, Box<dyn Error>> {
    let ms = Span::from_ms;
    let operations =
        Operations::new("robot").with(Operation::sporadic("avoid", ms(1)).wcet(Span::from_us(50)).backlog(16));
    let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default())?;
    let channel = Channel::new(Options::default());
    // The poses of others, not its own.
    let wanted =
        [PEER_FOUND, PEER_LOST].map(Pattern::kind).into_iter().chain([Pattern::kind(POSE).from(3 - node as u32)]);
    let avoid = channel.subscribe(&plan, "avoid", Filter::any(wanted.map(Filter::from)))?;
    let (poses, news): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
    let (pose, change) = (poses.clone(), news.clone());
    let handler = avoid.handler(move |delivery, _| {
        let count = if delivery.first().head.kind == POSE { &pose } else { &change };
        count.fetch_add(1, Ordering::Relaxed);
    });
    let route = Route::new("poses").sends(Pattern::kind(POSE).from(node as u32));
    let opened = Gateway::new(node, "fleet").with(route).subscribe("fleet/*/1").open(session, &channel, &plan)?;
    let dispatching = Dispatcher::new(plan).on("avoid", handler)?.start()?;
    let connected = channel.connect(&dispatching)?;
    Ok(Robot { connected, opened, dispatching, channel, poses, news })
}

fn end(robot: Robot) {
    drop((robot.connected, robot.opened));
    let _ = robot.dispatching.stop(&mut NullSink);
}
