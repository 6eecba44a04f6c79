"""Parties apart: processes, in network namespaces, of other users, that are killed."""

import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.torch
import torch

from trainers.network.frames import ALIVE, BYE, END, HEADER, KEPT, MESSAGE, Header

pytestmark = pytest.mark.full

MINE = """
import torch

def net():
    return torch.nn.Linear(6, 2)
"""
USERS = range(61001, 61005)
PATIENCE = 300


def write_data(folder, nodes):
    """A file a node, each with a mark in its numbers; and what says what one is."""
    (folder / "mine.py").write_text(MINE)
    data = folder / "data"
    data.mkdir()
    for node in range(nodes):
        generator = np.random.default_rng(node)
        inputs = generator.normal(size=(50 + 7 * node, 6)).astype(np.float32)
        targets = (inputs.sum(1) > 0).astype(np.int64)
        np.savez(data / f"node-{node}.npz", inputs=inputs, targets=targets)
    return data


def command(folder, out, rounds=40, *, algorithm="dp-dsgt", **more):
    settings = {"rounds": rounds, "batch_size": 10, "graph": "ring", **more}
    return [
        *(sys.executable, "-m", "privaudit", "train", algorithm),
        *("--data", str(folder / "data"), "--model", "mine:net"),
        *("--noise-multiplier", "1.5", "--epsilon", "1000"),
        *(f"--set={name}={value}" for name, value in settings.items()),
        *("--out", str(out)),
    ]


def started(number, size, port, arguments, folder, *, prefix=(), host="127.0.0.1"):
    """One party's process."""
    return subprocess.Popen(
        [*prefix, *arguments, "--parties"],
        cwd=folder,
        env={
            **os.environ,
            **{"OMP_NUM_THREADS": "1", "HOME": str(folder), "PYTHONHASHSEED": "0"},
            "PYTHONPATH": os.pathsep.join([os.getcwd(), str(folder)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            **{"RANK": str(number), "WORLD_SIZE": str(size)},
            **{"MASTER_ADDR": host, "MASTER_PORT": str(port)},
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Forked:
    """A party's process, forked from one that has imported all."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainers.runs.parties", "privaudit.report.verify"])

    def __init__(self, number, size, port, arguments, folder):
        self._said = folder / f"said-{number}"
        where = {"RANK": number, "WORLD_SIZE": size, "MASTER_PORT": port}
        self._process = self.context.Process(
            target=_party, args=(where, arguments[3:], folder, self._said)
        )
        self._process.start()

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def poll(self):
        return self._process.exitcode

    def communicate(self, timeout):
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it still runs"
        return None, self._said.read_text()

    @property
    def returncode(self):
        return self._process.exitcode


def _party(where, arguments, folder, said):
    with said.open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(folder)
    torch.set_num_threads(1)
    os.environ.update({name: str(value) for name, value in where.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "PRIVAUDIT_PATIENCE": "30"})
    from privaudit.cli import main

    os._exit(main([*arguments, "--parties"]))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def ended(processes):
    """(status, what was said on standard error) of each."""
    found = []
    for process in processes:
        _, said = process.communicate(timeout=PATIENCE)
        found.append((process.returncode, said))
    return found


def models(path):
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    return {name: x for name, x in tensors.items() if name.startswith("node")}


def of_all(out, parties):
    return {
        name: tensor
        for party in range(parties)
        for name, tensor in models(out / f"party-{party}").items()
    }


def same(one, other):
    return one.keys() == other.keys() and all(
        one[name].equal(other[name]) for name in one
    )


@pytest.fixture(scope="module")
def namespaces():
    """Four network namespaces on one bridge, 10.77.22.1 to .4."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "tcpdump", "setpriv"))):
        pytest.skip("needs root, ip, tcpdump and setpriv")
    names = [f"pa-{os.getpid()}-{number}" for number in range(4)]
    bridge = f"pb{os.getpid()}"

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    made = []
    try:
        try:
            ip("link", "add", bridge, "type", "bridge")
            made.append(("link", "del", bridge))
            ip("link", "set", bridge, "up")
            for number, name in enumerate(names):
                ip("netns", "add", name)
                made.append(("netns", "del", name))
                ends = f"v{os.getpid()}-{number}a", f"v{os.getpid()}-{number}b"
                ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
                ip("link", "set", ends[0], "master", bridge, "up")
                ip("link", "set", ends[1], "netns", name)
                address = f"10.77.22.{number + 1}/24"
                ip("-n", name, "addr", "add", address, "dev", ends[1])
                ip("-n", name, "link", "set", ends[1], "up")
                ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr}")
        yield names, bridge
    finally:
        for words in reversed(made):
            subprocess.run(["ip", *words], check=False, capture_output=True)


def test_four_users_in_four_namespaces(namespaces, tmp_path_factory):
    """Trained, joined; bits of one process; on the wire, frames of messages alone."""
    names, bridge = namespaces
    folder = tmp_path_factory.getbasetemp().parent.parent / f"apart-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        data = write_data(folder, 4)
        for number, user in enumerate(USERS):
            file = data / f"node-{number}.npz"
            file.chmod(0o600)
            os.chown(file, user, user)
        out = folder / "out"
        out.mkdir()
        out.chmod(0o1777)
        wire = folder / "wire.pcap"
        sniffer = subprocess.Popen(
            [
                *("tcpdump", "-i", bridge, "-w", str(wire), "-U", "-Z", "root"),
                *("--immediate-mode", "-s", "16384", "-B", "131072"),
            ],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(2)
        arguments = [*command(folder, out), "--seed", "5"]
        parties = [
            started(
                *(number, 4, 29777, arguments, folder),
                host="10.77.22.1",
                prefix=[
                    *("ip", "netns", "exec", names[number], "setpriv"),
                    *(f"--reuid={user}", f"--regid={user}", "--clear-groups"),
                ],
            )
            for number, user in enumerate(USERS)
        ]
        for status, said in ended(parties):
            assert status == 0, said
        time.sleep(2)  # what was sent last is on its way to the file
        sniffer.terminate()
        sniffer.wait()
        alone = [*command(folder, folder / "alone"), "--seed", "5"]
        plain = {**os.environ, "PYTHONPATH": f"{os.getcwd()}:{folder}"}
        subprocess.run(alone, cwd=folder, env=plain, check=True, capture_output=True)
        assert same(of_all(out, 4), models(folder / "alone"))
        joint = subprocess.run(
            [
                *(sys.executable, "-m", "privaudit", "join", "--json"),
                *("--overlap", "2"),
                *(str(out / f"party-{number}") for number in range(4)),
            ],
            env=plain,
            check=True,
            capture_output=True,
            text=True,
        )
        assert json.loads(joint.stdout)["worst_nodes"] == [0, 1]
        check_wire(wire, data)
    finally:
        shutil.rmtree(folder)


def check_wire(wire, data):
    """What was captured are frames; no number of anybody's data is in them."""
    streams = captured(wire.read_bytes())
    kinds = collections.Counter()
    words = set()
    content = b""
    for stream in streams.values():
        while stream:
            header = Header.unpack(stream[: HEADER.size])
            body = stream[HEADER.size : HEADER.size + header.length]
            assert len(body) == header.length
            stream = stream[HEADER.size + header.length :]
            kinds[header.kind] += 1
            if header.kind == MESSAGE:
                # DSGT's two messages of the ring, models and gradients that are noisy.
                assert header.name in ("theta", "tracker")
                assert header.shape == (1, 1, 14)
            elif header.length:
                words.add(header.name)
            content += body
    # Each of four nodes sends two messages to two neighbours in each of 40 rounds.
    assert kinds[MESSAGE] == 4 * 2 * 2 * 40
    assert words == {"hello", "settings", "data", "noise", "run", "begin"}
    assert kinds[END] == 0
    assert kinds[BYE] == kinds[KEPT] / 20 == 12
    assert kinds[ALIVE] < 40_000
    for file in data.glob("*.npz"):
        with np.load(file) as arrays:
            for row in arrays["inputs"]:
                assert row.tobytes()[:12] not in content


def captured(pcap):
    """What each side of each TCP connection sent, by addresses and ports."""
    found = collections.defaultdict(dict)
    place = 24
    while place < len(pcap):
        length = int.from_bytes(pcap[place + 8 : place + 12], "little")
        frame = pcap[place + 16 : place + 16 + length]
        place += 16 + length
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:  # IPv4, TCP
            continue
        packet = frame[14 : 14 + int.from_bytes(frame[16:18])]
        tcp = packet[4 * (packet[0] & 15) :]
        payload = tcp[4 * (tcp[12] >> 4) :]
        flow = packet[12:20], tcp[:4]
        number = int.from_bytes(tcp[4:8])
        if tcp[13] & 2:
            found[flow]["first"] = number + 1
        if payload:
            found[flow][number] = max(found[flow].get(number, b""), payload, key=len)
    streams = {}
    for flow, parts in found.items():
        first = parts.pop("first")
        stream = bytearray()
        for number, payload in sorted(
            parts.items(), key=lambda item: (item[0] - first) % (1 << 32)
        ):
            at = (number - first) % (1 << 32)
            assert at <= len(stream), "a packet was not captured"
            stream[at : at + len(payload)] = payload
        streams[flow] = bytes(stream)
    return streams


def at_work(out, party):
    """Whether it has come, met the others and taken its folder."""
    lock = out / f"party-{party}" / ".lock"
    held = pathlib.Path("/proc/locks").read_text().split()
    return lock.exists() and any(
        word.endswith(f":{lock.stat().st_ino}") for word in held
    )


def written(out, party):
    """When its last checkpoint was."""
    file = out / f"party-{party}" / "checkpoint.pt"
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_mtime_ns


def killed(arguments, folder, size, look=lambda: None):
    """Train to the end; one of ``size`` is killed at a random moment, 20 times.

    Who lives names it. ``look`` is called after each death.
    """
    out, chance = folder / "out", random.Random(1)
    deaths = 0
    for _ in range(200):
        port = free_port()
        parties = [Forked(n, size, port, arguments, folder) for n in range(size)]
        if deaths < 20:
            victim = chance.randrange(size)
            early = chance.random() < 0.1
            while not early and all(one.poll() is None for one in parties):
                if all(at_work(out, party) for party in range(size)):
                    break
                time.sleep(0.01)
            for _ in range(0 if early else chance.randrange(3)):
                before = written(out, victim)
                while written(out, victim) == before and parties[victim].poll() is None:
                    time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 1.0))
            if parties[victim].poll() is None:
                parties[victim].send_signal(signal.SIGKILL)
                deaths += 1
                print("killed", deaths, victim, flush=True)
        found = ended(parties)
        look()
        if all(status == 0 for status, _ in found):
            break
        for number, (status, said) in enumerate(found):
            assert status in (0, 3, -signal.SIGKILL), said
            if status == 3 and -signal.SIGKILL in [s for s, _ in found]:
                last = said.splitlines()[-1]
                assert last.startswith("privaudit: part"), (number, said)
                assert f"party {victim} " in last, (number, said)
    assert deaths >= 10  # the rest came too late
    print(f"killed {deaths} times")


def test_killed_at_random_moments(tmp_path):
    """Then all go on: the same bits, no release twice."""
    write_data(tmp_path, 4)
    arguments = [*command(tmp_path, tmp_path / "out", 1000), "--seed", "5"]
    killed(arguments, tmp_path, 4)
    alone = [*command(tmp_path, tmp_path / "alone", 1000), "--seed", "5"]
    plain = {**os.environ, "PYTHONPATH": f"{os.getcwd()}:{tmp_path}"}
    subprocess.run(alone, cwd=tmp_path, env=plain, check=True, capture_output=True)
    assert same(of_all(tmp_path / "out", 4), models(tmp_path / "alone"))
    ledger = json.loads((tmp_path / "alone" / "ledger.json").read_text())
    for party in range(4):
        own = json.loads((tmp_path / f"out/party-{party}/ledger.json").read_text())
        assert own["nodes"] == ledger["nodes"][party : party + 1]


def test_killed_by_the_real_clock(tmp_path):
    """No release twice; ledgers have all that journals, which are kept here, have."""
    write_data(tmp_path, 4)
    steps, step_time = 4000, 0.004
    arguments = command(
        *(tmp_path, tmp_path / "out", steps),
        **{"algorithm": "adp2sgd", "clock": "real", "step_time": step_time},
    )
    kept = [tmp_path / f"journal-{party}" for party in range(4)]

    def look():
        for party, link in enumerate(kept):
            file = tmp_path / f"out/party-{party}/key.releases"
            if file.exists() and not link.exists():
                os.link(file, link)

    killed(arguments, tmp_path, 4, look)
    counts = []
    for party, link in enumerate(kept):
        made = [*struct.iter_unpack("<IQB51x", link.read_bytes())][1:]
        assert len({entry[:2] for entry in made}) == len(made)
        ledger = json.loads((tmp_path / f"out/party-{party}/ledger.json").read_text())
        (node,) = ledger["nodes"]
        counts.append(sum(entry["count"] for entry in node))
        assert counts[-1] == len(made)
    # A step that was granted to who died before it released anything is given again.
    assert sum(counts) == steps
    folders = [str(tmp_path / f"out/party-{party}") for party in range(4)]
    words = [sys.executable, "-m", "privaudit", "join", *folders]
    subprocess.run(words, check=True, capture_output=True)


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_named_within_ten_seconds(tmp_path, how):
    write_data(tmp_path, 3)
    arguments = command(tmp_path, tmp_path / "out", 1_000_000)
    port = free_port()
    parties = [Forked(n, 3, port, arguments, tmp_path) for n in range(3)]
    kept = [tmp_path / f"out/party-{n}" / "key.releases" for n in range(3)]
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not all(
        file.exists() and file.stat().st_size > 640 for file in kept
    ):
        time.sleep(0.05)
    parties[1].send_signal(how)
    began = time.monotonic()
    found = ended([parties[0], parties[2]])
    took = time.monotonic() - began
    parties[1].send_signal(signal.SIGKILL)
    parties[1].communicate(PATIENCE)
    for status, said in found:
        assert status == 3
        (line,) = [text for text in said.splitlines() if text.startswith("privaudit:")]
        assert "party 1 does not answer" in line or "party 1 has ended" in line
    assert took < 10
