"""Puts the shipped log and models into the wheel as swarmx/data and swarmx/models; all else is in pyproject.toml."""

from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import setup
from setuptools.command.build_py import build_py


class WithShippedFiles(build_py):
    """The usual build, and data/ and models/ beside the modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for folder in ("data", "models"):
                target = Path(self.build_lib) / "swarmx" / folder
                copytree(folder, target, ignore=ignore_patterns(".*"), dirs_exist_ok=True)


setup(cmdclass={"build_py": WithShippedFiles})
