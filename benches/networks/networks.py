"""Real viewers behind a seeded network, at one server after the other: docs/networks.md.

networks.py [--side viewer|publisher] [--client NAME,NAME] [--only TEXT] [--servers TEXT] [--seeds N] [--first N] [--table short|pairwise]: TEXT is a part of names, or several with commas between.
PROGRAM and RELAY are the built server and relay.
"""

import argparse
import json
import os
import shutil

import cells
import clients
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


def present(every):
    """Returns the servers or clients that are installed, and prints why the others are not run."""
    out = []
    for one in every:
        reason = one.missing()
        if reason:
            print(f"{one.NAME}: not run: {reason}", flush=True)
        else:
            out.append(one)
    return out


def named(names):
    """The clients of these names."""
    wanted = [name.strip().lower() for name in names.split(",")]
    unknown = set(wanted) - set(clients.NAMES)
    if unknown:
        raise SystemExit(f"no client is called {', '.join(sorted(unknown))}; there are {', '.join(clients.NAMES)}")
    return [client for client in clients.ALL if client.NAME in wanted]


def pairs(every, viewers):
    """Each server with each client that it has a film for and that speaks its signalling; which are left out."""
    out = []
    for server in every:
        for client in viewers:
            if client.FILM in server.FILMS and server.kind in client.SERVERS:
                out.append((server, client))
            else:
                print(f"{server.NAME} with {client.NAME}: not run: no {client.FILM} by {server.kind}", flush=True)
    return out


def one(server, client, cell, seed, film):
    """A server of its own for each run, whose viewer comes at a moment that the seed decides; without a film a browser publishes."""
    place = stage.folder()
    running = None
    try:
        running = server(place)
        if film is None:
            return view.run_publisher(cell, running, seed)
        running.send(film)
        return view.run(cell, running, seed, client)
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


def measure(server, client, cell, seed, film):
    of = {"server": server.NAME, "client": client.NAME, "cell": cell.name, "seed": seed}
    for left in reversed(range(TRIES)):
        try:
            seen = one(server, client, cell, seed, film)
            break
        except (AssertionError, OSError, SystemExit) as error:
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                raise  # Told to end, and not tired of waiting.
            print(f"{title(of)}: {error}", flush=True)
            if not left:
                return None
    return {**of, "figures": figures.of(cell, seen), "load": os.getloadavg()[0], "seen": seen}


def title(row):
    return f"{row['server']}, {row['client']}, {row['cell']}, seed {row['seed']}"


def short(row):
    found = (f"{name} {figures.text(name, [row['figures'][name]])}" for name in figures.COLUMNS)
    return f"{title(row)}: {', '.join(found)}"


def read(path):
    """Runs that were measured before, with the figures of now."""
    known = {cell.name: cell for cell in (*cells.SHORT, *cells.pairwise(), *cells.pairwise(True))}
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return [{**row, "figures": figures.of(known[row["cell"]], row["seen"])} for row in rows if row["cell"] in known]


def report(rows):
    text = figures.table(rows) + "\n"
    for head, found in ((f"{servers.Millstream.NAME} is worse", figures.worse(rows)), ("A client fares worse than Chromium", figures.differ(rows))):
        text += f"\n{head}, by more than the seeds differ:\n\n" + "".join(f"- {line}\n" for line in found) if found else ""
    with open(f"{TARGET}/table.txt", "w") as out:
        out.write(text)
    print(f"\n{text}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("only", "servers"):
        options.add_argument(f"--{name}", default="")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--client", default="chromium", help=f"of {', '.join(clients.NAMES)}")
    options.add_argument("--side", choices=("viewer", "publisher"), default="viewer", help="who is behind the network")
    options.add_argument("--table", choices=("short", "pairwise"), default="short")
    options.add_argument("--report", help="no run: the tables of this file of JSON lines")
    options = options.parse_args()
    os.makedirs(TARGET, exist_ok=True)
    if options.report:
        return report(read(options.report))
    viewers = named(options.client)
    if options.side == "publisher" and viewers != named("chromium"):
        raise SystemExit("only Chromium publishes")
    has_several = len(viewers) > 1
    every = present(server for server in servers.ALL if is_meant(options.servers, server.NAME))
    runs = pairs(every, present(viewers))
    table = [cell for cell in (cells.SHORT if options.table == "short" else cells.pairwise(has_several)) if is_meant(options.only, cell.name)]
    if not runs or not table:
        raise SystemExit("no server, no client or no network is called so")
    print(", ".join(dict.fromkeys(one.version() for pair in runs for one in pair)), flush=True)
    films = {client.FILM: servers.film(stage.folder(), FILM_S, client.FILM) for _, client in runs} if options.side == "viewer" else {}
    rows = []
    with open(f"{TARGET}/cells.jsonl", "w") as out:
        for seed in range(options.first, options.first + options.seeds):
            for cell in table:
                for server, client in runs:
                    if cell.client not in (None, client.NAME):
                        continue
                    row = measure(server, client, cell, seed, films.get(client.FILM))
                    if row:
                        out.write(json.dumps(row) + "\n")
                        out.flush()
                        print(short(row), flush=True)
                        rows.append({name: row[name] for name in ("server", "client", "cell", "figures")})
    report(rows)


if __name__ == "__main__":
    main()
