"""Computes the figures of a run from its observations, and tables from runs."""

import statistics

import cells
import servers

# Seconds in which the estimate of a path settles; what is sent meanwhile is not judged.
SETTLED_S = 5
# Pictures have returned when this many have arrived within this time.
BACK_S, BACK_SHARE = 2.0, 0.9
# Minimum samples of the statistics with both clocks to judge lip sync.
LIPS_LOOKS = 8

# Figure: heading, decimals, whether more is better (`None`: not judged, because one long freeze is no better than ten short ones), and the
# largest difference that nobody notices.
COLUMNS = {
    "pictures": ("pictures, %", 1, True, 1.0),
    "first": ("first after, s", 2, False, 0.1),
    "longest": ("longest freeze, s", 2, False, 0.1),
    "freezes": ("freezes", 0, None, 0),
    "still": ("still, s", 1, False, 0.3),
    "concealed": ("sound concealed, %", 1, False, 0.5),
    "lips": ("lips p95, ms", 0, False, 40),
    "video": ("video, Mb/s", 2, True, 0.1),
    "recovery": ("back after a cut, s", 1, False, 0.3),
    "sent": ("sent / deliverable", 2, None, 0.0),
    "dropped": ("dropped by the queue, %", 1, None, 0.0),
}
JUDGED = [name for name, (_, _, is_more_better, _) in COLUMNS.items() if is_more_better is not None]


def of(cell, seen):
    """The figures of one run; a missing figure is `None`."""
    begun = seen["began"]
    at = [(one - begun) / 1000 for one in seen["pictures"] if 0 <= one - begun <= cell.seconds * 1000]
    video = [look["video"] for look in seen["looks"] if look.get("video")]
    last = video[-1] if video else {}
    return {
        "pictures": 100 * min(1, len(at) / (servers.FPS * cell.seconds)),
        "first": at[0] if at else cell.seconds,
        "longest": longest(at, cell.seconds),
        "freezes": freezes(at, cell.seconds),
        "still": still(at, cell.seconds),
        "concealed": concealed(seen["looks"]),
        "lips": lips(seen["looks"]),
        "recovery": recovery(at, cell),
        "video": 8 * (last.get("bytesReceived") or 0) / cell.seconds / 1e6 if seen.get("way") == "there" else None,
        **carried(cell, seen["line"], begun, seen.get("way", "back")),
        "lost": last.get("packetsLost"), "asked": last.get("nackCount"), "keys": last.get("keyFramesDecoded"), "plis": last.get("pliCount"),
    }


def gaps(at, end):
    """Intervals without a new picture, from the first picture until the end."""
    return [after - before for before, after in zip(at, [*at[1:], end])]


def longest(at, end):
    return max(gaps(at, end), default=end)


def frozen(at, end):
    """Freezes as browsers define them: intervals longer than three times the usual one, and than the usual one plus 150 ms."""
    usual = 1 / servers.FPS
    return [gap for gap in gaps(at, end) if gap > max(3 * usual, usual + 0.15)] if at else [end]


def freezes(at, end):
    return len(frozen(at, end))


def still(at, end):
    return sum(frozen(at, end))


def concealed(looks):
    """The share of the samples that were made up: all where no audio came, `None` where the client does not count them."""
    last = next((look["audio"] for look in reversed(looks) if look.get("audio")), {"concealedSamples": 0, "totalSamplesReceived": 0})
    made_up, played = last.get("concealedSamples"), last.get("totalSamplesReceived")
    if made_up is None or played is None:
        return None
    return 100 * made_up / played if played else 100


def lips(looks):
    """The 95th percentile of the offset between video and audio in milliseconds, while pictures arrived."""
    apart, before = [], 0
    for look in looks:
        video, audio = look.get("video") or {}, look.get("audio") or {}
        has_new = (video.get("framesDecoded") or 0) > before
        before = video.get("framesDecoded") or before
        if has_new and video.get("estimatedPlayoutTimestamp") and audio.get("estimatedPlayoutTimestamp"):
            apart.append(abs(video["estimatedPlayoutTimestamp"] - audio["estimatedPlayoutTimestamp"]))
    return sorted(apart)[int(len(apart) * 0.95)] if len(apart) >= LIPS_LOOKS else None


def recovery(at, cell):
    """Time from the end of the cut until pictures arrive at their full rate again."""
    if not cell.cut:
        return None
    end = cells.CUT_AT + cell.cut
    usual = min(1, cell.rate) * servers.FPS
    starts = [end, *(one for one in at if one > end)]
    enough = BACK_SHARE * BACK_S * usual
    back = next((one for one in starts if sum(one <= other < one + BACK_S for other in at) >= enough), cell.seconds)
    return back - end


def carried(cell, line, begun, way):
    """Bytes sent once the estimate has settled, as a share of what the path could carry (or, on a wide path, of the stream's own rate);
    and the percentage of datagrams that the queue of the path dropped."""
    back = [(((look["at"] - begun) / 1000), look[way]) for look in line]
    settled = next((one for one in back if one[0] >= SETTLED_S), back[-1])
    (begin, first), (end, last) = settled, back[-1]
    possible = cell.deliverable(begin, end)
    return {
        "sent": (last["bytes"] - first["bytes"]) / possible if possible and cell.rate < cells.WIDE else
                (last["bytes"] - first["bytes"]) * 8 / (cells.STREAM * (end - begin)) if end > begin else None,
        "dropped": 100 * last["dropped"] / last["offered"] if last["offered"] else 0,
    }


def spread(values):
    return max(values) - min(values)


def text(name, values):
    """The median, and the range of the seeds."""
    decimals = COLUMNS[name][1]
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{decimals}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{decimals}f} to {max(values):.{decimals}f})"


def client_of(row):
    """Runs of former times name no client."""
    return row.get("client", "chromium")


def grouped(rows, *keys):
    """The figures of the rows that have the same network and keys, by these."""
    out = {}
    for cell in dict.fromkeys(row["cell"] for row in rows):
        for row in rows:
            if row["cell"] == cell:
                out.setdefault((cell, *(key(row) for key in keys)), []).append(row["figures"])
    return out


def table(rows):
    """A row for each network, server and client; clients are named where there are several."""
    keys = {"server": lambda row: row["server"]}
    if len(set(map(client_of, rows))) > 1:
        keys["client"] = client_of
    head = ["network", *keys, *(column[0] for column in COLUMNS.values())]
    out = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for of_row, found in grouped(rows, *keys.values()).items():
        out.append("| " + " | ".join([*of_row, *(text(name, [one[name] for one in found]) for name in COLUMNS)]) + " |")
    return "\n".join(out)


def is_worse(name, ours, theirs):
    """True if a figure is worse by more than the spread of the seeds and by more than anybody notices."""
    _, _, is_more_better, unnoticed = COLUMNS[name]
    ours, theirs = ([value for value in values if value is not None] for values in (ours, theirs))
    if not ours or not theirs:
        return False
    by = statistics.median(theirs) - statistics.median(ours)
    by = by if is_more_better else -by
    return by > max(spread(ours), spread(theirs), unnoticed)


def worse(rows, ours=servers.Millstream.NAME):
    """Figures in which another server is better for the same client: network, figure, both medians and their spread."""
    out = []
    several = len(set(map(client_of, rows))) > 1
    found = grouped(rows, client_of, lambda row: row["server"])
    for (cell, client, server), theirs in found.items():
        of_ours = found.get((cell, client, ours))
        for name in JUDGED if server != ours and of_ours else []:
            pair = [[one[name] for one in figures] for figures in (of_ours, theirs)]
            if is_worse(name, *pair):
                where = f"{cell}, {client}" if several else cell
                out.append(f"{where}: {COLUMNS[name][0]}: {ours} {text(name, pair[0])}, {server} {text(name, pair[1])}")
    return out


def differ(rows, usual="chromium"):
    """Figures in which a client is worse off than the usual one, at the same server and network."""
    out = []
    found = grouped(rows, lambda row: row["server"], client_of)
    for (cell, server, client), theirs in found.items():
        known = found.get((cell, server, usual))
        for name in JUDGED if client != usual and known else []:
            pair = [[one[name] for one in figures] for figures in (theirs, known)]
            if is_worse(name, *pair):
                out.append(f"{cell}, {server}: {COLUMNS[name][0]}: {client} {text(name, pair[0])}, {usual} {text(name, pair[1])}")
    return out
