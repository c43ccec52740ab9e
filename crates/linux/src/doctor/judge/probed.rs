//! Judgements of the probe's measurements.

use takt_model::Span;

use super::super::facts::list;
use super::super::probe::{Probe, ProbeError};
use super::super::{Finding, State};

/// The judgements of a probe: name and subject.
pub const PROBED: &[(&str, &str)] = &[
    ("timer-latency", "how late timers wake up real-time threads"),
    ("pauses", "pauses of the most important threads"),
];

/// More than this late, or stopped, is a warning.
const LATE_MAX: Span = Span::from_us(100);

/// The judgements of a probe. A failed probe gives the reason for each.
#[must_use]
pub fn measured(probe: Result<&Probe, &ProbeError>) -> Vec<Finding> {
    let judged = match probe {
        Ok(probe) => [timer_latency(probe), pauses(probe)],
        Err(error) => [(); 2].map(|()| Finding::new(State::Absent, format!("not measured: {error}"))),
    };
    PROBED.iter().zip(judged).map(|((name, _), finding)| Finding { name, ..finding }).collect()
}

fn short(span: Option<Span>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| span.four_digits().to_string())
}

/// The time that the hypervisor took during the probe, if any.
fn stolen(probe: &Probe) -> Option<(String, String)> {
    let steal = probe.steal.filter(|steal| !steal.is_zero())?;
    Some(("/proc/stat steal".to_owned(), format!("grew by {} over all CPUs while it was measured", short(Some(steal)))))
}

fn timer_latency(probe: &Probe) -> Finding {
    let all = probe.latency_of_all();
    let max = all.max().unwrap_or(Span::ZERO);
    let found = format!(
        "half within {}, 99 % within {}, the latest {}, of {} in {}",
        short(all.quantile(500)),
        short(all.quantile(990)),
        short(all.max()),
        all.count(),
        short(Some(probe.options.duration))
    );
    let mut finding = Finding::new(if max > LATE_MAX { State::Warning } else { State::Ok }, found);
    for (cpu, of) in &probe.latency {
        let line = format!(
            "{} sleeps, half within {}, 99 % within {}, the latest {}",
            of.count(),
            short(of.quantile(500)),
            short(of.quantile(990)),
            short(of.max())
        );
        finding = finding.seen(format!("CPU {cpu}"), line);
    }
    finding.evidence.extend(stolen(probe));
    finding = finding
        .costs(format!("{} seen; a longer probe sees more, so it is no bound (`costs.latency`)", short(all.max())));
    if max > LATE_MAX {
        finding = finding
            .mend(
                "first the remedies of preemption, idle-states, frequency, interrupts and virtualization, if these \
                 are found",
            )
            .mend("takt doctor --for 10min, under the load that the machine is to bear");
    }
    finding.link(&["https://wiki.linuxfoundation.org/realtime/documentation/howto/tools/cyclictest/start"])
}

fn pauses(probe: &Probe) -> Finding {
    let gaps = &probe.gaps;
    let longest = gaps.others.max().unwrap_or(Span::ZERO);
    let count = gaps.others.count() + gaps.left_out;
    let watched = short(Some(gaps.watched));
    let found = match count {
        0 => format!("none above {} in {watched} of watching, ticks left out", gaps.threshold),
        _ => format!(
            "{count} above {} in {watched} of watching, ticks left out; the longest {}",
            gaps.threshold,
            short(Some(longest))
        ),
    };
    let mut finding = Finding::new(if longest > LATE_MAX { State::Warning } else { State::Ok }, found);
    for pause in &gaps.longest {
        finding = finding.seen(
            format!("CPU {}", pause.cpu),
            format!("{} at {}", short(Some(pause.length)), short(Some(Span::from_ns(pause.at.as_ns())))),
        );
    }
    for (name, interrupts) in &gaps.interrupts {
        finding = finding.seen(format!("/proc/interrupts {name}"), format!("{interrupts} meanwhile"));
    }
    if let Some(steal) = gaps.steal.filter(|steal| !steal.is_zero()) {
        finding = finding.seen("/proc/stat steal", format!("grew by {} over all CPUs meanwhile", short(Some(steal))));
    }
    if count == 0 {
        return finding;
    }
    let interrupts: u64 = gaps.interrupts.iter().map(|(_, count)| count).sum();
    let steal = match gaps.steal {
        Some(steal) if steal.is_zero() => "no time was reported as taken by a hypervisor".to_owned(),
        Some(steal) => format!("the hypervisor reports that it took {}", short(Some(steal))),
        None => "the time that a hypervisor took is unknown".to_owned(),
    };
    finding = finding.costs(format!(
        "up to {} seen at once, which is no bound; devices and other CPUs interrupted {} times in all, {steal}; the \
         rest has no named source: timers, firmware, hypervisor, threads above",
        short(Some(longest)),
        interrupts
    ));
    if longest > LATE_MAX {
        finding = finding
            .mend(
                "firmware: switch off power management, legacy USB and supervision in its setup; hypervisor: \
                 see virtualization",
            )
            .mend("interrupts: see interrupts; what is left, the kernel's hwlat tracer sees with interrupts off");
    }
    let cpus: Vec<u32> = probe.latency.iter().map(|(cpu, _)| *cpu).collect();
    finding.seen("CPUs watched", list(&cpus)).link(&["https://docs.kernel.org/trace/hwlat_detector.html"])
}

#[cfg(test)]
mod tests {
    use takt_model::{Bytes, Time};

    use super::super::super::Distribution;
    use super::super::super::probe::{Gaps, Pause, ProbeOptions};
    use super::*;

    fn probe(latest: u64, pause: u64) -> Probe {
        let of = |values: &[u64]| {
            let mut seen = Distribution::new();
            values.iter().for_each(|us| seen.record(Span::from_us(*us)));
            seen
        };
        Probe {
            options: ProbeOptions { duration: Span::from_s(1), working_set: Bytes::new(64) },
            priority: 80,
            latency: vec![(0, of(&[5, 6, 7])), (2, of(&[5, 6, latest]))],
            gaps: Gaps {
                threshold: Span::from_ns(500),
                watched: Span::from_ms(900),
                clock: Span::from_ns(25),
                tick: Err("none".to_owned()),
                others: of(&[1, 2, pause]),
                longest: vec![Pause { cpu: 2, at: Time::from_ns(7_000_000), length: Span::from_us(pause) }],
                left_out: 0,
                interrupts: vec![("36 eth0".to_owned(), 2)],
                steal: Some(Span::from_ms(10)),
            },
            switch: Ok(of(&[2])),
            migrate: Ok(of(&[3])),
            migrate_small: Ok(of(&[3])),
            release: Ok(of(&[4])),
            tick: Err("none".to_owned()),
            tick_period: Some(Span::from_ms(4)),
            clock: Span::from_ns(25),
            steal: Some(Span::from_ms(20)),
        }
    }

    #[test]
    fn late_probes_are_a_warning_with_possible_causes() {
        let good = probe(8, 9);
        let judged = measured(Ok(&good));
        assert_eq!(judged.iter().map(|finding| finding.state).collect::<Vec<_>>(), [State::Ok; 2]);
        assert_eq!(judged[0].found, "half within 6.015us, 99 % within 8us, the latest 8us, of 6 in 1s");
        let bad = probe(150, 4000);
        let judged = measured(Ok(&bad));
        assert_eq!(judged.iter().map(|finding| finding.state).collect::<Vec<_>>(), [State::Warning; 2]);
        assert_eq!(judged[1].found, "3 above 500ns in 900ms of watching, ticks left out; the longest 4ms");
        assert_eq!(
            judged[1].cost,
            "up to 4ms seen at once, which is no bound; devices and other CPUs interrupted 2 times in all, the \
             hypervisor reports that it took 10ms; the rest has no named source: timers, firmware, hypervisor, \
             threads above"
        );
        assert!(
            judged[0].evidence.contains(&(
                "/proc/stat steal".to_owned(),
                "grew by 20ms over all CPUs while it was measured".to_owned()
            ))
        );
        assert!(judged.iter().all(|finding| !finding.mend.is_empty()));
    }

    #[test]
    fn without_a_probe_it_is_said_why() {
        let error = ProbeError::Thread(std::io::Error::other("no room"));
        let judged = measured(Err(&error));
        assert_eq!(judged[1].found, "not measured: a thread of the probe could not be made: no room");
        assert!(judged.iter().all(|finding| !finding.state.spoils()));
    }
}
