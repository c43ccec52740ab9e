//! Messages in a chart: an arrow from the row of the sender to the row of the receiver.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use takt_model::Time;

use super::{Drawing, Line, bar_px, cross};
use crate::axis::{clock, short};
use crate::markup::{Esc, Px};
use crate::messages::{Arrow, Fate};

/// With more messages than this, they have no tooltips.
const TOOLTIPS_MAX: usize = 1_000;

impl Drawing<'_> {
    /// The middle of each task's bars: in its row, or in that of its node's first CPU.
    pub(super) fn middles(&self, top: f64) -> BTreeMap<usize, f64> {
        let mut middles = BTreeMap::new();
        let mut y = top;
        for line in &self.lines {
            let h = self.height_of(line);
            let middle = self.base(y, h) - bar_px(h) / 2.0;
            match line {
                Line::Task(row) => drop(middles.insert(row.task, middle)),
                Line::Cpu(node, 0) => {
                    let tasks = self.gantt.scene.tasks.iter().enumerate().filter(|(_, task)| task.node == *node);
                    middles.extend(tasks.map(|(task, _)| (task, middle)));
                }
                _ => {}
            }
            y += h;
        }
        middles
    }

    pub(super) fn arrows(&mut self, middles: &BTreeMap<usize, f64>) {
        let tooltips = self.tooltips && self.gantt.messages.len() <= TOOLTIPS_MAX;
        let (mut ways, mut lost) = (String::new(), String::new());
        for arrow in &self.gantt.messages {
            let Some(path) = self.arrow(arrow, middles) else { continue };
            let class = if arrow.fate == Fate::Dropped { "message lost" } else { "message" };
            if tooltips {
                let title = Esc(&self.title(arrow)).to_string();
                let _ = write!(self.out, "<path class=\"{class}\" d=\"{path}\"><title>{title}</title></path>");
            } else if arrow.fate == Fate::Dropped {
                lost.push_str(&path);
            } else {
                ways.push_str(&path);
            }
        }
        for (class, d) in [("message", ways), ("message lost", lost)] {
            if !d.is_empty() {
                let _ = write!(self.out, "<path class=\"{class}\" d=\"{d}\"/>");
            }
        }
        self.out.push('\n');
    }

    /// The path of one arrow; `None` where a row of it is not drawn.
    fn arrow(&self, arrow: &Arrow, middles: &BTreeMap<usize, f64>) -> Option<String> {
        let y = *middles.get(&arrow.task)?;
        let to_y = arrow.fate.receiver().map_or(Some(y), |task| middles.get(&task).copied())?;
        // Where the window cuts it, it ends on the way.
        let span = arrow.until.saturating_since(arrow.sent).as_ns().max(1) as f64;
        let height = |at: Time| y + (to_y - y) * (at.saturating_since(arrow.sent).as_ns() as f64 / span).min(1.0);
        let (from, to) = (arrow.sent.max(self.gantt.from), arrow.until.min(self.gantt.to));
        let end = if to == arrow.until { to_y } else { height(to) };
        let start = if from == arrow.sent { y } else { height(from) };
        let (x1, x2) = (self.x(from), self.x(to));
        let mut path = format!("M{} {}L{} {}", Px(x1), Px(start), Px(x2), Px(end));
        if from == arrow.sent {
            let _ = write!(path, "M{} {}a2 2 0 1 0 4 0a2 2 0 1 0-4 0", Px(x1 - 2.0), Px(start));
        }
        match arrow.fate {
            Fate::Received(_) if to == arrow.until => path.push_str(&head((x1, start), (x2, end))),
            Fate::Dropped if to == arrow.until => path.push_str(&cross(x2, end, 3.5)),
            _ => {}
        }
        Some(path)
    }

    fn title(&self, arrow: &Arrow) -> String {
        let name = |task: usize| self.gantt.scene.tasks.get(task).map_or("?", |task| task.name.as_str());
        let way = short(arrow.until.saturating_since(arrow.sent));
        let (sent, until) = (clock(arrow.sent), clock(arrow.until));
        let message = format!("message of {} job {}: sent at {sent}", name(arrow.task), arrow.job);
        match arrow.fate {
            Fate::Received(task) => format!("{message}\nreceived at {until} ({way}) by {}", name(task)),
            Fate::Dropped => format!("{message}\nlost at {until}"),
            Fate::OnItsWay => message,
        }
    }
}

fn head((x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    let (dx, dy) = (x2 - x1, y2 - y1);
    let length = dx.hypot(dy);
    if length < 1.0 {
        return String::new();
    }
    let (dx, dy) = (dx / length, dy / length);
    let side = |s: f64| (Px(x2 - 6.0 * dx - s * dy), Px(y2 - 6.0 * dy + s * dx));
    let ((ax, ay), (bx, by)) = (side(3.0), side(-3.0));
    format!("M{ax} {ay}L{} {}L{bx} {by}", Px(x2), Px(y2))
}
