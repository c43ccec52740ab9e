//! `takt gen`: random systems.

use std::fs;
use std::path::Path;

use serde_json::json;
use takt_model::generate::{GenerateError, Generator, arinc, automotive};
use takt_model::{Builtin, NodeId, Placement, StrategyRef, System, file};

use crate::args::{Gen, Profile};
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Target, only_one, print, print_json};
use crate::progress;

pub(crate) fn execute(options: &Gen, json: bool) -> Outcome {
    if options.output.is_stdout() && options.count > 1 {
        return Err(Failure::input("--count: more than one system goes to a folder; give -o FOLDER"));
    }
    only_one(json, options.output.is_stdout(), "system")?;
    let maker = Maker::new(options)?;
    if options.count > 1 {
        fs::create_dir_all(&options.output.0)
            .map_err(|error| Failure::trouble(format_args!("cannot make {}: {error}", options.output.shown())))?;
    }
    let bar = progress::bar("generating", options.count);
    let (mut sets, mut least, mut most) = (Vec::new(), f64::INFINITY, 0.0f64);
    for number in (0..options.count).map(|k| options.set.wrapping_add(k)) {
        let system = maker.system(number).map_err(Failure::input)?;
        let target = if options.count > 1 {
            let name = format!("set-{number}.toml");
            Target(Path::new(&options.output.0).join(name).to_string_lossy().into_owned())
        } else {
            options.output.clone()
        };
        let real = utilization(&system);
        (least, most) = (least.min(real), most.max(real));
        target.write(maker.text(&system, number, real).as_bytes())?;
        if json {
            sets.push(json!({
                "set": number,
                "file": target.0,
                "system": system.name,
                "tasks": system.tasks.len(),
                "utilization": real,
            }));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if json {
        print_json(&json!({ "seed": options.seed, "utilization_asked": maker.utilization, "sets": sets }))?;
    } else if !options.output.is_stdout() {
        let systems =
            if options.count > 1 { format!("{} systems in", options.count) } else { "a system in".to_owned() };
        let off = (most - maker.utilization).max(maker.utilization - least).max(0.0);
        let (systems, shown) = (systems, options.output.shown());
        print(&format!("{systems} {shown}: utilization {} asked, off by at most {off:.6}\n", maker.utilization))?;
    }
    Ok(Status::Yes)
}

/// Sum of wcet / period.
fn utilization(system: &System) -> f64 {
    system.tasks.iter().map(|task| task.wcet.as_ns() as f64 / task.period.as_ns().max(1) as f64).sum()
}

struct Maker<'a> {
    options: &'a Gen,
    utilization: f64,
    /// For task sets.
    generator: Option<Generator>,
}

impl Maker<'_> {
    fn new(options: &Gen) -> Result<Maker<'_>, Failure> {
        let per_cpu = if options.profile == Profile::Arinc { 0.45 } else { 0.7 };
        let utilization = options.utilization.unwrap_or(per_cpu * f64::from(options.cpus));
        let refuse = |option: &str| Err(Failure::input(format_args!("{option}: not with this --profile")));
        if options.profile == Profile::Arinc && (options.cpus != 1 || options.partitioned || options.strategy.is_some())
        {
            return refuse("--cpus, --partitioned, --strategy");
        }
        if options.profile == Profile::Automotive && options.strategy.is_some() {
            return refuse("--strategy");
        }
        if options.cpus == 0 || options.cpus > takt_model::CpuSet::CPUS_MAX {
            return Err(Failure::input(GenerateError::Cpus { cpus: options.cpus }));
        }
        let generator = match options.profile {
            Profile::Tasks => {
                let spec = options.shape.spec(options.tasks, utilization);
                Some(Generator::new(&spec).map_err(Failure::input)?)
            }
            _ => None,
        };
        Ok(Maker { options, utilization, generator })
    }

    fn system(&self, number: u64) -> Result<System, GenerateError> {
        let options = self.options;
        match (options.profile, &self.generator) {
            (Profile::Automotive, _) => {
                let shape =
                    automotive::Automotive { cpus: options.cpus, utilization: self.utilization, rpm: options.rpm };
                automotive::system(&shape, options.seed, number)
            }
            (_, Some(generator)) => {
                let strategy = options.strategy.as_deref().and_then(Builtin::by_name).unwrap_or(Builtin::Edf);
                let mut system = System::local(options.cpus, strategy, generator.tasks(options.seed, number)?);
                system.name = format!("set-{number}");
                if options.partitioned {
                    system.nodes[0].placement = Placement::Partitioned;
                }
                if system.nodes[NodeId(0).index()].strategy == StrategyRef::Builtin(Builtin::Fp) {
                    let mut order: Vec<usize> = (0..system.tasks.len()).collect();
                    order.sort_by_key(|i| (system.tasks[*i].deadline, *i));
                    for (place, i) in order.into_iter().enumerate() {
                        system.tasks[i].priority = Some(place as u32 + 1);
                    }
                }
                Ok(system)
            }
            _ => {
                let shape = arinc::Partitions {
                    partitions: options.partitions,
                    utilization: self.utilization,
                    ..arinc::Partitions::default()
                };
                arinc::system(&shape, options.seed, number)
            }
        }
    }

    /// The file, with a line that says where it comes from.
    fn text(&self, system: &System, number: u64, real: f64) -> String {
        let kind = match self.options.profile {
            Profile::Tasks => "Random tasks",
            Profile::Automotive => "Random engine control after Kramer, Ziegenbein and Hamann 2015",
            Profile::Arinc => "Synthetic partitions in the manner of ARINC 653 (invented, not published ones)",
        };
        format!(
            "# {kind}: takt gen, seed {}, set {number}; utilization {real:.6}, {} asked.\n{}",
            self.options.seed,
            self.utilization,
            file::write(system)
        )
    }
}
