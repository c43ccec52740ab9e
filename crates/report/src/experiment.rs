//! The page of a reproduced experiment: what a paper says beside what was measured.

use std::fmt::Write as _;

use crate::figure::CSS;
use crate::html::STYLE;
use crate::markup::{Esc, page};
use crate::svg::CHART_CSS;

/// The result for a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimLine {
    /// The claim of the paper, as it was checked.
    pub claim: String,
    /// What was found.
    pub found: String,
    /// Whether it held; `None`: not decided.
    pub holds: Option<bool>,
}

/// A table, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageTable {
    /// The heading.
    pub title: String,
    /// A remark below it: where the paper has it, units.
    pub remark: String,
    /// The heads.
    pub heads: Vec<String>,
    /// The rows, each with as many cells; empty cells stay empty.
    pub rows: Vec<Vec<String>>,
}

/// A picture: a caption and an `<svg>` made for embedding (not standalone).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    /// The heading.
    pub title: String,
    /// The caption: it tells the reader the main observation.
    pub caption: String,
    /// The picture.
    pub svg: String,
}

/// Tables of many columns stand close; no name of a row is broken. A phone stacks the claims. There a table of numbers
/// scrolls in its own box, beside the names of its rows.
const TABLES: &str = "main{overflow-wrap:break-word}td:first-child{white-space:nowrap}
.dense td,.dense th{padding-right:9px;font-size:12.5px}.dense th.n,.dense td.n{padding-right:9px}
.claims td:first-child{white-space:normal}
@media (max-width:560px){.wide th:first-child,.wide td:first-child{position:sticky;left:0;background:var(--paper);
white-space:normal;min-width:88px}
.claims thead{display:none}.claims,.claims tbody,.claims tr,.claims td{display:block}.claims td{border:0;padding:1px 0}
.claims tr{border-bottom:1px solid var(--line);padding:9px 0}}";

/// The page.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentPage<'a> {
    /// The heading.
    pub title: &'a str,
    /// The experiment and its paper, in a sentence or two.
    pub lead: &'a str,
    /// The claims of the paper.
    pub claims: &'a [ClaimLine],
    /// Paper against measured.
    pub tables: &'a [PageTable],
    /// Charts.
    pub pictures: &'a [Picture],
    /// Differences from the paper, with their reasons.
    pub differences: &'a [String],
    /// Other remarks on this run.
    pub notes: &'a [String],
    /// The command that made it.
    pub command: &'a str,
    /// Which takt made it.
    pub maker: &'a str,
}

impl ExperimentPage<'_> {
    /// The page: it needs nothing from outside and no script.
    #[must_use]
    pub fn html(&self) -> String {
        let styles = [STYLE, CHART_CSS, CSS, TABLES];
        let mut out = page(self.maker, self.title, "takt reproduce", &styles, self.lead) + "</header>\n";
        self.claims(&mut out);
        for table in self.tables {
            table.write(&mut out);
        }
        for picture in self.pictures {
            let _ = writeln!(out, "<section>\n<h2>{}</h2>", Esc(&picture.title));
            if !picture.caption.is_empty() {
                let _ = writeln!(out, "<p class=\"note\">{}</p>", Esc(&picture.caption));
            }
            let _ = writeln!(out, "<div class=\"chart\">{}</div>\n</section>", picture.svg);
        }
        list(&mut out, "Differences, and why", self.differences);
        list(&mut out, "Of this run", self.notes);
        let _ = write!(
            out,
            "<section>\n<h2>Again</h2>\n<pre><code>{}</code></pre>\n</section>\n<footer>Made by {}. This page \
             is complete: it loads \
             nothing.</footer>\n</main>\n</body>\n</html>\n",
            Esc(self.command),
            Esc(self.maker),
        );
        out
    }

    fn claims(&self, out: &mut String) {
        if self.claims.is_empty() {
            return;
        }
        out.push_str(
            "<section>\n<h2>Claims of the paper</h2>\n<div class=\"wide\"><table class=\"claims\">\n\
             <thead><tr><th>claim</th><th>here</th><th>found</th></tr></thead><tbody>\n",
        );
        for claim in self.claims {
            let (class, word) = match claim.holds {
                Some(true) => ("yes", "holds"),
                Some(false) => ("no", "does not hold"),
                None => ("open", "not decided"),
            };
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td class=\"{class}\"><b>{word}</b></td><td>{}</td></tr>",
                Esc(&claim.claim),
                Esc(&claim.found)
            );
        }
        out.push_str("</tbody></table></div>\n</section>\n");
    }
}

impl PageTable {
    fn write(&self, out: &mut String) {
        let _ = write!(
            out,
            "<section>\n<h2>{}</h2>\n<p class=\"note\">{}</p>\n<div class=\"wide\"><table{}>\n<thead><tr>",
            Esc(&self.title),
            Esc(&self.remark),
            match self.heads.len() {
                0..=5 => " class=\"snug\"",
                6..=10 => "",
                _ => " class=\"dense\"",
            }
        );
        let is_number =
            |cell: &str| cell == "-" || cell.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
        // A column of numbers stands to the right, its head too.
        let numeric: Vec<bool> = (0..self.heads.len())
            .map(|column| {
                let mut cells = self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
                column > 0 && cells.all(|cell| is_number(cell))
            })
            .collect();
        let class = |column: usize| if numeric.get(column) == Some(&true) { " class=\"n\"" } else { "" };
        for (column, head) in self.heads.iter().enumerate() {
            let _ = write!(out, "<th{}>{}</th>", class(column), Esc(head));
        }
        out.push_str("</tr></thead><tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let _ = write!(out, "<td{}>{}</td>", class(column), Esc(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n</section>\n");
    }
}

fn list(out: &mut String, title: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = write!(out, "<section>\n<h2>{}</h2>\n<ul class=\"plain\">\n", Esc(title));
    for sentence in sentences {
        let _ = writeln!(out, "<li>{}</li>", Esc(sentence));
    }
    out.push_str("</ul>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_all_that_it_is_given() {
        let claim =
            |holds| ClaimLine { claim: format!("<claim {holds:?}>"), found: "1.02 \"times\"".to_owned(), holds };
        let table = PageTable {
            title: "Table I".to_owned(),
            remark: "us".to_owned(),
            heads: vec!["task".to_owned(), "paper".to_owned()],
            rows: vec![vec!["1".to_owned(), "2991".to_owned()], vec!["2".to_owned(), "-".to_owned()]],
        };
        let page = ExperimentPage {
            title: "a & b",
            lead: "of [SDD]",
            claims: &[claim(Some(true)), claim(Some(false)), claim(None)],
            tables: &[table],
            pictures: &[Picture {
                title: "P".to_owned(),
                caption: String::new(),
                svg: "<svg xmlns=\"http://www.w3.org/2000/svg\"/>".to_owned(),
            }],
            differences: &["<no interrupt threads>".to_owned()],
            notes: &[],
            command: "takt reproduce x",
            maker: "takt 0",
        };
        let html = page.html();
        let body = html.split_once('\n').expect("after the doctype").1;
        let parsed = roxmltree::Document::parse(body).expect("XML");
        let texts: Vec<&str> = parsed.descendants().filter_map(|node| node.text()).collect();
        for wanted in [
            "<claim None>",
            "holds",
            "does not hold",
            "not decided",
            "2991",
            "<no interrupt threads>",
            "takt reproduce x",
        ] {
            assert!(texts.contains(&wanted), "no {wanted}");
        }
        assert!(html.contains("<td class=\"n\">2991</td>") && html.contains("<th class=\"n\">paper</th>"), "{html}");
        assert!(!html.contains("Of this run"), "an empty list is left out");
        // On a phone tables and charts scroll in boxes of their own, and the page does not.
        let boxes = [("table", "wide"), ("svg", "chart")];
        for (element, class) in boxes {
            let all: Vec<_> = parsed.descendants().filter(|node| node.tag_name().name() == element).collect();
            assert!(!all.is_empty(), "no {element}");
            let held =
                |node: &roxmltree::Node<'_, '_>| node.parent().and_then(|up| up.attribute("class")) == Some(class);
            assert!(all.iter().all(held), "each {element} stands in its box");
            let rules = html.split('}').filter_map(|rule| rule.split_once('{'));
            let scrolls = |(names, rule): (&str, &str)| {
                names.trim() == format!(".{class}") && rule.starts_with("overflow-x:auto")
            };
            assert!(rules.into_iter().any(scrolls), "the box of {element} scrolls");
        }
        assert!(
            html.contains(".claims td{display:block}") && html.contains("width=device-width"),
            "claims are stacked"
        );
    }
}
