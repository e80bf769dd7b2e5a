/* The text of a journal (journal.h): its lines made, and read back. */
#ifndef CF_JOURNAL_LINES_H
#define CF_JOURNAL_LINES_H

#include "journal.h"

/* Of a window file, begin and end are its key. */
enum { CF_WINDOW_KEY = 3 * sizeof(uint64_t) };

/* What the first line says of the plan; then of the share, and its end. */
void cf_line_head(cf_text *line, const cf_block *block);
void cf_line_share(cf_text *line, cf_share share);
/* parts: NULL if the run is not divided. */
void cf_line_window(cf_text *line, const cf_window *window, uint32_t crc,
                    const cf_stretches *checked, const cf_stretches *parts);
void cf_line_items(cf_text *line, const cf_stretches *items);

/* The lines of a file, if it is of the plan in journal->head, added to the journal's windows and
 * items. share: what it says it is. good: bytes up to the end of the last line that can be used. */
cf_journal_state cf_journal_read(cf_journal *journal, const cf_block *block, int fd, bool is_own,
                                 cf_share *share, uint64_t *good);

#endif
