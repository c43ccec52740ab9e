//! "Did you mean": the nearest of some words.

/// The candidate that is nearest to `word`, if any is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are not typing slips of names, and the distance costs the product of both lengths.
    const LENGTH_MAX: usize = 64;
    let length = word.chars().count();
    if length > LENGTH_MAX {
        return None;
    }
    // A name of one letter is too short for suggestions.
    let most = (length / 3).clamp(1, 3).min(length.saturating_sub(1));
    candidates
        .into_iter()
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= most)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The keys that others call by this name, in papers and in other tools: the first that a table has is meant.
pub(crate) fn meant(word: &str) -> Vec<&'static str> {
    let known: [(&[&str], &[&str]); 14] = [
        (&["t", "p", "interval", "cycle", "cycle-time", "mit", "min-interarrival"], &["period"]),
        (
            &[
                "c",
                "q",
                "execution",
                "execution-time",
                "exec-time",
                "runtime",
                "run-time",
                "cost",
                "duration",
                "capacity",
                "wcet-us",
                "wcet-ms",
                "wcet-ns",
            ],
            &["wcet", "budget"],
        ),
        (&["d", "dl", "rel-deadline", "relative-deadline"], &["deadline"]),
        (&["j", "release-jitter"], &["jitter"]),
        (&["o", "phase", "phasing", "start"], &["offset"]),
        (&["b", "blocking-time"], &["blocking"]),
        (&["prio", "pri", "rank"], &["priority"]),
        (&["crit", "critical"], &["criticality"]),
        (&["prec", "precedence", "pred", "predecessors", "depends", "depends-on", "dependencies"], &["after"]),
        (&["u", "util", "utilization", "utilisation", "bandwidth"], &["wcet", "budget"]),
        (&["core", "cores", "cpu", "m", "processors", "affinity", "cpu-affinity"], &["cpus"]),
        (&["bcet", "best-case", "acet"], &["exec"]),
        (&["id", "label"], &["name"]),
        (&["policy", "scheduler", "sched", "algorithm"], &["strategy", "server"]),
    ];
    let word = word.to_lowercase().replace('_', "-");
    known.iter().find(|(words, _)| words.contains(&word.as_str())).map_or(Vec::new(), |(_, keys)| keys.to_vec())
}

/// `; did you mean "wcet"?`, or `; <otherwise>` where nothing is near.
pub(crate) fn hint<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    match nearest(word, candidates) {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None => match otherwise() {
            text if text.is_empty() => text,
            text => format!("; {text}"),
        },
    }
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment), letters
/// of either case alike.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let keys = ["period", "deadline", "wcet", "offset"];
        assert_eq!(nearest("peroid", keys), Some("period"));
        assert_eq!(nearest("Deadline", keys), Some("deadline"));
        assert_eq!(nearest("wect", keys), Some("wcet"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!((nearest("b", ["a", "bb"]), nearest("A", ["a"])), (None, Some("a")));
        assert_eq!(nearest(&"x".repeat(100_000), keys), None);
    }
}
