//! The queueing discipline in the kernel, by libbpf: its programs, its settings and its counts.
//!
//! All is held by descriptors and by the discipline at the device, so nothing stays once both are gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object};
use takt_model::Late;

use super::super::classifier::Classifier;
use super::super::htb::Counters;
use super::super::plan::{Discipline, Role, Shaper};
use super::super::{Device, NetError, Plan};
use super::{ClassReading, KIND, Maps, Reading, TYPES, is_possible};
use crate::bpf::{self, BpfError, Hook};

/// The only key of each map.
const ONLY: [u8; 4] = [0; 4];
/// The place of the kind's name in `struct Qdisc_ops` of the program, and the most letters.
const ID_AT: usize = 5 * 8;
const ID_MAX: usize = 15;
/// Words of `struct egress_settings`: the line, then the classes, then generation and overhead.
const LINE_WORDS: usize = 2;
const CLASS_WORDS: usize = 4;
/// Bytes of `struct egress` before its queues; each queue begins with `struct queue_counts`.
const QUEUES_AT: usize = 16 + 4 * 32;
/// Processes may have several devices.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The discipline of one device. The fields are dropped in this order.
#[derive(Debug)]
pub(in crate::tc) struct Own {
    /// The program that writes classes into packets.
    rules: Option<OwnedFd>,
    _registered: Link,
    settings: MapHandle,
    egress: MapHandle,
    maps: Maps,
    kind: String,
    generation: u32,
    _object: Object,
}

impl Own {
    /// Gives the kernel the discipline, with the settings of a plan. It stands at no device yet.
    pub(in crate::tc) fn load(plan: &Plan) -> Result<Own, NetError> {
        let missing = |cause| NetError::Missing {
            what: "takt's queueing discipline",
            part: "CONFIG_NET_SCH_BPF (Linux 6.16)",
            cause,
        };
        if !is_possible().map_err(|cause| BpfError::NoTypes { cause })? {
            return Err(missing(io::Error::new(io::ErrorKind::Unsupported, format!("{TYPES} has no Qdisc_ops"))));
        }
        // Kinds are known in the whole machine, and the kernel takes letters, digits and "_" in their names.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) & 0xfff;
        let kind = format!("{KIND}{:x}_{number:x}", std::process::id() & 0x3f_ffff);
        let mut object = bpf::load("takt_qdisc", bpf::image!("takt_qdisc"), |object| {
            for mut map in object.maps_mut().filter(|map| map.name() == "takt_qdisc") {
                if let Some(id) = map.initial_value_mut().and_then(|value| value.get_mut(ID_AT..=ID_AT + ID_MAX)) {
                    id.fill(0);
                    id[..kind.len()].copy_from_slice(kind.as_bytes());
                }
            }
            Ok(())
        })?;
        let (settings, egress) = (bpf::map(&object, "settings_map")?, bpf::map(&object, "egress")?);
        put(&settings, &encode(plan, 1)).map_err(|cause| BpfError::attach("its settings", cause))?;
        let registered = bpf::register(&mut object, "takt_qdisc")
            .map_err(|cause| BpfError::attach("the queueing disciplines", cause))?;
        let number = |map: &MapHandle| map.info().map(|info| info.info.id).map_err(|error| bpf::cause(&error));
        let maps = Maps { settings: number(&settings).map_err(missing)?, egress: number(&egress).map_err(missing)? };
        let rules = None;
        Ok(Own { rules, _registered: registered, settings, egress, maps, kind, generation: 1, _object: object })
    }

    pub(in crate::tc) fn kind(&self) -> &str {
        &self.kind
    }

    pub(in crate::tc) fn maps(&self) -> Maps {
        self.maps
    }

    /// Packets get their classes from this program, and no longer from the one before.
    pub(in crate::tc) fn classify(&mut self, rules: &Classifier, device: &Device) -> Result<(), NetError> {
        let place = "the egress of a device (Linux 6.6)";
        self.rules = Some(bpf::attach(rules.program(), Hook::Egress(device.index), place)?);
        Ok(())
    }

    /// The plan takes force with the next packet; a new order, when the queue of its class is empty.
    pub(in crate::tc) fn set(&mut self, plan: &Plan) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1).max(1);
        // The number of the change comes last: the kernel may read in between.
        put(&self.settings, &encode(plan, self.generation - 1))?;
        put(&self.settings, &encode(plan, self.generation))
    }

    /// Whether the kernel has other settings.
    pub(in crate::tc) fn differs(&self, plan: &Plan) -> io::Result<bool> {
        Ok(get(&self.settings)? != encode(plan, self.generation))
    }

    pub(in crate::tc) fn read(&self) -> io::Result<Reading> {
        decode(&get(&self.settings)?, &get(&self.egress)?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the maps of the discipline are of another takt"))
    }
}

/// The state of another process's discipline.
pub(in crate::tc) fn read(maps: Maps) -> io::Result<Reading> {
    let value = |id: u32| get(&MapHandle::from_map_id(id).map_err(|error| bpf::cause(&error))?);
    decode(&value(maps.settings)?, &value(maps.egress)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the maps of the discipline are of another takt"))
}

/// `struct egress_settings` of bpf/queue.h.
fn encode(plan: &Plan, generation: u32) -> Vec<u8> {
    let (edf, late) = match plan.discipline {
        Discipline::Own { edf, late } => (edf, late),
        Discipline::Htb => (false, Late::Continue),
    };
    let mut value = [plan.line.rate, plan.line.burst].map(u64::to_ne_bytes).concat();
    for role in Role::ALL {
        let of = plan.class(role);
        // A class with its own share needs no tokens of the line.
        let shared = of.is_none_or(|class| role == Role::Background || class.ceiling == plan.line);
        let limit = of.map(|class| class.ceiling).filter(|ceiling| *ceiling != plan.line);
        let (rate, burst) = limit.map_or((0, 0), |limit| (limit.rate, limit.burst));
        value.extend([rate, burst].map(u64::to_ne_bytes).concat());
        let late = match late {
            Late::Drop if role == Role::RealTime => 1,
            Late::Demote if role == Role::RealTime => 2,
            _ => 0,
        };
        let order = u32::from(edf && role == Role::RealTime);
        let words = [order, late, of.map_or(0, |class| class.packets_max), u32::from(shared)];
        value.extend(words.map(u32::to_ne_bytes).concat());
    }
    value.extend([generation, u32::from(plan.overhead)].map(u32::to_ne_bytes).concat());
    value
}

/// The settings and the counts; `None`: they have another form.
fn decode(settings: &[u8], egress: &[u8]) -> Option<Reading> {
    let long = |value: &[u8], at: usize| value.get(8 * at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let word = |value: &[u8], at: usize| value.get(4 * at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let line = Shaper { rate: long(settings, 0)?, burst: long(settings, 1)? };
    let end = LINE_WORDS + 3 * CLASS_WORDS;
    let overhead = u64::from(word(settings, 2 * end + 1)?);
    let queues = egress.get(QUEUES_AT..)?;
    let class = |at: usize, role: Role| {
        let first = LINE_WORDS + at * CLASS_WORDS;
        let own = Shaper { rate: long(settings, first)?, burst: long(settings, first + 1)? };
        let counts = queues.get(queues.len() / 3 * at..)?;
        let count = |at| long(counts, at);
        let (sent, bytes, late, overflow) = (count(0)?, count(1)?, count(2)?, count(4)?);
        let counters = Counters {
            bytes: bytes.saturating_sub(overhead * sent),
            packets: sent,
            dropped: overflow + late,
            waiting: count(6)?,
        };
        let ceiling = if own.rate == 0 { line } else { own };
        let (packets_max, arrived) = (word(settings, 2 * first + 6)?, count(5)?);
        Some(ClassReading { role, ceiling, packets_max, counters, arrived, late })
    };
    let [first, second, third] = Role::ALL;
    Some(Reading { line, classes: [class(0, first)?, class(1, second)?, class(2, third)?] })
}

fn put(map: &MapHandle, value: &[u8]) -> io::Result<()> {
    map.update(&ONLY, value, MapFlags::ANY).map_err(|error| bpf::cause(&error))
}

fn get(map: &MapHandle) -> io::Result<Vec<u8>> {
    map.lookup(&ONLY, MapFlags::ANY).map_err(|error| bpf::cause(&error)).map(Option::unwrap_or_default)
}
