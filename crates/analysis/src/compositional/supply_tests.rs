use super::*;

/// Ways to put `budget` units into the first `deadline` of `period` slots, up to `cpus` in each.
fn placements(period: u64, budget: u64, deadline: u64, cpus: u64) -> Vec<Vec<u64>> {
    fn extend(
        at: u64,
        period: u64,
        deadline: u64,
        left: u64,
        cpus: u64,
        so_far: &mut Vec<u64>,
        all: &mut Vec<Vec<u64>>,
    ) {
        if at == period {
            if left == 0 {
                all.push(so_far.clone());
            }
            return;
        }
        let most = if at < deadline { left.min(cpus) } else { 0 };
        for units in 0..=most {
            so_far.push(units);
            extend(at + 1, period, deadline, left - units, cpus, so_far, all);
            so_far.pop();
        }
    }
    let mut all = Vec::new();
    extend(0, period, deadline, budget, cpus, &mut Vec::new(), &mut all);
    all
}

/// The least supply in windows of length 0..=3 periods, by trying every placement in four periods
/// one after the other. A window contains a prefix, a suffix or all of a period. So it suffices to
/// combine all placements of the first and the last period, with any placement in the whole ones
/// between.
fn enumerated(period: u64, budget: u64, deadline: u64, cpus: u64, aligned: bool) -> Vec<u64> {
    let ways = placements(period, budget, deadline, cpus);
    let p = period as usize;
    let length = 3 * p;
    let mut least = vec![u64::MAX; length + 1];
    least[0] = 0;
    for first in &ways {
        for last in &ways {
            for whole in 0..=3 {
                let mut pattern = first.clone();
                (0..whole).for_each(|_| pattern.extend(&ways[0]));
                pattern.extend(last);
                for (t, least) in least.iter_mut().enumerate().skip(1) {
                    for start in 0..=p {
                        let end = start + t;
                        // The window starts in the first period and ends in the last.
                        if end > pattern.len() || end < pattern.len() - p || (aligned && start % p != 0) {
                            continue;
                        }
                        *least = pattern[start..end].iter().sum::<u64>().min(*least);
                    }
                }
            }
        }
    }
    least
}

fn compare(supply: Supply, least: &[u64], what: &str) {
    for (t, least) in least.iter().enumerate() {
        assert_eq!(supply.sbf(t as u64), *least, "{what}: {supply:?} at {t}");
    }
}

#[test]
fn every_small_server_gives_what_the_enumeration_of_its_patterns_gives() {
    for period in 1..=7 {
        for budget in 1..=period {
            compare(Supply::prm(period, budget).unwrap(), &enumerated(period, budget, period, 1, false), "prm");
            compare(Supply::aligned(period, budget).unwrap(), &enumerated(period, budget, period, 1, true), "aligned");
            for deadline in budget..=period {
                let least = enumerated(period, budget, deadline, 1, false);
                compare(Supply::edp(period, budget, deadline).unwrap(), &least, "edp");
            }
        }
    }
}

#[test]
fn long_windows_repeat_by_the_period() {
    // The enumeration ends at three periods; past the first gap each further period adds its
    // budget.
    for period in 1..=7 {
        for budget in 1..=period {
            for supply in [Supply::prm, Supply::aligned, Supply::polled].map(|form| form(period, budget).unwrap()) {
                for t in supply.delay..10 * period {
                    assert_eq!(supply.sbf(t + period), supply.sbf(t) + budget);
                }
            }
        }
    }
}

/// A polling server that had no work at the start of its period, right before the window. That
/// budget is lost. The budgets of later periods may be placed anywhere.
#[test]
fn a_polling_server_gives_what_the_enumeration_gives() {
    for period in 1..=7 {
        for budget in 1..=period {
            let least = enumerated(period, budget, period, 1, true);
            let supply = Supply::polled(period, budget).unwrap();
            for t in 0..least.len() as u64 {
                let after = t.saturating_sub(period);
                assert_eq!(supply.sbf(t), least[after as usize], "{supply:?} at {t}");
            }
        }
    }
}

#[test]
fn the_inverse_is_the_first_time_with_that_much() {
    for period in 1..=8 {
        for budget in 1..=period {
            for deadline in budget..=period {
                for delay in 0..4 {
                    let supply = Supply::edp(period, budget, deadline).unwrap().delayed(delay);
                    for work in 1..40 {
                        let t = supply.time_for(work).unwrap();
                        assert!(supply.sbf(t) >= work && supply.sbf(t - 1) < work, "{supply:?}, {work}: {t}");
                    }
                }
            }
        }
    }
    assert_eq!(Supply::DEDICATED.time_for(u64::MAX), Some(u64::MAX));
    assert_eq!(Supply::prm(1 << 40, 1).unwrap().time_for(1 << 40), None);
    assert_eq!(Supply::DEDICATED.sbf(u64::MAX), u64::MAX);
}

#[test]
fn impossible_servers_are_none() {
    assert_eq!(Supply::prm(5, 0), None);
    assert_eq!(Supply::prm(5, 6), None);
    assert_eq!(Supply::edp(5, 3, 2), None);
    assert_eq!(Supply::edp(5, 3, 6), None);
    assert_eq!(Supply::prm(5, 3).unwrap().by(2), None);
    assert_eq!(Mpr::new(5, 11, 2), None);
    assert_eq!(Mpr::new(5, 1, 0), None);
}

#[test]
fn every_small_multiprocessor_server_gives_what_the_enumeration_gives() {
    for cpus in 1..=3u32 {
        for period in 1..=4 {
            for budget in 1..=period * u64::from(cpus) {
                let least = enumerated(period, budget, period, u64::from(cpus), false);
                let mpr = Mpr::new(period, budget, cpus).unwrap();
                // In slots of 1 / m' a budget of any size can be spread evenly, which whole slots
                // cannot do.
                let m = u64::from(cpus);
                for (t, least) in least.iter().enumerate() {
                    let ours = mpr.sbf(t as u64).unwrap();
                    assert!(ours <= *least && least - ours < m, "{mpr:?} at {t}: {ours}, {least}");
                    if budget % m == 0 {
                        assert_eq!(ours, *least, "{mpr:?} at {t}");
                    }
                    let finer = Mpr::new(m * period, m * budget, cpus).unwrap().sbf(m * t as u64).unwrap();
                    assert_eq!(finer, m * ours, "{mpr:?} at {t}: it scales");
                }
                if cpus == 1 {
                    let prm = Supply::prm(period, budget).unwrap();
                    (0..50).for_each(|t| assert_eq!(mpr.sbf(t), Some(prm.sbf(t))));
                }
            }
        }
    }
}

#[test]
fn the_inverse_of_a_multiprocessor_server_is_the_first_time_with_that_much() {
    for cpus in 1..=4u32 {
        for period in 1..=6 {
            for budget in 1..=period * u64::from(cpus) {
                let mpr = Mpr::new(period, budget, cpus).unwrap();
                for work in 1..60 {
                    let t = mpr.time_for(work).unwrap();
                    assert!(mpr.sbf(t) >= Some(work) && mpr.sbf(t - 1) < Some(work), "{mpr:?}, {work}: {t}");
                }
                assert_eq!(mpr.time_for(0), Some(0));
            }
        }
    }
    assert_eq!(Mpr::new(1 << 40, 1, 2).unwrap().time_for(1 << 40), None);
}
