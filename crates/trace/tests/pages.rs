//! A slow, obvious writer writes pages in either byte order, with words of 4 and 8 bytes, and the
//! reader gets them back. No sequence of bytes makes a reader panic.

use proptest::prelude::*;
use takt_model::Time;
use takt_trace::{Comm, Endian, Entry, EventKind, Format, Page, PageLayout, Recording, SwitchOutState, Thread, Waking};

/// Numbers as a machine of that order of bytes writes them.
#[derive(Clone, Copy, Debug)]
struct Machine {
    endian: Endian,
    word: usize,
}

impl Machine {
    fn put(self, bytes: &mut Vec<u8>, value: u64, size: usize) {
        let mut number = value.to_le_bytes()[..size].to_vec();
        if self.endian == Endian::Big {
            number.reverse();
        }
        bytes.extend(number);
    }
    fn layout(self) -> PageLayout {
        PageLayout::usual(self.word, 4096)
    }
    /// An entry's head: type and time since the one before.
    fn head(self, bytes: &mut Vec<u8>, kind: u32, delta: u32) {
        let head = if self.endian == Endian::Little { (delta << 5) | kind } else { (kind << 27) | delta };
        self.put(bytes, u64::from(head), 4);
    }
    /// A page of these entries: (time, what); times do not fall.
    fn page(self, start: u64, lost: Option<Option<u64>>, entries: &[(u64, Write)]) -> Vec<u8> {
        let mut data = Vec::new();
        let mut now = start;
        for (time, entry) in entries {
            let mut delta = time - now;
            if let Write::Absolute = entry {
                self.head(&mut data, 31, (time & ((1 << 27) - 1)) as u32);
                self.put(&mut data, (time >> 27) & 0xffff_ffff, 4);
                now = *time;
                continue;
            }
            if delta >= 1 << 27 {
                self.head(&mut data, 30, (delta & ((1 << 27) - 1)) as u32);
                self.put(&mut data, delta >> 27, 4);
                delta = 0;
            }
            now = *time;
            match entry {
                Write::Event(payload) if payload.len() <= 112 && payload.len() % 4 == 0 => {
                    self.head(&mut data, payload.len() as u32 / 4, delta as u32);
                    data.extend(payload);
                }
                Write::Event(payload) => {
                    self.head(&mut data, 0, delta as u32);
                    self.put(&mut data, payload.len() as u64 + 4, 4);
                    data.extend(payload);
                    data.resize(data.len().next_multiple_of(4), 0);
                }
                Write::Discarded(length) => {
                    // No time of its own where it is the first at its time: the kernel never writes
                    // a zero there.
                    self.head(&mut data, 29, delta.max(1) as u32);
                    now = now.max(time - delta + delta.max(1));
                    self.put(&mut data, u64::from(*length) * 4 + 4, 4);
                    data.resize(data.len() + *length as usize * 4, 0xff);
                }
                Write::Absolute => unreachable!("written above"),
            }
        }
        let mut page = Vec::new();
        self.put(&mut page, start, 8);
        let flags = lost.map_or(0, |count| (1 << 31) | if count.is_some() { 1 << 30 } else { 0 });
        self.put(&mut page, data.len() as u64 | flags, self.word);
        page.extend(&data);
        if let Some(Some(count)) = lost {
            self.put(&mut page, count, self.word);
        }
        page.resize(4096, 0);
        page
    }
}

#[derive(Clone, Debug)]
enum Write {
    Event(Vec<u8>),
    Discarded(u32),
    Absolute,
}

fn machine() -> impl Strategy<Value = Machine> {
    (any::<bool>(), any::<bool>()).prop_map(|(big, wide)| Machine {
        endian: if big { Endian::Big } else { Endian::Little },
        word: if wide { 8 } else { 4 },
    })
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        6 => proptest::collection::vec(any::<u8>(), 1..160).prop_map(Write::Event),
        1 => (0_u32..9).prop_map(Write::Discarded),
        1 => Just(Write::Absolute),
    ]
}

proptest! {
    #[test]
    fn written_pages_are_read_back(
        machine in machine(),
        start in 0_u64..1 << 62,
        lost in proptest::option::of(proptest::option::of(0_u64..1 << 31)),
        entries in proptest::collection::vec((0_u64..1 << 34, write()), 0..20),
    ) {
        let mut now = start;
        let entries: Vec<(u64, Write)> = entries.into_iter().map(|(after, entry)| {
            // A discarded entry takes a nanosecond at least.
            now += after + u64::from(matches!(entry, Write::Discarded(_)));
            (now, entry)
        }).collect();
        let bytes = machine.page(start, lost, &entries);
        let layout = machine.layout();
        let mut page = Page::new(&bytes, &layout, machine.endian);
        if let Some(count) = lost {
            prop_assert_eq!(page.next(&bytes), Some(Entry::Lost(count)));
        }
        for (time, entry) in &entries {
            let Write::Event(written) = entry else { continue };
            match page.next(&bytes) {
                Some(Entry::Event { time: read, payload }) => {
                    prop_assert_eq!(read, Time::from_ns(*time));
                    prop_assert_eq!(&payload[..written.len()], &written[..]);
                    prop_assert!(payload.len() - written.len() < 4);
                }
                other => prop_assert!(false, "{:?} in place of an event", other),
            }
        }
        prop_assert_eq!(page.next(&bytes), None);
    }

    #[test]
    fn no_bytes_make_it_panic(
        machine in machine(),
        start in 0_u64..1 << 40,
        entries in proptest::collection::vec((0_u64..1 << 30, write()), 0..20),
        flips in proptest::collection::vec((0_usize..4096, any::<u8>()), 0..8),
        length in 0_usize..4097,
    ) {
        let mut now = start;
        let timed = |(after, entry)| { now += after + 1; (now, entry) };
        let entries: Vec<(u64, Write)> = entries.into_iter().map(timed).collect();
        let mut bytes = machine.page(start, None, &entries);
        for (at, byte) in flips {
            bytes[at] = byte;
        }
        bytes.truncate(length);
        let mut recording = Recording::pages(&formats(machine), machine.layout(), machine.endian, vec![(3, &bytes)]);
        let mut latest = Time::ZERO;
        let mut events = 0;
        recording.each(|event| {
            assert!(event.time >= latest && event.cpu == 3);
            latest = event.time;
            events += 1;
        });
        prop_assert!(events <= 4096 / 4 + 1);
    }
}

/// The descriptions that a kernel with such words would have, offsets and numbers unlike Linux 6's.
fn formats(machine: Machine) -> Vec<Format> {
    let word = machine.word;
    let texts = [
        format!(
            "name: sched_switch\nID: 7\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
             \tfield:pid_t next_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
             \tfield:int next_prio;\toffset:12;\tsize:4;\tsigned:1;\n\
             \tfield:char next_comm[16];\toffset:16;\tsize:16;\tsigned:1;\n\
             \tfield:long prev_state;\toffset:32;\tsize:{word};\tsigned:1;\n\
             \tfield:pid_t prev_pid;\toffset:40;\tsize:4;\n\tfield:int prev_prio;\toffset:44;\tsize:4;\n\
             \tfield:char prev_comm[16];\toffset:48;\tsize:16;\n\n\
             print fmt: \"%s\", REC->prev_state & 2048 ? \"+\" : \"\"\n"
        ),
        "name: sched_waking\nID: 300\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
         \tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n\
         \tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n\
         \tfield:int target_cpu;\toffset:16;\tsize:4;\tsigned:1;\n"
            .to_owned(),
        "name: irq_handler_entry\nID: 8\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
         \tfield:char no_irq;\toffset:8;\tsize:1;\tsigned:1;\n"
            .to_owned(),
    ];
    texts.iter().map(|text| Format::parse(text).expect("a format")).collect()
}

#[test]
fn fields_are_found_by_their_descriptions() {
    for (endian, word) in [(Endian::Little, 8), (Endian::Big, 8), (Endian::Little, 4), (Endian::Big, 4)] {
        let machine = Machine { endian, word };
        let mut switch = Vec::new();
        for (value, size) in [(7, 2), (0, 2), (12, 4), (34, 4), (98, 4)] {
            machine.put(&mut switch, value, size);
        }
        switch.extend(b"next\0garbage....");
        machine.put(&mut switch, 2048, word);
        switch.resize(40, 0);
        machine.put(&mut switch, 12, 4);
        machine.put(&mut switch, u64::from(u32::MAX), 4);
        switch.extend(b"a name of 16 let");
        let mut waking = Vec::new();
        for (value, size) in [(300, 2), (0, 2), (0, 4), ((4 << 16) | 20, 4), (55, 4), (1, 4)] {
            machine.put(&mut waking, value, size);
        }
        waking.extend(b"abc\0");
        let mut other = Vec::new();
        for (value, size) in [(999, 2), (0, 2)] {
            machine.put(&mut other, value, size);
        }
        let short = vec![switch[0], switch[1], 0, 0];
        let entries =
            [(5, switch), (6, waking), (6, other), (9, short)].map(|(time, bytes)| (time, Write::Event(bytes)));
        let bytes = machine.page(5, None, &entries);
        let mut recording = Recording::pages(&formats(machine), machine.layout(), endian, vec![(1, &bytes)]);
        let mut events = Vec::new();
        recording.each(|event| events.push(*event));
        let thread = |pid, name: &str, prio| Thread { pid, comm: Comm::new(name.as_bytes()), prio };
        let what: Vec<_> = events.iter().map(|event| (event.time.as_ns(), event.pid, event.what)).collect();
        let prev = thread(12, "a name of 16 le", Some(-1));
        let next = thread(34, "next", Some(98));
        assert_eq!(
            what,
            [
                (5, 12, EventKind::Switch { prev, left: SwitchOutState::Preempted, next }),
                (6, 0, EventKind::Wake { thread: thread(55, "abc", None), waking: Waking::Begins, cpu: Some(1) }),
                (6, 0, EventKind::Other),
            ]
        );
        let why: Vec<String> = recording.damages().first().iter().map(ToString::to_string).collect();
        assert_eq!(
            why,
            [
                "byte 0: the format of irq_handler_entry lacks the field irq: its events are counted, not read",
                "byte 0: an event is shorter than its format",
            ]
        );
        assert_eq!(recording.names().name(events[2].name), "(no format)");
    }
}

/// CPUs are merged by time; at one time the first CPU of the trace comes first.
#[test]
fn cpus_are_merged() {
    let machine = Machine { endian: Endian::Little, word: 8 };
    let event = |time| (time, Write::Event(vec![0; 8]));
    let zero = machine.page(1, None, &[event(1), event(4), event(4), event(9)]);
    let two = machine.page(2, Some(Some(3)), &[event(2), event(4), event(5)]);
    let mut recording = Recording::pages(&[], machine.layout(), Endian::Little, vec![(0, &zero), (2, &two)]);
    let mut order = Vec::new();
    recording.each(|event| {
        order.push((event.time.as_ns(), event.cpu, matches!(event.what, EventKind::Lost { count: Some(3) })))
    });
    let expected = [(1, 0), (2, 2), (2, 2), (4, 0), (4, 0), (4, 2), (5, 2), (9, 0)];
    let expected: Vec<_> = expected.iter().enumerate().map(|(k, &(time, cpu))| (time, cpu, k == 1)).collect();
    assert_eq!(order, expected);
}

/// A full page has no room for the number of lost events. The next page must not be read for it.
#[test]
fn how_many_were_lost_is_not_read_of_the_next_page() {
    const PAGE: usize = 256;
    const LOST_AND_STORED: u64 = 3 << 30;
    let layout = PageLayout::usual(8, PAGE);
    let page = |time: u64, commit: u64| {
        let mut bytes = vec![0; PAGE];
        bytes[..8].copy_from_slice(&time.to_le_bytes());
        bytes[8..16].copy_from_slice(&commit.to_le_bytes());
        // Nothing but padding.
        bytes[16] = 29;
        bytes
    };
    let full = page(5, (PAGE - layout.data) as u64 | LOST_AND_STORED);
    let two = [full, page(7, 0)].concat();
    assert_eq!(Page::new(&two, &layout, Endian::Little).next(&two), Some(Entry::Lost(None)));
}
