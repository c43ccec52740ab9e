//! QEMU's command line for a machine in instruction-counted virtual time.

/// The devices of a machine, by how well a run repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Devices {
    /// One CPU, serial line, real-time clock, e1000 network cards. Two runs are to give the same bytes.
    Exact,
    /// Several CPUs, virtio network cards. Runs agree in shapes and ratios.
    Tolerant,
}

impl Devices {
    /// Its name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Devices::Exact => "exact",
            Devices::Tolerant => "tolerant",
        }
    }

    /// The kernel module of its network cards.
    #[must_use]
    pub fn card_module(self) -> &'static str {
        match self {
            Devices::Exact => "e1000",
            Devices::Tolerant => "virtio_net",
        }
    }
}

/// The most CPUs of a machine.
pub const CPUS_MAX: u32 = 16;
/// The most network cards. All hang on one hub.
pub const CARDS_MAX: u32 = 8;
/// The port that the guest writes its frames to.
pub const FRAMES_PORT: u16 = 0xe9;

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Its devices.
    pub devices: Devices,
    /// Its CPUs.
    pub cpus: u32,
    /// Its network cards.
    pub cards: u32,
    /// Its memory.
    pub memory_mib: u32,
    /// The seed of all randomness that the guest gets from QEMU.
    pub seed: u64,
}

/// The files of a boot.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The kernel.
    pub kernel: &'a str,
    /// The archive with its first file system.
    pub initrd: &'a str,
    /// Gets the text of the guest's console.
    pub console: &'a str,
    /// Gets the guest's frames.
    pub frames: &'a str,
}

impl Machine {
    /// The arguments of qemu-system-x86_64.
    ///
    /// `sleep=off` makes virtual time jump over idle times. `clock=vm` ties the real-time clock to
    /// virtual time. With one CPU an instruction takes 1 ns. The same holds for several CPUs, which
    /// take turns in one thread.
    #[must_use]
    pub fn arguments(&self, files: &Files<'_>) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(ToString::to_string));
        add(&["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"]);
        add(&["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-rtc", "base=2026-01-01,clock=vm"]);
        add(&["-machine", "pc", "-cpu", "max", "-seed", &self.seed.to_string()]);
        add(&["-smp", &self.cpus.to_string(), "-m", &self.memory_mib.to_string()]);
        add(&["-serial", &format!("file:{}", files.console)]);
        add(&["-chardev", &format!("file,id=frames,path={}", files.frames.replace(',', ",,"))]);
        add(&["-device", &format!("isa-debugcon,iobase={FRAMES_PORT:#x},chardev=frames")]);
        let card = match self.devices {
            Devices::Exact => "e1000",
            Devices::Tolerant => "virtio-net-pci",
        };
        for number in 0..self.cards {
            add(&["-netdev", &format!("hubport,id=net{number},hubid=0")]);
            add(&["-device", &format!("{card},netdev=net{number},mac=52:54:00:00:00:{:02x},romfile=", number + 1)]);
        }
        add(&["-kernel", files.kernel, "-initrd", files.initrd, "-append", &self.kernel_line()]);
        arguments
    }

    /// The kernel's command line. A panic ends the machine at once.
    fn kernel_line(&self) -> String {
        "console=ttyS0 quiet nokaslr panic=-1 threadirqs net.ifnames=0".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_follows_from_the_machine_alone() {
        let files = Files { kernel: "k", initrd: "i", console: "c", frames: "a,b" };
        let exact = Machine { devices: Devices::Exact, cpus: 1, cards: 2, memory_mib: 512, seed: 7 };
        let line = exact.arguments(&files).join(" ");
        assert!(line.contains("-seed 7 -smp 1 -m 512 -serial file:c -chardev file,id=frames,path=a,,b"), "{line}");
        assert!(line.contains("-device isa-debugcon,iobase=0xe9,chardev=frames"), "{line}");
        assert!(line.contains("-device e1000,netdev=net1,mac=52:54:00:00:00:02,romfile="), "{line}");
        assert!(!line.contains("virtio"), "{line}");
        let tolerant = Machine { devices: Devices::Tolerant, cpus: 2, cards: 1, ..exact };
        assert!(tolerant.arguments(&files).join(" ").contains("-device virtio-net-pci,netdev=net0"));
    }
}
