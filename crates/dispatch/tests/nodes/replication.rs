//! Values that operations write, flushed to other nodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use takt_dispatch::event::{Channel, Level, Node, Options, Pattern, Published, Replica};
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations};
use takt_linux::clock;
use takt_linux::net::Cable;
use takt_log::NullSink;
use takt_model::{Builtin, Span};

use super::{PATIENT, alone, at, cable, join, ms, plan, started, traffic, until};

const VALUES: u32 = 9;

/// A process whose operation applies values of source 1.
struct Reader {
    channel: Channel,
    dispatching: Dispatching,
    replica: Replica,
}

fn reader(name: &str, sizes: &[usize]) -> Option<Reader> {
    // A backlog larger than a flush.
    let ns = Span::from_ns(1);
    let apply = Operation::sporadic("apply", ns).wcet(ns).deadline(Span::from_s(60)).backlog(8);
    let plan = plan(&Operations::new(name).with(apply), Builtin::Muf);
    let channel = Channel::new(Options::default());
    let replica = Replica::new(1, VALUES, sizes);
    let (apply, taker) = (channel.subscribe(&plan, "apply", Pattern::kind(VALUES)).unwrap(), replica.clone());
    let handler = apply.handler(move |delivery, job| taker.apply(delivery, job));
    let dispatching = started(Dispatcher::new(plan).on("apply", handler).unwrap())?;
    Some(Reader { channel, dispatching, replica })
}

#[test]
fn values_that_operations_write_come_to_the_other_node_when_they_are_flushed_and_late_ones_are_counted() {
    let _alone = alone();
    let Some(cable) = cable() else { return };
    let sizes = [8, 200, 200];
    let sporadic = |name| Operation::sporadic(name, ms(1)).wcet(Span::from_us(1)).deadline(Span::from_s(60)).backlog(8);
    // Two writers, one usually in time and one slower than its deadline, and a flushing operation.
    let operations = Operations::new("writers").with(sporadic("steer").deadline(ms(20))).with(sporadic("flush"));
    let operations = operations.with(sporadic("slow").deadline(ms(1)).noncritical());
    let plan = plan(&operations, Builtin::Muf);
    let left = Channel::new(Options::default());
    let values = Published::new(&left, 1, VALUES, &sizes).unwrap();
    let of = |values: &Published| values.clone();
    let (steer, slow, flush) = (of(&values), of(&values), of(&values));
    let results: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (one, two) = (results.clone(), results.clone());
    let built = Dispatcher::new(plan)
        .on("steer", move |job| {
            for value in 0..3 {
                one.lock().unwrap().push(steer.write(value, &[job.number() as u8; 8], job).unwrap());
            }
        })
        .unwrap()
        .on("slow", move |job| {
            while job.now() <= job.deadline() {
                std::hint::spin_loop();
            }
            two.lock().unwrap().push(slow.write(1, &[99; 200], job).unwrap());
        })
        .unwrap()
        .on("flush", move |job| assert!(flush.flush(Span::from_s(60), job).is_ok()))
        .unwrap();
    let Some(mut writers) = started(built) else { return };
    let Some(reader) = reader("reader", &sizes) else { return };
    let level = |here, there| Level::new("values", at(here, 7000)).peer(at(there, 7000));
    let from = Node::new(1).with(level(cable.left(), cable.right()).sends(Pattern::kind(VALUES)));
    let to = Node::new(2).with(level(cable.right(), cable.left()));
    let readers_node = join(cable.right(), &reader.channel, &to, &reader.dispatching);
    let writers_node = join(cable.left(), &left, &from, &writers);
    let run = |name: &str| {
        let before = writers.counts().iter().map(|(_, counts)| counts.completed).sum::<u64>();
        // Its least distance may not be over.
        assert!(until(|| writers.operation(name).unwrap().push().is_ok()));
        assert!(until(|| writers.counts().iter().map(|(_, counts)| counts.completed).sum::<u64>() > before));
    };
    let replica = &reader.replica;
    let read =
        |value: usize| replica.view(|values| values.get(value).map(|known| (known.version, known.bytes.to_vec())));
    run("steer");
    assert_eq!((values.counts().events, traffic(&writers_node, 0).sent), (0, 0), "nothing is sent before the flush");
    // The flush is at the deadline.
    clock::pause(ms(25));
    run("flush");
    assert!(until(|| (0..3).all(|value| read(value) == Some((1, vec![0; 8])))));
    run("slow");
    run("flush");
    assert!(until(|| read(1) == Some((2, vec![99; 200]))), "late, with the next flush");
    run("steer");
    run("steer");
    clock::pause(ms(25));
    run("flush");
    assert!(until(|| (0..3).all(|value| read(value).is_some_and(|read| read.1 == vec![2; 8]))));
    let counts = values.counts();
    assert_eq!((counts.written, counts.replaced, counts.repeated), (10, 3, 0));
    assert_eq!((counts.flushed, counts.flushes, counts.missed), (7, 3, 0));
    // Writes of "slow", and of others if the machine paused.
    let late = results.lock().unwrap().iter().filter(|in_time| !**in_time).count() as u64;
    assert!(late >= 1 && counts.late == late, "{late} {counts:?}");
    assert_eq!((replica.counts().applied, replica.counts().malformed), (7, 0));
    values.refresh();
    run("flush");
    assert!(until(|| replica.counts().old == 3), "they had come: {:?} {:?}", replica.counts(), values.counts());
    assert_eq!(values.counts().repeated, 3);
    writers.drain(&mut NullSink);
    drop((readers_node, writers_node));
}

/// The facts of a flush: the number of values sent, whether its deadline had passed before the
/// flush, and whether it had passed after.
type Ended = (usize, bool, bool);

/// A timer releases the flushes. The test holds a flush past its deadline before it sends. Returns
/// the most flushes that may have been late, and the number of values in the held flush.
fn one_flush_of_a_timer_is_held(cable: &Cable) -> Option<(usize, usize)> {
    let (frame, sizes) = (ms(250), [8, 200]);
    let operations = Operations::new("writers")
        .with(Operation::periodic("flush", frame).wcet(Span::from_us(1)).deadline(ms(200)))
        // On its own level, so it continues while a flush sleeps.
        .with(Operation::periodic("steer", frame).wcet(Span::from_us(1)).noncritical());
    let plan = operations.compute(&Builtin::Muf.strategy(), &Limits::default()).unwrap();
    let channel = Channel::new(Options::default());
    let values = Published::new(&channel, 1, VALUES, &sizes).unwrap();
    let (written, flushed) = (values.clone(), values.clone());
    let [writes, hold] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let ended: Arc<Mutex<Vec<Ended>>> = Arc::default();
    let (may_write, is_held, ends) = (writes.clone(), hold.clone(), ended.clone());
    let built = Dispatcher::new(plan)
        .on("steer", move |job| {
            if may_write.load(Ordering::Acquire) {
                written.write(0, &job.number().to_be_bytes(), job).unwrap();
                written.write(1, &[job.number() as u8; 200], job).unwrap();
            }
        })
        .unwrap()
        .on("flush", move |job| {
            if is_held.swap(false, Ordering::AcqRel) {
                while job.now() <= job.deadline() {
                    clock::pause(ms(1));
                }
            }
            let before = job.now() > job.deadline();
            let sent = flushed.flush(Span::from_s(60), job).unwrap();
            ends.lock().unwrap().push((sent, before, job.now() > job.deadline()));
        })
        .unwrap();
    let (writers, readers) = (started(built)?, [reader("one", &sizes)?, reader("two", &sizes)?]);
    let ports = [7001, 7002];
    let readers_nodes = [0, 1].map(|number| {
        let level = Level::new("values", at(cable.right(), ports[number])).peer(at(cable.left(), 7000));
        let (node, reader) = (Node::new(2 + number as u64).with(level).beat(ms(10), PATIENT), &readers[number]);
        join(cable.right(), &reader.channel, &node, &reader.dispatching)
    });
    let level = ports
        .iter()
        .fold(Level::new("values", at(cable.left(), 7000)), |level, port| level.peer(at(cable.right(), *port)));
    let node = Node::new(1).with(level.sends(Pattern::kind(VALUES))).beat(ms(10), PATIENT);
    let writers_node = join(cable.left(), &channel, &node, &writers);
    let applied = || readers.each_ref().map(|reader| reader.replica.counts().applied);
    writes.store(true, Ordering::Release);
    assert!(until(|| applied().iter().all(|applied| *applied > 0)), "nobody pushes a flush: {:?}", applied());
    hold.store(true, Ordering::Release);
    let held = || ended.lock().unwrap().iter().position(|(_, before, _)| *before);
    assert!(until(|| held().is_some_and(|held| ended.lock().unwrap().len() > held + 2)), "{ended:?}");
    writes.store(false, Ordering::Release);
    // A job may have looked before. It has ended once another one completes.
    let steered = || writers.counts()[1].1.completed;
    let before = steered();
    assert!(until(|| steered() > before), "the timer goes on");
    let all_came = || {
        let counts = values.counts();
        counts.written == counts.flushed + counts.replaced && applied() == [counts.flushed; 2]
    };
    assert!(until(all_came), "{:?} {:?}", values.counts(), applied());
    assert_eq!(traffic(&writers_node, 0).sent, 2 * values.counts().events, "each event to both");
    drop((readers_nodes, writers_node));
    writers.stop(&mut NullSink).unwrap();
    let (counts, ended) = (values.counts(), ended.lock().unwrap().clone());
    assert_eq!((counts.flushes, counts.missed), (ended.len() as u64, 0), "{counts:?}");
    for reader in &readers {
        let taken = reader.replica.counts();
        assert_eq!((taken.applied, taken.old, taken.malformed), (counts.flushed, 0, 0));
    }
    // The flush reads the clock after it has sent, and the handler before and after that.
    let late = |is: fn(&Ended) -> bool| ended.iter().filter(|row| is(row)).count();
    let (surely, perhaps) = (late(|row| row.1), late(|row| row.2));
    assert!((surely..=perhaps).contains(&(counts.late_flushes as usize)), "{counts:?} {ended:?}");
    Some((perhaps, ended.iter().find(|row| row.1).unwrap().0))
}

#[test]
fn a_timer_flushes_to_two_peers_and_the_one_flush_that_ends_late_is_counted() {
    let _alone = alone();
    let mut ends = Vec::new();
    // If the machine pauses, other flushes are late as well.
    while ends.len() < 5 {
        let Some(cable) = cable() else { return };
        match one_flush_of_a_timer_is_held(&cable) {
            None | Some((1, 2)) => return,
            Some(end) => ends.push(end),
        }
    }
    panic!("more than one flush late, or without values, in each run: {ends:?}");
}
