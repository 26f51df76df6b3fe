"""Can this interpreter build graphdiff? Exits with one clear sentence if not. Runs on any Python, old ones too.

--print-compiler prints the name of the C compiler that the build will use.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile


def refuse(sentence):
    sys.exit("graphdiff: " + sentence)


def compiles(compiler, folder):
    source = os.path.join(folder, "try.c")
    with open(source, "w") as f:
        f.write("#include <pthread.h>\n#include <stdint.h>\nint main(void) { return 0; }\n")
    command = compiler + ["-std=c11", "-pthread", source, "-o", os.path.join(folder, "try")]
    return subprocess.call(command, stderr=subprocess.DEVNULL) == 0


def main():
    have = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):
        refuse(
            "needs Python 3.11 or newer; %s is Python %s. Name another one, for instance: make PYTHON=python3.12 demo"
            % (sys.executable, have)
        )
    try:
        import ensurepip  # noqa: F401  # Debian splits it off, and venv fails without it
        import venv  # noqa: F401
    except ImportError:
        refuse("Python %s lacks the venv module. On Debian and Ubuntu: apt-get install python3-venv" % have)
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    if shutil.which(compiler[0]) is None:
        refuse(
            "needs a C compiler; '%s' is not on PATH. On Debian and Ubuntu: apt-get install gcc libc6-dev;"
            " elsewhere set CC" % compiler[0]
        )
    folder = tempfile.mkdtemp()
    try:
        if not compiles(compiler, folder):
            refuse(
                "the C compiler '%s' cannot build an empty C11 program. On Debian and Ubuntu: apt-get install libc6-dev"
                % " ".join(compiler)
            )
    finally:
        shutil.rmtree(folder)
    if "--print-compiler" in sys.argv:
        print(compiler[0])
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        refuse("needs Python.h of Python %s. On Debian and Ubuntu: apt-get install python3-dev" % have)


main()
