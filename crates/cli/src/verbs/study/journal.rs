//! The verdicts of a study as they come: one line a chunk, appended, each with its checksum. A
//! killed run leaves at most one torn line. The torn line is dropped; all other chunks are not
//! computed again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdicts {
    /// Two bits a series: 0 unknown, 1 yes, 2 no.
    pub(crate) bits: u64,
    /// Utilisation after rounding, in billionths; 0 for a set that the generator refused.
    pub(crate) utilization: u64,
}

impl Verdicts {
    /// Verdicts of a set that cannot keep to its utilisation, since each task has at least one
    /// grain.
    pub(crate) const REFUSED: Verdicts = Verdicts { bits: 0, utilization: 0 };
}

pub(crate) type Place = (u32, u32);

pub(crate) struct Journal {
    file: File,
    pub(crate) done: BTreeMap<Place, Vec<Verdicts>>,
}

impl Journal {
    /// Opens the journal, reads whole lines, and cuts off a torn line.
    pub(crate) fn open(path: &Path) -> io::Result<Journal> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let (mut done, mut whole) = (BTreeMap::new(), 0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some((place, chunk)) = std::str::from_utf8(line).ok().and_then(read) else { break };
            done.insert(place, chunk);
            whole += line.len() as u64;
        }
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        file.set_len(whole)?;
        drop(file);
        Ok(Journal { file: File::options().append(true).open(path)?, done })
    }

    pub(crate) fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())
    }
}

pub(crate) fn line((point, chunk): Place, sets: &[Verdicts]) -> String {
    let mut body = format!("{point} {chunk}");
    for set in sets {
        let _ = write!(body, " {:x}:{}", set.bits, set.utilization);
    }
    format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
}

fn read(line: &str) -> Option<(Place, Vec<Verdicts>)> {
    let (sum, body) = line.strip_suffix('\n')?.split_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let mut words = body.split(' ');
    let place = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let set = |word: &str| {
        let (bits, utilization) = word.split_once(':')?;
        Some(Verdicts { bits: u64::from_str_radix(bits, 16).ok()?, utilization: utilization.parse().ok()? })
    };
    Some((place, words.map(set).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_journal_is_read_to_its_last_whole_line_and_goes_on_from_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let chunk = |n: u64| vec![Verdicts { bits: n, utilization: 7 * n }, Verdicts { bits: 1 << n, utilization: 0 }];
        let mut journal = Journal::open(&path).expect("a new journal");
        (0..3u32).for_each(|n| journal.append(&line((n, 0), &chunk(u64::from(n)))).expect("written"));
        let all = fs::read(&path).expect("bytes");
        for cut in 0..all.len() {
            fs::write(&path, &all[..cut]).expect("written");
            let mut journal = Journal::open(&path).expect("a journal");
            let whole = all[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(journal.done.len(), whole, "cut at {cut}");
            journal.append(&line((9, 9), &chunk(4))).expect("written");
            assert_eq!(Journal::open(&path).expect("a journal").done.len(), whole + 1);
        }
        let mut bad = all.clone();
        bad[12] ^= 1;
        fs::write(&path, &bad).expect("written");
        assert!(Journal::open(&path).expect("a journal").done.is_empty());
    }
}
