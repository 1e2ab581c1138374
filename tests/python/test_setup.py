"""tools/setup.sh against a made-up system: what it installs, when it does nothing, what it says."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / "tools" / "setup.sh").read_text()
PACKAGES = re.search(r"PACKAGES=\((.*?)\)", SCRIPT, re.DOTALL)[1].split()
UTILITIES = (
    "bash",
    "cat",
    "cut",
    "dirname",
    "sha256sum",
    "awk",
    "mkdir",
    "rm",
    "touch",
    "grep",
    "env",
    "sh",
)

STUBS = {
    # A package is installed when a file of its name is in $STATE.
    "dpkg-query": 'for last; do :; done\n[ -e "$STATE/$last" ] && printf installed',
    "apt-get": """echo "apt-get $*" >>"$LOG"
[ "$1" = install ] || exit 0
for word; do case $word in -*|install) ;; *) : >"$STATE/$word" ;; esac; done""",
    "id": 'echo "${FAKE_UID:-0}"',
    "sudo": 'echo "sudo" >>"$LOG"\n[ "$1" = -n ] && shift\nexec "$@"',
    "clang": "echo 14.0.6",
    "npm": "exit 0",
    "cmake": "exit 0",
    "ninja": "exit 0",
    "g++": "exit ${NO_HEADERS:-0}",
    "mold": "exit 0",
    "python3": """case "$*" in
*venv*) echo "venv" >>"$LOG"; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
*"pip install"*) echo "pip $*" >>"$LOG" ;;
-V) echo "Python ${FAKE_PYTHON:-3.11.2}" ;;
-c*) [ "${FAKE_PYTHON:-3.11.2}" != 3.9.1 ] ;;
*pip*) exit 0 ;;
esac""",
}


class System:
    """A folder with setup.sh, a PATH of stubs, and the log of what they were asked."""

    def __init__(self, root):
        self.root = root
        self.bin, self.state, self.log = root / "bin", root / "state", root / "log"
        self.bin.mkdir()
        self.state.mkdir()
        (root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "setup.sh", root / "tools")
        shutil.copy(ROOT / "tools" / "requirements.txt", root / "tools")
        self.script(root / "tools" / "bundle_echarts.sh", "exit 0")
        for name, body in STUBS.items():
            self.script(self.bin / name, body)
        for name in (*UTILITIES, "cp"):
            (self.bin / name).symlink_to(shutil.which(name))
        self.os_release = root / "os-release"
        self.os_release.write_text('ID=debian\nVERSION_ID="12"\n')

    @staticmethod
    def script(path, body):
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def install(self, *packages):
        for package in packages:
            (self.state / package).touch()

    def run(self, *arguments, **variables):
        self.log.write_text("")
        environment = {
            "PATH": str(self.bin),
            "STATE": str(self.state),
            "LOG": str(self.log),
            "OS_RELEASE": str(self.os_release),
            **variables,
        }
        done = subprocess.run(
            [self.root / "tools" / "setup.sh", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        done.log = self.log.read_text().splitlines()
        return done


@pytest.fixture
def system(tmp_path):
    return System(tmp_path)


def installs(done):
    """Packages asked of apt-get."""
    words = [w for line in done.log if line.startswith("apt-get install") for w in line.split()[2:]]
    return [w for w in words if not w.startswith("-")]


def test_bare_debian_gets_everything_and_a_second_run_does_nothing(system):
    done = system.run()
    assert done.returncode == 0, done.stderr
    assert set(installs(done)) == {*PACKAGES, "libclang-rt-14-dev"}
    pips = [line for line in done.log if line.startswith("pip")]
    assert pips[0].endswith("torch==2.13.0")
    assert pips[1].endswith("-r tools/requirements.txt") and len(pips) == 2

    again = system.run()
    assert again.returncode == 0
    assert again.log == [] and again.stdout == "" and again.stderr == ""


def test_only_what_is_missing_is_installed(system):
    system.install(*PACKAGES, "libclang-rt-14-dev")
    (system.state / "libhwy-dev").unlink()
    assert installs(system.run()) == ["libhwy-dev"]


def test_nothing_missing_needs_no_rights(system):
    system.install(*PACKAGES, "libclang-rt-14-dev")
    (system.bin / "sudo").unlink()
    done = system.run(FAKE_UID="1000")
    assert done.returncode == 0
    assert installs(done) == [] and "venv" in done.log


def test_npm_is_installed_only_where_there_is_none(system):
    system.install(*PACKAGES, "libclang-rt-14-dev")
    (system.bin / "npm").unlink()
    assert "npm" in installs(system.run())


def test_a_user_goes_through_sudo(system):
    done = system.run(FAKE_UID="1000")
    assert done.returncode == 0
    assert "sudo" in done.log and "libhwy-dev" in installs(done)


def test_without_rights_the_command_to_run_is_printed(system):
    system.install(*PACKAGES, "libclang-rt-14-dev")
    (system.state / "libhwy-dev").unlink()
    (system.bin / "sudo").unlink()
    done = system.run(FAKE_UID="1000")
    assert done.returncode == 1 and done.log == []
    assert "needs root or sudo" in done.stderr and "apt-get install libhwy-dev" in done.stderr


@pytest.mark.parametrize("changed", ["tools/setup.sh", "tools/requirements.txt"])
def test_changed_lists_are_installed_again(system, changed):
    system.run()
    with open(system.root / changed, "a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert [line for line in system.run().log if line.startswith("pip")]
    assert system.run().log == []
    assert len(list((system.root / ".venv").glob(".setup-*"))) == 1


def test_a_removed_environment_is_made_again(system):
    system.run()
    shutil.rmtree(system.root / ".venv")
    assert "venv" in system.run().log


def test_failed_pip_leaves_no_stamp(system):
    system.run()
    shutil.rmtree(system.root / ".venv")
    system.script(
        system.bin / "python3",
        STUBS["python3"].replace('>>"$LOG" ;;\n-V', '>>"$LOG"; exit 1 ;;\n-V'),
    )
    done = system.run()
    assert done.returncode == 1 and "pip could not install torch==2.13.0" in done.stderr
    assert not list((system.root / ".venv").glob(".setup-*"))


def test_other_systems_are_told_what_is_missing_and_where_it_is(system):
    system.os_release.write_text("ID=fedora\n")
    (system.bin / "mold").unlink()
    done = system.run(NO_HEADERS="1")
    assert done.returncode == 1 and done.log == []
    assert re.search(r"mold +\(in Debian package mold\)", done.stderr)
    assert re.search(r"hwy/highway.h +\(in Debian package libhwy-dev\)", done.stderr)
    assert not re.search(r"^ +cmake ", done.stderr, re.MULTILINE)


def test_old_python_is_refused(system):
    system.install(*PACKAGES, "libclang-rt-14-dev")
    done = system.run(FAKE_PYTHON="3.9.1")
    assert done.returncode == 1
    assert "Python 3.10 or newer is needed; python3 is Python 3.9.1" in done.stderr


def test_check_only_says(system):
    done = system.run("--check")
    assert done.returncode == 1 and done.log == []
    assert "libhwy-dev" in done.stdout and ".venv" in done.stdout
    system.run()
    assert system.run("--check").returncode == 0


def test_unknown_option(system):
    assert system.run("--nonsense").returncode == 1


def test_every_debian_package_can_be_found_elsewhere():
    """Packages and probes are two lists of the same things."""
    probed = set(
        re.findall(r"([\w.+-]+):[\w.+/-]+", re.search(r"PROBES=\((.*?)\)", SCRIPT, re.DOTALL)[1])
    )
    modules = {
        "sword-text-web",
        "sword-text-kjv",
        "sword-text-sparv",
    }  # prepare_text.py asks for them
    python = {"python3-venv", "python3-dev"}  # asked of the interpreter
    assert probed == set(PACKAGES) - modules - python
    assert os.access(ROOT / "tools" / "setup.sh", os.X_OK)
