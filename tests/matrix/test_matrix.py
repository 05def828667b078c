"""Every feature between a client and a server of each language, on each provider: a test per cell."""

from __future__ import annotations

import os

import pytest

import cells
import features

# A guest has one provider; elsewhere test the providers that every machine has.
GIVEN = os.environ.get("SLIME_TEST_PROVIDER", "auto")
PROVIDERS = ("shm", "tcp") if GIVEN == "auto" else (GIVEN,)

CELLS = [
    pytest.param(server, client, provider, feature, id=f"{feature.name}-{client}-to-{server}-{provider}")
    for provider in PROVIDERS
    for server in features.LANGUAGES
    for client in features.LANGUAGES
    for feature in features.FEATURES
]


@pytest.fixture(scope="module")
def matrix():
    with cells.Matrix() as running:
        yield running


@pytest.mark.parametrize("server, client, provider, feature", CELLS)
def test_cell(matrix, server, client, provider, feature):
    try:
        matrix.run(server, client, provider, feature.name)
    except cells.Failed as error:
        pytest.fail(f"{feature.does}; must see: {feature.sees}\n{error}", pytrace=False)


@pytest.mark.parametrize("language", features.LANGUAGES)
def test_a_client_has_every_feature(language):
    assert sorted(cells.Side().known_features(language)) == sorted(each.name for each in features.FEATURES)
