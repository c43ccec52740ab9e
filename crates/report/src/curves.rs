//! Curves of shares with confidence intervals, and the page of a study.

use std::fmt::Write as _;

use crate::html::STYLE;
use crate::markup::{Esc, Grid, Px, axis_names, page};
use crate::svg::{CHART_CSS, COLOURS, svg_head};

/// A point of a curve; shares in [0, 1].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CurvePoint {
    /// Along the horizontal axis.
    pub x: f64,
    /// The share.
    pub y: f64,
    /// The lower end of its confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// For the legend.
    pub name: String,
    /// By ascending x.
    pub points: Vec<CurvePoint>,
}

/// A chart of curves over one axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Curves {
    /// Above it.
    pub title: String,
    /// The label of the horizontal axis, unit included.
    pub x: String,
    /// The label of the vertical axis.
    pub y: String,
    /// Drawn in this order, with colours in this order.
    pub curves: Vec<Curve>,
}

const CSS: &str = ".takt-chart .band{fill:var(--c);fill-opacity:.13;stroke:none}\
.takt-chart .head{font-size:15px;font-weight:600}.takt-chart .name{font-size:12px}.takt-chart \
.axis{font-size:12px;fill:var(--soft)}";

const WIDTH: f64 = 860.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 44.0;
const BODY: f64 = 330.0;
const ROW: f64 = 19.0;
/// Kinds of dashes in the style sheet, and of markers.
pub(crate) const DASHES: usize = 4;
const MARKERS: usize = 5;

impl Curves {
    /// The chart as one `<svg>`; with its style sheet where it stands alone.
    #[must_use]
    pub fn svg(&self, id: &str, standalone: bool) -> String {
        // If one curve hides another, the key says so.
        let name = |i: usize| {
            let curve = &self.curves[i];
            match self.curves[..i].iter().find(|other| other.points == curve.points && !curve.points.is_empty()) {
                Some(other) => format!("{} (as {})", curve.name, other.name),
                None => curve.name.clone(),
            }
        };
        let longest = (0..self.curves.len()).map(|i| crate::markup::columns(&name(i))).max().unwrap_or(0);
        let right = WIDTH - (longest.min(28) as f64 * 7.0 + 52.0);
        let bottom = TOP + BODY.max(self.curves.len() as f64 * ROW);
        let height = bottom + 52.0;
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let from = points().map(|point| point.x).fold(f64::INFINITY, f64::min);
        let to = points().map(|point| point.x).fold(f64::NEG_INFINITY, f64::max);
        let (from, to) = match (from.is_finite(), from < to) {
            (true, true) => (from, to),
            (true, false) => (from - 0.5, from + 0.5),
            _ => (0.0, 1.0),
        };
        let x = |value: f64| LEFT + (value - from) / (to - from) * (right - LEFT);
        let low = points().map(|point| point.low).fold(1.0, f64::min);
        let high = points().map(|point| point.high).fold(0.0, f64::max);
        let (least, most) = if points().next().is_some() { share_ends(low, high) } else { (0.0, 1.0) };
        let y = |share: f64| bottom - ((share - least) / (most - least)).clamp(0.0, 1.0) * (bottom - TOP);
        let style = standalone.then_some(CSS);
        let mut out = svg_head("curves", id, &self.title, (WIDTH, height), LEFT, style);
        let mut grid = Grid::default();
        for (percent, text) in ticks(least * 100.0, most * 100.0) {
            let at = y(percent / 100.0);
            grid.line((LEFT, at), format_args!("H{}", Px(right)));
            grid.label((LEFT - 6.0, at + 4.0), "end", format_args!("{text} %"));
        }
        for (tick, text) in ticks(from, to) {
            grid.line((x(tick), TOP), format_args!("V{}", Px(bottom)));
            grid.label((x(tick), bottom + 16.0), "middle", text);
        }
        out.push_str(&grid.svg("\n"));
        let below = ((LEFT + right) / 2.0, bottom + 38.0, self.x.as_str());
        axis_names(&mut out, below, (14.0, (TOP + bottom) / 2.0, &self.y));
        // In greyscale dashes and markers tell curves apart: their numbers have no common factor.
        let class = |i: usize| format!("p{} d{}", i % COLOURS, i % DASHES);
        for (i, curve) in self.curves.iter().enumerate() {
            let upper = curve.points.iter().map(|point| format!("{} {}", Px(x(point.x)), Px(y(point.high))));
            let lower = curve.points.iter().rev().map(|point| format!("{} {}", Px(x(point.x)), Px(y(point.low))));
            let outline: Vec<String> = upper.chain(lower).collect();
            if curve.points.len() > 1 {
                let _ = writeln!(
                    out,
                    "<path class=\"band {}\" d=\"M{}Z\" style=\"fill:var(--c)\"/>",
                    class(i),
                    outline.join("L")
                );
            }
        }
        for (i, curve) in self.curves.iter().enumerate() {
            let line: Vec<String> =
                curve.points.iter().map(|point| format!("{} {}", Px(x(point.x)), Px(y(point.y)))).collect();
            if line.is_empty() {
                continue;
            }
            let _ =
                write!(out, "<g class=\"{}\"><path class=\"line {}\" d=\"M{}\"/>", class(i), class(i), line.join("L"));
            for point in &curve.points {
                let _ = write!(
                    out,
                    "<path class=\"mark\" d=\"{}\"><title>{}: {:.1} % ({:.1} to {:.1} %) at {}</title></path>",
                    marker(i, x(point.x), y(point.y)),
                    Esc(&curve.name),
                    point.y * 100.0,
                    point.low * 100.0,
                    point.high * 100.0,
                    point.x,
                );
            }
            out.push_str("</g>\n");
        }
        for i in 0..self.curves.len() {
            let at = TOP + 8.0 + i as f64 * ROW;
            let _ = writeln!(
                out,
                "<g class=\"p{}\"><path class=\"line {}\" d=\"M{} {}h26\"/><path class=\"mark\" d=\"{}\"/><text \
                 class=\"name\" x=\"{}\" y=\"{}\">{}</text></g>",
                i % COLOURS,
                class(i),
                Px(right + 12.0),
                Px(at),
                marker(i, right + 25.0, at),
                Px(right + 44.0),
                Px(at + 4.0),
                Esc(&crate::markup::clip(&name(i), 28)),
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

/// The ends of an axis of shares between `low` and `high`, at tenths: no tenth without a value.
fn share_ends(low: f64, high: f64) -> (f64, f64) {
    let least = (low * 10.0 + 1e-9).floor().clamp(0.0, 9.0) / 10.0;
    let most = (high * 10.0 - 1e-9).ceil().clamp(1.0, 10.0) / 10.0;
    (least, most.max(least + 0.1))
}

/// The marker of curve `i` as a path: circle, square, diamond, triangles.
pub(crate) fn marker(i: usize, x: f64, y: f64) -> String {
    match i % MARKERS {
        0 => format!("M{} {}a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", Px(x - 3.0), Px(y)),
        1 => format!("M{} {}h5.4v5.4h-5.4z", Px(x - 2.7), Px(y - 2.7)),
        2 => format!("M{} {}l3.8 3.8l-3.8 3.8l-3.8-3.8z", Px(x), Px(y - 3.8)),
        3 => format!("M{} {}l3.6 6.4h-7.2z", Px(x), Px(y - 3.8)),
        _ => format!("M{} {}l3.6-6.4h-7.2z", Px(x), Px(y + 3.8)),
    }
}

/// Round values within [from, to], at most eleven, with their labels.
pub(crate) fn ticks(from: f64, to: f64) -> Vec<(f64, String)> {
    let rough = (to - from) / 10.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= rough * 0.999).unwrap_or(rough);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let first = (from / step - 1e-6).ceil() as i64;
    let last = (to / step + 1e-6).floor() as i64;
    (first..=last).map(|i| (i as f64 * step, format!("{:.digits$}", i as f64 * step))).collect()
}

/// The page of a study.
#[derive(Clone, Copy, Debug)]
pub struct StudyPage<'a> {
    /// The heading.
    pub title: &'a str,
    /// The subject of the study, in a sentence or two.
    pub lead: &'a str,
    /// Findings that a reader must not overlook: results that contradict each other.
    pub findings: &'a [String],
    /// The charts.
    pub charts: &'a [Curves],
    /// Tables: heading, remark, and rows of cells, the first one their heads.
    pub tables: &'a [(String, String, Vec<Vec<String>>)],
    /// The definition, to run it again.
    pub definition: &'a str,
    /// Which takt made it.
    pub maker: &'a str,
}

impl StudyPage<'_> {
    /// The page: it needs nothing from outside and no script.
    #[must_use]
    pub fn html(&self) -> String {
        let mut out = page(self.maker, self.title, "takt study", &[STYLE, CHART_CSS, CSS], self.lead);
        if !self.findings.is_empty() {
            out.push_str("<ul class=\"findings\">\n");
            for finding in self.findings {
                let _ = writeln!(out, "<li class=\"no\">{}</li>", Esc(finding));
            }
            out.push_str("</ul>\n");
        }
        out.push_str(
            "</header>\n<section>\n<h2>Acceptance</h2>\n<p class=\"note\">The share of the sets that \
             each test proves schedulable; the bands are 95 % confidence intervals (Wilson).</p>\n",
        );
        for (i, chart) in self.charts.iter().enumerate() {
            let _ = writeln!(out, "<div class=\"chart\">{}</div>", chart.svg(&format!("curves-{i}"), false));
        }
        out.push_str("</section>\n");
        for (heading, remark, rows) in self.tables {
            let _ = write!(
                out,
                "<section>\n<h2>{}</h2>\n<p class=\"note\">{}</p>\n<div class=\"wide\"><table>\n",
                Esc(heading),
                Esc(remark)
            );
            for (i, row) in rows.iter().enumerate() {
                out.push_str(if i == 0 { "<thead><tr>" } else { "<tr>" });
                for (column, cell) in row.iter().enumerate() {
                    let below = rows.get(i.max(1)).and_then(|row| row.get(column)).unwrap_or(cell);
                    let number = below.starts_with(|c: char| c.is_ascii_digit());
                    let (tag, class) = (if i == 0 { "th" } else { "td" }, if number { " class=\"n\"" } else { "" });
                    let _ = write!(out, "<{tag}{class}>{}</{tag}>", Esc(cell));
                }
                out.push_str(if i == 0 { "</tr></thead><tbody>\n" } else { "</tr>\n" });
            }
            out.push_str("</tbody></table></div>\n</section>\n");
        }
        let _ = write!(
            out,
            "<section>\n<h2>Again</h2>\n<p class=\"note\">With this in study.toml, \"takt study study.toml -o \
             FOLDER\" gives the same files.</p>\n\
             <pre>{}</pre>\n</section>\n<footer>{}</footer>\n</main>\n</body>\n</html>\n",
            Esc(self.definition),
            Esc(self.maker),
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Curves {
        let point = |(x, y): (f64, f64)| CurvePoint { x, y, low: y - 0.1, high: y + 0.1 };
        let curve = |name: &str, values: &[(f64, f64)]| Curve {
            name: name.to_owned(),
            points: values.iter().copied().map(point).collect(),
        };
        let curves = (0..10).map(|i| curve(&format!("<test {i}>"), &[(0.1, 1.0), (0.5, 0.5), (1.0, 0.05)])).collect();
        Curves { title: "a & b".to_owned(), x: "utilization per CPU".to_owned(), y: "schedulable".to_owned(), curves }
    }

    #[test]
    fn charts_and_pages_are_well_formed_and_name_what_they_show() {
        let svg = chart().svg("x", true);
        let parsed = roxmltree::Document::parse(&svg).expect("XML");
        let texts: Vec<&str> = parsed.descendants().filter_map(|node| node.text()).collect();
        for wanted in ["a & b", "utilization per CPU", "schedulable", "<test 9> (as <test 0>)", "0.1", "1.0", "100 %"] {
            assert!(texts.contains(&wanted), "no {wanted}");
        }
        let lines =
            parsed.descendants().filter(|node| node.attribute("class").is_some_and(|c| c.starts_with("line p")));
        assert_eq!(lines.count(), 20, "a line and a key for each");
        for empty in [
            Curves { curves: Vec::new(), ..chart() },
            Curves { curves: vec![Curve { name: String::new(), points: Vec::new() }], ..chart() },
        ] {
            assert!(roxmltree::Document::parse(&empty.svg("y", true)).is_ok());
        }
        let page = StudyPage {
            title: "s",
            lead: "l",
            findings: &["gfb > sim".to_owned()],
            charts: &[chart()],
            tables: &[("t".to_owned(), String::new(), vec![vec!["a".to_owned()], vec!["1".to_owned()]])],
            definition: "seed = 1",
            maker: "takt",
        };
        let html = page.html();
        assert!(html.contains("gfb &gt; sim") && html.contains("<td class=\"n\">1</td>") && html.contains("seed = 1"));
    }

    #[test]
    fn curves_differ_without_their_colours_and_fill_the_axis() {
        let looks = |i: usize| (i % DASHES, marker(i, 0.0, 0.0));
        for i in 0..DASHES * MARKERS {
            assert!((0..i).all(|other| looks(other) != looks(i)), "curve {i} looks like an earlier one");
        }
        assert_eq!(share_ends(0.93, 1.0), (0.9, 1.0));
        assert_eq!(share_ends(0.0, 0.42), (0.0, 0.5));
        assert_eq!(share_ends(1.0, 1.0), (0.9, 1.0));
        assert_eq!(share_ends(0.0, 0.0), (0.0, 0.1));
        assert_eq!(share_ends(0.3, 0.3), (0.3, 0.4));
    }

    #[test]
    fn ticks_are_round() {
        let labels = |from, to| ticks(from, to).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(0.1, 1.0), ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]);
        assert_eq!(labels(4.0, 32.0), ["5", "10", "15", "20", "25", "30"]);
        assert_eq!(labels(0.6, 0.65)[..2], ["0.600", "0.605"]);
    }
}
