//! Files, screen and JSON of what was found.

use serde_json::{Value, json};
use takt_report::{ExperimentPage, PageTable, Picture};

use super::Experiment;
use super::context::Context;
use super::findings::{Claim, Findings};
use crate::failure::Failure;

/// Writes page, charts and tables. Returns their names, with the files that the experiment wrote.
pub(super) fn files(experiment: &Experiment, context: &Context, findings: &Findings) -> Result<Vec<String>, Failure> {
    let mut names = vec!["index.html".to_owned()];
    for table in &findings.tables {
        let name = format!("{}.csv", slug(&table.title));
        context.write(&name, table.csv().as_bytes())?;
        names.push(name);
    }
    for figure in &findings.figures {
        context.write(&figure.file, figure.standalone_svg.as_bytes())?;
        names.push(figure.file.clone());
    }
    names.extend(findings.files.iter().cloned());
    context.write("index.html", page(experiment, context, findings).as_bytes())?;
    Ok(names)
}

/// A title as a file name: lower-case letters and digits, and a dash for everything between them.
fn slug(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

fn page(experiment: &Experiment, context: &Context, findings: &Findings) -> String {
    let tables: Vec<PageTable> = findings
        .tables
        .iter()
        .map(|table| {
            let (heads, rows) = table.lines();
            PageTable { title: table.title.clone(), remark: table.remark(), heads, rows }
        })
        .collect();
    let pictures: Vec<Picture> = findings.figures.iter().map(|figure| figure.picture.clone()).collect();
    let claims: Vec<_> = findings.claims.iter().map(Claim::line).collect();
    ExperimentPage {
        title: &format!("{}: {}", experiment.name, experiment.shows),
        lead: &format!("{} {}: {}", experiment.paper.key, experiment.paper.title, experiment.what),
        claims: &claims,
        tables: &tables,
        pictures: &pictures,
        differences: &findings.differences,
        notes: &findings.notes,
        command: &command(experiment, context),
        maker: concat!("takt ", env!("CARGO_PKG_VERSION")),
    }
    .html()
}

/// The command that repeats it. Only measurements on this kernel need root.
fn command(experiment: &Experiment, context: &Context) -> String {
    let (root, option) = match (context.live, context.lab.is_some()) {
        (_, true) => ("", " --lab"),
        (true, _) => ("sudo ", " --live"),
        (false, _) => (if experiment.simulated { "" } else { "sudo " }, ""),
    };
    format!("{root}takt reproduce {}{option}", experiment.name)
}

pub(super) fn answer(experiment: &Experiment, context: &Context, findings: &Findings, files: &[String]) -> Value {
    let claims: Vec<Value> = findings
        .claims
        .iter()
        .map(|claim| json!({ "name": claim.name, "claim": claim.claim, "found": claim.found, "holds": claim.holds }))
        .collect();
    let tables: Vec<Value> = findings.tables.iter().map(super::findings::Comparison::json).collect();
    json!({
        "experiment": experiment.name,
        "paper": experiment.paper.title,
        "shows": experiment.shows,
        "holds": findings.holds(),
        "claims": claims,
        "tables": tables,
        "differences": findings.differences,
        "notes": findings.notes,
        "folder": context.shown(),
        "files": files,
        "steal_ns": context.steal().map(takt_model::Span::as_ns),
        "interrupted": context.signal().map(|signal| signal.to_string()),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn tables_are_named_after_their_titles() {
        assert_eq!(super::slug("On this kernel: why jobs were late (all)"), "on-this-kernel-why-jobs-were-late-all");
    }
}
