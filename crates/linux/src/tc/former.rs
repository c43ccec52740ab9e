//! The tree of queueing disciplines that a device had before, and its return.
//!
//! The kernel tells options in the form in which it takes them, for the disciplines of
//! [`RETURNABLE`]. Others, size tables and filters cannot be put back exactly, so a device that has
//! them is refused.

use std::io;

use super::htb::ROOT;
use super::own::is_own;
use crate::netlink::{
    AT_INGRESS, AT_ROOT, CREATE, CREATE_OR_REPLACE, Netlink, Place, Request, attribute, attributes, number, put, text,
};

/// Disciplines whose options come back as they were. Tests put back each of them but mq.
const RETURNABLE: [&str; 5] = ["htb", "tbf", "pfifo", "bfifo", "mq"];
const KIND: u16 = libc::TCA_KIND;
const OPTIONS: u16 = libc::TCA_OPTIONS;
const SIZE_TABLE: u16 = libc::TCA_STAB;
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
    /// A discipline that the kernel makes by default. takt does not restore it.
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

    /// How its root is called.
    pub(super) fn name(&self) -> String {
        match self.root() {
            Some(root) if root.is_default() => format!("{} (the kernel's default)", root.kind),
            Some(root) => format!("{} {:x}:", root.kind, root.handle >> 16),
            None => "no queueing discipline".to_owned(),
        }
    }

    /// The reason why it could not be put back exactly.
    pub(super) fn obstacle(&self, netlink: &mut Netlink, device: u32) -> io::Result<Option<String>> {
        let own = || self.objects.iter().filter(|object| !object.is_default());
        if let Some(object) = own().find(|object| object.sized) {
            return Ok(Some(format!("{} {:x}: has a size table", object.kind, object.handle >> 16)));
        }
        if let Some(object) = own().find(|object| !RETURNABLE.contains(&object.kind.as_str())) {
            return Ok(Some(format!("takt cannot put back {} {:x}:", object.kind, object.handle >> 16)));
        }
        for object in own() {
            let place = Place { device, parent: object.handle, ..Place::default() };
            if !netlink.list(&Request::control(libc::RTM_GETTFILTER, 0, place))?.is_empty() {
                let (major, minor) = (object.handle >> 16, object.handle & 0xffff);
                return Ok(Some(format!("{} {major:x}:{minor:x} has filters", object.kind)));
            }
        }
        Ok(None)
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

    /// The same objects, leaving aside those that come by themselves.
    pub(super) fn equals(&self, other: &Tree) -> bool {
        let own = |tree: &Tree| -> Vec<String> {
            let mut texts: Vec<String> =
                tree.objects.iter().filter(|object| !object.is_default()).map(Object::to_text).collect();
            texts.sort_unstable();
            texts
        };
        own(self) == own(other)
    }
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
    use super::*;

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
    fn a_default_tree_is_named_and_equals_itself_whatever_it_is() {
        let tree = |text| Tree { objects: vec![object(text)] };
        let default = tree("qdisc 00000000 ffffffff noqueue ");
        assert_eq!(default.name(), "noqueue (the kernel's default)");
        assert!(default.equals(&tree("qdisc 00000000 ffffffff mq ")));
        assert!(!default.equals(&tree("qdisc 00010000 ffffffff mq ")));
        for (text, is_htb) in [("qdisc 74610000 ffffffff htb 00", true), ("qdisc 74610000 ffffffff takt_7_0 ", false)] {
            assert_eq!((tree(text).is_ours(), tree(text).is_htb()), (true, is_htb));
        }
        assert!(!tree("qdisc 00010000 ffffffff takt_7_0 ").is_ours());
        assert!(!default.is_ours());
    }
}
