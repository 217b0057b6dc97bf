"""Files of the user's."""

import errno
import os
import tempfile


def write(path, data):
    """Writes a file; one of that name is replaced in one step."""
    path = os.fspath(path)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "its folder is not there", path)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".neso-", delete=False) as f:
        try:
            f.write(data)
            f.flush()
            os.chmod(f.name, 0o666 & ~_umask())
            os.replace(f.name, path)
        except BaseException:
            os.unlink(f.name)
            raise


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
