//! `takt chart`: a log as a Gantt chart.

use std::path::Path;

use takt_model::{NodeId, Span, Time};
use takt_report::{Gantt, GanttBuilder, GanttOptions, Rows, Scene, SvgOptions, TextOptions, Window, svg, text};

use crate::args::{self, ChartFormat};
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, Log};
use crate::output::{self, Target};

/// Jobs in a chart whose length nobody gave.
const JOBS_TEXT: u32 = 24;
const JOBS_SVG: u32 = 120;

pub(crate) fn execute(options: &args::Chart) -> Outcome {
    let mut log = input::log(&options.log)?;
    let scene = input::scene_of(&options.log, &log);
    let node = node_of(&scene, options.node.as_deref())?;
    let format = match options.format {
        Some(format) => format,
        None => format_of(&options.output)?,
    };
    let jobs = if format == ChartFormat::Svg { JOBS_SVG } else { JOBS_TEXT };
    let window = window(options, scene.suggested_span(jobs))?;
    let (gantt, end) = draw(&options.log, &mut log, scene, GanttOptions { node, ..GanttOptions::new(window) })?;
    if options.first_miss && gantt.first_miss.is_none() {
        return Err(Failure::no(format_args!("{} has no missed deadline to show", input::shown(&options.log))));
    }
    if gantt.from > Time::ZERO && gantt.from >= end {
        let (from, log) = (gantt.from, input::shown(&options.log));
        return Err(Failure::input(format_args!("nothing to draw from {from} on: {log} ends at {end}")));
    }
    let picture = match format {
        ChartFormat::Svg => {
            let rows = match options.by {
                args::Rows::Task => Rows::Tasks,
                args::Rows::Cpu => Rows::Cpus,
            };
            let title = gantt.scene.name.clone();
            svg(&gantt, &SvgOptions { rows, ..SvgOptions::new(&title) })
        }
        ChartFormat::Text | ChartFormat::Ascii if options.by == args::Rows::Cpu => {
            return Err(Failure::input("rows by CPU are drawn as SVG: add --format svg, or -o FILE.svg"));
        }
        ChartFormat::Text => text(&gantt, &text_options(options, true)),
        ChartFormat::Ascii => text(&gantt, &text_options(options, false)),
    };
    options.output.write(picture.as_bytes())?;
    Ok(Status::Yes)
}

/// The format that a file's name asks for. A picture of another kind would be a text under a wrong name.
fn format_of(output: &Target) -> Result<ChartFormat, Failure> {
    let ending = Path::new(&output.0).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "svg" => Ok(ChartFormat::Svg),
        other @ ("png" | "jpg" | "jpeg" | "gif" | "webp" | "pdf" | "ps" | "eps" | "html" | "htm") => {
            Err(Failure::input(format_args!("a chart is text or SVG, not {other}; name it .svg, or give --format")))
        }
        _ => Ok(ChartFormat::Text),
    }
}

fn text_options(options: &args::Chart, unicode: bool) -> TextOptions {
    let here = options.output.is_stdout();
    TextOptions { width: if here { output::width() } else { 100 }, unicode, color: here && unicode && output::color() }
}

fn window(options: &args::Chart, span: Span) -> Result<Window, Failure> {
    if options.first_miss {
        return Ok(Window::FirstMiss { before: span, after: Span::from_ns(span.as_ns() / 4) });
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

/// Reads a log into a chart; also, when the log ends.
fn draw(path: &str, log: &mut Log, scene: Scene, options: GanttOptions) -> Result<(Gantt, Time), Failure> {
    let mut builder = GanttBuilder::new(scene, options);
    let end = log.copy_to(&mut builder).map_err(|error| input::log_failure(path, &error))?;
    input::warn_of_damage(path, &log.damage());
    Ok((builder.finish(end), end))
}
