# SPDX-License-Identifier: Apache-2.0
"""Libraries that go into a wheel beside the one that links them, as auditwheel does it.

A wheel for manylinux may link what every Linux has, and nothing else that is outside of it. The
others are copied, and renamed on both sides, so that a program that has the machine's own copy
loaded, such as Python its libcrypto, is left alone. The new names are as long as the old ones and
are written over them; the library that is grafted upon finds them by its RPATH, $ORIGIN.
"""

import os
import re
import subprocess

# What PEP 600's policies take for granted, as far as this project links it.
EVERYWHERE = frozenset((
    "ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1",
    "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6"))


def needed(path):
    listing = subprocess.run(["readelf", "-dW", path], check=True, capture_output=True,
                             text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", listing)


def _found(path):
    """{soname: path} of everything that a library links, as the loader finds it here."""
    listing = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", listing, re.M))


def new_name(soname):
    """libcrypto.so.3 becomes libcryppx.so.3."""
    stem, dot, rest = soname.partition(".so")
    return stem[:-2] + "px" + dot + rest


def _rename(content, names):
    for old, new in names.items():
        content = content.replace(b"\0" + old.encode() + b"\0", b"\0" + new.encode() + b"\0")
    return content


def _license(path):
    """What the distribution says of the package that a library is from, or None."""
    owner = subprocess.run(["dpkg-query", "--search", os.path.realpath(path)], check=False,
                           capture_output=True, text=True).stdout.partition(":")[0]
    file_name = f"/usr/share/doc/{owner}/copyright"
    if not owner or not os.path.exists(file_name):
        return None
    with open(file_name, "rb") as file:
        return file.read()


def graft(library):
    """({name: bytes} of the library and what it needs beside it, {name: bytes} of licences)."""
    found = _found(library)
    paths, waiting = {}, [library]
    while waiting:
        for soname in needed(waiting.pop()):
            if soname not in EVERYWHERE and soname not in paths:
                paths[soname] = found[soname]
                waiting.append(found[soname])
    names = {soname: new_name(soname) for soname in paths}
    files, licenses = {}, {}
    for soname, path in [(os.path.basename(library), library), *paths.items()]:
        with open(path, "rb") as file:
            files[names.get(soname, soname)] = _rename(file.read(), names)
        if soname in names:
            text = _license(path)
            if text is None:
                raise RuntimeError(f"{path} has to go into the wheel, but there is no licence of "
                                   "it in /usr/share/doc")
            licenses[f"{names[soname]}.copyright"] = text
    return files, licenses
