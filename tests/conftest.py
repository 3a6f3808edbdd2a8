"""What every test needs: a cache of parsed data sets of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests write nothing into the user's cache; processes that they start inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "EDGEFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
