# make          the commands, static, in bin/
# make demo     a head, two nodes and a batch on this machine (KEEP=1: left running)
# make test     the quick tests, which need nothing installed but Go and python3
# make full     every test there is, with all that must be installed: hours, as root
# make rehearse what decides whether HEAD is taken, in a fresh clone and a bare environment
# make flaky    the quick tests N times with every core loaded, in an order of chance
# make chaos    faults for T on six machines of namespaces, as root (SEED=n: those again)
# make sim      N histories of a simulated lab, from SEED on (default: 1000)
# make harm     N random damages of a spool and of a node's directory, repaired (default: 1000)
# make programs N small programs of chance, run in a directory, on nodes and on a cluster
# make lab      a day of a simulated lab of 100 desks, as a chart
# make bench    how fast it is, beside the machine's limits and other programs: minutes
# make cuts     CUTS power cuts of a head in an emulator, which scripts/peers/machine builds
# make soak     N jobs through one head and node, which must not grow
# make size     lines of Go by room, those of tests apart
# make wheel    the Python package, in lib/python/dist (pip fetches hatchling)
# make html     the manuals, in html/ (takes mandoc)
# make install  PREFIX=/usr/local, DESTDIR= for packages
# make dist     archives for other machines (ARCHS='amd64 arm64'), in dist/
# make deb      Debian packages of these, in dist/

GO       = go
GOTEST   = $(GO) test
PREFIX   = /usr/local
BIN      = bin
FUZZTIME = 10s

export CGO_ENABLED = 0

# Tests make sockets in it, and the name of one has 107 bytes.
export TMPDIR := $(shell [ $${#TMPDIR} -le 8 ] && echo $${TMPDIR:-/tmp} || echo /tmp)

all:
	@mkdir -p $(BIN)
	$(GO) build -o $(BIN)/ ./cmd/...

demo: all
	@KEEP=$(KEEP) scripts/demo

# Scripts mostly wait: they begin beside the other packages, and many are under way at once.
# What takes longest comes first. go vet is a step of lint.
test:
	$(GOTEST) -vet=off -ldflags='-s -w' -p 3 -parallel 8 $(ARGS) ./testscripts ./spool ./lib/head ./lib/proc ./...

# Where there are goroutines, but not the scripts.
race:
	CGO_ENABLED=1 $(GOTEST) -vet=off -race -p 4 $$($(GO) list ./... | grep -v -e /testscripts -e lib/sched)

full:
	.ci/run full

rehearse:
	@scripts/rehearse

flaky:
	@scripts/flaky $(N)

# What go test -v prints without its account of tests, and with its failure.
brief = awk '/^ *(===|--- PASS|PASS$$)/ { next } { print; fflush() } /^FAIL/ { bad = 1 } END { exit bad }'

sim:
	D_SIM=$(or $(N),1000) D_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v -run '^TestSimulation$$' ./lib/head | $(brief)

harm:
	D_HARM=$(or $(N),1000) D_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -run '^TestRepairs$$' ./spool ./lib/desk

programs:
	D_PROGRAMS=$(or $(N),1000) D_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v -run '^TestScripts$$/^job_programs$$' ./testscripts | $(brief)

lint:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "gofmt -w $$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test -count=1 -run '^(TestManuals|TestShell)' ./testscripts

fuzz:
	@GO='$(GO)' scripts/fuzz $(FUZZTIME)

# Whole batches beside the limits of the machine and the peers that are here
# (scripts/peers/queues), and what is moved beside scp and rsync, in three rounds
# (quicker with BENCH_JOBS=n, BENCH_MIB=n, BENCH_ROUNDS=n); then the parts.
bench: all
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 3h ./testscripts
	$(GO) test -run '^$$' -bench . ./lib/... ./spool

chaos:
	CHAOS=$(or $(T),10m) CHAOS_SEED=$(SEED) $(GO) test -count=1 -run '^TestChaos$$' -v -timeout 24h ./testscripts

lab:
	D_LAB=1 $(GO) test -count=1 -run '^TestLab$$' -v ./lib/sched | $(brief)

cuts:
	CHAOS_CUTS=$(or $(CUTS),20) CHAOS_SEED=$(SEED) $(GO) test -count=1 -run '^TestPowerCuts$$' -v -timeout 24h ./testscripts

soak:
	SOAK=$(or $(N),200000) $(GO) test -count=1 -run '^TestSoak' -v -timeout 5h ./testscripts

cover:
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1

install: all
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' BIN='$(BIN)' scripts/install-files

dist:
	@GO='$(GO)' scripts/dist $(or $(ARCHS),amd64 arm64)

deb:
	@GO='$(GO)' scripts/deb $(or $(ARCHS),amd64 arm64)

wheel:
	cd lib/python && python3 -m pip wheel -q --no-deps -w dist .

html:
	@OUT=$(or $(OUT),html) scripts/html

clean:
	rm -rf bin html dist cover.out lib/python/dist
	$(GO) clean -testcache

size:
	@scripts/source-size

.PHONY: all demo test race full rehearse flaky lint fuzz bench chaos cuts sim harm programs lab soak size cover wheel html install dist deb clean
