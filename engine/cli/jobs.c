/* Jobs of the child, as the parent sees them: what came back is opened or printed. */
#include <string.h>

#include "print.h"
#include "verbs.h"

bool cf_block_job(cf_child_job *job, const void *ctx, const cf_options *o, cf_reply *reply,
                  cf_block *block, cf_err *err)
{
    if (!cf_child_run(job, ctx, o, reply, err) ||
        !cf_block_open(block, reply->bytes, reply->size, o->n_roots, err))
        return false;
    if (!o->quiet && !o->json) cf_print_notes(cf_block_text(block, block->head->text[CF_B_NOTES]));
    return true;
}

bool cf_show_job(cf_child_job *job, const cf_options *o, cf_err *err)
{
    cf_reply reply;
    if (!cf_child_run(job, o, o, &reply, err)) return false;
    cf_text text = {0};
    const char *bytes = reply.bytes, *zero = memchr(bytes, 0, reply.size);
    bool ok = zero != NULL;
    if (ok) {
        if (!o->quiet && !o->json) cf_print_notes(bytes);
        cf_text_add(&text, zero + 1, reply.size - (size_t)(zero + 1 - bytes));
        ok = cf_print_out(&text, err);
    } else {
        cf_fail(err, CF_E_INTERNAL, "the planner's answer is not whole");
    }
    cf_text_free(&text);
    cf_reply_free(&reply);
    return ok;
}
