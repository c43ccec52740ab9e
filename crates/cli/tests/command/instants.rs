//! Kills at random instants, by a seed that the test prints. TAKT_SEED repeats them.

use std::time::{SystemTime, UNIX_EPOCH};

use takt_model::Span;

/// SIGKILL as often as TAKT_CASES says, or so often; 200 times at most.
pub(crate) fn kills(usual: usize) -> impl Iterator<Item = u8> {
    let count = std::env::var("TAKT_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(usual);
    std::iter::repeat_n(9, count.min(200))
}

pub(crate) struct Instants(u64);

impl Instants {
    pub(crate) fn new() -> Instants {
        let given = std::env::var("TAKT_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let seed = given.unwrap_or_else(now);
        println!("TAKT_SEED={seed}");
        Instants(seed)
    }

    pub(crate) fn below_ms(&mut self, limit: u64) -> Span {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Span::from_us((self.0 >> 33) % (limit * 1000))
    }
}
