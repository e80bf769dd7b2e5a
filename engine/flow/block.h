/* The plan as one flat block of bytes: what the planner hands to the parent, and `plan -o FILE`.
 *
 *   head: magic "CKPTPLAN", version, size of the block, then for each section its count and place
 *   sections: arrays of the structs below, each at a multiple of 16; the last one is raw bytes
 *
 * Position-free: a reference to text or bytes is an offset and a size in CF_B_BYTES, one to another
 * section a first number and a count. Little-endian, as the machine that made it; a block is used
 * where it was made. cf_block_open believes nothing: every reference, range, path and layout is
 * checked before it gives anything out, whoever wrote the block.
 */
#ifndef CF_BLOCK_H
#define CF_BLOCK_H

#include "arena.h"
#include "text.h"
#include "view.h"

enum { CF_BLOCK_VERSION = 3 };

typedef struct cf_ref {
    uint64_t at, size; /* texts have a NUL behind them that size does not count */
} cf_ref;

/* A file of the checkpoint, as it was when it was planned. */
typedef struct cf_b_source {
    cf_ref path;
    uint64_t size, device, inode;
    uint64_t packed; /* 0, or bytes of the compressed file; size is its content's then */
    int64_t mtime_ns;
    uint32_t root; /* number of the CKPT on the command line */
    uint32_t unused;
} cf_b_source;

/* A run of bytes with a name and perhaps a checksum: a zip record, the data of a safetensors file,
 * a whole file, or bytes that the block brings. */
typedef struct cf_b_record {
    uint64_t offset, size; /* in the source; decoded size */
    uint64_t packed;       /* CF_IN_MEMBER, CF_IN_ITEM: bytes in the source */
    cf_ref name;           /* of the zip member; of the item's tensor */
    uint64_t dims;         /* CF_IN_ITEM: first number of the shape that is claimed */
    cf_ref bytes;          /* CF_IN_MEMORY */
    uint32_t source, crc;
    uint16_t method; /* CF_IN_MEMBER: of the zip; CF_IN_ITEM: 1 if it is packed with zstd */
    uint8_t place;   /* cf_place */
    uint8_t has_crc;
    uint8_t dtype, ndim; /* CF_IN_ITEM: as claimed */
    uint8_t unused[2];
} cf_b_record;

enum { CF_MOVE_SWAP = 1, CF_MOVE_CONJ = 2, CF_MOVE_NEG = 4, CF_MOVE_CHECKED = 8 };

/* A strided copy: for every index of the outer dimensions `run` bytes from the record to the
 * tensor. A move that casts is written as if the tensor had the record's dtype: its places and
 * strides in the tensor count elements of that size. dims: ndim triples {count, stride in the
 * record, stride in the tensor} in bytes, outermost first; the tensor's are nested (each at least
 * the extent of what is inside it), so that runs in order have ascending places. */
typedef struct cf_b_move {
    uint64_t from, to, run; /* bytes: in the record, in the chunk, of one run */
    uint64_t dims;          /* first number in CF_B_NUMBERS */
    uint32_t record;
    uint8_t ndim;
    uint8_t dtype; /* of the elements in the record */
    uint8_t cast;  /* of those in the tensor */
    uint8_t flags;
} cf_b_move;

/* The element of the chunk's tensor that a move begins at. */
static inline uint64_t cf_move_place(const cf_b_move *move)
{
    return move->to / (uint64_t)cf_dtype_size((cf_dtype)move->dtype);
}

/* A stretch of an output file: bytes that are known now, or moves that fill it wholly. Several
 * tensors may be in one (tied weights, views of one storage). */
typedef struct cf_b_chunk {
    uint64_t begin, end;  /* in the file */
    cf_ref bytes;         /* where moves is 0 */
    uint64_t move, moves; /* numbers of moves; of terms, where it is a sum */
    uint32_t tensor;      /* number of the first one, or CF_B_NONE */
    uint8_t dtype;        /* of its elements */
    uint8_t sum;
    uint8_t late; /* of known bytes: some of them are seals */
    uint8_t unused;
} cf_b_chunk;

/* Bytes of a late chunk that depend on others of the file, and so are written last: the CRC-32 of
 * the chunks first..first+count-1, which come before it. Little-endian, or as decimal digits with
 * zeros in front; the plan has zeros there. In the order of their places. */
typedef struct cf_b_seal {
    uint32_t chunk, first, count;
    uint32_t digits; /* 10 at least; 0: four bytes */
    uint64_t at;     /* in the chunk */
} cf_b_seal;

static inline uint64_t cf_seal_size(const cf_b_seal *seal)
{
    return seal->digits ? seal->digits : 4;
}

/* One term of a sum: its moves cast to F64 and fill the chunk; weight times that is added. Where
 * the term is a view that was cast, each element is rounded to that dtype first. */
typedef struct cf_b_term {
    uint64_t move, moves;
    double weight;
    uint64_t rounded; /* a dtype, or CF_NO_DTYPE */
} cf_b_term;

enum { CF_B_NONE = 0xffffffff };

typedef struct cf_b_file {
    cf_ref path;
    uint64_t size, chunk, chunks; /* chunks tile the file, in order */
} cf_b_file;

/* In the order of their chunks. */
typedef struct cf_b_tensor {
    cf_ref key, name, role; /* of the checkpoint, in the file, of the checkpoint */
    cf_ref role_name;
    cf_ref path; /* in a torch file, a JSON list; empty: its name is its only key */
    uint64_t chunk;
    uint64_t dims; /* first number of its shape in CF_B_NUMBERS */
    uint8_t dtype, ndim, compared, unused[5];
} cf_b_tensor;

/* A value of a JSON or torch file, whose bytes are known already. In the order of the files. */
typedef struct cf_b_value {
    cf_ref key, name, role, role_name;
    cf_ref path;  /* as a tensor's */
    cf_ref lacks; /* what the file cannot hold of it: "TrainCfg", or "lr.fn: LambdaLR"; or empty */
    uint64_t file;
} cf_b_value;

/* Two copies of one piece that must agree. */
typedef struct cf_b_compare {
    uint64_t left, right; /* moves with the same `to` order: into a box of `size` bytes */
    uint64_t size;
    cf_ref key;
    int32_t left_rank, right_rank;
    uint8_t all, unused[7]; /* all bytes, or samples of a large one */
} cf_b_compare;

/* What `verify` looks at: a stretch of a source, and the records in it that have a checksum. */
typedef enum cf_unit_kind {
    CF_UNIT_RECORDS, /* records of the stretch are read */
    CF_UNIT_TENSOR,  /* an item, its one record says of what; opened, and all in it is read */
    CF_UNIT_VALUE    /* the same of a value: no record */
} cf_unit_kind;

typedef struct cf_b_unit {
    uint64_t offset, size; /* in the source */
    uint64_t record, records;
    uint32_t source;
    uint32_t crc; /* of the whole stretch, where has_crc: then its records tile it */
    uint8_t kind; /* cf_unit_kind */
    uint8_t has_crc;
    uint8_t packed; /* an item packed with zstd */
    uint8_t unused[5];
} cf_b_unit;

/* A tensor that `verify` tells about, and the records that its elements lie in (numbers; CF_B_NONE
 * for elements that no checksum covers). */
typedef struct cf_b_subject {
    cf_ref key;
    uint64_t record, records; /* in CF_B_NUMBERS */
    uint8_t compared;         /* its replicas are */
    uint8_t broken;           /* planning found it so */
    uint8_t unused[6];
} cf_b_subject;

/* What `diff` holds together: of checkpoint A ([0]) and B ([1]). */
typedef enum cf_pair_kind {
    CF_PAIR_TENSORS, /* of one shape: both have a chunk, of as many elements */
    CF_PAIR_SHAPES,  /* of two */
    CF_PAIR_KINDS,   /* a tensor and a value */
    CF_PAIR_EQUAL,   /* values that are equal, but for tensors inside them */
    CF_PAIR_VALUES,  /* values that are not */
    CF_PAIR_ALONE, /* only in one of them; with a chunk if it may have another name in the other */
    CF_PAIR_COPY   /* a low-precision copy, only in one of them */
} cf_pair_kind;

typedef struct cf_b_pair {
    cf_ref key[2], what;        /* what: where values differ, and how */
    uint64_t chunk[2], dims[2]; /* CF_B_NONE: none; shapes in CF_B_NUMBERS */
    uint8_t dtype[2], ndim[2];  /* CF_NO_DTYPE: a value */
    uint8_t kind, in_b;         /* cf_pair_kind; of what is in one alone: it is B's */
    uint8_t unused[2];
} cf_b_pair;

/* What planning found wrong. */
typedef struct cf_b_fault {
    cf_ref file, member, message, hint;
    int64_t offset;
    uint32_t code, unused;
} cf_b_fault;

typedef enum cf_section {
    CF_B_SOURCES,
    CF_B_RECORDS,
    CF_B_FILES,
    CF_B_CHUNKS,
    CF_B_TENSORS,
    CF_B_VALUES,
    CF_B_TERMS,
    CF_B_SEALS,
    CF_B_MOVES,
    CF_B_COMPARES,
    CF_B_CHECKS, /* uint64_t: records read only for their checksum */
    CF_B_UNITS,
    CF_B_SUBJECTS,
    CF_B_FAULTS,
    CF_B_PAIRS,
    CF_B_NUMBERS, /* int64_t */
    CF_B_BYTES,
    CF_B_SECTIONS
} cf_section;

/* Texts for the parent, in CF_B_BYTES. */
typedef enum cf_b_text {
    CF_B_NOTES,  /* a line each, for stderr */
    CF_B_RECIPE, /* names */
    CF_B_FORMAT,
    CF_B_WHY,     /* the reason that the format gave */
    CF_B_MISSING, /* --salvage: what is left out, as JSON; "" if nothing is */
    CF_B_TEXTS
} cf_b_text;

typedef struct cf_b_head {
    char magic[8];
    uint32_t version, unused;
    uint64_t size;
    uint64_t count[CF_B_SECTIONS], at[CF_B_SECTIONS];
    cf_ref text[CF_B_TEXTS];
} cf_b_head;

/* An opened block: pointers into it. */
typedef struct cf_block {
    const cf_b_head *head;
    const cf_b_source *sources;
    const cf_b_record *records;
    const cf_b_file *files;
    const cf_b_chunk *chunks;
    const cf_b_tensor *tensors;
    const cf_b_value *values;
    const cf_b_term *terms;
    const cf_b_seal *seals;
    const cf_b_move *moves;
    const cf_b_compare *compares;
    const uint64_t *checks;
    const cf_b_unit *units;
    const cf_b_subject *subjects;
    const cf_b_fault *faults;
    const cf_b_pair *pairs;
    const int64_t *numbers;
    const char *bytes;
    uint64_t n_sources, n_records, n_files, n_chunks, n_tensors, n_values, n_terms, n_seals,
        n_moves, n_compares, n_checks, n_units, n_subjects, n_faults, n_pairs, n_numbers, n_bytes;
} cf_block;

/* Checks all of it; n_roots is how many CKPTs the command line named. E_INTERNAL for a block that
 * cannot be right, E_PATH for a path that leads out. The block keeps pointing into bytes. */
bool cf_block_open(cf_block *block, const void *bytes, size_t size, int n_roots, cf_err *err);

static inline const char *cf_block_text(const cf_block *block, cf_ref ref)
{
    return block->bytes + ref.at;
}

/* The file that a record lies in; "" for one that the block brings. */
static inline const char *cf_record_path(const cf_block *block, const cf_b_record *record)
{
    return record->place == CF_IN_MEMORY
               ? ""
               : cf_block_text(block, block->sources[record->source].path);
}

/* Runs of moves that fill a chunk: one, or one a term of its sum. i counts up from 0; false: no
 * more. */
static inline bool cf_chunk_moves(const cf_block *block, const cf_b_chunk *chunk, uint64_t i,
                                  uint64_t *first, uint64_t *end)
{
    if (i >= (chunk->sum ? chunk->moves : 1)) return false;
    *first = chunk->sum ? block->terms[chunk->move + i].move : chunk->move;
    *end = *first + (chunk->sum ? block->terms[chunk->move + i].moves : chunk->moves);
    return true;
}

/* ---- making one --------------------------------------------------------------------------------
 */

typedef struct cf_blocker {
    cf_text sections[CF_B_SECTIONS]; /* growing arrays */
    cf_ref text[CF_B_TEXTS];
} cf_blocker;

void cf_blocker_free(cf_blocker *b);
/* Appends one struct; its number. */
uint64_t cf_blocker_add(cf_blocker *b, cf_section section, const void *item, size_t size);
cf_ref cf_blocker_text(cf_blocker *b, const char *text, size_t size);
/* The whole block; out is empty before. */
bool cf_blocker_finish(cf_blocker *b, cf_text *out, cf_err *err);

#endif
