//! The results of a study, and its files. All of it is a function of the verdicts in the order of
//! points and sets, so neither threads nor an interruption changes the files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use serde_json::{Value, json};
use takt_analysis::portfolio::THEOREMS;
use takt_report::parquet::{Column, Values, parquet};
use takt_report::{Curve, CurvePoint, Curves, StudyPage};

use super::definition::{Definition, Method, Point, Series};
use super::journal::{Place, Verdicts};
use crate::table::Table;

const MAKER: &str = concat!("takt ", env!("CARGO_PKG_VERSION"));

#[derive(Clone, Copy, Default)]
struct Count {
    yes: u64,
    no: u64,
    /// Sum of the utilisations of the sets with a yes, in billionths.
    weight: u128,
}

/// One series compared with another of its strategy.
#[derive(Clone, Copy, Default)]
struct Pair {
    /// Sets to which the first says yes and the second does not.
    only: u64,
    /// Sets to which the first says yes and the second no.
    against: u64,
    /// The first of those: point and set.
    first: Option<(usize, u64)>,
}

/// One series over all utilisations of a number of CPUs and of tasks.
struct Weighted<'a> {
    cpus: u32,
    tasks: u32,
    series: &'a Series,
    sets: u64,
    yes: u64,
    no: u64,
    weighted: f64,
}

pub(crate) struct Results<'a> {
    definition: &'a Definition<'a>,
    verdicts: Vec<(usize, u64, Verdicts)>,
    /// By point, then by series.
    counts: Vec<Vec<Count>>,
    /// Per point, how many sets were drawn, and their utilisations in billionths.
    sets: Vec<u64>,
    weights: Vec<u128>,
    /// Sets that the generator refused.
    refused: u64,
    pairs: BTreeMap<(usize, usize), Pair>,
}

impl<'a> Results<'a> {
    pub(crate) fn new(definition: &'a Definition<'a>, done: &BTreeMap<Place, Vec<Verdicts>>) -> Results<'a> {
        let series = &definition.series;
        let mut results = Results {
            definition,
            verdicts: Vec::new(),
            counts: vec![vec![Count::default(); series.len()]; definition.points.len()],
            sets: vec![0; definition.points.len()],
            weights: vec![0; definition.points.len()],
            refused: 0,
            pairs: BTreeMap::new(),
        };
        let comparable: Vec<(usize, usize)> = (0..series.len())
            .flat_map(|a| (0..series.len()).map(move |b| (a, b)))
            .filter(|(a, b)| a != b && series[*a].strategy == series[*b].strategy)
            .collect();
        let mut pairs = vec![Pair::default(); comparable.len()];
        let mut number = (0usize, 0u64);
        for ((point, _), chunk) in done {
            let point = *point as usize;
            if point >= definition.points.len() {
                continue;
            }
            if number.0 != point {
                number = (point, 0);
            }
            for set in chunk {
                if *set == Verdicts::REFUSED {
                    results.refused += 1;
                    number.1 += 1;
                    continue;
                }
                results.sets[point] += 1;
                let says = |i: usize| set.bits >> (2 * i) & 3;
                results.weights[point] += u128::from(set.utilization);
                for (i, count) in results.counts[point].iter_mut().enumerate() {
                    match says(i) {
                        1 => {
                            count.yes += 1;
                            count.weight += u128::from(set.utilization);
                        }
                        2 => count.no += 1,
                        _ => {}
                    }
                }
                for ((a, b), pair) in comparable.iter().zip(&mut pairs) {
                    let takes = |i: usize| series[i].takes(definition.points[point].cpus);
                    if says(*a) == 1 && says(*b) != 1 && takes(*b) {
                        pair.only += 1;
                        if says(*b) == 2 && !partitions(&series[*a], &series[*b]) {
                            pair.against += 1;
                            pair.first = pair.first.or(Some((point, number.1)));
                        }
                    }
                }
                if definition.options.per_set {
                    results.verdicts.push((point, number.1, *set));
                }
                number.1 += 1;
            }
        }
        results.pairs = comparable.into_iter().zip(pairs).collect();
        results
    }

    /// Sets that the generator refused, over all points. They are in no count.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Contradictions between verdicts, or with a theorem, in words.
    pub(crate) fn findings(&self) -> Vec<String> {
        let series = &self.definition.series;
        let mut found = Vec::new();
        for ((a, b), pair) in &self.pairs {
            if let Some((point, set)) = pair.first {
                let Point { cpus, tasks, .. } = self.definition.points[point];
                found.push(format!(
                    "{} says yes where {} says no: {} sets; the first is set {set} of {cpus} CPUs, {tasks} \
                     tasks, {} per CPU",
                    series[*a].full_name(),
                    series[*b].full_name(),
                    pair.against,
                    self.definition.points[point].utilization(),
                ));
            }
            let theorem = THEOREMS.iter().find(|theorem| {
                let names = theorem.weak == series[*a].name && theorem.strong == series[*b].name;
                names && theorem.strategies.contains(&series[*a].strategy)
            });
            if let Some(theorem) = theorem.filter(|_| pair.only > 0) {
                found.push(format!(
                    "{} accepts {} sets that {} does not, against {}",
                    series[*a].full_name(),
                    pair.only,
                    series[*b].full_name(),
                    theorem.source
                ));
            }
        }
        found
    }

    /// Per CPUs and tasks and series: the places of its points.
    fn groups(&self) -> Vec<(u32, u32, Vec<usize>)> {
        let mut groups: Vec<(u32, u32, Vec<usize>)> = Vec::new();
        for (place, point) in self.definition.points.iter().enumerate() {
            match groups.last_mut() {
                Some((cpus, tasks, places)) if (*cpus, *tasks) == (point.cpus, point.tasks) => places.push(place),
                _ => groups.push((point.cpus, point.tasks, vec![place])),
            }
        }
        groups
    }

    /// A row per number of CPUs and of tasks and series.
    fn weighted(&self) -> Vec<Weighted<'_>> {
        let mut rows = Vec::new();
        for (cpus, tasks, places) in self.groups() {
            for (i, series) in self.definition.series.iter().enumerate().filter(|(_, series)| series.takes(cpus)) {
                let yes = places.iter().map(|place| self.counts[*place][i].yes).sum();
                let no = places.iter().map(|place| self.counts[*place][i].no).sum();
                let weight: u128 = places.iter().map(|place| self.counts[*place][i].weight).sum();
                let all: u128 = places.iter().map(|place| self.weights[*place]).sum();
                let sets = places.iter().map(|place| self.sets[*place]).sum();
                let weighted = weight as f64 / all.max(1) as f64;
                rows.push(Weighted { cpus, tasks, series, sets, yes, no, weighted });
            }
        }
        rows
    }

    pub(crate) fn weighted_json(&self) -> Vec<Value> {
        let row = |Weighted { cpus, tasks, series, sets, yes, no, weighted }: Weighted<'_>| {
            json!({
                "cpus": cpus, "tasks": tasks, "strategy": series.strategy.name(), "test": series.name,
                "sets": sets, "yes": yes, "no": no, "weighted": weighted,
            })
        };
        self.weighted().into_iter().map(row).collect()
    }

    pub(crate) fn text(&self, folder: &str) -> String {
        let mut table = Table::headed("CPUS|TASKS|STRATEGY|TEST|SETS|SCHEDULABLE|REFUTED|WEIGHTED");
        for Weighted { cpus, tasks, series, sets, yes, no, weighted } in self.weighted() {
            table.row(vec![
                cpus.to_string(),
                tasks.to_string(),
                series.strategy.name().to_owned(),
                series.name.to_owned(),
                sets.to_string(),
                format!("{:.1}%", 100.0 * yes as f64 / sets.max(1) as f64),
                format!("{:.1}%", 100.0 * no as f64 / sets.max(1) as f64),
                format!("{weighted:.4}"),
            ]);
        }
        format!("{}\nThe page is {folder}/index.html; the numbers are in results.csv.\n", table.render(""))
    }

    pub(crate) fn write(&self, folder: &Path, definition: &str) -> io::Result<Vec<String>> {
        let mut files = vec!["study.toml".to_owned()];
        let mut write = |name: &str, bytes: &[u8]| {
            files.push(name.to_owned());
            replace(&folder.join(name), bytes)
        };
        self.table(self.points(), "results", &mut write)?;
        if self.definition.options.per_set {
            self.table(self.sets(), "sets", &mut write)?;
        }
        self.table(self.weights_table(), "weighted", &mut write)?;
        self.table(self.comparison(), "compare", &mut write)?;
        let charts = self.charts();
        for (chart, (cpus, tasks, _)) in charts.iter().zip(self.groups()) {
            write(&format!("acceptance-{cpus}-cpus-{tasks}-tasks.svg"), chart.svg("curves", true).as_bytes())?;
        }
        write("index.html", self.page(&charts, definition).as_bytes())?;
        Ok(files)
    }

    fn table(
        &self,
        columns: Vec<Column>,
        name: &str,
        write: &mut dyn FnMut(&str, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        write(&format!("{name}.csv"), csv(&columns).as_bytes())?;
        match parquet(&columns, MAKER) {
            Some(bytes) => write(&format!("{name}.parquet"), &bytes),
            None => Err(io::Error::other(format!("{name}.parquet would be too large; {name}.csv has it all"))),
        }
    }

    /// A row per point and series.
    fn points(&self) -> Vec<Column> {
        let mut rows = Rows::new("cpus tasks utilization strategy test sets yes no ratio low high");
        for ((point, counts), sets) in self.definition.points.iter().zip(&self.counts).zip(&self.sets) {
            for (series, count) in
                self.definition.series.iter().zip(counts).filter(|(series, _)| series.takes(point.cpus))
            {
                let (ratio, low, high) = wilson(count.yes, *sets);
                rows.row(vec![
                    Cell::Whole(point.cpus.into()),
                    Cell::Whole(point.tasks.into()),
                    Cell::Part(point.utilization()),
                    Cell::Text(series.strategy.name()),
                    Cell::Text(series.name),
                    Cell::Whole(*sets as i64),
                    Cell::Whole(count.yes as i64),
                    Cell::Whole(count.no as i64),
                    Cell::Part(ratio),
                    Cell::Part(low),
                    Cell::Part(high),
                ]);
            }
        }
        rows.columns
    }

    /// A row per set; verdicts 1 yes, 0 unknown, -1 no.
    fn sets(&self) -> Vec<Column> {
        let points = &self.definition.points;
        let column = |name: &str, values: Values| Column { name: name.to_owned(), values };
        let whole =
            |value: &dyn Fn(&(usize, u64, Verdicts)) -> i64| Values::I64(self.verdicts.iter().map(value).collect());
        let mut columns = vec![
            column("cpus", whole(&|(point, _, _)| points[*point].cpus.into())),
            column("tasks", whole(&|(point, _, _)| points[*point].tasks.into())),
            column(
                "utilization",
                Values::F64(self.verdicts.iter().map(|(point, _, _)| points[*point].utilization()).collect()),
            ),
            column("set", whole(&|(_, number, _)| *number as i64)),
            column(
                "total",
                Values::F64(self.verdicts.iter().map(|(_, _, set)| set.utilization as f64 / 1e9).collect()),
            ),
        ];
        for (i, series) in self.definition.series.iter().enumerate() {
            let says = |(_, _, set): &(usize, u64, Verdicts)| [0, 1, -1, 0][(set.bits >> (2 * i) & 3) as usize];
            columns.push(column(&series.full_name(), Values::I32(self.verdicts.iter().map(says).collect())));
        }
        columns
    }

    fn weights_table(&self) -> Vec<Column> {
        let mut rows = Rows::new("cpus tasks strategy test sets yes no weighted");
        for Weighted { cpus, tasks, series, sets, yes, no, weighted } in self.weighted() {
            rows.row(vec![
                Cell::Whole(cpus.into()),
                Cell::Whole(tasks.into()),
                Cell::Text(series.strategy.name()),
                Cell::Text(series.name),
                Cell::Whole(sets as i64),
                Cell::Whole(yes as i64),
                Cell::Whole(no as i64),
                Cell::Part(weighted),
            ]);
        }
        rows.columns
    }

    /// A row per ordered pair of series of one strategy.
    fn comparison(&self) -> Vec<Column> {
        let series = &self.definition.series;
        let mut rows = Rows::new("strategy test other only contradictions");
        for ((a, b), pair) in &self.pairs {
            rows.row(vec![
                Cell::Text(series[*a].strategy.name()),
                Cell::Text(series[*a].name),
                Cell::Text(series[*b].name),
                Cell::Whole(pair.only as i64),
                Cell::Whole(pair.against as i64),
            ]);
        }
        rows.columns
    }

    fn charts(&self) -> Vec<Curves> {
        let several = self.definition.options.strategy.0.len() > 1
            || self.definition.series.iter().any(|series| series.strategy != self.definition.series[0].strategy);
        let mut strategies: Vec<&str> = Vec::new();
        for series in &self.definition.series {
            if !strategies.contains(&series.strategy.name()) {
                strategies.push(series.strategy.name());
            }
        }
        let strategies = strategies.join(", ");
        let chart = |(cpus, tasks, places): (u32, u32, Vec<usize>)| {
            let shown = self
                .definition
                .series
                .iter()
                .enumerate()
                .filter(|(_, series)| series.takes(cpus) && !matches!(series.method, Method::Simulation));
            let curve = |(i, series): (usize, &Series)| Curve {
                name: if several { series.full_name() } else { series.name.to_owned() },
                points: (places.iter())
                    .map(|place| {
                        let (y, low, high) = wilson(self.counts[*place][i].yes, self.sets[*place]);
                        CurvePoint { x: self.definition.points[*place].utilization(), y, low, high }
                    })
                    .collect(),
            };
            let cpu = if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
            Curves {
                title: format!("{strategies}: {cpu}, {tasks} tasks"),
                x: "utilization per CPU".to_owned(),
                y: "sets proven schedulable".to_owned(),
                curves: shown.map(curve).collect(),
            }
        };
        self.groups().into_iter().map(chart).collect()
    }

    fn page(&self, charts: &[Curves], definition: &str) -> String {
        let options = self.definition.options;
        let lead = format!(
            "{} random sets at each of {} points, seed {}, by takt's generators. A test that says yes has \
             proven every deadline of the set.{}",
            options.sets,
            self.definition.points.len(),
            options.seed,
            match self.refused {
                0 => String::new(),
                refused => format!(" {refused} sets are left out, since their tasks exceed the utilization."),
            }
        );
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut weighted = vec![text(&["CPUs", "Tasks", "Strategy", "Test", "Sets", "Schedulable", "Not", "Weighted"])];
        for Weighted { cpus, tasks, series, sets, yes, no, weighted: weight } in self.weighted() {
            weighted.push(vec![
                cpus.to_string(),
                tasks.to_string(),
                series.strategy.name().to_owned(),
                series.name.to_owned(),
                sets.to_string(),
                yes.to_string(),
                no.to_string(),
                format!("{weight:.4}"),
            ]);
        }
        let mut compared = vec![text(&["Strategy", "Test", "accepts what does not", "Sets", "Contradictions"])];
        for ((a, b), pair) in self.pairs.iter().filter(|(_, pair)| pair.only > 0) {
            let series = &self.definition.series;
            compared.push(vec![
                series[*a].strategy.name().to_owned(),
                series[*a].name.to_owned(),
                series[*b].name.to_owned(),
                pair.only.to_string(),
                pair.against.to_string(),
            ]);
        }
        let tables = [
            (
                "Weighted schedulability".to_owned(),
                "The sum of the utilizations of the sets that a test accepts, over that of all sets (A. \
                 Bastoni, B. Brandenburg, J. Anderson, OSPERT 2010): one number for a whole curve."
                    .to_owned(),
                weighted,
            ),
            (
                "One against the other".to_owned(),
                "How many sets a test accepts and another test does not; in a contradiction, one test proves a set \
                 schedulable and the other proves the opposite."
                    .to_owned(),
                compared,
            ),
        ];
        let findings = self.findings();
        let page = StudyPage {
            title: "Study",
            lead: &lead,
            findings: &findings,
            charts,
            tables: &tables,
            definition,
            maker: MAKER,
        };
        page.html()
    }
}

/// Partitioned and global scheduling are different schedulers: one's yes and the other's no are no contradiction.
fn partitions(a: &Series, b: &Series) -> bool {
    let partition = |series: &Series| matches!(series.method, Method::Partition(_));
    partition(a) != partition(b)
}

/// The share of `yes`, and its 95 % confidence interval (E. B. Wilson: Probable Inference, JASA 22, 1927).
fn wilson(yes: u64, all: u64) -> (f64, f64, f64) {
    const Z: f64 = 1.959_963_984_540_054;
    let n = all.max(1) as f64;
    let p = yes as f64 / n;
    let middle = p + Z * Z / (2.0 * n);
    let wide = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (p, ((middle - wide) / scale).clamp(0.0, p), ((middle + wide) / scale).clamp(p, 1.0))
}

enum Cell {
    Whole(i64),
    Part(f64),
    Text(&'static str),
}

struct Rows {
    columns: Vec<Column>,
}

impl Rows {
    fn new(names: &str) -> Rows {
        let column = |name: &str| Column {
            name: name.to_owned(),
            values: match name {
                "utilization" | "ratio" | "low" | "high" | "weighted" => Values::F64(Vec::new()),
                "strategy" | "test" | "other" => Values::Text(Vec::new()),
                _ => Values::I64(Vec::new()),
            },
        };
        Rows { columns: names.split(' ').map(column).collect() }
    }

    fn row(&mut self, cells: Vec<Cell>) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (&mut column.values, cell) {
                (Values::I64(values), Cell::Whole(value)) => values.push(value),
                (Values::F64(values), Cell::Part(value)) => values.push(value),
                (Values::Text(values), Cell::Text(value)) => values.push(value.to_owned()),
                (values, _) => unreachable!("a cell of another kind in {values:?}"),
            }
        }
    }
}

/// Names and numbers need no quotes.
fn csv(columns: &[Column]) -> String {
    let mut text = columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(",") + "\n";
    let rows = columns.first().map_or(0, |column| match &column.values {
        Values::I64(values) => values.len(),
        Values::I32(values) => values.len(),
        Values::F64(values) => values.len(),
        Values::Text(values) => values.len(),
    });
    for row in 0..rows {
        for (i, column) in columns.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let _ = match &column.values {
                Values::I64(values) => write!(text, "{comma}{}", values[row]),
                Values::I32(values) => write!(text, "{comma}{}", values[row]),
                Values::F64(values) => write!(text, "{comma}{}", values[row]),
                Values::Text(values) => write!(text, "{comma}{}", values[row]),
            };
        }
        text.push('\n');
    }
    text
}

/// Writes a whole file, under another name first. So a kill leaves the old file or the new file.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, bytes)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
