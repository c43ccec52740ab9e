//! Traces of real machines by other authors. The counts of takt equal the known counts.
//!
//! tests/data/README.md says where each is from.

use std::collections::BTreeMap;

use takt_model::Time;
use takt_trace::{
    Abi, DatError, Endian, Entry, EventKind, Form, KernelEvent, Loss, OpenError, Page, PageLayout, Place, Recording,
    SwitchOutState, dat_extent, dat_extent_of, embedded, is_trace, refuse_foreign, unpacked,
};

/// A trace as it is read: every event with its name, and how many places are broken.
fn read(file: &str) -> (Form, Vec<(KernelEvent, String)>, u64) {
    let bytes = dat_file(file);
    let mut recording = Recording::open(&bytes).expect("the fixture is a trace");
    let mut events = Vec::new();
    recording.each(|event| events.push(*event));
    assert!(events.is_sorted_by_key(|event| event.time), "{file}: in the order of time");
    let named = events.iter().map(|event| (*event, recording.names().name(event.name).to_owned())).collect();
    (recording.form(), named, recording.damages().count())
}

fn count(events: &[(KernelEvent, String)], name: &str) -> usize {
    events.iter().filter(|(_, other)| other == name).count()
}

#[test]
fn counts_are_those_that_are_known() {
    for (file, form, events, switches, broken) in [
        // As trace-cmd 3.1.6 reports them.
        ("trappy-raw_trace.dat.gz", Form::Dat(6), 757, 755, 0),
        ("lisa-sched_load_trace.dat.gz", Form::Dat(6), 3724, 399, 0),
        ("lisa-sched_load_trace.v7-zstd.dat", Form::Dat(7), 3724, 399, 0),
        // 2943 lines, the first two of which are no events.
        ("lisa-trace.txt.gz", Form::Text, 2941, 1856, 0),
        ("trappy-doc_trace.txt", Form::Text, 804, 0, 0),
        ("trappy-raw_trace.txt", Form::Text, 3, 3, 0),
        ("trappy-trace_common_clk.txt", Form::Text, 8, 0, 0),
        ("trappy-trace_empty.txt", Form::Text, 51, 0, 0),
        ("trappy-trace_equals.txt", Form::Text, 7, 0, 0),
        ("trappy-trace_failed_to_parse.txt", Form::Text, 11, 0, 0),
        ("trappy-trace_filesystem.txt", Form::Text, 69, 0, 0),
        // Its last line is cut within a sched_switch.
        ("trappy-trace_idle_unsorted.txt", Form::Text, 14, 6, 1),
        ("trappy-trace_no_trailing_line.txt", Form::Text, 10, 1, 0),
        ("trappy-trace_sched.txt", Form::Text, 11, 0, 0),
        // Their headings promise more events than somebody left in them.
        ("trappy-trace_legacy_systrace.html", Form::Text, 15, 3, 1),
        ("trappy-trace_systrace.html", Form::Text, 10, 4, 1),
    ] {
        let (its_form, read, damages) = read(file);
        let counts = (its_form, read.len(), count(&read, "sched_switch"), damages);
        assert_eq!(counts, (form, events, switches, broken), "{file}");
        let understood = read.iter().filter(|(event, _)| matches!(event.what, EventKind::Switch { .. })).count();
        assert_eq!(understood, switches, "{file}: every sched_switch is read");
    }
}

/// The kernel's counters of each CPU stand in a trace.dat; here all are zero.
#[test]
fn losses_in_the_kernels_counters_are_reported() {
    let mut bytes = dat_file("trappy-raw_trace.dat.gz");
    assert_eq!(Recording::open(&bytes).expect("a trace").losses(), []);
    let places = |bytes: &[u8], what: &[u8]| -> Vec<usize> {
        let found = bytes.windows(what.len()).enumerate().filter(|(_, window)| *window == what);
        found.map(|(at, _)| at + what.len() - 1).collect()
    };
    let (overrun, dropped) = (places(&bytes, b"\noverrun: 0"), places(&bytes, b"\ndropped events: 0"));
    assert!(overrun.len() > 2 && overrun.len() == dropped.len());
    (bytes[overrun[0]], bytes[dropped[0]], bytes[dropped[2]]) = (b'7', b'1', b'3');
    let told = [Loss { cpu: Some(0), events: 8 }, Loss { cpu: Some(2), events: 3 }];
    assert_eq!(Recording::open(&bytes).expect("a trace").losses(), told);
}

/// The kernel's text says how many events an overwritten buffer lost, and where each CPU begins.
#[test]
fn a_buffer_that_went_round_is_told() {
    let text = b"# tracer: nop\n#\n# entries-in-buffer/entries-written: 2/32   #P:2\n#\n\
        \x20   a-1     [000] d..2.     1.000100: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n\
        ##### CPU 1 buffer started ####\n\
        \x20   a-1     [001] d..2.     1.000200: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n";
    let mut recording = Recording::open(text).expect("a trace");
    let mut lost = Vec::new();
    recording.each(|event| {
        if let EventKind::Lost { count } = event.what {
            lost.push((event.cpu, event.time, count));
        }
    });
    assert_eq!(lost, [(1, Time::from_ns(1_000_100_000), None)]);
    assert_eq!(recording.losses(), [Loss { cpu: None, events: 30 }]);
}

#[test]
fn both_versions_of_a_file_say_the_same() {
    assert_eq!(read("lisa-sched_load_trace.dat.gz").1, read("lisa-sched_load_trace.v7-zstd.dat").1);
}

/// The text was made of the first file: where both have an event they agree to the microsecond.
#[test]
fn binary_and_text_agree() {
    let binary = read("trappy-raw_trace.dat.gz").1;
    for (event, _) in &read("trappy-raw_trace.txt").1 {
        let same = binary.iter().find(|(other, _)| {
            let rounded = (other.time.as_ns() + 500) / 1000 * 1000;
            rounded == event.time.as_ns() && other.cpu == event.cpu && other.pid == event.pid
        });
        let (other, _) = same.unwrap_or_else(|| panic!("{event:?} is not in the file"));
        assert_eq!(other.what, event.what);
    }
}

/// If no event is lost, each switch of a CPU leaves the thread that the switch before it chose.
#[test]
fn each_switch_leaves_the_thread_that_the_one_before_chose() {
    for file in ["trappy-raw_trace.dat.gz", "lisa-sched_load_trace.dat.gz", "lisa-trace.txt.gz"] {
        let mut running = BTreeMap::new();
        let (mut followed, mut preempted) = (0, 0);
        for (event, _) in &read(file).1 {
            let EventKind::Switch { prev, left, next } = event.what else { continue };
            if let Some(before) = running.insert(event.cpu, next.pid) {
                assert_eq!(before, prev.pid, "{file}: CPU {} at {:?}", event.cpu, event.time);
                followed += 1;
            }
            preempted += u32::from(left == SwitchOutState::Preempted);
            assert!(prev.pid != next.pid, "{file}: {event:?}");
        }
        assert!(followed > 100 && preempted > 0, "{file}: {followed} {preempted}");
    }
}

/// 21 pages of a ring buffer, 1366 events, without the formats of their kernel.
#[test]
fn pages_alone() {
    let bytes = dat_file("schedviz-cpu0.gz");
    let layout = PageLayout::usual(8, 4096);
    let (mut pages, mut events, mut latest) = (0, 0, Time::ZERO);
    for bytes in bytes.chunks(layout.page) {
        pages += 1;
        let mut page = Page::new(bytes, &layout, Endian::Little);
        while let Some(entry) = page.next(bytes) {
            let Entry::Event { time, payload } = entry else { panic!("{entry:?}") };
            assert!(time >= latest && payload.len() >= 8);
            latest = time;
            events += 1;
        }
    }
    assert_eq!((pages, events), (21, 1366));
    let mut recording = Recording::pages(&[], layout, Endian::Little, vec![(0, &bytes[..])]);
    let mut seen = 0;
    recording.each(|_| seen += 1);
    assert_eq!((seen, recording.damages().count()), (1366, 0));
}

/// A cut file is read up to the cut at any byte, and the cut is reported.
#[test]
fn a_cut_file_is_read_as_far_as_it_goes() {
    let bytes = dat_file("lisa-sched_load_trace.dat.gz");
    let (mut opened, mut before) = (0, 0);
    for percent in (5..100).step_by(5) {
        let cut = &bytes[..bytes.len() * percent / 100];
        let Ok(mut recording) = Recording::open(cut) else {
            assert_eq!(opened, 0, "once its head is whole, a file is read");
            continue;
        };
        opened += 1;
        let mut events = 0;
        recording.each(|_| events += 1);
        assert!(events >= before && events <= 3724 && recording.damages().count() > 0, "{percent} %: {events}");
        before = events;
    }
    assert!(opened > 0 && before > 0);
}

/// A section of options names the place of the next section. If this is an earlier section, a naive
/// reader would never end.
#[test]
fn sections_that_go_round_are_read_once() {
    let mut bytes = dat_file("lisa-sched_load_trace.v7-zstd.dat");
    // Behind the header's magic, version, order of bytes, word, page, and the names of the
    // compression.
    let first = header_end(&bytes);
    let options = bytes[first..first + 8].to_vec();
    // The option that ends a section: its number 0, its length 8, the place of the next section; 0
    // for the last.
    let last = memchr::memmem::rfind(&bytes, &[0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect("has a last section");
    bytes[last + 6..last + 14].copy_from_slice(&options);
    assert_eq!(count_of(&bytes), (3724, 1));
}

/// trappy's file with another option before the others; places of pages are moved with it.
fn with_option(id: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = dat_file("trappy-raw_trace.dat.gz");
    let place = |bytes: &[u8], what: &[u8]| memchr::memmem::find(bytes, what).expect("has that part") + what.len();
    let options = place(&bytes, b"options  \0");
    let option = [&[id, 0, data.len() as u8, 0, 0, 0], data].concat();
    bytes.splice(options..options, option.iter().copied());
    let table = place(&bytes, b"flyrecord\0");
    for cpu in 0..6 {
        let entry = &mut bytes[table + 16 * cpu..][..8];
        let moved = u64::from_le_bytes(entry.try_into().expect("eight")) + option.len() as u64;
        entry.copy_from_slice(&moved.to_le_bytes());
    }
    bytes
}

/// How many events there are, and how many places are broken.
fn count_of(bytes: &[u8]) -> (u64, u64) {
    let mut recording = Recording::open(bytes).expect("is a trace");
    let mut events = 0;
    recording.each(|_| events += 1);
    (events, recording.damages().count())
}

/// Option 8 is the number of CPUs. A number that is malformed or does not fit the file is reported.
/// Then the number of the head counts.
#[test]
fn a_number_of_cpus_is_held_against_the_file() {
    for (data, damages) in
        [(&b"25412 20337\n"[..], 1), (b"2541", 1), (&[0xff; 4], 1), (&[200, 0, 0, 0], 1), (b"", 1), (&[6, 0, 0, 0], 0)]
    {
        assert_eq!(count_of(&with_option(8, data)), (757, damages), "{data:?}");
    }
}

/// Pages of several CPUs at one place would be read again and again.
#[test]
fn no_page_is_read_twice() {
    let mut bytes = with_option(0x70, b"x");
    let table = memchr::memmem::find(&bytes, b"flyrecord\0").expect("has a table") + 10;
    for cpu in 0..6 {
        bytes[table + 16 * cpu..][..8].copy_from_slice(&(table as u64 + 96).to_le_bytes());
        bytes[table + 16 * cpu + 8..][..8].copy_from_slice(&(u64::from(u32::MAX)).to_le_bytes());
    }
    let start = bytes.len();
    bytes.resize(start + 3_000_000, 0);
    let recording = Recording::open(&bytes).expect("is a trace");
    let overlap = recording.damages().first().iter().filter(|damage| damage.why.contains("overlap")).count();
    assert_eq!(overlap, 5, "{:?}", recording.damages());
}

/// An offset or a conversion must be a number, and must make times of the stamps.
#[test]
fn times_are_held_against_the_file() {
    let first = |bytes: &[u8]| {
        let mut recording = Recording::open(bytes).expect("is a trace");
        let mut first = None;
        recording.each(|event| {
            first.get_or_insert(event.time.as_ns());
        });
        (first, recording.damages().first().first().map(|damage| damage.why.clone()).unwrap_or_default())
    };
    let (plain, none) = first(&with_option(0x70, b"x"));
    let plain = plain.expect("has events");
    assert_eq!(none, "");
    assert_eq!(first(&with_option(7, b"-1000\0")), (Some(plain - 1000), String::new()));
    assert_eq!(first(&with_option(7, b"0x10\0")), (Some(plain + 16), String::new()));
    let (time, why) = first(&with_option(7, b"soon\0"));
    assert!(time == Some(plain) && why.contains("option 7 is not a number"), "{time:?} {why}");
    let (time, why) = first(&with_option(7, b"-9000000000000000000\0"));
    assert!(time.is_none() && why.contains("is out of range"), "{time:?} {why}");
    let scaled = |mult: u32, shift: u32| [mult.to_le_bytes(), shift.to_le_bytes()].concat();
    assert_eq!(first(&with_option(14, &scaled(2, 1))).0, Some(plain));
    let (time, why) = first(&with_option(14, &scaled(2, 64)));
    assert!(time == Some(plain) && why.contains("option 14"), "{time:?} {why}");
}

/// The machine that recorded tells whose numbers of system calls there are, and the clock whether
/// there are times.
#[test]
fn machine_and_clock_of_a_file() {
    let of = |bytes: &[u8]| {
        let recording = Recording::open(bytes).expect("is a trace");
        (recording.machine().to_owned(), recording.abi(), recording.clock().to_owned(), recording.is_unitless())
    };
    assert_eq!(of(&with_option(0x70, b"x")), (String::new(), None, String::new(), false));
    let machine = of(&with_option(5, b"Linux my host 6.1.0 aarch64\0"));
    assert_eq!((machine.0.as_str(), machine.1), ("aarch64", Some(Abi::Generic)));
    assert_eq!(of(&with_option(5, b"Linux host 6.1.0 s390x\0")).1, None);
    let clock = of(&with_option(4, b"local global counter [x86-tsc] mono\0"));
    assert_eq!((clock.2.as_str(), clock.3), ("x86-tsc", true));
    assert!(!of(&with_option(4, b"local [mono] x86-tsc\0")).3);
    assert!(of(&with_option(4, b"local [uptime] mono\0")).3, "it counts hundredths of a second");
}

/// A clock that takt does not know is told: whether it counts time is not known either.
#[test]
fn an_unknown_clock_is_told() {
    let told = |clock: &[u8]| {
        let bytes = with_option(4, clock);
        let recording = Recording::open(&bytes).expect("is a trace");
        recording.damages().first().iter().map(|damage| damage.why.clone()).collect::<Vec<String>>()
    };
    for known in ["local", "global", "perf", "mono", "mono_raw", "boot", "tai", "counter", "uptime", "x86-tsc", ""] {
        assert!(told(format!("before [{known}] behind\0").as_bytes()).is_empty(), "{known}");
    }
    let why = "takt does not know the clock \"foo\\nbar\"; durations are right only if it counts nanoseconds";
    assert_eq!(told(b"local [foo\nbar] mono\0"), [why]);
    let pages = Recording::pages(&[], PageLayout::usual(8, 4096), Endian::Little, Vec::new());
    assert_eq!(pages.with_clock("local [foobarx] mono\n").damages().count(), 1);
}

/// The first event tells whether the times of a text have a unit. Events with other times are
/// damage.
#[test]
fn a_later_time_without_a_unit_is_damage() {
    let line =
        |time: &str| format!("    a-1     [000] d..2.  {time}: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n");
    for (times, counts) in [(["1.000100", "1000200", "1.000300"], false), (["1000100", "1.000200", "1000300"], true)] {
        let text: String = times.map(line).concat();
        let mut recording = Recording::open(text.as_bytes()).expect("a trace");
        let mut seen = Vec::new();
        recording.each(|event| seen.push(event.time));
        assert_eq!((recording.is_unitless(), seen.len()), (counts, 2));
        assert!(seen[1].saturating_since(seen[0]).as_ns() >= 200);
        let damage = &recording.damages().first()[0];
        assert!(recording.damages().count() == 1 && damage.place == Place::Line(2), "{damage}");
        assert!(damage.why.contains("takt skips the event"), "{damage}");
    }
}

/// A file of version 7 tells where its pages are at its end.
#[test]
fn a_file_that_is_cut_before_its_options_is_refused() {
    let mut bytes = dat_file("lisa-sched_load_trace.v7-zstd.dat");
    for percent in [10, 50, 90, 99] {
        let cut = &bytes[..bytes.len() * percent / 100];
        match Recording::open(cut) {
            Err(OpenError::Dat(DatError::CutBeforeOptions { length, place })) => {
                assert!(length == cut.len() && place + 16 > length / 2, "{percent} %: {length} {place}");
            }
            other => panic!("{percent} %: {other:?}"),
        }
    }
    let options = header_end(&bytes);
    bytes[options..options + 8].fill(0);
    assert_eq!(Recording::open(&bytes).err(), Some(OpenError::Dat(DatError::NoOptions)));
}

/// The heading of a text says how many events follow it.
#[test]
fn a_heading_that_promises_more_is_told() {
    let text = |held: u32| {
        let event = "    a-1     [000] d..2.     1.000100: sched_waking: comm=b pid=2 prio=120 target_cpu=001\n";
        format!(
            "# tracer: nop\n#\n# entries-in-buffer/entries-written: {held}/{held}   #P:2\n#\n{event}{event}not read\n"
        )
    };
    for (held, damages) in [(1, 0), (2, 0), (3, 1)] {
        let text = text(held);
        let mut recording = Recording::open(text.as_bytes()).expect("a trace");
        let mut events = 0;
        recording.each(|_| events += 1);
        let told = recording.damages();
        assert_eq!((events, told.count()), (2, damages), "{told:?}");
        assert!(told.first().iter().all(|damage| damage.place == Place::Line(3)), "{told:?}");
    }
}

/// The first bytes name files that are no traces.
#[test]
fn foreign_files_are_named() {
    for (head, error) in [
        (&b"PERFILE2\x68\0\0\0"[..], OpenError::Perf),
        (b"2ELIFREP\0\0\0\x68", OpenError::Perf),
        (b"\xc1\x1f\xfc\xc1 and so on", OpenError::Ctf),
        (b"/* CTF 1.8 */\n\ntypealias integer", OpenError::Ctf),
        (&[0; 4096], OpenError::NoEvent),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", OpenError::NoEvent),
    ] {
        assert_eq!(refuse_foreign(head), Err(error.clone()), "{head:?}");
        assert_eq!(Recording::open(head).err(), Some(error), "{head:?}");
        assert!(!is_trace(head), "{head:?}");
    }
    assert_eq!(Recording::open(b"{\"traceEvents\": []}").err(), Some(OpenError::Json));
    assert_eq!(embedded(b"{\"traceEvents\": []}"), Err(OpenError::Json));
    assert_eq!(embedded(b"# tracer: nop\n"), Ok(None));
    let graph = b" 0)               |  do_it() {\n 0)   0.123 us    |  }\n";
    assert_eq!(Recording::open(graph).err(), Some(OpenError::Tracer("function_graph")));
    for file in ["trappy-raw_trace.dat.gz", "lisa-trace.txt.gz", "trappy-trace_systrace.html", "schema.perfetto-trace"]
    {
        let bytes = std::fs::read(format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"))).expect("is there");
        let head = &bytes[..bytes.len().min(takt_trace::HEAD)];
        assert!(refuse_foreign(head).is_ok() && is_trace(head), "{file}");
    }
}

/// Zeros that gzip has made small are not unpacked.
#[test]
fn a_bomb_is_refused_by_its_beginning() {
    let zeros = packed(&[&vec![0; 1 << 20]]);
    assert_eq!(unpacked(&zeros), Err(OpenError::NoEvent));
    assert_eq!(refuse_foreign(&zeros), Err(OpenError::NoEvent));
    // Text without an event is unpacked no further than an event may be.
    let text = |event: &str| {
        let block = "a line of a log\n".repeat(1 << 16);
        packed(&[block.repeat(15).as_bytes(), event.as_bytes(), block.repeat(2).as_bytes()])
    };
    assert_eq!(unpacked(&text("")), Err(OpenError::NoEarlyEvent));
    // A damaged file is called damaged, though its sound part has no event.
    let mut damaged = text("");
    damaged[20] ^= 0x55;
    assert_eq!(takt_trace::refuse_other_text(&damaged), Ok(()));
    assert_eq!(unpacked(&damaged), Err(OpenError::Gzip));
    let event = " app-7 [000] 1.000001: sched_waking: comm=b pid=8 prio=120 target_cpu=000\n";
    assert!(unpacked(&text(event)).is_ok_and(|bytes| Recording::open(&bytes).is_ok()));
}

/// Bytes of a file of the tests, unpacked.
fn dat_file(file: &str) -> Vec<u8> {
    let bytes = std::fs::read(format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"))).expect("is there");
    unpacked(&bytes).expect("sound").into_owned()
}

/// These parts as one file of gzip.
fn packed(parts: &[&[u8]]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    parts.iter().for_each(|part| packed.write_all(part).expect("written"));
    packed.finish().expect("packed")
}

/// The headers of a trace.dat say how much of it is needed. The rest is neither read nor unpacked.
#[test]
fn a_trace_dat_is_needed_as_far_as_its_headers_say() {
    const ZEROS: usize = 64 << 20;
    for file in ["trappy-raw_trace.dat.gz", "lisa-sched_load_trace.dat.gz", "lisa-sched_load_trace.v7-zstd.dat"] {
        let bytes = dat_file(file);
        let extent = dat_extent_of(&bytes).expect("sound").expect("known") as usize;
        assert!(extent <= bytes.len(), "{file}: {extent} of {} bytes", bytes.len());
        assert_eq!(count_of(&bytes[..extent]), count_of(&bytes), "{file}");
        let padded = packed(&[&bytes, &vec![0; ZEROS]]);
        assert_eq!(*unpacked(&padded).expect("sound"), bytes[..extent], "{file}");
        // Zeros follow a part of the headers, as in a bomb or a file with holes.
        for kept in [30, 400, bytes.len() / 20] {
            let bomb = packed(&[&bytes[..kept], &vec![0; ZEROS]]);
            assert!(matches!(unpacked(&bomb), Err(OpenError::Dat(_))), "{file}: {kept} bytes and zeros");
            // The first bytes alone decide nothing.
            assert!(matches!(dat_extent_of(&bytes[..kept]), Ok(None)), "{file}: {kept} bytes");
        }
    }
    // Headers that never end are not followed for ever, and nothing of them is kept.
    let mut endless = b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0".to_vec();
    endless.extend(0_u64.to_le_bytes());
    endless.extend(b"header_event\0");
    endless.extend(0_u64.to_le_bytes());
    endless.extend(u32::MAX.to_le_bytes());
    let skip = |input: &mut std::io::Chain<&[u8], std::io::Repeat>, count: u64| {
        // Nobody waits for the end of long ones.
        let read = count.min(1_000);
        std::io::copy(&mut std::io::Read::take(input, read), &mut std::io::sink()).map(|_| count)
    };
    let ones = std::io::Read::chain(endless.as_slice(), std::io::repeat(1));
    assert_eq!(dat_extent(ones, skip), Err(DatError::Headers));
    // Other files have no such headers.
    assert_eq!(unpacked(b"text").as_deref(), Ok(&b"text"[..]));
    assert_eq!(unpacked(&packed(&[b"text"])).as_deref(), Ok(&b"text"[..]));
}

/// The position at which the header of version 7 names the place of its options.
fn header_end(bytes: &[u8]) -> usize {
    let mut at = b"\x17\x08\x44tracing7\0".len() + 1 + 1 + 4;
    for _ in 0..2 {
        at += bytes[at..].iter().position(|byte| *byte == 0).expect("a name has an end") + 1;
    }
    at
}

/// A later section of options that is empty ends the list. The file is read.
#[test]
fn an_empty_section_of_options_refuses_nothing() {
    let mut file = b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0none\0\0".to_vec();
    let section = |file: &mut Vec<u8>, list: &[u8]| {
        file.extend([0; 8]);
        file.extend((list.len() as u64).to_le_bytes());
        file.extend(list);
    };
    let first = file.len() as u64 + 8;
    file.extend(first.to_le_bytes());
    let next = first + 16 + 14;
    section(&mut file, &[&[0, 0, 8, 0, 0, 0][..], &next.to_le_bytes()].concat());
    assert_eq!(file.len() as u64, next);
    section(&mut file, &[]);
    assert_eq!(dat_extent_of(&file), Ok(None));
    // As the first one it is no list.
    file[first as usize - 8..first as usize].copy_from_slice(&next.to_le_bytes());
    assert!(matches!(dat_extent_of(&file), Err(DatError::Options(_))));
}
