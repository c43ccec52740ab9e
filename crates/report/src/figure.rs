//! Figures of measured values: lines, steps, dots and bars over two linear axes.

use std::fmt::Write as _;

use crate::curves::{DASHES, marker, ticks};
use crate::markup::{Esc, Grid, Px, axis_names, clip, columns};
use crate::svg::{COLOURS, svg_head};

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A line through the points, with markers where they are few.
    Line,
    /// The same, dashed: what is no measurement.
    Dashed,
    /// Horizontal up to the next point, then vertical: a distribution function. Dashes follow the colour.
    Steps,
    /// The points alone.
    Dots,
    /// The points alone, as rings: another's values beside one's own.
    Rings,
    /// A thin bar from zero to each point: a probability mass function.
    Bars,
    /// Box plots: five points of one x each, from below the end of a whisker, the lower quartile, the median, the upper
    /// quartile, and the end of the other whisker.
    Boxes,
}

/// Points that belong together.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// For the key.
    pub name: String,
    /// (x, y), by ascending x unless they are dots. Values that are not finite are not drawn.
    pub points: Vec<(f64, f64)>,
    /// How to draw them.
    pub form: Form,
    /// Which of the chart's colours, from zero; they repeat.
    pub colour: usize,
}

/// A chart over two axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Above it.
    pub title: String,
    /// The label of the horizontal axis, unit included.
    pub x: String,
    /// The label of the vertical axis, unit included.
    pub y: String,
    /// Drawn in this order.
    pub series: Vec<Series>,
    /// Horizontal lines: what they are, and where.
    pub rules: Vec<(String, f64)>,
    /// The end of the vertical axis; larger values are drawn at its end. `None`: the largest value.
    pub y_max: Option<f64>,
    /// Whether the horizontal axis starts at zero, wherever the values do.
    pub x_from_zero: bool,
}

pub(crate) const CSS: &str = ".takt-chart .head{font-size:15px;font-weight:600}.takt-chart .name{font-size:12px}\
.takt-chart .axis{font-size:12px;fill:var(--soft)}.takt-chart .dashed{stroke-dasharray:6 4;stroke-opacity:.8}\
.takt-chart .dot{fill:var(--c)}.takt-chart .ring{fill:none;stroke:var(--c);stroke-width:1.6}\
.takt-chart .box{stroke:var(--c);stroke-width:1.6;fill:var(--c);fill-opacity:.18}\
.takt-chart .mass{stroke:var(--c);stroke-width:3}.takt-chart .rule{stroke:var(--soft);stroke-dasharray:2 3}";

const WIDTH: f64 = 860.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 18.0;
const BODY: f64 = 290.0;
const ROW: f64 = 18.0;
/// The width of a box of [`Form::Boxes`].
const BOX: f64 = 26.0;
/// A line of more points than this shows the least and the largest of each half pixel.
const POINTS_MAX: usize = 3_000;
/// A line of at most so many points has a marker at each, which tells it apart without its colour.
const MARKED_MAX: usize = 40;

/// The ranges of the axes, for mapping values to the paper.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    top: f64,
    bottom: f64,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        let share = (value - self.x.0) / (self.x.1 - self.x.0);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.y.0) / (self.y.1 - self.y.0);
        self.bottom - share.clamp(0.0, 1.0) * (self.bottom - self.top)
    }
}

/// The ends of an axis over these values, a little beyond them; never empty.
fn ends(values: impl Iterator<Item = f64>, from_zero: bool, to: Option<f64>) -> (f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| value.is_finite()) {
        (least, most) = (least.min(value), most.max(value));
    }
    if !least.is_finite() {
        (least, most) = (0.0, 1.0);
    }
    let low = match least - (most - least) * 0.02 {
        _ if from_zero => least.min(0.0),
        low if least >= 0.0 => low.max(0.0),
        low => low,
    };
    let high = to.unwrap_or(most + (most - low) * 0.04);
    if high > low { (low, high) } else { (low, low + low.abs().max(1.0)) }
}

impl Figure {
    /// A figure without rules, whose horizontal axis starts at zero.
    #[must_use]
    pub fn new(title: impl Into<String>, x: &str, y: &str, series: Vec<Series>) -> Figure {
        let (title, x, y) = (title.into(), x.to_owned(), y.to_owned());
        Figure { title, x, y, series, rules: Vec::new(), y_max: None, x_from_zero: true }
    }

    /// The figure as one `<svg>`; with its style sheet where it stands alone.
    #[must_use]
    pub fn svg(&self, id: &str, standalone: bool) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let ruled = self.rules.iter().map(|(_, at)| *at);
        let (key, rows) = self.key();
        let top = 36.0 + rows as f64 * ROW + 10.0;
        let frame = Frame {
            x: ends(points().map(|point| point.0), self.x_from_zero, None),
            y: ends(points().map(|point| point.1).chain(ruled), true, self.y_max),
            top,
            bottom: top + BODY,
        };
        let style = standalone.then_some(CSS);
        let mut out = svg_head("figure", id, &self.title, (WIDTH, frame.bottom + 50.0), LEFT, style);
        let _ = writeln!(out, "{key}");
        self.axes(&mut out, &frame);
        for series in &self.series {
            draw(&mut out, series, &frame);
        }
        out.push_str("</svg>\n");
        out
    }

    /// The key below the title, in as many lines as it takes.
    fn key(&self) -> (String, usize) {
        let (mut out, mut x, mut row) = (String::new(), LEFT, 0);
        let named = self.series.iter().filter(|series| !series.name.is_empty());
        for series in named {
            let name = clip(&series.name, 60);
            let width = 34.0 + columns(&name) as f64 * 6.7 + 22.0;
            if x > LEFT && x + width > WIDTH - RIGHT {
                (x, row) = (LEFT, row + 1);
            }
            let y = 40.0 + f64::from(row) * ROW;
            let class = format!("p{}", series.colour % COLOURS);
            let mark = match series.form {
                Form::Line => {
                    let line = format!("<path class=\"line\" d=\"M{} {}h26\"/>", Px(x), Px(y));
                    let mark = format!("<path class=\"mark\" d=\"{}\"/>", marker(series.colour, x + 13.0, y));
                    if series.points.len() <= MARKED_MAX { line + &mark } else { line }
                }
                Form::Steps => {
                    format!("<path class=\"line d{}\" d=\"M{} {}h26\"/>", series.colour % DASHES, Px(x), Px(y))
                }
                Form::Dashed => format!("<path class=\"line dashed\" d=\"M{} {}h26\"/>", Px(x), Px(y)),
                Form::Dots => format!("<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"3.4\"/>", Px(x + 13.0), Px(y)),
                Form::Rings => format!("<circle class=\"ring\" cx=\"{}\" cy=\"{}\" r=\"4\"/>", Px(x + 13.0), Px(y)),
                Form::Boxes => format!("<path class=\"box\" d=\"M{} {}h14v10h-14z\"/>", Px(x + 6.0), Px(y - 5.0)),
                Form::Bars => format!("<path class=\"mass\" d=\"M{} {}v-10\"/>", Px(x + 13.0), Px(y + 5.0)),
            };
            let _ = writeln!(
                out,
                "<g class=\"{class}\">{mark}<text class=\"name\" x=\"{}\" y=\"{}\">{}</text></g>",
                Px(x + 34.0),
                Px(y + 4.0),
                Esc(&name)
            );
            x += width;
        }
        (out, if self.series.is_empty() { 0 } else { row as usize + 1 })
    }

    fn axes(&self, out: &mut String, frame: &Frame) {
        let mut grid = Grid::default();
        for (at, text) in ticks(frame.x.0, frame.x.1) {
            grid.line((frame.x(at), frame.top), format_args!("V{}", Px(frame.bottom)));
            grid.label((frame.x(at), frame.bottom + 16.0), "middle", text);
        }
        for (at, text) in ticks(frame.y.0, frame.y.1) {
            grid.line((LEFT, frame.y(at)), format_args!("H{}", Px(WIDTH - RIGHT)));
            grid.label((LEFT - 6.0, frame.y(at) + 4.0), "end", text);
        }
        out.push_str(&grid.svg("\n"));
        for (what, at) in self.rules.iter().filter(|(_, at)| at.is_finite()) {
            let y = Px(frame.y(*at));
            let _ = writeln!(
                out,
                "<path class=\"rule\" d=\"M{} {y}H{}\"><title>{}</title></path>",
                Px(LEFT),
                Px(WIDTH - RIGHT),
                Esc(what)
            );
        }
        let below = ((LEFT + WIDTH - RIGHT) / 2.0, frame.bottom + 38.0, self.x.as_str());
        axis_names(out, below, (16.0, (frame.top + frame.bottom) / 2.0, &self.y));
    }
}

fn draw(out: &mut String, series: &Series, frame: &Frame) {
    let finite = |(x, y): &&(f64, f64)| x.is_finite() && y.is_finite();
    let points: Vec<(f64, f64)> = series.points.iter().filter(finite).copied().collect();
    if points.is_empty() {
        return;
    }
    let _ = write!(out, "<g class=\"p{}\">", series.colour % COLOURS);
    let at = |point: &(f64, f64)| (frame.x(point.0), frame.y(point.1));
    match series.form {
        Form::Line | Form::Dashed => {
            let class = if series.form == Form::Line { "line" } else { "line dashed" };
            let line: Vec<String> =
                thinned(&points, frame).iter().map(|(x, y)| format!("{} {}", Px(*x), Px(*y))).collect();
            let _ = write!(out, "<path class=\"{class}\" d=\"M{}\"/>", line.join("L"));
            if series.form == Form::Line && points.len() <= MARKED_MAX {
                let marks: String = points.iter().map(at).map(|(x, y)| marker(series.colour, x, y)).collect();
                let _ = write!(out, "<path class=\"mark\" d=\"{marks}\"/>");
            }
        }
        Form::Steps => {
            let (x, _) = at(&points[0]);
            let mut path = format!("M{} {}H{}", Px(LEFT), Px(frame.bottom), Px(x));
            for point in &points {
                let (x, y) = at(point);
                let _ = write!(path, "H{}V{}", Px(x), Px(y));
            }
            let dashes = series.colour % DASHES;
            let _ = write!(out, "<path class=\"line d{dashes}\" d=\"{path}H{}\"/>", Px(WIDTH - RIGHT));
        }
        Form::Dots | Form::Rings => {
            let (class, r) = if series.form == Form::Dots { ("dot", "3.4") } else { ("ring", "4.6") };
            for point in &points {
                let (x, y) = at(point);
                let _ = write!(
                    out,
                    "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{r}\"><title>{}: {} at {}</title></circle>",
                    Px(x),
                    Px(y),
                    Esc(&series.name),
                    point.1,
                    point.0
                );
            }
        }
        Form::Boxes => {
            let mut path = String::new();
            for values in points.chunks_exact(5) {
                let (x, y) = (frame.x(values[0].0), |i: usize| Px(frame.y(values[i].1)));
                let (left, right) = (Px(x - BOX / 2.0), Px(x + BOX / 2.0));
                let _ = write!(path, "M{left} {}H{right}V{}H{left}Z", y(1), y(3));
                let _ = write!(
                    path,
                    "M{left} {m}H{right}M{x} {}V{}M{x} {}V{}",
                    y(0),
                    y(1),
                    y(3),
                    y(4),
                    m = y(2),
                    x = Px(x)
                );
            }
            let _ = write!(out, "<path class=\"box\" d=\"{path}\"/>");
        }
        Form::Bars => {
            let mut path = String::new();
            for point in &points {
                let (x, y) = at(point);
                let _ = write!(path, "M{} {}V{}", Px(x), Px(frame.bottom), Px(y));
            }
            let _ = write!(out, "<path class=\"mass\" d=\"{path}\"/>");
        }
    }
    out.push_str("</g>\n");
}

/// On the paper, and so few that nobody sees that some are missing.
fn thinned(points: &[(f64, f64)], frame: &Frame) -> Vec<(f64, f64)> {
    let all = points.iter().map(|(x, y)| (frame.x(*x), frame.y(*y)));
    if points.len() <= POINTS_MAX {
        return all.collect();
    }
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let (mut column, mut low, mut high) = (i64::MIN, None::<(f64, f64)>, None::<(f64, f64)>);
    for point in all {
        let here = (point.0 * 2.0) as i64;
        if here != column {
            kept.extend(low.take().into_iter().chain(high.take()));
            column = here;
        }
        if low.is_none_or(|low| point.1 < low.1) {
            low = Some(point);
        }
        if high.is_none_or(|high| point.1 > high.1) {
            high = Some(point);
        }
    }
    kept.extend(low.into_iter().chain(high));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(forms: &[Form], points: &[(f64, f64)]) -> Figure {
        let series = forms.iter().enumerate().map(|(i, form)| Series {
            name: format!("<{form:?}>"),
            points: points.to_vec(),
            form: *form,
            colour: i,
        });
        Figure {
            rules: vec![("40 ms".to_owned(), 40.0)],
            x_from_zero: false,
            ..Figure::new("a & b", "frame", "ms", series.collect())
        }
    }
    const FORMS: [Form; 6] = [Form::Line, Form::Dashed, Form::Steps, Form::Dots, Form::Rings, Form::Bars];

    #[test]
    fn figures_are_well_formed_and_name_what_they_show() {
        let svg = figure(&FORMS, &[(1.0, 2.0), (2.0, 80.0), (5.0, 3.5)]).svg("f", true);
        let parsed = roxmltree::Document::parse(&svg).expect("XML");
        let texts: Vec<&str> = parsed.descendants().filter_map(|node| node.text()).collect();
        for wanted in ["a & b", "frame", "ms", "<Line>", "<Bars>", "40 ms", "80"] {
            assert!(texts.contains(&wanted), "no {wanted} in {texts:?}");
        }
    }

    #[test]
    fn nothing_and_one_value_are_figures_too() {
        let nowhere = [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::INFINITY, 2.0), (3.0, f64::NEG_INFINITY)];
        let some = [nowhere[0], (7.0, 7.0), nowhere[1], nowhere[2], nowhere[3]];
        for points in [&[][..], &[(0.0, 0.0)], &[(7.0, 7.0)], &nowhere, &some, &[(-3.0, -2.0)]] {
            let svg = figure(&FORMS, points).svg("f", false);
            assert!(roxmltree::Document::parse(&svg).is_ok(), "{points:?}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let finite = points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).count();
            assert_eq!(svg.matches("<title>&lt;Dots&gt;: ").count(), finite);
        }
    }

    #[test]
    fn many_points_keep_their_extremes() {
        let mut points: Vec<(f64, f64)> = (0..50_000).map(|i| (f64::from(i), 1.0)).collect();
        points[31_234].1 = 99.0;
        let frame = Frame { x: (0.0, 50_000.0), y: (0.0, 100.0), top: 0.0, bottom: 100.0 };
        let thin = thinned(&points, &frame);
        assert!(thin.len() < 4_000, "{}", thin.len());
        assert!(thin.iter().any(|(_, y)| (*y - 1.0).abs() < 1e-9), "the peak is gone");
    }
}
