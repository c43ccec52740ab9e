//! Which existing threads a component holds while a live run lasts.

use std::fmt;

/// The threads of a component that are not takt's own (`threads` of a `[[component]]`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Threads {
    /// All threads of the process with this number, and of the processes that it starts.
    Pid(u32),
    /// All threads of this control group (version 2) and of the groups below it. The path begins with `/`.
    Cgroup(String),
    /// All threads of this systemd unit.
    Unit(String),
}

/// The largest process number of a kernel (PID_MAX_LIMIT).
const PID_MAX: u32 = 1 << 22;
/// The kinds of systemd units that have processes.
const UNITS: [&str; 3] = [".service", ".scope", ".slice"];

impl Threads {
    /// From `pid:NUMBER`, `cgroup:/PATH` or `unit:NAME`.
    ///
    /// # Errors
    /// The fault and the remedy, in words.
    pub fn parse(text: &str) -> Result<Threads, String> {
        let forms = "write \"pid:1234\", \"cgroup:/machine.slice/guest\" or \"unit:guest.service\"";
        let Some((kind, value)) = text.split_once(':') else { return Err(format!("it names no threads; {forms}")) };
        match kind {
            "pid" => match value.parse() {
                Ok(pid) if (1..=PID_MAX).contains(&pid) => Ok(Threads::Pid(pid)),
                _ => Err(format!("a process number is 1 to {PID_MAX}; \"ps -e\" lists them")),
            },
            "cgroup" if value == "/" => {
                Err("this is the group of the whole machine, takt included; name a group below it".to_owned())
            }
            "cgroup" => {
                let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
                match value.strip_prefix('/') {
                    Some(rest) if rest.split('/').all(is_plain) => Ok(Threads::Cgroup(value.to_owned())),
                    _ => Err("a group is a path from the root of cgroup v2, as in /proc/PID/cgroup: \
                              \"cgroup:/machine.slice/guest\""
                        .to_owned()),
                }
            }
            "unit" => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || ":_.\\@-".contains(c);
                let named = UNITS.iter().any(|kind| value.len() > kind.len() && value.ends_with(kind));
                match named && value.chars().all(is_plain) {
                    true => Ok(Threads::Unit(value.to_owned())),
                    false => {
                        Err("a unit with threads is a .service, .scope or .slice; \"systemctl list-units\" lists them"
                            .to_owned())
                    }
                }
            }
            _ => Err(format!("\"{kind}\" is none of pid, cgroup and unit; {forms}")),
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Pid(pid) => write!(f, "pid:{pid}"),
            Threads::Cgroup(path) => write!(f, "cgroup:{path}"),
            Threads::Unit(name) => write!(f, "unit:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_named_in_three_forms() {
        for text in ["pid:1", "pid:4194304", "cgroup:/a", "cgroup:/machine.slice/a b", "unit:foo@1.service"] {
            assert_eq!(Threads::parse(text).map(|threads| threads.to_string()).as_deref(), Ok(text));
        }
        let wrong = ["", "1", "pid:0", "pid:4194305", "pid:x", "cgroup:/", "cgroup:a", "cgroup:/a/../b", "cgroup:/a/"];
        for text in wrong.into_iter().chain(["unit:foo", "unit:.service", "unit:a b.service", "unit:a.socket", "tid:3"])
        {
            assert!(Threads::parse(text).is_err_and(|why| why.len() > 20), "{text}");
        }
    }
}
