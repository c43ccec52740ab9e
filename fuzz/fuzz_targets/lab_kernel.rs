//! Reads arbitrary bytes as a kernel image, an ELF file, a module, BTF, a list of sources and names
//! of packages. Nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_lab::{btf, guest, kernel, modules, packages};

fuzz_target!(|bytes: &[u8]| {
    let _ = kernel::unpack(bytes);
    let _ = kernel::is_static(bytes);
    let _ = kernel::section(bytes, ".BTF");
    let _ = modules::depends(bytes);
    if let Some(functions) = btf::functions(bytes) {
        assert!(functions.lacks(&btf::SCHED_EXT).len() <= btf::SCHED_EXT.len());
    }
    if let Some(experiment) = guest::Experiment::decode(bytes)
        && std::str::from_utf8(bytes).is_ok()
    {
        assert_eq!(experiment.encode(), bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = packages::mirror(text);
        let _ = packages::releases(text, packages::Flavour::Rt);
    }
});
