//! Results of an experiment: the paper's values beside the measured ones, and whether its claims
//! hold.

use takt_log::stats::Histogram;
use takt_report::{ClaimLine, Figure, Picture};

/// The results of an experiment.
#[derive(Default)]
pub struct Findings {
    /// The paper's claims.
    pub claims: Vec<Claim>,
    /// The paper's values beside the measured ones.
    pub tables: Vec<Comparison>,
    pub(super) figures: Vec<Drawn>,
    /// Differences from the paper and their reasons, as sentences.
    pub differences: Vec<String>,
    /// Notes on this run, as sentences.
    pub notes: Vec<String>,
    /// Files that the experiment itself wrote into its folder, such as logs and samples.
    pub(super) files: Vec<String>,
}

impl Findings {
    /// Whether all claims hold. `None` if no claim fails but some could not be decided.
    #[must_use]
    pub fn holds(&self) -> Option<bool> {
        if self.claims.iter().any(|claim| claim.holds == Some(false)) {
            return Some(false);
        }
        (!self.claims.is_empty() && self.claims.iter().all(|claim| claim.holds == Some(true))).then_some(true)
    }

    /// Adds differences from the paper.
    pub(super) fn differ<S: Into<String>, const N: usize>(&mut self, sentences: [S; N]) {
        self.differences.extend(sentences.map(S::into));
    }

    /// Adds a claim. `holds` is `None` if it could not be decided.
    pub(super) fn claim(
        &mut self,
        name: &'static str,
        claim: impl Into<String>,
        found: String,
        holds: Option<bool>,
    ) -> &mut Claim {
        self.claims.push(Claim { name, claim: claim.into(), found, holds });
        let last = self.claims.len() - 1;
        &mut self.claims[last]
    }
}

/// A claim of the paper, as checked here. It is about order and proportion, never about an absolute
/// time.
pub struct Claim {
    /// The claim's name in JSON.
    pub(super) name: &'static str,
    /// The claim as a sentence.
    pub claim: String,
    /// The values found.
    pub found: String,
    /// Whether it holds. `None`: not decided.
    pub holds: Option<bool>,
}

impl Claim {
    /// A smaller sample than `least` decides nothing. `what` names the values, as in "20 of the 300
    /// jobs".
    pub(super) fn needs(&mut self, sample: u64, least: u64, what: &str) {
        if sample < least {
            self.holds = None;
            self.found.push_str(&format!("; too short to decide: {sample} of the {least} {what} that it takes"));
        }
    }

    pub(super) fn line(&self) -> ClaimLine {
        ClaimLine { claim: self.claim.clone(), found: self.found.clone(), holds: self.holds }
    }
}

pub(super) struct Drawn {
    pub(super) file: String,
    pub(super) standalone_svg: String,
    pub(super) picture: Picture,
}

impl Drawn {
    pub(super) fn of(file: &str, figure: &Figure, title: impl Into<String>, caption: impl Into<String>) -> Drawn {
        let id = file.trim_end_matches(".svg");
        Drawn {
            file: file.to_owned(),
            standalone_svg: figure.svg(id, true),
            picture: Picture { title: title.into(), caption: caption.into(), svg: figure.svg(id, false) },
        }
    }
}

/// A table of the paper's values and the measured ones.
pub struct Comparison {
    /// The heading.
    pub title: String,
    /// The table or figure of the paper.
    pub cite: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// Digits after the decimal point of measured values. The paper's values keep their own digits.
    pub(super) digits: usize,
    pub(super) row_head: &'static str,
    pub(super) columns: Vec<String>,
    /// The sources of the values. The paper stands first.
    pub(super) sources: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Row {
    pub(super) name: String,
    pub(super) values: Vec<Vec<Option<f64>>>,
}

pub(super) const PAPER: &str = "paper";
pub(super) const MEASURED: &str = "measured";
/// The second source of a [`Comparison`] in virtual time.
pub(super) const SIMULATED: &str = "simulated";
/// A source on this kernel, beside simulated values.
pub(super) const LIVE: &str = "live";
/// A source on a kernel of the lab, beside simulated values.
pub(super) const LAB: &str = "lab";
/// The most columns beside each other. Above this, each source has a line of its own.
const COLUMNS_MAX: usize = 8;

impl Comparison {
    /// A table without rows. Measured values have so many digits after the decimal point.
    pub(super) fn new(title: impl Into<String>, cite: &'static str, unit: &'static str, digits: usize) -> Comparison {
        let (title, row_head) = (title.into(), "");
        Comparison { title, cite, unit, digits, row_head, columns: Vec::new(), sources: Vec::new(), rows: Vec::new() }
    }

    /// The same with these rows, which have the values of each source by column.
    pub(super) fn with<C: Into<String>>(
        self,
        row_head: &'static str,
        columns: impl IntoIterator<Item = C>,
        sources: impl Into<Vec<&'static str>>,
        rows: impl IntoIterator<Item = Row>,
    ) -> Comparison {
        let columns = columns.into_iter().map(C::into).collect();
        Comparison { row_head, columns, sources: sources.into(), rows: rows.into_iter().collect(), ..self }
    }

    /// A value as text. The paper's values look as it printed them.
    fn text(&self, source: usize, value: Option<f64>) -> String {
        match value.filter(|value| value.is_finite()) {
            None => "-".to_owned(),
            Some(value) if self.sources.get(source) == Some(&PAPER) => value.to_string(),
            Some(value) => format!("{value:.*}", self.digits),
        }
    }

    /// Heads and rows for the screen and the page.
    #[must_use]
    pub fn lines(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let wide = self.columns.len() * self.sources.len() <= COLUMNS_MAX;
        let value = |row: &Row, source: usize, column: usize| {
            self.text(source, row.values.get(source).and_then(|values| values.get(column)).copied().flatten())
        };
        // A column without any value of the paper is left out.
        let filled = |source: &usize, column: usize| self.rows.iter().any(|row| value(row, *source, column) != "-");
        let shown = |column: usize| (0..self.sources.len()).filter(move |source| *source > 0 || filled(source, column));
        let mut heads = vec![self.row_head.to_owned()];
        if wide {
            for (i, column) in self.columns.iter().enumerate() {
                heads.extend(shown(i).map(|source| match (column.as_str(), self.sources[source]) {
                    ("", source) => source.to_owned(),
                    (column, source) => format!("{column}, {source}"),
                }));
            }
        } else {
            heads.push(String::new());
            heads.extend(self.columns.iter().cloned());
        }
        let mut rows = Vec::new();
        for row in &self.rows {
            if wide {
                let mut cells = vec![row.name.clone()];
                for column in 0..self.columns.len() {
                    cells.extend(shown(column).map(|source| value(row, source, column)));
                }
                rows.push(cells);
                continue;
            }
            for (i, source) in self.sources.iter().enumerate() {
                let name = if i == 0 { row.name.clone() } else { String::new() };
                let mut cells = vec![name, (*source).to_owned()];
                cells.extend((0..self.columns.len()).map(|column| value(row, i, column)));
                rows.push(cells);
            }
        }
        (heads, rows)
    }

    /// Its source and its unit, as a sentence.
    pub(super) fn remark(&self) -> String {
        match self.sources.as_slice() {
            [PAPER, ..] => format!("{} of the paper, beside what was measured here; {}.", self.cite, self.unit),
            sources => {
                format!("Of what {} of the paper shows, {} here; {}.", self.cite, sources.join(" and "), self.unit)
            }
        }
    }

    /// CSV: a line for each value, with row, column and the value of each source.
    pub(super) fn csv(&self) -> String {
        let field = takt_report::csv::field;
        let mut text = format!("{},column,{}\n", field(self.row_head), self.sources.join(","));
        for row in &self.rows {
            for (i, column) in self.columns.iter().enumerate() {
                let values: Vec<String> = row
                    .values
                    .iter()
                    .map(|values| values.get(i).copied().flatten().map_or(String::new(), |value| value.to_string()))
                    .collect();
                text.push_str(&format!("{},{},{}\n", field(&row.name), field(column), values.join(",")));
            }
        }
        text
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let values = |row: &Row, column: usize| {
            let mut object = serde_json::Map::new();
            object.insert("column".to_owned(), self.columns[column].clone().into());
            for (i, source) in self.sources.iter().enumerate() {
                let value = row.values.get(i).and_then(|values| values.get(column)).copied().flatten();
                object.insert((*source).to_owned(), value.into());
            }
            serde_json::Value::Object(object)
        };
        let rows: Vec<serde_json::Value> = self
            .rows
            .iter()
            .map(|row| {
                let all: Vec<_> = (0..self.columns.len()).map(|column| values(row, column)).collect();
                serde_json::json!({ "row": row.name, "values": all })
            })
            .collect();
        serde_json::json!({ "title": self.title, "cite": self.cite, "unit": self.unit, "rows": rows })
    }
}

pub(super) fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Several times in microseconds, as the values of a row.
pub(super) fn in_us<const N: usize>(ns: [u64; N]) -> Vec<Option<f64>> {
    ns.map(|ns| Some(us(ns))).to_vec()
}

/// Points of a distribution function in ms and %. With `steps`, the points draw it as a line.
pub(super) fn distribution(all: &Histogram, steps: bool) -> Vec<(f64, f64)> {
    let count = all.count().max(1) as f64;
    let (mut sum, mut points) = (0, Vec::new());
    for bucket in all.buckets() {
        let x = us(bucket.upper_ns) / 1e3;
        if steps {
            points.push((x, sum as f64 / count * 100.0));
        }
        sum += bucket.count;
        points.push((x, sum as f64 / count * 100.0));
    }
    points
}

/// The mean. `None`: there is no value.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// A value for a sentence, with this number of digits after the point.
pub(super) fn decimal(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.digits$}"))
}

/// Whether `value` is between `low` and `high` times `of`. All are positive. `None` if the value is
/// unknown.
pub(super) fn within(value: Option<f64>, of: f64, low: f64, high: f64) -> Option<bool> {
    let ratio = value? / of;
    ratio.is_finite().then_some(low <= ratio && ratio <= high)
}

/// Whether all hold. `None` if one is unknown and none is false.
pub(super) fn all(holds: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut known = Some(true);
    for one in holds {
        match one {
            Some(false) => return Some(false),
            None => known = None,
            Some(true) => {}
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: usize) -> Comparison {
        Comparison::new("T", "Table I", "times in us", 1).with(
            "task",
            (0..columns).map(|i| format!("c{i}")),
            [PAPER, MEASURED],
            [Row { name: "a, b".to_owned(), values: vec![vec![Some(1.9858); columns], vec![Some(2.049), None]] }],
        )
    }

    #[test]
    fn the_papers_values_stand_as_printed_and_missing_ones_as_a_dash() {
        let (heads, rows) = table(2).lines();
        assert_eq!(heads, ["task", "c0, paper", "c0, measured", "c1, paper", "c1, measured"]);
        assert_eq!(rows, [["a, b", "1.9858", "2.0", "1.9858", "-"]]);
        let (heads, rows) = table(5).lines();
        assert_eq!(heads[..3], ["task", "", "c0"]);
        assert_eq!(rows[1], ["", "measured", "2.0", "-", "-", "-", "-"]);
        assert_eq!(table(2).csv(), "task,column,paper,measured\n\"a, b\",c0,1.9858,2.049\n\"a, b\",c1,1.9858,\n");
        assert!(table(2).json()["rows"][0]["values"][1]["measured"].is_null());
    }

    #[test]
    fn a_distribution_ends_at_all() {
        let mut all = Histogram::default();
        [1_000_000, 2_000_000, 2_000_000, 3_000_000].iter().for_each(|ns| all.record(*ns));
        let points = distribution(&all, false);
        assert_eq!(points.iter().map(|point| point.1).collect::<Vec<_>>(), [25.0, 75.0, 100.0]);
        assert!((points[0].0 - 1.0).abs() < 0.002);
        let steps = distribution(&all, true);
        assert_eq!(steps.iter().map(|point| point.1).collect::<Vec<_>>(), [0.0, 25.0, 25.0, 75.0, 75.0, 100.0]);
        assert_eq!([decimal(Some(1.0), 2), decimal(None, 2)], ["1.00", "unknown"]);
    }

    #[test]
    fn a_sample_that_is_too_short_decides_nothing() {
        for holds in [Some(true), Some(false), None] {
            let mut findings = Findings::default();
            findings.claim("long", "", "f".to_owned(), holds).needs(300, 300, "jobs");
            findings.claim("short", "", "f".to_owned(), holds).needs(299, 300, "jobs");
            assert_eq!((findings.claims[0].holds, findings.claims[0].found.as_str()), (holds, "f"));
            assert_eq!(findings.claims[1].holds, None);
            assert_eq!(findings.claims[1].found, "f; too short to decide: 299 of the 300 jobs that it takes");
        }
    }

    #[test]
    fn claims_decide_together() {
        let with = |claims: &[Option<bool>]| {
            let mut findings = Findings::default();
            for holds in claims {
                findings.claim("c", "", String::new(), *holds);
            }
            findings.holds()
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[Some(true), None]), None);
        assert_eq!(with(&[Some(true), None, Some(false)]), Some(false));
        assert_eq!(with(&[Some(true)]), Some(true));
        assert_eq!([all([None, Some(false)]), all([None, Some(true)]), all([])], [Some(false), None, Some(true)]);
        assert_eq!(within(Some(1.1), 1.0, 0.9, 1.2), Some(true));
        assert_eq!([within(None, 1.0, 0.9, 1.2), within(Some(1.0), 0.0, 0.9, 1.2)], [None, None]);
    }
}
