# One command a purpose. CI runs `make test`, and more: see .ci/run. What takes longer is in `make nightly`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo
DEMO_FOR ?= 3s
TAKT := target/release/takt

.PHONY: all agreement demo deb docs c-library install-c test fmt clippy doc unit live lab lab-binary bpf nightly invariants invariants-selftest deny bench soak soak-systems soak-tests fuzz zenoh clean-demo

all: test

## From theory to this kernel: check, simulate and run examples/quickstart.toml, compare, leave report.html.
demo:
	$(CARGO) build --profile demo --locked --package takt
	TAKT=target/demo/takt DEMO_FOR=$(DEMO_FOR) .ci/demo

## Everything that must hold before a change lands.
# Clippy and the documentation are checked beside the live tests, which wait most of the time.
test: BESIDE := clippy doc
test: fmt unit deny

fmt:
	.ci/timed fmt $(CARGO) fmt --all --check

## With what is behind a feature; and takt-dispatch once more without, as most programs use it.
clippy:
	.ci/timed clippy $(CARGO) clippy --locked --workspace --features takt-dispatch/tokio --all-targets -- -D warnings
	.ci/timed "clippy: no feature" $(CARGO) clippy --locked --package takt-dispatch --lib -- -D warnings

## The API's documentation, without a warning, in target/doc.
doc:
	RUSTDOCFLAGS="-D warnings" .ci/timed doc $(CARGO) doc --locked --workspace --no-deps --lib

## The manual as a book: target/book/docs/index.html. Pages link to examples and sources, so those stand beside it.
MDBOOK_VERSION := 0.5.4
MDBOOK := target/tools/bin/mdbook
docs:
	test "$$($(MDBOOK) --version 2>/dev/null)" = "mdbook v$(MDBOOK_VERSION)" || CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug \
	  --no-default-features --features search --target-dir target/tools --root target/tools mdbook --version $(MDBOOK_VERSION)
	rm -rf target/book
	$(MDBOOK) build docs
	cp -r --parents examples bpf crates/c/include crates/c/examples crates/dispatch/examples crates/linux/tests/departures.rs crates/run/tests/departures.rs target/book

## Unit, integration, property and documentation tests; the invariants and their self-test; the commands of
## README and docs/; what is behind a feature. Says at its end what was skipped, and why (TAKT_DEMAND_LIVE=1:
## that is a failure).
unit:
	CARGO="$(CARGO)" BESIDE="$(BESIDE)" .ci/unit

## All live tests LIVE_ROUNDS times (10), beside what LIVE_BESIDE says: make live LIVE_BESIDE="stress-ng --cpu 2"
live:
	.ci/live

## Real kernels in QEMU, with and without PREEMPT_RT: runs systems, and compares 20 pairs of boots byte by byte.
lab:
	.ci/lab

## The takt of a guest, in target/lab: static, because the guest has no libraries; with glibc, because each Rust
## for Linux has it; all of it optimised, because the guest's CPU may be an emulated one.
## LAB_FEATURES=bpf: with the programs of the folder bpf/ (Debian: clang libelf-dev zlib1g-dev).
LAB_TARGET := x86_64-unknown-linux-gnu
LAB_FEATURES ?=
LAB_COSTS := $(if $(filter bpf,$(LAB_FEATURES)),sched_ext_costs)
LAB_BUILD := --package takt $(if $(LAB_COSTS),--package takt-linux --bin takt --example $(LAB_COSTS) --features takt/bpf --features takt-linux/bpf)
lab-binary:
	CARGO_PROFILE_DEMO_OPT_LEVEL=1 RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" \
	  $(CARGO) build --profile demo --locked --target $(LAB_TARGET) $(LAB_BUILD)
	install -D target/$(LAB_TARGET)/demo/takt target/lab/takt
	$(if $(LAB_COSTS),install -D target/$(LAB_TARGET)/demo/examples/$(LAB_COSTS) target/lab/$(LAB_COSTS))

## What is behind the feature bpf, which needs clang, libelf-dev and zlib1g-dev: clippy, and the tests of
## programs in the kernel.
BPF := --locked --workspace --features takt-dispatch/tokio,takt/bpf
# A job in the background of a shell ignores signals that some tests send.
BPF_TEST := env --default-signal=INT,QUIT,HUP $(CARGO) test --no-fail-fast
bpf:
	$(CARGO) clippy $(BPF) --all-targets -- -D warnings
	$(BPF_TEST) --locked --package takt-linux --features bpf --lib -- bpf:: tc::
	$(BPF_TEST) $(BPF) --test tags --test net --test discipline --test departures

## What takes too long for every change: fuzzing, the live tests ten times beside a load, kokyu at full length,
## the simulated experiments of all papers at full length (papers; target/papers.md gets their claims), short
## benchmarks, a short soak, the gateway to Zenoh, ... (.ci/nightly NAME: one of them). CI runs those that a change
## touched, but never papers.
nightly:
	.ci/nightly

## The four invariants of ARCHITECTURE.md.
invariants:
	$(CARGO) test --locked --package takt --test invariants the_invariants_hold -- --nocapture

## Breaks each invariant in a copy and shows that its check fails.
invariants-selftest:
	$(CARGO) test --locked --package takt --test invariants the_check_of_each -- --nocapture

## Licences, bans, duplicates and sources of the dependencies; advisories where the database can be reached.
deny:
	.ci/timed deny .ci/deny

## Response times against two independent implementations of verified analyses: the crate
## response-time-analysis, and PyPI's.
agreement:
	benches/check-peer.sh agreement
	$(CARGO) build --release --locked --package takt
	benches/pyrta-agreement $(TAKT)

## All benchmark programs, and the peers that they are compared with (BENCH=short: only that they run).
bench:
	.ci/bench

## The gateway to Zenoh, a package apart: what `make test` does for all others, and its example. (The first
## build takes minutes: some 300 packages.)
ZENOH := --locked --manifest-path crates/zenoh/Cargo.toml --target-dir target/zenoh
zenoh:
	$(CARGO) fmt --manifest-path crates/zenoh/Cargo.toml --check
	$(CARGO) clippy $(ZENOH) --all-targets -- -D warnings
	$(CARGO) check $(ZENOH) --lib --features transport_tls,transport_quic
	$(CARGO) clippy $(ZENOH) --lib -- -D warnings -F clippy::disallowed_methods -F clippy::disallowed_types -D clippy::print_stdout -D clippy::print_stderr
	$(CARGO) test --locked --manifest-path crates/zenoh/Cargo.toml --target-dir target/zenoh
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(ZENOH) --no-deps --lib
	$(CARGO) run --quiet $(ZENOH) --example fleet
	if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --locked --manifest-path crates/zenoh/Cargo.toml check --hide-inclusion-graph licenses sources; fi

## A Debian package in target/debian: the command, completions for bash, zsh and fish, and manual pages. Needs
## cargo-deb (cargo install cargo-deb).
DEB_PROFILE ?= release
DEB_PARTS := target/deb
deb:
	$(CARGO) build --profile $(DEB_PROFILE) --locked --package takt
	rm -rf $(DEB_PARTS)
	mkdir -p $(DEB_PARTS)/man $(DEB_PARTS)/completions
	target/$(DEB_PROFILE)/takt man --out $(DEB_PARTS)/man
	gzip --best --no-name $(DEB_PARTS)/man/*.1
	for shell in bash zsh fish; do target/$(DEB_PROFILE)/takt completions $$shell > $(DEB_PARTS)/completions/$$shell || exit; done
	$(CARGO) deb --no-build --profile $(DEB_PROFILE) --locked --package takt

## The library for C and C++: c-library builds it, install-c copies it, the header and a file for pkg-config
## below PREFIX.
PREFIX ?= /usr/local
C_PROFILE ?= release
C_LIBRARY ?= target/$(C_PROFILE)
C_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# Before 1.0 each minor version may change the library's calls.
C_SONAME = libtakt_c.so.$(basename $(C_VERSION))
c-library:
	$(CARGO) rustc --profile $(C_PROFILE) --locked --package takt-c --lib -- -C link-arg=-Wl,-soname,$(C_SONAME)

install-c:
	@test -e $(C_LIBRARY)/libtakt_c.so || { echo "$(C_LIBRARY)/libtakt_c.so is not there: run \"make c-library\" first" >&2; exit 1; }
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 644 crates/c/include/takt.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(C_LIBRARY)/libtakt_c.a $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(C_LIBRARY)/libtakt_c.so $(DESTDIR)$(PREFIX)/lib/libtakt_c.so.$(C_VERSION)
	ln -sf libtakt_c.so.$(C_VERSION) $(DESTDIR)$(PREFIX)/lib/$(C_SONAME)
	ln -sf libtakt_c.so.$(C_VERSION) $(DESTDIR)$(PREFIX)/lib/libtakt_c.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(C_VERSION)|' crates/c/takt.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/takt.pc

## A minute for each fuzz target (FUZZ_SECONDS changes that).
fuzz:
	.ci/fuzz

## 10^6 random systems of each kind in soak-systems, 10^6 executions of each fuzz target, the property tests
## with many more cases, and 10^6 random sets through all tests against the exhaustive search; then the
## experiment of KOKYU at full length, whose claims are to hold (SOAK_RUNS, SOAK_CASES, SOAK_SETS, SOAK_TESTS
## (which programs of tests; none: all), SOAK_KOKYU (its seeds; none: not at all) and SOAK_PROFILE, of the
## build, change that).
SOAK_RUNS ?= 1000000
SOAK_CASES ?= 200000
SOAK_SETS ?= 1000000
SOAK_PROFILE ?= soak
SOAK_TESTS ?=
SOAK_KOKYU ?= 0 1 4
SOAK_FLAGS := --locked --workspace --features takt-dispatch/tokio --profile
soak: soak-systems soak-tests
	FUZZ_RUNS=$(SOAK_RUNS) .ci/fuzz
	for seed in $(SOAK_KOKYU); do $(CARGO) run --locked --release --package takt -- reproduce kokyu --seed $$seed --out target/kokyu || exit; done

## Analysis against simulation: 10^6 random systems of each kind (SOAK_SYSTEMS), with a line of progress for
## each 20,000.
soak-systems:
	SOAK_PROFILE=$(SOAK_PROFILE) .ci/soak-systems

## The tests of the soak alone. A job in the background of a shell ignores signals that some tests send; env mends that.
soak-tests:
	TAKT_MODEL_RUNS=$$(( $(SOAK_CASES) / 20 )) PROPTEST_CASES=$$(( $(SOAK_CASES) / 10 )) TAKT_CASES=$(SOAK_CASES) TAKT_SETS=$(SOAK_SETS) env --default-signal=INT,QUIT,HUP $(CARGO) test $(SOAK_FLAGS) $(SOAK_PROFILE) $(SOAK_TESTS)
