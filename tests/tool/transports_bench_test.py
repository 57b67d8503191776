"""bench/transports/run's driver: what it makes of ways that are absent, break off, or hang."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import tempfile
import time

import support

# It has no suffix.
PATH = os.path.join(support.SOURCE, "bench", "transports", "run")
LOADER = importlib.machinery.SourceFileLoader("transports_run", PATH)
SPEC = importlib.util.spec_from_loader("transports_run", LOADER)
driver = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(driver)

FIGURES = 'figures {"trip_us": 2, "gb_per_s": [3, 4], "cpu_s_per_gb": [5, 6]}'
GOOD = ["sh", "-c", f"echo address $0; read there; echo '{FIGURES}'"]


def measured(second, timeout_s=60):
    return driver.figures_of([GOOD + ["first"], second], dict(os.environ), timeout_s)


class Ways(support.Case):
    def test_two_that_agree_give_their_figures(self):
        figures = measured(GOOD + ["second"])
        self.assertEqual(driver.row_of(figures), [2, 3, 10, 4, 12])

    def test_what_is_wrong_is_said(self):
        for second, why in ((["/nowhere/at/all"], "cannot be started"),
                            (["sh", "-c", "exit 3"], "ended with 3|broke off"),
                            (["sh", "-c", "echo address x; read there; exit 3"], "ended with 3"),
                            (["sh", "-c", "echo address x; echo 'figures {'"], "broke off"),
                            (["sh", "-c", "echo address x; read there"], "without its figures")):
            with self.assertRaisesRegex(driver.Failed, why):
                measured(second)

    def test_one_that_hangs_is_ended_with_what_it_started(self):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="parallax_") as folder:
            mark = os.path.join(folder, "pid")
            with self.assertRaisesRegex(driver.Failed, "was not done within 1 s"):
                measured(["sh", "-c", f"sleep 1000 & echo $! > {mark}; printf half; wait"], 1)
            with open(mark, encoding="utf-8") as file:
                child = int(file.read())
        self.assertLess(time.monotonic() - began, support.PATIENCE_S)
        for _ in range(1000):
            if not is_running(child):
                break
            time.sleep(0.01)
        self.assertFalse(is_running(child))

    def test_the_others_go_on(self):
        turns = []

        def way(name, _hosts, _options):
            turns.append(name)
            if name == "ucx" and len(turns) > 3:
                raise driver.Failed("failed")
            if name == "gloo":
                raise BrokenPipeError("broken pipe")
            return [{"trip_us": 1, "gb_per_s": [1, 1], "cpu_s_per_gb": [1, 1]}] * 2

        usual, driver.start_of = driver.start_of, lambda name: way
        try:
            options = argparse.Namespace(ways=["encrypt", "ucx", "gloo"], rounds=3)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                rows, absent = driver.measure(None, options)
        finally:
            driver.start_of = usual
        self.assertEqual(list(rows), ["encrypt"])
        self.assertEqual(len(rows["encrypt"]), 3)
        self.assertEqual(sorted(absent), ["gloo", "ucx"])
        self.assertIn("ucx failed; the others go on", said.getvalue())

    def test_the_deadline_follows_size_and_rate(self):
        for mbit, megabytes in ((100, 1000), (10, 100), (1000, 1000), (None, 20000)):
            mb_per_s = 1000 if mbit is None else mbit / 8
            needed = 2.2 * megabytes / mb_per_s
            self.assertGreater(driver.seconds_allowed(mbit, megabytes, 10000), 2 * needed)
        self.assertLess(driver.seconds_allowed(None, 10, 100), 120)


def is_running(pid):
    """A child of another process: gone, or a zombie that nobody has asked for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    support.main()
