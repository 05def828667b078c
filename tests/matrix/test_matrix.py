"""Every feature, between a client and a server of each language, on each provider: one test for each cell."""

from __future__ import annotations

import os

import pytest

import cells
import features

# In a guest there is one provider; elsewhere those that every machine has.
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
    reason = features.missing(feature, server, client)
    if reason:
        pytest.skip(reason)
    try:
        matrix.run(server, client, provider, feature.name)
    except cells.Failed as error:
        pytest.fail(f"{feature.does}; must see: {feature.sees}\n{error}", pytrace=False)


@pytest.mark.parametrize("language", features.LANGUAGES)
def test_a_language_has_every_feature_that_is_not_listed_as_missing(language):
    known = cells.known_features(language)
    assert len(set(known)) == len(known)
    table = {each.name for each in features.FEATURES}
    lacking = {each.name for each in features.FEATURES if features.missing(each, language)}
    assert set(known) <= table, "features.py does not know some of the client's"
    assert not set(known) & lacking, "the client has them now: take them out of NOT_YET in features.py"
    assert set(known) == table - lacking, "the client lacks some"


def test_every_gap_is_of_a_group_that_there_is():
    groups = {each.group for each in features.FEATURES}
    assert all(group in groups for gaps in features.NOT_YET.values() for group in gaps)
