/* Hugging Face's cache: models--ORG--NAME/snapshots/REVISION is a folder of links to
 * ../../blobs/HASH (as huggingface_hub makes them; one "../" more in each sub-folder). Those lead
 * out of the checkpoint's folder and are followed all the same: to a name in blobs/, and no
 * further.
 */
#ifndef CF_HUB_H
#define CF_HUB_H

#include <stdbool.h>
#include <stddef.h>

/* The path of the folder `blobs` of a root that is such a snapshot; false: it is none, or the path
 * is too long. */
bool cf_hub_blobs(const char *root, char *blobs, size_t size);

/* The folder `blobs`, opened, of a snapshot `dir`, and the name in it that the link `path` means.
 * -1: no such link. */
int cf_hub_follow(int dir, const char *path, char *name, size_t size);

#endif
