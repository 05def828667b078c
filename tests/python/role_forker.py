"""Runs scripts as `python -m slime.compat.run SYSTEM SCRIPT` in processes that fork from this one.

Starting Python takes up to half a minute on an emulated machine, and a fork next to nothing. Each message on
stdin, a socket, is a request: JSON of the arguments and the environment, and descriptors for stdin, stdout
and the status. The status gets a line with the pid of the process, and one with its exit status.
"""

import array
import contextlib
import json
import os
import runpy
import socket
import sys

import numpy  # noqa: F401  (so that no process has to import it)
import slime.compat
import torch_of_numpy  # noqa: F401

REQUEST_BYTES = 1 << 16
DESCRIPTORS = 3


def main():
    requests = socket.socket(fileno=os.dup(0))
    while True:
        request, control, _, _ = requests.recvmsg(REQUEST_BYTES, socket.CMSG_SPACE(4 * DESCRIPTORS))
        if not request:
            return None
        descriptors = array.array("i", control[0][2])
        if os.fork() == 0:
            return watch(json.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        reap()


def reap():
    """Ends the zombies of the processes that watch()."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def watch(request, stdin, stdout, status):
    """Tells how the process of the request ends. Returns its script in that process."""
    pid = os.fork()
    if pid == 0:
        os.close(status)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.environ.update(request["environment"])
        sys.argv = ["slime.compat.run", *request["arguments"]]
        return runpy.run_module("slime.compat.run", run_name="__main__", alter_sys=True)
    os.write(status, f"{pid}\n".encode())
    ended = os.waitpid(pid, 0)[1]
    code = os.WEXITSTATUS(ended) if os.WIFEXITED(ended) else -os.WTERMSIG(ended)
    with contextlib.suppress(OSError):  # the test has failed, and waits no more
        os.write(status, f"{code}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main()
