"""The packages: what is in them, how they install, upgrade and go in a bare Debian, and what systemd says of the unit."""

import atexit
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from support import BINARY, ROOT, TOOLS, Missing, folder, need, need_root, run

RELEASE = "bookworm"


@functools.cache
def sources():
    """A copy of the sources: they may change while the checks run, and two archives of them are to be the same."""
    place = tempfile.TemporaryDirectory(prefix="millstream-surroundings-")
    atexit.register(place.cleanup)
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, pathlib.Path(place.name) / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    # The folder of the packager, where it is installed.
    (ROOT / "target" / "tools").mkdir(parents=True, exist_ok=True)
    (pathlib.Path(place.name) / "target").mkdir()
    (pathlib.Path(place.name) / "target" / "tools").symlink_to(ROOT / "target" / "tools")
    return pathlib.Path(place.name)


def make(place, *releases):
    """The archive and the packages of the binary under test, by release."""
    need("dpkg-deb", "rpm", "go", "git")
    time = {"SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()}
    archive = run("sh", sources() / "packaging" / "dist.sh", BINARY, place, env=time).split()[-1]
    def packages(release):
        told = run("sh", sources() / "packaging" / "packages.sh", archive, place, release)
        return [line for line in told.splitlines() if line.startswith("/")]
    return [packages(release) for release in releases]


@functools.cache
def made():
    """The packages of two releases, for all checks of this run."""
    place = tempfile.TemporaryDirectory(prefix="millstream-surroundings-")
    atexit.register(place.cleanup)
    first, second = make(place.name, "1", "2")
    return named(first, ".deb"), named(second, ".deb"), named(first, ".rpm"), first


def named(paths, end):
    return next(path for path in paths if path.endswith(end))


EXPECTED = [
    "usr/bin/millstream", "usr/lib/systemd/system/millstream.service", "usr/lib/sysctl.d/60-millstream.conf", "etc/default/millstream",
    "etc/logrotate.d/millstream", "usr/share/millstream/prometheus/alerts.yml", "usr/share/millstream/grafana/millstream.json",
    "usr/share/millstream/certificates/deploy.sh", "usr/share/doc/millstream/copyright", "usr/share/doc/millstream/docs",
    "usr/share/doc/millstream/licenses/opus.txt", "usr/share/doc/millstream/LICENSE-MIT",
]


def check_both_packages_have_everything_and_are_the_same_each_time():
    with folder() as again:
        first, _, rpm, paths = made()
        listed = run("dpkg-deb", "--contents", first)
        for name in EXPECTED:
            assert re.search(rf" \./{name}/?\n", listed), (name, listed)
            assert f"/{name}\n" in run("rpm", "-qpl", rpm), name
        assert re.search(r"-rwxr-xr-x root/root .* ./usr/share/millstream/certificates/deploy.sh\n", listed)
        owners = {line.split()[1] for line in listed.splitlines()}
        assert owners == {"root/root"}, owners
        conffiles = run("dpkg-deb", "-I", first, "conffiles")
        assert conffiles.split() == ["/etc/default/millstream", "/etc/logrotate.d/millstream"], conffiles
        assert run("rpm", "-qpc", rpm).split() == ["/etc/default/millstream", "/etc/logrotate.d/millstream"]
        for path, other in zip(paths, make(again, "1")[0]):
            assert open(path, "rb").read() == open(other, "rb").read(), path


def check_the_unit_is_what_systemd_takes():
    need("systemd-analyze")
    with folder() as place:
        unit = (ROOT / "packaging" / "millstream.service").read_text()
        program = str(shutil.copy(BINARY, place / "millstream"))
        (place / "millstream.service").write_text(unit.replace("/usr/local/bin/millstream", program))
        run("systemd-analyze", "verify", "--man=no", place / "millstream.service")
        # The check does complain about a faulty unit.
        (place / "millstream.service").write_text(unit.replace("/usr/local/bin/millstream", program).replace("WatchdogSec=", "WatchdogSecs="))
        assert "WatchdogSecs" in run("systemd-analyze", "verify", "--man=no", place / "millstream.service", check=False)


def check_logrotate_takes_its_file():
    need("logrotate", "setpriv")
    need_root()
    with folder() as place:
        log = place / "log"
        log.mkdir()
        for name in ["millstream.log", "millstream-error.log", "audit.log"]:
            (log / name).write_text("line\n")
        config = (ROOT / "packaging" / "linux" / "logrotate.conf").read_text()
        assert config.count("/var/lib/millstream/log/") == 3
        config = config.replace("/var/lib/millstream/log/", f"{log}/").replace("su millstream millstream", "su root root")
        (place / "conf").write_text(config)
        (place / "conf").chmod(0o644)
        run("logrotate", "--force", "--state", place / "state", place / "conf")
        names = sorted(os.listdir(log))
        assert len(names) == 3 and all(re.search(r"\.log-\d{8}$", name) for name in names), names


def bare_root():
    """A minimal Debian as an archive, which is made once."""
    need("debootstrap", "chroot", "tar")
    need_root()
    archive = TOOLS / f"{RELEASE}.tar"
    if not archive.exists():
        with folder() as place:
            try:
                run("debootstrap", "--variant=minbase", RELEASE, place / "root", timeout=900)
            except AssertionError as error:
                raise Missing(f"debootstrap cannot make a bare Debian here: {str(error)[-200:]}") from None
            run("tar", "-C", place / "root", "-cf", f"{archive}.part", ".")
            os.rename(f"{archive}.part", archive)
    return archive


def check_a_bare_debian_installs_upgrades_removes_and_purges():
    archive = bare_root()
    with folder() as place:
        first, second, _, _ = made()
        root = place / "root"
        root.mkdir()
        run("tar", "-C", root, "-xf", archive)
        for package in [first, second]:
            shutil.copy(package, root / "tmp")
        first, second = (f"/tmp/{os.path.basename(package)}" for package in (first, second))
        inside = lambda *command, **more: run("chroot", root, *command, env={"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}, **more)

        inside("dpkg", "-i", first)
        assert "/var/lib/millstream" in inside("getent", "passwd", "millstream")
        assert "millstream 750" in inside("stat", "-c", "%U %a", "/var/lib/millstream")
        assert inside("ldd", "/usr/bin/millstream").count("not found") == 0
        # The program runs as its own user: it checks the settings as the unit does before a start, and adds a user.
        as_user = ["setpriv", "--reuid=millstream", "--regid=millstream", "--init-groups"]
        inside(*as_user, "/usr/bin/millstream", "check-config", "--quiet", "--home", "/var/lib/millstream")
        script = ("told=$(mktemp -d); /usr/bin/millstream --home /var/lib/millstream --set server.host=127.0.0.1 --set http.port=0 --set https.port=0 --set rtmp.port=0"
                  " --set rtmps.port=0 --set rtsp.port=0 --set rtsps.port=0 --set server.srt_port=0 --set webrtc.port=0 >$told/ready 2>$told/errors & pid=$!;"
                  " while kill -0 $pid && ! grep -q ready $told/ready; do sleep 0.1; done; kill $pid; wait $pid; echo ended with $?; cat $told/errors")
        told = inside("setpriv", "--reuid=millstream", "--regid=millstream", "--init-groups", "sh", "-c", script)
        assert "ended with 0" in told, told

        # A changed file of settings stays through an upgrade, and the home does.
        default = root / "etc/default/millstream"
        default.write_text(default.read_text() + "# mine\n")
        inside("dpkg", "-i", "--force-confold", second)
        assert default.read_text().endswith("# mine\n")
        assert "-2" in inside("dpkg-query", "-W", "-f", "${Version}", "millstream")
        assert (root / "var/lib/millstream/conf").is_dir()

        inside("dpkg", "-r", "millstream")
        assert not (root / "usr/bin/millstream").exists() and default.exists() and (root / "var/lib/millstream/conf").is_dir()
        inside("dpkg", "-i", first)
        inside("dpkg", "-P", "millstream")
        assert not default.exists() and not (root / "var/lib/millstream").exists()
        assert inside("getent", "passwd", "millstream", check=False) == ""
        left = subprocess.run(["find", root, "-name", "*millstream*", "-not", "-path", "*/tmp/*"], capture_output=True, text=True).stdout
        assert left == "", left


def check_a_bare_debian_does_not_restart_what_runs():
    """The scripts, with a systemctl that writes down what it is told."""
    archive = bare_root()
    with folder() as place:
        first, second, _, _ = made()
        root = place / "root"
        root.mkdir()
        run("tar", "-C", root, "-xf", archive)
        (root / "run/systemd/system").mkdir(parents=True)
        told = root / f"{os.path.basename(place)}.told"
        for name in ["systemctl", "sysctl"]:
            (root / "usr/bin" / name).write_text(f'#!/bin/sh\necho "{name} $*" >> /{told.name}\n')
            (root / "usr/bin" / name).chmod(0o755)
        def after(*command):
            told.write_text("")
            run("chroot", root, *command, env={"LC_ALL": "C"})
            return told.read_text()
        for package in [first, second]:
            shutil.copy(package, root / "tmp")
        first, second = (f"/tmp/{os.path.basename(package)}" for package in (first, second))
        for command in [("dpkg", "-i", first), ("dpkg", "-i", second)]:
            text = after(*command)
            assert "daemon-reload" in text and "is-active" in text and not re.search(" (re)?start | stop|--now", text), text
        assert "disable --now millstream.service" in after("dpkg", "-r", "millstream")


def check_rpm_takes_its_package():
    need("rpm")
    with folder() as place:
        _, _, rpm, _ = made()
        run("rpm", "--nosignature", "--dbpath", place / "db", "-K", rpm)
        told = run("rpm", "--dbpath", place / "db", "-qp", "--scripts", rpm)
        assert "useradd" in told and "disable --now" in told, told
        # Files alone: there is no base of RPM packages here that its scripts could run in.
        need_root()
        run("rpm", "--root", place / "root", "--initdb")
        run("rpm", "--root", place / "root", "--nodeps", "--noscripts", "--nosignature", "-i", rpm)
        assert all((place / "root" / name).exists() for name in EXPECTED)
    return ["not run: its scripts (there is no RPM system here)"]
