//! The longest round trips of live nodes beside their bounds for the hosts as measured.

use takt_model::Span;

use super::super::bounds::{Surroundings, compare, round_trips_in};
use super::super::cluster::Cluster;
use super::super::delays::{Delay, US};
use super::super::rounded;
use crate::findings::{Claim, Comparison, Findings, LIVE, Row};

/// The round trips of a set-up.
pub(super) struct RoundTrips<'a> {
    /// With the buckets of the devices.
    pub(super) cluster: Cluster,
    /// The rate of each line in bit/s, and the largest packet of other traffic in bytes, or zero.
    pub(super) line: (u64, u64),
    /// Whether devices have queues. Otherwise a packet there waits for CPU time alone.
    pub(super) has_queues: bool,
    /// With the waits in devices in place of waits for tokens.
    pub(super) delays: &'a [Delay],
    /// How late a frame was made at most.
    pub(super) late: Span,
    /// CPU time that the hypervisor took.
    pub(super) steal: Span,
}

/// The longest round trips of a set-up beside their bound.
pub(super) struct Bounded {
    name: String,
    has_queues: bool,
    /// The longest time in hosts, in devices, and in all.
    hosts: Span,
    devices: Span,
    longest: Span,
    /// The largest bound, and whether all round trips keep theirs. `None`: there is none.
    bound: Option<(Span, bool)>,
    late: Span,
    steal: Span,
    samples: u64,
}

impl RoundTrips<'_> {
    pub(super) fn bounded(&self, name: String) -> Bounded {
        let most = |of: fn(&Delay) -> Span| self.delays.iter().map(of).max().unwrap_or_default();
        let hosts = most(|delay| delay.network());
        let bounds = round_trips_in(&self.cluster, &Surroundings::live(self.line, self.late, hosts));
        let all = self.delays.iter().map(|delay| (delay.client, delay.server, delay.all));
        let compared = bounds.map(|bounds| compare(all, &bounds));
        Bounded {
            name,
            has_queues: self.has_queues,
            hosts,
            devices: most(|delay| delay.tokens),
            longest: most(|delay| delay.all),
            bound: compared.map(|(kept, _, bound)| (bound, kept)),
            late: self.late,
            steal: self.steal,
            samples: self.delays.len() as u64,
        }
    }
}

impl Bounded {
    /// The largest bound.
    #[cfg(test)]
    pub(super) fn bound(&self) -> Option<Span> {
        self.bound.map(|(bound, _)| bound)
    }

    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether all keep their bounds. `None`: there is none, or a disturbance that no bound knows of may explain more.
    /// That is a wait for CPU time in a device without queues, or what the hypervisor took.
    fn holds(&self) -> Option<bool> {
        let (_, kept) = self.bound?;
        let is_known = self.has_queues && self.steal.is_zero();
        (kept || is_known).then_some(kept)
    }

    /// The longest with its bound, and the disturbances where that is exceeded.
    fn describe(&self) -> String {
        let Some((bound, kept)) = self.bound else { return format!("{}: no bound", self.name) };
        let mut text = format!("{}: {} of {}", self.name, rounded(self.longest), rounded(bound));
        if !kept {
            text.push_str(&format!(
                " (devices held packets up to {}, hosts took up to {}, and frames were up to {} late",
                rounded(self.devices),
                rounded(self.hosts),
                rounded(self.late)
            ));
            if !self.steal.is_zero() {
                text.push_str(&format!("; the hypervisor took {} of CPU time", rounded(self.steal)));
            }
            text.push(')');
        }
        text
    }
}

pub(super) fn table(all: &[Bounded]) -> Comparison {
    let row = |one: &Bounded| {
        let values = [Some(one.hosts), Some(one.devices), Some(one.longest), one.bound.map(|(bound, _)| bound)];
        Row { name: one.name.clone(), values: vec![values.map(|value| value.map(US)).to_vec()] }
    };
    Comparison::new("Longest round trips on this kernel and their bounds", "Section IV-A", "us, of all nodes", 1).with(
        "network",
        ["in hosts", "in devices", "largest", "proven"],
        [LIVE],
        all.iter().map(row),
    )
}

pub(super) fn claim<'f>(all: &[Bounded], findings: &'f mut Findings) -> &'f mut Claim {
    findings.claim(
        "live_no_round_trip_exceeds_its_bound",
        "On this kernel no round trip exceeds what the theorems of takt size --network-delay prove for hosts as slow \
         and frames as late as measured",
        all.iter().map(Bounded::describe).collect::<Vec<_>>().join("; "),
        crate::findings::all(all.iter().filter(|one| one.bound.is_some()).map(Bounded::holds)),
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::cluster::LINK;
    use super::super::super::delays::{BURST, RATES, cluster};
    use super::*;

    #[test]
    fn only_the_queues_of_devices_are_to_blame() {
        let us = Span::from_us;
        let trip = |all: u64, tokens: u64| Delay { client: 0, server: 1, all: us(all), tokens: us(tokens) };
        let of = |delays: &[Delay], has_queues: bool, steal: u64| {
            let cluster = cluster(Some((BURST, RATES[0])));
            let trips = RoundTrips { cluster, line: (LINK, 0), has_queues, delays, late: Span::ZERO, steal: us(steal) };
            trips.bounded("a".to_owned())
        };
        let quick = of(&[trip(900, 0), trip(3_000, 2_500)], true, 0);
        assert_eq!((quick.hosts, quick.devices, quick.longest), (us(900), us(2_500), us(3_000)));
        assert!(quick.holds() == Some(true) && quick.bound() > of(&[], true, 0).bound());
        // No bucket keeps a packet for a second.
        let held = [trip(1_000_000, 999_000)];
        assert_eq!(
            [(true, 0), (true, 1), (false, 0)].map(|of_what| of(&held, of_what.0, of_what.1).holds()),
            [Some(false), None, None]
        );
        let text = of(&held, true, 1).describe();
        assert!(
            text.ends_with(
                "hosts took up to 1.00 ms, and frames were up to 0.0 us late; the hypervisor took 1.0 us \
                                of CPU time)"
            ),
            "{text}"
        );
    }
}
