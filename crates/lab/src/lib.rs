//! The pure parts of the lab: a Linux kernel in QEMU, in virtual time.
//!
//! - [`initrd`] writes the guest's file system as a newc archive. The same files give the same bytes.
//! - [`guest`] has the guest's first script and the layout of its folder.
//! - [`frames`] carries results from the guest to the host.
//! - [`machine`] writes QEMU's command line.
//! - [`kernel`] opens a bzImage, and [`btf`] tells which BPF functions that kernel offers.
//! - [`modules`] orders kernel modules by their dependencies.
//! - [`packages`] chooses Debian packages and writes a private configuration for apt.
//!
//! `takt-run` does the I/O around them.

pub mod btf;
pub mod frames;
pub mod guest;
pub mod initrd;
pub mod kernel;
pub mod machine;
pub mod modules;
pub mod packages;
