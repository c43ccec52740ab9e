#!/usr/bin/env bash
# takt's rta beside the crate response-time-analysis 0.3.2, on the same task sets in the same run. With the argument
# "agreement" bounds are compared, and nothing is timed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --quiet --release --locked --manifest-path benches/check-peer/Cargo.toml --target-dir target/check-peer -- "$@"
