# The commands of this repository. `make run` and `make test` are all that one needs.

SECONDS ?= 60
# Of `make run`; `quick` is for trying.
PROFILE ?= release
# Most of a test of the whole server is waiting: four at a time leave two cores idle for much of their time, and browsers
# still answer in time.
SUITE_THREADS ?= $(shell echo $$(( $$(nproc) * 2 )))
SEEDS ?= 1000
FIRST ?= 0
TARGETS := $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs)))

.PHONY: run build dist image image-check test check deps fmt lint doc unit quick doctests suite replay outside packages providers bindings surroundings api map conformance bogo deny bench bench-flv bench-flvs bench-ws bench-rtsp bench-srt bench-srt-aes bench-whep bench-registry networks firewalls data-channels soak instructions fuzz fuzz-score fuzz-coverage kills chaos seeds mutants clean

run: ## Build and start the server with its embedded store, in ./millstream-home; ARGS="--set http.port=8080" goes to it, PROFILE=quick builds in half of the time
	@cargo run --profile $(PROFILE) --locked -- $(ARGS)

build:
	cargo build --release --locked

dist: ## The release archive, packages for Debian and RPM systems, and the binary's symbols, in target/dist
	sh packaging/licenses.sh target/licenses/crates.txt
	CRATE_LICENSES=target/licenses/crates.txt sh packaging/dist.sh
	sh packaging/packages.sh

image: ## The container image, by docker or podman (ENGINE=...)
	sh packaging/image.sh build

image-check: ## Builds, starts and ends the image; where there is no engine it says what was not checked
	@sh packaging/image.sh check

test: ## Everything a change must pass; all steps run, whatever fails, and a summary ends it
	@MAKE="$(MAKE)" sh tests/steps.sh deps fmt lint doc unit doctests suite outside packages providers bindings image-check

check: fmt lint doc quick ## The fast part: no other program is needed, and the longest unit tests are left out

deps: ## Install the programs that the tests run (Debian packages)
	sh tests/install.sh

fmt:
	cargo fmt --all --check
	cd tests/bare && cargo fmt --check

lint:
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd tests/bare && cargo clippy --quiet --locked --target-dir ../../target -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --exclude millstream-fuzz --no-deps --document-private-items --locked --quiet

# The server's unit tests take longer to optimize than to run. The program beside its library has none.
unit:
	cargo test --workspace --exclude millstream-fuzz --lib --locked --config profile.dev.package.millstream.opt-level=0

# Unit tests that try everything there is (each byte of a file, each power cut, each step beside 100 000 records): two thirds of the time of all.
LONG = b_02_ b_03_ b_05_ b_07_ b_13_ b_19_ b_33_ c_19_ m_28_ q_16_ q_17_ r_57_ t_09_ t_10_ t_19_ a_file_that_is_cut_anywhere the_numbers_of_sessions \
	each_step_of_the_table a_foreign_key_is_not_read each_key_that_works a_replica_that_a_sentinel many_sounds_leave transcoder::
quick: ## The unit tests without those that take longest
	cargo test --workspace --exclude millstream-fuzz --lib --locked --config profile.dev.package.millstream.opt-level=0 -- $(addprefix --skip ,$(LONG))

doctests: ## The examples in the documentation of the crates; they are built anew each time
	cargo test --workspace --doc --locked

suite: ## The whole server with real clients, hostile peers, crashes, and in virtual time; the tests of the crates; the fuzz corpora
	cargo test --workspace --test '*' --locked -- --test-threads=$(SUITE_THREADS)

replay: ## Every fuzz corpus, without a fuzzer; the suite has it too
	cargo test --workspace --test replay --locked

outside: ## Programs of somebody else, each with one of the crates as its only dependency: built and run
	cd tests/outside && cargo fmt --all --check
	cd tests/outside && for program in srt rtmp webrtc http1; do cargo run -q --locked --target-dir ../../target -p outside-$$program || exit 1; done

packages: ## The crates as packages of a registry, and programs outside that are built from them alone; nothing is published
	sh tests/packages.sh

providers: ## The crates with encryption built without C, both providers of primitives compared, and machines of one talking to those of the other
	sh tests/providers.sh

bindings: ## The library for C: its header, its examples with ffmpeg. The wheel for Python, beside ffmpeg and dpkt
	sh bindings/test.sh

surroundings: ## Real programs around the server: proxies, caches, Prometheus, packages, certificates, charts; installs them. ONLY=prometheus for a part
	@sh tests/surroundings/install.sh
	cargo build --locked --bin millstream
	python3 tests/surroundings/run.py $(ONLY)

api: ## Writes down the public interface of each crate (proto-impl/*/api.txt), once its changelog says what has changed
	CARGO_MANIFEST_DIR=$$PWD rustc --edition 2024 --test tests/tree/main.rs -o target/tree
	MILLSTREAM_API=write RUST_BACKTRACE=0 target/tree --quiet api

map: ## Counts the crates for the table of docs/crates.md
	python3 tests/crates.py

# The suites of others that need no sources beside this repository.
conformance: ## What docs/conformance.md tells, but for BoGo
	cargo test --locked -p millstream-crypto --lib
	cargo test --locked -p millstream-ice --lib rfc_5769
	cargo test --locked -p millstream-srtp --lib of_the_rfc
	cargo test --locked -p millstream-rtsp --lib digest_vectors
	cargo test --locked -p millstream-hls --lib
	cargo test --locked -p millstream-dtls -p millstream-webrtc --test interop
	cargo test --locked -p millstream-sctp --test differential
	cargo test --locked --test suite -- h_31_ h_27_ s_26_ x_7_libsrt

bogo: ## BoringSSL's test runner against our DTLS; BORINGSSL=FOLDER has its sources, and Go is needed
	sh tests/bogo.sh "$(BORINGSSL)"

deny: ## Licences, sources and duplicates of the dependencies
	command -v cargo-deny >/dev/null || cargo install --locked cargo-deny@0.20.2
	cargo deny check bans licenses sources

bench: ## Fan-out beside nginx-rtmp and a bare sending loop; see docs/benchmarks.md
	cargo bench --bench fanout --locked

bench-flv bench-flvs bench-ws bench-rtsp bench-srt bench-srt-aes bench-whep: ## The same with viewers of HTTP-FLV, HTTPS-FLV, FLV over WebSocket, RTSP, SRT, WebRTC
	cargo bench --bench fanout --locked -- --protocol $(@:bench-%=%)

bench-registry: ## What a stream costs control beside ten thousand others
	cargo bench --bench registry --locked

networks: ## Real viewers behind bad networks, at millstream and other servers; installs them. CLIENT=chromium,firefox,pion,str0m, ONLY="75 %", SERVERS=millstream,janus, SEEDS=5, TABLE=pairwise, SIDE=publisher
	PROFILE=$(PROFILE) bash benches/networks/run.sh --only "$(ONLY)" --servers "$(SERVERS)" --table $(or $(TABLE),short) \
		--side $(or $(SIDE),viewer) --client $(or $(CLIENT),chromium) --seeds $(if $(filter file,$(origin SEEDS)),5,$(SEEDS))

firewalls: ## Real Chromium behind translators of addresses, firewalls and a proxy, in network namespaces; needs root. ONLY=proxy, JOINS=10
	PROFILE=$(PROFILE) bash benches/firewalls/run.sh --only "$(ONLY)" --joins $(or $(JOINS),10)

data-channels: ## Data channels with aiortc, werift, libdatachannel and pion, which it installs (docs/webrtc-interop.md); ONLY=pion for one of them
	sh benches/data_channels/run.sh $(ONLY)

soak: ## Memory of a server that is used for MINUTES (180): all protocols, recordings, calls of the API
	cargo build --release --locked && python3 benches/soak.py target/release/millstream $(or $(MINUTES),180)

instructions: ## Ratios of instruction counts; needs valgrind
	command -v valgrind >/dev/null || { apt-get update -qq && apt-get install -y -qq valgrind; }
	cargo bench --bench instructions --locked
	cargo bench -p millstream-srt --bench packets --locked

fuzz: ## Each target for SECONDS seconds
	set -e; for target in $(TARGETS); do sh fuzz/run.sh $$target $(SECONDS); done

fuzz-score: ## Each target for SECONDS seconds, and its row in the scoreboard of docs/fuzzing.md; TARGETS="amf0 sdp" for some
	sh fuzz/score.sh $(SECONDS) $(TARGETS)

fuzz-coverage: ## Which lines the corpora and their mutations run, for each target; needs rustup's llvm-tools
	@sh fuzz/coverage.sh $(TARGETS)

chaos: ## 200 times kill -9 of a node or the directory of a cluster under writers and encoders
	SUITE_CHAOS=200 cargo test --release --test suite --locked n_25 -- --nocapture

kills: ## 200 times kill -9 under concurrent writers; recordings that are cut short by 1000 kills and 50 power cuts
	SUITE_KILLS=200 cargo test --release --test suite --locked b_01 -- --nocapture
	SUITE_RECORDING_KILLS=1000 SUITE_POWER_CUTS=50 \
		cargo test --release --test suite --locked crash::recordings -- --nocapture

seeds: ## SEEDS simulated lives of the server, and of viewers that select tracks; FIRST is the first of them
	MILLSTREAM_SEEDS=$(SEEDS) cargo test --release -p millstream --lib --locked selection_tests
	MILLSTREAM_SEEDS=$(SEEDS) MILLSTREAM_FIRST_SEED=$(FIRST) \
		cargo test --release --test suite --locked simulation -- --nocapture

mutants: ## Small mistakes in chosen files, each of which some test must notice; FILES="src/hub/ring.rs" for some
	sh tests/mutants.sh $(FILES)

clean:
	cargo clean
	rm -rf fuzz/target
