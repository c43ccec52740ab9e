//! The guest's files: a first script, programs, modules, and a folder for each experiment.
//!
//! `/init` mounts file systems, loads modules and starts the agent, `takt lab guest`. The agent runs
//! the experiments of [`FOLDER`] in order, and writes frames.

use crate::initrd::{EntryError, Initrd};

/// The folder of experiments. Each has a folder in it, named by [`name`].
pub const FOLDER: &str = "lab";
/// In the folder of an experiment: its words, each closed by NUL.
pub const COMMAND: &str = "command";
/// In the folder of an experiment: the log that it writes.
pub const LOG: &str = "log.takt";
/// The folder of the user's files, in which each experiment starts.
pub const FILES: &str = "lab/files";
/// The most experiments of a boot.
pub const EXPERIMENTS_MAX: usize = 64;
/// The most bytes of a result that come back: of a log, or of an output. A longer one is cut, and has
/// one byte more.
pub const RESULT_MAX: u64 = 16 << 20;

/// The name of the folder of an experiment.
#[must_use]
pub fn name(experiment: usize) -> String {
    format!("{experiment:02}")
}

/// A command that runs in the guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Experiment {
    /// The program and its arguments.
    pub command: Vec<String>,
}

impl Experiment {
    /// The bytes of its file [`COMMAND`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.command.iter().flat_map(|word| word.bytes().chain([0])).collect()
    }

    /// Reads its file [`COMMAND`]. `None`: it has no word, or the last one is not closed.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Experiment> {
        let words = bytes.strip_suffix(&[0])?.split(|&byte| byte == 0);
        Some(Experiment { command: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect() })
    }
}

/// The programs and files of a guest.
#[derive(Default)]
pub struct Guest<'a> {
    /// The static takt.
    pub takt: &'a [u8],
    /// The static busybox.
    pub busybox: &'a [u8],
    /// Unpacked kernel modules, in the order of loading.
    pub modules: &'a [(String, Vec<u8>)],
    /// Parameters of modules, by name: `dma=0` and so on, separated by blanks.
    pub parameters: &'a [(String, String)],
    /// The user's files, by name.
    pub files: &'a [(String, Vec<u8>)],
    /// The commands, in order.
    pub experiments: &'a [Experiment],
}

impl Guest<'_> {
    /// The archive.
    ///
    /// # Errors
    /// Two files have one name, or a name is no path.
    pub fn initrd(&self) -> Result<Initrd, EntryError> {
        let mut initrd = Initrd::default();
        for folder in ["dev", "proc", "sys", "tmp", "run", "root", "var", FILES] {
            initrd.folder(folder)?;
        }
        initrd.program("bin/busybox", self.busybox)?;
        initrd.link("bin/sh", "busybox")?;
        initrd.program("bin/takt", self.takt)?;
        for (number, (name, bytes)) in self.modules.iter().enumerate() {
            initrd.file(&format!("modules/{number:02}-{name}.ko"), bytes.as_slice())?;
            if let Some((_, text)) = self.parameters.iter().find(|(module, _)| module == name) {
                initrd.file(&format!("modules/{number:02}-{name}.parameters"), text.as_bytes())?;
            }
        }
        for (name, bytes) in self.files {
            initrd.program(&format!("{FILES}/{name}"), bytes.as_slice())?;
        }
        for (number, experiment) in self.experiments.iter().enumerate() {
            initrd.file(&format!("{FOLDER}/{}/{COMMAND}", name(number)), experiment.encode())?;
        }
        initrd.program("init", INIT)?;
        Ok(initrd)
    }
}

/// The agent is no part of the measurement: it waits while an experiment runs.
const INIT: &str = "\
#!/bin/sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root LC_ALL=C.UTF-8
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tracefs tracing /sys/kernel/tracing
[ ! -d /sys/fs/bpf ] || mount -t bpf bpf /sys/fs/bpf
ip link set lo up
for module in /modules/*.ko; do
    parameters=
    [ ! -e \"${module%.ko}.parameters\" ] || parameters=$(cat \"${module%.ko}.parameters\")
    [ ! -e \"$module\" ] || insmod \"$module\" $parameters || echo \"cannot load $module\"
done
takt lab guest || echo \"the agent failed\"
poweroff -f
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_whatever_they_hold() {
        for command in [vec!["true"], vec!["sh", "-c", "echo \"a\nb\"", ""]] {
            let experiment = Experiment { command: command.into_iter().map(str::to_owned).collect() };
            assert_eq!(Experiment::decode(&experiment.encode()), Some(experiment));
        }
        assert_eq!(Experiment::decode(b""), None);
        assert_eq!(Experiment::decode(b"true"), None);
    }

    #[test]
    fn the_same_guest_has_the_same_bytes() {
        let experiments = [Experiment { command: vec!["true".to_owned()] }];
        let guest = Guest { takt: b"t", busybox: b"b", experiments: &experiments, ..Guest::default() };
        let archive = guest.initrd().unwrap().archive();
        assert_eq!(archive, guest.initrd().unwrap().archive());
        let twice = [("a".to_owned(), vec![]), ("a".to_owned(), vec![])];
        assert!(Guest { files: &twice, ..guest }.initrd().is_err());
    }
}
