use super::super::live_model::model;
use super::*;

#[test]
fn what_is_announced_stands_until_nobody_of_the_level_sleeps() {
    let checked = || {
        let model = model();
        let station = &model.built.shared.stations[0];
        let mut held = station.held.lock();
        let mut announced = |levels, idle: [u32; 2]| {
            held.idle[..2].copy_from_slice(&idle);
            station.announce(&held, Wakes { levels, timer: false });
            station.pending[0].load(Ordering::Acquire)
        };
        assert_eq!(announced(0b11, [1, 2]), 0b11);
        assert_eq!(announced(0, [1, 1]), 0b11, "the waker may have lost its CPU before it woke anyone");
        assert_eq!(announced(0, [0, 1]), 0b10, "its only thread is awake");
        assert_eq!(announced(0b01, [1, 0]), 0b01);
    };
    shuttle::check_random(checked, 1);
}
