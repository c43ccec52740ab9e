//! The kernel's counts of its ring buffers: events read, waiting and lost.

use super::error::RecorderError;
use super::instance::Instance;

/// One CPU's ring buffer, in events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuCount {
    /// The CPU, by the kernel's number.
    pub cpu: u32,
    /// Events read.
    pub read: u64,
    /// Events recorded and not read yet.
    pub waiting: u64,
    /// Events overwritten before they were read, because the buffer was full.
    pub overrun: u64,
    /// Events lost because interrupts recorded more than a whole buffer within one event.
    pub commit_overrun: u64,
    /// Events not recorded, because the buffer was full and did not overwrite.
    pub dropped: u64,
}

impl CpuCount {
    /// All events that nobody will read.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.overrun.saturating_add(self.commit_overrun).saturating_add(self.dropped)
    }
}

pub(super) fn read(instance: &Instance, cpu: u32) -> Result<CpuCount, RecorderError> {
    let file = format!("per_cpu/cpu{cpu}/stats");
    let text = instance.read(&file)?;
    parse(cpu, &text).ok_or_else(|| RecorderError::Description {
        path: instance.path(&file).display().to_string(),
        cause: "a counter is missing".to_owned(),
    })
}

fn parse(cpu: u32, text: &str) -> Option<CpuCount> {
    let of = |name: &str| -> Option<u64> {
        let (_, value) = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?;
        value.trim().parse().ok()
    };
    Some(CpuCount {
        cpu,
        read: of("read events").unwrap_or(0),
        waiting: of("entries")?,
        overrun: of("overrun")?,
        commit_overrun: of("commit overrun")?,
        // Linux 3.x lacks this count.
        dropped: of("dropped events").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read_by_name() {
        let text = "entries: 3\noverrun: 4\ncommit overrun: 5\nbytes: 1360\noldest event ts: 66985.1\nnow ts: \
             66985.8\ndropped events: 6\nread events: 7\n";
        let count = parse(1, text).unwrap();
        assert_eq!(count, CpuCount { cpu: 1, read: 7, waiting: 3, overrun: 4, commit_overrun: 5, dropped: 6 });
        assert_eq!(count.lost(), 15);
        assert_eq!(parse(0, "entries: 3\n"), None);
    }
}
