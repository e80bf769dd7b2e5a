/* A block carried out: output files filled window by window, by several threads, in bounded memory.
 *
 * A window is a contiguous stretch of one output file (some MiB), the unit of scheduling, progress,
 * checksum and resume. Replicas are compared, and small records that are not read whole are
 * checked, before the first window. After the last one every record that was read wholly is held
 * against its stored CRC-32. With `verify`, what was written is then read back from the disk.
 */
#ifndef CF_EXECUTE_H
#define CF_EXECUTE_H

#include <signal.h>
#include <stdatomic.h>

#include "means.h"
#include "sink.h"
#include "windows.h"

struct cf_damage;
struct cf_journal;

typedef struct cf_progress {
    _Atomic uint64_t done;  /* bytes written; and read back, with verify */
    _Atomic uint64_t found; /* those of them that a run before had written */
    uint64_t total;
} cf_progress;

typedef struct cf_execution {
    const cf_block *block;
    const char *const *roots; /* CKPTs of the command line */
    int n_roots, threads;     /* those of means */
    const cf_means *means;    /* cf_means_fit */
    bool fsync, verify;
    cf_share share; /* of 0: all is written. Else only its windows, and no end is made */
    struct cf_journal *journal; /* of finished windows; NULL: none is kept */
    struct cf_damage *damage;   /* --salvage: takes what is damaged; NULL: the first fails */
    cf_progress *progress;
    const volatile sig_atomic_t *stop; /* becomes the number of a signal: E_INTERRUPTED */
} cf_execution;

typedef enum cf_checked { CF_UNVERIFIED, CF_CRC_VERIFIED, CF_REPLICA_COMPARED } cf_checked;

typedef struct cf_outcome {
    cf_arena arena;
    uint32_t *tensor_crc;                        /* by number of the tensor */
    uint8_t *tensor_check;                       /* cf_checked */
    uint32_t *file_crc;                          /* by number of the file */
    uint64_t read, written, requests, read_back; /* bytes; requests */
    uint64_t windows, found;                     /* found: finished by a run before */
    uint64_t n_checked[3];                       /* tensors by cf_checked */
    uint64_t plain; /* sources that were read with pread, as the way asked for fails there */
} cf_outcome;

bool cf_execute(const cf_execution *x, cf_sink *sink, cf_outcome *outcome, cf_err *err);
/* Bytes of the share's windows. */
uint64_t cf_share_bytes(const cf_block *block, cf_share share);
/* Of a divided run whose shares are all done: the end of the output. x->journal is what
 * cf_journal_collect made, x->share of 0. The outcome is that of the whole, but for what was read
 * and asked for. */
bool cf_execute_last(const cf_execution *x, cf_sink *sink, cf_outcome *outcome, cf_err *err);
void cf_outcome_free(cf_outcome *outcome);

/* ckptflow-manifest.json of the output, written through the sink (and synced, and read back, as x
 * says): the same bytes for the same input and options, whatever the machine. */
bool cf_manifest_write(const cf_execution *x, const cf_outcome *outcome, cf_sink *sink,
                       cf_err *err);

/* What a run will take: of a block alone. */
typedef struct cf_price {
    uint64_t read, written, requests,
        scratch;       /* bytes; scratch: of compressed records, beside OUT */
    uint64_t unpacked; /* of files that are compressed as a whole; there before a run plans */
    uint64_t memory; /* bytes at the peak, on top of the block and all else that is there before */
} cf_price;
void cf_block_price(const cf_block *block, const cf_means *means, cf_price *price);
/* Of it what sums tell: written, scratch, unpacked; the rest 0. A run asks for no more. */
void cf_block_space(const cf_block *block, cf_price *price);

#endif
