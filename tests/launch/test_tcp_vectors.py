"""The vectors of docs/transports.md, opened by another implementation: Python's cryptography."""

import hashlib
import hmac
import ipaddress
import pathlib
import re
import struct
import unittest

try:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
except ImportError:
    AESGCM = None

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "transports.md"
SECRET = bytes(range(32))


def expand(key, info):
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def extract(salt, given):
    return hmac.new(salt, given, hashlib.sha256).digest()


def rows():
    """(cipher, security, number, frame) of each row of the table."""
    cipher = security = ""
    number = 0
    for row in re.finditer(r"^\| (.*?) \| (.*?) \| `([0-9a-f]+)` \|$",
                           PAGE.read_text().replace("| | |", "|  |  |"), re.M):
        first = row[1].strip() != ""
        if first:
            cipher, security = row[1].strip(), row[2].strip()
        number = 0 if first else number + 1
        yield cipher, security, number, bytes.fromhex(row[3])


class TcpVectors(unittest.TestCase):
    @unittest.skipIf(AESGCM is None, "Python's cryptography is not installed")
    def test_frames_open(self):
        seen = 0
        for cipher, security, number, frame in rows():
            key = expand(SECRET, b"libparallax tcp 1 key")
            iv = expand(SECRET, b"libparallax tcp 1 iv")[:12]
            nonce = bytes(a ^ b for a, b in zip(iv, number.to_bytes(12, "big")))
            aead = AESGCM(key[:16]) if cipher.startswith("AES") else ChaCha20Poly1305(key)
            header, rest = frame[:8], frame[8:]
            bytes_said = int.from_bytes(header[:4], "little")
            body, tag = rest[:bytes_said], rest[bytes_said:]
            with self.subTest(cipher=cipher, security=security, number=number):
                self.assertEqual(len(tag), 16)
                if security == "encrypt":
                    body = aead.decrypt(nonce, body + tag, header)
                else:
                    self.assertEqual(aead.decrypt(nonce, tag, header + body), b"")
                self.assertEqual(body, b"hello" if number == 0 else b"")
                self.assertEqual(header[4], 1 if number == 0 else 3)
            seen += 1
        self.assertEqual(seen, 8)

    @unittest.skipIf(AESGCM is None, "Python's cryptography is not installed")
    def test_a_credit_opens(self):
        said, frame = re.search(r"a credit of (\d+) bytes:\s+`([0-9a-f]+)`",
                                PAGE.read_text()).groups()
        frame = bytes.fromhex(frame)
        self.assertEqual(frame[:8], struct.pack("<IB", 0, 4) + struct.pack("<I", int(said))[:3])
        iv = expand(SECRET, b"libparallax tcp 1 iv")[:12]
        aead = AESGCM(expand(SECRET, b"libparallax tcp 1 key")[:16])
        self.assertEqual(aead.decrypt(iv, frame[8:], frame[:8]), b"")

    @unittest.skipIf(AESGCM is None, "Python's cryptography is not installed")
    def test_a_frame_under_the_next_key_opens(self):
        frame = bytes.fromhex(re.search(r"every second frame: `([0-9a-f]+)`", PAGE.read_text())[1])
        following = expand(SECRET, b"libparallax tcp 1 next")
        iv = expand(following, b"libparallax tcp 1 iv")[:12]
        nonce = bytes(a ^ b for a, b in zip(iv, (2).to_bytes(12, "big")))
        aead = AESGCM(expand(following, b"libparallax tcp 1 key")[:16])
        self.assertEqual(aead.decrypt(nonce, frame[8:], frame[:8]), b"hello")

    def test_endpoints_are_as_written(self):
        """Those of the page, by what it says of their bytes."""
        page = PAGE.read_text()
        four, six = (bytes.fromhex(row) + SECRET
                     for row in re.findall(r"^    (01[0-9a-f]+) SALT$", page, re.M))
        lead, first, second = re.search(r"^    (0202)([0-9a-f]{4}) FIRST ([0-9a-f]{4}) SECOND$",
                                        page, re.M).groups()
        for endpoint, host in ((four, "10.0.0.1"), (six, "fd00::1")):
            address = ipaddress.ip_address(host).packed
            self.assertEqual(endpoint, struct.pack("<BBBH", 1, 1, 1, len(address)) + address
                             + struct.pack("<H", 31000) + SECRET)
        self.assertEqual(bytes.fromhex(lead), bytes((2, 2)))
        self.assertEqual([int.from_bytes(bytes.fromhex(each), "little")
                          for each in (first, second)], [len(four), len(six)])

    def test_keys_are_as_written(self):
        page = PAGE.read_text()
        identity = re.search(r"`(libparallax tcp 1 from=1 .*?)`", page, re.S)[1].encode()
        job = expand(extract((4711).to_bytes(8, "little"), b"correct horse battery staple"),
                     b"libparallax tcp 1 job")
        psk = expand(extract(SECRET, job), b"libparallax tcp 1 psk " + identity)
        self.assertIn(job.hex(), page)
        self.assertIn(psk.hex(), page)


if __name__ == "__main__":
    unittest.main()
