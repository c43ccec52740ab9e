//! Shared parts of benchmarks in rounds: the number of rounds, and the median over them.

/// The value of `--rounds`, or the default; `None`, with a message, for any other argument.
pub(crate) fn rounds(unless_told: usize) -> Option<usize> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    match (arguments.next().as_deref(), arguments.next().map(|value| value.parse()), arguments.next()) {
        (None, _, _) => Some(unless_told),
        (Some("--rounds"), Some(Ok(rounds)), None) if rounds > 0 => Some(rounds),
        _ => {
            eprintln!("--rounds N, above zero, is all there is");
            None
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
