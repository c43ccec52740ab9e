//! Peers that do wrong.

use std::io::{Read as _, Write as _};

use takt_net::probe::{Frames, ServerCounts};

use super::*;

const WELCOME: ProbeMessage = ProbeMessage::Welcome { clock_port: 9, sink_port: 9, kernel_stamps: false };

fn reply_to(number: u64, sent: Time) -> ProbeMessage {
    let time = Time::ZERO;
    ProbeMessage::Reply { number, sent, received_from: time, received_to: time, answered: time }
}

#[test]
fn malformed_and_foreign_messages_are_dropped_and_counted() {
    let serving = Serving::start(vec![(IpAddr::from([127, 0, 0, 1]), same())]);
    let to = serving.addresses[0];
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let message = |run, message| Head { run, length: HEAD as u32, message }.write();
    let data = ProbeMessage::Data { number: 0, sent: Time::ZERO, wants_reply: true, is_warm_up: false };
    // Bytes of another protocol, a wrong length, a run that is not open, and a message that only servers send.
    socket.send_to(b"no message", to).unwrap();
    socket.send_to(&[&message(1, ProbeMessage::Open)[..], b"x"].concat(), to).unwrap();
    socket.send_to(&message(1, data), to).unwrap();
    socket.send_to(&message(2, ProbeMessage::Open), to).unwrap();
    socket.send_to(&message(2, ProbeMessage::Report(ServerCounts::default())), to).unwrap();
    // Twice the same number, and one beyond all.
    let number = |number| ProbeMessage::Data { number, sent: Time::ZERO, wants_reply: true, is_warm_up: false };
    for of in [5, 5, 3, u64::MAX] {
        socket.send_to(&message(2, number(of)), to).unwrap();
    }
    // The same run from another address.
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&message(2, number(9)), to).unwrap();
    socket.send_to(&message(2, ProbeMessage::Ask), to).unwrap();
    let mut came = Vec::new();
    let mut bytes = [0; 2048];
    while !matches!(came.last(), Some(ProbeMessage::Report(_))) {
        let (length, _) = socket.recv_from(&mut bytes).unwrap();
        came.push(Head::of_datagram(&bytes[..length]).unwrap().message);
    }
    let [
        ProbeMessage::Welcome { .. },
        ProbeMessage::Reply { number: 5, .. },
        ProbeMessage::Reply { number: 3, .. },
        ProbeMessage::Report(report),
    ] = came.as_slice()
    else {
        panic!("{came:?}")
    };
    let ServerCounts { received, bytes, duplicates, reordered, .. } = *report;
    assert_eq!((received, bytes, duplicates, reordered), (2, 128, 1, 1));
    // A stream of such bytes is closed.
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&[0; HEAD]).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    let stats = serving.stop()[0];
    assert_eq!((stats.malformed, stats.foreign, stats.runs, stats.replies), (3, 3, 1, 2), "{stats:?}");
}

/// A server that loses every fifth message, answers the others twice, and each tenth too late in
/// the order.
fn wrong(socket: &UdpSocket, stop: &AtomicBool) {
    let mut bytes = [0; 2048];
    let mut received = 0;
    let mut held = None;
    while !stop.load(Ordering::Acquire) {
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
        let Some(head) = Head::of_datagram(&bytes[..length]) else { continue };
        let send = |head: Head| drop(socket.send_to(&head.write(), from));
        let message = match head.message {
            ProbeMessage::Open => ProbeMessage::Welcome { clock_port: 9, sink_port: 9, kernel_stamps: true },
            ProbeMessage::Ask => ProbeMessage::Report(ServerCounts {
                received,
                bytes: received * HEAD as u64,
                ..ServerCounts::default()
            }),
            ProbeMessage::Data { number, .. } if number % 5 == 4 => continue,
            ProbeMessage::Data { number, sent, .. } => {
                received += 1;
                let time = Time::ZERO;
                let reply =
                    ProbeMessage::Reply { number, sent, received_from: time, received_to: time, answered: time };
                if number % 10 == 0 {
                    held = Some(Head { message: reply, ..head });
                    continue;
                }
                send(Head { message: reply, ..head });
                if let Some(held) = held.take() {
                    send(held);
                }
                // Of another run, with a false time, and no message.
                send(Head { run: head.run ^ 1, message: reply, ..head });
                let ProbeMessage::Reply { sent, .. } = reply else { continue };
                let sent = sent.saturating_add(Span::from_ns(1));
                let time = Time::ZERO;
                send(Head {
                    message: ProbeMessage::Reply {
                        number,
                        sent,
                        received_from: time,
                        received_to: time,
                        answered: time,
                    },
                    ..head
                });
                let _ = socket.send_to(b"x", from);
                reply
            }
            _ => continue,
        };
        send(Head { message, ..head });
    }
}

#[test]
fn losses_duplicates_and_changes_of_order_are_counted() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let address = socket.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    let mut spec = ProbeSpec { patience: Span::from_s(5), ..spec(&[address], 100) };
    spec.schedule.deadline = Some(Span::from_s(30));
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| wrong(&socket, &stop));
        let outcome = measure(&spec);
        stop.store(true, Ordering::Release);
        outcome
    });
    let server = outcome.servers[0];
    assert_eq!((server.sent, server.asked), (40, 40));
    // Of 40 messages 32 are answered; 28 of these twice; the 4 others after the one that follows.
    assert_eq!((server.lost(), server.answered), (Some(8), 32));
    assert_eq!((server.duplicate_replies, server.reordered_replies), (28, 4));
    assert_eq!(outcome.foreign, 3 * 28);
    assert!(outcome.messages.iter().all(|message| message.reply.is_some() == (message.number % 5 != 4)));
    // Its clock is silent, so nothing is known one way but of the lost ones.
    let figures = Figures::of(&outcome.messages, 8);
    assert_eq!((figures.missed_one_way_min, figures.missed_one_way_max, figures.missed_round_trip), (8, 40, 8));
    assert!(server.offset.is_none());
}

/// Answers the first 20 messages twice, and the 20 others when all have come.
fn twice(socket: &UdpSocket, stop: &AtomicBool) {
    let (mut bytes, mut held) = ([0; 2048], Vec::new());
    while !stop.load(Ordering::Acquire) {
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
        let Some(head) = Head::of_datagram(&bytes[..length]) else { continue };
        let send = |message| drop(socket.send_to(&Head { message, ..head }.write(), from));
        match head.message {
            ProbeMessage::Open => send(WELCOME),
            ProbeMessage::Ask => send(ProbeMessage::Report(ServerCounts { received: u64::MAX, ..Default::default() })),
            ProbeMessage::Data { number, sent, .. } if number < 20 => {
                send(reply_to(number, sent));
                send(reply_to(number, sent));
            }
            ProbeMessage::Data { number, sent, .. } => {
                held.push(reply_to(number, sent));
                if held.len() == 20 {
                    std::thread::sleep(Duration::from_millis(300));
                    held.drain(..).for_each(send);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_repeated_reply_answers_no_other_message() {
    for (is_closed, mps, burst) in [(false, 100, 1), (true, 2, 40)] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let stop = AtomicBool::new(false);
        let mut spec = ProbeSpec { is_closed, clocks: None, ..spec(&[socket.local_addr().unwrap()], mps) };
        spec.schedule.burst = (burst, burst);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| twice(&socket, &stop));
            let outcome = measure(&spec);
            stop.store(true, Ordering::Release);
            outcome
        });
        let server = outcome.servers[0];
        assert_eq!((server.asked, server.answered, server.duplicate_replies), (40, 40, 20), "closed {is_closed}");
        assert!(server.is_report_refused && server.arrived.is_none(), "{server:?}");
    }
}

/// Takes one connection, welcomes, and gives each message to `on` until that says `false`.
fn by_stream(listener: &TcpListener, on: impl Fn(&mut TcpStream, Head) -> bool) {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut frames, mut bytes, mut heads) = (Frames::default(), [0; 2048], Vec::new());
    loop {
        let Ok(length) = stream.read(&mut bytes) else { return };
        if length == 0 || frames.feed(&bytes[..length], &mut |head| heads.push(head)).is_err() {
            return;
        }
        for head in heads.drain(..) {
            let goes_on = match head.message {
                ProbeMessage::Open => stream.write_all(&Head { message: WELCOME, ..head }.write()).is_ok(),
                _ => true,
            };
            if !goes_on || !on(&mut stream, head) {
                return;
            }
        }
    }
}

#[test]
fn a_connection_that_ended_gets_no_more_messages() {
    for (is_closed, pace) in
        [(true, Pace::Max), (true, Pace::BurstsPerSecond(100)), (false, Pace::BurstsPerSecond(100))]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut spec = ProbeSpec { transport: Transport::Stream, is_closed, clocks: None, ..spec(&[address], 1) };
        spec.schedule = ScheduleSpec { deadline: Some(Span::from_s(30)), ..ScheduleSpec::new(pace) };
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                by_stream(&listener, |stream, head| {
                    let ProbeMessage::Data { number, sent, .. } = head.message else { return true };
                    stream.write_all(&Head { message: reply_to(number, sent), ..head }.write()).unwrap();
                    number < 4
                });
            });
            measure(&spec)
        });
        let server = outcome.servers[0];
        assert!(server.has_ended && server.arrived.is_none(), "{server:?}");
        assert!(server.sent >= 5 && server.answered == 5 && server.unsent <= 1, "{server:?}");
        assert_eq!(outcome.messages.len() as u64, server.sent + server.unsent, "what was not tried is not missed");
        let all = if spec.schedule.pace == Pace::Max { None } else { Some(40) };
        assert!(all.is_none_or(|all| server.sent + server.unsent + outcome.skipped == all), "{outcome:?}");
    }
}

#[test]
fn a_server_that_answers_without_end_and_reads_nothing_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut spec = ProbeSpec { transport: Transport::Stream, clocks: None, ..spec(&[address], 1) };
    spec.schedule = ScheduleSpec { reply_every: 0, size: (1000, 1000), ..ScheduleSpec::new(Pace::Max) };
    // Long enough to fill the buffers of a connection, also beside other load.
    (spec.duration, spec.patience) = (Span::from_s(1), Span::from_ms(200));
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            by_stream(&listener, |stream, head| {
                let reply = Head { length: HEAD as u32, message: reply_to(0, Time::ZERO), ..head }.write();
                let many = reply.repeat(1000);
                while stream.write_all(&many).is_ok() {}
                false
            });
        });
        measure(&spec)
    });
    let server = outcome.servers[0];
    // On a slow machine all that could be sent in time fits into the buffers, and nothing is stuck.
    let is_left = server.has_ended || server.unsent == 0;
    assert!(is_left && server.arrived.is_none() && server.answered == 0, "{server:?}");
    assert!(outcome.messages.is_empty() && outcome.foreign > 0, "{server:?}");
}
