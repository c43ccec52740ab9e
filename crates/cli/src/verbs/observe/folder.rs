//! Reads a folder with recordings as raw pages, and chooses a recording.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use takt_trace::{CPUS_MAX, Format, HEAD, OpenError, PageLayout, Recording, is_trace, refuse_foreign, unpacked};

use crate::failure::Failure;
use crate::input::{self, TEXT_MAX, TRACE_MAX};

/// Folders of a recording nest no deeper: `instances/x/per_cpu/cpu0/trace_pipe_raw`.
const DEPTH_MAX: usize = 8;
/// So many files of one recording are looked at.
const FILES_MAX: usize = 100_000;
/// Files of other forms have one of these endings.
const ENDINGS: [&str; 9] = ["dat", "txt", "html", "json", "gz", "trace", "ctrace", "perfetto-trace", "pftrace"];

#[derive(Default)]
pub(super) struct Folder {
    formats: Vec<Format>,
    layout: Option<PageLayout>,
    clock: String,
    cpus: BTreeMap<u32, Vec<u8>>,
    /// Format files that cannot be read.
    pub(super) broken: Vec<String>,
    /// The folder whose pages are read, and recordings that are not: both empty unless there are several.
    pub(super) chosen: String,
    pub(super) left_out: Vec<String>,
}

/// The files of a folder, as far as they are of a recording.
#[derive(Default)]
struct Files {
    /// By the folder of the recording, the pages of each CPU.
    pages: BTreeMap<PathBuf, BTreeMap<u32, PathBuf>>,
    formats: Vec<PathBuf>,
    header_pages: Vec<PathBuf>,
    clocks: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl Folder {
    pub(super) fn open(&self) -> Recording<'_> {
        let layout = self.layout.unwrap_or(PageLayout::usual(8, 4096));
        let first = self.cpus.values().find(|pages| !pages.is_empty());
        let endian = layout.endian_of(first.map_or(&[], Vec::as_slice));
        let cpus = self.cpus.iter().map(|(cpu, pages)| (*cpu, pages.as_slice())).collect();
        Recording::pages(&self.formats, layout, endian, cpus).with_clock(&self.clock)
    }

    /// Reads raw pages (`cpu0`, `cpu1`, ... or `per_cpu/cpu0/trace_pipe_raw`), format files and
    /// `header_page`, anywhere below the folder. If there are several recordings, the least deep
    /// one with pages is read, then by name.
    pub(super) fn read(path: &str) -> Result<Folder, Failure> {
        let files = Files::of(path)?;
        let has_pages = |cpus: &BTreeMap<u32, PathBuf>| {
            cpus.values().any(|file| file.metadata().is_ok_and(|metadata| metadata.len() > 0))
        };
        let mut roots: Vec<&PathBuf> = files.pages.keys().collect();
        roots.sort_by_key(|root| (!has_pages(&files.pages[*root]), root.components().count(), (*root).clone()));
        let (Some(root), false) = (roots.first().copied(), files.formats.is_empty()) else {
            return Err(files.no_recording(path));
        };
        let mut found = Folder::default();
        let mut left = TRACE_MAX.bytes;
        for (cpu, file) in &files.pages[root] {
            let bytes = input::whole_file(file, &TRACE_MAX, left)?;
            let bytes = match unpacked(&bytes) {
                Ok(std::borrow::Cow::Borrowed(_)) => bytes,
                Ok(std::borrow::Cow::Owned(unpacked)) => unpacked,
                Err(error) => return Err(Failure::input(format_args!("{}: {error}", file.display()))),
            };
            left = left.saturating_sub(bytes.len() as u64);
            found.cpus.insert(*cpu, bytes);
        }
        for file in files.of_recording(&files.formats, root) {
            match Format::parse(&text(file)?) {
                Ok(format) => found.formats.push(format),
                Err(error) => found.broken.push(format!("{}: {error}", file.display())),
            }
        }
        if let Some(file) = files.of_recording(&files.header_pages, root).first() {
            let layout = PageLayout::parse(&text(file)?);
            let layout = layout.map_err(|error| Failure::input(format_args!("{}: {error}", file.display())))?;
            found.layout = Some(layout);
        }
        if let Some(file) = files.of_recording(&files.clocks, root).first() {
            found.clock = text(file)?;
        }
        let others = roots.iter().skip(1).copied().chain(&files.others);
        found.left_out = others.map(|other| other.display().to_string()).collect();
        if !found.left_out.is_empty() {
            found.chosen = root.display().to_string();
        }
        Ok(found)
    }
}

fn text(file: &Path) -> Result<String, Failure> {
    let bytes = input::whole_file(file, &TEXT_MAX, TEXT_MAX.bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn cpu(name: &str) -> Option<u32> {
    name.strip_prefix("cpu").and_then(|number| number.parse().ok().filter(|cpu| *cpu < CPUS_MAX))
}

fn name_of(path: Option<&Path>) -> String {
    path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}

impl Files {
    fn of(path: &str) -> Result<Files, Failure> {
        let mut found = Files::default();
        let mut folders = vec![(Path::new(path).to_owned(), 0)];
        let mut files = 0;
        while let Some((folder, depth)) = folders.pop() {
            let trouble = |error| Failure::trouble(format_args!("cannot read {}: {error}", folder.display()));
            let entries = fs::read_dir(&folder).map_err(trouble)?;
            let entries = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
            let mut entries = entries.map_err(trouble)?;
            entries.sort();
            for entry in entries {
                if entry.is_dir() {
                    if depth < DEPTH_MAX {
                        folders.push((entry, depth + 1));
                    }
                    continue;
                }
                files += 1;
                if files > FILES_MAX {
                    return Err(Failure::trouble(format_args!(
                        "{} holds more than {FILES_MAX} files (FILES_MAX); name the folder of one recording",
                        input::shown(path)
                    )));
                }
                // A pipe or a device would never end.
                if entry.is_file() {
                    found.add(entry)?;
                }
            }
        }
        Ok(found)
    }

    fn add(&mut self, file: PathBuf) -> Result<(), Failure> {
        let name = name_of(Some(&file));
        let above = file.parent().unwrap_or(Path::new("")).to_owned();
        match name.as_str() {
            "format" => self.formats.push(file),
            "header_page" => self.header_pages.push(file),
            "trace_clock" => self.clocks.push(file),
            "metadata" if matches!(refuse_foreign(&head(&file)), Err(OpenError::Ctf)) => {
                return Err(Failure::input(format_args!("{}: {}", above.display(), OpenError::Ctf)));
            }
            "trace_pipe_raw" => {
                if let Some(number) = cpu(&name_of(Some(&above))) {
                    let root = above.parent().unwrap_or(Path::new(""));
                    self.pages.entry(root.to_owned()).or_default().insert(number, file);
                }
            }
            _ => {
                if let Some(number) = cpu(&name) {
                    self.pages.entry(above).or_default().insert(number, file);
                } else if ENDINGS.iter().any(|ending| name.rsplit_once('.').is_some_and(|(_, last)| last == *ending))
                    && is_trace(&head(&file))
                {
                    self.others.push(file);
                }
            }
        }
        Ok(())
    }

    /// The `files` that describe the recording in `root`. They lie below the nearest enclosing
    /// folder with such files. Files of other recordings are left out.
    fn of_recording<'f>(&self, files: &'f [PathBuf], root: &Path) -> Vec<&'f PathBuf> {
        let others = |file: &Path| {
            let roots = self.pages.keys().filter(|other| !root.starts_with(other.parent().unwrap_or(other)));
            roots
                .map(|other| if other.ends_with("per_cpu") { other.parent().unwrap_or(other) } else { other })
                .any(|other| file.starts_with(other))
        };
        let below = |folder: &Path| -> Vec<&PathBuf> {
            files.iter().filter(|file| file.starts_with(folder) && !others(file)).collect()
        };
        root.ancestors().map(below).find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn no_recording(&self, path: &str) -> Failure {
        const NAMED_MAX: usize = 10;
        let path = input::shown(path);
        if !self.others.is_empty() {
            let names: Vec<String> =
                self.others.iter().take(NAMED_MAX).map(|file| file.display().to_string()).collect();
            let more = if self.others.len() > NAMED_MAX { ", ..." } else { "" };
            return Failure::input(format_args!(
                "{path} is no recording, but a folder with some; name one of {}{more}",
                names.join(", ")
            ));
        }
        let cpus: usize = self.pages.values().map(BTreeMap::len).sum();
        Failure::input(format_args!(
            "{path} is no recording: it should hold raw pages of each CPU (files cpu0, cpu1, ... or \
             per_cpu/cpu0/trace_pipe_raw) and the kernel's format files (events/*/*/format); it has {cpus} and {}",
            self.formats.len()
        ))
    }
}

/// The first bytes of a file; none where it cannot be read.
fn head(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(file) = File::open(file) else { return bytes };
    let _ = file.take(HEAD as u64).read_to_end(&mut bytes);
    bytes
}
