"""Real Chromium behind a network simulated from a seed, for one server after the other: docs/networks.md.

networks.py [--side viewer|publisher] [--only TEXT] [--servers TEXT] [--seeds N] [--first N] [--table short|pairwise]: TEXT is a part of names, or several separated by commas.
PROGRAM and RELAY name the binaries of the server and the relay.
"""

import argparse
import json
import os
import shutil

import cells
import figures
import servers
import stage
import view

TARGET = f"{stage.ROOT}/target/networks"
# Length of the files in seconds, longer than any run.
FILM_S = 60
# Attempts for a run that failed for a reason of its own, such as a browser that did not start.
TRIES = 2


def is_meant(text, name):
    return not text or any(part.strip().lower() in name.lower() for part in text.split(","))


def chosen(options):
    """The available servers; prints why the others are not run."""
    out = []
    for server in servers.ALL:
        if is_meant(options.servers, server.NAME):
            reason = server.missing()
            if reason:
                print(f"{server.NAME}: not run: {reason}", flush=True)
            else:
                out.append(server)
    return out


def one(server, cell, seed, film):
    """Runs a new server with a viewer that joins at a time given by the seed. Without a file, a browser publishes."""
    place = stage.folder()
    running = None
    try:
        running = server(place)
        if film is None:
            return view.run_publisher(cell, running, seed)
        running.send(film)
        return view.run(cell, running, seed)
    finally:
        if running:
            running.close()
        keep_logs(place, f"{TARGET}/logs/{server.NAME}")
        shutil.rmtree(place, ignore_errors=True)


def keep_logs(place, target):
    """Copies the logs of the latest run of a server."""
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(place):
        if name.endswith("log"):
            shutil.copy(f"{place}/{name}", target)


def measure(server, cell, seed, film):
    for left in reversed(range(TRIES)):
        try:
            seen = one(server, cell, seed, film)
            break
        except (AssertionError, OSError, SystemExit) as error:
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                raise  # Ended by a signal, not by a timeout.
            print(f"{server.NAME}, {cell.name}, seed {seed}: {error}", flush=True)
            if not left:
                return None
    return {"server": server.NAME, "cell": cell.name, "seed": seed, "figures": figures.of(cell, seen), "load": os.getloadavg()[0], "seen": seen}


def short(row):
    found = (f"{name} {figures.text(name, [row['figures'][name]])}" for name in figures.COLUMNS)
    return f"{row['server']}, {row['cell']}, seed {row['seed']}: {', '.join(found)}"


def read(path):
    """Earlier runs, with their figures computed anew."""
    known = {cell.name: cell for cell in (*cells.SHORT, *cells.pairwise())}
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return [{**row, "figures": figures.of(known[row["cell"]], row["seen"])} for row in rows if row["cell"] in known]


def report(rows):
    text = figures.table(rows) + "\n"
    found = figures.worse(rows)
    text += f"\n{servers.Millstream.NAME} is worse, by more than the seeds differ:\n\n" + "".join(f"- {line}\n" for line in found) if found else ""
    with open(f"{TARGET}/table.txt", "w") as out:
        out.write(text)
    print(f"\n{text}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("only", "servers"):
        options.add_argument(f"--{name}", default="")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--side", choices=("viewer", "publisher"), default="viewer", help="who is behind the network")
    options.add_argument("--table", choices=("short", "pairwise"), default="short")
    options.add_argument("--report", help="no run: the tables of this file of JSON lines")
    options = options.parse_args()
    os.makedirs(TARGET, exist_ok=True)
    if options.report:
        return report(read(options.report))
    names = chosen(options)
    table = [cell for cell in (cells.SHORT if options.table == "short" else cells.pairwise()) if is_meant(options.only, cell.name)]
    if not names or not table:
        raise SystemExit("no server, or no network, is called so")
    print(", ".join(server.version() for server in names), flush=True)
    film = servers.film(stage.folder(), FILM_S) if options.side == "viewer" else None
    rows = []
    with open(f"{TARGET}/cells.jsonl", "w") as out:
        for seed in range(options.first, options.first + options.seeds):
            for cell in table:
                for server in names:
                    row = measure(server, cell, seed, film)
                    if row:
                        out.write(json.dumps(row) + "\n")
                        out.flush()
                        print(short(row), flush=True)
                        rows.append({name: row[name] for name in ("server", "cell", "figures")})
    report(rows)


if __name__ == "__main__":
    main()
