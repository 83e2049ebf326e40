"""A network with nothing but this machine's loopback, and a hub in it."""
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def enter_own_network():
    """This program and those it starts can reach nothing else. Needs root."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        sys.exit("a network of its own needs root: %s" % os.strerror(ctypes.get_errno()))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING))


class Hub:
    """A hub on `port`; its settings, data and log are in `home`."""

    def __init__(self, maru, home, port, settings):
        config, self.log = os.path.join(home, "maru.yaml"), os.path.join(home, "maru.log")
        with open(config, "w") as file:
            file.write(settings)
        self.options = ["--config", config, "--data-dir", os.path.join(home, "data"), "--listen", "127.0.0.1:%d" % port]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([maru, *self.options], stdout=log, stderr=log, cwd=home)
        deadline = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit("maru did not start: " + open(self.log).read())
                time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
