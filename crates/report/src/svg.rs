//! The Gantt chart as SVG, in the notation of the field: an arrow up is a release, an arrow down a deadline.
//!
//! The text is complete and needs nothing from outside. Colours are CSS variables, so that a page can set
//! them; alone, the chart follows the reader's light or dark preference.

mod arrows;

use std::fmt::Write as _;

use takt_log::CancelCause;
use takt_model::{NodeId, Span, Time};

use crate::axis::{Axis, clock, short};
use crate::gantt::{Activity, Gantt, MarkKind, Row, Segment};
use crate::lane::{Charging, Lane};
use crate::markup::{Esc, Grid, Px, clip, columns};
use crate::messages::Fate;

/// The start of a chart with a title: its element, its style and paper if it `stands_alone`, and its
/// heading at `left`. `kind` is its class. Its size is in pixels.
pub(crate) fn svg_head(
    kind: &str,
    id: &str,
    title: &str,
    (width, height): (f64, f64),
    left: f64,
    stands_alone: Option<&str>,
) -> String {
    let (w, h, id, title) = (Px(width), Px(height), Esc(id), Esc(title));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"takt-chart {kind}\" viewBox=\"0 0 {w} {h}\" \
         width=\"{w}\" height=\"{h}\" \
         role=\"img\" aria-labelledby=\"{id}\"><title id=\"{id}\">{title}</title>\n"
    );
    if let Some(css) = stands_alone {
        let _ =
            writeln!(out, "<style>{CHART_CSS}{css}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>");
    }
    let _ = writeln!(out, "<text class=\"head\" x=\"{}\" y=\"22\">{title}</text>", Px(left));
    out
}

/// The chart's colours and type, light and dark. A page that embeds charts includes it once.
pub const CHART_CSS: &str = include_str!("chart.css");
pub(crate) const LANES_CSS: &str = include_str!("lanes.css");
pub(crate) const MESSAGES_CSS: &str = include_str!("messages.css");

/// The meaning of a row of the chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rows {
    /// A row per task, coloured by CPU; a number in a bar is the CPU, as in the terminal.
    #[default]
    Tasks,
    /// A row per CPU, coloured by task, with its name. Needs a log with preemptions, else it falls back to tasks.
    Cpus,
}

/// How to draw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SvgOptions {
    /// Heading and accessible title.
    pub title: String,
    /// The meaning of a row.
    pub rows: Rows,
    /// Width in CSS pixels; at least [`WIDTH_MIN`].
    pub width: u32,
    /// Whether the style sheet is included: yes for a file of its own, no inside a page.
    pub standalone: bool,
    /// Makes the ids of this chart unique within a page.
    pub id: String,
}

impl SvgOptions {
    /// A standalone chart of tasks, [`WIDTH_DEFAULT`] wide.
    #[must_use]
    pub fn new(title: &str) -> Self {
        SvgOptions {
            title: title.to_owned(),
            rows: Rows::Tasks,
            width: WIDTH_DEFAULT,
            standalone: true,
            id: "gantt".to_owned(),
        }
    }
}

/// In a narrower chart names and legend leave no room for bars.
pub const WIDTH_MIN: u32 = 240;
/// The width of a chart unless said otherwise.
pub const WIDTH_DEFAULT: u32 = 960;
/// So many colours tell CPUs or tasks apart; then they repeat.
pub(crate) const COLOURS: usize = 8;
/// With more bars than this, a pixel's width of a row shows the share of the time, without tooltips and marks.
const BARS_WITH_TOOLTIP_MAX: usize = 4_000;

/// Draws `gantt` as one `<svg>` element.
#[must_use]
pub fn svg(gantt: &Gantt, options: &SvgOptions) -> String {
    let rows = if gantt.scene.preemptions { options.rows } else { Rows::Tasks };
    Drawing::new(gantt, options, rows).draw()
}

/// One line of the chart: a task's row, a CPU's row, a server's lane, or the name of a node above its rows.
enum Line<'a> {
    Node(&'a str),
    Task(&'a Row),
    Cpu(NodeId, u32),
    Server(&'a Lane),
}

struct Drawing<'a> {
    gantt: &'a Gantt,
    options: &'a SvgOptions,
    lines: Vec<Line<'a>>,
    row_px: f64,
    left: f64,
    right: f64,
    tooltips: bool,
    /// Whether bars of tasks carry the number of their CPU: where there are several.
    numbered: bool,
    out: String,
}

struct Entry {
    class: String,
    /// The text inside the sample bar.
    inside: String,
    text: String,
}

const LEVELS: [(&str, Charging); 3] =
    [("level", Charging::Not), ("level paid", Charging::Job), ("level idle", Charging::Idle)];
const TOP: f64 = 30.0;
const NODE_PX: f64 = 24.0;

impl<'a> Drawing<'a> {
    fn new(gantt: &'a Gantt, options: &'a SvgOptions, rows: Rows) -> Self {
        let lines = lines(gantt, rows);
        let row_px = match lines.len() {
            0..=16 => 42.0,
            17..=40 => 30.0,
            _ => 20.0,
        };
        let longest = lines.iter().map(|line| columns(&label(gantt, line))).max().unwrap_or(0);
        let left = (longest.min(24) as f64 * 7.2 + 18.0).max(56.0);
        let bars: usize = gantt.rows.iter().map(|row| row.segments.len()).sum();
        let right = f64::from(options.width.max(WIDTH_MIN)) - 14.0;
        Drawing {
            gantt,
            options,
            lines,
            row_px,
            left,
            right,
            tooltips: bars <= BARS_WITH_TOOLTIP_MAX,
            numbered: rows == Rows::Tasks && gantt.scene.nodes.iter().any(|node| node.cpus > 1),
            out: String::new(),
        }
    }

    fn x(&self, at: Time) -> f64 {
        let span = self.gantt.span().as_ns().max(1) as f64;
        let since = at.saturating_since(self.gantt.from).as_ns() as f64;
        self.left + (since / span).min(1.0) * (self.right - self.left)
    }

    fn height_of(&self, line: &Line<'_>) -> f64 {
        if matches!(line, Line::Node(_)) { NODE_PX } else { self.row_px }
    }

    fn draw(mut self) -> String {
        let body: f64 = self.lines.iter().map(|line| self.height_of(line)).sum();
        let legend = self.legend();
        let bottom = TOP + body;
        let (legend_svg, legend_px) = self.lay_legend(&legend, bottom + 30.0);
        let height = bottom + 30.0 + legend_px;
        self.open(height);
        self.grid(bottom);
        let middles = self.middles(TOP);
        let mut y = TOP;
        for line in std::mem::take(&mut self.lines) {
            let h = self.height_of(&line);
            self.line(&line, y, h);
            y += h;
        }
        if !self.gantt.messages.is_empty() {
            self.arrows(&middles);
        }
        self.mode_marks(bottom);
        self.out.push_str(&legend_svg);
        self.out.push_str("</svg>\n");
        self.out
    }

    fn open(&mut self, height: f64) {
        let (w, id) = (self.options.width.max(WIDTH_MIN), Esc(&self.options.id));
        let _ = writeln!(
            self.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"takt-chart\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
             height=\"{h}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n<title \
             id=\"{id}-title\">{title}</title>\n\
             <desc id=\"{id}-desc\">{desc}</desc>",
            h = Px(height.ceil()),
            title = Esc(&self.options.title),
            desc = Esc(&describe(self.gantt)),
        );
        if self.options.standalone {
            let lanes = if self.gantt.lanes.is_empty() { "" } else { LANES_CSS };
            let messages = if self.gantt.messages.is_empty() { "" } else { MESSAGES_CSS };
            let _ = writeln!(
                self.out,
                "<style>{CHART_CSS}{lanes}{messages}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>"
            );
        }
    }

    fn grid(&mut self, bottom: f64) {
        let wide = self.right - self.left;
        let axis = Axis::new(self.gantt.from, self.gantt.to, ((wide / 90.0) as usize).max(2));
        let mut grid = Grid::default();
        for (at, label) in &axis.ticks {
            let x = self.x(*at);
            grid.line((x, TOP - 4.0), format_args!("V{}", Px(bottom)));
            // Near the right edge the label ends at the edge instead of standing across it.
            let anchor = if x > self.right - 24.0 { "end" } else { "middle" };
            grid.label((if anchor == "end" { self.right } else { x }, TOP - 11.0), anchor, Esc(label));
        }
        if let Some(origin) = axis.origin_label() {
            grid.origin(TOP - 11.0, &origin);
        }
        self.out.push_str(&grid.svg("\n"));
    }

    fn base(&self, y: f64, h: f64) -> f64 {
        y + h - if h >= 30.0 { 8.0 } else { 4.0 }
    }

    fn line(&mut self, line: &Line<'_>, y: f64, h: f64) {
        let base = self.base(y, h);
        let name = label(self.gantt, line);
        if let Line::Node(name) = line {
            let _ = writeln!(
                self.out,
                "<text class=\"node\" x=\"8\" y=\"{}\">{}</text>",
                Px(y + h - 7.0),
                Esc(&clip(name, 60))
            );
            return;
        }
        let _ = writeln!(
            self.out,
            "<g class=\"row\"><path class=\"base\" d=\"M{} {b}H{}\"/><text class=\"name\" x=\"{}\" y=\"{}\" \
             text-anchor=\"end\">{}<title>{}</title></text>",
            Px(self.left),
            Px(self.right),
            Px(self.left - 10.0),
            Px(base - if h >= 30.0 { 4.0 } else { 1.0 }),
            Esc(&clip(&name, 24)),
            Esc(&self.explain(line, &name)),
            b = Px(base),
        );
        match line {
            Line::Task(row) => self.task_row(row, base, h),
            Line::Cpu(node, cpu) => self.cpu_row(*node, *cpu, base, h),
            Line::Server(lane) => self.lane(lane, base, h),
            Line::Node(_) => {}
        }
        self.out.push_str("</g>\n");
    }

    fn task_row(&mut self, row: &Row, base: f64, h: f64) {
        let bar = if self.tooltips { bar_px(h) } else { h - 10.0 };
        let mut waits = String::new();
        for segment in row.segments.iter().filter(|segment| self.tooltips && segment.what == Activity::Waiting) {
            let y = base - bar / 2.0;
            let _ = write!(waits, "M{} {}H{}", Px(self.x(segment.from)), Px(y), Px(self.x(segment.to)));
        }
        if !waits.is_empty() {
            let _ = write!(self.out, "<path class=\"wait\" d=\"{waits}\"/>");
        }
        let bars: Vec<(usize, usize, &Segment)> =
            (row.segments.iter()).filter_map(|segment| Some((row.task, cpu_of(segment)? as usize, segment))).collect();
        self.bars(&bars, base, bar, false);
        self.marks(row, base, h);
    }

    fn explain(&self, line: &Line<'_>, name: &str) -> String {
        let Line::Server(lane) = line else { return name.to_owned() };
        let Some(def) = self.gantt.scene.servers.get(lane.server) else { return name.to_owned() };
        let of = |span: Option<Span>| span.map_or_else(|| "?".to_owned(), short);
        format!("server {name}: {}, {} every {}", def.rule, of(def.budget), of(def.period))
    }

    /// The budget as an area, darker where the server pays.
    fn lane(&mut self, lane: &Lane, base: f64, h: f64) {
        let tall = h - if h >= 30.0 { 16.0 } else { 7.0 };
        let full = lane.full.as_ns().max(1) as f64;
        for (class, pays) in LEVELS {
            let mut d = String::new();
            for pair in lane.levels.windows(2).filter(|pair| pair[0].then == pays && pair[0].at < pair[1].at) {
                let [(x, y), (to, then)] =
                    [0, 1].map(|i| (self.x(pair[i].at), base - tall * (pair[i].left.as_ns() as f64 / full)));
                if pair[0].left > Span::ZERO {
                    let _ =
                        write!(d, "M{} {}L{} {}L{} {}V{}z", Px(x), Px(base), Px(x), Px(y), Px(to), Px(then), Px(base));
                }
            }
            if !d.is_empty() {
                let _ = write!(self.out, "<g class=\"{class}\"><path d=\"{d}\"/></g>");
            }
        }
    }

    fn cpu_row(&mut self, node: NodeId, cpu: u32, base: f64, h: f64) {
        let rows = self.gantt.rows.iter();
        let on_node = rows.filter(|row| self.gantt.scene.tasks.get(row.task).is_some_and(|task| task.node == node));
        let bars: Vec<(usize, usize, &Segment)> = on_node
            .flat_map(|row| row.segments.iter().map(move |segment| (row.task, row.task, segment)))
            .filter(|(_, _, segment)| cpu_of(segment) == Some(cpu))
            .collect();
        self.bars(&bars, base, bar_px(h) + 4.0, true);
    }

    /// Bars of (task, colour, segment), with a text where there is room: the task's name if asked
    /// for, else the CPU if there are several. Jobs' numbers have a `#`, for a number alone is a
    /// CPU.
    fn bars(&mut self, bars: &[(usize, usize, &Segment)], base: f64, height: f64, names: bool) {
        if !self.tooltips {
            return self.merged_bars(bars, base, height);
        }
        for (task, colour, segment) in bars {
            let (x, to) = (self.x(segment.from), self.x(segment.to));
            let width = (to - x).max(0.75);
            let class = bar_class(*colour, segment);
            let _ = write!(
                self.out,
                "<g class=\"{class}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                Px(x),
                Px(base - height),
                Px(width),
                Px(height)
            );
            let job = format!("#{}", segment.job);
            let texts = match self.gantt.scene.tasks.get(*task) {
                Some(task) if names => vec![format!("{} {job}", task.name), task.name.clone()],
                _ if self.numbered => cpu_of(segment).iter().map(u32::to_string).collect(),
                _ => vec![job],
            };
            let fits = |text: &String| width > columns(text) as f64 * 6.2 + 6.0 && height >= 12.0;
            if let Some(text) = texts.into_iter().find(fits) {
                let _ = write!(
                    self.out,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    Px(x + width / 2.0),
                    Px(base - height / 2.0 + 3.5),
                    Esc(&text)
                );
            }
            let _ = write!(self.out, "<title>{}</title></g>", Esc(&tooltip(self.gantt, *task, segment)));
        }
    }

    /// One path per colour; in each pixel's width the height is the share of the time, colours on top of each other.
    fn merged_bars(&mut self, bars: &[(usize, usize, &Segment)], base: f64, height: f64) {
        let pixels = (self.right - self.left).max(1.0) as usize;
        let (from, span) = (self.gantt.from.as_ns(), self.gantt.span().as_ns().max(1));
        let start_of = |pixel: usize| from + (u128::from(span) * pixel as u128 / pixels as u128) as u64;
        let pixel_of = |ns: u64| (u128::from(ns - from) * pixels as u128 / u128::from(span)) as usize;
        let mut busy: std::collections::BTreeMap<String, Vec<u64>> = std::collections::BTreeMap::new();
        for (_, colour, segment) in bars {
            let column = busy.entry(bar_class(*colour, segment)).or_insert_with(|| vec![0; pixels]);
            let (start, end) = (segment.from.as_ns(), segment.to.as_ns());
            for (pixel, sum) in column.iter_mut().enumerate().skip(pixel_of(start).saturating_sub(1)) {
                let (left, right) = (start_of(pixel), start_of(pixel + 1));
                if left >= end {
                    break;
                }
                *sum += end.min(right).saturating_sub(start.max(left));
            }
        }
        let mut below = vec![0.0; pixels];
        for (class, column) in busy {
            let mut path = String::new();
            for (pixel, sum) in column.iter().enumerate().filter(|(_, sum)| **sum > 0) {
                let whole = (start_of(pixel + 1) - start_of(pixel)).max(1);
                let tall = (*sum as f64 / whole as f64).min(1.0) * height;
                let _ =
                    write!(path, "M{} {}h1v-{}h-1z", Px(self.left + pixel as f64), Px(base - below[pixel]), Px(tall));
                below[pixel] += tall;
            }
            let _ = write!(self.out, "<g class=\"{class}\"><path d=\"{path}\"/></g>");
        }
    }

    fn marks(&mut self, row: &Row, base: f64, h: f64) {
        let arrows = h >= 30.0 && self.room_per_release(row) >= 9.0;
        let top = base - h + if h >= 30.0 { 12.0 } else { 6.0 };
        let ticks = self.tooltips && self.room_per_release(row) >= 3.0;
        let (mut releases, mut deadlines, mut ends, mut misses, mut cancels) = Default::default();
        for mark in row.marks.iter().filter(|mark| ticks || exceptional(mark.what)) {
            let x = self.x(mark.at);
            let (path, d): (&mut String, String) = match mark.what {
                MarkKind::Release if arrows => {
                    (&mut releases, format!("M{} {}V{}m-3 5l3-5l3 5", Px(x), Px(base), Px(top)))
                }
                MarkKind::Release => (&mut releases, format!("M{} {}v-6", Px(x), Px(base))),
                MarkKind::Deadline if arrows => {
                    (&mut deadlines, format!("M{} {}V{}m-3-5l3 5l3-5", Px(x), Px(top), Px(base)))
                }
                MarkKind::Deadline => (&mut deadlines, format!("M{} {}v5", Px(x), Px(top))),
                MarkKind::Completion if arrows => {
                    (&mut ends, format!("M{} {}m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0", Px(x), Px(base)))
                }
                MarkKind::Completion => continue,
                MarkKind::Miss => (&mut misses, cross(x, top + 1.0, 4.0)),
                // A dropped job has its miss at the same instant.
                MarkKind::Cancel(CancelCause::Late) => continue,
                MarkKind::Cancel(_) => (&mut cancels, cross(x, base - bar_px(h) / 2.0, 3.5)),
            };
            path.push_str(&d);
        }
        for (class, d) in
            [("deadline", deadlines), ("release", releases), ("end", ends), ("cancel", cancels), ("miss", misses)]
        {
            if !d.is_empty() {
                let _ = write!(self.out, "<path class=\"{class}\" d=\"{d}\"/>");
            }
        }
    }

    /// Pixels from one release of this row to the next.
    fn room_per_release(&self, row: &Row) -> f64 {
        let releases = row.marks.iter().filter(|mark| mark.what == MarkKind::Release).count();
        (self.right - self.left) / releases.max(1) as f64
    }

    fn mode_marks(&mut self, bottom: f64) {
        for mode in &self.gantt.modes {
            let x = self.x(mode.at);
            let name = self.gantt.scene.strategy(mode.node, mode.mode);
            let near_edge = x > self.right - 80.0;
            let _ = writeln!(
                self.out,
                "<g class=\"mode\"><path d=\"M{} {}V{}\"/><text x=\"{}\" y=\"{}\" \
                 text-anchor=\"{}\">{}</text><title>{}</title></g>",
                Px(x),
                Px(TOP - 6.0),
                Px(bottom),
                Px(if near_edge { x - 4.0 } else { x + 4.0 }),
                Px(TOP + 6.0),
                if near_edge { "end" } else { "start" },
                Esc(&clip(name, 20)),
                Esc(&format!("strategy {name} from {}", clock(mode.at))),
            );
        }
    }

    fn legend(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut add = |class: String, inside: String, text: String| {
            if !entries.iter().any(|known| known.text == text) {
                entries.push(Entry { class, inside, text });
            }
        };
        let none = String::new;
        let by_cpu = !self.lines.iter().any(|line| matches!(line, Line::Cpu(..)));
        let segments = || self.gantt.rows.iter().flat_map(|row| row.segments.iter().map(move |s| (row.task, s)));
        let mut colours: Vec<usize> =
            segments().filter_map(|(task, s)| cpu_of(s).map(|cpu| if by_cpu { cpu as usize } else { task })).collect();
        colours.sort_unstable();
        colours.dedup();
        let tooltips = self.tooltips;
        let has = |kind: fn(MarkKind) -> bool| {
            let mut marks = self.gantt.rows.iter().flat_map(|row| &row.marks);
            by_cpu && marks.any(|mark| kind(mark.what) && (tooltips || exceptional(mark.what)))
        };
        // In the order of docs/reference/chart.md, which is that of the terminal's legend.
        if has(|kind| kind == MarkKind::Release) {
            add("release".to_owned(), none(), "release".to_owned());
        }
        if has(|kind| kind == MarkKind::Deadline) {
            add("deadline".to_owned(), none(), "deadline".to_owned());
        }
        let style = if self.gantt.scene.preemptions { "bar" } else { "bar open" };
        for colour in colours.iter().take(if by_cpu { 32 } else { 12 }) {
            let name = match self.gantt.scene.tasks.get(*colour) {
                Some(task) if !by_cpu => clip(&task.name, 24),
                _ if self.gantt.scene.preemptions => format!("runs on CPU {colour}"),
                _ => format!("in progress, started on CPU {colour}"),
            };
            let inside = if self.numbered && tooltips { colour.to_string() } else { none() };
            add(format!("{style} p{}", colour % COLOURS), inside, name);
        }
        if tooltips && !self.numbered && !colours.is_empty() {
            add(format!("{style} blank"), "#1".to_owned(), "number of the job".to_owned());
        }
        if !tooltips {
            add("none".to_owned(), none(), "many jobs: the height is the share of the time".to_owned());
        }
        if by_cpu && tooltips && segments().any(|(_, s)| s.what == Activity::Waiting) {
            add("wait".to_owned(), none(), "waits".to_owned());
        }
        if segments().any(|(_, s)| s.late && cpu_of(s).is_some()) {
            add(format!("{style} late"), none(), "past its deadline".to_owned());
        }
        if has(|kind| kind == MarkKind::Miss) {
            add("miss".to_owned(), none(), "deadline missed".to_owned());
        }
        if has(|kind| matches!(kind, MarkKind::Cancel(cause) if cause != CancelCause::Late)) {
            add("cancel".to_owned(), none(), "cancelled".to_owned());
        }
        if has(|kind| kind == MarkKind::Completion) {
            add("end".to_owned(), none(), "completion".to_owned());
        }
        let fates = |fate: fn(Fate) -> bool| self.gantt.messages.iter().any(|arrow| fate(arrow.fate));
        if fates(|fate| fate != Fate::Dropped) {
            add("message".to_owned(), none(), "message, from send to receive".to_owned());
        }
        if fates(|fate| fate == Fate::Dropped) {
            add("message lost".to_owned(), none(), "message lost".to_owned());
        }
        let levels = || self.gantt.lanes.iter().flat_map(|lane| &lane.levels);
        for ((class, pays), text) in
            LEVELS.into_iter().zip(["budget left", "a server pays", "pays while none of its jobs runs"])
        {
            if levels().any(|level| level.then == pays && level.left > Span::ZERO) {
                add(class.to_owned(), none(), text.to_owned());
            }
        }
        entries
    }

    fn lay_legend(&self, entries: &[Entry], top: f64) -> (String, f64) {
        let (mut x, mut y) = (self.left, top);
        let mut out = String::from("<g class=\"legend\">");
        for Entry { class, inside, text } in entries {
            let wide = 26.0 + columns(text) as f64 * 6.2 + 18.0;
            if x + wide > self.right && x > self.left {
                (x, y) = (self.left, y + 20.0);
            }
            let _ = write!(
                out,
                "{}<text x=\"{}\" y=\"{}\">{}</text>",
                legend_symbol(class, inside, x, y),
                Px(x + 22.0),
                Px(y + 4.0),
                Esc(text)
            );
            x += wide;
        }
        out.push_str("</g>\n");
        if entries.is_empty() { (String::new(), 0.0) } else { (out, y - top + 16.0) }
    }
}

fn lines(gantt: &Gantt, rows: Rows) -> Vec<Line<'_>> {
    let mut nodes: Vec<NodeId> =
        gantt.rows.iter().filter_map(|row| gantt.scene.tasks.get(row.task)).map(|task| task.node).collect();
    let node_of = |lane: &Lane| gantt.scene.servers.get(lane.server).map(|server| server.node);
    nodes.extend(gantt.lanes.iter().filter_map(node_of));
    nodes.sort_unstable();
    nodes.dedup();
    let several = nodes.len() > 1;
    let mut lines = Vec::new();
    for node in nodes {
        let Some(scene) = gantt.scene.nodes.get(node.index()) else { continue };
        if several {
            lines.push(Line::Node(&scene.name));
        }
        match rows {
            Rows::Cpus => lines.extend((0..scene.cpus).map(|cpu| Line::Cpu(node, cpu))),
            Rows::Tasks => {
                let on_node = |row: &&Row| gantt.scene.tasks.get(row.task).is_some_and(|task| task.node == node);
                lines.extend(gantt.rows.iter().filter(on_node).map(Line::Task));
            }
        }
        lines.extend(gantt.lanes.iter().filter(|lane| node_of(lane) == Some(node)).map(Line::Server));
    }
    lines
}

fn label(gantt: &Gantt, line: &Line<'_>) -> String {
    match line {
        Line::Node(_) => String::new(),
        Line::Task(row) => gantt.scene.tasks.get(row.task).map_or_else(String::new, |task| task.name.clone()),
        Line::Cpu(_, cpu) => format!("CPU {cpu}"),
        Line::Server(lane) => gantt.server(lane).to_owned(),
    }
}

fn bar_px(row: f64) -> f64 {
    if row >= 40.0 {
        18.0
    } else if row >= 30.0 {
        14.0
    } else {
        9.0
    }
}

fn cpu_of(segment: &Segment) -> Option<u32> {
    match segment.what {
        Activity::Running { cpu } | Activity::InProgress { cpu } => Some(cpu),
        Activity::Waiting => None,
    }
}

fn bar_class(colour: usize, segment: &Segment) -> String {
    let open = if matches!(segment.what, Activity::InProgress { .. }) { " open" } else { "" };
    if segment.late { format!("bar{open} late") } else { format!("bar{open} p{}", colour % COLOURS) }
}

/// Marks that are drawn in every chart, however crowded.
fn exceptional(mark: MarkKind) -> bool {
    matches!(mark, MarkKind::Miss | MarkKind::Cancel(_))
}

fn cross(x: f64, y: f64, r: f64) -> String {
    format!("M{} {}l{d} {d}m0-{d}l-{d} {d}", Px(x - r), Px(y - r), d = Px(2.0 * r))
}

fn legend_symbol(class: &str, inside: &str, x: f64, y: f64) -> String {
    let (x0, mid) = (Px(x), x + 8.0);
    let d = match class {
        "none" => return String::new(),
        "wait" => format!("M{x0} {}h16", Px(y)),
        "release" => format!("M{} {}v-14m-3 5l3-5l3 5", Px(mid), Px(y + 7.0)),
        "deadline" => format!("M{} {}v14m-3-5l3 5l3-5", Px(mid), Px(y - 7.0)),
        "end" => format!("M{} {}m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0", Px(mid), Px(y)),
        "message" => format!("M{x0} {}h16m-6-3l6 3l-6 3", Px(y)),
        "message lost" => format!("M{x0} {}h12{}", Px(y), cross(x + 13.0, y, 3.5)),
        "miss" => cross(mid, y, 4.0),
        "cancel" => cross(mid, y, 3.5),
        bar => {
            let rect = format!("<rect x=\"{x0}\" y=\"{}\" width=\"16\" height=\"11\"/>", Px(y - 5.5));
            let text = match inside {
                "" => String::new(),
                _ => format!("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{inside}</text>", Px(mid), Px(y + 3.5)),
            };
            return format!("<g class=\"{bar}\">{rect}{text}</g>");
        }
    };
    format!("<path class=\"{class}\" d=\"{d}\"/>")
}

fn tooltip(gantt: &Gantt, task: usize, segment: &Segment) -> String {
    let name = gantt.scene.tasks.get(task).map_or("?", |task| task.name.as_str());
    let doing = match segment.what {
        Activity::Running { cpu } => format!("runs on CPU {cpu}"),
        Activity::InProgress { cpu } => format!("in progress, started on CPU {cpu}"),
        Activity::Waiting => "waits".to_owned(),
    };
    let late = if segment.late { ", past its deadline" } else { "" };
    let length = short(segment.to.saturating_since(segment.from));
    format!("{name} job {}: {doing}{late}\n{} to {} ({length})", segment.job, clock(segment.from), clock(segment.to))
}

fn describe(gantt: &Gantt) -> String {
    let mut text = format!("Schedule from {} to {}.", clock(gantt.from), clock(gantt.to));
    for row in gantt.rows.iter().take(40) {
        let count = |kind: MarkKind| row.marks.iter().filter(|mark| mark.what == kind).count();
        let name = gantt.scene.tasks.get(row.task).map_or("?", |task| task.name.as_str());
        let _ = write!(
            text,
            " {name}: {} released, {} completed, {} missed.",
            count(MarkKind::Release),
            count(MarkKind::Completion),
            count(MarkKind::Miss)
        );
    }
    for lane in gantt.lanes.iter().take(40) {
        let _ = write!(text, " Server {}.", gantt.server(lane));
    }
    text
}
