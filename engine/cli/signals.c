#include "signals.h"

#include <stddef.h>

volatile sig_atomic_t cf_stop_signal;

static void note(int number)
{
    if (!cf_stop_signal) cf_stop_signal = number;
}

static void set_all(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL); /* a closed stdout is a write error */
    sigaction(SIGXFSZ, &ignore, NULL); /* a file limit is E_SPACE */
}

void cf_signals_catch(void)
{
    set_all(note);
}

void cf_signals_default(void)
{
    set_all(SIG_DFL);
}
