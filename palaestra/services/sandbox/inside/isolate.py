"""The walls around one run, put up by the run's first process before any foreign code: its own
mounts, rlimits, no rights.

The supervisor has already put that process into its own pid namespace, so ending it ends everything
it ever started.
"""

from __future__ import annotations

import ctypes
import os
import resource

FILTER = b""  # the seccomp program, given when the interpreter starts
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2
AF_UNIX, SOCK_STREAM, SOCK_CLOEXEC = 1, 1, 0o2000000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 22, 38, 47, 4
CAPABILITY_VERSION_3 = 0x20080522
OPEN_FILES = 128  # with the process limit this also bounds kernel memory held in pipes
SOL_SOCKET, SO_SNDBUF = 1, 7
SHUT_RDWR = 2


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def system(name: str, *given: object):
    """A C library call that must succeed."""
    if getattr(LIBC, name)(*given):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def pair():
    """Two connected sockets (the module `socket` is slow to import)."""
    ends = (ctypes.c_int * 2)()
    system("socketpair", AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
    return ends[0], ends[1]


def shut(end: int):
    """Nothing more goes through a socket: whoever reads from the other end finds its end."""
    LIBC.shutdown(end, SHUT_RDWR)  # fails where the other side has gone, which is as well


def buffer_size():
    """Bytes that a socket takes from its sender at most."""
    one, other = pair()
    size, length = ctypes.c_int(), ctypes.c_uint(4)
    system("getsockopt", one, SOL_SOCKET, SO_SNDBUF, ctypes.byref(size), ctypes.byref(length))
    os.close(one)
    os.close(other)
    return size.value


BUFFER = buffer_size()


def new_pids():
    """The next child starts a pid namespace: it is its process 1. Returns the namespace to go back
    to.
    """
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    system("unshare", CLONE_NEWPID)
    return own


def old_pids(own: int):
    """Children are ordinary again."""
    system("setns", own, CLONE_NEWPID)
    os.close(own)


def confine(files: dict[str, bytes], limits: dict, lasting: bool, guarded: bool, folder: str):
    """Own /tmp with the run's files in it, no /proc, own user, limits, no capabilities, filtered
    system calls.
    """
    if guarded:
        system("unshare", CLONE_NEWNS)
        # other processes' files, environment and memory are not even named
        system("umount2", b"/proc", MNT_DETACH)
        user = os.getuid() if limits["user"] is None else limits["user"]
        options = (
            f"size={limits['file_mb']}m,nr_inodes=10000,mode=700,uid={user},gid={user}".encode()
        )
        system("mount", b"tmpfs", b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV, options)
        if user != os.getuid():
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
    os.chdir("/tmp" if guarded else folder)
    for name, content in files.items():
        if "/" in name:
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(content)
    limit(limits, lasting)
    if guarded:
        disarm()


def limit(limits: dict, lasting: bool):
    """rlimits. A session's processor time adds up over its cells, so only its cells' wall clocks
    bound it.
    """
    wanted = {
        resource.RLIMIT_AS: limits["memory_mb"] << 20,
        resource.RLIMIT_FSIZE: limits["file_mb"] << 20,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if not lasting:
        wanted[resource.RLIMIT_CPU] = int(limits["seconds"]) + 2
    if limits["count_processes"]:
        # the sandbox's own processes are of the same user
        wanted[resource.RLIMIT_NPROC] = limits["processes"] + 8
    for kind, most in wanted.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def disarm():
    """Drops every capability for good and filters system calls; both pass to all children."""
    system("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    system("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    system("capset", (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)())
    program = Program(len(FILTER) // 8, FILTER)
    system("prctl", PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0)


def scratch():
    """The folder of an unguarded run."""
    import tempfile

    return tempfile.mkdtemp(prefix="palaestra-unsafe-")


def remove(folder: str):
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
