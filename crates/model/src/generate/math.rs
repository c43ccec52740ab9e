//! Powers from the four operations of IEEE 754 alone: the same bits on every machine, which library
//! functions do not promise. The relative error is below 10^-14.

/// 1/3, 1/5, 1/7, .. of the series of the inverse hyperbolic tangent; with |z| < 0.172 the rest is
/// below 10^-18.
const ODD_TERMS: u32 = 12;
/// Terms of the exponential series; with |y| < 0.35 the rest is below 10^-17.
const EXP_TERMS: u32 = 15;

/// The natural logarithm of a finite x > 0.
pub(crate) fn ln(x: f64) -> f64 {
    // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
    let scaled = if x < f64::MIN_POSITIVE { x * (1u64 << 54) as f64 } else { x };
    let bits = scaled.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023 - if x < f64::MIN_POSITIVE { 54 } else { 0 };
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)).
    let z = (m - 1.0) / (m + 1.0);
    let square = z * z;
    let mut sum = 0.0;
    for k in (0..ODD_TERMS).rev() {
        sum = sum * square + 1.0 / f64::from(2 * k + 1);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * z * sum
}

/// e^x; zero below -700, infinite above 709.
pub(crate) fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    let power = (x / std::f64::consts::LN_2 + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let y = x - power as f64 * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for k in (1..=EXP_TERMS).rev() {
        sum = 1.0 + sum * y / f64::from(k);
    }
    sum * f64::from_bits(((power + 1023) as u64) << 52)
}

/// x^(1/n) for x in [0, 1], n >= 1.
pub(crate) fn root(x: f64, n: u32) -> f64 {
    match n {
        _ if x <= 0.0 => 0.0,
        1 => x,
        2 => x.sqrt(),
        _ => exp(ln(x) / f64::from(n)),
    }
}

/// c / t in 2^-64, rounded up.
pub(crate) fn share_up(c: u64, t: u64) -> u128 {
    (u128::from(c) << 64).div_ceil(u128::from(t.max(1)))
}

/// A utilisation in 2^-64, rounded down.
pub(crate) fn share_down(utilization: f64) -> u128 {
    (utilization * 18_446_744_073_709_551_616.0) as u128
}

/// One of the values, each with its weight.
pub(crate) fn pick(shares: &[(u64, u64)], bits: u64) -> u64 {
    let all: u64 = shares.iter().map(|(_, share)| share).sum();
    let mut left = ((u128::from(bits) * u128::from(all)) >> 64) as u64;
    for (value, share) in shares {
        let Some(rest) = left.checked_sub(*share) else { return *value };
        left = rest;
    }
    shares.last().map_or(1, |(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_library() {
        for i in 1..2_000u32 {
            let x = f64::from(i) / 2_000.0;
            assert!((ln(x) - x.ln()).abs() < 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            let y = (x - 0.5) * 100.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
            assert!((root(x, 1 + i % 50) / x.powf(1.0 / f64::from(1 + i % 50)) - 1.0).abs() < 1e-13, "root {x}");
        }
        assert!((ln(1e300) - 1e300f64.ln()).abs() < 1e-12 && (ln(1e-310) - 1e-310f64.ln()).abs() < 1e-12);
        assert_eq!([root(0.0, 7), root(1.0, 7), exp(-1e9), exp(0.0), ln(1.0)], [0.0, 1.0, 0.0, 1.0, 0.0]);
    }
}
