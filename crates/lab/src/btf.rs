//! The BPF functions that a kernel offers, from its BTF (Linux, Documentation/bpf/btf.rst).
//!
//! A BPF program can call a kernel function only if BTF has it with the tag `bpf_kfunc`. A kernel
//! may have the function without the tag. Then each program that calls it is refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::{u16_at, u32_at};

/// The functions that takt's sched_ext scheduler calls (bpf/scx.h).
pub const SCHED_EXT: [&str; 13] = [
    "bpf_iter_scx_dsq_destroy",
    "bpf_iter_scx_dsq_new",
    "bpf_iter_scx_dsq_next",
    "scx_bpf_create_dsq",
    "scx_bpf_dsq_insert",
    "scx_bpf_dsq_insert_vtime",
    "scx_bpf_dsq_move_to_local",
    "scx_bpf_dsq_nr_queued",
    "scx_bpf_kick_cpu",
    "scx_bpf_pick_idle_cpu",
    "scx_bpf_reenqueue_local",
    "scx_bpf_select_cpu_dfl",
    "scx_bpf_task_cpu",
];

/// The functions that takt's queueing discipline calls (bpf/takt_qdisc.bpf.c).
pub const QDISC: [&str; 4] =
    ["bpf_kfree_skb", "bpf_qdisc_bstats_update", "bpf_qdisc_skb_drop", "bpf_qdisc_watchdog_schedule"];

/// The functions in a kernel's BTF.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Functions {
    callable: BTreeSet<String>,
    others: BTreeSet<String>,
}

/// Why a function cannot be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncallable {
    /// The kernel does not have it.
    Absent,
    /// The kernel has it, but BTF does not mark it as callable.
    Untagged,
}

impl Functions {
    /// The functions of `wanted` that no BPF program can call.
    #[must_use]
    pub fn lacks<'a>(&self, wanted: &[&'a str]) -> Vec<(&'a str, Uncallable)> {
        let lack = |name: &str| if self.others.contains(name) { Uncallable::Untagged } else { Uncallable::Absent };
        wanted.iter().filter(|name| !self.callable.contains(**name)).map(|&name| (name, lack(name))).collect()
    }

    /// The functions of sched_ext that the kernel has, but that no BPF program can call.
    #[must_use]
    pub fn untagged_sched_ext(&self) -> usize {
        let public = |name: &&String| name.starts_with("scx_bpf_") && !name.ends_with("_impl");
        self.others.iter().filter(public).count()
    }

    /// How many functions a BPF program can call.
    #[must_use]
    pub fn callable(&self) -> usize {
        self.callable.len()
    }
}

/// Reads the section `.BTF`. `None`: it is damaged.
#[must_use]
pub fn functions(btf: &[u8]) -> Option<Functions> {
    const FUNCTION: u32 = 12;
    const TAG: u32 = 17;
    if u16_at(btf, 0)? != 0xeb9f {
        return None;
    }
    let part = |offset: usize, length: usize| -> Option<&[u8]> {
        let begin = (u32_at(btf, 4)? as usize).checked_add(u32_at(btf, offset)? as usize)?;
        btf.get(begin..begin.checked_add(u32_at(btf, length)? as usize)?)
    };
    let (types, strings) = (part(8, 12)?, part(16, 20)?);
    let name = |at: u32| strings.get(at as usize..)?.split(|&byte| byte == 0).next();
    let (mut named, mut tagged) = (BTreeMap::new(), BTreeSet::new());
    let (mut at, mut number) = (0, 1_u32);
    while at < types.len() {
        let (own, info, of) = (u32_at(types, at)?, u32_at(types, at + 4)?, u32_at(types, at + 8)?);
        let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        match kind {
            FUNCTION => drop(named.insert(number, name(own)?)),
            TAG if name(own)? == b"bpf_kfunc" => drop(tagged.insert(of)),
            _ => {}
        }
        // Members, parameters and the like follow the twelve bytes.
        at += 12
            + match kind {
                1 | 14 | TAG => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * count,
                6 | 13 => 8 * count,
                2 | 7..=12 | 16 | 18 => 0,
                _ => return None,
            };
        number += 1;
    }
    let mut functions = Functions::default();
    for (number, name) in named {
        let name = String::from_utf8_lossy(name).into_owned();
        let set = if tagged.contains(&number) { &mut functions.callable } else { &mut functions.others };
        set.insert(name);
    }
    Some(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A BTF of functions, tags of functions, and a structure between them.
    fn btf(names: &[&str], tagged: &[u32]) -> Vec<u8> {
        let mut strings = b"\0bpf_kfunc\0".to_vec();
        let mut types: Vec<u32> = vec![0, 4 << 24 | 1, 8, 0, 0, 0];
        for name in names {
            types.extend([strings.len() as u32, 12 << 24, 1]);
            strings.extend(name.bytes().chain([0]));
        }
        for of in tagged {
            types.extend([1, 17 << 24, *of, u32::MAX]);
        }
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        [bytes, types, strings].concat()
    }

    /// The functions that a program needs, by its declarations.
    fn declared(text: &str) -> Vec<&str> {
        let lines = text.lines().filter(|line| line.ends_with(" __ksym;"));
        let mut names: Vec<&str> =
            lines.filter_map(|line| line.split('(').next()).filter_map(|head| head.rsplit([' ', '*']).next()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_functions_are_those_that_the_programs_declare() {
        assert_eq!(declared(include_str!("../../../bpf/scx.h")), SCHED_EXT);
        assert_eq!(declared(include_str!("../../../bpf/takt_qdisc.bpf.c")), QDISC);
    }

    #[test]
    fn the_page_shows_a_refusal_for_functions_that_are_checked() {
        let page = include_str!("../../../docs/reference/verbs/lab.md");
        let words = page.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let named: Vec<&str> = words.filter(|word| word.starts_with("scx_bpf_")).collect();
        assert!(!named.is_empty() && named.iter().all(|name| SCHED_EXT.contains(name)), "{named:?}");
    }

    #[test]
    fn only_a_tagged_function_can_be_called() {
        let bytes = btf(&["scx_bpf_now", "scx_bpf_kick_cpu", "scx_bpf_now_impl"], &[2]);
        let functions = functions(&bytes).unwrap();
        let wanted = ["scx_bpf_now", "scx_bpf_kick_cpu", "scx_bpf_task_cpu"];
        let lacks = [("scx_bpf_kick_cpu", Uncallable::Untagged), ("scx_bpf_task_cpu", Uncallable::Absent)];
        assert_eq!(functions.lacks(&wanted), lacks);
        assert_eq!((functions.callable(), functions.untagged_sched_ext()), (1, 1));
    }

    #[test]
    fn a_cut_btf_is_damaged() {
        let bytes = btf(&["scx_bpf_now"], &[2]);
        for end in 0..bytes.len() {
            assert_eq!(functions(&bytes[..end]), None, "{end}");
        }
    }
}
