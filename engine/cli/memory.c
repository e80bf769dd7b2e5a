#include "memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* A line of /proc/self/status, in KiB. Not getrusage: what it says of this process goes back to
 * before its exec. */
static uint64_t status_of(const char *field)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0) {
            sscanf(line + strlen(field), "%llu", &kib);
            break;
        }
    fclose(f);
    return (uint64_t)kib << 10;
}

uint64_t cf_memory_now(void)
{
    return status_of("VmRSS:");
}

uint64_t cf_memory_peak(void)
{
    return status_of("VmHWM:");
}

uint64_t cf_memory_largest(uint64_t own)
{
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) != 0) return own;
    const uint64_t children = (uint64_t)usage.ru_maxrss << 10;
    return children > own ? children : own;
}
