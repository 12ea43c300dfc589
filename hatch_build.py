"""Builds the kernels when the package is installed. Without a compiler it installs all the same."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    """The wheel is for one machine's kind if it carries kernels, for any if it does not."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        native = runpy.run_path(str(Path(self.root) / "native" / "build.py"))
        try:
            built = native["build"]()
        except native["NoCompiler"] as error:
            print(f"Octavo will run on plain torch: {error}", file=sys.stderr)
            return
        if version == "editable":
            return  # the package is used where it lies, kernels included
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{self._platform()}"
        for library in built:
            build_data["force_include"][str(library)] = f"octavo/_native/{library.name}"

    @staticmethod
    def _platform() -> str:
        from packaging.tags import platform_tags

        return next(platform_tags())
