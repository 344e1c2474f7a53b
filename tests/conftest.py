"""What all tests share: Hypothesis without clocks, and the wheel, built once."""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from wheel_environment import build_wheel

# No test may fail for being slow; under CI a property tries the same examples each time.
settings.register_profile("project", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("project")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))
