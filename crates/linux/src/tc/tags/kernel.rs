//! The programs of bpf/deadline.bpf.c in the kernel, with their maps.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object, ProgramMut};

use super::{NetError, Settings, TagCounts};
use crate::bpf::{self, BpfError, Hook};
use crate::cgroup;

/// The only key of each map.
const ONLY: [u8; 4] = [0; 4];

/// Programs in their places. The fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Programs {
    _links: [OwnedFd; 3],
    _departures: Link,
    settings: MapHandle,
    counts: MapHandle,
    _object: Object,
}

impl Programs {
    pub(super) fn attach(settings: Settings, group: &Path) -> Result<Programs, NetError> {
        let folder = folder(group)?;
        let object = bpf::load("deadline", bpf::image!("deadline"), |_| Ok(()))?;
        let (of_settings, counts) = (bpf::map(&object, "settings")?, bpf::map(&object, "counts")?);
        let at = |name: &str, hook: Hook<'_>, place: &str| bpf::attach(program(&object, name)?.as_fd(), hook, place);
        put(&of_settings, settings).map_err(|cause| BpfError::attach("its settings", cause))?;
        let departures = program(&object, "count_departure")?.attach_trace();
        let departures = departures.map_err(|error| BpfError::attach("net_dev_start_xmit", io::Error::other(error)))?;
        let egress = at("tag_packet", Hook::Egress(settings.device), "the egress of a device (Linux 6.6)")?;
        let place = format!("control group {}", group.display());
        let get = at("get_deadline", Hook::GetOption(folder.as_fd()), &place)?;
        let set = at("set_deadline", Hook::SetOption(folder.as_fd()), &place)?;
        Ok(Programs {
            _links: [set, get, egress],
            _departures: departures,
            settings: of_settings,
            counts,
            _object: object,
        })
    }

    pub(super) fn set(&mut self, settings: Settings) -> io::Result<()> {
        put(&self.settings, settings)
    }

    pub(super) fn counts(&self) -> io::Result<TagCounts> {
        let value = self.counts.lookup(&ONLY, MapFlags::ANY).map_err(io::Error::other)?.unwrap_or_default();
        // `struct counts` of bpf/deadline.h.
        let mut words = value.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().ok_or_else(|| io::Error::other("the map of counts is too small"));
        Ok(TagCounts { came: next()?, dropped: next()?, left: next()?, late: next()? })
    }
}

/// Gives the programs their settings: `struct settings` of bpf/deadline.h.
fn put(map: &MapHandle, settings: Settings) -> io::Result<()> {
    let longs = [settings.rate, settings.burst_ns, settings.overhead].map(u64::to_ne_bytes).concat();
    let words = [settings.device, settings.space, settings.class, u32::from(settings.drop_late)];
    let value = [longs, words.map(u32::to_ne_bytes).concat()].concat();
    map.update(&ONLY, &value, MapFlags::ANY).map_err(io::Error::other)
}

fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, BpfError> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.ok_or_else(|| BpfError::attach(name, bpf::missing()))
}

/// The control group's folder.
fn folder(group: &Path) -> Result<File, NetError> {
    let failed = |cause: io::Error| {
        let cause = io::Error::new(cause.kind(), format!("control group {}: {cause}", group.display()));
        NetError::Rule { cause }
    };
    let mount = cgroup::v2_mount().ok_or_else(|| failed(io::Error::other("cgroup v2 is not mounted")))?;
    File::open(mount.join(group.strip_prefix("/").unwrap_or(group))).map_err(failed)
}
