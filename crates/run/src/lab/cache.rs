//! Fetched kernels, each with the checksums of its files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use takt_lab::modules::{depends, order, plain};
use takt_lab::packages::Flavour;

use super::error::LabError;
use super::programs::output;

/// The file with the checksums, as sha256sum writes them.
pub(super) const SUMS: &str = "SHA256SUMS";

/// A folder with fetched kernels.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// A kernel with its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its release, or the path that was given.
    pub name: String,
    /// The bzImage.
    pub image: PathBuf,
    /// The folder of its modules.
    pub modules: PathBuf,
}

impl Cache {
    /// The cache in this folder.
    #[must_use]
    pub fn at(folder: PathBuf) -> Cache {
        Cache { folder }
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a release.
    pub(super) fn of(&self, release: &str) -> PathBuf {
        self.folder.join("kernels").join(release)
    }

    /// The file with the release of a flavour. Its second line names the suite.
    pub(super) fn newest(&self, flavour: Flavour) -> PathBuf {
        self.folder.join("kernels").join(format!("{}.newest", flavour.name()))
    }

    /// The suite that had the release of a flavour. `None`: unknown.
    pub(super) fn suite(&self, flavour: Flavour) -> Option<String> {
        fs::read_to_string(self.newest(flavour)).ok()?.lines().nth(1).map(str::to_owned)
    }

    /// The kernel of a name: a flavour, a fetched release, or the path of a bzImage. Its checksum
    /// is compared.
    ///
    /// # Errors
    /// It is not in the cache, or was changed.
    pub fn kernel(&self, name: &str) -> Result<Kernel, LabError> {
        if name.contains('/') {
            let image = PathBuf::from(name);
            fs::metadata(&image).map_err(LabError::at(&image))?;
            let modules = image.parent().unwrap_or(Path::new("")).join("kernel");
            return Ok(Kernel { name: name.to_owned(), image, modules });
        }
        let missing = |option: String| LabError::NotCached {
            folder: self.folder.clone(),
            wanted: format!("kernel {name}"),
            option,
        };
        let release = match Flavour::named(name) {
            Some(flavour) => {
                let option = if flavour == Flavour::Rt { String::new() } else { format!(" --kernel {name}") };
                let release = fs::read_to_string(self.newest(flavour)).map_err(|_| missing(option))?;
                release.lines().next().unwrap_or_default().trim().to_owned()
            }
            None => name.to_owned(),
        };
        let folder = self.of(&release);
        if !folder.join(SUMS).exists() {
            return Err(missing(format!(" --kernel {release}")));
        }
        verify(&folder, "vmlinuz")?;
        Ok(Kernel { name: release, image: folder.join("vmlinuz"), modules: folder.join("kernel") })
    }

    /// The static busybox.
    ///
    /// # Errors
    /// It is not in the cache, or was changed.
    pub fn busybox(&self) -> Result<Vec<u8>, LabError> {
        let folder = self.folder.join("busybox");
        let (wanted, option) = ("busybox".to_owned(), String::new());
        if !folder.join(SUMS).exists() {
            return Err(LabError::NotCached { folder: self.folder.clone(), wanted, option });
        }
        verify(&folder, "busybox")?;
        let path = folder.join("busybox");
        fs::read(&path).map_err(LabError::at(path))
    }
}

/// Compares a file with its checksum.
fn verify(folder: &Path, file: &str) -> Result<(), LabError> {
    let path = folder.join(SUMS);
    let sums = fs::read_to_string(&path).map_err(LabError::at(path))?;
    let end = format!("  ./{file}");
    let line = sums.lines().find(|line| line.ends_with(&end));
    let line = line.ok_or_else(|| LabError::Changed(folder.join(file)))?;
    let mut command = Command::new("sha256sum");
    command.args(["-c", "-"]).current_dir(folder);
    match output("sha256sum", &mut command, format!("{line}\n").as_bytes()) {
        Ok(_) => Ok(()),
        Err(LabError::Failed { .. }) => Err(LabError::Changed(folder.join(file))),
        Err(error) => Err(error),
    }
}

/// Writes the checksums of all files below a folder.
pub(super) fn seal(folder: &Path) -> Result<(), LabError> {
    let mut command = Command::new("find");
    command.args([".", "-type", "f", "-exec", "sha256sum", "{}", "+"]).current_dir(folder);
    let sums = output("find", &mut command, &[])?;
    let path = folder.join(SUMS);
    fs::write(&path, sums).map_err(LabError::at(path))
}

impl Kernel {
    /// Whether it has a module of this name. What it lacks may be built in.
    ///
    /// # Errors
    /// Its folder cannot be read.
    pub fn has(&self, name: &str) -> Result<bool, LabError> {
        let mut files = BTreeMap::new();
        list(&self.modules, &mut files)?;
        Ok(files.contains_key(&plain(name)))
    }

    /// The modules of these names and those that they need, unpacked, in the order of loading. The checksums of a
    /// fetched kernel are compared.
    ///
    /// # Errors
    /// A module is missing, was changed, or cannot be unpacked.
    pub fn load(&self, names: &[String]) -> Result<Vec<(String, Vec<u8>)>, LabError> {
        let wanted: Vec<String> = names.iter().map(|name| plain(name)).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut files = BTreeMap::new();
        list(&self.modules, &mut files)?;
        let (mut bytes, mut needs) = (BTreeMap::new(), BTreeMap::new());
        let mut open = wanted.clone();
        while let Some(name) = open.pop() {
            if needs.contains_key(&name) {
                continue;
            }
            let path = files.get(&name).ok_or_else(|| LabError::NoModule {
                kernel: self.name.clone(),
                module: name.clone(),
                folder: self.modules.clone(),
            })?;
            // A fetched kernel has the checksums of all its files.
            let folder = self.image.parent().unwrap_or(Path::new(""));
            if folder.join(SUMS).exists()
                && let Ok(file) = path.strip_prefix(folder)
            {
                verify(folder, &file.to_string_lossy())?;
            }
            let module = unpack(path)?;
            let of = depends(&module);
            open.extend(of.iter().cloned());
            needs.insert(name.clone(), of);
            bytes.insert(name, module);
        }
        let all = order(&wanted, &needs).into_iter();
        Ok(all.filter_map(|name| bytes.remove(&name).map(|module| (name, module))).collect())
    }
}

/// The module files below a folder, by name.
fn list(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), LabError> {
    for entry in fs::read_dir(folder).map_err(LabError::at(folder))? {
        let entry = entry.map_err(LabError::at(folder))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(LabError::at(folder))?);
        let name = entry.file_name();
        if kind.is_dir() {
            list(&path, files)?;
        } else if let Some((name, _)) = name.to_str().and_then(|name| name.split_once(".ko")) {
            files.insert(plain(name), path);
        }
    }
    Ok(())
}

fn unpack(path: &Path) -> Result<Vec<u8>, LabError> {
    let bytes = fs::read(path).map_err(LabError::at(path))?;
    if path.extension().is_some_and(|end| end == "xz") {
        return output("xz", Command::new("xz").args(["-dc"]), &bytes);
    }
    Ok(bytes)
}
