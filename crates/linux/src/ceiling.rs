//! The CPU time that control groups may have at most: `cpu.max`, and `cpu.cfs_quota_us` of version 1. The kernel's own
//! scheduler for ordinary threads keeps these limits. A sched_ext scheduler only learns of them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use takt_model::Span;

use crate::cgroup;
use crate::foreign::{GROUPS_MAX, MAX, groups};

/// The same in version 1.
const QUOTA: &str = "cpu.cfs_quota_us";

/// The limit of a control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ceiling {
    /// The folder of the group.
    pub folder: PathBuf,
    /// All threads of the group and of those below it together have at most this CPU time ..
    pub quota: Span,
    /// .. in a time of this length.
    pub period: Span,
    is_v1: bool,
}

impl Ceiling {
    /// The limit of the group with this folder (version 2); `None` if it has none.
    #[must_use]
    pub fn of(folder: &Path) -> Option<Ceiling> {
        let text = fs::read_to_string(folder.join(MAX)).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        Self::new(folder, (quota, period), false)
    }

    fn of_v1(folder: &Path) -> Option<Ceiling> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        Self::new(folder, (&read(QUOTA)?, &read("cpu.cfs_period_us")?), true)
    }

    /// From what the files of the group say, in microseconds. "max" and "-1" are no limits, and no such numbers.
    #[must_use]
    pub fn new(folder: &Path, (quota, period): (&str, &str), is_v1: bool) -> Option<Ceiling> {
        let microseconds = |text: &str| text.trim().parse().ok().map(Span::from_us);
        let (quota, period) = (microseconds(quota)?, microseconds(period)?);
        Some(Ceiling { folder: folder.to_owned(), quota, period, is_v1 })
    }

    /// Whether the limit leaves less than `budget` in each `period`, in the long run.
    #[must_use]
    pub fn is_below(&self, budget: Span, period: Span) -> bool {
        let product = |one: Span, other: Span| u128::from(one.as_ns()) * u128::from(other.as_ns());
        product(self.quota, period) < product(budget, self.period)
    }

    /// The command that takes the limit away.
    #[must_use]
    pub fn removal(&self) -> String {
        let (value, name) = if self.is_v1 { ("-1", QUOTA) } else { ("max", MAX) };
        format!("echo {value} > {}", self.folder.join(name).display())
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.quota, self.period)
    }
}

/// The limits of all control groups that this process sees.
#[must_use]
pub fn ceilings() -> Vec<Ceiling> {
    let all = |mount: Option<PathBuf>| mount.into_iter().flat_map(groups).take(GROUPS_MAX);
    let of_v2 = all(cgroup::v2_mount()).filter_map(|folder| Ceiling::of(&folder));
    let of_v1 = all(cgroup::v1_mount("cpu")).filter_map(|folder| Ceiling::of_v1(&folder));
    let mut found: Vec<Ceiling> = of_v2.chain(of_v1).collect();
    found.sort_by(|one, other| one.folder.cmp(&other.folder));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions_are_read() {
        let folder = &std::env::temp_dir().join(format!("takt-ceiling-{}", std::process::id()));
        fs::create_dir_all(folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        assert_eq!(Ceiling::of(folder), None);
        write("cpu.max", "max 100000\n");
        assert_eq!(Ceiling::of(folder), None);
        write("cpu.max", "50000 100000\n");
        let limit = Ceiling::of(folder).unwrap();
        assert_eq!((limit.quota, limit.period), (Span::from_ms(50), Span::from_ms(100)));
        assert_eq!(limit.removal(), format!("echo max > {}/cpu.max", folder.display()));
        assert!(limit.is_below(Span::from_ms(11), Span::from_ms(20)));
        assert!(!limit.is_below(Span::from_ms(10), Span::from_ms(20)));
        write("cpu.cfs_period_us", "20000\n");
        write("cpu.cfs_quota_us", "-1\n");
        assert_eq!(Ceiling::of_v1(folder), None);
        write("cpu.cfs_quota_us", "5000\n");
        assert_eq!(Ceiling::of_v1(folder).unwrap().to_string(), "5ms in 20ms");
        fs::remove_dir_all(folder).unwrap();
    }
}
