use super::super::live_model::model;
use super::*;

#[test]
fn what_is_announced_stands_until_nobody_of_the_level_sleeps_or_nothing_waits() {
    let checked = || {
        let model = model();
        let station = &model.built.shared.stations[0];
        let mut held = station.held.lock();
        // One job at the level of critical operations and one at the other.
        let now = Time::from_ns(1);
        assert!(held.core.push(0, now).is_ok() && held.core.push(1, now).is_ok());
        let announced = |held: &mut Held, levels: &[u32], idle: [u32; 2]| {
            held.idle[..2].copy_from_slice(&idle);
            let mut wakes = Wakes { levels: LevelSet::default(), timer: false };
            levels.iter().for_each(|level| wakes.levels.insert(*level));
            station.announce(held, wakes);
            // Whoever wakes takes nothing back.
            station.wake(wakes);
            station.pending[0].load(Ordering::Acquire)
        };
        assert_eq!(announced(&mut held, &[0, 1], [1, 2]), 0b11);
        assert_eq!(announced(&mut held, &[], [1, 1]), 0b11, "the waker may have lost its CPU before it woke anyone");
        assert_eq!(announced(&mut held, &[], [0, 1]), 0b10, "its only thread is awake");
        assert_eq!(announced(&mut held, &[0], [1, 1]), 0b11, "and sleeps again");
        assert!(held.core.next(0, now).is_some());
        assert_eq!(announced(&mut held, &[], [1, 1]), 0b10, "another one took the job");
    };
    shuttle::check_random(checked, 1);
}
