# A thin front for CMake. `make help` lists what there is.
#
# Each way of building has a folder of its own, so that none spoils another:
#   build        what you use and install: optimised, no test hooks
#   build-test   what `make test` runs: asserts, test hooks
#   build-NAME   what the check, package or tool of that name builds
# Objects are shared by ccache, where it is installed.

PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
# Most tests wait: 8 for each core keep it busy (cmake/tests.cmake).
CTEST_JOBS ?= $(shell expr $(JOBS) \* 8)
TEST ?=
BENCH_ARGS ?=
PEERS_ARGS ?=
SOAK ?= 60
REDISSON ?= redisson4 redisson3

CMAKE ?= cmake
CTEST ?= ctest
# The formatter's version is part of the style: others format differently.
CLANG_FORMAT ?= clang-format-14
CLANG ?= clang-14
CLANGXX ?= $(subst clang,clang++,$(CLANG))

export CMAKE_C_COMPILER_LAUNCHER ?= $(shell command -v ccache)
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(CMAKE_C_COMPILER_LAUNCHER)
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

# A compiler is passed on only if somebody asked for one, and in a run of its
# own: a change of compiler makes CMake forget all other settings.
ifneq ($(origin CC),default)
ifeq ($(origin CXX),default)
CXX = $(subst gcc,g++,$(subst clang,clang++,$(CC)))
endif
set_compiler = $(CMAKE) -S . -B $(1) -DCMAKE_C_COMPILER=$(CC) \
	$(if $(shell command -v $(CXX)),-DCMAKE_CXX_COMPILER=$(CXX)) >/dev/null &&
endif
# $(call configure,FOLDER,OPTIONS), then $(call compile,FOLDER)
configure = $(set_compiler) $(CMAKE) --log-level=NOTICE -S . -B $(1) $(2)
compile   = $(CMAKE) --build $(1) -j $(JOBS)
# $(call run_tests,FOLDER,OPTIONS): only those that $(TEST) names, if it does
run_tests = TEST="$(TEST)" DIBS_TEST_MAKE="make $@" \
	tools/run_tests.sh $(1) -j $(CTEST_JOBS) $(2)
tests_on  = -DCMAKE_BUILD_TYPE=Debug -DDIBS_TESTS=ON -DDIBS_FAULTS=ON
tests_off = -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDIBS_TESTS=OFF -DDIBS_FAULTS=OFF

# Address space layouts of some kernels are too random for the thread
# sanitizer; where it is allowed, its tests run without.
steady := $(shell setarch -R true 2>/dev/null && echo setarch -R)

c_files = $(shell find include src cli examples bench tests \
	-name '*.[ch]' -o -name '*.[ch]pp' 2>/dev/null)

.PHONY: all build build-test deps test test-topology test-servers test-long
.PHONY: test-all interop install uninstall deb dist static bench peers demo sim
.PHONY: sim-mutants scale coverage clean format check check-deps check-format
.PHONY: check-layers check-lists check-size check-header check-cdef check-man
.PHONY: check-lua
.PHONY: check-gcc check-clang check-symbols check-asan check-tsan check-install
.PHONY: check-deb check-dist check-static check-abi check-versions check-peers
.PHONY: help help-all
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

all: build

build:
	@{ $(call configure,build,$(tests_off) \
		-DCMAKE_INSTALL_PREFIX=$(PREFIX)); } || { echo "Something missing? Try: make deps"; exit 1; }
	@$(call compile,build)

deps:
	@tools/deps.sh build test

build-test: deps
	@$(call configure,build-test,$(tests_on))
	@$(call compile,build-test)

# make test TEST=server.lock: that one; TEST=cli: all whose names match.
test: build-test
	@$(call run_tests,build-test)

# Sentinels, clusters, failovers: many servers each.
test-topology: build-test
	@$(call run_tests,build-test,-j 4 -L topology)

# The long form of the tests that can run for any time.
test-long: build-test
	@DIBS_TEST_LONG=1 $(call run_tests,build-test,-R '^(stress\.|sim\.world)')

# All that a server could do differently, on others than Debian's: with one
# server, TLS included; on a Valkey also with sentinels and clusters. (The old
# Redis lacks commands that those tests use.) Needs the network the first time.
test-servers: build-test
	@tools/deps.sh servers
	@set -e; servers=$$(tools/servers.sh build-servers); \
	for server in $$servers; do \
		echo "On $$server:"; export SERVER=$$server; \
		$(call run_tests,build-test,-L server); \
		case $$server in */valkey*) \
			$(call run_tests,build-test,-j 4 -L topology) ;; esac; done

# Everything, with the time of each part; some parts run side by side.
test-all:
	@tools/test_all.sh

install: build
	@DESTDIR="$(DESTDIR)" $(CMAKE) --install build

# Needs the PREFIX and DESTDIR of the install.
uninstall: build
	@DESTDIR="$(DESTDIR)" tools/uninstall.sh build

# Debian packages and the tarball of the sources. Both come out of the files
# that git knows, and are made outside of this folder.
deb:
	@tools/deps.sh build package
	@JOBS=$(JOBS) tools/release/deb.sh build-deb

dist:
	@tools/release/dist.sh build-dist

# The command as one file that needs nothing else, for containers. The linker's
# warnings about names of hosts and users do not apply: check-static tries it.
static:
	@tools/deps.sh build
	@$(call configure,build-static,$(tests_off) -DDIBS_STATIC=ON)
	@$(call compile,build-static) --target dibs_command
	@strip --strip-all -o build-static/dibs build-static/cli/dibs
	@echo "make static: build-static/dibs, $$(stat -c %s build-static/dibs) bytes"

# Against a real Redisson: needs Java and Maven, which it installs, and the
# network the first time. Not part of `make test`.
interop: build-test
	@tools/deps.sh interop
	@$(call compile,build-test) --target dibs_interop
	@SOAK=$(SOAK) tests/interop/run.sh build-test/tests/interop $(REDISSON)

bench: deps build
	@$(call compile,build) --target dibs_bench
	@build/bench/bench $(BENCH_ARGS)
	@bench/cli_bench.sh build/cli/dibs

# Next to other libraries; about 25 minutes. Those whose language or package
# cannot be had here are left out, with a word. Writes docs/benchmarks.md.
peers: deps build
	@bench/peers/build.sh build build-peers
	@python3 -B bench/peers/run.py build-peers --docs docs $(PEERS_ARGS)

# Does the comparison still run? Only what needs no network.
check-peers: deps build
	@PEERS=c bench/peers/build.sh build build-peers
	@python3 -B bench/peers/run.py build-peers --smoke \
		--only "dibs async,plain hiredis,the server's limit" >/dev/null
	@echo "check-peers: the comparison runs"

# The simulator: `make sim SEED=n` tells the story of one seed, SIM_ARGS as its
# report says; `make sim MINUTES=n` runs as many as there is time for.
MINUTES ?= 1
SIM_ARGS ?=
configure_sim = $(call configure,$(1),-DCMAKE_BUILD_TYPE=None \
	-DCMAKE_C_FLAGS="-O2 -g" -DDIBS_TESTS=ON -DDIBS_FAULTS=ON)
sim: deps
	@$(call configure_sim,build-sim)
	@$(call compile,build-sim) --target sim
ifdef SEED
	@build-sim/tests/sim/sim --seed $(SEED) $(SIM_ARGS)
else
	@build-sim/tests/sim/sim --minutes $(MINUTES) --jobs $(JOBS) $(SIM_ARGS)
endif

# Does it find bugs? Plants one after the other, and tells how many seeds it
# took: SEEDS at most (10000), and SECONDS_EACH (120). MUTANTS names some.
# Writes build-mutants/table.md.
SEEDS ?= 10000
SECONDS_EACH ?= 120
sim-mutants: deps
	@SEEDS=$(SEEDS) SECONDS_EACH=$(SECONDS_EACH) JOBS=$(JOBS) \
		tests/sim/mutants/run.sh build-mutants $(MUTANTS)

# More and more simulated clients, without faults. Writes the tables and the
# picture of docs/scale.md; some minutes, and 2 GB of memory. SCALE_ARGS=--quick
# only prints the smaller half.
SCALE_ARGS ?= --into docs
scale: deps
	@$(call configure_sim,build-sim)
	@$(call compile,build-sim) --target scale
	@tools/scale.py build-sim/tests/sim/scale $(SCALE_ARGS)

# What of src/ all tests together run, those with sentinels and clusters too. A
# test that fails here is told, and counts all the same. Two tests look at what
# the library is linked with, and would see the counters.
coverage:
	@tools/deps.sh build test coverage
	@$(call configure,build-coverage,$(tests_on) -DCMAKE_C_COMPILER=gcc -DDIBS_COVERAGE=ON)
	@$(call compile,build-coverage)
	@find build-coverage -name '*.gcda' -delete
	-@$(CTEST) --test-dir build-coverage -Q -j $(CTEST_JOBS) \
		-E '^(sim.seam|cli.recipes)$$'
	@tools/coverage.py build-coverage

demo: deps build
	@examples/demo.sh build/cli/dibs

clean:
	rm -rf build build-test build-asan build-tsan build-gcc build-clang \
		build-peers build-sim build-mutants build-coverage build-static \
		build-deb build-dist tests/interop/target

# ---- checks -----------------------------------------------------------------

check-deps:
	@tools/deps.sh build test check

check: check-deps check-format check-layers check-lists check-size \
	check-header check-cdef check-man check-lua check-gcc check-clang \
	check-symbols
	@echo "All checks passed."

format:
	@$(CLANG_FORMAT) -i $(c_files)

check-format:
	@$(CLANG_FORMAT) --dry-run -Werror $(c_files)
	@echo "check-format: all C and C++ files are formatted"

check-layers check-lists check-size check-header check-man check-lua:
	@tools/$(subst -,_,$@).sh

check-cdef:
	@tools/cdef.py --check

# gcc without asserts and optimised, clang with asserts: each sees what the
# other build hides. The tests of dibs.hpp also run, in each standard of C++: there
# the compiler of the program matters.
strict = $(tests_on) -DDIBS_WERROR=ON "-DDIBS_CPP_STANDARDS=17;20;23"
check-gcc:
	@$(call configure,build-gcc,$(strict) -DCMAKE_C_COMPILER=gcc \
		-DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release)
	@$(call compile,build-gcc)
	@$(call run_tests,build-gcc,-Q -L cpp)

check-clang:
	@$(call configure,build-clang,$(strict) -DCMAKE_C_COMPILER=$(CLANG) \
		-DCMAKE_CXX_COMPILER=$(CLANGXX) -DCMAKE_BUILD_TYPE=None)
	@$(call compile,build-clang)
	@$(call run_tests,build-clang,-Q -L cpp)

check-symbols: check-gcc
	@tools/check_symbols.sh build-gcc/libdibs.so build-gcc/libdibs.a

# Sanitized programs compute more: half as many at a time.
check-asan check-tsan: CTEST_JOBS := $(shell expr $(CTEST_JOBS) / 2)
check-asan: deps
	@$(call configure,build-asan,$(tests_on) -DDIBS_SANITIZE=address)
	@$(call compile,build-asan)
	@$(call run_tests,build-asan)

check-tsan: deps
	@$(call configure,build-tsan,$(tests_on) -DDIBS_SANITIZE=thread)
	@$(call compile,build-tsan)
	@$(steady) env $(call run_tests,build-tsan,-LE 'topology|cli')

check-install: deps
	@tools/release/check_install.sh

check-static: static
	@tools/deps.sh test
	@tools/release/check_static.sh build-static/dibs

check-dist:
	@tools/deps.sh build test
	@JOBS=$(JOBS) tools/release/check_dist.sh

# Needs the history: the old version is built from git.
check-abi: build
	@tools/deps.sh package
	@JOBS=$(JOBS) tools/release/check_abi.sh build/libdibs.so

# The unit and server tests, built by other compilers with other libraries. Needs
# root, and the network the first time; a quarter of an hour.
check-versions:
	@tools/deps.sh versions
	@JOBS=$(JOBS) tools/check_versions.sh build-versions

# As root it also installs the packages, uses them, and purges them again.
check-deb:
	@tools/deps.sh build test package
	@JOBS=$(JOBS) tools/release/check_deb.sh

# ---- help -------------------------------------------------------------------

help:
	@echo "make             build the library and the command, in build/"
	@echo "make install     install under PREFIX ($(PREFIX)), DESTDIR"
	@echo "make test        install what is missing, build, run the tests;"
	@echo "                 TEST=server.lock: only those whose names match"
	@echo "make test-all    everything, as .ci/run does it: half an hour"
	@echo "make sim         simulated faults by the thousand; SEED, MINUTES"
	@echo "make bench       measure, next to plain hiredis; BENCH_ARGS=--quick"
	@echo "make peers       measure, next to other lock libraries"
	@echo "make interop     the tests against a real Redisson (Java, Maven)"
	@echo "make check       format, layers, headers, man pages, warnings, symbols"
	@echo "make format      format all C and C++ files"
	@echo "make deb         Debian packages, in build-deb/"
	@echo "make dist        a tarball and its checksum, in build-dist/"
	@echo "make help-all    the other targets, and the variables"

help-all: help
	@echo
	@echo "make deps            install what building and testing need (apt)"
	@echo "make uninstall       remove what make install put there"
	@echo "make static          the command as one file, in build-static/"
	@echo "make demo            watch processes contend for a lock"
	@echo "make clean           remove all build folders"
	@echo "make test-topology   the tests with sentinels and clusters"
	@echo "make test-servers    the tests on a Valkey and on an old Redis"
	@echo "make test-long       the long form of stress.* and sim.world"
	@echo "make sim-mutants     does the simulator find planted bugs?"
	@echo "make scale           ten thousand simulated clients; docs/scale.md"
	@echo "make coverage        what of src/ the tests run, and what not"
	@echo "make check-asan      all tests, address and undefined sanitizers"
	@echo "make check-tsan      all tests, thread sanitizer"
	@echo "make check-install   install into a temporary place and use it"
	@echo "make check-static    the static command, alone in an empty root"
	@echo "make check-dist      the tarball: twice the same, builds, passes tests"
	@echo "make check-abi       programs built with 0.1.0 run with this library"
	@echo "make check-deb       packages: twice the same, lintian, install, purge"
	@echo "make check-versions  tests on other compilers and libraries (root)"
	@echo "make check-peers     the comparison with other libraries still runs"
	@echo
	@echo "Variables: CC, CXX, JOBS, CTEST_JOBS, TEST, PREFIX, DESTDIR, BENCH_ARGS,"
	@echo "           PEERS_ARGS (try --quick), SOAK (seconds), SERVER (a program)"
