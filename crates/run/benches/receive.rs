//! The cost of receiving a message, by datagrams per system call.
//!
//! `cargo bench -p takt-run --bench receive -- [--rounds N]`
//!
//! A socket of this machine gets 64 datagrams of 400 bytes over the loopback device. Then they are
//! received: by plain recv, by recvmsg with the kernel's stamp, and by recvmmsg in chunks with stamps. The
//! last line opens each datagram as well. Figures are CPU time of the receiving thread.

use std::net::{Ipv4Addr, SocketAddr};

use takt_linux::clock::thread_cpu;
use takt_linux::datagram::{Chunk, Datagrams, Sent};
use takt_model::{Span, TaskId, Time};
use takt_net::{MessageBody, MessageHead};
use takt_run::node::{CHUNK, Key};

const BATCH: usize = 64;
const LENGTH: usize = 400;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds = args.iter().position(|arg| arg == "--rounds").and_then(|at| args.get(at + 1)?.parse().ok());
    let rounds = rounds.unwrap_or(2000_usize);
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bind = || Datagrams::bind(here, 0, 1 << 20, Span::from_ms(1)).expect("a socket");
    let (sender, receiver) = (bind(), bind());
    receiver.stamp().expect("stamps");
    let to = receiver.address().expect("an address").into();
    let key: Key = "5a".repeat(32).parse().expect("a key");
    let head = MessageHead { from: 0, salt: [1; 16], counter: 1, boot: 1, run: 1, system: 1 };
    let zero = Time::ZERO;
    let body = MessageBody { task: TaskId(0), job: 0, message: 0, due: zero, origin: zero, zero, payload: 0 };
    let mut datagram = vec![0; LENGTH];
    assert!(key.seal(&head, &body, &mut datagram));
    let mut bytes = vec![0; LENGTH + 1];
    let mut each = |receive: &mut dyn FnMut(&mut [u8]) -> usize| {
        let mut costs: Vec<u64> = (0..rounds)
            .map(|_| {
                for _ in 0..BATCH {
                    assert_eq!(sender.send([&datagram, &[]], &to, Span::ZERO), Sent::Yes);
                }
                let before = thread_cpu();
                let mut came = 0;
                while came < BATCH {
                    came += receive(&mut bytes);
                }
                thread_cpu().saturating_sub(before).as_ns() / BATCH as u64
            })
            .collect();
        costs.sort_unstable();
        let at = |percent: usize| costs.get(costs.len() * percent / 100).copied().unwrap_or(0);
        (at(50), at(99))
    };
    println!("CPU time per datagram of {LENGTH} bytes       p50 ns   p99 ns");
    let show = |name: &str, (p50, p99): (u64, u64)| println!("{name:<36} {p50:>9} {p99:>8}");
    let plain = |bytes: &mut [u8]| usize::from(receiver.receive_now(bytes).expect("it is there").is_some());
    show("recv", each(&mut |bytes| plain(bytes)));
    show("recvmsg with the stamp", each(&mut |bytes| usize::from(receiver.receive_asked(bytes).is_some())));
    for size in [1, 8, 32] {
        let mut chunk = Chunk::new(size, LENGTH + 1);
        show(&format!("recvmmsg of {size} with stamps"), each(&mut |_| receiver.receive_chunk(&mut chunk, size)));
    }
    let mut chunk = Chunk::new(CHUNK, LENGTH + 1);
    let opened = each(&mut |_| {
        receiver.receive_chunk(&mut chunk, CHUNK);
        let read = |bytes: &mut [u8]| MessageHead::read(bytes).and_then(|head| key.open(&head, bytes));
        chunk.datagrams().filter_map(|came| read(came.bytes)).count()
    });
    show(&format!("recvmmsg of {CHUNK}, and opened"), opened);
}
