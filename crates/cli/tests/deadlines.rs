//! `takt net broker` and `takt net clock` as processes: their ends, their answers, and bad input.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command};

use serde_json::Value;
use takt_dispatch::deadline::wire::{ANSWER, Request, VERSION};
use takt_linux::process;
use takt_linux::seqpacket::{Connection, Received, Sent};
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
