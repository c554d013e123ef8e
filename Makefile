# What CI runs is .ci/run; these are its parts, for a person.

LINT    := go tool -modfile=tools/go.mod golangci-lint
# Packages whose tests run in their own process. The others drive the built
# binary, which the race detector of the test does not see.
RACE     = $(shell go list ./... | grep -Ev '/test/(cases|chaos|clients|e2e)$$')
FUZZTIME ?= 30s

.PHONY: build test race lint fmt fuzz clients e2e bench vuln

build: ## bin/phonebank, static
	CGO_ENABLED=0 go build -trimpath -o bin/phonebank ./cmd/phonebank

test: ## everything; what is not installed is skipped, unless CI is set
	go test ./...

race:
	go test -race -shuffle=on $(RACE)

lint:
	$(LINT) run
	go vet ./...
	@diff=$$(go fix -diff ./...); if [ -n "$$diff" ]; then echo "$$diff"; echo 'go fix ./... modernizes this'; exit 1; fi

fmt:
	gofmt -w .
	go fix ./...

fuzz: ## every fuzz target for FUZZTIME
	bash .ci/fuzz $(FUZZTIME)

clients: ## OpenAI's SDKs for Python and Node.js, for the tests in test/clients
	python3 -m venv test/clients/python/.venv
	test/clients/python/.venv/bin/pip install --quiet --requirement test/clients/python/requirements.txt
	cd test/clients/node && npm ci

e2e: clients ## the built binary with Redis, fake phones and real SDKs
	CI=true go test -count=1 ./test/...

bench: ## against nginx, in the same run; see test/bench/compare.sh
	bash test/bench/compare.sh

vuln: ## known vulnerabilities in what is called; needs the network
	go tool -modfile=tools/go.mod govulncheck ./...
