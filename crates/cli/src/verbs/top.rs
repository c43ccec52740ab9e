//! `takt top`: a log as it comes in, on a terminal.

mod keys;
mod model;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue};
use takt_linux::signals::StopSignals;
use takt_log::stats::{Collector, Stats};
use takt_model::{Span, Time};

use super::observe::live::record;
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::live::Live;
use crate::output::{print, print_json, terminal_width};
use keys::Key;
use model::{Kind, Line, Model, View};

/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(250);
/// How long the machine is recorded for one table.
const ONCE: Span = Span::from_s(1);
/// Keys between two looks.
const KEYS_MAX: u32 = 8;

pub(crate) fn execute(options: &args::Top, json: bool) -> Outcome {
    let view = View::new(options.sort, &options.filter);
    let one_table = options.once || json || !io::stdout().is_terminal();
    match &options.log {
        Some(log) if one_table => return once(log, &view, json),
        None if one_table => return once_of_machine(&view, json),
        _ => {}
    }
    let signals = StopSignals::catch();
    let (live, _recording) = match &options.log {
        Some(log) => (Live::follow(log)?, None),
        None => {
            let (live, recording) = Recording::start()?;
            (live, Some(recording))
        }
    };
    let opened = Screen::open().and_then(|screen| Ok((screen, keys::listen()?)));
    let (screen, keys) = opened.map_err(|error| {
        Failure::cannot(format_args!(
            "cannot draw on this terminal: {error}; --once prints one table and needs no terminal"
        ))
    })?;
    let watched = watch(&live, &keys, view, &signals);
    drop(screen);
    watched
}

/// This kernel, recorded by a thread of its own until this is dropped.
struct Recording {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recording {
    fn start() -> Result<(Live, Recording), Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let (live, thread) = Live::count(move |live| {
            let stop = || told.load(Ordering::Relaxed).then(|| "top".to_owned());
            record(&args::Observe::everything(), Some(live), &stop).map(|_| ())
        })?;
        Ok((live, Recording { over, thread: Some(thread) }))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One table of this machine, after it was recorded for a while.
fn once_of_machine(view: &View, json: bool) -> Outcome {
    let signals = StopSignals::catch();
    let observe = args::Observe { duration: Some(ONCE), ..args::Observe::everything() };
    let (stats, _) = record(&observe, None, &|| signals.caught().map(|signal| signal.to_string()))?;
    show(Time::from_ns(stats.duration_ns), stats, view, json)
}

fn once(path: &str, view: &View, json: bool) -> Outcome {
    let mut log = input::log(path)?;
    let stats = Collector::read(&mut log).map_err(|error| input::log_failure(path, &error))?;
    input::warn_of_damage(path, &log.damage());
    show(log.end(), stats, view, json)
}

/// Prints one table, or the document of `takt stats` with the tasks that the filter keeps.
fn show(now: Time, mut stats: Stats, view: &View, json: bool) -> Outcome {
    if json {
        let keeps = view.matcher();
        stats.tasks.retain(|task| keeps(&task.task));
        print_json(&stats)?;
    } else {
        let mut model = Model::default();
        model.take(now, &stats);
        print(&model.once(view, terminal_width()))?;
    }
    Ok(Status::Yes)
}

fn watch(live: &Live, keys: &Receiver<Key>, mut view: View, signals: &StopSignals) -> Outcome {
    let cannot = |error: io::Error| Failure::trouble(format_args!("cannot draw on this terminal: {error}"));
    let (mut model, mut latest) = (Model::default(), None);
    while signals.caught().is_none() {
        let (now, ended) = live.progress()?;
        view.ended = ended;
        // Without new events there is no new report.
        if !view.paused
            && latest != Some(now)
            && let Some((now, stats)) = live.cut()
        {
            model.take(now, &stats);
            latest = Some(now);
        }
        draw(&model, &mut view).map_err(cannot)?;
        // So many keys at most, so that the next look comes soon even while they come.
        for _ in 0..KEYS_MAX {
            match keys.recv_timeout(LOOK) {
                Ok(key) if !view.key(key) => return Ok(Status::Yes),
                Ok(_) => draw(&model, &mut view).map_err(cannot)?,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Ok(Status::Yes),
            }
        }
    }
    Ok(Status::Yes)
}

fn draw(model: &Model, view: &mut View) -> io::Result<()> {
    let (columns, lines) = size()?;
    let screen = model.screen(view, columns.into(), lines.into());
    let mut out = io::stdout().lock();
    queue!(out, BeginSynchronizedUpdate)?;
    for (row, Line { text, kind }) in (0..).zip(&screen) {
        let attribute = match kind {
            Kind::Plain => Attribute::Reset,
            Kind::Head => Attribute::Reverse,
            Kind::Missed => Attribute::Bold,
            Kind::Missing => Attribute::Underlined,
        };
        queue!(out, cursor::MoveTo(0, row), SetAttribute(attribute), Print(text))?;
        queue!(out, SetAttribute(Attribute::Reset), Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, EndSynchronizedUpdate)?;
    out.flush()
}

/// The terminal, as it was once this is dropped: at the end, on errors, on signals (which are caught) and on panics.
struct Screen;

impl Screen {
    fn open() -> io::Result<Screen> {
        enable_raw_mode()?;
        let screen = Screen;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
