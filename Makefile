# Holdfast. Without a target, make lists them.

SHELL := bash

KERNEL      := github.com/holdfast-go/holdfast
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.1
# The version of github.com/fzipp/gocyclo.
GOCYCLO     := v0.6.0

GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

NFPM        := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0

# The oldest Go that the modules promise to build with.
OLDEST_GO   := go$(shell awk '$$1 == "go" {print $$2}' go.mod)

# A GOWORK=off in the environment would leave the satellites out of every target without a word.
export GOWORK := $(CURDIR)/go.work
# The checkout may belong to another user, as on CI. Then git does not tell its version, and go build, which tests
# call for the command, fails for want of it.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -buildvcs=false)

# The numbers of CPUs that the kernel's tests run with, as go test -cpu takes them; CI says 1,2,4. Empty: all there are.
CPUS ?=
# Further flags for go test.
TESTFLAGS ?=
# Flags for the program in bench; -list lists what it can measure, -help its flags.
BENCHFLAGS ?= -quick
# The commits that bench-commits compares; any name that git knows.
BEFORE ?=
AFTER  ?= HEAD
# What bench-go runs, how often, where, and for how long or how many times.
BENCH     ?= .
COUNT     ?= 1
PACKAGES  ?= work
BENCHTIME ?= 1s
# How many random histories of quorums the tests run without the race detector: about two minutes of two CPUs.
HISTORIES ?= 4000
# How many random histories of the whole stack: about two minutes of one CPU.
STACK_HISTORIES ?= 2000
# What simulate simulates: the whole stack (simulate), or quorums alone (quorum).
SIMULATE ?= simulate
# The history that simulate repeats. Empty: new ones.
SEED ?=
# For how long fuzz runs each target.
FUZZTIME ?= 10s
# Where up starts a server each.
SYSTEM ?= redis
PORTS ?= $(PORT_$(SYSTEM))
PORT_redis ?= 6390
PORT_etcd ?= 7379
PORT_postgres ?= 7432
PORT_zookeeper ?= 7181
# For how long torture goes on, in all modes together, and how many of them run at once.
DURATION ?= 30m
PARALLEL ?= 1
# The version that dist and image make, v0.1.0, which has tags. Empty: the commit that is checked out.
VERSION ?=
# On which server of which Debian suite test-server runs.
SERVER ?= valkey-server@sid

# The timeout is for what hangs: on a busy machine the laboratory takes its time.
GO_TEST := go test -shuffle=on -timeout 40m $(TESTFLAGS)

# Most packages wait most of the time, for servers and for leases to end, so several of them run side by side.
BESIDE := -p 4
# The laboratory looks at how soon waiters are woken. It waits until the machine has been calm for long enough to see
# that, so it runs by itself, and without the race detector: its clients are other programs.
ALONE := $(KERNEL)/itest
# Packages of the kernel whose tests take minutes, or do not depend on it: once, not for every number of CPUs.
LENGTHY := $(KERNEL)/quorum $(KERNEL)/internal/hygiene
# Packages whose dependencies have data races of their own: the Cluster client of go-redis 9.22 changes the list of its nodes
# while others read it, and that of ZooKeeper, 1.0.4, its watches while it sends them again to another server.
RACY := $(KERNEL)/goredishold/... $(KERNEL)/zkhold/...
# Packages whose dependencies, those of Kubernetes, take minutes to compile once more for the race detector.
WEIGHTY := $(KERNEL)/with/controllerruntime/...

# Evaluated where they are used. With no package at all, go test would be content with the current directory.
kernel     = $(or $(filter-out $(LENGTHY),$(shell go list -e ./...)),$(error go list finds no package))
lengthy    = $(filter $(LENGTHY),$(shell go list -e ./...))
satellites = $(or $(addsuffix /...,$(filter-out $(KERNEL),$(shell go list -m))),$(error go list finds no module))
raced      = $(filter-out $(ALONE),$(shell go list -e $(filter-out $(RACY) $(WEIGHTY),$(satellites))))

# Targets whose part of the project is not in this tree.
absent = $(if $(wildcard models/check.sh),,models)

# Two targets at once would take each other's time.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' -v absent=' $(absent) ' '/^[a-z-]+:.*## / && !index(absent, " " $$1 " ") { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables, with their defaults: CPUS= TESTFLAGS= BENCHFLAGS=-quick BEFORE= AFTER=HEAD BENCH=. COUNT=1 PACKAGES=work BENCHTIME=1s HISTORIES=4000 STACK_HISTORIES=2000 SIMULATE=simulate SEED= FUZZTIME=10s SYSTEM=redis PORTS=6390 DURATION=30m PARALLEL=1 SERVER=valkey-server@sid VERSION="

.PHONY: test
test: test-quick test-lengthy ## Test everything, with the race detector; installs what is missing, if run by root on Debian

.PHONY: test-needs test-quick test-lengthy
test-needs:
	scripts/install.sh test
test-quick: test-needs
	$(GO_TEST) -race $(BESIDE) $(if $(CPUS),-cpu $(CPUS)) $(kernel)
test-lengthy: test-needs
	$(GO_TEST) -race $(BESIDE) $(lengthy) $(raced)
	$(if $(filter $(ALONE)/...,$(satellites)),$(GO_TEST) $(ALONE))
	HOLDFAST_HISTORIES=$(HISTORIES) $(GO_TEST) -run '^Test(Simulation|SimulationNotices|Conformance|TenThousandHeld)$$' $(KERNEL)/quorum
	HOLDFAST_HISTORIES=$(STACK_HISTORIES) $(GO_TEST) -v -run '^Test(Simulation|Histories.*|Races)$$' $(filter $(KERNEL)/simulate/...,$(satellites))
	$(if $(filter $(RACY) $(WEIGHTY),$(satellites)),$(GO_TEST) $(BESIDE) $(filter $(RACY) $(WEIGHTY),$(satellites)))

.PHONY: test-kernel
test-kernel: ## Test the library alone, which needs nothing but Go
	$(GO_TEST) $(race) $(if $(CPUS),-cpu $(CPUS)) ./...
	@$(if $(race),true,echo "TESTED WITHOUT THE RACE DETECTOR: there is no C compiler" >&2)

# The race detector needs cgo, which needs a C compiler with the headers of its library.
race = $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && $$(go env CC) -include pthread.h -x c -fsyntax-only /dev/null 2>/dev/null && echo -race)

.PHONY: test-server
test-server: test-needs ## Run the tests of Redis on the server of another Debian suite: SERVER=valkey-server@sid
	servers=$$(scripts/server.sh $(SERVER)) && export PATH="$$servers:$$PATH" && redis-server --version && \
		$(GO_TEST) ./redishold/... ./redishold/interop/... ./goredishold/... ./fence/redisclients/... ./cmd/holdfast

.PHONY: board-test
board-test: ## Look at the board with a real browser, Chromium, which is installed (300 MB)
	scripts/install.sh board
	$(GO_TEST) -tags browser -run 'Browser|ManyLocks' ./cmd/holdfast

.PHONY: fetch
fetch: ## Download the modules and tools that the other targets need
	go list -deps -test work >/dev/null
	GOOS=darwin CGO_ENABLED=0 go list -deps -test $(ON_UNIX) >/dev/null
	GOOS=freebsd CGO_ENABLED=0 go list -deps -test $(ON_UNIX) >/dev/null
	GOOS=windows CGO_ENABLED=0 go list -deps -test ./... ./cmd/holdfast/... >/dev/null
	GOOS=windows CGO_ENABLED=0 go list -deps $(call packages,released,[.]$$$$|cmd|with/controllerruntime) >/dev/null
	go run $(STATICCHECK) -version
	go run github.com/fzipp/gocyclo/cmd/gocyclo@$(GOCYCLO) -over 1000 driver
	GOTOOLCHAIN=$(OLDEST_GO) go version

.PHONY: check
check: check-format check-vet check-systems check-static check-complexity check-tidy check-api ## Check format, vet, staticcheck, complexity, go.mod and the folder api

# The packages of all modules that are listed with one of the words, but for those that begin with one of the directories.
packages = $(shell awk '$$1 ~ /^($(1))$$/ && $$2 !~ "^($(2))" {print $$2 == "." ? "./..." : "./" $$2 "/..."}' scripts/modules.txt)
# What is the same on every system, and whose dependencies take minutes to compile for each, is vetted for one.
ON_UNIX = $(call packages,released|internal,bench|with/controllerruntime)

.PHONY: check-format check-vet check-systems check-static check-complexity check-tidy check-api
check-format:
	scripts/format.sh
check-vet:
	go vet work
# Tests build for other systems, too; that the kernel does is a test. The programs of bench run on
# Linux only, and what starts servers on Unix only.
check-systems:
	GOOS=darwin CGO_ENABLED=0 go vet $(ON_UNIX)
	GOOS=freebsd CGO_ENABLED=0 go vet $(ON_UNIX)
	GOOS=windows CGO_ENABLED=0 go vet ./... ./cmd/holdfast/...
	GOOS=windows CGO_ENABLED=0 go build $(call packages,released,[.]$$$$|cmd|with/controllerruntime)
	GOOS=darwin CGO_ENABLED=0 go build -o /dev/null ./cmd/holdfast/...
	GOARCH=386 CGO_ENABLED=0 go vet ./filehold ./redishold/protocol ./cmd/holdfast/...
check-static:
	go run $(STATICCHECK) -checks inherit,ST1016,ST1020,ST1021,ST1022 work
check-complexity:
	scripts/complexity.sh $(GOCYCLO)
# Only the kernel: the satellites require a kernel that may not be released yet.
check-tidy:
	go mod tidy -diff
# A change of what others can import is seen by whoever makes it, and in the commit.
check-api:
	go run ./scripts/release -api check

.PHONY: api
api: ## Write the folder api, which has what others can import, after a change that is meant
	go run ./scripts/release -api write

.PHONY: bench
bench: ## Measure Holdfast beside other lock libraries, on servers of its own; BENCHFLAGS choose
	$(if $(findstring -redis-only,$(BENCHFLAGS)),,scripts/install.sh bench)
	go run ./bench $(BENCHFLAGS)

.PHONY: bench-commits
bench-commits: ## Measure two commits of Holdfast in turns: BEFORE=main, AFTER=HEAD; BENCHFLAGS choose, -rounds 10 for one
	@$(if $(BEFORE),,echo "make bench-commits: BEFORE says which commit to compare with" >&2; exit 64)
	go run ./bench $(BENCHFLAGS) -before $(BEFORE) -after $(AFTER)

.PHONY: bench-go
bench-go: ## Run the Go benchmarks; BENCH and PACKAGES choose, COUNT repeats
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -benchtime $(BENCHTIME) -p 1 -timeout 60m $(PACKAGES)

.PHONY: simulate
simulate: ## Simulate without end, on all processors: the whole stack, or a quorum with SIMULATE=quorum; SEED repeats a history
	GOGC=$${GOGC:-400} HOLDFAST_HISTORIES=$(if $(SEED),1,0) HOLDFAST_SEED=$(SEED) \
		go test -C $(SIMULATE) -count=1 -timeout 0 $(TESTFLAGS) -run '^TestSimulation$$' -v $(if $(SEED),-args -history)

.PHONY: simulate-mutants
simulate-mutants: ## Show that the simulator of the whole stack notices when the library is broken
	go test -tags mutants -count=1 -timeout 0 -v -run Mutants ./simulate/mutants -args -histories $(STACK_HISTORIES)

.PHONY: mutants-quorum
mutants-quorum: ## Show that the tests and the simulation of quorums notice when a quorum is broken
	go test -tags mutants -count=1 -timeout 60m -v -run '^TestMutants$$' ./quorum

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME) $(PACKAGES)

.PHONY: models
models: ## Check the models of exclusion and of fencing tokens
	scripts/install.sh models
	models/check.sh

.PHONY: itest
itest: test-needs ## Test on real servers under faults for some minutes, in all modes
	$(GO_TEST) -timeout 40m -parallel 4 ./itest -run Promises -args -duration 5m

.PHONY: mutants
mutants: test-needs ## Show that the checks of itest can fail
	$(GO_TEST) -tags mutants -parallel 4 -run Mutants ./itest

.PHONY: torture
torture: test-needs ## Test on real servers under faults for DURATION, PARALLEL modes at once, and write a report to docs; SEED repeats
	go run ./itest/torture -duration $(DURATION) -parallel $(PARALLEL) -seed $(or $(SEED),0) -report docs

.PHONY: try-release
try-release: ## Release this commit in a copy, get every module from there with the oldest Go, and run README's program and the command
	go test -C scripts/release -count=1 -timeout 20m -tags whole -v -run '^TestOthersCanUseTheRelease$$' .

.PHONY: dist
dist: ## Make archives, packages, formula and checksums of the programs in dist, of this commit or VERSION=v0.1.0
	scripts/dist.sh $(NFPM) $(VERSION)

.PHONY: image
image: ## Build the container image of the command, of this commit or VERSION=v0.1.0
	scripts/install.sh image
	scripts/image.sh $(VERSION)

.PHONY: try-dist
try-dist: ## Make what dist and image make of this commit as a release, install it and run it, as root
	scripts/install.sh image dist
	HOLDFAST_NFPM=$(NFPM) go test -C scripts/release -count=1 -timeout 60m -tags whole -v -run '^Test(Packages|Image)$$' .

.PHONY: vulnerabilities
vulnerabilities: ## Ask vuln.go.dev for weaknesses that are known of what the modules call
	scripts/vulnerabilities.sh $(GOVULNCHECK)

.PHONY: requirements
requirements: ## Write docs/requirements.md
	go run ./itest/requirements -write

.PHONY: up
up: ## Start a server for a first try on each of PORTS; SYSTEM is redis, etcd, postgres or zookeeper
	$(if $(PORT_$(SYSTEM)),,$(error SYSTEM is $(SYSTEM): must be redis, etcd, postgres or zookeeper))
	@scripts/install.sh up-$(SYSTEM)
	@scripts/servers.sh up $(SYSTEM) $(PORTS)

.PHONY: down
down: ## Stop what up started
	@scripts/servers.sh down
