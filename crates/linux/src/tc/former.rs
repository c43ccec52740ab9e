//! The tree of queueing disciplines that a device had before, and its return.
//!
//! The kernel tells options in the form in which it takes them, for the disciplines of
//! [`RETURNABLE`]. Others, size tables and filters cannot be put back exactly, so a device that has
//! them is refused.
//!
//! Disciplines with handle 0 are made by the kernel alone, as `net.core.default_qdisc` says at that
//! moment. So takt refuses a device to which the kernel would give other kinds now, and compares the
//! kinds at the return.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use super::htb::ROOT;
use super::in_namespace;
use super::own::is_own;
use crate::device::Device;
use crate::netlink::{
    AT_INGRESS, AT_ROOT, CREATE, CREATE_OR_REPLACE, Netlink, Place, Request, attribute, attributes, number, put, text,
};

/// Disciplines whose options come back as they were. Tests put back each of them but mq.
const RETURNABLE: [&str; 5] = ["htb", "tbf", "pfifo", "bfifo", "mq"];
const KIND: u16 = libc::TCA_KIND;
const OPTIONS: u16 = libc::TCA_OPTIONS;
const SIZE_TABLE: u16 = libc::TCA_STAB;
/// The setting that names the kind of new default disciplines.
const DEFAULT: &str = "net.core.default_qdisc";
const DEFAULT_FILE: &str = "/proc/sys/net/core/default_qdisc";
/// The attribute of HTB's own options: version, three settings, and a count of packets.
const HTB_INIT: u16 = 2;

/// A queueing discipline or a class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Object {
    pub(super) is_class: bool,
    pub(super) handle: u32,
    pub(super) parent: u32,
    /// Its kind, such as `htb`.
    pub(super) kind: String,
    pub(super) options: Vec<u8>,
    sized: bool,
}

impl Object {
    /// A discipline that the kernel makes by default.
    fn is_default(&self) -> bool {
        self.handle == 0
    }

    pub(super) fn to_text(&self) -> String {
        let what = if self.is_class { "class" } else { "qdisc" };
        let options: String = self.options.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{what} {:08x} {:08x} {} {options}", self.handle, self.parent, self.kind)
    }

    pub(super) fn from_text(line: &str) -> Option<Object> {
        let parts: Vec<&str> = line.split(' ').collect();
        let [what, handle, parent, kind, options] = parts[..] else { return None };
        let is_class = match what {
            "class" => true,
            "qdisc" => false,
            _ => return None,
        };
        let word = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 8);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let options = options.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
        let kind = Some(kind).filter(|kind| !kind.is_empty())?.to_owned();
        Some(Object { is_class, handle: word(handle)?, parent: word(parent)?, kind, options, sized: false })
    }
}

/// The reason why a tree could not be put back exactly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Obstacle {
    pub(super) why: String,
    pub(super) remedy: String,
}

/// The disciplines and classes of a device, in the order in which they can be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tree {
    pub(super) objects: Vec<Object>,
}

impl Tree {
    pub(super) fn read(netlink: &mut Netlink, device: u32) -> io::Result<Tree> {
        let place = Place { device, ..Place::default() };
        let mut objects = Vec::new();
        for (kind, is_class) in [(libc::RTM_GETQDISC, false), (libc::RTM_GETTCLASS, true)] {
            for answer in netlink.list(&Request::control(kind, 0, place))? {
                let Some((at, list)) = answer.control().filter(|(at, _)| at.device == device) else { continue };
                let kind = attribute(list, KIND).map(text).unwrap_or_default();
                // Classes of other disciplines come with these, and packets that come in are not ours.
                if at.parent == AT_INGRESS || is_class && kind != "htb" {
                    continue;
                }
                let options = as_taken(&kind, is_class, attribute(list, OPTIONS).unwrap_or_default());
                let sized = attribute(list, SIZE_TABLE).is_some();
                objects.push(Object { is_class, handle: at.handle, parent: at.parent, kind, options, sized });
            }
        }
        Ok(Tree { objects: in_order(objects) })
    }

    fn root(&self) -> Option<&Object> {
        self.objects.iter().find(|object| object.parent == AT_ROOT && !object.is_class)
    }

    pub(super) fn is_ours(&self) -> bool {
        self.root().is_some_and(|root| root.handle == ROOT && (root.kind == "htb" || is_own(&root.kind)))
    }

    /// The kind of its root; empty: it has none.
    pub(super) fn kind(&self) -> &str {
        self.root().map_or("", |root| &root.kind)
    }

    pub(super) fn is_htb(&self) -> bool {
        self.root().is_some_and(|root| root.kind == "htb")
    }

    pub(super) fn is_default(&self) -> bool {
        self.root().is_none_or(Object::is_default)
    }

    /// Whether it has the root of `other`.
    pub(super) fn begins_as(&self, other: &Tree) -> bool {
        let root = |tree: &Tree| tree.root().map(|root| (root.handle, root.kind.clone()));
        !self.is_default() && root(self) == root(other)
    }

    /// How its root is called, with the kinds that the kernel made below it.
    pub(super) fn name(&self) -> String {
        let below = kinds(self.objects.iter().filter(|object| object.parent != AT_ROOT));
        let of = if below.is_empty() { String::new() } else { format!(" of {}", joined(&below)) };
        match self.root() {
            Some(root) if root.is_default() => format!("{}{of} (the kernel's default)", root.kind),
            Some(root) => format!("{} {:x}:{of}", root.kind, root.handle >> 16),
            None => "no queueing discipline".to_owned(),
        }
    }

    /// The reason why it could not be put back exactly.
    pub(super) fn obstacle(&self, netlink: &mut Netlink, device: &Device) -> io::Result<Option<Obstacle>> {
        if let Some(obstacle) = self.lost_default(device) {
            return Ok(Some(obstacle));
        }
        let remedy = format!("remove it first (tc qdisc del dev {} root), or share the device with tc", device.name);
        let foreign = |why| Ok(Some(Obstacle { why, remedy }));
        let own = || self.objects.iter().filter(|object| !object.is_default());
        if let Some(object) = own().find(|object| object.sized) {
            return foreign(format!("{} {:x}: has a size table", object.kind, object.handle >> 16));
        }
        if let Some(object) = own().find(|object| !RETURNABLE.contains(&object.kind.as_str())) {
            return foreign(format!("takt cannot put back {} {:x}:", object.kind, object.handle >> 16));
        }
        for object in own() {
            let place = Place { device: device.index, parent: object.handle, ..Place::default() };
            if !netlink.list(&Request::control(libc::RTM_GETTFILTER, 0, place))?.is_empty() {
                let (major, minor) = (object.handle >> 16, object.handle & 0xffff);
                return foreign(format!("{} {major:x}:{minor:x} has filters", object.kind));
            }
        }
        Ok(None)
    }

    /// Whether the kernel would make other kinds by default now, as far as that can be known.
    fn lost_default(&self, device: &Device) -> Option<Obstacle> {
        let mut made = kinds(&self.objects);
        // The setting does not matter to them: a device of several queues gets mq, and one that needs
        // no queue gets noqueue. A CAN bus gets pfifo_fast (Linux 5.5).
        made.retain(|kind| !["mq", "noqueue"].contains(kind));
        if made.is_empty() || device.can { None } else { lost(&made, default_kind().as_deref(), &device.name) }
    }

    /// Whether takt has read the tree. It is unknown for a device on which takt found classes of its own.
    pub(super) fn is_known(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Whether the device has it again: `now` has the same objects, and the same kinds by default.
    pub(super) fn is_back(&self, now: &Tree, device: &Device) -> bool {
        let own = |tree: &Tree| -> Vec<String> {
            let mut texts: Vec<String> =
                tree.objects.iter().filter(|object| !object.is_default()).map(Object::to_text).collect();
            texts.sort_unstable();
            texts
        };
        let defaults = if device.up {
            !self.is_known() || kinds(&self.objects) == kinds(&now.objects)
        } else {
            // The kernel makes them when the device goes up.
            self.lost_default(device).is_none()
        };
        own(self) == own(now) && defaults
    }

    /// How a device that has `now` instead gets it again.
    pub(super) fn remedy(&self, now: &Tree, device: &str) -> String {
        let now = kinds(&now.objects);
        match kinds(&self.objects).into_iter().find(|kind| *kind != "mq" && !now.contains(kind)) {
            Some(kind) => format!(
                "{DEFAULT} has changed meanwhile: sysctl -w {DEFAULT}={kind} && {} && takt net remove --device \
                 {device}",
                renewal(device)
            ),
            None => "make it again by hand".to_owned(),
        }
    }

    /// Makes it on a device that has the kernel's default.
    pub(super) fn put_back(&self, netlink: &mut Netlink, device: u32) -> io::Result<()> {
        for object in self.objects.iter().filter(|object| !object.is_default()) {
            let place = Place { device, handle: object.handle, parent: object.parent, info: 0 };
            let (kind, flags) =
                if object.is_class { (libc::RTM_NEWTCLASS, CREATE) } else { (libc::RTM_NEWQDISC, CREATE_OR_REPLACE) };
            let mut request = Request::control(kind, flags, place).with_text(KIND, &object.kind);
            if !object.options.is_empty() {
                request = request.with(OPTIONS, &object.options);
            }
            netlink.ask(request).map_err(|error| {
                let (major, minor) = (object.handle >> 16, object.handle & 0xffff);
                io::Error::new(error.kind(), format!("{} {major:x}:{minor:x}: {error}", object.kind))
            })?;
        }
        Ok(())
    }

    /// Takes the root away; the kernel's default comes in its place.
    pub(super) fn remove(netlink: &mut Netlink, device: u32) -> io::Result<()> {
        let place = Place { device, parent: AT_ROOT, ..Place::default() };
        netlink.ask(Request::control(libc::RTM_DELQDISC, 0, place)).map(drop)
    }
}

/// The kinds that the kernel made by default.
fn kinds<'a>(objects: impl IntoIterator<Item = &'a Object>) -> BTreeSet<&'a str> {
    objects.into_iter().filter(|object| object.is_default()).map(|object| object.kind.as_str()).collect()
}

fn joined(kinds: &BTreeSet<&str>) -> String {
    kinds.iter().copied().collect::<Vec<_>>().join(" and ")
}

/// The commands that give a device the default as it is now.
fn renewal(device: &str) -> String {
    format!("tc qdisc replace dev {device} root pfifo && tc qdisc del dev {device} root")
}

/// The kernel would make `now` in place of the kinds `made`. If `now` is unknown, it is one kind all the same.
fn lost(made: &BTreeSet<&str>, now: Option<&str>, device: &str) -> Option<Obstacle> {
    if made.len() == 1 && now.is_none_or(|now| made.contains(now)) {
        return None;
    }
    let (all, would) = (joined(made), now.unwrap_or("one kind"));
    let why = format!("the kernel made {all} by default, and would make {would} now ({DEFAULT})");
    let back = if made.len() == 1 { format!("sysctl -w {DEFAULT}={all}, or ") } else { String::new() };
    let remedy = format!("{back}give the device the present default: {}", renewal(device));
    Some(Obstacle { why, remedy })
}

/// The kind that the kernel makes by default now. Only the initial network namespace has the file;
/// `None`: this process cannot look there.
fn default_kind() -> Option<String> {
    let read = || fs::read_to_string(DEFAULT_FILE).ok();
    let initial = || in_namespace(fs::metadata("/proc/1/ns/net").ok()?.ino(), read).ok()?;
    Some(read().or_else(initial)?.trim().to_owned())
}

/// Options as the kernel takes them: HTB tells a longer version, and a count of packets.
fn as_taken(kind: &str, is_class: bool, options: &[u8]) -> Vec<u8> {
    if kind != "htb" || is_class {
        return options.to_vec();
    }
    let mut kept = Vec::new();
    for (name, value) in attributes(options) {
        let mut value = value.to_vec();
        if name == HTB_INIT
            && let Some(version) = number(&value)
            && value.len() >= 20
        {
            value[..4].copy_from_slice(&(version >> 16).max(3).to_ne_bytes());
            value[16..20].fill(0);
        }
        put(&mut kept, name, &value);
    }
    kept
}

/// Parents before what hangs below them.
fn in_order(mut objects: Vec<Object>) -> Vec<Object> {
    let mut ordered: Vec<Object> = Vec::with_capacity(objects.len());
    while !objects.is_empty() {
        let missing = |handle: u32| objects.iter().any(|other| !other.is_default() && other.handle == handle);
        let discipline = |handle: u32| handle & 0xffff_0000;
        let waits = |object: &Object| {
            let parent = object.parent;
            object.is_class && missing(discipline(object.handle))
                || parent != AT_ROOT && (missing(discipline(parent)) || missing(parent))
        };
        let next = objects.iter().position(|object| !waits(object)).unwrap_or(0);
        ordered.push(objects.remove(next));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::device;
    use super::*;

    fn tree(texts: &[&str]) -> Tree {
        Tree { objects: texts.iter().copied().map(object).collect() }
    }

    fn object(text: &str) -> Object {
        Object::from_text(text).unwrap()
    }

    #[test]
    fn objects_survive_their_text() {
        for text in
            ["qdisc 00010000 ffffffff htb 0102ff", "class 00010001 ffffffff htb ", "qdisc 00000000 ffffffff mq "]
        {
            assert_eq!(object(text).to_text(), text);
        }
        for wrong in ["", "qdisc 1 ffffffff htb 00", "qdisc 00010000 ffffffff htb 0g", "rule 00010000 ffffffff htb 00"]
        {
            assert_eq!(Object::from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parents_come_first() {
        let texts = [
            "qdisc 00100000 00010010 pfifo ",
            "class 00010010 00010001 htb ",
            "class 00010001 ffffffff htb ",
            "qdisc 00010000 ffffffff htb ",
        ];
        let ordered = in_order(texts.map(object).to_vec());
        assert_eq!(ordered.iter().map(Object::to_text).collect::<Vec<_>>(), [texts[3], texts[2], texts[1], texts[0]]);
    }

    #[test]
    fn only_the_same_kinds_are_the_default_that_was_there() {
        let (up, down) = (device(), Device { up: false, ..device() });
        let trees = [
            tree(&["qdisc 00000000 ffffffff noqueue "]),
            tree(&["qdisc 00000000 ffffffff fq_codel "]),
            tree(&["qdisc 00000000 ffffffff mq ", "qdisc 00000000 00000001 fq_codel "]),
            tree(&["qdisc 00000000 ffffffff mq ", "qdisc 00000000 00000001 pfifo_fast "]),
            tree(&["qdisc 00010000 ffffffff mq ", "qdisc 00000000 00010001 pfifo_fast "]),
            tree(&["qdisc 00010000 ffffffff mq ", "qdisc 00000000 00010001 fq_codel "]),
        ];
        for (at, former) in trees.iter().enumerate() {
            for (other, now) in trees.iter().enumerate() {
                assert_eq!(former.is_back(now, &up), at == other, "{former:?} {now:?}");
            }
            assert!(!former.is_back(&Tree::default(), &up), "{former:?}");
        }
        // Two queues more, of the same kind.
        let more =
            ["qdisc 00000000 ffffffff mq ", "qdisc 00000000 00000001 fq_codel ", "qdisc 00000000 00000002 fq_codel "];
        assert!(trees[2].is_back(&tree(&more), &up));
        assert!(trees[0].is_back(&Tree::default(), &down), "it comes when the device goes up");
        assert!(Tree::default().is_back(&trees[1], &up), "what was before is not known");
        assert_eq!(trees[2].name(), "mq of fq_codel (the kernel's default)");
        assert_eq!(trees[4].name(), "mq 1: of pfifo_fast");
    }

    #[test]
    fn a_default_that_would_not_come_back_is_refused_with_the_command_that_brings_it_back() {
        let renewal = "tc qdisc replace dev eth0 root pfifo && tc qdisc del dev eth0 root";
        let lost = |made: &[&str], now| lost(&made.iter().copied().collect(), now, "eth0");
        assert_eq!(lost(&["fq_codel"], Some("fq_codel")), None);
        assert_eq!(lost(&["fq_codel"], None), None, "not known");
        let Obstacle { why, remedy } = lost(&["pfifo_fast"], Some("fq_codel")).unwrap();
        assert_eq!(why, "the kernel made pfifo_fast by default, and would make fq_codel now (net.core.default_qdisc)");
        let back = "sysctl -w net.core.default_qdisc=pfifo_fast, or give the device the present default: ";
        assert_eq!(remedy, format!("{back}{renewal}"));
        // No value of the setting gives two kinds.
        for now in [Some("fq_codel"), None] {
            let obstacle = lost(&["fq_codel", "pfifo_fast"], now).unwrap();
            assert_eq!(obstacle.remedy, format!("give the device the present default: {renewal}"));
        }
        // These do not depend on the setting.
        let no_kind = |kind| tree(&[&format!("qdisc 00000000 ffffffff {kind} "), "qdisc 00000000 00000001 no_kind "]);
        assert_eq!(tree(&["qdisc 00000000 ffffffff noqueue "]).lost_default(&device()), None);
        assert_eq!(tree(&["qdisc 00010000 ffffffff no_kind "]).lost_default(&device()), None, "takt makes it");
        assert_eq!(no_kind("mq").lost_default(&Device { can: true, ..device() }), None);
        assert_eq!(no_kind("mq").lost_default(&device()).is_some(), default_kind().is_some());
    }

    #[test]
    fn the_setting_is_read_from_other_network_namespaces() {
        if let Err(error) = fs::metadata("/proc/1/ns/net") {
            return println!("skipped: nobody may see the initial network namespace: {error}");
        }
        let elsewhere = std::thread::spawn(|| crate::net::new_space().map(|_space| default_kind()));
        match elsewhere.join().unwrap() {
            Ok(kind) => assert_eq!(kind, default_kind()),
            Err(error) => println!("skipped: {error}"),
        }
    }

    #[test]
    fn the_remedy_names_the_kind_that_was_there() {
        let pfifo_fast = tree(&["qdisc 00000000 ffffffff mq ", "qdisc 00000000 00000001 pfifo_fast "]);
        let fq_codel = tree(&["qdisc 00000000 ffffffff mq ", "qdisc 00000000 00000001 fq_codel "]);
        for now in [&fq_codel, &Tree::default()] {
            assert_eq!(
                pfifo_fast.remedy(now, "eth0"),
                "net.core.default_qdisc has changed meanwhile: sysctl -w net.core.default_qdisc=pfifo_fast && tc qdisc \
                 replace dev eth0 root pfifo && tc qdisc del dev eth0 root && takt net remove --device eth0"
            );
        }
        let own = tree(&["qdisc 00010000 ffffffff pfifo 4d000000"]);
        assert_eq!(own.remedy(&pfifo_fast, "eth0"), "make it again by hand");
    }

    #[test]
    fn trees_of_takt_have_its_handle_and_kind() {
        let tree = |text| tree(&[text]);
        for (text, is_htb) in [("qdisc 74610000 ffffffff htb 00", true), ("qdisc 74610000 ffffffff takt_7_0 ", false)] {
            assert_eq!((tree(text).is_ours(), tree(text).is_htb()), (true, is_htb));
        }
        assert!(!tree("qdisc 00010000 ffffffff takt_7_0 ").is_ours());
        assert!(!tree("qdisc 00000000 ffffffff noqueue ").is_ours());
    }
}
