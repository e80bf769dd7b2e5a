/* Signals that ask to stop are noted and obeyed between two tiles, so that a run ends cleanly and
 * can be gone on with: SIGINT, SIGTERM, SIGHUP, and what batch systems send ahead of a time limit:
 * SIGUSR1 (SLURM's --signal=USR1), SIGUSR2, SIGXCPU. */
#ifndef CF_SIGNALS_H
#define CF_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

extern volatile sig_atomic_t cf_stop_signal; /* 0, or the first signal that came */

void cf_signals_catch(void);
/* In the planner: whoever stops the run stops it, so that a signal to both is one stop. */
void cf_signals_leave(void);
/* A planner that is to be killed when a signal comes; 0: none. */
void cf_signals_child(pid_t pid);
/* The exit status of a run that was stopped: 128 and the signal, as shells say it; 75 for those
 * that say "not now": a job script sees that the same command goes on. */
int cf_signals_exit(void);

#endif
