//! Short texts of /proc and /sys.

use std::fs;
use std::path::Path;

/// The text of a file of one line.
pub(crate) fn line(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The number in a file.
pub(crate) fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    line(path)?.parse().ok()
}

/// One beyond the largest number of a CPU that a kernel is built for (`NR_CPUS`).
const CPUS_MAX: usize = 8192;

/// Parses `0-2,5` into ascending numbers without duplicates. Parsing stops at the first malformed
/// part. Numbers from [`CPUS_MAX`] on are dropped.
pub(crate) fn parse_cpu_list(text: &str) -> Vec<u32> {
    let mut named = vec![false; CPUS_MAX];
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else { break };
        if let Some(range) = named.get_mut(first..=last.min(CPUS_MAX - 1)) {
            range.fill(true);
        }
    }
    (0..).zip(named).filter_map(|(cpu, named)| named.then_some(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(parse_cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_cpu_list("5,0-2,2,x,7"), [0, 1, 2, 5]);
        assert_eq!(parse_cpu_list("3-2,8191-4294967295,4294967295,18446744073709551615"), [8191]);
        assert_eq!(parse_cpu_list(""), Vec::<u32>::new());
    }
}
