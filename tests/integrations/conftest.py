"""Tests of engines that run on Slime. scripts/integrations.sh makes the environments, and runs the tests."""


def pytest_addoption(parser):
    parser.addoption("--backend", default="SLIME", help="NIXL's backend: SLIME, or UCX for what both must do")
