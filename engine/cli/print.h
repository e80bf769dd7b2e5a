/* What people and programs read: errors, notes, results. Text from files is escaped here. */
#ifndef CF_PRINT_H
#define CF_PRINT_H

#include "text.h"

/* Whether errors and notes are colored. AUTO: on a terminal, unless NO_COLOR is set (no-color.org).
 */
typedef enum cf_color { CF_COLOR_AUTO, CF_COLOR_ALWAYS, CF_COLOR_NEVER } cf_color;

/* From then on. */
void cf_print_in_color(cf_color when);

/* On stderr: one line and its hint, or one line of JSON. Scripts' errors keep their traceback. */
void cf_print_error(const cf_err *err, int status, bool json);
/* The same as text: a line and its hint. */
void cf_add_error(cf_text *out, const cf_err *err);
/* Fields that the error has as well where it is printed as JSON: an object with lost, lost_total,
 * whole, whole_total. What is no such object is left out. */
void cf_print_more(const char *json, size_t size);
/* Lines of notes on stderr. */
void cf_print_notes(const char *lines);
/* The same lines as a field of a JSON object: "notes":["..."]. */
void cf_add_notes(cf_text *out, const char *lines);
/* A result on stdout; E_IO if it cannot be written. */
bool cf_print_out(const cf_text *text, cf_err *err);

#endif
