/* Compressed zip members, through libzip (see zipfile.h).
 *
 * libzip gets the archive as a source that reads a span, so that it needs neither a path nor an
 * archive that begins at byte 0 of its file. It checks the CRC-32 when a member has been read to
 * its end, 0 too, where torch means "not computed": then that last error is let pass. Reads never
 * ask for more than is declared, so that all bytes have arrived by then, and nothing beyond is
 * decoded but the one byte that proves a lie.
 */
#include <errno.h>
#include <zip.h>

#include "zipfile.h"

enum { PIECE = 1 << 15 };

static const struct {
    uint16_t number;
    const char *name;
} METHODS[] = {{8, "deflate"}, {93, "zstd"}};

bool cf_zip_supports(uint16_t method, cf_err *err)
{
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++) {
        if (METHODS[i].number != method) continue;
        if (zip_compression_method_supported(method, 0)) return true;
        return cf_fail(err, CF_E_ZIP_METHOD, "is compressed by %s, which libzip %s does not know",
                       METHODS[i].name, zip_libzip_version());
    }
    return cf_fail(err, CF_E_ZIP_METHOD, "is compressed by method %u, which is not supported",
                   method);
}

typedef struct source {
    cf_span span;
    uint64_t at;
    zip_error_t error;
    cf_err failure; /* of a read of the span */
} source;

static zip_int64_t source_read(source *s, void *to, zip_uint64_t n)
{
    if (n > s->span.size - s->at) n = s->span.size - s->at;
    if (!cf_span_read(&s->span, s->at, to, n, &s->failure)) {
        zip_error_set(&s->error, ZIP_ER_READ, EIO);
        return -1;
    }
    s->at += n;
    return (zip_int64_t)n;
}

static zip_int64_t source_call(void *ctx, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    source *s = ctx;
    switch (command) {
    case ZIP_SOURCE_OPEN: s->at = 0; return 0;
    case ZIP_SOURCE_READ: return source_read(s, data, n);
    case ZIP_SOURCE_TELL: return (zip_int64_t)s->at;
    case ZIP_SOURCE_SEEK: {
        const zip_int64_t to =
            zip_source_seek_compute_offset(s->at, s->span.size, data, n, &s->error);
        if (to >= 0) s->at = (uint64_t)to;
        return to < 0 ? -1 : 0;
    }
    case ZIP_SOURCE_STAT: {
        zip_stat_t *st = data;
        zip_stat_init(st);
        st->size = s->span.size;
        st->valid = ZIP_STAT_SIZE;
        return sizeof *st;
    }
    case ZIP_SOURCE_ERROR: return zip_error_to_data(&s->error, data, n);
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: return 0;
    default: zip_error_set(&s->error, ZIP_ER_OPNOTSUPP, 0); return -1;
    }
}

static bool fail(const source *s, zip_error_t *error, cf_err *err)
{
    if (s->failure.code) {
        *err = s->failure;
        return false;
    }
    const int code = zip_error_code_zip(error);
    return cf_fail(err,
                   code == ZIP_ER_CRC           ? CF_E_ZIP_CRC
                   : code == ZIP_ER_COMPNOTSUPP ? CF_E_ZIP_METHOD
                   : code == ZIP_ER_ENCRNOTSUPP ? CF_E_ZIP_ENCRYPTED
                   : code == ZIP_ER_NOENT       ? CF_E_STORAGE_MISSING
                   : code == ZIP_ER_MEMORY      ? CF_E_MEMORY
                                                : CF_E_ZIP_STRUCT,
                   "cannot be decoded: %s", zip_error_strerror(error));
}

static bool decode(const source *s, zip_file_t *member, bool has_crc, uint64_t size, cf_take *take,
                   void *ctx, cf_err *err)
{
    uint8_t piece[PIECE];
    for (uint64_t done = 0; done < size;) {
        const zip_int64_t got = zip_fread(member, piece, size - done < PIECE ? size - done : PIECE);
        if (got < 0) return fail(s, zip_file_get_error(member), err);
        if (got == 0)
            return cf_fail(err, CF_E_STORAGE_SIZE, "decodes to %llu bytes, %llu are declared",
                           (unsigned long long)done, (unsigned long long)size);
        CF_TRY(take(ctx, piece, (size_t)got, err));
        done += (uint64_t)got;
    }
    const zip_int64_t more = zip_fread(member, piece, 1);
    if (more > 0)
        return cf_fail(err, CF_E_STORAGE_SIZE, "decodes to more than the %llu bytes declared",
                       (unsigned long long)size);
    if (more < 0 && (has_crc || zip_error_code_zip(zip_file_get_error(member)) != ZIP_ER_CRC))
        return fail(s, zip_file_get_error(member), err);
    return true;
}

static bool decode_in(const source *s, zip_t *archive, const char *name, uint64_t size,
                      cf_take *take, void *ctx, cf_err *err)
{
    zip_stat_t st;
    if (zip_stat(archive, name, ZIP_FL_ENC_RAW, &st) < 0)
        return fail(s, zip_get_error(archive), err);
    zip_file_t *member = zip_fopen_index(archive, st.index, 0);
    if (!member) return fail(s, zip_get_error(archive), err);
    const bool ok = decode(s, member, st.crc != 0, size, take, ctx, err);
    zip_fclose(member);
    return ok;
}

bool cf_zip_decode(const cf_span *archive, const char *name, uint64_t size, cf_take *take,
                   void *ctx, cf_err *err)
{
    source s = {.span = *archive};
    zip_error_t error;
    zip_error_init(&s.error);
    zip_error_init(&error);
    zip_source_t *from = zip_source_function_create(source_call, &s, &error);
    zip_t *zip = from ? zip_open_from_source(from, ZIP_RDONLY, &error) : NULL;
    const bool ok = zip ? decode_in(&s, zip, name, size, take, ctx, err) : fail(&s, &error, err);
    if (zip)
        zip_discard(zip);
    else
        zip_source_free(from);
    zip_error_fini(&error);
    zip_error_fini(&s.error);
    return ok || cf_err_in_member(err, name);
}
