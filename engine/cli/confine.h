/* The planner confined, so that a fault of a parser is worth nothing to whoever made the file: it
 * reads what the command line names, and scripts; it writes into one file in memory, and does
 * nothing else to the world. For good: it holds for every thread that is made afterwards.
 *
 *   Landlock  no file but those beneath the given paths can be opened, none for writing; nothing
 *             can be made, removed, renamed; with newer kernels no TCP, no signals to others
 *   seccomp   of all system calls those that reading and computing take; writes to `fd` alone.
 *             x86-64 and aarch64. Not there: exec, fork, sockets, ptrace, io_uring, dup, ioctl,
 *             shared mappings, memory that can be executed ...: they fail with EPERM
 *
 * Sanitizers do more than that (they are builds without confinement), as do debuggers and valgrind
 * (--no-confine).
 */
#ifndef CF_CONFINE_H
#define CF_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

/* paths: files and folders; what is not there is left out. Called while there is one thread.
 * lacks: a line of what could not be had here, empty if all could. */
void cf_confine(int fd, const char *const *paths, size_t n_paths, char *lacks, size_t size);

#endif
