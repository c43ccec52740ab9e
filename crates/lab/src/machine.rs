//! QEMU's command line for a machine in instruction-counted virtual time.

/// The devices of a machine, by how well a run repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Devices {
    /// One CPU, serial line, real-time clock, e1000 network cards. Two runs are to give the same bytes.
    Exact,
    /// Several CPUs, virtio network cards, disks. Runs agree in shapes and ratios.
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
/// The kernel modules of an IDE disk.
pub const DISK_MODULES: [&str; 2] = ["ata_piix", "sd_mod"];
/// The kernel module of a virtio disk.
pub const VIRTIO_DISK_MODULE: &str = "virtio_blk";
/// The kernel module that finds virtio devices. Some kernels contain it.
pub const VIRTIO_MODULE: &str = "virtio_pci";
/// The largest disk.
pub const DISK_MIB_MAX: u32 = 1 << 20;
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
    /// The size of its IDE disk, which reads as zeros. 0: none. With a disk runs do not repeat.
    pub disk_mib: u32,
    /// The size of its virtio disk, which reads as zeros. 0: none. With a disk runs do not repeat.
    pub virtio_disk_mib: u32,
    /// Its memory.
    pub memory_mib: u32,
    /// The guest can have virtual machines of its own (the module kvm-amd).
    pub nests: bool,
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
    /// Whether it has a virtio device.
    #[must_use]
    pub fn has_virtio(&self) -> bool {
        self.virtio_disk_mib > 0 || self.cards > 0 && self.devices == Devices::Tolerant
    }

    /// The arguments of qemu-system-x86_64.
    ///
    /// `sleep=off` makes virtual time jump over idle times. `clock=vm` ties the real-time clock to
    /// virtual time. With one CPU an instruction takes 1 ns. The same holds for several CPUs, which
    /// take turns in one thread.
    ///
    /// `rr=record` makes QEMU's main loop wait until the CPU's thread has counted its instructions.
    /// Without it the main loop can move the clock to the next timer between a halt and that count.
    /// Then the timer is late by the instructions not yet counted, whenever the host delays the CPU's
    /// thread there. The recording itself is not needed. A disk does not work so: with `sleep=off`
    /// QEMU 7.2 never delivers its answers. With several CPUs QEMU refuses to record. So tolerant devices run
    /// without it.
    #[must_use]
    pub fn arguments(&self, files: &Files<'_>) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(ToString::to_string));
        add(&["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"]);
        let repeats = self.devices == Devices::Exact && self.disk_mib == 0 && self.virtio_disk_mib == 0;
        let record = if repeats && self.cpus == 1 { ",rr=record,rrfile=/dev/null" } else { "" };
        add(&["-accel", "tcg,thread=single", "-icount", &format!("shift=0,sleep=off{record}")]);
        add(&["-rtc", "base=2026-01-01,clock=vm"]);
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
        if self.disk_mib > 0 {
            let size = u64::from(self.disk_mib) << 20;
            add(&["-blockdev", &format!("null-co,node-name=disk,read-zeroes=on,size={size}")]);
            add(&["-device", "ide-hd,drive=disk,bus=ide.0"]);
        }
        if self.virtio_disk_mib > 0 {
            let size = u64::from(self.virtio_disk_mib) << 20;
            add(&["-blockdev", &format!("null-co,node-name=virtio-disk,read-zeroes=on,size={size}")]);
            // The CPU's thread takes a request at once. Otherwise the guest's time could go on before that.
            add(&["-device", "virtio-blk-pci,drive=virtio-disk,ioeventfd=off"]);
        }
        add(&["-kernel", files.kernel, "-initrd", files.initrd, "-append", &self.kernel_line()]);
        arguments
    }

    /// The kernel's command line. A panic ends the machine at once.
    fn kernel_line(&self) -> String {
        // kvm-amd wants a clock of constant rate. The clock of virtual time has one, but QEMU does not tell the kernel.
        let nests = if self.nests { " setcpuid=constant_tsc" } else { "" };
        format!("console=ttyS0 quiet nokaslr panic=-1 threadirqs net.ifnames=0{nests}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_follows_from_the_machine_alone() {
        let files = Files { kernel: "k", initrd: "i", console: "c", frames: "a,b" };
        let exact = Machine {
            devices: Devices::Exact,
            cpus: 1,
            cards: 2,
            disk_mib: 0,
            virtio_disk_mib: 0,
            memory_mib: 512,
            nests: false,
            seed: 7,
        };
        let line = exact.arguments(&files).join(" ");
        assert!(line.contains("-seed 7 -smp 1 -m 512 -serial file:c -chardev file,id=frames,path=a,,b"), "{line}");
        assert!(line.contains("-device isa-debugcon,iobase=0xe9,chardev=frames"), "{line}");
        assert!(line.contains("-device e1000,netdev=net1,mac=52:54:00:00:00:02,romfile="), "{line}");
        assert!(line.contains("-icount shift=0,sleep=off,rr=record,rrfile=/dev/null -rtc"), "{line}");
        assert!(!line.contains("virtio") && line.ends_with(" net.ifnames=0"), "{line}");
        let tolerant = Machine { devices: Devices::Tolerant, cpus: 2, cards: 1, disk_mib: 8, nests: true, ..exact };
        let line = tolerant.arguments(&files).join(" ");
        assert!(line.contains("-device virtio-net-pci,netdev=net0"), "{line}");
        assert!(line.contains("-icount shift=0,sleep=off -rtc"), "{line}");
        assert!(line.contains("size=8388608 -device ide-hd,drive=disk"), "{line}");
        assert!(tolerant.has_virtio() && !exact.has_virtio());
        let block = Machine { devices: Devices::Tolerant, cards: 0, virtio_disk_mib: 2, ..exact };
        let block_line = block.arguments(&files).join(" ");
        assert!(block_line.contains("size=2097152 -device virtio-blk-pci,drive=virtio-disk"), "{block_line}");
        assert!(block.has_virtio() && !block_line.contains("rr=") && !block_line.contains("ide-hd"), "{block_line}");
        let two = Machine { disk_mib: 0, ..tolerant }.arguments(&files).join(" ");
        assert!(two.contains("-smp 2") && !two.contains("rr="), "{two}");
        assert!(line.ends_with(" setcpuid=constant_tsc"), "{line}");
    }
}
