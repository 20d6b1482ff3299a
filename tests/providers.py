"""Lets programs of the two providers talk to each other: the DTLS handshake, and the key exchange and encryption of SRT.

Usage: providers.py FOLDER, with FOLDER/PROVIDER/peer and FOLDER/PROVIDER/live; tests/providers.sh makes them.
"""

import itertools
import pathlib
import socket
import subprocess
import sys
import time

PROVIDERS = ["aws-lc", "rustcrypto"]
RSA = ["proto-impl/dtls/src/testing/rsa_certificate.der", "proto-impl/dtls/src/testing/rsa_key.der"]
SECONDS = 30
# Some packets of SRT.
BURST_BYTES = 4 * 1316


def facts(lines):
    return dict(line.split(" ", 1) for line in lines)


def shake(folder, providers, options):
    """Runs a handshake between two providers, and compares what the two ends report."""
    server_path, client_path = (folder / provider / "peer" for provider in providers)
    server = subprocess.Popen([server_path, "server", "127.0.0.1:0", *options], stdout=subprocess.PIPE, text=True)
    try:
        own = facts([server.stdout.readline().strip(), server.stdout.readline().strip()])
        client = subprocess.run(
            [client_path, "client", own["address"], *options], stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True
        )
        rest, _ = server.communicate(timeout=SECONDS)
        assert server.returncode == 0, rest
    finally:
        server.kill()
        server.wait()
    ours, theirs = own | facts(rest.splitlines()), facts(client.stdout.splitlines())
    assert (ours["own"], ours["peer"]) == (theirs["peer"], theirs["own"]), (ours, theirs)
    for fact in ["suite", "srtp", "data"]:
        assert ours[fact] == theirs[fact], (ours, theirs)


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def send(data, command):
    """Gives a program its standard input at the rate of a live stream: faster, old packets are dropped."""
    caller = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for at in range(0, len(data), BURST_BYTES):
            caller.stdin.write(data[at : at + BURST_BYTES])
            caller.stdin.flush()
            time.sleep(0.01)
        caller.stdin.close()
        assert caller.wait(timeout=SECONDS) == 0
    finally:
        caller.kill()
        caller.wait()


def carry(folder, providers, key_bytes):
    """Carries encrypted bytes over SRT from one provider to another; the key is renewed on the way."""
    listener_path, caller_path = (folder / provider / "live" for provider in providers)
    address = f"127.0.0.1:{free_port()}"
    common = [address, "--passphrase", "correct horse battery", "--pbkeylen", str(key_bytes), "--refresh", "100", "--latency", "500"]
    data = bytes(range(256)) * 800
    listener = subprocess.Popen(
        [listener_path, "recv", "--mode", "listener", *common], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        send(data, [caller_path, "send", "--mode", "caller", *common])
        received, _ = listener.communicate(timeout=SECONDS)
    finally:
        listener.kill()
        listener.wait()
    assert received == data, f"{len(received)} of {len(data)} bytes, or others"


def main():
    folder = pathlib.Path(sys.argv[1])
    pairs = list(itertools.permutations(PROVIDERS))
    for pair, version, identity in itertools.product(pairs, ["1.2", "1.3"], [[], ["--identity", *RSA]]):
        shake(folder, pair, ["--version", version, *identity])
    for pair, key_bytes in itertools.product(pairs, [16, 24, 32]):
        carry(folder, pair, key_bytes)
    print(f"{len(pairs) * 4} handshakes and {len(pairs) * 3} encrypted streams between the providers")


main()
