//! Whether samples look independent of each other, as the stochastic model supposes.
//!
//! Two tests with different strengths. Ljung and Box's test finds linear dependence over several
//! lags (G. Ljung, G. Box: On a Measure of Lack of Fit in Time Series Models, Biometrika 65(2),
//! 1978). Wald and Wolfowitz's test of runs above and below the mean finds long stays on one side
//! (Annals of Mathematical Statistics 11, 1940). A small p-value speaks against independence. A
//! large one proves nothing. They decide no verdict; they give warnings.

use statrs::function::erf::erfc;
use statrs::function::gamma::gamma_ur;

/// Fewer samples than this tell nothing.
pub const SAMPLES_MIN: usize = 30;
/// Lags that are looked at, at most; a fifth of the samples at most.
pub const LAGS: usize = 10;
/// The p-value below which samples are called dependent. With two tests each of two sequences,
/// independent ones are so called in at most 4 of 1000 cases.
pub const LEVEL: f64 = 0.001;

/// The results of the tests for a sequence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Independence {
    /// How many samples.
    pub samples: usize,
    /// The autocorrelation at lag 1; 0 for constant samples.
    pub lag_1: f64,
    /// p-value of Ljung and Box's test over up to [`LAGS`] lags; `None` with too few samples, or constant ones.
    pub ljung_box: Option<f64>,
    /// p-value of the runs test; `None` with fewer than 10 samples on either side of the mean.
    pub runs: Option<f64>,
}

impl Independence {
    /// Tests a sequence, in the order in which it was observed.
    #[must_use]
    pub fn of(samples: &[u64]) -> Independence {
        let n = samples.len();
        let mut result = Independence { samples: n, lag_1: 0.0, ljung_box: None, runs: None };
        if n < SAMPLES_MIN {
            return result;
        }
        let mean = samples.iter().map(|sample| *sample as f64).sum::<f64>() / n as f64;
        let off: Vec<f64> = samples.iter().map(|sample| *sample as f64 - mean).collect();
        let spread: f64 = off.iter().map(|off| off * off).sum();
        if spread > 0.0 {
            let correlation = |lag: usize| off.iter().zip(&off[lag..]).map(|(a, b)| a * b).sum::<f64>() / spread;
            let lags = LAGS.min(n / 5);
            let sum: f64 = (1..=lags).map(|lag| correlation(lag).powi(2) / (n - lag) as f64).sum();
            let statistic = n as f64 * (n as f64 + 2.0) * sum;
            result.lag_1 = correlation(1);
            result.ljung_box = Some(gamma_ur(lags as f64 / 2.0, (statistic / 2.0).max(f64::MIN_POSITIVE)));
        }
        result.runs = runs(samples);
        result
    }

    /// Whether a test rejects independence at [`LEVEL`].
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        [self.ljung_box, self.runs].into_iter().flatten().any(|p| p < LEVEL)
    }
}

/// Both sides, by the normal approximation.
fn runs(samples: &[u64]) -> Option<f64> {
    let sum: u128 = samples.iter().map(|sample| u128::from(*sample)).sum();
    let mean = sum / samples.len() as u128;
    // Any cut will do that does not depend on the order of the samples.
    let sides: Vec<bool> = samples.iter().map(|sample| u128::from(*sample) > mean).collect();
    let above = sides.iter().filter(|above| **above).count() as f64;
    let (n, below) = (sides.len() as f64, sides.len() as f64 - above);
    if above < 10.0 || below < 10.0 {
        return None;
    }
    let count = 1.0 + sides.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64;
    let mean = 2.0 * above * below / n + 1.0;
    let variance = (mean - 1.0) * (mean - 2.0) / (n - 1.0);
    (variance > 0.0).then(|| erfc((count - mean).abs() / (2.0 * variance).sqrt()))
}
