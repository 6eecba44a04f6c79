"""FLARE's sites under users of their own, as root, where it is: `make integrations`."""

import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import numpy as np
import pytest
from safetensors.torch import load_file

pytest.importorskip("nvflare")

import privaudit as pa
from privaudit.ledger import Ledger

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # FLARE's own
    pytest.mark.skipif(os.geteuid() != 0, reason="only root starts for other users"),
]
SITES, SECONDS = ("ward", "clinic", "lab", "icu", "annex"), 240
SETTINGS = ("model=softmax", "classes=2", "batch_size=10")
LABEL = re.compile(rb" of round \d+, float")  # of every message
# Put before what the server runs: it keeps what is brought to it, TLS taken off.
DUMP = """
import os
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
taken = ConnManager.process_frame_task
def process_frame_task(self, connection, frame):
    with open(os.environ["DUMP"], "ab") as file:
        file.write(bytes(frame))
    return taken(self, connection, frame)
ConnManager.process_frame_task = process_frame_task
"""


def write_data(folder, nodes):
    folder.mkdir(parents=True)
    for node in nodes:
        generator = np.random.default_rng(node)
        inputs = generator.normal(size=(60 + 7 * node, 5)).astype(np.float32)
        targets = (inputs.sum(1) > 0).astype(np.int64)
        np.savez(folder / f"node-{node}.npz", inputs=inputs, targets=targets)


def program(*words):
    return [sys.executable, "-m", *map(str, words)]


class Federation:
    """`nvflare poc` of some sites; each has a user and a folder that is its own."""

    def __init__(self, folder, sites, **most):
        self.folder, self.sites, self.running = folder, sites, {}
        folder.chmod(0o755)
        self.users = {site: 61_001 + i for i, site in enumerate(sites)}
        self.environment = {
            **{
                name: os.environ[name]
                for name in ("PATH", "LANG")
                if name in os.environ
            },
            "PYTHONPATH": f"{folder / 'dump'}{os.pathsep}{os.getcwd()}",
            "OMP_NUM_THREADS": "1",
            "HOME": str(folder),
            "DUMP": str(folder / "relayed"),
            "NVFLARE_POC_WORKSPACE": str(folder / "poc"),
            "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "5",
        }
        self.environment["PATH"] = os.pathsep.join(
            [str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
        )
        self.kits = folder / "poc/joint/prod_00"
        self.init("joint", "dp-dsgt", "rounds=4")
        project = folder / "joint/project.yml"
        self.ports = [free_port() for _ in range(2)]
        for port, free in zip(("8002", "8003"), self.ports, strict=True):
            project.write_text(project.read_text().replace(port, str(free)))
        self.said("nvflare.cli", "poc", "prepare", "-i", project)
        (folder / "dump").mkdir()
        (folder / "dump/sitecustomize.py").write_text(DUMP)
        for node, site in enumerate(sites):
            own = folder / site
            write_data(own / "data", [node])
            shutil.move(self.kits / site, own / "kit")
            settings = {"most_epsilon": 1000.0, "studies": True, **most}
            lines = [
                f"{name} = {json.dumps(value)}\n" for name, value in settings.items()
            ]
            (own / "kit/local/privaudit.toml").write_text(
                f'out = "{own}/runs"\ndata = "{own}/data"\n{"".join(lines)}'
                f"sites = {json.dumps(sites)}\n"
            )
            for path in (own, *own.rglob("*")):
                os.chown(path, self.users[site], self.users[site])
            own.chmod(0o700)

    def said(self, *words, check=True):
        found = subprocess.run(
            program(*words),
            env=self.environment,
            cwd=self.folder,
            timeout=SECONDS,
            stdout=subprocess.PIPE,
            check=check,
            text=True,
        )
        return found.stdout

    def init(self, name, algorithm, *changes, sites=None, options=()):
        settings = (*SETTINGS, *changes)
        named = [word for site in sites or self.sites for word in ("--site", site)]
        named += [word for change in settings for word in ("--set", change)]
        self.said(
            *("privaudit", "federation", "init", algorithm, *named, *options),
            *("--epsilon", "1000"),
            *("--out", self.folder / name),
        )

    def begin(self, who):
        """Start the server, or a site as its user, as `startup/sub_start.sh` does."""
        place = (
            self.kits / "localhost" if who == "server" else self.folder / who / "kit"
        )
        as_user, environment = {}, dict(self.environment)
        if who != "server":
            user = self.users[who]
            as_user = {"user": user, "group": user, "extra_groups": []}
            environment |= {"HOME": str(place), "USER": who, "LOGNAME": who}
            environment["PYTHONPATH"] = os.getcwd()
        self.running[who] = subprocess.Popen(
            ["bash", str(place / "startup/sub_start.sh"), "--once"],
            env=environment,
            cwd=place,
            stdout=(self.folder / f"said-{who}").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **as_user,
        )

    def kill(self, who):
        """End a process and those that it started, without a word to anybody."""
        one = self.running.pop(who)
        mine = {one.pid}
        while more := {pid for pid, parent in parents() if parent in mine} - mine:
            mine |= more
        for pid in mine:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        one.wait()

    def admin(self, *words, check=True):
        kit = self.kits / "admin@federation.example"
        words = ("--format", "json", "job", *words, "--startup-kit", kit)
        return self.said("nvflare.cli", *words, check=check)

    def submit(self, name):
        for _ in range(10):  # a server that has just begun lets nobody in
            with contextlib.suppress(subprocess.CalledProcessError):
                said = self.admin("submit", "-j", self.folder / name / "job")
                return json.loads(said)["data"]["job_id"]
            time.sleep(2)
        raise TimeoutError("the server takes no job")

    def ended(self, job):
        """How the job ended, which is waited for."""
        said = self.admin("wait", job, "--timeout", SECONDS - 20, check=False)
        return re.search(r"FINISHED:\w+|$", said)[0]

    def trains(self, folder, since):
        """Wait until a party has written into ``folder`` after ``since``."""
        end = time.time() + SECONDS
        while time.time() < end:
            with contextlib.suppress(OSError):
                if any(one.stat().st_mtime > since for one in folder.iterdir()):
                    return
            time.sleep(0.1)
        raise TimeoutError(f"nothing is written into {folder}")

    def folders(self, name, sites):
        return [
            self.folder / site / f"runs/{name}/party-{node}"
            for node, site in enumerate(sites)
        ]

    def may_read(self, site, path):
        command = ["cat", str(path)]
        user = self.users[site]
        how = {"user": user, "group": user, "extra_groups": [], "capture_output": True}
        return subprocess.run(command, **how).returncode == 0

    def __enter__(self):
        for who in ("server", *self.sites):
            self.begin(who)
        return self

    def __exit__(self, *error):
        for who in [*self.running]:
            self.kill(who)


def parents():
    """(process, its parent) of all that run."""
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            yield (
                int(path.parent.name),
                int(path.read_text().rpartition(")")[2].split()[1]),
            )


def free_port():
    with socket.socket() as held:
        held.bind(("", 0))
        return held.getsockname()[1]


class Wire(threading.Thread):
    """What crosses the loopback by two ``ports``: TCP streams, by the two ends."""

    def __init__(self, ports):
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 27)  # SO_RCVBUFFORCE
        one, two = ports
        only = [  # IPv4, TCP, from or to a port: others' traffic would fill the buffer
            *(
                (0x28, 0, 0, 12),
                (0x15, 0, 10, 0x800),
                (0x30, 0, 0, 23),
                (0x15, 0, 8, 6),
            ),
            *((0xB1, 0, 0, 14), (0x48, 0, 0, 14), (0x15, 4, 0, one), (0x15, 3, 0, two)),
            *((0x48, 0, 0, 16), (0x15, 1, 0, one), (0x15, 0, 1, two)),
            *((6, 0, 0, 1 << 18), (6, 0, 0, 0)),
        ]
        code = ctypes.create_string_buffer(
            b"".join(struct.pack("HBBI", *x) for x in only)
        )
        given = struct.pack("HP", len(only), ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, 26, given)  # SO_ATTACH_FILTER
        self._socket.bind(("lo", 0))
        self._begun, self._parts = {}, {}
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while frame := self._socket.recv(1 << 17):
                self._take(frame[14:])

    def _take(self, packet):
        tcp = packet[4 * (packet[0] & 15) : int.from_bytes(packet[2:4])]
        ends = int.from_bytes(tcp[:2]), int.from_bytes(tcp[2:4])
        place, content = int.from_bytes(tcp[4:8]), tcp[4 * (tcp[12] >> 4) :]
        if tcp[13] & 2:  # a connection begins
            self._begun[ends] = (place + 1) % (1 << 32)
        elif content:
            stream = ends, self._begun.get(ends)
            self._parts.setdefault(stream, {}).setdefault(place, content)

    def streams(self):
        """The bytes of each from its beginning, in order, as far as all were seen."""
        _, lost = struct.unpack("II", self._socket.getsockopt(263, 6, 8))  # statistics
        assert lost == 0
        self._socket.close()
        for (ends, at), parts in self._parts.items():
            assert at is not None, f"{ends} began before it was looked at"
            found = bytearray()
            while at in parts:
                found += parts[at]
                at = (at + len(parts[at])) % (1 << 32)
            yield bytes(found)


def records(stream):
    """Kinds of TLS records, and their contents; ``ValueError`` for what is none."""
    while len(stream) >= 5:
        length = int.from_bytes(stream[3:5])
        if not 20 <= stream[0] <= 23 or stream[1] != 3 or length > 1 << 14 | 256:
            raise ValueError(f"no TLS: {stream[:40]!r}")
        yield stream[0], stream[5 : 5 + length]
        stream = stream[5 + length :]


@pytest.fixture(scope="module")
def federation():
    with tempfile.TemporaryDirectory() as folder:
        check = [sys.executable, "-c", "import nvflare, privaudit"]
        can = False
        how = {"user": 61_001, "group": 61_001, "env": {"PYTHONPATH": os.getcwd()}}
        with contextlib.suppress(PermissionError):
            done = subprocess.run(check, **how, stderr=subprocess.DEVNULL, check=False)
            can = done.returncode == 0
        if not can:
            pytest.skip(f"other users cannot run {sys.executable}")
        with Federation(pathlib.Path(folder), SITES) as found:
            yield found


STUDY = ("--noise-multiplier", "1.5", "--seed", "3")
JOBS = {
    f"{before}{algorithm}": (algorithm, ("rounds=8", *changes), options)
    for algorithm, changes in {
        "dp-dsgt": ("graph=ring",),
        "dp-butterfly": (),
        "partpsp": (),
        "adp2sgd": ("clock=real",),
    }.items()
    for before, options in {"": (), "study-": STUDY}.items()
    if options == () or algorithm != "adp2sgd"
}


def test_four_users(federation, tmp_path):
    """Families of all kinds, certified and joined; studies are one process's bits."""
    f, four = federation, SITES[:4]
    assert f.may_read("ward", f.folder / "ward/data/node-0.npz")
    for path in ("ward/data/node-0.npz", "ward/kit/startup/client.key", "ward/runs"):
        assert not f.may_read("clinic", f.folder / path)
    wire, jobs = Wire(f.ports), []
    for name, (algorithm, changes, options) in JOBS.items():
        f.init(name, algorithm, *changes, sites=four, options=options)
        jobs.append(f.submit(name))
    assert {f.ended(job) for job in jobs} == {"FINISHED:COMPLETED"}
    write_data(tmp_path / "data", range(4))
    for name, (algorithm, changes, options) in JOBS.items():
        folders = f.folders(name, four)
        joint = pa.join(folders)
        assert joint.upper.epsilon <= 1000
        if not options:
            assert joint.upper.standing == "certified"
            continue
        out, data = tmp_path / name, tmp_path / "data"
        f.said(
            *("privaudit", "train", algorithm, "--data", data, "--out", out, *STUDY),
            *(f"--set={change}" for change in (*SETTINGS, *changes)),
            "--set=nodes=4",
        )
        kept = (out / "ledger.json").read_text()
        assert joint.ledger == Ledger.from_json(kept)
        whole = load_file(out / "model.safetensors")
        for folder in folders:
            kept = load_file(folder / "model.safetensors")
            assert kept
            assert all(x.equal(whole[named]) for named, x in kept.items())
    joint = pa.join(f.folders("dp-butterfly", four), observer="any-node")
    assert joint.upper.epsilon < pa.join(f.folders("dp-butterfly", four)).upper.epsilon

    dump = f.folder / "relayed"
    sealed = dump.read_bytes()
    assert b"adp2sgd" in sealed  # the job
    assert not LABEL.search(sealed)
    streams = [*wire.streams()]
    sent = b""
    for stream in streams:
        kinds = [*records(stream)]
        assert kinds[0][0] == 22  # a handshake
        sent += b"".join(content for kind, content in kinds if kind == 23)
    assert len(sent) > len(sealed) > 100_000
    assert len(zlib.compress(sent)) > 0.99 * len(sent)
    for readable in (b"adp2sgd", b"privaudit", b"dp-dsgt"):
        assert not any(readable in stream for stream in streams)
    # What is not sealed would be seen, by the same look.
    f.init("open", "dp-dsgt", "rounds=8", sites=four, options=("--no-sealed",))
    assert f.ended(f.submit("open")) == "FINISHED:COMPLETED"
    assert LABEL.search(dump.read_bytes()[len(sealed) :])


MESSAGE = re.compile(
    rb"[0-9a-f]{16} \d+ message (\w+ of round \d+, float(\d+) \(1, 1, (\d+)\))\n"
)
KILLS = int(os.environ.get("KILLS", "3"))
QUICK = ("--patience", "15")


def test_killed_at_random_moments(federation):
    """A site, the server or both, ``KILLS`` times: no round is released twice."""
    f, four, chance = federation, SITES[:4], random.Random(KILLS)
    how = ("graph=ring", f"rounds={40 + 10 * KILLS}")
    f.init("killed", "dp-dsgt", *how, sites=four, options=("--no-sealed", *QUICK))
    folders, status, killed = f.folders("killed", four), "", 0
    dump = f.folder / "relayed"
    before = dump.stat().st_size if dump.exists() else 0
    for _ in range(3 * KILLS + 3):
        since = time.time()
        job = f.submit("killed")
        if killed < KILLS:
            f.trains(folders[0], since)
            time.sleep(chance.uniform(0, 6))
            site = chance.choice(four)
            victims = chance.choice([(site,), ("server",), (site, "server")])
            for who in victims:
                f.kill(who)
            killed += 1
            print(killed, victims, flush=True)
            if "server" not in victims:
                f.ended(job)
            for who in victims:
                f.begin(who)
        elif (status := f.ended(job)) == "FINISHED:COMPLETED":
            break
    assert status == "FINISHED:COMPLETED"
    assert killed == KILLS
    for folder in folders:
        ledger = Ledger.from_json((folder / "ledger.json").read_text())
        assert sum(one.count for one in ledger.nodes[0]) == 40 + 10 * KILLS
    assert pa.join(folders).upper.standing == "certified"
    relayed, said = dump.read_bytes()[before:], {}
    for one in MESSAGE.finditer(relayed):
        size = int(one[2]) // 8 * int(one[3])
        said.setdefault(one[1], set()).add(relayed[one.end() : one.end() + size])
    assert len(said) >= 40 + 10 * KILLS
    # One of each site; all start at the same model.
    assert max(len(contents) for contents in said.values()) == 4


def test_one_of_five_leaves(federation):
    """For good: the others end with a certificate."""
    f, how = federation, ("graph=ring", "weights=metropolis", "rounds=300")
    f.init("four", "dp-dsgd", *how, options=("--drop-lost", *QUICK))
    *others, lost = f.folders("four", SITES)
    since = time.time()
    job = f.submit("four")
    f.trains(lost, since)
    time.sleep(2)
    f.kill("annex")
    assert f.ended(job) == "FINISHED:COMPLETED"
    f.begin("annex")
    joint = pa.join(others)
    assert joint.upper.standing == "certified"
    assert "lost" in joint.page()


def test_a_forged_site(federation):
    """One whose certificate another federation of the same names has made."""
    f = federation
    f.said("nvflare.cli", "provision", "-p", "joint/project.yml", "-w", "forged")
    command = program("privaudit", "train", "dp-dsgt", "--exchange", "flare")
    command += ["--kit", f.folder / "forged/joint/prod_00/ward", "--out", "none"]
    found = subprocess.run(
        [*command, "--model", "softmax", "--epsilon", "1000", *QUICK],
        **{"env": f.environment, "cwd": f.folder, "timeout": SECONDS},
        **{"stderr": subprocess.PIPE, "text": True},
    )
    assert found.returncode == 3
    assert "FLARE's server does not let ward in" in found.stderr
