//! Compiles the programs of the folder bpf/ by clang. Without the feature `bpf` it does nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The folder of the programs, from this crate's.
const SOURCES: &str = "../../bpf";
const REMEDY: &str = "install clang (Debian: apt-get install clang libelf-dev zlib1g-dev), or build without the \
                      feature \"bpf\"";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return Ok(());
    }
    println!("cargo::rerun-if-changed={SOURCES}");
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(format!("cargo sets no {name}"));
    // libbpf-sys tells where the headers of its libbpf are.
    let (headers, out) = (folder("DEP_BPF_INCLUDE")?, folder("OUT_DIR")?);
    let entries = fs::read_dir(SOURCES).map_err(|error| format!("folder {SOURCES}: {error}"))?;
    for entry in entries {
        let source = entry.map_err(|error| format!("folder {SOURCES}: {error}"))?.path();
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(program) = name.strip_suffix(".bpf.c") {
            compile(&source, &headers, &out.join(format!("{program}.bpf.o")))?;
        }
    }
    Ok(())
}

fn compile(source: &Path, headers: &Path, object: &Path) -> Result<(), String> {
    let mut clang = Command::new("clang");
    // The third set of instructions: Linux 5.12 and later, clang 11 and later. -g gives the types for CO-RE.
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]);
    // No path of this machine stands in the object.
    clang.args(["-fdebug-compilation-dir=.", "-I"]).arg(headers).arg("-I").arg(SOURCES);
    let done = clang.arg("-c").arg(source).arg("-o").arg(object).output();
    let done = done.map_err(|error| format!("clang, which compiles {}: {error}; {REMEDY}", source.display()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("clang does not compile {}:\n{}", source.display(), String::from_utf8_lossy(&done.stderr)))
}
