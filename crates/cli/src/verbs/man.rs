//! `takt man`: manual pages from the command line's own description.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::output::Target;

pub(crate) fn execute(options: &args::Man) -> Outcome {
    let command = args::Takt::command();
    let Some(folder) = &options.out else {
        Target::stdout().write(&page(command)?)?;
        return Ok(Status::Yes);
    };
    let fail =
        |path: &Path, error: std::io::Error| Failure::trouble(format_args!("cannot write {}: {error}", path.display()));
    let folder = Path::new(folder);
    fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
    let write = |name: String, command: Command| {
        let path = folder.join(format!("{name}.1"));
        fs::write(&path, page(command)?).map_err(|error| fail(&path, error))
    };
    for verb in command.get_subcommands() {
        let name = format!("takt-{}", verb.get_name());
        write(name.clone(), verb.clone().name(name).version(env!("CARGO_PKG_VERSION")))?;
    }
    write("takt".to_owned(), command)?;
    Ok(Status::Yes)
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command)
        .manual("takt manual")
        .render(&mut page)
        .map_err(|error| Failure::trouble(format_args!("cannot write a manual page: {error}")))?;
    Ok(page)
}
