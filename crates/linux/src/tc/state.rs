//! State files: the former state of each device, written before takt changes it.
//!
//! The name holds the device's number and its network namespace. A file whose process has ended is
//! left from a kill -9, unless its shares are to stay (`kept`). Whoever changes files or devices
//! holds the lock `net.lock`.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use takt_model::Span;

use super::classifier::Rule;
use super::former::{Object, Tree};
use super::own::Maps;
use super::plan::Role;
use crate::owned;
use crate::process::Identity;
use crate::recovery::{
    Fields, RecoveryError, is_this_boot, make_private, open_lock, origin_text, read_state, state_folder, unusable,
    write_state,
};

const HEAD: &str = "takt-net 1";
const PREFIX: &str = "net-";
const LOCK: &str = "net.lock";
/// How long the lock is waited for; its holders ask the kernel a few things.
const LOCK_MAX: Span = Span::from_s(10);
const LOOK: Span = Span::from_ms(10);

/// The state to restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub(super) boot: String,
    /// The process that restores the device.
    pub(super) owner: Identity,
    /// Whether the shares stay after it.
    pub(super) kept: bool,
    /// Number of the network namespace.
    pub(super) namespace: u64,
    pub(super) device: u32,
    pub(super) name: String,
    /// Limit of segments before.
    pub(super) gso_max_segs: u32,
    /// The rules that hold now.
    pub(super) rules: Vec<Rule>,
    /// The maps of takt's own discipline; `None`: HTB.
    pub(super) maps: Option<Maps>,
    /// Whether takt's tree may be gone, and the former one not there yet.
    pub(super) returning: bool,
    /// The tree before.
    pub(super) former: Tree,
}

impl State {
    /// Whether nobody will restore the device but the next start.
    pub(super) fn is_left(&self) -> bool {
        !self.kept && !self.owner.is_alive()
    }

    pub(super) fn is_of_this_boot(&self) -> bool {
        is_this_boot(&self.boot)
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "{HEAD}\n{}kept {}\nreturning {}\nnamespace {}\ndevice {}\nname {}\n\
             gso-max-segs {}\n",
            origin_text(&self.boot, self.owner),
            u8::from(self.kept),
            u8::from(self.returning),
            self.namespace,
            self.device,
            self.name,
            self.gso_max_segs
        );
        for rule in &self.rules {
            text.push_str(&format!("rule {} {}\n", rule.role, rule.of));
        }
        if let Some(Maps { settings, egress }) = self.maps {
            text.push_str(&format!("maps {settings} {egress}\n"));
        }
        for object in &self.former.objects {
            text.push_str(&object.to_text());
            text.push('\n');
        }
        text + "end\n"
    }

    pub(super) fn from_text(text: &str) -> Result<State, String> {
        let mut fields = Fields::after(HEAD, text)?;
        let (boot, owner) = fields.origin()?;
        let kept = fields.number::<u8>("kept")? == 1;
        let returning = fields.number::<u8>("returning")? == 1;
        let (namespace, device) = (fields.number("namespace")?, fields.number("device")?);
        let (name, gso_max_segs) = (fields.take("name")?.to_owned(), fields.number("gso-max-segs")?);
        let (mut rules, mut objects, mut maps) = (Vec::new(), Vec::new(), None);
        for line in fields.rest() {
            if line == "end" {
                let former = Tree { objects };
                return Ok(State {
                    boot,
                    owner,
                    kept,
                    returning,
                    namespace,
                    device,
                    name,
                    gso_max_segs,
                    rules,
                    maps,
                    former,
                });
            }
            let rule = || {
                let (role, of) = line.strip_prefix("rule ")?.split_once(' ')?;
                Some(Rule { of: of.parse().ok()?, role: Role::of_name(role)? })
            };
            let numbers = || {
                let (settings, egress) = line.strip_prefix("maps ")?.split_once(' ')?;
                Some(Maps { settings: settings.parse().ok()?, egress: egress.parse().ok()? })
            };
            match (rule(), Object::from_text(line), numbers()) {
                (Some(rule), ..) => rules.push(rule),
                (_, Some(object), _) => objects.push(object),
                (.., Some(numbers)) => maps = Some(numbers),
                _ => return Err(format!("\"{line}\" is not understood")),
            }
        }
        Err("it is cut short".to_owned())
    }

    fn path(namespace: u64, device: u32) -> PathBuf {
        state_folder().join(format!("{PREFIX}{namespace}-{device}"))
    }
}

/// The right to change devices and their files: one process at a time.
#[derive(Debug)]
pub(super) struct Lock {
    // Held for its flock, which the kernel drops when the process ends.
    _file: File,
}

impl Lock {
    pub(super) fn acquire() -> Result<Lock, RecoveryError> {
        let folder = state_folder();
        make_private(&folder)?;
        let path = folder.join(LOCK);
        let file = open_lock(&path)?;
        let mut waited = Span::ZERO;
        while !owned::lock(&file).map_err(|error| unusable(&path, &error))? {
            if waited >= LOCK_MAX {
                let busy = io::Error::new(io::ErrorKind::TimedOut, "another takt holds the lock");
                return Err(unusable(&path, &busy));
            }
            crate::clock::pause(LOOK);
            waited = waited.saturating_add(LOOK);
        }
        Ok(Lock { _file: file })
    }

    /// Writes a state, whole or not at all.
    pub(super) fn write(&self, state: &State) -> Result<(), RecoveryError> {
        write_state(&State::path(state.namespace, state.device), &state.to_text())
    }

    /// The device has what it had.
    pub(super) fn forget(&self, state: &State) {
        let _ = fs::remove_file(State::path(state.namespace, state.device));
    }
}

/// The state of a device, if takt changed it.
pub(super) fn read(namespace: u64, device: u32) -> Result<Option<State>, RecoveryError> {
    read_state(&State::path(namespace, device), State::from_text)
}

/// Namespace and device of all states.
pub(super) fn all() -> Vec<(u64, u32)> {
    let entries = fs::read_dir(state_folder()).into_iter().flatten().flatten();
    let parse = |name: &str| {
        let (namespace, device) = name.strip_prefix(PREFIX)?.split_once('-')?;
        Some((namespace.parse().ok()?, device.parse().ok()?))
    };
    let mut found: Vec<(u64, u32)> = entries.filter_map(|entry| parse(entry.file_name().to_str()?)).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let objects = ["qdisc 00010000 ffffffff htb 0102", "class 00010001 ffffffff htb "];
        State {
            boot: "b".into(),
            owner: Identity { pid: 7, start: 99 },
            kept: true,
            namespace: 4_026_531_840,
            device: 3,
            name: "eth0".into(),
            gso_max_segs: 65_535,
            rules: vec![
                Rule { of: "port:7000-7009".parse().unwrap(), role: Role::RealTime },
                Rule { of: "cgroup:/with a space".parse().unwrap(), role: Role::Reply },
            ],
            maps: Some(Maps { settings: 12, egress: 13 }),
            returning: false,
            former: Tree { objects: objects.map(|text| Object::from_text(text).unwrap()).to_vec() },
        }
    }

    #[test]
    fn a_state_survives_its_file() {
        for state in [state(), State { maps: None, ..state() }] {
            assert_eq!(State::from_text(&state.to_text()), Ok(state));
        }
    }

    #[test]
    fn a_damaged_state_is_refused_not_obeyed() {
        let text = state().to_text();
        for cut in 0..text.len() - 1 {
            assert!(State::from_text(&text[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(State::from_text("takt-net 2\n"), Err("a version of takt that this one does not know".into()));
        let foreign = text.replace("class 0", "rm -rf 0");
        assert!(State::from_text(&foreign).unwrap_err().ends_with("is not understood"));
    }
}
