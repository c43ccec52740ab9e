//! `takt lab run`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use takt_lab::frames::Outcome as ExperimentOutcome;
use takt_run::lab::Boot;

use super::boot::{Bench, failures};
use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Target, complain, note, only_one, print, print_json};

pub(super) fn execute(options: &args::LabRun, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    if options.output.is_some() && options.experiments.files.len() != 1 {
        return Err(Failure::input("-o takes the log of one FILE; for others give a folder: --out DIR"));
    }
    only_one(json, to_stdout, "log")?;
    let bench = Bench::prepare(&options.experiments)?;
    let boot = bench.boot(&options.experiments)?;
    let answer = answer(&bench, &boot);
    if let Some(folder) = &options.out {
        save(folder, &bench, &boot, &answer)?;
    }
    if let Some(target) = &options.output {
        let log = boot.results.experiments.first().and_then(|first| first.log.as_ref());
        if let Some(log) = log {
            target.write(log)?;
        }
    }
    if json {
        print_json(&answer)?;
    } else {
        print_results(&bench, &boot, to_stdout)?;
    }
    let failed = failures(&bench.names, &boot);
    for failure in &failed {
        note(failure);
    }
    Ok(if failed.is_empty() { Status::Yes } else { Status::No })
}

fn print_results(bench: &Bench, boot: &Boot, quiet: bool) -> Result<(), Failure> {
    let several = bench.names.len() > 1;
    let mut text = String::new();
    for (name, outcome) in bench.names.iter().zip(&boot.results.experiments) {
        if several {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "== {name}");
        }
        text.push_str(&String::from_utf8_lossy(&outcome.stdout));
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        if !stderr.is_empty() {
            complain(stderr.trim_end());
        }
    }
    let text: String = text.chars().filter(|c| !c.is_control() || "\n\t".contains(*c)).collect();
    if !quiet {
        print(&text)?;
    }
    note(format_args!("note: {}; {}", bench.kernel(), repeats(bench)));
    Ok(())
}

fn repeats(bench: &Bench) -> String {
    bench.stored().map_or_else(
        || "whether such boots repeat byte by byte is not known: takt lab repeat".to_owned(),
        |verdict| verdict.text(),
    )
}

fn answer(bench: &Bench, boot: &Boot) -> Value {
    let of = |(name, outcome): (&String, &ExperimentOutcome)| {
        json!({
            "name": name,
            "status": outcome.status,
            "stdout": String::from_utf8_lossy(&outcome.stdout),
            "stderr": String::from_utf8_lossy(&outcome.stderr),
            "log_bytes": outcome.log.as_ref().map(Vec::len),
        })
    };
    let experiments: Vec<Value> = bench.names.iter().zip(&boot.results.experiments).map(of).collect();
    json!({
        "kernel": bench.kernel(),
        "took_ns": boot.took.as_ns(),
        "experiments": experiments,
        "repeat": bench.stored(),
    })
}

fn save(folder: &Path, bench: &Bench, boot: &Boot, answer: &Value) -> Result<(), Failure> {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes)
            .map_err(|error| Failure::trouble(format_args!("cannot write {}: {error}", path.display())))
    };
    fs::create_dir_all(folder)
        .map_err(|error| Failure::trouble(format_args!("cannot make {}: {error}", folder.display())))?;
    for (number, (name, outcome)) in bench.names.iter().zip(&boot.results.experiments).enumerate() {
        let name = format!("{}-{name}", takt_lab::guest::name(number));
        write(&format!("{name}.out"), &outcome.stdout)?;
        write(&format!("{name}.err"), &outcome.stderr)?;
        if let Some(log) = &outcome.log {
            write(&format!("{name}.takt"), log)?;
        }
    }
    write("console.txt", &boot.console)?;
    write("result.json", format!("{answer:#}\n").as_bytes())
}
