"""Packs a binary as a wheel: wheel.py BINARY VERSION PLATFORM_TAG OUTPUT_DIRECTORY."""

import base64
import hashlib
import pathlib
import sys
import zipfile

README = pathlib.Path(__file__).parents[2] / "README.md"


def main(binary, version, platform, output):
    tag = f"py3-none-{platform}"
    info = f"maru-{version}.dist-info"
    metadata = "\n".join(
        [
            "Metadata-Version: 2.1",
            "Name: maru",
            f"Version: {version}",
            "Summary: A hub for the Model Context Protocol",
            "License: Apache-2.0",
            "Requires-Python: >=3.8",
            "Description-Content-Type: text/markdown",
            "",
            README.read_text(),
        ]
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: maru\nRoot-Is-Purelib: false\nTag: {tag}\n"
    name = "maru.exe" if platform.startswith("win") else "maru"
    files = {
        f"maru-{version}.data/scripts/{name}": pathlib.Path(binary).read_bytes(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": wheel.encode(),
    }
    record = [f"{path},sha256={digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = pathlib.Path(output) / f"maru-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in files.items():
            # A fixed date, so that the same binary gives the same wheel.
            entry = zipfile.ZipInfo(member, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in member else 0o100644) << 16
            archive.writestr(entry, content)
    print(path)


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
