/* Errors are values.
 *
 * A function that can fail returns bool and takes a cf_err last; false means that the error is
 * filled and that no other output was touched. The struct is fixed: nothing is allocated while
 * failing. The table below is the single source of every code, its exit status and its meaning.
 */
#ifndef CF_ERR_H
#define CF_ERR_H

#include <stdbool.h>
#include <stdint.h>

/* name, exit status (CLI.md), meaning */
#define CF_CODES(X)                                                                                \
    X(E_USAGE, 2, "the command line cannot be understood")                                         \
    X(E_MAGIC, 3, "no supported format recognised")                                                \
    X(E_FORMAT_TIE, 3, "several formats fit equally well")                                         \
    X(E_TRUNCATED, 4, "input ends before a declared length")                                       \
    X(E_TRAILING, 4, "bytes after the end of a complete object")                                   \
    X(E_OPCODE, 4, "pickle opcode outside the supported set")                                      \
    X(E_STACK, 4, "pickle stack or mark underflow")                                                \
    X(E_MEMO, 4, "pickle memo slot read before it was written")                                    \
    X(E_FRAME, 4, "a pickle opcode straddles a frame")                                             \
    X(E_NUMBER, 4, "a negative or non-representable length or number")                             \
    X(E_TYPE, 4, "a value of the wrong kind")                                                      \
    X(E_PERSID, 4, "a persistent id that is no storage")                                           \
    X(E_UTF8, 4, "text that is not valid UTF-8")                                                   \
    X(E_BOUNDS, 4, "a view, chunk or slice outside its parent")                                    \
    X(E_OVERFLOW, 4, "arithmetic on sizes does not fit in 63 bits")                                \
    X(E_STORAGE_MISSING, 4, "a storage record is absent")                                          \
    X(E_STORAGE_SIZE, 4, "a record's size is not numel * itemsize")                                \
    X(E_STORAGE_CONFLICT, 4, "one storage declared with two dtypes or sizes")                      \
    X(E_DTYPE, 4, "unknown or mismatching dtype")                                                  \
    X(E_ZIP_STRUCT, 4, "broken zip framing")                                                       \
    X(E_ZIP_DUP, 4, "two zip entries with one name")                                               \
    X(E_ZIP_MISMATCH, 4, "a local zip header disagrees with the directory")                        \
    X(E_ZIP_METHOD, 4, "zip compression method not supported here")                                \
    X(E_ZIP_ENCRYPTED, 4, "encrypted zip entry")                                                   \
    X(E_ZIP_OVERLAP, 4, "zip entries overlap")                                                     \
    X(E_ZIP_CRC, 4, "CRC-32 differs from the content")                                             \
    X(E_JSON, 4, "invalid JSON or JSON of the wrong type")                                         \
    X(E_DUP_KEY, 4, "duplicate key")                                                               \
    X(E_HEADER_SIZE, 4, "safetensors header length out of bounds")                                 \
    X(E_LAYOUT, 4, "tensor byte ranges or a file's layout are inconsistent")                       \
    X(E_MISSING_FILE, 4, "a file is absent")                                                       \
    X(E_COVERAGE, 4, "pieces do not cover their tensor")                                           \
    X(E_OVERLAP, 4, "pieces of one tensor overlap")                                                \
    X(E_META_CONFLICT, 4, "ranks or files disagree")                                               \
    X(E_GLOBAL_DENIED, 5, "a pickle names a global that no checkpoint needs")                      \
    X(E_CALL_DENIED, 5, "a pickle calls what is no constructor")                                   \
    X(E_PATH, 5, "a name escapes its folder")                                                      \
    X(E_NOT_REGULAR, 5, "not a regular file")                                                      \
    X(E_LIMIT, 5, "a resource limit was hit")                                                      \
    X(E_DEPTH, 5, "nested too deeply")                                                             \
    X(L_DENIED, 6, "scripts have no such function")                                                \
    X(L_BYTECODE, 6, "binary chunk refused")                                                       \
    X(L_LIMIT_CPU, 6, "a script's time limit")                                                     \
    X(L_LIMIT_MEM, 6, "a script's memory limit")                                                   \
    X(L_ERROR, 6, "a script failed")                                                               \
    X(L_PLAN, 6, "a recipe asks for what cannot be done")                                          \
    X(E_EXISTS, 7, "the output exists")                                                            \
    X(E_BUSY, 7, "another run writes the same output")                                             \
    X(E_SPACE, 7, "no space left")                                                                 \
    X(E_IO, 7, "input or output failed")                                                           \
    X(E_MEMORY, 7, "out of memory")                                                                \
    X(E_INTERNAL, 7, "a fault of ckptflow itself")                                                 \
    X(E_INTERRUPTED, 130, "stopped by a signal")

typedef enum cf_code {
    CF_OK = 0,
#define X(name, exit, text) CF_##name,
    CF_CODES(X)
#undef X
} cf_code;

typedef struct cf_err {
    cf_code code;
    int sys;          /* errno, or 0 */
    int64_t offset;   /* byte in the file or member, or -1 */
    bool resumable;   /* what was written stays, and the same command goes on: exit 75 */
    char file[256];   /* path within the checkpoint, or "" */
    char member[128]; /* what inside the file: a zip member, a tensor, or "" */
    char message[1024];
    char hint[256];
} cf_err;

#define CF_TRY(call)                                                                               \
    do {                                                                                           \
        if (!(call)) return false;                                                                 \
    } while (0)

static inline bool cf_false(void)
{
    return false;
}

/* Fill err, in place of what it held. The macros are false, in sight of the compiler: `return
 * cf_fail(...)` reads well, and what CF_TRY let through is known to be filled. */
#define cf_fail(err, ...) (cf_err_set((err), __VA_ARGS__), cf_false())
/* The same with a byte offset before the format. */
#define cf_fail_at(err, ...) (cf_err_set_at((err), __VA_ARGS__), cf_false())
/* The same for a failed system call: errno `sys` becomes E_SPACE (ENOSPC, EDQUOT, EFBIG), E_MEMORY
 * (ENOMEM), E_MISSING_FILE (ENOENT), E_PATH (ELOOP, EXDEV) or E_IO, and its text ends the message.
 */
#define cf_fail_sys(err, ...) (cf_err_set_sys((err), __VA_ARGS__), cf_false())

/* Add context on the way up: file and member only where they are still empty. False too. */
#define cf_err_in_file(err, file_)     (cf_err_add_file((err), (file_)), cf_false())
#define cf_err_in_member(err, member_) (cf_err_add_member((err), (member_)), cf_false())
#define cf_err_hint(err, ...)          (cf_err_set_hint((err), __VA_ARGS__), cf_false())

void cf_err_set(cf_err *err, cf_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cf_err_set_at(cf_err *err, cf_code code, int64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void cf_err_set_sys(cf_err *err, int sys, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cf_err_set_hint(cf_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cf_err_add_file(cf_err *err, const char *file);
void cf_err_add_member(cf_err *err, const char *member);

const char *cf_code_name(cf_code code); /* "E_COVERAGE" */
int cf_code_exit(cf_code code);
cf_code cf_code_of(const char *name); /* CF_OK if there is no such code */

/* "file: member: byte 12: message" into out, control characters as they are; returns out. */
const char *cf_err_line(const cf_err *err, char *out, unsigned long size);

#endif
