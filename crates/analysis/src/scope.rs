//! How a System falls apart into pieces that one test can look at.

use takt_model::CpuSet;

/// A set of CPUs as scopes spell it: "cpu0", "cpu0-1", "cpu0,2-3".
pub(crate) fn cpus_name(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus.iter() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let spelt: Vec<String> =
        ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    format!("cpu{}", spelt.join(","))
}
