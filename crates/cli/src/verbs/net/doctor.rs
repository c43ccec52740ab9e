//! `takt net doctor`.

use std::fmt::Write as _;

use serde_json::json;
use takt_linux::doctor::Finding;
use takt_linux::tc::features;

use super::{all, device};
use crate::args;
use crate::failure::{Outcome, Status};
use crate::output::{print, print_json};
use crate::table::Table;
use crate::verbs::doctor::finding_json;

pub(super) fn execute(options: &args::NetDoctor, json: bool) -> Outcome {
    let devices = match &options.device {
        Some(name) => vec![device(name)?],
        None => all()?.into_iter().filter(|device| device.ethernet).collect(),
    };
    let findings = features(&devices);
    if json {
        print_json(&json!({
            "spoils": findings.iter().any(|finding| finding.state.spoils()),
            "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
        }))?;
    } else {
        print(&render(&findings))?;
    }
    Ok(if findings.iter().any(|finding| finding.state.spoils()) { Status::No } else { Status::Yes })
}

fn render(findings: &[Finding]) -> String {
    let mut table = Table::new(&["STATE", "FINDING", "FOUND"]);
    let mut gaps = String::new();
    for finding in findings {
        table.row(vec![finding.state.name().to_owned(), finding.name.to_owned(), finding.found.clone()]);
        if finding.cost.is_empty() && finding.mend.is_empty() {
            continue;
        }
        let _ = writeln!(gaps, "\n{}: {}", finding.name, finding.found);
        for (place, value) in &finding.evidence {
            let _ = writeln!(gaps, "    seen   {place}: {value}");
        }
        if !finding.cost.is_empty() {
            let _ = writeln!(gaps, "    costs  {}", finding.cost);
        }
        for how in &finding.mend {
            let _ = writeln!(gaps, "    remedy {how}");
        }
    }
    table.render("") + &gaps
}
