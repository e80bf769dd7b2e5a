/* The journal of a run that is under way: which windows are finished, so that a run that was
 * stopped goes on where it was.
 *
 * A text file in the partial folder (CF_JOURNAL_NAME), gone before the rename:
 *
 *   ckptflow-journal 1 VERSION inputs H plan H CRC     H: 128 bits, in hex
 *   FILE BEGIN END CRC [RECORD AT SIZE CRC]... CRC     a line for each window
 *
 * A window's line has the CRC-32 of its bytes and those of the stretches of records that were read
 * for it and are held against stored checksums at the end; the last word is the CRC-32 of the line.
 * A line is written with one write when the bytes of its window have been: a process that is killed
 * leaves both to the page cache. It is not waited for the disk, not even with --fsync, since no
 * line is believed: a run that goes on reads the window again, and one that differs (after a loss
 * of power) is written again.
 *
 * `inputs` covers path, size, inode and time of each source (not the device: its number differs
 * between the nodes of a cluster), `plan` all else of the block: layout, moves, options.
 */
#ifndef CF_JOURNAL_H
#define CF_JOURNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "block.h"
#include "gather.h"
#include "map.h"
#include "sink.h"

/* A window that an earlier run finished. */
typedef struct cf_journaled {
    uint32_t crc;
    const cf_stretch *checked;
    size_t n_checked;
} cf_journaled;

typedef enum cf_journal_state {
    CF_JOURNAL_NEW,     /* there was none to go on with */
    CF_JOURNAL_RESUMED, /* the same plan of the same inputs */
    CF_JOURNAL_INPUTS,  /* one of other inputs: begun afresh */
    CF_JOURNAL_PLAN,    /* one of another plan */
    CF_JOURNAL_VERSION  /* one of another version, or no journal that can be read */
} cf_journal_state;

typedef struct cf_journal {
    cf_arena arena;
    cf_map windows; /* from file, begin and end to the number of the entry */
    cf_journaled *entries;
    size_t count, cap;
    cf_journal_state state;
    int fd;
    pthread_mutex_t lock;
    _Atomic uint64_t finished; /* windows, those of earlier runs too */
    uint64_t held;             /* bytes on disk that were there already */
} cf_journal;

/* Looks into the partial folder: goes on with it (cf_sink_keep) or empties it and begins anew. The
 * sink outlives the journal. E_IO, E_SPACE, E_MEMORY. */
bool cf_journal_open(cf_journal *journal, cf_sink *sink, const cf_block *block, cf_err *err);
void cf_journal_close(cf_journal *journal);

/* NULL: not finished. */
const cf_journaled *cf_journal_find(const cf_journal *journal, uint64_t file, uint64_t begin,
                                    uint64_t end);
/* Adds a finished window whose bytes have been written. From several threads at a time. */
bool cf_journal_add(cf_journal *journal, uint64_t file, uint64_t begin, uint64_t end, uint32_t crc,
                    const cf_stretches *checked, cf_err *err);

/* Why a run begins afresh although there was one to go on with; NULL where there is no reason to
 * say so. */
const char *cf_journal_afresh(const cf_journal *journal);

#endif
