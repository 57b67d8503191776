"""parallax info, the precedence of settings from end to end, and the man pages."""

import json
import os
import re
import shutil
import subprocess
import unittest

import support
from support import environment, parallax, run

SUBCOMMANDS = ("info", "doctor", "run", "bench")


class Info(support.Case):
    def test_without_options_shows_build_transports_and_devices(self):
        said = parallax("info")
        self.assertEqual(said.returncode, 0, said.stderr)
        for word in ("Build", "compiler", "vectors", "Transports", "shm", "ucx", "cuda", "Devices",
                     "lo"):
            self.assertIn(word, said.stdout)
        self.assertNotIn("lease_ms", said.stdout)

    def test_json_holds_what_was_asked_for(self):
        said = parallax("info", "--json", "-b", "-m", "-d", "-t", "-c")
        whole = json.loads(said.stdout)
        self.assertEqual(set(whole), {"build", "transports", "devices", "topology", "settings",
                                      "warnings"})
        with open(os.path.join(support.SOURCE, "include/parallax/parallax.h"),
                  encoding="utf-8") as file:
            version = re.findall(r"#define PARALLAX_VERSION_[A-Z]+ (\d+)", file.read())
        self.assertEqual(whole["build"]["version"], ".".join(version))
        self.assertGreater(whole["topology"]["pus"], 0)
        quota = whole["topology"]["cpu_quota"]
        shown = parallax("info", "-t").stdout
        if quota is None:
            self.assertRegex(shown, r"CPU quota +none")
        else:
            self.assertGreater(float(quota["cores"]), 0)
            self.assertIn(f"{quota['cores']} cores, by {quota['file']}", shown)
        self.assertIn("lo", [d["name"] for d in whole["devices"]])

    def test_says_why_a_transport_was_not_found(self):
        said = parallax("info", "--json", "-m", env=environment(PARALLAX_MODULE_DIR="/nonexistent"))
        ucx = {t["name"]: t for t in json.loads(said.stdout)["transports"]}["ucx"]
        self.assertFalse(ucx["found"])
        self.assertIn("/nonexistent/libparallax_ucx.so: no such file", ucx["why"])
        cuda = {t["name"]: t for t in json.loads(said.stdout)["transports"]}["cuda"]
        self.assertFalse(cuda["found"])
        self.assertIn("/nonexistent/libparallax_cuda.so: no such file", cuda["why"])

    def test_settings_show_value_and_source(self):
        home = os.path.dirname(self.write("lease_ms = 777\ntimeout_ms = 888\n", ".parallax.conf"))
        env = environment(HOME=home, PARALLAX_TIMEOUT_MS="999", PARALLAX_TIMEOUT_SM="1")
        said = parallax("info", "-c", env=env).stdout
        self.assertRegex(said, r"lease_ms +777 +ms +.*/\.parallax\.conf line 1")
        self.assertRegex(said, r"timeout_ms +999 +ms +environment PARALLAX_TIMEOUT_MS")
        self.assertRegex(said, r"plan_mode +auto +default")
        self.assertIn("did you mean PARALLAX_TIMEOUT_MS?", said)
        full = parallax("info", "-f", env=env).stdout
        self.assertIn("a whole number, 50..4294967295", full)
        self.assertIn("A rank silent for longer is lost.", full)

    def test_a_wrong_setting_is_refused(self):
        said = parallax("info", "-c", env=environment(PARALLAX_LEASE_MS="soon"))
        self.assertEqual(said.returncode, 1)
        self.assertIn("environment PARALLAX_LEASE_MS: lease_ms is 'soon'", said.stderr)
        self.assertRegex(said.stdout,
                         "lease_ms +5000 +ms +WRONG, environment PARALLAX_LEASE_MS: 'soon'")
        self.assertRegex(said.stdout, "timeout_ms +120000 ")
        said = parallax("info", "-b", env=environment(PARALLAX_LEASE_MS="soon"))
        self.assertEqual((said.returncode, said.stdout), (1, ""))

    def test_topology_of_another_machine(self):
        sets = " ".join(f'{name}="0x00000001"' for name in
                        ("cpuset", "complete_cpuset", "nodeset", "complete_nodeset"))
        machine = self.write(f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0" {sets} gp_index="1">
<object type="NUMANode" os_index="0" local_memory="1048576" {sets} gp_index="2"/>
<object type="Core" os_index="0" {sets} gp_index="3">
<object type="PU" os_index="0" {sets} gp_index="4"/></object>
<object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[00-01]" gp_index="5">
<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:2330] [0000:0000] 00"
 pci_link_speed="0.0" gp_index="6"/>
<object type="PCIDev" pci_busid="0000:01:01.0" pci_type="0207 [15b3:1021] [0000:0000] 00"
 pci_link_speed="0.0" gp_index="7"><object type="OSDev" name="mlx5_7" osdev_type="3" gp_index="8"/>
</object></object></object></topology>
""", "machine.xml")
        env = environment(PARALLAX_TOPOLOGY_XML=machine)
        said = parallax("info", "-t", env=env)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"hardware threads +1, 1 allowed here")
        self.assertRegex(said.stdout,
                         r"(?m)^NUMA node 0; nearest mlx5_7\n"
                         r"\|-- GPU 0000:01:00.0 NVIDIA 10de:2330; nearest mlx5_7\n"
                         r"`-- NIC mlx5_7 0000:01:01.0$")
        whole = json.loads(parallax("info", "--json", "-t", "-d", env=env).stdout)
        self.assertEqual([g["nics"] for g in whole["topology"]["gpus"]], [["mlx5_7"]])
        self.assertNotIn("mlx5_7", [d["name"] for d in whole["devices"]], "devices are live")
        said = parallax("info", "-t", env=environment(PARALLAX_TOPOLOGY_XML="/no/such"))
        self.assertEqual(said.returncode, 1)
        self.assertIn("topology_xml is '/no/such': no such file; name a file", said.stderr)
        self.assertIn("topology_xml is set by environment PARALLAX_TOPOLOGY_XML", said.stderr)

    def test_markdown_is_what_the_docs_hold(self):
        with open(os.path.join(support.SOURCE, "docs/settings.md"), encoding="utf-8") as file:
            self.assertIn(parallax("info", "--markdown").stdout, file.read())

    def test_a_full_disk_is_status_1(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("this machine has no /dev/full")
        for arguments in (("info", "-c"), ("doctor",), ("--version",)):
            with open("/dev/full", "w", encoding="utf-8") as full:
                said = subprocess.run([support.PARALLAX, *arguments], env=environment(), text=True,
                                      stdout=full, stderr=subprocess.PIPE, check=False,
                                      timeout=support.PATIENCE_S)
            self.assertEqual(said.returncode, 1, arguments)
            self.assertIn("the output cannot be written: No space left on device", said.stderr)

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(parallax().returncode, 2)
        self.assertEqual(parallax("dance").returncode, 2)
        self.assertIn("no subcommand dance", parallax("dance").stderr)
        for name in SUBCOMMANDS:
            self.assertEqual(parallax(name, "--no-such-option").returncode, 2, name)
            self.assertEqual(parallax(name, "--help").returncode, 0, name)
        self.assertRegex(parallax("--version").stdout, r"^parallax \d+\.\d+\.\d+\n$")


class Open(support.Case):
    """What a program that sets nothing gets from its environment."""

    def identity(self, *arguments, prefix=(), **variables):
        return run(*prefix, os.path.join(support.BIN, "parallax_tool_identity"), *arguments,
                   env=environment(**variables))

    def test_reports_where_each_value_came_from(self):
        conf = self.write("compute_threads = 1\nhost = alpha\n")
        said = self.identity(PARALLAX_CONFIG_FILE=conf, PARALLAX_LEASE_MS="700",
                          PARALLAX_HOST="beta")
        self.assertEqual(said.returncode, 0, said.stderr)
        line = [l for l in said.stdout.splitlines() if l.startswith("settings ")][0]
        rows = {r["name"]: r for r in json.loads(line[9:])["settings"]}
        self.assertEqual((rows["lease_ms"]["value"], rows["lease_ms"]["source"]),
                         ("700", "environment"))
        self.assertEqual((rows["host"]["value"], rows["host"]["source"]), ("beta", "environment"))
        self.assertEqual((rows["compute_threads"]["value"], rows["compute_threads"]["where"]),
                         ("1", conf + " line 1"))
        self.assertEqual(rows["timeout_ms"]["source"], "default")

    def test_refuses_a_wrong_value_by_name(self):
        said = self.identity(PARALLAX_PLAN_MODE="quick")
        self.assertEqual(said.returncode, 1)
        self.assertIn("open: environment PARALLAX_PLAN_MODE: plan_mode is 'quick'; it must be one "
                      "of auto, hybrid, ps, ar", said.stderr)

    def test_warns_of_an_unknown_name_once(self):
        said = self.identity("quiet", "3", PARALLAX_LEASE_SM="700")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stderr.count("PARALLAX_LEASE_SM is not a setting"), 1, said.stderr)
        self.assertIn("did you mean PARALLAX_LEASE_MS?", said.stderr)

    def test_warns_of_a_device_that_is_not_there(self):
        said = self.identity("quiet", "2", PARALLAX_NET_DEVICE="no-such0")
        self.assertEqual(said.returncode, 0, said.stderr)
        words = ("net_device is 'no-such0', from environment PARALLAX_NET_DEVICE: this machine "
                 "has no such interface")
        self.assertEqual(said.stderr.count(words), 1, said.stderr)
        self.assertEqual(self.identity("quiet", "2", PARALLAX_NET_DEVICE="lo").stderr, "")

    def test_says_nothing_by_default_and_one_line_on_request(self):
        self.assertEqual(self.identity().stderr, "")
        said = self.identity(PARALLAX_DEBUG="info", PARALLAX_DEBUG_SUBSYS="init")
        self.assertEqual(len(said.stderr.splitlines()), 1, said.stderr)
        self.assertIn("PARALLAX INFO INIT: rank 0 of 1: libparallax", said.stderr)
        self.assertIn("transport inproc: one rank alone", said.stderr)

    def test_calls_back_instead_of_writing(self):
        said = self.identity("log")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stderr, "")
        self.assertIn("log 2 INIT rank 0 of 1: libparallax", said.stdout)

    def test_logs_to_a_file_by_pattern(self):
        folder = self.folder()
        said = self.identity(PARALLAX_DEBUG="info", PARALLAX_DEBUG_FILE=folder + "/%h.%p.log")
        self.assertEqual(said.stderr, "")
        names = os.listdir(folder)
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r"^" + re.escape(os.uname().nodename) + r"\.\d+\.log$")
        with open(os.path.join(folder, names[0]), encoding="utf-8") as file:
            self.assertIn("INFO INIT: rank 0 of 1", file.read())

    def test_survives_a_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("this machine has no /dev/full")
        said = self.identity(PARALLAX_DEBUG="info", PARALLAX_DEBUG_FILE="/dev/full")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stderr.count("No space left on device"), 1, said.stderr)
        self.assertIn("INFO INIT: rank 0 of 1", said.stderr)


    def test_survives_a_read_only_folder(self):
        prefix, folder = support.read_only_folder(self)
        said = self.identity(prefix=prefix, PARALLAX_DEBUG="info",
                             PARALLAX_DEBUG_FILE=folder + "/log")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stderr.count(f"debug_file {folder}/log: Read-only file system; the "
                                           "log goes to standard error"), 1, said.stderr)
        self.assertIn("INFO INIT: rank 0 of 1", said.stderr)

    def test_knows_rules_for_faults(self):
        said = self.identity(PARALLAX_FAULTS="wobble")
        self.assertEqual(said.returncode, 1)
        self.assertIn("wobble", said.stderr)
        self.assertIn("faults is set by environment PARALLAX_FAULTS", said.stderr)
        conf = self.write("faults = wobble\n")
        said = self.identity(PARALLAX_CONFIG_FILE=conf)
        self.assertEqual(said.returncode, 1)
        self.assertIn(f"faults is set by {conf} line 1", said.stderr)


class Usage(support.Case):
    def test_wrong_usage_is_told_by_the_command(self):
        for arguments in (("info", "-v"), ("info", "--no-such"), ("doctor", "x"),
                          ("doctor", "--world", "many"), ("run", "-n", "x", "--", "true"),
                          ("run", "--hosts", "x", "--ranks-per-host", "2", "--", "true"),
                          ("run", "--grace", "-1", "--", "true"), ("bench",),
                          ("bench", "allreduce", "-n", "0"), ("bench", "allreduce", "--no-such"),
                          ("bench", "allreduce", "-f", "2", "-i", "8")):
            said = parallax(*arguments)
            self.assertEqual(said.returncode, 2, arguments)
            self.assertEqual(said.stdout, "", arguments)
            for line in said.stderr.splitlines():
                self.assertTrue(line.startswith(f"parallax {arguments[0]}: "), line)

    def test_help_says_in_words_what_an_option_excludes(self):
        for name in SUBCOMMANDS:
            self.assertNotIn("Excludes", parallax(name, "--help").stdout)
        said = parallax("run", "--help").stdout
        self.assertRegex(said, r"--hosts TEXT  +a file .*; not with --ranks-per-host\n")
        self.assertRegex(said, r"--grace FLOAT  +seconds .*; in \[0 - 3600\]\n")


class Man(support.Case):
    PAGES = {**{name: (name,) for name in SUBCOMMANDS}, "bench-wire": ("bench", "wire")}

    def page(self, name):
        with open(os.path.join(support.SOURCE, "docs/man", name), encoding="utf-8") as file:
            return file.read()

    def test_pages_have_every_option(self):
        for name, subcommand in self.PAGES.items():
            page = self.page(f"parallax-{name}.1").replace("\\-", "-")
            lines = re.findall(r"^  (-\S+)", parallax(*subcommand, "--help").stdout, re.M)
            options = [option for line in lines for option in line.split(",")]
            self.assertGreater(len(options), 3, name)
            for option in options:
                self.assertRegex(page, re.escape(option) + r"(?![\w-])", f"{name} {option}")

    def test_pages_have_no_option_that_is_gone(self):
        for name, subcommand in self.PAGES.items():
            text = parallax(*subcommand, "--help").stdout
            page = self.page(f"parallax-{name}.1").replace("\\-", "-")
            for option in re.findall(r"^\.B[RI]? .*?(--[a-z][a-z-]+)", page, re.M):
                self.assertIn(option, text, name)

    def test_the_overview_names_every_subcommand(self):
        page = self.page("parallax.1").replace("\\-", "-")
        listed = re.findall(r"^  (\w+)  ", parallax("--help").stdout, re.M)
        self.assertGreaterEqual(len(listed), len(SUBCOMMANDS))
        for name in listed:
            self.assertIn(f"parallax-{name}", page)

    def test_pages_are_sound(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        folder = os.path.join(support.SOURCE, "docs/man")
        pages = [name for name in sorted(os.listdir(folder)) if re.search(r"\.[13]$", name)]
        self.assertGreater(len(pages), 15)
        for name in pages:
            said = run("groff", "-man", "-Tutf8", "-ww", "-z", os.path.join(folder, name))
            self.assertEqual((said.returncode, said.stderr), (0, ""), name)


if __name__ == "__main__":
    support.main()
