//! Opening a trace of Perfetto: a look at every packet.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use super::event::{self, Args, Described};
use super::lanes::{Kind, Lane, List, TIMES};
use super::packets::{Piece, Pieces};
use super::wire::{Fields, Part, Value};
use super::{Blob, NoKernelEvents, Perfetto};
use crate::damage::Damages;
use crate::dat::UNPACKED_MAX;
use crate::event::{Comm, Pid};

/// More CPUs no kernel has.
const CPUS_MAX: u64 = 1 << 16;
/// CLOCK_BOOTTIME runs ahead of CLOCK_MONOTONIC by the time of suspensions, which is more than
/// this. A smaller difference is the time between two readings.
const SUSPENDED_MIN_NS: u64 = 1_000_000;

mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const FTRACE_STATS: u32 = 34;
    pub(super) const PREVIOUS_DROPPED: u32 = 42;
    pub(super) const SYSTEM_INFO: u32 = 45;
    pub(super) const COMPRESSED: u32 = 50;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
    pub(super) const MACHINE: u32 = 98;
    pub(super) const ZSTD_COMPRESSED: u32 = 133;
}

mod bundle {
    pub(super) const CPU: u32 = 1;
    pub(super) const EVENT: u32 = 2;
    pub(super) const LOST: u32 = 3;
    pub(super) const COMPACT: u32 = 4;
    pub(super) const CLOCK: u32 = 5;
    pub(super) const ERROR: u32 = 8;
    pub(super) const LAST_READ: u32 = 9;
    pub(super) const PREVIOUS_END: u32 = 10;
    pub(super) const DESCRIPTORS: u32 = 11;
}

pub(super) fn open<'a>(bytes: &'a [u8], damages: &mut Damages) -> Result<Perfetto<'a>, NoKernelEvents> {
    let mut index = Index::new(damages);
    let mut blobs = vec![Blob { bytes: Cow::Borrowed(bytes), packed: None }];
    for piece in Pieces::new(bytes) {
        let part = index.piece(piece, At { bytes, blob: 0, packed: None });
        let Some((packed, packing)) = part.and_then(|part| index.packet(At { bytes, blob: 0, packed: None }, part))
        else {
            continue;
        };
        let unpacked = index.unpack(packed.of(bytes), packing, packed.start);
        let at = At { bytes: &unpacked, blob: blobs.len() as u32, packed: Some(packed.start) };
        for piece in Pieces::new(&unpacked) {
            let inner = index.piece(piece, at).and_then(|part| index.packet(at, part));
            if inner.is_some() {
                index.damage(at, 0, "compressed packets hold further compressed ones; takt does not read these");
            }
        }
        blobs.push(Blob { bytes: Cow::Owned(unpacked), packed: Some(packed.start) });
    }
    index.finish(blobs)
}

/// How packets are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    Zlib,
    Zstd,
}

/// Bytes that are looked at, and which of the trace's they are.
#[derive(Clone, Copy)]
struct At<'b> {
    bytes: &'b [u8],
    blob: u32,
    packed: Option<usize>,
}

struct Index<'d> {
    damages: &'d mut Damages,
    cpus: BTreeMap<u32, Cpu>,
    comms: BTreeMap<Pid, Comm>,
    described: BTreeMap<u32, Described>,
    clock: Option<u64>,
    /// Whether all readings of both clocks agree, once there is one.
    monotonic: Option<bool>,
    kind: String,
    /// The machine whose events are read: that of the first bundle.
    machine: Option<u64>,
    others: BTreeSet<u64>,
    tracks: bool,
    /// How often packets of each writer were dropped.
    drops: BTreeMap<u64, u64>,
    unpacked: usize,
}

#[derive(Default)]
struct Cpu {
    lanes: Vec<Lane>,
    bundles: Vec<Bundle>,
    /// The drops that were known at the last bundle of each writer.
    drops: BTreeMap<u64, u64>,
    /// Lost events by the kernel's count: at the beginning, at the end.
    overruns: (Option<u64>, Option<u64>),
}

#[derive(Clone, Copy)]
struct Bundle {
    first: u64,
    last: u64,
    sequence: u64,
    /// When the writer's bundle before this one ended; 0: there was none, or it does not say.
    before: u64,
    /// It reports missing events before it.
    lost: bool,
}

#[derive(Clone, Copy)]
struct Times {
    first: u64,
    last: u64,
    latest: u64,
    sorted: bool,
}

impl Times {
    const NONE: Times = Times { first: u64::MAX, last: 0, latest: 0, sorted: true };

    #[inline]
    fn add(&mut self, time: u64) {
        self.sorted &= time >= self.latest;
        self.latest = time;
        self.first = self.first.min(time);
        self.last = self.last.max(time);
    }
    fn is_empty(self) -> bool {
        self.first > self.last
    }
}

impl<'d> Index<'d> {
    fn new(damages: &'d mut Damages) -> Self {
        Index {
            damages,
            cpus: BTreeMap::new(),
            comms: BTreeMap::new(),
            described: BTreeMap::new(),
            clock: None,
            monotonic: None,
            kind: String::new(),
            machine: None,
            others: BTreeSet::new(),
            tracks: false,
            drops: BTreeMap::new(),
            unpacked: 0,
        }
    }

    fn damage(&mut self, at: At, byte: usize, why: &str) {
        self.damages.at_byte(at.packed.unwrap_or(byte), why);
    }

    /// The packet to look at.
    fn piece(&mut self, piece: Piece, at: At) -> Option<Part> {
        match piece {
            Piece::Packet(part) => Some(part),
            Piece::Cut(part) => {
                self.damage(at, part.start, "the trace ends within this packet");
                Some(part)
            }
            Piece::Foreign(part) => {
                self.damage(at, part.start, &format!("{} bytes are no packets", part.end - part.start));
                None
            }
        }
    }

    /// Takes in a packet; what is compressed in it is the answer.
    fn packet(&mut self, at: At, part: Part) -> Option<(Part, Packing)> {
        let (mut events, mut sequence, mut machine, mut dropped) = (None, 0, 0, false);
        let (mut about, mut packed) = ([None; 4], None);
        let mut fields = Fields::new(at.bytes, part);
        while let Some(field) = fields.next() {
            let (number, value) = match field {
                Ok(field) => field,
                Err(broken) => {
                    self.damage(at, broken.at, "a packet's fields cannot be read from here on");
                    // At the end of the trace: events of a bundle that is cut are events all the
                    // same.
                    match broken.cut {
                        Some(cut) if part.end == at.bytes.len() => (cut.number, Value::Bytes(cut.part)),
                        _ => break,
                    }
                }
            };
            match (number, value) {
                (packet::SEQUENCE, Value::Number(number)) => sequence = number,
                (packet::MACHINE, Value::Number(number)) => machine = number,
                (packet::PREVIOUS_DROPPED, Value::Number(number)) => dropped = number != 0,
                (packet::TRACK_EVENT | packet::TRACK_DESCRIPTOR, _) => self.tracks = true,
                (_, Value::Number(_) | Value::Fixed) => {}
                (packet::FTRACE_EVENTS, Value::Bytes(part)) => events = events.or(Some(part)),
                (packet::PROCESS_TREE, Value::Bytes(part)) => about[0] = Some(part),
                (packet::CLOCK_SNAPSHOT, Value::Bytes(part)) => about[1] = Some(part),
                (packet::FTRACE_STATS, Value::Bytes(part)) => about[2] = Some(part),
                (packet::SYSTEM_INFO, Value::Bytes(part)) => about[3] = Some(part),
                (packet::COMPRESSED, Value::Bytes(part)) => packed = Some((part, Packing::Zlib)),
                (packet::ZSTD_COMPRESSED, Value::Bytes(part)) => packed = Some((part, Packing::Zstd)),
                _ => {}
            }
        }
        if dropped {
            *self.drops.entry(sequence).or_default() += 1;
        }
        if let Some(events) = events {
            if *self.machine.get_or_insert(machine) == machine {
                self.bundle(at, events, sequence);
            } else {
                self.others.insert(machine);
            }
        }
        if self.machine.unwrap_or(0) == machine {
            let takes = [Self::process_tree, Self::clock_snapshot, Self::ftrace_stats, Self::system_info];
            for (part, take) in about.into_iter().zip(takes) {
                if let Some(part) = part {
                    take(self, at, part);
                }
            }
        }
        packed
    }

    /// Unpacks packets; what follows damage within them is lost.
    fn unpack(&mut self, packed: &[u8], packing: Packing, place: usize) -> Vec<u8> {
        let left = UNPACKED_MAX - self.unpacked;
        let mut bytes = Vec::new();
        let read = match packing {
            Packing::Zlib => {
                flate2::read::ZlibDecoder::new(packed).take(left as u64 + 1).read_to_end(&mut bytes).is_ok()
            }
            Packing::Zstd => ruzstd::decoding::StreamingDecoder::new(packed)
                .is_ok_and(|decoder| decoder.take(left as u64 + 1).read_to_end(&mut bytes).is_ok()),
        };
        if !read {
            self.damages.at_byte(place, "compressed packets cannot be unpacked beyond some point");
        }
        if bytes.len() > left {
            self.damages.at_byte(
                place,
                &format!(
                    "the compressed packets of the trace unpack to more than {UNPACKED_MAX} bytes: the rest is \
                     not read"
                ),
            );
            bytes.truncate(left);
        }
        self.unpacked += bytes.len();
        bytes
    }

    fn bundle(&mut self, at: At, part: Part, sequence: u64) {
        let (mut cpu, mut clock, mut before, mut lost) = (None, 0, 0, false);
        let (mut times, mut compact) = (Times::NONE, None);
        let mut fields = Fields::new(at.bytes, part);
        while let Some(field) = fields.next() {
            match field {
                Ok((bundle::EVENT, Value::Bytes(event))) => match event::head(at.bytes, event) {
                    Ok(head) => times.add(head.time),
                    Err(byte) => self.damage(at, byte, "an event cannot be read, or has no time"),
                },
                Ok((bundle::CPU, Value::Number(number))) => cpu = Some(number),
                Ok((bundle::LOST, Value::Number(number))) => lost |= number != 0,
                Ok((bundle::COMPACT, Value::Bytes(part))) => compact = Some(part),
                Ok((bundle::CLOCK, Value::Number(number))) => clock = number,
                Ok((bundle::LAST_READ | bundle::PREVIOUS_END, Value::Number(number))) => before = number,
                Ok((bundle::ERROR, Value::Bytes(_))) => {
                    lost = true;
                    self.damage(at, fields.at(), "the recorder could not read a page of the kernel's");
                }
                Ok((bundle::DESCRIPTORS, Value::Bytes(part))) => self.descriptor(at, part),
                Ok(_) => {}
                Err(broken) => self.damage(at, broken.at, "a bundle's fields cannot be read from here on"),
            }
        }
        let Some(cpu) = cpu.filter(|cpu| *cpu < CPUS_MAX) else {
            self.damage(at, part.start, "a bundle of events does not name its CPU");
            return;
        };
        if *self.clock.get_or_insert(clock) != clock {
            self.damage(at, part.start, "a bundle uses another clock than the bundles before it; takt skips it");
            return;
        }
        let drops = self.drops.get(&sequence).copied().unwrap_or(0);
        let cpu = self.cpus.entry(cpu as u32).or_default();
        let lane =
            |kind, part, times: Times| Lane { first: times.first, part, blob: at.blob, kind, sorted: times.sorted };
        let mut all = times;
        if !times.is_empty() {
            cpu.lanes.push(lane(Kind::Events, part, times));
        }
        for (kind, field) in TIMES {
            let Some(part) = compact else { continue };
            let (mut times, mut time) = (Times::NONE, 0_u64);
            let mut list = List::new(at.bytes, part, field);
            while let Some(after) = list.next() {
                time = time.wrapping_add(after);
                times.add(time);
            }
            if !times.is_empty() {
                cpu.lanes.push(lane(kind, part, times));
                (all.first, all.last) = (all.first.min(times.first), all.last.max(times.last));
            }
        }
        let known = cpu.drops.insert(sequence, drops);
        lost |= before == 0 && known.is_some_and(|known| known < drops);
        if all.is_empty() {
            if !lost {
                return;
            }
            // Nothing is left of it but the loss.
            let last = cpu.bundles.last().map_or(before, |bundle| bundle.last);
            (all.first, all.last) = (last, last);
        }
        cpu.bundles.push(Bundle { first: all.first, last: all.last, sequence, before, lost });
    }

    /// An event that is not in the schema: its number and description.
    fn descriptor(&mut self, at: At, part: Part) {
        if let Ok(args) = Args::read(at.bytes, part)
            && let Ok(number) = u32::try_from(args.number(1))
        {
            self.described.insert(number, Described::new(at.bytes, args.part(2)));
        }
    }

    /// Names of threads. The first thread of a program is among the processes, with its command
    /// line. Most often the kernel has another name for it.
    fn process_tree(&mut self, at: At, part: Part) {
        const KTHREADD: u32 = 2;
        let mut fields = Fields::new(at.bytes, part);
        while let Some(Ok((field, value))) = fields.next() {
            let Value::Bytes(part) = value else { continue };
            let Ok(args) = Args::read(at.bytes, part) else { continue };
            let (pid, name) = match field {
                // The kernel's own; or the recorder says that it is the name.
                1 if args.small(2) == KTHREADD || args.number(8) | args.number(9) != 0 => (args.small(1), args.comm(3)),
                2 => (args.small(1), args.comm(2)),
                _ => continue,
            };
            if pid != 0 && !name.bytes().is_empty() {
                self.comms.entry(pid).or_insert(name);
            }
        }
    }

    fn clock_snapshot(&mut self, at: At, part: Part) {
        const MONOTONIC: u64 = 3;
        const BOOTTIME: u64 = 6;
        let (mut mono, mut boot) = (None, None);
        let mut fields = Fields::new(at.bytes, part);
        while let Some(Ok((field, value))) = fields.next() {
            let (1, Value::Bytes(part)) = (field, value) else { continue };
            let Ok(args) = Args::read(at.bytes, part) else { continue };
            match args.number(1) {
                MONOTONIC => mono = Some(args.number(2)),
                BOOTTIME => boot = Some(args.number(2)),
                _ => {}
            }
        }
        if let (Some(mono), Some(boot)) = (mono, boot) {
            let agree = mono.abs_diff(boot) < SUSPENDED_MIN_NS;
            self.monotonic = Some(self.monotonic.unwrap_or(true) && agree);
        }
    }

    fn ftrace_stats(&mut self, at: At, part: Part) {
        let (mut phase, mut counts) = (0, Vec::new());
        let mut fields = Fields::new(at.bytes, part);
        while let Some(Ok(field)) = fields.next() {
            match field {
                (1, Value::Number(number)) => phase = number,
                (2, Value::Bytes(part)) => counts.push(part),
                _ => {}
            }
        }
        for part in counts {
            let Ok((cpu, lost)) = overruns(at.bytes, part) else { continue };
            if cpu >= CPUS_MAX {
                continue;
            }
            let (before, after) = &mut self.cpus.entry(cpu as u32).or_default().overruns;
            match phase {
                1 => *before = before.or(Some(lost)),
                2 => *after = Some(lost),
                _ => {}
            }
        }
    }

    fn system_info(&mut self, at: At, part: Part) {
        let Ok(info) = Args::read(at.bytes, part) else { return };
        let Ok(utsname) = Args::read(at.bytes, info.part(1)) else { return };
        let kind = String::from_utf8_lossy(utsname.text(4));
        if !kind.is_empty() {
            self.kind = kind.into_owned();
        }
    }

    fn finish(mut self, blobs: Vec<Blob<'_>>) -> Result<Perfetto<'_>, NoKernelEvents> {
        if self.machine.is_none() {
            return Err(NoKernelEvents { tracks: self.tracks });
        }
        let earliest = self.cpus.values().flat_map(|cpu| &cpu.lanes).map(|lane| lane.first).min().unwrap_or(0);
        let mut cpus = Vec::new();
        for (number, cpu) in &mut self.cpus {
            cpu.lose(earliest);
            cpu.lanes.sort_by_key(|lane| lane.first);
            cpus.push((*number, std::mem::take(&mut cpu.lanes)));
        }
        let clock = match self.clock {
            None | Some(0) => "boot",
            Some(2) => "global",
            Some(3) => "local",
            Some(4) => "mono_raw",
            Some(_) => "",
        };
        Ok(Perfetto {
            blobs,
            cpus,
            comms: self.comms,
            described: self.described,
            clock,
            monotonic: clock == "boot" && self.monotonic == Some(true),
            machine: self.kind,
            skipped_machines: self.others.iter().map(|machine| format!("machine {machine}")).collect(),
        })
    }
}

/// A CPU's number, and how many of its events were lost so far.
fn overruns(bytes: &[u8], part: Part) -> Result<(u64, u64), usize> {
    let (mut cpu, mut lost) = (0, 0_u64);
    let mut fields = Fields::new(bytes, part);
    while let Some(field) = fields.next() {
        match field.map_err(|broken| broken.at)? {
            (1, Value::Number(number)) => cpu = number,
            // Overwritten; not committed, for the buffer went round; not taken, for it was full.
            (3 | 4 | 8, Value::Number(number)) => lost = lost.saturating_add(number),
            _ => {}
        }
    }
    Ok((cpu, lost))
}

impl Cpu {
    /// Adds a lane for each loss, in front of what follows it.
    fn lose(&mut self, earliest: u64) {
        self.bundles.sort_by_key(|bundle| bundle.first);
        // The end of what each writer has told.
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        let mut places = Vec::new();
        for bundle in &self.bundles {
            let end = ends.entry(bundle.sequence).or_insert(earliest);
            if bundle.lost || bundle.before > *end {
                places.push(bundle.first);
            }
            *end = bundle.last.max(*end);
        }
        let count = match self.overruns {
            (Some(before), Some(after)) => Some(after.saturating_sub(before)).filter(|count| *count > 0),
            _ => None,
        };
        if places.is_empty() && count.is_some() {
            places.extend(self.bundles.last().map(|bundle| bundle.last));
        }
        let last = places.len().saturating_sub(1);
        let lanes = places.iter().enumerate().map(|(k, first)| {
            let kind = Kind::Lost(count.filter(|_| k == last));
            Lane { first: *first, part: Part::default(), blob: 0, kind, sorted: true }
        });
        self.lanes.splice(0..0, lanes.collect::<Vec<_>>());
    }
}
