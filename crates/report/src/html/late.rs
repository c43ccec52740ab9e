//! Why jobs were late, by task, and what ran on the CPU of the worst ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use takt_log::causes::{Cause, CpuActivity, CpuInterval, Late, Worst};
use takt_model::{Span, Time};

use super::tasks::Compared;
use super::{ReportInput, count};
use crate::axis::{Axis, clock, short};
use crate::markup::{Esc, Grid, Px, clip, columns};
use crate::source::Source;

/// The most tasks with a picture: those with the longest responses relative to their deadlines or bounds.
const PICTURES_MAX: usize = 12;
/// The most rows of a picture. One more row holds the rest.
const ROWS_MAX: usize = 8;
/// With more bars in a row, adjacent ones are drawn as one.
const BARS_MAX: usize = 2_000;
const WIDTH: f64 = 972.0;
const ROW: f64 = 26.0;
const TOP: f64 = 30.0;

pub(super) fn section(out: &mut String, input: &ReportInput<'_>) {
    let Some(source) = source(input) else { return };
    let pictures = pictures(input, source);
    let late: Vec<(&str, &Late)> = late(source).filter(|(_, late)| late.jobs > 0).collect();
    let unknown =
        source.stats.missed() > 0 && source.stats.tasks.iter().all(|task| known(task.late.as_ref()).is_none());
    if pictures.is_empty() && late.is_empty() && !unknown {
        return;
    }
    out.push_str("<h2 id=\"late\">Why jobs were late</h2>\n");
    if unknown {
        out.push_str("<p class=\"note\">Unknown: the log does not tell what the CPUs did.</p>\n");
    }
    if !late.is_empty() {
        table(out, &late);
    }
    for (name, worst) in pictures {
        picture(out, name, worst);
    }
}

/// The run, or else a simulation that missed deadlines.
fn source<'a>(input: &ReportInput<'a>) -> Option<&'a Source> {
    input.measured.or_else(|| input.simulated.filter(|source| source.stats.missed() > 0))
}

fn known(late: Option<&Option<Late>>) -> Option<&Late> {
    late.and_then(Option::as_ref)
}

fn late(source: &Source) -> impl Iterator<Item = (&str, &Late)> {
    source.stats.tasks.iter().filter_map(|task| Some((task.task.as_str(), known(task.late.as_ref())?)))
}

/// The causes of a task's late jobs, in a few words: `3 others (hog), 1 own overrun`.
pub(super) fn sentence(source: &Source, task: &str) -> Option<String> {
    let (_, late) = late(source).find(|(name, late)| *name == task && late.jobs > 0)?;
    Some(late.sentence())
}

/// The thread that had the CPU longest during a job, other than tasks: `"hog" (6 ms)`.
pub(super) fn disturber(worst: &Worst) -> Option<String> {
    let mut sums: BTreeMap<&str, Span> = BTreeMap::new();
    for turn in worst
        .turns
        .iter()
        .filter(|turn| !matches!(turn.what, CpuActivity::Itself | CpuActivity::Task(_) | CpuActivity::Unknown))
    {
        let sum = sums.entry(turn.what.name()).or_default();
        *sum = sum.saturating_add(turn.to.saturating_since(turn.from));
    }
    let (name, span) = sums.into_iter().max_by_key(|(_, span)| *span)?;
    Some(format!("\"{name}\" ({})", short(span)))
}

fn table(out: &mut String, late: &[(&str, &Late)]) {
    out.push_str(
        "<p class=\"note\">Each late job counts once: by load, if the system's own jobs within their WCETs had \
         left it no time even undisturbed; otherwise under what disturbed it longest.</p>\n<div \
         class=\"wide\"><table class=\"snug\">\n<thead><tr><th>Task</th><th \
         class=\"n\">Late</th><th class=\"n\">By load</th>",
    );
    let causes: Vec<Cause> =
        Cause::ALL.into_iter().filter(|cause| late.iter().any(|(_, late)| late.mainly(*cause) > 0)).collect();
    for cause in &causes {
        let name = cause.name();
        let (first, rest) = name.split_at(1);
        let _ = write!(out, "<th class=\"n\" scope=\"col\">{}{rest}</th>", first.to_uppercase());
    }
    out.push_str("<th>Longest, for each late job</th></tr></thead>\n<tbody>\n");
    for (name, late) in late {
        let _ = write!(
            out,
            "<tr><th scope=\"row\" title=\"{n}\">{n}</th><td class=\"n late\">{}</td><td class=\"n\">{}</td>",
            count(late.jobs),
            count(late.by_load),
            n = Esc(name)
        );
        for cause in &causes {
            let _ = write!(out, "<td class=\"n\">{}</td>", count(late.mainly(*cause)));
        }
        let each = |(name, span): &(String, Span)| format!("{name} {}", short(Span::from_ns(span.as_ns() / late.jobs)));
        let longest: Vec<String> = late.others.iter().chain(late.tasks.first()).map(each).collect();
        let _ = writeln!(out, "<td>{}</td></tr>", Esc(&longest.join(", ")));
    }
    out.push_str("</tbody></table></div>\n");
}

/// The worst jobs of the tasks that have a picture.
fn pictures<'a>(input: &ReportInput<'_>, source: &'a Source) -> Vec<(&'a str, &'a Worst)> {
    let compared = Compared::all(input);
    let bound = |name: &str| compared.iter().find(|task| task.task.name == name).and_then(|task| task.bound);
    let mut all: Vec<(u128, &str, &Worst)> = Vec::new();
    for task in &source.stats.tasks {
        let Some(worst) = source.worst.get(&task.id) else { continue };
        let deadline = worst.deadline.map(|deadline| deadline.saturating_since(worst.arrival));
        // Without a bound and a deadline the response has no measure.
        let Some(limit) = bound(&task.task).into_iter().chain(deadline).min() else { continue };
        let per_mille = u128::from(worst.response().as_ns()) * 1000 / u128::from(limit.as_ns().max(1));
        all.push((per_mille, &task.task, worst));
    }
    all.sort_by_key(|(per_mille, _, _)| std::cmp::Reverse(*per_mille));
    all.truncate(PICTURES_MAX);
    all.into_iter().map(|(_, name, worst)| (name, worst)).collect()
}

#[derive(Default)]
struct Row<'a> {
    bars: Vec<&'a CpuInterval>,
    sum: Span,
}

fn picture(out: &mut String, name: &str, worst: &Worst) {
    let late = worst.deadline.filter(|deadline| worst.ended > *deadline);
    let verdict = match (worst.deadline, late) {
        (Some(_), Some(deadline)) => format!(", {} late", short(worst.ended.saturating_since(deadline))),
        (Some(_), None) => ", in time".to_owned(),
        (None, _) => String::new(),
    };
    let title = format!("The worst job of \"{name}\": response {}{verdict}", short(worst.response()));
    let _ = writeln!(
        out,
        "<h3>{}</h3>\n<p class=\"cap\">Job {}, which arrived at {}: what ran on CPU {} until it ended.</p>",
        Esc(&title),
        worst.number,
        Esc(&clock(worst.arrival)),
        worst.cpu
    );
    let rows = rows(worst);
    let longest = rows.iter().map(|(name, _)| columns(name)).max().unwrap_or(0).min(24);
    let left = (longest as f64 * 7.2 + 18.0).max(56.0);
    let right = WIDTH - 84.0;
    let to = worst.deadline.map_or(worst.ended, |deadline| deadline.max(worst.ended));
    let span = to.saturating_since(worst.arrival).as_ns().max(1) as f64;
    let x = |at: Time| left + at.saturating_since(worst.arrival).as_ns() as f64 / span * (right - left);
    let bottom = TOP + rows.len() as f64 * ROW;
    let height = bottom + 22.0;
    let _ = writeln!(
        out,
        "<div class=\"chart\"><svg xmlns=\"http://www.w3.org/2000/svg\" class=\"takt-chart\" viewBox=\"0 0 \
         {WIDTH} {h}\" width=\"{WIDTH}\" height=\"{h}\" \
         role=\"img\"><title>{t}</title>",
        h = Px(height),
        t = Esc(&title)
    );
    let axis = Axis::new(worst.arrival, to, 8);
    let mut grid = Grid::default();
    for (at, label) in &axis.ticks {
        grid.line((x(*at), TOP - 4.0), format_args!("V{}", Px(bottom)));
        grid.label((x(*at), TOP - 11.0), "middle", Esc(label));
    }
    if let Some(origin) = axis.origin_label() {
        grid.origin(TOP - 11.0, &origin);
    }
    out.push_str(&grid.svg("\n"));
    for (at, (name, row)) in rows.iter().enumerate() {
        let base = TOP + (at + 1) as f64 * ROW - 4.0;
        let _ = write!(
            out,
            "<g class=\"row\"><path class=\"base\" d=\"M{} {b}H{}\"/><text class=\"name\" x=\"{}\" y=\"{}\" \
             text-anchor=\"end\">{}<title>{}</title></text>",
            Px(left),
            Px(right),
            Px(left - 10.0),
            Px(base - 5.0),
            Esc(&clip(name, 24)),
            Esc(name),
            b = Px(base),
        );
        bars(out, row, base, &x);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text></g>",
            Px(WIDTH - 6.0),
            Px(base - 5.0),
            Esc(&short(row.sum))
        );
    }
    if let Some(deadline) = worst.deadline {
        let at = x(deadline);
        let (anchor, shift) = if at > right - 60.0 { ("end", -4.0) } else { ("start", 4.0) };
        let _ = writeln!(
            out,
            "<path class=\"miss\" d=\"M{} {}V{}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">deadline</text>",
            Px(at),
            Px(TOP - 4.0),
            Px(bottom + 8.0),
            Px(at + shift),
            Px(bottom + 16.0)
        );
    }
    out.push_str("</svg></div>\n");
}

/// The rows of a picture: the job first, then the others by their CPU time.
fn rows(worst: &Worst) -> Vec<(String, Row<'_>)> {
    let mut rows: BTreeMap<(bool, String), Row<'_>> = BTreeMap::new();
    for turn in &worst.turns {
        let itself = matches!(turn.what, CpuActivity::Itself | CpuActivity::Overrun);
        let name = if itself { CpuActivity::Itself.name() } else { turn.what.name() };
        let row = rows.entry((!itself, name.to_owned())).or_default();
        row.sum = row.sum.saturating_add(turn.to.saturating_since(turn.from));
        row.bars.push(turn);
    }
    let mut rows: Vec<((bool, String), Row<'_>)> = rows.into_iter().collect();
    rows.sort_by_key(|((other, _), row)| (*other, std::cmp::Reverse(row.sum)));
    let rest = rows.split_off(rows.len().min(ROWS_MAX));
    let mut shown: Vec<(String, Row<'_>)> = rows.into_iter().map(|((_, name), row)| (name, row)).collect();
    if !rest.is_empty() {
        let name = format!("{} others", rest.len());
        let mut row = Row::default();
        for (_, other) in rest {
            row.sum = row.sum.saturating_add(other.sum);
            row.bars.extend(other.bars);
        }
        row.bars.sort_by_key(|turn| turn.from);
        shown.push((name, row));
    }
    shown
}

fn bars(out: &mut String, row: &Row<'_>, base: f64, x: &impl Fn(Time) -> f64) {
    let height = ROW - 10.0;
    // Bars narrower than this are drawn with their neighbours.
    let least = if row.bars.len() > BARS_MAX { 1.5 } else { 0.0 };
    let mut drawn = f64::MIN;
    for turn in &row.bars {
        let (from, to) = (x(turn.from), x(turn.to));
        if to < drawn + least {
            continue;
        }
        drawn = to;
        let class = match turn.what {
            CpuActivity::Itself => "p0",
            CpuActivity::Overrun => "late",
            CpuActivity::Task(_) => "p2",
            CpuActivity::Thread(_) => "p1",
            CpuActivity::Interrupt(_) => "p3",
            CpuActivity::Takt => "p6",
            CpuActivity::Idle | CpuActivity::Unknown => "p7",
        };
        let _ = write!(
            out,
            "<g class=\"bar {class}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/><title>{}, {} from \
             {}</title></g>",
            Px(from),
            Px(base - height),
            Px((to - from).max(0.75)),
            Px(height),
            Esc(turn.what.name()),
            Esc(&short(turn.to.saturating_since(turn.from))),
            Esc(&clock(turn.from))
        );
    }
}
