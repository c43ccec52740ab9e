//! A FIFO scheduler, beside which the costs of takt's own are measured.

use libbpf_rs::{Link, Object};

use super::types::SchedExtError;
use crate::bpf::{image, load, register};

/// The scheduler of bpf/fifo.bpf.c: one queue, first in, first out. Dropping it gives the machine its own back.
#[derive(Debug)]
pub struct Fifo {
    object: Object,
    link: Option<Link>,
}

impl Fifo {
    /// Gives it to the kernel. Nothing is scheduled by it yet.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn load() -> Result<Fifo, SchedExtError> {
        Ok(Fifo { object: load("fifo", image!("fifo"), |_| Ok(()))?, link: None })
    }

    /// Puts all ordinary threads of the machine under it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn attach(&mut self) -> Result<(), SchedExtError> {
        let link = register(&mut self.object, "fifo_ops");
        self.link = Some(link.map_err(|cause| SchedExtError::Broken { what: "fifo_ops", cause })?);
        Ok(())
    }

    /// Gives the machine its own scheduler back.
    pub fn detach(&mut self) {
        self.link = None;
    }
}
