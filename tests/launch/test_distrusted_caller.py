# SPDX-License-Identifier: Apache-2.0
"""A set-user-id program takes no variable and no settings of the user who starts it: they would
name modules that run with its rights, and files that it writes. Each case is run without
set-user-id first, and works there: else it would show nothing."""

import os
import shutil
import unittest

from support import OK, RANK, LaunchTest, free_port

NOBODY = 65534
EVIL = os.environ["PARALLAX_TEST_EVIL"]  # the library of evil.c
UNSUPPORTED = -2


def why_not():
    """A reason why set-user-id programs cannot be tried here, or None."""
    if os.geteuid() != 0:
        return "only root can give a program away (sudo)"
    with open("/proc/self/status", encoding="ascii") as file:
        if "NoNewPrivs:\t1\n" in file.read():
            return "this process may gain no rights (no_new_privs)"
    return None


class DistrustedCaller(LaunchTest):
    def setUp(self):
        super().setUp()
        if reason := why_not():
            self.skipTest(reason)
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest(f"{self.folder} is mounted nosuid")
        os.chmod(self.folder, 0o755)
        self.plain = os.path.join(self.folder, "plain")
        self.privileged = os.path.join(self.folder, "privileged")
        for program in (self.plain, self.privileged):
            shutil.copy(RANK, program)
            os.chmod(program, 0o755)
        os.chmod(self.privileged, 0o4755)  # of root, as the file is
        self.written = os.path.join(self.folder, "open_to_all")
        os.mkdir(self.written)
        os.chmod(self.written, 0o777)

    def run_ranks(self, program, hosts, **environment):
        """A rank on each of `hosts` hosts, by root the plain program, by nobody the privileged one;
        what they said and how the first ended. The libraries may lie where root alone can read."""
        user = [] if program == self.plain else [
            "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        where = "" if hosts == 1 else f"tcp:127.0.0.1:{free_port()}"
        common = [*user, program, "--world", str(hosts), "--rendezvous", where, "--steps", "1",
                  "--topology", "1", "--transport", "ucx"]
        ranks = [self.start(common + ["--rank", str(rank), "--host", f"h{rank}"], **environment)
                 for rank in range(hosts)]
        outcomes = [rank.outcome() for rank in ranks]
        return "".join(rank.text for rank in ranks), outcomes[0]

    def evil(self, name):
        shutil.copy(EVIL, os.path.join(self.folder, name))

    def test_names_no_module(self):
        self.evil("libparallax_ucx.so")
        text, _ = self.run_ranks(self.plain, 2, PARALLAX_MODULE_DIR=self.folder)
        self.assertIn("EVIL", text)
        text, (status, sentence) = self.run_ranks(self.privileged, 2,
                                                  PARALLAX_MODULE_DIR=self.folder)
        self.assertNotIn("EVIL", text)
        self.assertEqual(status, UNSUPPORTED, sentence)
        self.assertIn("set-user-id", sentence)
        self.assertIn("ulimit -l", sentence)

    def test_names_no_plugin_of_hwloc(self):
        self.evil("hwloc_evil.so")
        environment = {"HWLOC_PLUGINS_PATH": self.folder, "PARALLAX_DEBUG": "none"}
        text, (status, sentence) = self.run_ranks(self.plain, 1, **environment)
        self.assertEqual(status, OK, sentence)
        if "EVIL" not in text:
            self.skipTest("this hwloc has no plugins")
        text, (status, sentence) = self.run_ranks(self.privileged, 1, **environment)
        self.assertEqual(status, OK, sentence)
        self.assertNotIn("EVIL", text)

    def test_names_no_file_to_write(self):
        for case in ("variable", "file of settings"):
            with self.subTest(case=case):
                log = os.path.join(self.written, "log")
                environment = {"HOME": self.written}
                if case == "variable":
                    environment.update(PARALLAX_DEBUG="info", PARALLAX_DEBUG_FILE=log)
                else:
                    with open(os.path.join(self.written, ".parallax.conf"), "w",
                              encoding="ascii") as file:
                        file.write(f"debug = info\ndebug_file = {log}\n")
                self.assertEqual(self.run_ranks(self.plain, 1, **environment)[1][0], OK)
                self.assertTrue(os.path.exists(log))
                os.remove(log)
                self.assertEqual(self.run_ranks(self.privileged, 1, **environment)[1][0], OK)
                self.assertFalse(os.path.exists(log))


if __name__ == "__main__":
    unittest.main()
