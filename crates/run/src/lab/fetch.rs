//! Fetches Debian's kernels as packages, unpacks them into the cache, and looks into their BTF.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use takt_lab::btf::{QDISC, SCHED_EXT, Uncallable, functions};
use takt_lab::kernel::{section, unpack};
use takt_lab::packages::{Flavour, PrivateApt, mirror, packages, releases};

use super::cache::{Cache, Kernel, seal};
use super::error::LabError;
use super::programs::output;

/// The key ring of Debian's archive.
pub const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// How many kernels an error names.
const KNOWN_MAX: usize = 5;

/// A kernel that is wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// A flavour, a release, or the path of a bzImage.
    pub kernel: String,
    /// The suite of Debian that has it.
    pub suite: String,
    /// The archive. `None`: that of this machine's apt.
    pub mirror: Option<String>,
    /// Whether a kernel without the BPF functions is kept.
    pub any: bool,
    /// Whether the archive is asked for a newer kernel of a flavour than that of the cache.
    pub update: bool,
}

/// A kernel that is there.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The kernel.
    pub kernel: Kernel,
    /// Whether it was in the cache already.
    pub cached: bool,
    /// Functions of sched_ext that cannot be called.
    pub sched_ext: Vec<(&'static str, Uncallable)>,
    /// Functions of queueing disciplines that cannot be called.
    pub qdisc: Vec<(&'static str, Uncallable)>,
    /// How many functions BPF programs can call.
    pub callable: usize,
    /// How many functions of sched_ext it has that no program can call.
    pub untagged: usize,
}

/// Fetches a kernel and busybox, unless the cache has them. The cache knows one newest kernel for each flavour.
/// `step` hears what is done. A kernel that is a file is only examined.
///
/// # Errors
/// See [`LabError`].
pub fn fetch(cache: &Cache, request: &Request, step: &mut dyn FnMut(&str)) -> Result<Fetched, LabError> {
    let mut apt = Apt { cache, request, folder: None };
    let flavour = Flavour::named(&request.kernel);
    let is_other = |flavour| request.update || cache.suite(flavour).is_some_and(|suite| suite != request.suite);
    let found = match cache.kernel(&request.kernel) {
        Ok(kernel) => Some(kernel).filter(|_| !flavour.is_some_and(is_other)),
        Err(LabError::NotCached { .. }) => None,
        Err(error) => return Err(error),
    };
    let is_asked = found.is_none();
    let (kernel, cached) = match found {
        Some(kernel) => (kernel, true),
        None => apt.kernel(step)?,
    };
    step("looking into its BTF");
    let fetched = examine(kernel, cached)?;
    if !request.any
        && let Some(reason) = reason(&fetched)
    {
        // A kernel that an earlier call kept (--any) stays.
        if !cached {
            let _ = fs::remove_dir_all(cache.of(&fetched.kernel.name));
        }
        return Err(LabError::Unsuitable { kernel: fetched.kernel.name, reason });
    }
    if request.kernel.contains('/') {
        return Ok(fetched);
    }
    if cache.busybox().is_err() {
        step("fetching busybox");
        apt.place(&["busybox-static"], &cache.folder().join("busybox"), |folder| {
            // Before usr was merged, it was in /bin.
            let merged = folder.join("usr/bin/busybox");
            let own = if merged.exists() { merged } else { folder.join("bin/busybox") };
            fs::rename(own, folder.join("busybox"))?;
            let _ = fs::remove_dir_all(folder.join("bin"));
            fs::remove_dir_all(folder.join("usr"))
        })?;
    }
    if let Some(flavour) = flavour.filter(|_| is_asked) {
        let path = cache.newest(flavour);
        let text = format!("{}\n{}\n", fetched.kernel.name, request.suite);
        fs::write(&path, text).map_err(LabError::at(path))?;
    }
    Ok(fetched)
}

/// The functions that the kernel offers to BPF programs.
fn examine(kernel: Kernel, cached: bool) -> Result<Fetched, LabError> {
    let bytes = fs::read(&kernel.image).map_err(LabError::at(&kernel.image))?;
    let elf = unpack(&bytes).map_err(|error| LabError::Kernel { path: kernel.image.clone(), error })?;
    let found = section(&elf, ".BTF").and_then(functions);
    let found = found.ok_or_else(|| LabError::NoBtf(kernel.image.clone()))?;
    Ok(Fetched {
        sched_ext: found.lacks(&SCHED_EXT),
        qdisc: found.lacks(&QDISC),
        callable: found.callable(),
        untagged: found.untagged_sched_ext(),
        kernel,
        cached,
    })
}

/// Why a kernel is refused.
fn reason(fetched: &Fetched) -> Option<String> {
    let part = |what: &str, lacks: &[(&str, Uncallable)]| {
        let names = |wanted: Uncallable| -> Option<String> {
            let names: Vec<&str> = lacks.iter().filter(|(_, lack)| *lack == wanted).map(|(name, _)| *name).collect();
            let why = match wanted {
                Uncallable::Absent => "does not have",
                Uncallable::Untagged => "does not let programs call",
            };
            (!names.is_empty()).then(|| format!("{what}: it {why} {}", names.join(", ")))
        };
        [names(Uncallable::Absent), names(Uncallable::Untagged)]
    };
    let parts = [part("sched_ext", &fetched.sched_ext), part("queueing disciplines", &fetched.qdisc)];
    let parts: Vec<String> = parts.into_iter().flatten().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// apt with a private configuration, made at the first use.
struct Apt<'a> {
    cache: &'a Cache,
    request: &'a Request,
    folder: Option<PathBuf>,
}

impl Apt<'_> {
    /// The kernel, and whether it was in the cache already.
    fn kernel(&mut self, step: &mut dyn FnMut(&str)) -> Result<(Kernel, bool), LabError> {
        let wanted = &self.request.kernel;
        step("reading the list of packages");
        let names = self.run("apt-cache", &["pkgnames", "linux-"], None)?;
        let names = String::from_utf8_lossy(&names);
        let known = |flavour| releases(&names, flavour);
        let all = || [known(Flavour::Rt), known(Flavour::Plain)].concat();
        let release = match Flavour::named(wanted) {
            Some(flavour) => known(flavour).into_iter().next(),
            None => all().into_iter().find(|release| release == wanted),
        };
        let release = release.ok_or_else(|| {
            let known: Vec<String> = all().into_iter().take(KNOWN_MAX).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            LabError::NoKernel { suite: self.request.suite.clone(), wanted: wanted.clone(), known }
        })?;
        let folder = self.cache.of(&release);
        let cached = folder.join(super::cache::SUMS).exists();
        if !cached {
            step(&format!("fetching kernel {release}"));
            let packages = packages(&release);
            self.place(&packages.each_ref().map(String::as_str), &folder, |folder| {
                let own = folder.join("usr/lib/modules").join(&release);
                // Before usr was merged, the kernel was in /boot.
                let image = folder.join("boot").join(format!("vmlinuz-{release}"));
                let image = if image.exists() { image } else { own.join("vmlinuz") };
                fs::rename(image, folder.join("vmlinuz"))?;
                fs::rename(own.join("kernel"), folder.join("kernel"))?;
                for part in ["usr", "boot", "lib"] {
                    let _ = fs::remove_dir_all(folder.join(part));
                }
                Ok(())
            })?;
        }
        Ok((self.cache.kernel(&release)?, cached))
    }

    /// Unpacks packages, arranges the files, and gives the folder its name at the end.
    fn place(
        &mut self,
        packages: &[&str],
        to: &Path,
        arrange: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<(), LabError> {
        let apt = self.folder()?;
        let new = apt.join("new");
        let _ = fs::remove_dir_all(&new);
        let (debs, files) = (new.join("debs"), new.join("files"));
        for folder in [&debs, &files] {
            fs::create_dir_all(folder).map_err(LabError::at(folder))?;
        }
        self.run("apt-get", &[&["download", "-qq"], packages].concat(), Some(&debs))?;
        for entry in fs::read_dir(&debs).map_err(LabError::at(&debs))? {
            let deb = entry.map_err(LabError::at(&debs))?.path();
            output("dpkg-deb", Command::new("dpkg-deb").arg("-x").args([&deb, &files]), &[])?;
        }
        arrange(&files).map_err(LabError::at(&files))?;
        seal(&files)?;
        let _ = fs::remove_dir_all(to);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(LabError::at(parent))?;
        }
        fs::rename(&files, to).map_err(LabError::at(to))?;
        fs::remove_dir_all(&new).map_err(LabError::at(new))
    }

    fn run(&mut self, program: &'static str, arguments: &[&str], at: Option<&Path>) -> Result<Vec<u8>, LabError> {
        let folder = self.folder()?;
        apt(program, arguments, &folder, at.unwrap_or(&folder))
    }

    fn folder(&mut self) -> Result<PathBuf, LabError> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        if !Path::new(KEYS).exists() {
            return Err(LabError::NoKeys(KEYS));
        }
        let mirror = self.request.mirror.clone().or_else(own_mirror).ok_or(LabError::NoMirror)?;
        let folder = self.cache.folder().join("apt");
        for part in ["state/lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).map_err(LabError::at(part))?;
        }
        let folder = fs::canonicalize(&folder).map_err(LabError::at(&folder))?;
        let text = folder.to_string_lossy();
        let private = PrivateApt { folder: &text, mirror: &mirror, suite: &self.request.suite, keys: KEYS };
        let files = [
            ("apt.conf", private.configuration()),
            ("sources.list", private.sources()),
            ("state/status", String::new()),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text).map_err(LabError::at(path))?;
        }
        apt("apt-get", &["update", "-qq", "-o", "APT::Update::Error-Mode=any"], &folder, &folder)?;
        Ok(self.folder.insert(folder).clone())
    }
}

fn apt(program: &'static str, arguments: &[&str], folder: &Path, at: &Path) -> Result<Vec<u8>, LabError> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(at).env("APT_CONFIG", folder.join("apt.conf"));
    output(program, &mut command, &[]).map_err(|error| match error {
        LabError::Failed { said, .. } => LabError::Network { said },
        other => other,
    })
}

/// The archive of this machine's apt.
fn own_mirror() -> Option<String> {
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = parts.collect();
    files.sort();
    files.insert(0, PathBuf::from("/etc/apt/sources.list"));
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| mirror(&text))
}
