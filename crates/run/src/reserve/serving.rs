//! Finds the kernel threads that serve an interrupt or receive the packets of a network device.
//!
//! | thread | serves | there is one |
//! |---|---|---|
//! | `irq/24-eth0`, `irq/24-s-eth0` | interrupt 24, handler eth0 | if its driver asks |
//! | `napi/eth0-8193` | packets received by eth0 on queue 8193 | if /sys/class/net/eth0/threaded is 1 (Linux 5.12) |
//!
//! Under `threadirqs` and PREEMPT_RT nearly all interrupts have threads.
//!
//! An interrupt is named as `takt observe --irq` names it: by its number, a handler, or all of its
//! handlers with commas between; `*` stands for any characters. Names of threads count too. Linux
//! before 5.17 cut them off after 15 bytes, so handlers come from the list of interrupts if it
//! names them.

use std::fs;

use takt_linux::tracing::{self, InterruptName};
use takt_trace::jobs::is_like;

use super::error::ReserveError;
use super::request::Target;

/// Linux before 5.17 cuts a thread's name to so many bytes.
const NAME_MAX: usize = 15;

/// Interrupts, network devices and their threads on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterruptSources {
    /// Threads of the kernel.
    pub threads: Vec<Target>,
    /// Interrupts that have handlers.
    pub interrupts: Vec<InterruptName>,
    /// Network devices, of this process's namespace.
    pub devices: Vec<String>,
    /// Names of softirqs.
    pub softirqs: Vec<String>,
    /// Interrupts have threads wherever they can have: `threadirqs`, or PREEMPT_RT.
    pub forced: bool,
}

/// The requested threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundThreads {
    /// The threads, each once, by id.
    pub threads: Vec<Target>,
    /// Requested interrupts without a thread: `36 virtio1-req.0`.
    pub without: Vec<String>,
}

/// The meaning of a thread's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadRole<'a> {
    Interrupt { number: u32, handler: &'a str },
    Packets { device: &'a str, queue: &'a str },
}

fn role_of(name: &str) -> Option<ThreadRole<'_>> {
    if let Some(rest) = name.strip_prefix("irq/") {
        let (number, handler) = rest.split_once('-')?;
        let handler = handler.strip_prefix("s-").unwrap_or(handler);
        return Some(ThreadRole::Interrupt { number: number.parse().ok()?, handler });
    }
    let rest = name.strip_prefix("napi/")?;
    let (device, queue) = rest.rsplit_once('-')?;
    Some(ThreadRole::Packets { device, queue })
}

impl FoundThreads {
    /// A note about interrupts and devices that were left out.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let told = ReserveError::few(&self.without);
        (!told.is_empty()).then(|| format!("left out, because they have no thread: {told}"))
    }
}

impl InterruptSources {
    /// Reads this machine.
    #[must_use]
    pub fn gather() -> InterruptSources {
        let kernels = tracing::threads().into_iter().filter(|thread| thread.of_kernel);
        let threads = kernels.filter(|thread| role_of(&thread.name).is_some()).filter_map(|thread| Target::of(&thread));
        let devices = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        InterruptSources {
            threads: threads.collect(),
            interrupts: tracing::interrupts(),
            devices: devices.filter_map(|entry| entry.file_name().into_string().ok()).collect(),
            softirqs: tracing::softirqs(),
            forced: read("/sys/kernel/realtime").trim() == "1"
                || read("/proc/cmdline").split_ascii_whitespace().any(|word| word == "threadirqs"),
        }
    }

    /// The threads that serve the named interrupts and devices.
    ///
    /// # Errors
    /// An unknown name, or a name without any thread.
    pub fn find(&self, names: &[String]) -> Result<FoundThreads, ReserveError> {
        let mut found = FoundThreads::default();
        for name in names {
            let threads: Vec<&Target> = self.threads.iter().filter(|thread| self.is_meant(name, thread)).collect();
            let without = self.without(name);
            if threads.is_empty() {
                return Err(self.nothing(name, &without));
            }
            found.threads.extend(threads.into_iter().cloned());
            found.without.extend(without);
        }
        found.threads.sort_by_key(|target| target.thread.pid);
        found.threads.dedup_by_key(|target| target.thread.pid);
        found.without.sort();
        found.without.dedup();
        Ok(found)
    }

    fn is_meant(&self, name: &str, thread: &Target) -> bool {
        let like = |text: &str| is_like(name, text);
        if like(&thread.name) {
            return true;
        }
        match role_of(&thread.name) {
            Some(ThreadRole::Interrupt { number, handler }) => {
                let listed = self.interrupts.iter().find(|interrupt| interrupt.number == number);
                let handlers = listed.map_or("", |listed| listed.name.as_str());
                let cut = thread.name.len() == NAME_MAX;
                let is_its = |one: &str| one == handler || (cut && one.starts_with(handler));
                like(&number.to_string())
                    || like(handler)
                    || like(handlers)
                    || handlers.split(',').any(|one| is_its(one) && like(one))
            }
            Some(ThreadRole::Packets { device, queue }) => like(device) || like(&format!("{device}-{queue}")),
            None => false,
        }
    }

    /// Interrupts of this name without a thread.
    fn without(&self, name: &str) -> Vec<String> {
        let has_thread = |number: u32| {
            let is_served_by = |thread: &Target| match role_of(&thread.name) {
                Some(ThreadRole::Interrupt { number: served, .. }) => served == number,
                _ => false,
            };
            self.threads.iter().any(is_served_by)
        };
        let meant = self.interrupts.iter().filter(|interrupt| {
            let mut handlers = interrupt.name.split(',').chain([interrupt.name.as_str()]);
            is_like(name, &interrupt.number.to_string()) || handlers.any(|one| is_like(name, one))
        });
        meant.filter(|one| !has_thread(one.number)).map(|one| format!("{} {}", one.number, one.name)).collect()
    }

    /// The reason why there is no thread.
    fn nothing(&self, name: &str, without: &[String]) -> ReserveError {
        let (name, forced) = (name.to_owned(), self.forced);
        if !without.is_empty() {
            return ReserveError::NoInterruptThread { interrupts: without.to_vec(), forced };
        }
        if let Some(device) = self.devices.iter().find(|device| is_like(&name, device)) {
            return ReserveError::NoPacketThread { device: device.clone() };
        }
        if self.softirqs.iter().any(|softirq| is_like(&name, softirq)) {
            return ReserveError::Softirq { name };
        }
        ReserveError::NoInterrupt { name }
    }
}

#[cfg(test)]
mod tests {
    use takt_linux::process::Identity;
    use takt_linux::sched::Class;

    use super::*;

    fn thread(id: u32, name: &str) -> Target {
        Target {
            thread: Identity { pid: id, start: 1 },
            process: id,
            name: name.to_owned(),
            of_kernel: true,
            class: Class::Fifo { priority: 50 },
            affinity: vec![0],
        }
    }

    /// A made-up machine.
    fn machine() -> InterruptSources {
        let threads = [
            "irq/16-eth0",
            "irq/16-ehci_hcd:usb1",
            "irq/24-s-nvme0q0",
            "irq/31-enp0s31f",
            "napi/eth0-8193",
            "napi/eth0-8194",
            "napi/br-lan-3",
        ];
        let interrupts = [
            (16, "ehci_hcd:usb1,eth0"),
            (24, "nvme0q0"),
            (31, "enp0s31f6-rx"),
            (36, "virtio1-req.0"),
            (37, "virtio1-config"),
        ];
        InterruptSources {
            threads: (100..).zip(threads).map(|(id, name)| thread(id, name)).collect(),
            interrupts: interrupts.map(|(number, name)| InterruptName { number, name: name.to_owned() }).into(),
            devices: ["lo", "eth0", "wlan0"].map(str::to_owned).into(),
            softirqs: ["TIMER", "NET_RX"].map(str::to_owned).into(),
            forced: false,
        }
    }

    fn ids(names: &[&str]) -> Vec<u32> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        machine().find(&names).unwrap().threads.iter().map(|target| target.thread.pid).collect()
    }

    #[test]
    fn a_thread_is_meant_by_what_it_serves() {
        assert_eq!(ids(&["16"]), [100, 101], "by number, all that serve it");
        assert_eq!(ids(&["ehci_hcd:usb1"]), [101], "by one handler of several");
        assert_eq!(ids(&["ehci_hcd:usb1,eth0"]), [100, 101], "as observe names it");
        assert_eq!(ids(&["eth0"]), [100, 104, 105], "a handler and a device of one name");
        assert_eq!(ids(&["eth0-8194"]), [105]);
        assert_eq!(ids(&["napi/eth0-*"]), [104, 105]);
        assert_eq!(ids(&["br-lan"]), [106], "a device with a hyphen in its name");
        assert_eq!(ids(&["nvme0q0", "24", "irq/24*"]), [102], "once");
        assert_eq!(ids(&["enp0s31f6-rx"]), [103], "its name was cut off");
        let part = machine().find(&["1".to_owned()]);
        assert!(matches!(part, Err(ReserveError::NoInterrupt { .. })), "a part of a number is none");
    }

    #[test]
    fn interrupts_without_a_thread_are_noted() {
        let found = machine().find(&["*".to_owned()]).unwrap();
        assert_eq!(found.threads.len(), 7);
        assert_eq!(found.without, ["36 virtio1-req.0", "37 virtio1-config"]);
        let note = "left out, because they have no thread: interrupts 36 (virtio1-req.0), 37 (virtio1-config)";
        assert_eq!((found.note().as_deref(), FoundThreads::default().note()), (Some(note), None));
    }

    #[test]
    fn a_source_without_a_thread_is_an_error_with_a_remedy() {
        let says = |machine: &InterruptSources, name: &str| {
            let error = machine.find(&[name.to_owned()]).unwrap_err();
            format!("{}: {error}", error.exit_code())
        };
        let machine = machine();
        assert_eq!(
            says(&machine, "36"),
            "3: interrupt 36 (virtio1-req.0) has no thread: its handler runs in any interrupted thread, so nothing \
             can be reserved for it\n\
             threads for interrupts: \"threadirqs\" on the kernel's command line, or a kernel with \
             PREEMPT_RT; for packets of a network device: echo 1 > /sys/class/net/DEVICE/threaded, and \
             then --irq DEVICE"
        );
        assert_eq!(
            says(&InterruptSources { forced: true, ..machine.clone() }, "virtio1-*"),
            "3: interrupts 36 (virtio1-req.0), 37 (virtio1-config) have no threads: their handlers run \
             in any thread that they interrupt, so nothing can be reserved for them\n\
             this kernel gives threads to all interrupts that can have them; these are excepted by \
             their drivers (IRQF_NO_THREAD)"
        );
        assert_eq!(
            says(&machine, "wlan0"),
            "3: wlan0 has no thread: the softirq NET_RX receives its packets, in any thread that it \
             interrupts\ngive the device threads (as root, Linux 5.12, if its driver has NAPI): echo 1 > \
             /sys/class/net/wlan0/threaded"
        );
        assert_eq!(
            says(&machine, "NET_RX"),
            "3: NET_RX is a softirq: it runs in the interrupted thread, or in ksoftirqd/N; the \
             kernel binds ksoftirqd/N to CPU N, so SCHED_DEADLINE refuses the thread\n\
             reserve for a thread that does its work instead: of an interrupt on a kernel with \
             PREEMPT_RT, or of a network device with 1 in /sys/class/net/DEVICE/threaded"
        );
        assert_eq!(
            says(&machine, "eth9"),
            "2: there is no interrupt and no network device \"eth9\", and no thread irq/... or napi/... \
             of that name; /proc/interrupts lists interrupts (first and last column), /sys/class/net \
             devices; * stands for any characters"
        );
    }

    #[test]
    fn this_machine_can_be_asked() {
        let here = InterruptSources::gather();
        println!("{} threads, {} interrupts, devices {:?}", here.threads.len(), here.interrupts.len(), here.devices);
        for thread in &here.threads {
            let found = here.find(std::slice::from_ref(&thread.name)).unwrap();
            assert!(found.threads.contains(thread), "{}", thread.name);
        }
    }
}
