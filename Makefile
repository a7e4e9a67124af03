# A thin front for CMake. `make help` lists what there is.
#
# Each way of building has a folder of its own, so that none spoils another:
#   build        what you use and install: optimised, no test hooks
#   build-test   what `make test` runs: asserts, test hooks
#   build-asan   build-tsan   build-gcc   build-clang   for the checks
#   build-interop   for the tests against Redisson
#   build-static    the command without shared libraries
#   build-deb   build-dist   packages and tarballs
#   build-versions  other versions of Debian, for `make check-versions`
#   build-servers   other servers than Debian's, for `make test-servers`
#   build-sim, build-mutants  the simulator, and bugs planted for it
#   build-coverage  counts which lines and branches of src/ the tests run
#   build-peers     programs that use other libraries, for `make peers`

PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
CTEST_JOBS ?= 2
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

# A compiler is passed on only if somebody asked for one, and in a run of its
# own: a change of compiler makes CMake forget all other settings.
configure = $(CMAKE) --log-level=NOTICE -S . -B $(1) $(2)
ifneq ($(origin CC),default)
ifeq ($(origin CXX),default)
CXX = $(subst gcc,g++,$(subst clang,clang++,$(CC)))
endif
set_compiler = $(CMAKE) -S . -B $(1) -DCMAKE_C_COMPILER=$(CC) \
	$(if $(shell command -v $(CXX)),-DCMAKE_CXX_COMPILER=$(CXX)) >/dev/null &&
endif
compile   = $(CMAKE) --build $(1) -j $(JOBS)
run_tests = $(CTEST) --test-dir $(1) --output-on-failure -j $(CTEST_JOBS) \
	-LE 'topology$(2)'
tests_on  = -DCMAKE_BUILD_TYPE=Debug -DDIBS_TESTS=ON -DDIBS_FAULTS=ON
tests_off = -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDIBS_TESTS=OFF -DDIBS_FAULTS=OFF

# Address space layouts of some kernels are too random for the thread
# sanitizer; where it is allowed, its tests run without.
steady := $(shell setarch -R true 2>/dev/null && echo setarch -R)

c_files = $(shell find include src cli examples bench peers tests \
	-name '*.[ch]' -o -name '*.[ch]pp' 2>/dev/null)

.PHONY: all build deps test stress-permits test-topology test-servers interop install uninstall deb dist static bench demo clean format help
.PHONY: check check-format check-commits check-layers check-names check-lists check-size check-header
.PHONY: check-cdef check-man check-gcc check-clang check-symbols check-asan check-tsan
.PHONY: check-install check-deb check-dist check-static check-abi check-versions
.PHONY: check-deps peers check-peers sim sim-mutants scale coverage
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

all: build

build:
	@{ $(call set_compiler,build) $(call configure,build,$(tests_off) \
		-DCMAKE_INSTALL_PREFIX=$(PREFIX)); } || { echo "Something missing? Try: make deps"; exit 1; }
	@$(call compile,build)

deps:
	@tools/deps.sh build test

test: deps
	@$(call set_compiler,build-test) $(call configure,build-test,$(tests_on))
	@$(call compile,build-test)
	@$(call run_tests,build-test)

# Slots and semaphores for some minutes: 10,000 replies are lost of each, and
# 100 processes killed. `make test` does the same with fewer.
stress-permits: deps
	@$(call set_compiler,build-test) $(call configure,build-test,$(tests_on))
	@$(call compile,build-test) --target stress_permits
	@DIBS_TEST_LONG=1 build-test/tests/stress_permits

# Sentinels, clusters, failovers: many servers, a few minutes.
test-topology: deps
	@$(call set_compiler,build-test) $(call configure,build-test,$(tests_on))
	@$(call compile,build-test)
	@$(CTEST) --test-dir build-test --output-on-failure -j 2 -L topology

# All that a server could do differently, on others than Debian's: with one
# server, TLS included; on a Valkey also with sentinels and clusters. (The old
# Redis lacks commands that those tests use.) Needs the network the first time.
# They mostly wait, so many go together; but sentinels take a slow server for a
# dead one.
test-servers:
	@tools/deps.sh build test servers
	@$(call set_compiler,build-test) $(call configure,build-test,$(tests_on))
	@$(call compile,build-test)
	@set -e; servers=$$(tools/servers.sh build-servers); \
	for server in $$servers; do \
		echo "On $$server:"; export SERVER=$$server; \
		$(CTEST) --test-dir build-test --output-on-failure -j 4 -L server; \
		case $$server in */valkey*) $(CTEST) --test-dir build-test \
			--output-on-failure -j 2 -L topology ;; esac; done

install: build
	@DESTDIR="$(DESTDIR)" $(CMAKE) --install build

# Needs the PREFIX and DESTDIR of the install.
uninstall: build
	@DESTDIR="$(DESTDIR)" tools/uninstall.sh build

# Debian packages and the tarball of the sources. Both come out of the files
# that git knows, and are made outside of this folder.
deb:
	@tools/deps.sh build package
	@JOBS=$(JOBS) tools/deb.sh build-deb

dist:
	@tools/dist.sh build-dist

# The command as one file that needs nothing else, for containers. The linker's
# warnings about names of hosts and users do not apply: check-static tries it.
static:
	@tools/deps.sh build
	@$(call set_compiler,build-static) $(call configure,build-static,$(tests_off) -DDIBS_STATIC=ON)
	@$(call compile,build-static) --target dibs_command
	@strip --strip-all -o build-static/dibs build-static/cli/dibs
	@echo "make static: build-static/dibs, $$(stat -c %s build-static/dibs) bytes"

# Against a real Redisson: needs Java and Maven, which it installs, and the
# network the first time. Not part of `make test`.
interop:
	@tools/deps.sh build test interop
	@$(call set_compiler,build-interop) $(call configure,build-interop,$(tests_on) -DDIBS_INTEROP=ON)
	@$(call compile,build-interop) --target dibs_interop
	@SOAK=$(SOAK) tests/interop/run.sh build-interop/tests/interop $(REDISSON)

bench: deps build
	@$(call compile,build) --target dibs_bench
	@build/bench/bench $(BENCH_ARGS)
	@cli/bench.sh build/cli/dibs

# Next to other libraries; about 25 minutes. Those whose language or package
# cannot be had here are left out, with a word. Writes docs/benchmarks.md.
peers: deps build
	@peers/build.sh build build-peers
	@python3 -B peers/run.py build-peers --docs docs $(PEERS_ARGS)

# Does the comparison still run? Only what needs no network.
check-peers: deps build
	@PEERS=c peers/build.sh build build-peers
	@python3 -B peers/run.py build-peers --smoke \
		--only "dibs async,plain hiredis,the server's limit" >/dev/null
	@echo "check-peers: the comparison runs"

# The simulator: `make sim SEED=n` tells the story of one seed, SIM_ARGS as its
# report says; `make sim MINUTES=n` runs as many as there is time for.
MINUTES ?= 1
SIM_ARGS ?=
configure_sim = $(call configure,$(1),-DCMAKE_BUILD_TYPE=None \
	-DCMAKE_C_FLAGS="-O2 -g" -DDIBS_TESTS=ON -DDIBS_FAULTS=ON)
sim: deps
	@$(call set_compiler,build-sim) $(call configure_sim,build-sim)
	@$(compile_sim)
ifdef SEED
	@build-sim/tests/sim/sim --seed $(SEED) $(SIM_ARGS)
else
	@build-sim/tests/sim/sim --minutes $(MINUTES) --jobs $(JOBS) $(SIM_ARGS)
endif
compile_sim = $(call compile,build-sim) --target sim

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
	@$(call set_compiler,build-sim) $(call configure_sim,build-sim)
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
	@if [ -x cli/demo.sh ]; then cli/demo.sh build/cli/dibs; \
	else echo "make demo: there is no cli/demo.sh" >&2; exit 1; fi

clean:
	rm -rf build build-test build-asan build-tsan build-gcc build-clang \
		build-interop build-peers build-sim build-mutants build-coverage build-static build-deb build-dist \
		tests/interop/target

# ---- checks -----------------------------------------------------------------

check-deps:
	@tools/deps.sh build test check

check: check-deps check-format check-commits check-layers check-names check-lists check-size \
	check-header check-cdef check-man check-gcc check-clang check-symbols
	@echo "All checks passed."

format:
	@$(CLANG_FORMAT) -i $(c_files)

check-format:
	@$(CLANG_FORMAT) --dry-run -Werror $(c_files)
	@echo "check-format: all C and C++ files are formatted"

check-layers:
	@tools/check_layers.sh

check-names:
	@tools/check_names.py

check-lists:
	@tools/check_lists.sh

check-size:
	@tools/check_size.sh

check-commits:
	@tools/check_commits.sh

check-header:
	@tools/check_header.sh

check-cdef:
	@tools/cdef.py --check

check-man:
	@tools/check_man.sh

# gcc without asserts and optimised, clang with asserts: each sees what the
# other build hides. The tests of dibs.hpp also run: in C++ the compiler of the
# program matters.
check-gcc:
	@$(call configure,build-gcc,$(tests_on) -DCMAKE_C_COMPILER=gcc \
		-DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release -DDIBS_WERROR=ON)
	@$(call compile,build-gcc)
	@$(CTEST) --test-dir build-gcc --output-on-failure -Q -L cpp

check-clang:
	@$(call configure,build-clang,$(tests_on) -DCMAKE_C_COMPILER=$(CLANG) \
		-DCMAKE_CXX_COMPILER=$(CLANGXX) -DDIBS_WERROR=ON)
	@$(call compile,build-clang)
	@$(CTEST) --test-dir build-clang --output-on-failure -Q -L cpp

check-symbols: check-gcc
	@tools/check_symbols.sh build-gcc/libdibs.so build-gcc/libdibs.a

check-asan: deps
	@$(call set_compiler,build-asan) $(call configure,build-asan,$(tests_on) -DDIBS_SANITIZE=address)
	@$(call compile,build-asan)
	@$(call run_tests,build-asan)

check-tsan: deps
	@$(call set_compiler,build-tsan) $(call configure,build-tsan,$(tests_on) -DDIBS_SANITIZE=thread)
	@$(call compile,build-tsan)
	@$(steady) $(call run_tests,build-tsan,|cli)

check-install: deps
	@tools/check_install.sh

check-static: static
	@tools/deps.sh test
	@tools/check_static.sh build-static/dibs

check-dist:
	@tools/deps.sh build test
	@JOBS=$(JOBS) tools/check_dist.sh

# Needs the history: the old version is built from git.
check-abi: build
	@tools/deps.sh package
	@JOBS=$(JOBS) tools/check_abi.sh build/libdibs.so

# The unit and server tests, built by other compilers with other libraries. Needs
# root, and the network the first time; a quarter of an hour.
check-versions:
	@tools/deps.sh versions
	@JOBS=$(JOBS) tools/check_versions.sh build-versions

# As root it also installs the packages, uses them, and purges them again.
check-deb:
	@tools/deps.sh build test package
	@JOBS=$(JOBS) tools/check_deb.sh

# ---- help -------------------------------------------------------------------

help:
	@echo "make                 build the library and the command, in build/"
	@echo "make deps            install what building and testing need (apt)"
	@echo "make test            deps, then build and run all tests"
	@echo "make test-topology   the tests with sentinels and clusters"
	@echo "make stress-permits  10,000 lost replies, 100 kills: slots, semaphores"
	@echo "make test-servers    the tests on a Valkey and on an old Redis"
	@echo "make sim             simulated faults by the thousand; SEED, MINUTES"
	@echo "make sim-mutants     does the simulator find planted bugs?"
	@echo "make scale           ten thousand simulated clients; docs/scale.md"
	@echo "make coverage        what of src/ the tests run, and what not"
	@echo "make interop         the tests against a real Redisson (Java, Maven)"
	@echo "make install         install under PREFIX ($(PREFIX)), DESTDIR"
	@echo "make uninstall       remove what make install put there"
	@echo "make static          the command as one file for containers, in"
	@echo "                     build-static/"
	@echo "make deb             Debian packages, in build-deb/"
	@echo "make dist            a tarball and its checksum, in build-dist/"
	@echo "make demo            watch processes contend for a lock"
	@echo "make bench           measure, next to plain hiredis"
	@echo "make peers           measure, next to other lock libraries"
	@echo "make format          format all C and C++ files"
	@echo "make check           format, layers, lists, sizes, headers, dibs.cdef, man"
	@echo "                     pages, gcc and clang with warnings as errors, symbols"
	@echo "make check-asan      all tests, address and undefined sanitizers"
	@echo "make check-tsan      all tests, thread sanitizer"
	@echo "make check-install   install into a temporary place and use it"
	@echo "make check-static    that file, alone in an empty root"
	@echo "make check-dist      the tarball: twice the same, builds, passes tests"
	@echo "make check-abi       programs built with 0.1.0 run with this library"
	@echo "make check-deb       packages: twice the same, lintian, installed, purged"
	@echo "make check-versions  tests on other compilers and libraries (root)"
	@echo "make clean           remove all build folders"
	@echo
	@echo "One test:            ctest --test-dir build-test -R server.lock"
	@echo "Variables:           CC, CXX, JOBS, CTEST_JOBS, PREFIX, DESTDIR,"
	@echo "                     BENCH_ARGS, PEERS_ARGS (try --quick), SOAK (seconds)"
