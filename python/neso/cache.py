"""Packages that were compiled before, on disk: $NESO_CACHE_DIR, else $XDG_CACHE_HOME/neso, else ~/.cache/neso.

Used by torch.compile and by Triton's launcher, and by neso.compile where it is asked for. An entry's name is a hash of everything that
it depends on: the model, the options, the compiler's build, the machine. Entries appear whole or not at all, so that any number of
processes may share the folder, and end in a sum of their bytes: one that a failing disk or a power cut left incomplete is not used. A folder
that cannot be written, or a full disk, is no failure, only slower."""

import contextlib
import hashlib
import os
import tempfile
import zlib
from pathlib import Path

# Bytes at which the entries that were not used longest are removed.
LIMIT = 4 << 30
# Bytes of what _seal gives.
_SEAL = 12


def folder():
    given = os.environ.get("NESO_CACHE_DIR")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neso"
    return base / "packages"


def machine():
    """What "native" code depends on."""
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith("flags")), "")
    except OSError:
        flags = ""
    return flags


def key(*parts):
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, (bytes, bytearray, memoryview)) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _seal(data):
    """What stands behind an entry's bytes: how many they are, and a sum of them."""
    return len(data).to_bytes(8, "little") + zlib.crc32(data).to_bytes(4, "little")


def get(name):
    """The bytes of an entry; None where there is none that is whole."""
    path = folder() / name
    try:
        whole = path.read_bytes()
        data = whole[:-_SEAL]
        if len(whole) < _SEAL or whole[-_SEAL:] != _seal(data):
            path.unlink()
            return None
        os.utime(path)
        return data
    except OSError:
        return None


def put(name, data):
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder(), prefix=".new-", delete=False) as f:
            try:
                f.write(data)
                f.write(_seal(data))
                f.flush()
                os.replace(f.name, folder() / name)
            except BaseException:
                os.unlink(f.name)
                raise
        _shrink()
    except OSError:
        pass


def _entries():
    """(time of its last use, bytes, path) of every file; those that begin with a dot are being written, or were when a process was ended."""
    found = []
    try:
        for e in os.scandir(folder()):
            # Others remove entries meanwhile.
            with contextlib.suppress(OSError):
                if e.is_file():
                    found.append((e.stat().st_mtime, e.stat().st_size, e.path))
    except OSError:
        pass
    return found


def _shrink():
    entries = sorted(_entries())
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= LIMIT:
            return
        try:
            os.unlink(path)
        except OSError:
            pass
        total -= size


def info():
    """The folder, how many entries it holds, and their bytes."""
    entries = [e for e in _entries() if not os.path.basename(e[2]).startswith(".")]
    return {"folder": str(folder()), "entries": len(entries), "bytes": sum(size for _, size, _ in entries), "limit": LIMIT}


def clear():
    """Removes all entries."""
    for _, _, path in _entries():
        try:
            os.unlink(path)
        except OSError:
            pass
