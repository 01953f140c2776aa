"""Writes the lists of pip packages beside it: every package that an installation takes, with the hashes of its wheels.

    pin.py [LIST]

LIST is torch, transformers or uv; by default all. It asks the index for every Python that torch has wheels for, and
installs nothing. An installation by these lists (`pip install --require-hashes`) takes these files or fails.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

# What is wanted, and the minor versions of Python 3 that have it.
LISTS = {
    "torch": (["torch==2.11.0", "numpy"], range(10, 15)),
    "transformers": (["transformers==5.23.0", "torch==2.11.0", "numpy"], range(11, 15)),
    "uv": (["uv==0.13.9"], range(10, 15)),
}
GLIBC = range(5, 36)
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in GLIBC] + ["manylinux2014_x86_64", "linux_x86_64"]
HERE = pathlib.Path(__file__).parent


def resolve(wanted, minor):
    """Names and versions that pip would install on Python 3.minor."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-input"]
            + ["--disable-pip-version-check", "--report", report, "--python-version", f"3.{minor}"]
            + ["--only-binary=:all:", "--target", folder, *platforms, *wanted],
            check=True,
        )
        installed = json.loads(report.read_text())["install"]
    return {one["metadata"]["name"].lower().replace("_", "-"): one["metadata"]["version"] for one in installed}


def hashes(name, version):
    """The hashes of a version's wheels."""
    kind = {"Accept": "application/vnd.pypi.simple.v1+json"}
    request = urllib.request.Request(f"https://pypi.org/simple/{name}/", headers=kind)
    with urllib.request.urlopen(request, timeout=180) as answer:
        files = json.load(answer)["files"]
    found = sorted({one["hashes"]["sha256"] for one in files if is_wanted(one["filename"], version)})
    if not found:
        sys.exit(f"{name} {version} has no wheel for Linux")
    return found


def is_wanted(filename, version):
    """Whether a file is a wheel of this version that a Linux machine can take."""
    if not filename.endswith(".whl") or filename.split("-")[1] != version:
        return False
    platform = filename.removesuffix(".whl").rsplit("-", 1)[1]
    return platform == "any" or ("linux" in platform and "x86_64" in platform and "musl" not in platform)


def main():
    for name in sys.argv[1:] or LISTS:
        wanted, minors = LISTS[name]
        versions = {}
        for minor in minors:
            for package, version in resolve(wanted, minor).items():
                versions.setdefault(package, {}).setdefault(version, []).append(minor)
        lines = [f"# Made by xtask/python/pin.py {name}."]
        for package, found in sorted(versions.items()):
            for version, where in found.items():
                marker = ""
                if where != list(minors):
                    marker = " ; " + " or ".join(f"python_version == '3.{minor}'" for minor in where)
                parts = [f"{package}=={version}{marker}"]
                parts += [f"    --hash=sha256:{digest}" for digest in hashes(package, version)]
                lines.append(" \\\n".join(parts))
        (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(f"{name}.txt: {len(versions)} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
