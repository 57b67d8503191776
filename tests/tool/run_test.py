"""parallax run: environment, output, failures, signals, nothing left behind, other hosts."""

import os
import re
import signal
import subprocess
import unittest

import support
from support import (PARALLAX, alive, environment, free_port, marked_sleep, parallax, start,
                     wait_until)

FAKE_SSH = """#!/usr/bin/env python3
# Runs the command on this machine as sshd would: through a shell in a session of its own, with an
# environment of its own, its standard input relayed. Killing this leaves that, as with ssh.
import os, subprocess, sys, threading
with open(os.environ["FAKE_SSH_LOG"], "a") as log:
    print(*sys.argv[1:], file=log)
if sys.argv[1:4] != ["-o", "BatchMode=yes", "--"]:
    sys.exit(255)
remote = subprocess.Popen(["sh", "-c", sys.argv[5]], stdin=subprocess.PIPE, start_new_session=True,
                          env={name: os.environ[name] for name in ("PATH", "TMPDIR")
                               if name in os.environ})
def relay():
    while data := os.read(0, 4096):
        os.write(remote.stdin.fileno(), data)
    remote.stdin.close()
threading.Thread(target=relay, daemon=True).start()
os._exit(remote.wait())
"""


def tagged(text):
    """{rank: its lines}"""
    lines = {}
    for line in text.splitlines():
        match = re.match(r"\[(\d+)\] (.*)", line)
        lines.setdefault(int(match[1]), []).append(match[2])
    return lines


class Run(support.Case):
    def launch(self, *arguments, **kwargs):
        process = start(PARALLAX, "run", *arguments, **kwargs)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_tells_each_rank_its_identity(self):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                 "PARALLAX_RANK", "PARALLAX_WORLD", "PARALLAX_HOST")
        said = parallax("run", "-n", 3, "--ranks-per-host", 2, "--", "sh", "-c",
                        "echo " + " ".join(f"${n}" for n in names) + "; echo $MASTER_PORT; "
                        "echo $PARALLAX_RENDEZVOUS")
        self.assertEqual(said.returncode, 0, said.stderr)
        lines = tagged(said.stdout)
        self.assertEqual([lines[r][0] for r in range(3)],
                         ["0 3 0 2 127.0.0.1 0 3 host0", "1 3 1 2 127.0.0.1 1 3 host0",
                          "2 3 0 1 127.0.0.1 2 3 host1"])
        self.assertEqual(len({tuple(lines[r][1:]) for r in range(3)}), 1)
        self.assertGreater(int(lines[0][1]), 1023)
        folder = lines[0][2][len("file:"):]
        self.assertFalse(os.path.exists(os.path.dirname(folder)))

    def test_starts_a_job_that_says_nothing_of_itself(self):
        said = parallax("run", "-n", 4, "--ranks-per-host", 2, "--",
                        os.path.join(support.BIN, "parallax_tool_identity"))
        self.assertEqual(said.returncode, 0, said.stderr)
        identities = {r: [l for l in lines if l.startswith("identity")]
                  for r, lines in tagged(said.stdout).items()}
        self.assertEqual(identities, {0: ["identity 0 4 0 0"], 1: ["identity 1 4 0 1"],
                                  2: ["identity 2 4 1 0"], 3: ["identity 3 4 1 1"]})

    def test_the_log_says_device_and_why(self):
        said = parallax("run", "-n", 2, "--ranks-per-host", 1, "--",
                        os.path.join(support.BIN, "parallax_tool_identity"),
                        env=environment(PARALLAX_DEBUG="info", PARALLAX_DEBUG_SUBSYS="init"))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stderr, r"\[1\] .*rank 1 of 2: .*; tcp between hosts "
                                      r"\(the default\): 127\.0\.0\.1:\d+ on lo, security encrypt "
                                      r"\(every rank is on this machine\), to rank 0")

    def test_tags_whole_lines(self):
        said = parallax("run", "-n", 2, "--", "sh", "-c",
                        "printf 'a'; printf 'b\\nc'; echo error >&2; printf 'd'")
        self.assertEqual(tagged(said.stdout), {0: ["ab", "cd"], 1: ["ab", "cd"]})
        self.assertEqual(tagged(said.stderr), {0: ["error"], 1: ["error"]})
        said = parallax("run", "-n", 1, "--tag-output", "off", "--", "printf", "plain")
        self.assertEqual(said.stdout, "plain")
        long = parallax("run", "-n", 1, "--", "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x")
        self.assertEqual(long.stdout.count("x"), 300000)

    def test_says_when_output_is_lost(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("this machine has no /dev/full")
        folder = self.folder()
        with open("/dev/full", "w", encoding="utf-8") as full:
            said = subprocess.run(
                [PARALLAX, "run", "-n", "2", "--", "sh", "-c",
                 f"echo lost; sleep 0.2; echo lost; touch {folder}/$RANK"],
                env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                timeout=support.PATIENCE_S)
        self.assertEqual(said.returncode, 1)
        self.assertEqual(said.stderr.count("output of the ranks is lost: No space left"), 1)
        self.assertEqual(sorted(os.listdir(folder)), ["0", "1"])

    def test_ends_all_when_one_fails(self):
        sleep, word = marked_sleep(self)
        said = parallax("run", "-n", 3, "--", "sh", "-c",
                        f"if [ $RANK = 1 ]; then exit 7; fi; {sleep}")
        self.assertEqual(said.returncode, 7)
        self.assertIn("rank 1 (host ", said.stderr)
        self.assertIn("ended with status 7; ending the other ranks", said.stderr)
        wait_until(lambda: not alive(word), "nothing is left")

    def test_a_signal_is_128_and_its_number(self):
        said = parallax("run", "-n", 1, "--", "sh", "-c", "kill -SEGV $$")
        self.assertEqual(said.returncode, 128 + signal.SIGSEGV)
        self.assertIn("signal 11", said.stderr)

    def test_a_command_that_is_not_there(self):
        said = parallax("run", "-n", 2, "--", "/no/such/command")
        self.assertEqual(said.returncode, 127)
        self.assertIn("/no/such/command: No such file", said.stderr)

    def test_passes_signals_on(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.launch("-n", 2, "--", "sh", "-c",
                                  f"trap 'echo caught; exit 0' {number.name[3:]}; echo ready; "
                                  "while :; do sleep 0.05; done")
            ready = [process.stdout.readline(), process.stdout.readline()]
            self.assertEqual(sorted(ready), ["[0] ready\n", "[1] ready\n"])
            process.send_signal(number)
            out, _ = process.communicate(timeout=support.PATIENCE_S)
            self.assertEqual(process.returncode, 128 + number)
            self.assertEqual(tagged(out), {0: ["caught"], 1: ["caught"]})

    def test_kills_who_does_not_listen(self):
        sleep, word = marked_sleep(self)
        said = parallax("run", "-n", 2, "--grace", "0.2", "--", "sh", "-c",
                        f"if [ $RANK = 0 ]; then sleep 0.5; exit 3; fi; trap '' TERM; {sleep}")
        self.assertEqual(said.returncode, 3)
        wait_until(lambda: not alive(word), "nothing is left")

    def test_leaves_no_orphan_when_killed(self):
        sleep, word = marked_sleep(self)
        process = self.launch("-n", 2, "--", "sh", "-c",
                              f"echo $PARALLAX_RENDEZVOUS; ({sleep} & {sleep}) & {sleep}")
        folder = os.path.dirname(process.stdout.readline().split("file:")[1].strip())
        wait_until(lambda: len(alive(word)) == 6, "six processes are there")
        self.assertTrue(os.path.isdir(folder))
        process.kill()
        wait_until(lambda: not alive(word), "nothing is left")
        wait_until(lambda: not os.path.exists(folder), "the folder is removed")

    def test_the_others_may_say_what_they_noticed(self):
        said = parallax("run", "-n", 2, "--", "sh", "-c",
                        "[ $PARALLAX_RANK = 0 ] || exit 3; trap 'echo ended' TERM; sleep 0.2; "
                        "echo noticed; exit 7")
        self.assertEqual((said.returncode, said.stdout), (3, "[0] noticed\n"), said.stderr)
        self.assertIn("rank 1", said.stderr)
        self.assertNotIn("rank 0 (host", said.stderr)

    def test_leaves_no_orphan_of_a_rank_that_ended(self):
        sleep, word = marked_sleep(self)
        said = parallax("run", "-n", 2, "--", "sh", "-c", f"{sleep} & exit 0")
        self.assertEqual(said.returncode, 0, said.stderr)
        wait_until(lambda: not alive(word), "nothing is left")

    def test_refuses_wrong_usage(self):
        hosts = self.write("a: 0,1\nb\n")
        for arguments, words in (
                (("-n", 2), "put the command after --"),
                (("-n", 2, "--"), "put the command after --"),
                (("-n", 2, "./train"), "'./train' is no option of run; put the command after --"),
                (("--", "true"), "say how many ranks"),
                (("-n", 5000, "--", "true"), "at most 4096"),
                (("-n", 4, "--hosts", hosts, "--", "true"), "has room for 3"),
                (("--hosts", "/no/such/file", "--", "true"), "No such file"),
                (("--hosts", hosts, "--", "true"), "--rendezvous tcp:HOST:PORT"),
                (("-n", "two", "--", "true"), "two"),
                (("-n", 1, "--tag-output", "maybe", "--", "true"), "maybe")):
            said = parallax("run", *arguments)
            self.assertEqual(said.returncode, 2, arguments)
            self.assertIn(words, said.stderr + said.stdout, arguments)

    def test_refuses_wrong_files_of_hosts(self):
        for text, words in (("", "names no host"),
                            ("# nothing\n\n", "names no host"),
                            ("a: 0,x", "line 1: after `a:`"),
                            ("a:\n", "line 1: after `a:`"),
                            ("a: 0,,1", "line 1: after `a:`"),
                            ("a\na: 1", "line 2: a is there twice"),
                            ("-oProxyCommand=x", "line 1: '-oProxyCommand=x' is not a host"),
                            ("a b", "'a b' is not a host"),
                            (": 0", "'' is not a host")):
            said = parallax("run", "--hosts", self.write(text), "--dry-run", "--", "true")
            self.assertEqual(said.returncode, 2, text)
            self.assertIn(words, said.stderr, text)


class Rendezvous(support.Case):
    """Ranks that end before they meet are told to those that wait; nobody else is disturbed."""

    IDENTITY = os.path.join(support.BIN, "parallax_tool_identity")

    def run_ranks(self, count, script, *options, **variables):
        return parallax("run", "-n", count, "--grace", 60, *options, "--", "sh", "-c",
                        "trap '' TERM; " + script,
                        env=environment(IDENTITY=self.IDENTITY, **variables))

    def each_way(self):
        """Options and variables for each way to meet."""
        yield (), {}
        yield ("--rendezvous", f"tcp:127.0.0.1:{free_port()}"), {}
        yield ("--rendezvous", f"tcp:127.0.0.1:{free_port()}"), {"PARALLAX_SECRET": "s" * 32}

    def assert_told(self, said, rank, how, *by):
        """Each of the ranks `by` says once that that rank has ended, and nothing of another."""
        sentences = re.findall(r"^\[(.)\] open: rank (.) \(host [^)]*\) ended \((.*?)\) "
                               r"before all ranks met (?:in|at) ", said.stderr, re.M)
        self.assertEqual(sorted(sentences), [(str(r), str(rank), how) for r in by], said.stderr)

    def test_one_job_after_another(self):
        for way, variables in self.each_way():
            said = parallax("run", "-n", 4, *way, "--", self.IDENTITY, "silent", 30,
                            env=environment(**variables))
            self.assertEqual(said.returncode, 0, said.stderr)

    def test_who_ended_before_it_came_is_told(self):
        for way, variables in self.each_way():
            for rank in 0, 1:
                for end, how in (("exit 0", "exited with status 0"),
                                 ("exit 7", "exited with status 7"),
                                 ("kill -KILL $$", "killed by signal 9")):
                    said = self.run_ranks(3, f'[ $RANK != {rank} ] || {end}; "$IDENTITY"', *way,
                                          **variables)
                    self.assert_told(said, rank, how, *(r for r in range(3) if r != rank))

    def test_who_comes_late_names_who_ended_first(self):
        for way, variables in self.each_way():
            late = self.folder() + "/late"
            said = self.run_ranks(
                3, '[ $RANK != 1 ] || exit 7; '
                f'[ $RANK != 0 ] || {{ "$IDENTITY"; touch {late}; exit 1; }}; '
                f'until [ -e {late} ]; do sleep 0.05; done; sleep 0.3; "$IDENTITY"', *way,
                **variables)
            self.assert_told(said, 1, "exited with status 7", 0, 2)

    def test_who_ended_after_one_job_is_told_in_the_next(self):
        for way, variables in self.each_way():
            said = self.run_ranks(3, '"$IDENTITY" && { [ $RANK != 1 ] || exit 0; "$IDENTITY"; }',
                                  *way, **variables)
            self.assert_told(said, 1, "exited with status 0", 0, 2)

    def test_fewer_ranks_may_meet(self):
        for way, variables in self.each_way():
            said = self.run_ranks(
                3, '[ $RANK != 2 ] || exit 0; sleep 0.3; PARALLAX_WORLD=2 "$IDENTITY"', *way,
                **variables)
            self.assertEqual(said.returncode, 0, said.stderr)

    def test_who_does_not_meet_is_left_alone(self):
        said = self.run_ranks(2, '[ $RANK != 1 ] || exit 0; sleep 0.5; '
                                 'folder=${PARALLAX_RENDEZVOUS#file:}; ls -A "${folder%/*}"')
        self.assertEqual((said.returncode, said.stdout), (0, "[0] ended\n"), said.stderr)


class Hosts(support.Case):
    def fake_ssh(self, **variables):
        folder = os.path.dirname(self.write(FAKE_SSH, "ssh", 0o755))
        self.log = os.path.join(folder, "log")
        self.temporary = self.folder()
        return environment(PATH=folder + ":" + os.environ["PATH"], FAKE_SSH_LOG=self.log,
                           TMPDIR=self.temporary, **variables)

    def assert_nothing_is_left(self):
        wait_until(lambda: not os.listdir(self.temporary), "no file is left")

    def test_starts_ranks_over_ssh(self):
        hosts = self.write("far1: 2,3 # two GPUs\nlocalhost\nme@far2: 5\n")
        env = self.fake_ssh(PARALLAX_LEASE_MS="4321", OTHER="it's", UNSAID="x")
        said = parallax("run", "--hosts", hosts, "--rendezvous", "file:/shared/x", "--env", "OTHER",
                        "--", "sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE "
                        "$MASTER_ADDR $PARALLAX_HOST gpu=$CUDA_VISIBLE_DEVICES $PARALLAX_LEASE_MS "
                        "$PARALLAX_RENDEZVOUS $OTHER $UNSAID; pwd", env=env)
        self.assertEqual(said.returncode, 0, said.stderr)
        lines = tagged(said.stdout)
        tail = "4321 file:/shared/x it's"
        self.assertEqual([lines[r][0] for r in range(4)],
                         [f"0 4 0 2 far1 far1 gpu=2,3 {tail}", f"1 4 1 2 far1 far1 gpu=2,3 {tail}",
                          f"2 4 0 1 far1 localhost gpu= {tail} x",
                          f"3 4 0 1 far1 me@far2 gpu=5 {tail}"])
        self.assertEqual({lines[r][1] for r in range(4)}, {os.getcwd()})
        with open(self.log, encoding="utf-8") as file:
            called = re.findall(r"^-o BatchMode=yes -- (\S+) exec sh -c", file.read(), re.M)
        self.assertEqual(sorted(called), ["far1", "far1", "me@far2"])

    def test_a_remote_failure_ends_all(self):
        sleep, word = marked_sleep(self)
        hosts = self.write("far1\nfar2\nlocalhost\n")
        said = parallax("run", "--hosts", hosts, "--rendezvous", "file:/x", "--grace", 1, "--",
                        "sh", "-c", f"if [ $RANK = 1 ]; then exit 9; fi; {sleep}",
                        env=self.fake_ssh())
        self.assertEqual(said.returncode, 9, said.stderr)
        self.assertIn("rank 1 (host far2) ended with status 9", said.stderr)
        wait_until(lambda: not alive(word), "nothing is left there")
        self.assert_nothing_is_left()

    def test_who_ended_before_it_came_is_told_on_other_hosts(self):
        hosts = self.write("far1\nlocalhost\nfar2\n")
        way = f"tcp:127.0.0.1:{free_port()}"
        for rank in range(3):
            said = parallax("run", "--hosts", hosts, "--rendezvous", way, "--", "sh",
                            "-c", f"[ $RANK = {rank} ] || {Rendezvous.IDENTITY}; exit 0",
                            env=self.fake_ssh())
            told = re.findall(r"^\[(.)\] open: rank (.) \(host .*?\) ended \(exited with status "
                              r"0\) before all ranks met at ", said.stderr, re.M)
            self.assertEqual(sorted(told), [(str(r), str(rank)) for r in range(3) if r != rank],
                             said.stderr)
            self.assert_nothing_is_left()

    def test_without_a_file_to_tell_them_in_remote_ranks_go_on(self):
        hosts = self.write("localhost\nfar1\n")
        full = self.folder() + "/full"
        os.symlink("/dev/full", full)
        for mktemp in f"echo {full}", "exit 1":
            env = self.fake_ssh()
            self.write("#!/bin/sh\n" + mktemp + "\n", "mktemp", 0o755, os.path.dirname(self.log))
            said = parallax("run", "--hosts", hosts, "--rendezvous", "file:/x", "--", "sh", "-c",
                            "[ $RANK = 0 ] || { sleep 1; echo on; }", env=env)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(tagged(said.stdout), {1: ["on"]})

    def test_remote_ranks_end_with_the_launcher(self):
        sleep, word = marked_sleep(self)
        hosts = self.write("far1\nfar2\n")
        process = start(PARALLAX, "run", "--hosts", hosts, "--rendezvous", "file:/x", "--grace", 1,
                        "--", "sh", "-c", f"{sleep} & {sleep}", env=self.fake_ssh())
        self.addCleanup(process.communicate)
        wait_until(lambda: len(alive(word)) == 4, "four processes are there")
        process.kill()
        wait_until(lambda: not alive(word), "nothing is left there")
        self.assert_nothing_is_left()

    def test_dry_run_shows_and_starts_nothing(self):
        hosts = self.write("far1: 0\nlocalhost: 1\n")
        marker = os.path.join(self.folder(), "ran")
        said = parallax("run", "--hosts", hosts, "--rendezvous", "file:/x", "--dry-run", "--",
                        "touch", marker, env=self.fake_ssh())
        self.assertEqual(said.returncode, 0, said.stderr)
        first, second = said.stdout.splitlines()
        self.assertTrue(first.startswith("[0] far1: ssh -o BatchMode=yes -- far1 "), first)
        self.assertIn("PARALLAX_RANK=0", first)
        self.assertTrue(second.startswith("[1] localhost: env RANK=1 "), second)
        self.assertTrue(second.endswith(f"touch {marker}"), second)
        self.assertFalse(os.path.exists(marker) or os.path.exists(self.log))


if __name__ == "__main__":
    support.main()
