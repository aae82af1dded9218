.PHONY: run test check bench setup

run:
	@.ci/setup
	@SERPENS_DEMO=$${SERPENS_DEMO:-true} exec .venv/bin/serpens run

test:
	@.ci/setup test
	@.venv/bin/python -m pytest -n 2 --dist loadfile $(ARGS)

check:
	@.ci/setup test
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

bench:
	@.ci/setup test
	@.venv/bin/serpens bench all --out var/bench

setup:
	@.ci/setup test
