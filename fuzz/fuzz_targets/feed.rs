//! Pages as a recorder gives them, some at a time from each CPU: nothing panics, and the events and
//! broken places are those of the same pages read at once.
//!
//! The first byte says how many pages come at a time and of which order of bytes they are; then the
//! description of an event, a NUL, and the pages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_trace::{Endian, Feed, Format, KernelEvent, PageLayout, Recording};

/// Small, so that an input has several.
const PAGE: usize = 256;

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let (endian, word) = if how & 1 == 0 { (Endian::Little, 8) } else { (Endian::Big, 4) };
    let at_a_time = PAGE * (1 + usize::from(how >> 1 & 3));
    let (text, bytes) = rest.split_at(rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len()));
    let bytes = bytes.get(1..).unwrap_or_default();
    let formats: Vec<Format> = Format::parse(&String::from_utf8_lossy(text)).into_iter().collect();
    let layout = PageLayout::usual(word, PAGE);
    // Whole pages but for the last one.
    let (one, two) = bytes.split_at(bytes.len() / 2 / PAGE * PAGE);

    let mut whole = Recording::pages(&formats, layout, endian, vec![(0, one), (7, two)]);
    let mut expected: Vec<KernelEvent> = Vec::new();
    whole.each(|event| expected.push(*event));

    let mut feed = Feed::new(&formats, layout, endian);
    let mut given: Vec<KernelEvent> = Vec::new();
    let (mut ones, mut twos) = (one.chunks(at_a_time), two.chunks(at_a_time));
    loop {
        let (first, second) = (ones.next(), twos.next());
        if first.is_none() && second.is_none() {
            break;
        }
        feed.pages(0, first.unwrap_or_default());
        feed.pages(7, second.unwrap_or_default());
        feed.until(None, |event| given.push(*event));
    }
    feed.finish(|event| given.push(*event));
    assert!(given.is_sorted_by_key(|event| event.time));
    assert_eq!(given, expected);
    assert_eq!(feed.damages().count(), whole.damages().count());
});
