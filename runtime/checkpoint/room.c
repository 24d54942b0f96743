/* room.c -- what saving and loading work in: one block, of a size that is known before a run.
 *
 * In: the model, its states, the longest numbers a run can come to. Out: the bytes, and memory for
 * the lists and texts of one save. The one idea: the texts are written once before a run, with the
 * longest numbers there are, so that a save takes no more than was told, and all of it at once. A
 * run that goes on looked through its checkpoint before, and counted what that took.
 */
#include <limits.h>

#include "checkpoint/checkpoint.h"

CkLengths ck_lengths;

static struct {
    char *at;
    size_t size, used, last; /* last: where the newest piece begins */
    size_t planned, load;    /* by rt_checkpoint_plan, 0 = not; for reading a checkpoint */
} room;

enum { LOAD_TIMES = 4 }; /* pieces stay till the end, and the state's names come on top */

static size_t piece(size_t bytes) { return (bytes + RT_ALIGN - 1) / RT_ALIGN * RT_ALIGN; }

static size_t longer(size_t a, size_t b) { return a > b ? a : b; }

/* ---- memory ---------------------------------------------------------------------------------- */

void *ck_alloc(size_t bytes)
{
    if (piece(bytes) > room.size - room.used)
        return rt_mem.alloc(bytes);
    room.last = room.used;
    room.used += piece(bytes);
    return memset(room.at + room.last, 0, bytes);
}

/* The newest piece makes room again, the others when the room is closed. */
void ck_free(void *at)
{
    char *const piece_at = at;
    if (!at || !room.at || piece_at < room.at || piece_at >= room.at + room.size)
        rt_free(at);
    else if (piece_at == room.at + room.last)
        room.used = room.last;
}

bool ck_room_open(void)
{
    room.at = room.planned ? rt_mem.alloc(room.planned) : NULL;
    room.size = room.at ? room.planned : 0;
    room.used = room.last = 0;
    return room.at || !room.planned;
}

void ck_room_expect(size_t bytes) { room.load = longer(room.load, LOAD_TIMES * bytes); }

void ck_room_close(void)
{
    rt_free(room.at);
    room.at = NULL;
    room.size = room.used = room.last = 0;
}

/* ---- its size -------------------------------------------------------------------------------- */

static size_t list_bytes(const CkList *list, ptrdiff_t cap)
{
    size_t bytes = piece((size_t)cap * sizeof *list->tensor + 1);
    for (ptrdiff_t i = 0; i < list->n; i++)
        bytes += piece(strlen(list->tensor[i].name) + 1);
    return bytes;
}

/* The counters of a checkpoint at their longest; texts as they are. */
static RtCheckpoint longest(const RtCheckpoint *c)
{
    RtCheckpoint l = *c;
    l.step = l.applied = l.skipped = l.samples = l.tracker = l.stuck = INT64_MAX;
    l.seed = l.data_hash = UINT64_MAX;
    l.best_val = l.scale = -1.2345678901234567e-300;
    l.products = RT_PRODUCTS_NATIVE;
    memset(l.library, 'x', sizeof l.library - 1);
    return l;
}

size_t rt_checkpoint_plan(const RtModel *m, const RtStateTensor *state, int n_state,
                          const RtCheckpoint *c)
{
    const RtCheckpoint most = longest(c);
    CkManifest manifest = { .c = most, .n_files = CK_FILES };
    CkList list[3] = { { 0 } };
    CkText text = { 0 };
    CkLengths lengths = { 0 };
    size_t bytes = 0;
    ck_metadata(&text, m, &most);
    lengths.metadata = text.len + 1;
    if (!ck_list_params(&list[0], m, NULL) || !ck_list_state(&list[1], m, state, n_state)
        || !ck_list_average(&list[2], m, state, n_state))
        rt_fail(RT_EXIT_FAIL, "out of memory: the list of tensors");
    for (int i = 0; i < 3; i++) {
        CkText header = { 0 };
        st_header(&header, &list[i], text.at);
        lengths.header = longer(lengths.header, header.len + 1);
        bytes += list_bytes(&list[i], i == 1 ? list[0].n * n_state : list[0].n);
        rt_free(header.at);
    }
    rt_free(text.at);
    text = (CkText){ 0 };
    for (int i = 0; i < CK_FILES; i++) {
        manifest.file[i].bytes = UINT64_MAX;
        snprintf(manifest.file[i].name, sizeof manifest.file[i].name, "%s", CK_STATE_FILE);
        memset(manifest.file[i].hash, 'f', CK_HASH_TEXT - 1);
    }
    (void)manifest_text(&text, m, &list[0], &manifest);
    lengths.manifest = text.len + 1;
    rt_free(text.at);
    for (int i = 0; i < 3; i++)
        ck_list_free(&list[i]);
    bytes += piece(lengths.metadata) + piece(lengths.header) + piece(lengths.manifest);
    ck_lengths = lengths;
    return room.planned = longer(longer(bytes, room.load), CK_ROOM_LEAST);
}
