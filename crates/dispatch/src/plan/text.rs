//! A plan as a table for people.

use std::fmt;

use takt_model::plan::Order;
use takt_model::{Arrival, Time};

use super::{Plan, PlanLevelRow, Row};

/// A table for people: one operation for each line, by level and subpriority. A table for each mode
/// follows.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "strategy {}; SCHED_FIFO: timers {}", self.strategy, self.timer_priority)?;
        if let Some(demoted) = self.demoted_priority {
            write!(f, ", demoted jobs {}", priorities_of(demoted, self.demoted_nesting))?;
        }
        f.write_str("\n")?;
        self.show(f, &self.rows, &self.levels)?;
        for mode in &self.modes {
            match (&mode.name, mode.at) {
                (Some(name), _) => writeln!(f, "mode {name}: strategy {}", mode.strategy)?,
                (None, at) => writeln!(f, "from {} on strategy {}", at.unwrap_or(Time::ZERO), mode.strategy)?,
            }
            self.show(f, &mode.rows, &mode.levels)?;
        }
        Ok(())
    }
}

/// The priorities of jobs that nest.
fn priorities_of(least: u8, nesting: u32) -> String {
    if nesting > 1 { format!("{least}-{}", u32::from(least) + nesting - 1) } else { least.to_string() }
}

/// The columns of the table, and whether they are right-aligned.
const COLUMNS: [(&str, bool); 10] = [
    ("cpu", true),
    ("level", true),
    ("discipline", false),
    ("priority", true),
    ("subpriority", true),
    ("operation", false),
    ("period", true),
    ("wcet", true),
    ("deadline", true),
    ("criticality", false),
];

impl Plan {
    fn show(&self, f: &mut fmt::Formatter<'_>, rows: &[Row], levels: &[PlanLevelRow]) -> fmt::Result {
        let mut sorted: Vec<&Row> = rows.iter().filter(|row| row.takes_part).collect();
        sorted.sort_by_key(|row| (row.level, row.subpriority));
        let lines: Vec<[String; 10]> = sorted.into_iter().filter_map(|row| self.cells(row, levels)).collect();
        let several = self.system.nodes.get(self.node.index()).is_some_and(|node| node.cpus > 1);
        // One CPU needs no column.
        let head = COLUMNS.map(|(name, _)| name.to_owned());
        let all = || std::iter::once(&head).chain(&lines);
        let mut widths = [0; 10];
        for line in all() {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        for line in all() {
            let mut text = String::new();
            let cells = line.iter().zip(widths).zip(COLUMNS).skip(usize::from(!several));
            for ((cell, width), (_, right)) in cells {
                let padded = if right { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
                text.push_str(&padded);
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        let absent: Vec<&str> = rows.iter().filter(|row| !row.takes_part).map(|row| row.name.as_str()).collect();
        if !absent.is_empty() {
            writeln!(f, "without {}", absent.join(", "))?;
        }
        Ok(())
    }

    fn cells(&self, row: &Row, levels: &[PlanLevelRow]) -> Option<[String; 10]> {
        let task = self.system.tasks.get(row.task.index())?;
        let discipline = match row.order {
            Order::Fifo => "fifo",
            Order::Deadline => "deadline",
            Order::Laxity => "laxity",
        };
        let sporadic = if task.arrival == Arrival::Sporadic { ">=" } else { "" };
        Some([
            row.cpu.to_string(),
            row.level.to_string(),
            discipline.to_owned(),
            priorities_of(row.priority, levels.get(row.level as usize).map_or(1, |level| level.nesting)),
            row.subpriority.to_string(),
            row.name.clone(),
            format!("{sporadic}{}", row.period),
            task.wcet.to_string(),
            task.deadline.to_string(),
            task.criticality.to_string(),
        ])
    }
}
