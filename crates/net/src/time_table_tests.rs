use proptest::prelude::*;

use super::*;
use crate::clock::Clock;

fn table(drift_ppm: u32) -> TimeTable {
    TimeTable::new(TimeTableSpec { peers: 1, drift_ppm, samples_max: 3 }).unwrap()
}

fn exchange(t: [u64; 4]) -> Exchange {
    let [t1, t2, t3, t4] = t.map(Time::from_ns);
    Exchange { peer: 0, own_epoch: 0, peer_epoch: 0, t1, t2, t3, t4 }
}

fn offer(table: &mut TimeTable, exchange: Exchange) -> TimeTableDecision {
    let mut decisions = Vec::new();
    table.on_event(exchange.t4, TimeTableEvent::Exchange(exchange), &mut decisions);
    assert_eq!(decisions.len(), 1);
    decisions[0]
}

/// The own clock is 100 behind the peer's, so O = -100. The request takes 10, the answer 30.
#[test]
fn a_known_offset_has_the_sign_of_the_erratum() {
    let mut table = table(0);
    assert_eq!(table.offset(Time::ZERO, 0, 0), None);
    assert_eq!(offer(&mut table, exchange([1_000, 1_110, 1_115, 1_045])), TimeTableDecision::Accepted(0));
    let known = table.offset(Time::from_ns(1_045), 0, 0).unwrap();
    // O' = -90 with d = 40.
    assert_eq!(known, OffsetInterval { low: -110, high: -70, middle: -90 });
    let deadline = Time::from_ns(5_000);
    assert_eq!(
        [known.earliest(deadline), known.likely(deadline), known.latest(deadline)].map(Time::as_ns),
        [4_890, 4_910, 4_930]
    );
    // A shorter round trip narrows it from one side, and takes over the middle.
    assert_eq!(offer(&mut table, exchange([2_000, 2_104, 2_104, 2_008])), TimeTableDecision::Accepted(0));
    let known = table.offset(Time::from_ns(2_008), 0, 0).unwrap();
    assert_eq!(known, OffsetInterval { low: -104, high: -96, middle: -100 });
}

#[test]
fn intervals_age_with_drift() {
    let mut table = table(50);
    let _ = offer(&mut table, exchange([0, 1_000, 1_000, 20]));
    let at = |ns| table.offset(Time::from_ns(ns), 0, 0).map(|known| (known.low, known.high));
    assert_eq!(at(20), Some((-1_001, -979)));
    // 2 x 50 ppm of a second, and the rounding to the safe side.
    assert_eq!(at(1_000_000_000), Some((-101_006, 99_026)));
}

#[test]
fn steps_restart_the_table() {
    let mut table = table(0);
    let _ = offer(&mut table, exchange([100, 100, 100, 110]));
    // An unreported step of the peer by 1000 contradicts what is known.
    let stepped = exchange([200, 1_200, 1_200, 210]);
    assert_eq!(offer(&mut table, stepped), TimeTableDecision::Restarted(0));
    // A reported one, too small to contradict.
    let reported = Exchange { peer_epoch: 1, ..exchange([300, 1_305, 1_305, 310]) };
    assert_eq!(offer(&mut table, reported), TimeTableDecision::Restarted(0));
    assert_eq!(table.offset(Time::from_ns(310), 0, 0), None);
    assert!(table.offset(Time::from_ns(310), 0, 1).is_some());
    let late = exchange([200, 1_200, 1_200, 320]);
    assert_eq!(offer(&mut table, late), TimeTableDecision::Refused(0, Refusal::Stale));
    // The own clock steps during an exchange.
    let mut decisions = Vec::new();
    table.on_event(Time::from_ns(400), TimeTableEvent::Stepped, &mut decisions);
    assert_eq!((decisions, table.epoch()), (vec![TimeTableDecision::Restarted(0)], 1));
    let across = Exchange { peer_epoch: 1, ..exchange([390, 1_400, 1_400, 410]) };
    assert_eq!(offer(&mut table, across), TimeTableDecision::Refused(0, Refusal::Stale));
    assert_eq!(table.offset(Time::from_ns(410), 0, 1), None);
}

#[test]
fn bad_samples_and_tables_are_refused() {
    let mut table = table(0);
    let back = exchange([100, 100, 90, 110]);
    assert_eq!(offer(&mut table, back), TimeTableDecision::Refused(0, Refusal::Impossible));
    // The peer says that it took longer than the whole exchange.
    let longer = exchange([100, 100, 190, 110]);
    assert_eq!(offer(&mut table, longer), TimeTableDecision::Refused(0, Refusal::Impossible));
    let nobody = Exchange { peer: 1, ..exchange([100, 100, 100, 110]) };
    assert_eq!(offer(&mut table, nobody), TimeTableDecision::Refused(1, Refusal::Unknown));
    let spec = TimeTableSpec { peers: 1, drift_ppm: 1_000_000, samples_max: 1 };
    assert_eq!(TimeTable::new(spec).unwrap_err(), TimeTableError::Drift(1_000_000));
    let spec = TimeTableSpec { drift_ppm: 0, samples_max: 0, ..spec };
    assert_eq!(TimeTable::new(spec).unwrap_err(), TimeTableError::Samples);
}

#[test]
fn a_claim_narrows_what_exchanges_prove_and_never_contradicts_it() {
    let mut table = table(50);
    let claim = |low, high, from| Claim { peer: 0, own_epoch: 0, peer_epoch: 0, low, high, from: Time::from_ns(from) };
    let tell = |table: &mut TimeTable, claim: Claim, now| {
        let mut decisions = Vec::new();
        table.on_event(Time::from_ns(now), TimeTableEvent::Claim(claim), &mut decisions);
        decisions[0]
    };
    // Without an exchange nothing is known.
    assert_eq!(tell(&mut table, claim(-990, -980, 5), 5), TimeTableDecision::Accepted(0));
    assert_eq!((table.offset(Time::from_ns(5), 0, 0), table.claimed(Time::from_ns(5), 0, 0)), (None, None));
    let _ = offer(&mut table, exchange([0, 1_000, 1_000, 20]));
    let known = |table: &TimeTable, ns| table.offset(Time::from_ns(ns), 0, 0).unwrap();
    let interval = |low, high, middle| OffsetInterval { low, high, middle };
    // Both are aged by 1 ns.
    assert_eq!(known(&table, 20), interval(-991, -979, -985));
    // A wider one narrows one end alone, and leaves the middle.
    assert_eq!(tell(&mut table, claim(-2_000, -988, 20), 20), TimeTableDecision::Accepted(0));
    assert_eq!(known(&table, 20), interval(-1_001, -988, -990));
    // It ages as a sample does, so it stays the narrower one at its end.
    assert_eq!(known(&table, 1_000_000_000), interval(-101_006, 99_017, -990));
    assert_eq!(tell(&mut table, claim(500, 600, 20), 20), TimeTableDecision::Accepted(0));
    assert_eq!(table.claimed(Time::from_ns(20), 0, 0), Some(ClaimedOffset { low: 500, high: 600, agrees: false }));
    assert_eq!(known(&table, 20), interval(-1_001, -979, -990));
    for (refused, why) in [
        (claim(2, 1, 20), Refusal::Impossible),
        (claim(1, 2, 30), Refusal::Impossible),
        (Claim { peer: 1, ..claim(1, 2, 20) }, Refusal::Unknown),
        (Claim { own_epoch: 1, ..claim(1, 2, 20) }, Refusal::Stale),
        (Claim { peer_epoch: 1, ..claim(1, 2, 20) }, Refusal::Stale),
    ] {
        assert_eq!(tell(&mut table, refused, 20), TimeTableDecision::Refused(refused.peer, why), "{refused:?}");
    }
    // A step forgets it.
    let _ = offer(&mut table, Exchange { peer_epoch: 1, ..exchange([40, 1_040, 1_040, 60]) });
    assert_eq!(table.claimed(Time::from_ns(60), 0, 1), None);
}

proptest! {
    /// Every interval holds the true offset, whatever the delays, drifts and reported steps.
    #[test]
    fn intervals_hold_the_true_offset(
        ppm in 0u32..5_000,
        drifts in (-1_000i64..=1_000, -1_000i64..=1_000),
        offsets in (0u64..1_000_000_000, 0u64..1_000_000_000),
        steps in proptest::collection::vec(
            (0u8..8, 1u64..2_000_000_000, 0u64..5_000_000, 0u64..5_000_000, 0u64..500_000, any::<i32>()),
            1..40,
        ),
    ) {
        let start = Span::from_s(100);
        let clock = |offset, drift: i64| {
            let ppb = drift * i64::from(ppm);
            Clock::new(start + Span::from_ns(offset), i32::try_from(ppb).unwrap()).unwrap()
        };
        let (mut own, mut peer) = (clock(offsets.0, drifts.0), clock(offsets.1, drifts.1));
        let mut peer_epoch = 0;
        let mut table = table(ppm);
        let mut now = Time::ZERO;
        let mut decisions = Vec::new();
        for (what, pause, out, back, hold, by) in steps {
            now += Span::from_ns(pause);
            match what {
                // A true claim, of any width.
                2 => {
                    let truth = own.local(now).lateness_to(peer.local(now)).as_ns();
                    let (own_epoch, from) = (table.epoch(), own.local(now));
                    let (low, high) = (truth - (out as i64), truth + (back as i64));
                    let claim = Claim { peer: 0, own_epoch, peer_epoch, low, high, from };
                    table.on_event(own.local(now), TimeTableEvent::Claim(claim), &mut decisions);
                }
                0 => {
                    own.step(now, Lateness::from_ns(i64::from(by))).unwrap();
                    table.on_event(own.local(now), TimeTableEvent::Stepped, &mut decisions);
                }
                1 => {
                    peer.step(now, Lateness::from_ns(i64::from(by))).unwrap();
                    peer_epoch += 1;
                }
                _ => {
                    let (asked, answered) = (now + Span::from_ns(out), now + Span::from_ns(out) + Span::from_ns(hold));
                    let t1 = own.local(now);
                    now = answered + Span::from_ns(back);
                    let (t2, t3, t4) = (peer.local(asked), peer.local(answered), own.local(now));
                    let exchange = Exchange { peer: 0, own_epoch: table.epoch(), peer_epoch, t1, t2, t3, t4 };
                    let refused = matches!(offer(&mut table, exchange), TimeTableDecision::Refused(..));
                    prop_assert!(!refused);
                }
            }
            for later in [0, pause, 10 * pause] {
                let at = now + Span::from_ns(later);
                prop_assert!(table.claimed(own.local(at), 0, peer_epoch).is_none_or(|claimed| claimed.agrees));
                let truth = own.local(at).lateness_to(peer.local(at)).as_ns();
                if let Some(known) = table.offset(own.local(at), 0, peer_epoch) {
                    // Clocks show whole nanoseconds: each is up to one behind.
                    prop_assert!(known.low - 1 <= truth && truth <= known.high + 1, "{:?} {}", known, truth);
                    prop_assert!(known.low <= known.middle && known.middle <= known.high);
                    let deadline = peer.local(at);
                    prop_assert!(known.earliest(deadline).as_ns() <= own.local(at).as_ns() + 1);
                }
            }
        }
    }
}
