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
 * A run that is divided has a journal for each share, with " share R/N" behind the plan in its
 * first line. To its lines those of the chunks are added ("/ CHUNK AT SIZE CRC..."), and lines of
 * the checksums that items have ("= RECORD CRC..."), so that whoever is the last one can finish the
 * output without reading what others wrote or opening what they opened. Their lines are believed
 * when their share is done: then its bytes were synced, and after that its journal got the name
 * that says so. Windows that the journal of another division or of an undivided run has are taken
 * over as one's own are.
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
#include "windows.h"

/* A window that an earlier run finished. */
typedef struct cf_journaled {
    uint64_t file;
    uint32_t crc;
    bool own;                          /* the journal that is written to has it */
    const cf_stretch *checked, *parts; /* of records; of chunks, where the run was divided */
    size_t n_checked, n_parts;
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
    cf_share share;
    bool done;          /* the share was finished before */
    cf_stretches items; /* records that are items, whole, with the checksums that they have */
    cf_text head;       /* of the plan's first line */
} cf_journal;

/* Looks into the partial folder: goes on with it (cf_sink_keep) or empties it and begins anew. The
 * sink outlives the journal. E_IO, E_SPACE, E_MEMORY. */
bool cf_journal_open(cf_journal *journal, cf_sink *sink, const cf_block *block, cf_err *err);
void cf_journal_close(cf_journal *journal);

/* The same for one share of a divided run, beside others that may be alive. E_BUSY for another
 * plan's folder, another division of it, or this share under way elsewhere: nothing is emptied. */
bool cf_journal_join(cf_journal *journal, cf_sink *sink, const cf_block *block, cf_share share,
                     cf_err *err);
/* The share is written and synced: its journal gets its name. */
bool cf_journal_finish(cf_journal *journal, cf_sink *sink, cf_err *err);
/* What all shares did that are done, into a journal that is only read. missing: `share.of` flags;
 * true for those that are not done. */
bool cf_journal_collect(cf_journal *journal, cf_sink *sink, const cf_block *block, cf_share share,
                        bool *missing, cf_err *err);
/* Before the output is finished: removes what is in the folder and not of the plan. */
bool cf_journal_clear(cf_journal *journal, cf_sink *sink, const cf_block *block, cf_err *err);
/* Has nobody but this share left anything in the folder? */
bool cf_journal_only(const cf_journal *journal, const cf_sink *sink);
/* Checksums of items, as they were opened. */
bool cf_journal_items(cf_journal *journal, const cf_stretches *items, cf_err *err);

/* NULL: not finished. */
const cf_journaled *cf_journal_find(const cf_journal *journal, const cf_window *window);
/* Adds a finished window whose bytes have been written. From several threads at a time. */
bool cf_journal_add(cf_journal *journal, const cf_window *window, uint32_t crc,
                    const cf_stretches *checked, const cf_stretches *parts, cf_err *err);

/* Why a run begins afresh although there was one to go on with; NULL where there is no reason to
 * say so. */
const char *cf_journal_afresh(const cf_journal *journal);

#endif
