//! Events of a recording that goes on: pages come by CPU, events go out in the order of time.

use std::collections::VecDeque;

use takt_model::Time;

use crate::bytes::Endian;
use crate::damage::Damages;
use crate::decode::{Decoder, Step};
use crate::event::{KernelEvent, Names};
use crate::format::{Format, FormatError, PageLayout};
use crate::page::Page;
use crate::recording::BATCH;

/// The most events that wait for those of other CPUs. Further ones are given out early. So memory
/// stays bounded if the recorder never catches up.
pub const WAITING_MAX: usize = 4 << 20;

/// The latest time.
const END: Time = Time::from_ns(u64::MAX);

/// Decodes pages as they come and merges CPUs.
///
/// A recorder gives each CPU's pages in their order ([`Feed::pages`]), and then says up to which
/// time it has given all ([`Feed::until`]).
#[derive(Debug)]
pub struct Feed {
    decoder: Decoder,
    layout: PageLayout,
    names: Names,
    damages: Damages,
    cpus: Vec<Cpu>,
    waiting: usize,
}

#[derive(Debug)]
struct Cpu {
    cpu: u32,
    /// The time of its last event.
    last: Time,
    /// Bytes before its next page.
    place: usize,
    /// Room for a batch of events.
    read: Vec<KernelEvent>,
    events: VecDeque<KernelEvent>,
}

impl Feed {
    /// For pages of this layout and events of these formats.
    #[must_use]
    pub fn new(formats: &[Format], layout: PageLayout, endian: Endian) -> Self {
        let mut names = Names::default();
        let mut damages = Damages::default();
        let decoder = Decoder::new(formats, endian, &mut names, &mut damages);
        Feed { decoder, layout, names, damages, cpus: Vec::new(), waiting: 0 }
    }

    /// For pages of this machine, as its kernel describes them: its file `header_page`, and the
    /// `format` files of the events.
    ///
    /// # Errors
    /// The first description that cannot be read.
    pub fn described<'a>(header_page: &str, events: impl IntoIterator<Item = &'a str>) -> Result<Self, FormatError> {
        let formats = events.into_iter().map(Format::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Feed::new(&formats, PageLayout::parse(header_page)?, Endian::NATIVE))
    }

    /// Takes the next whole pages of `cpu`.
    pub fn pages(&mut self, cpu: u32, bytes: &[u8]) {
        let at = match self.cpus.iter().position(|known| known.cpu == cpu) {
            Some(at) => at,
            None => {
                let read = vec![KernelEvent { cpu, ..KernelEvent::NONE }; BATCH];
                self.cpus.push(Cpu { cpu, last: Time::ZERO, place: 0, read, events: VecDeque::new() });
                self.cpus.len() - 1
            }
        };
        let queue = &mut self.cpus[at];
        let before = queue.events.len();
        for bytes in bytes.chunks(self.layout.page) {
            let mut page = Page::new(bytes, &self.layout, self.decoder.endian());
            let mut event = KernelEvent::NONE;
            loop {
                let mut last = queue.last;
                let count = self.decoder.run(&mut page, bytes, &mut queue.read, |time| {
                    last = Time::from_ns(time).max(last);
                    last
                });
                queue.last = last;
                queue.events.extend(&queue.read[..count]);
                if count > 0 {
                    continue;
                }
                match self.decoder.next(&mut page, bytes, cpu, &mut event) {
                    Step::Event => {
                        event.time = event.time.max(queue.last);
                        queue.last = event.time;
                        queue.events.push_back(event);
                    }
                    Step::Broken(offset, why) => self.damages.at_byte(queue.place + offset, why),
                    Step::End => break,
                }
            }
            queue.place += bytes.len();
        }
        self.waiting += queue.events.len() - before;
    }

    /// Gives out the events before `until`, in the order of time. With `None` it gives out events
    /// only if more than [`WAITING_MAX`] wait: those that no event of another CPU can precede.
    pub fn until(&mut self, until: Option<Time>, take: impl FnMut(&KernelEvent)) {
        match until {
            Some(until) => self.give(until, take),
            None if self.waiting > WAITING_MAX => {
                let bound = self.cpus.iter().filter(|cpu| !cpu.events.is_empty()).map(|cpu| cpu.last).min();
                self.give(bound.unwrap_or_default(), take);
            }
            None => {}
        }
    }

    /// Gives out all that is left.
    pub fn finish(&mut self, take: impl FnMut(&KernelEvent)) {
        self.give(END, take);
    }

    /// Gives out the events before `until`, and with [`END`] all of them.
    fn give(&mut self, until: Time, mut take: impl FnMut(&KernelEvent)) {
        loop {
            // The CPU with the next event, and the time up to which it goes on. Runs of one CPU are
            // long.
            let (mut first, mut bound) = (None, until);
            for (at, cpu) in self.cpus.iter().enumerate() {
                let Some(head) =
                    cpu.events.front().map(|event| event.time).filter(|time| *time < until || until == END)
                else {
                    continue;
                };
                match first {
                    Some((_, time)) if head >= time => bound = bound.min(head),
                    Some((_, time)) => {
                        bound = bound.min(time);
                        first = Some((at, head));
                    }
                    None => first = Some((at, head)),
                }
            }
            let Some((at, head)) = first else { return };
            let queue = &mut self.cpus[at].events;
            while let Some(event) = queue.front().filter(|event| event.time == head || event.time < bound) {
                take(event);
                queue.pop_front();
                self.waiting -= 1;
            }
        }
    }

    /// Names of the events.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }
    /// The places that could not be read.
    #[must_use]
    pub fn damages(&self) -> &Damages {
        &self.damages
    }
}
