//! The bytes of a JobLog, as docs/reference/joblog.md describes them: block heads, the head's payload, definitions.
//!
//! Records of events are in [`crate::record`].

use takt_model::{Lateness, NodeId, Span, TaskId, Time};

use crate::definitions::{
    ChainDef, ClockDef, CpuDef, Definition, Definitions, InterruptDef, InterruptKind, ModeDef, NodeDef, ServerDef,
    TaskDef, ThreadClass, ThreadDef, ThreadKind,
};
use crate::header::{BackEnd, Header};
use crate::kind::KindSet;

/// The first bytes of every log.
pub const MAGIC: [u8; 8] = *b"\x89taktlog";
/// The format's version. This crate reads and writes no other.
pub const VERSION: u64 = 1;
/// Streams are numbered below this.
pub const STREAMS_MAX: u32 = 65_536;
/// Bytes of an events or end block's payload, at most.
pub const BLOCK_MAX: usize = 1 << 20;
/// Bytes of the head block's payload (the canonical System and all definitions), at most.
pub const HEAD_MAX: usize = 64 << 20;
/// The largest type of a definition.
const DEFINITION_TYPE_MAX: u8 = 9;
/// Bytes of one late definition, at most.
pub const DEFINITION_MAX: usize = 64 << 10;
/// The most a reader keeps of one group of blocks, at least one block.
pub(crate) const GROUP_MAX: usize = 64 << 20;
/// Slots of job numbers in a stream's context: 2^4 to 2^10.
pub(crate) const SLOTS_LOG2: std::ops::RangeInclusive<u8> = 4..=10;

pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"\xF5TKB";
pub(crate) const BLOCK_HEAD: usize = 44;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockKind {
    Head = 0,
    Events = 1,
    End = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHead {
    /// Byte 4; numbers that no [`BlockKind`] has are a newer version's.
    pub(crate) kind: u8,
    /// How many blocks of the same group follow.
    pub(crate) left: u16,
    pub(crate) stream: u32,
    pub(crate) length: u32,
    pub(crate) records: u32,
    /// Records of the stream before the block.
    pub(crate) first: u64,
    /// The time from which the first record's counts.
    pub(crate) base: u64,
    pub(crate) payload_crc: u32,
}

impl BlockHead {
    pub(crate) fn encode(&self) -> [u8; BLOCK_HEAD] {
        let mut out = [0; BLOCK_HEAD];
        out[..4].copy_from_slice(&BLOCK_MAGIC);
        out[4] = self.kind;
        out[6..8].copy_from_slice(&self.left.to_le_bytes());
        out[8..12].copy_from_slice(&self.stream.to_le_bytes());
        out[12..16].copy_from_slice(&self.length.to_le_bytes());
        out[16..20].copy_from_slice(&self.records.to_le_bytes());
        out[20..28].copy_from_slice(&self.first.to_le_bytes());
        out[28..36].copy_from_slice(&self.base.to_le_bytes());
        out[36..40].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..40]);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` where the bytes are no block head or a damaged one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BLOCK_HEAD] = bytes.first_chunk()?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..4] != BLOCK_MAGIC || u32_at(40) != crc32fast::hash(&bytes[..40]) {
            return None;
        }
        let head = BlockHead {
            kind: bytes[4],
            left: u16_at(6),
            stream: u32_at(8),
            length: u32_at(12),
            records: u32_at(16),
            first: u64_at(20),
            base: u64_at(28),
            payload_crc: u32_at(36),
        };
        let max = if head.kind == BlockKind::Head as u8 { HEAD_MAX } else { BLOCK_MAX };
        (bytes[5] == 0 && head.stream < STREAMS_MAX && head.length as usize <= max).then_some(head)
    }
}

/// Appends to a payload.
pub(crate) trait Put {
    fn put_uint(&mut self, value: u64);
    fn put_text(&mut self, text: &str);
    fn put_option(&mut self, value: Option<u64>);
}

impl Put for Vec<u8> {
    fn put_uint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }
    fn put_text(&mut self, text: &str) {
        self.put_uint(text.len() as u64);
        self.extend_from_slice(text.as_bytes());
    }
    fn put_option(&mut self, value: Option<u64>) {
        self.push(u8::from(value.is_some()));
        if let Some(value) = value {
            self.put_uint(value);
        }
    }
}

/// Takes from the front of a payload; `None` where it is not what was asked for.
pub(crate) struct Cut<'a>(pub(crate) &'a [u8]);

impl<'a> Cut<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }
    pub(crate) fn bytes(&mut self, n: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(n).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }
    pub(crate) fn uint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
    pub(crate) fn uint32(&mut self) -> Option<u32> {
        self.uint()?.try_into().ok()
    }
    pub(crate) fn text(&mut self) -> Option<String> {
        let n = self.uint()?;
        String::from_utf8(self.bytes(n)?.to_vec()).ok()
    }
    pub(crate) fn option(&mut self) -> Option<Option<u64>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.uint()?)),
            _ => None,
        }
    }
}

/// Signed to unsigned, small magnitudes to small numbers: 0, -1, 1, -2, ...
#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}
#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

pub(crate) fn encode_head(header: &Header, definitions: &Definitions, slots_log2: u8) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_uint(VERSION);
    out.push(header.back_end as u8);
    out.put_uint(header.kinds.bits());
    out.push(slots_log2);
    out.put_option(header.seed);
    out.put_text(&header.system);
    out.put_uint(header.notes.len() as u64);
    header.notes.iter().for_each(|note| out.put_text(note));
    let mut body = Vec::new();
    for definition in definitions.iter() {
        body.clear();
        encode_definition(&definition, &mut body);
        out.put_uint(body.len() as u64);
        out.extend_from_slice(&body);
    }
    out
}

#[derive(Debug)]
pub(crate) enum HeadFault {
    Version(u64),
    /// A part that another takt of the same version wrote.
    Unknown(String),
    Malformed(&'static str),
}

pub(crate) fn decode_head(payload: &[u8]) -> Result<(Header, Definitions, u8), HeadFault> {
    let mut cut = Cut(payload);
    let version = cut.uint().ok_or(HeadFault::Malformed("the format version"))?;
    if version != VERSION {
        return Err(HeadFault::Version(version));
    }
    let bad = HeadFault::Malformed;
    let back_end = cut.byte().ok_or(bad("the back end"))?;
    let back_end = BackEnd::ALL.into_iter().find(|known| *known as u8 == back_end).ok_or(bad("the back end"))?;
    let kinds = cut.uint().ok_or(bad("the set of recorded kinds"))?;
    let kinds = KindSet::from_bits(kinds).ok_or_else(|| {
        let first = (kinds & !KindSet::ALL.bits()).trailing_zeros();
        HeadFault::Unknown(format!("events of kind {first}"))
    })?;
    let slots_log2 = cut.byte().filter(|log2| SLOTS_LOG2.contains(log2)).ok_or(bad("the number of slots"))?;
    let seed = cut.option().ok_or(bad("the seed"))?;
    let system = cut.text().ok_or(bad("the System"))?;
    let mut notes = Vec::new();
    for _ in 0..cut.uint().ok_or(bad("the notes"))? {
        notes.push(cut.text().ok_or(bad("the notes"))?);
    }
    let mut definitions = Definitions::default();
    while !cut.0.is_empty() {
        let body = cut.uint().and_then(|n| cut.bytes(n)).ok_or(bad("a definition"))?;
        if let Some(kind) = unknown_definition(body) {
            return Err(HeadFault::Unknown(format!("a definition of type {kind}")));
        }
        let definition = decode_definition(body).ok_or(bad("a definition"))?;
        definitions.apply(definition).map_err(|_| bad("a definition's number"))?;
    }
    Ok((Header { system, seed, back_end, kinds, notes }, definitions, slots_log2))
}

impl Definition {
    /// Bytes that it takes in a log, but for the record's own.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let mut body = Vec::new();
        encode_definition(self, &mut body);
        body.len()
    }
}

/// One definition: a byte for its type, then its fields.
pub(crate) fn encode_definition(definition: &Definition, out: &mut Vec<u8>) {
    let span = |span: Option<Span>| span.map(Span::as_ns);
    match definition {
        Definition::Node(id, def) => {
            out.push(0);
            out.put_uint(id.0.into());
            out.put_text(&def.name);
            out.put_uint(def.cpus.into());
            out.put_text(&def.strategy);
        }
        Definition::Cpu(def) => {
            out.push(1);
            out.put_uint(def.node.0.into());
            out.put_uint(def.cpu.into());
            out.put_uint(def.kernel_cpu.into());
        }
        Definition::Task(id, def) => {
            out.push(2);
            out.put_uint(id.0.into());
            out.put_text(&def.name);
            out.put_uint(def.node.0.into());
            out.put_option(span(def.period));
            out.put_option(span(def.deadline));
            out.put_option(span(def.wcet));
            if let Some(class) = def.class {
                out.push(class as u8);
            }
        }
        Definition::Chain(id, def) => {
            out.push(3);
            out.put_uint((*id).into());
            out.put_text(&def.name);
            out.put_uint(def.sink.0.into());
        }
        Definition::Server(id, def) => {
            out.push(4);
            out.put_uint((*id).into());
            out.put_text(&def.name);
            out.put_uint(def.node.0.into());
            out.put_text(&def.rule);
            out.put_option(span(def.period));
            out.put_option(span(def.budget));
        }
        Definition::Mode(id, def) => {
            out.push(5);
            out.put_uint((*id).into());
            out.put_uint(def.node.0.into());
            out.put_text(&def.strategy);
        }
        Definition::Clock(def) => {
            out.push(6);
            out.put_uint(def.stream.into());
            out.put_uint(def.from.as_ns());
            out.put_uint(zigzag(def.offset_min.as_ns()));
            out.put_uint(zigzag(def.offset_max.as_ns()));
        }
        Definition::Only(node) => {
            out.push(7);
            out.put_uint(node.0.into());
        }
        Definition::Interrupt(id, def) => {
            out.push(8);
            out.put_uint((*id).into());
            out.put_text(&def.name);
            out.put_uint(def.node.0.into());
            out.push(def.kind as u8);
        }
        Definition::Thread(id, def) => {
            out.push(9);
            out.put_uint((*id).into());
            out.put_text(&def.name);
            out.put_uint(def.node.0.into());
            out.push(def.kind as u8);
        }
    }
}

/// The type of a definition that is none of this version's.
pub(crate) fn unknown_definition(body: &[u8]) -> Option<u8> {
    body.first().copied().filter(|kind| *kind > DEFINITION_TYPE_MAX)
}

/// `None` where the bytes are no definition of this version, or more than one.
pub(crate) fn decode_definition(body: &[u8]) -> Option<Definition> {
    let mut cut = Cut(body);
    let span = |value: Option<u64>| value.map(Span::from_ns);
    let kind = cut.byte()?;
    let id = cut.uint32()?;
    let definition = match kind {
        0 => Definition::Node(NodeId(id), NodeDef { name: cut.text()?, cpus: cut.uint32()?, strategy: cut.text()? }),
        1 => Definition::Cpu(CpuDef { node: NodeId(id), cpu: cut.uint32()?, kernel_cpu: cut.uint32()? }),
        2 => Definition::Task(
            TaskId(id),
            TaskDef {
                name: cut.text()?,
                node: NodeId(cut.uint32()?),
                period: span(cut.option()?),
                deadline: span(cut.option()?),
                wcet: span(cut.option()?),
                class: match cut.0 {
                    [] => None,
                    _ => {
                        let class = cut.byte()?;
                        Some(ThreadClass::ALL.into_iter().find(|known| *known as u8 == class)?)
                    }
                },
            },
        ),
        3 => Definition::Chain(id, ChainDef { name: cut.text()?, sink: TaskId(cut.uint32()?) }),
        4 => Definition::Server(
            id,
            ServerDef {
                name: cut.text()?,
                node: NodeId(cut.uint32()?),
                rule: cut.text()?,
                period: span(cut.option()?),
                budget: span(cut.option()?),
            },
        ),
        5 => Definition::Mode(id, ModeDef { node: NodeId(cut.uint32()?), strategy: cut.text()? }),
        6 => Definition::Clock(ClockDef {
            stream: id,
            from: Time::from_ns(cut.uint()?),
            offset_min: Lateness::from_ns(unzigzag(cut.uint()?)),
            offset_max: Lateness::from_ns(unzigzag(cut.uint()?)),
        }),
        7 => Definition::Only(NodeId(id)),
        8 => {
            let (name, node, kind) = (cut.text()?, NodeId(cut.uint32()?), cut.byte()?);
            let kind = InterruptKind::ALL.into_iter().find(|known| *known as u8 == kind)?;
            Definition::Interrupt(id, InterruptDef { name, node, kind })
        }
        9 => {
            let (name, node, kind) = (cut.text()?, NodeId(cut.uint32()?), cut.byte()?);
            let kind = ThreadKind::ALL.into_iter().find(|known| *known as u8 == kind)?;
            Definition::Thread(id, ThreadDef { name, node, kind })
        }
        _ => return None,
    };
    cut.0.is_empty().then_some(definition)
}

/// The end block's payload: the end time, then the number of records of every stream that has any.
pub(crate) fn encode_end(end: u64, streams: impl Iterator<Item = (u32, u64)>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_uint(end);
    let mut next = 0;
    for (stream, records) in streams.filter(|(_, records)| *records > 0) {
        out.put_uint(u64::from(stream - next));
        out.put_uint(records);
        next = stream + 1;
    }
    out
}

pub(crate) fn decode_end(payload: &[u8]) -> Option<(u64, Vec<(u32, u64)>)> {
    let mut cut = Cut(payload);
    let end = cut.uint()?;
    let (mut streams, mut next) = (Vec::new(), 0u32);
    while !cut.0.is_empty() {
        let stream = next.checked_add(cut.uint32()?).filter(|stream| *stream < STREAMS_MAX)?;
        streams.push((stream, cut.uint()?));
        next = stream + 1;
    }
    Some((end, streams))
}
