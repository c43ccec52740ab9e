//! A `trace.dat` (version 6, trace-cmd.dat.v6(5)) while pages come: readable at every instant, also
//! by `trace-cmd report`.
//!
//! The form wants the pages of a CPU in one piece. Each CPU gets a region for the most bytes of all
//! CPUs together, so that none runs out of room before all do. The unwritten rest is a hole in the
//! file, which takes no room on file systems with holes. [`DatWriter::finish`] closes the gaps. The
//! pages of CPU k lie from `base + k * room` on, and are moved to `base + (bytes of the CPUs before
//! it)`. The gap is at least `k * room - (room - bytes of k)`, for k >= 1 no less than the bytes of
//! k. So no page is moved onto itself or onto a page that is still to be moved. The table names the
//! old place or the new one, and both are whole. So a kill at any instant leaves a file that can be
//! read.

use std::io::{self, Read, Seek, SeekFrom, Write};

use thiserror::Error;

use crate::bytes::Endian;

/// The content of a file before its pages.
#[derive(Clone, Debug)]
pub struct DatHead<'a> {
    /// The order of bytes in the pages.
    pub endian: Endian,
    /// Bytes of a word on the traced machine: 4 or 8.
    pub word: u8,
    /// Bytes of a page of the ring buffers.
    pub page: u32,
    /// The text of `events/header_page`.
    pub header_page: &'a str,
    /// The text of `events/header_event`.
    pub header_event: &'a str,
    /// Format files of the tracer's own entries (`events/ftrace`).
    pub own: Vec<&'a str>,
    /// Format files of events: (subsystem, text).
    pub events: Vec<(&'a str, &'a str)>,
    /// Names of threads.
    pub threads: Vec<(u32, &'a str)>,
    /// The text of `trace_clock`, the clock in use in brackets: `local [mono]`.
    pub clock: &'a str,
    /// CPUs: numbers below this.
    pub cpus: u32,
}

/// Why a file cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatWriteError {
    /// The file.
    #[error("the trace cannot be written: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no run of whole pages of a CPU of the head.
    #[error("{bytes} bytes of CPU {cpu} are no whole pages of {page} bytes of a CPU below {cpus}")]
    Pages {
        /// How many bytes.
        bytes: usize,
        /// Of which CPU.
        cpu: u32,
        /// Bytes of a page.
        page: u32,
        /// CPUs.
        cpus: u32,
    },
}

/// Writes a file. `F` is a new file that can be read, written and sought in.
#[derive(Debug)]
pub struct DatWriter<F> {
    file: F,
    endian: Endian,
    page: u32,
    table: u64,
    base: u64,
    /// The most that all CPUs may take together.
    room: u64,
    taken: Vec<u64>,
}

const OPTION_CLOCK: u64 = 4;

impl DatHead<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut out = DatBuffer { bytes: Vec::new(), endian: self.endian };
        out.bytes.extend(crate::dat::MAGIC);
        out.bytes.extend(b"6\0");
        out.bytes.push(u8::from(self.endian == Endian::Big));
        out.bytes.push(self.word);
        out.number(u64::from(self.page), 4);
        out.bytes.extend(b"header_page\0");
        out.text(self.header_page);
        out.bytes.extend(b"header_event\0");
        out.text(self.header_event);
        out.number(self.own.len() as u64, 4);
        for text in &self.own {
            out.text(text);
        }
        let mut systems: Vec<&str> = self.events.iter().map(|(system, _)| *system).collect();
        systems.sort_unstable();
        systems.dedup();
        out.number(systems.len() as u64, 4);
        for system in systems {
            out.bytes.extend(system.bytes().filter(|byte| *byte != 0));
            out.bytes.push(0);
            let texts = || self.events.iter().filter(|(of, _)| *of == system).map(|(_, text)| text);
            out.number(texts().count() as u64, 4);
            texts().for_each(|text| out.text(text));
        }
        // Neither symbols nor formats of trace_printk.
        out.number(0, 4);
        out.number(0, 4);
        let threads = self.threads.iter().map(|(id, name)| {
            let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            format!("{id} {name}\n")
        });
        out.text(&threads.collect::<String>());
        out.number(u64::from(self.cpus), 4);
        out.bytes.extend(b"options  \0");
        out.number(OPTION_CLOCK, 2);
        out.number(self.clock.len() as u64 + 1, 4);
        out.bytes.extend(self.clock.as_bytes());
        out.bytes.push(0);
        out.number(0, 2);
        out.bytes.extend(b"flyrecord\0");
        out.bytes
    }
}

struct DatBuffer {
    bytes: Vec<u8>,
    endian: Endian,
}

impl DatBuffer {
    fn number(&mut self, value: u64, size: usize) {
        put(&mut self.bytes, self.endian, value, size);
    }
    /// Its length, then itself.
    fn text(&mut self, text: &str) {
        self.number(text.len() as u64, 8);
        self.bytes.extend(text.as_bytes());
    }
}

fn put(bytes: &mut Vec<u8>, endian: Endian, value: u64, size: usize) {
    match endian {
        Endian::Little => bytes.extend(value.to_le_bytes().iter().take(size)),
        Endian::Big => bytes.extend(value.to_be_bytes().iter().skip(8 - size)),
    }
}

/// Pages moved at a time when gaps are closed.
const MOVED: usize = 1 << 20;

impl<F: Read + Write + Seek> DatWriter<F> {
    /// Begins a file whose pages take at most `room` bytes.
    ///
    /// # Errors
    /// The file's.
    pub fn new(mut file: F, head: &DatHead, room: u64) -> Result<Self, DatWriteError> {
        let mut bytes = head.encode();
        let table = bytes.len() as u64;
        bytes.resize(bytes.len() + 16 * head.cpus as usize, 0);
        let page = u64::from(head.page.max(1));
        bytes.resize((bytes.len() as u64).next_multiple_of(page) as usize, 0);
        let base = bytes.len() as u64;
        let room = room - room % page;
        let taken = vec![0; head.cpus as usize];
        let mut places = Vec::new();
        for cpu in 0..u64::from(head.cpus) {
            put(&mut places, head.endian, base.saturating_add(cpu.saturating_mul(room)), 8);
            put(&mut places, head.endian, 0, 8);
        }
        bytes[table as usize..table as usize + places.len()].copy_from_slice(&places);
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&bytes)?;
        Ok(DatWriter { file, endian: head.endian, page: head.page.max(1), table, base, room, taken })
    }

    /// Adds whole pages of a CPU; `false`: the room is used up, and of these only the first were
    /// written.
    ///
    /// # Errors
    /// The file's, or what is no run of pages.
    pub fn pages(&mut self, cpu: u32, pages: &[u8]) -> Result<bool, DatWriteError> {
        let whole = pages.len().is_multiple_of(self.page as usize);
        let Some(taken) = self.taken.get(cpu as usize).copied().filter(|_| whole) else {
            let cpus = self.taken.len() as u32;
            return Err(DatWriteError::Pages { bytes: pages.len(), cpu, page: self.page, cpus });
        };
        let left = self.room - self.taken.iter().sum::<u64>();
        let fitting = left.min(pages.len() as u64);
        let place = self.base.saturating_add(u64::from(cpu).saturating_mul(self.room));
        self.file.seek(SeekFrom::Start(place.saturating_add(taken)))?;
        self.file.write_all(&pages[..fitting as usize])?;
        self.taken[cpu as usize] += fitting;
        self.write_row(cpu as usize, place)?;
        Ok(fitting == pages.len() as u64)
    }

    /// Closes the gaps; the file, and its length: what lies behind is to be cut off.
    ///
    /// # Errors
    /// The file's; what was written can be read then, too.
    pub fn finish(mut self) -> Result<(F, u64), DatWriteError> {
        let mut end = self.base;
        let mut bytes = vec![0; MOVED];
        for cpu in 0..self.taken.len() {
            let taken = self.taken[cpu];
            let from = self.base.saturating_add((cpu as u64).saturating_mul(self.room));
            let mut done = 0;
            while done < taken && from != end {
                let some = &mut bytes[..(taken - done).min(MOVED as u64) as usize];
                self.file.seek(SeekFrom::Start(from + done))?;
                self.file.read_exact(some)?;
                self.file.seek(SeekFrom::Start(end + done))?;
                self.file.write_all(some)?;
                done += some.len() as u64;
            }
            self.write_row(cpu, end)?;
            end += taken;
        }
        self.file.flush()?;
        Ok((self.file, end))
    }

    /// A CPU's row of the table, in one write.
    fn write_row(&mut self, cpu: usize, place: u64) -> io::Result<()> {
        let mut row = Vec::with_capacity(16);
        put(&mut row, self.endian, place, 8);
        put(&mut row, self.endian, self.taken[cpu], 8);
        self.file.seek(SeekFrom::Start(self.table + 16 * cpu as u64))?;
        self.file.write_all(&row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventKind, Recording};
    use std::io::Cursor;

    const PAGE: usize = 128;
    const FORMAT: &str = "name: irq_handler_entry\nID: 7\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
         \tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n";

    fn head(endian: Endian) -> DatHead<'static> {
        DatHead {
            endian,
            word: 8,
            page: PAGE as u32,
            header_page: "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                 \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                 \tfield: char data;\toffset:16;\tsize:112;\tsigned:0;\n",
            header_event: "type_len : 5 bits\n",
            own: Vec::new(),
            events: vec![("irq", FORMAT)],
            threads: vec![(1, "init"), (12, "two words\n")],
            clock: "local [mono] boot",
            cpus: 3,
        }
    }

    /// A page with one event: interrupt `irq` at that time.
    fn page(endian: Endian, time: u64, irq: u64) -> Vec<u8> {
        let mut page = Vec::new();
        put(&mut page, endian, time, 8);
        put(&mut page, endian, 16, 8);
        put(&mut page, endian, if endian == Endian::Little { 3 } else { 3 << 27 }, 4);
        put(&mut page, endian, 7, 2);
        page.extend([0, 0]);
        put(&mut page, endian, 12, 4);
        put(&mut page, endian, irq, 4);
        page.resize(PAGE, 0);
        page
    }

    fn read(bytes: &[u8]) -> Vec<(u64, u32, u32)> {
        let mut recording = Recording::open(bytes).unwrap();
        assert_eq!(recording.clock(), "mono");
        let mut events = Vec::new();
        recording.each(|event| match event.what {
            EventKind::IrqEnter { irq, .. } => events.push((event.time.as_ns(), event.cpu, irq)),
            other => panic!("{other:?}"),
        });
        assert_eq!(recording.damages().count(), 0, "{:?}", recording.damages().first());
        events
    }

    #[test]
    fn a_file_can_be_read_at_every_instant_and_has_no_gaps_in_the_end() {
        for endian in [Endian::Little, Endian::Big] {
            let mut writer = DatWriter::new(Cursor::new(Vec::new()), &head(endian), 8 * PAGE as u64 + 5).unwrap();
            let mut expected = Vec::new();
            for (number, cpu) in [2, 0, 2, 2, 0, 2].into_iter().enumerate() {
                let (time, irq) = (100 + number as u64, number as u64);
                let fits = writer.pages(cpu, &page(endian, time, irq)).unwrap();
                assert!(fits);
                expected.push((time, cpu, irq as u32));
                assert_eq!(read(writer.file.get_ref()), expected);
            }
            let taken: u64 = writer.taken.iter().sum();
            let (file, end) = writer.finish().unwrap();
            let mut bytes = file.into_inner();
            assert_eq!(read(&bytes), expected, "before it is cut off");
            bytes.truncate(end as usize);
            assert_eq!(read(&bytes), expected);
            let base = bytes.len() as u64 - taken;
            assert_eq!(base % PAGE as u64, 0, "pages lie at whole pages");
        }
    }

    #[test]
    fn the_room_is_for_all_together_and_is_kept() {
        let endian = Endian::Little;
        let room = 4 * PAGE as u64;
        let mut writer = DatWriter::new(Cursor::new(Vec::new()), &head(endian), room).unwrap();
        let two = [page(endian, 1, 1), page(endian, 2, 2)].concat();
        let three = [page(endian, 3, 3), page(endian, 4, 4), page(endian, 5, 5)].concat();
        assert!(writer.pages(1, &two).unwrap());
        assert!(!writer.pages(2, &three).unwrap(), "one does not fit");
        assert!(!writer.pages(0, &two).unwrap(), "nor does anything else");
        assert_eq!(writer.taken.iter().sum::<u64>(), room);
        assert!(matches!(writer.pages(3, &two), Err(DatWriteError::Pages { cpu: 3, .. })));
        assert!(matches!(writer.pages(0, &two[1..]), Err(DatWriteError::Pages { .. })));
        let (file, end) = writer.finish().unwrap();
        let mut bytes = file.into_inner();
        bytes.truncate(end as usize);
        assert_eq!(read(&bytes), [(1, 1, 1), (2, 1, 2), (3, 2, 3), (4, 2, 4)]);
    }

    /// A file that keeps its state after each write.
    struct Watched {
        file: Cursor<Vec<u8>>,
        after: Vec<Vec<u8>>,
    }
    impl Read for Watched {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.file.read(into)
        }
    }
    impl Seek for Watched {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.file.seek(to)
        }
    }
    impl Write for Watched {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            let written = self.file.write(from)?;
            self.after.push(self.file.get_ref().clone());
            Ok(written)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_kill_between_two_writes_leaves_a_sound_file() {
        let endian = Endian::Little;
        let watched = Watched { file: Cursor::new(Vec::new()), after: Vec::new() };
        let mut writer = DatWriter::new(watched, &head(endian), 6 * PAGE as u64).unwrap();
        let mut written = Vec::new();
        for (number, cpu) in [1, 2, 1, 2, 0, 2].into_iter().enumerate() {
            let (time, irq) = (100 + number as u64, number as u64);
            writer.pages(cpu, &page(endian, time, irq)).unwrap();
            written.push((time, cpu, irq as u32));
        }
        let all = writer.finish().unwrap().0.after;
        // The head; each page and its row; rows, and the pages of CPUs 1 and 2 moved.
        assert_eq!(all.len(), 1 + 2 * 6 + 3 + 2);
        for (number, bytes) in all.iter().enumerate() {
            assert_eq!(read(bytes), written[..written.len().min(number / 2)], "after write {number}");
        }
    }
}
