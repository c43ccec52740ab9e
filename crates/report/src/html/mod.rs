//! The report: one HTML page that needs nothing from outside and no script.

mod distributions;
mod evidence;
mod findings;
mod flows;
mod late;
mod seen;
mod tasks;

use std::fmt::Write as _;

use takt_analysis::{Answer, CheckReport};
use takt_log::BackEnd;
use takt_model::{Arrival, Discipline, Exec, Placement, Span, StrategyRef, System};

use crate::axis::short;
use crate::gantt::Gantt;
use crate::live_hops::LiveHop;
use crate::markup::{Esc, page};
use crate::source::Source;
use crate::svg::{CHART_CSS, LANES_CSS, MESSAGES_CSS, Rows, SvgOptions, svg};

pub(crate) const STYLE: &str = include_str!("style.css");

/// The parts of a report. Every part may be missing; the page then omits its section. Without a
/// system the page shows the log alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportInput<'a> {
    /// The heading; the system's name where empty.
    pub title: &'a str,
    /// The system.
    pub system: Option<&'a System>,
    /// Its file, as the reader wrote it.
    pub toml: &'a str,
    /// What `check` says.
    pub check: Option<&'a CheckReport>,
    /// A simulation of it.
    pub simulated: Option<&'a Source>,
    /// A run of it.
    pub measured: Option<&'a Source>,
    /// The hops of live nodes: see [`live_hops`](crate::live_hops).
    pub hops: &'a [LiveHop],
    /// Other notes for the reader, such as the reason for a missing simulation.
    pub notes: &'a [String],
    /// The commands that made this report, one an entry.
    pub commands: &'a [String],
    /// Which takt made it, such as "takt 0.1.0".
    pub maker: &'a str,
}

/// The findings that a reader must not overlook, in plain words, the worst first. They are the same
/// sentences as at the top of the page.
#[must_use]
pub fn findings(input: &ReportInput<'_>) -> Vec<String> {
    findings::sentences(&by_origin(input))
}

/// The input with a log that a simulator made as the simulation.
fn by_origin<'a>(input: &ReportInput<'a>) -> ReportInput<'a> {
    match input.measured.filter(|source| source.back_end == BackEnd::Sim) {
        Some(log) => ReportInput { simulated: Some(log), measured: None, ..*input },
        None => *input,
    }
}

/// The page. A log that a simulator made is shown as the simulation, wherever it stands in the input.
#[must_use]
pub fn html(input: &ReportInput<'_>) -> String {
    let input = &by_origin(input);
    let title =
        input.system.map(|system| system.name.as_str()).filter(|_| input.title.is_empty()).unwrap_or(input.title);
    let styles = [STYLE, CHART_CSS, LANES_CSS, MESSAGES_CSS];
    let mut out = page(input.maker, title, "takt", &styles, &lead(input));
    tiles(&mut out, input);
    findings::section(&mut out, input);
    out.push_str("</header>\n");
    tasks::section(&mut out, input);
    flows::section(&mut out, input);
    seen::section(&mut out, input);
    late::section(&mut out, input);
    schedules(&mut out, input);
    distributions::section(&mut out, input);
    seen::distributions(&mut out, input);
    evidence::release_latencies(&mut out, input);
    evidence::chains(&mut out, input);
    evidence::servers(&mut out, input);
    evidence::cpus(&mut out, input);
    evidence::interrupts(&mut out, input);
    evidence::tests(&mut out, input);
    evidence::system(&mut out, input);
    notes(&mut out, input);
    reproduce(&mut out, input);
    let _ = writeln!(
        out,
        "<footer>Made by {}. This page is complete: it loads nothing.</footer>\n</main>\n</body>\n</html>",
        Esc(input.maker)
    );
    out
}

/// "12 tasks on 2 nodes with 6 CPUs."
fn lead(input: &ReportInput<'_>) -> String {
    let Some(system) = input.system else {
        let of_log = |source: &Source| {
            let (tasks, cpus) = (seen::tasks(source).len() as u64, source.stats.cpus.len() as u64);
            format!("{} seen on {}", plural(tasks, "task"), plural(cpus, "CPU"))
        };
        return seen::source(input).map_or_else(String::new, of_log);
    };
    let cpus: u32 = system.nodes.iter().map(|node| node.cpus).sum();
    let strategies: Vec<&str> = {
        let mut names: Vec<&str> = system.nodes.iter().map(|node| system.strategy_name(node.strategy)).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let nodes = if system.nodes.len() > 1 { format!(" on {} nodes", system.nodes.len()) } else { String::new() };
    format!(
        "{}{nodes}, {}, {}",
        plural(system.tasks.len() as u64, "task"),
        plural(cpus.into(), "CPU"),
        strategies.join(", ")
    )
}

/// `1 task`, `2 tasks`, `1 234 tasks`.
fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A number with thin gaps between thousands.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 4 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A time, or a dash.
fn time_or_dash(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| short(Span::from_ns(ns)))
}

/// Cells of a table with numbers.
fn number_cells(out: &mut String, cells: impl IntoIterator<Item = String>) {
    for cell in cells {
        let _ = write!(out, "<td class=\"n\">{}</td>", Esc(&cell));
    }
}

fn tiles(out: &mut String, input: &ReportInput<'_>) {
    out.push_str("<div class=\"tiles\">\n");
    if let Some(check) = input.check {
        let (class, word) = match check.schedulable {
            Answer::Yes => ("yes", "Schedulable"),
            Answer::No => ("no", "Not schedulable"),
            Answer::Unknown => ("open", "Undecided"),
        };
        tile(out, class, "Theory", word, &evidence::in_short(check));
    }
    if input.system.is_none() {
        tile(
            out,
            "open",
            "Theory",
            "No model",
            "The log carries no system. So nothing was proven or simulated, and a deadline is known only if a \
             thread's class has one.",
        );
    }
    if let Some(source) = input.simulated {
        let seed = source.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
        let (class, word, sentence) = outcome(source);
        let caution = if class == "yes" && proves_nothing(input, source) {
            " By itself this proves nothing: see the notes."
        } else {
            ""
        };
        tile(
            out,
            if caution.is_empty() { class } else { "" },
            "Simulation",
            &word,
            &format!("{sentence} of virtual time{seed}.{caution}"),
        );
    }
    if let Some(source) = input.measured {
        let (class, word, sentence) = outcome(source);
        let how = match source.back_end {
            BackEnd::RunBestEffort => ", best effort under SCHED_OTHER",
            BackEnd::Run => " on this kernel",
            BackEnd::Observe => " as observed",
            _ => "",
        };
        tile(out, class, "Measurement", &word, &format!("{sentence}{how}."));
    }
    out.push_str("</div>\n");
}

fn tile(out: &mut String, class: &str, kind: &str, word: &str, text: &str) {
    let _ = writeln!(
        out,
        "<section class=\"tile {class}\"><div class=\"kind\">{kind}</div><div \
         class=\"word\">{}</div><p>{}</p></section>",
        Esc(word),
        Esc(text)
    );
}

fn outcome(source: &Source) -> (&'static str, String, String) {
    let (released, missed, cancelled) = source.totals();
    let cancelled = if cancelled > 0 { format!(" ({} cancelled)", count(cancelled)) } else { String::new() };
    let sentence =
        format!("{}{cancelled} in {}", plural(released, "job"), short(Span::from_ns(source.stats.duration_ns)));
    match missed {
        Some(0) => ("yes", "No deadline missed".to_owned(), sentence),
        Some(n) => ("no", format!("{} missed", plural(n, "deadline")), sentence),
        // Counts only the tasks with known deadlines.
        None if source.stats.missed() > 0 => {
            ("no", format!("{} missed", plural(source.stats.missed(), "deadline")), sentence)
        }
        None => ("open", "Misses unknown".to_owned(), sentence),
    }
}

fn proves_nothing(input: &ReportInput<'_>, source: &Source) -> bool {
    input.system.is_none_or(|system| is_no_proof(system, Span::from_ns(source.stats.duration_ns)))
}

/// Whether a simulation without a miss proves nothing. This is so if it was shorter than two
/// hyperperiods after the last offset and the last change of a mode. It is also so if the system has
/// one of these:
///
/// - sporadic arrivals or random times
/// - flows: first arrivals, delays, losses and clocks are drawn
/// - components, where a job that ends early can move the budget of others
/// - chains
/// - jobs that may be cancelled
/// - several CPUs for one task
/// - levels without preemption or ordered by laxity, where a job that ends early can delay another
///   one
#[must_use]
pub fn is_no_proof(system: &System, duration: Span) -> bool {
    let changes = system.modes.iter().map(|mode| mode.at).chain(system.switches.iter().map(|switch| switch.at));
    let starts = system.tasks.iter().map(|task| task.offset).chain(changes.map(|at| Span::from_ns(at.as_ns())));
    let last = starts.max().unwrap_or(Span::ZERO);
    let twice = system.hyperperiod().and_then(|once| once.checked_mul(2)?.checked_add(last));
    let short = twice.is_none_or(|twice| duration < twice);
    let drawn = !system.flows.is_empty() || !system.components.is_empty();
    let global = system.nodes.iter().any(|node| node.cpus > 1 && !matches!(node.placement, Placement::Partitioned));
    let random = system.tasks.iter().any(|task| {
        !matches!(task.arrival, Arrival::Periodic)
            || !matches!(task.exec, Exec::Wcet)
            || !task.jitter.is_zero()
            || !task.after.is_empty()
    });
    let cancels =
        system.nodes.iter().any(|node| node.cancel) || system.tasks.iter().any(|task| task.cancel == Some(true));
    let touchy = |strategy: StrategyRef| {
        system.strategy(strategy).levels.iter().any(|level| !level.preemptive || level.discipline == Discipline::Laxity)
    };
    let strategies = system.nodes.iter().map(|node| node.strategy).chain(system.modes.iter().map(|mode| mode.strategy));
    short || drawn || global || random || cancels || strategies.into_iter().any(touchy)
}

fn schedules(out: &mut String, input: &ReportInput<'_>) {
    let sources = [("sim", "Simulated", input.simulated), ("real", "Measured", input.measured)];
    if sources.iter().all(|(_, _, source)| source.is_none()) {
        return;
    }
    out.push_str("<h2 id=\"schedules\">Schedules</h2>\n");
    for (id, word, source) in sources {
        let Some(source) = source else { continue };
        chart(
            out,
            &format!("{id}-start"),
            &match source.start.from {
                takt_model::Time::ZERO => format!("{word}: the first {}", short(source.start.span())),
                from => format!("{word}: {} from {} on", short(source.start.span()), crate::axis::clock(from)),
            },
            &source.start,
            Rows::Tasks,
        );
        if let Some(at) = source.first_miss.first_miss {
            // A first chart that shows the miss and its consequences needs no second one.
            let quarter = Span::from_ns(source.start.span().as_ns() / 4);
            if at.saturating_add(quarter) > source.start.to {
                let title = format!("{word}: around the first miss, at {}", crate::axis::clock(at));
                chart(out, &format!("{id}-miss"), &title, &source.first_miss, Rows::Tasks);
            }
        }
        let cpus = source.start.scene.nodes.iter().map(|node| node.cpus).sum::<u32>();
        if cpus > 1 && source.start.scene.preemptions {
            out.push_str("<details><summary>The same by CPU</summary>");
            chart(out, &format!("{id}-cpus"), "", &source.start, Rows::Cpus);
            out.push_str("</details>\n");
        }
    }
}

fn chart(out: &mut String, id: &str, title: &str, gantt: &Gantt, rows: Rows) {
    let rows_max = if rows == Rows::Tasks { Gantt::ROWS_MAX_DEFAULT } else { usize::MAX };
    let gantt = &gantt.clone().with_rows(rows_max);
    if !title.is_empty() {
        let _ = writeln!(out, "<h3>{}</h3>", Esc(title));
    }
    let title = if title.is_empty() { "Schedule by CPU" } else { title };
    let options = SvgOptions { rows, width: 972, standalone: false, id: id.to_owned(), ..SvgOptions::new(title) };
    let _ = writeln!(out, "<div class=\"chart\">{}</div>", svg(gantt, &options));
    for note in gantt.notes() {
        let _ = writeln!(out, "<p class=\"cap\">{}</p>", Esc(&note));
    }
}

fn notes(out: &mut String, input: &ReportInput<'_>) {
    let mut notes: Vec<String> = input.notes.to_vec();
    if input.simulated.is_some_and(|source| source.totals().1 == Some(0) && proves_nothing(input, source)) {
        notes.push(
            "A simulation without a miss proves nothing where arrivals, times, delays or budgets vary, or scheduling \
             is global or not preemptive: the worst case need not be among the schedules that were tried. A bound \
             holds for all of them."
                .to_owned(),
        );
    }
    if let Some(check) = input.check {
        notes.extend(check.warnings.iter().map(|warning| format!("Theory: {warning}")));
    }
    for (word, source) in [("Simulation", input.simulated), ("Measurement", input.measured)] {
        let Some(source) = source else { continue };
        notes.extend(source.notes.iter().map(|note| format!("{word}: {note}")));
        notes.extend(source.damage.iter().map(|damage| format!("{word}: {damage}")));
        match source.stats.lost_events {
            Some(0) => {}
            Some(lost) => notes.push(format!("{word}: {} lost; its numbers leave them out.", plural(lost, "event"))),
            None => notes.push(format!("{word}: an unknown number of events was lost; its numbers leave them out.")),
        }
        let lacks: Vec<&str> = takt_log::KindSet::JOBS
            .iter()
            .filter(|kind| !source.kinds.contains(*kind))
            .map(|kind| kind.name())
            .collect();
        if !lacks.is_empty() {
            notes.push(format!(
                "{word}: the back end \"{}\" does not record {}; what would follow from that is left empty, not zero.",
                source.back_end.name(),
                lacks.join(", ")
            ));
        }
        if source.back_end == BackEnd::RunBestEffort {
            notes.push(format!(
                "{word}: the tasks ran as ordinary threads (SCHED_OTHER), so that anything else \
                 on the machine could delay them."
            ));
        }
    }
    if input.system.is_none() {
        notes.push(
            "The log has no system, so there is no verdict, no bound and no simulation. Periods and deadlines \
             are those of SCHED_DEADLINE threads; none is assumed for other threads. takt infer makes a system \
             from this log, and takt report compares both."
                .to_owned(),
        );
    }
    if input.measured.is_some() {
        notes.push("A measured maximum is no bound: the next run may exceed it.".to_owned());
    }
    if notes.is_empty() {
        return;
    }
    out.push_str("<h2 id=\"notes\">Notes</h2>\n<ul class=\"plain\">\n");
    for note in notes {
        let _ = writeln!(out, "<li>{}</li>", Esc(&note));
    }
    out.push_str("</ul>\n");
}

fn reproduce(out: &mut String, input: &ReportInput<'_>) {
    if input.commands.is_empty() {
        return;
    }
    out.push_str("<h2 id=\"reproduce\">How to reproduce this</h2>\n");
    if input.simulated.is_some() {
        let measured = if input.measured.is_some() { " A measurement differs each time." } else { "" };
        let _ = writeln!(out, "<p>The same system and seed give the same simulation, byte for byte.{measured}</p>");
    }
    let _ = writeln!(out, "<pre><code>{}</code></pre>", Esc(&input.commands.join("\n")));
}
