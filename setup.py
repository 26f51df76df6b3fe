"""The compiled part of the build; everything declarative stands in pyproject.toml."""

import hashlib
import os
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext


def made_of(kept):
    """The files that the compiler read for an object, by the make rule it wrote; None where there is no rule."""
    try:
        rule = kept.with_suffix(".d").read_text()
    except OSError:
        return None
    names = rule.partition(":")[2].replace("\\\n", " ").replace("\\ ", "\0").split()
    return [name.replace("\0", " ") for name in names]


def is_newer(kept, sources):
    """Is an object there, and newer than all of its sources, which are there too?"""
    try:
        return bool(sources) and kept.stat().st_mtime > max(os.stat(name).st_mtime for name in sources)
    except OSError:
        return False


class BuildNative(build_ext):
    """build_ext that compiles the C files side by side and only those that changed.

    setuptools compiles one file after another and all of them again whenever one changed. Here each object is kept
    in build/native/<hash of the compiler command>/, with the list of the files it was made of that the compiler
    writes, and is reused while it is newer than all of them: builds with other flags never mix, and an editable
    install costs nothing after the first build.
    """

    def finalize_options(self):
        super().finalize_options()
        self.build_temp = os.path.join("build", "native")  # an editable install would take a new directory each time

    def build_extension(self, ext):
        macros = [*ext.define_macros, *((name,) for name in ext.undef_macros)]
        command = [*self.compiler.compiler_so, *ext.extra_compile_args, macros, ext.include_dirs]
        python = [sysconfig.get_config_var("SOABI"), sysconfig.get_path("include")]
        key = hashlib.sha256(repr((command, python)).encode()).hexdigest()[:16]
        folder = Path(self.build_temp, key)
        folder.mkdir(parents=True, exist_ok=True)

        def compile_one(source):
            kept = folder / (source.replace(os.sep, "_") + ".o")
            if not self.force and is_newer(kept, made_of(kept)):
                return str(kept)
            started = time.time()
            with tempfile.TemporaryDirectory(dir=folder) as partial:  # a killed compiler leaves no half object behind
                (made,) = self.compiler.compile(
                    [source],
                    output_dir=partial,
                    macros=macros,
                    include_dirs=ext.include_dirs,
                    extra_postargs=[*ext.extra_compile_args, "-MMD", "-MF", os.path.join(partial, "made_of.d")],
                )
                os.utime(made, (started, started))  # a header edited during the compilation is newer than the object
                os.replace(os.path.join(partial, "made_of.d"), kept.with_suffix(".d"))
                os.replace(made, kept)
            return str(kept)

        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        workers = self.parallel if isinstance(self.parallel, int) else cpus
        sources = sorted(ext.sources, key=lambda path: -("isa" in Path(path).parts))  # the long ones first
        with ThreadPoolExecutor(workers) as pool:
            objects = list(pool.map(compile_one, sources))
        core = [made for source, made in zip(sources, objects, strict=True) if "csrc" in Path(source).parts]
        Path(self.build_temp, "core.txt").write_text("\n".join(core) + "\n")  # make test links the core's own tests with these
        sources, forced = ext.sources, self.force
        # Always link: the library that lies there may be of other flags, whatever its age.
        ext.sources, ext.extra_objects, self.force = [], objects, True
        try:
            super().build_extension(ext)
        finally:
            ext.sources, ext.extra_objects, self.force = sources, [], forced


# One wheel serves every CPython from 3.11 on; a free-threaded interpreter has no stable ABI and gets its own wheel.
abi3 = {} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"bdist_wheel": {"py_limited_api": "cp311"}}

setup(cffi_modules=["build_native.py:ffi"], cmdclass={"build_ext": BuildNative}, options=abi3)
