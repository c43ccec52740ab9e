//! `takt chart`: a log as a Gantt chart.

use std::path::Path;

use takt_model::{NodeId, Span, Time};
use takt_report::svg::WIDTH_DEFAULT;
use takt_report::{Gantt, GanttBuilder, GanttOptions, Rows, Scene, SvgOptions, TextOptions, Window, svg, text};

use crate::args::{self, ChartFormat};
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, Log};
use crate::output::{self, Target, only_one, print_files};
use crate::picture::Picture;

/// Jobs in a chart whose length nobody gave.
const JOBS_TEXT: u32 = 24;
const JOBS_PICTURE: u32 = 120;
/// At least so many jobs of each task, where periods are not known.
const JOBS_EACH: u32 = 3;
const NAMED: usize = 20;

pub(crate) fn execute(options: &args::Chart, json: bool) -> Outcome {
    only_one(json, options.output.is_stdout(), "chart")?;
    let mut log = input::log(&options.log)?;
    let scene = input::scene_of(&options.log, &log);
    let node = node_of(&scene, options.node.as_deref())?;
    let format = match options.format {
        Some(format) => format,
        None => format_of(&options.output)?,
    };
    let in_letters = matches!(format, ChartFormat::Text | ChartFormat::Ascii);
    if in_letters && options.width.is_some() {
        return Err(Failure::input("--width is for pictures: add --format svg, png or pdf, or -o FILE.png"));
    }
    let jobs = if in_letters { JOBS_TEXT } else { JOBS_PICTURE };
    let window = window(options, &scene, jobs)?;
    let asked = GanttOptions { node, tasks: options.task.clone(), ..GanttOptions::new(window) };
    let (mut gantt, end) = draw(&options.log, &mut log, scene, asked)?;
    if let Some(unknown) =
        options.task.iter().find(|name| gantt.rows.iter().all(|row| gantt.name(row) != name.as_str()))
    {
        return Err(no_task(unknown, &gantt.scene, node, &options.log));
    }
    if options.task.is_empty() && options.by == args::Rows::Task {
        gantt = gantt.with_rows(Gantt::ROWS_MAX_DEFAULT);
    }
    if options.first_miss && gantt.first_miss.is_none() {
        return Err(Failure::no(format_args!("{} has no missed deadline to show", input::shown(&options.log))));
    }
    if gantt.from > Time::ZERO && gantt.from >= end {
        let (from, log) = (gantt.from, input::shown(&options.log));
        return Err(Failure::input(format_args!("nothing to draw from {from} on: {log} ends at {end}")));
    }
    if in_letters && options.by == args::Rows::Cpu {
        return Err(Failure::input("rows by CPU are drawn as pictures: add --format svg, png or pdf, or -o FILE.svg"));
    }
    let drawn = match format {
        ChartFormat::Text => text(&gantt, &text_options(options, true)).into_bytes(),
        ChartFormat::Ascii => text(&gantt, &text_options(options, false)).into_bytes(),
        ChartFormat::Svg | ChartFormat::Png | ChartFormat::Pdf => picture(options, &gantt, format)?,
    };
    options.output.write(&drawn)?;
    if json {
        print_files(&[&options.output.0])?;
    }
    Ok(Status::Yes)
}

fn picture(options: &args::Chart, gantt: &Gantt, format: ChartFormat) -> Result<Vec<u8>, Failure> {
    let rows = match options.by {
        args::Rows::Task => Rows::Tasks,
        args::Rows::Cpu => Rows::Cpus,
    };
    let asked = options.width.unwrap_or(WIDTH_DEFAULT);
    // A PNG cannot be enlarged later: a wide one is a chart of the usual width with larger letters.
    let width = if format == ChartFormat::Png { asked.min(WIDTH_DEFAULT) } else { asked };
    let standalone = format == ChartFormat::Svg;
    let drawn = svg(gantt, &SvgOptions { rows, width, standalone, ..SvgOptions::new(&gantt.scene.name) });
    if format == ChartFormat::Svg {
        return Ok(drawn.into_bytes());
    }
    let picture = Picture::new(&drawn)?;
    picture.warn_of_boxes();
    if format == ChartFormat::Png { picture.png(asked) } else { picture.pdf() }
}

/// The format that a file's name asks for. A picture of another kind would be a text under a wrong name.
fn format_of(output: &Target) -> Result<ChartFormat, Failure> {
    let ending = Path::new(&output.0).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "svg" => Ok(ChartFormat::Svg),
        "png" => Ok(ChartFormat::Png),
        "pdf" => Ok(ChartFormat::Pdf),
        other @ ("jpg" | "jpeg" | "gif" | "webp" | "ps" | "eps" | "html" | "htm") => Err(Failure::input(format_args!(
            "a chart is text, SVG, PNG or PDF, not {other}; name it .svg, .png or .pdf, or give --format"
        ))),
        _ => Ok(ChartFormat::Text),
    }
}

fn text_options(options: &args::Chart, unicode: bool) -> TextOptions {
    let here = options.output.is_stdout();
    TextOptions { width: if here { output::width() } else { 100 }, unicode, color: here && unicode && output::color() }
}

/// The window to show. If no period is known before the log is read, it holds `jobs` jobs.
fn window(options: &args::Chart, scene: &Scene, jobs: u32) -> Result<Window, Failure> {
    if options.first_miss {
        return Ok(Window::AroundMiss { jobs });
    }
    let span = scene.suggested_span(jobs);
    if options.to.is_none() && !scene.has_periods() {
        let from = options.from.map(|from| Time::ZERO.saturating_add(from));
        return Ok(Window::Jobs { from, count: jobs, each: JOBS_EACH });
    }
    let from = Time::ZERO.saturating_add(options.from.unwrap_or(Span::ZERO));
    let to = options.to.map_or(from.saturating_add(span), |to| Time::ZERO.saturating_add(to));
    if from >= to {
        return Err(Failure::input(format_args!(
            "the chart would end at {to}, and start at {from}; --to must be later"
        )));
    }
    Ok(Window::Range { from, to })
}

fn node_of(scene: &Scene, name: Option<&str>) -> Result<Option<NodeId>, Failure> {
    let Some(name) = name else { return Ok(None) };
    let position = scene.nodes.iter().position(|node| node.name == name);
    position.map(|i| Some(NodeId(i as u32))).ok_or_else(|| {
        let names: Vec<String> = scene.nodes.iter().map(|node| format!("\"{}\"", node.name)).collect();
        Failure::input(format_args!("no node is called \"{name}\"; the log has {}", names.join(", ")))
    })
}

fn no_task(unknown: &str, scene: &Scene, node: Option<NodeId>, log: &str) -> Failure {
    let tasks = || scene.tasks.iter().filter(|task| node.is_none_or(|only| only == task.node));
    let names: Vec<String> = tasks().take(NAMED).map(|task| format!("\"{}\"", task.name)).collect();
    let more = if tasks().count() > NAMED { ", ..." } else { "" };
    let (log, names) = (input::shown(log), names.join(", "));
    Failure::input(format_args!("no task is called \"{unknown}\"; {log} has {names}{more}"))
}

fn draw(path: &str, log: &mut Log, scene: Scene, options: GanttOptions) -> Result<(Gantt, Time), Failure> {
    let mut builder = GanttBuilder::new(scene, options);
    let end = log.copy_to(&mut builder).map_err(|error| input::log_failure(path, &error))?;
    input::warn_of_damage(path, &log.damage());
    Ok((builder.finish(end), end))
}
