//! Components under sched_ext: the kernel itself keeps the servers, by the scheduler of the folder bpf/.
//!
//! | file | holds |
//! |---|---|
//! | this | the contract and the mapping |
//! | `plan.rs` | servers and places of threads; pure |
//! | `live.rs` | the scheduler in the kernel, and the threads that wake it |
//! | `news.rs` | the events of servers for the log |
//! | `together.rs` | those of a component's servers on several CPUs; pure |
//! | `ceilings.rs` | limits of control groups that it does not keep |
//! | `groups.rs` | components of existing threads, by control groups |
//! | `limits.rs` | changes of servers by cpu.max; pure |

use std::sync::Arc;

use takt_linux::Class;
use takt_linux::ceiling::Ceiling;
use takt_linux::machine::Limits;
use takt_linux::sched_ext::{CPUS_MAX, Unavailable};
use takt_model::{CpuSet, NodeId, System};
use takt_policy::CpuPart;

use crate::contract::{Contract, Obstacle, ServerBackEnd};
use crate::error::RunError;
use crate::mapping::{self, MappedTask, Mapping};
use crate::{Prepared, RunOptions, foreign, manager};

mod ceilings;
pub(crate) mod groups;
pub(crate) mod limits;
pub(crate) mod live;
pub(crate) mod news;
pub(crate) mod plan;
mod together;

pub(crate) use plan::ServedPlan;

const OTHERS: &str = "use --backend manager or --backend deadline";

/// The contract of sched_ext for the node, on a machine that lacks these and whose control groups have these limits.
pub(crate) fn contract(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    (lacks, limits): (&[Unavailable], &[Ceiling]),
) -> Result<Contract, RunError> {
    let mut cannot: Vec<Obstacle> = lacks.iter().map(obstacle_of).collect();
    if options.best_effort {
        let why = "best effort changes nothing of the machine, and sched_ext schedules all its ordinary threads";
        cannot.push(Obstacle::new("--best-effort", why, "leave it out, or use --backend manager"));
    }
    cannot.extend(ceilings::obstacles(system, node, limits));
    let (plan, obstacles) = plan::plan(system, node)?;
    cannot.extend(obstacles);
    let cpus: CpuSet = plan.cpus.iter().map(|cpu| cpu.cpu).collect();
    let far = takt_linux::sched::affinity().into_iter().find(|cpu| *cpu >= CPUS_MAX);
    if let Some(far) = far {
        let why = format!("this process may use CPU {far}, and the scheduler knows CPUs below {CPUS_MAX}");
        cannot.push(Obstacle::new("this machine", why, "bind takt to lower CPUs (taskset)"));
    }
    let enforces = vec![
        format!(
            "a sched_ext scheduler keeps the servers of CPUs {}: a SCHED_FIFO thread on each of them makes it \
             decide when a budget comes or ends",
            mapping::list(&cpus)
        ),
        "until the run ends all ordinary threads of the machine have what the components leave, in one queue"
            .to_owned(),
    ];
    Ok(Contract { back_end: ServerBackEnd::SchedExt, enforces, cannot })
}

fn obstacle_of(lack: &Unavailable) -> Obstacle {
    match lack {
        Unavailable::Feature => Obstacle::new(
            "this program",
            "it was built without the feature \"bpf\", which has the sched_ext scheduler",
            format!("build takt with cargo build --features bpf (docs/reference/bpf.md), or {OTHERS}"),
        ),
        Unavailable::Kernel => Obstacle::new(
            "this kernel",
            "it has no sched_ext: /sys/kernel/sched_ext is missing, which needs CONFIG_SCHED_CLASS_EXT=y (Linux 6.13 \
             and later)",
            format!("boot a kernel that has it, or {OTHERS}"),
        ),
        Unavailable::Busy(name) => Obstacle::new(
            "this machine",
            format!("the sched_ext scheduler \"{name}\" is at work, and the kernel has one at a time"),
            format!("end that one first, or {OTHERS}"),
        ),
        Unavailable::Groups => Obstacle::new(
            "this kernel",
            "its sched_ext does not tell of control groups and their cpu.max, which components of existing threads \
             need (CONFIG_EXT_GROUP_SCHED=y, Linux 6.17 and later)",
            "boot a kernel that has it, or use --backend manager",
        ),
        Unavailable::Privilege(why) => Obstacle::new("this user", why.clone(), OTHERS),
    }
}

/// Refuses servers for which a CPU has too little time.
pub(crate) fn admit(system: &System, node: NodeId) -> Result<(), RunError> {
    let parts = CpuPart::of_node(system, node)?;
    manager::refuse_overload(system, node, &parts, &Limits::read())
}

/// Maps the node to sched_ext. Its contract has no obstacle.
pub(crate) fn prepare(
    system: &System,
    node: NodeId,
    options: &RunOptions,
    limits: &Limits,
) -> Result<Prepared, RunError> {
    let (plan, _) = plan::plan(system, node)?;
    let parts = CpuPart::of_node(system, node)?;
    if !options.force {
        manager::refuse_overload(system, node, &parts, limits)?;
    }
    let mut tasks = Vec::new();
    for ((id, task), member) in system.tasks_of(node).zip(&plan.members) {
        mapping::has_values(task)?;
        let cpus = plan.cpus_of(member);
        // Jobs of a backlog are put in their places one by one.
        tasks.push(MappedTask { id, class: Class::Ext, cpus, domain: None, yields: true });
    }
    let mut mapping = Mapping { tasks, ..Mapping::default() };
    mapping.note_margin(options.margin);
    mapping.notes.extend(foreign::served_notes(system, node));
    mapping::refuse_working_sets(system, &mapping.tasks, takt_linux::memory::available())?;
    let system = Arc::new(system.clone());
    let (dispatched, adaptive, managed) = (None, None, None);
    let back_end = Some(ServerBackEnd::SchedExt);
    let served = Some(Arc::new(plan));
    Ok(Prepared { system, options: *options, node, mapping, dispatched, adaptive, managed, served, back_end })
}
