# Everything a user or CI runs. Without PYTHON=…, an environment is made in .venv and the package installed there;
# with it (PYTHON=python3 make gpu-test), that Python is used as it is and nothing is installed.

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-exhaustive gpu-test lint cases seq students results dist clean clean-cases cuda-extra

ifdef PYTHON
hw4 := $(PYTHON) -m hw4cli
else
hw4 := .venv/bin/hw4
python_for_run := .venv/run.installed
python_for_dev := .venv/dev.installed
PYTHON := .venv/bin/python
endif

# The cupy wheel follows the NVIDIA driver: CUDA 13 needs driver 580 and compute capability 7.5 on every GPU.
cuda_extra = $(shell nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2>/dev/null | awk -F', *' \
	'/^[0-9]/ { found = 1; if ($$1 + 0 < 580 || $$2 < 7.5) old = 1 } END { if (found) print old ? "cuda12" : "cuda13" }')
extras = [$(or $(cuda_extra),check)]

NVCC ?= nvcc
PYTHON3 ?= python3
# The architecture of the GPU that is here; on a machine without one, name it: make hw4 NVCC_ARCH=sm_61
NVCC_ARCH ?= $(if $(shell nvidia-smi -L 2>/dev/null | awk '/^GPU/'),native,$(error \
	there is no GPU here: name the architecture to build for, as in make $@ NVCC_ARCH=sm_61))

HIPCC ?= hipcc
# Files of tests that run side by side: one more than two cores, as some tests wait (for a deadline, a process, the disk).
TEST_PROCESSES ?= 3
# Processes that test on a GPU side by side: one a core, but 16 at most.
GPU_TEST_PROCESSES ?= $(shell cores=$$(nproc); echo $$((cores < 16 ? cores : 16)))
HIP_ARCH ?= gfx90a

help:  ## show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(python_for_run)  ## install, compile kernels where there is a GPU, make cases, compute them, judge them
	$(if $(cuda_extra),$(hw4) doctor --prepare)
	$(hw4) gen t01 t10
	$(hw4) testcases/t01 testcases/demo-t01.out
	$(hw4) testcases/t10 testcases/demo-t10.out --timing
	$(hw4) gen t01-t10
	$(hw4) judge t01-t10

pytest = $(PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadfile

test: $(python_for_dev)  ## install and run the tests, but for the slow ones: less than six minutes on two cores
	$(pytest) -m "not slow and not gpu"

test-all: $(python_for_dev)  ## run the slow tests, too: 28 minutes on two cores (gpu-test runs those that need a GPU)
	$(pytest) -m "not gpu and not exhaustive"

test-exhaustive: $(python_for_dev)  ## run what test-all leaves out of large grids, for a change of kernels: 20 minutes
	$(pytest) -m "exhaustive and not gpu"

# First most of them, side by side; then those that compare times, one after the other.
gpu-test: $(python_for_dev)  ## run the tests that need a GPU: 7 minutes on one H100 and 16 cores
	$(PYTHON) -m pytest tests/gpu -n $(GPU_TEST_PROCESSES) --dist worksteal -m "not alone"; together=$$?; \
	$(PYTHON) -m pytest tests/gpu -m alone && exit $$together

lint: $(python_for_dev)  ## check style and types
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy

cases: $(python_for_run)  ## make all thirty cases and their answers (8.7 GB)
	$(hw4) gen t01-t30

# The kernels' plans come from the package's own data, which any python3 of its versions can read: no package is needed.
hw4: kernels/host/hw4.cu $(wildcard kernels/*.cu kernels/*.cuh kernels/host/*.* hw4cli/plans/*.py)  ## build ./hw4: split8, split and flash in a plain native program
	$(PYTHON3) -m hw4cli.plans.native build/native
	$(NVCC) -O3 -std=c++17 -arch=$(NVCC_ARCH) -Ibuild/native -o $@ $<

# hipcc would take nvcc where that is installed.
hw4-amd: export HIP_PLATFORM = amd
hw4-amd: kernels/host/hw4.cu $(wildcard kernels/*.cu kernels/*.cuh kernels/hip/* kernels/host/*.* hw4cli/plans/*.py)  ## build ./hw4-amd, flash as a plain native program for AMD's GPUs
	$(PYTHON3) -m hw4cli.plans.native build/amd hip
	$(HIPCC) -O3 -std=c++17 $(HIP_ARCH:%=--offload-arch=%) -fgpu-flush-denormals-to-zero -Ibuild/amd -o $@ -x hip $<

seq: seq-attention seq-flashattention  ## build ./seq-attention and ./seq-flashattention, on one core of the CPU: the baselines

seq-attention seq-flashattention: %: kernels/host/%.c kernels/host/seq.h
	$(CC) -O3 -std=c11 -D_POSIX_C_SOURCE=200809L -o $@ $< -lm

students: student student-padded  ## build ./student and ./student-padded, a homework's first version, to be judged and profiled

student student-padded: %: kernels/host/student.cu
	$(NVCC) -O3 -std=c++17 -arch=$(NVCC_ARCH) $(if $(findstring padded,$@),-DPAD=1 )-o $@ $<

cuda-extra:  ## show which cuda extra fits this machine's driver (none without one)
	@echo '$(cuda_extra)'

results: $(python_for_dev)  ## make the tables and pictures in README.md and docs/ from the records in benchmarks/
	$(PYTHON) -m benchmarks.pages.results

# Each is installed alone in an empty environment and judges, from a folder that has nothing of the source tree, a program that
# knows the answer; all of hw4 then judges itself.
dist: $(python_for_dev)  ## build the wheels (hw4, the judge alone) and the source distribution in dist/, try each in an empty environment
	rm -rf dist build/tried
	$(PYTHON) -m build --outdir dist
	$(PYTHON) -m build --wheel --outdir dist packaging/hw4-judge
	$(PYTHON) -m twine check --strict dist/*
	for file in "$(CURDIR)"/dist/*; do \
		rm -rf build/tried && mkdir -p build/tried/work && \
		$(PYTHON) -m venv build/tried/venv && \
		build/tried/venv/bin/python -m pip install --quiet --disable-pip-version-check "$$file" && \
		(cd build/tried/work && ../venv/bin/hw4 --version && ../venv/bin/hw4 gen t01 && \
			printf '#!/bin/sh\ncp "%s" "$$2"\n' "$$PWD/testcases/t01.out" >hw4 && chmod +x hw4 && ../venv/bin/hw4-judge t01 --limit t01=60 && \
			case $$file in *hw4_judge*) ;; *) CUDA_VISIBLE_DEVICES=-1 ../venv/bin/hw4 judge t01 --limit t01=60 ;; esac) || exit 1; \
	done
	rm -rf build/tried

clean-cases:  ## remove the generated cases
	rm -f testcases/t[0-9][0-9] testcases/t[0-9][0-9].out testcases/demo-*.out testcases/.*.hw4-part testcases/.hw4-sums.json

clean:  ## remove the environment, builds and caches (see clean-cases)
	rm -f hw4 hw4-amd seq-attention seq-flashattention student student-padded
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	python3 -m venv .venv

.venv/run.installed: pyproject.toml | .venv/bin/python
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.$(extras)'
	touch $@

.venv/dev.installed: .venv/run.installed
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@
