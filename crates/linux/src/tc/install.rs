//! Installs a plan on a device, changes it in place, reads it back, and restores the device.

use std::io;

use super::classifier::{Classifier, Rule, Verdict};
use super::former::{Obstacle, Tree};
use super::htb::{self, Class, Counters, LINE, ROOT, class_of, queue_of};
use super::own::{self, Own};
use super::plan::{ClassPlan, Discipline, Plan, Role, Shaper};
use super::probes::{self, Check};
use super::state::{self, Lock, State};
use super::{ClassStatus, NetError, Restored, Status};
use crate::device::{Device, namespace};
use crate::netlink::{
    AT_ROOT, CHANGE, CREATE, CREATE_OR_REPLACE, Netlink, Place, Request, attribute, errno, number, put, text,
};
use crate::process::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, Identity, boot_id, has_capability};
use crate::recovery::RecoveryError;

const KIND: u16 = libc::TCA_KIND;
const OPTIONS: u16 = libc::TCA_OPTIONS;
const BPF_DESCRIPTOR: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_ID: u16 = 11;
/// The name of takt's filter in the kernel's lists.
const FILTER_NAME: &str = "takt";
/// First preference, all protocols.
const FILTER: u32 = 1 << 16 | (libc::ETH_P_ALL as u16).to_be() as u32;
/// Makes something, or changes what has its handle.
const SET: u16 = libc::NLM_F_CREATE as u16;
/// Segments of a packet that TCP hands over.
const GSO_MAX_SEGS: u32 = 1;

/// Shares that this process holds on a device. Dropping it restores the device.
#[derive(Debug)]
pub struct Applied {
    netlink: Netlink,
    device: Device,
    state: State,
    plan: Plan,
    checks: Vec<Check>,
    /// takt's own discipline; `None`: HTB.
    own: Option<Own>,
    done: bool,
}

/// Whether this process may do it.
pub(super) fn privilege() -> Result<(), NetError> {
    let bpf = has_capability(CAP_BPF) || has_capability(CAP_SYS_ADMIN);
    if has_capability(CAP_NET_ADMIN) && has_capability(CAP_NET_RAW) && bpf { Ok(()) } else { Err(NetError::Privilege) }
}

/// Installs `plan` on `device`. `rules` assign packets to classes. If
/// takt's classes are there already, they change in place and no packet is dropped. With `keep`
/// they stay when this process ends; takt's own discipline cannot stay.
///
/// # Errors
/// The cause; the device then has what it had before.
pub fn apply(device: &Device, plan: &Plan, rules: &[Rule], keep: bool) -> Result<Applied, NetError> {
    privilege()?;
    let mut netlink = Netlink::open().map_err(|cause| refused("no netlink socket", cause))?;
    let classifier = classifier(rules, plan.discipline)?;
    if !device.up {
        return Err(NetError::Down { device: device.name.clone() });
    }
    let lock = Lock::acquire()?;
    let about = |cause| refused("the device's present state cannot be read", cause);
    let namespace = namespace().map_err(about)?;
    let owner = Identity::current().ok_or(RecoveryError::NoIdentity)?;
    let earlier = state::read(namespace, device.index)?.filter(State::is_of_this_boot);
    let present = Tree::read(&mut netlink, device.index).map_err(about)?;
    let fresh = !present.is_ours();
    let earlier = earlier.filter(|_| !fresh);
    if let Some(pid) = earlier.as_ref().filter(|of| !of.kept && of.owner.is_alive()).map(|of| of.owner.pid) {
        return Err(NetError::InUse { device: device.name.clone(), pid });
    }
    let in_place = present.is_htb() && plan.discipline == Discipline::Htb;
    if !(fresh || in_place) {
        return Err(NetError::OtherDiscipline { device: device.name.clone(), kind: present.name() });
    }
    // Shares that stayed: they stay if the new ones cannot be had.
    let kept = earlier.clone().filter(|state| state.kept);
    let kept = kept.and_then(|state| Some((plan_of(&present, device)?, state)));
    let own = match plan.discipline {
        Discipline::Htb => None,
        Discipline::Own { .. } if keep => return Err(NetError::NotKept),
        Discipline::Own { .. } => Some(Own::load(plan)?),
    };
    let state = match earlier {
        Some(earlier) => State { owner, kept: keep, rules: rules.to_vec(), maps: None, ..earlier },
        None => {
            // Shares without a file: what was before is not known, so the kernel's default comes back.
            let former = if fresh { present } else { Tree::default() };
            if let Some(Obstacle { why, remedy }) = former.obstacle(&mut netlink, device).map_err(about)? {
                return Err(NetError::Foreign { device: device.name.clone(), why, remedy });
            }
            State {
                boot: boot_id().unwrap_or_default(),
                owner,
                kept: keep,
                namespace,
                device: device.index,
                name: device.name.clone(),
                gso_max_segs: device.gso_max_segs,
                rules: rules.to_vec(),
                maps: own.as_ref().map(Own::maps),
                returning: false,
                former,
            }
        }
    };
    lock.write(&state)?;
    let (device, plan) = (device.clone(), plan.clone());
    let mut applied = Applied { netlink, device, state, plan, checks: Vec::new(), own, done: false };
    match applied.install(fresh, &classifier) {
        Ok(()) => Ok(applied),
        Err(error) => {
            let goes_back = kept.is_some_and(|(plan, state)| applied.go_back(&lock, plan, state).is_ok());
            if goes_back {
                applied.done = true;
            } else {
                applied.undo(&lock)?;
            }
            Err(error)
        }
    }
}

/// A class of a tree under HTB.
fn class_in(tree: &Tree, handle: u32) -> Option<Class> {
    let object = tree.objects.iter().find(|object| object.is_class && object.handle == handle)?;
    Class::parse(&object.options)
}

/// The plan of takt's classes in a tree under HTB.
fn plan_of(tree: &Tree, device: &Device) -> Option<Plan> {
    let of_role = |role: Role| {
        let Class { assured, ceiling, priority, quantum, .. } = class_in(tree, class_of(role))?;
        let queue = tree.objects.iter().find(|object| !object.is_class && object.handle == queue_of(role))?;
        let packets_max = number(&queue.options)?;
        Some(ClassPlan { role, assured, ceiling, priority, quantum, packets_max })
    };
    Some(Plan {
        discipline: Discipline::Htb,
        line: class_in(tree, LINE)?.assured,
        classes: Role::ALL.into_iter().filter_map(of_role).collect(),
        overhead: device.overhead(),
        frame_max: device.frame_max(),
        gso_frame_max: device.gso_frame_max(),
        notes: Vec::new(),
    })
}

impl Applied {
    /// The device, as it was found.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The classes that hold now.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The check of each rule by counters.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Changes classes and rules in place. Waiting packets stay in their queues, unless a reply class
    /// is removed.
    ///
    /// # Errors
    /// The cause; the former classes then hold. If that failed, too ([`NetError::Between`]), classes may
    /// be of either plan.
    pub fn change(&mut self, plan: &Plan, rules: &[Rule]) -> Result<(), NetError> {
        let classifier = classifier(rules, plan.discipline)?;
        let lock = Lock::acquire()?;
        let present = Tree::read(&mut self.netlink, self.device.index);
        let present = present.map_err(|cause| refused("the classes cannot be read", cause))?;
        if !present.is_ours() {
            return Err(NetError::NotInstalled { device: self.device.name.clone() });
        }
        if present.is_htb() != (plan.discipline == Discipline::Htb) {
            return Err(NetError::OtherDiscipline { device: self.device.name.clone(), kind: present.name() });
        }
        let state = State { rules: rules.to_vec(), ..self.state.clone() };
        lock.write(&state)?;
        let former = (std::mem::replace(&mut self.plan, plan.clone()), std::mem::replace(&mut self.state, state));
        let checks = self.checks.clone();
        let Err(change) = self.install(false, &classifier) else { return Ok(()) };
        let (plan, state) = former;
        self.checks = checks;
        match self.go_back(&lock, plan, state) {
            Ok(()) => Err(change),
            Err(back) => {
                let device = self.device.name.clone();
                Err(NetError::Between { device, change: Box::new(change), back: Box::new(back) })
            }
        }
    }

    /// Puts former classes and rules back in place.
    fn go_back(&mut self, lock: &Lock, plan: Plan, state: State) -> Result<(), NetError> {
        (self.plan, self.state) = (plan, state);
        lock.write(&self.state)?;
        let classifier = classifier(&self.state.rules, self.plan.discipline)?;
        self.put(false, &classifier)
    }

    /// The classes with their counters.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn status(&mut self) -> Result<Status, NetError> {
        status(&mut self.netlink, &self.device, Some(&self.state), self.own.as_ref())
            .map_err(|cause| refused("the classes cannot be read", cause))?
            .ok_or_else(|| NetError::NotInstalled { device: self.device.name.clone() })
    }

    /// Leaves the classes as they are; this needs `keep` of [`apply`].
    pub fn leave(mut self) {
        self.done = self.state.kept;
    }

    /// Restores the device. `None`: somebody else has taken takt's classes away meanwhile.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn restore(mut self) -> Result<Option<Restored>, NetError> {
        let lock = Lock::acquire()?;
        self.undo(&lock)
    }

    fn undo(&mut self, lock: &Lock) -> Result<Option<Restored>, NetError> {
        // The next start tries again if this fails.
        self.done = true;
        let restored = restore(lock, &mut self.netlink, &self.state)?;
        lock.forget(&self.state);
        Ok(restored)
    }

    fn put(&mut self, fresh: bool, classifier: &Classifier) -> Result<(), NetError> {
        match self.own {
            None => self.put_classes(fresh, classifier),
            Some(_) => self.put_own(fresh, classifier),
        }
    }

    fn install(&mut self, fresh: bool, classifier: &Classifier) -> Result<(), NetError> {
        self.put(fresh, classifier)?;
        Device::set_gso_max_segs(&mut self.netlink, self.device.index, GSO_MAX_SEGS)
            .map_err(|cause| refused("the limit of segments (gso_max_segs) cannot be set", cause))?;
        let differences = if self.own.is_some() { self.differences_of_own() } else { self.differences(classifier) };
        let differences = differences.map_err(|cause| refused("the classes cannot be read back", cause))?;
        if !differences.is_empty() {
            return Err(NetError::Differs { device: self.device.name.clone(), differences });
        }
        let (netlink, index, own) = (&mut self.netlink, self.device.index, &self.own);
        let checks = probes::check(&self.device, &self.state.rules, |role| match own {
            None => {
                let counted = counters(netlink, index)?;
                let came = |of: Counters| of.packets + of.waiting + of.dropped;
                Ok(counted.into_iter().find(|(of, _)| *of == class_of(role)).map_or(0, |(_, of)| came(of)))
            }
            Some(own) => {
                // Those that came: others may leave long before them.
                let classes = own.read()?.classes;
                Ok(classes.iter().find(|class| class.role == role).map_or(0, |class| class.arrived))
            }
        });
        self.checks = checks.map_err(|cause| refused("frames for the check of the classes cannot be sent", cause))?;
        match self.checks.iter().find(|check| check.counted < check.sent) {
            Some(check) => Err(NetError::Unverified {
                device: self.device.name.clone(),
                what: check.rule.as_ref().map_or("no rule".to_owned(), |rule| rule.of.to_string()),
                check: check.clone(),
            }),
            None => Ok(()),
        }
    }

    fn put_classes(&mut self, fresh: bool, classifier: &Classifier) -> Result<(), NetError> {
        let (netlink, plan, device) = (&mut self.netlink, &self.plan, self.device.index);
        let at = |parent, handle| Place { device, handle, parent, info: 0 };
        let mut ask = |what, part, request: Request| match netlink.ask(request) {
            Ok(_) => Ok(()),
            Err(cause) if matches!(errno(&cause), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
                Err(NetError::Missing { what, part, cause })
            }
            Err(cause) => Err(refused(what, cause)),
        };
        if fresh {
            let root = Request::control(libc::RTM_NEWQDISC, CREATE_OR_REPLACE, at(AT_ROOT, ROOT));
            let root = root.with_text(KIND, "htb").with(OPTIONS, &htb::discipline());
            ask("HTB", "CONFIG_NET_SCH_HTB (module sch_htb)", root)?;
        }
        let class = |parent, handle, class: Class| {
            let request = Request::control(libc::RTM_NEWTCLASS, SET, at(parent, handle));
            request.with_text(KIND, "htb").with(OPTIONS, &class.options())
        };
        ask("the class of the link", "HTB", class(AT_ROOT, LINE, Class::line(plan)))?;
        for of in &plan.classes {
            ask("a class", "HTB", class(LINE, class_of(of.role), Class::leaf(plan, of)))?;
            let queue =
                Request::control(libc::RTM_NEWQDISC, CREATE_OR_REPLACE, at(class_of(of.role), queue_of(of.role)));
            let queue = queue.with_text(KIND, "pfifo").with(OPTIONS, &of.packets_max.to_ne_bytes());
            ask("the queue of a class", "CONFIG_NET_SCHED", queue)?;
        }
        let mut options = Vec::new();
        put(&mut options, BPF_DESCRIPTOR, &classifier.descriptor().to_ne_bytes());
        put(&mut options, BPF_NAME, format!("{FILTER_NAME}\0").as_bytes());
        let place = Place { device, handle: 1, parent: ROOT, info: FILTER };
        let filter = Request::control(libc::RTM_NEWTFILTER, if fresh { CREATE } else { SET }, place);
        ask(
            "the filter",
            "CONFIG_NET_CLS_BPF (module cls_bpf)",
            filter.with_text(KIND, "bpf").with(OPTIONS, &options),
        )?;
        for role in Role::ALL.into_iter().filter(|role| !fresh && plan.class(*role).is_none()) {
            let gone = Request::control(libc::RTM_DELTCLASS, CHANGE, at(0, class_of(role)));
            match netlink.ask(gone) {
                Err(cause) if errno(&cause) != Some(libc::ENOENT) => {
                    return Err(refused("a class that the System no longer has cannot be removed", cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Puts takt's own discipline at the root, or changes its settings.
    fn put_own(&mut self, fresh: bool, classifier: &Classifier) -> Result<(), NetError> {
        let Some(own) = &mut self.own else { return Ok(()) };
        let set = |own: &mut Own| {
            own.set(&self.plan).map_err(|cause| refused("the settings of takt's discipline cannot be changed", cause))
        };
        // A class gets no more packets before it goes, and none before it is there.
        let shrinks = self.plan.class(Role::Reply).is_none();
        if !fresh && !shrinks {
            set(own)?;
        }
        own.classify(classifier, &self.device)?;
        if !fresh && shrinks {
            set(own)?;
        }
        if fresh {
            let place = Place { device: self.device.index, handle: ROOT, parent: AT_ROOT, info: 0 };
            let root = Request::control(libc::RTM_NEWQDISC, CREATE_OR_REPLACE, place).with_text(KIND, own.kind());
            self.netlink.ask(root).map_err(|cause| refused("takt's queueing discipline", cause))?;
        }
        Ok(())
    }

    /// Datagrams that takt's own discipline has dropped because they could not start in time; 0 under HTB.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn late_drops(&self) -> Result<u64, NetError> {
        let read = self.own.as_ref().map(Own::read).transpose();
        let read = read.map_err(|cause| refused("the counters of takt's discipline cannot be read", cause))?;
        Ok(read.map_or(0, |read| read.classes.iter().map(|class| class.late).sum()))
    }

    /// Differences between the kernel's state and the plan under takt's own discipline.
    fn differences_of_own(&mut self) -> io::Result<Vec<String>> {
        let Some(own) = &self.own else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let tree = Tree::read(&mut self.netlink, self.device.index)?;
        if !tree.objects.iter().any(|object| object.handle == ROOT && object.kind == own.kind()) {
            found.push(format!("{} at the root instead of {} 7461:", tree.name(), own.kind()));
        }
        if own.differs(&self.plan)? {
            found.push("other settings of takt's discipline".to_owned());
        }
        found.extend(self.segments_differ()?);
        Ok(found)
    }

    fn segments_differ(&mut self) -> io::Result<Option<String>> {
        let now = Device::named(&mut self.netlink, &self.device.name)?.map(|device| device.gso_max_segs);
        Ok((now != Some(GSO_MAX_SEGS)).then(|| format!("gso_max_segs {now:?} instead of {GSO_MAX_SEGS}")))
    }

    /// Differences between the kernel's state and the plan.
    fn differences(&mut self, classifier: &Classifier) -> io::Result<Vec<String>> {
        let (netlink, plan, index) = (&mut self.netlink, &self.plan, self.device.index);
        let mut found = Vec::new();
        let mut differs = |what: String| found.push(what);
        let tree = Tree::read(netlink, index)?;
        if !tree.is_ours() {
            differs(format!("{} at the root instead of htb 7461:", tree.name()));
        }
        let leaf = |class: &ClassPlan| (class_of(class.role), LINE, class.role.name(), Class::leaf(plan, class));
        let line = (LINE, AT_ROOT, "link", Class::line(plan));
        let wanted: Vec<_> = [line].into_iter().chain(plan.classes.iter().map(leaf)).collect();
        for (handle, parent, name, class) in &wanted {
            let object = tree.objects.iter().find(|object| object.is_class && object.handle == *handle);
            match object.and_then(|object| Some((object.parent, Class::parse(&object.options)?))) {
                None => differs(format!("no class {name}")),
                Some((at, _)) if at != *parent => differs(format!("class {name} at {at:x}")),
                Some((_, read)) => {
                    read.differences(class).into_iter().for_each(|what| differs(format!("{name}: {what}")))
                }
            }
        }
        for class in &plan.classes {
            let (name, handle) = (class.role.name(), queue_of(class.role));
            match tree.objects.iter().find(|object| !object.is_class && object.handle == handle) {
                Some(queue) if queue.kind == "pfifo" && queue.parent == class_of(class.role) => {
                    if number(&queue.options) != Some(class.packets_max) {
                        differs(format!("the queue of {name} does not hold {} packets", class.packets_max));
                    }
                }
                _ => differs(format!("no queue of {name}")),
            }
        }
        let classes = tree.objects.iter().filter(|object| object.is_class).count();
        if classes != wanted.len() {
            differs(format!("{classes} classes instead of {}", wanted.len()));
        }
        let filters = filters(netlink, index)?;
        if filters != [(FILTER_NAME.to_owned(), classifier.id)] {
            differs(format!("filters {filters:?} instead of \"{FILTER_NAME}\" {}", classifier.id));
        }
        found.extend(self.segments_differ()?);
        Ok(found)
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if !self.done
            && let Ok(lock) = Lock::acquire()
        {
            let _ = self.undo(&lock);
        }
    }
}

fn classifier(rules: &[Rule], discipline: Discipline) -> Result<Classifier, NetError> {
    let verdict = if discipline == Discipline::Htb { Verdict::Returned } else { Verdict::Written };
    Classifier::load(rules, verdict).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => NetError::Rule { cause },
        io::ErrorKind::PermissionDenied => NetError::Privilege,
        _ => NetError::Missing { what: "the program that classifies packets", part: "CONFIG_BPF_SYSCALL", cause },
    })
}

pub(super) fn refused(what: &'static str, cause: io::Error) -> NetError {
    match errno(&cause) {
        Some(libc::EPERM) => NetError::Privilege,
        _ => NetError::Refused { what, cause },
    }
}

/// Names and program numbers of the filters at takt's root.
fn filters(netlink: &mut Netlink, device: u32) -> io::Result<Vec<(String, u32)>> {
    let place = Place { device, parent: ROOT, ..Place::default() };
    let answers = netlink.list(&Request::control(libc::RTM_GETTFILTER, 0, place))?;
    let parse = |(_, list)| {
        // The kernel also tells of the preference, without options.
        let options = attribute(list, OPTIONS)?;
        let name = attribute(options, BPF_NAME).map(text).unwrap_or_default();
        Some((name, attribute(options, BPF_ID).and_then(number).unwrap_or(0)))
    };
    Ok(answers.iter().filter_map(|answer| answer.control().and_then(parse)).collect())
}

/// Handles and counters of classes.
fn counters(netlink: &mut Netlink, device: u32) -> io::Result<Vec<(u32, Counters)>> {
    let place = Place { device, ..Place::default() };
    let answers = netlink.list(&Request::control(libc::RTM_GETTCLASS, 0, place))?;
    let parse = |(at, list): (Place, &[u8])| Some((at.handle, Counters::parse(list)?));
    Ok(answers.iter().filter_map(|answer| answer.control().and_then(parse)).collect())
}

/// The classes of takt on a device; `None`: there are none. `own` is the discipline if this process has it.
pub(super) fn status(
    netlink: &mut Netlink,
    device: &Device,
    state: Option<&State>,
    own: Option<&Own>,
) -> io::Result<Option<Status>> {
    let tree = Tree::read(netlink, device.index)?;
    if !tree.is_ours() {
        return Ok(None);
    }
    // As it is now: its limit of segments has changed since it was found.
    let Some(device) = Device::named(netlink, &device.name)? else { return Ok(None) };
    let about = |rate: u64, classes: Vec<ClassStatus>| Status {
        device: device.name.clone(),
        discipline: tree.kind().to_owned(),
        rate,
        classes,
        rules: state.map(|state| state.rules.clone()).unwrap_or_default(),
        holder: state.filter(|state| !state.kept).map(|state| state.owner.pid),
        gso_max_segs: device.gso_max_segs,
        former: state.map(|state| state.former.name()),
    };
    if !tree.is_htb() {
        // Without a state file nobody knows the maps, and others may not read them.
        let of_state = || state.and_then(|state| state.maps).and_then(|maps| own::read(maps).ok());
        let read = own.map(Own::read).transpose()?.or_else(of_state);
        let Some(read) = read else { return Ok(Some(about(0, Vec::new()))) };
        let classes = read.classes.iter().filter(|class| class.packets_max > 0);
        let classes = classes.map(|class| ClassStatus {
            role: class.role,
            // Other packets get what is left.
            assured: if class.role == Role::Background { Shaper { rate: 0, burst: 0 } } else { class.ceiling },
            ceiling: class.ceiling,
            counters: class.counters,
        });
        return Ok(Some(about(read.line.rate, classes.collect())));
    }
    let counted = counters(netlink, device.index)?;
    let of_role = |role: Role| {
        let Class { assured, ceiling, .. } = class_in(&tree, class_of(role))?;
        let counters = counted.iter().find(|(handle, _)| *handle == class_of(role)).map(|(_, counters)| *counters);
        Some(ClassStatus { role, assured, ceiling, counters: counters.unwrap_or_default() })
    };
    let rate = class_in(&tree, LINE).map_or(0, |line| line.assured.rate);
    Ok(Some(about(rate, Role::ALL.into_iter().filter_map(of_role).collect())))
}

/// Gives a device back what it had. `None`: takt's classes are not there any more, so only the limit
/// of segments comes back.
pub(super) fn restore(lock: &Lock, netlink: &mut Netlink, state: &State) -> Result<Option<Restored>, NetError> {
    let about = |cause| refused("the device's present state cannot be read", cause);
    let Some(device) = Device::all(netlink).map_err(about)?.into_iter().find(|device| device.index == state.device)
    else {
        return Ok(None);
    };
    let present = Tree::read(netlink, device.index).map_err(about)?;
    // Also where takt's tree is gone: nobody else knows the former limit.
    if device.gso_max_segs == GSO_MAX_SEGS && state.gso_max_segs != GSO_MAX_SEGS {
        Device::set_gso_max_segs(netlink, device.index, state.gso_max_segs)
            .map_err(|cause| refused("gso_max_segs cannot be set back", cause))?;
    }
    if present.is_ours() {
        // From here on takt's tree no longer tells that the device is to be restored.
        lock.write(&State { returning: true, ..state.clone() })?;
    } else if !(state.returning && (present.is_default() || present.begins_as(&state.former))) {
        return Ok(None);
    }
    if !present.is_default() {
        Tree::remove(netlink, device.index).map_err(|cause| refused("takt's classes cannot be removed", cause))?;
    }
    state
        .former
        .put_back(netlink, device.index)
        .map_err(|cause| refused("the former queueing discipline cannot be put back", cause))?;
    let now = Tree::read(netlink, device.index).map_err(about)?;
    let former = &state.former;
    if !former.is_back(&now, &device) {
        let remedy = former.remedy(&now, &device.name);
        let (device, now, former) = (device.name, now.name(), former.name());
        return Err(NetError::NotAsBefore { device, now, former, remedy });
    }
    // A device that is down has none until it goes up.
    let discipline = if device.up { now.name() } else { former.name() };
    let (gso_max_segs, is_former) = (state.gso_max_segs, former.is_known());
    Ok(Some(Restored { device: device.name, discipline, gso_max_segs, is_former }))
}
