//! `takt verify`: checks a certificate.

use serde_json::json;
use takt_analysis::verify::{Rejected, verify};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input::{self, shown};
use crate::output::{print, print_json};
use crate::table::Table;

const EXPECTS: &str = "takt verify SYSTEM CERTIFICATE expects a system file, and the certificate that \"takt \
     check SYSTEM --certificate CERTIFICATE\" wrote for it";

pub(crate) fn execute(options: &args::Verify, json: bool) -> Outcome {
    if options.system == "-" && options.certificate == "-" {
        return Err(Failure::input("standard input cannot be both the system and the certificate"));
    }
    let expects = |failure: Failure| Failure { message: format!("{}\n{EXPECTS}", failure.message), ..failure };
    let system = input::system(&options.system).and_then(|system| input::has_work(&options.system, system, false));
    let system = system.map_err(expects)?;
    let certificate = input::text(&options.certificate, "certificate").map_err(expects)?;
    let found = verify(&system, &certificate);
    let warnings = if found.is_ok() { takt_analysis::contradictions(&system) } else { Vec::new() };
    match &found {
        Err(error @ Rejected::Form(_)) => {
            return Err(Failure::input(format_args!("{}: {error}", shown(&options.certificate))));
        }
        Err(error @ Rejected::Version(_)) => {
            return Err(Failure::cannot(format_args!("{}: {error}", shown(&options.certificate))));
        }
        _ => {}
    }
    if json {
        let accepted = found.as_ref().ok();
        let proofs = accepted.map(|accepted| {
            let each = accepted.proofs.iter().map(|(scope, kind)| json!({ "scope": scope, "kind": kind }));
            each.collect::<Vec<_>>()
        });
        print_json(&json!({
            "system": system.name,
            "accepted": accepted.is_some(),
            "schedulable": accepted.map(|accepted| accepted.schedulable),
            "why": found.as_ref().err().map_or_else(String::new, ToString::to_string),
            "proofs": proofs.unwrap_or_default(),
            "placement": accepted.map(|accepted| &accepted.placement),
            "warnings": warnings,
        }))?;
    } else {
        let name = &system.name;
        let mut text = match &found {
            Ok(accepted) if accepted.schedulable => format!("{name}: accepted: every deadline is met\n\n"),
            Ok(_) => format!("{name}: accepted: some legal behaviour misses a deadline\n\n"),
            Err(error) => format!("{name}: rejected: {error}\n"),
        };
        let mut table = Table::new(&["SCOPE", "BY"]);
        for (scope, kind) in found.iter().flat_map(|accepted| &accepted.proofs) {
            table.row(vec![scope.clone(), (*kind).to_owned()]);
        }
        if !table.is_empty() {
            text.push_str(&table.render(""));
        }
        let mut placement = Table::new(&["TASK", "PLACED ON"]);
        for placed in found.iter().flat_map(|accepted| &accepted.placement) {
            let cpus: Vec<String> = placed.cpus.iter().map(u32::to_string).collect();
            placement.row(vec![placed.task.clone(), format!("cpu{}", cpus.join(","))]);
        }
        if !placement.is_empty() {
            text.push_str(
                "\n\
                 The proof is for this placement of tasks. verify accepts any placement that the file allows, not only \
                 the one that `fit` finds:\n\
                 ",
            );
            text.push_str(&placement.render(""));
        }
        if !warnings.is_empty() {
            text.push('\n');
            warnings.iter().for_each(|warning| text.push_str(&format!("warning: {warning}\n")));
        }
        print(&text)?;
    }
    Ok(if found.is_ok() { Status::Yes } else { Status::No })
}
