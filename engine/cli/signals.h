/* SIGINT, SIGTERM and SIGHUP are noted and obeyed between two tiles, so that a run ends cleanly. */
#ifndef CF_SIGNALS_H
#define CF_SIGNALS_H

#include <signal.h>

extern volatile sig_atomic_t cf_stop_signal; /* 0, or the first signal that came */

void cf_signals_catch(void);
void cf_signals_default(void); /* in the child */

#endif
