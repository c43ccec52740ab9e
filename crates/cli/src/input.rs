//! Input of verbs: system files with their traces, and logs.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek as _};
use std::path::Path;

use takt_analysis::compositional::with_share;
use takt_analysis::{PlaceError, SizeError};
use takt_log::{Damage, ReadError, Reader};
use takt_model::{Auto, Component, CpuSet, NodeId, Placement, Span, System, file};
use takt_report::Scene;
use takt_trace::{DAT_MAGIC, HEAD, OpenError, TEXT_HEAD, dat_extent, dat_extent_of, refuse_foreign, refuse_other_text};

use crate::failure::Failure;
use crate::output::note;

/// A log as an input: any reader.
pub(crate) type Log = Reader<Box<dyn Read>>;

pub(crate) enum Content {
    System(Box<System>, String),
    /// A log, its head read.
    Log(Box<Log>),
}

/// The most bytes of a file that are read into memory. Messages and documents use the name.
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    pub(crate) bytes: u64,
}

/// Limit of a trace, packed or not, and of all pages of a folder.
pub(crate) const TRACE_MAX: Limit = Limit { name: "TRACE_MAX", bytes: 4 << 30 };
/// Limit of any text: system files, their traces, CSV, JSON.
pub(crate) const TEXT_MAX: Limit = Limit { name: "TEXT_MAX", bytes: 256 << 20 };
/// Logs are read block by block, however long they are.
const NO_LIMIT: Limit = Limit { name: "", bytes: u64::MAX };

/// A file's name in messages.
pub(crate) fn shown(path: &str) -> Cow<'_, str> {
    if path == "-" { Cow::Borrowed("standard input") } else { file::one_line(path) }
}

/// A missing file and a folder are bad usage. Any other reason is an I/O error.
fn cannot_read(path: &str, error: &io::Error) -> Failure {
    let message = format!("cannot read {}: {error}", shown(path));
    if is_missing(error) { Failure::input(message) } else { Failure::trouble(message) }
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
}

/// Opens a file that is not longer than `limit`, as far as its length is known; 0 where it is not.
fn open(path: &str, limit: &Limit) -> Result<(Box<dyn Read>, u64), Failure> {
    if path == "-" {
        return Ok((Box::new(io::stdin().lock()), 0));
    }
    let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            Err(Failure::input(format_args!("cannot read {}: it is a folder", shown(path))))
        }
        Ok(metadata) if metadata.len() > limit.bytes => Err(too_long(path, limit)),
        metadata => Ok((Box::new(file), metadata.map_or(0, |metadata| metadata.len()))),
    }
}

/// Reads all of `input`, unless it is longer than `limit`, of which `left` bytes are left. It is
/// expected to have `length` bytes.
fn read_all(path: &str, input: impl Read, limit: &Limit, left: u64, length: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let room = usize::try_from(length.min(left)).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(room).map_err(|error| cannot_read(path, &error.into()))?;
    input.take(left.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| cannot_read(path, &error))?;
    if bytes.len() as u64 > left { Err(too_long(path, limit)) } else { Ok(bytes) }
}

fn too_long(path: &str, limit: &Limit) -> Failure {
    let most = takt_model::Bytes::new(limit.bytes);
    Failure::trouble(format_args!(
        "{} is longer than {most}, the most that takt reads into memory of such a file ({})",
        shown(path),
        limit.name
    ))
}

/// Reads a whole file, as long as `left` bytes of `limit` are left for it.
pub(crate) fn whole_file(path: &Path, limit: &Limit, left: u64) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| cannot_read(&name, &error))?;
    // Files of the kernel say that they have no length.
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    if length > left {
        return Err(too_long(&name, limit));
    }
    read_all(&name, file, limit, left, length)
}

/// Reads a whole trace. The first bytes decide early: other files are refused before the rest is
/// read.
pub(crate) fn trace(path: &str) -> Result<Vec<u8>, Failure> {
    let (mut input, length) = open(path, &TRACE_MAX)?;
    let mut head = Vec::new();
    input.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(|error| cannot_read(path, &error))?;
    if head.starts_with(&takt_log::MAGIC) {
        return Err(Failure::input(format_args!(
            "{} is a log already; \"takt stats\", \"chart\", \"report\" and \"diff\" read it",
            shown(path)
        )));
    }
    let refused = |error: OpenError| Failure::input(format_args!("{}: {error}", shown(path)));
    refuse_foreign(&head).map_err(refused)?;
    if head.len() == HEAD {
        let more = (TEXT_HEAD - HEAD) as u64;
        input.by_ref().take(more).read_to_end(&mut head).map_err(|error| cannot_read(path, &error))?;
        refuse_other_text(&head).map_err(refused)?;
    }
    let mut needed = None;
    if head.starts_with(DAT_MAGIC) {
        // A file is read twice. A pipe cannot be, so only its first bytes are searched for headers.
        needed = match (path != "-" && length > 0).then(|| File::open(path).ok()).flatten() {
            Some(file) => dat_extent(BufReader::new(file), |file, count| skip(file, count, length)),
            None => dat_extent_of(&head),
        }
        .map_err(|error| refused(error.into()))?;
    }
    let needed = needed.unwrap_or(u64::MAX);
    read_all(path, Cursor::new(head).chain(input).take(needed), &TRACE_MAX, TRACE_MAX.bytes, length.min(needed))
}

/// Skips `count` bytes of a file of `length` bytes. Returns how many there were to skip.
fn skip(file: &mut BufReader<File>, count: u64, length: u64) -> io::Result<u64> {
    let at = file.stream_position()?;
    let skipped = count.min(length.saturating_sub(at));
    file.seek_relative(i64::try_from(skipped).map_err(io::Error::other)?)?;
    Ok(skipped)
}

pub(crate) fn text(path: &str, language: &str) -> Result<String, Failure> {
    let (input, length) = open(path, &TEXT_MAX)?;
    let bytes = read_all(path, input, &TEXT_MAX, TEXT_MAX.bytes, length)?;
    utf8(path, bytes, language)
}

fn utf8(path: &str, bytes: Vec<u8>, language: &str) -> Result<String, Failure> {
    if bytes.starts_with(&takt_log::MAGIC) {
        let (log, wanted) = (shown(path), if language == "TOML" { "system" } else { language });
        return Err(Failure::input(format_args!(
            "{log} is a log, and this verb wants a {wanted} file; \"takt stats\", \"chart\", \"report\" \
             and \"diff\" read logs"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::input(format_args!(
            "{} is not text: byte {at} is no UTF-8; it should be a {language} file",
            shown(path)
        ))
    })
}

/// Reads a System with its traces, whose paths are relative to the file; or that of a log.
pub(crate) fn system(path: &str) -> Result<System, Failure> {
    system_and_text(path).map(|(system, _)| system)
}

/// Reads a System with its traces, and its text; or those of a log.
pub(crate) fn system_and_text(path: &str) -> Result<(System, String), Failure> {
    match system_or_log(path)? {
        Content::System(system, text) => Ok((*system, text)),
        Content::Log(log) if log.header().system.is_empty() => Err(Failure::input(format_args!(
            "{} is a log that carries no system; \"takt infer\" makes one from its events",
            shown(path)
        ))),
        Content::Log(log) => {
            let text = log.header().system.clone();
            Ok((parse_system(path, &text)?, text))
        }
    }
}

/// Refuses a System in which nothing is to be scheduled: neither tasks nor flows, nor, unless it is
/// to `run`, components.
pub(crate) fn has_work(path: &str, system: System, run: bool) -> Result<System, Failure> {
    let tables = system.nodes.iter().any(|node| node.receive.is_some() || node.send.is_some());
    let threads = system.components.iter().any(|component| component.threads.is_some());
    let none = system.tasks.is_empty() && system.flows.is_empty() && !tables && !threads;
    if none && (run || system.components.is_empty()) {
        return Err(Failure::input(format_args!(
            "{} has no tasks, so there is nothing to schedule; add a [[task]] with name, period and wcet",
            shown(path)
        )));
    }
    Ok(system)
}

/// Whether a text looks like what `check --certificate` writes.
fn is_certificate(text: &str) -> bool {
    let start = text.trim_start();
    start.starts_with('{') && start.contains("\"takt-certificate\"")
}

pub(crate) fn parse_system(path: &str, text: &str) -> Result<System, Failure> {
    // TOML never begins with a brace. The errors of all lines would hide what helps.
    if text.trim_start().starts_with('{') {
        let what = if is_certificate(text) {
            "this is a certificate, and no system file; \"takt verify SYSTEM CERTIFICATE\" takes the system file first"
        } else {
            "this looks like JSON, not TOML; \"takt import\" turns an rt-app workload into a system file"
        };
        return Err(Failure::input(format_args!("{}: {what}", shown(path))));
    }
    let mut system = file::parse(text, &shown(path)).map_err(Failure::located)?;
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut unreadable = false;
    let read = |trace: &str| {
        let path = folder.join(trace);
        text_file(&path).map_err(|error| {
            unreadable |= error.kind() != io::ErrorKind::InvalidData && !is_missing(&error);
            format!("{error}; takt looked for {}", path.display())
        })
    };
    match file::load_traces(&mut system, read) {
        Ok(()) => Ok(system),
        Err(errors) if unreadable => Err(Failure::trouble(errors.to_string().trim_end())),
        Err(errors) => Err(Failure::located(errors)),
    }
}

fn text_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TEXT_MAX.bytes + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_MAX.bytes {
        let most = takt_model::Bytes::new(TEXT_MAX.bytes);
        return Err(io::Error::other(format!(
            "it is longer than {most}, the most that takt reads ({})",
            TEXT_MAX.name
        )));
    }
    Ok(text)
}

pub(crate) fn log(path: &str) -> Result<Log, Failure> {
    start_log(path, Box::new(BufReader::with_capacity(1 << 16, open(path, &NO_LIMIT)?.0)))
}

fn start_log(path: &str, input: Box<dyn Read>) -> Result<Log, Failure> {
    Reader::new(input).map_err(|error| log_failure(path, &error))
}

pub(crate) fn system_or_log(path: &str) -> Result<Content, Failure> {
    let (mut input, length) = open(path, &NO_LIMIT)?;
    let mut magic = Vec::new();
    let limit = takt_log::MAGIC.len() as u64;
    input.by_ref().take(limit).read_to_end(&mut magic).map_err(|error| cannot_read(path, &error))?;
    let is_log = magic == takt_log::MAGIC;
    let whole = Cursor::new(magic).chain(input);
    if is_log {
        return Ok(Content::Log(Box::new(start_log(path, Box::new(BufReader::with_capacity(1 << 16, whole)))?)));
    }
    if length > TEXT_MAX.bytes {
        return Err(too_long(path, &TEXT_MAX));
    }
    let bytes = read_all(path, whole, &TEXT_MAX, TEXT_MAX.bytes, length)?;
    let text = utf8(path, bytes, "TOML")?;
    Ok(Content::System(Box::new(parse_system(path, &text)?), text))
}

/// Why a log cannot be read, with its name and the exit status.
pub(crate) fn log_failure(path: &str, error: &ReadError) -> Failure {
    let message = format!("{}: {error}", shown(path));
    match error {
        ReadError::Io(_) => Failure::trouble(message),
        ReadError::Version { .. } | ReadError::Unknown { .. } => Failure::cannot(message),
        _ => Failure::input(message),
    }
}

/// Tells what a log lacks, once it has been read.
pub(crate) fn warn_of_damage(path: &str, damage: &Damage) {
    if !damage.is_none() {
        note(format_args!("warning: {}: {damage}", shown(path)));
    }
}

/// The System in a log, from the time of the log's start (without traces).
pub(crate) fn system_of(path: &str, log: &Log) -> Result<System, Failure> {
    let text = &log.header().system;
    if text.is_empty() {
        return Err(Failure::input(format_args!("{} carries no system; give the system file too", shown(path))));
    }
    file::parse(text, &shown(path)).map_err(Failure::located)
}

pub(crate) fn scene_of(path: &str, log: &Log) -> Scene {
    let name = system_of(path, log).map_or_else(|_| shown(path).into_owned(), |system| system.name);
    Scene::of_log(&name, log.definitions(), log.header().kinds)
}

/// Whether a partitioned or clustered node has tasks or servers that are not placed yet.
fn has_unplaced_work(system: &System) -> bool {
    system.nodes.iter().enumerate().any(|(i, node)| {
        let (id, clusters) = (NodeId(i as u32), node.clusters());
        let is_bound = |cpus: CpuSet| clusters.iter().any(|cluster| cpus.is_subset(cluster));
        let mut tasks = system.tasks_of(id).filter(|(_, task)| task.component.is_none());
        let mut components = system.components.iter().filter(|component| component.node == id);
        node.placement != Placement::Global
            && (tasks.any(|(_, task)| !task.cpus.is_some_and(is_bound))
                || components.any(|component| component.parent.is_none() && component.server_cpus.is_empty()))
    })
}

/// Places the tasks and servers of partitioned and clustered nodes that are not placed yet.
pub(crate) fn place(system: System) -> Result<System, Failure> {
    if !has_unplaced_work(&system) {
        return Ok(system);
    }
    takt_analysis::place(&system).map(|placed| placed.system).map_err(unplaced_failure)
}

/// Like [`place`], for a simulation or a run: an unproven placement causes a warning only. Warns also if a strategy
/// goes by a criticality that all tasks share.
pub(crate) fn place_regardless(system: System) -> Result<System, Failure> {
    for warning in takt_analysis::equally_critical(&system) {
        note(format_args!("warning: {warning}"));
    }
    if !has_unplaced_work(&system) {
        return Ok(system);
    }
    let placed = takt_analysis::place_regardless(&system).map_err(unplaced_failure)?;
    for (node, bin) in placed.nodes.iter().flat_map(|node| node.bins.iter().map(move |bin| (node.node, bin))) {
        if let Some(why) = &bin.unproven {
            let cpus: Vec<String> = bin.cpus.iter().map(|cpu| cpu.to_string()).collect();
            let (node, cpus) = (&placed.system.nodes[node.index()].name, cpus.join(","));
            note(format_args!("warning: the placement of node \"{node}\" is not proven: cpus [{cpus}]: {why}"));
        }
    }
    Ok(placed.system)
}

/// Whether `takt size` has to choose its period or its budget.
pub(crate) fn is_auto(component: &Component) -> bool {
    component.period == Auto::Auto || component.budget == Auto::Auto
}

/// Replaces periods and budgets that are `"auto"` by those that `takt size` chooses. A component for which it chooses
/// none gets a share. `tell` gets a sentence on each choice. For a `run` it also gets the assumptions of the choice as
/// warnings, because a kernel's switches are not free. Fails if a change of a server contradicts the choice.
pub(crate) fn size_components(system: System, run: bool, mut tell: impl FnMut(String)) -> Result<System, Failure> {
    if !system.components.iter().any(is_auto) {
        return Ok(system);
    }
    const NAMED: usize = 20;
    let mut system = system;
    let sized = loop {
        if !system.components.iter().any(is_auto) {
            return validated(system);
        }
        let error = match takt_analysis::size(&system) {
            Ok(sized) => break sized,
            Err(error) => error,
        };
        let Some((shared, ids)) = with_share(&system, &error) else { return Err(size_failure(error)) };
        tell(format!("warning: takt size chooses nothing: {error}"));
        for component in ids.iter().map(|id| &shared.components[id.index()]) {
            if let (Auto::Value(period), Auto::Value(budget)) = (component.period, component.budget) {
                let name = &component.name;
                tell(format!("\"{name}\" gets {budget} in each {period}, its utilization"));
            }
        }
        system = shared;
    };
    let mut chosen = sized.components.iter().filter(|component| component.chosen);
    let told = chosen.by_ref().take(NAMED);
    let told: Vec<String> =
        told.map(|one| format!("\"{}\" {} in each {}", one.component, one.budget, one.period)).collect();
    let more = if chosen.next().is_some() { ", ..." } else { "" };
    tell(format!("\"auto\" stands for what takt size chooses: {}{more}", told.join(", ")));
    for text in sized.notes.iter().filter(|_| run) {
        tell(format!("warning: {text}"));
    }
    validated(sized.system)
}

/// The system, if the values for `"auto"` do not contradict a change of a server.
fn validated(system: System) -> Result<System, Failure> {
    file::validate(&system)
        .map_err(|errors| Failure::input(format_args!("with the values that \"auto\" stands for, {errors}")))?;
    Ok(system)
}

pub(crate) fn size_failure(error: SizeError) -> Failure {
    match error {
        SizeError::NotEnough { .. } | SizeError::NotCovered { .. } => Failure::no(error),
        SizeError::Limit { .. } => Failure::trouble(error),
    }
}

fn unplaced_failure(error: PlaceError) -> Failure {
    match error {
        PlaceError::NoFit { .. } | PlaceError::NoPartition { .. } | PlaceError::Undecided { .. } => Failure::no(error),
        PlaceError::Ilp { .. } => Failure::cannot(error),
        PlaceError::Plan(_) => Failure::input(error),
    }
}

pub(crate) fn node(system: &System, name: Option<&str>) -> Result<Option<NodeId>, Failure> {
    let Some(name) = name else { return Ok(None) };
    system.node_by_name(name).map(Some).ok_or_else(|| {
        let names: Vec<String> = system.nodes.iter().map(|node| format!("\"{}\"", node.name)).collect();
        Failure::input(format_args!("no node is called \"{name}\"; the system has {}", names.join(", ")))
    })
}

/// How long to go on: as asked, which must be more than nothing, or the system's default.
pub(crate) fn duration(system: &System, asked: Option<Span>) -> Result<Span, Failure> {
    not_zero("--for", asked)?;
    Ok(asked.unwrap_or_else(|| system.default_duration()))
}

/// Refuses a duration of zero; `option` gives it.
pub(crate) fn not_zero(option: &str, duration: Option<Span>) -> Result<(), Failure> {
    match duration.is_some_and(Span::is_zero) {
        true => Err(Failure::input(format_args!("{option} is zero; give a duration like 10s"))),
        false => Ok(()),
    }
}
