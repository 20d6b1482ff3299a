"""Rates and estimate over time, as SVG: what a server sent, what arrived, and its estimate of the path.

graph.py CELLS.jsonl OUT.svg NETWORK [NETWORK ...] [--server NAME] [--seed N]: CELLS.jsonl is written by networks.py; the networks are drawn one
below the other.
"""

import argparse
import json

import cells

WIDTH, HEIGHT, LEFT, TOP, BELOW = 760, 170, 52, 26, 24
# Name, colour, and dashes of each line.
LINES = {"line": ("#888", "4 3"), "sent": ("#0a62c9", ""), "estimate": ("#d4541c", "")}


def rates(line, begun):
    """Megabits per second towards the viewer between two samples, at the middle of the interval."""
    out = []
    for before, after in zip(line, line[1:]):
        took = (after["at"] - before["at"]) / 1000
        if took > 0.1:
            bits = (after["back"]["bytes"] - before["back"]["bytes"]) * 8
            out.append(((before["at"] + after["at"]) / 2000 - begun / 1000, bits / took / 1e6))
    return out


def capacity(cell):
    """Capacity of the path over time, in steps."""
    wide, cut = cell.bits / 1e6, cell.cut_bits / 1e6
    if not cell.cut:
        return [(0, wide), (cell.seconds, wide)]
    begin, end = cells.CUT_AT, cells.CUT_AT + cell.cut
    return [(0, wide), (begin, wide), (begin, cut), (end, cut), (end, wide), (cell.seconds, wide)]


def series(row):
    cell = next(cell for cell in cells.SHORT if cell.name == row["cell"])
    line, begun = row["seen"]["line"], row["seen"]["began"]
    estimates = [((look["at"] - begun) / 1000, look["estimate"] / 1e6) for look in line if look.get("estimate")]
    return cell, {"line": capacity(cell), "sent": rates(line, begun), "estimate": estimates}


def panel(row, top):
    cell, lines = series(row)
    # Rates above twice the stream's are cut off, because the exact capacity of a wide path says nothing.
    most = min(2 * cells.STREAM / 1e6, 1.1 * max(rate for points in lines.values() for _, rate in points))
    x = lambda at: LEFT + at / cell.seconds * (WIDTH - LEFT - 12)
    y = lambda rate: top + HEIGHT - min(rate, most) / most * HEIGHT
    out = [f'<text x="{LEFT}" y="{top - 8}" font-weight="600">{row["cell"]}</text>',
           f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 12}" height="{HEIGHT}" fill="none" stroke="#bbb"/>']
    for rate in range(int(most) + 1):
        out.append(f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate}</text>')
        out.append(f'<path d="M{LEFT} {y(rate):.1f}H{WIDTH - 12}" stroke="#ddd"/>')
    out += [f'<text x="{x(at):.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{at} s</text>' for at in range(0, cell.seconds + 1, 4)]
    for name, points in lines.items():
        colour, dashes = LINES[name]
        path = "M" + "L".join(f"{x(at):.1f} {y(rate):.1f}" for at, rate in points if 0 <= at <= cell.seconds)
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dashes}"/>')
    return out


def legend():
    words = {"line": "the line", "sent": "sent", "estimate": "estimated by the server"}
    return [f'<text x="{LEFT + 130 * (place + 2)}" y="{TOP - 8}" fill="{LINES[name][0]}">{words[name]}</text>' for place, name in enumerate(LINES)]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows")
    options.add_argument("out")
    options.add_argument("networks", nargs="+")
    options.add_argument("--server", default="millstream")
    options.add_argument("--seed", type=int, default=2)
    options = options.parse_args()
    with open(options.rows) as file:
        rows = [json.loads(line) for line in file]
    found = {row["cell"]: row for row in rows if (row["server"], row["seed"]) == (options.server, options.seed)}
    panels = [panel(found[name], TOP + place * (HEIGHT + TOP + BELOW)) for place, name in enumerate(options.networks)]
    height = len(panels) * (HEIGHT + TOP + BELOW) + 6
    body = "\n".join(line for lines in [legend(), *panels] for line in lines)
    with open(options.out, "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
                  f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n<text x="8" y="{TOP - 8}">Mb/s</text>\n{body}\n</svg>\n')


if __name__ == "__main__":
    main()
