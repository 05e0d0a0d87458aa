# make          the commands, static, in bin/
# make demo     a head, two nodes and a batch on this machine (KEEP=1: left running)
# make test     vet and every test that needs nothing installed but Go
# make chaos    faults for T on six machines of namespaces, as root (SEED=n: those again)
# make sim      N histories of a simulated lab, from SEED on (default: 1000)
# make lab      a day of a simulated lab of 100 desks, as a chart
# make cuts     CUTS power cuts of a head in an emulator, which scripts/peers/machine builds
# make soak     N jobs through one head and node, which must not grow
# make wheel    the Python package, in lib/python/dist (pip fetches hatchling)
# make install  PREFIX=/usr/local, DESTDIR= for packages

GO       = go
PREFIX   = /usr/local
DESTDIR  =
BIN      = bin
FUZZTIME = 10s
KEEP     =
N        = 200000
T        = 10m
CUTS     = 20
SEED     =

bindir  = $(DESTDIR)$(PREFIX)/bin
mandir  = $(DESTDIR)$(PREFIX)/share/man
compdir = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
libdir  = $(DESTDIR)$(PREFIX)/lib
sharedir = $(DESTDIR)$(PREFIX)/share/distribute
# Where systemd looks for units of users: below a home it is another place.
userdir = $(DESTDIR)$(PREFIX)/$(if $(filter $(HOME)/%,$(PREFIX)),share,lib)/systemd/user

export CGO_ENABLED = 0

all:
	@mkdir -p $(BIN)
	$(GO) build -trimpath -o $(BIN)/ ./cmd/...

demo: all
	@KEEP=$(KEEP) scripts/demo

# Scripts mostly wait, some for a minute: they begin beside the other packages, and
# many are under way at once.
test:
	$(GO) vet ./...
	$(GO) test -p 4 -parallel 12 ./...

race:
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=10 $(GO) test -race -parallel 4 -timeout 30m ./...

# What go test -v prints without its account of tests, and with its failure.
brief = awk '/^ *(===|--- PASS|PASS$$)/ { next } { print } /^FAIL/ { bad = 1 } END { exit bad }'

sim: N = 1000
sim:
	D_SIM=$(N) D_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v -run '^TestSimulation$$' ./cmd/dsched | $(brief)

# What is not installed here is left out; .ci/run installs it all.
lint:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "gofmt -w $$out"; exit 1; }
	$(GO) vet ./...
	@if command -v staticcheck >/dev/null; then echo staticcheck; staticcheck ./...; fi
	$(GO) test -count=1 -run '^(TestManuals|TestShell)' ./testscripts

fuzz:
	@GO='$(GO)' scripts/fuzz $(FUZZTIME)

# Whole batches beside the limits of the machine, and what is moved beside scp and
# rsync, once (quicker with BENCH_JOBS=n and BENCH_MIB=n); then the parts.
bench: all
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./testscripts
	$(GO) test -run '^$$' -bench . ./lib/... ./spool

chaos:
	CHAOS=$(T) CHAOS_SEED=$(SEED) $(GO) test -count=1 -run '^TestChaos$$' -v -timeout 24h ./testscripts

lab:
	D_LAB=1 $(GO) test -count=1 -run '^TestLab$$' -v ./lib/sched | $(brief)

cuts:
	CHAOS_CUTS=$(CUTS) CHAOS_SEED=$(SEED) $(GO) test -count=1 -run '^TestPowerCuts$$' -v -timeout 24h ./testscripts

soak:
	SOAK=$(N) $(GO) test -count=1 -run '^TestSoak' -v -timeout 5h ./testscripts

cover:
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1

install: all
	install -d $(bindir) $(compdir)
	install $(BIN)/* scripts/dlocal $(bindir)
	for page in man/*.[0-9]; do \
		install -d $(mandir)/man$${page##*.} && install -m 644 $$page $(mandir)/man$${page##*.} || exit 1; \
	done
	install -m 644 scripts/completion/distribute.bash $(compdir)/distribute
	for tool in $(BIN)/* dlocal; do ln -sf distribute $(compdir)/$${tool##*/} || exit 1; done
	install -d $(libdir)/systemd/system $(userdir) $(libdir)/sysusers.d $(libdir)/tmpfiles.d $(sharedir)
	cd scripts/systemd && for unit in *.service user/*.service; do \
		case $$unit in user/*) dir=$(userdir);; *) dir=$(libdir)/systemd/system;; esac; \
		sed 's,/usr/local/,$(PREFIX)/,' "$$unit" >$$dir/$${unit##*/} || exit 1; \
	done
	for kind in sysusers tmpfiles; do for of in head node; do \
		install -m 644 scripts/systemd/distribute-$$of.$$kind $(libdir)/$$kind.d/distribute-$$of.conf || exit 1; \
	done; done
	install -m 644 scripts/systemd/run-as.conf $(sharedir)

PYTHON = python3
wheel:
	cd lib/python && $(PYTHON) -m pip wheel -q --no-deps -w dist .

clean:
	rm -rf bin cover.out lib/python/dist
	$(GO) clean -testcache

.PHONY: all demo test race lint fuzz bench chaos cuts sim lab soak cover wheel install clean
