//! The Gantt chart for a terminal: two lines a task, arrows above and execution below; then a line for each server
//! with its budget.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use takt_log::CancelCause;
use takt_model::{NodeId, Time};

use crate::axis::{Axis, clock};
use crate::gantt::{Activity, Gantt, MarkKind, Row};
use crate::lane::{Charging, Lane};
use crate::markup::{clip_with, columns};
use crate::messages::{Arrow, Fate};

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextOptions {
    /// Columns of the terminal, labels included; at least 40 are used.
    pub width: usize,
    /// Block and arrow characters; else ASCII alone.
    pub unicode: bool,
    /// ANSI colours: bars by CPU, misses red.
    pub color: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions { width: 100, unicode: true, color: false }
    }
}

/// The content of a cell of the execution line. If several meet, the most telling one is shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cell {
    Idle,
    Waiting,
    /// (late, CPU, in progress rather than running, share of the cell)
    Busy {
        late: bool,
        cpu: u32,
        open: bool,
        share: Share,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Share {
    Little,
    Half,
    Full,
}

struct Glyphs {
    release: char,
    deadline: char,
    both: char,
    miss: char,
    cancel: char,
    full: char,
    half: char,
    little: char,
    open: char,
    late: char,
    wait: char,
    tick: char,
    rule: char,
    mode: char,
    /// A message on its way, and its receive.
    in_flight: char,
    receive: char,
    /// Eighths of a budget.
    levels: [char; 8],
}

const UNICODE: Glyphs = Glyphs {
    release: '↑',
    deadline: '↓',
    both: '↕',
    miss: '✗',
    cancel: '⊘',
    full: '█',
    half: '▓',
    little: '▒',
    open: '░',
    late: '▚',
    wait: '·',
    tick: '┬',
    rule: '─',
    mode: '┊',
    in_flight: '╌',
    receive: '▶',
    levels: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
};
const ASCII: Glyphs = Glyphs {
    release: '^',
    deadline: 'v',
    both: '|',
    miss: 'X',
    cancel: 'o',
    full: '#',
    half: '=',
    little: '-',
    open: '~',
    late: '!',
    wait: '.',
    tick: '+',
    rule: '-',
    mode: ':',
    in_flight: '-',
    receive: '>',
    levels: ['1', '2', '3', '4', '5', '6', '7', '8'],
};
/// Foreground colours of CPUs: blue, yellow, green, magenta, cyan, white.
const ANSI_CPU: [u8; 6] = [34, 33, 32, 35, 36, 37];
const ANSI_MISS: u8 = 31;
const ANSI_DIM: u8 = 2;

/// Prints `gantt`; every line ends with a newline, and none is longer than the width.
#[must_use]
pub fn text(gantt: &Gantt, options: &TextOptions) -> String {
    let names = gantt.rows.iter().map(|row| name(gantt, row)).chain(gantt.lanes.iter().map(|lane| gantt.server(lane)));
    let messages = message_rows(gantt, options.unicode);
    let longest = names.chain(messages.iter().map(|(name, _)| name.as_str())).map(columns).max().unwrap_or(0);
    let width = options.width.max(40);
    let label = longest.clamp(3, (width / 3).min(24));
    let cells = width - label - 2;
    let glyphs = if options.unicode { &UNICODE } else { &ASCII };
    Printer { gantt, options, glyphs, label, cells, cell_starts: boundaries(gantt, cells), messages }.print()
}

/// The messages of each pair of sender and receiver whose rows are drawn, with a name of the pair.
fn message_rows(gantt: &Gantt, unicode: bool) -> Vec<(String, Vec<&Arrow>)> {
    let drawn = |task: usize| gantt.rows.iter().find(|row| row.task == task).map(|row| name(gantt, row));
    // Messages without a receiver stand with the others of their sender.
    let known: BTreeMap<usize, usize> =
        gantt.messages.iter().filter_map(|arrow| Some((arrow.task, arrow.fate.receiver()?))).collect();
    let mut by_pair: BTreeMap<(usize, Option<usize>), Vec<&Arrow>> = BTreeMap::new();
    for arrow in &gantt.messages {
        let receiver = arrow.fate.receiver().or_else(|| known.get(&arrow.task).copied());
        // The receiver of a message in flight is unknown.
        if receiver.is_some() || arrow.fate == Fate::Dropped {
            by_pair.entry((arrow.task, receiver)).or_default().push(arrow);
        }
    }
    let to = if unicode { "→" } else { "->" };
    let named = by_pair.into_iter().filter_map(|((from, receiver), arrows)| {
        let receiver = receiver.map_or(Some("?"), drawn)?;
        Some((format!("{} {to} {receiver}", drawn(from)?), arrows))
    });
    named.take(Gantt::ROWS_MAX_DEFAULT).collect()
}

/// The instants at which cells begin, and the end of the last one.
fn boundaries(gantt: &Gantt, cells: usize) -> Vec<u64> {
    let (from, span) = (gantt.from.as_ns(), u128::from(gantt.span().as_ns()));
    (0..=cells).map(|i| from + (span * i as u128 / cells as u128) as u64).collect()
}

struct Printer<'a> {
    gantt: &'a Gantt,
    options: &'a TextOptions,
    glyphs: &'a Glyphs,
    label: usize,
    cells: usize,
    cell_starts: Vec<u64>,
    messages: Vec<(String, Vec<&'a Arrow>)>,
}

impl Printer<'_> {
    fn print(&self) -> String {
        let mut out = self.axis();
        let mut node: Option<NodeId> = None;
        let several =
            self.gantt.rows.iter().map(|row| self.node_of(row)).any(|n| n != self.node_of(&self.gantt.rows[0]));
        let mut head = |out: &mut String, of: Option<NodeId>| {
            if several && node != of {
                node = of;
                let name = of.and_then(|node| self.gantt.scene.nodes.get(node.index())).map_or("?", |node| &node.name);
                let _ = writeln!(out, "{}", self.fit(name, self.options.width.max(40)));
            }
        };
        let mut rows: Vec<&Row> = self.gantt.rows.iter().collect();
        rows.sort_by_key(|row| self.node_of(row));
        for row in rows {
            head(&mut out, self.node_of(row));
            self.row(&mut out, row);
        }
        for lane in &self.gantt.lanes {
            head(&mut out, self.gantt.scene.servers.get(lane.server).map(|server| server.node));
            self.lane(&mut out, lane);
        }
        for (name, arrows) in &self.messages {
            self.message_row(&mut out, name, arrows);
        }
        self.mode_lines(&mut out);
        let legend = self.legend();
        for line in wrap(&legend, self.options.width.max(40)) {
            let _ = writeln!(out, "{line}");
        }
        for note in self.gantt.notes() {
            for line in wrap(&note.split(' ').collect::<Vec<_>>(), self.options.width.max(40)) {
                let _ = writeln!(out, "{line}");
            }
        }
        out
    }

    fn node_of(&self, row: &Row) -> Option<NodeId> {
        self.gantt.scene.tasks.get(row.task).map(|task| task.node)
    }

    fn cell(&self, at: Time) -> usize {
        let after = self.cell_starts.partition_point(|start| *start <= at.as_ns());
        after.saturating_sub(1).min(self.cells - 1)
    }

    fn axis(&self) -> String {
        let axis = Axis::new(self.gantt.from, self.gantt.to, (self.cells / 12).max(2));
        let mut labels = vec![' '; self.label + 2 + self.cells];
        let mut rule = vec![self.glyphs.rule; self.cells];
        let mut free = 0;
        if let Some(origin) = axis.origin_label() {
            // The origin stands above the names, where the ticks leave room.
            let shown: Vec<char> = self.fit(&origin, self.label + 1).chars().collect();
            labels[..shown.len()].copy_from_slice(&shown);
            free = shown.len() + 1;
        }
        for (at, text) in &axis.ticks {
            let cell = self.cell(*at);
            rule[cell] = self.glyphs.tick;
            let chars: Vec<char> = text.chars().collect();
            let start = self.label + 2 + cell;
            if start >= free && start + chars.len() <= labels.len() {
                labels[start..start + chars.len()].copy_from_slice(&chars);
                free = start + chars.len() + 1;
            }
        }
        let labels: String = labels.into_iter().collect();
        let rule: String = rule.into_iter().collect();
        format!("{}\n{:>pad$}{}\n", labels.trim_end(), "", self.paint(&rule, ANSI_DIM), pad = self.label + 2)
    }

    fn row(&self, out: &mut String, row: &Row) {
        let marks = self.mark_cells(row);
        let mut above = String::new();
        for mark in &marks {
            match mark {
                Some(kind) if *kind == self.glyphs.miss => above.push_str(&self.paint(&kind.to_string(), ANSI_MISS)),
                Some(kind) => above.push(*kind),
                None => above.push(' '),
            }
        }
        let _ = writeln!(out, "{}", format!("{:pad$}{above}", "", pad = self.label + 2).trim_end());
        let cells: Vec<(char, u8)> = self.busy_cells(row).into_iter().map(|cell| self.show(cell)).collect();
        self.cells(out, name(self.gantt, row), &cells);
    }

    /// Writes a name and cells of a character and a colour, 0 for none.
    fn cells(&self, out: &mut String, name: &str, cells: &[(char, u8)]) {
        // One colour code a stretch of equal colour, not one a cell.
        let mut line = String::new();
        for stretch in cells.chunk_by(|a, b| a.1 == b.1) {
            let glyphs: String = stretch.iter().map(|(glyph, _)| *glyph).collect();
            line.push_str(&if stretch[0].1 == 0 { glyphs } else { self.paint(&glyphs, stretch[0].1) });
        }
        let label = self.fit(name, self.label);
        let pad = self.label.saturating_sub(columns(&label)) + 2;
        let _ = writeln!(out, "{}", format!("{label}{:pad$}{line}", "").trim_end());
    }

    /// The mean budget of each cell, in eighths, rounded up.
    fn lane(&self, out: &mut String, lane: &Lane) {
        let full = lane.full.as_ns().max(1) as f64;
        // The share of the budget, summed over the time.
        let mut sums = vec![0.0; self.cells];
        let mut pays = vec![Charging::Not; self.cells];
        for pair in lane.levels.windows(2).filter(|pair| pair[0].at < pair[1].at) {
            let [from, to] = [0, 1].map(|i| pair[i].at.as_ns());
            let [before, after] = [0, 1].map(|i| pair[i].left.as_ns() as f64 / full);
            let level = |at: u64| before - (before - after) * ((at - from) as f64 / (to - from) as f64);
            for cell in self.cell(pair[0].at)..=self.cell(Time::from_ns(to - 1)) {
                let (start, end) = (self.cell_starts[cell].max(from), self.cell_starts[cell + 1].min(to));
                if start < end {
                    sums[cell] += (level(start) + level(end)) / 2.0 * (end - start) as f64;
                    pays[cell] = pays[cell].max(pair[0].then);
                }
            }
        }
        let show = |cell: usize| {
            let time = (self.cell_starts[cell + 1] - self.cell_starts[cell]).max(1) as f64;
            // A full budget stays eight eighths whatever the rounding.
            let eighths = ((8.0 * sums[cell] / time - 1e-6).ceil() as usize).min(8);
            let glyph = eighths.checked_sub(1).map_or(' ', |eighth| self.glyphs.levels[eighth]);
            let colour = match pays[cell] {
                _ if eighths == 0 => 0,
                Charging::Not => ANSI_DIM,
                Charging::Job => ANSI_CPU[0],
                Charging::Idle => ANSI_CPU[1],
            };
            (glyph, colour)
        };
        let cells: Vec<(char, u8)> = (0..self.cells).map(show).collect();
        self.cells(out, self.gantt.server(lane), &cells);
    }

    /// Messages from one task to another: a line from each send to the receive.
    fn message_row(&self, out: &mut String, name: &str, arrows: &[&Arrow]) {
        let g = self.glyphs;
        let mut cells = vec![(' ', 0); self.cells];
        for arrow in arrows {
            let (first, last) = (self.cell(arrow.sent.max(self.gantt.from)), self.cell(arrow.until));
            for cell in cells.iter_mut().take(last + 1).skip(first).filter(|cell| cell.0 == ' ') {
                *cell = (g.in_flight, ANSI_DIM);
            }
            match arrow.fate {
                Fate::Received(_) if arrow.until <= self.gantt.to => cells[last] = (g.receive, 0),
                Fate::Dropped if arrow.until <= self.gantt.to => cells[last] = (g.miss, ANSI_MISS),
                _ => {}
            }
        }
        self.cells(out, name, &cells);
    }

    fn mark_cells(&self, row: &Row) -> Vec<Option<char>> {
        let g = self.glyphs;
        let mut cells = vec![None; self.cells];
        for mark in &row.marks {
            let Some(cell) = cells.get_mut(self.cell(mark.at)) else { continue };
            let new = match mark.what {
                MarkKind::Release => g.release,
                MarkKind::Deadline => g.deadline,
                MarkKind::Miss => g.miss,
                MarkKind::Completion | MarkKind::Cancel(CancelCause::Late) => continue,
                MarkKind::Cancel(_) => g.cancel,
            };
            *cell = Some(match *cell {
                Some(old) if old == g.miss || old == g.cancel => old,
                Some(old) if old != new && new != g.miss && new != g.cancel => g.both,
                _ => new,
            });
        }
        cells
    }

    fn busy_cells(&self, row: &Row) -> Vec<Cell> {
        let mut busy_ns = vec![0u64; self.cells];
        let mut cells = vec![Cell::Idle; self.cells];
        for segment in &row.segments {
            let (first, last) =
                (self.cell(segment.from), self.cell(Time::from_ns(segment.to.as_ns().saturating_sub(1))));
            for cell in first..=last {
                let (start, end) = (self.cell_starts[cell], self.cell_starts[cell + 1]);
                let within = segment.to.as_ns().min(end).saturating_sub(segment.from.as_ns().max(start));
                let (cpu, open) = match segment.what {
                    Activity::Waiting => {
                        cells[cell] = cells[cell].max(Cell::Waiting);
                        continue;
                    }
                    Activity::Running { cpu } => (cpu, false),
                    Activity::InProgress { cpu } => (cpu, true),
                };
                busy_ns[cell] += within;
                let share = share_of(busy_ns[cell], end - start);
                cells[cell] = match cells[cell] {
                    // The longest stretch names the CPU; lateness is never hidden.
                    Cell::Busy { late, cpu: old, .. } if within * 2 < busy_ns[cell] => {
                        Cell::Busy { late: late || segment.late, cpu: old, open, share }
                    }
                    Cell::Busy { late, .. } => Cell::Busy { late: late || segment.late, cpu, open, share },
                    _ => Cell::Busy { late: segment.late, cpu, open, share },
                };
            }
        }
        cells
    }

    /// A cell's character and colour, 0 for none.
    fn show(&self, cell: Cell) -> (char, u8) {
        let g = self.glyphs;
        let numbered = self.numbered();
        match cell {
            Cell::Idle => (' ', 0),
            Cell::Waiting => (g.wait, ANSI_DIM),
            Cell::Busy { late, cpu, open, share } => {
                let glyph = match share {
                    // Without colours, numbers tell the CPUs apart.
                    _ if late => g.late,
                    _ if numbered && !open => char::from_digit(cpu % 36, 36).unwrap_or(g.full),
                    _ if open => g.open,
                    Share::Full => g.full,
                    Share::Half => g.half,
                    Share::Little => g.little,
                };
                (glyph, if late { ANSI_MISS } else { ANSI_CPU[cpu as usize % ANSI_CPU.len()] })
            }
        }
    }

    fn mode_lines(&self, out: &mut String) {
        for mode in &self.gantt.modes {
            let name = self.gantt.scene.strategy(mode.node, mode.mode);
            let cell = self.cell(mode.at);
            let width = self.options.width.max(40);
            let pad = (self.label + 2 + cell).min(width / 2);
            let text = format!("{} {name} from {}", self.glyphs.mode, clock(mode.at));
            let _ = writeln!(out, "{:pad$}{}", "", self.fit(&text, width - pad));
        }
    }

    fn cpus(&self) -> u32 {
        self.gantt.scene.nodes.iter().map(|node| node.cpus).max().unwrap_or(1)
    }

    /// Whether bars are made of the number of their CPU: where there are several, and no colours or too few of them.
    fn numbered(&self) -> bool {
        self.cpus() > if self.options.color { ANSI_CPU.len() as u32 } else { 1 }
    }

    fn legend(&self) -> Vec<String> {
        let g = self.glyphs;
        let mut words =
            vec![format!("{} release", g.release), format!("{} deadline", g.deadline), format!("{} both", g.both)];
        let marks = |kind: fn(&MarkKind) -> bool| self.gantt.rows.iter().flat_map(|r| &r.marks).any(|m| kind(&m.what));
        let segments =
            |test: fn(&crate::gantt::Segment) -> bool| self.gantt.rows.iter().flat_map(|r| &r.segments).any(test);
        let (cpus, numbered) = (self.cpus(), self.numbered());
        if !self.gantt.scene.preemptions {
            words.push(format!("{} in progress", g.open));
        } else if numbered {
            words.push("0 1 ... runs on that CPU".to_owned());
            if cpus > 10 {
                words.push("a runs on CPU 10, b on 11 ...".to_owned());
            }
        } else if cpus > 1 {
            for cpu in 0..cpus {
                words.push(format!("{} CPU {cpu}", self.paint(&g.full.to_string(), ANSI_CPU[cpu as usize])));
            }
        } else {
            words.push(format!("{} runs", g.full));
        }
        let partly = |cell: &Cell| matches!(cell, Cell::Busy { share: Share::Half | Share::Little, .. });
        if self.gantt.scene.preemptions
            && !numbered
            && self.gantt.rows.iter().any(|row| self.busy_cells(row).iter().any(partly))
        {
            words.push(format!("{} {} part of the time", g.half, g.little));
        }
        if segments(|s| s.what == Activity::Waiting) {
            words.push(format!("{} waits", g.wait));
        }
        if segments(|s| s.late && s.what != Activity::Waiting) {
            words.push(format!("{} past its deadline", g.late));
        }
        if marks(|kind| *kind == MarkKind::Miss) {
            words.push(format!("{} deadline missed", g.miss));
        }
        if marks(|kind| matches!(kind, MarkKind::Cancel(cause) if *cause != CancelCause::Late)) {
            words.push(format!("{} cancelled", g.cancel));
        }
        if !self.messages.is_empty() {
            words.push(format!("{}{} message from send to receive", g.in_flight, g.receive));
        }
        if self.messages.iter().any(|(_, arrows)| arrows.iter().any(|arrow| arrow.fate == Fate::Dropped)) {
            words.push(format!("{} message lost", g.miss));
        }
        if !self.gantt.lanes.is_empty() {
            words.push(format!("{} to {} budget left", g.levels[0], g.levels[7]));
        }
        let last = words.len() - 1;
        words.iter().enumerate().map(|(i, word)| if i < last { format!("{word},") } else { word.clone() }).collect()
    }

    /// Text cut to `columns_max` columns, in the character set asked for, and without control characters,
    /// which could command the terminal.
    fn fit(&self, text: &str, columns_max: usize) -> String {
        let plain = |c: char| match c {
            c if c.is_control() => '?',
            c if !self.options.unicode && !c.is_ascii() => '?',
            c => c,
        };
        let text: String = text.chars().map(plain).collect();
        clip_with(&text, columns_max, if self.options.unicode { "…" } else { ".." })
    }

    fn paint(&self, text: &str, colour: u8) -> String {
        if self.options.color { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn share_of(busy: u64, cell: u64) -> Share {
    // Cells differ by a nanosecond where the span does not divide.
    if busy + 1 >= cell {
        Share::Full
    } else if busy * 2 >= cell {
        Share::Half
    } else {
        Share::Little
    }
}

fn name<'a>(gantt: &'a Gantt, row: &Row) -> &'a str {
    gantt.scene.tasks.get(row.task).map_or("?", |task| task.name.as_str())
}

/// Words put into lines of at most `width` characters, colour codes not counted.
fn wrap<S: AsRef<str>>(words: &[S], width: usize) -> Vec<String> {
    let visible = |text: &str| {
        let mut count = 0;
        let mut code = false;
        for c in text.chars() {
            match c {
                '\x1b' => code = true,
                'm' if code => code = false,
                _ if !code => count += 1,
                _ => {}
            }
        }
        count
    };
    let mut lines: Vec<String> = Vec::new();
    let mut used = 0;
    for word in words {
        let long = visible(word.as_ref());
        match lines.last_mut() {
            Some(line) if used + 1 + long <= width => {
                line.push(' ');
                line.push_str(word.as_ref());
                used += 1 + long;
            }
            _ => {
                lines.push(word.as_ref().to_owned());
                used = long;
            }
        }
    }
    lines
}
