//! `takt lab fetch`.

use serde_json::{Value, json};
use takt_lab::btf::Uncallable;
use takt_run::lab::{Fetched, Request, fetch};

use super::{cache, failure};
use crate::args;
use crate::failure::{Outcome, Status};
use crate::output::{print, print_json};
use crate::progress;

pub(super) fn execute(options: &args::LabFetch, json: bool) -> Outcome {
    let cache = cache(&options.kernel)?;
    let request = Request {
        kernel: options.kernel.kernel.clone(),
        suite: options.suite.clone(),
        mirror: options.mirror.clone(),
        any: options.any,
        update: options.update,
    };
    let bar = progress::spinner("looking into the cache".to_owned());
    let fetched = fetch(&cache, &request, &mut |step| bar.set_message(step.to_owned()));
    bar.finish_and_clear();
    let fetched = fetched.map_err(|error| failure(&error))?;
    if json {
        print_json(&json!({
            "kernel": fetched.kernel.name,
            "image": fetched.kernel.image,
            "cached": fetched.cached,
            "callable": fetched.callable,
            "sched_ext": part_json(&fetched.sched_ext),
            "qdisc": part_json(&fetched.qdisc),
            "untagged_sched_ext": fetched.untagged,
        }))?;
    } else {
        print(&render(&fetched))?;
    }
    Ok(Status::Yes)
}

fn render(fetched: &Fetched) -> String {
    let whence = if fetched.cached { "in the cache" } else { "fetched" };
    let part = |lacks: &[(&str, Uncallable)]| {
        let names: Vec<&str> = lacks.iter().map(|(name, _)| *name).collect();
        if names.is_empty() { "yes".to_owned() } else { format!("no: lacks {}", names.join(", ")) }
    };
    format!(
        "kernel                {} ({whence})\nimage                 {}\nfunctions for BPF     {}\n\
         sched_ext             {}\nqueueing disciplines  {}\n",
        fetched.kernel.name,
        fetched.kernel.image.display(),
        fetched.callable,
        part(&fetched.sched_ext),
        part(&fetched.qdisc),
    )
}

fn part_json(lacks: &[(&str, Uncallable)]) -> Value {
    let names = |wanted: Uncallable| -> Vec<&str> {
        lacks.iter().filter(|(_, lack)| *lack == wanted).map(|(name, _)| *name).collect()
    };
    json!({ "usable": lacks.is_empty(), "absent": names(Uncallable::Absent), "untagged": names(Uncallable::Untagged) })
}
