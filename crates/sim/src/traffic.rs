//! Traffic that the caller chooses: when each flow first arrives, and the delays of its messages.
//!
//! Each delay that is chosen is the least or the most of its network. All else is drawn by the seed,
//! as in every simulation. A traffic has a text form, so that a command line can repeat a run:
//!
//! | item | meaning |
//! |---|---|
//! | `put@1.5ms` | the first instance of flow `put` arrives at 1.5 ms |
//! | `put/0=max` | messages from hop 0 to hop 1 of flow `put` take the most delay |
//! | `put/0=min~3-5~9` | they take the least, but instances 3 to 5 and 9 take the most |
//!
//! Items are separated by commas, without spaces.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use takt_model::{Flow, Span, System, file};
use thiserror::Error;

/// Instances that one item names apart, at most.
pub const INSTANCES_MAX: u64 = 1 << 16;

/// An end of the interval of a network's delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The least delay.
    Least,
    /// The most.
    Most,
}

impl End {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> End {
        match self {
            End::Least => End::Most,
            End::Most => End::Least,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            End::Least => "min",
            End::Most => "max",
        }
    }
}

/// The delays of the messages from one hop of a flow to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The delay of all instances but some.
    pub usual: End,
    /// The instances with the other delay.
    pub others: BTreeSet<u64>,
}

impl Ends {
    /// All messages with this delay.
    #[must_use]
    pub const fn all(usual: End) -> Self {
        Ends { usual, others: BTreeSet::new() }
    }

    /// The delay of an instance.
    #[must_use]
    pub fn of(&self, instance: u64) -> End {
        if self.others.contains(&instance) { self.usual.other() } else { self.usual }
    }
}

/// Arrivals and delays that the caller chooses, by flow in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// The arrival of the first instance. A flow without an entry arrives at zero.
    pub offsets: Vec<Span>,
    /// By hop: the delays of the messages that leave it. `None`, or no entry: drawn by the seed.
    pub ends: Vec<Vec<Option<Ends>>>,
}

/// Why a text is no traffic of a system.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "\"{item}\" {why}; items are like put@1.5ms (the first arrival of flow \"put\") and put/0=max~3-5 (delays of \
     the messages that leave its hop 0: max or min, instances 3 to 5 the other one)"
)]
pub struct TrafficError {
    /// The item.
    pub item: String,
    /// The reason.
    pub why: String,
}

impl Traffic {
    /// All flows arrive at zero; all delays are drawn.
    #[must_use]
    pub fn drawn(system: &System) -> Self {
        let hops = |flow: &Flow| vec![None; flow.hops().count().saturating_sub(1)];
        Traffic { offsets: vec![Span::ZERO; system.flows.len()], ends: system.flows.iter().map(hops).collect() }
    }

    /// The arrival of a flow's first instance.
    #[must_use]
    pub fn offset(&self, flow: usize) -> Span {
        self.offsets.get(flow).copied().unwrap_or_default()
    }

    /// The delays of the messages that leave a hop of a flow; `None` where they are drawn.
    #[must_use]
    pub fn ends(&self, flow: usize, hop: usize) -> Option<&Ends> {
        self.ends.get(flow)?.get(hop)?.as_ref()
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The first item that does not fit the system.
    pub fn parse(text: &str, system: &System) -> Result<Self, TrafficError> {
        let mut traffic = Traffic::drawn(system);
        let mut rest = text;
        while !rest.is_empty() {
            rest = traffic.take(rest, system)?;
        }
        Ok(traffic)
    }

    /// Takes the first item of a text and returns what follows it.
    fn take<'a>(&mut self, text: &'a str, system: &System) -> Result<&'a str, TrafficError> {
        let error = |why: &str| {
            let item = text.split(',').next().unwrap_or_default();
            TrafficError { item: item.to_owned(), why: why.to_owned() }
        };
        // A name may hold any character, so the longest one that fits is the flow.
        let mut named: Vec<(usize, &Flow)> =
            system.flows.iter().enumerate().filter(|(_, flow)| text.starts_with(&flow.name)).collect();
        named.sort_by_key(|(_, flow)| std::cmp::Reverse(flow.name.len()));
        let follows = |flow: &Flow| text.as_bytes().get(flow.name.len()).is_some_and(|byte| b"@/".contains(byte));
        let Some((at, flow)) = named.into_iter().find(|(_, flow)| follows(flow)) else {
            return Err(error("names no flow of the system"));
        };
        let (kind, value) = text[flow.name.len()..].split_at(1);
        let (value, rest) = value.split_once(',').unwrap_or((value, ""));
        if kind == "@" {
            self.offsets[at] = file::parse_span(value).map_err(|why| error(&format!("has a time that {why}")))?;
            return Ok(rest);
        }
        let Some((hop, ends)) = value.split_once('=') else { return Err(error("has no = behind the hop")) };
        let hops = &mut self.ends[at];
        let last = hops.len();
        let Some(place) = hop.parse().ok().and_then(|hop: usize| hops.get_mut(hop)) else {
            let why = format!("names no hop that sends; \"{}\" sends on hops 0 to {}", flow.name, last.max(1) - 1);
            return Err(error(if last == 0 { "names a hop of a flow on one node" } else { &why }));
        };
        *place = Some(parse_ends(ends).map_err(error)?);
        Ok(rest)
    }

    /// The text form, which [`Traffic::parse`] reads. Empty where nothing is chosen.
    #[must_use]
    pub fn text(&self, system: &System) -> String {
        let mut items = Vec::new();
        for (at, flow) in system.flows.iter().enumerate() {
            let offset = self.offset(at);
            if !offset.is_zero() {
                items.push(format!("{}@{offset}", flow.name));
            }
            for hop in 0..flow.hops().count().saturating_sub(1) {
                items.extend(self.ends(at, hop).map(|ends| format!("{}/{hop}={}", flow.name, text_of(ends))));
            }
        }
        items.join(",")
    }
}

/// `max`, `min~3-5~9`.
fn parse_ends(text: &str) -> Result<Ends, &'static str> {
    let mut parts = text.split('~');
    let mut ends = match parts.next() {
        Some("min") => Ends::all(End::Least),
        Some("max") => Ends::all(End::Most),
        _ => return Err("has a delay other than min and max"),
    };
    for part in parts {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse().ok().zip(last.parse().ok());
        let Some((first, last)) = range.filter(|(first, last): &(u64, u64)| first <= last) else {
            return Err("has a range of instances that is none, like 5-3");
        };
        if last - first >= INSTANCES_MAX {
            return Err("names more than 65,536 instances in one range");
        }
        ends.others.extend(first..=last);
    }
    Ok(ends)
}

fn text_of(ends: &Ends) -> String {
    let mut text = ends.usual.name().to_owned();
    let mut rest = ends.others.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while let Some(next) = rest.next_if(|next| *next == last + 1) {
            last = next;
        }
        let _ = if first == last { write!(text, "~{first}") } else { write!(text, "~{first}-{last}") };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use takt_model::{Builtin, Bytes, NodeId, NodeSpec, StrategyRef};

    fn system(names: [&str; 2]) -> System {
        let mut system = System::local(1, Builtin::Edf, Vec::new());
        for name in ["b", "c"] {
            system.nodes.push(NodeSpec::new(name, 1, StrategyRef::Builtin(Builtin::Edf)));
        }
        let ms = Span::from_ms;
        let flow = |name: &str, path: &[u32]| Flow {
            name: name.to_owned(),
            path: path.iter().map(|node| NodeId(*node)).collect(),
            reply: false,
            period: ms(10),
            wcet: ms(1),
            deadline: ms(50),
            send_gap: ms(10),
            hop_wcet: ms(1),
            size: Bytes::default(),
            hop_deadlines: Vec::new(),
        };
        system.flows = vec![flow(names[0], &[0, 1, 2]), flow(names[1], &[2])];
        system
    }

    proptest! {
        #[test]
        fn a_text_gives_its_traffic_back(
            names in proptest::sample::select(vec![["put", "get"], ["put", "put/0"], ["a,b=@", "a"], ["x/0=max", "x"]]),
            offsets in [0u64..3_000_000, 0u64..3_000_000],
            ends in [proptest::option::of((any::<bool>(), proptest::collection::btree_set(0u64..40, 0..12))),
                     proptest::option::of((any::<bool>(), proptest::collection::btree_set(0u64..40, 0..12)))],
        ) {
            let system = system(names);
            let mut traffic = Traffic::drawn(&system);
            traffic.offsets = offsets.map(Span::from_ns).to_vec();
            let of = |(most, others)| Ends { usual: if most { End::Most } else { End::Least }, others };
            traffic.ends[0] = ends.map(|ends| ends.map(of)).to_vec();
            let text = traffic.text(&system);
            prop_assert_eq!(Traffic::parse(&text, &system), Ok(traffic), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "(put|get|x|[@/=~,0-9a-z.-]){0,12}") {
            let _ = Traffic::parse(&text, &system(["put", "get"]));
        }
    }

    #[test]
    fn a_wrong_item_is_named_with_its_fault() {
        let system = system(["put", "get"]);
        let error = |text: &str| Traffic::parse(text, &system).expect_err("an error").to_string();
        for (text, part) in [
            ("put@3ms,pot@1ms", "\"pot@1ms\" names no flow of the system"),
            ("put@fast", "\"put@fast\" has a time that"),
            ("put/2=max", "\"put/2=max\" names no hop that sends; \"put\" sends on hops 0 to 1"),
            ("get/0=max", "\"get/0=max\" names a hop of a flow on one node"),
            ("put/0", "\"put/0\" has no = behind the hop"),
            ("put/0=most", "has a delay other than min and max"),
            ("put/0=max~5-3", "has a range of instances that is none"),
            ("put/0=max~0-99999999", "more than 65,536 instances"),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
    }
}
