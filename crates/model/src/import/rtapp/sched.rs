//! Policy, priority and reservation of a thread.

use super::read::Reader;
use super::workload::{Class, Sched};
use crate::import::json::Member;

impl Reader<'_> {
    pub(super) fn sched(&mut self, members: &[Member], path: &str, has_phases: bool) -> Option<Sched> {
        let find = |key: &str| members.iter().find(|member| member.key == key);
        let at = find("policy").map_or(members.first().map_or(0, |m| m.at), |m| m.node.at);
        let policy = match find("policy") {
            Some(member) => self.text(&member.node, &format!("{path}.policy"))?.to_owned(),
            None => self.default_policy.clone(),
        };
        let class = self.policy(&policy, at, &format!("{path}.policy"))?;
        match policy.as_str() {
            "SCHED_RR" => self.notes.warn(
                at,
                &format!("{path}.policy"),
                "SCHED_RR is imported as SCHED_FIFO; time slices among equal priorities have no counterpart",
            ),
            "SCHED_BATCH" => self.notes.warn(at, &format!("{path}.policy"), "SCHED_BATCH is imported as SCHED_OTHER"),
            _ => {}
        }
        let priority = match find("priority") {
            None => Some(10),
            Some(member) => self.priority(member, &format!("{path}.priority"), class),
        };
        let reservation = self.reservation(members, path, class, has_phases, at);
        Some(Sched { class, priority: priority? as u32, reservation: reservation? })
    }

    fn priority(&mut self, member: &Member, path: &str, class: Class) -> Option<i64> {
        let node = &member.node;
        match class {
            Class::Fifo => self.int(node, path, 1, 99, "a real-time priority from 1 to 99"),
            Class::Deadline => self.int(node, path, 0, 0, "0 under SCHED_DEADLINE"),
            Class::Other | Class::Idle => {
                if self.int(node, path, -20, 19, "a nice level from -20 to 19")? != 0 {
                    self.notes.warn(member.at, path, "nice levels have no counterpart");
                }
                Some(0)
            }
        }
    }

    /// The parameters of SCHED_DEADLINE, held to the kernel's rules.
    fn reservation(
        &mut self,
        members: &[Member],
        path: &str,
        class: Class,
        has_phases: bool,
        at: usize,
    ) -> Option<Option<(u64, u64, u64)>> {
        let get = |reader: &mut Self, key: &str, old: &str| -> Option<Option<u64>> {
            if let Some(member) = members.iter().find(|member| member.key == key) {
                if class != Class::Deadline {
                    let what = format!("means nothing without the policy SCHED_DEADLINE, which {path} does not have");
                    reader.notes.warn(member.at, &format!("{path}.{key}"), what);
                }
                return reader.time(&member.node, &format!("{path}.{key}")).map(Some);
            }
            let Some(member) = members.iter().find(|member| member.key == old) else { return Some(None) };
            if old == "runtime" && !has_phases {
                return Some(None);
            }
            let inner = format!("{path}.{old}");
            if class == Class::Deadline {
                reader.notes.warn(member.at, &inner, format_args!("taken as {key}, of which it is the old name"));
                reader.time(&member.node, &inner).map(Some)
            } else {
                let message = format_args!(
                    "is an old name of {key} and needs the policy SCHED_DEADLINE; a period stands in a timer"
                );
                reader.notes.error(member.at, &inner, message);
                None
            }
        };
        let runtime = get(self, "dl-runtime", "runtime")?;
        let period = get(self, "dl-period", "period")?;
        let deadline = get(self, "dl-deadline", "deadline")?;
        if class != Class::Deadline {
            return Some(None);
        }
        let Some(runtime) = runtime else {
            self.notes.error(
                at,
                path,
                "SCHED_DEADLINE without dl-runtime, which the kernel refuses; add it in microseconds",
            );
            return None;
        };
        let period = period.unwrap_or(runtime);
        let deadline = deadline.unwrap_or(period);
        let us = |ns: u64| format!("{}us", ns / 1000);
        let fault = if runtime < 1024 {
            Some(format!("dl-runtime {} is below the kernel's least, 1024 ns", us(runtime)))
        } else if runtime > deadline {
            Some(format!(
                "dl-runtime {} exceeds dl-deadline {}; a runtime is at most its deadline",
                us(runtime),
                us(deadline)
            ))
        } else if deadline > period {
            Some(format!(
                "dl-deadline {} exceeds dl-period {}; a deadline is at most its period",
                us(deadline),
                us(period)
            ))
        } else if period < 100_000 {
            Some(format!("dl-period {} is below the kernel's least, 100 us", us(period)))
        } else if period > (1 << 22) * 1000 {
            Some(format!("dl-period {} exceeds the kernel's most, 4194304 us", us(period)))
        } else {
            None
        };
        if let Some(fault) = fault {
            self.notes.error(at, path, format_args!("{fault} (the kernel answers EINVAL)"));
            return None;
        }
        Some(Some((runtime, deadline, period)))
    }
}
