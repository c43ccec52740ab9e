//! `takt man`: manual pages from the command line's own description.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Target, print_files};

pub(crate) fn execute(options: &args::Man, json: bool) -> Outcome {
    let command = args::Takt::command();
    let Some(folder) = &options.out else {
        if json {
            return Err(Failure::input("--json and the manual page both want standard output; give --out DIR"));
        }
        Target::stdout().write(&main_page(command)?)?;
        return Ok(Status::Yes);
    };
    let fail =
        |path: &Path, error: std::io::Error| Failure::trouble(format_args!("cannot write {}: {error}", path.display()));
    let folder = Path::new(folder);
    fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
    let mut files = Vec::new();
    let mut write = |name: &str, page: Vec<u8>| -> Result<(), Failure> {
        let path = folder.join(format!("{name}.1"));
        fs::write(&path, page).map_err(|error| fail(&path, error))?;
        files.push(path.display().to_string());
        Ok(())
    };
    for verb in command.get_subcommands() {
        pages(verb, "takt", &mut write)?;
    }
    write("takt", main_page(command)?)?;
    if json {
        print_files(&files)?;
    }
    Ok(Status::Yes)
}

fn pages(
    command: &Command,
    above: &str,
    write: &mut impl FnMut(&str, Vec<u8>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let name = format!("{above}-{}", command.get_name());
    write(&name, page(command.clone().name(name.clone()).version(env!("CARGO_PKG_VERSION")))?)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, &name, write)?;
    }
    Ok(())
}

const EXIT_STATUS: &str = include_str!("../../../../docs/reference/exit-status.md");
const JSON: &str = include_str!("../../../../docs/reference/json.md");

/// The page of the command as a whole, with what all verbs share: two pages of the manual.
fn main_page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = page(command)?;
    // After the table and its text come sessions, which a manual page does not need.
    let statuses = EXIT_STATUS.split("```").next().unwrap_or_default();
    page.extend_from_slice(section("EXIT STATUS", statuses).as_bytes());
    page.extend_from_slice(section("JSON", JSON).as_bytes());
    Ok(page)
}

/// A page of the manual as a section, its lines as they are.
fn section(title: &str, markdown: &str) -> String {
    let mut roff = format!(".SH \"{title}\"\n.nf\n");
    let noise = |line: &str| line.starts_with("```") || line.starts_with("|---") || line.starts_with("| status");
    for line in markdown.trim_end().lines().skip(1).filter(|line| !noise(line)) {
        if let Some(heading) = line.strip_prefix("## ") {
            roff.push_str(&format!(".fi\n.SS \"{heading}\"\n.nf\n"));
            continue;
        }
        let row =
            line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")).map(|row| row.replacen(" | ", "  ", 1));
        let text = row.as_deref().unwrap_or(line).replace('\\', "\\\\").replace('-', "\\-");
        // Without it a dot at the start of a line would be a request.
        roff.push_str(&format!("\\&{text}\n"));
    }
    roff + ".fi\n"
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command)
        .manual("takt manual")
        .render(&mut page)
        .map_err(|error| Failure::trouble(format_args!("cannot write a manual page: {error}")))?;
    Ok(page)
}
