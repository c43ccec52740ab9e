//! The head of a run's log.

use takt_linux::sched;
use takt_log::{CpuDef, Definitions, Header};
use takt_model::{NodeId, file};

use crate::Ready;

impl Ready {
    /// The header and the definitions of a log of this run.
    #[must_use]
    pub fn log_head(&self) -> (Header, Definitions) {
        let prepared = self.prepared();
        let (system, node) = (prepared.system(), prepared.node());
        let mut definitions = Definitions::of(system).about(Some(node));
        for (def, task) in definitions.tasks.iter_mut().zip(&system.tasks) {
            // The jobs of existing threads have no deadline.
            if system.threads_of(task).is_some() {
                (def.period, def.deadline, def.wcet) = (None, None, None);
            }
        }
        definitions.cpus = kernel_cpus(node, &sched::affinity());
        let mut header = Header::new(file::write(system), Some(prepared.seed()), prepared.back_end(), self.kinds());
        header.notes = prepared.notes().to_vec();
        (header, definitions)
    }
}

/// The kernel's numbers of the model's CPUs, where they differ.
fn kernel_cpus(node: NodeId, usable: &[u32]) -> Vec<CpuDef> {
    let defs = || (0..).zip(usable).map(|(cpu, &kernel_cpu)| CpuDef { node, cpu, kernel_cpu });
    if defs().any(|def| def.cpu != def.kernel_cpu) { defs().collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_have_two_numbers_where_they_differ() {
        let numbers = |usable: &[u32]| {
            kernel_cpus(NodeId(0), usable).iter().map(|def| (def.cpu, def.kernel_cpu)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[0, 1, 2]), []);
        assert_eq!(numbers(&[1, 3]), [(0, 1), (1, 3)]);
    }
}
