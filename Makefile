# `make help` lists the targets. Every target runs in a virtual environment that hack/venv makes once, outside the
# checkout. Programs and images are built once and kept in $KAVIP_CACHE (~/.cache/kavip).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

RUN := hack/venv
REAL := apiserver or netns or cluster or chart or image or release or browser or migration or alerts
TAG ?= localhost/kavip:dev
# LOCKED=1: refuse an image whose Debian packages differ from requirements/debian-*.txt
LOCKED ?=
# Most of the time a test waits for a daemon, so two workers share a core; see hack/schedule.py.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# no index address may enter the repository
PIN := UV_CUSTOM_COMPILE_COMMAND="make requirements" $(RUN) uv pip compile --quiet --upgrade --python-version 3.11 \
	--generate-hashes --no-emit-index-url

##@ Demo and test cluster
.PHONY: demo cluster tutorial cluster-down
demo: ## start a three-node Kubernetes on this machine, and show all that kavip does (root)
	@$(RUN) python -m hack.demo

cluster: ## start a cluster that keeps running, and print how to use it (root)
	@$(RUN) python -m hack.testbed prepare
	@$(RUN) python -m hack.testbed up

tutorial: ## run the commands of docs/tutorial.md on a new cluster, and write their outputs into the page (root)
	@$(RUN) python -m hack.tutorial

cluster-down: ## remove that cluster with all its processes, mounts, namespaces and files
	@$(RUN) python -m hack.testbed down

##@ Tests and measurements
.PHONY: test test-unit lint bench fuzz faults endurance soak
test: ## lint, and all tests, with a real Kubernetes and a real keepalived (root)
	@$(RUN) python -m hack.testbed check
	@$(MAKE) --no-print-directory lint
	@$(RUN) python -m hack.testbed prepare --tests
	@$(RUN) pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --timing

test-unit: ## the quick tests that need neither root nor network, with few examples of each property
	@$(RUN) pytest -n auto --dist worksteal -m "not (slow or $(REAL))" --hypothesis-profile quick --timeout 120

lint: ## ruff, mypy --strict (tests included), spelling and style of the docs, the import contracts between packages, and the dependencies
	@$(RUN) ruff check --quiet --output-format concise
	@$(RUN) ruff format --check --quiet || { echo 'kavip: not formatted; run `make format`' >&2; exit 1; }
	@$(RUN) codespell
	@$(RUN) python -m hack.prose
	@$(RUN) mypy
	@$(RUN) lint-imports --no-logo
	@$(RUN) deptry --no-ansi kavip
	@$(RUN) deptry --no-ansi . --non-dev-dependency-groups dev

bench: ## measure time and memory, compared with a bare client and with MetalLB's controller in the same run
	@$(RUN) python -m hack.testbed programs
	@$(RUN) python -m bench

fuzz: ## send 200,000 hostile reviews, and run 10,000 histories under faults; a finding prints its seed
	@$(RUN) python -m fuzz

faults: ## edit 2,000 Services while two controllers are killed and stopped; check the audit log
	@$(RUN) python -m hack.testbed programs
	@$(RUN) python -m hack.faults

endurance: ## write 20,000 Services while kavip is restarted, drained and killed; no call may be lost (root)
	@$(RUN) python -m hack.testbed programs
	@$(RUN) python -m hack.endurance

soak: ## changes and roll-outs on a real cluster for an hour, or SECONDS=600; compares memory and open files (root)
	@$(RUN) python -m hack.testbed programs
	@$(RUN) python -m bench.soak $(SECONDS)

.PHONY: test-ui
test-ui: ## the page of `kavip ui` in a real Chromium, also on a real cluster (root); on Debian it installs the package first
	@$(RUN) python -m hack.testbed browser
	@$(RUN) python -m hack.testbed prepare --tests
	@$(RUN) pytest -m browser -n $(WORKERS) --dist loadfile tests/cli/ui
	@$(RUN) pytest -m browser --timing -s tests/cluster/test_live_page.py

.PHONY: screenshots
screenshots: ## the pictures of `kavip ui` in the docs, by a real Chromium
	@$(RUN) python -m hack.testbed browser
	@KAVIP_PICTURES=docs/pictures $(RUN) pytest -m browser --quiet tests/cli/ui/test_screenshots.py

.PHONY: test-migration
test-migration: ## the ways to kavip under load: externalIPs, MetalLB, a Gateway controller; builds theirs first (root)
	@$(RUN) python -m hack.testbed prepare --tests
	@$(RUN) pytest -m migration --timing -s tests/cluster/migration

.PHONY: test-alerts
test-alerts: ## each alert on a real cluster: broken, fired, mended, ended; and what must fire nothing (root)
	@$(RUN) python -m hack.testbed prepare --tests
	@$(RUN) pytest -m alerts --timing -s tests/cluster/alerts

.PHONY: upgrade
upgrade: ## upgrade from FROM=7b04379 (0.1.0) with VIPs up, and back, BY=helm, oci, kustomize, manifest, olm or helm-olm; VIPS=1600 (root)
	@$(RUN) python -m hack.upgrade $(FROM) $(addprefix --by=,$(BY)) $(addprefix --vips=,$(VIPS))

.PHONY: compat
compat: ## the first chapter of the demo and a fail-over on other versions of Kubernetes, and in each mode of kube-proxy (root)
	@$(RUN) python -m hack.compat

.PHONY: e2e
e2e: ## Kubernetes' own LoadBalancer specs against kavip, over an hour; writes docs/reference/conformance.md (root)
	@$(RUN) python -m hack.e2e

##@ Build and generate
.PHONY: release publish test-release
test-release: ## make a release twice and compare; run, install and verify it, without a network, on a real registry (root)
	@$(RUN) python -m hack.testbed prepare
	@$(RUN) pytest -m release --timing tests/release

release: ## make dist/ for VERSION=1.0.0, for REGISTRY=registry.example/team; COSIGN_KEY=FILE signs it (root)
	@$(RUN) python -m hack.release build $(VERSION) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(REPLACES),--replaces $(REPLACES))

publish: ## push image and chart of dist/ to REGISTRY=registry.example/team; COSIGN_KEY=FILE signs them
	@$(RUN) python -m hack.release publish $(REGISTRY)

.PHONY: image image-tests format requirements packages clean
image: ## kavip's image as an archive, on a base image made here (root); LOCKED=1 refuses other Debian packages
	@$(RUN) python -m hack.testbed image --dockerfile Dockerfile --tag $(TAG) $(if $(LOCKED),--locked)

image-tests: ## the tests with a real keepalived, with the one of the image instead of this machine's (root)
	@$(RUN) python -m hack.imagekeepalived pytest -n $(WORKERS) --dist loadfile -m netns

.PHONY: bundle
bundle: ## dist/olm: bundle and catalog for OLM, with IMAGE=registry.example/kavip@sha256:...; REPLACES=kavip.v1.0.0
	@$(RUN) python -m hack.bundle $(if $(IMAGE),--image $(IMAGE)) $(if $(BUNDLE_IMAGE),--bundle-image $(BUNDLE_IMAGE)) \
		$(if $(REPLACES),--replaces $(REPLACES))

format: ## format the Python code
	@$(RUN) ruff check --quiet --fix-only
	@$(RUN) ruff format --quiet

requirements: ## pin the newest versions of the dependencies in pyproject.toml
	@$(PIN) pyproject.toml --output-file requirements/run.txt
	@$(PIN) pyproject.toml --group dev --output-file requirements/dev.txt
	@$(PIN) --group docs --output-file requirements/docs.txt

packages: ## lock the Debian packages of the images for amd64 and arm64 (root)
	@for arch in amd64 arm64; do $(RUN) python -m hack.testbed packages --tag $(TAG) --arch $$arch; done

.PHONY: reference
reference: ## generate pages of docs, and the schema of specs in the values of the chart
	@$(RUN) python -m hack.reference

.PHONY: docs
docs: ## the site of the documentation below build/site, which a browser reads without a web server too
	@REQUIREMENTS=docs $(RUN) python -m hack.site

clean: ## remove files that tools left in the checkout; the cache stays
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf build dist .hypothesis .mypy_cache .ruff_cache .import_linter_cache

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
