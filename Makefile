# The two commands of a fresh Debian or Ubuntu: `make preview` and `make test`. Both do all the set-up.
SHELL := /bin/bash
CARGO ?= cargo
# GStreamer older than 1.22, or none: the program builds without its sink and says so.
FEATURES = $(shell pkg-config --atleast-version=1.22 gstreamer-1.0 gstreamer-app-1.0 gstreamer-video-1.0 2>/dev/null || echo "--no-default-features --features cuda,daemon")
# Stands outside the workspace, as it needs an SDK; built against its stand-in here.
RIVERMAX = --manifest-path rivermax-sys/Cargo.toml --target-dir target --features stand-in --locked
# DPDK where its headers are.
DPDK = $(shell pkg-config --atleast-version=22.11 libdpdk 2>/dev/null && echo ,dpdk)
# With Rivermax as well, by its stand-in, with ibverbs, whose stand-in is made by its tests, and with DPDK.
ALL = $(FEATURES) --features rivermax-stand-in,verbs$(DPDK)
# Of all targets together: another target makes CI no longer. Unoptimised, they are built in a third of the time; for more
# than a short run: make fuzz FUZZ_SECONDS=3600 FUZZ_PROFILE=--release
FUZZ_SECONDS ?= 50
FUZZ_PROFILE ?= --dev
# The CUDA compiler that scripts/setup installs, and its NVRTC.
CUDA = scripts/cuda-env
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help setup preview test check docs build package wall fuzz sanitize sanitize-receiver sanitize-all loom examples bench clean

help:
	@echo "make preview   build, send a test stream to itself and show it (no GPU, NIC or display needed)"
	@echo "make test      everything that CI runs"
	@echo "make bench     the benchmark tables (see benches/RESULTS.md)"
	@echo "make setup     install what building and testing need"
	@echo "make loom      what threads share, in every order in which they may touch it"
	@echo "make sanitize-all  all tests under the address sanitizer (takes long)"
	@echo "make fuzz      fuzz every target, FUZZ_SECONDS (now $(FUZZ_SECONDS)) shared among them"

setup:
	@scripts/setup test

preview:
	@scripts/setup preview
	@scripts/preview

# Tests come last: the run ends with their summary.
test: setup check docs fuzz sanitize build package examples wall
	$(CARGO) test $(RIVERMAX)
	GDMEDIA_PROGRAM=target/gdmedia-bare $(CUDA) $(CARGO) test --workspace --locked $(ALL) --test cli_play
	$(CUDA) $(CARGO) test --workspace --locked $(ALL)

check:
	$(CARGO) fmt --all --check
	$(CUDA) $(CARGO) clippy --workspace --all-targets --locked $(ALL) -- -D warnings
	$(CUDA) $(CARGO) clippy --locked $(FEATURES) -- -D warnings
	$(CARGO) clippy --locked --no-default-features -- -D warnings
	$(CARGO) clippy --locked --no-default-features --features verbs -- -D warnings
	$(if $(DPDK),$(CARGO) clippy --locked --no-default-features --features dpdk -- -D warnings)
	$(CARGO) clippy $(RIVERMAX) --all-targets -- -D warnings
	scripts/deny
	scripts/layers
	scripts/deploy-check

docs:
	RUSTDOCFLAGS="-D warnings" $(CUDA) $(CARGO) doc --workspace --no-deps --locked $(ALL)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(RIVERMAX) --no-deps

# All at once, so that both halves of a machine have something to do. The program without any feature first, for the tests
# of its command line, which show small pictures only.
build:
	$(CARGO) build --locked --no-default-features --bin gdmedia --config 'profile.dev.package.gdmedia-convert.opt-level=0'
	install target/debug/gdmedia target/gdmedia-bare
	$(CUDA) $(CARGO) test --no-run --workspace --locked $(ALL)

# What the Debian package is made of, with the program that the tests have.
package: build
	scripts/package --check target/debug/gdmedia

# The daemon's pages in a browser, where there is one.
wall: build
	scripts/wall-check --quick

# The stand-in's C and what calls it, under the address sanitizer, whose flags stable hides.
sanitize:
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Clink-arg=-rdynamic" $(CARGO) test $(RIVERMAX) \
	  --target $$(rustc -vV | sed -n 's/^host: //p') --test stand_in --test process --test cuda

# The receivers by their stand-ins as well; it builds all of the program once more.
sanitize-receiver:
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Clink-arg=-rdynamic" $(CARGO) test --locked --no-default-features \
	  --features rivermax-stand-in,verbs --target $$(rustc -vV | sed -n 's/^host: //p') --test rivermax --test verbs --test receivers

# All tests under the address sanitizer, the programs that they run too; it builds everything once more. What is suppressed
# is named, with the reason, in scripts/lsan.supp. The library of C++ is there from the beginning, because the sanitizer looks
# for its exceptions once.
sanitize-all:
	LD_PRELOAD=$$(cc -print-file-name=libstdc++.so.6) RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Clink-arg=-rdynamic" \
	  RUSTDOCFLAGS="-Zsanitizer=address" GDMEDIA_SANITIZED=1 \
	  LSAN_OPTIONS=suppressions=$(CURDIR)/scripts/lsan.supp:print_suppressions=0 \
	  $(CUDA) $(CARGO) test --workspace --locked --no-fail-fast $(ALL) --target-dir target/asan \
	  --target $$(rustc -vV | sed -n 's/^host: //p')

# What threads share, in every order in which they may touch it (models at the ends of the files that use src/sync.rs). Not
# a part of `test`: it builds the library once more.
loom:
	RUSTFLAGS="--cfg gdmedia_loom" $(CARGO) test --release --locked --no-default-features --lib \
	  --target-dir target/loom loom_

# cargo-fuzz wants compiler flags that stable hides.
fuzz:
	@set -e; targets=$$(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | tail -n +2); \
	each=$$(( $(FUZZ_SECONDS) / $$(wc -w <<<"$$targets") )); for target in $$targets; do \
	  echo "== fuzz $$target for $$each s"; \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(FUZZ_PROFILE) $$target -- -max_total_time=$$each -rss_limit_mb=4096 -verbosity=0 -print_final_stats=1; \
	done

# The ones that need no network; the others are built by the tests and lints. As the build of the tests has made them: `cargo run`
# would build the library anew, for the features of dependencies are others without those of the tests.
examples: build
	$(CUDA) target/debug/examples/01_parse_sdp sdp/examples/1080i2997_two_legs.sdp
	target/debug/gdmedia send --to target/example.pcap --write-sdp target/example.sdp --format 320x180p25 --frames 5
	$(CUDA) target/debug/examples/02_capture_to_png target/example.sdp target/example.pcap target/example.png
	$(CUDA) target/debug/examples/07_virtual_soak 300000
	$(CUDA) target/debug/examples/05_faults target/example.sdp target/example.pcap loss=1/100,reorder=32,seed=7

bench:
	@scripts/setup test
	@scripts/bench

clean:
	$(CARGO) clean
	rm -rf preview fuzz/target
