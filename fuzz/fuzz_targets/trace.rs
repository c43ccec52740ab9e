//! Arbitrary bytes as a trace. Nothing panics, and memory stays in proportion. Events come in the
//! order of time. Reading twice gives the same, and the rebuilt jobs add up.
//!
//! The first byte selects the use of the rest: as a file; as a packed file or JSON; as pages of
//! either order of bytes; or as the description of an event, a NUL, and pages with such events.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_log::stats::Collector;
use takt_model::Time;
use takt_trace::jobs::{Options, Rebuilder, kinds};
use takt_trace::{AbiGuess, Endian, Format, PageLayout, Recording, embedded, is_trace, refuse_foreign, unpacked};

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    match how % 4 {
        0 => open(rest),
        1 => {
            if let Ok(bytes) = unpacked(rest) {
                match embedded(&bytes) {
                    Ok(Some(text)) => open(&text),
                    Ok(None) => open(&bytes),
                    Err(_) => {}
                }
            }
        }
        2 => pages(&[], rest),
        _ => {
            let (text, bytes) = rest.split_at(rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len()));
            if let Ok(format) = Format::parse(&String::from_utf8_lossy(text)) {
                pages(&[format], bytes.get(1..).unwrap_or_default());
            }
            if let Ok(layout) = PageLayout::parse(&String::from_utf8_lossy(text)) {
                read(&mut Recording::pages(&[], layout, Endian::Little, vec![(0, bytes)]));
            }
        }
    }
});

fn open(bytes: &[u8]) {
    let (_, _) = (is_trace(bytes), refuse_foreign(bytes));
    let first = Recording::open(bytes).map(|mut recording| read(&mut recording));
    let again = Recording::open(bytes).map(|mut recording| read(&mut recording));
    assert_eq!(first, again);
}

fn pages(formats: &[Format], bytes: &[u8]) {
    for (endian, word) in [(Endian::Little, 8), (Endian::Big, 4)] {
        let (one, two) = bytes.split_at(bytes.len() / 2);
        let cpus = vec![(0, one), (7, two)];
        read(&mut Recording::pages(formats, PageLayout::usual(word, 4096), endian, cpus));
    }
}

/// How many events there are, and how many broken places.
fn read(recording: &mut Recording) -> (u64, u64) {
    let (mut events, mut latest) = (0, Time::ZERO);
    let mut guess = AbiGuess::default();
    let mut rebuilder = Rebuilder::new(Options { monotonic: true, ..Options::default() });
    let mut collector = Collector::new(&rebuilder.definitions(), kinds(["sched_switch"]));
    recording.each(|event| {
        assert!(event.time >= latest);
        latest = event.time;
        events += 1;
        guess.event(event);
        rebuilder.event(event, &mut collector);
    });
    assert!(guess.best().into_iter().all(|abi| guess.fits(abi) <= guess.all()));
    for task in collector.finish(rebuilder.end()).tasks {
        assert_eq!(task.released, task.completed + task.cancelled + task.rejected + task.unfinished - task.carried);
    }
    (events, recording.damages().count())
}
