"""The jobs, the command line and everything that knows Beam."""

import filters  # noqa: F401 - gives compiled code its folder before any module here compiles
