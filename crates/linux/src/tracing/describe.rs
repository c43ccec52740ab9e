//! Descriptions for decoding: the kernel's formats of pages and events, and names of interrupts.

use std::fs;

use super::error::RecorderError;
use super::events::Event;
use super::instance::Instance;

/// The kernel's descriptions of the fields of pages and events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptions {
    /// `events/header_page`.
    pub header_page: String,
    /// `events/header_event`.
    pub header_event: String,
    /// The format files of the events that are recorded.
    pub events: Vec<EventFormat>,
    /// The format files of the tracer's own entries (`events/ftrace`), which files of trace-cmd carry.
    pub own: Vec<EventFormat>,
    /// `trace_clock`: the clocks, the one in use in brackets.
    pub clock: String,
}

/// An event's format file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventFormat {
    /// Its subsystem.
    pub system: String,
    /// Its name.
    pub name: String,
    /// The text of the file.
    pub text: String,
}

impl Descriptions {
    pub(super) fn read(instance: &Instance, events: &[Event]) -> Result<Descriptions, RecorderError> {
        let recorded = events.iter().filter(|event| instance.path(&format!("events/{}", event.path())).exists());
        let recorded = recorded.map(|event| {
            let text = instance.read(&format!("events/{}/format", event.path()))?;
            Ok(EventFormat { system: event.system.clone(), name: event.name.clone(), text })
        });
        Ok(Descriptions {
            header_page: instance.read("events/header_page")?,
            header_event: instance.read("events/header_event")?,
            events: recorded.collect::<Result<_, RecorderError>>()?,
            own: own(instance),
            clock: instance.read("trace_clock")?.trim().to_owned(),
        })
    }

    /// Bytes of a page, as [`Recorder::sweep`](super::Recorder::sweep) hands them over.
    ///
    /// # Errors
    /// The description of pages cannot be parsed.
    pub fn page_size(&self) -> Result<usize, RecorderError> {
        let number = |key: &str| {
            let line = self.header_page.lines().find(|line| line.contains(" data;"))?;
            line.split_once(key)?.1.split(';').next()?.trim().parse::<usize>().ok()
        };
        match (number("offset:"), number("size:")) {
            (Some(offset @ 1..=64), Some(size @ 1..)) if offset + size <= PAGE_MAX => Ok(offset + size),
            _ => Err(RecorderError::Description {
                path: "events/header_page".to_owned(),
                cause: format!("no size of a page in {:?}", self.header_page),
            }),
        }
    }
}

/// The kernel allows no larger ones.
const PAGE_MAX: usize = 1 << 20;

/// The kernel's own entries. Instances lack that folder, so take it from their tracer.
fn own(instance: &Instance) -> Vec<EventFormat> {
    let Ok(entries) = fs::read_dir(instance.tracefs().join("events/ftrace")) else { return Vec::new() };
    let mut all: Vec<EventFormat> = entries
        .flatten()
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path().join("format")).ok()?;
            Some(EventFormat { system: "ftrace".to_owned(), name: entry.file_name().into_string().ok()?, text })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// An interrupt and its handlers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterruptName {
    /// The kernel's number, as in events.
    pub number: u32,
    /// Its handlers, with commas between: `virtio0-input.0`.
    pub name: String,
}

/// Interrupts that have a handler, by number.
#[must_use]
pub fn interrupts() -> Vec<InterruptName> {
    let mut all = listed("/sys/kernel/irq");
    if all.is_empty() {
        all = parse_interrupts(&fs::read_to_string("/proc/interrupts").unwrap_or_default());
    }
    all.sort_by_key(|interrupt| interrupt.number);
    all
}

fn listed(folder: &str) -> Vec<InterruptName> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("actions")).ok()?.trim().to_owned();
        (!name.is_empty()).then_some(InterruptName { number, name })
    });
    named.collect()
}

/// `36:  0  2089063  PCI-MSIX-0000:00:02.0  1-edge  virtio1-req.0`: number, a count per CPU of the
/// first line, interrupt controller, handlers.
fn parse_interrupts(text: &str) -> Vec<InterruptName> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |head| head.split_whitespace().count());
    let row = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let words: Vec<&str> = rest.split_whitespace().skip(cpus).collect();
        // Handlers have commas and spaces between them.
        let mut first = words.len().checked_sub(1)?;
        while first > 0 && words[first - 1].ends_with(',') {
            first -= 1;
        }
        Some(InterruptName { number, name: words[first..].join("").to_owned() })
    };
    lines.filter_map(row).collect()
}

/// Names of softirqs, by number: `TIMER`, `NET_RX`.
#[must_use]
pub fn softirqs() -> Vec<String> {
    let text = fs::read_to_string("/proc/softirqs").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_named_by_their_handlers() {
        let text = "           CPU0       CPU1       \n 24:          1          0  IO-APIC   5-edge      \
             ACPI:Ged\n 16:  3 4  IO-APIC  16-fasteoi   ehci_hcd:usb1, eth0\nNMI:          0          0   \
             Non-maskable interrupts\n";
        let found = parse_interrupts(text);
        let expected = [(24, "ACPI:Ged"), (16, "ehci_hcd:usb1,eth0")];
        assert_eq!(found.len(), expected.len());
        for (found, (number, name)) in found.iter().zip(expected) {
            assert_eq!((found.number, found.name.as_str()), (number, name));
        }
        println!("{} interrupts here", interrupts().len());
        assert!(softirqs().iter().any(|name| name == "TIMER"));
    }

    #[test]
    fn a_page_ends_where_its_data_does() {
        let of = |header_page: &str| {
            let header_page = header_page.to_owned();
            let (header_event, clock) = (String::new(), String::new());
            Descriptions { header_page, header_event, events: Vec::new(), own: Vec::new(), clock }.page_size()
        };
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: char \
             data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(of(text), Ok(4096));
        assert!(of("nothing").is_err());
        assert!(of("\tfield: char data;\toffset:16;\tsize:99999999;\tsigned:0;\n").is_err());
    }
}
