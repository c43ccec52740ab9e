//! The rules, and the program beside the obvious reading of a packet.

use std::os::fd::AsRawFd as _;

use super::*;

fn rule(text: &str) -> Rule {
    Rule { of: text.parse().unwrap(), role: Role::RealTime }
}

#[test]
fn rules_print_as_they_are_written() {
    for text in ["priority:6", "port:7000", "port:7000-7009", "from-port:53", "cgroup:/control/loop"] {
        assert_eq!(text.parse::<Match>().unwrap().to_string(), text);
    }
    let wrong = [
        ("7000", "is no rule; write priority:6"),
        ("port:0", "\"0\" is no port from 1 to 65535"),
        ("port:9-8", "port 9 comes after 8"),
        ("priority:-1", "\"-1\" is no priority"),
        ("cgroup:control", "write one from the root"),
        ("mark:1", "\"mark\" is no property of packets"),
    ];
    for (text, expected) in wrong {
        let error = text.parse::<Match>().unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn jumps_stay_within_the_program_and_every_way_ends() {
    let rules = ["priority:6", "port:7000-7009", "from-port:53", "cgroup:/a"].map(rule);
    for verdict in [Verdict::Returned, Verdict::Written] {
        let program = assemble(&rules, verdict, |_| Ok(GroupId { id: u64::MAX - 1, level: 1 })).unwrap();
        let mut at = 0;
        while at < program.len() {
            let instruction = program[at];
            let jumps = instruction.code & 7 == 5 || instruction.code & 7 == 6;
            if jumps && ![CALL, EXIT].contains(&instruction.code) {
                assert!(instruction.offset >= 0, "no loop");
                assert!(at + 1 + (instruction.offset as usize) < program.len(), "{instruction:?} at {at}");
            }
            at += if instruction.code == LOAD_LONG { 2 } else { 1 };
        }
        assert_eq!(program.last().unwrap().code, EXIT);
    }
    assert_eq!(assemble(&[], Verdict::Returned, |_| unreachable!()).unwrap().len(), 3, "all is background");
}

#[test]
fn the_kernel_takes_the_program() {
    let rules = ["priority:4294967295", "port:1-65535", "from-port:53", "cgroup:/"].map(rule);
    for verdict in [Verdict::Returned, Verdict::Written] {
        match Classifier::load(&rules, verdict) {
            Ok(classifier) => assert!(classifier.id > 0),
            Err(error) => println!("skipped: {error}"),
        }
    }
    let none = Classifier::load(&[rule("cgroup:/no/such/group")], Verdict::Returned).unwrap_err().to_string();
    assert!(none.starts_with("control group /no/such/group: "), "{none}");
}

#[test]
fn the_mount_of_groups_is_found() {
    let line = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    assert_eq!(cgroup2(line), Some("/sys/fs/cgroup/unified"));
    assert_eq!(cgroup2("40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd"), None);
}

/// Draws numbers, the same in each run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn port(&mut self) -> u16 {
        7_000 + self.below(4) as u16
    }

    fn rule(&mut self) -> Rule {
        let (first, width) = (self.port(), self.below(2) as u16);
        let of = match self.below(3) {
            0 => Match::Priority(u32::MAX - self.below(3) as u32),
            1 => Match::ToPort(first, first + width),
            _ => Match::FromPort(first, first + width),
        };
        Rule { of, role: if self.below(2) == 0 { Role::RealTime } else { Role::Reply } }
    }

    /// A frame of Ethernet: IPv4, IPv6 or neither, whole or cut short.
    fn frame(&mut self) -> Vec<u8> {
        let protocol = [17, 6, 1, 0][self.below(4) as usize];
        let ports = [self.port().to_be_bytes(), self.port().to_be_bytes()].concat();
        let mut frame = vec![2; 12];
        match self.below(5) {
            0 => {
                frame.extend_from_slice(&[0x08, 0x06]);
                frame.extend_from_slice(&[0x45; 20]);
            }
            1 => {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, protocol, 1]);
                frame.extend_from_slice(&[9; 32]);
            }
            _ => {
                let words = 5 + self.below(2) as u8 * 3;
                let fragment = if self.below(4) == 0 { self.below(3) as u16 } else { 0x4000 };
                frame.extend_from_slice(&[0x08, 0x00, 0x40 | words, 0, 0, 0, 0, 0]);
                frame.extend_from_slice(&fragment.to_be_bytes());
                frame.extend_from_slice(&[1, protocol]);
                frame.resize(14 + usize::from(words) * 4, 7);
            }
        }
        frame.extend_from_slice(&ports);
        frame.extend_from_slice(&[0; 4]);
        if self.below(8) == 0 {
            frame.truncate(14 + self.below(frame.len() as u64 - 14) as usize);
        }
        frame
    }
}

/// The ports of a frame, read step by step.
fn ports_of(frame: &[u8]) -> Option<(u16, u16)> {
    let packet = frame.get(14..)?;
    // The program copies so much of each header.
    packet.get(..HEADER_BYTES as usize)?;
    let (protocol, at) = match u16::from_be_bytes([frame[12], frame[13]]) {
        0x0800 if u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0 => return None,
        0x0800 => (packet[9], usize::from(packet[0] & 0xf) * 4),
        0x86dd => (packet[6], 40),
        _ => return None,
    };
    let ports = packet.get(at..at + 4)?;
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    [6, 17].contains(&protocol).then(|| (port(0), port(2)))
}

fn class_by_reading(rules: &[Rule], frame: &[u8], priority: u32) -> u32 {
    let ports = ports_of(frame);
    let holds = |rule: &&Rule| match &rule.of {
        Match::Priority(of) => *of == priority,
        Match::FromPort(first, last) => ports.is_some_and(|(from, _)| (*first..=*last).contains(&from)),
        Match::ToPort(first, last) => ports.is_some_and(|(_, to)| (*first..=*last).contains(&to)),
        Match::Group(_) => false,
    };
    rules.iter().find(holds).map_or(0, |rule| class_of(rule.role))
}

/// BPF_PROG_TEST_RUN: the program's answer for a frame, and the frame's priority afterwards.
fn class_by_program(program: &Classifier, frame: &[u8], priority: u32) -> io::Result<(u32, u32)> {
    #[repr(C)]
    #[derive(Default)]
    struct Run {
        program: u32,
        answer: u32,
        lengths: [u32; 2],
        frame: u64,
        out: u64,
        repeat: u32,
        duration: u32,
        context_lengths: [u32; 2],
        context: u64,
        context_out: u64,
        rest: [u32; 4],
    }
    const PROG_TEST_RUN: libc::c_int = 10;
    let mut context = [0_u8; 192];
    context[PRIORITY as usize..][..4].copy_from_slice(&priority.to_ne_bytes());
    let mut after = [0_u8; 192];
    let mut run = Run {
        program: program.program.as_raw_fd().cast_unsigned(),
        lengths: [frame.len() as u32, 0],
        frame: frame.as_ptr() as u64,
        context_lengths: [context.len() as u32, after.len() as u32],
        context: context.as_ptr() as u64,
        context_out: after.as_mut_ptr() as u64,
        ..Run::default()
    };
    let size = size_of_val(&run);
    // SAFETY: the attributes, and the frame and contexts to which they point, outlive the call and have their lengths.
    match unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, std::ptr::from_mut(&mut run), size) } {
        0 => Ok((run.answer, u32::from_ne_bytes(*after[PRIORITY as usize..].first_chunk().unwrap()))),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn the_program_decides_as_a_reader_of_the_packet_does() {
    let mut draws = Draws(0x7461_6b74);
    let mut classes = [0_u32; 3];
    for _ in 0..64 {
        let rules: Vec<Rule> = (0..=draws.below(4)).map(|_| draws.rule()).collect();
        let load = |verdict| Classifier::load(&rules, verdict);
        let (program, writer) = match (load(Verdict::Returned), load(Verdict::Written)) {
            (Ok(program), Ok(writer)) => (program, writer),
            (Err(error), _) | (_, Err(error)) => return println!("skipped: {error}"),
        };
        for _ in 0..64 {
            let (frame, priority) = (draws.frame(), u32::MAX - draws.below(4) as u32);
            let expected = class_by_reading(&rules, &frame, priority);
            let found = match class_by_program(&program, &frame, priority) {
                // The kernel runs no program on frames without a whole header of their protocol.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && frame.len() < 54 => continue,
                found => found.unwrap().0,
            };
            assert_eq!(found, expected, "{rules:?}, priority {priority}: {frame:02x?}");
            let written = if expected == 0 { priority } else { expected };
            assert_eq!(
                class_by_program(&writer, &frame, priority).unwrap(),
                (u32::MAX, written),
                "the next one goes on"
            );
            let tagged = class_by_program(&writer, &frame, TAGGED).unwrap();
            assert_eq!(tagged, (u32::MAX, TAGGED), "it carries a deadline");
            let which = [0, class_of(Role::RealTime), class_of(Role::Reply)].iter().position(|of| *of == found);
            classes[which.unwrap()] += 1;
        }
    }
    assert!(classes.iter().all(|count| *count > 100), "each class is drawn: {classes:?}");
}
