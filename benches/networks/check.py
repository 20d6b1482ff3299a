"""Tests of the tables of networks and the figures of runs, without a server. `make networks` runs them before it measures.

    python3 -m unittest -b check      (in benches/networks)
"""

import itertools
import unittest
import xml.etree.ElementTree

import cells
import clients
import figures
import graph
import networks
import servers
import stacks


def run_of(pictures, seconds=24, **more):
    """A run whose viewer got its answer at time 0."""
    line = [{"at": at * 1000, "back": {"bytes": at * 100_000, "offered": at * 100_000, "dropped": at * 10_000}} for at in range(seconds + 1)]
    return {"began": 0, "pictures": [round(at * 1000) for at in pictures], "looks": [], "line": line, **more}


def even(begin, end, fps=servers.FPS):
    return [begin + number / fps for number in range(round((end - begin) * fps))]


class Tables(unittest.TestCase):
    def test_each_pair_of_values_is_in_a_row(self):
        rows, missing = cells.rows()
        self.assertEqual(missing, set())
        self.assertLessEqual(len(rows), cells.CELLS_MAX)
        for (one, first), (two, second) in itertools.combinations(enumerate(cells.FACTORS), 2):
            found = {(row[one], row[two]) for row in rows}
            self.assertEqual(len(found), len(first) * len(second), (first, second))

    def test_the_table_is_the_same_every_time(self):
        self.assertEqual(cells.pairwise(), cells.pairwise())
        self.assertEqual(len({cell.name for cell in cells.pairwise()}), len(cells.pairwise()))
        self.assertEqual(len(cells.SHORT), 8)

    def test_clients_are_one_more_factor_of_the_table(self):
        factors = (*cells.FACTORS, cells.CLIENTS)
        rows, missing = cells.rows(factors)
        self.assertEqual(missing, set())
        self.assertLessEqual(len(rows), cells.CELLS_MAX)
        self.assertEqual(cells.CLIENTS, clients.NAMES)
        table = cells.pairwise(True)
        self.assertEqual((len({cell.name for cell in table}), {cell.client for cell in table}), (len(rows), set(clients.NAMES)))
        self.assertEqual({cell.client for cell in cells.SHORT}, {None})

    def test_a_cut_takes_its_share_of_what_can_be_delivered(self):
        cell = cells.Cell("", rate=1, cut=2)
        self.assertAlmostEqual(cell.deliverable(0, 5), 5 * cells.STREAM / 8)
        self.assertAlmostEqual(cell.deliverable(0, 24), (22 + 2 * cells.CUT_TO) * cells.STREAM / 8)
        self.assertAlmostEqual(cell.deliverable(9, 24), (14 + cells.CUT_TO) * cells.STREAM / 8)
        self.assertAlmostEqual(cells.Cell("", rate=0.2, cut=2).deliverable(0, 24), 24 * 0.2 * cells.STREAM / 8)


class Figures(unittest.TestCase):
    def test_a_whole_run_has_every_picture_and_no_freeze(self):
        found = figures.of(cells.Cell("", rate=1), run_of(even(0, 24)))
        self.assertEqual((found["pictures"], found["freezes"], found["still"], found["recovery"]), (100, 0, 0, None))
        self.assertLess(found["longest"], 0.05)

    def test_a_run_without_a_picture_is_one_freeze(self):
        found = figures.of(cells.Cell("", rate=1), run_of([]))
        names = ("pictures", "first", "longest", "freezes", "still", "concealed")
        self.assertEqual([found[name] for name in names], [0, 24, 24, 1, 24, 100])

    def test_the_tail_without_pictures_is_a_freeze(self):
        found = figures.of(cells.Cell("", rate=1), run_of([*even(0, 5), *even(6, 20)]))
        self.assertEqual(found["freezes"], 2)
        self.assertAlmostEqual(found["longest"], 4, 1)
        self.assertAlmostEqual(found["still"], 5, 0)

    def test_recovery_is_when_the_rate_is_back_and_not_the_first_picture(self):
        cell = cells.Cell("", rate=1, cut=2)
        end = cells.CUT_AT + cell.cut
        run = run_of([*even(0, cells.CUT_AT), end + 0.1, *even(end + 3, cell.seconds)], cell.seconds)
        self.assertAlmostEqual(figures.of(cell, run)["recovery"], 3, 1)
        self.assertEqual(figures.of(cell, run_of(even(0, 8), cell.seconds))["recovery"], cell.seconds - end)
        self.assertEqual(figures.of(cell, run_of(even(0, cell.seconds), cell.seconds))["recovery"], 0)

    def test_what_was_sent_is_compared_with_the_line_or_else_with_the_stream(self):
        narrow = cells.Cell("", rate=0.5)
        found = figures.of(narrow, run_of(even(0, 24)))
        self.assertAlmostEqual(found["sent"], 100_000 * 8 / narrow.bits)
        self.assertAlmostEqual(found["dropped"], 10)
        self.assertAlmostEqual(figures.of(cells.Cell(""), run_of(even(0, 24)))["sent"], 100_000 * 8 / cells.STREAM)

    def test_of_a_publisher_the_way_to_the_server_and_the_video_that_came_count(self):
        line = [{"at": at * 1000, "back": {"bytes": 0}, "there": {"bytes": at * 50_000, "offered": at * 50_000, "dropped": 0}} for at in range(25)]
        looks = [{"video": {"framesDecoded": 1, "bytesReceived": 3_000_000}}]
        cell = cells.Cell("", rate=0.5)
        found = figures.of(cell, {**run_of(even(0, 24)), "line": line, "looks": looks, "way": "there"})
        self.assertAlmostEqual(found["sent"], 50_000 * 8 / cell.bits)
        self.assertEqual((found["video"], found["dropped"]), (1, 0))
        self.assertIsNone(figures.of(cell, run_of(even(0, 24)))["video"])

    def test_lips_count_only_while_pictures_come(self):
        look = lambda frames, apart: {"video": {"framesDecoded": frames, "estimatedPlayoutTimestamp": 1000 + apart},
                                      "audio": {"estimatedPlayoutTimestamp": 1000}}
        looks = [look(number, 30) for number in range(1, 21)]
        self.assertEqual(figures.lips(looks + [look(20, 5000)] * 20), 30)
        self.assertIsNone(figures.lips(looks[:5]))

    def test_a_difference_within_the_seeds_is_a_tie(self):
        self.assertTrue(figures.is_worse("pictures", [50, 52], [80, 82]))
        self.assertFalse(figures.is_worse("pictures", [50, 82], [80, 82]))
        self.assertFalse(figures.is_worse("pictures", [80, 82], [50, 52]))
        self.assertTrue(figures.is_worse("longest", [3.0, 3.1], [1.0, 1.1]))
        self.assertFalse(figures.is_worse("longest", [0.15], [0.1]))
        self.assertFalse(figures.is_worse("recovery", [None], [None]))
        self.assertNotIn("freezes", figures.JUDGED)

    def test_the_report_names_the_network_where_another_is_better(self):
        row = lambda server, pictures: {"server": server, "cell": "75 %", "figures": {name: 1 for name in figures.COLUMNS} | {"pictures": pictures}}
        found = figures.worse([row(servers.Millstream.NAME, 40), row("MediaMTX", 90)])
        self.assertEqual(found, ["75 %: pictures, %: millstream 40.0, MediaMTX 90.0"])
        self.assertIn("| 75 % | MediaMTX | 90.0 |", figures.table([row("MediaMTX", 90)]))

    def test_a_figure_that_a_client_does_not_have_is_none(self):
        self.assertIsNone(figures.concealed([{"audio": {"concealedSamples": 1, "totalSamplesReceived": None}}]))
        self.assertIsNone(figures.concealed([{"audio": {"packetsReceived": 1}}]))
        self.assertEqual(figures.concealed([{"audio": {"concealedSamples": 1, "totalSamplesReceived": 4}}, {}]), 25)
        self.assertEqual(figures.concealed([{"video": {}}]), 100)

    def test_clients_are_named_where_there_are_several(self):
        row = lambda client, pictures: {"server": "millstream", "client": client, "cell": "75 %",
                                        "figures": {name: 1 for name in figures.COLUMNS} | {"pictures": pictures}}
        rows = [row("chromium", 90), row("pion", 40)]
        self.assertNotIn("| client |", figures.table(rows[:1]))
        self.assertIn("| server | client |", figures.table(rows))
        self.assertIn("| 75 % | millstream | pion | 40.0 |", figures.table(rows))
        self.assertEqual(figures.differ(rows), ["75 %, millstream: pictures, %: pion 40.0, chromium 90.0"])
        self.assertEqual(figures.worse([*rows, row("pion", 80) | {"server": "MediaMTX"}]), ["75 %, pion: pictures, %: millstream 40.0, MediaMTX 80.0"])

    def test_a_graph_has_what_the_line_carries_what_was_sent_and_the_estimate(self):
        line = [{"at": at * 1000, "back": {"bytes": at * 100_000}, "estimate": 900_000 if at > 2 else None} for at in range(25)]
        row = {"cell": "cut to 30 % for 8 s", "seen": {"began": 0, "line": line}}
        cell, lines = graph.series(row)
        self.assertEqual(lines["sent"][0], (0.5, 0.8))
        self.assertEqual(lines["estimate"][0], (3.0, 0.9))
        self.assertEqual([at for at, _ in lines["line"]], [0, 8, 8, 16, 16, cell.seconds])
        xml.etree.ElementTree.fromstring("<svg>" + "".join(graph.panel(row, 0)) + "</svg>")


class Clients(unittest.TestCase):
    def test_a_client_is_chosen_by_its_name(self):
        self.assertEqual([client.NAME for client in networks.named("pion, Chromium")], ["chromium", "pion"])
        with self.assertRaisesRegex(SystemExit, "opera"):
            networks.named("opera")

    def test_a_server_that_has_no_film_or_signalling_for_a_client_is_left_out(self):
        found = networks.pairs((servers.Millstream, servers.Janus), networks.named("firefox,pion"))
        self.assertEqual([(server.NAME, client.NAME) for server, client in found], [("millstream", "firefox"), ("millstream", "pion")])

    def test_the_relay_is_the_only_candidate_of_the_server(self):
        lines = ["v=0", "a=candidate:1 1 tcp 1 127.0.0.1 9 typ host", "a=candidate:2 1 UDP 1 fd00::1 7 typ host",
                 "a=candidate:3 1 udp 1 127.0.0.1 5000 typ host", "a=candidate:4 1 udp 1 127.0.0.1 5001 typ host", "a=end-of-candidates"]
        answer = "\r\n".join(lines)
        self.assertEqual(stacks.wanted(answer), "127.0.0.1:5000")
        self.assertEqual(stacks.relayed(answer, 77).split("\r\n"), ["v=0", "a=candidate:3 1 udp 1 127.0.0.1 77 typ host", lines[-1], ""])
        self.assertEqual(stacks.bare(answer), "v=0\r\n")
        self.assertIsNone(stacks.wanted("v=0"))

    def test_missing_and_late_audio_is_concealed_once(self):
        sound = [[1000 + 20 * number, 20 * number] for number in range(100)]
        share = lambda packets: figures.concealed([{"audio": stacks.concealed(packets)}])
        self.assertEqual(share(sound), 0)
        self.assertEqual(share([one for number, one in enumerate(sound) if number not in (10, 50)]), 2)
        late = lambda ms: [[at + (ms if number >= 40 else 0), media] for number, (at, media) in enumerate(sound)]
        self.assertEqual((share(late(stacks.PLAYOUT_MS)), share(late(stacks.PLAYOUT_MS + 1))), (0, 1))
        self.assertEqual(share(sound + sound[:9]), 0)
        self.assertIsNone(stacks.concealed([]))


if __name__ == "__main__":
    unittest.main()
