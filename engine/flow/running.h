/* What the files of an execution share: execute.c fills windows, conclude.c makes of them the
 * output that the plan meant. */
#ifndef CF_RUNNING_H
#define CF_RUNNING_H

#include "journal.h"
#include "records.h"

typedef struct cf_running {
    const cf_execution *x;
    const cf_block *block;
    cf_arena arena;
    cf_records records;
    int *outputs;
    cf_windows windows; /* to be written: all, or those of the share */
    cf_gather *gathers; /* by thread */
    uint8_t **buffers;
    cf_stretches *checked;  /* by thread: of records, of windows that are finished */
    cf_stretches *written;  /* by thread: of chunks */
    cf_stretches *again;    /* by thread: of chunks, as they were read back */
    uint32_t *window_crc;   /* of a share, by number of the window in it */
    uint32_t *crc;          /* by number of the chunk, when all are written */
    _Atomic uint64_t found; /* windows that a run before had finished */
    bool reading_back;
} cf_running;

/* The end also after a begin that failed. */
bool cf_running_begin(cf_running *r, const cf_execution *x, cf_outcome *outcome, cf_err *err);
void cf_running_end(cf_running *r);
bool cf_outputs_open(cf_running *r, cf_sink *sink, cf_err *err);
bool cf_outputs_close(cf_running *r, bool sync, cf_err *err);

/* ---- shares.c ---- */

/* Flags of the records that the share reads: for its windows, comparisons and checks. */
bool cf_share_wants(cf_running *r, const bool **wanted, cf_err *err);
/* Checksums that items turned out to have go into the journal. */
bool cf_share_items(const cf_running *r, const bool *wanted, cf_err *err);
/* What this process did. */
void cf_share_sum(const cf_running *r, cf_outcome *outcome);

/* ---- conclude.c ---- */

/* When all windows are written: checksums of records held against the archives', seals filled in,
 * the outcome summed up. E_ZIP_CRC names the tensor. */
bool cf_conclude(cf_running *r, cf_outcome *outcome, cf_err *err);
/* All threads' stretches in the first one's list, sorted. */
bool cf_stretches_join(const cf_running *r, cf_stretches *lists, cf_err *err);
/* All of one list into another. */
bool cf_stretches_add(cf_stretches *to, const cf_stretch *from, size_t count, cf_err *err);
/* A record's checksum is another than the archive's. */
bool cf_crc_fault(const cf_running *r, uint64_t record, uint32_t crc, cf_err *err);

#endif
