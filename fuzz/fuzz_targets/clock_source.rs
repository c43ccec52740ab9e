//! Reads arbitrary bytes as answers of chronyd and ptp4l, and as the shared memory of clock-bound.
//! Nothing panics, and no bound that is used has expired.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_model::Time;
use takt_net::source::{chrony, clock_bound, ptp4l};

fuzz_target!(|bytes: &[u8]| {
    let now = Time::from_ns(1 << 40);
    let number = bytes.get(16..20).and_then(|number| number.try_into().ok()).map_or(0, u32::from_be_bytes);
    let mut reports = vec![chrony::report(bytes, number, now), clock_bound::report(bytes)];
    let mut answers = ptp4l::Answers::default();
    for message in bytes.chunks(104) {
        if let Some((_, _, answer)) = ptp4l::answer(message) {
            answers.take(answer);
        }
    }
    reports.push(answers.report(now, 1 << 60));
    for report in reports.into_iter().flatten().map(|report| report.at(now)) {
        assert!(report.state.is_err() || report.state.is_ok_and(|bound| bound.error_at(now) >= Some(bound.error)));
    }
});
