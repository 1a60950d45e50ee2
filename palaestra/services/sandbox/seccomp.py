"""The system call filter of the sandbox: classic BPF bytes, written by hand.

A filter sees struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6]}. A foreign architecture
(32-bit calls on a 64-bit kernel) and the x32 numbers kill the process: they would reach the same
calls by other numbers. Source: Linux Documentation/userspace-api/seccomp_filter.rst; numbers from
asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
import platform
import struct

NUMBERS = {  # name: (x86_64, aarch64); None = that machine has no such call
    # other processes' memory
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    # the view of the file system, and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "unshare": (272, 97),
    "setns": (308, 268),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "open_tree_attr": (467, 467),
    "listns": (470, 470),
    # memory that no process is charged for, and what outlives a process
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "vmsplice": (278, 75),
    "io_setup": (206, 0),
    # wide and little used doors into the kernel
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "vhangup": (153, 58),
    "cachestat": (451, 451),
    "map_shadow_stack": (453, 453),
    "lsm_get_self_attr": (459, 459),
    "lsm_set_self_attr": (460, 460),
    "lsm_list_modules": (461, 461),
    # the machine itself
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
SETSOCKOPT, FCNTL = (54, 208), (72, 25)
# the last call that was looked at when this table was written (Linux 6.16, file_setattr): what a
# kernel adds after it is not there. Both machines number alike since 424.
LAST = 469
# column of the table, AUDIT_ARCH
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
NAMESPACES = 0x7E020080  # CLONE_NEW{USER,PID,NET,IPC,UTS,CGROUP,NS,TIME}
# AF_UNIX, and the two internet families, which lead nowhere: the network namespace is empty
FAMILIES = (1, 2, 10)
# the sizes of a socket's and a pipe's buffers, which nobody is charged for
SOL_SOCKET, BUFFERS = 1, (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, and both with FORCE
F_SETPIPE_SZ = 1031
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def is_supported() -> bool:
    return platform.machine() in MACHINES


def program(machine: str | None = None) -> bytes:
    """The filter as an array of struct sock_filter {u16 code; u8 jt; u8 jf; u32 k}."""
    column, arch = MACHINES[machine or platform.machine()]

    def op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("<HBBI", code, yes, no, k)

    def deny(error: int) -> bytes:
        return op(RETURN, ERRNO | error)

    out = [
        op(LOAD, 4),
        op(EQUAL, arch, 1, 0),
        op(RETURN, KILL),
        op(LOAD, 0),
        op(ABOVE, 0x40000000, 0, 1),
        op(RETURN, KILL),
    ]
    for numbers in NUMBERS.values():
        if (number := numbers[column]) is not None:
            out += [op(EQUAL, number, 0, 1), deny(errno.EPERM)]
    # the flags of clone3 are in memory, out of the filter's sight; without it the C library takes
    # clone
    out += [op(EQUAL, CLONE3[column], 0, 1), deny(errno.ENOSYS)]
    out += [op(ABOVE, LAST + 1, 0, 1), deny(errno.ENOSYS)]
    out += [op(EQUAL, SETSOCKOPT[column], 0, len(BUFFERS) + 5), op(LOAD, 24)]
    out += [op(EQUAL, SOL_SOCKET, 0, len(BUFFERS) + 1), op(LOAD, 32)]
    out += [op(EQUAL, o, len(BUFFERS) - i, 0) for i, o in enumerate(BUFFERS)]
    out += [op(RETURN, ALLOW), deny(errno.EPERM)]
    out += [
        op(EQUAL, FCNTL[column], 0, 4),
        op(LOAD, 24),
        op(EQUAL, F_SETPIPE_SZ, 0, 1),
        deny(errno.EPERM),
        op(RETURN, ALLOW),
    ]
    out += [
        op(EQUAL, CLONE[column], 0, 4),
        op(LOAD, 16),
        op(ANY_BIT, NAMESPACES, 0, 1),
        deny(errno.EPERM),
        op(RETURN, ALLOW),
    ]
    out += [op(EQUAL, SOCKET[column], 0, len(FAMILIES) + 3), op(LOAD, 16)]
    out += [op(EQUAL, f, len(FAMILIES) - i, 0) for i, f in enumerate(FAMILIES)]
    out += [deny(errno.EAFNOSUPPORT), op(RETURN, ALLOW), op(RETURN, ALLOW)]
    return b"".join(out)
