//! Whether a file is a trace, by its first bytes, and what the gzip around it holds.

use std::borrow::Cow;
use std::io::{self, Read as _};

use thiserror::Error;

use crate::dat::{self, DatError};
use crate::json;
use crate::perfetto;
use crate::text::{self, Line};

/// A trace that cannot be read at all.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A broken `trace.dat`.
    #[error(transparent)]
    Dat(#[from] DatError),
    /// Text without an event.
    #[error(
        "no trace: neither trace.dat, nor a Perfetto trace, nor text with a line of the form \"NAME-PID [CPU] \
         SECONDS: EVENT: ...\"; raw pages need the kernel's format files beside them"
    )]
    NoEvent,
    /// Text with too much before its first event.
    #[error(
        "no event within the first {TEXT_HEAD} bytes (TEXT_HEAD), so this is no trace; if an event follows later, cut \
         off the text before it"
    )]
    NoEarlyEvent,
    /// Text of a tracer that tells something else than events.
    #[error(
        "a trace of the kernel's tracer {0}, which prints no events that can be read; record events instead \
         (tracer nop, with sched/sched_switch and sched/sched_waking)"
    )]
    Tracer(&'static str),
    /// A recording of perf.
    #[error("a recording of perf, which takt reads as text: \"perf script --ns -i perf.data > trace.txt\"")]
    Perf,
    /// A recording in the Common Trace Format.
    #[error(
        "a trace in the Common Trace Format (CTF), as LTTng and barectf write it; takt reads it as text: \
         \"babeltrace2 --clock-seconds FOLDER > trace.txt\""
    )]
    Ctf,
    /// JSON without the kernel's text.
    #[error(
        "JSON without the kernel's events: of the traces that Chrome and catapult save, takt reads the text \
         under \"systemTraceEvents\""
    )]
    Json,
    /// A Perfetto trace in which the kernel tells nothing.
    #[error(
        "a Perfetto trace without events of the kernel: its data source linux.ftrace has to record \
         sched/sched_switch and sched/sched_waking{}",
        if *.tracks { "; where takt exported it from a log, give the log itself (.takt) to takt's verbs" } else { "" }
    )]
    NoKernelEvents {
        /// It has tracks that a program drew, as `takt export` does.
        tracks: bool,
    },
    /// A compressed file that cannot be unpacked.
    #[error("the gzip around the trace is broken, or the file is cut; copy it again")]
    Gzip,
    /// A compressed file that holds too much.
    #[error(
        "the gzip around the trace holds more than {} bytes (UNPACKED_MAX); unpack it, and give the file",
        dat::UNPACKED_MAX
    )]
    GzipLong,
}

/// So many bytes at the beginning of a file show whether it can be a trace: see [`refuse_foreign`].
pub const HEAD: usize = 1 << 16;

/// The first bytes of a file, unpacked if they are gzip.
fn head_unpacked(head: &[u8]) -> Cow<'_, [u8]> {
    if !head.starts_with(&GZIP) {
        return Cow::Borrowed(head);
    }
    let mut bytes = Vec::new();
    // The input is cut, most often. The bytes before the cut are there.
    let _ = flate2::read::MultiGzDecoder::new(head).take(HEAD as u64).read_to_end(&mut bytes);
    Cow::Owned(bytes)
}

/// Refuses a file that cannot be a trace by its first bytes, before all of it is read. `head` is
/// the first [`HEAD`] bytes, or all there are. They may be gzip.
///
/// # Errors
/// It is a file of another kind, or neither text nor a known form.
pub fn refuse_foreign(head: &[u8]) -> Result<(), OpenError> {
    const PERF: [&[u8]; 2] = [b"PERFILE2", b"2ELIFREP"];
    // The magic numbers of streams and metadata, in both byte orders, and metadata as text.
    const CTF: [&[u8]; 5] =
        [b"\xc1\x1f\xfc\xc1", b"\xc1\xfc\x1f\xc1", b"\x57\x1d\xd1\x75", b"\x75\xd1\x1d\x57", b"/* CTF "];
    let head = &*head_unpacked(head);
    let begins = |magics: &[&[u8]]| magics.iter().any(|magic| head.starts_with(magic));
    if begins(&PERF) {
        Err(OpenError::Perf)
    } else if begins(&CTF) {
        Err(OpenError::Ctf)
    } else if begins(&[dat::MAGIC]) || perfetto::is_perfetto(head) {
        Ok(())
    } else {
        // The output of a serial console may hold a few of them.
        let zeros = memchr::memchr_iter(0, head).count();
        if zeros > head.len() / 16 { Err(OpenError::NoEvent) } else { Ok(()) }
    }
}

/// Text of a trace has its first event, or its heading, within so many bytes.
pub const TEXT_HEAD: usize = 16 << 20;

/// Refuses a file of another kind before all of it is read: no known form, and no text of a trace. `head` is the first
/// [`TEXT_HEAD`] bytes, or all there are. Packed bytes are left to [`unpacked`].
///
/// # Errors
/// Text without an event and without the heading of a tracer.
pub fn refuse_other_text(head: &[u8]) -> Result<(), OpenError> {
    let is_known = head.starts_with(&GZIP) || head.starts_with(dat::MAGIC) || perfetto::is_perfetto(head);
    let has_heading = || {
        let heading = head.get(..HEADING_MAX).unwrap_or(head);
        memchr::memmem::find(head, b"# tracer:").is_some() || lines(heading).any(text::is_function_graph)
    };
    let is_event = |line: &[u8]| matches!(text::line(line), Line::Event { .. } | Line::Unreadable(_));
    if is_known || json::is_json(head) || has_heading() || lines(head).any(is_event) {
        return Ok(());
    }
    Err(if head.len() < TEXT_HEAD { OpenError::NoEvent } else { OpenError::NoEarlyEvent })
}

/// Whether a file with this `head` is most likely a trace: it has a known form, or is text with an
/// event.
#[must_use]
pub fn is_trace(head: &[u8]) -> bool {
    let head = &*head_unpacked(head);
    head.starts_with(dat::MAGIC)
        || perfetto::is_perfetto(head)
        || memchr::memmem::find(head, b"# tracer:").is_some()
        || lines(head).any(|line| matches!(text::line(line), Line::Event { .. }))
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Unpacks `bytes` where gzip is around them; those of a trace.dat up to the length that its headers tell.
///
/// # Errors
/// Broken, more than a GiB, or no trace by its first bytes.
pub fn unpacked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, OpenError> {
    unpacked_within(bytes, dat::UNPACKED_MAX)
}

/// As [`unpacked`], up to so many bytes.
fn unpacked_within(bytes: &[u8], most: usize) -> Result<Cow<'_, [u8]>, OpenError> {
    if !bytes.starts_with(&GZIP) {
        return Ok(Cow::Borrowed(bytes));
    }
    if let Some(unpacked) = unpacked_dat(bytes)? {
        return Ok(Cow::Owned(unpacked));
    }
    let unpacking = || flate2::read::MultiGzDecoder::new(bytes).take(most as u64 + 1);
    let (mut out, mut rest) = (Vec::new(), unpacking());
    rest.by_ref().take(HEAD as u64).read_to_end(&mut out).map_err(|_| OpenError::Gzip)?;
    // Raw pages look like nothing: zeros alone are what a bomb has.
    if out.len() == HEAD && out.iter().all(|byte| *byte == out[0]) {
        return Err(OpenError::NoEvent);
    }
    rest.by_ref().take((TEXT_HEAD - HEAD) as u64).read_to_end(&mut out).map_err(|_| OpenError::Gzip)?;
    let is_text = memchr::memchr(0, &out[..out.len().min(HEAD)]).is_none();
    if out.len() == TEXT_HEAD && is_text {
        refuse_other_text(&out)?;
    }
    // What is too long takes no memory: a first pass counts.
    if io::copy(&mut unpacking(), &mut io::sink()).map_err(|_| OpenError::Gzip)? > most as u64 {
        return Err(OpenError::GzipLong);
    }
    rest.read_to_end(&mut out).map_err(|_| OpenError::Gzip)?;
    Ok(Cow::Owned(out))
}

/// The kernel's text within JSON, for [`Recording::open`](crate::Recording::open). `None`: `bytes` are no JSON.
///
/// # Errors
/// JSON without that text.
pub fn embedded(bytes: &[u8]) -> Result<Option<Vec<u8>>, OpenError> {
    if !json::is_json(bytes) {
        return Ok(None);
    }
    json::system_trace(bytes).map(Some).ok_or(OpenError::Json)
}

/// How far into a text its heading is looked for; systrace's pages have their scripts before it.
pub(crate) const HEADING_MAX: usize = 1 << 16;

/// Unpacks a trace.dat in gzip up to its length by the headers. `None`: `bytes` are something else, or the headers do
/// not tell.
///
/// # Errors
/// The gzip is broken, or the trace.dat cannot be read.
fn unpacked_dat(bytes: &[u8]) -> Result<Option<Vec<u8>>, OpenError> {
    let decoder = || flate2::read::MultiGzDecoder::new(bytes);
    let mut magic = [0; dat::MAGIC.len()];
    if decoder().read_exact(&mut magic).is_err() || magic != dat::MAGIC {
        return Ok(None);
    }
    let extent = dat::dat_extent(decoder().take(dat::UNPACKED_MAX as u64), |input, count| {
        if count > input.limit() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        io::copy(&mut input.take(count), &mut io::sink())
    })?;
    let Some(extent) = extent.filter(|extent| *extent <= dat::UNPACKED_MAX as u64) else { return Ok(None) };
    let mut unpacked = Vec::new();
    decoder().take(extent).read_to_end(&mut unpacked).map_err(|_| OpenError::Gzip)?;
    Ok(Some(unpacked))
}

/// Lines without their ends.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn more_than_may_be_unpacked_is_refused_by_its_length() {
        let event = b" app-7 [000] 1.000001: sched_waking: comm=b pid=8 prio=120 target_cpu=000\n";
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(event).expect("written");
        let packed = packed.finish().expect("packed");
        assert_eq!(unpacked_within(&packed, event.len()).expect("it fits").as_ref(), event);
        assert_eq!(unpacked_within(&packed, event.len() - 1), Err(OpenError::GzipLong));
        assert!(OpenError::GzipLong.to_string().contains("UNPACKED_MAX"));
    }
}
