//! Tables for people: columns as wide as their cells, numbers to the right.

use std::fmt::Write as _;

use takt_model::Span;
use unicode_width::UnicodeWidthStr as _;

/// Most rows of a long table on a terminal.
const ROWS_MAX: usize = 200;

/// The rows of a long table that a terminal gets. A pipe and a file get all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rows {
    All,
    /// The first [`ROWS_MAX`] by importance.
    Most,
    /// The same, by a verb whose option `--all` gives the others.
    MostUnlessAll,
}

impl Rows {
    /// The rows of a verb with the option `--all`.
    pub(crate) fn unless(all: bool) -> Rows {
        if all { Rows::All } else { Rows::MostUnlessAll }
    }

    fn limit(self) -> usize {
        let on_terminal = crate::output::terminal_width().is_some();
        if self == Rows::All || !on_terminal { usize::MAX } else { ROWS_MAX }
    }

    /// At most as many of the lines as a table may have rows: those with the least rank.
    pub(crate) fn lines<K: Ord>(self, lines: Vec<(K, String)>, what: &str) -> String {
        let limit = self.limit();
        let left_out = lines.len().saturating_sub(limit);
        let (ranks, lines): (Vec<K>, Vec<String>) = lines.into_iter().unzip();
        let kept = kept(ranks, limit);
        let mut text: String =
            lines.iter().zip(kept).filter(|(_, kept)| *kept).map(|(line, _)| format!("{line}\n")).collect();
        self.note_left_out(&mut text, left_out, what);
        text
    }

    fn note_left_out(self, text: &mut String, left_out: usize, what: &str) {
        let option = if self == Rows::MostUnlessAll { "--all, " } else { "" };
        if left_out > 0 {
            let _ = writeln!(text, "... and {left_out} more {what}; {option}a pipe, a file or --json gets all of them");
        }
    }
}

/// Which of the rows with these ranks are the `limit` least ones.
fn kept<K: Ord>(ranks: Vec<K>, limit: usize) -> Vec<bool> {
    let mut kept = vec![ranks.len() <= limit; ranks.len()];
    if ranks.len() > limit {
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by(|a, b| ranks[*a].cmp(&ranks[*b]));
        order.iter().take(limit).for_each(|row| kept[*row] = true);
    }
    kept
}

/// A table under construction. A column whose cells are all numbers or times is set to the right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// The headings stand in one text, with `|` between them.
    pub(crate) fn headed(heads: &str) -> Table {
        Table::new(&heads.split('|').collect::<Vec<_>>())
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// Leaves out the columns in which no row says anything.
    pub(crate) fn without_empty_columns(mut self) -> Table {
        let columns = self.rows.first().map_or(0, Vec::len);
        let told = |column: usize| self.rows.iter().skip(1).any(|row| !matches!(row[column].as_str(), "" | "-"));
        let keep: Vec<bool> = (0..columns).map(told).collect();
        for row in &mut self.rows {
            let mut keep = keep.iter();
            row.retain(|_| keep.next().copied().unwrap_or(true));
        }
        self
    }

    pub(crate) fn without(mut self, heading: &str) -> Table {
        if let Some(column) = self.rows.first().and_then(|head| head.iter().position(|cell| cell == heading)) {
            self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
        self
    }

    /// Leaves out columns until the lines fit, the last ones of `importance` first.
    pub(crate) fn fitting(mut self, importance: &[&str], limit: usize) -> Table {
        let mut importance = importance.iter().rev();
        while self.width() > limit {
            let Some(least) = importance.next() else { break };
            self = self.without(least);
        }
        self
    }

    /// Columns of a terminal that its lines take.
    fn width(&self) -> usize {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widest = |column: usize| self.rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
        (0..columns).map(widest).sum::<usize>() + columns.saturating_sub(1) * 2
    }

    /// The table's lines. A terminal gets the `rows` with the least `rank`, a function of a row's number and cells. A
    /// last line counts the other rows and calls them `what`.
    pub(crate) fn render_long<K: Ord>(self, rows: Rows, what: &str, rank: impl Fn(usize, &[String]) -> K) -> String {
        let (table, left_out) = self.cut(rows.limit(), rank);
        let mut text = table.render("");
        rows.note_left_out(&mut text, left_out, what);
        text
    }

    /// The `limit` rows with the least rank, and how many are left out.
    fn cut<K: Ord>(mut self, limit: usize, rank: impl Fn(usize, &[String]) -> K) -> (Table, usize) {
        let count = self.rows.len().saturating_sub(1);
        if count <= limit {
            return (self, 0);
        }
        let ranks = self.rows.iter().skip(1).enumerate().map(|(number, row)| rank(number, row)).collect();
        let mut kept = std::iter::once(true).chain(kept(ranks, limit));
        self.rows.retain(|_| kept.next().unwrap_or(false));
        (self, count - limit)
    }

    /// Each line indented by `indent`, with a newline after each. On a terminal too narrow for a
    /// table of numbers, columns that do not fit stand below, after the first one again.
    pub(crate) fn render(&self, indent: &str) -> String {
        self.within(crate::output::terminal_width().unwrap_or(usize::MAX), indent)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.within(usize::MAX, "").lines().map(str::to_owned).collect()
    }

    fn within(&self, limit: usize, indent: &str) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| self.rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
        let right = |column: usize| {
            let mut cells = self.rows.iter().skip(1).map(|row| row[column].as_str()).filter(|cell| !cell.is_empty());
            column > 0
                && cells
                    .all(|cell| cell == "-" || cell.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()))
        };
        let layout: Vec<(usize, bool)> = (0..columns).map(|column| (width(column), right(column))).collect();
        let mut parts: Vec<Vec<usize>> = vec![Vec::new()];
        let folds = layout.last().is_some_and(|(_, right)| *right);
        let mut used = indent.len();
        for (column, (width, _)) in layout.iter().enumerate() {
            if folds && column > 1 && used + width > limit {
                parts.push(vec![0]);
                used = indent.len() + layout[0].0 + 2;
            }
            if let Some(part) = parts.last_mut() {
                part.push(column);
            }
            used += width + 2;
        }
        let parts: Vec<String> = parts.iter().map(|part| self.part(part, &layout, indent)).collect();
        parts.join("\n")
    }

    fn part(&self, columns: &[usize], layout: &[(usize, bool)], indent: &str) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (i, &column) in columns.iter().enumerate() {
                let (cell, (width, right)) = (&row[column], layout[column]);
                if i > 0 {
                    line.push_str("  ");
                }
                line.push_str(&padded(cell, width, right));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A time for people: four digits, rounded up.
pub(crate) fn time(span: Span) -> String {
    span.four_digits().to_string()
}

/// Columns that a text takes on a terminal: two for the wide characters of East Asia, none for combining ones.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

fn padded(cell: &str, columns: usize, right: bool) -> String {
    let gap = " ".repeat(columns.saturating_sub(width(cell)));
    if right { gap + cell } else { cell.to_owned() + &gap }
}

pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_table_keeps_the_rows_that_matter() {
        let mut table = Table::new(&["TASK", "IN TIME"]);
        for i in 0..10 {
            table.row(vec![format!("t{i}"), if i % 4 == 3 { "no" } else { "yes" }.to_owned()]);
        }
        let in_time = |_: usize, row: &[String]| row[1] != "no";
        let names = |table: &Table| table.rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>().join(" ");
        let (cut, left_out) = table.clone().cut(4, in_time);
        assert_eq!((names(&cut).as_str(), left_out), ("TASK t0 t1 t3 t7", 6));
        assert_eq!(names(&table.clone().cut(1, in_time).0), "TASK t3");
        assert_eq!(table.clone().cut(10, in_time).1, 0);
        // By a number of the row, which need not stand in it.
        assert_eq!(names(&table.clone().cut(3, |number, _| 10 - number).0), "TASK t7 t8 t9");
    }

    #[test]
    fn times_are_rounded_to_the_side_that_warns() {
        assert_eq!(time(Span::from_ns(10_000_001)), "10.01ms");
        assert_eq!(time(Span::from_ns(10_000_000)), "10ms");
        assert_eq!(time(Span::from_ns(1_234_567_890)), "1.235s");
        assert_eq!(time(Span::from_ns(999)), "999ns");
        assert!(!time(Span::from_ns(u64::MAX)).is_empty());
    }

    #[test]
    fn numbers_stand_right_and_empty_columns_go() {
        let mut table = Table::new(&["TASK", "N", "NOTE"]);
        table.row(vec!["a".into(), "5".into(), "-".into()]);
        table.row(vec!["long".into(), "100".into(), String::new()]);
        assert_eq!(table.without_empty_columns().render("  "), "  TASK    N\n  a       5\n  long  100\n");
    }

    #[test]
    fn columns_are_as_wide_as_they_look() {
        let mut table = Table::new(&["task", "n"]);
        table.row(vec!["制御".into(), "1".into()]);
        table.row(vec!["cafe\u{301}".into(), "20".into()]);
        table.row(vec!["123456".into(), "3".into()]);
        assert_eq!(table.within(80, ""), "task     n\n制御     1\ncafe\u{301}    20\n123456   3\n");
    }

    #[test]
    fn columns_that_do_not_fit_stand_below() {
        let mut table = Table::new(&["task", "min", "max"]);
        table.row(vec!["a".into(), "1ms".into(), "20ms".into()]);
        assert_eq!(table.within(15, ""), "task  min   max\na     1ms  20ms\n");
        assert_eq!(table.within(14, ""), "task  min\na     1ms\n\ntask   max\na     20ms\n");
    }
}
