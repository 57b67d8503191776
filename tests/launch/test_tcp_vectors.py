"""The vectors of docs/transports.md, opened by another implementation: Python's cryptography."""

import hashlib
import hmac
import pathlib
import re
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
