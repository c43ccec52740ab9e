//! A robot in one process: a timer drives a control loop, a camera pushes events, and an operation
//! steers by them. Run: robot [LOG]

use std::fs::File;
use std::io::BufWriter;

use takt_dispatch::event::{Channel, Options, Pattern};
use takt_dispatch::{Dispatcher, KINDS, Limits, Operation, Operations};
use takt_log::{BackEnd, Definitions, Header, Writer};
use takt_model::{Builtin, Span};

const OBSTACLE: u32 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::env::args().nth(1).unwrap_or_else(|| "robot.takt".into());
    let ms = Span::from_ms;
    let operations = Operations::new("robot")
        .with(Operation::periodic("control", ms(10)).wcet(ms(1)))
        .with(Operation::sporadic("steer", ms(5)).wcet(ms(1)).backlog(4));
    let plan = operations.compute(&Builtin::Rm.strategy(), &Limits::default())?;
    let definitions = Definitions::of(&plan.system);

    let channel = Channel::new(Options::default());
    let steer = channel.subscribe(&plan, "steer", Pattern::kind(OBSTACLE))?;
    let dispatching = Dispatcher::new(plan)
        .on("control", |job| {
            for _part in 0..10 {
                // A long handler looks now and then whether it must return: the dispatcher may stop.
                if job.must_stop() {
                    return;
                }
                std::hint::spin_loop();
            }
        })?
        .on_events(&steer, |delivery, job| {
            for event in delivery.events() {
                let side = String::from_utf8_lossy(event.payload);
                println!("camera {}: obstacle on the {side}, {} left", event.head.source, job.time_left());
            }
        })?
        .start()?;
    let connected = channel.connect(&dispatching)?;

    // Any thread may push. A push copies the payload, allocates nothing and does not wait.
    let camera = channel.supplier(7);
    for side in ["left", "right", "left"] {
        camera.push_for(OBSTACLE, side.as_bytes(), ms(40))?;
        std::thread::sleep(std::time::Duration::from_millis(15));
    }

    drop(connected);
    let header = Header::new(String::new(), None, BackEnd::Run, KINDS);
    let mut log = Writer::new(BufWriter::new(File::create(&place)?), &header, &definitions)?;
    let stopped = dispatching.stop(&mut log)?;
    log.finish(stopped.end)?;
    for (operation, counts) in &stopped.counts {
        println!("{operation}: {} jobs released, {} completed", counts.released, counts.completed);
    }
    println!("what happened is in {place}: takt stats {place}");
    Ok(())
}
