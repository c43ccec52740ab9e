//! `takt net broker` and `takt net clock` as processes: their ends, their answers, and bad input.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;
use takt_dispatch::deadline::wire::{ANSWER, MESSAGE_MAX, Request, VERSION};
use takt_dispatch::deadline::{DeadlineSender, Route};
use takt_linux::process::{self, KillOnDrop};
use takt_linux::seqpacket::{Connection, Received, Sent};
use takt_model::Span;
use tempfile::TempDir;

use crate::command::{eventually, piped, ran};

mod command;

fn takt(arguments: &[&str]) -> Command {
    piped(&["net"], arguments)
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    ran(takt(arguments))
}

fn broker(socket: &Path) -> Child {
    let child = takt(&["broker", "--socket", socket.to_str().unwrap(), "--json"]).spawn().unwrap();
    let mut client = None;
    eventually("the broker listens", || {
        client = Connection::connect(socket).ok();
        client.is_some()
    });
    let client = client.unwrap();
    assert_eq!(client.send([&Request::Hello { version: VERSION }.head(), b""], None), Sent::Yes);
    eventually("the broker answers", || matches!(client.receive(&mut [0; ANSWER]), Received::Message(..)));
    child
}

#[test]
fn a_broker_counts_and_removes_its_socket() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("broker");
    let mut child = broker(&socket);
    let (status, _, said) = run(&["broker", "--socket", socket.to_str().unwrap()]);
    assert_eq!(status, Some(2));
    assert!(said.contains("another broker listens there: stop it, or give another path"), "{said}");
    process::terminate(&mut child);
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), answer["sent"].as_u64()), (Some(0), Some(0)));
    assert!(answer["clients"].as_u64().unwrap() >= 1, "{answer}");
    assert!(!socket.exists());
    // What a killed one left is replaced.
    let mut child = broker(&socket);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(socket.exists());
    let (status, table, _) = run(&["broker", "--socket", socket.to_str().unwrap(), "--for", "50ms"]);
    assert_eq!(status, Some(0));
    assert!(table.starts_with("CLIENTS  SOCKETS  SENT  LATE  REFUSED  WAITING AT MOST\n"), "{table}");
}

/// Stops the process of a broker (SIGSTOP), until it does nothing more.
fn freeze(child: &mut Child) {
    const SIGSTOP: u8 = 19;
    process::signal(child, SIGSTOP);
    let stat = format!("/proc/{}/stat", child.id());
    eventually("the broker stops", || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    });
}

#[test]
fn a_program_keeps_its_sockets_when_its_broker_is_killed_and_joins_the_next() {
    let wait = Some(Duration::from_secs(60));
    let pattern = |from: usize, to: usize| (from..to).map(|at| (at / 251 + at) as u8).collect::<Vec<u8>>();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("broker");
    let mut child = KillOnDrop(broker(&path));
    let sender = DeadlineSender::open(&path).unwrap();
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    receiver.set_read_timeout(wait).unwrap();
    let came = || {
        let mut bytes = [0; 64];
        let length = receiver.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    udp.connect(receiver.local_addr().unwrap()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(wait).unwrap();
    let [datagrams, stream] =
        [sender.socket(&udp, Span::from_s(600)).unwrap(), sender.socket(&tcp, Span::from_s(600)).unwrap()];
    let (mut at, mut read) = (0, 0);
    for round in 1..=3 {
        eventually("both sockets join", || [datagrams.route(), stream.route()] == [Route::Broker; 2]);
        // The peer reads nothing: the kernel takes some of these bytes, and the others wait in the broker.
        let mut send = |messages: usize| {
            for _ in 0..messages {
                let sent = stream.send(&pattern(at, at + MESSAGE_MAX)).unwrap();
                assert_eq!((sent.bytes, sent.route), (MESSAGE_MAX, Route::Broker));
                at += sent.bytes;
            }
        };
        send(6);
        // Once it has this one, it has read all of them.
        assert_eq!(datagrams.send(b"queued").unwrap().route, Route::Broker);
        assert_eq!(came(), "queued");
        eventually("it is reported", || datagrams.counts().sent == round);
        freeze(&mut child.0);
        // It reads none of these.
        for _ in 0..5 {
            assert_eq!(datagrams.send(b"lost").unwrap().route, Route::Broker);
        }
        send(1);
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        let routes = || [sender.route(), datagrams.route(), stream.route()];
        eventually("the program learns of it", || routes() == [Route::Plain; 3]);
        assert_eq!(datagrams.send(b"plain").unwrap().route, Route::Plain);
        assert_eq!(came(), "plain");
        let counts = datagrams.counts();
        assert_eq!((counts.queued, counts.sent, counts.lost, counts.plain), (6 * round, round, 5 * round, round));
        // The program sends what the broker left, once, and before what comes later.
        let mut bytes = vec![0; at - read];
        peer.read_exact(&mut bytes).unwrap();
        assert!(bytes == pattern(read, at), "the stream differs after {read}");
        read = at;
        assert_eq!(stream.send(b"plain").unwrap().route, Route::Plain);
        let mut bytes = [0; 5];
        peer.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"plain");
        child = KillOnDrop(broker(&path));
    }
    drop((datagrams, stream));
    // Both are the program's own again.
    udp.send(b"own").unwrap();
    assert_eq!(came(), "own");
    (&tcp).write_all(b"own").unwrap();
    drop(tcp);
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"own");
}

#[test]
fn bad_values_of_a_broker_are_told() {
    for (arguments, expected) in [
        (&["--for", "0s"][..], "--for is zero; give a duration like 10s"),
        (&["--rate", "0bit"][..], "--rate"),
        (&["--rate", "fast"][..], "--rate"),
        (&["--socket", "/no/such/folder/x"][..], "its folder does not exist: make it, or give another path"),
    ] {
        let (status, _, said) = run(&[&["broker"], arguments].concat());
        assert_eq!(status, Some(2), "{arguments:?} {said}");
        assert!(said.contains(expected), "{arguments:?} {said}");
    }
}

#[test]
fn two_processes_of_one_machine_have_one_clock() {
    let mut serves = takt(&["clock", "--listen", "127.0.0.1:0", "--json"]).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(serves.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    let at = said.trim_end().rsplit(' ').next().unwrap().to_owned();
    let asks = ["clock", "--listen", "127.0.0.1:0", "--period", "10ms", "--for", "500ms", "--json", "--peer"];
    let named = format!("itself={at}");
    let mut answer = Value::Null;
    eventually("an answer", || {
        let (status, document, _) = run(&[&asks[..], &[&named]].concat());
        answer = serde_json::from_str(&document).unwrap();
        status == Some(0)
    });
    let peer = &answer["peers"][0];
    assert_eq!(peer["peer"], "itself");
    let of = |key: &str| peer[key].as_i64().unwrap();
    assert!(of("offset_min_ns") <= 0 && 0 <= of("offset_max_ns"), "{answer}");
    process::terminate(&mut serves);
    let output = serves.wait_with_output().unwrap();
    let served: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && served["served"].as_u64().unwrap() >= 1, "{served}");
}

#[test]
fn a_peer_without_an_answer_is_unknown() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = silent.local_addr().unwrap().to_string();
    let (status, table, _) = run(&["clock", "--listen", "127.0.0.1:0", "--peer", &peer, "--for", "100ms"]);
    assert_eq!(status, Some(1));
    assert!(table.contains("unknown"), "{table}");
    for (arguments, expected) in [
        (&["--peer", "nowhere"][..], "is no address; write one like 10.0.0.7"),
        (&["--peer", "=10.0.0.7"][..], "has no name before the ="),
        (&["--peer", "[::1]:1"][..], "one is IPv4, the other IPv6; listen at an address of its kind"),
        (&["--period", "0s"][..], "the period of the exchanges is zero"),
        (&["--for", "0s"][..], "--for is zero"),
    ] {
        let (status, _, said) = run(&[&["clock", "--listen", "127.0.0.1:0"], arguments].concat());
        assert_eq!(status, Some(2), "{arguments:?} {said}");
        assert!(said.contains(expected), "{arguments:?} {said}");
    }
}
